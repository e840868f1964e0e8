//! Which guests' tasks ended between two looks at the node's own file of active tasks.
//!
//! The node keeps a line for each running task and for the few that ended last. A start or a stop writes no configuration,
//! so this is where somebody else's shows at once. The agent reads the file each second and hands both texts in here. What
//! is told decides only what is looked at next: the file forgets, and a guest may stop without a task.

use std::collections::BTreeSet;

use crate::actual::remembered::ChangedGuests;
use crate::model::id::VmId;
use crate::operate::operation::Upid;

/// What the file says at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveTasks {
    running: BTreeSet<Upid>,
    ended: BTreeSet<Upid>,
}

impl ActiveTasks {
    /// Reads its lines: `UPID 0`, and with the time and the outcome behind it once it ended. A line that is not understood
    /// is passed over.
    pub fn read(text: &str) -> Self {
        let mut tasks = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let upid = words.next();
            let _is_archived = words.next();
            let ended = words.next();
            let Some(Ok(upid)) = upid.map(str::parse::<Upid>) else { continue };
            if ended.is_some() { &mut tasks.ended } else { &mut tasks.running }.insert(upid);
        }
        tasks
    }

    /// The guests whose tasks ended since `then`, ours aside: what became of those the lanes know. `owner` is our token as
    /// tasks show it.
    pub fn ended_since(&self, then: &Self, owner: &str) -> ChangedGuests {
        // So many ended that the file kept none of those it had: it may have forgotten others too.
        let turned_over = !then.ended.is_empty() && then.ended.is_disjoint(&self.ended);
        if turned_over && !self.ended.is_empty() {
            return ChangedGuests::Any;
        }
        // While many run the file lists none that ended.
        let gone = then.running.difference(&self.running);
        let ended = self.ended.difference(&then.ended).chain(gone);
        let theirs = ended.filter(|upid| upid.user() != owner);
        ChangedGuests::These(
            theirs.filter_map(|upid| upid.task_id().parse::<VmId>().ok()).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "keel@pve!agent";

    fn upid(number: u32, kind: &str, id: &str, user: &str) -> String {
        format!("UPID:pve1:{number:08X}:00030D40:6553F100:{kind}:{id}:{user}:")
    }

    fn read(lines: &[(&str, &str)]) -> ActiveTasks {
        let lines: Vec<String> =
            lines.iter().map(|(upid, rest)| format!("{upid} {rest}")).collect();
        ActiveTasks::read(&lines.join("\n"))
    }

    fn these(numbers: &[u32]) -> ChangedGuests {
        ChangedGuests::These(
            numbers.iter().map(|number| VmId::try_from(*number).unwrap()).collect(),
        )
    }

    #[test]
    fn a_task_that_ended_names_its_guest_and_one_that_began_does_not() {
        let stop = upid(1, "vzstop", "100", "root@pam");
        let begun = read(&[(&stop, "0")]);
        assert_eq!(begun.ended_since(&ActiveTasks::default(), OWNER), these(&[]));
        let done = read(&[(&stop, "1 6553F102 OK")]);
        assert_eq!(done.ended_since(&begun, OWNER), these(&[100]));
        assert_eq!(done.ended_since(&ActiveTasks::default(), OWNER), these(&[100]), "in between");
        assert_eq!(done.ended_since(&done, OWNER), these(&[]));
        // Ended without a word, as a killed one may, and with many.
        for rest in ["1 6553F102", "1 6553F102 unexpected status", "1 6553F102 got no lock: in use"]
        {
            assert_eq!(read(&[(&stop, rest)]).ended_since(&begun, OWNER), these(&[100]), "{rest}");
        }
    }

    #[test]
    fn ours_and_what_is_about_no_guest_wake_nobody() {
        let ours = upid(1, "qmstart", "100", OWNER);
        let node = upid(2, "vzdump", "", "root@pam");
        let disk = upid(3, "imgcopy", "storage", "root@pam");
        let now =
            read(&[(&ours, "1 6553F102 OK"), (&node, "1 6553F102 OK"), (&disk, "1 6553F102 OK")]);
        assert_eq!(now.ended_since(&ActiveTasks::default(), OWNER), these(&[]));
    }

    #[test]
    fn a_running_task_that_is_no_longer_listed_has_ended() {
        let first = upid(1, "vzstop", "100", "root@pam");
        let second = upid(2, "vzstop", "101", "root@pam");
        let then = read(&[(&first, "0"), (&second, "0")]);
        let now = read(&[(&second, "0")]);
        assert_eq!(now.ended_since(&then, OWNER), these(&[100]));
    }

    #[test]
    fn a_file_that_kept_nothing_of_what_it_had_may_have_forgotten_more() {
        let old = upid(1, "vzstop", "100", "root@pam");
        let new = upid(2, "vzstop", "101", "root@pam");
        let then = read(&[(&old, "1 6553F102 OK")]);
        let now = read(&[(&new, "1 6553F103 OK")]);
        assert_eq!(now.ended_since(&then, OWNER), ChangedGuests::Any);
        assert_eq!(ActiveTasks::default().ended_since(&then, OWNER), these(&[]), "it was emptied");
        let both = read(&[(&old, "1 6553F102 OK"), (&new, "1 6553F103 OK")]);
        assert_eq!(both.ended_since(&then, OWNER), these(&[101]));
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let stop = upid(1, "vzstop", "100", "root@pam");
        let text = format!("\n \nUPID:pve1:half\n{stop} 1 6553F102 OK\n\u{0}\u{fffd} 0\n");
        assert_eq!(ActiveTasks::read(&text), read(&[(&stop, "1 6553F102 OK")]));
    }
}
