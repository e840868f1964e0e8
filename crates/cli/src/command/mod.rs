//! One module a verb. A verb reads, asks core, prints; it decides nothing.

pub(crate) mod validate;
