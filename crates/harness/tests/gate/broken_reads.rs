//! A proxy under load breaks a read off now and then: it is asked again, and a write never is (case Y14).

use evenkeel_agent::engine::OpOutcome;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event, Fault};

use crate::support::*;

const HEALED: &str = "lxc/102";
const RUNS: &str = "guest.102 = { kind = \"lxc\", run = \"running\", cores = 3 }";

fn fails(rig: &Rig, method: &str, effect: &Effect, contains: &str, times: u32) {
    let fault = Fault {
        method: Some(method.to_owned()),
        times: Some(times),
        ..effect.clone().on(contains)
    };
    rig.node.with(|sim| sim.inject(fault));
}

fn broken() -> [Effect; 4] {
    let proxy = |status, executed| Effect::ProxyStatus { status, executed };
    [proxy(595, false), proxy(596, true), Effect::DropBefore, Effect::DropAfter]
}

/// Whether a pass brings the guest where it shall be.
async fn is_healed(rig: &Rig) -> bool {
    let lived = rig.live(async |engine| {
        pass(engine, &desired(RUNS)).await?;
        while !engine.is_idle() {
            engine.work().await?;
        }
        Ok(())
    });
    lived.await.unwrap().unwrap();
    let guest = HEALED.parse().unwrap();
    rig.node.with(|sim| sim.world.guest(guest).unwrap().power.is_running())
}

#[tokio::test(start_paused = true)]
async fn y14_a_pass_survives_two_broken_reads_of_each_kind() {
    for effect in broken() {
        for read in [
            "/version",
            "/pve1/lxc",
            "/pve1/qemu",
            "/102/pending",
            "/102/status/current",
            "/tasks/",
            "/cluster/resources",
        ] {
            let rig = rig().await;
            let guest = HEALED.parse().unwrap();
            rig.node.with(|sim| {
                sim.happen(Event::Power { guest, running: false });
                sim.clear_records();
            });
            fails(&rig, "GET", &effect, read, 2);
            assert!(is_healed(&rig).await, "{effect:?} {read}");
            let mut sent = writes(&rig, HEALED);
            sent.dedup();
            assert_eq!(sent.len(), writes(&rig, HEALED).len(), "{effect:?} {read}: {sent:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn y14_no_broken_write_is_sent_again() {
    for effect in broken() {
        let rig = rig().await;
        live(&rig, async |engine| {
            let approval = approved(&rig, engine, &desired(ABSENT)).await;
            rig.node.with(evenkeel_sim::Simulator::clear_records);
            fails(&rig, "POST", &effect, "/lxc/100/", 9);
            fails(&rig, "DELETE", &effect, "/lxc/100", 9);
            let submitted = engine.submit_approval(approval.as_bytes()).await?;
            let patience = std::time::Duration::from_mins(30);
            let ending = tokio::time::timeout(patience, ended(engine, submitted)).await;
            if let Ok(report) = ending {
                assert!(
                    !matches!(report.end, OpOutcome::Unknown { .. }) || !exists(&rig, "lxc/100")
                );
            }
            Ok(())
        })
        .await;
        for request in ["POST stop", "POST shutdown", "DELETE 100"] {
            assert!(count(&rig, "lxc/100", request) <= 1, "{effect:?}: {request}");
        }
    }
}
