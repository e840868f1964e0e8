//! The engine against the simulator, one rule a test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evenkeel_agent::engine::{Engine, Event, Fatal, PassError, Report};
use evenkeel_core::desired::Desired;
use evenkeel_core::diagnostic::Sources;
use evenkeel_harness::Rig;
use evenkeel_sim::{Scenario, Simulator};

fn desired(text: &str) -> Desired {
    let mut sources = Sources::default();
    sources.add("guests.toml", text);
    evenkeel_core::desired::load(&sources).unwrap()
}

/// One pass, and everything it set off.
async fn pass(engine: &mut Engine, desired: &Desired) -> Result<Report, Fatal> {
    let pass = match engine.pass(desired).await {
        Ok(pass) => pass,
        Err(PassError::Fatal(fatal)) => return Err(fatal),
        Err(error) => panic!("{error}"),
    };
    loop {
        if let Event::Pass { id, report } = engine.work().await?
            && id == pass.id
        {
            return Ok(*report);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drift_is_healed_and_then_nothing_is_sent() {
    let world = Scenario { guests: 4, ..Scenario::default() }.build();
    let rig = Rig::new(Simulator::new(world), 1);
    let desired = desired("guest.100 = { kind = \"lxc\", cores = 3 }");
    let lived = rig.live(async |engine| {
        let first = pass(engine, &desired).await?;
        Ok((first, pass(engine, &desired).await?))
    });
    let (first, second) = lived.await.unwrap().unwrap();
    assert_eq!((first.planned, first.started, first.succeeded), (1, 1, 1), "{first:?}");
    assert_eq!((second.planned, second.in_sync), (0, 1), "{second:?}");
    let writes = rig.node.with(|sim| sim.records().iter().filter(|record| record.mutating).count());
    assert_eq!(writes, 1);
}
