//! A storage that hangs holds up what needs it, and nobody else (case Y04).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_agent::engine::{Engine, Fatal};
use evenkeel_core::desired::Desired;
use evenkeel_core::sign::Role;
use evenkeel_harness::script::{desired, edit, rig, stored};
use evenkeel_harness::{Operator, Rig};
use evenkeel_sim::{BackupFile, Config, Event};
use tokio::time::Instant;

/// As the issue was seen.
const INTERVAL: Duration = Duration::from_secs(5);

/// What a pass may take at most while a storage hangs: its reading, and a moment for the looks beside guests and one for items.
const PASS_MAX: Duration = Duration::from_secs(2);

const CARED_FOR: &str = "[guest.102]\nkind = \"lxc\"\ncores = 2\n";

/// Backups on `local`, of so many containers that are not there.
fn put_backups(rig: &Rig, count: u32) -> Vec<String> {
    let config = Config::of(&[
        ("arch", "amd64"),
        ("hostname", "web"),
        ("memory", "512"),
        ("rootfs", "tank:vm-150-disk-0,size=2G"),
    ]);
    rig.node.with(|sim| {
        let put = |number: u32| {
            let file = BackupFile {
                ctime: 1_762_000_000 + u64::from(number),
                format: "tar.zst".to_owned(),
                size_bytes: 64 << 20,
                notes: None,
                protected: false,
                excludes: Vec::new(),
            };
            sim.world.put_backup("local", "lxc/150".parse().unwrap(), &config, &file).unwrap()
        };
        (0..count).map(put).collect()
    })
}

/// Restores that must look into their archive before they are planned, and such that need not.
fn restores(archives: &[String], is_looked_into: bool) -> String {
    let mut text = CARED_FOR.to_owned();
    for (number, archive) in archives.iter().enumerate() {
        // Smaller numbers than the guest that is cared for come first wherever there is an order.
        let root =
            if is_looked_into { "" } else { "rootfs = { storage = \"tank\", size = \"2GiB\" }\n" };
        let vmid = 110 + number;
        writeln!(text, "[guest.{vmid}]\nkind = \"lxc\"\nsource = {{ backup = \"{archive}\" }}")
            .unwrap();
        text.push_str(root);
    }
    text
}

fn hangs(rig: &Rig, storage: &str, lasts: Option<Duration>, lists: bool) {
    let ms = lasts.map(|lasts| u64::try_from(lasts.as_millis()).unwrap());
    let storage = storage.to_owned();
    rig.node.with(|sim| sim.happen(Event::StorageHangs { storage, ms, lists }));
}

/// Makes passes as the agent does, for so long; tells how long the longest took.
async fn keep(engine: &mut Engine, wanted: &Desired, lasts: Duration) -> Result<Duration, Fatal> {
    let end = Instant::now() + lasts;
    let mut longest = Duration::ZERO;
    while Instant::now() < end {
        let began = Instant::now();
        if let Err(error) = engine.pass(wanted).await {
            panic!("{error}");
        }
        longest = longest.max(began.elapsed());
        let next = began + INTERVAL;
        while let Ok(event) = tokio::time::timeout_at(next, engine.work()).await {
            event?;
        }
    }
    Ok(longest)
}

/// Somebody changes the guest that is cared for; it is as declared again within two intervals.
async fn heals(rig: &Rig, engine: &mut Engine, wanted: &Desired) -> Result<(), Fatal> {
    edit(rig, "lxc/102", &[("cores", Some("4"))]);
    let longest = keep(engine, wanted, 2 * INTERVAL).await?;
    assert_eq!(stored(rig, "lxc/102", "cores").as_deref(), Some("2"), "healed in two intervals");
    assert!(longest <= PASS_MAX, "a pass took {longest:?}");
    Ok(())
}

fn is_there(rig: &Rig, vmid: u32) -> bool {
    rig.node.with(|sim| sim.world.guests.contains_key(&vmid))
}

#[tokio::test(start_paused = true)]
async fn y04_restores_from_a_storage_that_hangs_delay_no_other_guest() {
    for (count, is_looked_into) in [(3, true), (46, true), (3, false), (46, false)] {
        let rig = rig(4);
        let archives = put_backups(&rig, count);
        let wanted = desired(&restores(&archives, is_looked_into));
        hangs(&rig, "local", None, false);
        let life = rig.live(async |engine| {
            for _ in 0..12 {
                heals(&rig, engine, &wanted).await?;
            }
            Ok(())
        });
        life.await.unwrap().unwrap();
        assert!(!is_there(&rig, 110), "{count} {is_looked_into}");
    }
}

