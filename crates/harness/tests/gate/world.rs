//! What the node does not say for certain is no reason to act, and what cannot be recorded is not done.

use std::time::Duration;

use std::collections::BTreeMap;

use evenkeel_agent::engine::OpOutcome;
use evenkeel_agent::journal::DiskFault;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event};

use crate::support::*;

fn guest() -> GuestId {
    "lxc/100".parse().unwrap()
}

/// Every mutating request about any guest but the one `rig` itself starts.
fn all_writes(rig: &Rig) -> Vec<String> {
    ["lxc/100", "qemu/101", "qemu/103", "lxc/105"]
        .iter()
        .flat_map(|guest| writes(rig, guest))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn n06_n07_lists_that_are_empty_partial_or_garbage_create_and_destroy_nothing() {
    let declared = desired(
        "guest.100 = { kind = \"lxc\", state = \"absent\" }\nguest.101 = { kind = \"qemu\", cores = 2 }\n\
         guest.105 = { kind = \"lxc\", cores = 2 }",
    );
    for body in [
        "{\"data\":[]}",
        "{\"data\":null}",
        "{}",
        "[]",
        "<html>502</html>",
        "{\"data\":{\"errors\":1}}",
    ] {
        for place in ["/lxc", "/qemu", "/cluster/resources", "/cluster/status", "/pending"] {
            let rig = rig().await;
            rig.node.with(|sim| sim.inject(Effect::Garbage { body: body.to_owned() }.on(place)));
            let life = rig.live(async |engine| {
                for _ in 0..2 {
                    // A node that cannot be read ends the pass, and that is right as well.
                    if let Ok(begun) = engine.pass(&declared).await {
                        while !matches!(engine.work().await?, evenkeel_agent::engine::EngineEvent::Pass { id, .. } if id == begun.id) {}
                    }
                }
                Ok(())
            });
            life.await.unwrap().unwrap();
            let sent = all_writes(&rig);
            assert!(
                sent.iter().all(|write| write.ends_with(" config")),
                "{body} from {place} led to {sent:?}"
            );
            assert!(writes(&rig, "lxc/100").is_empty() && writes(&rig, "lxc/105").is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn n08_without_quorum_a_write_fails_and_is_made_when_there_is_one_again() {
    let rig = rig().await;
    let declared = desired("guest.100 = { kind = \"lxc\", description = \"ours\" }");
    rig.node.with(|sim| sim.happen(Event::Quorum { quorate: false }));
    live(&rig, async |engine| {
        pass(engine, &declared).await?;
        let tried = writes(&rig, "lxc/100").len();
        assert!(tried <= 1, "it is not hammered: {tried}");
        rig.node.with(|sim| sim.happen(Event::Quorum { quorate: true }));
        // What failed waits its minute.
        tokio::time::sleep(Duration::from_secs(70)).await;
        pass(engine, &declared).await?;
        pass(engine, &declared).await?;
        assert_eq!(writes(&rig, "lxc/100").len(), tried + 1);
        Ok(())
    })
    .await;
    let written = rig.node.with(|sim| {
        let found = sim.world.guests.values().find(|other| other.id == guest()).unwrap();
        found.config.active.get("description").cloned()
    });
    assert!(written.unwrap().contains("ours"));
}

#[tokio::test(start_paused = true)]
async fn n14_what_cannot_be_recorded_is_not_done() {
    let absent = desired(ABSENT);
    for full in [true, false] {
        let rig = rig().await;
        let life = rig.live(async |engine| {
            let approval = approved(&rig, engine, &absent).await;
            if full {
                rig.disk.limit_space(Some(0));
            } else {
                rig.disk.fail_at(rig.disk.calls(), DiskFault::Io);
            }
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            let evenkeel_agent::engine::Submitted::Accepted(op) = accepted else {
                panic!("{accepted:?}");
            };
            loop {
                if let evenkeel_agent::engine::EngineEvent::Op(report) = engine.work().await?
                    && report.op == op
                {
                    return Ok(report.end);
                }
            }
        });
        match life.await.unwrap() {
            Ok(end) => {
                assert!(full, "a broken journal ends the process");
                assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
            }
            Err(fatal) => assert!(!full, "{fatal}"),
        }
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
        assert!(exists(&rig, "lxc/100"));
    }
}

#[tokio::test(start_paused = true)]
async fn n18_an_old_item_signed_afresh_is_worth_nothing_for_a_guest_that_changed() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let old = item(engine).await;
        let set = BTreeMap::from([("description".to_owned(), Some("precious".to_owned()))]);
        rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
        pass(engine, &absent).await?;
        assert_ne!(item(engine).await.expected, old.expected, "a new item took its place");
        let fresh_signature = anna().approve(&old, 7, now(&rig));
        let submitted = engine.submit_approval(fresh_signature.as_bytes()).await?;
        let evenkeel_agent::engine::Submitted::Refused(refusal) = submitted else {
            panic!("{submitted:?}");
        };
        assert_eq!(refusal.reason, ReasonCode::Stale);
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// The snapshot a person signed for is gone, and another has its name.
#[tokio::test(start_paused = true)]
async fn p16_p20_a_snapshot_made_again_under_its_name_and_a_guest_rolled_back_are_others() {
    for rolled_back in [false, true] {
        let rig = rig().await;
        foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
        let reason = live(&rig, async |engine| {
            let given = BTreeMap::from([("snapname".to_owned(), "before".to_owned())]);
            let id: GuestId = "lxc/102".parse().unwrap();
            engine.request(ActionKind::Rollback, id, given).await.unwrap();
            let approval = anna().approve(&item(engine).await, 7, now(&rig));
            if rolled_back {
                foreign(&rig, "POST", "lxc/102/snapshot/before/rollback", &[]).await;
            } else {
                foreign(&rig, "DELETE", "lxc/102/snapshot/before", &[]).await;
                foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
            }
            rig.node.with(evenkeel_sim::Simulator::clear_records);
            let end = carried_out(engine, &approval).await.end;
            let OpOutcome::Held { reason, .. } = end else { panic!("{end:?}") };
            Ok(reason)
        })
        .await;
        let expected = if rolled_back { ReasonCode::IdentityUnproven } else { ReasonCode::Stale };
        assert_eq!(reason, expected);
        assert_eq!(writes(&rig, "lxc/102"), Vec::<String>::new());
    }
}

/// The guest stands on its newest snapshot already, so it looks as after a rollback.
#[tokio::test(start_paused = true)]
async fn x06_a_rollback_that_proxmox_refuses_has_failed() {
    let rig = rig().await;
    foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
    let end = live(&rig, async |engine| {
        let given = BTreeMap::from([("snapname".to_owned(), "before".to_owned())]);
        engine.request(ActionKind::Rollback, "lxc/102".parse().unwrap(), given).await.unwrap();
        let approval = anna().approve(&item(engine).await, 7, now(&rig));
        // The right goes while the request is on its way: after the gate has asked for it.
        rig.node.with(|sim| sim.inject(Effect::Latency { ms: 10_000 }.on("/rollback")));
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let revoked = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let token = evenkeel_sim::TOKENS[0].0;
            rig.node.with(|sim| {
                let access = &mut sim.world.access;
                access.tokens.get_mut(token).unwrap().separated = true;
                access.grant("/", token, "PVEAuditor");
            });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, accepted) => Ok(report.end),
            () = revoked => unreachable!("a person who waits for ever"),
        }
    })
    .await;
    let OpOutcome::Failed { why } = &end else { panic!("{end:?}") };
    assert!(why.contains("403"), "{why}");
    assert_eq!(count(&rig, "lxc/102", "POST rollback"), 1);
}
