//! A signed destroy of a container that runs and is protected takes several requests. What happens between them
//! stops it: the act is not sent, and the protection is given back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{OpOutcome, PassCause};
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::{Role, Signer, TrustVersion, TrustedSigners, Window};
use evenkeel_harness::{Operator, Rig, statement};
use evenkeel_sim::{Effect, Event, Fault};

use crate::support::*;

const RUNNING: &str = "lxc/102";
const STOP: &str = "POST stop";
const UNPROTECT: &str = "PUT config";

fn guest() -> GuestId {
    RUNNING.parse().unwrap()
}

fn edit(rig: &Rig, key: &str, value: &str) {
    let set = BTreeMap::from([(key.to_owned(), Some(value.to_owned()))]);
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
}

/// Somebody acts as soon as the agent has sent this; how the destroy ends then.
async fn once_sent(sent: &str, somebody: impl AsyncFnOnce(&Rig)) -> (Rig, OpOutcome) {
    once_sent_within(HOUR_S, sent, somebody).await
}

const HOUR_S: u64 = 3_600;

/// The same with an approval that lives so many seconds.
async fn once_sent_within(
    life_s: u64,
    sent: &str,
    somebody: impl AsyncFnOnce(&Rig),
) -> (Rig, OpOutcome) {
    let rig = rig().await;
    edit(&rig, "protection", "1");
    let end = destroyed_until(&rig, 7, life_s, sent, somebody).await;
    (rig, end)
}

/// The same on a rig in which more has happened.
async fn destroyed_until(
    rig: &Rig,
    nonce: u128,
    life_s: u64,
    sent: &str,
    somebody: impl AsyncFnOnce(&Rig),
) -> OpOutcome {
    // Every reader of the guest waits so long that somebody can act before.
    rig.node.with(|sim| {
        sim.inject(Fault { times: None, ..Effect::Latency { ms: 10_000 }.on("/pending") });
    });
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let end = rig.live(async |engine| {
        pass(engine, &absent).await?;
        let mut statement = statement(&item(engine).await, nonce, now(rig));
        statement.window = Window::new(now(rig), now(rig).plus(life_s)).unwrap();
        let approval = anna().sign(&statement);
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let acts = async {
            while count(rig, RUNNING, sent) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            somebody(rig).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, submitted) => Ok(report.end),
            () = acts => unreachable!("a person who waits for ever"),
        }
    });
    end.await.unwrap().unwrap()
}

fn assert_it_was_left(rig: &Rig, end: &OpOutcome) {
    assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
    assert_eq!(count(rig, RUNNING, "DELETE 102"), 0);
    assert!(exists(rig, RUNNING));
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_nothing_comes_between_is_carried_out() {
    let (rig, end) = once_sent(STOP, async |_| {}).await;
    assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
    assert_eq!(count(&rig, RUNNING, "DELETE 102"), 1);
}

/// The stop has ended, and the first look after it fails: the guest has its time to show that it is down.
#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_be_read_once_after_its_stop_is_looked_at_again() {
    let (rig, end) = once_sent(STOP, async |rig| {
        let garbage = Effect::Garbage { body: "<html>".to_owned() }.on("/lxc/102/status/current");
        rig.node.with(|sim| sim.inject(Fault { times: Some(1), ..garbage }));
    })
    .await;
    assert!(matches!(end, OpOutcome::Succeeded { .. }), "{end:?}");
    assert_eq!(count(&rig, RUNNING, "DELETE 102"), 1);
}

