//! What somebody asks for and needs no signature: done at once, in the guest's lane, journalled, and never twice.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use evenkeel_agent::engine::{Engine, EngineError, EngineEvent, OpOutcome, OpReport};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event};

use crate::support::*;

const GUEST: &str = "lxc/102";

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

/// A container whose volumes can be snapshotted.
async fn node() -> Rig {
    let rig = rig().await;
    let set =
        BTreeMap::from([("rootfs".to_owned(), Some("local-lvm:vm-102-disk-0,size=8G".to_owned()))]);
    rig.node.with(|sim| {
        let config = &mut sim.world.guest_mut(guest()).unwrap().config;
        config.active.retain(|key, _| !key.starts_with("mp") && !key.starts_with("unused"));
        sim.happen(Event::Edit { guest: guest(), set });
    });
    rig
}

fn given(text: &str) -> BTreeMap<String, String> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    };
    text.split(' ').filter(|text| !text.is_empty()).map(pair).collect()
}

async fn end_of(engine: &mut Engine, op: OperationId) -> OpReport {
    loop {
        if let EngineEvent::Op(report) = engine.work().await.unwrap()
            && report.op == op
        {
            return *report;
        }
    }
}

/// What becomes of what is asked for.
async fn asked(rig: &Rig, op: ActionKind, params: &str) -> Result<OpOutcome, ReasonCode> {
    live(rig, async |engine| {
        Ok(match engine.ask(op, guest(), given(params)).await {
            Ok(op) => Ok(end_of(engine, op).await.end),
            Err(EngineError::Refused(refusal)) => Err(refusal.reason),
            Err(EngineError::Fatal(fatal)) => return Err(fatal),
        })
    })
    .await
}

fn snapshots(rig: &Rig) -> Vec<String> {
    rig.node.with(|sim| {
        let config = &sim.world.guest(guest()).unwrap().config;
        config.snapshots.iter().map(|snapshot| snapshot.name.clone()).collect()
    })
}

fn archives(rig: &Rig) -> usize {
    rig.node.with(|sim| {
        let volumes = sim.world.storages["store"].volumes.values();
        volumes.filter(|volume| volume.archive.is_some()).count()
    })
}

