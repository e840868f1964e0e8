//! Whether a host takes a document: the floor that never goes down, and who vouches for it.
//!
//! The floor is what the journal remembers of the last document that was taken. The agent asks here before anything of a
//! document counts; what is refused changes nothing, and the last good one stays in effect. A document is judged once:
//! what was taken is known by its hash and never expires.

use super::author::DesiredStatement;
use super::document::{DocumentFiles, LoadedDocument, Manifest};
use super::name::{Generation, HubId};
use crate::desired::DeclaredBy;
use crate::diagnostic::Diagnostic;
use crate::id::HostId;
use crate::operation::UnixSeconds;
use crate::reason::{ReasonCode, Refusal};
use crate::sign::{Envelope, HostBinding, ManifestHash, SignerName, TrustedSigners};

/// How far one document may be ahead of the one before: more than anybody pushes, and far from where numbers end, so that
/// a hostile hub cannot use them up.
pub const GENERATION_STEP_MAX: u64 = 1 << 20;

/// The last document that was taken, or where a new hub begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentFloor {
    /// The hub that this host enrolled with.
    pub hub_id: HubId,
    /// The number; [`Generation::NONE`] directly after enrolment.
    pub generation: Generation,
    /// The hash of its manifest; none directly after enrolment.
    pub manifest: Option<ManifestHash>,
    /// Who signed it; none if nobody did.
    pub signer: Option<SignerName>,
}

impl DocumentFloor {
    /// Where a host begins that root enrolled.
    pub fn enrolled(hub_id: HubId) -> Self {
        Self { hub_id, generation: Generation::NONE, manifest: None, signer: None }
    }

    /// Who declares what a document of this floor says.
    pub fn declared_by(&self) -> DeclaredBy {
        match self.signer {
            Some(_) => DeclaredBy::Hub,
            None => DeclaredBy::UnsignedHub,
        }
    }

    /// Whether files are exactly the document that was taken: what a host asks of its own copy at start.
    pub fn is_of(&self, hub_id: &HubId, generation: Generation, manifest: ManifestHash) -> bool {
        self.hub_id == *hub_id && self.generation == generation && self.manifest == Some(manifest)
    }
}

/// A document as the hub handed it over. Nothing in it is believed.
#[derive(Debug, Clone)]
pub struct OfferedDocument {
    /// The hub it says it is from.
    pub hub_id: HubId,
    /// The host it says it is for.
    pub host: HostId,
    /// Its number.
    pub generation: Generation,
    /// The manifest's exact bytes.
    pub manifest: Manifest,
    /// The files.
    pub files: DocumentFiles,
    /// The author's envelope, if somebody signed.
    pub author: Option<Envelope>,
}

/// What a host judges a document by.
#[derive(Debug, Clone, Copy)]
pub struct DocumentTerms<'a> {
    /// The last one taken.
    pub floor: &'a DocumentFloor,
    /// This host.
    pub host: &'a HostBinding,
    /// Who may sign; none if this host has no signers.
    pub trust: Option<&'a TrustedSigners>,
    /// Whether only a signed document is taken.
    pub desired_signed: bool,
    /// The effective time; none while it is in doubt.
    pub now: Option<UnixSeconds>,
}

/// What becomes of a document.
#[derive(Debug)]
pub enum DocumentVerdict {
    /// It holds from now on, once the floor is on disk.
    Taken(Box<TakenDocument>),
    /// It is the one that holds.
    InEffect,
    /// It changes nothing.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What is wrong with its files.
        diagnostics: Vec<Diagnostic>,
    },
}

/// A document that may be taken.
#[derive(Debug)]
pub struct TakenDocument {
    /// The floor that must be durable before anything of it counts.
    pub floor: DocumentFloor,
    /// What it declares.
    pub loaded: LoadedDocument,
}

