//! The process is killed: at every sync, on both sides of it, with what was not synced kept, lost or torn; while the
//! journal is made and while it is opened again; with an answer outstanding; and in recovery, again and again.

use std::path::Path;

use crate::campaign::{Outcome, Point};
use crate::hook::{Aim, Hook};
use crate::oracle::CHANGES;
use crate::scene::{Applied, SEGMENT, Scene};
use crate::trace::Event;

/// How late the node takes a change while its client is killed: long enough that no answer comes before.
const LATENCY_MS: u32 = 400;

/// A sync in the middle, when operations of every kind are in flight. On a busy machine operations share syncs, but
/// never so many that there are fewer than this.
const MIDDLE: usize = 8;

/// So often in a row is a recovery killed.
const RECOVERIES_KILLED: usize = 20;

/// What a machine that loses power makes of bytes that were written and not synced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unsynced {
    Kept,
    Lost,
    Torn,
}

/// Which side of the call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConfigSide {
    Before,
    After,
}

/// Every point of this part, for a journal's thread that syncs so often.
pub(crate) fn points(syncs: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for nth in 1..=syncs {
        points.extend(
            [Unsynced::Kept, Unsynced::Lost, Unsynced::Torn]
                .map(|unsynced| before_sync(nth, unsynced)),
        );
        points.push(after_sync(nth));
    }
    for side in [ConfigSide::Before, ConfigSide::After] {
        points.extend(MAKING.map(|(call, nth)| making(call, nth, side)));
        points.extend(REOPENING.map(|(call, nth)| reopening(call, nth, side)));
    }
    points.extend((1..=CHANGES).map(answer_outstanding));
    points.push(recoveries());
    points
}

/// The process dies in place of a sync.
pub(crate) fn before_sync(nth: usize, unsynced: Unsynced) -> Point {
    let row = match unsynced {
        Unsynced::Kept => "killed before fdatasync",
        Unsynced::Lost => "killed before fdatasync, unsynced bytes lost",
        Unsynced::Torn => "killed before fdatasync, unsynced bytes torn",
    };
    let run = move || {
        let mut scene = Scene::new();
        let applied = scene.apply(&Hook::KillBefore(writer("fdatasync", nth)));
        if applied.code.is_none() {
            lose(&scene.journal(), &applied.events, unsynced);
        }
        finish(scene, &applied)
    };
    Point { row: row.to_owned(), name: format!("{nth}"), run: Box::new(run) }
}

/// The process dies when a sync is over and nobody has heard of it.
pub(crate) fn after_sync(nth: usize) -> Point {
    let run = move || {
        let mut scene = Scene::new();
        let applied = scene.apply(&Hook::KillAfter(writer("fdatasync", nth)));
        finish(scene, &applied)
    };
    Point { row: "killed after fdatasync".to_owned(), name: format!("{nth}"), run: Box::new(run) }
}

/// What the opening thread calls while it makes the state directory and a journal in it.
pub(crate) const MAKING: [(&str, usize); 6] =
    [("fsync", 1), ("fsync", 2), ("pwrite64", 1), ("fdatasync", 1), ("rename", 1), ("fsync", 3)];

/// The process dies while it makes the journal.
pub(crate) fn making(call: &'static str, nth: usize, side: ConfigSide) -> Point {
    let run = move || {
        let mut scene = Scene::new();
        let applied = scene.apply(&at(call, nth, side));
        finish(scene, &applied)
    };
    let name = format!("{side:?} {call} {nth}");
    Point { row: "killed while the journal is made".to_owned(), name, run: Box::new(run) }
}

/// What the opening thread calls while it opens a journal with a torn tail: the tail is copied, cut, what is unproven
/// is written again, and the cut is noted.
pub(crate) const REOPENING: [(&str, usize); 12] = [
    ("pwrite64", 1),
    ("fdatasync", 1),
    ("fsync", 1),
    ("ftruncate", 1),
    ("fdatasync", 2),
    ("fsync", 2),
    ("fallocate", 1),
    ("pwrite64", 2),
    ("fdatasync", 3),
    ("rename", 1),
    ("fsync", 3),
    ("pwrite64", 3),
];

