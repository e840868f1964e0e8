//! What the oracle asks of guests that the agent made: none runs before it is as declared.
//!
//! It reads the journal and the node's own file; the agent's idea of "as declared" is not asked.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::InProcess;

use super::OracleState;
use crate::call::WriteRequest;
use crate::end::differs_stopped;
use crate::history::HistoryOp;

impl OracleState {
    /// A guest that we made runs for the first time only when it is as declared.
    pub(super) fn is_ready_to_run(
        &self,
        node: &InProcess,
        now_ms: u64,
        write: &WriteRequest,
    ) -> Option<String> {
        if write.kind != ActionKind::Start || self.older_orders || !self.never_ran(write.guest) {
            return None;
        }
        let (_, modes) = &self.modes;
        let wish = modes.newcomers.get(&write.guest)?;
        let told = self.readings.directly_before(now_ms, write.guest);
        let unlike = node.with(|sim| {
            let found = sim.world.guest(write.guest)?;
            // Somebody may have changed it since it was read.
            let digest = found.config.digest(write.guest.kind);
            let is_as_read = told.iter().any(|(_, told)| told.digest == digest);
            differs_stopped(wish, found).filter(|_| is_as_read)
        });
        unlike.map(|key| format!("it runs before it is as declared (`{key}`)"))
    }

    /// Whether our journal says that we made the guest and started it never.
    pub(super) fn never_ran(&self, guest: GuestId) -> bool {
        let done = |op: &&HistoryOp| op.guest == guest && op.state == "succeeded";
        let of_guest = || self.history.ops.values().filter(done);
        let made = of_guest().filter(|op| op.kind.creates_guest()).map(|op| op.started).max();
        let ran = of_guest().filter(|op| op.kind == ActionKind::Start).map(|op| op.started).max();
        made.is_some_and(|made| ran.is_none_or(|ran| ran < made))
    }
}
