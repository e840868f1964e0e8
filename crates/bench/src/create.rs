//! `create`: guests that are declared at once and not there, made by `evenkeel apply`, half containers from a template, half
//! machines from an image that is grown. On a simulator whose tasks take no time.
//!
//! The floor is the bare sequence of the calls nobody can make a guest without, by a client that looks at nothing, on a
//! simulator of its own in the same run: the making, how its task ended, the size, the start, and how that ended. evenkeel
//! also proves that the number is free and that nothing speaks against the making, and reads every guest back; a second
//! floor is all of its own requests, sent bare. How many writes are in flight is what the simulator itself sees, with
//! tasks and requests that take a while.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::engine::{Engine, EngineContext, EngineEvent, PassCause};
use evenkeel_agent::pve::Client;
use evenkeel_agent::pve::exchange::{Exchange, ExchangeFuture, HttpRequest, Method};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::operate::lane::{
    ALLOCATING_TASKS_PER_STORAGE_MAX, LaneLimits, SYNC_WRITES_PER_NODE_MAX,
};
use evenkeel_harness::SimExchange;
use evenkeel_harness::script::desired;
use evenkeel_sim::{Effect, Fault, InProcess, RequestRecord, Scenario, Simulator, TOKENS};
use tokio::runtime::Runtime;

use crate::BenchRow;
use crate::measure::{median, runtime};
use crate::observe::peak_resident_kib;
use crate::server::{Bare, Server};

/// How often each number of guests is made; the middle one counts.
const SIZES: [(u32, usize); 3] = [(1, 11), (100, 5), (1_000, 1)];

/// The number of the first guest.
const FIRST: u32 = 1_000;

const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";
const IMAGE: &str = "local:import/debian-12-genericcloud-amd64.qcow2";

/// Room for a thousand guests, and tasks that take no time.
const SCENARIO: &str = r#"{
  "storages": {"local-lvm": {"kind": "lvmthin", "content": "images,rootdir", "size": "100T"}},
  "timings": {"create_ms": 0, "copy_ms": 0, "short_ms": 0, "start_ms": 0, "stop_ms": 0, "shutdown_ms": 0}
}"#;

/// What making so many guests took.
struct MadeGuests {
    guests: u32,
    apply_ms: f64,
    bare_ms: f64,
    same_ms: f64,
    requests: usize,
    bare_requests: usize,
    peak_kib: u64,
}

pub(crate) fn run() -> Vec<BenchRow> {
    let runtime = runtime();
    let made: Vec<MadeGuests> =
        SIZES.iter().map(|(guests, times)| measure(&runtime, *guests, *times)).collect();
    let mut rows = Vec::new();
    for of in &made {
        let name = format!("create/{} guests, beside the bare calls", of.guests);
        rows.push(BenchRow::new(name, "ms", of.apply_ms, of.bare_ms));
        let name = format!("create/{} guests, beside its own requests", of.guests);
        rows.push(BenchRow::new(name, "ms", of.apply_ms, of.same_ms));
    }
    for (few, many) in made.iter().zip(&made[1..]) {
        let name = format!("create/growth {} to {} guests", few.guests, many.guests);
        let floor = many.bare_ms / few.bare_ms;
        rows.push(BenchRow::new(name, "times", many.apply_ms / few.apply_ms, floor));
    }
    let one = &made[0];
    let many = &made[1];
    let each = |more: usize, less: usize| number(more - less) / f64::from(many.guests - one.guests);
    let ours = each(many.requests, one.requests);
    let bare = each(many.bare_requests, one.bare_requests);
    rows.push(BenchRow::new("create/requests for each guest", "requests", ours, bare));
    let mebibytes = |kib: u64| f64::from(u32::try_from(kib).expect("less than 4 TiB")) / 1024.0;
    let peak = mebibytes(made[2].peak_kib);
    let least = mebibytes(one.peak_kib);
    rows.push(BenchRow::new("create/peak memory, 1000 guests beside 1", "MiB", peak, least));
    let seen = runtime.block_on(in_flight(100));
    for (what, unit, most, cap) in [
        ("writes in flight", "requests", seen.writes, SYNC_WRITES_PER_NODE_MAX),
        ("makings at once on a storage", "tasks", seen.makings, ALLOCATING_TASKS_PER_STORAGE_MAX),
    ] {
        let name = format!("create/most {what}, and the cap");
        rows.push(BenchRow::new(name, unit, number(most), number(cap)));
    }
    rows
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("a bench counts less than 4 billion"))
}

