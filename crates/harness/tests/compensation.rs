//! What a failed making of ours left is removed unsigned when everything proves that nobody would miss it, and a scratch
//! guest that shall be absent too; with anything else it stays.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_agent::engine::{Engine, Fatal, OpOutcome, Report};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    begin, desired, fault, finish, journal, pass, polls, rig, states, writes,
};
use evenkeel_sim::{Effect, Event, NumberThing, SimRequest, TOKENS};

const ARCHIVE: &str = "backup/vzdump-qemu-101-2026_11_01-02_00_00.vma.zst";

const WANTED: &str = "[guest.120]\nkind = \"qemu\"\n\
    source = { backup = \"store:backup/vzdump-qemu-101-2026_11_01-02_00_00.vma.zst\" }\n\
    scsi0 = { storage = \"local-lvm\", size = \"8GiB\" }\nname = \"again\"\nonboot = false\nmode = \"enforce\"\n";

const ABSENT: &str = "[guest.120]\nkind = \"qemu\"\nstate = \"absent\"\n";

fn guest() -> GuestId {
    "qemu/120".parse().unwrap()
}

/// A node with a backup of a small machine, and a task list that is not empty.
async fn node() -> Rig {
    let mut rig = rig(4);
    rig.scratch_vmids = "120-129".parse().unwrap();
    rig.node.with(|sim| {
        let id: GuestId = "qemu/101".parse().unwrap();
        let record = sim.world.guest(id).unwrap();
        let mut config = record.config.clone();
        config.active = [
            ("memory", "512"),
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
            ("scsi0", "local-lvm:vm-101-disk-0,size=8G"),
            ("smbios1", "uuid=5c1d9a0e-0000-4000-8000-000000000101"),
        ]
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .into();
        let guest_birth = record.birth;
        let archive = evenkeel_sim::StoredArchive {
            guest: id,
            guest_birth,
            config,
            truncated: false,
            files: BTreeSet::new(),
        };
        let store = sim.world.storages.get_mut("store").unwrap();
        store.put_file(ARCHIVE, "backup", "vma.zst", 1 << 20);
        let volume = store.volumes.get_mut(ARCHIVE).unwrap();
        (volume.vmid, volume.archive) = (Some(id.vmid), Some(Box::new(archive)));
    });
    for act in ["stop", "start"] {
        somebody(&rig, "POST", &format!("lxc/100/status/{act}"), &[]).await;
    }
    rig
}

/// Somebody else does something, and it is done.
async fn somebody(rig: &Rig, method: &str, path: &str, form: &[(&str, &str)]) {
    let (name, secret, _) = TOKENS[2];
    let request = SimRequest::new(method, &format!("/api2/json/nodes/pve1/{path}"));
    let request = request.form(form).token(&format!("{name}={secret}"));
    rig.node.with(|sim| sim.submit(sim.now_ms(), request));
    tokio::time::sleep(Duration::from_mins(1)).await;
    // The node goes on when it is asked.
    let look = SimRequest::new("GET", "/api2/json/version").token(&format!("{name}={secret}"));
    rig.node.with(|sim| sim.submit(sim.now_ms(), look));
}

fn restore_fails(rig: &Rig, times: u32) {
    let message = "command 'vma extract' failed: exit code 255".to_owned();
    fault(rig, Effect::TaskFails { message }, "POST", "qmrestore", times);
}

/// Every destroy that reached the node, of the guest.
fn destroys(rig: &Rig) -> usize {
    let of_guest = |record: &&evenkeel_sim::RequestRecord| {
        record.method == "DELETE" && record.path.ends_with("/qemu/120")
    };
    writes(rig).iter().filter(of_guest).filter(|record| record.executed_ms.is_some()).count()
}

fn is_there(rig: &Rig) -> bool {
    rig.node.with(|sim| sim.world.guest(guest()).is_some())
}

fn kinds(report: &Report) -> Vec<(ActionKind, bool)> {
    let done = |end: &OpOutcome| matches!(end, OpOutcome::Succeeded { .. });
    report.ops.iter().map(|op| (op.kind, done(&op.end))).collect()
}

