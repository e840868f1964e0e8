//! What is judged in the lane is what counts: an item that is gone by then, another volume in the slot, and the locks
//! that keep everybody else out until the decision is on disk.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::engine::{Engine, OpOutcome, Submitted};
use evenkeel_agent::journal::{ExactBytes, Files as _, Kept, KeptSubject, Record};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{PendingId, PendingItem};
use evenkeel_harness::Rig;
use evenkeel_harness::script::finish;
use evenkeel_sim::Event;

use crate::support::*;

/// The approval lies in its lane, the judge is busy, and meanwhile somebody ends the item.
async fn ended_while_the_judge_is_busy(
    rig: &Rig,
    ends: impl AsyncFnOnce(&mut Engine, PendingId),
) -> OpOutcome {
    let absent = desired(ABSENT);
    live(rig, async |engine| {
        pass(engine, &absent).await?;
        let (id, item) =
            engine.pending().await?.into_iter().map(|(id, (item, _))| (id, item)).next().unwrap();
        let approval = anna().approve(&item, 7, now(rig));
        let judge = Arc::clone(&rig.approvals.as_ref().unwrap().judging_lock).lock_owned().await;
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        assert!(matches!(accepted, Submitted::Accepted(_)), "{accepted:?}");
        ends(engine, id).await;
        assert!(engine.pending().await?.is_empty(), "the item is gone");
        drop(judge);
        Ok(ended(engine, accepted).await.end)
    })
    .await
}

fn assert_not_pending(rig: &Rig, end: &OpOutcome) {
    assert_eq!(end.reason(), Some(ReasonCode::NotPending), "{end:?}");
    assert_eq!(writes(rig, "lxc/100"), Vec::<String>::new(), "a refusal sends nothing");
}

#[tokio::test(start_paused = true)]
async fn g26_an_item_that_expires_before_its_approval_is_judged_is_not_executed() {
    let mut rig = rig().await;
    rig.approvals.as_mut().unwrap().policy.pending_days = 1;
    let absent = desired(ABSENT);
    // In a box, because a life with two deliveries in it is large.
    let life = Box::pin(live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let first = item(engine).await;
        // Signed half an hour before the item's day is over, judged after it.
        tokio::time::sleep(Duration::from_mins(23 * 60 + 30)).await;
        let approval = anna().approve(&first, 7, now(&rig));
        let judge = Arc::clone(&rig.approvals.as_ref().unwrap().judging_lock).lock_owned().await;
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        assert!(matches!(accepted, Submitted::Accepted(_)), "{accepted:?}");
        tokio::time::sleep(Duration::from_mins(31)).await;
        // The pass that ends the item comes to the judge's lock first, the act after it.
        {
            let mut passing = pin!(pass(engine, &absent));
            let waited = tokio::time::timeout(Duration::from_secs(1), passing.as_mut()).await;
            assert!(waited.is_err(), "the pass waits for the judge");
            drop(judge);
            passing.await?;
        }
        finish(engine).await?;
        pass(engine, &absent).await?;
        // Raised anew, it is another item: nobody signed that one.
        assert_ne!(item(engine).await.serial, first.serial);
        Ok(())
    }));
    life.await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new(), "a refusal sends nothing");
    let refused = rig.disk.read("journal-000001.jsonl").unwrap();
    let refused = String::from_utf8_lossy(&refused).contains("\"reason\":\"not_pending\"");
    assert!(refused, "the journal tells why");
}

#[tokio::test(start_paused = true)]
async fn g26_an_item_that_is_taken_back_before_its_approval_is_judged_is_not_executed() {
    let rig = rig().await;
    let end = ended_while_the_judge_is_busy(&rig, async |engine, id| {
        let gone = Record::Kept(Kept::remove(KeptSubject::Pending, id.to_string()));
        engine.keep_due(move |_| vec![gone]).await.unwrap();
    });
    assert_not_pending(&rig, &end.await);
    // And it is not executed later: whoever wants it raises it and has it signed again.
    afterwards(&rig, &desired("")).await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// Whether the journal says on disk that a signed act on this guest began.
fn is_begun(rig: &Rig, guest: &str) -> bool {
    let guest = format!("\"guest\":\"{guest}\"");
    let bytes = rig.disk.read("journal-000001.jsonl").unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().any(|line| line.contains(&guest) && line.contains("\"kind\":\"destroy\""))
}

/// Looks directly after the `started` record has reached the disk and before the lane goes on: the lane still holds
/// the judge's lock and the signers. Freed before, a second act fits into the same budget, and a rotation that was
/// answered first does not stop the act.
#[tokio::test(start_paused = true)]
async fn g23_t20_budget_and_signers_stay_locked_until_the_decision_is_on_disk() {
    let rig = rig().await;
    let approvals = rig.approvals.clone().unwrap();
    let absent = desired(ABSENT);
    let mut looked = false;
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let mut acts = pin!(ended(engine, accepted));
        let end = std::future::poll_fn(|context| {
            if !looked && is_begun(&rig, "lxc/100") {
                looked = true;
                assert!(
                    approvals.judging_lock.try_lock().is_err(),
                    "the budget's lock is free already"
                );
                assert!(
                    approvals.authority.try_write().is_err(),
                    "the signers' lock is free already"
                );
            }
            acts.as_mut().poll(context)
        });
        assert_eq!(end.await.end, OpOutcome::Succeeded { warning: None });
        Ok(())
    })
    .await;
    assert!(looked, "the decision reached the disk between two polls");
    assert!(approvals.judging_lock.try_lock().is_ok() && approvals.authority.try_write().is_ok());
}

