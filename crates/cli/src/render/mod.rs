//! What a person reads: values of core turned into text for a terminal.

pub(crate) mod audit;
pub(crate) mod diagnostic;
pub(crate) mod difference;
pub(crate) mod fit;
pub(crate) mod journal;
pub(crate) mod operation;
pub(crate) mod origin;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod status;
pub(crate) mod style;

use evenkeel_core::words::shown_text;

/// How much of a pending item's name is shown and must be given to a hub: 64 bits, so that no other bytes with the same
/// beginning can be made for it.
pub(crate) const PENDING_SHORT: usize = 16;

/// `1 guest`, `3 guests`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A text of others on one line of at most so many columns, drawn and never acted upon. Not for what is signed.
pub(crate) fn tamed(text: &str, columns_max: usize) -> String {
    shown_text::one_line(text, columns_max)
}
