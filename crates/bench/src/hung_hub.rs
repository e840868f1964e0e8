//! A pass beside a hub that hangs: it accepts every connection and answers nobody, and the agent's real link waits for it.
//!
//! The floor is the same engine on the same node without a link, in rounds by turns. What is told is the slow end, the pass
//! that 99 of 100 are faster than: a hub must not be felt there either.
#![expect(clippy::unwrap_used, reason = "a bench stops on errors")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::engine::{AnchorWatch, Engine};
use evenkeel_agent::hub_link::http::HubHttp;
use evenkeel_agent::hub_link::picture::HostPicture;
use evenkeel_agent::hub_link::{DocumentReader, HubDesk, HubLink, LinkIdentity, LinkView};
use evenkeel_agent::pve::Client;
use evenkeel_agent::pve::tls::TlsTrust;
use evenkeel_core::desired::Desired;
use evenkeel_core::fleet::{DocumentFloor, HubId};
use evenkeel_core::sign::HostBinding;
use evenkeel_harness::{Operator, SimExchange, script};
use evenkeel_sim::{InProcess, Scenario, Simulator, TOKENS};
use secrecy::SecretString;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::BenchRow;
use crate::gate;

/// Guests of the node.
const GUESTS: u32 = 20;
/// Rounds of each kind, and how long one is: the link's first report leaves after five seconds, and hangs too.
const ROUNDS: usize = 4;
const ROUND: Duration = Duration::from_secs(6);

pub(crate) async fn passes() -> BenchRow {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hung = tokio::spawn(hang(listener));
    let world = Scenario { guests: GUESTS, ..Scenario::default() }.build();
    let (token, secret, _) = TOKENS[0];
    let wire = SimExchange::new(InProcess::new(Simulator::new(world)), format!("{token}={secret}"));
    let client = Client::new(Arc::new(wire), "pve1".parse().unwrap());
    let scratch = tempfile::TempDir::new().unwrap();
    let mut engine = gate::engine(&client, token, &Operator::new("anna", 1), scratch.path()).await;
    let hub_id: HubId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    engine.keep_floor(&DocumentFloor::enrolled(hub_id)).await.unwrap();
    let declared = (100..100 + GUESTS).map(|number| {
        let kind = if number % 2 == 0 { "lxc" } else { "qemu" };
        format!("guest.{number} = {{ kind = \"{kind}\" }}\n")
    });
    let desired = script::desired(&declared.collect::<String>());
    let mut beside = Vec::new();
    let mut alone = Vec::new();
    // Once for the caches.
    round(&mut engine, &desired).await;
    for _ in 0..ROUNDS {
        let (requests, mut requested) = mpsc::channel(4);
        let (mut desk, _, _) = HubDesk::open(scratch.path(), &mut engine).await.unwrap();
        let link = tokio::spawn(link(&engine, address.port(), requests).run());
        // Its first poll is under way when the first pass begins.
        tokio::time::sleep(Duration::from_millis(50)).await;
        beside.extend(round(&mut engine, &desired).await);
        while let Ok(request) = requested.try_recv() {
            desk.take(&mut engine, request).await.unwrap();
        }
        assert!(!link.is_finished(), "the link waits for its hub");
        link.abort();
        alone.extend(round(&mut engine, &desired).await);
    }
    hung.abort();
    BenchRow::new("hub: pass beside a hung hub, p99", "ms", slow_end(beside), slow_end(alone))
}

/// Passes, each in milliseconds.
async fn round(engine: &mut Engine, desired: &Desired) -> Vec<f64> {
    let mut times = Vec::new();
    let end = Instant::now() + ROUND;
    while Instant::now() < end {
        let began = Instant::now();
        engine.pass(desired).await.unwrap();
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times
}

/// The time that 99 of 100 are below.
fn slow_end(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Takes every connection, reads what comes, and says nothing.
async fn hang(listener: tokio::net::TcpListener) {
    let mut held = tokio::task::JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        held.spawn(async move {
            let mut heard = [0; 4096];
            while stream.read(&mut heard).await.is_ok_and(|count| count > 0) {}
        });
    }
}

fn link(
    engine: &Engine,
    port: u16,
    desk: mpsc::Sender<evenkeel_agent::hub_link::DeskRequest>,
) -> HubLink {
    let url = format!("http://127.0.0.1:{port}").parse().unwrap();
    let credential = SecretString::from(format!("evkc_{}", "0".repeat(64)));
    let exchange = HubHttp::new(url, &TlsTrust::Platform, Some(credential)).unwrap();
    let host = Operator::new("host", 9);
    let key = host.key.clone();
    HubLink {
        exchange: Arc::new(exchange),
        identity: LinkIdentity {
            hub_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            host: HostBinding { id: "bench".parse().unwrap(), key: key.fingerprint() },
            key,
            instance: "0123456789abcdef".parse().unwrap(),
            vouch: Arc::new(move |namespace, bytes| Ok(host.armour(namespace, bytes))),
        },
        journal: engine.journal().clone(),
        ambient: Arc::new(Machine) as Arc<dyn Ambient>,
        desk,
        reader: DocumentReader::beside(),
        picture: Arc::new(HostPicture::default),
        view: LinkView::default(),
        anchor: AnchorWatch::default(),
        history: None,
    }
}
