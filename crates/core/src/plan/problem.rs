//! What a plan cannot do, said per guest: nothing of it is ever sent.
//!
//! A problem on a field leaves the guest's other fields alone; a problem on the guest itself leaves the
//! whole guest alone. Each says what is wrong and, where there is one, the next step.

use std::fmt;

use crate::actual::Unreadable;
use crate::model::id::{GuestId, GuestKind, NodeName};
use crate::model::quantity::Bytes;
use crate::model::release::Release;
use crate::registry::KeyRef;

/// Something declared that evenkeel will not or cannot bring about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanProblem {
    /// The number belongs to the other kind of guest.
    OtherKind(GuestKind),
    /// The guest is on another node of the cluster.
    OtherNode(NodeName),
    /// The guest is not listed, and the list may not be whole.
    MaybeHidden(String),
    /// The number is taken, by a guest the token cannot see.
    Hidden,
    /// The configuration could not be read, so none is written.
    Unreadable(Unreadable),
    /// PVE gave no digest, and nothing is written without one.
    NoDigest,
    /// The declared size is smaller than the volume.
    Shrink {
        /// The slot.
        disk: KeyRef,
        /// The declared size.
        want: Bytes,
        /// The size it has.
        have: Bytes,
    },
    /// A copy would be larger than declared.
    SmallerThanSource {
        /// The slot.
        disk: KeyRef,
        /// The declared size.
        want: Bytes,
        /// The size in the source.
        have: Bytes,
        /// The guest to be copied.
        source: GuestId,
    },
    /// PVE does not say how large the volume is.
    SizeUnknown(KeyRef),
    /// The volume that waits for its slot is on another storage than declared.
    OtherStorage {
        /// The slot.
        disk: KeyRef,
        /// The declared storage.
        want: String,
        /// The storage it is on.
        have: String,
    },
    /// The volume shall move, and is not this guest's own.
    NotOwnVolume {
        /// The slot.
        disk: KeyRef,
        /// What it holds.
        volume: String,
    },
    /// Another guest's configuration names the volume that is declared.
    UsedByOther {
        /// The slot.
        disk: KeyRef,
        /// The volume.
        volume: String,
        /// The guest that has it.
        guest: GuestId,
    },
    /// A volume would be allocated into a slot that holds something.
    SlotTaken(KeyRef),
    /// A volume would be allocated while a detached one waits on the same storage.
    LeftUnused {
        /// The empty slot.
        disk: KeyRef,
        /// Where the detached volume is.
        unused: KeyRef,
    },
    /// The declared volume is in another slot of the guest.
    InOtherSlot {
        /// The slot it is declared for.
        disk: KeyRef,
        /// The slot it is in, or waits in.
        other: KeyRef,
    },
    /// The root volume differs in more than its size.
    RootVolume,
    /// Only root@pam may set it, and an API token never is root@pam.
    RootOnly(KeyRef),
    /// `protection` is on, and PVE refuses the write.
    Protected(KeyRef),
    /// It can be chosen only when the guest is created.
    FixedAtCreation(KeyRef),
    /// This release does not have it.
    NotInRelease {
        /// The key.
        key: KeyRef,
        /// The part of its value, if only that is missing.
        part: Option<&'static str>,
        /// The release.
        release: Release,
    },
    /// A part of it is ignored, and what is stored cannot be read, so that part could not be kept.
    IgnoredUnread(KeyRef),
    /// It is not there, and nothing says what to make it from.
    NoSource,
    /// It shall come from a backup, and nothing says where its volumes shall be.
    NoStorage,
    /// A template cannot be started.
    Template,
    /// A paused machine is neither resumed nor asked to shut down.
    Paused,
    /// PVE did not tell whether the guest runs.
    PowerUnknown,
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherKind(kind) => write!(f, "the guest of this number is of kind {kind}"),
            Self::OtherNode(node) => write!(f, "the guest is on node {node}"),
            Self::MaybeHidden(why) => {
                write!(f, "the guest is not listed, but the list may not be whole: {why}")
            }
            Self::Hidden => f.write_str("the number is taken by a guest the token cannot see"),
            Self::Unreadable(why) => write!(f, "its configuration cannot be read: {why}"),
            Self::NoDigest => f.write_str("Proxmox VE gave no digest of its configuration"),
            Self::Shrink { disk, want, have } => {
                write_too_small(f, disk, (*have, *want), "a volume cannot shrink")
            }
            Self::SmallerThanSource { disk, want, have, source } => {
                let disk = format!("{disk} of {source}");
                write_too_small(f, &disk, (*have, *want), "a copy cannot be smaller")
            }
            Self::SizeUnknown(disk) => write!(f, "Proxmox VE does not report the size of {disk}"),
            Self::OtherStorage { disk, want, have } => write_needs_move(f, *disk, have, want),
            Self::NotOwnVolume { disk, volume } => {
                write!(
                    f,
                    "{disk} holds {volume}, which is not this guest's own: evenkeel does not move it"
                )
            }
            Self::UsedByOther { disk, volume, guest } => {
                write!(f, "{volume} is declared for {disk} and {guest} uses it")
            }
            Self::SlotTaken(disk) => {
                write!(f, "{disk} is taken: evenkeel allocates a volume only into an empty slot")
            }
            Self::LeftUnused { disk, unused } => write!(
                f,
                "{disk} is empty and {unused} holds a volume of that storage: it may be the declared one, so evenkeel allocates none"
            ),
            Self::InOtherSlot { disk, other } => write!(
                f,
                "the volume declared for {disk} is in {other}: two disks would write to it"
            ),
            Self::RootVolume => {
                f.write_str("rootfs differs, and evenkeel never writes the root volume")
            }
            Self::RootOnly(key) => {
                write!(f, "only root@pam can set {key}, and an API token never can")
            }
            Self::Protected(key) => write!(f, "{key} cannot change while protection is on"),
            Self::FixedAtCreation(key) => write!(f, "{key} is fixed when the guest is created"),
            Self::NotInRelease { key, part, release } => write_not_known(f, *key, *part, *release),
            Self::IgnoredUnread(key) => write_ignored_unread(f, *key),
            Self::NoSource => {
                f.write_str("the guest does not exist, and it has no `source` to make it from")
            }
            Self::NoStorage => {
                f.write_str("the guest does not exist, and no declared volume names its storage")
            }
            Self::Template => f.write_str("the guest is a template, and a template cannot start"),
            Self::Paused => {
                f.write_str("the machine is paused; evenkeel neither resumes it nor shuts it down")
            }
            Self::PowerUnknown => f.write_str("Proxmox VE did not report whether it runs"),
        }
    }
}

