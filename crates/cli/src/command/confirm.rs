//! What a file says that is about to be handed in, and whether that is meant: a file left over from another day looks like
//! the one that was just written.

use std::fmt::Write as _;

use evenkeel_core::sign::{Envelope, PublicKey, render};

use crate::error::CommandFailure;
use crate::terminal;

/// Shows what is signed in a file and by which keys, and asks a person, if one is there and did not say yes before. What
/// cannot be read is said to be so: whoever takes it judges it.
pub(crate) fn hand_in(text: &str, yes: bool) -> Result<(), CommandFailure> {
    terminal::tell(&format!("You hand in:\n\n{}\n", words(text)))?;
    if !yes && terminal::is_there() {
        terminal::agreed(false, "Hand this in?", "handed in")?;
    }
    Ok(())
}

fn words(text: &str) -> String {
    let envelope = match Envelope::parse(text.as_bytes()) {
        Ok(envelope) => envelope,
        Err(refusal) => return format!("  no envelope that can be read: {}\n", refusal.detail),
    };
    let mut words = match render::any_statement(envelope.payload()) {
        Ok(words) => words,
        Err(refusal) => format!("  no statement that can be read: {}\n", refusal.detail),
    };
    for signature in envelope.signatures() {
        let key = PublicKey::from_blob(signature.key_blob());
        let key = key.map_or_else(
            |_| "a key that cannot be read".to_owned(),
            |key| format!("{} {}", key.key_type(), key.fingerprint()),
        );
        writeln!(words, "  {:<12} {key}", "signature of").expect("writing to a string cannot fail");
    }
    words
}
