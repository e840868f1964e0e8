//! A host and its hub, honest, hostile or gone: the real link and engine, a simulated node, a hub made of lies.
//!
//! The request log of the simulator and the guests themselves say what was done; nothing the agent says counts. Every
//! attack begins and ends with a document that is taken and drift that is healed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod anchored;
mod autonomy;
mod away;
mod create;
mod heavy;
mod hostile;
mod support;
mod unsigned;
