//! What a person reads: values of core turned into text for a terminal.

#[cfg_attr(not(test), expect(dead_code, reason = "the verbs that draw diagnostics come next"))]
pub(crate) mod diagnostic;
