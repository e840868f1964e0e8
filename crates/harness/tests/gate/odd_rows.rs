//! One row that cannot be read costs what it is about and nothing else (case Y03), and a size that is not told is not
//! zero (case Y17).

use std::time::Duration;

use evenkeel_agent::engine::{Engine, Fatal, OpOutcome};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Event, Fault, OddValue};

use crate::support::*;

const HEALED: &str = "lxc/102";
const RUNS: &str = "guest.102 = { kind = \"lxc\", run = \"running\" }\n";

fn happen(rig: &Rig, event: Event) {
    rig.node.with(|sim| sim.happen(event));
}

fn task_by(rig: &Rig, user: &str, task: &str, id: &str) {
    let user = user.to_owned();
    let task = task.to_owned();
    let id = id.to_owned();
    happen(rig, Event::TaskBy { user, task, id });
}

/// From now on the first row with this text is odd in every list whose path contains that.
fn bend(rig: &Rig, list: &str, row: Option<&str>, field: Option<&str>, becomes: OddValue) {
    let row = row.map(str::to_owned);
    let field = field.map(str::to_owned);
    let effect = Effect::OddRow { row, field, becomes };
    let fault = Fault { method: Some("GET".to_owned()), ..effect.on(list) };
    rig.node.with(|sim| sim.inject(fault));
}

fn runs(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| sim.world.guest(guest).is_some_and(|guest| guest.power.is_running()))
}

/// A pass, and everything that follows from it.
async fn whole_pass(engine: &mut Engine, text: &str) -> Result<(), Fatal> {
    pass(engine, &desired(text)).await?;
    while !engine.is_idle() {
        engine.work().await?;
    }
    Ok(())
}

/// Destroys of the guest and makings of any that reached the node.
fn made_or_destroyed(rig: &Rig) -> Vec<String> {
    rig.node.with(|sim| {
        let is_one = |record: &&evenkeel_sim::RequestRecord| {
            let made = record.path.ends_with("/lxc") || record.path.ends_with("/qemu");
            record.method == "DELETE" || (record.method == "POST" && made)
        };
        let found = sim.records().iter().filter(is_one);
        found.map(|record| format!("{} {}", record.method, record.path)).collect()
    })
}

#[tokio::test(start_paused = true)]
async fn y03_a_task_of_a_user_of_any_name_stops_nothing_that_is_signed() {
    for user in ["jürgen@pve", "jÃ¼rgen@pve", "日本@ad", "a\u{202E}b@pve", "o'brien@ldap!t"] {
        let rig = rig().await;
        task_by(&rig, user, "vzdump", "100");
        live(&rig, async |engine| {
            let approval = approved(&rig, engine, &desired(ABSENT)).await;
            task_by(&rig, user, "vzstart", "100");
            let report = carried_out(engine, &approval).await;
            assert!(matches!(report.end, OpOutcome::Succeeded { .. }), "{user}: {report:?}");
            Ok(())
        })
        .await;
        assert!(!exists(&rig, "lxc/100"), "{user}");
    }
}

/// What somebody did under a name that is not ASCII counts as what anybody else does.
#[tokio::test(start_paused = true)]
async fn y03_a_restore_by_a_user_of_any_name_makes_another_guest() {
    let rig = rig().await;
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &desired(ABSENT)).await;
        task_by(&rig, "jürgen@pve", "vzrestore", "100");
        let end = carried_out(engine, &approval).await.end;
        let OpOutcome::Held { reason, why } = end else { panic!("{end:?}") };
        assert_eq!(reason, ReasonCode::IdentityUnproven);
        assert!(why.contains("jürgen@pve ran vzrestore"), "{why}");
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// A row without a name may be a restore of the guest; it ends the item, and the next one knows the row.
#[tokio::test(start_paused = true)]
async fn y03_a_task_that_cannot_be_read_holds_an_item_once_and_only_if_it_may_be_about_the_guest() {
    for (task, id, field, holds) in [
        ("vzrestore", "100", Some("upid"), true),
        ("vzrestore", "101", Some("upid"), false),
        ("vzdump", "100", Some("upid"), false),
        ("vzdump", "101", None, true),
    ] {
        let rig = rig().await;
        live(&rig, async |engine| {
            let first = approved(&rig, engine, &desired(ABSENT)).await;
            task_by(&rig, "odd@pve", task, id);
            bend(&rig, "/pve1/tasks", Some("odd@pve"), field, OddValue::Object);
            let end = carried_out(engine, &first).await.end;
            if !holds {
                assert!(matches!(end, OpOutcome::Succeeded { .. }), "{task} {id}: {end:?}");
                return Ok(());
            }
            let OpOutcome::Held { reason, why } = &end else { panic!("{task} {id}: {end:?}") };
            assert_eq!((*reason, writes(&rig, "lxc/100").len()), (ReasonCode::IdentityUnproven, 0));
            let second = if field.is_some() {
                assert!(why.contains("a new item was raised"), "{why}");
                anna().approve(&item(engine).await, 8, now(&rig))
            } else {
                // A row that tells nothing at all may be another task at every reading: the item waits until it is gone.
                rig.node.with(evenkeel_sim::Simulator::clear_faults);
                first
            };
            let end = carried_out(engine, &second).await.end;
            assert!(matches!(end, OpOutcome::Succeeded { .. }), "{task} {id}: {end:?}");
            Ok(())
        })
        .await;
        assert!(!exists(&rig, "lxc/100"));
    }
}

