//! The client against a simulator where everything goes wrong at once: no panic, no hang, bounded memory.
//!
//! A few seconds as a test; `scripts/soak-client` runs it for minutes. The seed of a round is printed, and
//! `EVENKEEL_SOAK_SEED` starts with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Cleared;
use crate::observe::{CONCURRENCY, observe};
use crate::pve::Client;
use crate::pve::http::{HttpExchange, Timeouts};
use crate::pve::tls::TlsTrust;
use crate::pve::token::Token;
use evenkeel_core::model::id::{GuestId, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_sim::{Effect, Event, Fault, Http, HttpOptions, Scenario, Simulator, TOKENS};
use evenkeel_testkit::dice::Dice;
use secrecy::SecretString;
use tokio::time::{Instant, timeout};

use super::every_call;
use super::server::PATIENCE;

/// How long the test soaks if nobody says.
const SECONDS: u64 = 3;
/// No exchange lasts longer than this, whatever the server does.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_millis(300),
    answer: Duration::from_millis(150),
    exchange: Duration::from_millis(300),
};
/// What memory may grow by after the first rounds: far below what any leak of answers would take.
const GROWTH_MAX_KIB: u64 = 64 * 1024;
const GUESTS: u32 = 20;

#[tokio::test]
async fn the_client_survives_a_server_where_everything_goes_wrong() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let seconds = number("EVENKEEL_SOAK_SECONDS", SECONDS);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = number("EVENKEEL_SOAK_SEED", 1);
    let mut settled_kib = None;
    let mut tally = Tally::default();
    let first = seed;
    // A busy machine may answer nothing in time for a while: then it goes on until it has seen both.
    let latest = until + PATIENCE;
    while Instant::now() < until || (!tally.is_mixed() && Instant::now() < latest) {
        round(seed, &mut tally).await;
        seed += 1;
        // The first rounds fill pools and allocator caches.
        if seed == first + 5 {
            settled_kib = Some(resident_kib());
        }
    }
    let rounds = seed - first;
    let now = resident_kib();
    println!(
        "{rounds} rounds from seed {first}: {tally:?}; resident {} KiB after 5 rounds, {now} KiB at the end",
        settled_kib.unwrap_or(now)
    );
    assert!(tally.is_mixed(), "neither all nor nothing may go wrong");
    assert!(now < settled_kib.unwrap_or(now) + GROWTH_MAX_KIB, "memory grows");
}

#[derive(Debug, Default)]
struct Tally {
    answered: u64,
    failed: u64,
    observed: u64,
}

impl Tally {
    /// Whether some calls were answered and some were not.
    fn is_mixed(&self) -> bool {
        self.answered > 0 && self.failed > 0
    }
}

/// A new node with its own mix of faults, every call once, and the node observed.
async fn round(seed: u64, tally: &mut Tally) {
    let mut dice = Dice::new(seed);
    let release = *dice.pick(&[Release::V7_4, Release::V8_4, Release::V9_2]);
    let scenario = Scenario { release, guests: GUESTS, seed, ..Scenario::default() };
    let mut simulator = Simulator::new(scenario.build());
    simulator.delay_unauthorised = dice.below(2) == 0;
    for _ in 0..=dice.below(6) {
        simulator.inject(fault(&mut dice));
    }
    let options = HttpOptions { tls: dice.below(4) == 0, ..HttpOptions::default() };
    let http = Http::start(simulator, options).await.unwrap();
    let client = client(&http);
    for (name, call) in every_call::reads().into_iter().chain(every_call::writes()) {
        if dice.below(4) == 0 {
            let event = event(&mut dice);
            http.node.with(|simulator| simulator.happen(event));
        }
        let done = timeout(PATIENCE, call(client.clone())).await;
        match done.unwrap_or_else(|_| panic!("{name} hangs, seed {seed}")) {
            Ok(_) => tally.answered += 1,
            Err(error) => {
                assert!(!error.to_string().contains(TOKENS[0].1), "{error}, seed {seed}");
                tally.failed += 1;
            }
        }
    }
    wait_for_a_task(&client, seed).await;
    let declared: BTreeSet<VmId> = [100, 101, 999].map(|n| VmId::try_from(n).unwrap()).into();
    let seen = timeout(PATIENCE, observe(&client, &declared, CONCURRENCY)).await;
    let seen = seen.unwrap_or_else(|_| panic!("observe hangs, seed {seed}"));
    tally.observed += u64::from(seen.is_ok());
}

