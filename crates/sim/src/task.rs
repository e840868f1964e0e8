//! Tasks: UPIDs, stages, logs, the index and how it forgets.
//!
//! Handlers fork tasks, the engine moves them through their stages, the task endpoints read them.

use serde::{Deserialize, Serialize};

use crate::access::Identity;
use crate::job::TaskJob;

/// One task, from its fork until the node forgets it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SimTask {
    pub(crate) upid: SimUpid,
    pub(crate) stage: TaskStage,
    pub(crate) log: Vec<String>,
    /// The text of the last log line without `TASK ERROR: `; `OK`; `WARNINGS: n`; `unexpected status`.
    pub(crate) exit: Option<String>,
    pub(crate) end_s: Option<u64>,
    pub(crate) job: TaskJob,
    /// Which turn of the index it was archived in.
    generation: u32,
    /// The how many-th to end; `None` while it runs.
    #[serde(default)]
    pub(crate) ended: Option<u64>,
    log_is_gone: bool,
    #[serde(default)]
    pub(crate) interrupted: bool,
    /// Which part of its work is under way.
    #[serde(default)]
    pub(crate) step: u8,
    /// The error it will end with; it found out when it began.
    #[serde(default)]
    pub(crate) doomed: Option<String>,
    /// Warnings somebody ordered.
    #[serde(default)]
    pub(crate) warnings: u32,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TaskStage {
    /// Not yet visible: the handler has answered late or not at all.
    Unforked {
        at_ms: u64,
    },
    /// Wants the guest's file lock.
    Waiting {
        deadline_ms: u64,
    },
    Running {
        until_ms: u64,
    },
    Ended,
}

/// `UPID:NODE:PID:PSTART:STARTTIME:TYPE:ID:USER:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SimUpid {
    pub(crate) node: String,
    pub(crate) pid: u32,
    pub(crate) pstart: u64,
    pub(crate) start_s: u64,
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) user: String,
}

impl std::fmt::Display for SimUpid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, pid, pstart, start_s, kind, id, user } = self;
        write!(f, "UPID:{node}:{pid:08X}:{pstart:08X}:{start_s:08X}:{kind}:{id}:{user}:")
    }
}

impl SimUpid {
    /// Reads the text form; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let ["UPID", node, pid, pstart, start, kind, id, user, ""] = parts.as_slice() else {
            return None;
        };
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        (pid.len() == 8 && start.len() == 8 && !kind.is_empty() && user.contains('@'))
            .then_some(())?;
        Some(Self {
            node: (*node).to_owned(),
            pid: u32::try_from(number(pid)?).ok()?,
            pstart: number(pstart)?,
            start_s: number(start)?,
            kind: (*kind).to_owned(),
            id: (*id).to_owned(),
            user: (*user).to_owned(),
        })
    }

    /// User and token id apart, as JSON shows them.
    pub(crate) fn owner(&self) -> (&str, Option<&str>) {
        match self.user.split_once('!') {
            Some((user, token)) => (user, Some(token)),
            None => (&self.user, None),
        }
    }
}

/// All tasks of the node, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tasks {
    pub(crate) all: Vec<SimTask>,
    next_pid: u32,
    generation: u32,
    index_bytes: usize,
    #[serde(default)]
    ended: u64,
}

/// The index is turned over when it has grown beyond this; the last two turns are searched.
const INDEX_BYTES: usize = 50_000;
/// Lines of the file of active tasks, unless more are running.
const ACTIVE_MAX: usize = 25;
/// The first process id given out.
const FIRST_PID: u32 = 1000;

impl Tasks {
    /// Forks a task and gives its UPID; the engine begins it.
    pub(crate) fn fork(
        &mut self,
        node: &str,
        kind: &str,
        id: &str,
        who: &Identity,
        job: TaskJob,
        (now_ms, unix): (u64, u64),
    ) -> SimUpid {
        self.next_pid += 1;
        let upid = SimUpid {
            node: node.to_owned(),
            pid: FIRST_PID + self.next_pid,
            // Clock ticks since the node booted, a while before the simulation began.
            pstart: 200_000 + now_ms / 10,
            start_s: unix,
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: who.full(),
        };
        let stage = TaskStage::Waiting { deadline_ms: now_ms + job.patience_ms() };
        self.all.push(SimTask {
            upid: upid.clone(),
            stage,
            log: Vec::new(),
            exit: None,
            end_s: None,
            job,
            generation: 0,
            ended: None,
            log_is_gone: false,
            interrupted: false,
            step: 0,
            doomed: None,
            warnings: 0,
        });
        upid
    }

