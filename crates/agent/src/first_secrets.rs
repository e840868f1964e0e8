//! Root's secrets for new guests: a directory in which each file holds one password and names the guests it serves.
//!
//! ```text
//!   vmids = "120-129"
//!   correct horse battery staple
//! ```
//!
//! The engine asks once, while it makes a container whose `first.password` names a file here. The list of guests keeps a
//! desired file, or a hub, from giving the password of one guest to another. Nobody but its owner may have access to the
//! file, and nobody else may have written to it or to a directory on the way. No error and no message of this module
//! holds a byte of what was read; what is handed out goes into one request and nowhere else.

use std::path::{Path, PathBuf};

use evenkeel_core::desired::is_stored_secret;
use evenkeel_core::model::id::VmId;
use evenkeel_core::model::vmid_ranges::VmidRanges;
use secrecy::{ExposeSecret as _, SecretString};

use crate::path_trust::{LoosePath, check_path};
use crate::secret_file::{self, SecretFileError};

/// Where the files are if nobody says.
pub const DEFAULT_SECRETS: &str = "/etc/evenkeel/secrets";

/// The shortest password PVE takes.
const PASSWORD_MIN: usize = 5;

/// The longest password that is sent: PVE names no limit, and nobody types a longer one.
const PASSWORD_MAX: usize = 255;

/// The secrets directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSecrets {
    directory: PathBuf,
}

/// Why a secret is not handed out. No variant holds what was read.
#[derive(Debug, thiserror::Error)]
pub enum FirstSecretError {
    /// The name is no name of a file in the directory.
    #[error(
        "the name of a secret must be letters, digits, `-`, `_` or `.`, beginning with a letter or digit"
    )]
    Name,
    /// The file could not be read, or others could.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// Somebody else could have written it.
    #[error("the secret is not believed: {0}")]
    Loose(#[from] LoosePath),
    /// The file does not look like a secret.
    #[error("{} is not used: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The secret is for other guests.
    #[error("{} serves other guests than {vmid}", path.display())]
    NotServed {
        /// The file.
        path: PathBuf,
        /// The guest that asked.
        vmid: VmId,
    },
}

impl FirstSecretError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Name => "correct first.password in the desired file".to_owned(),
            Self::File(SecretFileError::Unreadable { path, .. }) => format!(
                "on the host, as root: install -m 600 /dev/null {0}, then write vmids = \"120-129\" and the password \
                 into {0}, a line each",
                path.display()
            ),
            Self::File(error) => error.hint(),
            Self::Loose(loose) => loose.hint(),
            Self::Unfit { path, .. } => format!(
                "write two lines into {}: vmids = \"120-129\" with the guests it serves, and the password",
                path.display()
            ),
            Self::NotServed { path, .. } => {
                format!(
                    "if it shall serve this guest too, list it under vmids in {}",
                    path.display()
                )
            }
        }
    }
}

impl FirstSecrets {
    /// The secrets in a directory; it need not be there.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The password of that name, for a guest it serves.
    pub fn first_password(&self, vmid: VmId, name: &str) -> Result<SecretString, FirstSecretError> {
        if !is_stored_secret(name) {
            return Err(FirstSecretError::Name);
        }
        let path = self.directory.join(name);
        let text = secret_file::read(&path)?;
        check_path(&path)?;
        read(&path, vmid, text.expose_secret())
    }
}

fn read(path: &Path, vmid: VmId, text: &str) -> Result<SecretString, FirstSecretError> {
    let unfit = |why| FirstSecretError::Unfit { path: path.to_owned(), why };
    let mut lines = text.lines();
    let served = lines.next().and_then(served).ok_or_else(|| {
        unfit("its first line must list the guests it serves, such as vmids = \"120-129\"")
    })?;
    if !served.has(vmid) {
        return Err(FirstSecretError::NotServed { path: path.to_owned(), vmid });
    }
    let (Some(password), None) = (lines.next(), lines.next()) else {
        return Err(unfit("it must have two lines: the guests it serves, and the password"));
    };
    if !(PASSWORD_MIN..=PASSWORD_MAX).contains(&password.chars().count()) {
        return Err(unfit("the password must have 5 to 255 letters"));
    }
    if password.contains(char::is_control) || password.trim() != password {
        return Err(unfit("the password must have no blanks around it and no control characters"));
    }
    Ok(SecretString::from(password.to_owned()))
}

