//! The steps of a destroy: what is sent, in the order of core's table.
//!
//! Called by `lane` alone, once `started` is on disk. Each request leaves upon a last look (`destroy_look`), is durable before
//! it is sent and awaited before the next one (`step_walk`). Anything unexpected ends the destroy before its act.

use evenkeel_core::actual::Guest;
use evenkeel_core::gate::destroy::Destroy;
use evenkeel_core::gate::final_backup::{FinalBackup, note_of};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::OpPhase;
use evenkeel_core::operate::pve_call::ConfigChange;

use crate::engine::error::Fatal;
use crate::engine::gate::approved::ApprovedOrder;
use crate::engine::lane::answer::follow;
use crate::engine::lane::destroy_look::{SendPermit, StepsDone};
use crate::engine::lane::final_backup::SavedGuest;
use crate::engine::lane::send;
use crate::engine::lane::step_walk::StepWalk;
use crate::engine::pass::report::OpOutcome;
use crate::pve::error::Error;
use crate::pve::writes::{BackupOrder, Taken};
use crate::queue::Turn;

/// One destroy under way.
pub(in crate::engine) struct DestroySteps<'a> {
    pub(in crate::engine) walk: StepWalk<'a>,
    pub(in crate::engine) basis: DestroyBasis<'a>,
}

/// What lets the destroy happen; it is asked again before each request.
#[derive(Clone, Copy)]
pub(in crate::engine) enum DestroyBasis<'a> {
    /// An operator signed it.
    Signed(&'a ApprovedOrder),
    /// It removes a guest of ours; what proves that is kept with what the gate cleared.
    Ours,
}

/// What one step sends.
enum StepOrder {
    Stop,
    Backup(SavedGuest),
    Unprotect(ConfigChange),
    Act,
}

impl DestroySteps<'_> {
    /// Takes the steps. `started` has promised the first of them.
    pub(in crate::engine) async fn carry_out(
        &self,
        destroy: &Destroy,
        turn: &mut Turn,
    ) -> Result<OpOutcome, Fatal> {
        let backup = destroy.final_backup.as_ref();
        let mut done = StepsDone { backup, saved: None, protected: None };
        for (at, step) in destroy.steps().enumerate() {
            let permit = match self.permit(turn, step.request, &done).await {
                Ok(permit) => permit,
                Err(refused) => return self.walk.end_refused(refused).await,
            };
            let order = match order_of(step.request, &permit.fresh, done.backup) {
                Ok(order) => order,
                Err(refusal) => return self.walk.abandon(&refusal.detail).await,
            };
            if at > 0 {
                self.walk.begin_next(step.request).await?;
            }
            let answer = self.send(&order).await;
            let SendPermit { permit, signers, fresh } = permit;
            drop((permit, signers));
            let Some(next) = step.then else {
                return Ok(follow(self.walk.context, self.walk.op, answer).await?.end);
            };
            if let Some(end) = self.walk.ended(answer, step, next).await? {
                return Ok(end);
            }
            match order {
                StepOrder::Backup(saved) => {
                    let guest = self.walk.cleared.guest();
                    if let Err(refusal) = saved.prove(self.walk.context, self.walk.op, guest).await
                    {
                        return self.walk.abandon(&refusal.detail).await;
                    }
                    done.saved = Some(saved);
                }
                StepOrder::Unprotect(_) => done.protected = Some(fresh),
                StepOrder::Stop | StepOrder::Act => {}
            }
        }
        self.walk.abandon("it has no act").await
    }

    /// Sends one request.
    async fn send(&self, order: &StepOrder) -> Result<Taken, Error> {
        let StepWalk { context, op, cleared } = self.walk;
        let guest = cleared.guest();
        let writes = context.client.writes(cleared);
        match order {
            StepOrder::Stop => writes.stop(guest).await.map(Taken::Task),
            StepOrder::Backup(saved) => {
                let order =
                    BackupOrder { storage: saved.storage.clone(), note: note_of(op, guest) };
                writes.backup(guest, order).await.map(Taken::Task)
            }
            StepOrder::Unprotect(change) => writes.set_config(guest, change.clone()).await,
            StepOrder::Act => send(context, op, cleared).await,
        }
    }
}

/// What a request sends, by the guest as it is now.
fn order_of(
    request: OpPhase,
    fresh: &Guest,
    backup: Option<&FinalBackup>,
) -> Result<StepOrder, Refusal> {
    match (request, backup) {
        (OpPhase::Stop, _) => Ok(StepOrder::Stop),
        (OpPhase::Backup, Some(backup)) => {
            SavedGuest::of(fresh, &backup.storage).map(StepOrder::Backup)
        }
        (OpPhase::Backup, None) => {
            Err(Refusal::new(ReasonCode::NotExecutable, "no storage was signed for its backup"))
        }
        (OpPhase::Unprotect, _) => ConfigChange::protection(fresh, false).map(StepOrder::Unprotect),
        (OpPhase::Act, _) => Ok(StepOrder::Act),
    }
}
