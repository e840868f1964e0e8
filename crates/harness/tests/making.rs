//! Guests that are declared and not there are made: once, never over somebody's, and never started before they are as
//! declared.

use evenkeel_agent::engine::{OpOutcome, Progress, Report};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::model::release::Release;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{
    desired, executed, fault, finish, pass, polls, rig, somebody_sends, states, until, writes,
};
use evenkeel_harness::script::{edit, stored};
use evenkeel_sim::{Effect, Fault, Scenario, Simulator};

const TEMPLATE: &str = "store:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";

fn container(more: &str) -> String {
    format!(
        "[guest.120]\nkind = \"lxc\"\nsource = {{ template = \"{TEMPLATE}\" }}\nhostname = \"web\"\n\
         rootfs = {{ storage = \"local-lvm\", size = \"8GiB\" }}\n{more}"
    )
}

fn kinds(report: &Report) -> Vec<(ActionKind, bool)> {
    let done = |end: &OpOutcome| matches!(end, OpOutcome::Succeeded { .. });
    report.ops.iter().map(|op| (op.kind, done(&op.end))).collect()
}

fn power(sim: &Simulator, vmid: u32) -> Option<String> {
    let power = sim.world.guests.get(&vmid).map(|guest| format!("{:?}", guest.power))?;
    power.split(' ').next().map(str::to_owned)
}

/// How often a guest was made.
fn makings(rig: &Rig) -> usize {
    let made = |path: &str| path.ends_with("/lxc") || path.ends_with("/qemu");
    let of_number = |record: &&evenkeel_sim::RequestRecord| {
        record.method == "POST" && (made(&record.path) || record.path.ends_with("/clone"))
    };
    writes(rig).iter().filter(of_number).filter(|record| record.executed_ms.is_some()).count()
}

/// What was asked of the node, in its order; the names of tasks left out.
fn asked(rig: &Rig) -> Vec<String> {
    let told = |record: &evenkeel_sim::RequestRecord| {
        let path = record.path.trim_start_matches("/api2/json");
        let path = if path.contains("UPID") { "task status" } else { path };
        format!("{} {path}", record.method)
    };
    rig.node.with(|sim| sim.records().iter().map(told).collect())
}

/// The table in docs/design/0013: what proves one act is what the next is judged by.
#[tokio::test(start_paused = true)]
async fn a_making_asks_for_what_it_must_know_and_for_nothing_twice() {
    let rig = rig(4);
    rig.node.with(|sim| (sim.timings.create_ms, sim.timings.start_ms) = (0, 0));
    let wanted = desired(&container("cores = 2\nrun = \"running\"\n"));
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    assert_eq!(lived.await.unwrap().unwrap().failed, 0);
    let asked = asked(&rig);
    let looked = asked.iter().rposition(|line| line == "GET /cluster/nextid").unwrap();
    let lane: Vec<&str> = asked[looked - 1..].iter().map(String::as_str).collect();
    assert_eq!(
        lane,
        [
            "GET /nodes/pve1/tasks",
            "GET /cluster/nextid",
            "GET /nodes/pve1/storage/store/content",
            "GET /cluster/status",
            "GET /nodes/pve1/tasks",
            "GET /nodes/pve1/storage/local-lvm/content",
            "GET /nodes/pve1/storage",
            "GET /nodes/pve1/lxc/120/firewall/rules",
            "GET /nodes/pve1/lxc/120/firewall/options",
            "GET /access/acl",
            "GET /cluster/ha/resources",
            "GET /cluster/replication",
            "GET /cluster/backup",
            "GET /access/permissions",
            "POST /nodes/pve1/lxc",
            "GET task status",
            "GET /nodes/pve1/lxc/120/status/current",
            "GET /nodes/pve1/lxc/120/pending",
            "POST /nodes/pve1/lxc/120/status/start",
            "GET task status",
            "GET /nodes/pve1/lxc/120/status/current",
            "GET /nodes/pve1/lxc/120/pending",
        ]
    );
}

