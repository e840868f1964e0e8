//! What the verbs of `fleet` share: the hub that is meant, the person's tokens and pins, and documents as they are signed.
//!
//! A hub is not trusted. What is signed is made from files and pins of this machine; what a hub hands over is verified
//! before it is shown, and decides nothing but which number a document gets.

pub(crate) mod awaited_verdict;
pub(crate) mod document;
mod document_memory;
pub(crate) mod document_proof;
pub(crate) mod host_at_hub;
pub(crate) mod hub_client;
mod known_authors;
pub(crate) mod known_hubs;
pub(crate) mod logins;
mod place;
