//! `node`: passes of an agent that lives on its node and reads the cluster file system, over a thousand guests.
//!
//! The floor of a pass that finds nothing written is what it cannot do without: both files and the two lists. The same pass
//! without the files stands beside it. The time from a change to its repair is taken on the running agent, as a client of the
//! node sees it. The simulator is a process of its own.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::cluster_files::{ClusterDirectory, ClusterFiles};
use evenkeel_agent::engine::{Engine, EngineContext};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::{DeclaredGuest, Desired, WantedState};
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::operate::lane::LaneLimits;
use tokio::runtime::Runtime;

use crate::BenchRow;
use crate::measure::{by_turns, median, runtime};
use crate::observe::fetch;
use crate::server::{Bare, Server, evenkeel};

/// As many guests as the goals are about.
const GUESTS: u32 = 1_000;

/// How often a pass at rest and its floor take turns. A pass takes milliseconds: on a shared machine few turns tell little.
const TURNS: usize = 301;

/// How many changes are healed, one after the other.
const CHANGES: usize = 60;

pub(crate) fn run() -> Vec<BenchRow> {
    let runtime = runtime();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut bench = NodeBench::new(&runtime, directory.path());
    let mut rows = bench.at_rest(&runtime);
    for count in [1, 10] {
        rows.push(bench.changed(&runtime, count));
    }
    rows.extend(bench.healed(&runtime, directory.path()));
    rows
}

struct NodeBench {
    server: Server,
    bare: Bare,
    files: std::path::PathBuf,
    desired: Desired,
    /// An agent on the node, and one elsewhere.
    near: Engine,
    far: Engine,
}

impl NodeBench {
    fn new(runtime: &Runtime, directory: &Path) -> Self {
        let files = directory.join("pve");
        let server = Server::with_cluster_fs(GUESTS, &files);
        let desired = server.imported(&directory.join("desired"));
        let near = ClusterDirectory::of_node(&files, &"pve1".parse().expect("a node"));
        let near: Arc<dyn ClusterFiles> = Arc::new(near.expect("the simulator shows its files"));
        let engine =
            |name: &str, files| runtime.block_on(engine(&server, &directory.join(name), files));
        let near = engine("near", Some(near));
        let far = engine("far", None);
        let bare = server.bare();
        Self { server, bare, files, desired, near, far }
    }

    /// Nothing was written since.
    fn at_rest(&mut self, runtime: &Runtime) -> Vec<BenchRow> {
        let Self { bare, files, desired, near, far, .. } = self;
        let pass = |engine: &mut Engine| {
            let begun = runtime.block_on(engine.pass(desired)).expect("the simulator answers");
            assert_eq!(begun.plan.actions().count(), 0, "nothing changed");
        };
        let (value, floor) =
            by_turns(TURNS, || pass(near), || runtime.block_on(least(bare, files)));
        let (value_again, over_api) = by_turns(11, || pass(near), || pass(far));
        let whole = whole_read(desired);
        let bare_read = || {
            black_box(runtime.block_on(fetch(bare, &whole)));
        };
        let (far_pass, bare_read) = by_turns(11, || pass(far), bare_read);
        let requests = runtime.block_on(async { bare.requests().await.len() });
        pass(near);
        let requests = runtime.block_on(async { bare.requests().await.len() }) - requests;
        let requests = f64::from(u32::try_from(requests).expect("a few requests"));
        vec![
            BenchRow::new(
                format!("node/{GUESTS} guests, nothing written"),
                "ms",
                value / 1e6,
                floor / 1e6,
            ),
            BenchRow::new(
                format!("node/{GUESTS} guests, read over the API"),
                "ms",
                over_api / 1e6,
                value_again / 1e6,
            ),
            BenchRow::new(
                format!("node/{GUESTS} guests, from another machine, beside a bare read"),
                "ms",
                far_pass / 1e6,
                bare_read / 1e6,
            ),
            BenchRow::new("node/requests of such a pass", "requests", requests, 2.0),
        ]
    }