/// Judges a document by what the host knows. Everything about it is refused or everything is taken.
pub fn judge_document(offered: &OfferedDocument, terms: DocumentTerms<'_>) -> DocumentVerdict {
    let refused = |refusal| DocumentVerdict::Refused { refusal, diagnostics: Vec::new() };
    let hash = offered.manifest.hash();
    let fits = fits_host(offered, terms)
        .and_then(|()| judge_number(offered.generation, hash, terms.floor))
        .and_then(|()| {
            offered
                .files
                .fit(&offered.manifest)
                .map_err(|error| Refusal::new(ReasonCode::BindingMismatch, error.to_string()))
        });
    if let Err(refusal) = fits {
        return refused(refusal);
    }
    let known = terms.floor.is_of(&offered.hub_id, offered.generation, hash);
    if known && (terms.floor.signer.is_some() || !terms.desired_signed) {
        return DocumentVerdict::InEffect;
    }
    let signer = match judge_author(offered, hash, terms) {
        Ok(signer) => signer,
        Err(refusal) => return refused(refusal),
    };
    let floor = DocumentFloor {
        hub_id: offered.hub_id.clone(),
        generation: offered.generation,
        manifest: Some(hash),
        signer,
    };
    match offered.files.load(floor.declared_by()) {
        Ok(loaded) => DocumentVerdict::Taken(Box::new(TakenDocument { floor, loaded })),
        Err(diagnostics) => {
            let count = diagnostics.len();
            let detail = format!("the document has {count} mistakes; the last good one stays");
            DocumentVerdict::Refused {
                refusal: Refusal::new(ReasonCode::Payload, detail),
                diagnostics,
            }
        }
    }
}

fn fits_host(offered: &OfferedDocument, terms: DocumentTerms<'_>) -> Result<(), Refusal> {
    if offered.hub_id != terms.floor.hub_id {
        let detail = "the document is from another hub than this host enrolled with";
        return Err(Refusal::new(ReasonCode::BindingMismatch, detail));
    }
    if offered.host != terms.host.id {
        let detail = format!("the document is for the host {}", offered.host);
        return Err(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    Ok(())
}

/// The number goes up in steps, and one number means one document.
fn judge_number(
    generation: Generation,
    hash: ManifestHash,
    floor: &DocumentFloor,
) -> Result<(), Refusal> {
    let rollback = |detail: String| Err(Refusal::new(ReasonCode::GenerationRollback, detail));
    if generation == Generation::NONE || generation < floor.generation {
        let taken = floor.generation;
        return rollback(format!("the hub offers generation {generation}, and {taken} was taken"));
    }
    if generation == floor.generation && floor.manifest.is_some_and(|taken| taken != hash) {
        return rollback(format!("the hub has another document under generation {generation}"));
    }
    if generation.0 - floor.generation.0 > GENERATION_STEP_MAX {
        let (taken, step) = (floor.generation, GENERATION_STEP_MAX);
        let detail = format!("generation {generation} is more than {step} ahead of {taken}");
        return Err(Refusal::new(ReasonCode::Policy, detail));
    }
    Ok(())
}

/// Who vouches for it; none where root lets nobody.
fn judge_author(
    offered: &OfferedDocument,
    hash: ManifestHash,
    terms: DocumentTerms<'_>,
) -> Result<Option<SignerName>, Refusal> {
    let Some(envelope) = &offered.author else {
        if !terms.desired_signed {
            return Ok(None);
        }
        let detail = "nobody signed the document, and this host takes signed ones only \
                      (`desired_signed` under [policy] in agent.toml)";
        return Err(Refusal::new(ReasonCode::Policy, detail));
    };
    let Some(trust) = terms.trust else {
        let detail = "this host has no signers, so nobody can have signed the document";
        return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
    };
    let Some(now) = terms.now else {
        let detail = "the time cannot be trusted now, so no signature can be judged";
        return Err(Refusal::new(ReasonCode::Clock, detail));
    };
    let (signer, statement) = DesiredStatement::verify(envelope, trust, now)?;
    let DesiredStatement { hub_id, host, generation, manifest, window: _ } = &statement;
    if host != terms.host {
        let detail = format!("it was signed for {host}");
        return Err(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    if *hub_id != offered.hub_id || *generation != offered.generation || *manifest != hash {
        let detail = "the author signed another document, number or hub";
        return Err(Refusal::new(ReasonCode::BindingMismatch, detail));
    }
    Ok(Some(signer))
}
