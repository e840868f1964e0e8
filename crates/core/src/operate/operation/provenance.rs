//! What our own journal knows of a guest's origin: the only thing that can make a destroy benign.
//!
//! The classifier takes a [`Provenance`] as input. Nothing outside the fold of journalled
//! operations can make one that says more than "nothing is known": the fields are private, it is
//! not deserialised, and no tag, file or claim from elsewhere reaches it (invariant 11).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::id::{GuestId, OperationId};

/// Where a guest comes from, as far as our journal can prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance(Option<GuestOrigin>);

impl Provenance {
    /// Nothing is known: the guest is somebody's.
    pub fn none() -> Self {
        Self(None)
    }

    /// Only the fold of journalled operations calls this.
    pub(super) fn of(origin: GuestOrigin) -> Self {
        Self(Some(origin))
    }

    /// The recorded origin, if there is one. By itself it proves nothing: see [`Self::proves`].
    pub fn origin(&self) -> Option<&GuestOrigin> {
        self.0.as_ref()
    }

    /// Whether the guest that is there now is the one we made and nobody else has changed: same
    /// number, same kind, and the live identity is the last one an operation of ours left behind.
    pub fn proves(&self, guest: GuestId, live: &IdentityHash) -> bool {
        self.0.as_ref().is_some_and(|origin| origin.guest == guest && origin.baseline == *live)
    }
}

/// A guest of ours: which operation made it and how it looked after our last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestOrigin {
    pub(super) guest: GuestId,
    pub(super) created_by: OperationId,
    pub(super) baseline: IdentityHash,
}

impl GuestOrigin {
    /// The guest that was made.
    pub fn guest(&self) -> GuestId {
        self.guest
    }

    /// The operation that made it.
    pub fn created_by(&self) -> OperationId {
        self.created_by
    }

    /// Its identity after our last operation on it.
    pub fn baseline(&self) -> &IdentityHash {
        &self.baseline
    }
}

/// The SHA-256 of a guest's identity, printed as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdentityHash(pub [u8; 32]);

impl fmt::Display for IdentityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<IdentityHash> for String {
    fn from(hash: IdentityHash) -> Self {
        hash.to_string()
    }
}

/// A text that is no identity hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an identity is 64 lower-case hexadecimal digits")]
pub struct NotAnIdentityHash;

impl FromStr for IdentityHash {
    type Err = NotAnIdentityHash;

    fn from_str(text: &str) -> Result<Self, NotAnIdentityHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotAnIdentityHash);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(hash))
    }
}

fn nibble(digit: u8) -> Result<u8, NotAnIdentityHash> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotAnIdentityHash),
    }
}

impl TryFrom<String> for IdentityHash {
    type Error = NotAnIdentityHash;

    fn try_from(text: String) -> Result<Self, NotAnIdentityHash> {
        text.parse()
    }
}