/// Waiting ends at its deadline, whatever becomes of the task.
async fn wait_for_a_task(client: &Client, seed: u64) {
    let guest: GuestId = "lxc/102".parse().unwrap();
    let upid = match client.writes(&Cleared::in_a_test()).start(guest).await {
        Ok(upid) => upid,
        Err(_) => every_call::upid(),
    };
    let waited = client.wait(&upid, Instant::now() + Duration::from_millis(200));
    let done = timeout(PATIENCE, waited).await;
    // A refusal is an answer too; only going on for ever is not.
    drop(done.unwrap_or_else(|_| panic!("waiting hangs, seed {seed}")));
}

fn client(http: &Http) -> Client {
    let pin = http.certificate().fingerprint.parse().unwrap();
    let trust = TlsTrust::pinned(vec![pin]).unwrap();
    let (id, secret, _) = TOKENS[0];
    let token = Token::from_text(&SecretString::from(format!("{id}={secret}"))).unwrap();
    let exchange = HttpExchange::new(http.url().parse().unwrap(), &trust, token, TIMEOUTS).unwrap();
    Client::new(Arc::new(exchange), Scenario::default().node.parse().unwrap())
}

fn fault(dice: &mut Dice) -> Fault {
    let bodies =
        ["", "{", "<html>", "[]", "{\"data\":7}", "{\"data\":[{\"vmid\":\"x\"}]}", "\u{0}"];
    let effect = match dice.below(9) {
        0 => Effect::Latency { ms: *dice.pick(&[1, 40, 60_000]) },
        1 => Effect::ProxyStatus {
            status: *dice.pick(&[595, 596, 599]),
            executed: dice.below(2) == 0,
        },
        2 => Effect::DropBefore,
        3 => Effect::DropAfter,
        4 => Effect::TaskFails { message: "command failed".to_owned() },
        5 => Effect::TaskKilled,
        6 => Effect::LateFork { ms: 50 },
        7 => Effect::Garbage { body: "x".repeat(3 << 20) },
        _ => Effect::Garbage { body: (*dice.pick(&bodies)).to_owned() },
    };
    let places = ["/", "/pending", "/config", "/status", "/tasks", "/cluster", "/lxc", "/qemu"];
    let contains = Some((*dice.pick(&places)).to_owned());
    let times = *dice.pick(&[Some(1), Some(3), None]);
    Fault { effect, method: None, contains, times }
}

fn event(dice: &mut Dice) -> Event {
    let number = u32::try_from(dice.below(GUESTS.into())).unwrap();
    let kind = if number % 2 == 0 { "lxc" } else { "qemu" };
    let guest: GuestId = format!("{kind}/{}", VmId::MIN + number).parse().unwrap();
    match dice.below(11) {
        0 => Event::Lock { guest, lock: Some("backup".to_owned()) },
        1 => Event::HoldFileLock { guest, ms: 500 },
        2 => Event::Quorum { quorate: dice.below(2) == 0 },
        3 => Event::Restart,
        4 => Event::NewCertificate,
        5 => {
            let odd = *dice.pick(&["\u{1b}[2J", "4", "", "a=b,c", "é\u{202e}"]);
            let odd = odd.to_owned();
            Event::Edit { guest, set: BTreeMap::from([("cores".to_owned(), Some(odd))]) }
        }
        6 => Event::Reuse { guest },
        7 => Event::Destroy { guest },
        8 => Event::Power { guest, running: dice.below(2) == 0 },
        9 => Event::IgnoreShutdown { guest, ignores: true },
        _ => Event::ForgetTasks,
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
