//! An operator's word on an outcome that evidence may still end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_agent::engine::{Engine, EngineEvent, PassError};
use evenkeel_core::desired::Desired;
use evenkeel_core::operate::operation::Resolution;
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_harness::Rig;
use evenkeel_sim::{Effect, Fault, Scenario, SimRequest, Simulator, TOKENS};

fn desired() -> Desired {
    let mut sources = Sources::default();
    sources.add("guests.toml", "guest.114 = { kind = \"lxc\", run = \"running\" }");
    evenkeel_core::desired::load(&sources).unwrap()
}

/// Works for a while, whatever happens.
async fn work_for(engine: &mut Engine, time: Duration) -> Vec<EngineEvent> {
    let deadline = tokio::time::Instant::now() + time;
    let mut events = Vec::new();
    while let Ok(event) = tokio::time::timeout_at(deadline, engine.work()).await {
        events.push(event.unwrap());
    }
    events
}

#[tokio::test(start_paused = true)]
async fn closing_by_hand_what_is_being_looked_at_ends_nothing_else() {
    let world = Scenario { guests: 20, ..Scenario::default() }.build();
    let rig = Rig::new(Simulator::new(world), 1);
    let start = "/nodes/pve1/lxc/114/status/start";
    rig.node.with(|sim| {
        sim.timings.start_ms = 20_000;
        sim.inject(Fault { times: Some(1), ..Effect::DropAfter.on(start) });
        sim.inject(Effect::DropBefore.on("/tasks"));
    });
    let lived = rig.live(async |engine| {
        match engine.pass(&desired()).await {
            Ok(_) => {}
            Err(PassError::Fatal(fatal)) => return Err(fatal),
            Err(error) => panic!("{error}"),
        }
        work_for(engine, Duration::from_secs(3)).await;
        // A second task that could be ours: which one is, nobody can tell.
        let (id, secret, _) = TOKENS[0];
        let request = SimRequest::new("POST", &format!("/api2/json{start}"));
        rig.node.send(request.token(&format!("{id}={secret}"))).await;
        rig.node.with(Simulator::clear_faults);
        work_for(engine, Duration::from_secs(30)).await;
        let unknown: Vec<_> = engine.unknown().collect();
        let [(op, _)] = unknown[..] else { panic!("{unknown:?}") };
        // Evidence is looked for again, a minute after the request, and each question takes five seconds: the
        // operator speaks while it is being read.
        engine.recheck_unknown();
        rig.node.with(|sim| sim.inject(Effect::Latency { ms: 5_000 }.on("/lxc/114/")));
        let asked = |sim: &mut Simulator| sim.records().len();
        let before = rig.node.with(asked);
        while rig.node.with(asked) < before + 3 {
            work_for(engine, Duration::from_secs(1)).await;
        }
        assert!(engine.is_settling());
        let note = "an operator looked".to_owned();
        engine.resolve(op, Resolution::Failed, note.clone()).await.unwrap();
        assert!(engine.resolve(op, Resolution::Failed, note).await.is_err(), "it is closed");
        assert_eq!(engine.unknown().count(), 0);
        assert!(engine.busy("114".parse().unwrap()).is_none(), "its lane is open");
        work_for(engine, Duration::from_mins(5)).await;
        Ok(engine.is_settling())
    });
    assert!(!lived.await.unwrap().unwrap(), "looking ended without ending the agent");
}
