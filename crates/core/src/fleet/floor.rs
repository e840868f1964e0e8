//! Whether a host takes a document: the floor that never goes down, the base it was signed over, and who vouches for it.
//!
//! The floor is what the journal remembers of the last document that was taken. The agent asks here before anything of a
//! document counts; what is refused changes nothing, and the last good one stays in effect. A document is judged once:
//! what was taken is known by its hash and never expires. A new enrolment begins new numbers; what is in effect stays in
//! effect, and is the base of the next document.

use super::author::{DesiredStatement, DocumentBase, SignedBase};
use super::document::{DocumentFiles, LoadedDocument, Manifest};
use super::name::{Generation, HubId};
use crate::desired::DeclaredBy;
use crate::model::id::HostId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;
use crate::sign::{Envelope, HostBinding, ManifestHash, Role, SignerName, TrustedSigners};
use crate::words::diagnostic::Diagnostic;

/// How far one document may be ahead of the one before: more than anybody pushes, and far from where numbers end, so that
/// a hostile hub cannot use them up.
pub const GENERATION_STEP_MAX: u64 = 1 << 20;

/// How high the first document of an enrolment may be. The hub's numbers go on where root enrols a host again, so the
/// first one is no step from the numbers before. Half of what a hub can number is left.
pub const FIRST_GENERATION_MAX: u64 = 1 << 52;

/// The hub of a host, and the last document that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentFloor {
    /// The hub that this host enrolled with.
    pub hub_id: HubId,
    /// How far it has come with it.
    pub state: FloorState,
}

/// How far a host has come with its hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FloorState {
    /// No document was ever taken.
    Empty,
    /// This one was taken last.
    Taken(EffectiveDocument),
    /// None was taken since root enrolled this host again; this one of the enrolment before is in effect still.
    Inherited {
        /// The hub of that enrolment.
        hub_id: HubId,
        /// What is in effect.
        document: EffectiveDocument,
    },
}

/// A document that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveDocument {
    /// Its number.
    pub generation: Generation,
    /// The hash of its manifest.
    pub manifest: ManifestHash,
    /// Who signed it; none if nobody did.
    pub signer: Option<SignerName>,
    /// When it was signed, of a document whose signature was judged just now. The journal keeps the newest such moment apart, because
    /// an unsigned document that comes later does not undo it.
    pub signed_at: Option<UnixSeconds>,
}

impl EffectiveDocument {
    /// Who declares what it says.
    pub fn declared_by(&self) -> DeclaredBy {
        match self.signer {
            Some(_) => DeclaredBy::Hub,
            None => DeclaredBy::UnsignedHub,
        }
    }
}

impl DocumentFloor {
    /// Where a host begins that root enrolled for the first time.
    pub fn enrolled(hub_id: HubId) -> Self {
        Self { hub_id, state: FloorState::Empty }
    }

    /// Where it begins when root enrols it again: numbers begin anew, what is in effect stays in effect.
    #[must_use]
    pub fn enrolled_again(self, hub_id: HubId) -> Self {
        let state = match self.state {
            FloorState::Taken(document) => FloorState::Inherited { hub_id: self.hub_id, document },
            state @ (FloorState::Empty | FloorState::Inherited { .. }) => state,
        };
        Self { hub_id, state }
    }

    /// The number that never goes down in this enrolment; [`Generation::NONE`] until a document of it is taken.
    pub fn generation(&self) -> Generation {
        match &self.state {
            FloorState::Taken(document) => document.generation,
            FloorState::Empty | FloorState::Inherited { .. } => Generation::NONE,
        }
    }

    /// The document in effect, of this enrolment or the one before.
    pub fn in_effect(&self) -> Option<&EffectiveDocument> {
        match &self.state {
            FloorState::Empty => None,
            FloorState::Taken(document) | FloorState::Inherited { document, .. } => Some(document),
        }
    }

    /// What the next document must have been signed over.
    pub fn base(&self) -> Option<DocumentBase> {
        let document = self.in_effect()?;
        Some(DocumentBase { generation: document.generation, manifest: document.manifest })
    }

    /// The number of a document that holds no longer, because nobody signed it and root demands signatures now.
    pub fn lacks_signature(&self, desired_signed: bool) -> Option<Generation> {
        let unsigned = self.in_effect().filter(|document| document.signer.is_none());
        unsigned.filter(|_| desired_signed).map(|document| document.generation)
    }

