//! Everything is judged again in the lane: what changed after the signature stops the act.

use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{OpOutcome, PassCause, Submitted};
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{HostBinding, Role, TrustVersion, TrustedSigners};
use evenkeel_harness::Rig;
use evenkeel_sim::Event;

use crate::support::*;

/// Raises a destroy of lxc/100, signs it, lets something happen, submits it: the reason it is held for.
async fn held_after(rig: &Rig, happens: impl AsyncFnOnce(&Rig)) -> ReasonCode {
    let absent = desired(ABSENT);
    let reason = live(rig, async |engine| {
        pass(engine, &absent).await?;
        let approval = anna().approve(&item(engine).await, 7, now(rig));
        happens(rig).await;
        Ok(match engine.submit_approval(approval.as_bytes()).await? {
            Submitted::Refused(refusal) => refusal.reason,
            Submitted::Replay { .. } => ReasonCode::Replay,
            Submitted::Collected(missing) => missing.reason,
            Submitted::Rotated(_) | Submitted::Denied(_) | Submitted::Acknowledged(_) => {
                panic!("an act is no rotation")
            }
            accepted @ Submitted::Accepted(_) => {
                let end = ended(engine, accepted).await.end;
                let OpOutcome::Held { reason, .. } = end else {
                    panic!("it was not held: {end:?}")
                };
                reason
            }
        })
    })
    .await;
    assert_eq!(writes(rig, "lxc/100"), Vec::<String>::new(), "a refusal sends nothing");
    reason
}

/// Other signers from one moment to the next, as a rotation would leave them.
async fn replace(rig: &Rig, other: impl FnOnce(HostBinding) -> Authority) {
    let mut authority = rig.approvals.as_ref().unwrap().authority.write().await;
    let host = authority.host().clone();
    *authority = other(host);
}

fn guest() -> GuestId {
    "lxc/100".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn g14_p15_a_container_made_again_with_the_same_configuration_is_another() {
    let rig = rig().await;
    let reason = held_after(&rig, async |rig| {
        let copy = rig.node.with(|sim| {
            sim.world.guests.values().find(|other| other.id == guest()).unwrap().clone()
        });
        let key = rig
            .node
            .with(|sim| *sim.world.guests.iter().find(|(_, other)| other.id == guest()).unwrap().0);
        rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
        foreign(rig, "DELETE", "lxc/100", &[]).await;
        rig.node.with(|sim| sim.world.guests.insert(key, copy));
        rig.node.with(evenkeel_sim::Simulator::clear_records);
    })
    .await;
    assert_eq!(reason, ReasonCode::IdentityUnproven);
}

/// The number is taken by one that looks the same, and an item is raised for it: the old signature is not for that one.
#[tokio::test(start_paused = true)]
async fn p15_an_approval_is_not_for_an_item_that_was_raised_after_it() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
    let reason = live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let copy = rig.node.with(|sim| sim.world.guest(guest()).unwrap().clone());
        foreign(&rig, "DELETE", "lxc/100", &[]).await;
        pass(engine, &absent).await?;
        assert!(engine.pending().await?.is_empty(), "nobody is there to be destroyed");
        rig.node.with(|sim| sim.world.put_guest(guest(), copy.config, copy.power));
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        pass(engine, &absent).await?;
        assert_eq!(engine.pending().await?.len(), 1, "the new one waits");
        Ok(reason_of_refusal(engine, &approval).await)
    })
    .await;
    assert_eq!(reason, ReasonCode::Stale);
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn p14_a_task_list_that_forgot_proves_nothing() {
    let rig = rig().await;
    let reason =
        held_after(&rig, async |rig| rig.node.with(|sim| sim.happen(Event::ForgetTasks))).await;
    assert_eq!(reason, ReasonCode::IdentityUnproven);
}

#[tokio::test(start_paused = true)]
async fn p17_a_changed_configuration_makes_the_approval_stale() {
    let rig = rig().await;
    let reason = held_after(&rig, async |rig| {
        let set = [("description".to_owned(), Some("mine now".to_owned()))].into();
        rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
    })
    .await;
    assert_eq!(reason, ReasonCode::Stale);
}

#[tokio::test(start_paused = true)]
async fn a_locked_guest_is_left_alone() {
    let rig = rig().await;
    let reason = held_after(&rig, async |rig| {
        let lock = Some("backup".to_owned());
        rig.node.with(|sim| sim.happen(Event::Lock { guest: guest(), lock }));
    })
    .await;
    assert_eq!(reason, ReasonCode::Locked);
}

