//! Which browser a link to the console is for.
//!
//! ```text
//!  browser opens /console ──> cookie, and its word on the page ──> fleet console --browser WORD ──> link
//!        └── opens the link: code and cookie together make a session
//! ```
//!
//! Without this, anyone with an account could send a person a link that logs the person's browser in as somebody else, and watch
//! what is then done there. The cookie is drawn by the hub and nothing of it is kept; its word is made from it, can be shown, and
//! opens nothing.

use axum::http::{HeaderMap, HeaderValue};

use super::session::HubCookie;
use crate::problem::Problem;
use crate::secret_text::{SecretKind, SecretText, sha256_bytes};

/// How long a browser keeps its mark: as long as browsers keep cookies at most.
const MARK_LIFE_S: i64 = 400 * 24 * 3600;
/// Letters of a word: 40 bits, of which each code is one guess.
const WORD_LETTERS: usize = 8;
/// Digits and letters that nobody mistakes for another.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

const MARK_COOKIE: HubCookie =
    HubCookie::lax("__Host-evenkeel-browser", "evenkeel-browser", SecretKind::BrowserMark);

/// The word of a browser, such as `4f7k-q2mx`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserWord(String);

impl BrowserWord {
    fn of(mark: &SecretText) -> Self {
        let digest = sha256_bytes(format!("evenkeel browser {}", mark.reveal()).as_bytes());
        let letter = |byte: &u8| char::from(ALPHABET[usize::from(byte % 32)]);
        Self(digest.iter().take(WORD_LETTERS).map(letter).collect())
    }

    /// Reads a word as a person typed it: large letters and dashes are taken too.
    pub fn read(text: &str) -> Result<Self, Problem> {
        let word: String = text
            .chars()
            .filter(|letter| *letter != '-')
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        let fits =
            word.len() == WORD_LETTERS && word.bytes().all(|letter| ALPHABET.contains(&letter));
        if !fits {
            return Err(Problem::invalid("that is no browser's word")
                .hint("the hub's page /console shows it in your browser, such as 4f7k-q2mx"));
        }
        Ok(Self(word))
    }

    /// As it is kept and compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for BrowserWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = self.0.split_at(WORD_LETTERS / 2);
        write!(f, "{first}-{last}")
    }
}

/// The word of the browser that asks; none if it has no mark.
pub(crate) fn word_of_browser(public_url: &str, headers: &HeaderMap) -> Option<BrowserWord> {
    MARK_COOKIE.read(public_url, headers).map(|mark| BrowserWord::of(&mark))
}

/// The word of the browser that asks, and what marks it: the mark it has lives on, a browser without one gets one.
pub(crate) fn marked(public_url: &str, headers: &HeaderMap) -> (BrowserWord, HeaderValue) {
    let mark = MARK_COOKIE.read(public_url, headers);
    let mark = mark.unwrap_or_else(|| SecretText::draw(SecretKind::BrowserMark));
    (BrowserWord::of(&mark), MARK_COOKIE.set(public_url, &mark, MARK_LIFE_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "https://hub.example:8600";

    #[test]
    fn a_browser_keeps_its_word_and_another_has_another() {
        let (word, cookie) = marked(HUB, &HeaderMap::new());
        let text = cookie.to_str().unwrap();
        assert!(text.starts_with("__Host-evenkeel-browser=evkb_"), "{text}");
        assert!(text.ends_with("; HttpOnly; SameSite=Lax; Secure"), "{text}");
        let mut headers = HeaderMap::new();
        headers.insert("cookie", text.split(';').next().unwrap().parse().unwrap());
        assert_eq!(word_of_browser(HUB, &headers), Some(word.clone()));
        assert_eq!(marked(HUB, &headers).0, word);
        assert_ne!(marked(HUB, &HeaderMap::new()).0, word);
        assert_eq!(word_of_browser(HUB, &HeaderMap::new()), None);
    }

    #[test]
    fn a_word_is_read_as_people_type_it_and_nothing_else_is() {
        let word = BrowserWord::read("4F7K-Q2MX").unwrap();
        assert_eq!((word.as_str(), word.to_string().as_str()), ("4f7kq2mx", "4f7k-q2mx"));
        assert_eq!(BrowserWord::read(&word.to_string()).unwrap(), word);
        for text in ["", "4f7k", "4f7k-q2mi", "4f7k-q2mx-9", "4f7k q2m", "éf7k-q2m"] {
            assert!(BrowserWord::read(text).is_err(), "{text}");
        }
    }
}
