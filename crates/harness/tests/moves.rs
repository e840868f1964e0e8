//! Moving, attaching and detaching volumes, with the real engine against the simulator: nothing is lost, no copy is
//! made twice, and what stands in the way is said by name.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::Report;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    desired, edit, executed, fault, finish, journal, one_life, pass, polls, put_guest, rig, states,
    stored, until, writes,
};
use evenkeel_sim::{Effect, Event as Happens};

const LXC: &str = "lxc/300";
const QEMU: &str = "qemu/300";

/// A node with one guest more.
fn with(guest: &str, config: &[(&str, &str)], running: bool) -> Rig {
    let rig = rig(2);
    put_guest(&rig, guest, config, running);
    rig
}

fn container(running: bool) -> Rig {
    let config = [
        ("arch", "amd64"),
        ("ostype", "debian"),
        ("rootfs", "local-lvm:vm-300-disk-0,size=8G"),
        ("mp0", "local-lvm:vm-300-disk-1,mp=/data,size=4G"),
    ];
    with(LXC, &config, running)
}

fn machine(running: bool) -> Rig {
    with(QEMU, &[("scsi0", "local-lvm:vm-300-disk-0,size=8G")], running)
}

fn wanted(guest: &str, lines: &str) -> String {
    format!("[guest.300]\nkind = \"{}\"\n{lines}\n", guest.split('/').next().unwrap())
}

const MOUNT_ON_TANK: &str = "mp0 = { storage = \"tank\", size = \"4GiB\", mp = \"/data\" }";
const DRIVE_ON_TANK: &str = "scsi0 = { storage = \"tank\", size = \"8GiB\" }";

/// What is under way is taken up, and then passes run until nothing happens any more.
async fn settled(rig: &Rig, wanted: &str) -> Report {
    rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
    let mut last = one_life(rig, wanted).await;
    for _ in 0..4 {
        // Long enough for what failed to be tried again.
        tokio::time::sleep(Duration::from_mins(70)).await;
        last = one_life(rig, wanted).await;
    }
    last
}

/// A volume of guest 300 that hangs on nothing.
fn orphan(rig: &Rig, volume: &str) {
    let (storage, name) = volume.split_once(':').unwrap();
    rig.node.with(|sim| {
        let storage = sim.world.storages.get_mut(storage).unwrap();
        storage.put_file(name, "images", "raw", 4 << 30);
        storage.volumes.get_mut(name).unwrap().vmid = Some(300.try_into().unwrap());
    });
}

/// Somebody frees a volume.
fn free(rig: &Rig, volume: &str) {
    let (storage, name) = volume.split_once(':').unwrap();
    let freed =
        rig.node.with(|sim| sim.world.storages.get_mut(storage).unwrap().volumes.remove(name));
    assert!(freed.is_some(), "{volume} does not exist");
}

/// The volumes of guest 300 on a storage.
fn volumes(rig: &Rig, storage: &str) -> Vec<String> {
    rig.node.with(|sim| {
        let all = sim.world.storages[storage].volumes.iter();
        let own = all.filter(|(_, volume)| volume.vmid.is_some_and(|vmid| vmid.get() == 300));
        own.map(|(name, _)| format!("{storage}:{name}")).collect()
    })
}

