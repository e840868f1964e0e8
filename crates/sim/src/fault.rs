//! What can go wrong on purpose: rules that meet requests and tasks, and things that happen.
//!
//! Tests and the admin endpoint `POST /sim/faults` hand these to [`crate::Simulator`].

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use serde::{Deserialize, Serialize};

use crate::odd_row::OddValue;
use crate::surroundings::NumberThing;

/// A rule that waits for requests or tasks it fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What it does.
    pub effect: Effect,
    /// Only requests of this method; all if absent.
    #[serde(default)]
    pub method: Option<String>,
    /// Only requests whose path contains this, or tasks whose UPID does; all if absent.
    #[serde(default)]
    pub contains: Option<String>,
    /// How often it strikes before it is gone; for ever if absent.
    #[serde(default)]
    pub times: Option<u32>,
}

/// What a fault does to what it meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Effect {
    /// The request arrives so much later.
    Latency {
        /// Milliseconds.
        ms: u64,
    },
    /// The proxy answers with this status instead; 595 never executes.
    ProxyStatus {
        /// 595, 596 or 599.
        status: u16,
        /// Whether the call behind it is carried out all the same.
        executed: bool,
    },
    /// The connection breaks before the call is carried out.
    DropBefore,
    /// The call is carried out, then the connection breaks.
    DropAfter,
    /// The task ends with this error instead of its work, and takes away what it had made.
    TaskFails {
        /// The exit status.
        message: String,
    },
    /// The task ends with this error, and its clean-up fails too: the copy that a move had made stays.
    TaskFailsUncleanly {
        /// The exit status.
        message: String,
    },
    /// The task is killed in the middle: `unexpected status`, its locks stay and so does what it had made by then.
    TaskKilled,
    /// The task does its work and ends with so many warnings.
    TaskWarns {
        /// How many.
        warnings: u32,
    },
    /// The task writes these lines into its log as it begins; whatever else strikes it does so too.
    TaskLogs {
        /// The lines.
        lines: Vec<String>,
    },
    /// The answer is lost and the task forks only so much later.
    LateFork {
        /// Milliseconds.
        ms: u64,
    },
    /// The daemon does not hear of the worker that it has forked, and answers 500. A call that forks none is answered as
    /// ever.
    WorkerLost {
        /// What became of the worker.
        worker: LostWorker,
    },
    /// The answer is this text, not JSON.
    Garbage {
        /// The body.
        body: String,
    },
    /// One row of the list that is answered is odd.
    OddRow {
        /// The first row whose JSON contains this; the first of all if absent.
        #[serde(default)]
        row: Option<String>,
        /// Which field of it; the whole row if absent.
        #[serde(default)]
        field: Option<String>,
        /// What stands there instead.
        becomes: OddValue,
    },
}

/// What became of a worker that its daemon did not hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LostWorker {
    /// There never was one, and no task is listed.
    Unborn,
    /// It is listed, and was killed before it did anything.
    Killed,
    /// It is listed, and ended by itself with an error before it did anything.
    Orphaned,
    /// It works as if it had been heard of.
    Working,
}