    /// The task of that UPID, unless its log is gone.
    pub(crate) fn find(&self, upid: &str) -> Option<&SimTask> {
        self.all
            .iter()
            .rev()
            .find(|task| !task.log_is_gone && task.is_visible() && task.upid.to_string() == upid)
    }

    /// Writes the last line and archives the task.
    pub(crate) fn end(&mut self, at: usize, exit: &str, end_s: u64) {
        let Some(task) = self.all.get_mut(at) else { return };
        if task.stage == TaskStage::Ended {
            return;
        }
        match exit {
            // A killed process wrote no last line.
            "unexpected status" | "unable to read tail (got 0 bytes)" => {}
            "OK" => task.log.push("TASK OK".into()),
            warnings if warnings.starts_with("WARNINGS:") => {
                task.log.push(format!("TASK {warnings}"));
            }
            error => task.log.push(format!("TASK ERROR: {}", error.replace('\n', " ").trim_end())),
        }
        task.exit = Some(exit.replace('\n', " ").trim_end().to_owned());
        task.end_s = Some(end_s);
        task.stage = TaskStage::Ended;
        task.generation = self.generation;
        self.ended += 1;
        task.ended = Some(self.ended);
        self.index_bytes += task.upid.to_string().len() + exit.len() + 11;
        if self.index_bytes > INDEX_BYTES {
            self.index_bytes = 0;
            self.generation += 1;
        }
    }

    /// What `/var/log/pve/tasks/active` says: whatever runs, and of the rest those that were started last.
    pub(crate) fn active_text(&self) -> String {
        let visible = self.all.iter().rev().filter(|task| task.is_visible());
        let (running, mut ended): (Vec<&SimTask>, Vec<&SimTask>) =
            visible.partition(|task| task.is_running());
        ended.sort_by_key(|task| std::cmp::Reverse(task.upid.start_s));
        ended.truncate(ACTIVE_MAX.saturating_sub(running.len()));
        let lines = running.iter().chain(&ended).map(|task| match (task.end_s, &task.exit) {
            (Some(end_s), Some(exit)) => format!("{} 1 {end_s:08X} {exit}\n", task.upid),
            (Some(_) | None, _) => format!("{} 0\n", task.upid),
        });
        lines.collect()
    }

    /// Forgets every ended task, list and logs.
    pub(crate) fn forget(&mut self) {
        self.all.retain(|task| task.stage != TaskStage::Ended);
    }

    /// Forgets the ended tasks but those that ended last.
    pub(crate) fn turn_over(&mut self, keep: usize) {
        let keep = u64::try_from(keep).unwrap_or(u64::MAX);
        let oldest = self.ended.saturating_sub(keep);
        self.all.retain(|task| task.ended.is_none_or(|ended| ended > oldest));
    }

    /// The daily clean-up: logs of tasks no index lists any more are deleted.
    pub(crate) fn clean_up(&mut self) {
        let oldest = self.generation.saturating_sub(1);
        self.all.retain(|task| task.stage != TaskStage::Ended || task.generation >= oldest);
    }

    /// Whether the index still lists it.
    pub(crate) fn is_listed(&self, task: &SimTask) -> bool {
        task.stage != TaskStage::Ended || task.generation + 1 >= self.generation
    }
}

impl SimTask {
    /// Whether anybody can see it yet.
    pub(crate) fn is_visible(&self) -> bool {
        !matches!(self.stage, TaskStage::Unforked { .. })
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.stage != TaskStage::Ended
    }

    /// Its process got a signal: it ends at this moment, its work undone.
    pub(crate) fn interrupt(&mut self, now_ms: u64) {
        self.interrupted = true;
        self.stage = TaskStage::Running { until_ms: now_ms };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upids_print_as_they_were_read() {
        let text = "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve!reconciler:";
        assert_eq!(SimUpid::parse(text).unwrap().to_string(), text);
        for bad in ["", "foo", "UPID:pve1:1:2:3:x:1:root@pam:", &text[..text.len() - 1]] {
            assert_eq!(SimUpid::parse(bad), None, "{bad}");
        }
    }
}
