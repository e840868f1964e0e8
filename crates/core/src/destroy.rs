//! A destroy: its preparations, its parameters, and what must be so before each of its requests leaves.
//!
//! The planner and the gate ask what it takes; the agent asks again before every request, because minutes may pass
//! between two of them. Nothing here is believed from memory but the guest as it was when its protection was taken off.

use std::collections::{BTreeMap, BTreeSet};

use crate::action_registry::ActionKind;
use crate::actual::{Guest, GuestConfig, Power};
use crate::classify::{ActIntent, ActionClass, Target, classify};
use crate::final_backup::{BackupContext, FinalBackup, left_out};
use crate::id::GuestKind;
use crate::identity::identity;
use crate::identity_proof::{ListedTask, TaskReading};
use crate::operation::{OpPhase, Operation, Provenance, StorageName, Upid};
use crate::reason::{ReasonCode, Refusal};
use crate::sign::{ConfigDigest, Expected};

/// A destroy with its preparations, everything spelled out: this is what an operator signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destroy {
    /// The guest's kind; a container's call takes one flag more.
    pub kind: GuestKind,
    /// It runs, and is stopped first.
    pub stop: bool,
    /// It is protected, and that is taken off first.
    pub unprotect: bool,
    /// Backup jobs, replication jobs and HA forget it too. PVE refuses to destroy what HA manages otherwise.
    pub purge: bool,
    /// It is saved first, and without that backup it is not destroyed.
    pub final_backup: Option<FinalBackup>,
}

impl Destroy {
    /// What destroying a guest takes, as it is now.
    pub fn of(guest: &Guest) -> Self {
        Self {
            kind: guest.id.kind,
            stop: guest.is_running(),
            unprotect: guest.is_protected(),
            purge: guest.ha.is_some(),
            final_backup: None,
        }
    }

    /// The same with a backup first, as far as the configuration tells what that leaves out: snapshots and excluded paths
    /// come on top.
    #[must_use]
    pub fn saved_to(self, storage: Option<StorageName>, guest: &Guest) -> Self {
        let not_in_backup = left_out(guest, &BackupContext::default());
        let saved = |storage| FinalBackup { storage, not_in_backup };
        Self { final_backup: storage.map(saved), ..self }
    }

    /// What is left to do of a destroy that was signed, for the guest as it is now: less than what was signed, never
    /// more. A guest that went down meanwhile need not be stopped.
    pub fn signed(params: &BTreeMap<String, String>, fresh: &Guest) -> Result<Self, Refusal> {
        let is_on = |name: &str| params.get(name).map(String::as_str) == Some("1");
        if is_on("destroy-unreferenced-disks") || is_on("force") {
            let why = "evenkeel never destroys by force, nor what no configuration mentions";
            return Err(Refusal::new(ReasonCode::NotExecutable, why));
        }
        let now = Self::of(fresh);
        if now.stop && !is_on("stop") || now.unprotect && !is_on("unprotect") {
            let why =
                "the guest runs or is protected now, and that it is taken down was not signed";
            return Err(Refusal::new(ReasonCode::Stale, why));
        }
        if now.stop && stop_changes(fresh) {
            return Err(Refusal::new(ReasonCode::Stale, STOP_CHANGES));
        }
        Ok(Self { purge: is_on("purge"), final_backup: FinalBackup::signed(params)?, ..now })
    }

