//! evenkeel decides here: pure functions over values.
//!
//! ```text
//!   desired ──┐
//!             ├──> plan ──> gate ──> operate: (agent: queue, execute, journal, recover)
//!   actual  ──┘              ▲
//!                          sign, fleet: who may have it done
//! ```
//!
//! Both sides become `value`s in normal form by the one `registry` of keys, so that PVE's round-trip
//! quirks never read as drift. `model` has the words that all folders share; `words` has what people read.
//! There is no clock, no file, no network, no randomness and no environment in this crate; clippy
//! refuses them.

pub mod action_registry;
pub mod actual;
pub mod desired;
pub mod fleet;
pub mod gate;
pub mod model;
pub mod operate;
pub mod plan;
pub mod registry;
pub mod sign;
pub mod value;
pub mod words;
