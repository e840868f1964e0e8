//! A fleet on loopback against the real hub: how much a connected host costs, how fast a push arrives, how long a restart
//! takes to be over. `scripts/hub-load` calls it.
//!
//! Hosts are what an agent's link is on the wire: a long poll on one TLS connection, signed reports on another, a fetch when
//! there is news, reconnects spread over half a minute. The hub is a process of its own, so its processor time and memory
//! are counted apart from the generator's. It judges nothing.
#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::unwrap_used, reason = "a load test stops on errors")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod agent;
mod hub_process;

use evenkeel_core::fleet::WireFile;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use agent::{Fleet, SimulatedAgent};
use evenkeel_hub::store::{HubStore, NewDocument};
use hub_process::HubProcess;

/// How long the fleet is watched at rest: two reports of each host.
const WATCHED: Duration = Duration::from_mins(2);
/// Pushes whose way is timed.
const PUSHES: usize = 200;

#[tokio::main]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let mut arguments = std::env::args().skip(1);
    let binary =
        PathBuf::from(arguments.next().expect("the first argument is the evenkeel binary"));
    let mut watched = WATCHED;
    let mut database = None;
    let mut sizes: Vec<usize> = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--watch" => watched = Duration::from_secs(arguments.next().unwrap().parse().unwrap()),
            "--database" => database = arguments.next(),
            size => sizes.push(size.parse().expect("numbers of hosts")),
        }
    }
    let sizes = if sizes.is_empty() { vec![100, 1_000, 5_000] } else { sizes };
    println!(
        "{:>6} {:>9} {:>12} {:>11} {:>11} {:>11} {:>9} {:>9} {:>11} {:>10}",
        "hosts",
        "connected",
        "hub cores",
        "generator",
        "KiB/host",
        "bytes/min",
        "push p50",
        "push p99",
        "reconnected",
        "faults"
    );
    for size in sizes {
        round(&binary, database.as_deref(), size, watched).await;
    }
}

async fn round(binary: &std::path::Path, database: Option<&str>, size: usize, watched: Duration) {
    let directory = tempfile::Builder::new().prefix("hub-load").tempdir_in("target").unwrap();
    let hub = HubProcess::start(binary, directory.path(), database, None);
    let store = hub_process::open_store(directory.path(), database).await;
    let resting = hub.resident_kib();
    let fleet = Arc::new(Fleet::default());
    let agents = SimulatedAgent::enrol(&store, &hub, size, &fleet).await;
    let began = Instant::now();
    // As after the start of a site: spread over half a minute.
    let tasks: Vec<_> =
        agents.into_iter().map(|agent| tokio::spawn(agent.run(Duration::from_secs(30)))).collect();
    fleet.until_all_poll(size).await;
    let connected = began.elapsed();
    let hub_cpu = hub.cpu_s();
    let own_cpu = hub_process::own_cpu_s();
    let bytes = fleet.report_bytes.load(Ordering::Relaxed);
    let watching = Instant::now();
    tokio::time::sleep(watched).await;
    let seconds = watching.elapsed().as_secs_f64();
    let cores = (hub.cpu_s() - hub_cpu) / seconds;
    let own = (hub_process::own_cpu_s() - own_cpu) / seconds;
    let per_minute =
        (fleet.report_bytes.load(Ordering::Relaxed) - bytes) as f64 / size as f64 * 60.0 / seconds;
    let per_host = (hub.resident_kib() as f64 - resting as f64) / size as f64;
    let (p50, p99) = pushes(&store, &fleet, size).await;
    let address = hub.address();
    hub.kill();
    fleet.polling.store(0, Ordering::SeqCst);
    let began = Instant::now();
    let hub = HubProcess::start(binary, directory.path(), database, Some(address));
    fleet.until_all_poll(size).await;
    let again = began.elapsed();
    println!(
        "{size:>6} {:>8.1}s {cores:>12.3} {own:>11.3} {per_host:>11.1} {per_minute:>11.0} {:>7}ms {:>7}ms {:>10.1}s {:>10}",
        connected.as_secs_f64(),
        p50.as_millis(),
        p99.as_millis(),
        again.as_secs_f64(),
        fleet.faults.load(Ordering::Relaxed),
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    store.close().await;
    hub.stop();
}

/// Pushes one by one to hosts all over the fleet, through a store of our own as another replica would, and times each until
/// its host has the document in its hands.
async fn pushes(store: &HubStore, fleet: &Fleet, size: usize) -> (Duration, Duration) {
    let mut taken = Vec::new();
    for number in 0..PUSHES {
        let host = agent::name((number * 7919) % size);
        let seen = store.host(&host).await.unwrap().unwrap().wanted;
        let mut news = fleet.taken.subscribe();
        let began = Instant::now();
        let text = format!("# {number}\n[guest.101]\nkind = \"lxc\"\ncores = 2\n");
        let document = NewDocument {
            host: host.clone(),
            manifest: format!("manifest of {text}").into_bytes(),
            files: vec![WireFile { name: "web.toml".to_owned(), text }],
            author: None,
            author_key: String::new(),
            generation: None,
            seen,
            message: String::new(),
            pushed_by: "load".to_owned(),
        };
        let pushed = store.push(document).await.unwrap();
        while news.recv().await.unwrap() != (host.clone(), pushed.generation) {}
        taken.push(began.elapsed());
    }
    taken.sort();
    (taken[taken.len() / 2], taken[taken.len() * 99 / 100])
}
