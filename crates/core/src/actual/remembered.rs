//! Which readings of guests still hold, by what the node's cluster file system says of their configuration files.
//!
//! Every write of a guest's file draws a new number from one counter of the process that keeps them, so a file whose number
//! is the same has not been written. The agent reads the numbers, then the guests over the API, and hands both in here; the
//! next pass asks only for guests whose number is another by then. A reading belongs to the numbers that were read before
//! it began: by numbers read afterwards, an older reading would pass for a newer one. What is remembered decides what is
//! looked at and nothing else: a lane reads its guest anew before it acts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::id::{GuestId, GuestKind, NodeName, VmId};

/// What the cluster file system says at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMarks {
    /// When the process that counts was started, in Unix seconds. Numbers of another process mean nothing.
    pub started_s: u64,
    /// The number of the whole list, which rises with every other.
    pub list: u64,
    /// Every guest of the cluster. Shared: while the list has one number, it is one list.
    pub guests: Arc<BTreeMap<VmId, FileMark>>,
    /// The number of the datacenter's options.
    pub options: Option<u64>,
    /// The numbers of what HA is told to do and does.
    pub ha: [Option<u64>; 2],
}

/// What it says of one guest's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMark {
    /// The guest's kind.
    pub kind: GuestKind,
    /// The node that has it.
    pub node: NodeName,
    /// Drawn anew at every write.
    pub version: u64,
}

/// Readings of guests, each under the mark that was read before it.
#[derive(Debug, Clone)]
pub struct RememberedReadings<T> {
    newest: Option<ListHead>,
    readings: BTreeMap<VmId, (FileMark, T)>,
}

/// Which process counts, and how far its list is. The same head is the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListHead {
    /// When the process was started.
    pub started_s: u64,
    /// The number of its list.
    pub list: u64,
}

impl ClusterMarks {
    /// Whose numbers they are, and which list they are of.
    pub fn head(&self) -> ListHead {
        ListHead { started_s: self.started_s, list: self.list }
    }
}

impl<T> Default for RememberedReadings<T> {
    fn default() -> Self {
        Self { newest: None, readings: BTreeMap::new() }
    }
}

impl<T> RememberedReadings<T> {
    /// Forgets what no longer holds by the marks of now. Everything, if another process counts or if any number went back:
    /// then numbers were drawn anew, and the same number may be another file's.
    pub fn follow(&mut self, marks: &ClusterMarks) {
        let now = marks.head();
        // The same list: everything that is kept holds by it.
        if self.newest == Some(now) {
            return;
        }
        let same_count = self
            .newest
            .is_some_and(|then| then.started_s == now.started_s && then.list <= now.list);
        let went_back = |(vmid, (mark, _)): (&VmId, &(FileMark, T))| {
            marks.guests.get(vmid).is_some_and(|now| now.version < mark.version)
        };
        if !same_count || self.readings.iter().any(went_back) {
            self.readings.clear();
        }
        self.readings.retain(|vmid, (mark, _)| marks.guests.get(vmid) == Some(mark));
        self.newest = Some(now);
    }

    /// The reading of a guest that still holds by the marks that were followed last.
    pub fn of(&self, guest: GuestId, node: &NodeName) -> Option<&T> {
        let (mark, reading) = self.readings.get(&guest.vmid)?;
        (mark.kind == guest.kind && mark.node == *node).then_some(reading)
    }

    /// Keeps a reading that began after these marks were read. They must be those that were followed last.
    pub fn remember(&mut self, guest: GuestId, marks: &ClusterMarks, reading: T) {
        if self.newest != Some(marks.head()) {
            return;
        }
        if let Some(mark) = marks.guests.get(&guest.vmid) {
            self.readings.insert(guest.vmid, (mark.clone(), reading));
        }
    }

    /// A guest is asked for again.
    pub fn forget(&mut self, vmid: VmId) {
        self.readings.remove(&vmid);
    }

    /// Every guest is asked for again.
    pub fn forget_all(&mut self) {
        *self = Self::default();
    }
}

/// What may have changed between two looks at what the node tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedGuests {
    /// Numbers cannot be compared, so it may be anything.
    Any,
    /// The files of these guests were written, came to this node or left it, or came to be; or a task about them ended.
    These(BTreeSet<VmId>),
}

impl ChangedGuests {
    /// Nothing did.
    pub fn none() -> Self {
        Self::These(BTreeSet::new())
    }

    /// Whether nothing did.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::These(mut these), Self::These(others)) => {
                these.extend(others);
                Self::These(these)
            }
            (Self::Any, _) | (_, Self::Any) => Self::Any,
        }
    }
}

