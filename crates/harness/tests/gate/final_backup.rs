//! A destroy with a final backup: no whole archive, no destroy; and what was taken from the guest is given back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::final_backup::note_of;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{PendingItem, Role, TrustVersion, TrustedSigners, Window};
use evenkeel_harness::{Operator, Rig, statement};
use evenkeel_sim::{Effect, Event, Fault};

use crate::support::*;

const GUEST: &str = "lxc/102";
const ENDING: &str = "guest.102 = { kind = \"lxc\", state = \"absent\", final_backup = \"store\" }";
const HOUR_S: u64 = 3_600;

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

fn edit(rig: &Rig, key: &str, value: Option<&str>) {
    let set = BTreeMap::from([(key.to_owned(), value.map(str::to_owned))]);
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
}

/// Somebody took a snapshot.
fn snapshot(rig: &Rig, name: &str) {
    rig.node.with(|sim| {
        let config = &mut sim.world.guest_mut(guest()).unwrap().config;
        let section = evenkeel_sim::Section::from([("snaptime".into(), "1".into())]);
        let name = name.to_owned();
        config.snapshots.push(evenkeel_sim::SnapshotSection { name, section });
    });
}

/// A running, protected container with a mount that is saved and one that is not.
async fn node() -> Rig {
    let rig = rig().await;
    edit(&rig, "protection", Some("1"));
    for (slot, volume, rest) in
        [("mp1", "vm-102-disk-7", "mp=/saved,backup=1"), ("mp2", "vm-102-disk-8", "mp=/cache")]
    {
        edit(&rig, slot, Some(&format!("store:102/{volume}.raw,{rest},size=1G")));
    }
    rig
}

/// How often the node was asked for a backup.
fn backups_asked(rig: &Rig) -> usize {
    let is_one =
        |record: &&evenkeel_sim::RequestRecord| record.mutating && record.path.ends_with("/vzdump");
    rig.node.with(|sim| sim.records().iter().filter(is_one).count())
}

/// The archives of the guest that lie on the storage.
fn archives(rig: &Rig) -> usize {
    rig.node.with(|sim| {
        let volumes = sim.world.storages["store"].volumes.values();
        volumes.filter(|volume| volume.archive.is_some()).count()
    })
}

fn runs(rig: &Rig) -> bool {
    rig.node.with(|sim| sim.world.guest(guest()).is_some_and(|guest| guest.power.is_running()))
}

/// What somebody does to the archives of the guest.
fn with_archives(rig: &Rig, act: impl Fn(&mut evenkeel_sim::Volume)) {
    rig.node.with(|sim| {
        let volumes = &mut sim.world.storages.get_mut("store").unwrap().volumes;
        volumes.values_mut().filter(|volume| volume.archive.is_some()).for_each(act);
    });
}

/// Until the node has done that, or for so long.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Signs the destroy that is declared; somebody acts meanwhile. How it ends then.
async fn ended_while(
    rig: &Rig,
    life_s: u64,
    somebody: impl AsyncFnOnce(&Rig, OperationId),
) -> OpOutcome {
    // Whoever looks at the guest waits so long that somebody can act before.
    rig.node.with(|sim| {
        sim.inject(Fault { times: None, ..Effect::Latency { ms: 5_000 }.on("/pending") });
    });
    let declared = desired(ENDING);
    let end = rig.live(async |engine| {
        pass(engine, &declared).await?;
        let mut statement = statement(&item(engine).await, 7, now(rig));
        statement.window = Window::new(now(rig), now(rig).plus(life_s)).unwrap();
        let submitted = engine.submit_approval(anna().sign(&statement).as_bytes()).await?;
        let Submitted::Accepted(op) = submitted else { panic!("{submitted:?}") };
        let acts = async {
            somebody(rig, op).await;
            std::future::pending::<()>().await;
        };
        let report = tokio::select! {
            report = ended(engine, submitted) => report,
            () = acts => unreachable!("a person who waits for ever"),
        };
        while !engine.is_idle() {
            engine.work().await?;
        }
        Ok(report.end)
    });
    end.await.unwrap().unwrap()
}

/// It was not destroyed, and it is as it was before.
fn assert_it_was_left(rig: &Rig, end: &OpOutcome) {
    assert!(matches!(end, OpOutcome::Failed { .. } | OpOutcome::Held { .. }), "{end:?}");
    assert_eq!(count(rig, GUEST, "DELETE 102"), 0, "{:?}", writes(rig, GUEST));
    assert!(exists(rig, GUEST));
    assert!(protected(rig, GUEST), "{:?}", writes(rig, GUEST));
    assert!(runs(rig), "it runs again: {:?}", writes(rig, GUEST));
}

