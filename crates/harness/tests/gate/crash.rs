//! A crash at any step of a signed act: at most once, and nothing half done is left unsaid.

use std::collections::BTreeMap;

use evenkeel_agent::engine::Submitted;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_harness::Rig;

use crate::support::*;

/// Hands an approval in and crashes after so many polls; whether it was done before.
async fn crashed_during(rig: Rig, approval: &str, polls: usize) -> (bool, Rig) {
    let life = rig.live(async |engine| {
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        Ok(ended(engine, accepted).await)
    });
    let done = crash_after(polls, life).await.is_some();
    (done, Rig { disk: rig.disk.after_crash(0, 0), ..rig })
}

/// A crash at every await point of a signed destroy with both preparations: the act is sent at most once, and a guest
/// that is still there is protected again.
#[tokio::test(start_paused = true)]
async fn t04_a_signed_destroy_survives_a_crash_at_every_step() {
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let mut polls = 1;
    let mut destroyed = 0;
    let mut given_back = 0;
    loop {
        let rig = rig().await;
        protect(&rig, "lxc/102");
        let approval = live(&rig, async |engine| Ok(approved(&rig, engine, &absent).await)).await;
        let (done, rig) = crashed_during(rig, &approval, polls).await;
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
    assert!(polls > 30 && destroyed > 1 && given_back > 0);
}

/// A crash at every await point of a signed rollback, and the same approval again afterwards: one rollback at most, or
/// an outcome nobody knows, and then none more.
#[tokio::test(start_paused = true)]
async fn t04_a_signed_rollback_survives_a_crash_at_every_step_and_a_replay_after_it() {
    let guest: GuestId = "lxc/102".parse().unwrap();
    let mut polls = 1;
    let mut before = 0;
    let mut adopted = 0;
    loop {
        let rig = rig().await;
        foreign(&rig, "POST", "lxc/102/snapshot", &[("snapname", "before")]).await;
        let approval = live(&rig, async |engine| {
            let given = BTreeMap::from([("snapname".to_owned(), "before".to_owned())]);
            engine.request(ActionKind::Rollback, guest, given).await.unwrap();
            Ok(anna().approve(&item(engine).await, 7, now(&rig)))
        })
        .await;
        let (done, rig) = crashed_during(rig, &approval, polls).await;
        let first = count(&rig, "lxc/102", "POST rollback");
        afterwards(&rig, &desired("")).await;
        assert_eq!(count(&rig, "lxc/102", "POST rollback"), first, "a restart sends none");
        let open = live(&rig, async |engine| {
            let submitted = engine.submit_approval(approval.as_bytes()).await?;
            match submitted {
                accepted @ Submitted::Accepted(_) => {
                    before += 1;
                    assert_eq!(first, 0, "after {polls} polls it was sent and is taken again");
                    ended(engine, accepted).await;
                }
                Submitted::Replay { .. } => adopted += 1,
                other @ (Submitted::Rotated(_)
                | Submitted::Collected(_)
                | Submitted::Denied(_)
                | Submitted::Acknowledged(_)
                | Submitted::Refused(_)) => panic!("{other:?}"),
            }
            Ok(engine.unknown().count())
        })
        .await;
        let sent = count(&rig, "lxc/102", "POST rollback");
        assert!(sent <= 1, "after {polls} polls it was sent {sent} times");
        assert!(sent == 1 || open <= 1, "not sent, and closed or unknown");
        if done {
            break;
        }
        polls += 1;
    }
    println!("{polls} crash points: {before} before it was begun, {adopted} after");
    assert!(polls > 10 && before > 0 && adopted > 0);
}
