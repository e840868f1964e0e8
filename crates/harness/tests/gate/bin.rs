//! The bin: a guest is put aside and comes back as it was, whatever happens in between; and its destroy is asked for only
//! after its time.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_harness::Rig;
use evenkeel_sim::Event;

use crate::support::*;

const GUEST: &str = "lxc/102";
const BINNED: &str = "guest.102 = { kind = \"lxc\", state = \"bin\" }";
const PRESENT: &str = "guest.102 = { kind = \"lxc\" }";
const DAY: Duration = Duration::from_hours(24);

fn guest() -> GuestId {
    GUEST.parse().unwrap()
}

/// A running container that starts with the node.
async fn node() -> Rig {
    let rig = rig().await;
    let set = [("onboot", "1"), ("tags", "prod;web")];
    let set = set.map(|(key, value)| (key.to_owned(), Some(value.to_owned())));
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set: BTreeMap::from(set) }));
    rig
}

async fn passes(rig: &Rig, text: &str) {
    afterwards(rig, &desired(text)).await;
}

/// Whether it runs, whether it starts with the node, and its tags.
fn looks(rig: &Rig) -> (bool, bool, String) {
    rig.node.with(|sim| {
        let found = sim.world.guest(guest()).unwrap();
        let key = |key: &str| found.config.active.get(key).cloned().unwrap_or_default();
        (found.power.is_running(), key("onboot") == "1", key("tags"))
    })
}

fn in_bin() -> (bool, bool, String) {
    (false, false, "evenkeel-bin;prod;web".to_owned())
}

fn as_before() -> (bool, bool, String) {
    (true, true, "prod;web".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_guest_goes_into_the_bin_and_comes_back_as_it_was() {
    let rig = node().await;
    passes(&rig, BINNED).await;
    assert_eq!(looks(&rig), in_bin());
    // Nothing more is sent, and its block may go and come.
    let sent = writes(&rig, GUEST);
    passes(&rig, BINNED).await;
    passes(&rig, "").await;
    assert_eq!(writes(&rig, GUEST), sent);
    passes(&rig, PRESENT).await;
    assert_eq!(looks(&rig), as_before());
    // What it was is over: whoever takes it down now is let be.
    rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
    let sent = writes(&rig, GUEST);
    passes(&rig, PRESENT).await;
    assert_eq!(writes(&rig, GUEST), sent, "its run state is nobody's again");
}

#[tokio::test(start_paused = true)]
async fn another_guest_under_the_number_gets_nothing_back() {
    let rig = node().await;
    passes(&rig, BINNED).await;
    rig.node.with(|sim| sim.happen(Event::Reuse { guest: guest() }));
    tokio::time::sleep(Duration::from_mins(5)).await;
    rig.node.with(|sim| sim.happen(Event::Power { guest: guest(), running: false }));
    rig.node.with(evenkeel_sim::Simulator::clear_records);
    passes(&rig, PRESENT).await;
    assert_eq!(writes(&rig, GUEST), Vec::<String>::new());
}

/// A crash at every await point on the way in: it comes back as it was all the same.
#[tokio::test(start_paused = true)]
async fn what_a_guest_was_survives_a_crash_at_every_step_into_the_bin() {
    let declared = desired(BINNED);
    let mut polls = 1;
    loop {
        let rig = node().await;
        let life = rig.live(async |engine| pass(engine, &declared).await);
        let done = crash_after(polls, life).await.is_some();
        let rig = Rig { disk: rig.disk.after_crash(0, 0), ..rig };
        passes(&rig, BINNED).await;
        assert_eq!(looks(&rig), in_bin(), "after {polls} polls");
        passes(&rig, PRESENT).await;
        assert_eq!(looks(&rig), as_before(), "after {polls} polls");
        if done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 10, "{polls} crash points");
}

#[tokio::test(start_paused = true)]
async fn after_its_time_in_the_bin_a_destroy_is_asked_for_and_never_done_by_itself() {
    let rig = node().await;
    passes(&rig, BINNED).await;
    let waits = async || live(&rig, async |engine| engine.pending().await).await.len();
    tokio::time::sleep(29 * DAY).await;
    passes(&rig, BINNED).await;
    assert_eq!(waits().await, 0);
    tokio::time::sleep(2 * DAY).await;
    passes(&rig, BINNED).await;
    let item = live(&rig, async |engine| Ok(item(engine).await)).await;
    assert_eq!((item.op, item.guest), (ActionKind::Destroy, guest()));
    assert!(item.wants_final_backup(), "it recommends to save it first");
    assert!(exists(&rig, GUEST));
    passes(&rig, PRESENT).await;
    assert_eq!((waits().await, looks(&rig)), (0, as_before()), "who takes it out ends the item");
}

/// Somebody gives it another card, or another disk, while it is in the bin.
fn changes(rig: &Rig, key: &str, value: &str) {
    let set = BTreeMap::from([(key.to_owned(), Some(value.to_owned()))]);
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest(), set }));
}

#[tokio::test(start_paused = true)]
async fn y10_a_guest_that_changes_in_the_bin_comes_back_as_it_was_before() {
    let card = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:99,ip=dhcp,type=veth";
    let disk = "local-lvm:vm-102-disk-9,mp=/more,size=1G";
    for is_seen in [true, false] {
        let rig = node().await;
        passes(&rig, BINNED).await;
        for (key, value) in [("net0", card), ("mp7", disk)] {
            changes(&rig, key, value);
            if is_seen {
                passes(&rig, BINNED).await;
            }
        }
        assert_eq!(looks(&rig), in_bin());
        let lines = evenkeel_harness::script::journal(&rig).len();
        if is_seen {
            passes(&rig, BINNED).await;
            let now = evenkeel_harness::script::journal(&rig).len();
            assert_eq!(now, lines, "at rest nothing is written");
        }
        passes(&rig, PRESENT).await;
        assert_eq!(looks(&rig), as_before(), "seen in the bin: {is_seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn y10_a_guest_that_changes_in_the_bin_is_in_there_since_it_was_put_aside() {
    let rig = node().await;
    passes(&rig, BINNED).await;
    tokio::time::sleep(20 * DAY).await;
    changes(&rig, "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:99,ip=dhcp,type=veth");
    passes(&rig, BINNED).await;
    tokio::time::sleep(11 * DAY).await;
    passes(&rig, BINNED).await;
    let waits = live(&rig, async |engine| engine.pending().await).await;
    assert_eq!(waits.len(), 1, "its time is over");
}
