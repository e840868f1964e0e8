//! The Proxmox VE release a node runs: what exists there, and how it answers.
//!
//! Only the first two numbers matter; patch levels never change the API we use.

use std::fmt;
use std::str::FromStr;

/// A release such as 8.4, ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The major number.
    pub major: u8,
    /// The minor number.
    pub minor: u8,
}

impl Release {
    /// The oldest release evenkeel supports.
    pub const V7_4: Self = Self { major: 7, minor: 4 };
    /// First with `Mapping.*`, `SDN.Use`, QEMU resize as a task.
    pub const V8_0: Self = Self { major: 8, minor: 0 };
    /// First with LXC `devN` and QEMU memory as a string.
    pub const V8_1: Self = Self { major: 8, minor: 1 };
    /// First with `machine` as a property string.
    pub const V8_2: Self = Self { major: 8, minor: 2 };
    /// First with `amd-sev` and LXC writes that fail whole.
    pub const V8_3: Self = Self { major: 8, minor: 3 };
    /// First with `virtiofsN` and error texts in JSON bodies everywhere.
    pub const V8_4: Self = Self { major: 8, minor: 4 };
    /// First with unprivileged containers by default and live `devN`.
    pub const V9_0: Self = Self { major: 9, minor: 0 };
    /// First with LXC `env`, `entrypoint` and QEMU `allow-ksm`.
    pub const V9_1: Self = Self { major: 9, minor: 1 };
    /// The newest release the facts were read from.
    pub const V9_2: Self = Self { major: 9, minor: 2 };

    /// The releases the registry was checked against.
    pub const CHECKED: [Self; 5] = [Self::V7_4, Self::V8_4, Self::V9_0, Self::V9_1, Self::V9_2];
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is not a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a Proxmox VE release such as 8.4")]
pub struct ReleaseError(String);

impl FromStr for Release {
    type Err = ReleaseError;

    /// Reads `8.4`, and the longer forms PVE reports (`8.4.21`, `7.4-20`).
    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let number = |part: Option<&str>| part.and_then(|digits| digits.parse::<u8>().ok());
        let mut parts = text.split(['.', '-']);
        match (number(parts.next()), number(parts.next())) {
            (Some(major), Some(minor)) => Ok(Self { major, minor }),
            (None, _) | (_, None) => Err(ReleaseError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_short_and_long_forms() {
        for (text, release) in
            [("8.4", Release::V8_4), ("9.2.11", Release::V9_2), ("7.4-20", Release::V7_4)]
        {
            assert_eq!(text.parse(), Ok(release));
        }
        for text in ["", "8", "eight.four", "8.x"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
        assert!(Release::V7_4 < Release::V8_1 && Release::V8_4 < Release::V9_0);
    }
}
