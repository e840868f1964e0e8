//! A destroy: its preparations, its parameters, and what must be so before each of its requests leaves.
//!
//! The planner and the gate ask what it takes; the agent asks again before every request, because minutes may pass
//! between two of them. Nothing here is believed from memory but the guest as it was when its protection was taken off.

use std::collections::{BTreeMap, BTreeSet};

use crate::actual::{Guest, GuestConfig, Power};
use crate::id::GuestKind;
use crate::identity::identity;
use crate::identity_proof::TaskReading;
use crate::operation::{OpPhase, Operation, Upid};
use crate::reason::{ReasonCode, Refusal};
use crate::sign::Expected;

/// A destroy with its preparations, everything spelled out: this is what an operator signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destroy {
    /// The guest's kind; a container's call takes one flag more.
    pub kind: GuestKind,
    /// It runs, and is stopped first.
    pub stop: bool,
    /// It is protected, and that is taken off first.
    pub unprotect: bool,
    /// Backup jobs, replication jobs and HA forget it too. PVE refuses to destroy what HA manages otherwise.
    pub purge: bool,
}

impl Destroy {
    /// What destroying a guest takes, as it is now.
    pub fn of(guest: &Guest) -> Self {
        Self {
            kind: guest.id.kind,
            stop: guest.is_running(),
            unprotect: guest.is_protected(),
            purge: guest.ha.is_some(),
        }
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
        Ok(Self { purge: is_on("purge"), ..now })
    }

    /// Every parameter, defaults too. Volumes of that number that no configuration mentions may be a former
    /// guest's: they are never taken along, nor is a running container killed.
    pub fn params(self) -> BTreeMap<String, String> {
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
        params.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Whether a stop would change the guest: Proxmox then applies everything that waits for a restart.
pub fn stop_changes(fresh: &Guest) -> bool {
    fresh.config.as_ref().map_or(true, GuestConfig::anything_waits)
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
        OpPhase::Unprotect => is_down(fresh),
        OpPhase::Act => is_down(fresh) && !fresh.is_protected(),
    };
    prepared && fresh.lock.is_none()
}

/// What is owed to a guest whose protection an operation took off and could not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
    /// Its protection.
    Protection,
    /// Perhaps, but not now: it is locked, or nobody can tell which guest it is.
    Later(Refusal),
    /// Nothing: somebody made it another guest since, or it is protected again.
    Nothing,
}

impl Owed {
    /// To the guest as it is now. `tasks` were listed after it was read; `ours` are those of our own journal.
    pub fn to(
        fresh: &Guest,
        operation: &Operation,
        tasks: &TaskReading,
        ours: &BTreeSet<Upid>,
    ) -> Self {
        let live = match identity(fresh) {
            Ok(live) => live,
            Err(error) => {
                return Self::Later(Refusal::new(ReasonCode::IdentityUnproven, error.to_string()));
            }
        };
        if Some(live) != operation.intent.identity || fresh.is_protected() {
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
        match &fresh.lock {
            Some(lock) => {
                Self::Later(Refusal::new(ReasonCode::Locked, format!("it is locked ({lock})")))
            }
            None => Self::Protection,
        }
    }
}

/// Stopped, with nothing that waits for a restart.
fn is_down(fresh: &Guest) -> bool {
    !stop_changes(fresh) && fresh.power == Power::Stopped
}

fn is_unchanged(fresh: &Guest, basis: Basis<'_>) -> bool {
    match basis {
        Basis::Signed(Expected::Guest { digest: signed, .. }) => {
            let digest = fresh.config.as_ref().ok().and_then(|config| config.digest.parse().ok());
            digest.as_ref() == Some(signed)
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
    use crate::action_registry::ActionKind;
    use crate::actual::{ConfigEntry, Unreadable};
    use crate::id::OperationId;
    use crate::identity_proof::{ListedTask, TaskListMark, TaskState};
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
            config: Ok(GuestConfig::from_pending(GuestKind::Lxc, entries)),
        }
    }

    fn waiting(mut guest: Guest) -> Guest {
        let waits = ConfigEntry {
            key: "cores".to_owned(),
            value: Some("2".to_owned()),
            pending: Some("4".to_owned()),
            delete: 0,
        };
        guest.config = Ok(GuestConfig::from_pending(GuestKind::Lxc, vec![waits]));
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
        // Stop, unprotect, act.
        for (name, guest, ready) in [
            ("bare", &bare, [true, true, true]),
            ("protected", &protected, [true, true, false]),
            ("running", &running, [true, false, false]),
            ("unclear", &unclear, [true, false, false]),
            ("waiting", &waiting(bare.clone()), [true, false, false]),
            ("locked", &locked, [false, false, false]),
            ("unreadable", &unreadable, [true, false, false]),
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
            tasks,
            &BTreeSet::new(),
        ) {
            Owed::Protection => "protection",
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
    fn less_than_what_was_signed_is_done_and_never_more() {
        let protected = guest(&[("protection", "1")]);
        let running = Guest { power: Power::Running, ..guest(&[("cores", "2")]) };
        let both = Guest { power: Power::Running, ..protected.clone() };
        let bare = guest(&[("cores", "2")]);
        for guest in [&bare, &protected, &running, &both] {
            let now = Destroy::of(guest);
            for (stop, unprotect) in [(false, false), (false, true), (true, false), (true, true)] {
                let params = Destroy { stop, unprotect, ..now }.params();
                let done = Destroy::signed(&params, guest);
                if now.stop && !stop || now.unprotect && !unprotect {
                    let refused = done.map_err(|refusal| refusal.reason);
                    assert_eq!(refused, Err(ReasonCode::Stale), "{now:?}, signed: {params:?}");
                } else {
                    assert_eq!(done, Ok(now), "signed: {params:?}");
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