/// The makings of a moment share what is the same for all; each number is proved for itself.
#[tokio::test(start_paused = true)]
async fn guests_that_are_made_at_once_share_what_is_the_same_for_all() {
    let rig = rig(4);
    rig.node.with(|sim| (sim.timings.create_ms, sim.timings.start_ms) = (0, 0));
    let text: String = (120..130)
        .map(|vmid| container("run = \"running\"\n").replace("120", &vmid.to_string()))
        .collect();
    let wanted = desired(&text);
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    assert_eq!((report.failed, report.held, makings(&rig)), (0, 0, 10), "{report:?}");
    let asked = asked(&rig);
    let count = |line: &str| asked.iter().filter(|asked| *asked == line).count();
    assert_eq!(count("GET /nodes/pve1/storage"), 1);
    assert_eq!(count("GET /nodes/pve1/storage/store/content"), 1);
    // The shared list, and who works under each number.
    assert_eq!(count("GET /nodes/pve1/tasks"), 1 + 10);
    assert_eq!(count("GET /nodes/pve1/storage/local-lvm/content"), 10);
    assert_eq!(count("GET /access/acl"), 1);
    assert_eq!(count("GET /cluster/backup"), 1);
    // The pass itself asks too.
    assert_eq!(count("GET /cluster/nextid"), 10 + 10);
}