async fn later(engine: &mut Engine, wanted: &str) -> Result<Report, Fatal> {
    tokio::time::sleep(Duration::from_mins(5)).await;
    pass(engine, &desired(wanted)).await
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_restore_left_is_removed_and_the_guest_is_made_again_after_its_pause() {
    let rig = node().await;
    restore_fails(&rig, 1);
    let lived = rig.live(async |engine| {
        let failed = pass(engine, &desired(WANTED)).await?;
        let planned = begin(engine, &desired(WANTED)).await?.plan;
        while is_there(&rig) {
            tokio::time::timeout(Duration::from_secs(5), engine.work()).await.ok().transpose()?;
        }
        let waits = pass(engine, &desired(WANTED)).await?;
        Ok((failed, planned, waits, later(engine, WANTED).await?))
    });
    let (failed, planned, waits, made) = lived.await.unwrap().unwrap();
    assert!(waits.ops.is_empty(), "its pause is not over: {waits:?}");
    assert_eq!(kinds(&failed), [(ActionKind::Restore, false)], "{failed:?}");
    let action = planned.actions().next().expect("it is planned");
    let told = (action.step.kind(), action.effect());
    assert_eq!(told, (ActionKind::Destroy, "live"), "{action:?} {:?}", journal(&rig));
    assert!(action.reasons()[0].contains("half made -> absent"), "{:?}", action.reasons());
    assert_eq!(kinds(&made)[0], (ActionKind::Restore, true), "{made:?}");
    assert_eq!(destroys(&rig), 1);
    let lines = journal(&rig);
    let removal = lines.iter().find(|line| line["kind"] == "destroy").unwrap();
    assert_eq!(removal["params"]["destroy-unreferenced-disks"], "0", "{removal}");
    assert_eq!(removal["params"]["purge"], "0", "{removal}");
    assert!(removal["making"].is_string() && removal["key"] == "", "{removal}");
    let making = lines.iter().find(|line| line["kind"] == "restore").unwrap();
    assert_eq!(making["source"]["from"], "volume", "{making}");
    assert!(making["task_mark"]["task"].is_string(), "{making}");
    rig.node.with(|sim| {
        let config = &sim.world.guest(guest()).unwrap().config;
        assert_eq!(config.active.get("memory").map(String::as_str), Some("512"));
    });
}

/// Something that happens between the failure and the next pass, and the guest stays.
async fn stays_after(what: &str, happens: impl AsyncFnOnce(&Rig)) {
    let rig = node().await;
    restore_fails(&rig, 1);
    let lived = rig.live(async |engine| {
        pass(engine, &desired(WANTED)).await?;
        assert!(is_there(&rig), "the failed restore left it");
        happens(&rig).await;
        later(engine, WANTED).await
    });
    let report = lived.await.unwrap().unwrap();
    assert!(is_there(&rig), "{what}: {report:?}");
    assert_eq!(destroys(&rig), 0, "{what}: {report:?}");
}

fn happen(rig: &Rig, event: Event) {
    rig.node.with(|sim| sim.happen(event));
}

fn edit(rig: &Rig, key: &str, text: &str) {
    let set = BTreeMap::from([(key.to_owned(), Some(text.to_owned()))]);
    happen(rig, Event::Edit { guest: guest(), set });
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ran_stays() {
    stays_after("somebody started and stopped it", async |rig| {
        somebody(rig, "POST", "qemu/120/status/start", &[]).await;
        somebody(rig, "POST", "qemu/120/status/stop", &[]).await;
    })
    .await;
    stays_after("it runs", async |rig| {
        somebody(rig, "POST", "qemu/120/status/start", &[]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_touched_or_made_again_stays() {
    stays_after("somebody's snapshot", async |rig| {
        somebody(rig, "POST", "qemu/120/snapshot", &[("snapname", "mine")]).await;
    })
    .await;
    stays_after("a key", async |rig| edit(rig, "name", "mine")).await;
    stays_after("a volume", async |rig| edit(rig, "scsi1", "tank:vm-120-disk-7,size=1G")).await;
    stays_after("an unused volume", async |rig| edit(rig, "unused0", "tank:vm-120-disk-7")).await;
    stays_after("another guest", async |rig| {
        happen(rig, Event::Recreate { guest: guest() });
        tokio::time::sleep(Duration::from_mins(1)).await;
    })
    .await;
    stays_after("it went and came", async |rig| {
        happen(rig, Event::MigrateAway { guest: guest() });
        tokio::time::sleep(Duration::from_mins(1)).await;
        happen(rig, Event::MigrateBack { guest: guest(), another: true });
        tokio::time::sleep(Duration::from_mins(1)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_stays_while_the_task_list_proves_nothing() {
    stays_after("the list was cut", async |rig| happen(rig, Event::ForgetTasks)).await;
    stays_after("no quorum", async |rig| happen(rig, Event::Quorum { quorate: false })).await;
    stays_after("the clock was set back", async |rig| {
        happen(rig, Event::Clock { step_s: -90_000 });
    })
    .await;
    stays_after("it is locked", async |rig| {
        happen(rig, Event::Lock { guest: guest(), lock: Some("backup".to_owned()) });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_stays_when_its_source_is_gone_or_is_another_file_of_that_name() {
    stays_after("gone", async |rig| {
        happen(rig, Event::LoseVolume { volid: format!("store:{ARCHIVE}") });
    })
    .await;
    stays_after("half of it", async |rig| {
        happen(rig, Event::Truncate { volid: format!("store:{ARCHIVE}") });
    })
    .await;
    stays_after("another file", async |rig| {
        rig.node.with(|sim| {
            let store = sim.world.storages.get_mut("store").unwrap();
            store.volumes.get_mut(ARCHIVE).unwrap().ctime += 1;
        });
    })
    .await;
}

/// Tasks of others are hidden from a token without the right to see them: a hidden start counts like a seen one.
#[tokio::test(start_paused = true)]
async fn without_the_right_to_see_all_tasks_nothing_is_removed() {
    let (name, secret, _) = TOKENS[2];
    let rig = node().await.with_token(name, secret);
    restore_fails(&rig, 1);
    let lived = rig.live(async |engine| {
        pass(engine, &desired(WANTED)).await?;
        let there = is_there(&rig);
        happen(
            &rig,
            Event::Withhold {
                holder: "ops@pve".to_owned(),
                path: "/nodes/pve1".to_owned(),
                privilege: "Sys.Audit".to_owned(),
            },
        );
        Ok((there, later(engine, WANTED).await?))
    });
    let (there, report) = lived.await.unwrap().unwrap();
    assert!(there && is_there(&rig), "{report:?}");
    assert_eq!(destroys(&rig), 0);
    assert!(
        report.holds.iter().any(|hold| hold.reason == ReasonCode::IdentityUnproven),
        "{report:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_block_that_was_removed_or_a_guest_without_a_source_removes_nothing() {
    for wanted in ["", "[guest.120]\nkind = \"qemu\"\ncores = 2\n"] {
        let rig = node().await;
        restore_fails(&rig, 1);
        let lived = rig.live(async |engine| {
            pass(engine, &desired(WANTED)).await?;
            later(engine, wanted).await
        });
        lived.await.unwrap().unwrap();
        assert!(is_there(&rig) && destroys(&rig) == 0, "{wanted}");
    }
}

/// The outcome of the one DELETE is lost: it is never sent again, whatever the passes find.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_answer_is_lost_is_never_sent_again() {
    let rig = node().await;
    restore_fails(&rig, 1);
    fault(&rig, Effect::DropBefore, "DELETE", "/qemu/120", u32::MAX);
    let lived = rig.live(async |engine| {
        for _ in 0..20 {
            pass(engine, &desired(WANTED)).await?;
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
        Ok(())
    });
    lived.await.unwrap().unwrap();
    let sent = writes(&rig).iter().filter(|record| record.method == "DELETE").count();
    assert_eq!(sent, 1, "{:?}", states(&rig));
    assert!(is_there(&rig));
}

/// Kills the agent after every number of polls of its life, lets the next life go on, and looks at the node.
#[tokio::test(start_paused = true)]
async fn a_death_at_any_moment_of_a_removal_sends_one_delete_at_most() {
    let mut removed = 0;
    for cut in 1..600 {
        let rig = node().await;
        restore_fails(&rig, 1);
        let first = rig.live(async |engine| pass(engine, &desired(WANTED)).await.map(drop));
        first.await.unwrap().unwrap();
        let dies = rig.live(async |engine| pass(engine, &desired(WANTED)).await.map(drop));
        let died = polls(cut, dies).await.is_none();
        let second = rig.live(async |engine| {
            finish(engine).await?;
            for _ in 0..4 {
                later(engine, WANTED).await?;
            }
            Ok(())
        });
        second.await.unwrap().unwrap();
        assert!(destroys(&rig) <= 1, "killed after {cut} polls: {:?}", states(&rig));
        let whole = rig.node.with(|sim| {
            let found = sim.world.guest(guest()).unwrap();
            found.config.active.contains_key("scsi0")
        });
        removed += u32::from(whole);
        let held = rig.node.with(|sim| sim.world.guest(guest()).unwrap().config.active.len() <= 1);
        assert!(whole || held, "killed after {cut} polls: {:?}", states(&rig));
        assert!(whole || died, "nothing stood in its way: {:?}", states(&rig));
        if !died {
            break;
        }
    }
    assert!(removed > 10, "most deaths change nothing: {removed}");
}

fn scratch() -> String {
    format!("{WANTED}scratch = true\nrun = \"running\"\n")
}

/// A scratch guest that runs; then something happens, and it shall be absent.
async fn scratch_after(happens: impl AsyncFnOnce(&mut Rig)) -> (Rig, Report) {
    let mut rig = node().await;
    let made = rig.live(async |engine| pass(engine, &desired(&scratch())).await);
    let made = made.await.unwrap().unwrap();
    assert!(kinds(&made).contains(&(ActionKind::Start, true)), "{made:?}");
    happens(&mut rig).await;
    let lived = rig.live(async |engine| later(engine, ABSENT).await);
    let report = lived.await.unwrap().unwrap();
    (rig, report)
}

#[tokio::test(start_paused = true)]
async fn a_scratch_guest_that_shall_be_absent_goes_unsigned_although_it_ran() {
    let (rig, report) = scratch_after(async |_| {}).await;
    assert!(!is_there(&rig), "{report:?}");
    assert_eq!(destroys(&rig), 1);
    let (rig, report) = scratch_after(async |rig| {
        rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
        somebody(rig, "POST", "qemu/120/status/start", &[]).await;
    })
    .await;
    assert!(!is_there(&rig), "a start ends nothing: {report:?}");
    let (rig, report) = scratch_after(async |rig| {
        somebody(rig, "POST", "qemu/120/status/stop", &[]).await;
    })
    .await;
    assert!(is_there(&rig) && destroys(&rig) == 0, "whoever stops it may miss it: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scratch_guest_stays_outside_its_range_and_after_anybody_else_worked_on_it() {
    type Happens = fn(&mut Rig);
    let rows: [(&str, Happens); 5] = [
        ("root took the number out", |rig| rig.scratch_vmids = "130-139".parse().unwrap()),
        ("the list was cut", |rig| happen(rig, Event::ForgetTasks)),
        ("a volume came", |rig| edit(rig, "scsi1", "tank:vm-120-disk-7,size=1G")),
        ("it is protected", |rig| edit(rig, "protection", "1")),
        ("another guest", |rig| happen(rig, Event::Reuse { guest: guest() })),
    ];
    for (what, happens) in rows {
        let (rig, report) = scratch_after(async |rig| happens(rig)).await;
        assert!(is_there(&rig) && destroys(&rig) == 0, "{what}: {report:?}");
    }
    let (rig, report) = scratch_after(async |rig| {
        somebody(rig, "POST", "qemu/120/snapshot", &[("snapname", "mine")]).await;
    })
    .await;
    assert!(is_there(&rig) && destroys(&rig) == 0, "a snapshot: {report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_made_outside_the_range_or_not_as_scratch_is_signed_for() {
    for (range, words) in
        [("130-139", scratch()), ("120-129", format!("{WANTED}run = \"running\"\n"))]
    {
        let mut rig = node().await;
        rig.scratch_vmids = range.parse().unwrap();
        let made = rig.live(async |engine| pass(engine, &desired(&words)).await);
        made.await.unwrap().unwrap();
        rig.scratch_vmids = "120-129".parse().unwrap();
        let lived = rig.live(async |engine| later(engine, ABSENT).await);
        let report = lived.await.unwrap().unwrap();
        assert!(is_there(&rig) && destroys(&rig) == 0, "{range}: {report:?}");
        let runs = rig.node.with(|sim| sim.world.guest(guest()).unwrap().power.is_running());
        assert!(runs, "{range}");
    }
}

fn give(rig: &Rig, thing: NumberThing) {
    happen(rig, Event::Around { guest: guest(), thing, present: true });
}

/// What the number has beside a guest.
fn around(rig: &Rig) -> BTreeSet<String> {
    rig.node.with(|sim| sim.world.around(guest().vmid))
}

/// A DELETE takes firewall, roles and pool with the guest; whoever gave them to the number may miss them.
#[tokio::test(start_paused = true)]
async fn y02_what_others_gave_the_number_keeps_a_half_made_guest() {
    for thing in NumberThing::ALL {
        let rig = node().await;
        // A firewall file holds a restore, which would replace it; so it comes later.
        let is_firewall = matches!(thing, NumberThing::Firewall | NumberThing::FirewallAlias);
        if !is_firewall {
            give(&rig, thing);
        }
        restore_fails(&rig, 1);
        let lived = rig.live(async |engine| {
            pass(engine, &desired(WANTED)).await?;
            assert!(is_there(&rig), "{thing:?}: the failed restore left it");
            if is_firewall {
                give(&rig, thing);
            }
            let before = around(&rig);
            Ok((before, later(engine, WANTED).await?))
        });
        let (before, report) = lived.await.unwrap().unwrap();
        assert!(!before.is_empty(), "{thing:?}");
        assert_eq!(around(&rig), before, "{thing:?}: {report:?}");
        assert!(is_there(&rig) && destroys(&rig) == 0, "{thing:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn y02_what_others_gave_the_number_keeps_a_scratch_guest() {
    for thing in NumberThing::ALL {
        let (rig, report) = scratch_after(async |rig| give(rig, thing)).await;
        assert!(!around(&rig).is_empty(), "{thing:?}");
        assert!(is_there(&rig) && destroys(&rig) == 0, "{thing:?}: {report:?}");
    }
}

/// What the token may not see may be there.
#[tokio::test(start_paused = true)]
async fn y02_what_the_token_may_not_see_keeps_the_guest() {
    let (name, secret, _) = TOKENS[2];
    let rows = [
        ("/access", "Sys.Audit"),
        ("/pool", "Pool.Audit"),
        // Somebody's pool, of which the token is not told.
        ("/pool/theirs", "Pool.Audit"),
    ];
    for (path, privilege) in rows {
        let rig = node().await.with_token(name, secret);
        give(&rig, NumberThing::Pool);
        restore_fails(&rig, 1);
        let lived = rig.live(async |engine| {
            pass(engine, &desired(WANTED)).await?;
            let holder = "ops@pve".to_owned();
            let path = path.to_owned();
            happen(&rig, Event::Withhold { holder, path, privilege: privilege.to_owned() });
            later(engine, WANTED).await
        });
        let report = lived.await.unwrap().unwrap();
        assert!(is_there(&rig) && destroys(&rig) == 0, "{path}: {report:?}");
    }
}

/// A list that cannot be read is not an empty one.
#[tokio::test(start_paused = true)]
async fn y02_a_list_that_cannot_be_read_keeps_the_guest() {
    let lists = [
        "/access/acl",
        "/access/permissions",
        "/cluster/ha/resources",
        "/cluster/replication",
        "/cluster/backup",
        "/firewall/rules",
        "/firewall/options",
        "/firewall/aliases",
        "/firewall/ipset",
    ];
    for list in lists {
        stays_after(list, async |rig| {
            let garbage = Effect::Garbage { body: "not now".to_owned() };
            fault(rig, garbage, "GET", list, u32::MAX);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn y02_a_making_writes_down_what_the_number_had_before() {
    let hash = async |things: &[NumberThing]| {
        let rig = node().await;
        for thing in things {
            give(&rig, *thing);
        }
        let lived = rig.live(async |engine| pass(engine, &desired(WANTED)).await);
        lived.await.unwrap().unwrap();
        let lines = journal(&rig);
        let making = lines.iter().find(|line| line["kind"] == "restore").unwrap();
        making["around"].as_str().unwrap().to_owned()
    };
    let nothing = hash(&[]).await;
    assert_eq!(hash(&[]).await, nothing);
    let with_role = hash(&[NumberThing::Access]).await;
    let with_job = hash(&[NumberThing::Access, NumberThing::BackupJob]).await;
    assert!(nothing != with_role && with_role != with_job);
}

/// A copy or a restore brings its source's firewall file, and Proxmox puts it over the one that is there.
#[tokio::test(start_paused = true)]
async fn y02_a_restore_is_held_by_a_firewall_file_that_it_would_replace() {
    let rig = node().await;
    give(&rig, NumberThing::Firewall);
    let lived = rig.live(async |engine| pass(engine, &desired(WANTED)).await);
    let report = lived.await.unwrap().unwrap();
    assert!(!is_there(&rig) && report.held == 1, "{report:?}");
    assert!(!around(&rig).is_empty());
}