/// `vmids = "120-129"`.
fn served(line: &str) -> Option<VmidRanges> {
    let (key, value) = line.split_once('=')?;
    let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
    (key.trim() == "vmids").then(|| value.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const GOOD: &str = "vmids = \"120-129, 140\"\nmarked horse\n";

    struct Secrets(tempfile::TempDir);

    impl Secrets {
        fn with(name: &str, text: &str, mode: u32) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(name);
            fs_err::write(&path, text).unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Self(directory)
        }

        fn ask(&self, vmid: u32, name: &str) -> Result<SecretString, FirstSecretError> {
            FirstSecrets::new(self.0.path()).first_password(vmid.try_into().unwrap(), name)
        }

        /// The refusal, which must not say what the secret is.
        fn refused(&self, vmid: u32, name: &str) -> FirstSecretError {
            let error = self.ask(vmid, name).expect_err(name);
            let told = format!("{error} {error:?} {}", error.hint());
            assert!(!told.contains("marked") && !error.hint().is_empty(), "{told}");
            error
        }
    }

    #[test]
    fn a_secret_is_handed_to_the_guests_it_lists_and_to_no_other() {
        let secrets = Secrets::with("web", GOOD, 0o600);
        for vmid in [120, 129, 140] {
            assert_eq!(secrets.ask(vmid, "web").unwrap().expose_secret(), "marked horse");
        }
        for vmid in [119, 130, 141, 1200] {
            assert!(matches!(secrets.refused(vmid, "web"), FirstSecretError::NotServed { .. }));
        }
        let shown = format!("{:?}", secrets.ask(120, "web").unwrap());
        assert!(!shown.contains("marked"), "{shown}");
    }

    #[test]
    fn a_name_that_leaves_the_directory_is_refused_before_anything_is_read() {
        let secrets = Secrets::with("web", GOOD, 0o600);
        for name in
            ["../web", "/etc/shadow", "..", ".", "", "a/../web", ".web", "web\0", "web/", "-web"]
        {
            assert!(matches!(secrets.refused(120, name), FirstSecretError::Name), "{name:?}");
        }
    }

    #[test]
    fn a_secret_that_others_could_read_or_write_is_refused() {
        for mode in [0o640, 0o604, 0o666, 0o610] {
            let secrets = Secrets::with("web", GOOD, mode);
            let error = secrets.refused(120, "web");
            let exposed = matches!(error, FirstSecretError::File(SecretFileError::Exposed { .. }));
            assert!(exposed, "{mode:o}: {error}");
        }
        let secrets = Secrets::with("web", GOOD, 0o600);
        let open = std::fs::Permissions::from_mode(0o777);
        fs_err::set_permissions(secrets.0.path(), open).unwrap();
        assert!(matches!(secrets.refused(120, "web"), FirstSecretError::Loose(_)));
        let missing = Secrets::with("web", GOOD, 0o600);
        assert!(matches!(missing.refused(120, "db"), FirstSecretError::File(_)));
    }

    #[test]
    fn what_does_not_look_like_a_secret_is_not_sent_as_one() {
        for text in [
            "",
            "marked horse\n",
            "marked horse\nvmids = \"120\"\n",
            "vmids = 120\nmarked horse\n",
            "vmids = \"120-129\"\n",
            "vmids = \"129-120\"\nmarked horse\n",
            "vmid = \"120\"\nmarked horse\n",
            "vmids = \"120\"\nmarked horse\nmarked again\n",
            "vmids = \"120\"\n mark\n",
            "vmids = \"120\"\nmark\n",
            "vmids = \"120\"\nmarked\thorse\n",
        ] {
            let secrets = Secrets::with("web", text, 0o600);
            let error = secrets.refused(120, "web");
            assert!(matches!(error, FirstSecretError::Unfit { .. }), "{text:?}: {error}");
        }
        let none = Secrets::with("web", "vmids = \"\"\nmarked horse\n", 0o600);
        assert!(matches!(none.refused(120, "web"), FirstSecretError::NotServed { .. }));
        let long = format!("vmids = \"120\"\n{}\n", "é".repeat(PASSWORD_MAX + 1));
        assert!(Secrets::with("web", &long, 0o600).ask(120, "web").is_err());
    }
}
