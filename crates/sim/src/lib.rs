//! A Proxmox VE in memory: one node with containers, virtual machines, storages and tasks that
//! answers its REST API as a real one does, quirks included.
//!
//! ```text
//!  Http (hyper, TLS)  ┐                    ┌ access   who may
//!  InProcess (tokio)  ├─► Simulator ──────►├ schema   which parameters
//!  Simulator::call    ┘   virtual time     ├ endpoints what each call does
//!                         workers, locks   ├ write    how config keys are stored
//!                                          └ job      what tasks do
//! ```
//!
//! [`Simulator`] is a plain state machine: it takes the moment as an argument and never waits. The
//! fronts [`Http`] and [`InProcess`] drive it with a clock. It shares only ids with the rest of
//! evenkeel, so that both cannot misread Proxmox together.

mod access;
mod cluster_fs;
mod config;
mod endpoints;
mod engine;
mod fault;
mod format;
mod guest_files;
mod http;
mod in_process;
mod inside_files;
mod job;
mod odd_row;
mod property;
mod random;
mod record;
mod reply;
mod request;
mod scenario;
mod scenario_file;
mod schema;
mod state;
mod storage;
mod surroundings;
mod task;
mod tls;
mod world;
mod write;

pub use access::{Grant, SimToken, TokenAccess, User};
pub use config::{Config, Section, SnapshotSection};
pub use engine::{SimOutcome, SimTicket, Simulator};
pub use fault::{Effect, Event, Fault, LostWorker};
pub use guest_files::GuestFiles;
pub use http::{Http, HttpError, HttpOptions};
pub use in_process::InProcess;
pub use inside_files::{NESTED_FILE_SYSTEM, is_excluded};

pub use job::Timings;
pub use odd_row::OddValue;
pub use record::RequestRecord;
pub use reply::{Reply, ReplyBody};
pub use request::SimRequest;
pub use scenario::{Scenario, TOKENS};
pub use scenario_file::{
    DeclaredBackup, DeclaredFile, DeclaredStorage, ScenarioError, ScenarioFile, ScenarioGuest,
};
pub use state::StateFileError;

pub use storage::{DataOrigin, Storage, StorageKind, StoredArchive, Volume};
pub use surroundings::{NumberThing, SimBackupJob, SimFirewall, SimReplication, SimSurroundings};

pub use tls::{Certificate, SimCertificateError};
pub use world::{Away, BackupFile, SimGuest, SimPower, World};
