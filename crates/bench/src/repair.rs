//! `repair`: ten of two hundred guests are changed, and brought back.
//!
//! The floor reads the same two hundred guests with a bare client, and does for each of the ten what nobody can leave out who
//! must not write blindly: a fresh read, the write, and reading back. The simulator is a process of its own.

use std::hint::black_box;
use std::time::Instant;

use evenkeel_agent::engine::{Engine, EngineEvent};
use evenkeel_agent::observe::CONCURRENCY;
use evenkeel_core::desired::Desired;
use futures_util::stream::{self, StreamExt as _};

use crate::BenchRow;
use crate::measure::{median, runtime};
use crate::node::{engine, with_memory};
use crate::server::{Bare, Server};

const GUESTS: u32 = 200;
const CHANGED: u32 = 10;
const REPETITIONS: usize = 15;

/// Writes that the engine lets be in flight at a node.
const WRITES_AT_ONCE: usize = 2;

pub(crate) fn run() -> Vec<BenchRow> {
    let runtime = runtime();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(GUESTS, true);
    let desired = server.imported(&directory.path().join("desired"));
    let mut engine = runtime.block_on(engine(&server, &directory.path().join("state"), None));
    let bare = server.bare();
    let mut numbers = with_memory(&desired);
    numbers.truncate(CHANGED as usize);
    assert_eq!(numbers.len(), CHANGED as usize, "enough containers declare their memory");
    let mut values = Vec::new();
    let mut floors = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..=REPETITIONS {
        runtime.block_on(change(&bare, &numbers));
        let before = runtime.block_on(bare.requests()).len();
        let began = Instant::now();
        runtime.block_on(repaired(&mut engine, &desired));
        values.push(began.elapsed().as_secs_f64() * 1e3);
        let sent = runtime.block_on(bare.requests()).len() - before;
        let acting = u32::try_from(sent).expect("a few hundred") - (GUESTS + 3);
        requests.push(f64::from(acting) / f64::from(CHANGED));
        runtime.block_on(change(&bare, &numbers));
        let began = Instant::now();
        runtime.block_on(barely_repaired(&bare, &numbers));
        floors.push(began.elapsed().as_secs_f64() * 1e3);
    }
    vec![
        BenchRow::new(
            format!("repair/{CHANGED} of {GUESTS} guests, tls"),
            "ms",
            median(values),
            median(floors),
        ),
        BenchRow::new("repair/requests for each, reading aside", "requests", median(requests), 3.0),
    ]
}

async fn change(bare: &Bare, numbers: &[u32]) {
    for number in numbers {
        let event = format!(
            "{{\"kind\": \"edit\", \"guest\": \"lxc/{number}\", \"set\": {{\"memory\": \"77\"}}}}"
        );
        bare.happen(&event).await;
    }
}

async fn repaired(engine: &mut Engine, desired: &Desired) {
    let begun = engine.pass(desired).await.expect("the simulator answers");
    assert_eq!(begun.plan.actions().count(), CHANGED as usize, "what was changed is planned");
    loop {
        if let EngineEvent::Pass { id, report } = engine.work().await.expect("the journal holds")
            && id == begun.id
        {
            assert_eq!(report.succeeded, CHANGED as usize, "{report:?}");
            return;
        }
    }
}

async fn barely_repaired(bare: &Bare, numbers: &[u32]) {
    let lists = ["/nodes/pve1/lxc", "/nodes/pve1/qemu"];
    futures_util::future::join(bare.get(lists[0]), bare.get(lists[1])).await;
    let paths: Vec<String> = (100..100 + GUESTS)
        .map(|number| format!("/nodes/pve1/{}/pending", guest(number)))
        .collect();
    let sizes = stream::iter(&paths).map(|path| bare.get(path)).buffer_unordered(CONCURRENCY);
    black_box(sizes.fold(0, |sum, size| async move { sum + size }).await);
    let repairs = stream::iter(numbers).map(|number| async move {
        let guest = guest(*number);
        bare.get(&format!("/nodes/pve1/{guest}/pending")).await;
        bare.send("PUT", &format!("/nodes/pve1/{guest}/config"), "memory=512").await;
        bare.get(&format!("/nodes/pve1/{guest}/pending")).await
    });
    black_box(repairs.buffer_unordered(WRITES_AT_ONCE).collect::<Vec<_>>().await);
}

fn guest(number: u32) -> String {
    let kind = if number.is_multiple_of(2) { "lxc" } else { "qemu" };
    format!("{kind}/{number}")
}