/// The process dies, its last write is torn, and it dies again while it opens the journal.
pub(crate) fn reopening(call: &'static str, nth: usize, side: ConfigSide) -> Point {
    let run = move || {
        let mut scene = torn_scene();
        scene.restarts += 1;
        let applied = scene.apply(&at(call, nth, side));
        let mut outcome = finish(scene, &applied);
        outcome.strikes += u32::from(outcome.strikes > 0);
        outcome
    };
    let name = format!("{side:?} {call} {nth}");
    Point { row: "killed while the journal is opened again".to_owned(), name, run: Box::new(run) }
}

/// A scene that was killed in the middle, its last write torn.
pub(crate) fn torn_scene() -> Scene {
    let mut scene = Scene::new();
    let applied = scene.apply(&Hook::KillBefore(writer("fdatasync", MIDDLE)));
    assert_eq!(applied.code, None, "there are more syncs than {MIDDLE}");
    lose(&scene.journal(), &applied.events, Unsynced::Torn);
    scene
}

/// The process dies when a request has left and before its answer.
pub(crate) fn answer_outstanding(nth: usize) -> Point {
    let run = move || {
        let mut scene = Scene::with_latency(LATENCY_MS);
        let applied = scene.apply(&Hook::KillOnRequest { nth });
        finish(scene, &applied)
    };
    Point {
        row: "killed with an answer outstanding".to_owned(),
        name: format!("{nth}"),
        run: Box::new(run),
    }
}

/// The process dies in the middle, and then in every recovery from it.
pub(crate) fn recoveries() -> Point {
    let run = move || {
        let mut scene = Scene::new();
        let mut strikes = 0;
        for attempt in 0..=RECOVERIES_KILLED {
            // First while it works, then in turn while it opens the journal and while it records what it found.
            let hook = match attempt {
                0 => Hook::KillBefore(writer("fdatasync", MIDDLE)),
                odd if odd % 2 == 1 => Hook::KillBefore(opener("fdatasync", 1)),
                _ => Hook::KillBefore(writer("fdatasync", 2)),
            };
            scene.restarts += u32::from(attempt > 0);
            strikes += u32::from(scene.apply(&hook).code.is_none());
        }
        scene.finish();
        Outcome::of(scene, strikes)
    };
    let name = format!("{RECOVERIES_KILLED} times");
    Point { row: "killed in recovery, in a row".to_owned(), name, run: Box::new(run) }
}

/// A call of the journal's own thread in a new journal. The thread that makes the journal makes each call once.
pub(crate) fn writer(call: &'static str, nth: usize) -> Aim {
    Aim { call, nth, segment_only: nth == 1 }
}

/// A call of the thread that opens the journal.
pub(crate) fn opener(call: &'static str, nth: usize) -> Aim {
    Aim { call, nth, segment_only: false }
}

fn at(call: &'static str, nth: usize, side: ConfigSide) -> Hook {
    match side {
        ConfigSide::Before => Hook::KillBefore(opener(call, nth)),
        ConfigSide::After => Hook::KillAfter(opener(call, nth)),
    }
}

fn finish(mut scene: Scene, applied: &Applied) -> Outcome {
    match applied.code {
        None => scene.finish(),
        Some(0) => {}
        Some(code) => {
            scene.oracle.violation(format!(
                "nobody killed it, and it ends with {code}: {}",
                applied.stderr
            ));
        }
    }
    Outcome::of(scene, u32::from(applied.code.is_none()))
}

/// Does to the segment's last bytes what a loss of power may do.
pub(crate) fn lose(journal: &Path, events: &[Event], unsynced: Unsynced) {
    let mut last = None;
    for event in events {
        match event {
            Event::Wrote { path, offset, bytes } if path.ends_with(SEGMENT) => {
                last = Some((*offset, bytes.len() as u64));
            }
            Event::Synced { path } if path.ends_with(SEGMENT) => last = None,
            Event::Wrote { .. }
            | Event::Synced { .. }
            | Event::Sent { .. }
            | Event::Refused { .. } => {}
        }
    }
    let Some((offset, length)) = last else { return };
    let left = match unsynced {
        Unsynced::Kept => return,
        Unsynced::Lost => offset,
        Unsynced::Torn => offset + length / 2,
    };
    let file = std::fs::OpenOptions::new().write(true).open(journal.join(SEGMENT)).unwrap();
    file.set_len(left).unwrap();
}
