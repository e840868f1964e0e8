//! The signers change by an envelope like any other: what was outstanding is void, and it stays so after a restart.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{self, Role, Signer, TrustVersion, trust_file};
use evenkeel_harness::{Operator, Rig, statement};
use evenkeel_sim::{Effect, Event, Fault};
use tempfile::NamedTempFile;
use tokio::sync::RwLock;

use crate::support::*;

fn bob() -> Operator {
    Operator::new("bob", 3)
}

/// The signers every rig begins with, as root's file has them.
fn root_file() -> NamedTempFile {
    let mut text = trust_file::empty();
    for signer in [anna().signer(Role::Operational), vault().signer(Role::Recovery)] {
        text = trust_file::add(&text, &signer).unwrap();
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The same rig after a restart: whoever may sign is read from root's file and the journal, as every start does.
async fn restarted(rig: Rig) -> Rig {
    let file = root_file();
    let found = Arc::new(Mutex::new(None));
    let host = rig.approvals.as_ref().unwrap().authority.read().await.host().clone();
    let path = file.path().to_owned();
    let slot = Arc::clone(&found);
    let read = rig.live(async |engine| {
        engine
            .keep_due(move |state| {
                *slot.lock().unwrap() = Some(Authority::load(Some(&path), host, state).unwrap());
                Vec::new()
            })
            .await
    });
    read.await.unwrap().unwrap();
    let authority = found.lock().unwrap().take().unwrap();
    let mut approvals = rig.approvals.clone().unwrap();
    approvals.authority = Arc::new(RwLock::new(authority));
    Rig { approvals: Some(approvals), ..rig }
}

async fn version(rig: &Rig) -> TrustVersion {
    rig.approvals.as_ref().unwrap().authority.read().await.version().unwrap()
}

/// Bob in anna's place, signed by whoever has the authority and by the new key.
async fn to_bob(rig: &Rig, authority: sign::RotationAuthority, by: &Operator) -> String {
    let signers = vec![bob().signer(Role::Operational), vault().signer(Role::Recovery)];
    rotation(rig, authority, signers, &[by, &bob()]).await
}

async fn rotation(
    rig: &Rig,
    authority: sign::RotationAuthority,
    signers: Vec<Signer>,
    by: &[&Operator],
) -> String {
    let current = rig.approvals.as_ref().unwrap().authority.read().await.clone();
    let trust = current.trust().unwrap();
    envelope(&following(rig, trust, authority, signers), by)
}

/// Planned and by recovery: what anna signed is worth nothing from then on, her item is replaced by one under the new
/// signers, and a restart changes neither.
#[tokio::test(start_paused = true)]
async fn t18_t20_a_rotation_by_envelope_voids_what_is_outstanding_and_survives_a_restart() {
    let absent = desired(ABSENT);
    for (authority, by) in
        [(sign::RotationAuthority::Planned, anna()), (sign::RotationAuthority::Recovery, vault())]
    {
        let rig = rig().await;
        let (old, id) = live(&rig, async |engine| {
            pass(engine, &absent).await?;
            let old_item = item(engine).await;
            let old = anna().approve(&old_item, 7, now(&rig));
            let id = engine.pending().await?.into_keys().next().unwrap();
            let envelope = to_bob(&rig, authority, &by).await;
            let rotated = engine.submit_approval(envelope.as_bytes()).await?;
            assert_eq!(rotated, Submitted::Rotated(TrustVersion(2)));
            // A rotation is taken once: bob, who is known now, has not the role to recover.
            let again = match authority {
                sign::RotationAuthority::Planned => ReasonCode::TrustVersion,
                sign::RotationAuthority::Recovery => ReasonCode::RoleDenied,
            };
            assert_eq!(refused(engine, &envelope).await, again);
            // Whoever signs the old item afterwards signs for signers that are gone.
            assert_eq!(
                refused(engine, &bob().approve(&old_item, 8, now(&rig))).await,
                ReasonCode::TrustVersion
            );
            Ok((old, id))
        })
        .await;
        let rig = restarted(rig).await;
        assert_eq!(version(&rig).await, TrustVersion(2), "{authority:?}");
        live(&rig, async |engine| {
            assert_eq!(refused(engine, &old).await, ReasonCode::KeyRevoked);
            pass(engine, &absent).await?;
            let items = engine.pending().await?;
            assert!(items.len() == 1 && !items.contains_key(&id), "the old item has ended");
            let new = item(engine).await;
            assert_eq!(new.trust_version, TrustVersion(2));
            assert_eq!(
                refused(engine, &anna().approve(&new, 9, now(&rig))).await,
                ReasonCode::KeyRevoked
            );
            assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
            let approval = bob().approve(&new, 10, now(&rig));
            carried_out(engine, &approval).await;
            Ok(())
        })
        .await;
        assert!(!exists(&rig, "lxc/100"), "{authority:?}");
    }
}

/// The approval is in its lane already when the signers change.
#[tokio::test(start_paused = true)]
async fn t20_an_approval_in_its_lane_is_void_when_a_rotation_comes_first() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let envelope = to_bob(&rig, sign::RotationAuthority::Planned, &anna()).await;
        // The lane waits for the judge, who is busy with the rotation.
        let bench = Arc::clone(&rig.approvals.as_ref().unwrap().authority);
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let rotated = {
            let mut authority = bench.write().await;
            let reading =
                sign::clock::ClockReading { now: now(&rig), mark: now(&rig), doubt: None };
            let next =
                authority.accept(envelope.as_bytes(), &reading, sign::StatementLimits::default());
            *authority = next.unwrap().authority;
            authority.version()
        };
        assert_eq!(rotated, Some(TrustVersion(2)));
        let end = ended(engine, accepted).await.end;
        let OpOutcome::Held { reason, .. } = end else { panic!("{end:?}") };
        assert_eq!(reason, ReasonCode::KeyRevoked);
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// Somebody whose key was stolen must not wait for what the thief set off.
#[tokio::test(start_paused = true)]
async fn a_rotation_does_not_wait_for_an_act_that_is_under_way() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    rig.node.with(|sim| (sim.timings.short_ms, sim.timings.copy_ms) = (600_000, 600_000));
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let minute = Duration::from_mins(1);
        let under_way = tokio::time::timeout(minute, engine.work()).await;
        assert!(under_way.is_err() && count(&rig, "lxc/100", "DELETE 100") == 1, "{under_way:?}");
        let envelope = to_bob(&rig, sign::RotationAuthority::Recovery, &vault()).await;
        let rotated = engine.submit_approval(envelope.as_bytes());
        let rotated = tokio::time::timeout(minute, rotated).await.unwrap()?;
        assert_eq!(rotated, Submitted::Rotated(TrustVersion(2)));
        ended(engine, accepted).await;
        Ok(())
    })
    .await;
}

