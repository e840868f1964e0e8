//! Looks each second at what the node tells, and wakes the loop when a configuration was written or a task ended.
//!
//! ```text
//!   .version: the same number? ─> nothing more
//!                └── another ─> .vmlist ─> which guests of this node? ─┬─> the loop ─> a pass about these
//!   active tasks: which of other people ended? ────────────────────────┘
//! ```
//!
//! Looking costs two small files and no request. It is a hint and nothing more: what is missed here is found at the next
//! interval. A guest that changes without end, because somebody else keeps writing it too, wakes the loop a few times and
//! then waits for the interval, so that two who disagree do not write as fast as they can.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::actual::active_tasks::ActiveTasks;
use evenkeel_core::actual::remembered::{ChangedGuests, ClusterMarks, changed};
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::{NodeName, VmId};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, MissedTickBehavior};

use crate::cluster_files::{ClusterFiles, read_marks, read_tasks};
use crate::observe::ASKED_DIRECTLY_MAX;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often one guest wakes the loop within `WAKES_WITHIN`: a person who saves again and again is followed, two programs
/// that undo each other are not.
const WAKES_MAX: usize = 6;

/// See `WAKES_MAX`.
const WAKES_WITHIN: Duration = Duration::from_mins(1);

/// Tells of changes until nobody listens any more.
pub(super) async fn watch(mut node: NodeWatch, changes: mpsc::Sender<ChangedGuests>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut untold = ChangedGuests::none();
    loop {
        ticks.tick().await;
        untold = untold.and(node.look().await);
        if untold.is_none() {
            if changes.is_closed() {
                return;
            }
            continue;
        }
        let told = std::mem::replace(&mut untold, ChangedGuests::none());
        match changes.try_send(told) {
            Ok(()) => {}
            // The loop is at work; it hears of all of it at once.
            Err(TrySendError::Full(told)) => untold = told,
            Err(TrySendError::Closed(_)) => return,
        }
    }
}

/// A node, and what it told at the last look.
#[derive(Debug)]
pub struct NodeWatch {
    files: Arc<dyn ClusterFiles>,
    node: NodeName,
    /// Our token as tasks show it.
    owner: String,
    marks: Option<ClusterMarks>,
    tasks: Option<ActiveTasks>,
}

impl NodeWatch {
    /// Nothing was told yet.
    pub fn new(files: Arc<dyn ClusterFiles>, node: NodeName, owner: String) -> Self {
        Self { files, node, owner, marks: None, tasks: None }
    }

    /// What changed since the last look. What cannot be read now is looked at again in a second.
    pub async fn look(&mut self) -> ChangedGuests {
        let mut found = ChangedGuests::none();
        if let Ok(now) = read_marks(self.files.as_ref(), self.marks.as_ref()).await {
            if let Some(then) = self.marks.as_ref().filter(|then| then.head() != now.head()) {
                found = found.and(changed(then, &now, &self.node));
            }
            self.marks = Some(now);
        }
        if let Ok(now) = read_tasks(self.files.as_ref()).await {
            if let Some(then) = &self.tasks {
                found = found.and(now.ended_since(then, &self.owner));
            }
            self.tasks = Some(now);
        }
        found
    }
}

/// Who woke the loop, and when.
#[derive(Debug, Default)]
pub struct WakeLimits {
    wakes: BTreeMap<VmId, VecDeque<Instant>>,
}

impl WakeLimits {
    /// What is looked at now, of what changed; none if nothing is. Guests that nobody declares wake nobody. When many
    /// changed, or nobody can tell which, everything is.
    pub fn scope(
        &mut self,
        changed: ChangedGuests,
        desired: &Desired,
        now: Instant,
    ) -> Option<PassScope> {
        let ChangedGuests::These(changed) = changed else {
            return Some(PassScope::Whole);
        };
        let declared = changed.into_iter().filter(|vmid| desired.guests.contains_key(vmid));
        let woken = self.take(declared, now);
        if woken.len() > ASKED_DIRECTLY_MAX {
            return Some(PassScope::Whole);
        }
        (!woken.is_empty()).then_some(PassScope::Chosen(woken))
    }

