//! Which guest it is cannot be told from a task list that is filtered, by a clock that was set, or after somebody
//! else's work: then an old approval hits nobody (cases X01, X02, X16, X17).

use std::collections::BTreeMap;

use evenkeel_agent::engine::{EngineEvent, OpOutcome, Submitted};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_harness::Rig;

use crate::support::*;

const GUEST: &str = "lxc/100";

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

/// The node's clock is set this many seconds ahead, or back.
fn step_node_clock(rig: &Rig, by_s: i64) {
    rig.node.with(|sim| {
        sim.world.epoch_s = sim.world.epoch_s.checked_add_signed(by_s).unwrap();
    });
}

/// Somebody destroys the container and makes it again, so that nothing but the task list shows it.
async fn made_again(rig: &Rig) {
    let copy = rig.node.with(|sim| sim.world.guests[&100].clone());
    foreign(rig, "POST", "lxc/100/status/stop", &[]).await;
    foreign(rig, "DELETE", GUEST, &[]).await;
    assert!(!exists(rig, GUEST));
    rig.node.with(|sim| sim.world.guests.insert(100, copy));
}

/// What becomes of an approval that was signed before somebody did this.
async fn approved_before(rig: &Rig, somebody: impl AsyncFnOnce(&Rig)) -> OpOutcome {
    let absent = desired(ABSENT);
    live(rig, async |engine| {
        pass(engine, &absent).await?;
        let approval = anna().approve(&item(engine).await, 7, now(rig));
        somebody(rig).await;
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        Ok(match engine.submit_approval(approval.as_bytes()).await? {
            Submitted::Refused(refusal) => {
                OpOutcome::Held { reason: refusal.reason, why: refusal.detail }
            }
            accepted @ Submitted::Accepted(_) => ended(engine, accepted).await.end,
            other @ (Submitted::Replay { .. }
            | Submitted::Rotated(_)
            | Submitted::Collected(_)
            | Submitted::Denied(_)
            | Submitted::Acknowledged(_)) => panic!("{other:?}"),
        })
    })
    .await
}

fn assert_refused(rig: &Rig, end: &OpOutcome, expected: ReasonCode, words: &str) {
    let OpOutcome::Held { reason, why } = end else { panic!("not refused: {end:?}") };
    assert_eq!((*reason, writes(rig, GUEST)), (expected, Vec::new()), "{why}");
    assert!(why.contains(words), "`{why}` does not say `{words}`");
    assert!(exists(rig, GUEST), "the wrong guest was destroyed");
}

#[tokio::test(start_paused = true)]
async fn x01_a_task_list_that_proxmox_filters_proves_nothing() {
    let rig = rig().await;
    let end = approved_before(&rig, async |rig| {
        restrict(rig, &[]);
        made_again(rig).await;
    })
    .await;
    assert_refused(&rig, &end, ReasonCode::IdentityUnproven, "Sys.Audit on /nodes/pve1");
}

/// What our own token did counts as ours only if the journal knows the task.
#[tokio::test(start_paused = true)]
async fn a_guest_that_a_thief_of_our_own_token_made_again_is_not_the_one_that_was_signed_for() {
    let own = evenkeel_sim::TOKENS[0];
    let rig = rig().await;
    assert_eq!(rig.owner, own.0, "the agent's own token");
    let end = approved_before(&rig, async |rig| {
        let copy = rig.node.with(|sim| sim.world.guests[&100].clone());
        sent_by(rig, own, "POST", "lxc/100/status/stop", &[]).await;
        sent_by(rig, own, "DELETE", GUEST, &[]).await;
        assert!(!exists(rig, GUEST));
        rig.node.with(|sim| sim.world.guests.insert(100, copy));
    })
    .await;
    assert_refused(&rig, &end, ReasonCode::IdentityUnproven, "ran vzdestroy on it");
}

#[tokio::test(start_paused = true)]
async fn x01_no_item_is_raised_by_a_token_that_sees_only_its_own_tasks() {
    let rig = rig().await;
    restrict(&rig, &[]);
    live(&rig, async |engine| {
        let begun = engine.pass(&desired(ABSENT)).await.unwrap();
        let EngineEvent::Pass { report, .. } = engine.work().await? else { panic!("{begun:?}") };
        let [hold] = &report.holds[..] else { panic!("{report:?}") };
        assert!(hold.why.contains("Sys.Audit on /nodes/pve1"), "the pass says so: {hold:?}");
        assert!(engine.pending().await?.is_empty());
        let asked = engine.request(ActionKind::Destroy, guest(), BTreeMap::new()).await;
        let refusal = asked.unwrap_err().refusal()?;
        assert_eq!(refusal.reason, ReasonCode::IdentityUnproven);
        assert!(refusal.detail.contains("Sys.Audit on /nodes/pve1"), "{refusal}");
        Ok(())
    })
    .await;
    restrict(&rig, &[("/", "PVEAuditor")]);
    let end = approved_before(&rig, async |_| {}).await;
    assert!(matches!(end, OpOutcome::Succeeded { .. }), "with the right it goes on: {end:?}");
}

