//! Volumes, with the real engine against the simulator: what it sends for a drive that grows, what it remembers of a mount
//! point that left its slot, and that no volume is forgotten or called nobody's.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::Report;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    desired, edit, fault, finish, journal, one_life, pass, put_guest, rig, states, stored, writes,
};
use evenkeel_sim::{Effect, Event, OddValue, SnapshotSection};

const VOLUME: &str = "tank:subvol-300-disk-1";
const ROOT: (&str, &str) = ("rootfs", "tank:subvol-300-disk-0,size=8G");

/// A node with one guest more.
fn with(guest: &str, config: &[(&str, &str)], running: bool) -> Rig {
    let rig = rig(2);
    put_guest(&rig, guest, config, running);
    rig
}

#[tokio::test(start_paused = true)]
async fn x15_a_drive_that_grows_and_changes_another_part_is_done_in_one_pass() {
    let machine = [("scsi0", "tank:vm-300-disk-0,size=8G"), ("ide0", "tank:vm-300-disk-1,size=8G")];
    let container = [ROOT, ("mp0", "tank:subvol-300-disk-1,mp=/data,size=8G")];
    for (guest, config, wanted, running) in [
        ("qemu/300", &machine[..], "scsi0 = \"tank:16,discard=on\"", false),
        ("qemu/300", &machine[..], "scsi0 = \"tank:16,mbps=10\"", true),
        ("qemu/300", &machine[..], "ide0 = \"tank:vm-300-disk-1,size=16G,ssd=1\"", false),
        ("lxc/300", &container[..], "mp0 = \"tank:16,mp=/data,ro=1\"", false),
    ] {
        let rig = with(guest, config, running);
        let kind = guest.split('/').next().unwrap();
        let wanted = format!("[guest.300]\nkind = \"{kind}\"\n{wanted}\n");
        let first = one_life(&rig, &wanted).await;
        assert_eq!((first.planned, first.succeeded, first.held), (2, 2, 0), "{wanted}{first:?}");
        let second = one_life(&rig, &wanted).await;
        assert_eq!((second.planned, second.in_sync), (0, 1), "{wanted}{second:?}");
        assert_eq!(writes(&rig).len(), 2, "{wanted}{:?}", writes(&rig));
    }
}

const DETACHED: &str = "[guest.300]\nkind = \"lxc\"\nunset = [\"mp0\"]\n";

fn attached(backup: &str) -> String {
    format!("[guest.300]\nkind = \"lxc\"\nmp0 = \"{VOLUME},mp=/data{backup}\"\n")
}

#[tokio::test(start_paused = true)]
async fn x11_a_mount_point_that_was_in_backups_comes_back_without_them_only_by_a_signature() {
    let mount = format!("{VOLUME},mp=/data,backup=1,size=8G");
    let rig = with("lxc/300", &[ROOT, ("mp0", &mount)], false);
    assert_eq!(one_life(&rig, DETACHED).await.succeeded, 1);
    assert_eq!(stored(&rig, "lxc/300", "unused0").as_deref(), Some(VOLUME));
    let report = one_life(&rig, &attached("")).await;
    let reasons: Vec<ReasonCode> = report.holds.iter().map(|hold| hold.reason).collect();
    assert_eq!((report.started, &reasons[..]), (0, &[ReasonCode::PendingSignature][..]));
    assert_eq!(writes(&rig).len(), 1, "{:?}", writes(&rig));
    assert_eq!(one_life(&rig, &attached(",backup=1")).await.succeeded, 1);
}

#[tokio::test(start_paused = true)]
async fn x11_the_journal_remembers_through_restarts_that_no_backup_held_a_mount_point() {
    let mount = format!("{VOLUME},mp=/data,size=8G");
    let rig = with("lxc/300", &[ROOT, ("mp0", &mount)], false);
    assert_eq!(one_life(&rig, DETACHED).await.succeeded, 1);
    // A life in between, in which nothing happens and nothing is written.
    let lines = journal(&rig).len();
    assert_eq!(one_life(&rig, DETACHED).await.in_sync, 1);
    assert_eq!(journal(&rig).len(), lines);
    let report = one_life(&rig, &attached("")).await;
    assert_eq!((report.succeeded, report.held), (1, 0), "{report:?}");
    let lines = journal(&rig).len();
    assert_eq!(one_life(&rig, &attached("")).await.in_sync, 1);
    assert_eq!(journal(&rig).len(), lines, "at rest nothing is written");
}

#[tokio::test(start_paused = true)]
async fn x11_what_is_remembered_ends_when_somebody_puts_the_volume_into_backups() {
    let mount = format!("{VOLUME},mp=/data,size=8G");
    let saved = format!("{VOLUME},mp=/data,backup=1,size=8G");
    let rig = with("lxc/300", &[ROOT, ("mp0", &mount)], false);
    assert_eq!(one_life(&rig, DETACHED).await.succeeded, 1);
    edit(&rig, "lxc/300", &[("mp5", Some(&saved)), ("unused0", None)]);
    one_life(&rig, DETACHED).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    edit(&rig, "lxc/300", &[("mp5", None), ("unused0", Some(VOLUME))]);
    let report = one_life(&rig, &attached("")).await;
    let reasons: Vec<ReasonCode> = report.holds.iter().map(|hold| hold.reason).collect();
    assert_eq!((report.started, &reasons[..]), (0, &[ReasonCode::PendingSignature][..]));
}