fn sent(rig: &Rig, last: &str) -> usize {
    let is_it =
        |record: &&evenkeel_sim::RequestRecord| record.mutating && record.path.ends_with(last);
    rig.node.with(|sim| sim.records().iter().filter(is_it).count())
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_and_a_backup_are_made_at_once_and_without_a_signature() {
    let rig = node().await;
    let end = asked(&rig, ActionKind::Snapshot, "snapname=before description=mine").await;
    assert!(matches!(end, Ok(OpOutcome::Succeeded { .. })), "{end:?}");
    assert_eq!(snapshots(&rig), ["before"]);
    let end = asked(&rig, ActionKind::Backup, "storage=store").await;
    assert!(matches!(end, Ok(OpOutcome::Succeeded { .. })), "{end:?}");
    assert_eq!(archives(&rig), 1);
    let waits = live(&rig, async |engine| engine.pending().await).await;
    assert!(waits.is_empty(), "nobody has to sign");
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let rig = node().await;
    asked(&rig, ActionKind::Snapshot, "snapname=before").await.unwrap();
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    for (op, params, reason) in [
        (ActionKind::Snapshot, "", ReasonCode::Payload),
        (ActionKind::Snapshot, "snapname=current", ReasonCode::Payload),
        (ActionKind::Snapshot, "snapname=before", ReasonCode::Payload),
        (ActionKind::Snapshot, "snapname=a/b", ReasonCode::Payload),
        (ActionKind::Snapshot, "snapname=x vmstate=1", ReasonCode::NotExecutable),
        (ActionKind::Backup, "", ReasonCode::Payload),
        (ActionKind::Backup, "storage=store mode=stop", ReasonCode::Payload),
        (ActionKind::Backup, "storage=store remove=1", ReasonCode::NotExecutable),
        (ActionKind::Backup, "storage=nowhere", ReasonCode::Storage),
        (ActionKind::Backup, "storage=tank", ReasonCode::Storage),
    ] {
        let told = asked(&rig, op, params).await;
        assert_eq!(told.map_err(|told| told == reason), Err(true), "{op} {params}");
    }
    rig.node.with(|sim| sim.happen(Event::Lock { guest: guest(), lock: Some("backup".into()) }));
    let told = asked(&rig, ActionKind::Snapshot, "snapname=locked").await;
    assert_eq!(told, Err(ReasonCode::Locked));
    assert_eq!((sent(&rig, "/snapshot"), sent(&rig, "/vzdump")), (0, 0));
}

/// A freeze is for everybody; that a host only observes is for what it plans.
#[tokio::test(start_paused = true)]
async fn a_frozen_host_takes_no_snapshot_and_an_observing_one_does() {
    let rig = node().await;
    rig.frozen.store(true, Ordering::Relaxed);
    let end = asked(&rig, ActionKind::Snapshot, "snapname=frozen").await.unwrap();
    assert_eq!(end.reason(), Some(ReasonCode::Frozen), "{end:?}");
    assert_eq!(sent(&rig, "/snapshot"), 0);
    rig.frozen.store(false, Ordering::Relaxed);
    rig.observes.store(true, Ordering::Relaxed);
    let end = asked(&rig, ActionKind::Snapshot, "snapname=seen").await;
    assert!(matches!(end, Ok(OpOutcome::Succeeded { .. })), "{end:?}");
}

/// A job keeps three: if ours counted among them, its next run would remove the oldest.
#[tokio::test(start_paused = true)]
async fn y11_a_backup_on_request_is_protected_and_costs_no_older_one() {
    let rig = node().await;
    let retention = |keep_last, max_protected| {
        let storage = "store".to_owned();
        rig.node.with(|sim| sim.happen(Event::Retention { storage, keep_last, max_protected }));
    };
    retention(Some(3), Some(1));
    let job = [("vmid", "102"), ("storage", "store"), ("remove", "1")];
    foreign(&rig, "POST", "vzdump", &job).await;
    foreign(&rig, "POST", "vzdump", &job).await;
    let listed = |rig: &Rig| -> Vec<(String, bool)> {
        rig.node.with(|sim| {
            let volumes = sim.world.storages["store"].volumes.iter();
            let archives = volumes.filter(|(_, volume)| volume.archive.is_some());
            archives.map(|(name, volume)| (name.clone(), volume.protected)).collect()
        })
    };
    let older = listed(&rig);
    assert_eq!(older.len(), 2);
    let end = asked(&rig, ActionKind::Backup, "storage=store").await;
    assert!(matches!(end, Ok(OpOutcome::Succeeded { .. })), "{end:?}");
    foreign(&rig, "POST", "vzdump", &job).await;
    let now = listed(&rig);
    assert!(older.iter().all(|archive| now.contains(archive)), "{older:?} are not in {now:?}");
    assert_eq!(now.iter().filter(|(_, protected)| *protected).count(), 1, "{now:?}");
    // Where no further one may be protected nothing is begun.
    retention(None, Some(1));
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    assert_eq!(asked(&rig, ActionKind::Backup, "storage=store").await, Err(ReasonCode::Storage));
    assert_eq!(sent(&rig, "/vzdump"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_backup_whose_task_fails_is_not_called_done() {
    let rig = node().await;
    let fails = Effect::TaskFails { message: "job errors".to_owned() }.on(":vzdump:");
    rig.node.with(|sim| sim.inject(fails));
    let end = asked(&rig, ActionKind::Backup, "storage=store").await.unwrap();
    assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
}

/// A crash at every await point: nothing is sent twice, and the journal tells the truth.
#[tokio::test(start_paused = true)]
async fn what_is_asked_for_survives_a_crash_at_every_step() {
    for (op, params, last) in [
        (ActionKind::Snapshot, "snapname=before", "/snapshot"),
        (ActionKind::Backup, "storage=store", "/vzdump"),
    ] {
        let mut polls = 1;
        let mut made = 0;
        loop {
            let rig = node().await;
            let life = rig.live(async |engine| {
                let op = engine.ask(op, guest(), given(params)).await.unwrap();
                Ok(end_of(engine, op).await)
            });
            let done = crash_after(polls, life).await.is_some();
            let rig = Rig { disk: rig.disk.after_crash(0, 0), ..rig };
            let before = sent(&rig, last);
            afterwards(&rig, &desired("")).await;
            assert_eq!(sent(&rig, last), before, "after {polls} polls a restart sent something");
            assert!(before <= 1, "after {polls} polls it was sent {before} times");
            let open = live(&rig, async |engine| Ok(engine.unknown().count())).await;
            assert_eq!(open, 0, "after {polls} polls: the list proves what was made");
            made += usize::from(archives(&rig) + snapshots(&rig).len() > 0);
            if done {
                break;
            }
            polls += 1;
        }
        println!("{op}: {polls} crash points, {made} made");
        assert!(polls > 8 && made > 1);
    }
}