    /// So many guests were written.
    fn changed(&mut self, runtime: &Runtime, count: u32) -> BenchRow {
        let mut values = Vec::new();
        let mut floors = Vec::new();
        // Somebody locks them, and unlocks them again: a write each time, and nothing that is declared.
        for lock in ["\"backup\"", "null"].into_iter().cycle().take(20) {
            for at in 0..count {
                let guest = format!("{}/{}", kind(100 + at * 7), 100 + at * 7);
                let event =
                    format!("{{\"kind\": \"lock\", \"guest\": \"{guest}\", \"lock\": {lock}}}");
                runtime.block_on(self.bare.happen(&event));
            }
            let began = Instant::now();
            let begun = runtime.block_on(self.near.pass(&self.desired)).expect("an answer");
            values.push(began.elapsed().as_secs_f64() * 1e3);
            assert_eq!(begun.plan.actions().count(), 0, "nothing declared changed");
            let began = Instant::now();
            runtime.block_on(async {
                least(&self.bare, &self.files).await;
                for at in 0..count {
                    let number = 100 + at * 7;
                    self.bare.get(&format!("/nodes/pve1/{}/{number}/pending", kind(number))).await;
                }
            });
            floors.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let name = format!("node/{count} of {GUESTS} guests written");
        BenchRow::new(name, "ms", median(values), median(floors))
    }

    fn edit(&self, runtime: &Runtime, number: u32, set: &str) {
        let guest = format!("{}/{number}", kind(number));
        let event = format!("{{\"kind\": \"edit\", \"guest\": \"{guest}\", \"set\": {set}}}");
        runtime.block_on(self.bare.happen(&event));
    }

    /// From a change to its repair, with the running agent.
    fn healed(&self, runtime: &Runtime, directory: &Path) -> Vec<BenchRow> {
        let _agent = RunningAgent::start(&self.server, directory, &self.files);
        runtime.block_on(self.bare.until_at_rest());
        let mut times = Vec::new();
        for number in with_memory(&self.desired) {
            let path = format!("/nodes/pve1/{}/{number}/config", kind(number));
            let before = runtime.block_on(self.bare.text(&path));
            // Somebody works on a guest that is locked, and nothing is healed meanwhile.
            if before.contains("\"lock\":") {
                continue;
            }
            if times.len() == CHANGES {
                break;
            }
            let began = Instant::now();
            self.edit(runtime, number, "{\"memory\": \"77\"}");
            let is_changed =
                |text: &str| text.contains("\"memory\":77") || text.contains("\"memory\":\"77\"");
            loop {
                std::thread::sleep(Duration::from_millis(5));
                if !is_changed(&runtime.block_on(self.bare.text(&path))) {
                    break;
                }
                assert!(
                    began.elapsed() < Duration::from_secs(30),
                    "{path} is not healed: {before}"
                );
            }
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let half = times[times.len() / 2];
        let most = times[times.len() * 99 / 100];
        let name = |what: &str| format!("node/change to healed, {what}");
        // Beside the second at which it is looked.
        vec![
            BenchRow::new(name("half of them"), "ms", half, 1_000.0),
            BenchRow::new(name("99 of 100"), "ms", most, 1_000.0),
        ]
    }
}

/// Containers whose memory is declared: import leaves out what is Proxmox VE's default.
pub(crate) fn with_memory(desired: &Desired) -> Vec<u32> {
    let has_memory = |guest: &&DeclaredGuest| match &guest.state {
        WantedState::Present(spec) => {
            spec.fields.iter().any(|field| field.key.to_string() == "memory")
        }
        WantedState::Bin(_) | WantedState::Absent { .. } => false,
    };
    let containers = desired.guests.values().filter(|guest| guest.id.kind == GuestKind::Lxc);
    containers.filter(has_memory).map(|guest| guest.id.vmid.get()).collect()
}

/// Guests of the simulator take turns.
fn kind(number: u32) -> &'static str {
    if number.is_multiple_of(2) { "lxc" } else { "qemu" }
}

/// What a pass from another machine cannot do without: both lists and every declared guest.
fn whole_read(desired: &Desired) -> Vec<String> {
    let lists = ["lxc", "qemu"].map(|kind| format!("/nodes/pve1/{kind}"));
    let guests = desired.guests.values().map(|guest| format!("/nodes/pve1/{}/pending", guest.id));
    lists.into_iter().chain(guests).collect()
}

/// What nobody can do without: both files and both lists.
async fn least(bare: &Bare, files: &Path) {
    for name in [".version", ".vmlist"] {
        black_box(std::fs::read(files.join(name)).expect("the simulator shows its files"));
    }
    futures_util::future::join(bare.get("/nodes/pve1/lxc"), bare.get("/nodes/pve1/qemu")).await;
}

/// An engine on a journal of its own.
pub(crate) async fn engine(
    server: &Server,
    state: &Path,
    files: Option<Arc<dyn ClusterFiles>>,
) -> Engine {
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = StateDir::new(state.to_owned()).open_journal(&ambient).expect("a journal").handle;
    let context = EngineContext::new(server.client(), journal, ambient, "bench@pve!it".to_owned());
    let started = Engine::start(context.remembering_by(files), LaneLimits::default()).await;
    started.expect("an engine starts on an empty journal")
}

/// `evenkeel run`; dropping it ends it.
struct RunningAgent(Child);

impl RunningAgent {
    fn start(server: &Server, directory: &Path, files: &Path) -> Self {
        let config = directory.join("agent.toml");
        std::fs::write(&config, server.agent_toml(directory, files)).expect("our own directory");
        let mut command = Command::new(evenkeel());
        command.args(["run", "--log", "warn"]).arg("--config").arg(config);
        Self(command.stderr(Stdio::inherit()).spawn().expect("evenkeel runs"))
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        // It has nothing under way; if it is gone already, all the better.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
