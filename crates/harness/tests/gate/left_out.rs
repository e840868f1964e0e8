//! What a backup of a container leaves out: saved all the same, or named in what is signed and read again before and after
//! the backup. The oracle is the simulator's own knowledge of which files an archive holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_agent::engine::{EngineEvent, OpOutcome};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event};

use crate::support::*;

const GUEST: &str = "lxc/102";
const ENDING: &str = "guest.102 = { kind = \"lxc\", state = \"absent\", final_backup = \"store\" }";
const PRECIOUS: &str = "/var/tmp/precious.db";

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

fn exclude(rig: &Rig, paths: &[&str]) {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    rig.node.with(|sim| sim.happen(Event::BackupExcludes { paths }));
}

/// The files of the guest's archives on the storage, archive by archive.
fn saved(rig: &Rig) -> Vec<BTreeSet<String>> {
    rig.node.with(|sim| {
        let volumes = sim.world.storages["store"].volumes.values();
        volumes.filter_map(|volume| Some(volume.archive.as_ref()?.files.clone())).collect()
    })
}

fn backups_asked(rig: &Rig) -> usize {
    let is_one =
        |record: &&evenkeel_sim::RequestRecord| record.mutating && record.path.ends_with("/vzdump");
    rig.node.with(|sim| sim.records().iter().filter(is_one).count())
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Signs the destroy that is declared; somebody acts meanwhile. How it ends then.
async fn ended_while(rig: &Rig, somebody: impl AsyncFnOnce(&Rig)) -> OpOutcome {
    // Whoever looks at the guest waits so long that somebody can act before.
    rig.node.with(|sim| sim.inject(Effect::Latency { ms: 5_000 }.on("/pending")));
    let declared = desired(ENDING);
    live(rig, async |engine| {
        let approval = approved(rig, engine, &declared).await;
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let acts = async {
            somebody(rig).await;
            std::future::pending::<()>().await;
        };
        Ok(tokio::select! {
            report = ended(engine, submitted) => report.end,
            () = acts => unreachable!("a person who waits for ever"),
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn y01_temporary_files_of_a_container_are_in_its_final_backup() {
    let rig = rig().await;
    let files = rig.node.with(|sim| sim.world.guest(guest()).unwrap().files.clone());
    let end = ended_while(&rig, async |_| {}).await;
    assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
    assert!(!exists(&rig, GUEST));
    let saved = saved(&rig);
    assert!(saved[0].contains(PRECIOUS) && saved[0].contains("/tmp/session"), "{saved:?}");
    let lost: Vec<&String> = files.difference(&saved[0]).collect();
    assert_eq!(lost, ["/lost+found/rescued", "/opt/nested/precious.img"], "named as a class");
}

#[tokio::test(start_paused = true)]
async fn y01_what_the_node_excludes_is_in_the_item_and_bound() {
    let rig = rig().await;
    exclude(&rig, &["/var/lib/*", "*.bak"]);
    let declared = desired(ENDING);
    let (item, approval) = live(&rig, async |engine| {
        let approval = approved(&rig, engine, &declared).await;
        Ok((item(engine).await, approval))
    })
    .await;
    let listed: Vec<&str> = item.params["not_in_backup"].split(',').collect();
    for entry in [
        "path=/var/lib/*",
        "path=*.bak",
        "always=lost+found",
        "always=nested-file-systems",
        "always=listed-in-.pxarexclude",
    ] {
        assert!(listed.contains(&entry), "{entry} is not in {listed:?}");
    }
    // Somebody excludes more between the signature and the backup.
    exclude(&rig, &["/var/lib/*", "*.bak", "/home/*"]);
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    live(&rig, async |engine| {
        assert_eq!(refused(engine, &approval).await, ReasonCode::Stale);
        Ok(())
    })
    .await;
    assert_eq!((writes(&rig, GUEST), backups_asked(&rig)), (Vec::new(), 0));
    // What waits then says so, and whoever signs that has it done.
    live(&rig, async |engine| {
        pass(engine, &declared).await?;
        let item = self::item(engine).await;
        assert!(item.params["not_in_backup"].contains("path=/home/*"), "{:?}", item.params);
        let end = carried_out(engine, &anna().approve(&item, 8, now(&rig))).await.end;
        assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
        Ok(())
    })
    .await;
    assert!(!saved(&rig)[0].contains("/home/user/notes.txt"), "as was signed");
}

/// While the guest goes down, while it is saved, and when only the DELETE is left to be sent.
#[tokio::test(start_paused = true)]
async fn y01_exclusions_that_change_before_or_after_the_backup_destroy_nothing() {
    for moment in ["the stop", "the backup", "the unprotect"] {
        for (before, after) in [(&[][..], &["/var/lib/*"][..]), (&["/var/lib/*"], &[])] {
            let rig = rig().await;
            protect(&rig, GUEST);
            exclude(&rig, before);
            let end = ended_while(&rig, async |rig| {
                match moment {
                    "the stop" => until(|| count(rig, GUEST, "POST stop") == 1).await,
                    "the backup" => until(|| saved(rig).len() == 1).await,
                    _ => until(|| !protected(rig, GUEST)).await,
                }
                exclude(rig, after);
            })
            .await;
            assert!(matches!(end, OpOutcome::Failed { .. }), "{moment}: {end:?}");
            assert!(end.words().contains("/var/lib/*"), "{moment}: {end:?}");
            assert_eq!(count(&rig, GUEST, "DELETE 102"), 0, "{moment}");
            assert_eq!(backups_asked(&rig), usize::from(moment != "the stop"), "{moment}");
            assert!(exists(&rig, GUEST), "{moment}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn y01_exclusions_that_cannot_be_read_are_not_taken_for_none() {
    let rig = rig().await;
    let declared = desired(ENDING);
    let approval = live(&rig, async |engine| Ok(approved(&rig, engine, &declared).await)).await;
    rig.node.with(|sim| {
        sim.inject(Effect::ProxyStatus { status: 595, executed: false }.on("/vzdump/defaults"));
        sim.clear_records();
    });
    live(&rig, async |engine| {
        assert_eq!(refused(engine, &approval).await, ReasonCode::Storage);
        let given = BTreeMap::from([("final_backup".to_owned(), "store".to_owned())]);
        let asked = engine.request(ActionKind::Destroy, guest(), given).await;
        assert!(asked.is_err_and(|error| error.to_string().contains("leaves out")));
        pass(engine, &declared).await?;
        assert_eq!(engine.pending().await?.len(), 1, "what waits is not ended for that");
        Ok(())
    })
    .await;
    assert_eq!((writes(&rig, GUEST), backups_asked(&rig)), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn y01_a_backup_on_request_holds_temporary_files_too() {
    let rig = rig().await;
    live(&rig, async |engine| {
        let given = BTreeMap::from([("storage".to_owned(), "store".to_owned())]);
        let op = engine.ask(ActionKind::Backup, guest(), given).await.unwrap();
        loop {
            if let EngineEvent::Op(report) = engine.work().await?
                && report.op == op
            {
                assert!(matches!(report.end, OpOutcome::Succeeded { .. }), "{:?}", report.end);
                return Ok(());
            }
        }
    })
    .await;
    assert!(saved(&rig)[0].contains(PRECIOUS), "{:?}", saved(&rig));
}
