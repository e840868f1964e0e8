//! The steps of a signed destroy: a stop, a backup and an unprotect where they are needed or signed, then the act.
//!
//! Called by `lane` alone, once `started` is on disk. Between two requests minutes may pass, so each leaves upon a
//! last look, with the turn in hand: the guest unlocked, by both legs of identity still the same, its configuration the
//! one that was signed for, the host not frozen, and the approval still good: its key trusted, its time not over. The
//! signers are held fast until the request has left, so that none is sent after the rotation that voids it. Whatever is
//! not so ends it: the act is not sent. Where a final backup was signed, the archive is looked for in each look after it:
//! whole, with every volume that must be in it, or nothing is destroyed. What somebody does between that look and the DELETE, which takes no digest,
//! cannot be seen.

use std::time::Duration;

use evenkeel_core::actual::Guest;
use evenkeel_core::destroy::{self, Basis, Destroy};
use evenkeel_core::final_backup::{FinalBackup, note_of};
use evenkeel_core::id::OperationId;
use evenkeel_core::identity::identity;
use evenkeel_core::operation::{OpEvent, OpPhase, Upid};
use evenkeel_core::plan::Held;
use evenkeel_core::pve_call::ConfigChange;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{self, clock::ClockReading};
use evenkeel_core::sign::{ConfigDigest, FoundGuest};
use evenkeel_core::surroundings::GuestSurroundings;
use evenkeel_core::task_log::quoting;
use tokio::sync::RwLockReadGuard;
use tokio::time::Instant;

use super::answer::follow;
use super::error::Fatal;
use super::final_backup::{SavedGuest, check_left_out};
use super::gate::approved::{ApprovedOrder, surroundings_are_signed};
use super::gate::cleared::Cleared;
use super::identity_proof::prove_identity;
use super::lane::send;
use super::report::OpEnd;
use super::settle::{Settler, settle, why};
use super::surroundings::observe_surroundings;
use super::{EngineContext, Progress};
use crate::authority::Authority;
use crate::observe::observe_guest;
use crate::pve::error::Error;
use crate::pve::task::ExitStatus;
use crate::pve::wait::Waited;
use crate::pve::writes::{BackupOrder, Taken};
use crate::queue::{Permit, Turn};
use crate::sometimes;

/// How long a stop or an unprotect may take before recovery's rules decide instead.
const PREPARATION_MAX: Duration = Duration::from_mins(10);

/// How long a backup may take: no approval lives longer.
const BACKUP_MAX: Duration = Duration::from_hours(24);

/// How long the guest may take to show it.
const SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// One destroy under way.
pub(super) struct DestroySteps<'a> {
    pub(super) context: &'a EngineContext,
    pub(super) op: OperationId,
    pub(super) cleared: &'a Cleared,
    pub(super) warrant: Warrant<'a>,
}

/// What lets the destroy happen; it is asked again before each request.
#[derive(Clone, Copy)]
pub(super) enum Warrant<'a> {
    /// An operator signed it.
    Signed(&'a ApprovedOrder),
    /// It removes a guest of ours; what proves that is kept with what the gate cleared.
    Ours,
}

/// What the steps so far have done.
struct StepsDone<'a> {
    /// The backup that was signed.
    backup: Option<&'a FinalBackup>,
    /// The backup that was made, and what must be in it.
    saved: Option<SavedGuest>,
    /// The guest as it was when its protection was taken off.
    protected: Option<Guest>,
}

/// Leave to send one request: while it is held, the turn is ours and the signers stay as they were judged.
struct Leave<'t> {
    permit: Permit<'t>,
    signers: Option<RwLockReadGuard<'t, Authority>>,
    /// The guest as it was at the last look.
    fresh: Guest,
}

/// Why a request must not leave.
enum NoLeave {
    /// The destroy ends here.
    Because(String),
    /// The engine must end.
    Fatal(Fatal),
}