/// Where a smaller size is declared than the volume has, and why it stays as it is.
fn write_too_small(
    f: &mut fmt::Formatter<'_>,
    disk: &dyn fmt::Display,
    (have, want): (Bytes, Bytes),
    why: &str,
) -> fmt::Result {
    write!(f, "{disk} is {} and {} is declared: {why}", have.shown(), want.shown())
}

fn write_needs_move(
    f: &mut fmt::Formatter<'_>,
    disk: KeyRef,
    have: &str,
    want: &str,
) -> fmt::Result {
    write!(f, "{disk} waits on storage {have} and {want} is declared: that needs a move")
}

/// What a release does not have: a key, or a part of its value.
fn write_not_known(
    f: &mut fmt::Formatter<'_>,
    key: KeyRef,
    part: Option<&str>,
    release: Release,
) -> fmt::Result {
    match part {
        None => write!(f, "Proxmox VE {release} does not know {key}"),
        Some(part) => write!(f, "Proxmox VE {release} does not know {part} in {key}"),
    }
}

fn write_ignored_unread(f: &mut fmt::Formatter<'_>, key: KeyRef) -> fmt::Result {
    write!(f, "{key} is stored in a form that cannot be read, and a part of it is ignored")
}

impl PlanProblem {
    /// Whether it is not known how the guest is: a plan that has such a guest is not whole.
    pub fn is_unread(&self) -> bool {
        match self {
            Self::MaybeHidden(_)
            | Self::Hidden
            | Self::Unreadable(_)
            | Self::NoDigest
            | Self::IgnoredUnread(_)
            | Self::PowerUnknown => true,
            Self::OtherKind(_)
            | Self::OtherNode(_)
            | Self::Shrink { .. }
            | Self::SmallerThanSource { .. }
            | Self::SizeUnknown(_)
            | Self::OtherStorage { .. }
            | Self::NotOwnVolume { .. }
            | Self::UsedByOther { .. }
            | Self::SlotTaken(_)
            | Self::LeftUnused { .. }
            | Self::InOtherSlot { .. }
            | Self::RootVolume
            | Self::RootOnly(_)
            | Self::Protected(_)
            | Self::FixedAtCreation(_)
            | Self::NotInRelease { .. }
            | Self::NoSource
            | Self::NoStorage
            | Self::Template
            | Self::Paused => false,
        }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::OtherKind(_) => "change `kind`, or the number".to_owned(),
            Self::OtherNode(node) => format!("declare it on the agent of {node}"),
            Self::Hidden | Self::MaybeHidden(_) => {
                "run `evenkeel doctor` to see which rights the token lacks".to_owned()
            }
            Self::Unreadable(unreadable) => unreadable.next.to_owned(),
            Self::NoDigest => "run `evenkeel doctor` to see what the token may read".to_owned(),
            Self::Shrink { disk, have, .. } | Self::SmallerThanSource { disk, have, .. } => {
                format!("declare {disk} with size = \"{}\", or leave its size out", have.shown())
            }
            Self::SizeUnknown(_) => "run `pct rescan` or `qm rescan` on the node".to_owned(),
            Self::OtherStorage { have, .. } => {
                format!("restart the guest first, or declare storage {have}")
            }
            Self::NotOwnVolume { disk, .. } => {
                format!("declare {disk} with the storage it is on, or leave it out")
            }
            Self::UsedByOther { guest, .. } => {
                format!("take it off {guest} first: two guests would write to it")
            }
            Self::SlotTaken(_) => "declare the volume that is there, or another slot".to_owned(),
            Self::LeftUnused { disk, unused } => {
                format!(
                    "declare {disk} with the volume of {unused}, or request the removal of {unused}"
                )
            }
            Self::InOtherSlot { disk, other } => format!(
                "add {other} to `unset`: once it is detached, the volume is attached as {disk}"
            ),
            Self::RootVolume => {
                "declare rootfs as it is; it can grow and move, nothing else".to_owned()
            }
            Self::RootOnly(key) => format!("set it on the node, or leave {key} out of the file"),
            Self::Protected(_) => {
                "declare protection = false, and sign the change that lifts it".to_owned()
            }
            Self::FixedAtCreation(key) => format!("leave {key} out, or declare what is there"),
            Self::NotInRelease { .. } => "leave it out, or upgrade the node".to_owned(),
            Self::IgnoredUnread(key) => {
                format!("ignore {key} as a whole, or set it once on the node")
            }
            Self::NoSource => {
                "add `source` to create it (`evenkeel explain source`), or remove it from the file"
                    .to_owned()
            }
            Self::NoStorage => "declare rootfs or a disk with its storage".to_owned(),
            Self::Template => "leave `run` out for a template".to_owned(),
            Self::Paused | Self::PowerUnknown => return None,
        })
    }
}
