//! What a pass keeps of its readings where the node's cluster file system can be read, and what it must not keep.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use evenkeel_core::desired::Desired;
use evenkeel_harness::Rig;
use evenkeel_harness::script::{desired, fault, pass, rig};
use evenkeel_sim::{Effect, Event};

/// Two containers; the others of the node are nobody's.
const TWO: &str =
    "guest.100 = { kind = \"lxc\", cores = 1 }\nguest.102 = { kind = \"lxc\", cores = 1 }";

fn edit(rig: &Rig, guest: &str, cores: &str) {
    let set = [("cores".to_owned(), Some(cores.to_owned()))].into();
    rig.node.with(|sim| sim.happen(Event::Edit { guest: guest.parse().unwrap(), set }));
}

/// The paths that were asked for since the last time, taken.
fn asked(rig: &Rig) -> Vec<String> {
    rig.node.with(|sim| {
        let paths = sim.records().iter().map(|record| record.path.clone()).collect();
        sim.clear_records();
        paths
    })
}

/// The guests whose configurations were asked for, and how many requests there were.
fn read(rig: &Rig) -> (Vec<String>, usize) {
    let asked = asked(rig);
    let guest = |path: &String| {
        let (guest, _) = path.strip_prefix("/api2/json/nodes/pve1/")?.split_once("/pending")?;
        Some(guest.to_owned())
    };
    let mut guests: Vec<String> = asked.iter().filter_map(guest).collect();
    guests.sort();
    (guests, asked.len())
}

/// A node whose two declared guests are as declared, and its file system readable.
fn rested() -> (Rig, Desired) {
    let rig = rig(8).remembering();
    for guest in ["lxc/100", "lxc/102"] {
        edit(&rig, guest, "1");
    }
    (rig, desired(TWO))
}

#[tokio::test(start_paused = true)]
async fn what_was_not_written_is_not_asked_for_again_and_nobody_elses_guest_is_read() {
    let (rig, wanted) = rested();
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        let (guests, _) = read(&rig);
        assert_eq!(guests, ["lxc/100", "lxc/102"], "what is declared and nothing else");
        pass(engine, &wanted).await?;
        let (guests, requests) = read(&rig);
        assert_eq!((guests.len(), requests), (0, 2), "the two lists, for the run states");
        edit(&rig, "lxc/102", "3");
        let healed = pass(engine, &wanted).await?;
        assert_eq!((healed.started, healed.succeeded), (1, 1), "{healed:?}");
        Ok(read(&rig).0)
    });
    let guests = lived.await.unwrap().unwrap();
    // Once by the pass, and afresh by the lane, before and after it wrote.
    assert!(guests.iter().all(|guest| guest == "lxc/102") && guests.len() >= 3, "{guests:?}");
}

#[tokio::test(start_paused = true)]
async fn numbers_that_begin_anew_do_not_pass_for_the_old_ones() {
    for again in [Event::RestartClusterFs, Event::ResyncClusterFs] {
        let (rig, wanted) = rested();
        // The first list is drawn in the order of the numbers, and so is every one after a restart.
        rig.node.with(|sim| sim.happen(Event::RestartClusterFs));
        let lived = rig.live(async |engine| {
            pass(engine, &wanted).await?;
            edit(&rig, "lxc/100", "3");
            rig.node.with(|sim| sim.happen(again.clone()));
            pass(engine, &wanted).await
        });
        let healed = lived.await.unwrap().unwrap();
        assert_eq!(healed.succeeded, 1, "{again:?}: {healed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_a_pass_reads_is_asked_for_by_the_next() {
    let (rig, wanted) = rested();
    // The first guest has been read when the second one's answer is still on its way.
    fault(&rig, Effect::Latency { ms: 5_000 }, "GET", "/lxc/102/pending", 1);
    let lived = rig.live(async |engine| {
        let reading = pass(engine, &wanted);
        let writing = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            edit(&rig, "lxc/100", "3");
        };
        let (first, ()) = tokio::join!(reading, writing);
        assert_eq!(first?.planned, 0, "it was read before");
        pass(engine, &wanted).await
    });
    let healed = lived.await.unwrap().unwrap();
    assert_eq!(healed.succeeded, 1, "{healed:?}");
}

#[tokio::test(start_paused = true)]
async fn everything_is_read_again_after_an_hour_after_an_error_and_when_nothing_can_be_compared() {
    let (rig, wanted) = rested();
    let files = rig.cluster_files.clone().unwrap();
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        tokio::time::sleep(Duration::from_mins(59)).await;
        asked(&rig);
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 0, "within the hour");
        tokio::time::sleep(Duration::from_mins(2)).await;
        pass(engine, &wanted).await?;
        let (guests, requests) = read(&rig);
        // Version, both lists, the cluster's guests, options and nodes, and two guests.
        assert_eq!((guests.len(), requests), (2, 8), "after the hour, with what surrounds them");
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 0);
        rig.wire.set_down(true);
        assert!(engine.pass(&wanted).await.is_err());
        rig.wire.set_down(false);
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 2, "after an error");
        files.set_unreadable(true);
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 2, "nothing to compare");
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 2, "still nothing");
        files.set_unreadable(false);
        pass(engine, &wanted).await?;
        assert_eq!(read(&rig).0.len(), 2, "what was read meanwhile has no mark");
        pass(engine, &wanted).await?;
        Ok(read(&rig).0.len())
    });
    assert_eq!(lived.await.unwrap().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_cannot_be_read_is_asked_for_each_time_and_costs_the_others_one_reading() {
    let (rig, wanted) = rested();
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        // A write of something that nobody declares.
        let set = [("tags".to_owned(), Some("theirs".to_owned()))].into();
        rig.node.with(|sim| sim.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set }));
        fault(&rig, Effect::Garbage { body: "<html>".to_owned() }, "GET", "/lxc/100/pending", 3);
        asked(&rig);
        let mut read_by_pass = Vec::new();
        for _ in 0..5 {
            engine.pass(&wanted).await.unwrap();
            read_by_pass.push(read(&rig).0.len());
        }
        Ok(read_by_pass)
    });
    let read_by_pass = lived.await.unwrap().unwrap();
    assert_eq!(read_by_pass, [1, 2, 1, 1, 0], "new, everything, the same, whole again, rest");
}

#[tokio::test(start_paused = true)]
async fn without_the_file_system_only_what_is_declared_is_read_and_nothing_twice_that_does_not_change()
 {
    let (mut rig, wanted) = rested();
    rig.cluster_files = None;
    let lived = rig.live(async |engine| {
        pass(engine, &wanted).await?;
        asked(&rig);
        pass(engine, &wanted).await?;
        Ok(read(&rig))
    });
    // Both lists, the cluster's guests for what HA manages, and the two.
    assert_eq!(lived.await.unwrap().unwrap(), (vec!["lxc/100".into(), "lxc/102".into()], 5));
}
