//! Why an agent does not start with the signers it finds.

use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::TrustVersion;
use evenkeel_core::words::diagnostic::{Diagnostic, Sources};

use crate::path_trust::LoosePath;
use crate::plain_file::FileError;

/// The signers of this host are not certain, so nothing starts.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The trust file is there and cannot be read.
    #[error("the trust file cannot be used: {0}")]
    Unreadable(FileError),
    /// Somebody else could have written the trust file.
    #[error("the trust file is not root's word: {0}")]
    Loose(LoosePath),
    /// The trust file has mistakes, and nothing is taken from it.
    #[error("{path} is not a trust file: {}", first(.errors))]
    Invalid {
        /// The file.
        path: String,
        /// Every mistake.
        errors: Vec<Diagnostic>,
        /// The text the mistakes point into.
        sources: Sources,
    },
    /// The trust file is not the one this host started with, nor a newer one.
    #[error(
        "{path} has version {file} and is not the trust file this host started with, which had version {first}; \
         its signers are at version {newest} by now, and an older list would trust keys that were removed"
    )]
    NotHigher {
        /// The file.
        path: String,
        /// Its version.
        file: TrustVersion,
        /// The version of the file this host started with.
        first: TrustVersion,
        /// The newest version there was.
        newest: TrustVersion,
    },
    /// A rotation in the journal does not verify.
    #[error("the rotation to trust version {version} in the journal does not hold")]
    BrokenLink {
        /// Which.
        version: TrustVersion,
        /// Why.
        #[source]
        source: Refusal,
    },
    /// A value about signers in the journal is not understood.
    #[error("the journal keeps `{}` about signers, which is not understood: {why}", key.escape_debug())]
    Malformed {
        /// Its key.
        key: String,
        /// Why.
        why: String,
    },
}

impl AuthorityError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable(_) => "run as the owner of the file, or correct `file` under [trust]".to_owned(),
            Self::Loose(loose) => loose.hint(),
            Self::Invalid { .. } => {
                "correct it; without the file the agent starts and nothing destructive runs".to_owned()
            }
            Self::NotHigher { newest, .. } => format!(
                "put the former file back, or, to replace all signers by this file, set its `version` above {newest}"
            ),
            Self::BrokenLink { .. } | Self::Malformed { .. } => {
                "`evenkeel journal verify` checks the journal; restore it, or install a trust file of a higher version"
                    .to_owned()
            }
        }
    }
}

fn first(errors: &[Diagnostic]) -> String {
    match errors {
        [] => "it has no mistake".to_owned(),
        [only] => only.message.clone(),
        [first, rest @ ..] => format!("{} (and {} more)", first.message, rest.len()),
    }
}
