//! A destroy: its preparations, its parameters, and what must be so before each of its requests leaves.
//!
//! The planner and the gate ask what it takes; the agent asks again before every request, because minutes may pass
//! between two of them. Nothing here is believed from memory but the guest as it was when its protection was taken off.

mod owed;

use std::collections::BTreeMap;
use std::time::Duration;

pub use owed::{Owed, OwedThing};

use crate::actual::{Guest, GuestConfig, Power};
use crate::gate::final_backup::{BackupContext, FinalBackup, left_out};
use crate::model::id::GuestKind;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{OpPhase, StorageName};
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

/// One request of a destroy: when it is needed, and what must show before the next one leaves.
#[derive(Debug)]
pub struct DestroyStep {
    /// The request.
    pub request: OpPhase,
    /// The guest must be ready for this request once the step is done; nothing follows the act itself.
    pub then: Option<OpPhase>,
    /// How long its task may run before recovery's rules decide instead.
    pub task_max: Duration,
    /// Whether its task must have ended `OK`. Otherwise the guest tells how it ended.
    pub must_end_well: bool,
    is_needed: fn(&Destroy) -> bool,
}

/// Every request that a destroy may take, in order.
const STEPS: [DestroyStep; 4] = [
    DestroyStep {
        request: OpPhase::Stop,
        then: Some(OpPhase::Unprotect),
        task_max: Duration::from_mins(10),
        must_end_well: false,
        is_needed: |destroy| destroy.stop,
    },
    DestroyStep {
        request: OpPhase::Backup,
        then: Some(OpPhase::Unprotect),
        // No approval lives longer.
        task_max: Duration::from_hours(24),
        must_end_well: true,
        is_needed: |destroy| destroy.final_backup.is_some(),
    },
    DestroyStep {
        request: OpPhase::Unprotect,
        then: Some(OpPhase::Act),
        task_max: Duration::from_mins(10),
        must_end_well: false,
        is_needed: |destroy| destroy.unprotect,
    },
    DestroyStep {
        request: OpPhase::Act,
        then: None,
        task_max: Duration::from_mins(10),
        must_end_well: false,
        is_needed: |_| true,
    },
];

impl Destroy {
    /// The requests it takes, in order.
    pub fn steps(&self) -> impl Iterator<Item = &'static DestroyStep> {
        STEPS.iter().filter(|step| (step.is_needed)(self))
    }

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
            let why = "evenkeel never destroys by force, nor volumes that no configuration names";
            return Err(Refusal::new(ReasonCode::NotExecutable, why));
        }
        let now = Self::of(fresh);
        if now.stop && !is_on("stop") || now.unprotect && !is_on("unprotect") {
            let why =
                "the guest runs or is protected now, and the signature does not cover stopping it";
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
const STOP_CHANGES: &str = "changes wait for a restart, and stopping the guest would apply them: it would differ from the \
     signed guest; nothing was sent; restart the guest or revert them, then sign the new item";

/// What a guest's configuration must equal when a request leaves.
#[derive(Debug, Clone, Copy)]
pub enum RequestBasis<'a> {
    /// What was signed.
    Signed(&'a Expected),
    /// The guest as it was just before we took its protection off, but for that.
    Unprotected(&'a Guest),
    /// What the gate cleared, by its digest: nobody signed for it.
    Cleared(&'a ConfigDigest),
}

/// Why a request must not leave, by a last look at the guest. Whether it is still the same guest is another question.
pub fn hindrance(request: OpPhase, fresh: &Guest, basis: RequestBasis<'_>) -> Option<&'static str> {
    if !is_unchanged(fresh, basis) {
        return Some("its configuration changed meanwhile");
    }
    (!is_ready(request, fresh)).then_some(NOT_READY)
}

/// What is said of a guest that is not ready.
pub const NOT_READY: &str =
    "the guest must be stopped, unlocked and unprotected, with no waiting change";

/// Whether the guest is so that the request may be sent: unlocked, and what came before has taken effect.
pub fn is_ready(request: OpPhase, fresh: &Guest) -> bool {
    let prepared = match request {
        OpPhase::Stop => true,
        OpPhase::Backup | OpPhase::Unprotect => is_down(fresh),
        OpPhase::Act => is_down(fresh) && !fresh.is_protected(),
    };
    prepared && fresh.lock.is_none()
}

/// Stopped, with nothing that waits for a restart.
fn is_down(fresh: &Guest) -> bool {
    !stop_changes(fresh) && fresh.power == Power::Stopped
}

fn is_unchanged(fresh: &Guest, basis: RequestBasis<'_>) -> bool {
    match basis {
        RequestBasis::Signed(Expected::Guest { digest, .. }) | RequestBasis::Cleared(digest) => {
            let now = fresh.config.as_ref().ok().and_then(|config| config.digest.parse().ok());
            now.as_ref() == Some(digest)
        }
        RequestBasis::Signed(Expected::Free) => false,
        RequestBasis::Unprotected(before) => same_but_protection(before, fresh),
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
mod tests;
