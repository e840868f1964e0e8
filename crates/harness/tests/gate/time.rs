//! Time, nonces and replays at the moment of execution: once, in its window, and by a clock nobody doubts.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::engine::{OpOutcome, Submitted};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{OpResult, PendingItem, Role, Signer, Validity, Window};
use evenkeel_harness::{Rig, SeededAmbient, statement};

use crate::support::*;

/// Raises the destroy of lxc/100.
async fn raised(rig: &Rig) -> PendingItem {
    let absent = desired(ABSENT);
    let life = rig.live(async |engine| {
        pass(engine, &absent).await?;
        Ok(item(engine).await)
    });
    life.await.unwrap().unwrap()
}

/// Submits it to a fresh start of the agent, waits so long, and lets it run: why it was not done.
async fn held(rig: &Rig, approval: &str, wait: Duration) -> ReasonCode {
    let life = rig.live(async |engine| {
        Ok(match engine.submit_approval(approval.as_bytes()).await? {
            Submitted::Refused(refusal) => refusal.reason,
            accepted @ Submitted::Accepted(_) => {
                tokio::time::sleep(wait).await;
                let end = ended(engine, accepted).await.end;
                end.reason().unwrap_or_else(|| panic!("it was not held: {end:?}"))
            }
            other @ (Submitted::Replay { .. }
            | Submitted::Rotated(_)
            | Submitted::Collected(_)
            | Submitted::Denied(_)
            | Submitted::Acknowledged(_)) => panic!("{other:?}"),
        })
    });
    let reason = life.await.unwrap().unwrap();
    assert_eq!(writes(rig, "lxc/100"), Vec::<String>::new(), "a refusal sends nothing");
    reason
}

/// The rig with its clock so many seconds off.
fn clock_off(rig: &Rig, by_s: i64) -> Rig {
    let unix = now(rig).0.checked_add_signed(by_s).unwrap();
    Rig { ambient: Arc::new(SeededAmbient::new(unix, 99)), ..rig.clone() }
}

#[tokio::test(start_paused = true)]
async fn t07_an_approval_that_expires_before_its_turn_is_not_executed() {
    let rig = rig().await;
    let approval = anna().approve(&raised(&rig).await, 7, now(&rig));
    assert_eq!(held(&rig, &approval, Duration::from_mins(61)).await, ReasonCode::Expired);
}

#[tokio::test(start_paused = true)]
async fn t06_not_yet_valid_or_for_too_long_by_this_hosts_policy_is_refused() {
    let mut rig = rig().await;
    let item = raised(&rig).await;
    let mut early = statement(&item, 7, now(&rig));
    early.window = Window::new(now(&rig).plus(600), now(&rig).plus(1_200)).unwrap();
    assert_eq!(held(&rig, &anna().sign(&early), Duration::ZERO).await, ReasonCode::NotYetValid);
    rig.approvals.as_mut().unwrap().policy.statement_life_s = 3_599;
    let long = anna().approve(&item, 8, now(&rig));
    assert_eq!(held(&rig, &long, Duration::ZERO).await, ReasonCode::LifetimeExceeded);
}

#[tokio::test(start_paused = true)]
async fn t08_an_approval_that_expires_while_its_task_runs_is_done_once() {
    let rig = rig().await;
    let item = raised(&rig).await;
    rig.node.with(|sim| {
        let slow = 120_000;
        sim.timings.short_ms = slow;
        sim.timings.copy_ms = slow;
        sim.timings.create_ms = slow;
    });
    let mut short = statement(&item, 7, now(&rig));
    short.window = Window::new(now(&rig), now(&rig).plus(60)).unwrap();
    let approval = anna().sign(&short);
    let began = now(&rig);
    live(&rig, async |engine| {
        let report = carried_out(engine, &approval).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        assert!(now(&rig) > began.plus(60), "it had expired meanwhile");
        let again = engine.submit_approval(approval.as_bytes()).await?;
        assert_eq!(again, Submitted::Replay { op: report.op, result: OpResult::Succeeded });
        Ok(())
    })
    .await;
    assert_eq!(count(&rig, "lxc/100", "DELETE 100"), 1);
}