const MACHINE: [(&str, &str); 2] =
    [("scsi0", "local-lvm:vm-300-disk-0,size=8G"), ("scsi1", "tank:vm-300-disk-1,size=4G")];
const CONTAINER: [(&str, &str); 4] = [
    ("arch", "amd64"),
    ("ostype", "debian"),
    ("rootfs", "local-lvm:vm-300-disk-0,size=8G"),
    ("mp0", "tank:subvol-300-disk-1,mp=/data,size=4G"),
];

fn happens(rig: &Rig, event: Event) {
    rig.node.with(|sim| sim.happen(event));
}

fn undefine(rig: &Rig) {
    happens(rig, Event::UndefineStorage { storage: "tank".to_owned() });
}

fn define(rig: &Rig) {
    happens(rig, Event::DefineStorage { storage: "tank".to_owned() });
}

/// What a lane held.
fn holds(report: &Report) -> Vec<(ReasonCode, String)> {
    report.ops.iter().filter_map(|op| Some((op.end.reason()?, op.end.words()))).collect()
}

#[tokio::test(start_paused = true)]
async fn y05_a_volume_is_not_detached_while_its_storage_is_not_defined() {
    for (guest, config, slot, volume) in [
        ("qemu/300", &MACHINE[..], "scsi1", "tank:vm-300-disk-1"),
        ("lxc/300", &CONTAINER[..], "mp0", "tank:subvol-300-disk-1"),
    ] {
        let rig = with(guest, config, false);
        undefine(&rig);
        let kind = guest.split('/').next().unwrap();
        let wanted = format!("[guest.300]\nkind = \"{kind}\"\nunset = [\"{slot}\"]\n");
        let report = one_life(&rig, &wanted).await;
        let [(ReasonCode::Storage, why)] = &holds(&report)[..] else { panic!("{report:?}") };
        assert!(why.contains("no storage tank") && why.contains(volume), "{why}");
        assert_eq!(writes(&rig).len(), 0, "{:?}", writes(&rig));
        let lines = journal(&rig).len();
        one_life(&rig, &wanted).await;
        assert_eq!(journal(&rig).len(), lines, "what is held is not written again");
        define(&rig);
        assert_eq!(one_life(&rig, &wanted).await.succeeded, 1);
        assert_eq!(stored(&rig, guest, "unused0").as_deref(), Some(volume));
    }
}

/// Somebody else had it detached; a start, a stop and any write to a stopped machine carry that out.
#[tokio::test(start_paused = true)]
async fn y05_what_waits_to_be_detached_waits_until_its_storage_is_defined() {
    for (running, wanted) in
        [(false, "run = \"running\""), (true, "run = \"stopped\""), (false, "cores = 3")]
    {
        let rig = with("qemu/300", &MACHINE, running);
        rig.node.with(|sim| {
            let found = sim.world.guest_mut("qemu/300".parse().unwrap()).unwrap();
            found.config.pending_delete.insert("scsi1".to_owned(), false);
        });
        undefine(&rig);
        let wanted = format!("[guest.300]\nkind = \"qemu\"\n{wanted}\n");
        let report = one_life(&rig, &wanted).await;
        assert!(
            holds(&report).iter().any(|(reason, _)| *reason == ReasonCode::Storage),
            "{report:?}"
        );
        assert_eq!(writes(&rig).len(), 0, "{wanted}{:?}", writes(&rig));
        assert!(stored(&rig, "qemu/300", "scsi1").is_some(), "{wanted}");
    }
}

/// The storage goes in the very moment in which the write is on its way.
#[tokio::test(start_paused = true)]
async fn y05_a_volume_that_nothing_names_after_a_write_is_told_and_shuts_the_lane() {
    let rig = with("qemu/300", &MACHINE, false);
    let wanted = "[guest.300]\nkind = \"qemu\"\nunset = [\"scsi1\"]\n";
    let declared = desired(wanted);
    fault(&rig, Effect::Latency { ms: 5_000 }, "POST", "/qemu/300/config", 1);
    let life = rig.live(async |engine| {
        pass(engine, &declared).await?;
        finish(engine).await
    });
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(writes(&rig).len(), 1, "it is on its way");
        undefine(&rig);
    };
    let (lived, ()) = tokio::join!(life, meanwhile);
    lived.unwrap().unwrap();
    assert_eq!(
        (stored(&rig, "qemu/300", "scsi1"), stored(&rig, "qemu/300", "unused0")),
        (None, None)
    );
    assert_eq!(states(&rig).last().map(String::as_str), Some("unknown"), "{:?}", states(&rig));
    let lines = journal(&rig);
    let told = lines.iter().rev().find_map(|line| line["reason"].as_str()).unwrap();
    assert!(told.contains("tank:vm-300-disk-1") && told.contains("qm rescan --vmid 300"), "{told}");
    // It stays so, through restarts, and nothing more is sent.
    let report = one_life(&rig, &format!("{wanted}cores = 3\n")).await;
    assert_eq!((report.started, writes(&rig).len()), (0, 1), "{report:?}");
    // Somebody does what they were told: the evidence ends it.
    define(&rig);
    edit(&rig, "qemu/300", &[("unused0", Some("tank:vm-300-disk-1"))]);
    tokio::time::sleep(Duration::from_mins(5)).await;
    rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
    one_life(&rig, wanted).await;
    assert_eq!(states(&rig).last().map(String::as_str), Some("succeeded"), "{:?}", states(&rig));
}

