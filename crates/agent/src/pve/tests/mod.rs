//! The Proxmox VE client against hand-made servers and exchanges. Inside the crate, because nobody outside it
//! can get hold of the mutating calls.

mod again;
mod answers;
mod every_call;
mod secrets;
mod server;
mod soak;
mod storages;
mod tls;
mod transport;
mod typed;
mod waiting;
