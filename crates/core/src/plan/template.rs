//! Whether a guest that is declared a template may become one now.
//!
//! The conversion cannot be undone, so it is always signed; and it comes last, when everything else is as declared: a base
//! volume can neither be moved nor grow. Asked by the planner, and by the gate on a fresh read.

use std::fmt;

use crate::actual::{Guest, PRESENT, Power, SnapshotPoint};

/// Why a guest cannot become a template now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateHold {
    /// It runs, or nobody knows whether it does.
    Up,
    /// Something else is still to be done.
    NotAsDeclared,
    /// It has snapshots.
    HasSnapshots,
    /// Whether it has snapshots could not be read.
    SnapshotsUnread,
}

impl TemplateHold {
    /// What the guest itself shows.
    pub fn of(guest: &Guest) -> Option<Self> {
        (guest.power != Power::Stopped).then_some(Self::Up)
    }

    /// What the list of its snapshots shows; none if it could not be read.
    pub fn of_snapshots(snapshots: Option<&[SnapshotPoint]>) -> Option<Self> {
        match snapshots {
            None => Some(Self::SnapshotsUnread),
            Some(points) if points.iter().any(|point| point.name != PRESENT) => {
                Some(Self::HasSnapshots)
            }
            Some(_) => None,
        }
    }
}

impl fmt::Display for TemplateHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "only a guest that is stopped becomes a template",
            Self::NotAsDeclared => "the guest becomes a template once all else is as declared",
            Self::HasSnapshots => "a guest with snapshots does not become a template",
            Self::SnapshotsUnread => "whether the guest has snapshots cannot be read",
        })
    }
}
