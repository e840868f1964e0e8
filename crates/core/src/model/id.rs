//! Identifiers: parsed once at the edge, printed back the same way, never mixed up.
//!
//! Everything that names a guest, a node, a host, an operation or a task is one of these types; a
//! bare string or number in a signature is a bug. Parsing the wrong kind of id is an error that
//! says what was expected.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::name::is_label;

/// Why a text is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {why}")]
pub struct IdError {
    /// What was expected, in words: "guest number", "node name".
    pub what: &'static str,
    /// The offending text.
    pub text: String,
    /// The rule it breaks.
    pub why: &'static str,
}

fn refuse<T>(what: &'static str, text: &str, why: &'static str) -> Result<T, IdError> {
    Err(IdError { what, text: text.to_owned(), why })
}

/// The number of a guest. Containers and virtual machines share one number space per cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct VmId(u32);

impl VmId {
    /// Proxmox reserves everything below.
    pub const MIN: u32 = 100;
    /// The largest number Proxmox's schema takes.
    pub const MAX: u32 = 999_999_999;

    /// The number itself.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for VmId {
    type Error = IdError;

    fn try_from(number: u32) -> Result<Self, IdError> {
        if (Self::MIN..=Self::MAX).contains(&number) {
            Ok(Self(number))
        } else {
            refuse("guest number", &number.to_string(), "it must lie between 100 and 999999999")
        }
    }
}

impl From<VmId> for u32 {
    fn from(id: VmId) -> u32 {
        id.0
    }
}

impl FromStr for VmId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) || text.starts_with('0') {
            return refuse("guest number", text, "it must be digits without leading zeros");
        }
        match text.parse::<u32>() {
            Ok(number) => Self::try_from(number),
            Err(_) => refuse("guest number", text, "it must lie between 100 and 999999999"),
        }
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The two kinds of guest Proxmox VE knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// A container.
    Lxc,
    /// A virtual machine.
    Qemu,
}

impl GuestKind {
    /// Both kinds, in the order they are listed.
    pub const ALL: [Self; 2] = [Self::Lxc, Self::Qemu];

    /// The word PVE's paths and our files use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lxc => "lxc",
            Self::Qemu => "qemu",
        }
    }
}

impl fmt::Display for GuestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for GuestKind {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text {
            "lxc" => Ok(Self::Lxc),
            "qemu" => Ok(Self::Qemu),
            _ => refuse("guest kind", text, "it must be lxc or qemu"),
        }
    }
}

/// A guest as it is written everywhere: `lxc/101`, `qemu/200`. Ordered by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId {
    /// The number; first, so that guests sort by it.
    pub vmid: VmId,
    /// Container or virtual machine.
    pub kind: GuestKind,
}

impl GuestId {
    /// Puts the two parts together.
    pub fn new(kind: GuestKind, vmid: VmId) -> Self {
        Self { vmid, kind }
    }
}

impl fmt::Display for GuestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.vmid)
    }
}

impl FromStr for GuestId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let Some((kind, vmid)) = text.split_once('/') else {
            return refuse("guest", text, "it must look like lxc/101 or qemu/200");
        };
        Ok(Self { kind: kind.parse()?, vmid: vmid.parse()? })
    }
}

/// Serialised as its printed text, through the same parser.
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

serde_as_text!(GuestId, OperationId);

crate::name! {
    /// One Proxmox VE node, as PVE's paths name it.
    NodeName, "node name", is_label,
    "it must be 1 to 63 letters, digits and inner hyphens"
}

crate::name! {
    /// One agent's host, as the operator named it in `agent.toml`.
    HostId, "host id", is_label,
    "it must be 1 to 63 letters, digits and inner hyphens"
}

/// One journalled execution: `op_` and a ULID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(ulid::Ulid);

impl OperationId {
    /// An id from a moment and randomness, both handed in: core has neither.
    pub fn from_parts(at_ms: u64, random: u128) -> Self {
        Self(ulid::Ulid::from_parts(at_ms, random))
    }

    /// A part of its randomness: the same for everybody who asks.
    pub(crate) fn random_byte(self) -> u8 {
        (self.0.random() & 0xff).try_into().unwrap_or(0)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op_{}", self.0)
    }
}

impl FromStr for OperationId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let Some(ulid) = text.strip_prefix("op_") else {
            return refuse("operation id", text, "it must start with op_");
        };
        match ulid::Ulid::from_string(ulid) {
            Ok(id) if id.to_string() == ulid => Ok(Self(id)),
            Ok(_) | Err(_) => refuse("operation id", text, "op_ must be followed by a ULID"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_they_were_read() {
        for text in ["lxc/101", "qemu/999999999"] {
            assert_eq!(text.parse::<GuestId>().unwrap().to_string(), text);
        }
        let operation = OperationId::from_parts(1_700_000_000_000, 42);
        assert_eq!(operation.to_string().parse::<OperationId>(), Ok(operation));
    }

    #[test]
    fn the_wrong_kind_of_id_is_refused() {
        for text in ["101", "lxc", "lxc/", "lxc/99", "lxc/0101", "vm/101", "lxc/101/x", "lxc/+101"]
        {
            assert!(text.parse::<GuestId>().is_err(), "{text}");
        }
        for text in ["", "-a", "a-", "a_b", "a b", &"a".repeat(64)] {
            assert!(text.parse::<NodeName>().is_err(), "{text}");
        }
        for text in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "op_", "op_01arz3ndektsv4rrffq69g5fav"] {
            assert!(text.parse::<OperationId>().is_err(), "{text}");
        }
    }
}
