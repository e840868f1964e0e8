//! What a person reads: values of core turned into text for a terminal.

pub(crate) mod audit;
pub(crate) mod diagnostic;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod style;

/// `1 guest`, `3 guests`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
