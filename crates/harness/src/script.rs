//! Scripted lives: what the tests of engine and recovery share.
//!
//! A test wants things to go well that a script does besides; where they do not, it fails with a word.

use std::task::Poll;
use std::time::Duration;

use evenkeel_agent::engine::{Engine, EngineEvent, Fatal, PassError, Report};
use evenkeel_agent::journal::verify;
use evenkeel_core::desired::Desired;
use evenkeel_core::fleet::GuestReport;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_sim::{
    Config, Effect, Event, Fault, RequestRecord, Scenario, SimPower, SimRequest, Simulator, TOKENS,
};
use serde_json::Value;

use crate::rig::Rig;

/// A desired file.
pub fn desired(text: &str) -> Desired {
    let mut sources = Sources::default();
    sources.add("guests.toml", text);
    evenkeel_core::desired::load(&sources).expect("a test's own desired file is right")
}

/// A node with so many guests: 100 a container, 101 a machine, and so on.
pub fn rig(guests: u32) -> Rig {
    let world = Scenario { guests, ..Scenario::default() }.build();
    Rig::new(Simulator::new(world), 1)
}

/// One guest more on a node.
pub fn put_guest(rig: &Rig, guest: &str, config: &[(&str, &str)], running: bool) {
    let power = if running {
        SimPower::Running { since_ms: 0, pid: 4000, paused: false }
    } else {
        SimPower::Stopped
    };
    rig.node.with(|sim| sim.world.put_guest(guest_id(guest), Config::of(config), power));
}

/// Somebody writes a guest's file; nothing takes the key out.
pub fn edit(rig: &Rig, guest: &str, set: &[(&str, Option<&str>)]) {
    let set =
        set.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest_id(guest), set }));
}

/// A guest's file as it is.
pub fn stored(rig: &Rig, guest: &str, key: &str) -> Option<String> {
    rig.node.with(|sim| sim.world.guest(guest_id(guest))?.config.active.get(key).cloned())
}

fn guest_id(guest: &str) -> GuestId {
    guest.parse().expect("a test's own guest has a name")
}

/// One pass in a life of its own.
pub async fn one_life(rig: &Rig, wanted: &str) -> Report {
    let wanted = desired(wanted);
    let life = rig.live(async |engine| pass(engine, &wanted).await).await;
    life.expect("a life begins").expect("a pass ends")
}

/// A container that is as declared, as its host reports it.
pub fn quiet_guest(number: u32) -> GuestReport {
    GuestReport {
        guest: format!("lxc/{number}"),
        kind: "lxc".to_owned(),
        name: format!("web-{number}"),
        state: "as_declared".to_owned(),
        actual: [("cores", "2"), ("memory", "2048"), ("hostname", "web")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..GuestReport::default()
    }
}

/// Starts a pass; a node that cannot be read fails the test.
pub async fn begin(
    engine: &mut Engine,
    desired: &Desired,
) -> Result<evenkeel_agent::engine::BegunPass, Fatal> {
    match engine.pass(desired).await {
        Ok(pass) => Ok(pass),
        Err(PassError::Fatal(fatal)) => Err(fatal),
        Err(error) => panic!("{error}"),
    }
}

/// One pass, and everything it set off.
pub async fn pass(engine: &mut Engine, desired: &Desired) -> Result<Report, Fatal> {
    let pass = begin(engine, desired).await?;
    loop {
        if let EngineEvent::Pass { id, report } = engine.work().await?
            && id == pass.id
        {
            return Ok(*report);
        }
    }
}

/// Everything that is under way; what stays unknown is told by nobody.
pub async fn finish(engine: &mut Engine) -> Result<(), Fatal> {
    while let Ok(event) = tokio::time::timeout(Duration::from_mins(30), engine.work()).await {
        event?;
    }
    Ok(())
}

/// A fault that meets every request of that method whose path contains the text, so many times.
pub fn fault(rig: &Rig, effect: Effect, method: &str, contains: &str, times: u32) {
    let method = Some(method.to_owned());
    let contains = Some(contains.to_owned());
    rig.node.with(|sim| sim.inject(Fault { effect, method, contains, times: Some(times) }));
}

/// What was sent that changes something, by us or under our token.
pub fn writes(rig: &Rig) -> Vec<RequestRecord> {
    rig.node.with(|sim| sim.records().iter().filter(|record| record.mutating).cloned().collect())
}

/// Somebody else sends a request under our token.
pub fn somebody_sends(rig: &Rig, method: &str, path: &str, form: &[(&str, &str)]) {
    let (name, secret, _) = TOKENS[0];
    let request = SimRequest::new(method, &format!("/api2/json/nodes/pve1/{path}"));
    let request = request.form(form).token(&format!("{name}={secret}"));
    rig.node.with(|sim| sim.submit(sim.now_ms(), request));
}

/// The lines of the journal.
pub fn journal(rig: &Rig) -> Vec<Value> {
    let mut lines = Vec::new();
    let read = verify::read(&rig.disk, |line| {
        lines.push(serde_json::from_str(&line.text).expect("a line is JSON"));
    });
    read.expect("the journal is whole");
    lines
}

/// The states of all operations, in the order they were written.
pub fn states(rig: &Rig) -> Vec<String> {
    let lines = journal(rig);
    let ops = lines.iter().filter(|line| line["type"] == "op");
    ops.map(|line| line["state"].as_str().expect("an op line has a state").to_owned()).collect()
}

/// Lets the agent live until the node looks so, and kills it there. None if it was killed.
pub async fn until<T>(
    rig: &Rig,
    mut so: impl FnMut(&Simulator) -> bool,
    life: impl Future<Output = T>,
) -> Option<T> {
    let mut life = Box::pin(life);
    std::future::poll_fn(|context| {
        if let Poll::Ready(end) = life.as_mut().poll(context) {
            return Poll::Ready(Some(end));
        }
        if rig.node.with(|sim| so(sim)) { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Lets the agent be polled so often, and kills it then. None if it was killed.
pub async fn polls<T>(mut left: u32, life: impl Future<Output = T>) -> Option<T> {
    let mut life = Box::pin(life);
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        life.as_mut().poll(context).map(Some)
    })
    .await
}

/// Whether a request that changes something was carried out.
pub fn executed(sim: &Simulator) -> bool {
    sim.records().iter().any(|record| record.mutating && record.executed_ms.is_some())
}
