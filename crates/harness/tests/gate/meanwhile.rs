//! A signed destroy of a container that runs and is protected takes several requests. What happens between them
//! stops it: the act is not sent, and the protection is given back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_agent::engine::End;
use evenkeel_core::id::GuestId;
use evenkeel_harness::Rig;
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
async fn once_sent(sent: &str, somebody: impl AsyncFnOnce(&Rig)) -> (Rig, End) {
    let rig = rig().await;
    edit(&rig, "protection", "1");
    // Whoever looks at the guest waits so long that somebody can act before.
    rig.node.with(|sim| {
        sim.inject(Fault { times: None, ..Effect::Latency { ms: 10_000 }.on("/pending") });
    });
    let absent = desired("guest.102 = { kind = \"lxc\", state = \"absent\" }");
    let end = rig.live(async |engine| {
        pass(engine, &absent).await?;
        let approval = anna().approve(&item(engine).await, 7, now(&rig));
        let submitted = engine.submit_approval(approval.as_bytes()).await?;
        let acts = async {
            while count(&rig, RUNNING, sent) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            somebody(&rig).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            report = ended(engine, submitted) => Ok(report.end),
            () = acts => unreachable!("a person who waits for ever"),
        }
    });
    let end = end.await.unwrap().unwrap();
    (rig, end)
}

fn assert_it_was_left(rig: &Rig, end: &End) {
    assert!(matches!(end, End::Failed { .. }), "{end:?}");
    assert_eq!(count(rig, RUNNING, "DELETE 102"), 0);
    assert!(exists(rig, RUNNING));
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_nothing_comes_between_is_carried_out() {
    let (rig, end) = once_sent(STOP, async |_| {}).await;
    assert!(matches!(end, End::Succeeded { .. }), "{end:?}");
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
