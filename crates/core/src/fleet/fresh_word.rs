//! When a host last heard something new from an author, and whether that is too long ago.
//!
//! A hub that answers "nothing new" for ever is not told from a quiet one by anything it says: a thief who has the hub makes it say
//! whatever is wanted. What it cannot make is an author's signature. So the host counts from the last document that an author
//! signed; signing the same content again is such a document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::name::Generation;
use crate::operate::operation::UnixSeconds;

/// The last document that an author signed and this host took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorWord {
    /// Its number.
    pub generation: Generation,
    /// Who signed it.
    pub signer: String,
    /// When it was signed, as it says itself: its `not_before`.
    pub signed_at: UnixSeconds,
    /// When this host took it, by the effective time.
    pub taken_at: UnixSeconds,
}

/// The last document that an author signed and a host took, as the host tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuthorWordReport {
    /// Its number.
    #[schemars(with = "u64")]
    pub generation: Generation,
    /// Who signed it.
    pub signer: String,
    /// When it was signed.
    pub signed_at: String,
    /// When the host took it, by the host's clock.
    pub taken_at: String,
}

/// Why a host should ask its author, in one sentence that does not change from day to day; none if the last word is young enough.
///
/// It counts from the signature, not from when it was taken: a hub may keep a document back until its window ends.
pub fn stale_word(word: Option<&AuthorWord>, within_s: u64, now: UnixSeconds) -> Option<String> {
    let Some(word) = word else {
        return Some("no author has signed a document for this host yet".to_owned());
    };
    let AuthorWord { generation, signer, signed_at, taken_at: _ } = word;
    let age = now.0.saturating_sub(signed_at.0);
    (age > within_s).then(|| {
        format!(
            "nothing newer than generation {generation}, which {signer} signed, came from an author within {}: \
             the hub may be holding documents back",
            time_text(within_s)
        )
    })
}

/// Seconds in the largest unit that fits.
fn time_text(seconds: u64) -> String {
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "m")] {
        if seconds > 0 && seconds.is_multiple_of(unit) {
            return format!("{} {name}", seconds / unit);
        }
    }
    format!("{seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: u64 = 7 * 86_400;

    fn word(signed_at: u64, taken_at: u64) -> AuthorWord {
        AuthorWord {
            generation: Generation(7),
            signer: "ada".to_owned(),
            signed_at: UnixSeconds(signed_at),
            taken_at: UnixSeconds(taken_at),
        }
    }

    #[test]
    fn z24_a_word_is_as_old_as_its_signature_however_late_the_hub_handed_it_over() {
        let stale = |word: AuthorWord, now| stale_word(Some(&word), WEEK, UnixSeconds(now));
        assert_eq!(stale(word(1_000, 1_000), 1_000 + WEEK), None);
        let late = stale(word(1_000, WEEK), 1_001 + WEEK).unwrap();
        assert!(
            late.contains("generation 7, which ada signed") && late.contains("within 7 d"),
            "{late}"
        );
        assert_eq!(stale(word(1_000, 1_000), 5), None, "a clock set back is no age");
        assert_eq!(
            stale(word(1_000, WEEK), 9 * WEEK),
            Some(late),
            "the sentence is the same every day"
        );
    }

    #[test]
    fn z24_a_host_that_no_author_ever_signed_for_is_told() {
        assert!(stale_word(None, WEEK, UnixSeconds(0)).is_some());
        assert_eq!([time_text(90), time_text(7_200), time_text(120)], ["90 s", "2 h", "2 m"]);
    }
}