async fn waiting_item(rig: &Rig, text: &str) -> PendingItem {
    let declared = desired(text);
    live(rig, async |engine| {
        pass(engine, &declared).await?;
        Ok(item(engine).await)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_saved_whole_before_it_is_destroyed() {
    let rig = node().await;
    let end = ended_while(&rig, HOUR_S, async |_, _| {}).await;
    assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
    assert!(!exists(&rig, GUEST));
    assert_eq!((backups_asked(&rig), archives(&rig)), (1, 1));
    with_archives(&rig, |volume| {
        assert!(volume.protected, "nobody's retention removes it");
        assert!(volume.notes.as_ref().unwrap().contains("evenkeel op_"), "{:?}", volume.notes);
    });
    let order = ["POST stop", "PUT config", "DELETE 102"].map(str::to_owned);
    assert_eq!(writes(&rig, GUEST)[1..], order, "after the start that made it run");
}

#[tokio::test(start_paused = true)]
async fn what_no_backup_holds_is_in_the_item_and_bound() {
    let rig = node().await;
    edit(&rig, "unused3", Some("store:102/vm-102-disk-9.raw"));
    snapshot(&rig, "before");
    let item = waiting_item(&rig, ENDING).await;
    let left = &item.params["not_in_backup"];
    for lost in ["mp2=store:102/vm-102-disk-8.raw", "snapshot=before", "unused3=store:102/"] {
        assert!(left.contains(lost), "{left}");
    }
    assert!(!left.contains("mp1="), "{left}");
    // A snapshot taken since is one more thing that would be lost.
    let approval = anna().approve(&item, 7, now(&rig));
    snapshot(&rig, "since");
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    live(&rig, async |engine| {
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let end = ended(engine, submitted).await.end;
        assert_eq!(end.reason(), Some(ReasonCode::Stale), "{end:?}");
        Ok(())
    })
    .await;
    assert_eq!((writes(&rig, GUEST), backups_asked(&rig)), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_final_backup_can_be_asked_for() {
    let rig = node().await;
    live(&rig, async |engine| {
        let given = BTreeMap::from([("final_backup".to_owned(), "store".to_owned())]);
        engine.request(ActionKind::Destroy, guest(), given).await.unwrap();
        let item = item(engine).await;
        assert_eq!(item.params["final_backup"], "store");
        assert!(item.params["not_in_backup"].contains("mp2="), "{:?}", item.params);
        let submitted =
            engine.submit_approval(anna().approve(&item, 7, now(&rig)).as_bytes()).await?;
        let end = ended(engine, submitted).await.end;
        assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
        Ok(())
    })
    .await;
    assert_eq!((exists(&rig, GUEST), archives(&rig)), (false, 1));
}

/// Somebody takes the mount out of backups while the guest goes down, and while it is saved.
#[tokio::test(start_paused = true)]
async fn a_mount_left_out_meanwhile_destroys_nothing() {
    for after_backup in [false, true] {
        let rig = node().await;
        let end = ended_while(&rig, HOUR_S, async |rig, _| {
            until(|| count(rig, GUEST, "POST stop") == 1).await;
            if after_backup {
                until(|| archives(rig) == 1).await;
            }
            edit(rig, "mp1", Some("store:102/vm-102-disk-7.raw,mp=/saved,size=1G"));
        })
        .await;
        assert_it_was_left(&rig, &end);
    }
}

/// The storage lists it, and it is not whole.
#[tokio::test(start_paused = true)]
async fn an_archive_that_is_empty_or_lacks_a_volume_destroys_nothing() {
    let empty = |volume: &mut evenkeel_sim::Volume| volume.size_bytes = 0;
    let lacking = |volume: &mut evenkeel_sim::Volume| {
        volume.archive.as_mut().unwrap().config.active.remove("mp1");
    };
    let unmarked = |volume: &mut evenkeel_sim::Volume| volume.notes = None;
    for (name, broken) in [
        ("empty", &empty as &dyn Fn(&mut evenkeel_sim::Volume)),
        ("without a volume", &lacking),
        ("without its mark", &unmarked),
    ] {
        let rig = node().await;
        let end = ended_while(&rig, HOUR_S, async |rig, _| {
            until(|| archives(rig) == 1).await;
            with_archives(rig, broken);
        })
        .await;
        println!("{name}: {}", end.words());
        assert_it_was_left(&rig, &end);
        assert_eq!(archives(&rig), 1, "it stays");
    }
}

/// The archive is there all the same, and whole.
#[tokio::test(start_paused = true)]
async fn a_backup_that_ended_with_warnings_or_an_error_destroys_nothing() {
    for (told, effect) in [
        ("WARNINGS: 1", Effect::TaskWarns { warnings: 1 }),
        ("job errors", Effect::TaskFails { message: "job errors".to_owned() }),
        ("unexpected status", Effect::TaskKilled),
    ] {
        let rig = node().await;
        let makes_none = !matches!(effect, Effect::TaskWarns { .. });
        rig.node.with(|sim| sim.inject(effect.on(":vzdump:")));
        let end = ended_while(&rig, HOUR_S, async |rig, op| {
            until(|| backups_asked(rig) == 1).await;
            if makes_none {
                put_archive(rig, Some(note_of(op, guest())));
            }
        })
        .await;
        assert!(end.words().contains(told), "{end:?}");
        assert_eq!(archives(&rig), 1, "{told}");
        // A killed worker leaves its lock; nothing can be given back while somebody may be at work.
        rig.node.with(|sim| sim.happen(Event::Lock { guest: guest(), lock: None }));
        afterwards(&rig, &desired("")).await;
        assert_it_was_left(&rig, &end);
    }
}

fn put_archive(rig: &Rig, notes: Option<String>) {
    rig.node.with(|sim| {
        let record = sim.world.guest(guest()).unwrap();
        let archive = evenkeel_sim::StoredArchive {
            guest: guest(),
            guest_birth: record.birth,
            config: record.config.clone(),
            truncated: false,
            files: record.files.clone(),
        };
        let store = sim.world.storages.get_mut("store").unwrap();
        store.put_file("backup/vzdump-lxc-102-1.tar.zst", "backup", "tar.zst", 1 << 20);
        let volume = store.volumes.get_mut("backup/vzdump-lxc-102-1.tar.zst").unwrap();
        (volume.vmid, volume.notes, volume.protected) = (Some(guest().vmid), notes, true);
        volume.archive = Some(Box::new(archive));
    });
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_is_full_holds_it_before_the_guest_is_stopped() {
    for (kept, protected) in [(Some(1), None), (None, Some(1)), (None, None)] {
        let rig = node().await;
        foreign(&rig, "POST", "vzdump", &[("vmid", "102"), ("storage", "store")]).await;
        with_archives(&rig, |volume| volume.protected = protected.is_some());
        rig.node.with(|sim| {
            let store = sim.world.storages.get_mut("store").unwrap();
            (store.keep_last, store.max_protected) = (kept, protected);
        });
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        let takes_none = kept.is_none() && protected.is_none();
        let end = ended_while(&rig, HOUR_S, async |rig, _| {
            rig.node.with(|sim| {
                let store = sim.world.storages.get_mut("store").unwrap();
                store.content.retain(|content| !takes_none || content != "backup");
            });
        })
        .await;
        assert_eq!(end.reason(), Some(ReasonCode::Storage), "{end:?}");
        assert_it_was_left(&rig, &end);
        assert_eq!((writes(&rig, GUEST), backups_asked(&rig)), (Vec::new(), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_destroyed_once_its_approval_expired_or_was_revoked_while_it_was_saved() {
    let rig = node().await;
    let end = ended_while(&rig, 40, async |rig, _| {
        until(|| backups_asked(rig) == 1).await;
        rig.node.with(|sim| {
            sim.inject(Fault { times: None, ..Effect::Latency { ms: 20_000 }.on("/content") });
        });
    })
    .await;
    assert_it_was_left(&rig, &end);
    assert!(end.words().contains("expired"), "{end:?}");
    let rig = node().await;
    let end = ended_while(&rig, HOUR_S, async |rig, _| {
        until(|| backups_asked(rig) == 1).await;
        let bob = Operator::new("bob", 3).signer(Role::Operational);
        let signers = vec![bob, vault().signer(Role::Recovery)];
        let trust = TrustedSigners::genesis(TrustVersion(2), signers).unwrap();
        let mut authority = rig.approvals.as_ref().unwrap().authority.write().await;
        *authority = Authority::first(Rig::host(), trust);
    })
    .await;
    assert_it_was_left(&rig, &end);
    assert!(end.words().contains("its approval no longer holds"), "{end:?}");
    assert_eq!(archives(&rig), 1, "it stays");
}

/// Somebody removes the archive when only the DELETE is left to be sent.
#[tokio::test(start_paused = true)]
async fn an_archive_that_is_gone_before_the_act_destroys_nothing() {
    let rig = node().await;
    let end = ended_while(&rig, HOUR_S, async |rig, _| {
        until(|| !protected(rig, GUEST)).await;
        rig.node.with(|sim| {
            let store = sim.world.storages.get_mut("store").unwrap();
            store.volumes.retain(|_, volume| volume.archive.is_none());
        });
    })
    .await;
    assert!(end.words().contains("lists no backup of this operation"), "{end:?}");
    assert_it_was_left(&rig, &end);
}

/// The archive loses its end when only the DELETE is left to be sent; its configuration can still be read.
#[tokio::test(start_paused = true)]
async fn an_archive_that_is_truncated_before_the_act_destroys_nothing() {
    let rig = node().await;
    let end = ended_while(&rig, HOUR_S, async |rig, _| {
        until(|| !protected(rig, GUEST)).await;
        rig.node.with(|sim| {
            let volumes = &sim.world.storages["store"].volumes;
            let name = volumes.iter().find(|(_, volume)| volume.archive.is_some()).unwrap().0;
            let volid = format!("store:{name}");
            sim.happen(Event::Truncate { volid });
        });
    })
    .await;
    assert!(end.words().contains("changed after it was made"), "{end:?}");
    assert_it_was_left(&rig, &end);
    assert_eq!(archives(&rig), 1, "it stays");
}

#[tokio::test(start_paused = true)]
async fn a_freeze_while_it_is_saved_is_obeyed_and_what_is_owed_is_given_back_after_it() {
    let rig = node().await;
    let end = ended_while(&rig, HOUR_S, async |rig, _| {
        until(|| backups_asked(rig) == 1).await;
        rig.frozen.store(true, Ordering::Relaxed);
    })
    .await;
    assert!(end.words().contains("frozen"), "{end:?}");
    assert!(!runs(&rig), "nothing is sent while it is frozen");
    rig.frozen.store(false, Ordering::Relaxed);
    afterwards(&rig, &desired("")).await;
    assert_it_was_left(&rig, &end);
}

/// A crash at every await point: each request is sent at most once, nothing is destroyed without its archive, and what
/// is still there runs and is protected again.
#[tokio::test(start_paused = true)]
async fn a_destroy_with_a_final_backup_survives_a_crash_at_every_step() {
    let mut polls = 1;
    let mut destroyed = 0;
    let mut left = 0;
    loop {
        let rig = node().await;
        let approval = anna().approve(&waiting_item(&rig, ENDING).await, 7, now(&rig));
        let life = rig.live(async |engine| {
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            Ok(ended(engine, accepted).await)
        });
        let done = crash_after(polls, life).await.is_some();
        let rig = Rig { disk: rig.disk.after_crash(0, 0), ..rig };
        let before = (backups_asked(&rig), count(&rig, GUEST, "DELETE 102"));
        afterwards(&rig, &desired("")).await;
        let after = (backups_asked(&rig), count(&rig, GUEST, "DELETE 102"));
        assert_eq!(before, after, "after {polls} polls a restart sent something again");
        assert!(after.0 <= 1 && after.1 <= 1, "after {polls} polls: {after:?}");
        if exists(&rig, GUEST) {
            assert!(
                protected(&rig, GUEST) && runs(&rig),
                "after {polls}: {:?}",
                writes(&rig, GUEST)
            );
            left += 1;
        } else {
            assert_eq!(archives(&rig), 1, "after {polls} polls it is gone without its backup");
            destroyed += 1;
        }
        if done {
            break;
        }
        polls += 1;
    }
    println!("{polls} crash points: {destroyed} ended destroyed, {left} were left as they were");
    assert!(polls > 40 && destroyed > 1 && left > 10);
}

/// An item that waits says when the guest was last saved, and recommends.
#[tokio::test(start_paused = true)]
async fn an_item_without_a_final_backup_recommends_one_unless_the_guest_was_just_saved() {
    let absent = "guest.102 = { kind = \"lxc\", state = \"absent\" }";
    let rig = node().await;
    assert!(waiting_item(&rig, absent).await.wants_final_backup());
    let rig = node().await;
    assert!(!waiting_item(&rig, ENDING).await.wants_final_backup(), "it has one");
    foreign(&rig, "POST", "vzdump", &[("vmid", "102"), ("storage", "store")]).await;
    assert!(!waiting_item(&rig, absent).await.wants_final_backup(), "it was just saved");
    let rig = node().await;
    rig.node.with(|sim| {
        sim.inject(Effect::ProxyStatus { status: 595, executed: false }.on("/content"));
    });
    let item = waiting_item(&rig, absent).await;
    assert!(!item.wants_final_backup(), "{:?}", item.last_backup);
}