/// A snapshot's section as Proxmox VE keeps it.
fn snapshot(rig: &Rig, guest: &str, key: &str, value: &str) {
    let section = [(key.to_owned(), value.to_owned()), ("snaptime".to_owned(), "1".to_owned())];
    let snapshot = SnapshotSection { name: "before".to_owned(), section: section.into() };
    rig.node.with(|sim| {
        sim.world.guest_mut(guest.parse().unwrap()).unwrap().config.snapshots.push(snapshot);
        let (volume, _) = value.split_once(',').unwrap_or((value, ""));
        let (storage, name) = volume.split_once(':').unwrap();
        let storage = sim.world.storages.get_mut(storage).unwrap();
        storage.put_file(name, "images", "raw", 4 << 30);
        storage.volumes.get_mut(name).unwrap().vmid = Some(300.try_into().unwrap());
    });
}

#[tokio::test(start_paused = true)]
async fn y08_what_a_snapshot_names_is_not_called_nobodys() {
    for (guest, config, slot, key, wanted) in [
        ("lxc/300", &CONTAINER[..], "mp1", "mp5", ", mp = \"/srv\""),
        ("qemu/300", &MACHINE[..], "scsi2", "scsi5", ""),
    ] {
        let rig = with(guest, config, false);
        snapshot(&rig, guest, key, "tank:vm-300-disk-7,size=4G");
        let kind = guest.split('/').next().unwrap();
        let wanted = format!(
            "[guest.300]\nkind = \"{kind}\"\n{slot} = {{ storage = \"tank\", size = \"1GiB\"{wanted} }}\n"
        );
        let report = one_life(&rig, &wanted).await;
        assert_eq!((report.succeeded, report.held), (1, 0), "{guest} {report:?}");
        assert!(stored(&rig, guest, slot).unwrap().starts_with("tank:"));
    }
}

/// What is told of a lock that a killed task left must not send anybody to remove a snapshot's data either.
#[tokio::test(start_paused = true)]
async fn y08_a_left_lock_does_not_name_a_snapshots_volume_as_left_behind() {
    for (in_snapshot, told) in [(true, false), (false, true)] {
        let rig = with("lxc/300", &CONTAINER, false);
        snapshot(&rig, "lxc/300", "mp5", "tank:vm-300-disk-7,size=4G");
        rig.node.with(|sim| {
            let found = sim.world.guest_mut("lxc/300".parse().unwrap()).unwrap();
            found.config.active.insert("lock".to_owned(), "disk".to_owned());
            if !in_snapshot {
                found.config.snapshots.clear();
            }
        });
        let report = one_life(&rig, "[guest.300]\nkind = \"lxc\"\ncores = 3\n").await;
        let all = format!("{:?}", report.holds);
        assert!(all.contains("pct unlock 300"), "{all}");
        assert_eq!(all.contains("tank:vm-300-disk-7"), told, "{all}");
    }
}

/// A row that lost its owner may be what an earlier write left: nothing is allocated beside it.
#[tokio::test(start_paused = true)]
async fn y03_a_volume_whose_owner_is_not_told_holds_a_new_one() {
    for becomes in [OddValue::Object, OddValue::List, OddValue::Null, OddValue::Missing] {
        let rig = with("lxc/300", &[ROOT], false);
        rig.node.with(|sim| {
            let tank = sim.world.storages.get_mut("tank").unwrap();
            tank.put_file("subvol-300-disk-7", "images", "raw", 1 << 30);
            tank.volumes.get_mut("subvol-300-disk-7").unwrap().vmid = Some(300.try_into().unwrap());
            let row = Some("subvol-300-disk-7".to_owned());
            let field = Some("vmid".to_owned());
            sim.inject(Effect::OddRow { row, field, becomes }.on("/content"));
        });
        let wanted = "[guest.300]\nkind = \"lxc\"\nmp1 = \"tank:1,mp=/srv\"\n";
        let report = one_life(&rig, wanted).await;
        assert!(writes(&rig).is_empty(), "{becomes:?} {report:?}");
        let held = report.ops.iter().find_map(|op| op.end.reason());
        assert_eq!(held, Some(ReasonCode::Storage), "{becomes:?} {report:?}");
    }
}
