//! Waiting for an event that must come, however busy the machine is. Tests never sleep and hope.

use std::time::{Duration, Instant};

/// How long anything that must happen may take on a busy machine. Where all is well nothing takes nearly as long.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks at something that must come.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
