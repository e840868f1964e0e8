//! One module a verb. A verb reads, asks core, prints; it decides nothing.

pub(crate) mod apply;
mod apply_by_agent;
mod apply_exit;
mod apply_subject;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod freeze;
pub(crate) mod import;
pub(crate) mod journal;
mod journal_show;
mod named_guest;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod sign;
pub(crate) mod signers;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod validate;
pub(crate) mod verify;
mod without_agent;
