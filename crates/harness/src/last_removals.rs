//! The mirror of "what is declared is made": what may go, goes. After its day of rest the node is given guests that nobody
//! but the agent has touched, and each must be gone within ten passes: one that an operator signed for, one whose making
//! failed half way, one that is scratch. A build that removes nothing breaks no rule of safety, and fails here.
//!
//! Everything is well by then, and nobody else does anything: there is no obstacle that could excuse it.

use std::pin::Pin;
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::leftovers::{fail, is_scratch_number, wipe};
use crate::run::{DriveEnd, LifeEnd, SeedRun, pass_and_wait};
use crate::signers::SigningMistake;

/// In how many passes it must be done.
const PASSES_MAX: u32 = 10;

/// The pause between them: ten are longer than the longest pause after a failure.
const BETWEEN_PASSES: Duration = Duration::from_mins(7);

/// Signed acts are counted for a day, by a clock that may have been set a day ahead.
const BUDGET_DAYS: u32 = 4;

/// A clock that is further ahead than this leaves acts that are still counted then; one that was as far behind, a host that
/// doubts the true time.
pub(crate) const FAR_OFF_S: u64 = 2 * 86_400;

/// What is done by the agent within the passes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// The guest is there, made by the agent.
    Made,
    /// It is gone.
    Gone,
}

/// Why the rest is not asked for: the agent has ended, or something is broken already.
struct Cut(DriveEnd);

impl SeedRun {
    /// Asks for every removal that nothing stands against.
    pub(crate) async fn last_removals<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let [half_made, scratch] = self.leftovers.guests[..] else {
            return DriveEnd::Elapsed;
        };
        // Somebody vouches for the clock from here on: an agent that dies after days without a record would doubt it.
        self.rig.ambient.synchronise();
        // What was signed on the day before is no longer counted.
        for _ in 0..2 * BUDGET_DAYS {
            if let Some(ended) =
                pass_and_wait(commands, agent.as_mut(), Duration::from_hours(12)).await
            {
                return ended;
            }
        }
        let asked = async {
            let agent = &mut agent;
            self.made_anew(commands, agent, half_made).await?;
            let trust = self.trust();
            let may_sign =
                self.signers.as_ref().is_some_and(|all| all.can_sign_whole(trust.as_ref()));
            if may_sign && !self.leapt {
                self.gone(commands, agent, half_made, "is signed for").await?;
            }
            self.compensation(commands, agent, half_made).await?;
            self.made_anew(commands, agent, scratch).await?;
            self.gone(commands, agent, scratch, "is scratch and declared absent").await
        };
        match asked.await {
            Ok(()) => DriveEnd::Elapsed,
            Err(Cut(end)) => end,
        }
    }

    /// A guest that is declared is made.
    async fn made_anew<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: &mut Pin<&mut F>,
        guest: GuestId,
    ) -> Result<(), Cut> {
        self.begin_anew(commands, guest);
        self.due(commands, agent, guest, Due::Made, "is declared").await
    }

    /// A guest that is declared absent goes.
    async fn gone<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: &mut Pin<&mut F>,
        guest: GuestId,
        why: &str,
    ) -> Result<(), Cut> {
        self.wish_absent(guest, true);
        self.due(commands, agent, guest, Due::Gone, why).await
    }

    /// A guest whose making fails half way: what is left of it goes, and it is made again.
    async fn compensation<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: &mut Pin<&mut F>,
        guest: GuestId,
    ) -> Result<(), Cut> {
        self.wish_absent(guest, false);
        fail(&self.rig.node, true);
        self.begin_anew(commands, guest);
        let before = self.oracle.removals_of(guest);
        self.due(commands, agent, guest, Due::Made, "is half made").await?;
        if self.oracle.removals_of(guest) == before {
            self.oracle.broke(format!("(7) {guest} was half made, and nobody removed that"));
        }
        Ok(())
    }

    /// Whatever there was of the guest has gone with everything it left, and it is wanted.
    fn begin_anew(&mut self, commands: &UnboundedSender<DriverCommand>, guest: GuestId) {
        wipe(&self.rig.node, guest);
        let wish = self.leftovers.first_wish(is_scratch_number(guest.vmid.get()));
        self.wishes.guests.insert(guest, wish);
        self.tell_wishes();
        // What failed earlier does not wait, and what was somebody else's is ours.
        self.tell(commands, DriverCommand::Retry(guest));
    }

    fn wish_absent(&mut self, guest: GuestId, absent: bool) {
        self.wishes.guests.entry(guest).or_default().absent = absent;
        self.tell_wishes();
    }

    /// Lets the agent work until it is done, or its passes are over. Whatever waits for a signature of the guest is signed.
    async fn due<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: &mut Pin<&mut F>,
        guest: GuestId,
        due: Due,
        why: &str,
    ) -> Result<(), Cut> {
        for _ in 0..PASSES_MAX {
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), BETWEEN_PASSES).await {
                return Err(Cut(ended));
            }
            self.tell_progress();
            self.hear_answers();
            if !self.is_fine() {
                return Err(Cut(DriveEnd::Elapsed));
            }
            if self.is_done(guest, due) {
                return Ok(());
            }
            if due == Due::Gone && !is_scratch_number(guest.vmid.get()) {
                self.sign_removal(commands, guest);
            }
        }
        self.oracle.broke(format!(
            "(7) {guest} {why}, nothing stands against it, and after {PASSES_MAX} passes it is not {due:?}"
        ));
        Err(Cut(DriveEnd::Elapsed))
    }

    fn is_done(&self, guest: GuestId, due: Due) -> bool {
        let is_whole = self.rig.node.with(|sim| {
            let found = sim.world.guest(guest)?;
            // What a failed restore leaves has no disk.
            Some(found.config.active.contains_key("scsi0") && !sim.is_at_work())
        });
        match due {
            Due::Made => is_whole == Some(true),
            Due::Gone => is_whole.is_none(),
        }
    }

    /// An operator whom the host trusts signs what waits for the guest's end.
    fn sign_removal(&mut self, commands: &UnboundedSender<DriverCommand>, guest: GuestId) {
        let waits = self
            .oracle
            .items()
            .into_iter()
            .find(|(_, item, _)| item.guest == guest && item.op == ActionKind::Destroy);
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let trust = self.trust();
        let (Some((id, item, _)), Some(signers)) = (waits, &mut self.signers) else { return };
        signers.all_sign = true;
        let when = (now_s, trust.as_ref());
        let twist = SigningMistake::Nothing;
        let paper = signers.approve(&mut self.dice, &self.oracle, (&id, &item), when, twist);
        self.hand_in(commands, paper);
    }
}
