//! The hub is not needed: what was taken holds without it, across restarts, for ever.

use std::time::Duration;

use evenkeel_core::fleet::{Generation, stale_word};
use evenkeel_core::sign::{PendingId, PendingItem, Window};

use crate::support::{Fleet, Manner, anna, cores, minutes};

#[tokio::test(start_paused = true)]
async fn a_document_is_taken_drift_is_healed_and_at_rest_nothing_is_said() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(3));
    fleet.live(minutes(5)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    assert_eq!(fleet.hub.generation_told(), Some(Generation(1)));
    let reports = fleet.hub.reports();
    let lines = evenkeel_harness::script::journal(&fleet.rig).len();
    fleet.live(minutes(60)).await;
    let more = fleet.hub.reports() - reports;
    assert!(more <= 3, "a host at rest only polls: {more} reports in an hour");
    let grown = evenkeel_harness::script::journal(&fleet.rig).len() - lines;
    assert!(grown <= 3, "and its journal rests: {grown} lines");
}

#[tokio::test(start_paused = true)]
async fn a_month_without_the_hub_and_an_expired_signature_is_kept_across_restarts() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    fleet.hub.behaves(Manner::Gone);
    // The clock of this host is nobody's: it is followed by a day at a time.
    for day in 0..31 {
        tokio::time::sleep(Duration::from_hours(23)).await;
        fleet.edit("lxc/100", "cores", "1");
        fleet.live(minutes(3)).await;
        assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "day {day}");
    }
    assert!(fleet.view.health().trouble.is_some(), "and it is told that the hub is not heard");
    fleet.hub.behaves(Manner::Honest);
    fleet.push(2, &cores(4));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn a_document_on_disk_that_was_exchanged_is_not_believed() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    fleet.hub.behaves(Manner::Gone);
    let directory = fleet.state().join("hub");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("cores = 3", "cores = 7")).unwrap();
    }
    fleet.edit("lxc/100", "cores", "1");
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("1"), "nothing is declared then");
}

#[tokio::test(start_paused = true)]
async fn a_faulty_document_is_refused_whole_and_its_mistakes_travel_back() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    fleet.push(2, &format!("{}coers = 1\n", cores(4)));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"));
    assert_eq!(fleet.hub.refused().as_deref(), Some("payload"));
    fleet.push(3, &cores(5));
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("5"));
}

#[tokio::test(start_paused = true)]
async fn z24_a_hub_that_freezes_is_told_by_the_last_word_an_author_signed_and_holds_nothing() {
    const WEEK_S: u64 = 7 * 24 * 3_600;
    let fleet = Fleet::new().await;
    let stale = async || {
        let asked = fleet.rig.live(async |engine| engine.author_word().await);
        let (word, now) = Box::pin(asked).await.unwrap().unwrap();
        stale_word(word.as_ref(), WEEK_S, now)
    };
    assert!(stale().await.is_some(), "no author ever signed");
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    assert_eq!(stale().await, None);
    // The hub answers every poll for more than a week, and never with anything new.
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_hours(23)).await;
        fleet.edit("lxc/100", "cores", "1");
        fleet.live(minutes(3)).await;
        assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "nothing is held");
    }
    let health = fleet.view.health();
    assert_eq!(health.trouble, None, "the way to it is as good as ever");
    assert!(health.heard.is_some_and(|at| fleet.now().0 - at.as_second().unsigned_abs() < 600));
    let why = stale().await.unwrap();
    assert!(why.contains("generation 1") && why.contains("holding documents back"), "{why}");
    // What was in effect, signed anew, is a fresh word; one that was kept back for six days is as old as its signature.
    fleet.push(2, &cores(3));
    fleet.live(minutes(3)).await;
    assert_eq!(stale().await, None);
    let week = Window::new(fleet.now(), fleet.now().plus(WEEK_S)).unwrap();
    let kept_back = Fleet::signed_over(fleet.base(), week, 3, &cores(4));
    let days = async |days: u32| {
        for _ in 0..days {
            tokio::time::sleep(Duration::from_hours(23)).await;
            // What is written keeps the clock of this host believed, which nobody vouches for.
            fleet.edit("lxc/100", "cores", "1");
            fleet.live(minutes(3)).await;
        }
    };
    days(6).await;
    fleet.offer(3, &kept_back);
    fleet.live(minutes(3)).await;
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("4"), "it is in its window");
    days(2).await;
    assert!(stale().await.unwrap().contains("generation 3"));
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_the_hub_holds_back_is_executed_when_it_comes_and_not_before() {
    let fleet = Fleet::new().await;
    fleet.push(1, "[guest.102]\nkind = \"lxc\"\nstate = \"absent\"\n");
    fleet.live(minutes(3)).await;
    let waiting = async || -> Vec<(PendingId, PendingItem)> {
        let asked = fleet.rig.live(async |engine| engine.pending().await);
        let items = Box::pin(asked).await.unwrap().unwrap();
        items.into_iter().map(|(id, (item, _))| (id, item)).collect()
    };
    let deletes = || fleet.writes().iter().filter(|write| write.starts_with("DELETE")).count();
    let raised = waiting().await;
    let [(_, item)] = raised.as_slice() else { panic!("{raised:?}") };
    let held_back = anna().approve(item, 7, fleet.now());
    fleet.live(minutes(10)).await;
    assert_eq!(deletes(), 0, "{:?}", fleet.writes());
    assert_eq!(waiting().await, raised, "it waits for the approval");
    fleet.hub.queues(&held_back);
    fleet.live(minutes(10)).await;
    assert_eq!(deletes(), 1, "{:?}", fleet.writes());
    assert_eq!(waiting().await, []);
}