    /// Those of them that may wake the loop now; the others wait for the interval.
    fn take(&mut self, guests: impl IntoIterator<Item = VmId>, now: Instant) -> BTreeSet<VmId> {
        self.wakes.retain(|_, wakes| {
            while wakes.front().is_some_and(|woke| now.duration_since(*woke) >= WAKES_WITHIN) {
                wakes.pop_front();
            }
            !wakes.is_empty()
        });
        let may_wake = |vmid: &VmId| {
            let wakes = self.wakes.entry(*vmid).or_default();
            let may_wake = wakes.len() < WAKES_MAX;
            if may_wake {
                wakes.push_back(now);
            }
            may_wake
        };
        guests.into_iter().filter(may_wake).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::task::JoinHandle;

    use super::*;
    use crate::cluster_files::{ClusterFile, ReadFuture, SilentFile};

    /// Files that a test writes, and how often the first two were read.
    #[derive(Debug)]
    struct WrittenFiles {
        marks: Mutex<(u64, Vec<(u32, u64)>)>,
        tasks: Mutex<Option<String>>,
        reads: Mutex<(usize, usize)>,
    }

    impl WrittenFiles {
        fn new(guests: &[(u32, u64)]) -> Arc<Self> {
            let marks = Mutex::new((1, guests.to_vec()));
            Arc::new(Self { marks, tasks: Mutex::default(), reads: Mutex::default() })
        }

        fn write(&self, guests: &[(u32, u64)]) {
            let mut marks = self.marks.lock().unwrap();
            *marks = (marks.0 + 1, guests.to_vec());
        }
    }

    impl ClusterFiles for WrittenFiles {
        fn read(&self, file: ClusterFile) -> ReadFuture<'_> {
            let (list, guests) = self.marks.lock().unwrap().clone();
            let mut reads = self.reads.lock().unwrap();
            let text = match file {
                ClusterFile::Version => {
                    reads.0 += 1;
                    format!("{{\"starttime\": 7, \"vmlist\": {list}}}")
                }
                ClusterFile::GuestList => {
                    reads.1 += 1;
                    let entry = |(vmid, version): &(u32, u64)| {
                        format!(
                            "\"{vmid}\": {{ \"node\": \"pve1\", \"type\": \"lxc\", \"version\": {version} }}"
                        )
                    };
                    let ids: Vec<String> = guests.iter().map(entry).collect();
                    format!("{{\"version\": {list}, \"ids\": {{{}}}}}", ids.join(","))
                }
                ClusterFile::ActiveTasks => {
                    let text = self.tasks.lock().unwrap().clone();
                    let gone = || SilentFile::Unreadable("it is not there".to_owned());
                    let read = text.map(String::into_bytes).ok_or_else(gone);
                    return Box::pin(std::future::ready(read));
                }
            };
            Box::pin(std::future::ready(Ok(text.into_bytes())))
        }
    }

    fn vmid(number: u32) -> VmId {
        VmId::try_from(number).unwrap()
    }

    fn watched(files: &Arc<WrittenFiles>) -> (JoinHandle<()>, mpsc::Receiver<ChangedGuests>) {
        let (tell, told) = mpsc::channel(1);
        let node = NodeWatch::new(files.clone(), "pve1".parse().unwrap(), "keel@pve!k".to_owned());
        (tokio::spawn(watch(node, tell)), told)
    }

    async fn heard(told: &mut mpsc::Receiver<ChangedGuests>) -> Option<ChangedGuests> {
        tokio::time::timeout(Duration::from_millis(1_001), told.recv()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_within_a_second_and_rest_reads_one_small_file_a_second() {
        let files = WrittenFiles::new(&[(100, 1), (101, 2)]);
        let (watching, mut told) = watched(&files);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(told.try_recv().ok(), None, "nothing changed");
        assert_eq!(files.reads.lock().unwrap().1, 1, "the list is read once");
        files.write(&[(100, 3), (101, 2)]);
        assert_eq!(heard(&mut told).await, Some(ChangedGuests::These([vmid(100)].into())));
        // Two changes while the loop is at work are told at once, when it listens again.
        files.write(&[(100, 4), (101, 2)]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        files.write(&[(100, 4), (101, 5)]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        files.write(&[(100, 6), (101, 5)]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(told.recv().await, Some(ChangedGuests::These([vmid(100)].into())));
        let rest = told.recv().await;
        assert_eq!(rest, Some(ChangedGuests::These([vmid(100), vmid(101)].into())));
        drop(told);
        tokio::time::timeout(Duration::from_secs(2), watching).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_of_somebody_else_that_ended_is_told_and_no_file_of_tasks_is_no_trouble() {
        let files = WrittenFiles::new(&[(100, 1), (101, 2)]);
        let (watching, mut told) = watched(&files);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let write = |lines: &str| *files.tasks.lock().unwrap() = Some(lines.to_owned());
        write("");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let line = |id: u32, user: &str, rest: &str| {
            format!("UPID:pve1:0000{id:04X}:00000001:6553F100:vzstop:{id}:{user}: {rest}\n")
        };
        write(&line(101, "root@pam", "0"));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(told.try_recv().ok(), None, "it has not ended");
        let ours = line(100, "keel@pve!k", "1 6553F102 OK");
        write(&format!("{ours}{}", line(101, "root@pam", "1 6553F102 OK")));
        assert_eq!(heard(&mut told).await, Some(ChangedGuests::These([vmid(101)].into())));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(told.try_recv().ok(), None, "once");
        watching.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_never_rests_waits_for_the_interval_and_holds_nobody_else() {
        let mut limits = WakeLimits::default();
        let mut woke = 0;
        for _ in 0..60 {
            woke += limits.take([vmid(100)], Instant::now()).len();
            tokio::time::advance(LOOK_EVERY).await;
        }
        assert_eq!(woke, WAKES_MAX);
        assert_eq!(limits.take([vmid(100), vmid(101)], Instant::now()).len(), 2);
    }
}
