//! What the node does not say for certain is no reason to act, and what cannot be recorded is not done.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use evenkeel_agent::engine::End;
use evenkeel_agent::journal::Fault;
use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::id::GuestId;
use evenkeel_core::reason::ReasonCode;
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
                        while !matches!(engine.work().await?, evenkeel_agent::engine::Event::Pass { id, .. } if id == begun.id) {}
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
    rig.live(async |engine| {
        pass(engine, &declared).await?;
        let tried = writes(&rig, "lxc/100").len();
        assert!(tried <= 1, "it is not hammered: {tried}");
        rig.node.with(|sim| sim.happen(Event::Quorum { quorate: true }));
        pass(engine, &declared).await?;
        pass(engine, &declared).await?;
        assert_eq!(writes(&rig, "lxc/100").len(), tried + 1);
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
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
            pass(engine, &absent).await?;
            let approval = anna().approve(&item(engine).await, 7, now(&rig));
            if full {
                rig.disk.limit_space(Some(0));
            } else {
                rig.disk.fail_at(rig.disk.calls(), Fault::Io);
            }
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            let evenkeel_agent::engine::Submitted::Accepted(op) = accepted else {
                panic!("{accepted:?}");
            };
            loop {
                if let evenkeel_agent::engine::Event::Op(report) = engine.work().await?
                    && report.op == op
                {
                    return Ok(report.end);
                }
            }
        });
        match life.await.unwrap() {
            Ok(end) => {
                assert!(full, "a broken journal ends the process");
                assert!(matches!(end, End::Failed { .. }), "{end:?}");
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
    rig.live(async |engine| {
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
    .await
    .unwrap()
    .unwrap();
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// Somebody changes what the guest is made of while it goes down: the act is not sent.
#[tokio::test(start_paused = true)]
async fn p18_what_is_changed_between_two_requests_of_a_destroy_stops_it() {
    let rig = rig().await;
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let other: GuestId = "lxc/102".parse().unwrap();
    let mut sent = 0;
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        let approval = anna().approve(&item(engine).await, 7, now(&rig));
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let evenkeel_agent::engine::Submitted::Accepted(op) = accepted else {
            panic!("{accepted:?}");
        };
        let world = rig.node.clone();
        let human = async {
            while count(&rig, "lxc/102", "POST stop") == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            let net = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:99:99:99,type=veth".to_owned();
            let set = BTreeMap::from([("net0".to_owned(), Some(net))]);
            world.with(|sim| sim.happen(Event::Edit { guest: other, set }));
            std::future::pending::<()>().await;
        };
        let agent = async {
            loop {
                if let evenkeel_agent::engine::Event::Op(report) = engine.work().await?
                    && report.op == op
                {
                    return Ok::<_, evenkeel_agent::engine::Fatal>(report.end);
                }
            }
        };
        let end = tokio::select! {
            end = agent => end?,
            () = human => unreachable!("a person who waits for ever"),
        };
        assert!(matches!(end, End::Failed { .. }), "{end:?}");
        sent = count(&rig, "lxc/102", "DELETE 102");
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    assert_eq!(sent, 0);
    assert!(exists(&rig, "lxc/102"));
}

/// The snapshot a person signed for is gone, and another has its name.
#[tokio::test(start_paused = true)]
async fn p16_p20_a_snapshot_made_again_under_its_name_and_a_guest_rolled_back_are_others() {
    for rolled_back in [false, true] {
        let rig = rig().await;
        foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
        let reason = rig
            .live(async |engine| {
                let given = BTreeMap::from([("snapname".to_owned(), "before".to_owned())]);
                let id: GuestId = "lxc/102".parse().unwrap();
                engine.request(ActionKind::Rollback, id, given).await?.unwrap();
                let approval = anna().approve(&item(engine).await, 7, now(&rig));
                if rolled_back {
                    foreign(&rig, "POST", "lxc/102/snapshot/before/rollback", &[]).await;
                } else {
                    foreign(&rig, "DELETE", "lxc/102/snapshot/before", &[]).await;
                    foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
                }
                rig.node.with(evenkeel_sim::Simulator::clear_records);
                let accepted = engine.submit_approval(approval.as_bytes()).await?;
                let end = ended(engine, accepted).await.end;
                let End::Held { reason, .. } = end else { panic!("{end:?}") };
                Ok(reason)
            })
            .await
            .unwrap()
            .unwrap();
        let expected = if rolled_back { ReasonCode::IdentityUnproven } else { ReasonCode::Stale };
        assert_eq!(reason, expected);
        assert_eq!(writes(&rig, "lxc/102"), Vec::<String>::new());
    }
}

/// What happens to a signed destroy of lxc/102, which runs and is protected, if something happens once its stop has
/// left: how it ended.
async fn after_its_stop(rig: &Rig, happens: impl AsyncFnOnce(&Rig)) -> End {
    let other: GuestId = "lxc/102".parse().unwrap();
    let set = BTreeMap::from([("protection".to_owned(), Some("1".to_owned()))]);
    rig.node.with(|sim| sim.happen(Event::Edit { guest: other, set }));
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let life = rig.live(async |engine| {
        pass(engine, &absent).await?;
        let approval = anna().approve(&item(engine).await, 7, now(rig));
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let human = async {
            while count(rig, "lxc/102", "POST stop") == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            happens(rig).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, accepted) => Ok(report.end),
            () = human => unreachable!("a person who waits for ever"),
        }
    });
    life.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_frozen_between_two_requests_of_a_destroy_sends_no_more() {
    let rig = rig().await;
    let end = after_its_stop(&rig, async |rig| rig.frozen.store(true, Ordering::Relaxed)).await;
    assert!(matches!(end, End::Failed { .. }), "{end:?}");
    assert_eq!(writes(&rig, "lxc/102")[1..], ["POST stop"], "nothing after the stop");
    assert!(exists(&rig, "lxc/102") && protected(&rig, "lxc/102"));
}

/// Frozen after the protection was taken off: it is given back, but not before the host is thawed.
#[tokio::test(start_paused = true)]
async fn a_protection_is_not_given_back_while_the_host_is_frozen() {
    let rig = rig().await;
    // Somebody must be able to step in between.
    rig.node.with(|sim| sim.inject(Effect::Latency { ms: 20 }.on("/lxc/102/pending")));
    let end = after_its_stop(&rig, async |rig| {
        while count(rig, "lxc/102", "PUT config") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        rig.frozen.store(true, Ordering::Relaxed);
    })
    .await;
    assert!(matches!(end, End::Failed { .. }), "{end:?}");
    assert_eq!(count(&rig, "lxc/102", "DELETE 102"), 0);
    assert_eq!(count(&rig, "lxc/102", "PUT config"), 1, "frozen");
    afterwards(&rig, &desired("")).await;
    assert_eq!(count(&rig, "lxc/102", "PUT config"), 1, "frozen through passes and a restart");
    rig.frozen.store(false, Ordering::Relaxed);
    afterwards(&rig, &desired("")).await;
    assert!(protected(&rig, "lxc/102"));
}

/// Somebody destroys the container while it goes down for us, and makes one that looks the same.
#[tokio::test(start_paused = true)]
async fn p15_a_container_made_again_between_two_requests_of_a_destroy_is_another() {
    let rig = rig().await;
    let other: GuestId = "lxc/102".parse().unwrap();
    let end = after_its_stop(&rig, async |rig| {
        // The agent's next look takes its time.
        let slow = Effect::Latency { ms: 30_000 };
        rig.node.with(|sim| sim.inject(slow.on("/lxc/102/status/current")));
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let copy = rig.node.with(|sim| sim.world.guest(other).unwrap().clone());
        let set = BTreeMap::from([("protection".to_owned(), None)]);
        rig.node.with(|sim| {
            sim.happen(Event::Power { guest: other, running: false });
            sim.happen(Event::Edit { guest: other, set });
        });
        let (name, secret, _) = evenkeel_sim::TOKENS[2];
        let path = "/api2/json/nodes/pve1/lxc/102";
        let request = evenkeel_sim::Request::new("DELETE", path).token(&format!("{name}={secret}"));
        rig.node.send(request).await;
        while exists(rig, "lxc/102") {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        rig.node.with(|sim| {
            sim.world.put_guest(other, copy.config, evenkeel_sim::Power::Stopped);
        });
    })
    .await;
    assert!(matches!(end, End::Failed { .. }), "{end:?}");
    let ours = rig.node.with(|sim| {
        let ours = |record: &&evenkeel_sim::Record| {
            record.method == "DELETE" && record.user.as_deref() == Some(evenkeel_sim::TOKENS[0].0)
        };
        sim.records().iter().filter(ours).count()
    });
    assert_eq!(ours, 0, "nothing was destroyed for the one that was signed for");
    assert!(exists(&rig, "lxc/102"));
}
