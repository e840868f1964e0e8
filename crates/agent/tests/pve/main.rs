//! The Proxmox VE client against hand-made servers and exchanges. One binary: linking is dear.

mod answers;
mod every_call;
mod secrets;
mod server;
mod tls;
mod transport;
mod typed;
mod waiting;