fn holds(report: &Report) -> Vec<(ReasonCode, &str)> {
    report.holds.iter().map(|hold| (hold.reason, hold.why.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_volume_moves_and_the_old_one_stays() {
    for (rig, guest, lines, slot, old) in [
        (container(false), LXC, MOUNT_ON_TANK, "mp0", "local-lvm:vm-300-disk-1"),
        (machine(false), QEMU, DRIVE_ON_TANK, "scsi0", "local-lvm:vm-300-disk-0"),
        (machine(true), QEMU, DRIVE_ON_TANK, "scsi0", "local-lvm:vm-300-disk-0"),
    ] {
        let wanted = wanted(guest, lines);
        let report = one_life(&rig, &wanted).await;
        assert_eq!((report.succeeded, report.held, report.failed), (1, 0, 0), "{report:?}");
        let sent = writes(&rig);
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert!(stored(&rig, guest, slot).unwrap().starts_with("tank:"));
        assert_eq!(stored(&rig, guest, "unused0").as_deref(), Some(old));
        assert!(volumes(&rig, "local-lvm").contains(&old.to_owned()));
        let lines = journal(&rig).len();
        let report = one_life(&rig, &wanted).await;
        assert_eq!((report.in_sync, report.planned), (1, 0), "{report:?}");
        assert_eq!((writes(&rig).len(), journal(&rig).len()), (1, lines), "at rest");
    }
}

#[tokio::test(start_paused = true)]
async fn the_journal_says_that_the_source_stays() {
    let rig = container(false);
    one_life(&rig, &wanted(LXC, MOUNT_ON_TANK)).await;
    let lines = journal(&rig);
    let started = lines.iter().find(|line| line["state"] == "started").unwrap();
    let params = &started["params"];
    let told = ["delete", "storage", "volume"].map(|name| params[name].as_str().unwrap());
    assert_eq!(told, ["0", "tank", "mp0"], "{started}");
    assert_eq!(started["before"]["mp0"], "local-lvm:vm-300-disk-1,mp=/data,size=4G");
}

#[tokio::test(start_paused = true)]
async fn a_running_container_is_not_moved_and_the_sentence_says_why() {
    let rig = container(true);
    let report = one_life(&rig, &wanted(LXC, MOUNT_ON_TANK)).await;
    let why = "a container's volumes move only while it is stopped";
    assert_eq!(holds(&report), [(ReasonCode::After, why)]);
    assert_eq!(writes(&rig).len(), 0);
    // Once it is declared stopped, it is shut down, moved, and started again as declared.
    let stopped = wanted(LXC, &format!("run = \"stopped\"\n{MOUNT_ON_TANK}"));
    assert_eq!(one_life(&rig, &stopped).await.succeeded, 1);
    assert_eq!(one_life(&rig, &stopped).await.succeeded, 1);
    let running = wanted(LXC, &format!("run = \"running\"\n{MOUNT_ON_TANK}"));
    assert_eq!(one_life(&rig, &running).await.succeeded, 1);
    assert_eq!(one_life(&rig, &running).await.in_sync, 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_moves_and_grows_does_both_in_one_pass_in_this_order() {
    let rig = machine(true);
    let larger = wanted(QEMU, "scsi0 = { storage = \"tank\", size = \"16GiB\" }");
    let report = one_life(&rig, &larger).await;
    assert_eq!((report.succeeded, report.failed), (2, 0), "{report:?}");
    let paths: Vec<String> = writes(&rig).into_iter().map(|record| record.path).collect();
    assert!(paths[0].ends_with("/move_disk") && paths[1].ends_with("/resize"), "{paths:?}");
    assert!(stored(&rig, QEMU, "scsi0").unwrap().ends_with("size=16G"));
    assert_eq!(one_life(&rig, &larger).await.in_sync, 1);
}

#[tokio::test(start_paused = true)]
async fn what_else_differs_of_a_slot_follows_its_move() {
    let rig = machine(false);
    let lines = "scsi0 = { storage = \"tank\", size = \"8GiB\", discard = \"on\" }";
    assert_eq!(one_life(&rig, &wanted(QEMU, lines)).await.succeeded, 1);
    assert_eq!(one_life(&rig, &wanted(QEMU, lines)).await.succeeded, 1);
    assert_eq!(one_life(&rig, &wanted(QEMU, lines)).await.in_sync, 1);
    let drive = stored(&rig, QEMU, "scsi0").unwrap();
    assert!(drive.starts_with("tank:") && drive.contains("discard=on"), "{drive}");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_not_moved_again_while_its_old_volume_hangs_there() {
    let rig = machine(false);
    let back = wanted(QEMU, "scsi0 = { storage = \"local-lvm\", size = \"8GiB\" }");
    assert_eq!(one_life(&rig, &wanted(QEMU, DRIVE_ON_TANK)).await.succeeded, 1);
    // In another life, and after one in which nobody declared the guest.
    one_life(&rig, "[guest.100]\nkind = \"lxc\"\n").await;
    for _ in 0..3 {
        let report = one_life(&rig, &back).await;
        let holds = holds(&report);
        assert_eq!(holds.len(), 1, "{report:?}");
        assert_eq!(holds[0].0, ReasonCode::Storage);
        assert!(holds[0].1.contains("local-lvm:vm-300-disk-0 in unused0"), "{holds:?}");
        assert!(holds[0].1.contains("request delete_volume qemu/300 slot=unused0"), "{holds:?}");
    }
    assert_eq!(writes(&rig).len(), 1);
    // Somebody has it removed: the way is free.
    edit(&rig, QEMU, &[("unused0", None)]);
    free(&rig, "local-lvm:vm-300-disk-0");
    let report = one_life(&rig, &back).await;
    assert_eq!((report.succeeded, report.held), (1, 0), "{report:?}");
    assert_eq!(one_life(&rig, &back).await.in_sync, 1);
}

/// The guest is there all the time, only not for our token, or not on this node: what was moved is not forgotten.
#[tokio::test(start_paused = true)]
async fn a_guest_that_is_hidden_or_away_for_a_while_is_not_moved_again_either() {
    let back = wanted(QEMU, "scsi0 = { storage = \"local-lvm\", size = \"8GiB\" }");
    let other = "[guest.100]\nkind = \"lxc\"\n";
    for (meanwhile, is_away) in
        [(back.as_str(), false), (other, false), (back.as_str(), true), (other, true)]
    {
        let rig = machine(false);
        let guest = QEMU.parse().unwrap();
        assert_eq!(one_life(&rig, &wanted(QEMU, DRIVE_ON_TANK)).await.succeeded, 1);
        let holder = evenkeel_sim::TOKENS[0].0;
        let path = "/vms/300";
        rig.node.with(|sim| {
            if is_away {
                sim.happen(Happens::MigrateAway { guest });
            } else {
                let access = &mut sim.world.access;
                access.tokens.get_mut(holder).unwrap().separated = true;
                access.grant("/", holder, "Administrator");
                let holder = holder.to_owned();
                let path = path.to_owned();
                let privilege = "VM.Audit".to_owned();
                sim.happen(Happens::Withhold { holder, path, privilege });
            }
        });
        tokio::time::sleep(Duration::from_mins(10)).await;
        one_life(&rig, meanwhile).await;
        rig.node.with(|sim| {
            if is_away {
                sim.happen(Happens::MigrateBack { guest, another: false });
            } else {
                sim.world.access.revoke(path, holder);
            }
        });
        tokio::time::sleep(Duration::from_mins(10)).await;
        let report = one_life(&rig, &back).await;
        let holds = holds(&report);
        assert_eq!(holds.len(), 1, "{is_away} {report:?}");
        assert!(holds[0].1.contains("local-lvm:vm-300-disk-0 in unused0"), "{holds:?}");
        assert_eq!(writes(&rig).len(), 1, "{is_away}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_volume_of_a_guest_can_be_moved_and_each_leaves_its_own() {
    let rig = container(false);
    let all = wanted(
        LXC,
        &format!("rootfs = {{ storage = \"tank\", size = \"8GiB\" }}\n{MOUNT_ON_TANK}"),
    );
    let report = one_life(&rig, &all).await;
    assert_eq!((report.succeeded, report.held), (2, 0), "{report:?}");
    assert_eq!(volumes(&rig, "local-lvm").len(), 2);
    assert_eq!(volumes(&rig, "tank").len(), 2);
    assert_eq!(one_life(&rig, &all).await.in_sync, 1);
}

/// However early or late the agent is killed, there is one copy in the end, and the old volume is there.
#[tokio::test(start_paused = true)]
async fn a_move_that_is_killed_anywhere_leaves_one_copy_and_loses_nothing() {
    for guest in [LXC, QEMU] {
        let (lines, slot, old) = match guest {
            LXC => (MOUNT_ON_TANK, "mp0", "local-lvm:vm-300-disk-1"),
            _ => (DRIVE_ON_TANK, "scsi0", "local-lvm:vm-300-disk-0"),
        };
        let wanted = wanted(guest, lines);
        let mut places = 0;
        for place in (0..).step_by(3) {
            let rig = if guest == LXC { container(false) } else { machine(false) };
            let declared = desired(&wanted);
            let life = rig.live(async |engine| pass(engine, &declared).await);
            if polls(place, life).await.is_some() {
                break;
            }
            places += 1;
            let report = settled(&rig, &wanted).await;
            assert_eq!((report.in_sync, report.held), (1, 0), "{guest} {place}: {report:?}");
            assert!(stored(&rig, guest, slot).unwrap().starts_with("tank:"), "{guest} {place}");
            assert_eq!(stored(&rig, guest, "unused0").as_deref(), Some(old), "{guest} {place}");
            assert_eq!(stored(&rig, guest, "unused1"), None, "{guest} {place}");
            assert_eq!(volumes(&rig, "tank").len(), 1, "{guest} {place}");
            let carried_out = writes(&rig).iter().filter(|sent| sent.upid.is_some()).count();
            assert_eq!(carried_out, 1, "{guest} {place}");
        }
        assert!(places > 5, "{guest}: only {places} places");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_never_makes_a_second_copy() {
    for (effect, ends) in [
        (Effect::DropAfter, &["started", "task_running", "succeeded"][..]),
        (Effect::LateFork { ms: 50_000 }, &["started", "task_running", "succeeded"][..]),
        (Effect::DropBefore, &["started", "failed", "started", "task_running", "succeeded"][..]),
    ] {
        let rig = container(false);
        fault(&rig, effect.clone(), "POST", "/move_volume", 1);
        let report = settled(&rig, &wanted(LXC, MOUNT_ON_TANK)).await;
        assert_eq!(report.in_sync, 1, "{effect:?} {report:?}");
        assert_eq!(states(&rig), ends, "{effect:?}");
        assert_eq!(volumes(&rig, "tank").len(), 1, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_fails_leaves_the_guest_as_it_was_and_is_tried_again_later() {
    let rig = machine(true);
    let message = "storage migration failed: no space left".to_owned();
    rig.node.with(|sim| sim.inject(Effect::TaskFails { message }.once()));
    let report = one_life(&rig, &wanted(QEMU, DRIVE_ON_TANK)).await;
    assert_eq!((report.failed, report.succeeded), (1, 0), "{report:?}");
    assert!(stored(&rig, QEMU, "scsi0").unwrap().starts_with("local-lvm:"));
    let lines = journal(&rig);
    let failed = lines.iter().find(|line| line["state"] == "failed").unwrap();
    assert!(failed["reason"].as_str().unwrap().contains("no space left"), "{failed}");
    let report = settled(&rig, &wanted(QEMU, DRIVE_ON_TANK)).await;
    assert_eq!(report.in_sync, 1, "{report:?}");
    assert_eq!(volumes(&rig, "tank").len(), 1);
}

/// The worker is killed: the copy hangs on nothing, and a container keeps its lock.
#[tokio::test(start_paused = true)]
async fn a_killed_workers_copy_holds_the_next_try_by_name_and_its_lock_is_named() {
    for guest in [LXC, QEMU] {
        let rig = if guest == LXC { container(false) } else { machine(false) };
        let (lines, copy) = match guest {
            LXC => (MOUNT_ON_TANK, "tank:subvol-300-disk-0"),
            _ => (DRIVE_ON_TANK, "tank:vm-300-disk-0"),
        };
        let wanted = wanted(guest, lines);
        rig.node.with(|sim| sim.inject(Effect::TaskKilled.once()));
        let declared = desired(&wanted);
        let life = rig.live(async |engine| pass(engine, &declared).await);
        assert!(until(&rig, executed, life).await.is_none(), "it was killed");
        let id = guest.parse().unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let locked = guest == LXC;
        if locked {
            // The lock keeps the lane shut, because nothing can be closed under it; the command that ends that is told.
            let report = one_life(&rig, &wanted).await;
            let holds = holds(&report);
            assert_eq!(holds[0].0, ReasonCode::Busy, "{report:?}");
            assert!(holds[0].1.contains("run `pct unlock 300` on the node"), "{holds:?}");
            assert!(holds[0].1.contains(copy), "{holds:?}");
            rig.node.with(|sim| sim.happen(Happens::Lock { guest: id, lock: None }));
        }
        rig.live(async |engine| finish(engine).await).await.unwrap().unwrap();
        let lines = journal(&rig);
        let failed = lines.iter().rev().find(|line| line["state"] == "failed").unwrap();
        assert_eq!(failed["left_volume"], copy, "{failed}");
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_mins(70)).await;
            let report = one_life(&rig, &wanted).await;
            let reason = report.ops[0].end.as_str();
            let why = format!("{:?}", report.ops[0].end);
            assert!(reason == "held" && why.contains(copy), "{report:?}");
        }
        assert_eq!(writes(&rig).len(), 1, "{guest}");
        free(&rig, copy);
        let report = settled(&rig, &wanted).await;
        assert_eq!(report.in_sync, 1, "{guest} {report:?}");
        assert_eq!(volumes(&rig, "tank").len(), 1, "{guest}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_nobody_works_under_is_named_with_the_command_and_what_stays_behind() {
    let rig = container(false);
    let id = LXC.parse().unwrap();
    orphan(&rig, "tank:subvol-300-disk-7");
    rig.node.with(|sim| {
        sim.happen(Happens::Lock { guest: id, lock: Some("disk".to_owned()) });
    });
    let report = one_life(&rig, &wanted(LXC, MOUNT_ON_TANK)).await;
    let why = "the guest is locked (disk) and no task runs on it: run `pct unlock 300` on the node; \
               tank:subvol-300-disk-7 stays behind and hangs on nothing";
    assert_eq!(holds(&report), [(ReasonCode::Locked, why)]);
    assert_eq!(writes(&rig).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_move_at_work_is_not_called_left_behind() {
    let rig = container(false);
    rig.node.with(|sim| sim.timings.copy_ms = 600_000);
    evenkeel_harness::script::somebody_sends(
        &rig,
        "POST",
        "lxc/300/move_volume",
        &[("volume", "mp0"), ("storage", "tank"), ("delete", "0")],
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    let report = one_life(&rig, &wanted(LXC, "tags = [\"x\"]")).await;
    let holds = holds(&report);
    assert_eq!(holds[0].0, ReasonCode::Locked, "{report:?}");
    assert!(holds[0].1.contains("waiting for move_volume of lxc/300"), "{holds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_no_backup_held_is_remembered_when_it_is_moved() {
    let rig = container(false);
    let mount = wanted(LXC, MOUNT_ON_TANK);
    assert_eq!(one_life(&rig, &mount).await.succeeded, 1);
    // mp0 was never in backups, so its old volume may be mounted without them again.
    let again = wanted(
        LXC,
        &format!(
            "{MOUNT_ON_TANK}\nmp1 = {{ volume = \"local-lvm:vm-300-disk-1\", mp = \"/old\" }}"
        ),
    );
    let report = one_life(&rig, &again).await;
    assert_eq!((report.succeeded, report.held), (1, 0), "{report:?}");
    // A root volume is always in backups: its old one may not leave them unsigned.
    let root = wanted(LXC, "rootfs = { storage = \"tank\", size = \"8GiB\" }");
    assert_eq!(one_life(&rig, &root).await.succeeded, 1);
    let old_root = wanted(LXC, "mp2 = { volume = \"local-lvm:vm-300-disk-0\", mp = \"/root2\" }");
    let report = one_life(&rig, &old_root).await;
    assert_eq!(holds(&report)[0].0, ReasonCode::PendingSignature, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_detached_volume_of_the_guest_is_attached_and_no_other_is() {
    let attach = |volume: &str| wanted(QEMU, &format!("scsi2 = {{ volume = \"{volume}\" }}"));
    let rig = machine(false);
    put_guest(&rig, "qemu/301", &[("scsi0", "local-lvm:vm-301-disk-0,size=8G")], true);
    orphan(&rig, "local-lvm:vm-300-disk-5");
    edit(&rig, QEMU, &[("unused0", Some("local-lvm:vm-300-disk-5"))]);
    // Another guest's, by its name.
    let report = one_life(&rig, &attach("local-lvm:vm-301-disk-0")).await;
    assert!(report.errors.iter().any(|error| error.why.contains("qemu/301 uses it")), "{report:?}");
    // One that bears our number and hangs on nothing: a former guest may have left it.
    orphan(&rig, "local-lvm:vm-300-disk-7");
    let report = one_life(&rig, &attach("local-lvm:vm-300-disk-7")).await;
    assert_eq!((report.ops.len(), report.held), (0, 1), "{report:?}");
    // One that hangs on the guest and is not there.
    edit(&rig, QEMU, &[("unused1", Some("local-lvm:vm-300-disk-9"))]);
    let report = one_life(&rig, &attach("local-lvm:vm-300-disk-9")).await;
    let end = format!("{:?}", report.ops[0].end);
    assert!(end.contains("does not list local-lvm:vm-300-disk-9 as a volume of qemu/300"), "{end}");
    assert_eq!(writes(&rig).len(), 0);
    // One that is named as ours and that another guest uses.
    edit(&rig, "qemu/301", &[("scsi1", Some("local-lvm:vm-300-disk-5,size=4G"))]);
    let report = one_life(&rig, &attach("local-lvm:vm-300-disk-5")).await;
    assert!(report.errors.iter().any(|error| error.why.contains("qemu/301 uses it")), "{report:?}");
    assert_eq!(writes(&rig).len(), 0);
    edit(&rig, "qemu/301", &[("scsi1", None)]);
    let report = one_life(&rig, &attach("local-lvm:vm-300-disk-5")).await;
    assert_eq!((report.succeeded, report.held), (1, 0), "{report:?}");
    assert!(stored(&rig, QEMU, "scsi2").unwrap().starts_with("local-lvm:vm-300-disk-5"));
    assert_eq!(stored(&rig, QEMU, "unused0"), None);
    assert_eq!(one_life(&rig, &attach("local-lvm:vm-300-disk-5")).await.in_sync, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_detached_stays_of_both_kinds_running_or_not() {
    for running in [false, true] {
        for (guest, slot, old) in
            [(LXC, "mp0", "local-lvm:vm-300-disk-1"), (QEMU, "scsi1", "tank:vm-300-disk-4")]
        {
            let rig = if guest == LXC { container(running) } else { machine(running) };
            if guest == QEMU {
                let drives = [
                    ("scsi0", "local-lvm:vm-300-disk-0,size=8G"),
                    ("scsi1", "tank:vm-300-disk-4,size=4G"),
                ];
                put_guest(&rig, QEMU, &drives, running);
            }
            let wanted = wanted(guest, &format!("unset = [\"{slot}\"]"));
            assert_eq!(one_life(&rig, &wanted).await.succeeded, 1, "{guest} {running}");
            if stored(&rig, guest, slot).is_some() {
                // It waits; a restart applies it.
                assert!(running, "{guest}");
                let kind = guest.split('/').next().unwrap();
                for run in ["stopped", "running"] {
                    let lines = format!(
                        "[guest.300]\nkind = \"{kind}\"\nrun = \"{run}\"\nunset = [\"{slot}\"]\n"
                    );
                    one_life(&rig, &lines).await;
                }
            }
            assert_eq!(stored(&rig, guest, slot), None, "{guest} {running}");
            assert_eq!(stored(&rig, guest, "unused0").as_deref(), Some(old), "{guest} {running}");
            let storage = old.split(':').next().unwrap();
            assert!(volumes(&rig, storage).contains(&old.to_owned()), "{guest} {running}");
        }
    }
}

/// A volume that is declared for another slot is detached by one pass and attached by the next.
#[tokio::test(start_paused = true)]
async fn a_volume_changes_its_slot_and_is_never_gone() {
    for guest in [LXC, QEMU] {
        let rig = if guest == LXC { container(false) } else { machine(false) };
        let (lines, to, volume) = match guest {
            LXC => (
                "mp3 = { volume = \"local-lvm:vm-300-disk-1\", mp = \"/data\" }\nunset = [\"mp0\"]",
                "mp3",
                "local-lvm:vm-300-disk-1",
            ),
            _ => (
                "scsi3 = { volume = \"local-lvm:vm-300-disk-0\" }\nunset = [\"scsi0\"]",
                "scsi3",
                "local-lvm:vm-300-disk-0",
            ),
        };
        let wanted = wanted(guest, lines);
        assert_eq!(one_life(&rig, &wanted).await.succeeded, 1);
        assert_eq!(stored(&rig, guest, "unused0").as_deref(), Some(volume), "{guest}");
        assert_eq!(one_life(&rig, &wanted).await.succeeded, 1);
        assert!(stored(&rig, guest, to).unwrap().starts_with(volume), "{guest}");
        assert_eq!(one_life(&rig, &wanted).await.in_sync, 1);
    }
}