#[tokio::test(start_paused = true)]
async fn p18_what_is_changed_between_two_requests_of_a_destroy_stops_it() {
    let card = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:99:99:99,type=veth";
    for (key, value) in
        [("net0", card), ("description", "mine now"), ("unused0", "tank:vm-7-disk-1")]
    {
        for sent in [STOP, UNPROTECT] {
            let (rig, end) = once_sent(sent, async |rig| edit(rig, key, value)).await;
            assert_it_was_left(&rig, &end);
            // Nothing is owed to what may be another guest.
            assert_eq!(
                protected(&rig, RUNNING),
                sent == STOP || key != "net0",
                "{key} after {sent}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p15_a_container_made_again_while_it_goes_down_is_another() {
    let (rig, end) = once_sent(STOP, async |rig| {
        let copy = rig.node.with(|sim| sim.world.guests[&102].clone());
        while rig.node.with(|sim| sim.is_task_running("vzstop")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        edit(rig, "protection", "0");
        let gone = foreign(rig, "DELETE", RUNNING, &[]);
        tokio::select! { () = gone => {}, () = until_gone(rig) => {} }
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        rig.node.with(|sim| sim.world.guests.insert(102, copy));
        rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
    })
    .await;
    assert_it_was_left(&rig, &end);
    assert!(protected(&rig, RUNNING));
}

async fn until_gone(rig: &Rig) {
    while exists(rig, RUNNING) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing is changed until the thaw, which gives back a protection that was taken off.
#[tokio::test(start_paused = true)]
async fn a_freeze_between_two_requests_of_a_destroy_is_obeyed() {
    for (sent, protected_then) in [(STOP, true), (UNPROTECT, false)] {
        let freeze = async |rig: &Rig| rig.frozen.store(true, Ordering::Relaxed);
        let (rig, end) = once_sent(sent, freeze).await;
        assert!(end.words().contains("this host was frozen meanwhile"), "{end:?}");
        afterwards(&rig, &desired("")).await;
        assert_eq!(writes(&rig, RUNNING).last().map(String::as_str), Some(sent));
        assert_eq!(protected(&rig, RUNNING), protected_then);
        rig.frozen.store(false, Ordering::Relaxed);
        afterwards(&rig, &desired("")).await;
        assert_it_was_left(&rig, &end);
        assert!(protected(&rig, RUNNING), "{:?}", writes(&rig, RUNNING));
    }
}

/// The host is frozen after the protection was taken off; somebody acts; then it is thawed.
async fn thawed_after(somebody: impl AsyncFnOnce(&Rig)) -> Rig {
    let freeze = async |rig: &Rig| rig.frozen.store(true, Ordering::Relaxed);
    let (rig, end) = once_sent(UNPROTECT, freeze).await;
    assert_it_was_left(&rig, &end);
    somebody(&rig).await;
    rig.frozen.store(false, Ordering::Relaxed);
    afterwards(&rig, &desired("")).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_protection_is_not_given_to_a_guest_that_was_made_again_the_same() {
    let rig = thawed_after(async |rig| {
        rig.node.with(|sim| sim.happen(Event::Recreate { guest: guest() }));
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(exists(rig, RUNNING));
    })
    .await;
    assert!(!protected(&rig, RUNNING), "nobody declared it: {:?}", writes(&rig, RUNNING));
}

/// Two destroys took the protection, and neither could give it back: the guest is owed it once, and one try fails.
#[tokio::test(start_paused = true)]
async fn a_protection_that_two_destroys_took_is_tried_once_in_each_pause() {
    let quorum = |rig: &Rig, quorate| rig.node.with(|sim| sim.happen(Event::Quorum { quorate }));
    let lost = async |rig: &Rig| quorum(rig, false);
    let (rig, end) = once_sent(UNPROTECT, lost).await;
    assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
    assert_eq!(count(&rig, RUNNING, UNPROTECT), 2, "taken off, and one try to give it back");
    // Another person protects the guest again, and it is destroyed once more before the pause is over.
    quorum(&rig, true);
    edit(&rig, "protection", "1");
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    let end = destroyed_until(&rig, 8, HOUR_S, UNPROTECT, lost).await;
    assert!(matches!(end, OpOutcome::Failed { .. }), "{end:?}");
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    tokio::time::sleep(Duration::from_mins(5)).await;
    live(&rig, async |engine| {
        pass(engine, &desired("")).await?;
        while !engine.is_idle() {
            engine.work().await?;
        }
        Ok(())
    })
    .await;
    assert!(!protected(&rig, RUNNING));
    assert_eq!(writes(&rig, RUNNING), [UNPROTECT], "both owe it, and it was tried once");
}

/// And the guest is kept as declared all the while.
#[tokio::test(start_paused = true)]
async fn a_protection_is_given_back_once_the_right_to_see_all_tasks_is() {
    let rig = thawed_after(async |rig| restrict(rig, &[])).await;
    assert!(!protected(&rig, RUNNING));
    afterwards(&rig, &desired("guest.102 = { kind = \"lxc\", description = \"kept\" }")).await;
    let config = rig.node.with(|sim| sim.world.guest(guest()).unwrap().config.clone());
    assert!(
        config.active.get("description").is_some_and(|text| text.contains("kept")),
        "{config:?}"
    );
    assert!(!protected(&rig, RUNNING));
    restrict(&rig, &[("/", "PVEAuditor")]);
    afterwards(&rig, &desired("")).await;
    assert!(protected(&rig, RUNNING), "{:?}", writes(&rig, RUNNING));
}

/// What is owed to a guest does not wait for what is planned for it.
#[tokio::test(start_paused = true)]
async fn a_protection_is_given_back_to_a_guest_whose_every_planned_act_is_held() {
    let freeze = async |rig: &Rig| rig.frozen.store(true, Ordering::Relaxed);
    let (rig, end) = once_sent(UNPROTECT, freeze).await;
    assert_it_was_left(&rig, &end);
    rig.frozen.store(false, Ordering::Relaxed);
    let watched = "guest.102 = { kind = \"lxc\", mode = \"observe\", description = \"held\" }";
    afterwards(&rig, &desired(watched)).await;
    assert!(protected(&rig, RUNNING), "{:?}", writes(&rig, RUNNING));
}

/// The signers are these from now on, as after a rotation that is on disk.
async fn signers_become(rig: &Rig, signers: Vec<Signer>) {
    let trust = TrustedSigners::genesis(TrustVersion(2), signers).unwrap();
    let mut authority = rig.approvals.as_ref().unwrap().authority.write().await;
    *authority = Authority::first(Rig::host(), trust);
}

/// Her key was taken out, or is still in and everything outstanding is void all the same.
#[tokio::test(start_paused = true)]
async fn x04_nothing_more_of_a_destroy_is_sent_once_the_signers_changed() {
    let bob = Operator::new("bob", 3).signer(Role::Operational);
    let anna = anna().signer(Role::Operational);
    let vault = vault().signer(Role::Recovery);
    for signers in [vec![bob, vault.clone()], vec![anna, vault]] {
        for (sent, left) in [(STOP, true), (UNPROTECT, false)] {
            let change = async |rig: &Rig| signers_become(rig, signers.clone()).await;
            let (rig, end) = once_sent(sent, change).await;
            assert_it_was_left(&rig, &end);
            assert!(end.words().contains("its approval no longer holds"), "{end:?}");
            assert_eq!(count(&rig, RUNNING, UNPROTECT) == 0, left, "{:?}", writes(&rig, RUNNING));
            assert!(protected(&rig, RUNNING), "given back, or never taken off");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x04_nothing_more_of_a_destroy_is_sent_once_its_approval_has_expired() {
    for sent in [STOP, UNPROTECT] {
        let late = async |_: &Rig| tokio::time::sleep(Duration::from_mins(5)).await;
        // The look after the stop takes ten seconds, and so does every other.
        let (life_s, sent_later) = if sent == STOP { (25, UNPROTECT) } else { (45, "DELETE 102") };
        let (rig, end) = once_sent_within(life_s, sent, late).await;
        assert_it_was_left(&rig, &end);
        assert!(end.words().contains("expired"), "{end:?}");
        assert_eq!(count(&rig, RUNNING, sent), 1 + usize::from(sent == UNPROTECT));
        assert_eq!(count(&rig, RUNNING, sent_later), 0);
        assert!(protected(&rig, RUNNING));
    }
}

/// A stop would apply what waits, and then it is not the guest that was signed for.
#[tokio::test(start_paused = true)]
async fn x14_a_running_guest_with_waiting_changes_is_not_stopped_for_its_destroy() {
    let rig = rig().await;
    rig.node.with(|sim| {
        let config = &mut sim.world.guest_mut(guest()).unwrap().config;
        config.pending.insert("memory".to_owned(), "4096".to_owned());
    });
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        rig.node.with(evenkeel_sim::Simulator::clear_records);
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let end = ended(engine, submitted).await.end;
        let OpOutcome::Held { reason, why } = &end else { panic!("{end:?}") };
        assert_eq!(*reason, evenkeel_core::model::reason::ReasonCode::Stale);
        assert!(why.contains("changes wait for a restart"), "{why}");
        Ok(())
    })
    .await;
    assert_eq!(writes(&rig, RUNNING), Vec::<String>::new());
}

/// Proxmox took the write, and then the guest cannot be read for a while.
#[tokio::test(start_paused = true)]
async fn x10_a_protection_whose_return_is_not_known_keeps_its_lane_shut_until_it_is() {
    let rig = rig().await;
    edit(&rig, "protection", "1");
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let declared = desired("guest.102 = { kind = \"lxc\", description = \"kept\" }");
    // Whoever looks at the guest waits so long that somebody can act before.
    rig.node.with(|sim| sim.inject(Effect::Latency { ms: 1_000 }.on("/lxc/102/")));
    live(&rig, async |engine| {
        let approval = approved(&rig, engine, &absent).await;
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let acts = async {
            while protected(&rig, RUNNING) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            edit(&rig, "description", "mine now");
            while !protected(&rig, RUNNING) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let garbage = Effect::Garbage { body: "<html>".to_owned() };
            rig.node.with(|sim| {
                sim.clear_faults();
                sim.inject(garbage.on("/lxc/102/pending"));
            });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, submitted) => assert_it_was_left(&rig, &report.end),
            () = acts => unreachable!("a person who waits for ever"),
        }
        assert_eq!(count(&rig, RUNNING, UNPROTECT), 2, "it was given back");
        assert_eq!(engine.unknown().count(), 1, "nobody knows whether it was");
        let busy = engine
            .look(&declared, PassScope::Whole, PassCause::Schedule)
            .await
            .unwrap()
            .plan
            .guests[0]
            .busy
            .clone()
            .unwrap();
        assert_eq!(busy.reason(), evenkeel_core::model::reason::ReasonCode::UnknownOutcome);
        assert!(busy.to_string().contains("evenkeel journal resolve op_"), "{busy}");
        rig.node.with(evenkeel_sim::Simulator::clear_faults);
        // Settled by the first, known to be given back by the second, and then the lane is free.
        for _ in 0..3 {
            pass(engine, &declared).await?;
            while !engine.is_idle() {
                engine.work().await?;
            }
        }
        assert_eq!(engine.unknown().count(), 0, "it is settled like any other");
        Ok(())
    })
    .await;
    assert!(protected(&rig, RUNNING));
    let kept = rig.node.with(|sim| sim.world.guest(guest()).unwrap().config.clone());
    assert!(kept.active["description"].contains("kept"), "its lane is open again: {kept:?}");
}
