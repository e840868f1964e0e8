//! The token that whoever scrapes the metrics must show, where one is configured.
//!
//! `scrape` asks it about every request. It must never be logged, shown or compared byte by byte: a comparison that
//! ends at the first difference tells how much was right.

use std::fmt;
use std::path::Path;

use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use crate::secret_file::{self, SecretFileError};

/// The shortest token that is taken: 16 random letters cannot be tried out over a network.
const TOKEN_BYTES_MIN: usize = 16;

/// A bearer token, kept as its digest.
#[derive(Clone)]
pub(super) struct BearerToken([u8; 32]);

impl BearerToken {
    /// Reads it from a file that only its owner can reach.
    pub(super) fn from_file(path: &Path) -> Result<Self, SecretFileError> {
        let secret = secret_file::read(path)?;
        let text = secret.expose_secret().trim_matches(['\n', '\r', ' ', '\t']);
        let unfit = |why| Err(SecretFileError::Unfit { path: path.to_owned(), why });
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return unfit("a token is one line without blanks");
        }
        if text.len() < TOKEN_BYTES_MIN {
            return unfit("a token has at least 16 letters");
        }
        Ok(Self(digest(text.as_bytes())))
    }

    /// Whether the value of an `Authorization` header shows it. Takes equally long for every wrong one.
    pub(super) fn is_shown_by(&self, header: Option<&[u8]>) -> bool {
        let Some((scheme, shown)) = header.and_then(|value| value.split_at_checked(SCHEME.len()))
        else {
            return false;
        };
        let same = self.0.iter().zip(digest(shown)).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0;
        scheme.eq_ignore_ascii_case(SCHEME) && same
    }
}

/// What stands before the token.
const SCHEME: &[u8] = b"Bearer ";

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn only_the_whole_token_after_its_scheme_is_right() {
        let token = BearerToken::from_file(file("0123456789abcdef0123\n", 0o600).path()).unwrap();
        for right in ["Bearer 0123456789abcdef0123", "bearer 0123456789abcdef0123"] {
            assert!(token.is_shown_by(Some(right.as_bytes())), "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdef012",
            "Bearer 0123456789abcdef01234",
            "Bearer  0123456789abcdef0123",
            "Basic 0123456789abcdef0123",
            "0123456789abcdef0123",
        ] {
            assert!(!token.is_shown_by(Some(wrong.as_bytes())), "{wrong}");
        }
        assert!(!token.is_shown_by(None));
        assert_eq!(format!("{token:?}"), "BearerToken(..)");
    }

    #[test]
    fn a_file_others_can_read_or_that_is_no_token_is_refused_without_showing_it() {
        let long = "marked-marked-marked";
        for (text, mode) in [
            (long, 0o644),
            (long, 0o640),
            ("marked", 0o600),
            ("marked marked marked", 0o600),
            ("", 0o600),
        ] {
            let file = file(text, mode);
            let error = BearerToken::from_file(file.path()).unwrap_err();
            let told = format!("{error} {error:?} {}", error.hint());
            assert!(!told.contains("marked"), "{told}");
            assert!(told.contains(&file.path().display().to_string()), "{told}");
        }
        assert!(BearerToken::from_file(Path::new("/nonexistent/token")).is_err());
    }
}