/// A rotation waits for another lane's answer, and an act waits behind it with a guest that was read before: whoever
/// has the number by then is another.
#[tokio::test(start_paused = true)]
async fn an_act_that_waited_for_a_rotation_looks_at_its_guest_again() {
    let guest: GuestId = "lxc/100".parse().unwrap();
    // Each reading takes ten seconds: a rollback is judged upon the first, a destroy looks once more.
    for (op, param, text, second) in
        [(ActionKind::Rollback, "snapname", "before", 5), (ActionKind::Destroy, "purge", "0", 15)]
    {
        let rig = rig().await;
        foreign(&rig, "POST", "lxc/100/snapshot", &[("snapname", "before")]).await;
        let end = live(&rig, async |engine| {
            let given = BTreeMap::from([(param.to_owned(), text.to_owned())]);
            engine.request(op, guest, given).await.unwrap();
            let approval = anna().approve(&item(engine).await, 7, now(&rig));
            rig.node.with(|sim| {
                sim.clear_records();
                sim.inject(Fault { times: None, ..Effect::Latency { ms: 10_000 }.on("/pending") });
            });
            let accepted = engine.submit_approval(approval.as_bytes()).await?;
            let bench = Arc::clone(&rig.approvals.as_ref().unwrap().authority);
            let others = async {
                tokio::time::sleep(Duration::from_secs(second)).await;
                let answer = bench.read().await;
                let rotation = async { drop(bench.write().await) };
                let answered = async {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    rig.node.with(|sim| sim.happen(Event::Recreate { guest }));
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    drop(answer);
                };
                tokio::join!(rotation, answered);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                report = ended(engine, accepted) => Ok(report.end),
                () = others => unreachable!("others wait for ever"),
            }
        })
        .await;
        assert!(matches!(end, OpOutcome::Held { .. } | OpOutcome::Failed { .. }), "{op}: {end:?}");
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "{op}: {end:?}");
    }
}

