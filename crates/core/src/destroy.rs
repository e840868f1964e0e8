//! A destroy: its preparations, its parameters, and what must be so before each of its requests leaves.
//!
//! The planner and the gate ask what it takes; the agent asks again before every request, because minutes may pass
//! between two of them. Nothing here is believed from memory but the guest as it was when its protection was taken off.

use std::collections::BTreeMap;

use crate::actual::{Config, Guest, Power};
use crate::id::GuestKind;
use crate::identity::identity;
use crate::operation::{Operation, Request};
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
    fresh.config.as_ref().map_or(true, Config::anything_waits)
}

/// What is said of a guest that a stop would change.
pub const STOP_CHANGES: &str = "changes wait for a restart, and stopping the guest would apply them: it would no longer be the one \
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
pub fn hindrance(request: Request, fresh: &Guest, basis: Basis<'_>) -> Option<&'static str> {
    if !is_unchanged(fresh, basis) {
        return Some("its configuration was changed meanwhile");
    }
    (!is_ready(request, fresh)).then_some(NOT_READY)
}

/// What is said of a guest that is not ready.
pub const NOT_READY: &str =
    "the guest is not stopped and bare: it runs, is locked, protected, or a change waits";

/// Whether the guest is so that the request may be sent: unlocked, and what came before has taken effect.
pub fn is_ready(request: Request, fresh: &Guest) -> bool {
    let prepared = match request {
        Request::Stop => true,
        Request::Unprotect => is_down(fresh),
        Request::Act => is_down(fresh) && !fresh.is_protected(),
    };
    prepared && fresh.lock.is_none()
}

/// What is owed to a guest whose protection an operation took off and could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owed {
    /// Its protection.
    Protection,
    /// Perhaps, but not now: it is locked, or nobody can tell which guest it is.
    Later,
    /// Nothing: it is another guest, or protected again.
    Nothing,
}

impl Owed {
    /// To the guest as it is now.
    pub fn to(fresh: &Guest, operation: &Operation) -> Self {
        match identity(fresh) {
            Err(_) => Self::Later,
            Ok(live) if Some(live) != operation.intent.identity => Self::Nothing,
            Ok(_) if fresh.is_protected() => Self::Nothing,
            Ok(_) if fresh.lock.is_some() => Self::Later,
            Ok(_) => Self::Protection,
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
    use crate::actual::{Entry, Unreadable};

    const DIGEST: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c";

    /// A stopped container with these keys.
    fn guest(keys: &[(&str, &str)]) -> Guest {
        let entry = |(key, text): &(&str, &str)| Entry {
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
            config: Ok(Config::from_pending(GuestKind::Lxc, entries)),
        }
    }

    fn waiting(mut guest: Guest) -> Guest {
        let waits = Entry {
            key: "cores".to_owned(),
            value: Some("2".to_owned()),
            pending: Some("4".to_owned()),
            delete: 0,
        };
        guest.config = Ok(Config::from_pending(GuestKind::Lxc, vec![waits]));
        guest
    }

    #[test]
    fn a_request_leaves_only_when_what_comes_before_it_has_taken_effect() {
        let bare = guest(&[("cores", "2")]);
        let protected = guest(&[("cores", "2"), ("protection", "1")]);
        let running = Guest { power: Power::Running, ..bare.clone() };
        let unclear = Guest { power: Power::Unknown, ..bare.clone() };
        let locked = Guest { lock: Some("backup".to_owned()), ..bare.clone() };
        let unreadable = Guest { config: Err(Unreadable("gone".to_owned())), ..bare.clone() };
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
            assert_eq!(Request::ALL.map(|request| is_ready(request, guest)), ready, "{name}");
        }
    }

    #[test]
    fn no_request_leaves_on_a_configuration_that_was_not_signed_for() {
        let signed = |digest: &str| Expected::Guest {
            identity: "00".repeat(32).parse().unwrap(),
            digest: digest.parse().unwrap(),
        };
        let bare = guest(&[("cores", "2")]);
        let unreadable = Guest { config: Err(Unreadable("gone".to_owned())), ..bare.clone() };
        let other = DIGEST.replace('1', "2");
        for request in Request::ALL {
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
        let mine = guest(&[("mp0", "a:b,mp=/x")]);
        let intent = crate::operation::Intent {
            guest: mine.id,
            kind: crate::action_kind::ActionKind::Destroy,
            repeat: crate::operation::Repeat::Convergent,
            first: Request::Unprotect,
            unprotects: true,
            sent_at: crate::operation::UnixSeconds(1),
            clone_source: None,
            id_was_free: false,
            volumes_before: None,
            identity_after: None,
            identity: identity(&mine).ok(),
        };
        let event = crate::operation::OpEvent::Started(Box::new(intent));
        let op = crate::id::OperationId::from_parts(1, 1);
        let operation = Operation::begin(op, &event).unwrap();
        let locked = Guest { lock: Some("backup".to_owned()), ..mine.clone() };
        let unreadable = Guest { config: Err(Unreadable("gone".to_owned())), ..mine.clone() };
        for (name, guest, owed) in [
            ("mine", &mine, Owed::Protection),
            ("locked", &locked, Owed::Later),
            ("unreadable", &unreadable, Owed::Later),
            ("an empty answer", &guest(&[]), Owed::Later),
            ("another", &guest(&[("mp0", "a:c,mp=/x")]), Owed::Nothing),
            ("protected", &guest(&[("mp0", "a:b,mp=/x"), ("protection", "1")]), Owed::Nothing),
        ] {
            assert_eq!(Owed::to(guest, &operation), owed, "{name}");
        }
    }

    #[test]
    fn after_an_unprotect_nothing_else_may_differ() {
        let before = guest(&[("cores", "2"), ("protection", "1"), ("mp0", "a:b,mp=/x")]);
        let leaves = |keys: &[(&str, &str)]| {
            hindrance(Request::Act, &guest(keys), Basis::Unprotected(&before)).is_none()
        };
        assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x")]));
        assert!(leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "0")]));
        assert!(!leaves(&[("cores", "4"), ("mp0", "a:b,mp=/x")]), "a value was changed");
        assert!(!leaves(&[("cores", "2")]), "a disk was taken off");
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("mp1", "a:c,mp=/y")]));
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("novel", "1")]), "an unknown key");
        assert!(!leaves(&[("cores", "2"), ("mp0", "a:b,mp=/x"), ("protection", "1")]));
        let unreadable = Guest { config: Err(Unreadable("gone".to_owned())), ..before.clone() };
        assert!(!is_unchanged(&unreadable, Basis::Unprotected(&unreadable)));
    }
}
