//! The words of a guest's block that are no keys of Proxmox VE, in sentences.

use super::Explanation;
use crate::model::id::GuestKind;

/// One word.
pub(super) struct FileWord {
    pub(super) name: &'static str,
    pub(super) line: &'static str,
    about: &'static str,
    value: &'static str,
    default: &'static str,
    /// Its parts, each with what it takes and a line that has it.
    parts: &'static [(&'static str, &'static str, &'static str)],
    example: &'static str,
    kinds: &'static [GuestKind],
}

const BOTH: &[GuestKind] = &GuestKind::ALL;
const IMAGE: &str = "source = { image = \"local:import/debian-12.qcow2\", into = \"scsi0\" }";
const KEYS: &str = "first = { ssh_keys = [\"ssh-ed25519 AAAA you@example\"] }";
const TEMPLATE: &str = "source = { template = \"local:vztmpl/debian-12.tar.zst\" }";

/// The words of a guest's block that are no keys of Proxmox VE.
pub(super) const WORDS: &[FileWord] = &[
    FileWord {
        name: "kind",
        line: "Container or virtual machine.",
        about: "Whether the guest is a container or a virtual machine. Every guest says it, itself or by a profile.",
        value: "`lxc` for a container, `qemu` for a virtual machine",
        default: "an error",
        parts: &[],
        example: "kind = \"lxc\"",
        kinds: BOTH,
    },
    FileWord {
        name: "run",
        line: "Whether the guest shall run.",
        about: "Whether the guest shall run. It is started, or asked to shut down, until it is so.",
        value: "`running`, `stopped`",
        default: "not managed: it may run or not",
        parts: &[],
        example: "run = \"running\"",
        kinds: BOTH,
    },
    FileWord {
        name: "state",
        line: "Whether the guest shall be there.",
        about: "Whether the guest shall be there. `bin` puts it aside: down, not started with the node, tagged evenkeel-bin, until \
                it is `present` again. `absent` asks for its destruction, which waits for an operator's signature; \
                removing a block only stops managing the guest.",
        value: "`present`, `bin`, `absent`",
        default: "`present`",
        parts: &[],
        example: "state = \"absent\"",
        kinds: BOTH,
    },
    FileWord {
        name: "final_backup",
        line: "Where the guest is saved before it is destroyed.",
        about: "The storage a guest that shall be absent is saved to first. Without a whole backup there it is not destroyed; \
                what no backup holds is listed in what is signed.",
        value: "the name of a storage that holds backups",
        default: "no backup is made",
        parts: &[],
        example: "final_backup = \"local\"",
        kinds: BOTH,
    },
    FileWord {
        name: "stop",
        line: "How the guest is brought down.",
        about: "How the guest is brought down where `run` is `stopped`: it is asked and left alone if it does not answer, or its \
                power is cut.",
        value: "`shutdown`, `force`",
        default: "`shutdown`",
        parts: &[],
        example: "stop = \"force\"",
        kinds: BOTH,
    },
    FileWord {
        name: "source",
        line: "What the guest is made from, if it is not there.",
        about: "What the guest is made from if it is not there. It says nothing about a guest that is: changing it later \
                changes nothing, and nothing is ever replaced.",
        value: "a table with one of `template` (containers), `image` or `empty` (machines), `clone`, `backup`",
        default: "a guest that is not there is not made",
        parts: &[
            ("template", "containers: a volume of content vztmpl", TEMPLATE),
            ("image", "machines: a volume of content import, which becomes the disk `into`", IMAGE),
            (
                "into",
                "beside `image`: the disk it becomes, declared with its storage and size",
                IMAGE,
            ),
            (
                "empty",
                "machines: true, or an empty table; its disks are new and empty",
                "source = { empty = true }",
            ),
            ("clone", "the number of a guest to copy", "source = { clone = 9000 }"),
            (
                "full",
                "beside `clone`: false for a linked clone of a template; if absent true",
                "source = { clone = 9000, full = false }",
            ),
            (
                "storage",
                "beside `clone`: where a full copy goes; if absent where the source is",
                "source = { clone = 9000, storage = \"local-lvm\" }",
            ),
            (
                "snapshot",
                "beside `clone`: the snapshot to copy; if absent the present state",
                "source = { clone = 9000, snapshot = \"gold\" }",
            ),
            (
                "backup",
                "a volume of content backup to restore",
                "source = { backup = \"store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst\" }",
            ),
            (
                "unique",
                "beside `backup`: false keeps the old MAC addresses; if absent true",
                "source = { backup = \"store:backup/vzdump-lxc-101-2026_11_01-02_00_00.tar.zst\", unique = false }",
            ),
        ],
        example: TEMPLATE,
        kinds: BOTH,
    },
    FileWord {
        name: "first",
        line: "What a new container gets once, when it is made.",
        about: "What a new container gets once, when it is made from a template. It is never compared, journalled or shown, and \
                nobody needs it again. A machine gets its user and keys from cloud-init.",
        value: "a table: [guest.101.first]",
        default: "nothing is given",
        parts: &[
            ("ssh_keys", "a list of public keys of its root user", KEYS),
            (
                "password",
                "{ secret = \"NAME\" }: a file in the secrets directory of the host",
                "first = { password = { secret = \"web-root\" } }",
            ),
        ],
        example: KEYS,
        kinds: &[GuestKind::Lxc],
    },
    FileWord {
        name: "scratch",
        line: "Whether we may destroy what we made, unsigned.",
        about: "Whether the guest holds nothing anybody would miss. What evenkeel made itself, and nobody else touched since, it may \
                then destroy without a signature. It counts only for the numbers in `scratch_vmids` of agent.toml.",
        value: "`true`, `false`",
        default: "`false`: destroying it needs a signature",
        parts: &[],
        example: "scratch = true",
        kinds: BOTH,
    },
    FileWord {
        name: "template",
        line: "Whether the guest shall be a template.",
        about: "Whether the guest shall be a template, from which others are cloned. There is no way back, so the conversion \
                waits for an operator's signature. To make a guest from a template, write `source`.",
        value: "`true`, `false`",
        default: "`false`: it stays what it is",
        parts: &[],
        example: "template = true",
        kinds: BOTH,
    },
    FileWord {
        name: "unset",
        line: "Keys that must be absent.",
        about: "Keys that must be absent. A key that is neither declared nor unset is left as it is.",
        value: "a list of keys",
        default: "nothing must be absent",
        parts: &[],
        example: "unset = [\"nameserver\"]",
        kinds: BOTH,
    },
    FileWord {
        name: "use",
        line: "Profiles the guest takes its keys from.",
        about: "The profiles the guest takes keys from. Its own word wins over its profiles, a later profile over an earlier, all \
                over the defaults.",
        value: "a list of names of [profile.NAME] blocks",
        default: "none",
        parts: &[],
        example: "use = [\"web\"]",
        kinds: BOTH,
    },
    FileWord {
        name: "mode",
        line: "Whether drift is mended or only shown.",
        about: "Whether what differs is changed. With `observe` it is shown and never changed.",
        value: "`observe`, or left out",
        default: "the guest is kept as declared",
        parts: &[],
        example: "mode = \"observe\"",
        kinds: BOTH,
    },
    FileWord {
        name: "ignore",
        line: "Keys and parts that are left as they are.",
        about: "Keys, or parts of keys, that are left as they are although their key is declared. A declared key is whole: parts \
                left out are Proxmox VE's default, and this is the way out.",
        value: "a list of keys and parts",
        default: "nothing is ignored",
        parts: &[],
        example: "ignore = [\"tags\", \"net0.rate\"]",
        kinds: BOTH,
    },
];

