//! Volumes, with the real engine against the simulator: what it sends for a drive that grows, and what it remembers of
//! a mount point that left its slot.

use std::time::Duration;

use evenkeel_core::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{edit, journal, one_life, put_guest, rig, stored, writes};

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