#[tokio::test(start_paused = true)]
async fn t20_a_rotation_between_signature_and_execution_voids_it() {
    let rig = rig().await;
    let reason = held_after(&rig, async |rig| {
        let signers = vec![anna().signer(Role::Operational), vault().signer(Role::Recovery)];
        let next = TrustedSigners::genesis(TrustVersion(2), signers).unwrap();
        replace(rig, |host| Authority::first(host, next)).await;
    })
    .await;
    assert_eq!(reason, ReasonCode::TrustVersion);
}

#[tokio::test(start_paused = true)]
async fn g27_with_nobody_enrolled_nothing_destructive_runs() {
    let rig = rig().await;
    let reason = held_after(&rig, async |rig| {
        replace(rig, Authority::nobody).await;
    })
    .await;
    assert_eq!(reason, ReasonCode::UnknownSigner);
}

#[tokio::test(start_paused = true)]
async fn g23_the_hosts_own_budget_stops_even_what_is_signed() {
    let mut rig = rig().await;
    rig.approvals.as_mut().unwrap().policy.destructive_per_day = 0;
    assert_eq!(held_after(&rig, async |_| {}).await, ReasonCode::Budget);
}

/// Two lanes judge at the same time, and there is room for one.
#[tokio::test(start_paused = true)]
async fn g23_the_budget_holds_for_acts_that_are_judged_side_by_side() {
    let mut rig = rig().await;
    rig.approvals.as_mut().unwrap().policy.destructive_per_day = 1;
    let both = desired(
        "guest.100 = { kind = \"lxc\", state = \"absent\" }\nguest.101 = { kind = \"qemu\", state = \"absent\" }",
    );
    live(&rig, async |engine| {
        pass(engine, &both).await?;
        let items = engine.pending().await?;
        assert_eq!(items.len(), 2);
        for (nonce, (item, _)) in (7..).zip(items.values()) {
            let approval = anna().approve(item, nonce, now(&rig));
            let submitted = engine.submit_approval(approval.as_bytes()).await?;
            assert!(matches!(submitted, Submitted::Accepted(_)), "{submitted:?}");
        }
        let mut held = 0;
        for _ in 0..2 {
            if let evenkeel_agent::engine::EngineEvent::Op(report) = engine.work().await?
                && let OpOutcome::Held { reason, .. } = report.end
            {
                assert_eq!(reason, ReasonCode::Budget);
                held += 1;
            }
        }
        assert_eq!(held, 1);
        Ok(())
    })
    .await;
    assert!(exists(&rig, "lxc/100") || exists(&rig, "qemu/101"), "one of them is still there");
}

#[tokio::test(start_paused = true)]
async fn g26_an_item_that_ended_is_not_executed_later() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    let reason = live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        pass(engine, &desired("")).await?;
        assert!(engine.pending().await?.is_empty(), "nobody wants it any more");
        Ok(reason_of_refusal(engine, &approval).await)
    })
    .await;
    assert_eq!(reason, ReasonCode::NotPending);
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_pass_about_one_guest_decides_nothing_about_what_waits_for_another() {
    let rig = rig().await;
    let both = desired(&format!("{ABSENT}\nguest.102 = {{ kind = \"lxc\", cores = 3 }}"));
    live(&rig, async |engine| {
        pass(engine, &both).await?;
        let waits = engine.pending().await?.into_keys().collect::<Vec<_>>();
        let calls = rig.disk.calls();
        assert_eq!(waits.len(), 1);
        let chosen = PassScope::Chosen(["102".parse().unwrap()].into());
        let Ok(preview) = engine.look(&both, chosen, PassCause::Schedule).await else { panic!() };
        engine.submit(&both, preview).await?;
        assert!(engine.pending().await?.into_keys().eq(waits), "it waits under the same name");
        assert_eq!(rig.disk.calls(), calls, "and nothing was written about it");
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g25_a_flood_of_items_is_bounded_and_at_rest_nothing_is_written() {
    let mut rig = rig().await;
    rig.approvals.as_mut().unwrap().policy.pending_items = 2;
    let all = desired(
        "guest.100 = { kind = \"lxc\", state = \"absent\" }\nguest.101 = { kind = \"qemu\", state = \"absent\" }\n\
         guest.102 = { kind = \"lxc\", state = \"absent\" }\nguest.103 = { kind = \"qemu\", state = \"absent\" }",
    );
    live(&rig, async |engine| {
        pass(engine, &all).await?;
        assert_eq!(engine.pending().await?.len(), 2);
        let calls = rig.disk.calls();
        for _ in 0..5 {
            pass(engine, &all).await?;
        }
        assert_eq!(rig.disk.calls(), calls, "the journal rests");
        Ok(())
    })
    .await;
}