#[tokio::test(start_paused = true)]
async fn y04_new_guests_on_a_storage_that_hangs_leave_a_turn_for_the_others() {
    let rig = rig(4);
    let mut text = CARED_FOR.to_owned();
    for vmid in 110..130 {
        let template = "store:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";
        writeln!(text, "[guest.{vmid}]\nkind = \"lxc\"\nsource = {{ template = \"{template}\" }}")
            .unwrap();
        writeln!(text, "rootfs = {{ storage = \"tank\", size = \"1GiB\" }}").unwrap();
    }
    let wanted = desired(&text);
    hangs(&rig, "tank", None, false);
    let life = rig.live(async |engine| {
        for _ in 0..12 {
            heals(&rig, engine, &wanted).await?;
        }
        Ok(())
    });
    life.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn y04_a_storage_that_hangs_never_gets_the_last_worker_and_is_used_again_when_it_answers() {
    for lists in [false, true] {
        let rig = rig(4);
        let archives = put_backups(&rig, 5);
        let wanted = desired(&restores(&archives, true));
        hangs(&rig, "local", Some(Duration::from_mins(13)), lists);
        let life = rig.live(async |engine| {
            for _ in 0..72 {
                heals(&rig, engine, &wanted).await?;
                let hanging = rig.node.with(|sim| sim.hanging_workers());
                assert!(hanging <= 2, "{hanging} of three workers wait for a storage");
            }
            keep(engine, &wanted, Duration::from_mins(14)).await
        });
        life.await.unwrap().unwrap();
        assert!((110..115).all(|vmid| is_there(&rig, vmid)), "lists {lists}");
    }
}

#[tokio::test(start_paused = true)]
async fn y04_an_item_is_raised_beside_the_pass_when_a_backup_storage_hangs() {
    let anna = Operator::new("anna", 1);
    let vault = Operator::new("vault", 2);
    let rig = rig(6).judged_by(vec![anna.signer(Role::Operational), vault.signer(Role::Recovery)]);
    let text = format!(
        "{CARED_FOR}guest.100 = {{ kind = \"lxc\", state = \"absent\" }}\n\
         guest.104 = {{ kind = \"lxc\", state = \"absent\" }}\n"
    );
    let wanted = desired(&text.replace(
        "[guest.102]\nkind = \"lxc\"\ncores = 2\n",
        "guest.102 = { kind = \"lxc\", cores = 2 }\n",
    ));
    hangs(&rig, "store", None, false);
    let life = rig.live(async |engine| {
        for _ in 0..12 {
            heals(&rig, engine, &wanted).await?;
        }
        Ok(engine.pending().await?.len())
    });
    let raised = life.await.unwrap().unwrap();
    assert_eq!(raised, 2, "both wait for a signature, though nobody knows their last backup");
}

#[tokio::test(start_paused = true)]
async fn y04_a_person_sees_the_plan_without_what_does_not_answer() {
    let rig = rig(4);
    let archives = put_backups(&rig, 46);
    let wanted = desired(&restores(&archives, true));
    hangs(&rig, "local", None, false);
    edit(&rig, "lxc/102", &[("cores", Some("4"))]);
    let life = rig.live(async |engine| {
        use evenkeel_agent::engine::PassCause;
        use evenkeel_core::desired::selection::PassScope;
        let began = Instant::now();
        let looked = engine.look(&wanted, PassScope::Whole, PassCause::Person).await;
        let preview = looked.unwrap_or_else(|error| panic!("{error}"));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        let held = preview.plan.actions().filter_map(|action| action.held.as_ref());
        let held: Vec<String> = held.map(ToString::to_string).collect();
        assert_eq!(held.len(), 46);
        let told = "what it is made from is not known yet: the storage local has not answered";
        assert!(held.iter().all(|why| why.contains(told)), "{:?}", held[0]);
        assert_eq!(preview.plan.runnable().count(), 1, "the other guest is healed");
        Ok(())
    });
    life.await.unwrap().unwrap();
}

/// A storage that answers slowly stands between the reading of a guest and the write that needs both.
#[tokio::test(start_paused = true)]
async fn a_guest_that_changes_while_its_storage_is_waited_for_is_not_written_by_what_was_read_before()
 {
    for changes in [false, true] {
        let rig = rig(4);
        let wanted = desired(
            "[guest.102]\nkind = \"lxc\"\ncores = 2\nmp1 = { storage = \"tank\", size = \"1GiB\", mp = \"/srv\" }\n",
        );
        hangs(&rig, "tank", Some(Duration::from_secs(4)), false);
        let life = rig.live(async |engine| {
            let changing = async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                if changes {
                    edit(&rig, "lxc/102", &[("description", Some("somebody was here"))]);
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = changing => unreachable!("it waits for ever"),
                report = evenkeel_harness::script::pass(engine, &wanted) => report,
            }
        });
        let report = life.await.unwrap().unwrap();
        let sent = evenkeel_harness::script::writes(&rig);
        assert_eq!(
            (sent.len(), report.succeeded),
            if changes { (0, 0) } else { (1, 1) },
            "{report:?}"
        );
        let reads = rig.node.with(|sim| {
            let of_guest = sim.records().iter().filter(|r| r.path.ends_with("/lxc/102/pending"));
            of_guest.map(|record| record.at_ms).max()
        });
        let written = sent.first().map(|record| record.at_ms);
        assert!(
            written.is_none_or(|written| reads.unwrap() + 100 >= written),
            "read directly before"
        );
    }
}