/// An item that was found to wait still waits when its act is on disk.
#[tokio::test(start_paused = true)]
async fn no_item_ends_while_an_approval_is_judged() {
    let rig = rig().await;
    let judging = rig.approvals.as_ref().unwrap().judging_lock.clone();
    let absent = desired(ABSENT);
    let present = desired("guest.100 = { kind = \"lxc\" }");
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let held = judging.lock().await;
        let ending = tokio::time::timeout(Duration::from_secs(30), pass(engine, &present));
        assert!(ending.await.is_err(), "a pass took the item away meanwhile");
        assert_eq!(engine.pending().await?.len(), 1);
        drop(held);
        pass(engine, &present).await?;
        assert!(engine.pending().await?.is_empty(), "then it ends");
        Ok(())
    })
    .await;
}

/// A container with a detached volume, and the item that asks for its removal.
async fn asked(rig: &Rig, engine: &mut Engine) -> (PendingId, PendingItem) {
    let guest: GuestId = "lxc/100".parse().unwrap();
    let slot = BTreeMap::from([("slot".to_owned(), "unused0".to_owned())]);
    let id = engine.request(ActionKind::DeleteVolume, guest, slot).await.unwrap();
    let item = engine.pending().await.unwrap().remove(&id).unwrap().0;
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    (id, item)
}

async fn with_a_detached_volume() -> Rig {
    let rig = rig().await;
    let guest = "lxc/100".parse().unwrap();
    rig.node.with(|sim| sim.happen(Event::Power { guest, running: false }));
    foreign(&rig, "PUT", "lxc/100/config", &[("delete", "mp0")]).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn p21_a_slot_that_holds_another_volume_than_was_signed_away_is_left_alone() {
    let rig = with_a_detached_volume().await;
    live(&rig, async |engine| {
        let (_, item) = asked(&rig, engine).await;
        let approval = anna().approve(&item, 7, now(&rig));
        let guest = "lxc/100".parse().unwrap();
        let other = item.params["volume"].replace("disk-", "disk-9");
        let set = [("unused0".to_owned(), Some(other))].into();
        rig.node.with(|sim| sim.happen(Event::Edit { guest, set }));
        let end = carried_out(engine, &approval).await.end;
        assert_eq!(end.reason(), Some(ReasonCode::Stale), "{end:?}");
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
}

/// The same where the digest does not tell: the volume is compared for itself.
#[tokio::test(start_paused = true)]
async fn p21_the_volume_in_the_slot_is_compared_and_not_only_the_digest() {
    let rig = with_a_detached_volume().await;
    let seal = Arc::clone(&rig.approvals.as_ref().unwrap().seal);
    live(&rig, async |engine| {
        let (id, item) = asked(&rig, engine).await;
        let mut other = item.clone();
        let volume = item.params["volume"].replace("disk-", "disk-9");
        assert_ne!(volume, item.params["volume"]);
        other.params.insert("volume".to_owned(), volume);
        let bytes = other.to_bytes().unwrap();
        let other_id = PendingItem::id(&bytes);
        let envelope = seal(&other).unwrap();
        engine
            .keep_due(move |state| {
                let kept = state.kept(KeptSubject::Pending).find(|(key, _)| *key == id.to_string());
                let mut value = kept.unwrap().1.value.clone();
                value["envelope"] =
                    serde_json::to_value(ExactBytes(envelope.into_bytes())).unwrap();
                let put = Kept::put(KeptSubject::Pending, other_id.to_string(), 1, value);
                vec![Record::Kept(put)]
            })
            .await?;
        let approval = anna().approve(&other, 7, now(&rig));
        let end = carried_out(engine, &approval).await.end;
        assert_eq!(end.reason(), Some(ReasonCode::Stale), "{end:?}");
        assert!(end.words().contains("does not hold the volume"), "{end:?}");
        // What was really asked for is done.
        let approval = anna().approve(&item, 8, now(&rig));
        assert_eq!(writes(&rig, "lxc/100"), Vec::<String>::new());
        assert_eq!(
            carried_out(engine, &approval).await.end,
            OpOutcome::Succeeded { warning: None }
        );
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, "lxc/100"), ["PUT config"]);
}
