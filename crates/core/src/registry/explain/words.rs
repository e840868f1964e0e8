//! The words of a guest's block that are no keys of Proxmox VE, in sentences.

use super::Explanation;
use crate::id::GuestKind;

/// One word.
pub(super) struct FileWord {
    pub(super) name: &'static str,
    pub(super) line: &'static str,
    about: &'static str,
    value: &'static str,
    default: &'static str,
    example: &'static str,
}

/// The words of a guest's block that are no keys of Proxmox VE.
pub(super) const WORDS: &[FileWord] = &[
    FileWord {
        name: "kind",
        line: "Container or virtual machine.",
        about: "Whether the guest is a container or a virtual machine. Every guest says it, itself or by a profile.",
        value: "`lxc` for a container, `qemu` for a virtual machine",
        default: "an error",
        example: "kind = \"lxc\"",
    },
    FileWord {
        name: "run",
        line: "Whether the guest shall run.",
        about: "Whether the guest shall run. It is started, or asked to shut down, until it is so.",
        value: "`running`, `stopped`",
        default: "not managed: it may run or not",
        example: "run = \"running\"",
    },
    FileWord {
        name: "state",
        line: "Whether the guest shall be there.",
        about: "Whether the guest shall be there. `bin` puts it aside: down, not started with the node, tagged evenkeel-bin, until \
                it is `present` again. `absent` asks for its destruction, which waits for an operator's signature; \
                removing a block only stops managing the guest.",
        value: "`present`, `bin`, `absent`",
        default: "`present`",
        example: "state = \"absent\"",
    },
    FileWord {
        name: "final_backup",
        line: "Where the guest is saved before it is destroyed.",
        about: "The storage a guest that shall be absent is saved to first. Without a whole backup there it is not destroyed; \
                what no backup holds is listed in what is signed.",
        value: "the name of a storage that holds backups",
        default: "no backup is made",
        example: "final_backup = \"local\"",
    },
    FileWord {
        name: "stop",
        line: "How the guest is brought down.",
        about: "How the guest is brought down where `run` is `stopped`: it is asked and left alone if it does not answer, or its \
                power is cut.",
        value: "`shutdown`, `force`",
        default: "`shutdown`",
        example: "stop = \"force\"",
    },
    FileWord {
        name: "source",
        line: "What the guest is made from, if it is not there.",
        about: "What the guest is made from if it is not there. It says nothing about a guest that is.",
        value: "a table with one of `template` (containers), `clone` or `backup`",
        default: "a guest that is not there is not made",
        example: "source = { template = \"local:vztmpl/debian-12.tar.zst\" }",
    },
    FileWord {
        name: "unset",
        line: "Keys that must be absent.",
        about: "Keys that must be absent. A key that is neither declared nor unset is left as it is.",
        value: "a list of keys",
        default: "nothing must be absent",
        example: "unset = [\"nameserver\"]",
    },
    FileWord {
        name: "use",
        line: "Profiles the guest takes its keys from.",
        about: "The profiles the guest takes keys from. Its own word wins over its profiles, a later profile over an earlier, all \
                over the defaults.",
        value: "a list of names of [profile.NAME] blocks",
        default: "none",
        example: "use = [\"web\"]",
    },
    FileWord {
        name: "mode",
        line: "Whether drift is mended or only shown.",
        about: "Whether what differs is changed. With `observe` it is shown and never changed.",
        value: "`observe`, or left out",
        default: "the guest is kept as declared",
        example: "mode = \"observe\"",
    },
    FileWord {
        name: "ignore",
        line: "Keys and parts that are left as they are.",
        about: "Keys, or parts of keys, that are left as they are although their key is declared. A declared key is whole: parts \
                left out are Proxmox VE's default, and this is the way out.",
        value: "a list of keys and parts",
        default: "nothing is ignored",
        example: "ignore = [\"tags\", \"net0.rate\"]",
    },
];

pub(super) fn words() -> Vec<Explanation> {
    let word = |word: &FileWord| Explanation {
        name: word.name.to_owned(),
        kinds: GuestKind::ALL.to_vec(),
        about: word.about.to_owned(),
        facts: vec![("value", word.value.to_owned()), ("if absent", word.default.to_owned())],
        parts: Vec::new(),
        example: word.example.to_owned(),
    };
    WORDS.iter().map(word).collect()
}
