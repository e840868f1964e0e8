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

/// How much of a pending item's name is shown: enough to tell a few hundred apart.
pub(crate) const PENDING_SHORT: usize = 12;

/// `1 guest`, `3 guests`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A text of somebody else's on one line of at most so many characters, drawn and never acted upon.
pub(crate) fn tamed(text: &str, length_max: usize) -> String {
    let mut letters = text.chars().map(diagnostic::picture);
    let mut shown: String = letters.by_ref().take(length_max).collect();
    if letters.next().is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}
