//! The seam to a hub: one request, and what became of it. Production sends it over HTTP, a test answers it in process.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What is asked of a hub.
#[derive(Clone, PartialEq, Eq)]
pub struct HubRequest {
    /// How.
    pub method: HubMethod,
    /// Path and query.
    pub target: String,
    /// Headers beside the credential.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The longest answer that is read.
    pub answer_max_bytes: usize,
    /// How long everything may take together, so that an answer that trickles in ends too.
    pub deadline: Duration,
}

/// A body may hold an enrolment token.
impl fmt::Debug for HubRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubRequest").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The two ways to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubMethod {
    /// Reads.
    Get,
    /// Tells.
    Post,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubOutcome {
    /// The hub answered.
    Answered {
        /// The status.
        status: u16,
        /// The body, no longer than was allowed.
        body: Vec<u8>,
    },
    /// It did not, or not so that it could be read.
    Failed(HubFailure),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HubFailure {
    /// No connection, or not to the right hub.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection ended in the middle.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// It took too long.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
    /// The answer was longer than allowed.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
}

/// The answer, some time.
pub type HubFuture<'a> = Pin<Box<dyn Future<Output = HubOutcome> + Send + 'a>>;

/// Carries requests to one hub.
pub trait HubExchange: Send + Sync {
    /// Carries one. Dropping the future gives the request up.
    fn exchange(&self, request: HubRequest) -> HubFuture<'_>;
}
