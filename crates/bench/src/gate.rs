//! `gate`: what a judgement costs, and what a signed destroy costs beyond the calls it cannot do without.
//!
//! The floor of the judgement is one plan of that guest. The floor of the destroy is the bare sequence of its calls to
//! the same simulated node: the guest, its pending view and the task list, once to be judged and once directly before
//! the act; DELETE, the task, the number, the quorum. The journal is a real one, on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{
    AnchorWatch, ApprovalContext, Engine, EngineContext, EngineEvent, OpOutcome, Submitted,
};
use evenkeel_agent::policy::Policy;
use evenkeel_agent::pve::{Client, TaskFilter, TaskSource};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::{FreshGuest, GateVerdict, NodeSite, judge};
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::operate::lane::LaneLimits;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::plan::{PlanContext, plan};
use evenkeel_core::sign::{HostBinding, Namespace, Role, TrustVersion, TrustedSigners};
use evenkeel_core::value::Value;
use evenkeel_harness::{Operator, SimExchange};
use evenkeel_sim::{InProcess, Scenario, SimRequest, Simulator, TOKENS};
use tokio::sync::RwLock;

use crate::BenchRow;
use crate::fleet::as_declared;
use crate::measure::{by_turns, median, runtime};

/// Guests of the node; a quarter of them are destroyed by the engine and a quarter bare.
const GUESTS: u32 = 80;
/// Judgements in one round.
const CALLS: u32 = 200;

pub(crate) fn run() -> Vec<BenchRow> {
    let (value, floor) = runtime().block_on(destroys());
    vec![judgement(), BenchRow::new("gate/signed destroy, end to end", "ms", value, floor)]
}

/// Microseconds to judge a benign write of one key on a container with fifteen.
fn judgement() -> BenchRow {
    let (mut desired, actual) = as_declared(1);
    let (vmid, fresh) = actual.guests.iter().next().expect("there is one guest");
    let mut declared = desired.guests.remove(vmid).expect("it is declared");
    if let evenkeel_core::desired::WantedState::Present(spec) = &mut declared.state {
        let cores = spec.fields.iter_mut().find(|field| field.key.to_string() == "cores");
        cores.expect("cores are declared").want = Some(Value::Integer(7));
    }
    desired.guests.insert(*vmid, declared.clone());
    let planned = plan(&desired, &actual, &PlanContext::default());
    let action = planned.runnable().next().expect("one write is planned").clone();
    let site = NodeSite {
        node: actual.node.clone(),
        release: actual.release,
        conventions: actual.conventions,
    };
    let known = PlanContext::default();
    let judged = || {
        for _ in 0..CALLS {
            let fresh = FreshGuest::Here(fresh);
            let verdict = judge(black_box(&action), &declared, fresh, &site, &known);
            assert!(matches!(verdict, GateVerdict::Clear(_)), "{verdict:?}");
        }
    };
    let bare = || {
        for _ in 0..CALLS {
            black_box(plan(black_box(&desired), &actual, &PlanContext::default()));
        }
    };
    let (value, floor) = by_turns(101, judged, bare);
    let per_call = |nanoseconds: f64| nanoseconds / f64::from(CALLS) / 1000.0;
    BenchRow::new("gate/judge a benign action", "us", per_call(value), per_call(floor))
}