/// Something that happens behind the client's back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Event {
    /// Somebody sets or clears a config lock.
    Lock {
        /// Whose.
        guest: GuestId,
        /// `None` clears it.
        lock: Option<String>,
    },
    /// Somebody holds a guest's file lock for a while.
    HoldFileLock {
        /// Whose.
        guest: GuestId,
        /// Milliseconds.
        ms: u64,
    },
    /// Quorum is lost or comes back.
    Quorum {
        /// Whether there is one.
        quorate: bool,
    },
    /// The daemons restart: connections break, tasks are interrupted.
    Restart,
    /// The certificate is renewed; HTTP fronts present a new one to new connections.
    NewCertificate,
    /// Somebody edits a guest's file: `None` removes the key.
    Edit {
        /// Whose.
        guest: GuestId,
        /// Keys and values.
        set: BTreeMap<String, Option<String>>,
    },
    /// The guest is destroyed and another takes its number.
    Reuse {
        /// Whose number.
        guest: GuestId,
    },
    /// The guest is destroyed by somebody else.
    Destroy {
        /// Which.
        guest: GuestId,
    },
    /// The guest starts or stops by itself, without a task.
    Power {
        /// Which.
        guest: GuestId,
        /// Whether it runs then.
        running: bool,
    },
    /// root@pam starts or stops a guest, by a task.
    Switch {
        /// Which.
        guest: GuestId,
        /// Whether it runs then.
        running: bool,
    },
    /// From now on the guest ignores polite shutdowns, or obeys again.
    IgnoreShutdown {
        /// Which.
        guest: GuestId,
        /// Whether it ignores them.
        ignores: bool,
    },
    /// The node forgets every ended task.
    ForgetTasks,
    /// The task list turns over: the node forgets the ended tasks but the newest.
    TurnOverTasks {
        /// How many it keeps.
        keep: usize,
    },
    /// A task is listed that has ended at once and changed nothing here.
    TaskBy {
        /// Who started it: any name that a directory gave, `jürgen@pve`.
        user: String,
        /// Its type: `vzdump`, `aptupdate`.
        task: String,
        /// What it was about: a guest number, or nothing.
        id: String,
    },
    /// A storage lists `approximate-size` in place of `size`, or `size` again.
    HideSizes {
        /// Which storage.
        storage: String,
        /// Whether it hides them.
        hidden: bool,
    },
    /// The node's clock is set: by so many seconds forward, or back.
    Clock {
        /// Seconds; negative is back.
        step_s: i64,
    },
    /// Somebody takes one privilege away on a path and below it.
    Withhold {
        /// From a user or a token; a token of another user than root@pam has no more than its user.
        holder: String,
        /// `/`, `/nodes/pve1`, `/vms/100`.
        path: String,
        /// `Sys.Audit`.
        privilege: String,
    },
    /// Somebody takes back what was granted on exactly this path; what is granted above it holds again.
    Revoke {
        /// From whom.
        holder: String,
        /// Where.
        path: String,
    },
    /// root@pam restores a guest over itself, from a backup that looks just the same.
    Restore {
        /// Which.
        guest: GuestId,
    },
    /// root@pam destroys a guest and makes one that looks just the same under its number.
    Recreate {
        /// Which.
        guest: GuestId,
    },
    /// root@pam destroys a guest and clones another to its number.
    CloneOver {
        /// What is copied.
        source: GuestId,
        /// Whose number the copy gets.
        target: GuestId,
    },
    /// root@pam rolls a guest back to its newest snapshot, if it has one.
    Rollback {
        /// Which.
        guest: GuestId,
    },
    /// root@pam makes a template of a stopped guest.
    Template {
        /// Which.
        guest: GuestId,
    },
    /// root@pam makes a guest under a free number.
    Create {
        /// Its kind and number.
        guest: GuestId,
    },
    /// root@pam restores somebody's backup under a free number.
    RestoreAs {
        /// The kind and number it gets.
        guest: GuestId,
    },
    /// root@pam clones a guest to a free number.
    CloneAs {
        /// What is copied.
        source: GuestId,
        /// The number the copy gets, of the same kind.
        target: GuestId,
    },
    /// root@pam destroys a guest, by a task.
    Remove {
        /// Which.
        guest: GuestId,
    },
    /// The processes of running tasks are killed.
    KillTask {
        /// Those whose UPID contains this: `:vzcreate:100:`.
        contains: String,
    },
    /// The end of an archive is lost: it is listed with half its size, and cannot be restored.
    Truncate {
        /// Which backup.
        volid: String,
    },
    /// A volume or archive is gone, without a task.
    LoseVolume {
        /// Which.
        volid: String,
    },
    /// Somebody sets how many backups a storage keeps.
    Retention {
        /// Which storage.
        storage: String,
        /// Of each guest; a backup that may remove none fails when there are so many.
        keep_last: Option<usize>,
        /// Of each guest's protected ones.
        max_protected: Option<usize>,
    },
    /// Somebody sets `exclude-path` in the node's `/etc/vzdump.conf`.
    BackupExcludes {
        /// Patterns of what every backup of a container leaves out from now on.
        paths: Vec<String>,
    },
    /// Somebody removes a storage's definition; what is on it stays where it is.
    UndefineStorage {
        /// Which.
        storage: String,
    },
    /// Somebody defines a storage again, with everything that was on it.
    DefineStorage {
        /// Which.
        storage: String,
    },
    /// Somebody gives a number something that is kept beside guests, or takes it away; a guest need not be there.
    Around {
        /// Whose number.
        guest: GuestId,
        /// What.
        thing: NumberThing,
        /// Whether it is there from now on.
        present: bool,
    },
    /// A storage does not answer: whoever lists it, or reads a backup on it, waits and keeps one of the node's workers.
    StorageHangs {
        /// Which storage.
        storage: String,
        /// Milliseconds; for ever if absent.
        #[serde(default)]
        ms: Option<u64>,
        /// Whether the list of all storages hangs with it.
        #[serde(default)]
        lists: bool,
    },
    /// It answers again.
    StorageAnswers {
        /// Which storage.
        storage: String,
    },
    /// The statistics daemon does not notice a guest for a while, so that `/cluster/resources` shows what was.
    Lag {
        /// Which.
        guest: GuestId,
        /// Milliseconds.
        ms: u64,
    },
    /// The process behind `/etc/pve` starts again: its numbers begin anew.
    RestartClusterFs,
    /// The process behind `/etc/pve` takes the cluster's files over, as after a partition: every number is new.
    ResyncClusterFs,
    /// root@pam moves a guest with its volumes to another node of the cluster.
    MigrateAway {
        /// Which.
        guest: GuestId,
    },
    /// The guest comes back; the task of that is the other node's.
    MigrateBack {
        /// Which.
        guest: GuestId,
        /// Whether it was made again over there meanwhile, so that another guest comes that looks the same.
        another: bool,
    },
}

