//! Nonces: each approves one act, once, ever; and the memory of those that are spent.
//!
//! The agent spends a nonce by the durable `started` record of its op and rebuilds [`SpentNonces`] from
//! its journal; the judgement reads it. One nonce has one spelling, or two spellings would be two nonces.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::hash::PayloadHash;
use crate::model::id::OperationId;
use crate::operate::operation::{IdempotencyKey, OpState, UnixSeconds};

/// 128 random bits, printed as 32 lower-case hexadecimal digits; never all zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce([u8; 16]);

/// A text or number that is no nonce.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a nonce is 32 lower-case hexadecimal digits, not all zero")]
pub struct NotANonce;

impl Nonce {
    /// A nonce from randomness that is handed in: core has none.
    pub fn from_random(bits: [u8; 16]) -> Result<Self, NotANonce> {
        // All zero is what a generator that does not work gives.
        if bits == [0; 16] { Err(NotANonce) } else { Ok(Self(bits)) }
    }

    /// The key the `started` record of its op takes.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        self.to_string().parse().expect("hexadecimal digits are printable and short")
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Nonce {
    type Err = NotANonce;

    fn from_str(text: &str) -> Result<Self, NotANonce> {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(lower_hex) {
            return Err(NotANonce);
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| NotANonce)?;
        Self::from_random(bits.to_be_bytes())
    }
}

impl TryFrom<String> for Nonce {
    type Error = NotANonce;

    fn try_from(text: String) -> Result<Self, NotANonce> {
        text.parse()
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> String {
        nonce.to_string()
    }
}

/// What a nonce was spent on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentOn {
    /// The statement, by its exact bytes.
    pub payload: PayloadHash,
    /// The op it cleared.
    pub op: OperationId,
    /// How that op stands.
    pub result: OpResult,
    /// When the statement ends: until then, and a while longer, the nonce is remembered.
    pub expires_at: UnixSeconds,
}

/// How a signed op stands, for the answer to a repeated delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpResult {
    /// It is being executed.
    InFlight,
    /// Done.
    Succeeded,
    /// Not done.
    Failed,
    /// Not known.
    Unknown,
}

impl OpResult {
    /// The result an operation's state stands for.
    pub fn of(state: &OpState) -> Self {
        match state {
            OpState::Started { .. } | OpState::TaskRunning { .. } => Self::InFlight,
            OpState::Succeeded { .. } => Self::Succeeded,
            OpState::Failed { .. } => Self::Failed,
            OpState::Unknown { .. } => Self::Unknown,
        }
    }

    /// The word a person reads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in flight",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// How long a nonce is remembered after its statement ended. The end alone would do for safety; a day more
/// lets whoever asks again learn what became of it, instead of only that it expired.
pub const REMEMBERED_AFTER_EXPIRY_S: u64 = 24 * 60 * 60;

/// The nonces that are spent on this host, whichever key signed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpentNonces(BTreeMap<Nonce, SpentOn>);

/// A nonce that is spent cannot be spent again; the journal is damaged or the agent has a bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the nonce {nonce} was spent by {op}")]
pub struct AlreadySpent {
    /// The nonce.
    pub nonce: Nonce,
    /// The op that spent it.
    pub op: OperationId,
}

impl SpentNonces {
    /// What a nonce was spent on, if it was.
    pub fn get(&self, nonce: &Nonce) -> Option<&SpentOn> {
        self.0.get(nonce)
    }

    /// Spends a nonce.
    pub fn spend(&mut self, nonce: Nonce, spent: SpentOn) -> Result<(), AlreadySpent> {
        if let Some(first) = self.0.get(&nonce) {
            return Err(AlreadySpent { nonce, op: first.op });
        }
        self.0.insert(nonce, spent);
        Ok(())
    }

    /// Notes how the op of a nonce stands now.
    pub fn set_result(&mut self, nonce: &Nonce, result: OpResult) {
        if let Some(spent) = self.0.get_mut(nonce) {
            spent.result = result;
        }
    }

    /// Forgets what can no longer be replayed. `mark` is the durable mark of time, not the wall clock: a
    /// clock that jumps ahead and comes back must not make the host forget.
    pub fn forget_ended(&mut self, mark: UnixSeconds) {
        self.0.retain(|_, spent| spent.expires_at.plus(REMEMBERED_AFTER_EXPIRY_S) > mark);
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
