//! One module a verb. A verb reads, asks core, prints; it decides nothing.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod confirm;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod freeze;
pub(crate) mod import;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod schema;
pub(crate) mod sim;
pub(crate) mod validate;
