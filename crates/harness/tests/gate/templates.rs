//! A guest becomes a template by a signature alone, once, and the fact is waited for.

use evenkeel_agent::engine::OpOutcome;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::{Desired, WantedState};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event as Happens, Fault};

use crate::support::*;

/// The guest, declared a template.
fn template(guest: &str) -> Desired {
    let (kind, vmid) = guest.split_once('/').unwrap();
    let mut desired = desired(&format!("[guest.{vmid}]\nkind = \"{kind}\"\n"));
    for guest in desired.guests.values_mut() {
        let WantedState::Present(spec) = &mut guest.state else { panic!("it is present") };
        spec.template = true;
    }
    desired
}

fn stop(rig: &Rig, guest: &str) {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| sim.happen(Happens::Power { guest, running: false }));
}

/// Whether it is one, and its volumes are base images.
fn is_template(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let active = &sim.world.guest(guest).unwrap().config.active;
        active.get("template").is_some_and(|on| on == "1")
            && active.values().any(|value| value.contains("base"))
    })
}

#[tokio::test(start_paused = true)]
async fn a_template_is_made_once_it_is_signed_and_only_then() {
    for (guest, call) in [("lxc/100", "POST template"), ("qemu/101", "POST template")] {
        let rig = rig().await;
        stop(&rig, guest);
        let declared = template(guest);
        live(&rig, async |engine| {
            pass(engine, &declared).await?;
            assert_eq!(count(&rig, guest, call), 0, "nothing without a signature");
            let item = item(engine).await;
            assert_eq!(item.op, ActionKind::Template);
            assert!(item.params.is_empty(), "{item:?}");
            assert!(item.losses[0].what.contains("never starts again"), "{item:?}");
            let approval = anna().approve(&item, 7, now(&rig));
            let report = carried_out(engine, &approval).await;
            assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
            assert!(is_template(&rig, guest), "{guest}");
            pass(engine, &declared).await?;
            assert!(engine.pending().await?.is_empty(), "a template rests");
            Ok(())
        })
        .await;
        assert_eq!(count(&rig, guest, call), 1);
    }
}

/// A container's call is answered with nothing while its task goes on for minutes.
#[tokio::test(start_paused = true)]
async fn an_answer_of_nothing_is_not_believed_and_the_task_is_found() {
    let rig = rig().await;
    stop(&rig, "lxc/100");
    rig.node.with(|sim| sim.timings.short_ms = 150_000);
    let declared = template("lxc/100");
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &declared).await;
        let report = carried_out(engine, &approval).await;
        assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
        assert_eq!(report.upid.as_ref().unwrap().task_type(), "vztemplate");
        assert!(is_template(&rig, "lxc/100"));
        Ok(())
    })
    .await;
    assert_eq!(count(&rig, "lxc/100", "POST template"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conversion_that_fails_is_told_so_though_its_answer_was_nothing() {
    let rig = rig().await;
    stop(&rig, "lxc/100");
    let message = "Template feature is not available".to_owned();
    rig.node.with(|sim| {
        let effect = Effect::TaskFails { message };
        let contains = Some("vztemplate".to_owned());
        sim.inject(Fault { effect, method: None, contains, times: Some(1) });
    });
    let declared = template("lxc/100");
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &declared).await;
        let report = carried_out(engine, &approval).await;
        let OpOutcome::Failed { why } = &report.end else { panic!("{report:?}") };
        assert!(why.contains("Template feature is not available"), "{why}");
        assert!(!is_template(&rig, "lxc/100"));
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_running_guest_is_put_before_nobody() {
    let rig = rig().await;
    let running = "lxc/102";
    let declared = template(running);
    live(&rig, async |engine| {
        pass(engine, &declared).await?;
        assert!(engine.pending().await?.is_empty());
        Ok(())
    })
    .await;
    assert_eq!(count(&rig, running, "POST template"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_started_or_snapshot_since_is_refused() {
    for meddle in ["start", "snapshot"] {
        let rig = rig().await;
        stop(&rig, "qemu/103");
        let declared = template("qemu/103");
        live(&rig, async |engine| {
            let approval = approved(&rig, engine, &declared).await;
            match meddle {
                "start" => {
                    let guest = "qemu/103".parse().unwrap();
                    rig.node.with(|sim| sim.happen(Happens::Power { guest, running: true }));
                }
                _ => foreign(&rig, "POST", "qemu/103/snapshot", &[("snapname", "aa")]).await,
            }
            let report = carried_out(engine, &approval).await;
            let OpOutcome::Held { reason, why } = &report.end else { panic!("{report:?}") };
            let codes = [ReasonCode::After, ReasonCode::Stale];
            assert!(codes.contains(reason), "{meddle}: {why}");
            Ok(())
        })
        .await;
        assert_eq!(count(&rig, "qemu/103", "POST template"), 0, "{meddle}");
    }
}

/// Killed at any place, it is sent at most once, and what is known of it in the end is true.
#[tokio::test(start_paused = true)]
async fn a_conversion_that_is_killed_anywhere_is_sent_at_most_once() {
    for guest in ["lxc/100", "qemu/101"] {
        for place in (0..).step_by(4) {
            let rig = rig().await;
            stop(&rig, guest);
            let declared = template(guest);
            let approval =
                live(&rig, async |engine| Ok(approved(&rig, engine, &declared).await)).await;
            let life = rig.live(async |engine| {
                let accepted = engine.submit_approval(approval.as_bytes()).await?;
                Ok(ended(engine, accepted).await)
            });
            let over = crash_after(place, life).await.is_some();
            if !over {
                afterwards(&rig, &declared).await;
            }
            let sent = count(&rig, guest, "POST template");
            assert!(sent <= 1, "{guest} {place}: {sent}");
            let lines = evenkeel_harness::script::journal(&rig);
            let last = lines.iter().rev().find(|line| line["type"] == "op" && line["op"] != "");
            let of_it = lines.iter().any(|line| line["kind"] == "template");
            if sent == 1 {
                assert!(of_it, "{guest} {place}: {last:?}");
                assert!(is_template(&rig, guest), "{guest} {place}");
            }
            if over {
                assert!(place > 8, "{guest}: only {place} places");
                break;
            }
        }
    }
}
