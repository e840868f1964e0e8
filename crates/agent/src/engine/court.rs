//! What judging a destructive act needs: whose host this is, whom it trusts, what time it is, what root allows.
//!
//! Shared by all lanes. Who holds the trust for reading while it judges keeps a rotation out until the decision is on
//! disk: what was allowed under one list of signers never begins under the next.

use std::fmt;
use std::sync::Arc;

use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::reason::Refusal;
use evenkeel_core::sign::clock::Reading;
use evenkeel_core::sign::{HostBinding, PendingItem, STATEMENT_LIFE_MAX_S, Trust};
use tokio::sync::RwLock;

/// The judge's bench of one host.
#[derive(Clone)]
pub struct Court {
    /// This host, as statements name it.
    pub host: HostBinding,
    /// The signers; none while nobody is enrolled.
    pub trust: Arc<RwLock<Option<Trust>>>,
    /// The effective clock.
    pub clock: Arc<dyn Fn() -> Reading + Send + Sync>,
    /// The host key's signature around an item that waits.
    pub seal: Seal,
    /// Root's limits.
    pub limits: CourtLimits,
}

/// Puts the host key's signature around an item; the answer is the envelope.
pub type Seal = Arc<dyn Fn(&PendingItem) -> Result<String, Refusal> + Send + Sync>;

/// What root allows, whatever is signed.
#[derive(Debug, Clone, Copy)]
pub struct CourtLimits {
    /// How long a statement may live.
    pub statement_life_max_s: u64,
    /// Destructive acts begun in 24 hours.
    pub destructive_per_day: usize,
    /// Items that wait at a time.
    pub pending_max: usize,
    /// How long an item waits.
    pub pending_life_s: u64,
}

/// More destruction in a day than a person means by hand is a script or a thief.
const DESTRUCTIVE_PER_DAY: usize = 10;
/// More items than a person can read are a flood.
const PENDING_MAX: usize = 256;
/// What nobody signed in a month nobody wants.
const PENDING_LIFE_S: u64 = 30 * 24 * 60 * 60;

impl Default for CourtLimits {
    fn default() -> Self {
        Self {
            statement_life_max_s: STATEMENT_LIFE_MAX_S,
            destructive_per_day: DESTRUCTIVE_PER_DAY,
            pending_max: PENDING_MAX,
            pending_life_s: PENDING_LIFE_S,
        }
    }
}

impl Court {
    /// The effective time.
    pub fn now(&self) -> UnixSeconds {
        (self.clock)().now
    }
}

impl fmt::Debug for Court {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Court").field("host", &self.host).finish_non_exhaustive()
    }
}
