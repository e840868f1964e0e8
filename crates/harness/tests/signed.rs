//! Signed acts against the simulator: the request log is the oracle, a refusal sends nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use evenkeel_agent::ambient::Ambient as _;
use evenkeel_agent::engine::{End, Engine, Event, Fatal, OpReport, Submitted};
use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::desired::Desired;
use evenkeel_core::diagnostic::Sources;
use evenkeel_core::id::GuestId;
use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::reason::ReasonCode;
use evenkeel_core::sign::{OpResult, PendingItem, Role, TrustVersion};
use evenkeel_harness::{Operator, Rig, statement};
use evenkeel_sim::{Scenario, Simulator};

fn desired(text: &str) -> Desired {
    let mut sources = Sources::default();
    sources.add("guests.toml", text);
    evenkeel_core::desired::load(&sources).unwrap()
}

fn anna() -> Operator {
    Operator::new("anna", 1)
}

fn vault() -> Operator {
    Operator::new("vault", 2)
}

/// A node with four guests, and a task older than anything that is raised.
async fn rig() -> Rig {
    let world = Scenario { guests: 4, ..Scenario::default() }.build();
    let rig = Rig::new(Simulator::new(world), 1)
        .judged_by(vec![anna().signer(Role::Operational), vault().signer(Role::Recovery)]);
    let heal = desired("guest.102 = { kind = \"lxc\", run = \"running\" }");
    rig.live(async |engine| pass(engine, &heal).await).await.unwrap().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    rig
}

async fn pass(engine: &mut Engine, desired: &Desired) -> Result<(), Fatal> {
    let pass = match engine.pass(desired).await {
        Ok(pass) => pass,
        Err(error) => panic!("{error}"),
    };
    loop {
        if let Event::Pass { id, .. } = engine.work().await?
            && id == pass.id
        {
            return Ok(());
        }
    }
}

/// The one item that waits.
async fn item(engine: &mut Engine) -> PendingItem {
    let items = engine.pending().await.unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    items.into_values().next().unwrap().0
}

async fn ended(engine: &mut Engine, submitted: Submitted) -> OpReport {
    let Submitted::Accepted(op) = submitted else {
        panic!("not accepted: {submitted:?}");
    };
    loop {
        if let Event::Op(report) = engine.work().await.unwrap()
            && report.op == op
        {
            return *report;
        }
    }
}

fn now(rig: &Rig) -> UnixSeconds {
    UnixSeconds(u64::try_from(rig.ambient.now().as_second()).unwrap())
}

/// Mutating requests about one guest, as method and last part of the path.
fn writes(rig: &Rig, guest: &str) -> Vec<String> {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let of_guest =
            |record: &&evenkeel_sim::Record| record.mutating && record.guest == Some(guest);
        let told = sim.records().iter().filter(of_guest);
        told.map(|record| format!("{} {}", record.method, record.path.rsplit('/').next().unwrap()))
            .collect()
    })
}

fn exists(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| sim.world.guests.values().any(|other| other.id == guest))
}

const ABSENT: &str = "guest.100 = { kind = \"lxc\", state = \"absent\" }";

#[tokio::test(start_paused = true)]
async fn a_signed_destroy_is_done_once_and_a_replay_is_answered_with_the_first_ones_result() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "nothing without a signature");
        let item = item(engine).await;
        assert_eq!(item.op, ActionKind::Destroy);
        assert!(item.losses.iter().any(|loss| loss.what.contains("vm-100-disk")), "{item:?}");
        let approval = anna().approve(&item, 7, now(&rig));
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let report = ended(engine, accepted).await;
        assert_eq!(report.end, End::Succeeded { warning: None }, "{report:?}");
        assert!(!exists(&rig, "lxc/100"));
        let again = engine.submit_approval(approval.as_bytes()).await?;
        assert_eq!(again, Submitted::Replay { op: report.op, result: OpResult::Succeeded });
        pass(engine, &absent).await?;
        assert!(engine.pending().await?.is_empty());
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    let deletes =
        writes(&rig, "lxc/100").iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1, "{:?}", writes(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn who_is_not_an_operator_moves_nothing() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        let stranger = Operator::new("mallory", 66);
        let mut tampered = statement(&item, 9, now(&rig));
        tampered.params.insert("purge".to_owned(), "1".to_owned());
        let mut other_guest = statement(&item, 10, now(&rig));
        other_guest.guest = "lxc/102".parse().unwrap();
        let mut late = statement(&item, 11, now(&rig).minus(7_200));
        late.reason = "too late".to_owned();
        let mut old_trust = statement(&item, 12, now(&rig));
        old_trust.trust_version = TrustVersion(0);
        let mut elsewhere = statement(&item, 13, now(&rig));
        elsewhere.host.id = "other".parse().unwrap();
        for (envelope, reason) in [
            (stranger.approve(&item, 8, now(&rig)), ReasonCode::UnknownSigner),
            (vault().approve(&item, 8, now(&rig)), ReasonCode::RoleDenied),
            (anna().sign(&tampered), ReasonCode::Stale),
            (anna().sign(&other_guest), ReasonCode::NotPending),
            (anna().sign(&late), ReasonCode::Expired),
            (anna().sign(&old_trust), ReasonCode::TrustVersion),
            (anna().sign(&elsewhere), ReasonCode::HostMismatch),
            ("{}".to_owned(), ReasonCode::Envelope),
        ] {
            let Submitted::Refused(refusal) = engine.submit_approval(envelope.as_bytes()).await?
            else {
                panic!("{reason} was not refused");
            };
            assert_eq!(refusal.reason, reason, "{refusal}");
        }
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_took_the_number_is_not_destroyed_for_the_former_one() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        let approval = anna().approve(&item, 7, now(&rig));
        rig.node.with(|sim| {
            sim.happen(evenkeel_sim::Event::Reuse { guest: "lxc/100".parse().unwrap() })
        });
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let report = ended(engine, accepted).await;
        let End::Held { reason, .. } = &report.end else { panic!("{report:?}") };
        assert!(
            [ReasonCode::IdentityMismatch, ReasonCode::IdentityUnproven, ReasonCode::Stale]
                .contains(reason),
            "{report:?}"
        );
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
    assert!(exists(&rig, "lxc/100"));
}

