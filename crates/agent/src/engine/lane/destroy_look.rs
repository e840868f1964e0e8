//! The last look before each request of a destroy: what must be so, with the turn in hand.
//!
//! Minutes may pass between two requests. Each leaves only if the guest is unlocked, by both legs of identity still the same,
//! its configuration the one that was signed for, the host not frozen, and the approval still good: its key trusted, its time
//! not over. The signers are held fast until the request has left, so that none is sent after the rotation that voids it. Where
//! a final backup was signed, each look after it finds the archive whole, or nothing is destroyed. What other people do
//! between the last look and the DELETE, which takes no digest, cannot be seen.

use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::actual::surroundings::GuestSurroundings;
use evenkeel_core::gate::destroy::{self, RequestBasis};
use evenkeel_core::gate::final_backup::FinalBackup;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::OpPhase;
use evenkeel_core::plan::Held;
use evenkeel_core::sign::{self, ConfigDigest, FoundGuest, clock::ClockReading};
use tokio::sync::RwLockReadGuard;

use crate::authority::Authority;
use crate::engine::approvals::no_signers;
use crate::engine::gate::approved::{ApprovedOrder, surroundings_are_signed};
use crate::engine::gate::identity_proof::prove_identity;
use crate::engine::gate::surroundings::observe_surroundings;
use crate::engine::lane::destroy_steps::{DestroyBasis, DestroySteps};
use crate::engine::lane::final_backup::{SavedGuest, check_left_out};
use crate::engine::lane::step_walk::{ANOTHER, GOING_DOWN, StepRefused};
use crate::observe::observe_guest;
use crate::queue::{Permit, Turn};
use crate::sometimes;

/// What the steps so far have done.
pub(in crate::engine) struct StepsDone<'a> {
    /// The backup that was signed.
    pub(in crate::engine) backup: Option<&'a FinalBackup>,
    /// The backup that was made, and what must be in it.
    pub(in crate::engine) saved: Option<SavedGuest>,
    /// The guest as it was when its protection was taken off.
    pub(in crate::engine) protected: Option<Guest>,
}

/// A permit to send one request: while it is held, the turn is ours and the signers stay as they were judged.
pub(in crate::engine) struct SendPermit<'t> {
    pub(in crate::engine) permit: Permit<'t>,
    pub(in crate::engine) signers: Option<RwLockReadGuard<'t, Authority>>,
    /// The guest as it was at the last look.
    pub(in crate::engine) fresh: Guest,
}

impl<'a> DestroySteps<'a> {
    /// A permit to send one more request, upon a last look; or in words why it must not be sent. The configuration must
    /// be the one that was signed for, but for the protection if we took it off; and a backup that was made must be there.
    pub(in crate::engine) async fn permit<'t>(
        &self,
        turn: &'t mut Turn,
        request: OpPhase,
        done: &StepsDone<'_>,
    ) -> Result<SendPermit<'t>, StepRefused>
    where
        'a: 't,
    {
        let no = |why: &str| Err(StepRefused::Because(why.to_owned()));
        let step = request.as_str();
        let Some(permit) = turn.take().await else {
            sometimes!("told to stop while a destroy waited for its step", step);
            return no(GOING_DOWN);
        };
        let mut fresh = self.look(request, done).await?;
        let signers = match self.basis {
            DestroyBasis::Signed(order) => {
                let authority = &order.approvals.authority;
                let has_to_wait = authority.try_read().is_err();
                let signers = authority.read().await;
                // A rotation went first, and it had waited for the answers of other lanes: what was read is old by now.
                if has_to_wait {
                    fresh = self.look(request, done).await?;
                }
                let reading = self.walk.context.reading().await?;
                if let Err(refusal) = still_allowed(order, &signers, &reading) {
                    sometimes!("the approval no longer holds before a destroy's step", step);
                    return no(&format!("its approval no longer holds: {refusal}"));
                }
                Some(signers)
            }
            DestroyBasis::Ours => {
                if let Some(by) =
                    self.walk.context.modes.observed_by(self.walk.cleared.guest().vmid)
                {
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
        if self.walk.context.modes.is_frozen() {
            sometimes!("frozen before a destroy's step", step);
            return no("this host was frozen meanwhile");
        }
        Ok(SendPermit { permit, signers, fresh })
    }

    /// The guest as it is now, if it and its backup are still what was signed for.
    async fn look(&self, request: OpPhase, done: &StepsDone<'_>) -> Result<Guest, StepRefused> {
        let no = |why: &str| Err(StepRefused::Because(why.to_owned()));
        let step = request.as_str();
        // What goes with the guest is read before it: the guest is what must not grow old until the request leaves.
        let around = match self.basis {
            DestroyBasis::Signed(order) => {
                // Not before the preparations: those take nothing of it.
                if request == OpPhase::Act
                    && let Err(refusal) =
                        surroundings_are_signed(self.walk.context, &order.item).await
                {
                    sometimes!("more goes with the guest than was signed");
                    return no(&refusal.detail);
                }
                None
            }
            DestroyBasis::Ours => Some(
                observe_surroundings(&self.walk.context.client, self.walk.cleared.guest()).await,
            ),
        };
        let fresh = match observe_guest(&self.walk.context.client, self.walk.cleared.guest()).await
        {
            Ok(fresh) => fresh,
            Err(error) => {
                sometimes!("the guest is unreadable before a destroy's step", step);
                return no(&error.to_string());
            }
        };
        let cleared = match self.basis {
            DestroyBasis::Signed(order) => {
                match prove_identity(self.walk.context, &fresh, &order.kept.anchor).await? {
                    FoundGuest::Guest { identity, .. }
                        if Some(identity) == self.walk.cleared.identity() => {}
                    FoundGuest::Guest { .. } | FoundGuest::Free => {
                        sometimes!("another guest before a destroy's step", step);
                        return no(ANOTHER);
                    }
                    FoundGuest::Unproven(refusal) => {
                        sometimes!("the identity is unproven before a destroy's step", step);
                        return no(&refusal.detail);
                    }
                }
                RequestBasis::Signed(&order.item.expected)
            }
            DestroyBasis::Ours => {
                RequestBasis::Cleared(self.still_ours(&fresh, around.as_ref()).await?)
            }
        };
        let basis = done.protected.as_ref().map_or(cleared, RequestBasis::Unprotected);
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
            check_left_out(self.walk.context, backup, fresh).await?;
        }
        match &done.saved {
            Some(saved) => saved.prove(self.walk.context, self.walk.op, fresh.id).await,
            None => Ok(()),
        }
    }

    /// Whether a guest of ours may still go unsigned: everything that proves it is read once more.
    async fn still_ours(
        &self,
        fresh: &Guest,
        around: Option<&GuestSurroundings>,
    ) -> Result<&ConfigDigest, StepRefused> {
        let no = |why: &str| StepRefused::Because(why.to_owned());
        let proof =
            self.walk.cleared.removal().ok_or_else(|| no("nothing proves that it is ours"))?;
        if identity(fresh).ok() != self.walk.cleared.identity() {
            return Err(no(ANOTHER));
        }
        let judged = proof.judge(self.walk.context, fresh, around).await;
        judged.map(|()| &proof.digest).map_err(|refusal| no(&refusal.detail))
    }
}

/// Whether the approval is still good now.
fn still_allowed(
    order: &ApprovedOrder,
    signers: &Authority,
    reading: &ClockReading,
) -> Result<(), Refusal> {
    let trust = signers.trust().ok_or_else(no_signers)?;
    sign::still_allowed(&order.envelope, trust, reading, order.approvals.policy.limits())
}
