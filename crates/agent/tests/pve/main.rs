//! The Proxmox VE client against hand-made servers and exchanges. One binary: linking is dear.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop right there")]

mod answers;
mod every_call;
mod secrets;
mod server;
mod tls;
mod transport;
mod typed;
mod waiting;
