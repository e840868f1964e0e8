//! What the oracle asks of a guest that is removed although nobody signed for it: that we made it, and that nothing in it
//! would be missed.
//!
//! It knows by the simulator's own marks who asked for a guest and whether it ever ran; neither the agent nor its journal is
//! asked for that. What happened after the agent's last look at the tasks it cannot know.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{InProcess, Simulator};

use super::{Oracle, OracleState};
use crate::call::WriteRequest;
use crate::history::HistoryOp;
use crate::leftovers::is_scratch_number;
use crate::scene::AGENT_TOKEN;

impl Oracle {
    /// How many removals of a guest, which nobody signed for, the journal does not call failed.
    pub(crate) fn removals_of(&self, guest: GuestId) -> usize {
        let mut inner = self.inner();
        inner.read_disk();
        let is_one = |op: &&HistoryOp| op.guest == guest && op.is_removal() && op.state != "failed";
        inner.history.ops.values().filter(is_one).count()
    }
}

impl OracleState {
    /// Everything that must be true of a request of a removal.
    pub(super) fn is_ours_to_remove(
        &self,
        node: &InProcess,
        now_ms: u64,
        op: &HistoryOp,
        write: &WriteRequest,
    ) -> Option<String> {
        let promised = match op.stage.as_str() {
            "stop" => ActionKind::Stop,
            "unprotect" => ActionKind::SetConfig,
            _ => ActionKind::Destroy,
        };
        if (op.guest, promised) != (write.guest, write.kind) {
            return Some(format!("(5) a removal of {} promised {promised}", op.guest));
        }
        let unreferenced = write.params.get("destroy-unreferenced-disks").map(String::as_str);
        if write.kind == ActionKind::Destroy && unreferenced != Some("0") {
            return Some("(18) a removal takes volumes that no configuration mentions".to_owned());
        }
        let made = self.history.ops.get(&op.making).map(|making| making.state.as_str());
        let readings = self.readings.directly_before(now_ms, write.guest);
        let births: Vec<u64> = readings.iter().flat_map(|(_, told)| told.births).collect();
        node.with(|sim| {
            let found = sim.world.guest(write.guest)?;
            if !births.contains(&found.birth) {
                return None;
            }
            if found.maker.as_deref() != Some(AGENT_TOKEN.0) {
                return Some(format!("(11) it removes somebody else's guest: {:?}", found.maker));
            }
            if write.kind == ActionKind::Destroy
                && let Some(taken) = taken_from_others(sim, write.guest)
            {
                return Some(taken);
            }
            let listed = sim.records().iter().rev().find(|record| {
                record.path.ends_with("/tasks") && record.user.as_deref() == Some(AGENT_TOKEN.0)
            });
            let had_run =
                found.first_ran_ms.zip(listed).is_some_and(|(ran, list)| ran < list.at_ms);
            match made {
                Some("failed") if had_run => Some("(18) it removes what had run".to_owned()),
                Some("failed") => None,
                Some(_) if is_scratch_number(write.guest.vmid.get()) => None,
                Some(state) => Some(format!("(3) nobody signed it, and its making is {state}")),
                // A segment with its lines is gone.
                None => None,
            }
        })
    }
}

/// What others had given the guest's number before the agent last looked, and the request takes. What they gave it since
/// nobody can have seen; who never looked has no excuse.
fn taken_from_others(sim: &Simulator, guest: GuestId) -> Option<String> {
    let vmid = guest.vmid;
    let given_ms = sim.world.around.given_ms.get(&vmid.get())?;
    let rules = format!("/{guest}/firewall/rules");
    let looked = sim.records().iter().rev().find(|record| {
        record.path.ends_with(&rules) && record.user.as_deref() == Some(AGENT_TOKEN.0)
    });
    let unseen = looked.is_some_and(|look| look.at_ms <= *given_ms);
    let taken = sim.world.around(vmid);
    (!unseen && !taken.is_empty())
        .then(|| format!("(21) nobody signed it, and it takes what others gave {vmid}: {taken:?}"))
}
