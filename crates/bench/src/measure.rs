//! Timing two things against each other: interleaved repetitions, medians.

use std::time::Instant;

use tokio::runtime::Runtime;

/// The medians of two things in nanoseconds, run by turns so that what disturbs one disturbs both.
pub(crate) fn by_turns(
    repetitions: usize,
    mut thing: impl FnMut(),
    mut floor: impl FnMut(),
) -> (f64, f64) {
    // Once for the caches.
    thing();
    floor();
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        times.0.push(nanoseconds(&mut thing));
        times.1.push(nanoseconds(&mut floor));
    }
    (median(times.0), median(times.1))
}

#[expect(clippy::cast_precision_loss, reason = "a bench's nanoseconds are far below 2^52")]
fn nanoseconds(run: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64
}

/// What runs a bench: one thread, so that a floor has no more of the machine than what it stands beside.
pub(crate) fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts")
}

/// The one in the middle.
pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