    /// Whether files are exactly the document in effect: what a host asks of its own copy at start.
    pub fn is_of(&self, hub_id: &HubId, generation: Generation, manifest: ManifestHash) -> bool {
        let of = match &self.state {
            FloorState::Empty | FloorState::Taken(_) => &self.hub_id,
            FloorState::Inherited { hub_id, .. } => hub_id,
        };
        of == hub_id && self.base() == Some(DocumentBase { generation, manifest })
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
    /// Whether one is taken that an author signed in the old format, which does not say over which document.
    pub without_base: bool,
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

/// What the host knows of a document before it reads its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentAdmission {
    /// Number, base and author are right: it may be read. If it has no mistake, this is the floor that must be durable
    /// before anything of it counts.
    Admitted(Box<DocumentFloor>),
    /// It is the one that holds.
    InEffect,
    /// It changes nothing.
    Refused(Refusal),
}

/// Judges a document by what the host knows. Everything about it is refused or everything is taken.
pub fn judge_document(offered: &OfferedDocument, terms: DocumentTerms<'_>) -> DocumentVerdict {
    let refused = |refusal, diagnostics| DocumentVerdict::Refused { refusal, diagnostics };
    match admit_document(offered, terms) {
        DocumentAdmission::Admitted(floor) => match read_admitted(offered, &floor) {
            Ok(loaded) => DocumentVerdict::Taken(Box::new(TakenDocument { floor: *floor, loaded })),
            Err(diagnostics) => refused(refuse_mistakes(diagnostics.len()), diagnostics),
        },
        DocumentAdmission::InEffect => DocumentVerdict::InEffect,
        DocumentAdmission::Refused(refusal) => refused(refusal, Vec::new()),
    }
}

/// Reads the files of a document that was admitted. It may take long: a hub can hand over the worst four megabytes there are.
pub fn read_admitted(
    offered: &OfferedDocument,
    floor: &DocumentFloor,
) -> Result<LoadedDocument, Vec<Diagnostic>> {
    let by = floor.in_effect().map_or(DeclaredBy::UnsignedHub, EffectiveDocument::declared_by);
    offered.files.load(by)
}

/// A document with mistakes is refused whole.
pub fn refuse_mistakes(count: usize) -> Refusal {
    let detail = format!("the document has {count} mistakes; the last good one stays");
    Refusal::new(ReasonCode::Payload, detail)
}

/// Judges everything but the files, which are not read: number, base, hashes and author.
pub fn admit_document(offered: &OfferedDocument, terms: DocumentTerms<'_>) -> DocumentAdmission {
    let hash = offered.manifest.hash();
    let known = terms.floor.is_of(&offered.hub_id, offered.generation, hash);
    let number = || judge_number(offered.generation, hash, terms.floor);
    let fits = fits_host(offered, terms)
        .and_then(|()| if known { Ok(()) } else { number() })
        .and_then(|()| {
            offered
                .files
                .fit(&offered.manifest)
                .map_err(|error| Refusal::new(ReasonCode::BindingMismatch, error.to_string()))
        });
    if let Err(refusal) = fits {
        return DocumentAdmission::Refused(refusal);
    }
    let is_judged = known && terms.floor.lacks_signature(terms.desired_signed).is_none();
    let document = match (&terms.floor.state, is_judged) {
        (FloorState::Taken(_), true) => return DocumentAdmission::InEffect,
        // What was in effect when root enrolled this host again is the floor of the new enrolment from now on.
        (FloorState::Inherited { document, .. }, true) => document.clone(),
        (FloorState::Empty, true)
        | (FloorState::Empty | FloorState::Taken(_) | FloorState::Inherited { .. }, false) => {
            match judge_author(offered, hash, terms) {
                Ok(judged) => {
                    let (signer, signed_at) = judged.unzip();
                    let generation = offered.generation;
                    EffectiveDocument { generation, manifest: hash, signer, signed_at }
                }
                Err(refusal) => return DocumentAdmission::Refused(refusal),
            }
        }
    };
    let state = FloorState::Taken(document);
    DocumentAdmission::Admitted(Box::new(DocumentFloor { hub_id: offered.hub_id.clone(), state }))
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
    let taken = floor.generation();
    if generation == Generation::NONE || generation < taken {
        return rollback(format!("the hub offers generation {generation}, and {taken} was taken"));
    }
    if generation == taken && floor.in_effect().is_some_and(|document| document.manifest != hash) {
        return rollback(format!("the hub has another document under generation {generation}"));
    }
    let highest = match floor.state {
        FloorState::Empty | FloorState::Inherited { .. } => FIRST_GENERATION_MAX,
        FloorState::Taken(_) => taken.0.saturating_add(GENERATION_STEP_MAX),
    };
    if generation.0 > highest {
        let detail = format!(
            "generation {generation} is too far ahead of {taken}: {highest} is the highest that is taken now; if the \
             hub's numbers went up like that, root enrols this host again"
        );
        return Err(Refusal::new(ReasonCode::Policy, detail));
    }
    Ok(())
}

/// Who vouches for it, and since when; none where root lets nobody.
fn judge_author(
    offered: &OfferedDocument,
    hash: ManifestHash,
    terms: DocumentTerms<'_>,
) -> Result<Option<(SignerName, UnixSeconds)>, Refusal> {
    let Some(envelope) = &offered.author else {
        if !terms.desired_signed {
            return Ok(None);
        }
        let author_note = if has_author(terms) { "" } else { NO_AUTHOR };
        let detail = format!(
            "nobody signed the document, and this host takes signed ones only{author_note}"
        );
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
    let DesiredStatement { hub_id, host, generation, manifest, base, window } = &statement;
    if host != terms.host {
        let detail = format!("it was signed for {host}");
        return Err(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    if *hub_id != offered.hub_id || *generation != offered.generation || *manifest != hash {
        let detail = "the author signed another document, number or hub";
        return Err(Refusal::new(ReasonCode::BindingMismatch, detail));
    }
    judge_base(*base, terms)?;
    Ok(Some((signer, window.not_before())))
}

/// What is said besides where nobody could have signed, and how that is mended.
const NO_AUTHOR: &str = "; no author is enrolled here yet: `evenkeel signers enrol AUTHOR.pub --role author --name NAME` before \
                         the agent's first start, `evenkeel signers rotate --add-author NAME=AUTHOR.pub` after it";

/// Whether any key may sign documents for this host.
fn has_author(terms: DocumentTerms<'_>) -> bool {
    terms.trust.is_some_and(|trust| trust.signers().any(|signer| signer.role == Role::Author))
}

/// The author must have seen the difference from what is in effect here, or signed another difference than would be applied.
fn judge_base(signed: SignedBase, terms: DocumentTerms<'_>) -> Result<(), Refusal> {
    let in_effect = terms.floor.base();
    if signed == SignedBase::Unsaid && !terms.without_base {
        let detail =
            "the author signed it in the old format, which does not say what it was compared with";
        return Err(Refusal::new(ReasonCode::Policy, detail));
    }
    if signed == SignedBase::Unsaid || signed == SignedBase::after(in_effect) {
        return Ok(());
    }
    let here = match in_effect {
        Some(base) => format!("{base} is in effect here"),
        None => "no document is in effect here".to_owned(),
    };
    let detail = match signed {
        SignedBase::Over(base) => format!("the author compared it with {base}, and {here}"),
        SignedBase::First | SignedBase::Unsaid => {
            format!("the author signed it as the first document of this host, and {here}")
        }
    };
    Err(Refusal::new(ReasonCode::Stale, detail))
}

/// What a person does next about a document that a host refused.
pub fn document_next_step(reason: ReasonCode) -> &'static str {
    const SIGNED_AGAIN: [ReasonCode; 6] = [
        ReasonCode::Stale,
        ReasonCode::Policy,
        ReasonCode::Expired,
        ReasonCode::LifetimeExceeded,
        ReasonCode::BindingMismatch,
        ReasonCode::HostMismatch,
    ];
    if SIGNED_AGAIN.contains(&reason) {
        return "an author signs it: `evenkeel fleet push HOST DIR --key KEY`, or `evenkeel fleet sign` for a draft; it \
                shows what differs from the document in effect";
    }
    if [ReasonCode::UnknownSigner, ReasonCode::RoleDenied].contains(&reason) {
        return "enrol the author's key on the host: `evenkeel signers enrol AUTHOR.pub --role author --name NAME` before its \
                agent starts the first time, `evenkeel signers rotate --host HOST --add-author NAME=AUTHOR.pub` after that; \
                then push again with --key";
    }
    reason.next_step()
}