impl From<Fatal> for NoLeave {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

impl<'a> DestroySteps<'a> {
    /// Takes the steps. `started` has promised the first of them.
    pub(super) async fn carry_out(&self, steps: &Destroy, turn: &mut Turn) -> Result<OpEnd, Fatal> {
        let (guest, writes) = (self.cleared.guest(), self.context.client.writes(self.cleared));
        let mut is_first = true;
        let mut done =
            StepsDone { backup: steps.final_backup.as_ref(), saved: None, protected: None };
        if steps.stop {
            let leave = match self.leave(turn, OpPhase::Stop, &done).await {
                Ok(leave) => leave,
                Err(stay) => return self.abandon_for(stay).await,
            };
            let answer = writes.stop(guest).await.map(Taken::Task);
            drop(leave);
            is_first = false;
            if let Some(end) = self.prepared(answer, OpPhase::Unprotect).await? {
                return Ok(end);
            }
        }
        if let Some(backup) = &steps.final_backup {
            let leave = match self.leave(turn, OpPhase::Backup, &done).await {
                Ok(leave) => leave,
                Err(stay) => return self.abandon_for(stay).await,
            };
            let saved = match SavedGuest::of(&leave.fresh, &backup.storage) {
                Ok(saved) => saved,
                Err(refusal) => return self.abandon(&refusal.detail).await,
            };
            if !std::mem::take(&mut is_first) {
                self.begin_next(OpPhase::Backup).await?;
            }
            let order =
                BackupOrder { storage: backup.storage.clone(), note: note_of(self.op, guest) };
            let answer = writes.backup(guest, order).await.map(Taken::Task);
            drop(leave);
            if let Some(end) = self.saved(answer, &saved).await? {
                return Ok(end);
            }
            done.saved = Some(saved);
        }
        if steps.unprotect {
            let leave = match self.leave(turn, OpPhase::Unprotect, &done).await {
                Ok(leave) => leave,
                Err(stay) => return self.abandon_for(stay).await,
            };
            let change = match ConfigChange::protection(&leave.fresh, false) {
                Ok(change) => change,
                Err(refusal) => return self.abandon(&refusal.detail).await,
            };
            if !std::mem::take(&mut is_first) {
                self.begin_next(OpPhase::Unprotect).await?;
            }
            let answer = writes.set_config(guest, change).await;
            done.protected = Some(leave.fresh);
            drop((leave.permit, leave.signers));
            if let Some(end) = self.prepared(answer, OpPhase::Act).await? {
                return Ok(end);
            }
        }
        let leave = match self.leave(turn, OpPhase::Act, &done).await {
            Ok(leave) => leave,
            Err(stay) => return self.abandon_for(stay).await,
        };
        if !is_first {
            self.begin_next(OpPhase::Act).await?;
        }
        let answer = send(self.context, self.op, self.cleared).await;
        drop(leave);
        Ok(follow(self.context, self.op, answer).await?.end)
    }

    /// Leave to send one more request, upon a last look; or in words why it must not be sent. The configuration must
    /// be the one that was signed for, but for the protection if we took it off; and a backup that was made must be there.
    async fn leave<'t>(
        &self,
        turn: &'t mut Turn,
        request: OpPhase,
        done: &StepsDone<'_>,
    ) -> Result<Leave<'t>, NoLeave>
    where
        'a: 't,
    {
        let no = |why: &str| Err(NoLeave::Because(why.to_owned()));
        let step = request.as_str();
        let Some(permit) = turn.take().await else {
            sometimes!("told to stop while a destroy waited for its step", step);
            return no(GOING_DOWN);
        };
        let mut fresh = self.look(request, done).await?;
        let signers = match self.warrant {
            Warrant::Signed(order) => {
                let authority = &order.approvals.authority;
                let has_to_wait = authority.try_read().is_err();
                let signers = authority.read().await;
                // A rotation went first, and it had waited for the answers of other lanes: what was read is old by now.
                if has_to_wait {
                    fresh = self.look(request, done).await?;
                }
                let reading = self.context.reading().await?;
                if let Err(refusal) = still_allowed(order, &signers, &reading) {
                    sometimes!("the approval no longer holds before a destroy's step", step);
                    return no(&format!("its approval no longer holds: {refusal}"));
                }
                Some(signers)
            }
            Warrant::Ours => {
                if let Some(by) = self.context.observed_by(self.cleared.guest().vmid) {
                    sometimes!("only observed before a removal's step", step);
                    return no(&Held::Observed(by).to_string());
                }
                None
            }
        };
        if permit.is_stopping() {
            sometimes!("told to stop before a destroy's step", step);
            return no(GOING_DOWN);
        }
        if self.context.is_frozen() {
            sometimes!("frozen before a destroy's step", step);
            return no("this host was frozen meanwhile");
        }
        Ok(Leave { permit, signers, fresh })
    }