pub(super) fn words() -> Vec<Explanation> {
    let word = |word: &FileWord| Explanation {
        name: word.name.to_owned(),
        kinds: word.kinds.to_vec(),
        about: word.about.to_owned(),
        facts: vec![("value", word.value.to_owned()), ("if absent", word.default.to_owned())],
        parts: word.parts.iter().map(|(name, takes, _)| (*name, (*takes).to_owned())).collect(),
        example: word.example.to_owned(),
    };
    WORDS.iter().map(word).collect()
}

/// A part of a word, such as `source.clone`.
pub(super) fn part(asked: &str) -> Option<Explanation> {
    let (name, part) = asked.split_once('.')?;
    let word = WORDS.iter().find(|word| word.name == name)?;
    let (_, takes, example) = word.parts.iter().find(|(known, _, _)| *known == part)?;
    let facts = vec![("value", (*takes).to_owned())];
    let about = format!("A part of {name}. {}", word.line);
    let example = (*example).to_owned();
    let name = asked.to_owned();
    let kinds = word.kinds.to_vec();
    Some(Explanation { name, kinds, about, facts, parts: Vec::new(), example })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::explain::is_taken;

    #[test]
    fn every_example_of_a_word_is_taken_by_the_reader_of_desired_files() {
        for word in WORDS.iter().filter(|word| !["kind", "use"].contains(&word.name)) {
            let examples = word.parts.iter().map(|(_, _, example)| *example);
            for example in examples.chain([word.example]) {
                let disk = "scsi0 = { storage = \"local-lvm\", size = \"20GiB\" }";
                let taken = |kind: &GuestKind| {
                    let around = ["", disk, "state = \"absent\""];
                    around.iter().any(|more| is_taken(*kind, &format!("{example}\n{more}")))
                };
                assert!(word.kinds.iter().any(taken), "{example}");
            }
        }
    }
}
