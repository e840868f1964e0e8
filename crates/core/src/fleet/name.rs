//! The names of the fleet: read strictly wherever they come from, printed back the same way.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is not the name it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {digits} lower-case hexadecimal digits{prefix}")]
pub struct NotAHubName {
    what: &'static str,
    digits: usize,
    prefix: &'static str,
}

/// Whether a text is so many lower-case hexadecimal digits.
fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

macro_rules! hex_name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $digits:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
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
            type Err = NotAHubName;

            fn from_str(text: &str) -> Result<Self, NotAHubName> {
                match text.strip_prefix($prefix) {
                    Some(digits) if is_hex(digits, $digits) => Ok(Self(text.to_owned())),
                    Some(_) | None => {
                        let prefix = if $prefix.is_empty() { "" } else { concat!(" after ", $prefix) };
                        Err(NotAHubName { what: $what, digits: $digits, prefix })
                    }
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = NotAHubName;

            fn try_from(text: String) -> Result<Self, NotAHubName> {
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

hex_name! {
    /// One hub, by what was drawn with its database.
    HubId, "a hub's id", 32, ""
}

hex_name! {
    /// One life of an agent: drawn when it starts, so that reports of two lives are never taken for one row.
    InstanceId, "an instance", 16, ""
}

hex_name! {
    /// One envelope that waits for a host's verdict.
    EnvelopeId, "an envelope's id", 32, "env_"
}

/// The number of a document of a host; none has the number 0.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// No document yet.
    pub const NONE: Self = Self(0);

    /// The one that follows; none after the last number there is.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_only_as_it_is_printed() {
        let hub = "0123456789abcdef0123456789abcdef";
        assert_eq!(hub.parse::<HubId>().unwrap().to_string(), hub);
        let envelope = format!("env_{hub}");
        assert_eq!(envelope.parse::<EnvelopeId>().unwrap().to_string(), envelope);
        for text in
            ["", "0123", &hub.to_uppercase(), &format!("{hub}0"), &format!("{}g", &hub[1..])]
        {
            assert!(text.parse::<HubId>().is_err(), "{text}");
            assert!(text.parse::<EnvelopeId>().is_err(), "{text}");
        }
        assert!(hub.parse::<EnvelopeId>().is_err(), "without its prefix");
        let refusal = "x".parse::<EnvelopeId>().unwrap_err().to_string();
        assert_eq!(refusal, "an envelope's id is 32 lower-case hexadecimal digits after env_");
    }
}
