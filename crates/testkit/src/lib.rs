//! Tools that the tests and benches of several crates share. No shipped crate may depend on it.
#![expect(missing_docs, reason = "the names say it, and only tests read them")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod bent_json;
#[cfg(feature = "services")]
pub mod browser;
pub mod destroy_item;
pub mod dice;
#[cfg(feature = "services")]
pub mod patience;
#[cfg(feature = "services")]
pub mod postgres;
pub mod signing_keys;
