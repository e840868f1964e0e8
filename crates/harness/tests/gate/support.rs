//! A node, an agent with signers, and what the request log tells.

use evenkeel_agent::ambient::Ambient as _;
use evenkeel_agent::engine::{Engine, EngineEvent, Fatal, OpReport, Submitted};
use evenkeel_core::desired::Desired;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    ClockChange, Envelope, PendingItem, Role, Rotation, Signer, TrustedSigners, Window,
};
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_harness::{Operator, Rig};
use evenkeel_sim::{Scenario, Simulator};

pub(crate) fn desired(text: &str) -> Desired {
    let mut sources = Sources::default();
    sources.add("guests.toml", text);
    evenkeel_core::desired::load(&sources).unwrap()
}

pub(crate) fn anna() -> Operator {
    Operator::new("anna", 1)
}

pub(crate) fn vault() -> Operator {
    Operator::new("vault", 2)
}

/// A node with four guests, and a task older than anything that is raised.
pub(crate) async fn rig() -> Rig {
    let world = Scenario { guests: 4, ..Scenario::default() }.build();
    let rig = Rig::new(Simulator::new(world), 1)
        .judged_by(vec![anna().signer(Role::Operational), vault().signer(Role::Recovery)]);
    let heal = desired("guest.102 = { kind = \"lxc\", run = \"running\" }");
    rig.live(async |engine| pass(engine, &heal).await).await.unwrap().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    rig
}

/// One life of the agent, which goes well.
pub(crate) async fn live<T>(
    rig: &Rig,
    life: impl AsyncFnOnce(&mut Engine) -> Result<T, Fatal>,
) -> T {
    Box::pin(rig.live(life)).await.unwrap().unwrap()
}

pub(crate) async fn pass(engine: &mut Engine, desired: &Desired) -> Result<(), Fatal> {
    let pass = match engine.pass(desired).await {
        Ok(pass) => pass,
        Err(error) => panic!("{error}"),
    };
    loop {
        if let EngineEvent::Pass { id, .. } = engine.work().await?
            && id == pass.id
        {
            return Ok(());
        }
    }
}

/// The one item that waits.
pub(crate) async fn item(engine: &mut Engine) -> PendingItem {
    let items = engine.pending().await.unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    items.into_values().next().unwrap().0
}

pub(crate) async fn ended(engine: &mut Engine, submitted: Submitted) -> OpReport {
    let Submitted::Accepted(op) = submitted else {
        panic!("not accepted: {submitted:?}");
    };
    loop {
        if let EngineEvent::Op(report) = engine.work().await.unwrap()
            && report.op == op
        {
            return *report;
        }
    }
}

/// Hands an approval in that is accepted; what came of it.
pub(crate) async fn carried_out(engine: &mut Engine, approval: &str) -> OpReport {
    let accepted = engine.submit_approval(approval.as_bytes()).await.unwrap();
    ended(engine, accepted).await
}

/// A pass raises one item, and anna signs for it: her approval.
pub(crate) async fn approved(rig: &Rig, engine: &mut Engine, declared: &Desired) -> String {
    pass(engine, declared).await.unwrap();
    anna().approve(&item(engine).await, 7, now(rig))
}

/// Why an approval does not hold, whether at once or in the lane.
pub(crate) async fn refused(engine: &mut Engine, envelope: &str) -> ReasonCode {
    match engine.submit_approval(envelope.as_bytes()).await.unwrap() {
        Submitted::Refused(refusal) => refusal.reason,
        accepted @ Submitted::Accepted(_) => {
            let end = ended(engine, accepted).await.end;
            end.reason().unwrap_or_else(|| panic!("it was not refused: {end:?}"))
        }
        Submitted::Collected(missing) => missing.reason,
        other @ (Submitted::Replay { .. }
        | Submitted::Rotated(_)
        | Submitted::Denied(_)
        | Submitted::Acknowledged(_)) => {
            panic!("it was not refused: {other:?}")
        }
    }
}

pub(crate) fn now(rig: &Rig) -> UnixSeconds {
    UnixSeconds(u64::try_from(rig.ambient.now().as_second()).unwrap())
}

/// Mutating requests about one guest, as method and last part of the path.
pub(crate) fn writes(rig: &Rig, guest: &str) -> Vec<String> {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let of_guest =
            |record: &&evenkeel_sim::RequestRecord| record.mutating && record.guest == Some(guest);
        let told = sim.records().iter().filter(of_guest);
        told.map(|record| format!("{} {}", record.method, record.path.rsplit('/').next().unwrap()))
            .collect()
    })
}

pub(crate) fn exists(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| sim.world.guests.values().any(|other| other.id == guest))
}

