//! What `apply` ends with, by its report alone.
//!
//! | worst that happened | code |
//! |---|---|
//! | an action failed, or something declared cannot be done | 1 |
//! | the token may not do or prove it | 4 |
//! | something waits for another time: a lock, a lane, a freeze, a node | 7 |
//! | something waits for a signature | 6 |
//! | everything else was done, or is a person's to do by hand | 0 |

use evenkeel_agent::engine::{OpOutcome, Report};
use evenkeel_core::model::reason::ReasonCode;

use crate::error::Exit;
use crate::signing::refusal;

/// The code of a report: that of the worst in it.
pub(super) fn exit(report: &Report) -> Exit {
    if report.failed > 0 || !report.errors.is_empty() {
        return Exit::Failed;
    }
    let ends = report.ops.iter().map(|op| &op.end);
    let stale = ends.clone().any(|end| matches!(end, OpOutcome::Stale { .. }));
    let holds = report.holds.iter().map(|hold| hold.reason);
    let held = holds.chain(ends.filter_map(OpOutcome::reason)).map(of_reason);
    held.chain(stale.then_some(Exit::Transient))
        .max_by_key(|exit| weight(*exit))
        .unwrap_or(Exit::Ok)
}

/// What waits for nothing but a person's own hands is no reason to try again.
fn of_reason(reason: ReasonCode) -> Exit {
    let by_hand = matches!(reason, ReasonCode::NotExecutable | ReasonCode::Observe);
    if by_hand { Exit::Ok } else { refusal::exit(reason) }
}

fn weight(exit: Exit) -> u8 {
    match exit {
        Exit::Ok | Exit::ChangeFeed => 0,
        Exit::ApprovalRequired => 1,
        Exit::Transient => 2,
        Exit::Invalid | Exit::NotFound | Exit::Usage => 3,
        Exit::Denied => 4,
        Exit::Failed => 5,
        Exit::Interrupted => 6,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_agent::engine::{GuestError, Hold, OpReport};
    use evenkeel_core::action_registry::ActionKind;

    use super::*;

    fn held(reasons: &[ReasonCode]) -> Report {
        let hold = |reason: &ReasonCode| Hold {
            guest: "lxc/101".parse().unwrap(),
            kind: Some(ActionKind::Create),
            reason: *reason,
            why: String::new(),
        };
        Report { holds: reasons.iter().map(hold).collect(), ..Report::default() }
    }

    fn ended(end: OpOutcome) -> Report {
        let op = OpReport {
            op: "op_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
            guest: "lxc/101".parse().unwrap(),
            kind: ActionKind::Start,
            reasons: Vec::new(),
            end,
            upid: None,
            started: 0,
        };
        Report { ops: vec![op], ..Report::default() }
    }

    #[test]
    fn the_code_is_that_of_the_worst_and_what_waits_for_a_person_is_not_transient() {
        use ReasonCode::{
            Busy, FailedBefore, Frozen, Locked, NotExecutable, Observe, PendingSignature, Rights,
        };
        for (reasons, code) in [
            (&[][..], Exit::Ok),
            (&[NotExecutable], Exit::Ok),
            (&[Observe, NotExecutable], Exit::Ok),
            (&[FailedBefore], Exit::Transient),
            (&[PendingSignature], Exit::ApprovalRequired),
            (&[NotExecutable, PendingSignature], Exit::ApprovalRequired),
            (&[Locked], Exit::Transient),
            (&[Busy, PendingSignature], Exit::Transient),
            (&[Frozen], Exit::Transient),
            (&[Rights, Locked], Exit::Denied),
        ] {
            assert_eq!(exit(&held(reasons)), code, "{reasons:?}");
        }
        assert_eq!(exit(&ended(OpOutcome::Stale { why: String::new() })), Exit::Transient);
        assert_eq!(exit(&ended(OpOutcome::Unneeded)), Exit::Ok);
        let failed = Report { failed: 1, ..held(&[PendingSignature]) };
        assert_eq!(exit(&failed), Exit::Failed);
        let error = GuestError { guest: "lxc/101".parse().unwrap(), why: String::new() };
        let broken = Report { errors: vec![error], ..Report::default() };
        assert_eq!(exit(&broken), Exit::Failed);
    }
}
