//! An item outlives its mark: once the task list no longer shows the moment at which it was raised, it ends and is raised
//! again, and the operator hears of both (case Y06).

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_agent::engine::{Engine, OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::PendingId;
use evenkeel_harness::Rig;
use evenkeel_sim::Event;

use crate::support::*;

const GUEST: &str = "lxc/100";
const NOTHING: &str = "guest.102 = { kind = \"lxc\" }";

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

/// The node forgets every task there was, and others come.
async fn turn_over(rig: &Rig) {
    let by = |user: &str| {
        let task = "vzdump".to_owned();
        let id = "101".to_owned();
        Event::TaskBy { user: user.to_owned(), task, id }
    };
    rig.node.with(|sim| {
        sim.happen(Event::TurnOverTasks { keep: 0 });
        sim.happen(by("root@pam"));
        sim.clear_records();
    });
    tokio::time::sleep(Duration::from_mins(2)).await;
}

async fn only(engine: &Engine) -> PendingId {
    let items = engine.pending().await.unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    items.into_keys().next().unwrap()
}

/// Whoever signs what waits now has it done, once.
async fn is_good(rig: &Rig, engine: &mut Engine) {
    let approval = anna().approve(&item(engine).await, 77, now(rig));
    let report = carried_out(engine, &approval).await;
    assert!(matches!(report.end, OpOutcome::Succeeded { .. }), "{report:?}");
    assert!(!exists(rig, GUEST));
    assert_eq!(count(rig, GUEST, "DELETE 100"), 1);
}

#[tokio::test(start_paused = true)]
async fn y06_a_pass_raises_again_what_the_list_has_forgotten_and_then_rests() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let old = approved(&rig, engine, &absent).await;
        let first = only(engine).await;
        turn_over(&rig).await;
        pass(engine, &absent).await?;
        let second = only(engine).await;
        assert_ne!(first, second);
        // Nothing more is written, and the item stays.
        let calls = rig.disk.calls();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_mins(2)).await;
            pass(engine, &absent).await?;
        }
        assert_eq!((only(engine).await, rig.disk.calls()), (second, calls));
        let submitted = engine.submit_approval(old.as_bytes()).await?;
        let Submitted::Refused(refusal) = submitted else { panic!("{submitted:?}") };
        assert_eq!(refusal.reason, ReasonCode::Stale);
        let told = format!(
            "no longer reaches back to when the item was raised; a new item was raised: {second}"
        );
        assert!(refusal.detail.contains(&told), "{refusal}");
        assert_eq!(writes(&rig, GUEST), Vec::<String>::new());
        is_good(&rig, engine).await;
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn y06_an_approval_of_a_forgotten_item_is_refused_with_the_name_of_the_new_one() {
    let rig = rig().await;
    live(&rig, async |engine| {
        let old = approved(&rig, engine, &desired(ABSENT)).await;
        let first = only(engine).await;
        turn_over(&rig).await;
        let end = carried_out(engine, &old).await.end;
        let OpOutcome::Held { reason, why } = end else { panic!("{end:?}") };
        assert_eq!(reason, ReasonCode::IdentityUnproven);
        let second = only(engine).await;
        assert_ne!(first, second);
        let told = format!(
            "does not reach back to when the item was raised; a new item was raised: {second}"
        );
        assert!(why.contains(&told), "{why}");
        assert_eq!(refused(engine, &old).await, ReasonCode::Stale);
        assert_eq!(writes(&rig, GUEST), Vec::<String>::new());
        is_good(&rig, engine).await;
        Ok(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn y06_what_somebody_asked_for_is_raised_again_too() {
    for asks_again in [false, true] {
        let rig = rig().await;
        live(&rig, async |engine| {
            let params = || BTreeMap::from([("purge".to_owned(), "0".to_owned())]);
            let first = engine.request(ActionKind::Destroy, guest(), params()).await.unwrap();
            let same = engine.request(ActionKind::Destroy, guest(), params()).await.unwrap();
            assert_eq!(first, same, "while it holds there is one");
            turn_over(&rig).await;
            if asks_again {
                let again = engine.request(ActionKind::Destroy, guest(), params()).await.unwrap();
                assert_eq!(again, only(engine).await);
            } else {
                pass(engine, &desired(NOTHING)).await?;
            }
            // A pass looks only at what is declared or waits.
            assert_ne!(only(engine).await, first);
            engine.withdraw(only(engine).await, "never mind".to_owned()).await.unwrap();
            engine.request(ActionKind::Destroy, guest(), params()).await.unwrap();
            is_good(&rig, engine).await;
            Ok(())
        })
        .await;
    }
}

/// Whoever asked meant the guest that was there.
#[tokio::test(start_paused = true)]
async fn y06_what_was_asked_for_a_guest_that_was_made_again_ends_and_what_is_declared_is_raised_again()
 {
    for declared in [false, true] {
        let rig = rig().await;
        let wanted = desired(if declared { ABSENT } else { NOTHING });
        live(&rig, async |engine| {
            if declared {
                pass(engine, &wanted).await?;
            } else {
                let asked = engine.request(ActionKind::Destroy, guest(), BTreeMap::new()).await;
                asked.unwrap();
            }
            let first = only(engine).await;
            rig.node.with(|sim| {
                sim.happen(Event::Power { guest: guest(), running: false });
                sim.happen(Event::Restore { guest: guest() });
            });
            tokio::time::sleep(Duration::from_mins(2)).await;
            pass(engine, &wanted).await?;
            let waits = engine.pending().await?;
            assert!(!waits.contains_key(&first), "it can never be executed");
            assert_eq!(waits.len(), usize::from(declared));
            Ok(())
        })
        .await;
    }
}

/// Nothing better could be raised: an item upon an empty list waits for the first task.
#[tokio::test(start_paused = true)]
async fn y06_an_item_upon_an_empty_list_is_raised_again_with_the_first_task_and_not_before() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        rig.node.with(|sim| sim.happen(Event::ForgetTasks));
        pass(engine, &absent).await?;
        let first = only(engine).await;
        let calls = rig.disk.calls();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_mins(2)).await;
            pass(engine, &absent).await?;
        }
        assert_eq!((only(engine).await, rig.disk.calls()), (first, calls));
        turn_over(&rig).await;
        pass(engine, &absent).await?;
        assert_ne!(only(engine).await, first);
        is_good(&rig, engine).await;
        Ok(())
    })
    .await;
}

/// The agent dies at any moment while an item is raised again: one waits afterwards, and that one is good.
#[tokio::test(start_paused = true)]
async fn y06_a_crash_while_an_item_is_raised_again_leaves_one_that_is_good() {
    let absent = desired(ABSENT);
    for polls in (0..).step_by(3) {
        let rig = rig().await;
        let first = live(&rig, async |engine| {
            pass(engine, &absent).await?;
            Ok(only(engine).await)
        })
        .await;
        turn_over(&rig).await;
        let life = rig.live(async |engine| pass(engine, &absent).await);
        let ended = crash_after(polls, life).await.is_some();
        live(&rig, async |engine| {
            pass(engine, &absent).await?;
            assert_ne!(only(engine).await, first, "{polls}");
            is_good(&rig, engine).await;
            Ok(())
        })
        .await;
        if ended {
            assert!(polls > 30, "the crashes came in the middle");
            return;
        }
    }
}
