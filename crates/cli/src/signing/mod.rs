//! What the verbs that sign share: files, pinned hosts, trust, and `ssh-keygen` as the only hand that signs.
//!
//! Nothing here holds or reads an operator's private key. What is judged is judged by core.

pub(crate) mod file;
pub(crate) mod keygen;
pub(crate) mod known_hosts;
pub(crate) mod offer;
pub(crate) mod refusal;
pub(crate) mod trust;

use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Nonce, STATEMENT_LIFE_MAX_S, Window};

use crate::error::{CommandFailure, Exit};

/// How long an approval is good for if nobody says.
pub(crate) const LIFE_DEFAULT_S: u64 = 60 * 60;

/// How far a host's clock may be behind the operator's without refusing a fresh approval.
const CLOCK_SKEW_S: u64 = 5 * 60;

/// The time, by this machine's clock.
pub(crate) fn now() -> UnixSeconds {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// A window from now on, begun a little earlier where the longest life leaves room for that.
pub(crate) fn window(now: UnixSeconds, life_s: u64) -> Result<Window, Refusal> {
    let expires_at = now.plus(life_s);
    let earliest = expires_at.minus(STATEMENT_LIFE_MAX_S);
    Window::new(now.minus(CLOCK_SKEW_S).max(earliest), expires_at)
}

/// A nonce nobody has used.
pub(crate) fn nonce() -> Result<Nonce, CommandFailure> {
    let mut bits = [0; 16];
    let broken = |error| {
        CommandFailure::new(Exit::Failed, format!("the system gives no randomness: {error}"))
    };
    getrandom::fill(&mut bits).map_err(|error| broken(error.to_string()))?;
    Nonce::from_random(bits).map_err(|error| broken(error.to_string()))
}
