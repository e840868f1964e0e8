//! A power action applies what waits for a restart. The guest is then still the same guest, though its cards, disks or
//! marks are others (case X15).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evenkeel_agent::engine::OpOutcome;
use evenkeel_core::model::id::GuestId;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{desired, pass, rig};
use evenkeel_sim::Event as Happens;

const MACHINE: &str = "qemu/101";
const CONTAINER: &str = "lxc/102";

fn guest(text: &str) -> GuestId {
    text.parse().unwrap()
}

/// The guest runs or not, and this change waits.
fn wait_for_restart(rig: &Rig, id: &str, running: bool, key: &str, value: &str) {
    let id = guest(id);
    rig.node.with(|sim| {
        sim.happen(Happens::Power { guest: id, running });
        let config = &mut sim.world.guest_mut(id).unwrap().config;
        config.pending.insert(key.to_owned(), value.to_owned());
    });
}

fn card(kind: &str) -> &'static str {
    if kind == MACHINE {
        "virtio=BC:24:11:99:99:99,bridge=vmbr0"
    } else {
        "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:99:99:99,type=veth"
    }
}

#[tokio::test(start_paused = true)]
async fn x15_a_power_action_on_a_guest_whose_marks_wait_to_change_ends_by_evidence() {
    let uuid = "uuid=11111111-2222-4333-8444-555555555555";
    let number = "11111111-2222-4333-8444-555555555555";
    let cases = [
        (MACHINE, "net0", card(MACHINE)),
        (MACHINE, "smbios1", uuid),
        (MACHINE, "vmgenid", number),
        (CONTAINER, "net0", card(CONTAINER)),
    ];
    for (id, key, value) in cases {
        for (run, stop) in [("stopped", ""), ("stopped", ", stop = \"force\""), ("running", "")] {
            let rig = rig(4);
            wait_for_restart(&rig, id, run == "stopped", key, value);
            let (kind, vmid) = id.split_once('/').unwrap();
            let wanted = format!("guest.{vmid} = {{ kind = \"{kind}\", run = \"{run}\"{stop} }}");
            let wanted = desired(&wanted);
            let lived = rig.live(async |engine| {
                let first = pass(engine, &wanted).await?;
                Ok((first, pass(engine, &wanted).await?, engine.unknown().count()))
            });
            let (first, second, unknown) = lived.await.unwrap().unwrap();
            let case = format!("{id} {key} to {run}{stop}");
            let ends: Vec<&OpOutcome> = first.ops.iter().map(|op| &op.end).collect();
            assert!(matches!(ends[..], [OpOutcome::Succeeded { .. }]), "{case}: {first:?}");
            assert_eq!((second.planned, second.in_sync, unknown), (0, 1, 0), "{case}: {second:?}");
            let applied = rig.node.with(|sim| sim.world.guest(guest(id)).unwrap().config.clone());
            assert!(applied.pending.is_empty(), "{case}: the node applies what waits");
        }
    }
}

/// A guest that is neither what it was nor what it was about to become is another one.
#[tokio::test(start_paused = true)]
async fn x15_a_guest_of_neither_identity_after_a_power_action_is_another() {
    let rig = rig(4);
    wait_for_restart(&rig, MACHINE, true, "net0", card(MACHINE));
    let wanted = desired("guest.101 = { kind = \"qemu\", run = \"stopped\" }");
    let lived = rig.live(async |engine| {
        let report = pass(engine, &wanted).await?;
        Ok((report, engine.unknown().count()))
    });
    let other = async {
        while !rig.node.with(|sim| sim.is_task_running("qmshutdown")) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let other = "virtio=BC:24:11:77:77:77,bridge=vmbr0";
        let set = [("net1".to_owned(), Some(other.to_owned()))].into();
        rig.node.with(|sim| sim.happen(Happens::Edit { guest: guest(MACHINE), set }));
        std::future::pending::<()>().await;
    };
    let (report, unknown) = tokio::select! {
        lived = lived => lived.unwrap().unwrap(),
        () = other => unreachable!("it never ends"),
    };
    assert!(matches!(report.ops[0].end, OpOutcome::Unknown { .. }), "{report:?}");
    assert_eq!(unknown, 1);
}
