//! The small words that every folder shares: identifiers and quantities that know their kind, reason codes, secrets.

pub mod id;
pub mod name;
pub mod quantity;
pub mod reason;
pub mod release;
pub mod secret;
#[cfg(test)]
pub(crate) mod thorough;
pub mod vmid_ranges;
