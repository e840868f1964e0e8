//! The API token: read once, kept secret, shown only to the transport.
//!
//! `Config` code calls [`Token::from_file`] or [`Token::from_text`]; the transport alone asks for
//! the header. The secret is in no `Debug`, no message and no error of this module.

use std::fmt;
use std::path::{Path, PathBuf};

use evenkeel_core::plan::SealKey;
use secrecy::{ExposeSecret, SecretString};

use super::form;
use crate::plain_file::FileError;
use crate::secret_file::{self, SECRET_BYTES_MAX, SecretFileError};

/// `user@realm!tokenid` and its secret.
#[derive(Clone)]
pub struct Token {
    id: String,
    secret: SecretString,
}

/// Why a token could not be used. No variant holds the text that was read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file could not be opened or read.
    #[error("the token file cannot be used: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// Others may read the file, so the token may be known already.
    #[error("the token file {} has mode {mode:04o}; only its owner may have access", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The token itself stands where its file should be named.
    #[error("`token_file` holds an API token itself, not the name of a file")]
    NotAPath,
    /// The text is not `user@realm!id=secret` on one line.
    #[error("the API token is not of the form user@realm!tokenid=secret: {why}")]
    Malformed {
        /// The rule it breaks.
        why: &'static str,
    },
}

impl TokenError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { path, error: FileError::Kind { .. } } => {
                format!(
                    "write the token into a plain file: install -m 600 /dev/null {}",
                    path.display()
                )
            }
            Self::Unreadable { path, .. } => {
                format!(
                    "check that {} exists and belongs to the user evenkeel runs as",
                    path.display()
                )
            }
            Self::Exposed { path, .. } => format!("chmod 600 {}", path.display()),
            Self::NotAPath => {
                "write the token into a file of mode 0600 and name that; this one is no secret any more: make \
                 another with pveum user token"
                    .to_owned()
            }
            Self::Malformed { .. } => {
                "create one on the node with: pveum user token add USER@REALM TOKENID, and write \
                 USER@REALM!TOKENID=SECRET on one line"
                    .to_owned()
            }
        }
    }
}

impl Token {
    /// Reads a token from a file that only its owner can reach.
    pub fn from_file(path: &Path) -> Result<Self, TokenError> {
        if path.to_str().is_some_and(|text| Self::from_text(&text.to_owned().into()).is_ok()) {
            return Err(TokenError::NotAPath);
        }
        let text = secret_file::read(path).map_err(|error| match error {
            SecretFileError::Unreadable { path, error } => TokenError::Unreadable { path, error },
            SecretFileError::Exposed { path, mode } => TokenError::Exposed { path, mode },
            SecretFileError::Unfit { why, .. } => TokenError::Malformed { why },
        })?;
        Self::from_text(&text)
    }

    /// Reads a token from text, such as an environment variable.
    pub fn from_text(text: &SecretString) -> Result<Self, TokenError> {
        let malformed = |why| Err(TokenError::Malformed { why });
        let line = text.expose_secret().trim_matches(['\n', '\r', ' ', '\t']);
        if line.len() > SECRET_BYTES_MAX {
            return malformed("it is longer than 1024 bytes");
        }
        if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return malformed("it must be one line without blanks");
        }
        let Some((id, secret)) = line.split_once('=') else {
            return malformed("there is no = between id and secret");
        };
        let parts = id
            .split_once('@')
            .and_then(|(user, rest)| rest.split_once('!').map(|(realm, name)| [user, realm, name]));
        match parts {
            Some(parts) if parts.iter().all(|part| !part.is_empty()) => {}
            Some(_) | None => return malformed("the part before = is not user@realm!tokenid"),
        }
        if secret.is_empty() {
            return malformed("the secret is empty");
        }
        Ok(Self { id: id.to_owned(), secret: SecretString::from(secret.to_owned()) })
    }

    /// `user@realm!tokenid`, the public half: PVE shows it in every task.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The value of the `Authorization` header.
    pub(super) fn authorization(&self) -> SecretString {
        format!("PVEAPIToken={}={}", self.id, self.secret.expose_secret()).into()
    }

    /// What the secrets in a saved plan are sealed with.
    pub fn seal_key(&self) -> SealKey {
        SealKey::of_token(self.secret.expose_secret())
    }

    /// `text` without the secret, should a server send it back.
    pub(super) fn scrub(&self, text: &str) -> String {
        form::without(text, self.secret.expose_secret())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "agent@pve!keel=11111111-2222-3333-4444-555555555555";

    fn file_with_mode(mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{TEXT}\n")).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_token_file_only_its_owner_can_read_is_taken() {
        for mode in [0o600, 0o400] {
            let token = Token::from_file(file_with_mode(mode).path()).unwrap();
            assert_eq!(token.id(), "agent@pve!keel");
            assert_eq!(token.authorization().expose_secret(), format!("PVEAPIToken={TEXT}"));
        }
    }

    #[test]
    fn a_token_file_others_may_read_is_refused_with_the_chmod_command() {
        for mode in [0o640, 0o604, 0o660, 0o777, 0o610] {
            let file = file_with_mode(mode);
            let error = Token::from_file(file.path()).unwrap_err();
            assert!(matches!(error, TokenError::Exposed { mode: seen, .. } if seen == mode));
            assert_eq!(error.hint(), format!("chmod 600 {}", file.path().display()));
        }
    }

    #[test]
    fn what_is_not_a_token_is_refused_without_showing_it() {
        let secret = "s3cr3t-s3cr3t";
        for text in [
            String::new(),
            secret.to_owned(),
            format!("agent@pve={secret}"),
            format!("agent!keel={secret}"),
            format!("@pve!keel={secret}"),
            format!("agent@pve!={secret}"),
            format!("agent@pve!keel={secret} x"),
            format!("agent@pve!keel={secret}\nsecond"),
            "agent@pve!keel=".to_owned(),
            format!("agent@pve!keel={}", "x".repeat(2000)),
        ] {
            let error = Token::from_text(&text.clone().into()).unwrap_err();
            let shown = format!("{error} {error:?} {}", error.hint());
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(Token::from_file(Path::new("/dev/null")).is_err());
        assert!(Token::from_file(Path::new("/nonexistent/token")).is_err());
    }

    #[test]
    fn a_token_is_debugged_without_its_secret() {
        let token = Token::from_text(&TEXT.into()).unwrap();
        assert!(!format!("{token:?}").contains("1111"));
        assert_eq!(token.scrub("x 11111111-2222-3333-4444-555555555555"), "x ********");
    }
}
