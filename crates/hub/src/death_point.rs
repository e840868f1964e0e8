//! Where a test may kill the process: between any two steps of a write. In every other build it is nothing.

/// One of the points. The environment says which of them, counted from 1, is the last.
#[cfg(feature = "test-hooks")]
pub(crate) fn pass() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let Ok(last) = std::env::var(LAST) else { return };
    if PASSED.fetch_add(1, Ordering::SeqCst) + 1 == last.parse::<u64>().expect("a number") {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL)
            .expect("a process may kill itself");
        // The signal arrives before anything else is done.
        loop {
            std::thread::park();
        }
    }
}

/// The name of the point at which a child of a test dies.
#[cfg(feature = "test-hooks")]
pub const LAST: &str = "EVENKEEL_HUB_TEST_DIES_AT";

/// Nothing.
#[cfg(not(feature = "test-hooks"))]
#[inline]
pub(crate) fn pass() {}