#[tokio::test(start_paused = true)]
async fn t09_t10_a_clock_in_doubt_holds_what_is_signed_until_it_is_right_again() {
    const DAY: i64 = 86_400;
    let rig = rig().await;
    let item = raised(&rig).await;
    for by_s in [-DAY, -7_200, 2 * DAY, 20 * 365 * DAY] {
        let off = clock_off(&rig, by_s);
        // Signed by somebody whose clock is right, and by somebody who believes the host's.
        for (nonce, signed_at) in [(7, now(&rig)), (8, now(&off))] {
            let approval = anna().approve(&item, nonce, signed_at);
            let reason = held(&off, &approval, Duration::ZERO).await;
            let expired = by_s < 0 && signed_at == now(&off);
            let expected = if expired { ReasonCode::Expired } else { ReasonCode::Clock };
            assert_eq!(reason, expected, "{by_s} s off");
        }
    }
    let approval = anna().approve(&item, 9, now(&rig));
    live(&rig, async |engine| {
        assert_eq!(
            carried_out(engine, &approval).await.end,
            OpOutcome::Succeeded { warning: None }
        );
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t21_a_key_whose_validity_ends_before_its_approval_runs_allows_nothing() {
    let rig = rig().await;
    let until = now(&rig).plus(1_800);
    let brief = Signer {
        validity: Validity { from: UnixSeconds(0), until },
        ..anna().signer(Role::Operational)
    };
    let rig = rig.judged_by(vec![brief, vault().signer(Role::Recovery)]);
    let approval = anna().approve(&raised(&rig).await, 7, now(&rig));
    assert_eq!(held(&rig, &approval, Duration::from_mins(31)).await, ReasonCode::KeyRevoked);
}

#[tokio::test(start_paused = true)]
async fn t01_a_nonce_on_another_statement_is_a_conflict_in_its_lane_after_it_and_after_a_restart() {
    let rig = rig().await;
    let both = desired(
        "guest.100 = { kind = \"lxc\", state = \"absent\" }\nguest.102 = { kind = \"lxc\", state = \"absent\" }",
    );
    let conflict = |submitted: &Submitted| {
        let Submitted::Refused(refusal) = submitted else { panic!("{submitted:?}") };
        assert_eq!(refusal.reason, ReasonCode::NonceConflict, "{refusal}");
    };
    let other = live(&rig, async |engine| {
        pass(engine, &both).await?;
        let items: Vec<PendingItem> =
            engine.pending().await?.into_values().map(|(item, _)| item).collect();
        let of = |guest: &str| items.iter().find(|item| item.guest.to_string() == guest);
        let first = anna().approve(of("lxc/100").unwrap(), 7, now(&rig));
        let other = anna().approve(of("lxc/102").unwrap(), 7, now(&rig));
        let accepted = engine.submit_approval(first.as_bytes()).await?;
        conflict(&engine.submit_approval(other.as_bytes()).await?);
        assert_eq!(ended(engine, accepted).await.end, OpOutcome::Succeeded { warning: None });
        conflict(&engine.submit_approval(other.as_bytes()).await?);
        Ok(other)
    })
    .await;
    let after = rig.live(async |engine| engine.submit_approval(other.as_bytes()).await);
    conflict(&after.await.unwrap().unwrap());
    assert!(exists(&rig, "lxc/102") && count(&rig, "lxc/102", "DELETE 102") == 0);
}

#[tokio::test(start_paused = true)]
async fn t02_t04_a_replay_after_a_restart_or_by_another_key_is_answered_with_the_first_result() {
    let rig = rig().await;
    let bob = evenkeel_harness::Operator::new("bob", 3);
    let operators = [anna().signer(Role::Operational), bob.signer(Role::Operational)];
    let signers = operators.into_iter().chain([vault().signer(Role::Recovery)]);
    let rig = rig.judged_by(signers.collect());
    let item = raised(&rig).await;
    let signed = statement(&item, 7, now(&rig));
    let op = live(&rig, async |engine| {
        let accepted = engine.submit_approval(anna().sign(&signed).as_bytes()).await?;
        Ok(ended(engine, accepted).await.op)
    })
    .await;
    for by in [anna(), bob] {
        let again =
            live(&rig, async |engine| engine.submit_approval(by.sign(&signed).as_bytes()).await)
                .await;
        assert_eq!(again, Submitted::Replay { op, result: OpResult::Succeeded });
    }
    assert_eq!(count(&rig, "lxc/100", "DELETE 100"), 1);
}
