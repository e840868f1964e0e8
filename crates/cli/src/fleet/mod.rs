//! What the verbs of `fleet` share: the hub that is meant, the person's tokens and pins, and documents as they are signed.
//!
//! A hub is not trusted. What is signed is made from files and pins of this machine; what the hub says is shown, compared
//! and sent back, and decides nothing but which number a document gets.

pub(crate) mod document;
pub(crate) mod hub_client;
pub(crate) mod known_hubs;
pub(crate) mod logins;
mod place;
