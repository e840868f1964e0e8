//! What follows the making of a guest, in the same lane: what the request did not take, sizes, and then the first start.
//!
//! ```text
//!   made ─> the guest as it was read back ─> plan it ─> carry out ─┐      at most ROUNDS_MAX times
//!              ▲                                                   │
//!              └────────────── something is left ──────────────────┘
//! ```
//!
//! What proved one act is what the next is planned and judged by, as long as it is fresh; otherwise the guest is read anew.
//! Nothing here decides: each action is planned by core and goes through the gate like any other. If the agent dies in
//! between, the next pass plans the rest.

use std::sync::Arc;

use evenkeel_core::desired::Desired;
use evenkeel_core::operate::lane::LaneOutcome;
use evenkeel_core::plan::{Action, PlanContext, plan};

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::create_bounds;
use crate::engine::gate::guest_look::GuestLook;
use crate::engine::gate::{Order, PlannedOrder};
use crate::engine::lane::carry_out;
use crate::engine::memory::backups;
use crate::engine::pass::report::{OpOutcome, OpReport};
use crate::observe::observe_guest;
use crate::queue::Turn;

/// How often a new guest is looked at again: a clone takes one write of `onboot`, one of everything else with its sizes
/// and start, and one look that finds nothing; one more is for what somebody else changed meanwhile.
const ROUNDS_MAX: usize = 4;

/// Brings a guest that was just made to what is declared. `look` is what proved its making. Tells the outcome for its lane.
pub(in crate::engine) async fn follow_up(
    context: &EngineContext,
    made: &PlannedOrder,
    turn: &mut Turn,
    mut look: Option<GuestLook>,
    reports: &mut Vec<OpReport>,
) -> Result<LaneOutcome, Fatal> {
    for _ in 0..ROUNDS_MAX {
        let actions = planned(context, made, &mut look).await?;
        let mut sent = false;
        for action in actions {
            let op = context.new_operation();
            if let Some(held) = &action.held {
                let end = OpOutcome::Held { reason: held.reason(), why: held.to_string() };
                reports.push(report(op, &action, end));
                continue;
            }
            let desired = Arc::clone(&made.desired);
            let order = PlannedOrder { action, desired, site: made.site.clone() };
            let order = Order::Planned(Box::new(order));
            let report = carry_out(context, op, &order, turn, &mut look).await?;
            let outcome = report.end.outcome();
            sent |= report.started > 0;
            reports.push(report);
            if outcome != LaneOutcome::Succeeded {
                return Ok(outcome);
            }
        }
        if !sent {
            break;
        }
        // What is held now is planned anew after the next look.
        reports.retain(|report| !matches!(report.end, OpOutcome::Held { .. }));
    }
    Ok(LaneOutcome::Succeeded)
}

/// What is left to do to it. A guest that cannot be read is left to the next pass.
async fn planned(
    context: &EngineContext,
    made: &PlannedOrder,
    look: &mut Option<GuestLook>,
) -> Result<Vec<Action>, Fatal> {
    let id = made.action.guest;
    if look.as_ref().is_none_or(|look| !look.serves()) {
        *look = observe_guest(&context.client, id).await.ok().map(GuestLook::new);
    }
    let Some(GuestLook { guest, .. }) = look else {
        return Ok(Vec::new());
    };
    let desired = Desired { guests: [(id.vmid, (*made.desired).clone())].into() };
    let create = create_bounds::following(context, &made.desired, guest).await?;
    let known = PlanContext {
        create,
        frozen: context.modes.is_frozen(),
        host_mode: context.modes.host_mode(),
        memories: backups::memories(context).await?,
        making: context.making().await?,
        now: context.node_now(),
        ..PlanContext::default()
    };
    let plan = plan(&desired, &made.site.snapshot(id.vmid, Some(guest)), &known);
    Ok(plan.guests.into_iter().flat_map(|guest| guest.actions).collect())
}

fn report(op: evenkeel_core::model::id::OperationId, action: &Action, end: OpOutcome) -> OpReport {
    let guest = action.guest;
    let kind = action.step.kind();
    let reasons = action.reasons();
    OpReport { op, guest, kind, reasons, end, upid: None, started: 0 }
}
