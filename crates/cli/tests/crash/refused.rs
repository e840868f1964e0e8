//! The disk refuses: EIO and ENOSPC at every write and sync, and at everything else the journal asks of it.
//!
//! The process says what, where, why and what next, ends with 1, and sends nothing that is not on disk. A single
//! ENOSPC of a write is what the reserve is for: it is given back and the work goes on.

use crate::campaign::{Outcome, Point};
use crate::hook::{Aim, Hook};
use crate::killed::{MAKING, REOPENING, opener, torn_scene, writer};
use crate::scene::{Applied, Scene};
use crate::trace::Event;

/// How it must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The process ends with a clear message.
    Stops,
    /// There is nothing to be told: it gets done.
    GoesOn,
    /// Nothing new is begun, and that is said.
    BeginsNothing,
}

/// Every point of this part, for a journal's thread that writes and syncs so often.
pub(crate) fn points(writes: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for nth in 1..=writes {
        for error in ["EIO", "ENOSPC"] {
            points.push(working(writer("fdatasync", nth), error, false, End::Stops));
            points.push(working(writer("pwrite64", nth), error, true, End::Stops));
        }
        points.push(working(writer("pwrite64", nth), "EIO", false, End::Stops));
        points.push(working(writer("pwrite64", nth), "ENOSPC", false, End::GoesOn));
    }
    points.push(working(opener("fallocate", 1), "EIO", false, End::Stops));
    points.push(working(opener("fallocate", 1), "ENOSPC", true, End::BeginsNothing));
    for error in ["EIO", "ENOSPC"] {
        for (call, nth) in MAKING {
            points.push(working(opener(call, nth), error, false, End::Stops));
        }
        points.extend(REOPENING.map(|(call, nth)| reopening(call, nth, error)));
    }
    points
}

/// The disk refuses a call of a run that began with an empty directory.
pub(crate) fn working(aim: Aim, error: &'static str, for_ever: bool, end: End) -> Point {
    let row = match (error, aim.call, for_ever) {
        ("EIO", _, _) => "EIO",
        (_, "pwrite64", false) if end == End::GoesOn => {
            "ENOSPC at one write, the reserve is given back"
        }
        (_, _, false) => "ENOSPC",
        (_, _, true) => "ENOSPC from then on",
    };
    let run = move || {
        let mut scene = Scene::new();
        let applied = scene.apply(&Hook::Refuse { aim, for_ever, error });
        judge(scene, &applied, error, end)
    };
    let more = if for_ever { " and all after it" } else { "" };
    Point {
        row: row.to_owned(),
        name: format!("{error} at {} {}{more}", aim.call, aim.nth),
        run: Box::new(run),
    }
}

/// The disk refuses a call while a journal with a torn tail is opened again.
pub(crate) fn reopening(call: &'static str, nth: usize, error: &'static str) -> Point {
    let end = match (call, nth, error) {
        // The note of the cut is a record like others, and a reserve that cannot be taken is asked for again.
        ("pwrite64", 3, "ENOSPC") | ("fallocate", 1, "ENOSPC") => End::GoesOn,
        (_, _, _) => End::Stops,
    };
    let run = move || {
        let mut scene = torn_scene();
        scene.restarts += 1;
        let aim = opener(call, nth);
        let applied = scene.apply(&Hook::Refuse { aim, for_ever: false, error });
        judge(scene, &applied, error, end)
    };
    let name = format!("{error} at {call} {nth}");
    Point { row: "refused while the journal is opened again".to_owned(), name, run: Box::new(run) }
}

fn judge(mut scene: Scene, applied: &Applied, error: &str, end: End) -> Outcome {
    let struck = applied.events.iter().any(|event| matches!(event, Event::Refused { .. }));
    if !struck {
        if applied.code != Some(0) {
            scene
                .oracle
                .violation(format!("nothing was refused, and it ends with {:?}", applied.code));
        }
        return Outcome::of(scene, 0);
    }
    for wrong in wrong_words(applied, error, end) {
        scene.oracle.violation(format!("{wrong}\n{}{}", applied.stdout, applied.stderr));
    }
    if end == End::BeginsNothing && scene.oracle.sent_count() > 0 {
        scene.oracle.violation("something was sent although nothing may begin".to_owned());
    }
    scene.finish();
    Outcome::of(scene, 1)
}

/// What is wrong with how it ended and what it said.
fn wrong_words(applied: &Applied, error: &str, end: End) -> Vec<String> {
    let Applied { code, stdout, stderr, .. } = applied;
    let why = if error == "EIO" { "Input/output error" } else { "No space left on device" };
    let (expected, words): (i32, &[&str]) = match end {
        End::Stops => (1, &["error: ", "/state", why, "hint: "]),
        End::GoesOn => (0, &[]),
        End::BeginsNothing => (1, &["nearly full", "nothing was sent"]),
    };
    let mut wrong = Vec::new();
    if *code != Some(expected) {
        wrong.push(format!("it ends with {code:?}, not {expected}"));
    }
    let told = format!("{stdout}{stderr}");
    let missing = words.iter().filter(|word| !told.contains(**word));
    wrong.extend(missing.map(|word| format!("it does not say {word:?}")));
    if told.contains("panicked") {
        wrong.push("it panicked".to_owned());
    }
    wrong
}