/// Every list of a pass, with one row that is odd in every way: other guests are healed, and nobody is taken for absent.
#[tokio::test(start_paused = true)]
async fn y03_no_odd_row_of_any_list_keeps_another_guest_from_being_healed() {
    let wanted = format!(
        "{RUNS}[guest.100]\nkind = \"lxc\"\ncores = 3\nhostname = \"web\"\n\
         rootfs = {{ storage = \"local-lvm\", size = \"8GiB\" }}\n\
         source = {{ template = \"store:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }}\n"
    );
    for (list, row, fields) in [
        ("/pve1/lxc", "\"vmid\":100", &["vmid", "status", "template", "lock"][..]),
        ("/pve1/qemu", "\"vmid\":101", &["vmid", "status", "template"]),
        ("/cluster/resources", "/100\"", &["id", "type", "vmid", "node", "hastate"]),
        ("/cluster/status", "\"type\"", &["type", "name", "quorate"]),
        ("/access/permissions", "VM.Audit", &["VM.Audit", "Sys.Audit"]),
        ("/pve1/tasks", "UPID", &["upid", "status", "endtime"]),
        ("/pve1/storage", "local-lvm", &["storage", "active", "avail"]),
        ("/lxc/100/pending", "cores", &["key", "delete"]),
    ] {
        for field in fields.iter().copied().map(Some).chain([None]) {
            for becomes in OddValue::ALL {
                let rig = rig().await;
                happen(&rig, Event::Power { guest: HEALED.parse().unwrap(), running: false });
                rig.node.with(evenkeel_sim::Simulator::clear_records);
                bend(&rig, list, Some(row), field, becomes);
                live(&rig, async |engine| whole_pass(engine, &wanted).await).await;
                let case = format!("{list} {field:?} {becomes:?}");
                assert!(runs(&rig, HEALED), "{case}: the other guest is not healed");
                assert_eq!(made_or_destroyed(&rig), Vec::<String>::new(), "{case}");
            }
        }
    }
}

/// Which guest a row without a number is about is not known: no number counts as free by that list.
#[tokio::test(start_paused = true)]
async fn y03_while_a_row_names_no_guest_nobody_is_made_and_then_they_are() {
    let rig = rig().await;
    let wanted = "[guest.120]\nkind = \"lxc\"\nhostname = \"web\"\n\
        rootfs = { storage = \"local-lvm\", size = \"8GiB\" }\n\
        source = { template = \"store:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }\n";
    bend(&rig, "/pve1/lxc", Some("\"vmid\":100"), Some("vmid"), OddValue::Null);
    live(&rig, async |engine| whole_pass(engine, wanted).await).await;
    assert!(!exists(&rig, "lxc/120"));
    rig.node.with(evenkeel_sim::Simulator::clear_faults);
    // Somebody of any name works there all the time.
    task_by(&rig, "jürgen@pve", "vzdump", "120");
    live(&rig, async |engine| whole_pass(engine, wanted).await).await;
    assert!(exists(&rig, "lxc/120"));
}

/// An answer is lost while the list holds rows that nobody expects: the task is found all the same, and nothing is sent twice.
#[tokio::test(start_paused = true)]
async fn y03_a_lost_answer_is_found_among_odd_rows() {
    let rig = rig().await;
    happen(&rig, Event::Power { guest: HEALED.parse().unwrap(), running: false });
    task_by(&rig, "jürgen@pve", "vzdump", "102");
    task_by(&rig, "odd@pve", "vzdump", "102");
    bend(&rig, "/pve1/tasks", Some("odd@pve"), None, OddValue::Null);
    rig.node.with(|sim| {
        sim.clear_records();
        let lost = Effect::DropAfter.on("/102/status/start");
        sim.inject(Fault { method: Some("POST".to_owned()), times: Some(1), ..lost });
    });
    live(&rig, async |engine| {
        let settled = whole_pass(engine, RUNS);
        tokio::time::timeout(Duration::from_mins(2), settled).await.expect("it is settled")
    })
    .await;
    assert!(runs(&rig, HEALED));
    assert_eq!(count(&rig, HEALED, "POST start"), 1);
}

/// A storage of 9.1.5 or later may list a volume without its size.
#[tokio::test(start_paused = true)]
async fn y17_an_archive_whose_size_is_not_told_destroys_nothing() {
    let rig = rig().await;
    let ending = "guest.102 = { kind = \"lxc\", state = \"absent\", final_backup = \"store\" }";
    let hide = |hidden| Event::HideSizes { storage: "store".to_owned(), hidden };
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &desired(ending)).await;
        happen(&rig, hide(true));
        let end = carried_out(engine, &approval).await.end;
        let why = format!("{end:?}");
        assert!(why.contains("does not tell the size of the backup"), "{why}");
        assert!(exists(&rig, HEALED) && count(&rig, HEALED, "DELETE 102") == 0);
        Ok(())
    })
    .await;
}
