//! Detached volumes that are removed by signature: never while a snapshot names them, and done only when their storage lists
//! them no more.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_agent::engine::{EngineError, OpOutcome};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{fault, put_guest};
use evenkeel_sim::{Effect, Event, SnapshotSection};

use crate::support::*;

const VOLUME: &str = "tank:vm-300-disk-1";

/// A node with one guest more, which has a detached volume; a snapshot names it, or not.
async fn node(guest: &str, in_snapshot: bool) -> Rig {
    let rig = rig().await;
    let first = if guest.starts_with("lxc") { "rootfs" } else { "scsi0" };
    let system = if guest.starts_with("lxc") { ("arch", "amd64") } else { ("ostype", "l26") };
    let config = [(first, "local-lvm:vm-300-disk-0,size=8G"), ("unused0", VOLUME), system];
    put_guest(&rig, guest, &config, false);
    if in_snapshot {
        let slot = if guest.starts_with("lxc") { "mp0" } else { "scsi1" };
        let section = [(slot, format!("{VOLUME},size=4G")), ("snaptime", "1".to_owned())];
        let section = section.map(|(key, value)| (key.to_owned(), value)).into();
        let snapshot = SnapshotSection { name: "before".to_owned(), section };
        rig.node.with(|sim| {
            sim.world.guest_mut(id(guest)).unwrap().config.snapshots.push(snapshot);
        });
    }
    rig
}

fn id(guest: &str) -> GuestId {
    guest.parse().unwrap()
}

fn is_whole(rig: &Rig) -> bool {
    let has = |storages: &BTreeMap<String, evenkeel_sim::Storage>| {
        storages.get("tank").is_some_and(|tank| tank.volumes.contains_key("vm-300-disk-1"))
    };
    rig.node.with(|sim| has(&sim.world.storages) || has(&sim.world.undefined))
}

fn slot() -> BTreeMap<String, String> {
    [("slot".to_owned(), "unused0".to_owned())].into()
}

#[tokio::test(start_paused = true)]
async fn y07_no_item_is_raised_for_a_volume_that_a_snapshot_names() {
    for guest in ["lxc/300", "qemu/300"] {
        let rig = node(guest, true).await;
        let refused = live(&rig, async |engine| {
            match engine.request(ActionKind::DeleteVolume, id(guest), slot()).await {
                Err(EngineError::Refused(refusal)) => Ok(refusal),
                other => panic!("{other:?}"),
            }
        });
        let refused = refused.await;
        assert_eq!(refused.reason, ReasonCode::After);
        assert!(
            refused.detail.contains("`before`") && refused.detail.contains(VOLUME),
            "{refused}"
        );
        let waits = live(&rig, async |engine| engine.pending().await).await;
        assert!(waits.is_empty() && writes(&rig, guest).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn y07_a_volume_that_no_snapshot_names_goes_by_signature() {
    for guest in ["lxc/300", "qemu/300"] {
        let rig = node(guest, false).await;
        live(&rig, async |engine| {
            engine.request(ActionKind::DeleteVolume, id(guest), slot()).await.unwrap();
            let approval = anna().approve(&item(engine).await, 7, now(&rig));
            let report = carried_out(engine, &approval).await;
            assert_eq!(report.end, OpOutcome::Succeeded { warning: None }, "{report:?}");
            Ok(())
        })
        .await;
        assert!(!is_whole(&rig), "{guest}");
    }
}

/// A machine's file forgets a volume whose storage is unknown, and the data is whole: nobody may say that it is gone.
#[tokio::test(start_paused = true)]
async fn y07_a_volume_whose_data_is_whole_is_never_called_removed() {
    let rig = node("qemu/300", false).await;
    let approval = live(&rig, async |engine| {
        engine.request(ActionKind::DeleteVolume, id("qemu/300"), slot()).await.unwrap();
        Ok(anna().approve(&item(engine).await, 7, now(&rig)))
    })
    .await;
    fault(&rig, Effect::Latency { ms: 5_000 }, "POST", "/qemu/300/config", 1);
    let life = live(&rig, async |engine| Ok(carried_out(engine, &approval).await));
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(writes(&rig, "qemu/300").len(), 1, "it is on its way");
        rig.node.with(|sim| sim.happen(Event::UndefineStorage { storage: "tank".to_owned() }));
    };
    let (report, ()) = tokio::join!(life, meanwhile);
    let keys = rig.node.with(|sim| {
        let found = sim.world.guest(id("qemu/300")).unwrap();
        found.config.active.keys().cloned().collect::<Vec<_>>()
    });
    assert!(!keys.contains(&"unused0".to_owned()), "its file has forgotten it: {keys:?}");
    assert!(is_whole(&rig));
    assert!(
        matches!(report.end, OpOutcome::Unknown { .. } | OpOutcome::Failed { .. }),
        "{report:?}"
    );
    // Nor later, when its storage is there again and lists it.
    rig.node.with(|sim| sim.happen(Event::DefineStorage { storage: "tank".to_owned() }));
    afterwards(&rig, &desired("")).await;
    assert!(is_whole(&rig) && !was_called_removed(&rig));
}

/// Whether the journal says that the volume is gone.
fn was_called_removed(rig: &Rig) -> bool {
    let lines = evenkeel_harness::script::journal(rig);
    let begun = lines.iter().find(|line| line["kind"] == "delete_volume").unwrap();
    let mut of_it = lines.iter().filter(|line| line["op"] == begun["op"]);
    of_it.any(|line| line["state"] == "succeeded")
}

/// A guest that goes to another node takes its volumes along: that its storage here lists one no longer says nothing.
#[tokio::test(start_paused = true)]
async fn y07_a_volume_that_went_to_another_node_is_never_called_removed() {
    let rig = node("qemu/300", false).await;
    let approval = live(&rig, async |engine| {
        engine.request(ActionKind::DeleteVolume, id("qemu/300"), slot()).await.unwrap();
        Ok(anna().approve(&item(engine).await, 7, now(&rig)))
    })
    .await;
    fault(&rig, Effect::DropBefore, "POST", "/qemu/300/config", 1);
    let life = live(&rig, async |engine| Ok(carried_out(engine, &approval).await));
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        rig.node.with(|sim| sim.happen(Event::MigrateAway { guest: id("qemu/300") }));
        tokio::time::sleep(Duration::from_mins(10)).await;
    };
    tokio::select! {
        report = life => panic!("nobody can know how it ended: {report:?}"),
        () = meanwhile => {}
    }
    assert!(!was_called_removed(&rig));
    rig.node.with(|sim| {
        sim.happen(Event::MigrateBack { guest: id("qemu/300"), another: false });
    });
    assert!(is_whole(&rig));
}