    /// Every parameter, defaults too. Volumes of that number that no configuration mentions may be a former
    /// guest's: they are never taken along, nor is a running container killed.
    pub fn params(&self) -> BTreeMap<String, String> {
        let flag = |on: bool| if on { "1" } else { "0" };
        let mut params = vec![
            ("destroy-unreferenced-disks", "0"),
            ("purge", flag(self.purge)),
            ("stop", flag(self.stop)),
            ("unprotect", flag(self.unprotect)),
        ];
        match self.kind {
            GuestKind::Lxc => params.push(("force", "0")),
            GuestKind::Qemu => {}
        }
        let params = params.into_iter().map(|(name, value)| (name, value.to_owned()));
        let params = params.chain(FinalBackup::params(self.final_backup.as_ref()));
        params.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Whether a guest that runs is stopped for a backup first: it must run again if the act comes to nothing.
    pub fn restarts(&self) -> bool {
        self.stop && self.final_backup.is_some()
    }
}

/// Whether a stop would change the guest: Proxmox then applies everything that waits for a restart.
pub fn stop_changes(fresh: &Guest) -> bool {
    fresh.config.as_deref().map_or(true, GuestConfig::anything_waits)
}

/// What is said of a guest that a stop would change.
const STOP_CHANGES: &str = "changes wait for a restart, and stopping the guest would apply them: it would no longer be the one \
     that was signed for; nothing was sent; restart or revert them, then sign the item that waits then";

/// What a guest's configuration must equal when a request leaves.
#[derive(Debug, Clone, Copy)]
pub enum Basis<'a> {
    /// What was signed.
    Signed(&'a Expected),
    /// The guest as it was just before we took its protection off, but for that.
    Unprotected(&'a Guest),
    /// What the gate cleared, by its digest: nobody signed for it.
    Cleared(&'a ConfigDigest),
}

/// Why a request must not leave, by a last look at the guest. Whether it is still the same guest is another question.
pub fn hindrance(request: OpPhase, fresh: &Guest, basis: Basis<'_>) -> Option<&'static str> {
    if !is_unchanged(fresh, basis) {
        return Some("its configuration was changed meanwhile");
    }
    (!is_ready(request, fresh)).then_some(NOT_READY)
}

/// What is said of a guest that is not ready.
pub const NOT_READY: &str =
    "the guest is not stopped and bare: it runs, is locked, protected, or a change waits";

/// Whether the guest is so that the request may be sent: unlocked, and what came before has taken effect.
pub fn is_ready(request: OpPhase, fresh: &Guest) -> bool {
    let prepared = match request {
        OpPhase::Stop => true,
        OpPhase::Backup | OpPhase::Unprotect => is_down(fresh),
        OpPhase::Act => is_down(fresh) && !fresh.is_protected(),
    };
    prepared && fresh.lock.is_none()
}

/// What an operation took from a guest and could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Debt {
    /// Its protection.
    Protection,
    /// That it runs.
    Running,
}

impl Debt {
    /// All of them, in the order in which they are given back.
    pub const ALL: [Self; 2] = [Self::Protection, Self::Running];

    /// Whether an operation that came to nothing left it.
    pub fn is_of(self, operation: &Operation) -> bool {
        match self {
            Self::Protection => operation.owes_protection(),
            Self::Running => operation.owes_start(),
        }
    }
}

/// Whether a debt can be paid now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
    /// Yes.
    Now,
    /// Perhaps, but not now: it is locked, or nobody can tell which guest it is.
    Later(Refusal),
    /// Nothing is owed any more: somebody made it another guest since, or it has again what was taken.
    Nothing,
}

impl Owed {
    /// To the guest as it is now. `tasks` were listed after it was read; `ours` are those of our own journal.
    pub fn to(
        fresh: &Guest,
        operation: &Operation,
        debt: Debt,
        tasks: &TaskReading,
        ours: &BTreeSet<Upid>,
    ) -> Self {
        let live = match identity(fresh) {
            Ok(live) => live,
            Err(error) => {
                return Self::Later(Refusal::new(ReasonCode::IdentityUnproven, error.to_string()));
            }
        };
        let has_it = match debt {
            Debt::Protection => fresh.is_protected(),
            Debt::Running => fresh.is_running() || was_started(fresh, operation, tasks, ours),
        };
        if Some(live) != operation.intent.identity || has_it {
            return Self::Nothing;
        }
        // A journal from before the mark was kept has none, and a list may have forgotten: then the identity alone
        // tells. A flag too many on a guest that looks the same harms nobody; one that is missing may.
        let mark = operation.intent.task_mark.as_ref();
        match mark.map_or(Ok(false), |mark| mark.another_guest(tasks, fresh.id.vmid, ours)) {
            Ok(true) => return Self::Nothing,
            Ok(false) => {}
            Err(refusal) => return Self::Later(refusal),
        }
        if let Some(lock) = &fresh.lock {
            let why = format!("it is locked ({lock})");
            return Self::Later(Refusal::new(ReasonCode::Locked, why));
        }
        match debt {
            Debt::Protection => Self::Now,
            Debt::Running => start_is_harmless(fresh),
        }
    }
}

/// Whether somebody started it since: then whether it runs is theirs to say.
fn was_started(
    fresh: &Guest,
    operation: &Operation,
    tasks: &TaskReading,
    ours: &BTreeSet<Upid>,
) -> bool {
    let started = |task: &ListedTask| {
        let upid = &task.upid;
        ActionKind::Start.task_types(fresh.id.kind).contains(&upid.task_type())
            && upid.task_id() == fresh.id.vmid.to_string()
            && upid.started_at() >= operation.intent.sent_at
            && !ours.contains(upid)
    };
    tasks.tasks.iter().any(started)
}

/// A start applies what came to wait meanwhile, and a deletion that waits destroys: that is nobody's to set off unsigned.
fn start_is_harmless(fresh: &Guest) -> Owed {
    let params = BTreeMap::new();
    let (op, kind, target) = (ActionKind::Start.as_str(), fresh.id.kind, Target::Seen(fresh));
    let judged = classify(&ActIntent { op, kind, params: &params, target }, &Provenance::none());
    match judged.class {
        ActionClass::Benign | ActionClass::Disruptive if fresh.power == Power::Stopped => Owed::Now,
        ActionClass::Benign | ActionClass::Disruptive => {
            Owed::Later(Refusal::new(ReasonCode::IdentityUnproven, "whether it runs is not known"))
        }
        ActionClass::Destructive => {
            Owed::Later(Refusal::new(ReasonCode::PendingSignature, judged.why))
        }
    }
}

/// Stopped, with nothing that waits for a restart.
fn is_down(fresh: &Guest) -> bool {
    !stop_changes(fresh) && fresh.power == Power::Stopped
}

fn is_unchanged(fresh: &Guest, basis: Basis<'_>) -> bool {
    match basis {
        Basis::Signed(Expected::Guest { digest, .. }) | Basis::Cleared(digest) => {
            let now = fresh.config.as_ref().ok().and_then(|config| config.digest.parse().ok());
            now.as_ref() == Some(digest)
        }
        Basis::Signed(Expected::Free) => false,
        Basis::Unprotected(before) => same_but_protection(before, fresh),
    }
}

/// Whether nothing differs but the protection, which was taken off in between. What cannot be read is never the same.
fn same_but_protection(before: &Guest, after: &Guest) -> bool {
    let texts = |guest: &Guest| {
        let config = guest.config.as_ref().ok()?;
        let fields = config.fields.iter().filter(|field| field.key.key().name != "protection");
        let texts =
            fields.filter_map(|field| Some((field.key, field.current.as_ref()?.text.clone())));
        Some((texts.collect::<Vec<_>>(), config.unknown.clone()))
    };
    texts(before).is_some_and(|before| texts(after) == Some(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::{ConfigEntry, Unreadable};
    use crate::id::OperationId;
    use crate::identity_proof::{TaskListMark, TaskState};
    use crate::operation::{OpEvent, StartedIntent, UnixSeconds};

    const DIGEST: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c";

    /// A stopped container with these keys.
    fn guest(keys: &[(&str, &str)]) -> Guest {
        let entry = |(key, text): &(&str, &str)| ConfigEntry {
            key: (*key).to_owned(),
            value: Some((*text).to_owned()),
            pending: None,
            delete: 0,
        };
        let entries = [("digest", DIGEST)].iter().chain(keys).map(entry).collect::<Vec<_>>();
        Guest {
            id: "lxc/101".parse().unwrap(),
            power: Power::Stopped,
            template: false,
            ha: None,
            lock: None,
            config: Ok(GuestConfig::from_pending(GuestKind::Lxc, entries).into()),
        }
    }

    fn waiting(mut guest: Guest) -> Guest {
        let waits = ConfigEntry {
            key: "cores".to_owned(),
            value: Some("2".to_owned()),
            pending: Some("4".to_owned()),
            delete: 0,
        };
        guest.config = Ok(GuestConfig::from_pending(GuestKind::Lxc, vec![waits]).into());
        guest
    }

    #[test]
    fn a_request_leaves_only_when_what_comes_before_it_has_taken_effect() {
        let bare = guest(&[("cores", "2")]);
        let protected = guest(&[("cores", "2"), ("protection", "1")]);
        let running = Guest { power: Power::Running, ..bare.clone() };
        let unclear = Guest { power: Power::Unknown, ..bare.clone() };
        let locked = Guest { lock: Some("backup".to_owned()), ..bare.clone() };
        let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..bare.clone() };
        // Stop, save, unprotect, act.
        for (name, guest, ready) in [
            ("bare", &bare, [true, true, true, true]),
            ("protected", &protected, [true, true, true, false]),
            ("running", &running, [true, false, false, false]),
            ("unclear", &unclear, [true, false, false, false]),
            ("waiting", &waiting(bare.clone()), [true, false, false, false]),
            ("locked", &locked, [false, false, false, false]),
            ("unreadable", &unreadable, [true, false, false, false]),
        ] {
            assert_eq!(OpPhase::ALL.map(|request| is_ready(request, guest)), ready, "{name}");
        }
    }

    #[test]
    fn no_request_leaves_on_a_configuration_that_was_not_signed_for() {
        let signed = |digest: &str| Expected::Guest {
            identity: "00".repeat(32).parse().unwrap(),
            digest: digest.parse().unwrap(),
        };
        let bare = guest(&[("cores", "2")]);
        let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..bare.clone() };
        let other = DIGEST.replace('1', "2");
        for request in OpPhase::ALL {
            let leaves = |guest, expected: &Expected| {
                hindrance(request, guest, Basis::Signed(expected)).is_none()
            };
            assert!(leaves(&bare, &signed(DIGEST)));
            assert!(!leaves(&bare, &signed(&other)));
            assert!(!leaves(&bare, &Expected::Free));
            assert!(!leaves(&unreadable, &signed(DIGEST)));
        }
    }

    #[test]
    fn a_protection_is_owed_to_the_same_guest_alone_and_never_forgotten_for_want_of_proof() {
        let task = |kind: &str, state| ListedTask {
            upid: format!("UPID:pve1:00000457:00001111:00000064:{kind}:101:root@pam:")
                .parse()
                .unwrap(),
            state,
        };
        let tasks = |tasks: &[ListedTask]| TaskReading {
            tasks: tasks.to_vec(),
            unread: Vec::new(),
            filtered: None,
            node_now: UnixSeconds(200),
        };
        let (old, quiet) =
            (task("vzstart", TaskState::Done), tasks(&[task("vzstart", TaskState::Done)]));
        let mine = guest(&[("mp0", "a:b,mp=/x")]);
        let operation = |task_mark| {
            let intent = StartedIntent {
                first: OpPhase::Unprotect,
                unprotects: true,
                identity: identity(&mine).ok(),
                task_mark,
                ..StartedIntent::new(mine.id, ActionKind::Destroy, UnixSeconds(1))
            };
            Operation::begin(OperationId::from_parts(1, 1), &OpEvent::Started(Box::new(intent)))
        };
        let operation = |mark| operation(mark).unwrap();
        let marked = operation(TaskListMark::of(&quiet, mine.id.vmid).ok());
        let to = |guest: &Guest, tasks: &TaskReading, operation: &Operation| match Owed::to(
            guest,
            operation,
            Debt::Protection,
            tasks,
            &BTreeSet::new(),
        ) {
            Owed::Now => "protection",
            Owed::Later(refusal) => refusal.reason.as_str(),
            Owed::Nothing => "nothing",
        };
        let locked = Guest { lock: Some("backup".to_owned()), ..mine.clone() };
        let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..mine.clone() };
        for (name, guest, owed) in [
            ("mine", &mine, "protection"),
            ("locked", &locked, "locked"),
            ("unreadable", &unreadable, "identity_unproven"),
            ("an empty answer", &guest(&[]), "identity_unproven"),
            ("another", &guest(&[("mp0", "a:c,mp=/x")]), "nothing"),
            ("protected", &guest(&[("mp0", "a:b,mp=/x"), ("protection", "1")]), "nothing"),
        ] {
            assert_eq!(to(guest, &quiet, &marked), owed, "{name}");
        }
        let again = tasks(&[old.clone(), task("vzcreate", TaskState::Done)]);
        let filtered = TaskReading { filtered: Some("no right".to_owned()), ..quiet.clone() };
        let early = TaskReading { node_now: UnixSeconds(100), ..quiet.clone() };
        for (name, tasks, owed) in [
            ("made again the same", &again, "nothing"),
            (
                "made again, and seen all the same",
                &TaskReading { filtered: filtered.filtered.clone(), ..again.clone() },
                "nothing",
            ),
            (
                "somebody is at it",
                &tasks(&[old.clone(), task("vzrestore", TaskState::Running)]),
                "identity_unproven",
            ),
            ("tasks are hidden", &filtered, "identity_unproven"),
            (
                "a restore that failed",
                &tasks(&[old.clone(), task("vzrestore", TaskState::Undone)]),
                "protection",
            ),
            ("rolled back", &tasks(&[old, task("vzrollback", TaskState::Done)]), "protection"),
            ("tasks are forgotten", &tasks(&[]), "protection"),
            ("the clock was set back", &early, "protection"),
        ] {
            assert_eq!(to(&mine, tasks, &marked), owed, "{name}");
        }
        assert_eq!(to(&mine, &again, &operation(None)), "protection", "a journal without marks");
    }

    #[test]
    fn a_guest_that_was_stopped_for_nothing_runs_again_unless_somebody_else_decided() {
        let mine = guest(&[("mp0", "a:b,mp=/x")]);
        let intent = StartedIntent {
            first: OpPhase::Stop,
            restarts: true,
            identity: identity(&mine).ok(),
            ..StartedIntent::new(mine.id, ActionKind::Destroy, UnixSeconds(90))
        };
        let operation =
            Operation::begin(OperationId::from_parts(1, 1), &OpEvent::Started(Box::new(intent)));
        let failed = OpEvent::Failed {
            reason: String::new(),
            left_volume: None,
            tried: None,
            identity: None,
        };
        let operation = operation.unwrap().after(&failed).unwrap();
        assert!(Debt::Running.is_of(&operation) && !Debt::Protection.is_of(&operation));
        let tasks = |kinds: &[&str]| TaskReading {
            unread: Vec::new(),
            tasks: kinds
                .iter()
                .map(|kind| ListedTask {
                    upid: format!("UPID:pve1:00000457:00001111:00000064:{kind}:root@pam:")
                        .parse()
                        .unwrap(),
                    state: TaskState::Done,
                })
                .collect(),
            filtered: None,
            node_now: UnixSeconds(200),
        };
        let mut doomed = waiting(mine.clone());
        let force = ConfigEntry {
            key: "mp0".to_owned(),
            value: Some("a:b,mp=/x".to_owned()),
            pending: None,
            delete: 2,
        };
        doomed.config = Ok(GuestConfig::from_pending(GuestKind::Lxc, [force]).into());
        let running = Guest { power: Power::Running, ..mine.clone() };
        let unclear = Guest { power: Power::Unknown, ..mine.clone() };
        let locked = Guest { lock: Some("backup".to_owned()), ..mine.clone() };
        for (name, guest, tasks, owed) in [
            ("stopped", &mine, tasks(&["vzstop:101"]), "now"),
            ("another's start", &mine, tasks(&["vzstart:102"]), "now"),
            ("started by somebody", &mine, tasks(&["vzstart:101"]), "nothing"),
            ("runs", &running, tasks(&[]), "nothing"),
            ("unclear", &unclear, tasks(&[]), "later"),
            ("locked", &locked, tasks(&[]), "later"),
            ("a deletion waits", &doomed, tasks(&[]), "later"),
            ("another guest", &guest(&[("mp0", "a:c,mp=/x")]), tasks(&[]), "nothing"),
        ] {
            let to = Owed::to(guest, &operation, Debt::Running, &tasks, &BTreeSet::new());
            let told = match to {
                Owed::Now => "now",
                Owed::Later(_) => "later",
                Owed::Nothing => "nothing",
            };
            assert_eq!(told, owed, "{name}");
        }
    }

    #[test]
    fn less_than_what_was_signed_is_done_and_never_more() {
        let protected = guest(&[("protection", "1")]);
        let running = Guest { power: Power::Running, ..guest(&[("cores", "2")]) };
        let both = Guest { power: Power::Running, ..protected.clone() };
        let bare = guest(&[("cores", "2")]);
        for guest in [&bare, &protected, &running, &both] {
            let now = Destroy::of(guest);
            for (stop, unprotect) in [(false, false), (false, true), (true, false), (true, true)] {
                let params = Destroy { stop, unprotect, ..now.clone() }.params();
                let done = Destroy::signed(&params, guest);
                if now.stop && !stop || now.unprotect && !unprotect {
                    let refused = done.map_err(|refusal| refusal.reason);
                    assert_eq!(refused, Err(ReasonCode::Stale), "{now:?}, signed: {params:?}");
                } else {
                    assert_eq!(done, Ok(now.clone()), "signed: {params:?}");
                }
            }
        }
        let signed = |name: &str, guest: &Guest| {
            let mut params = Destroy::of(guest).params();
            params.insert(name.to_owned(), "1".to_owned());
            Destroy::signed(&params, guest)
        };
        for name in ["force", "destroy-unreferenced-disks"] {
            let refused = signed(name, &bare).map_err(|refusal| refusal.reason);
            assert_eq!(refused, Err(ReasonCode::NotExecutable), "{name}");
        }
        assert!(signed("purge", &bare).unwrap().purge, "although it no longer is in HA");
        let refused = signed("stop", &waiting(running)).map_err(|refusal| refusal.reason);
        assert_eq!(refused, Err(ReasonCode::Stale), "a stop would apply what waits");
    }

    #[test]
    fn after_an_unprotect_nothing_else_may_differ() {
        let before = guest(&[("cores", "2"), ("protection", "1"), ("mp0", "a:b,mp=/x")]);
        let leaves = |keys: &[(&str, &str)]| {
            hindrance(OpPhase::Act, &guest(keys), Basis::Unprotected(&before)).is_none()
        };
        assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x")]));
        assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "0")]));
        assert!(!leaves(&[("cores", "4"), ("mp0", "a:b,mp=/x")]), "a value was changed");
        assert!(!leaves(&[("cores", "2")]), "a disk was taken off");
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("mp1", "a:c,mp=/y")]));
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("novel", "1")]), "an unknown key");
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "1")]));
        let unreadable = Guest { config: Err(Unreadable::new("gone", "")), ..before.clone() };
        assert!(!is_unchanged(&unreadable, Basis::Unprotected(&unreadable)));
    }
}
