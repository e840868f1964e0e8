//! `observe`: reading a node over HTTP, from a simulator in another process.
//!
//! The floor fetches the same paths with a bare client of the same settings at the same concurrency, and
//! throws the bytes away. Memory is measured on the whole of `evenkeel plan`, against the size of the answers.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use evenkeel_agent::observe::{CONCURRENCY, observe};
use evenkeel_agent::pve::Client;
use evenkeel_core::model::id::{GuestId, GuestKind};
use futures_util::stream::{self, StreamExt as _};
use tokio::runtime::Runtime;

use crate::BenchRow;
use crate::measure::{by_turns, runtime};
use crate::server::{Bare, Server};

/// What is read once, however many guests there are.
const ONCE: [&str; 8] = [
    "/version",
    "/nodes/pve1/lxc",
    "/nodes/pve1/qemu",
    "/cluster/resources?type=vm",
    "/access/permissions",
    "/cluster/status",
    "/cluster/options",
    "/cluster/resources?type=node",
];

pub(crate) fn run() -> Vec<BenchRow> {
    // As the agent and the verbs run it: one thread that waits.
    let runtime = runtime();
    let mut rows = Vec::new();
    let mut plain = Vec::new();
    for (guests, repetitions) in [(100, 101), (1_000, 41), (10_000, 5)] {
        let (value, floor) = milliseconds(&runtime, guests, repetitions, false);
        rows.push(BenchRow::new(format!("observe/{guests} guests, http"), "ms", value, floor));
        plain.push((guests, value, floor));
    }
    let (value, floor) = milliseconds(&runtime, 1_000, 41, true);
    rows.push(BenchRow::new("observe/1000 guests, tls", "ms", value, floor));
    for (few, many) in plain.iter().zip(&plain[1..]) {
        let name = format!("observe/growth {} to {} guests", few.0, many.0);
        rows.push(BenchRow::new(name, "times", many.1 / few.1, many.2 / few.2));
    }
    rows.push(memory_of_a_plan(&runtime));
    rows
}

/// Milliseconds to read a node, by observe and by the bare loop.
fn milliseconds(runtime: &Runtime, guests: u32, repetitions: usize, tls: bool) -> (f64, f64) {
    let server = Server::start(guests, tls);
    let client = server.client();
    let bare = server.bare();
    let paths = paths(runtime, &client);
    assert_eq!(paths.len(), guests as usize + ONCE.len(), "observe reads each guest once");
    let nobody = BTreeSet::new();
    let (value, floor) = by_turns(
        repetitions,
        || {
            let seen = runtime.block_on(observe(&client, &nobody, CONCURRENCY));
            black_box(seen.expect("the simulator answers"));
        },
        || {
            black_box(runtime.block_on(fetch(&bare, &paths)));
        },
    );
    (value / 1e6, floor / 1e6)
}

/// Every path that observe reads.
fn paths(runtime: &Runtime, client: &Client) -> Vec<String> {
    let mut paths: Vec<String> = ONCE.iter().map(|path| (*path).to_owned()).collect();
    for kind in [GuestKind::Lxc, GuestKind::Qemu] {
        let listed = runtime.block_on(client.guests(kind)).expect("the simulator answers");
        let path = |vmid| format!("/nodes/pve1/{}/pending", GuestId::new(kind, vmid));
        paths.extend(listed.rows.iter().map(|guest| path(guest.vmid)));
    }
    paths
}

/// The bare loop: how many bytes the paths answer with.
pub(crate) async fn fetch(bare: &Bare, paths: &[String]) -> usize {
    let sizes = stream::iter(paths).map(|path| bare.get(path)).buffer_unordered(CONCURRENCY);
    sizes.fold(0, |sum, size| async move { sum + size }).await
}

/// The largest resident size of `evenkeel plan` over 10,000 guests, against what the server answers.
fn memory_of_a_plan(runtime: &Runtime) -> BenchRow {
    let server = Server::start(10_000, false);
    let directory = tempfile::tempdir().expect("a temporary directory");
    server.imported(directory.path());
    let mut plan = server.verb("plan");
    plan.arg("--desired").arg(directory.path()).arg("--detailed-exitcode");
    let mut child = plan.stdout(std::process::Stdio::null()).spawn().expect("evenkeel runs");
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = peak_kib.max(peak_resident_kib(child.id()).unwrap_or(0));
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(status.success(), "a plan after import is empty");
    let answers = runtime.block_on(fetch(&server.bare(), &paths(runtime, &server.client())));
    let mebibytes =
        |bytes: u64| f64::from(u32::try_from(bytes / 1024).expect("less than 4 TiB")) / 1024.0;
    let answers = mebibytes(u64::try_from(answers).expect("a size fits"));
    BenchRow::new("observe/peak memory of plan, 10000", "MiB", mebibytes(peak_kib * 1024), answers)
}

/// The kernel's own high-water mark; `None` once the process is gone.
pub(crate) fn peak_resident_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
