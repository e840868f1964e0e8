//! What a person reads: values of core turned into text for a terminal.

pub(crate) mod diagnostic;