#[tokio::test(start_paused = true)]
async fn x02_no_step_of_a_clock_hides_that_a_guest_was_made_again() {
    const HOUR: i64 = 3_600;
    const YEAR: i64 = 365 * 24 * HOUR;
    for (node, agent) in [
        (-3, 0),
        (-90, 0),
        (-HOUR, 0),
        (-YEAR, 0),
        (3, 0),
        (HOUR, 0),
        (YEAR, 0),
        (-3, -3),
        (-90, -90),
        (-HOUR, -HOUR),
        (HOUR, HOUR),
        (0, -90),
        (0, 90),
    ] {
        for later in [0, 2 * u64::try_from(HOUR).unwrap()] {
            let rig = rig().await;
            let end = approved_before(&rig, async |rig| {
                step_node_clock(rig, node);
                rig.ambient.set_off(agent);
                made_again(rig).await;
                // By then a clock that was set back is past the moment of the item again.
                tokio::time::sleep(std::time::Duration::from_secs(later)).await;
            })
            .await;
            let OpOutcome::Held { .. } = &end else { panic!("{node} {agent} {later}: {end:?}") };
            assert!(exists(&rig, GUEST), "{node} {agent} {later}: the wrong guest was destroyed");
            assert_eq!(writes(&rig, GUEST), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x02_a_node_whose_clock_is_before_the_item_is_not_believed() {
    let rig = rig().await;
    let end = approved_before(&rig, async |rig| step_node_clock(rig, -3_600)).await;
    assert_refused(&rig, &end, ReasonCode::Clock, "before");
}

#[tokio::test(start_paused = true)]
async fn x17_a_destroy_whose_end_could_not_be_proven_is_held_before_its_first_request() {
    let rig = rig().await;
    let end = approved_before(&rig, async |rig| {
        restrict(rig, &[("/nodes", "PVEAuditor")]);
    })
    .await;
    assert_refused(&rig, &end, ReasonCode::Rights, "Sys.Audit on /");
}

/// A node without quorum says "free" as well, and knows nothing.
#[tokio::test(start_paused = true)]
async fn x17_a_number_is_not_free_because_a_node_without_quorum_says_so() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let accepted = engine.submit_approval(approval.as_bytes()).await?;
        let Submitted::Accepted(op) = accepted else { panic!("{accepted:?}") };
        let gone = async {
            while exists(&rig, GUEST) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            rig.node.with(|sim| sim.happen(evenkeel_sim::Event::Quorum { quorate: false }));
            tokio::time::sleep(std::time::Duration::from_mins(20)).await;
        };
        tokio::select! {
            biased;
            () = gone => {}
            report = ended(engine, Submitted::Accepted(op)) => panic!("without quorum: {report:?}"),
        }
        rig.node.with(|sim| sim.happen(evenkeel_sim::Event::Quorum { quorate: true }));
        let report = ended(engine, Submitted::Accepted(op)).await;
        assert!(matches!(report.end, OpOutcome::Succeeded { .. }), "{report:?}");
        Ok(())
    })
    .await;
}

/// The host's time stands still, so two items raised for guests that look the same say the same in every field but one.
#[tokio::test(start_paused = true)]
async fn x02_an_approval_is_for_the_item_its_signer_saw_and_not_for_one_raised_again() {
    let rig = rig().await;
    let absent = desired(ABSENT);
    live(&rig, async |engine| {
        pass(engine, &absent).await?;
        let first = item(engine).await;
        let approval = anna().approve(&first, 7, now(&rig));
        // The item ends while nobody wants it, and its guest is made again the same.
        pass(engine, &desired("guest.102 = { kind = \"lxc\", run = \"running\" }")).await?;
        assert!(engine.pending().await?.is_empty());
        made_again(&rig).await;
        rig.ambient.set_off(-90);
        pass(engine, &absent).await?;
        let second = item(engine).await;
        assert_eq!((&first.expected, &first.params), (&second.expected, &second.params));
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let Submitted::Refused(refusal) = submitted else { panic!("{submitted:?}") };
        assert_eq!(refusal.reason, ReasonCode::Stale, "{refusal}");
        let anew = anna().approve(&second, 8, second.raised_at);
        let accepted = engine.submit_approval(anew.as_bytes()).await?;
        assert!(matches!(accepted, Submitted::Accepted(_)), "the new one is good: {accepted:?}");
        Ok(())
    })
    .await;
}