/// What the makings of a moment take counts, although all of them saw the storage before.
#[tokio::test(start_paused = true)]
async fn a_shared_list_of_storages_counts_what_was_promised_since() {
    let rig = rig(4);
    rig.node.with(|sim| {
        sim.timings.create_ms = 0;
        let storage = sim.world.storages.get_mut("local-lvm").unwrap();
        let used: u64 = storage.volumes.values().map(|volume| volume.size_bytes).sum();
        storage.total_bytes = used + (20 << 30);
    });
    let text: String =
        (120..125).map(|vmid| container("").replace("120", &vmid.to_string())).collect();
    let wanted = desired(&text);
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    assert_eq!((makings(&rig), report.held), (2, 3), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_and_started_in_one_pass() {
    let rig = rig(4);
    let wanted = desired(&container("cores = 2\nrun = \"running\"\n"));
    let lived = rig.live(async |engine| {
        let first = pass(engine, &wanted).await?;
        Ok((first, pass(engine, &wanted).await?))
    });
    let (first, second) = lived.await.unwrap().unwrap();
    assert_eq!(kinds(&first), [(ActionKind::Create, true), (ActionKind::Start, true)], "{first:?}");
    assert_eq!((second.planned, second.in_sync), (0, 1), "{second:?}");
    rig.node.with(|sim| {
        assert_eq!(power(sim, 120).as_deref(), Some("Running"));
        let config = &sim.world.guests[&120].config;
        assert_eq!(config.active.get("hostname").map(String::as_str), Some("web"));
        assert_eq!(config.active.get("unprivileged").map(String::as_str), Some("1"));
    });
}

#[tokio::test(start_paused = true)]
async fn what_the_request_does_not_take_follows_before_the_first_start() {
    let rig = rig(4);
    rig.node.with(|sim| {
        let source = "lxc/100".parse().unwrap();
        sim.happen(evenkeel_sim::Event::Power { guest: source, running: false });
    });
    let wanted =
        "[guest.120]\nkind = \"lxc\"\nsource = { clone = 100 }\ncores = 7\nrun = \"running\"\n";
    let wanted = desired(wanted);
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    let kinds = kinds(&report);
    assert_eq!(kinds.first(), Some(&(ActionKind::Clone, true)), "{report:?}");
    assert_eq!(kinds.last(), Some(&(ActionKind::Start, true)), "{report:?}");
    assert!(kinds.contains(&(ActionKind::SetConfig, true)), "{report:?}");
    rig.node.with(|sim| {
        let config = &sim.world.guests[&120].config;
        assert_eq!(config.active.get("cores").map(String::as_str), Some("7"));
        assert_eq!(power(sim, 120).as_deref(), Some("Running"));
    });
}

/// A copy that names no storage goes where its source's volumes are: what a former guest left there holds it.
#[tokio::test(start_paused = true)]
async fn a_copy_is_not_made_beside_what_a_former_guest_left() {
    let rig = rig(4);
    let storage = rig.node.with(|sim| {
        let source = "lxc/100".parse().unwrap();
        sim.happen(evenkeel_sim::Event::Power { guest: source, running: false });
        let root = sim.world.guests[&100].config.active["rootfs"].clone();
        let storage = root.split(':').next().unwrap().to_owned();
        let kept = sim.world.storages.get_mut(&storage).unwrap();
        kept.put_file("vm-120-disk-7", "rootdir", "raw", 4 << 30);
        kept.volumes.get_mut("vm-120-disk-7").unwrap().vmid = Some(120.try_into().unwrap());
        storage
    });
    let wanted = desired("[guest.120]\nkind = \"lxc\"\nsource = { clone = 100 }\n");
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    let OpOutcome::Held { reason, why } = &report.ops[0].end else { panic!("{report:?}") };
    assert_eq!(*reason, ReasonCode::Storage);
    assert!(why.contains(&format!("{storage}:vm-120-disk-7")), "{why}");
    assert!(writes(&rig).is_empty());
}

/// A number that no list shows is asked for by itself, however many there are.
#[tokio::test(start_paused = true)]
async fn more_than_a_hundred_guests_are_made_in_one_pass() {
    const GUESTS: usize = 120;
    let rig = rig(0);
    let container = |vmid: usize| {
        let source = format!("{{ template = \"{TEMPLATE}\" }}");
        let rootfs = "{ storage = \"local-lvm\", size = \"1GiB\" }";
        format!("guest.{vmid} = {{ kind = \"lxc\", source = {source}, rootfs = {rootfs} }}\n")
    };
    let wanted: String = (200..200 + GUESTS).map(container).collect();
    let wanted = desired(&wanted);
    let report = rig.live(async |engine| pass(engine, &wanted).await).await.unwrap().unwrap();
    assert_eq!((report.succeeded, report.errors.len()), (GUESTS, 0), "{:?}", report.errors);
    assert_eq!(makings(&rig), GUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_missing_template_holds_and_nothing_is_sent() {
    let rig = rig(4);
    let wanted = desired(&container("").replace("debian-12-standard", "nobody-has-this"));
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    let OpOutcome::Held { reason, why } = &report.ops[0].end else { panic!("{report:?}") };
    assert_eq!(*reason, ReasonCode::Storage);
    assert!(why.contains("does not exist"), "{why}");
    assert!(writes(&rig).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_storage_without_room_holds_and_names_the_room() {
    let rig = rig(4);
    let wanted = desired(&container("").replace("8GiB", "900000GiB"));
    let lived = rig.live(async |engine| pass(engine, &wanted).await);
    let report = lived.await.unwrap().unwrap();
    let OpOutcome::Held { reason, why } = &report.ops[0].end else { panic!("{report:?}") };
    assert_eq!(*reason, ReasonCode::Storage);
    assert!(why.contains("local-lvm has") && why.contains("free"), "{why}");
    assert!(writes(&rig).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_number_that_somebody_took_meanwhile_is_never_touched() {
    let rig = rig(4);
    let wanted = desired(&container("cores = 5\nrun = \"running\"\n"));
    // Somebody is faster, between our reading and our request.
    fault(&rig, Effect::Latency { ms: 5_000 }, "POST", "/lxc", 1);
    let lived = rig.live(async |engine| {
        let begun = evenkeel_harness::script::begin(engine, &wanted).await?;
        let taken = async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            let form = [("vmid", "120"), ("ostemplate", TEMPLATE), ("rootfs", "local-lvm:4")];
            somebody_sends(&rig, "POST", "lxc", &form);
            std::future::pending::<()>().await;
        };
        let report = async {
            loop {
                if let evenkeel_agent::engine::EngineEvent::Pass { id, report } =
                    engine.work().await?
                    && id == begun.id
                {
                    return Ok::<_, evenkeel_agent::engine::Fatal>(*report);
                }
            }
        };
        let first = tokio::select! {
            report = report => report?,
            () = taken => unreachable!(),
        };
        Ok((first, pass(engine, &wanted).await?))
    });
    let (first, second) = lived.await.unwrap().unwrap();
    assert!(!matches!(first.ops[0].end, OpOutcome::Succeeded { .. }), "{first:?}");
    assert!(second.ops.is_empty() || second.started == 0, "{second:?}");
    rig.node.with(|sim| {
        let config = &sim.world.guests[&120].config;
        assert_eq!(config.active.get("cores"), None, "somebody's guest stays as it is");
        assert_eq!(power(sim, 120).as_deref(), Some("Stopped"));
    });
}

#[tokio::test(start_paused = true)]
async fn a_making_that_fails_is_told_and_tried_again_later() {
    let rig = rig(4);
    let message = "unable to create CT 120 - no space left".to_owned();
    fault(&rig, Effect::TaskFails { message }, "POST", "vzcreate", 1);
    let wanted = desired(&container("run = \"running\"\n"));
    let lived = rig.live(async |engine| {
        let first = pass(engine, &wanted).await?;
        let second = pass(engine, &wanted).await?;
        tokio::time::sleep(std::time::Duration::from_mins(3)).await;
        Ok((first, second, pass(engine, &wanted).await?))
    });
    let (first, second, third) = lived.await.unwrap().unwrap();
    let OpOutcome::Failed { why } = &first.ops[0].end else { panic!("{first:?}") };
    assert!(why.contains("no space left"), "{why}");
    assert_eq!(second.holds[0].reason, ReasonCode::FailedBefore, "{second:?}");
    assert_eq!(kinds(&third), [(ActionKind::Create, true), (ActionKind::Start, true)], "{third:?}");
}

/// A machine's disks are copied for seven seconds.
async fn copied(shows_logs: bool, trouble: Option<Effect>) -> (Rig, Report, std::time::Duration) {
    let rig = Rig { shows_logs, ..rig(4) };
    rig.node.with(|sim| sim.timings.copy_ms = 7_000);
    if let Some(trouble) = trouble {
        let trouble = Fault { times: None, ..trouble.on("/log") };
        rig.node.with(|sim| sim.inject(trouble));
    }
    let wanted = desired("guest.220 = { kind = \"qemu\", source = { clone = 103, full = true } }");
    let begun = tokio::time::Instant::now();
    let lived = rig.live(async |engine| pass(engine, &wanted).await).await;
    let report = lived.expect("the journal opens").expect("the journal works");
    (rig, report, begun.elapsed())
}

fn logs_read(rig: &Rig) -> usize {
    rig.node.with(|sim| sim.records().iter().filter(|record| record.path.ends_with("/log")).count())
}

fn logs_told(rig: &Rig) -> Vec<(String, Option<u8>)> {
    let told = rig.progress.lock().expect("nobody panics while they tell");
    let line = |progress: &Progress| {
        if let Progress::Log { line, percent, .. } = progress {
            Some((line.clone(), *percent))
        } else {
            None
        }
    };
    told.iter().filter_map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_task_logs_is_told_to_a_terminal_and_read_once_without_one() {
    let (rig, report, _) = copied(true, None).await;
    assert_eq!(report.failed + report.held, 0, "{report:?}");
    let (line, percent) = logs_told(&rig).first().cloned().expect("a line is told");
    assert!(line.starts_with("transferred 0.0 B of ") && line.ends_with("(0.00%)"), "{line}");
    assert_eq!(percent, Some(0));
    let (rig, _, _) = copied(false, None).await;
    // What a copy warns of is looked for when it has ended.
    assert_eq!((logs_read(&rig), logs_told(&rig)), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_fails_nothing_and_delays_it_by_seconds_at_most() {
    let (_, _, unwatched) = copied(false, None).await;
    for trouble in [
        Effect::Latency { ms: 60_000 },
        Effect::DropBefore,
        Effect::ProxyStatus { status: 596, executed: true },
        Effect::Garbage { body: "<html>".to_owned() },
    ] {
        let (rig, report, took) = copied(true, Some(trouble.clone())).await;
        assert!(logs_read(&rig) > 0, "{trouble:?}");
        assert_eq!(report.failed + report.held, 0, "{trouble:?}: {report:?}");
        // While it is waited for nothing is delayed; the look at its end has three seconds.
        assert!(took <= unwatched + std::time::Duration::from_secs(3), "{trouble:?}: {took:?}");
    }
}

/// Kills the agent after every number of polls, lets the next life go on, and looks at the node.
#[tokio::test(start_paused = true)]
async fn a_death_at_any_moment_makes_the_guest_once() {
    for cut in (1..400).step_by(3) {
        let rig = rig(3);
        let wanted = desired(&container("cores = 2\nrun = \"running\"\n"));
        let first = rig.live(async |engine| pass(engine, &wanted).await.map(drop));
        if polls(cut, first).await.is_some() {
            break;
        }
        let second = rig.live(async |engine| {
            finish(engine).await?;
            pass(engine, &wanted).await?;
            finish(engine).await?;
            pass(engine, &wanted).await
        });
        let report = second.await.unwrap().unwrap();
        assert_eq!(makings(&rig), 1, "killed after {cut} polls: {:?}", states(&rig));
        assert_eq!(report.in_sync, 1, "killed after {cut} polls: {report:?} {:?}", states(&rig));
        rig.node.with(|sim| assert_eq!(power(sim, 120).as_deref(), Some("Running"), "{cut}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_with_the_request_on_its_way_is_settled_by_the_task() {
    let rig = rig(3);
    let wanted = desired(&container("run = \"running\"\n"));
    let life = rig.live(async |engine| pass(engine, &wanted).await.map(drop));
    assert!(until(&rig, executed, life).await.is_none(), "it was killed");
    let second = rig.live(async |engine| {
        finish(engine).await?;
        pass(engine, &wanted).await
    });
    let report = second.await.unwrap().unwrap();
    assert_eq!(makings(&rig), 1, "{report:?}");
    rig.node.with(|sim| assert_eq!(power(sim, 120).as_deref(), Some("Running")));
}

/// A storage may hold years of backups of every guest.
#[tokio::test(start_paused = true)]
async fn y12_the_source_of_a_restore_is_asked_for_by_the_guest_that_was_saved() {
    let rig = rig(4);
    let volid = rig.node.with(|sim| {
        let guest = "lxc/100".parse().unwrap();
        let config = sim.world.guest(guest).unwrap().config.clone();
        let file = evenkeel_sim::BackupFile {
            ctime: sim.world.epoch_s - 3_600,
            format: "tar.zst".to_owned(),
            size_bytes: 1 << 20,
            notes: None,
            protected: false,
            excludes: Vec::new(),
        };
        sim.world.put_backup("store", guest, &config, &file).unwrap()
    });
    let declared = desired(&format!(
        "[guest.120]\nkind = \"lxc\"\nsource = {{ backup = \"{volid}\" }}\n\
         rootfs = {{ storage = \"local-lvm\", size = \"32GiB\" }}\n"
    ));
    rig.node.with(Simulator::clear_records);
    let life = rig.live(async |engine| pass(engine, &declared).await);
    let report = life.await.unwrap().unwrap();
    assert_eq!(kinds(&report).first(), Some(&(ActionKind::Restore, true)), "{report:?}");
    let unbound: Vec<_> = rig.node.with(|sim| {
        let lists = sim.records().iter().filter(|record| record.path.ends_with("/store/content"));
        let all: Vec<_> = lists.cloned().collect();
        assert!(!all.is_empty());
        all.into_iter().filter(|record| !record.params.contains(&"vmid".to_owned())).collect()
    });
    assert!(unbound.is_empty(), "{unbound:?}");
}

async fn report_of(rig: &Rig, text: &str) -> Report {
    let wanted = desired(text);
    let lived = rig.live(async |engine| pass(engine, &wanted).await).await;
    lived.expect("the journal opens").expect("the journal works")
}

#[tokio::test(start_paused = true)]
async fn y14_a_copy_that_brings_a_shared_directory_or_a_mapped_device_is_made_and_not_started() {
    let wanted =
        "[guest.220]\nkind = \"qemu\"\nsource = { clone = 101, full = true }\nrun = \"running\"\n";
    for (key, value) in [("virtiofs0", "dirid=home"), ("usb0", "mapping=dongle")] {
        let rig = rig(3);
        edit(&rig, "qemu/101", &[(key, Some(value)), ("lock", None), ("template", None)]);
        report_of(&rig, wanted).await;
        let report = report_of(&rig, wanted).await;
        let held = report.holds.iter().find(|hold| hold.reason == ReasonCode::Policy);
        assert!(held.is_some_and(|hold| hold.why.contains(key)), "{key}: {report:?}");
        assert_eq!(stored(&rig, "qemu/220", key).as_deref(), Some(value));
        rig.node.with(|sim| assert_eq!(power(sim, 220).as_deref(), Some("Stopped"), "{key}"));
    }
}

/// A node of 9.2 with an OCI image among its templates, and what is made from that.
fn oci(more: &str) -> (Rig, String) {
    let world = Scenario { guests: 2, release: Release::V9_2, ..Scenario::default() }.build();
    let rig = Rig::new(Simulator::new(world), 1);
    rig.node.with(|sim| {
        let store = sim.world.storages.get_mut("store").expect("every node has it");
        store.put_file("vztmpl/web_1.tar", "vztmpl", "tar", 60_000_000);
    });
    (rig, container(more).replace(TEMPLATE, "store:vztmpl/web_1.tar"))
}

#[tokio::test(start_paused = true)]
async fn y19_what_proxmox_writes_for_an_oci_image_is_no_drift_and_its_network_is_kept() {
    let card = "run = \"running\"\nnet0 = { name = \"eth0\", bridge = \"vmbr0\", ip = \"dhcp\" }\n";
    let (rig, wanted) = oci(card);
    let report = report_of(&rig, &wanted).await;
    assert_eq!(
        kinds(&report),
        [(ActionKind::Create, true), (ActionKind::Start, true)],
        "{report:?}"
    );
    assert_eq!(report_of(&rig, &wanted).await.in_sync, 1);
    let tagged = wanted.replace("bridge = ", "tag = 5, bridge = ");
    let report = report_of(&rig, &tagged).await;
    assert_eq!(kinds(&report), [(ActionKind::SetConfig, true)], "{report:?}");
    let net = stored(&rig, "lxc/120", "net0").unwrap();
    assert!(net.contains("host-managed=1") && net.contains("tag=5"), "{net}");
    assert_eq!(stored(&rig, "lxc/120", "entrypoint").as_deref(), Some("/entry.sh serve"));
    assert_eq!(report_of(&rig, &tagged).await.in_sync, 1);
}

#[tokio::test(start_paused = true)]
async fn y19_a_copy_of_such_a_container_starts_unless_a_raw_line_opens_the_host() {
    for (line, runs) in [(None, true), (Some("lxc.mount.entry"), false)] {
        let (rig, wanted) = oci("");
        report_of(&rig, &wanted).await;
        rig.node.with(|sim| {
            let raw = &mut sim.world.guests.get_mut(&120).unwrap().config.raw;
            assert!(!raw.is_empty(), "Proxmox wrote lines of its own");
            raw.extend(line.map(|line: &str| (line.to_owned(), "/srv srv none bind".to_owned())));
        });
        let copy = "[guest.121]\nkind = \"lxc\"\nsource = { clone = 120, full = true }\nrun = \"running\"\n";
        report_of(&rig, copy).await;
        let report = report_of(&rig, copy).await;
        let state = rig.node.with(|sim| power(sim, 121));
        assert_eq!(state.as_deref(), Some(if runs { "Running" } else { "Stopped" }), "{report:?}");
        let held = report.ops.iter().find(|op| op.end.reason() == Some(ReasonCode::Policy));
        let named = held.is_some_and(|op| op.end.words().contains("lxc.mount.entry"));
        assert_eq!(named, !runs, "{report:?}");
    }
}