/// Milliseconds of a signed destroy, by the engine and as bare calls.
async fn destroys() -> (f64, f64) {
    let mut world = Scenario { guests: GUESTS, ..Scenario::default() }.build();
    world.epoch_s = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let mut simulator = Simulator::new(world);
    simulator.timings.short_ms = 0;
    for guest in simulator.world.guests.values_mut() {
        guest.power = evenkeel_sim::SimPower::Stopped;
        guest.config.active.remove("protection");
        guest.config.pending.clear();
        guest.config.active.remove("lock");
    }
    let containers: Vec<GuestId> = simulator
        .world
        .guests
        .values()
        .map(|guest| guest.id)
        .filter(|guest| guest.kind == GuestKind::Lxc)
        .collect();
    let node = InProcess::new(simulator);
    let (token, secret, _) = TOKENS[0];
    let wire = SimExchange::new(node.clone(), format!("{token}={secret}"));
    let client = Client::new(Arc::new(wire), "pve1".parse().expect("pve1 is a node"));
    let anna = Operator::new("anna", 1);
    let directory = tempfile::TempDir::new().expect("a directory for the journal can be made");
    let mut engine = engine(&client, token, &anna, directory.path()).await;
    let mut signed = Vec::new();
    let mut bare = Vec::new();
    let mut nonce = 0;
    // A first destroy leaves the task that proves that the list reaches back.
    bare_destroy(&client, &node, containers[0]).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    for pair in containers[1..].chunks_exact(2) {
        nonce += 1;
        let approval = raised(&mut engine, &anna, pair[0], nonce).await;
        let start = Instant::now();
        signed_destroy(&mut engine, &approval).await;
        signed.push(start.elapsed().as_secs_f64() * 1000.0);
        let start = Instant::now();
        bare_destroy(&client, &node, pair[1]).await;
        bare.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    (median(signed), median(bare))
}

pub(crate) async fn engine(
    client: &Client,
    owner: &str,
    anna: &Operator,
    state: &std::path::Path,
) -> Engine {
    let ambient: Arc<dyn Ambient> = Arc::new(Machine);
    let journal = StateDir::new(state.join("state")).open_journal(&ambient);
    let host_key = || Operator::new("host", 9);
    let host = host_key();
    let host_key = host_key();
    let binding =
        HostBinding { id: "bench".parse().expect("bench is a host"), key: host.key.fingerprint() };
    let signers =
        vec![anna.signer(Role::Operational), Operator::new("vault", 2).signer(Role::Recovery)];
    let trust = TrustedSigners::genesis(TrustVersion(1), signers).expect("these are good signers");
    let policy = Policy { destructive_per_day: 1_000, ..Policy::default() };
    let approvals = ApprovalContext {
        authority: Arc::new(RwLock::new(Authority::first(binding, trust))),
        seal: Arc::new(move |item| Ok(host.seal(Namespace::Pending, &item.to_bytes()?))),
        policy,
        judging_lock: Arc::default(),
        host_key: host_key.key.clone(),
        vouch: Arc::new(move |namespace, bytes| Ok(host_key.armour(namespace, bytes))),
        anchor: AnchorWatch::default(),
    };
    let journal = journal.expect("a journal opens in a fresh directory").handle;
    let context = EngineContext::new(client.clone(), journal, ambient, owner.to_owned())
        .approved_by(Some(approvals));
    Engine::start(context, LaneLimits::default()).await.expect("nothing is in flight")
}

/// Asks for a destroy and signs it: that is people's time, not the host's.
async fn raised(engine: &mut Engine, anna: &Operator, guest: GuestId, nonce: u128) -> String {
    let asked = engine.request(ActionKind::Destroy, guest, BTreeMap::new()).await;
    let id = asked.expect("it may be asked for");
    let (item, _) =
        engine.pending().await.expect("the journal works").remove(&id).expect("it waits");
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    anna.approve(&item, nonce, UnixSeconds(now))
}

async fn signed_destroy(engine: &mut Engine, approval: &str) {
    let submitted = engine.submit_approval(approval.as_bytes()).await.expect("the journal works");
    let Submitted::Accepted(op) = submitted else { panic!("it was not taken: {submitted:?}") };
    loop {
        if let EngineEvent::Op(report) = engine.work().await.expect("the journal works")
            && report.op == op
        {
            assert_eq!(report.end, OpOutcome::Succeeded { warning: None });
            return;
        }
    }
}

/// The same calls with nothing in between.
async fn bare_destroy(client: &Client, node: &InProcess, guest: GuestId) {
    client.guest_status(guest).await.expect("the guest is there");
    client.pending(guest).await.expect("the guest is there");
    let filter = TaskFilter { source: Some(TaskSource::All), ..TaskFilter::default() };
    let before: BTreeSet<_> = tasks(client, &filter).await;
    client.guest_status(guest).await.expect("the guest is there");
    client.pending(guest).await.expect("the guest is there");
    tasks(client, &filter).await;
    let (token, secret, _) = TOKENS[0];
    let target = format!("/api2/json/nodes/pve1/{guest}?purge=0&destroy-unreferenced-disks=0");
    node.send(SimRequest::new("DELETE", &target).token(&format!("{token}={secret}"))).await;
    let task = tasks(client, &filter).await.difference(&before).next().cloned();
    let task = task.expect("it left a task");
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    client.wait(&task, deadline).await.expect("the task ends");
    assert!(client.vmid_is_free(guest.vmid).await.expect("the node answers"));
    client.cluster_status().await.expect("the node answers");
}

async fn tasks(
    client: &Client,
    filter: &TaskFilter,
) -> BTreeSet<evenkeel_core::operate::operation::Upid> {
    let listed = client.tasks(filter).await.expect("the node answers");
    listed.rows.into_iter().map(|entry| entry.upid).collect()
}