/// The rules in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn all(&self) -> &[Fault] {
        &self.0
    }

    /// The first effect on a request, counted.
    pub(crate) fn on_request(&mut self, method: &str, path: &str) -> Option<Effect> {
        self.strike(Effect::strikes_requests, Some(method), path)
    }

    /// What a task that begins is to write into its log.
    pub(crate) fn on_log(&mut self, upid: &str) -> Vec<String> {
        let logs = |effect: &Effect| matches!(effect, Effect::TaskLogs { .. });
        match self.strike(logs, None, upid) {
            Some(Effect::TaskLogs { lines }) => lines,
            Some(_) | None => Vec::new(),
        }
    }

    /// The first effect on a task, counted.
    pub(crate) fn on_task(&mut self, upid: &str) -> Option<Effect> {
        self.strike(Effect::strikes_tasks, None, upid)
    }

    fn strike(
        &mut self,
        kind: impl Fn(&Effect) -> bool,
        method: Option<&str>,
        text: &str,
    ) -> Option<Effect> {
        let fits = |fault: &Fault| {
            kind(&fault.effect)
                && fault.times != Some(0)
                && (method.is_none() || fault.method.as_deref().is_none_or(|m| Some(m) == method))
                && fault.contains.as_deref().is_none_or(|part| text.contains(part))
        };
        let fault = self.0.iter_mut().find(|fault| fits(fault))?;
        if let Some(times) = &mut fault.times {
            *times -= 1;
        }
        Some(fault.effect.clone())
    }
}

impl Effect {
    /// Whether it waits for a task and what comes of it.
    fn strikes_tasks(&self) -> bool {
        match self {
            Self::TaskFails { .. }
            | Self::TaskFailsUncleanly { .. }
            | Self::TaskKilled
            | Self::TaskWarns { .. } => true,
            Self::TaskLogs { .. }
            | Self::Latency { .. }
            | Self::ProxyStatus { .. }
            | Self::DropBefore
            | Self::DropAfter
            | Self::LateFork { .. }
            | Self::WorkerLost { .. }
            | Self::OddRow { .. }
            | Self::Garbage { .. } => false,
        }
    }

    /// Whether it waits for a request.
    fn strikes_requests(&self) -> bool {
        match self {
            Self::Latency { .. }
            | Self::ProxyStatus { .. }
            | Self::DropBefore
            | Self::DropAfter
            | Self::LateFork { .. }
            | Self::WorkerLost { .. }
            | Self::OddRow { .. }
            | Self::Garbage { .. } => true,
            Self::TaskFails { .. }
            | Self::TaskFailsUncleanly { .. }
            | Self::TaskKilled
            | Self::TaskWarns { .. }
            | Self::TaskLogs { .. } => false,
        }
    }

    /// The rule that strikes once whatever comes.
    pub fn once(self) -> Fault {
        Fault { effect: self, method: None, contains: None, times: Some(1) }
    }

    /// The rule that strikes every request or task whose path or UPID contains the text.
    pub fn on(self, contains: &str) -> Fault {
        Fault { effect: self, method: None, contains: Some(contains.to_owned()), times: None }
    }
}
