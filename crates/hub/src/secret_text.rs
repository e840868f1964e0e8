//! Secrets that are texts: credentials, tokens, sessions, codes. Drawn here, kept by their owner, known to the store by
//! their SHA-256 alone.
//!
//! 256 random bits need no slow hash and no salt: a stolen database gives nobody a way in. Never log one.

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// What a secret is for: its prefix tells people and scanners what they found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// A host's way in.
    Credential,
    /// A person's way in, on the command line.
    ApiToken,
    /// A person's way in, in a browser.
    Session,
    /// A link that works once.
    OneTimeCode,
    /// What a browser is known by before anybody logged in with it.
    BrowserMark,
    /// What a host enrols with.
    EnrolToken,
}

impl SecretKind {
    /// What its texts begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Credential => "evkc_",
            Self::ApiToken => "evka_",
            Self::Session => "evks_",
            Self::OneTimeCode => "evko_",
            Self::BrowserMark => "evkb_",
            Self::EnrolToken => "evke_",
        }
    }
}

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// A secret in the open. It is shown once, to whom it belongs, and wiped when dropped.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// A new one. The system's randomness is always there once a machine has booted.
    pub fn draw(kind: SecretKind) -> Self {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(bytes.as_mut_slice()).expect("the system has randomness");
        let mut text =
            Zeroizing::new(String::with_capacity(kind.prefix().len() + 2 * SECRET_BYTES));
        text.push_str(kind.prefix());
        text.push_str(&Zeroizing::new(hex(bytes.as_slice())));
        Self(text)
    }

    /// One that somebody handed in; none if it has not the form of its kind.
    pub fn read(kind: SecretKind, text: &str) -> Option<Self> {
        let digits = text.strip_prefix(kind.prefix())?;
        let fits = digits.len() == 2 * SECRET_BYTES
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// What the store keeps and looks up.
    pub fn hash(&self) -> SecretHash {
        SecretHash(sha256_hex(self.0.as_bytes()))
    }

    /// The text itself, to be handed to its owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// The SHA-256 of a secret, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHash(String);

impl SecretHash {
    /// The hash of a text that is random enough, such as a nonce.
    pub fn of(text: &str) -> Self {
        Self(sha256_hex(text.as_bytes()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256_bytes(bytes))
}

/// The SHA-256 of bytes.
pub(crate) fn sha256_bytes(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Random hexadecimal digits, for names that must not be guessed or meet: `hub_id`, nonces.
pub fn random_hex(bytes: usize) -> String {
    hex(&random_bytes(bytes))
}

/// So many random bytes.
pub(crate) fn random_bytes(count: usize) -> Vec<u8> {
    let mut drawn = vec![0; count];
    getrandom::fill(&mut drawn).expect("the system has randomness");
    drawn
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_secret_reads_back_as_its_own_kind_only() {
        let drawn = SecretText::draw(SecretKind::Credential);
        let again = SecretText::read(SecretKind::Credential, drawn.reveal()).unwrap();
        assert_eq!(again.hash(), drawn.hash());
        assert!(SecretText::read(SecretKind::ApiToken, drawn.reveal()).is_none());
        assert!(SecretText::read(SecretKind::Credential, "evkc_12").is_none());
        let upper = drawn.reveal().to_uppercase();
        assert!(SecretText::read(SecretKind::Credential, &upper).is_none());
    }

    #[test]
    fn every_secret_has_256_random_bits() {
        const DRAWN: u32 = 100;
        for kind in [
            SecretKind::Credential,
            SecretKind::ApiToken,
            SecretKind::Session,
            SecretKind::OneTimeCode,
            SecretKind::BrowserMark,
            SecretKind::EnrolToken,
        ] {
            let mut ones = [0; 256];
            for _ in 0..DRAWN {
                let drawn = SecretText::draw(kind);
                let digits = drawn.reveal().strip_prefix(kind.prefix()).unwrap();
                assert_eq!(digits.len(), 64, "{kind:?}");
                for (digit, bits) in digits.chars().zip(ones.chunks_mut(4)) {
                    let value = digit.to_digit(16).unwrap();
                    bits.iter_mut().zip(0..4).for_each(|(ones, bit)| *ones += value >> bit & 1);
                }
            }
            // A bit that is drawn is the same a hundred times once in 2^99 runs.
            let fixed = ones.iter().filter(|ones| [0, DRAWN].contains(*ones)).count();
            assert_eq!(fixed, 0, "{kind:?}");
        }
    }

    #[test]
    fn a_secret_is_in_no_debug() {
        let drawn = SecretText::draw(SecretKind::Session);
        assert!(!format!("{drawn:?}").contains(&drawn.reveal()[5..]));
    }
}