/// One act has begun and ends its item, another is judged, and the signers change: whenever that is, all three go on.
#[tokio::test(start_paused = true)]
async fn a_rotation_that_meets_two_acts_stops_neither_them_nor_itself() {
    let both = desired(
        "guest.100 = { kind = \"lxc\", state = \"absent\" }\nguest.101 = { kind = \"qemu\", state = \"absent\" }",
    );
    let minute = Duration::from_mins(1);
    let mut polls = 1;
    loop {
        let rig = rig().await;
        let ended_before = live(&rig, async |engine| {
            pass(engine, &both).await?;
            for (nonce, (item, _)) in (7..).zip(engine.pending().await?.values()) {
                let approval = anna().approve(item, nonce, now(&rig));
                let submitted = engine.submit_approval(approval.as_bytes()).await?;
                assert!(matches!(submitted, Submitted::Accepted(_)), "{submitted:?}");
            }
            let envelope = to_bob(&rig, sign::RotationAuthority::Planned, &anna()).await;
            // Nothing is lost with the future: the acts go on with the next one.
            let ended_before = crash_after(polls, engine.work()).await.is_some();
            let rotated = engine.submit_approval(envelope.as_bytes());
            let rotated = tokio::time::timeout(minute, rotated).await;
            let rotated = rotated.unwrap_or_else(|_| panic!("all wait after {polls} polls"))?;
            assert_eq!(rotated, Submitted::Rotated(TrustVersion(2)));
            while !engine.is_idle() {
                tokio::time::timeout(minute, engine.work()).await.unwrap()?;
            }
            Ok(ended_before)
        })
        .await;
        if ended_before {
            break;
        }
        polls += 1;
    }
    println!("{polls} moments");
}

#[tokio::test(start_paused = true)]
async fn t12_t16_a_rotation_that_may_not_be_changes_nobody() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let outstanding = anna().approve(&item(engine).await, 7, now(&rig));
        let planned = sign::RotationAuthority::Planned;
        let stranger = Operator::new("mallory", 66);
        let new_vault = vec![anna().signer(Role::Operational), bob().signer(Role::Recovery)];
        let for_bob = vec![bob().signer(Role::Operational), vault().signer(Role::Recovery)];
        let by_one = rotation(&rig, planned, for_bob, &[&anna()]).await;
        for (envelope, reason) in [
            (to_bob(&rig, planned, &stranger).await, ReasonCode::UnknownSigner),
            (to_bob(&rig, planned, &vault()).await, ReasonCode::RoleDenied),
            (
                to_bob(&rig, sign::RotationAuthority::Recovery, &anna()).await,
                ReasonCode::RoleDenied,
            ),
            (rotation(&rig, planned, new_vault, &[&anna(), &bob()]).await, ReasonCode::RoleDenied),
            (by_one, ReasonCode::Envelope),
        ] {
            assert_eq!(refused(engine, &envelope).await, reason);
        }
        assert_eq!(version(&rig).await, TrustVersion(1));
        let accepted = engine.submit_approval(outstanding.as_bytes()).await?;
        ended(engine, accepted).await;
        Ok(())
    })
    .await;
    assert!(!exists(&rig, "lxc/100"), "what was outstanding is still worth something");
}

/// A crash at every await point: the old signers or the new ones, and never both.
#[tokio::test(start_paused = true)]
async fn t23_a_rotation_survives_a_crash_at_every_step() {
    let absent = desired(ABSENT);
    let mut polls = 1;
    let mut old = 0;
    let mut new = 0;
    loop {
        let rig = rig().await;
        let raised = rig.live(async |engine| {
            pass(engine, &absent).await?;
            Ok(item(engine).await)
        });
        let raised = raised.await.unwrap().unwrap();
        let envelope = to_bob(&rig, sign::RotationAuthority::Planned, &anna()).await;
        let life = rig.live(async |engine| engine.submit_approval(envelope.as_bytes()).await);
        let done = crash_after(polls, life).await;
        let rig = restarted(Rig { disk: rig.disk.after_crash(0, 0), ..rig }).await;
        let version = version(&rig).await;
        if done.is_some() {
            assert_eq!(version, TrustVersion(2), "what was answered holds");
        }
        live(&rig, async |engine| {
            let by_anna = anna().approve(&raised, 7, now(&rig));
            let mut by_bob = statement(&raised, 8, now(&rig));
            by_bob.trust_version = TrustVersion(2);
            let by_bob = bob().sign(&by_bob);
            if version == TrustVersion(2) {
                new += 1;
                assert_eq!(refused(engine, &by_anna).await, ReasonCode::KeyRevoked);
            } else {
                old += 1;
                assert_eq!(version, TrustVersion(1));
                assert_eq!(refused(engine, &by_bob).await, ReasonCode::UnknownSigner);
            }
            Ok(())
        })
        .await;
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
        if done.is_some() {
            break;
        }
        polls += 1;
    }
    println!("{polls} crash points: {old} kept the old signers, {new} had the new ones");
    assert!(old > 0 && new > 0);
}
