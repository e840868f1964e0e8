//! Hashes with a meaning each, printed as 64 lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::operate::operation::IdentityHash;

/// A text that is no hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 lower-case hexadecimal digits")]
pub struct NotAHash;

macro_rules! hash {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(pub [u8; 32]);

        impl $type {
            /// The hash of exact bytes: what `sha256sum` prints for a file of them.
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                IdentityHash(self.0).fmt(f)
            }
        }

        impl FromStr for $type {
            type Err = NotAHash;

            fn from_str(text: &str) -> Result<Self, NotAHash> {
                let digits: IdentityHash = text.parse().map_err(|_| NotAHash)?;
                Ok(Self(digits.0))
            }
        }

        impl TryFrom<String> for $type {
            type Error = NotAHash;

            fn try_from(text: String) -> Result<Self, NotAHash> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(hash: $type) -> String {
                hash.to_string()
            }
        }
    };
}

hash! {
    /// The SHA-256 of a statement's exact bytes: what a spent nonce is compared by.
    PayloadHash
}

hash! {
    /// The head of the trust chain: what the next rotation must name.
    TrustHash
}

hash! {
    /// What stands for a desired document: the SHA-256 of its manifest's exact bytes.
    ManifestHash
}

hash! {
    /// The name of a pending item: the SHA-256 of its exact bytes.
    PendingId
}
