//! The parameters of a signed op: which must be spelled out, and what each may look like.
//!
//! A parameter left out would take PVE's default, which may differ from release to release, so the ops
//! that destroy name every one, and the preparatory steps `stop` and `unprotect` beside them. Names that
//! end in a path are held to PVE's grammar, so that no `..` or `?` is ever signed. Called when a
//! statement is read and when one is made; it compares nothing with the world.

use std::collections::BTreeMap;

use super::json::Malformed;
use crate::action_kind::ActionKind;
use crate::id::{GuestKind, NodeName, VmId};

/// How many parameters an op may have: a guest has at most about a hundred and fifty keys.
const PARAMS_MAX: usize = 256;

/// The longest parameter name read; PVE's longest is 26.
const NAME_BYTES_MAX: usize = 64;

/// Checks all parameters of an op.
pub(crate) fn check(
    op: ActionKind,
    kind: GuestKind,
    params: &BTreeMap<String, String>,
) -> Result<(), Malformed> {
    if params.len() > PARAMS_MAX {
        return Err(Malformed::new(format!("more than {PARAMS_MAX} parameters")));
    }
    let Listed { required, optional, closed } = listed(op, kind);
    if let Some(missing) = required.iter().find(|name| !params.contains_key(**name)) {
        return Err(Malformed::new(format!(
            "`params` has no `{missing}`: a {op} names every parameter, defaults too"
        )));
    }
    for (name, value) in params {
        if !is_name(name) {
            let name = name.escape_debug();
            return Err(Malformed::new(format!("`{name}` is not the name of a parameter")));
        }
        let known = required.contains(&name.as_str()) || optional.contains(&name.as_str());
        if closed && !known {
            return Err(Malformed::new(format!("a {op} has no parameter `{name}`")));
        }
        if !grammar(op, name).fits(value) {
            return Err(Malformed::new(format!("`{}` is no {name}", value.escape_debug())));
        }
    }
    Ok(())
}

/// What an op's parameters are.
struct Listed {
    required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Whether there are no others.
    closed: bool,
}

fn listed(op: ActionKind, kind: GuestKind) -> Listed {
    let closed = |required, optional| Listed { required, optional, closed: true };
    let open = |required| Listed { required, optional: &[], closed: false };
    match (op, kind) {
        (ActionKind::Destroy, GuestKind::Qemu) => {
            closed(&["destroy-unreferenced-disks", "purge", "stop", "unprotect"], &[])
        }
        (ActionKind::Destroy, GuestKind::Lxc) => {
            closed(&["destroy-unreferenced-disks", "force", "purge", "stop", "unprotect"], &[])
        }
        // A snapshot's name is re-used; its time is not.
        (ActionKind::Rollback, GuestKind::Lxc | GuestKind::Qemu) => {
            closed(&["snapname", "snaptime", "start"], &[])
        }
        (ActionKind::DeleteSnapshot, GuestKind::Lxc | GuestKind::Qemu) => {
            closed(&["force", "snapname", "snaptime"], &[])
        }
        // The slot is where it stands, the volume is what is lost.
        (ActionKind::DeleteVolume, GuestKind::Lxc | GuestKind::Qemu) => {
            closed(&["slot", "volume"], &["digest"])
        }
        (ActionKind::MoveVolume, GuestKind::Lxc | GuestKind::Qemu) => open(&["delete"]),
        (ActionKind::Restore, GuestKind::Lxc | GuestKind::Qemu) => open(&["force"]),
        (
            ActionKind::SetConfig
            | ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Resize
            | ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Snapshot
            | ActionKind::Migrate
            | ActionKind::Template
            | ActionKind::WipeStorage
            | ActionKind::Decommission,
            GuestKind::Lxc | GuestKind::Qemu,
        ) => open(&[]),
    }
}

/// What a value may look like.
#[derive(Debug, Clone, Copy)]
enum Grammar {
    /// `0` or `1`.
    Flag,
    /// Digits without leading zeros.
    Count,
    /// A guest's number.
    VmId,
    /// A node.
    Node,
    /// A storage.
    Storage,
    /// A volume: storage, colon, name.
    Volume,
    /// A configuration slot.
    Slot,
    /// Slots or keys with commas between.
    Keys,
    /// A snapshot's name.
    Snapshot,
    /// Any text: PVE is sent it as one form-encoded value.
    Text,
}

fn grammar(op: ActionKind, name: &str) -> Grammar {
    match name {
        "delete" if op == ActionKind::MoveVolume => Grammar::Flag,
        "delete" | "revert" => Grammar::Keys,
        "destroy-unreferenced-disks"
        | "force"
        | "purge"
        | "stop"
        | "unprotect"
        | "unique"
        | "full"
        | "online"
        | "with-local-disks" => Grammar::Flag,
        "start" if op != ActionKind::SetConfig => Grammar::Flag,
        "snaptime" => Grammar::Count,
        "newid" | "target-vmid" => Grammar::VmId,
        "target" => Grammar::Node,
        "storage" | "target-storage" | "targetstorage" => Grammar::Storage,
        "volume" if op == ActionKind::DeleteVolume => Grammar::Volume,
        "archive" => Grammar::Volume,
        "disk" | "slot" | "target-disk" | "target-volume" => Grammar::Slot,
        "snapname" => Grammar::Snapshot,
        _ => Grammar::Text,
    }
}

impl Grammar {
    fn fits(self, value: &str) -> bool {
        match self {
            Self::Flag => matches!(value, "0" | "1"),
            Self::Count => value.parse::<u64>().is_ok_and(|number| number.to_string() == value),
            Self::VmId => value.parse::<VmId>().is_ok(),
            Self::Node => value.parse::<NodeName>().is_ok(),
            Self::Storage => is_word(value, "._-"),
            Self::Volume => value.split_once(':').is_some_and(|(storage, name)| {
                is_word(storage, "._-") && name.split('/').all(is_part)
            }),
            Self::Slot => is_word(value, "_"),
            Self::Keys => value.split(',').all(|key| is_word(key, "_-")),
            Self::Snapshot => is_word(value, "_-") && value.len() <= 40,
            Self::Text => true,
        }
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && is_word(name, "_.-")
}

/// A letter, then letters, digits and the given marks.
fn is_word(text: &str, marks: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || marks.contains(letter))
}

/// One part of a volume's path: never empty, never a step upwards.
fn is_part(part: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._+:@-".contains(letter);
    !part.is_empty() && !part.bytes().all(|byte| byte == b'.') && part.chars().all(plain)
}