    /// The guest as it is now, if it and its backup are still what was signed for.
    async fn look(&self, request: OpPhase, done: &StepsDone<'_>) -> Result<Guest, NoLeave> {
        let no = |why: &str| Err(NoLeave::Because(why.to_owned()));
        let step = request.as_str();
        // What goes with the guest is read before it: the guest is what must not grow old until the request leaves.
        let around = match self.warrant {
            Warrant::Signed(order) => {
                // Not before the preparations: those take nothing of it.
                if request == OpPhase::Act
                    && let Err(refusal) = surroundings_are_signed(self.context, &order.item).await
                {
                    sometimes!("more goes with the guest than was signed");
                    return no(&refusal.detail);
                }
                None
            }
            Warrant::Ours => {
                Some(observe_surroundings(&self.context.client, self.cleared.guest()).await)
            }
        };
        let fresh = match observe_guest(&self.context.client, self.cleared.guest()).await {
            Ok(fresh) => fresh,
            Err(error) => {
                sometimes!("the guest is unreadable before a destroy's step", step);
                return no(&error.to_string());
            }
        };
        let cleared = match self.warrant {
            Warrant::Signed(order) => {
                match prove_identity(self.context, &fresh, &order.mark).await? {
                    FoundGuest::Guest { identity, .. }
                        if Some(identity) == self.cleared.identity() => {}
                    FoundGuest::Guest { .. } | FoundGuest::Free => {
                        sometimes!("another guest before a destroy's step", step);
                        return no(ANOTHER);
                    }
                    FoundGuest::Unproven(refusal) => {
                        sometimes!("the identity is unproven before a destroy's step", step);
                        return no(&refusal.detail);
                    }
                }
                Basis::Signed(&order.item.expected)
            }
            Warrant::Ours => Basis::Cleared(self.still_ours(&fresh, around.as_ref()).await?),
        };
        let basis = done.protected.as_ref().map_or(cleared, Basis::Unprotected);
        if let Some(why) = destroy::hindrance(request, &fresh, basis) {
            sometimes!("the guest changed before a destroy's step", step);
            return no(why);
        }
        if let Err(refusal) = self.check_backup(&fresh, done).await {
            sometimes!("the final backup does not hold before a destroy's step", step);
            return no(&refusal.detail);
        }
        Ok(fresh)
    }

    /// Whether a final backup that was signed would still hold what was signed for, and does if it was made.
    async fn check_backup(&self, fresh: &Guest, done: &StepsDone<'_>) -> Result<(), Refusal> {
        if let Some(backup) = done.backup {
            check_left_out(self.context, backup, fresh).await?;
        }
        match &done.saved {
            Some(saved) => saved.prove(self.context, self.op, fresh.id).await,
            None => Ok(()),
        }
    }

    /// Whether a guest of ours may still go unsigned: everything that proves it is read once more.
    async fn still_ours(
        &self,
        fresh: &Guest,
        around: Option<&GuestSurroundings>,
    ) -> Result<&ConfigDigest, NoLeave> {
        let no = |why: &str| NoLeave::Because(why.to_owned());
        let proof = self.cleared.removal().ok_or_else(|| no("nothing proves that it is ours"))?;
        if identity(fresh).ok() != self.cleared.identity() {
            return Err(no(ANOTHER));
        }
        let judged = proof.judge(self.context, fresh, around).await;
        judged.map(|()| &proof.digest).map_err(|refusal| no(&refusal.detail))
    }

    /// Makes the next request durable before it is sent.
    async fn begin_next(&self, request: OpPhase) -> Result<(), Fatal> {
        let sent_at = self.context.node_now();
        self.context.record(self.op, OpEvent::RequestStarted { request, sent_at }).await
    }

    /// Awaits a preparation until the guest is ready for what comes next; an end means that nothing must follow.
    async fn prepared(
        &self,
        answer: Result<Taken, Error>,
        next: OpPhase,
    ) -> Result<Option<OpEnd>, Fatal> {
        match answer {
            Ok(Taken::Done) => {}
            Ok(Taken::Task(upid)) => {
                let running = OpEvent::TaskRunning { upid: upid.clone(), found: false };
                self.context.record(self.op, running).await?;
                // How it ended does not matter: the guest is looked at before anything follows.
                if self.end_of(&upid, PREPARATION_MAX).await.is_none() {
                    return self.by_evidence().await.map(Some);
                }
            }
            Err(Error::Unknown { .. }) => {
                sometimes!("the answer to a destroy's preparation was lost");
                return self.by_evidence().await.map(Some);
            }
            Err(error @ (Error::NotSent { .. } | Error::Refused(_))) => {
                sometimes!("a destroy's preparation was refused");
                return self.abandon(&error.to_string()).await.map(Some);
            }
        }
        match self.until(next).await {
            None => Ok(None),
            Some(why) => {
                sometimes!("a destroy's preparation did not show");
                self.abandon(&why).await.map(Some)
            }
        }
    }