/// Makes so many guests, by turns with `apply`, bare, and with its own requests bare.
fn measure(runtime: &Runtime, guests: u32, times: usize) -> MadeGuests {
    let mut apply_ms = Vec::new();
    let mut bare_ms = Vec::new();
    let mut same_ms = Vec::new();
    let mut requests = 0;
    let mut bare_requests = 0;
    let mut peak_kib = 0;
    for _ in 0..times {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let server = Server::with_scenario(directory.path(), SCENARIO);
        let (took_ms, peak) = applied(&server, directory.path(), guests);
        let sent = runtime.block_on(server.bare().requests());
        apply_ms.push(took_ms);
        (requests, peak_kib) = (sent.len(), peak_kib.max(peak));
        let server = Server::with_scenario(directory.path(), SCENARIO);
        let bare = server.bare();
        let begun = Instant::now();
        runtime.block_on(made_bare(&bare, guests));
        bare_ms.push(milliseconds(begun));
        bare_requests = runtime.block_on(bare.requests()).len();
        // The same again with everything that apply asked; what it wrote was written just now.
        let begun = Instant::now();
        runtime.block_on(read_bare(&bare, &sent));
        same_ms.push(milliseconds(begun) + bare_ms.last().copied().unwrap_or(0.0));
    }
    MadeGuests {
        guests,
        apply_ms: median(apply_ms),
        bare_ms: median(bare_ms),
        same_ms: median(same_ms),
        requests,
        bare_requests,
        peak_kib,
    }
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

/// The desired file.
fn declared(guests: u32) -> String {
    let mut text = String::new();
    for vmid in FIRST..FIRST + guests {
        let guest = if vmid % 2 == 0 {
            format!(
                "kind = \"lxc\"\nsource = {{ template = \"{TEMPLATE}\" }}\nhostname = \"ct{vmid}\"\n\
                 rootfs = {{ storage = \"local-lvm\", size = \"2GiB\" }}"
            )
        } else {
            format!(
                "kind = \"qemu\"\nsource = {{ image = \"{IMAGE}\", into = \"scsi0\" }}\nname = \"vm{vmid}\"\n\
                 scsi0 = {{ storage = \"local-lvm\", size = \"4GiB\" }}"
            )
        };
        let rest = "cores = 2\nmemory = \"512MiB\"\nrun = \"running\"";
        writeln!(text, "[guest.{vmid}]\n{guest}\n{rest}\n").expect("a string takes everything");
    }
    text
}

/// Milliseconds of `evenkeel apply`, and its largest resident size.
fn applied(server: &Server, directory: &Path, guests: u32) -> (f64, u64) {
    let desired = directory.join("desired.toml");
    std::fs::write(&desired, declared(guests)).expect("a directory of our own");
    let mut apply = server.verb("apply");
    apply.arg("-y").arg("--desired").arg(desired).arg("--state").arg(directory.join("state"));
    apply.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = apply.spawn().expect("evenkeel runs");
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(peak_resident_kib(child.id()).unwrap_or(0));
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let took_ms = milliseconds(begun);
    assert!(status.success(), "apply makes {guests} guests: {status}");
    (took_ms, peak_kib)
}

/// The calls nobody can make a guest without, one after another.
async fn made_bare(bare: &Bare, guests: u32) {
    let nodes = "/nodes/pve1";
    for vmid in FIRST..FIRST + guests {
        let kind = if vmid % 2 == 0 { "lxc" } else { "qemu" };
        let path = format!("{nodes}/{kind}");
        let common = format!("vmid={vmid}&cores=2&memory=512");
        let made = if kind == "lxc" {
            format!(
                "{common}&hostname=ct{vmid}&unprivileged=1&ostemplate={TEMPLATE}&rootfs=local-lvm:2"
            )
        } else {
            format!("{common}&name=vm{vmid}&scsi0=local-lvm:0,import-from%3D{IMAGE}")
        };
        ended_bare(bare, &bare.send("POST", &path, &made).await).await;
        if kind == "qemu" {
            let path = format!("{path}/{vmid}/resize");
            ended_bare(bare, &bare.send("PUT", &path, "disk=scsi0&size=4G").await).await;
        }
        let path = format!("{path}/{vmid}/status/start");
        ended_bare(bare, &bare.send("POST", &path, "").await).await;
    }
}

async fn ended_bare(bare: &Bare, answer: &str) {
    let upid = answer.split('"').find(|part| part.starts_with("UPID:")).expect("a task");
    bare.get(&format!("/nodes/pve1/tasks/{upid}/status")).await;
}

/// Every question that apply had, once more; of guests that were not there yet the answer is another by now.
async fn read_bare(bare: &Bare, sent: &[RequestRecord]) {
    for record in sent.iter().filter(|record| !record.mutating) {
        let path = record.path.strip_prefix("/api2/json").unwrap_or(&record.path);
        bare.try_get(path).await;
    }
}

/// The most that was seen at once.
#[derive(Default)]
struct MostAtOnce {
    writes: usize,
    makings: usize,
}

/// Makes so many guests on a node whose calls and tasks take a while, and looks at it at every write.
async fn in_flight(guests: u32) -> MostAtOnce {
    let mut world = Scenario::default().build();
    world.epoch_s = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    if let Some(storage) = world.storages.get_mut("local-lvm") {
        storage.total_bytes = 100 << 40;
    }
    let mut simulator = Simulator::new(world);
    let timings = &mut simulator.timings;
    (timings.create_ms, timings.start_ms, timings.short_ms) = (20, 5, 1);
    simulator.inject(Fault {
        times: None,
        method: Some("POST".to_owned()),
        ..Effect::Latency { ms: 3 }.on("/nodes")
    });
    let node = InProcess::new(simulator);
    let (token, secret, _) = TOKENS[0];
    let wire = Arc::new(CountingWire {
        node: node.clone(),
        wire: SimExchange::new(node, format!("{token}={secret}")),
        open: AtomicUsize::new(0),
        writes: AtomicUsize::new(0),
        makings: AtomicUsize::new(0),
    });
    let client = Client::new(
        Arc::clone(&wire) as Arc<dyn Exchange>,
        "pve1".parse().expect("pve1 is a node"),
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = StateDir::new(directory.path().join("state")).open_journal(&ambient);
    let journal = journal.expect("a journal opens in a fresh directory").handle;
    let context = EngineContext::new(client, journal, ambient, token.to_owned());
    let mut engine =
        Engine::start(context, LaneLimits::default()).await.expect("nothing is in flight");
    let desired = desired(&declared(guests));
    let preview =
        engine.look(&desired, PassScope::Whole, PassCause::Person).await.expect("the node answers");
    let begun = engine.submit(&desired, preview).await.expect("the journal works");
    loop {
        if let EngineEvent::Pass { id, report } = engine.work().await.expect("the journal works")
            && id == begun.id
        {
            assert_eq!(report.failed + report.held + report.skipped, 0, "{report:?}");
            break;
        }
    }
    let writes = &wire.writes;
    let makings = &wire.makings;
    MostAtOnce { writes: writes.load(Ordering::Relaxed), makings: makings.load(Ordering::Relaxed) }
}

/// Looks at the node whenever something is asked of it.
#[derive(Debug)]
struct CountingWire {
    node: InProcess,
    wire: SimExchange,
    open: AtomicUsize,
    writes: AtomicUsize,
    makings: AtomicUsize,
}

impl Exchange for CountingWire {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(async move {
            let writes = request.method() != Method::Get;
            if writes {
                let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
                self.writes.fetch_max(open, Ordering::Relaxed);
            }
            let answer = self.wire.exchange(request).await;
            if writes {
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
            let making = |record: &&RequestRecord| {
                matches!(record.path.rsplit('/').next(), Some("lxc" | "qemu"))
            };
            let running = self.node.with(|sim| {
                let upids =
                    sim.records().iter().filter(making).filter_map(|record| record.upid.as_ref());
                upids.filter(|upid| sim.is_running(upid)).count()
            });
            self.makings.fetch_max(running, Ordering::Relaxed);
            answer
        })
    }
}
