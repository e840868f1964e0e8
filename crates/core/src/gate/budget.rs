//! The budget of signed operations: how many may start in 24 hours, counted from the journal.
//!
//! The gate asks inside the lane, directly before it clears a signed act. The count is taken from what is
//! durable, so that a restart forgives nothing. It decides nothing about who signed.

use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{Ledger, UnixSeconds};

/// The time a budget is for.
const WINDOW_S: u64 = 24 * 60 * 60;

/// How many signed operations began within the last 24 hours. One dated in the future counts: a clock that was
/// set back must not give a new budget.
pub fn signed_started(ledger: &Ledger, now: UnixSeconds) -> u64 {
    let recent = ledger.signed().filter(|op| op.intent.sent_at.plus(WINDOW_S) > now);
    recent.count() as u64
}

/// Whether one more signed operation may start now.
pub fn judge(ledger: &Ledger, limit: u64, now: UnixSeconds) -> Result<(), Refusal> {
    let started = signed_started(ledger, now);
    if started < limit {
        return Ok(());
    }
    let detail = format!(
        "{started} signed operations began in the last 24 hours, and this host's policy allows {limit} \
         (`destructive_per_day` under [policy] in agent.toml)"
    );
    Err(Refusal::new(ReasonCode::Budget, detail))
}

/// The time the budget of a hub's disruptive acts is for.
const HOUR_S: u64 = 60 * 60;

/// Those of the moments at which disruptive acts of a hub began that still count. A moment in the future counts: a clock
/// that was set back must not give a new budget.
pub fn disruptive_counted(begun: &[UnixSeconds], now: UnixSeconds) -> Vec<UnixSeconds> {
    begun.iter().copied().filter(|at| at.plus(HOUR_S) > now).collect()
}

/// Whether one more disruptive act that a hub declares may begin now.
pub fn judge_disruptive(
    begun: &[UnixSeconds],
    limit: u64,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    let counted = disruptive_counted(begun, now).len() as u64;
    if counted < limit {
        return Ok(());
    }
    let detail = format!(
        "{counted} disruptive acts of the hub began in the last hour, and this host's policy allows {limit} \
         (`disruptive_per_hour` under [policy] in agent.toml)"
    );
    Err(Refusal::new(ReasonCode::Budget, detail))
}

#[cfg(test)]
mod tests {
    use crate::action_registry::ActionKind;
    use crate::model::id::OperationId;
    use crate::operate::operation::{OpEvent, OpRecord, Repeat, StartedIntent};

    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    /// A ledger with one closed operation at each moment, signed or not.
    fn ledger(started: &[(u64, bool)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, (at, signed)) in (1_u32..).zip(started) {
            let op = OperationId::from_parts(u64::from(number), u128::from(number));
            let key = format!("{number:032x}").parse().unwrap();
            let payload = crate::sign::PayloadHash::of(b"a statement");
            let expires_at = UnixSeconds(u64::MAX);
            let signed_once = Repeat::AtMostOnce { key, payload, expires_at };
            let repeat = if *signed { signed_once } else { Repeat::Convergent };
            let intent = StartedIntent {
                repeat,
                ..StartedIntent::new(
                    format!("lxc/{}", 100 + number).parse().unwrap(),
                    ActionKind::Destroy,
                    UnixSeconds(*at),
                )
            };
            let failed = OpEvent::Failed {
                reason: "x".to_owned(),
                left_volume: None,
                tried: None,
                identity: None,
            };
            for event in [OpEvent::Started(Box::new(intent)), failed] {
                ledger.apply(&OpRecord { op, event }).unwrap();
            }
        }
        ledger.forget_closed();
        ledger
    }

    #[test]
    fn a_budget_counts_signed_operations_of_the_last_day_whatever_became_of_them() {
        let day = WINDOW_S;
        let ledger = ledger(&[
            (NOW.0 - day, true),
            (NOW.0 - day + 1, true),
            (NOW.0, true),
            (NOW.0, false),
            (NOW.0 + 999_999, true),
        ]);
        assert_eq!(signed_started(&ledger, NOW), 3, "the first is a day old, one is not signed");
        assert_eq!(judge(&ledger, 4, NOW), Ok(()));
        let refusal = judge(&ledger, 3, NOW).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Budget);
        assert!(refusal.detail.contains("destructive_per_day"), "{refusal}");
    }

    #[test]
    fn a_hub_s_disruptive_acts_are_counted_by_the_hour() {
        let begun = [NOW.minus(HOUR_S), NOW.minus(HOUR_S - 1), NOW, NOW.plus(999_999)];
        assert_eq!(disruptive_counted(&begun, NOW).len(), 3, "the first is an hour old");
        assert_eq!(judge_disruptive(&begun, 4, NOW), Ok(()));
        let refusal = judge_disruptive(&begun, 3, NOW).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Budget);
        assert_eq!(judge_disruptive(&[], 0, NOW).unwrap_err().reason, ReasonCode::Budget);
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        assert_eq!(judge(&ledger(&[]), 0, NOW).unwrap_err().reason, ReasonCode::Budget);
    }
}
