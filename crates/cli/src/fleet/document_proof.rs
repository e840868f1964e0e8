//! Whether a document that a hub handed over is the one that its author signed for this host.
//!
//! Texts are held against their hashes, the manifest against the author's statement, the statement against this person's
//! own pins. What contradicts itself is refused; what only nobody known vouches for is unverified, and shown as that.

use evenkeel_core::fleet::{DesiredStatement, DocumentBase, Generation, HubId};
use evenkeel_core::model::id::HostId;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{Fingerprint, PublicKey};
use evenkeel_hub::people::wire::{DocumentBody, SealedBody};

use super::document::ReadDocument;
use super::document_memory::DocumentMemory;
use crate::error::{CommandFailure, Exit};

/// Who vouches for a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DocumentProof {
    /// An author known here, or this machine's own record.
    Verified,
    /// Nobody known here, for this reason.
    Unverified(String),
}

/// A document of a hub whose texts fit its hashes.
pub(crate) struct FetchedDocument {
    pub(crate) read: ReadDocument,
    pub(crate) base: DocumentBase,
    pub(crate) is_signed: bool,
    pub(crate) proof: DocumentProof,
}

/// What this person holds documents of one host against.
pub(crate) struct DocumentVerifier {
    pub(crate) host: HostId,
    pub(crate) hub_id: HubId,
    /// The host's key, if it is pinned here.
    pub(crate) host_key: Option<Fingerprint>,
    /// Keys that this person signs with, or knows as an author's.
    pub(crate) authors: Vec<PublicKey>,
    pub(crate) memory: DocumentMemory,
}

impl DocumentVerifier {
    /// Verifies a document that was asked for by its number.
    pub(crate) fn verify(
        &self,
        body: DocumentBody,
        asked: u64,
    ) -> Result<FetchedDocument, CommandFailure> {
        let DocumentBody { generation: row, files, statement } = body;
        let host = &self.host;
        if row.generation != asked {
            let message =
                format!("asked for generation {asked} of {host}, the hub gave another one");
            return Err(distrusted(message));
        }
        let read = ReadDocument::from_bodies(files)?;
        let manifest = read.files.manifest().hash();
        if row.manifest != manifest.to_string() {
            let message =
                format!("the texts of generation {asked} of {host} are not those of its manifest");
            return Err(distrusted(message));
        }
        let base = DocumentBase { generation: Generation(asked), manifest };
        let is_signed = statement.is_some();
        // The statement is looked at first: one that does not fit tells of a hub that changes things.
        let by_author = match statement {
            Some(statement) => self.author_proof(&statement, base)?,
            None => DocumentProof::Unverified(format!("nobody signed generation {asked}")),
        };
        let is_remembered = self.memory.files_of(base).is_some();
        let proof = if is_remembered { DocumentProof::Verified } else { by_author };
        Ok(FetchedDocument { read, base, is_signed, proof })
    }

    fn author_proof(
        &self,
        statement: &SealedBody,
        base: DocumentBase,
    ) -> Result<DocumentProof, CommandFailure> {
        let number = base.generation;
        let does_not_hold = |refusal: Refusal| {
            let host = &self.host;
            distrusted(format!(
                "the author's signature of generation {number} of {host} does not hold"
            ))
            .because(refusal)
        };
        let envelope = statement.sealed().envelope().map_err(does_not_hold)?;
        let namespace = DesiredStatement::claimed_namespace(&envelope);
        let mut unknown = None;
        for signature in envelope.signatures() {
            let key = PublicKey::from_blob(signature.key_blob()).map_err(does_not_hold)?;
            signature.verify(&key, namespace, envelope.payload()).map_err(does_not_hold)?;
            if !self.authors.iter().any(|known| known.blob() == key.blob()) {
                unknown = Some(key.fingerprint());
            }
        }
        let signed =
            DesiredStatement::parse(envelope.payload(), namespace).map_err(does_not_hold)?;
        let DesiredStatement { hub_id, host, generation, manifest, base: _, window: _ } = signed;
        let is_of_this = hub_id == self.hub_id
            && host.id == self.host
            && DocumentBase { generation, manifest } == base;
        if !is_of_this {
            let message = format!(
                "what the hub calls generation {number} of {} was signed as another document, number, host or hub",
                self.host
            );
            return Err(distrusted(message));
        }
        let why = match (self.host_key, unknown) {
            (None, _) => format!("the key of {} is not pinned here", self.host),
            (Some(pinned), _) if pinned != host.key => {
                format!("generation {number} was signed for another key of {}", self.host)
            }
            (Some(_), Some(key)) => {
                format!("generation {number} is signed by {key}, which is not known here")
            }
            (Some(_), None) => return Ok(DocumentProof::Verified),
        };
        Ok(DocumentProof::Unverified(why))
    }
}

/// The hub contradicts itself: nothing of what it said is shown.
fn distrusted(message: String) -> CommandFailure {
    CommandFailure::new(Exit::Denied, message).hint(
        "nothing of it is shown or signed; have `evenkeel hub check` look at the hub's database",
    )
}
