//! Names that operations carry and that are only compared and printed, never taken apart.
//!
//! They reach journal lines and error texts, so blanks and control bytes are refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::IdError;

/// A name that is text of bounded length without blanks or control bytes.
macro_rules! token {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let printable = text.bytes().all(|b| b.is_ascii_graphic());
                if text.is_empty() || text.len() > TOKEN_LENGTH_MAX || !printable {
                    let why = "it must be 1 to 255 printable ASCII characters without blanks";
                    return Err(IdError { what: $what, text: text.escape_default().to_string(), why });
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

/// The longest volume name a file system takes; nonces are far shorter.
const TOKEN_LENGTH_MAX: usize = 255;

token! {
    /// The key a signed operation spends: the nonce of its statement.
    IdempotencyKey, "idempotency key"
}

token! {
    /// A volume as PVE names it: `local-lvm:vm-101-disk-0`.
    VolumeId, "volume"
}

token! {
    /// A storage as PVE names it: `local-lvm`.
    StorageName, "storage"
}
