//! N15: descriptors or memory run out, at the first or at a later step of a run. It fails closed, and the next run
//! brings everything to its end.

use crate::campaign::{Outcome, Point};
use crate::hook::{Hook, Resource};
use crate::scene::{Applied, Scene};

/// From too few to load the program up to more than a run needs.
const DESCRIPTORS: std::ops::RangeInclusive<u64> = 3..=32;

/// In MiB of addresses, likewise.
const MEMORY: std::ops::RangeInclusive<u64> = 4..=64;

/// Every point of this part.
pub(crate) fn points() -> Vec<Point> {
    let descriptors = DESCRIPTORS.map(|limit| point(Resource::Descriptors, limit));
    descriptors.chain(MEMORY.map(|limit| point(Resource::Mebibytes, limit))).collect()
}

/// A run that may have so much of it.
pub(crate) fn point(resource: Resource, limit: u64) -> Point {
    let row = match resource {
        Resource::Descriptors => "descriptors run out",
        Resource::Mebibytes => "memory runs out",
    };
    let run = move || {
        let mut scene = Scene::new();
        let applied = scene.apply(&Hook::Starve { resource, limit });
        if applied.code == Some(0) {
            return Outcome::of(scene, 0);
        }
        if let Some(wrong) = wrong_words(&applied, resource, scene.oracle.sent_count()) {
            scene.oracle.violation(format!("{wrong}\n{}{}", applied.stdout, applied.stderr));
        }
        scene.finish();
        Outcome::of(scene, 1)
    };
    Point { row: row.to_owned(), name: format!("at most {limit}"), run: Box::new(run) }
}

/// Without memory there may be none for words; without descriptors there are words. A runtime that cannot even listen
/// to signals panics, and then nothing may have been sent.
fn wrong_words(applied: &Applied, resource: Resource, sent: usize) -> Option<String> {
    let told = format!("{}{}", applied.stdout, applied.stderr);
    match resource {
        Resource::Descriptors if told.contains("panicked") && sent > 0 => {
            Some("it panicked at its work".to_owned())
        }
        Resource::Descriptors if applied.code.is_none() => Some("it was killed".to_owned()),
        Resource::Descriptors
            if !(told.contains("oo many open files") || told.contains("shared object")) =>
        {
            Some("it does not say what it lacks".to_owned())
        }
        Resource::Descriptors | Resource::Mebibytes => None,
    }
}
