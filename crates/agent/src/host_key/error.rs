//! Why a host key cannot be used, in words for the person who has to mend it.

use std::path::PathBuf;

use evenkeel_core::model::reason::Refusal;

/// Why there is no host key. No variant holds anything that was read from the key.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// A file could not be read or written; the message names it.
    #[error("cannot keep the host key")]
    Io(#[from] std::io::Error),
    /// The state directory could not be made.
    #[error("cannot make the state directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A link, a pipe or something else stands there.
    #[error("{} is not {wanted}", path.display())]
    Kind {
        /// What stands there.
        path: PathBuf,
        /// What should.
        wanted: &'static str,
    },
    /// It belongs to somebody else.
    #[error("{} belongs to user {owner}, and evenkeel runs as user {us}", path.display())]
    Owner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Us.
        us: u32,
    },
    /// Others may read it, so the key may be known already.
    #[error("{} has mode {mode:04o}; only its owner may have access", path.display())]
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no key of ours.
    #[error("{} is not an unencrypted Ed25519 key in OpenSSH's form: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The rule it breaks.
        why: &'static str,
    },
    /// It is a key everybody has.
    #[error("the host key cannot be used")]
    Weak(#[source] Refusal),
    /// The public file is another key's.
    #[error("{} is not the public part of the host key beside it", path.display())]
    OtherPublic {
        /// The file.
        path: PathBuf,
    },
    /// Another agent on this machine acts with the same key.
    #[error("another evenkeel on this machine works with the host key {fingerprint}: {} is locked", lock.display())]
    InUse {
        /// The key.
        fingerprint: String,
        /// Its lock.
        lock: PathBuf,
    },
    /// No place for the lock could be found.
    #[error("cannot lock the host key in {}", path.display())]
    Lock {
        /// The last place that was tried.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system has no randomness.
    #[error("the system gives no randomness")]
    Randomness(#[source] getrandom::Error),
}

impl HostKeyError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) | Self::Directory { .. } => {
                "check the state directory, its owner and the space on its disk".to_owned()
            }
            Self::Kind { path, .. } => format!("move {} away", path.display()),
            Self::Owner { path, us, .. } => format!("chown {us} {}", path.display()),
            Self::Exposed { path, .. } => format!(
                "if nobody read it: chmod go-rwx {}; else remove the key, start again and let every operator pin \
                 the new one",
                path.display()
            ),
            Self::Malformed { .. } | Self::Weak(_) => {
                "restore the key from a backup; or move it away, and a new one is made, which every operator has \
                 to pin anew"
                    .to_owned()
            }
            Self::OtherPublic { path } => {
                format!("remove {}, and it is written anew", path.display())
            }
            Self::InUse { .. } => {
                "a state directory has one agent: stop the other, or remove the copy of its state directory; a copy must \
                 never act"
                    .to_owned()
            }
            Self::Lock { .. } => {
                "make /run/evenkeel, owned by the user evenkeel runs as, mode 0700; in a unit: RuntimeDirectory=evenkeel"
                    .to_owned()
            }
            Self::Randomness(_) => "this is a fault of the system; nothing was written".to_owned(),
        }
    }
}