#[tokio::test(start_paused = true)]
async fn sixty_four_deliveries_at_once_are_one_act() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        let approval = anna().approve(&item, 7, now(&rig));
        let first = engine.submit_approval(approval.as_bytes()).await?;
        let Submitted::Accepted(op) = first else { panic!("{first:?}") };
        for _ in 0..63 {
            let again = engine.submit_approval(approval.as_bytes()).await?;
            assert_eq!(again, Submitted::Replay { op, result: OpResult::InFlight });
        }
        ended(engine, first).await;
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    let deletes =
        writes(&rig, "lxc/100").iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!(deletes, 1);
}

#[tokio::test(start_paused = true)]
async fn a_running_protected_guest_is_stopped_and_unprotected_as_signed() {
    let rig = rig().await;
    let guest: GuestId = "lxc/102".parse().unwrap();
    let set = BTreeMap::from([("protection".to_owned(), Some("1".to_owned()))]);
    rig.node.with(|sim| sim.happen(evenkeel_sim::Event::Edit { guest, set }));
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    rig.live(async |engine| {
        pass(engine, &absent).await?;
        let item = item(engine).await;
        assert_eq!(item.params["stop"], "1");
        assert_eq!(item.params["unprotect"], "1");
        let approval = anna().approve(&item, 7, now(&rig));
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let report = ended(engine, accepted).await;
        assert_eq!(report.end, End::Succeeded { warning: None }, "{report:?}");
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
    let sent = writes(&rig, "lxc/102");
    assert_eq!(sent[sent.len() - 3..], ["POST stop", "PUT config", "DELETE 102"], "{sent:?}");
}

/// Drives a life for so many polls, then drops it: the crash. Whether it ended before.
async fn crash_after<T>(polls: usize, life: impl Future<Output = T>) -> Option<T> {
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

/// Brings a run to its end after a crash: everything is settled, passes run until nothing is owed.
async fn afterwards(rig: &Rig, declared: &Desired) {
    rig.live(async |engine| {
        while engine.is_settling() {
            engine.work().await?;
        }
        for _ in 0..3 {
            pass(engine, declared).await?;
            while !engine.is_idle() {
                engine.work().await?;
            }
            tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        }
        Ok(())
    })
    .await
    .unwrap()
    .unwrap();
}

fn protected(rig: &Rig, guest: &str) -> bool {
    let guest: GuestId = guest.parse().unwrap();
    rig.node.with(|sim| {
        let found = sim.world.guests.values().find(|other| other.id == guest);
        found.is_some_and(|found| found.config.active.get("protection").is_some_and(|on| on == "1"))
    })
}

/// A crash at every await point of a signed destroy with both preparations: the act is sent at most once, and a guest
/// that is still there is protected again.
#[tokio::test(start_paused = true)]
async fn a_signed_destroy_survives_a_crash_at_every_step() {
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let (mut polls, mut destroyed, mut given_back) = (1, 0, 0);
    loop {
        let rig = rig().await;
        let guest: GuestId = "lxc/102".parse().unwrap();
        let set = BTreeMap::from([("protection".to_owned(), Some("1".to_owned()))]);
        rig.node.with(|sim| sim.happen(evenkeel_sim::Event::Edit { guest, set }));
        let approval = rig
            .live(async |engine| {
                pass(engine, &absent).await?;
                Ok(anna().approve(&item(engine).await, 7, now(&rig)))
            })
            .await
            .unwrap()
            .unwrap();
        let life = rig.live(async |engine| {
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            Ok(ended(engine, accepted).await)
        });
        let done = crash_after(polls, life).await.is_some();
        let rig = Rig { disk: rig.disk.after_crash(0, 0), ..rig };
        afterwards(&rig, &desired("")).await;
        let sent = writes(&rig, "lxc/102");
        for once in ["DELETE 102", "POST stop"] {
            let count = sent.iter().filter(|write| *write == once).count();
            assert!(count <= 1, "after {polls} polls {once} was sent {count} times: {sent:?}");
        }
        if exists(&rig, "lxc/102") {
            assert!(protected(&rig, "lxc/102"), "after {polls} polls: {sent:?}");
            given_back +=
                usize::from(sent.iter().filter(|write| *write == "PUT config").count() > 1);
        } else {
            destroyed += 1;
        }
        if done {
            break;
        }
        polls += 1;
    }
    println!(
        "{polls} crash points: {destroyed} ended destroyed, {given_back} were protected again"
    );
    assert!(polls > 30 && destroyed > 1 && given_back > 1);
}
