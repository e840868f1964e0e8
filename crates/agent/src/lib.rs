//! evenkeel acts here: everything that waits, writes or calls.
//!
//! ```text
//!   source ──> desired ─┐
//!                       ├──> core: plan ──> engine ──> queue: gate, execute ──> pve
//!   pve ──> observe ────┘                      └───────── journal ────────┘
//! ```
//!
//! What is decided is decided in `evenkeel-core`; this crate carries it out and reads the world back.

pub mod ambient;
pub mod audit;
pub mod authority;
pub mod cluster_files;
pub mod config;
pub mod daemon;
pub mod effective_clock;
pub mod engine;
pub mod find_guest;
pub mod first_secrets;
pub mod freeze;
pub mod host_key;
pub mod hub_link;
pub mod journal;
mod left_locks;
mod lock_owners;
pub mod observe;
pub(crate) mod path_trust;
pub mod plain_file;
pub mod policy;
pub mod preview;
pub mod pve;
pub mod queue;
pub mod secret_file;
pub mod situation;
pub mod source;
pub mod state_dir;