pub(crate) const ABSENT: &str = "guest.100 = { kind = \"lxc\", state = \"absent\" }";

/// Drives a life for so many polls, then drops it: the crash. Whether it ended before.
pub(crate) async fn crash_after<T>(polls: usize, life: impl Future<Output = T>) -> Option<T> {
    let mut life = Box::pin(life);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        life.as_mut().poll(context).map(Some)
    })
    .await
}

/// The next event, if there is one: an operation that stays unknown is told to nobody.
async fn some_work(engine: &mut Engine) -> Result<(), Fatal> {
    let patience = std::time::Duration::from_mins(30);
    match tokio::time::timeout(patience, engine.work()).await {
        Ok(told) => told.map(drop),
        Err(_) => Ok(()),
    }
}

/// Brings a run to its end after a crash: everything is settled, passes run until nothing is owed.
pub(crate) async fn afterwards(rig: &Rig, declared: &Desired) {
    rig.live(async |engine| {
        while engine.is_settling() {
            some_work(engine).await?;
        }
        for _ in 0..3 {
            pass(engine, declared).await?;
            while !engine.is_idle() {
                some_work(engine).await?;
            }
            tokio::time::sleep(std::time::Duration::from_mins(2)).await;
        }
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
}

pub(crate) fn protected(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let found = sim.world.guests.values().find(|other| other.id == guest);
        found.is_some_and(|found| found.config.active.get("protection").is_some_and(|on| on == "1"))
    })
}

/// Somebody protects a guest.
pub(crate) fn protect(rig: &Rig, guest: &str) {
    evenkeel_harness::script::edit(rig, guest, &[("protection", Some("1"))]);
}

/// A call by somebody else, and the tasks it leaves.
pub(crate) async fn foreign(rig: &Rig, method: &str, path: &str, form: &[(&str, &str)]) {
    sent_by(rig, evenkeel_sim::TOKENS[2], method, path, form).await;
}

/// A call past evenkeel by whoever holds this token, and the tasks it leaves.
pub(crate) async fn sent_by(
    rig: &Rig,
    (name, secret, _): (&str, &str, &str),
    method: &str,
    path: &str,
    form: &[(&str, &str)],
) {
    let target = format!("/api2/json/nodes/pve1/{path}");
    let request = evenkeel_sim::SimRequest::new(method, &target).token(&format!("{name}={secret}"));
    let request = if method == "DELETE" { request } else { request.form(form) };
    let outcome = rig.node.send(request).await;
    let evenkeel_sim::SimOutcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reply.status, 200, "{reply:?}");
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
}

/// How often this request about a guest was sent.
pub(crate) fn count(rig: &Rig, guest: &str, request: &str) -> usize {
    writes(rig, guest).iter().filter(|write| *write == request).count()
}

/// Our token keeps what guests need, and has these rights besides.
pub(crate) fn restrict(rig: &Rig, grants: &[(&str, &str)]) {
    let token = evenkeel_sim::TOKENS[0].0;
    rig.node.with(|sim| {
        let access = &mut sim.world.access;
        access.tokens.get_mut(token).unwrap().separated = true;
        access.acl.retain(|grant| grant.holder != token);
        for (path, role) in [("/vms", "PVEVMAdmin"), ("/storage", "PVEDatastoreAdmin")] {
            access.grant(path, token, role);
        }
        for (path, role) in grants {
            access.grant(path, token, role);
        }
    });
}

/// Why an approval is refused at once.
pub(crate) async fn reason_of_refusal(engine: &mut Engine, approval: &str) -> ReasonCode {
    let submitted = engine.submit_approval(approval.as_bytes()).await.unwrap();
    let Submitted::Refused(refusal) = submitted else { panic!("{submitted:?}") };
    refusal.reason
}

/// A rotation as it is handed in.
pub(crate) fn envelope(rotation: &Rotation, by: &[&Operator]) -> String {
    let payload = rotation.to_bytes().unwrap();
    let namespace = rotation.authority.namespace();
    let armours: Vec<String> = by.iter().map(|by| by.armour(namespace, &payload)).collect();
    let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
    Envelope::seal(&payload, &armours).unwrap()
}

/// The rotation that follows these signers.
pub(crate) fn following(
    rig: &Rig,
    trust: &TrustedSigners,
    by: evenkeel_core::sign::RotationAuthority,
    signers: Vec<Signer>,
) -> Rotation {
    Rotation {
        authority: by,
        host: Rig::host(),
        version: trust.version().next().unwrap(),
        previous: trust.head(),
        signers,
        clock: ClockChange::Keep,
        approve: None,
        window: Window::new(now(rig), now(rig).plus(3_600)).unwrap(),
        reason: "because".to_owned(),
    }
}