    /// Awaits the backup until its task has ended exactly `OK`, the guest is as before and the archive is listed, whole.
    /// An end means that nothing must follow.
    async fn saved(
        &self,
        answer: Result<Taken, Error>,
        saved: &SavedGuest,
    ) -> Result<Option<OpEnd>, Fatal> {
        let (op, guest) = (self.op, self.cleared.guest());
        let upid = match answer {
            Ok(Taken::Task(upid)) => upid,
            Ok(Taken::Done) => return self.abandon("Proxmox began no backup").await.map(Some),
            Err(Error::Unknown { .. }) => return self.by_evidence().await.map(Some),
            Err(error @ (Error::NotSent { .. } | Error::Refused(_))) => {
                return self.abandon(&error.to_string()).await.map(Some);
            }
        };
        let running = OpEvent::TaskRunning { upid: upid.clone(), found: false };
        self.context.record(op, running).await?;
        self.context.tell(Progress::Task { op, guest, upid: upid.clone() });
        match self.end_of(&upid, BACKUP_MAX).await {
            None => return self.by_evidence().await.map(Some),
            Some(ExitStatus::Ok) => {}
            Some(exit) => {
                let why = format!("the backup did not end well ({exit}); its task log says more");
                let why = quoting(&why, &self.context.telling_lines(&exit, &upid).await);
                return self.abandon(&why).await.map(Some);
            }
        }
        if let Some(why) = self.until(OpPhase::Unprotect).await {
            return self.abandon(&why).await.map(Some);
        }
        match saved.prove(self.context, op, guest).await {
            Ok(()) => Ok(None),
            Err(refusal) => self.abandon(&refusal.detail).await.map(Some),
        }
    }

    /// How a task ended, if it did within this time.
    async fn end_of(&self, upid: &Upid, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let (op, guest) = (self.op, self.cleared.guest());
            let waited = self.context.wait_for_task(op, guest, upid, deadline).await;
            if let Ok(Waited::Ended(exit)) = waited {
                return Some(exit);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        None
    }

    /// Waits until the guest, still the same one, is ready for this request; otherwise why not.
    async fn until(&self, next: OpPhase) -> Option<String> {
        let deadline = Instant::now() + SHOWS_WITHIN;
        loop {
            let why = match observe_guest(&self.context.client, self.cleared.guest()).await {
                Ok(fresh) if identity(&fresh).ok() != self.cleared.identity() => {
                    return Some(ANOTHER.to_owned());
                }
                Ok(fresh) if destroy::is_ready(next, &fresh) => return None,
                Ok(_) => destroy::NOT_READY.to_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Some(why);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    async fn abandon_for(&self, stay: NoLeave) -> Result<OpEnd, Fatal> {
        match stay {
            NoLeave::Because(why) => self.abandon(&why).await,
            NoLeave::Fatal(fatal) => Err(fatal),
        }
    }

    /// Ends it before the act: nothing of the guest's data was touched.
    async fn abandon(&self, why: &str) -> Result<OpEnd, Fatal> {
        let reason = format!("the act was not sent: {why}");
        let failed = OpEvent::Failed {
            reason: reason.clone(),
            left_volume: None,
            tried: None,
            identity: None,
        };
        self.context.record(self.op, failed).await?;
        Ok(OpEnd::Failed { why: reason })
    }

    async fn by_evidence(&self) -> Result<OpEnd, Fatal> {
        let settled = settle(self.context, self.op, Instant::now(), Settler::Lane).await?;
        let reason = settled.map(|settled| {
            (settled.operation.is_in_flight(), why(&settled.operation.state).to_owned())
        });
        Ok(match reason {
            Some((true, why)) => OpEnd::Unknown { why },
            Some((false, why)) => OpEnd::Failed { why },
            None => OpEnd::Failed { why: "an operator closed it".to_owned() },
        })
    }
}

const GOING_DOWN: &str = "evenkeel was told to stop";

const ANOTHER: &str = "another guest has the number now";

/// Whether the approval is still good now.
fn still_allowed(
    order: &ApprovedOrder,
    signers: &Authority,
    reading: &ClockReading,
) -> Result<(), Refusal> {
    let nobody = || Refusal::new(ReasonCode::UnknownSigner, "nobody is enrolled on this host");
    let trust = signers.trust().ok_or_else(nobody)?;
    sign::still_allowed(&order.envelope, trust, reading, order.approvals.policy.limits())
}