/// What changed on a node. A number that is gone is not among it: nothing of a guest that somebody has just removed is
/// urgent, and whoever removed it may be about to put it back.
pub fn changed(then: &ClusterMarks, now: &ClusterMarks, node: &NodeName) -> ChangedGuests {
    if then.started_s != now.started_s || now.list < then.list {
        return ChangedGuests::Any;
    }
    let concerns = |mark: &FileMark| mark.node == *node;
    let is_new = |(vmid, mark): &(&VmId, &FileMark)| {
        let before = then.guests.get(*vmid);
        before != Some(*mark) && (concerns(mark) || before.is_some_and(concerns))
    };
    ChangedGuests::These(now.guests.iter().filter(is_new).map(|(vmid, _)| *vmid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn vmid(number: u32) -> VmId {
        VmId::try_from(number).unwrap()
    }

    fn container(number: u32) -> GuestId {
        GuestId::new(GuestKind::Lxc, vmid(number))
    }

    fn marks(started_s: u64, list: u64, guests: &[(u32, &str, u64)]) -> ClusterMarks {
        let mark = |(number, on, version): &(u32, &str, u64)| {
            let mark = FileMark { kind: GuestKind::Lxc, node: node(on), version: *version };
            (vmid(*number), mark)
        };
        let guests = Arc::new(guests.iter().map(mark).collect());
        ClusterMarks { started_s, list, guests, options: None, ha: [None; 2] }
    }

    /// Two guests, both read after these marks.
    fn known() -> (RememberedReadings<&'static str>, ClusterMarks) {
        let first = marks(7, 10, &[(100, "pve1", 4), (101, "pve1", 9)]);
        let mut known = RememberedReadings::default();
        known.follow(&first);
        known.remember(container(100), &first, "a");
        known.remember(container(101), &first, "b");
        (known, first)
    }

    fn kept(known: &RememberedReadings<&'static str>) -> Vec<&'static str> {
        let of = |number| known.of(container(number), &node("pve1")).copied();
        [100, 101].into_iter().filter_map(of).collect()
    }

    #[test]
    fn a_guest_whose_file_was_written_is_asked_for_again_and_no_other() {
        for (what, now, stays) in [
            ("nothing", marks(7, 10, &[(100, "pve1", 4), (101, "pve1", 9)]), &["a", "b"][..]),
            ("a write", marks(7, 11, &[(100, "pve1", 11), (101, "pve1", 9)]), &["b"]),
            ("a move", marks(7, 11, &[(100, "pve2", 11), (101, "pve1", 9)]), &["b"]),
            ("an end", marks(7, 11, &[(101, "pve1", 9)]), &["b"]),
            (
                "another guest",
                marks(7, 12, &[(100, "pve1", 4), (101, "pve1", 9), (102, "pve1", 12)]),
                &["a", "b"],
            ),
            ("a resync", marks(7, 11, &[(100, "pve1", 11), (101, "pve1", 12)]), &[]),
            // The same numbers, drawn anew by another process, may be other files'.
            ("a restart", marks(8, 10, &[(100, "pve1", 4), (101, "pve1", 9)]), &[]),
            ("a list that went back", marks(7, 3, &[(100, "pve1", 4), (101, "pve1", 9)]), &[]),
            ("a number that went back", marks(7, 11, &[(100, "pve1", 2), (101, "pve1", 9)]), &[]),
        ] {
            let (mut known, _) = known();
            known.follow(&now);
            assert_eq!(kept(&known), stays, "{what}");
        }
    }

    #[test]
    fn a_reading_is_kept_under_the_marks_that_were_read_before_it_and_no_others() {
        let (mut known, first) = known();
        let later = marks(7, 11, &[(100, "pve1", 11), (101, "pve1", 9)]);
        known.follow(&later);
        // Read by the first marks, handed in late: by the later ones it would pass for newer than it is.
        known.remember(container(100), &first, "old");
        assert_eq!(kept(&known), ["b"]);
        known.remember(container(100), &later, "new");
        assert_eq!(kept(&known), ["new", "b"]);
    }

    #[test]
    fn a_guest_of_another_kind_or_node_has_no_reading() {
        let (mut known, _) = known();
        let machine = GuestId::new(GuestKind::Qemu, vmid(100));
        assert_eq!(known.of(machine, &node("pve1")), None);
        assert_eq!(known.of(container(100), &node("pve2")), None);
        known.forget(vmid(100));
        assert_eq!(kept(&known), ["b"]);
        known.forget_all();
        assert_eq!(kept(&known), [""; 0]);
    }

    #[test]
    fn what_changed_on_this_node_is_told_and_a_number_that_is_gone_is_not() {
        let then = marks(7, 10, &[(100, "pve1", 4), (101, "pve1", 9), (102, "pve2", 3)]);
        let these = |numbers: &[u32]| {
            ChangedGuests::These(numbers.iter().map(|number| vmid(*number)).collect())
        };
        let pve1 = node("pve1");
        for (now, told) in [
            (then.clone(), these(&[])),
            (marks(7, 11, &[(100, "pve1", 11), (101, "pve1", 9), (102, "pve2", 3)]), these(&[100])),
            (marks(7, 11, &[(100, "pve1", 4), (101, "pve1", 9), (102, "pve2", 11)]), these(&[])),
            (marks(7, 11, &[(100, "pve1", 4), (101, "pve1", 9), (102, "pve1", 11)]), these(&[102])),
            (marks(7, 11, &[(100, "pve2", 11), (101, "pve1", 9)]), these(&[100])),
            (marks(7, 11, &[(101, "pve1", 9)]), these(&[])),
            (marks(8, 11, &[(101, "pve1", 9)]), ChangedGuests::Any),
            (marks(7, 9, &[(101, "pve1", 9)]), ChangedGuests::Any),
        ] {
            assert_eq!(changed(&then, &now, &pve1), told, "{now:?}");
        }
    }
}
