//! The desk: what the link brings, judged and written down by whoever owns the engine.
//!
//! The daemon's loop owns one, and so does a test. Order matters: a document is on disk, then its floor is in the journal,
//! then it holds; a verdict is told once its end is in the journal, or nobody can know it. Whatever is dropped in the middle
//! is brought again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use evenkeel_core::desired::Desired;
use evenkeel_core::fleet::{
    DocumentAdmission, DocumentBase, DocumentFloor, EnvelopeId, EnvelopeVerdict, Generation,
    JournalHead, LoadedDocument, OfferedDocument, RefusedGeneration, document_next_step,
    refuse_mistakes,
};
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{Envelope, OpResult, PayloadHash};
use tokio::sync::{mpsc, oneshot};

use super::document_reader::{FileMistakes, ReadFiles};
use super::memory::ToldHeads;
use super::picture::DocumentPlaces;
use super::store::DocumentStore;
use crate::engine::{AnchorState, ApprovalOrigin, Engine, Fatal, OpOutcome, OpReport, Submitted};

/// What the link brings.
#[derive(Debug)]
pub enum DeskRequest {
    /// A document, whose files nobody read yet.
    Document {
        /// As it came.
        offered: Arc<OfferedDocument>,
        /// What became of it.
        answer: oneshot::Sender<DocumentOutcome>,
    },
    /// The same once its files are read.
    ReadDocument {
        /// As it came.
        offered: Arc<OfferedDocument>,
        /// The floor it was admitted to.
        floor: Box<DocumentFloor>,
        /// What is in its files.
        files: ReadFiles,
        /// What became of it.
        answer: oneshot::Sender<DocumentOutcome>,
    },
    /// An approval, a rotation or an acknowledgement.
    Envelope {
        /// Its name at the hub.
        id: EnvelopeId,
        /// The envelope.
        bytes: Vec<u8>,
        /// Where its verdict goes, perhaps much later.
        verdicts: mpsc::UnboundedSender<JudgedEnvelope>,
    },
    /// What the hub says of the journal's anchor.
    Anchor {
        /// The head this life began with.
        found: JournalHead,
        /// What the hub had been told by then.
        told: ToldHeads,
        /// What it says.
        says: AnchorFinding,
        /// Told when it is taken in.
        answer: oneshot::Sender<()>,
    },
}

/// What became of an envelope, and which bytes were judged: the link signs both.
#[derive(Debug, Clone)]
pub struct JudgedEnvelope {
    /// What became of it.
    pub verdict: EnvelopeVerdict,
    /// The hash of the bytes in it.
    pub payload: PayloadHash,
}

/// What came of asking for the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnchorFinding {
    /// The hub did not answer.
    Unreachable,
    /// It has none by our key.
    Nothing,
    /// It has this one, by our own signature.
    Head(JournalHead),
}

/// What became of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentOutcome {
    /// Its number, base and author are right; its files are to be read and brought.
    ToRead(Box<DocumentFloor>),
    /// It holds from now on.
    Taken(Generation),
    /// It holds already.
    InEffect(Generation),
    /// It changes nothing.
    Refused(RefusedGeneration),
}

/// What the owner of the engine must know.
#[derive(Debug)]
pub enum DeskNews {
    /// Nothing.
    Nothing,
    /// This is desired from now on.
    Desired(Box<HubDesired>),
    /// Signers or the epoch have changed.
    Authority,
}

/// A document that holds: what it declares, and where that stands.
#[derive(Debug, Clone)]
pub struct HubDesired {
    /// What is declared.
    pub desired: Arc<Desired>,
    /// Where.
    pub places: DocumentPlaces,
}

impl From<LoadedDocument> for HubDesired {
    fn from(loaded: LoadedDocument) -> Self {
        let LoadedDocument { desired, origins, sources } = loaded;
        Self { desired: Arc::new(desired), places: DocumentPlaces { origins, sources } }
    }
}

/// The desk.
#[derive(Debug)]
pub struct HubDesk {
    store: DocumentStore,
    /// Envelopes whose operation is under way.
    waiting: BTreeMap<OperationId, Vec<WaitingVerdict>>,
}

/// Who waits for the verdict about an envelope.
#[derive(Debug)]
struct WaitingVerdict {
    envelope: EnvelopeId,
    payload: PayloadHash,
    verdicts: mpsc::UnboundedSender<JudgedEnvelope>,
}

impl WaitingVerdict {
    fn tell(&self, code: ReasonCode, op: Option<OperationId>, detail: String) {
        let verdict = EnvelopeVerdict {
            envelope: self.envelope.clone(),
            code: code.to_string(),
            op: op.map(|op| op.to_string()),
            detail,
            sealed: None,
        };
        // The link may have gone; the envelope is brought again then.
        let _ = self.verdicts.send(JudgedEnvelope { verdict, payload: self.payload });
    }
}

impl HubDesk {
    /// Opens the desk and takes the last good document from disk; no hub is needed. A document that cannot be used is told
    /// in words, and nothing is declared then.
    pub async fn open(
        state: &Path,
        engine: &mut Engine,
    ) -> Result<(Self, Option<HubDesired>, Option<String>), Fatal> {
        Self::open_on(DocumentStore::new(state), engine).await
    }

    /// The same with the documents wherever they are.
    pub async fn open_on(
        store: DocumentStore,
        engine: &mut Engine,
    ) -> Result<(Self, Option<HubDesired>, Option<String>), Fatal> {
        engine.void_old_items().await?;
        let desk = Self { store: store.clone(), waiting: BTreeMap::new() };
        let Some(floor) = engine.floor().await? else {
            let why = "this host is not enrolled with a hub: evenkeel enrol URL";
            return Ok((desk, None, Some(why.to_owned())));
        };
        if let Some(unsigned) = floor.lacks_signature(engine.desired_signed()) {
            let why = format!(
                "nobody signed generation {unsigned}, and root demands signatures now; it holds no longer"
            );
            return Ok((desk, None, Some(why)));
        }
        let loaded = store.off_the_loop(move |store| store.load(&floor)).await;
        Ok(match loaded {
            Some(Ok(Some(loaded))) => (desk, Some(loaded.into()), None),
            Some(Ok(None)) => (desk, None, None),
            Some(Err(error)) => (desk, None, Some(error.to_string())),
            None => (desk, None, Some("the document that was taken could not be read".to_owned())),
        })
    }

    /// Takes in what the link brings.
    pub async fn take(
        &mut self,
        engine: &mut Engine,
        request: DeskRequest,
    ) -> Result<DeskNews, Fatal> {
        match request {
            DeskRequest::Document { offered, answer } => {
                let told = match engine.admit_document(&offered).await? {
                    DocumentAdmission::Admitted(floor) => DocumentOutcome::ToRead(floor),
                    DocumentAdmission::InEffect => DocumentOutcome::InEffect(offered.generation),
                    DocumentAdmission::Refused(refusal) => refused(&offered, &refusal, Vec::new()),
                };
                // Whoever brought it may have gone; it is asked for again.
                let _ = answer.send(told);
                Ok(DeskNews::Nothing)
            }
            DeskRequest::ReadDocument { offered, floor, files, answer } => {
                let (told, news) = self.document(engine, &offered, *floor, files).await?;
                let _ = answer.send(told);
                Ok(news)
            }
            DeskRequest::Envelope { id, bytes, verdicts } => {
                self.envelope(engine, id, &bytes, verdicts).await
            }
            DeskRequest::Anchor { found, told, says, answer } => {
                match says {
                    AnchorFinding::Unreachable => engine.set_anchor(AnchorState::Unreachable),
                    AnchorFinding::Nothing => anchor(engine, found, &told, None).await?,
                    AnchorFinding::Head(head) => anchor(engine, found, &told, Some(head)).await?,
                }
                let _ = answer.send(());
                Ok(DeskNews::Nothing)
            }
        }
    }

    async fn document(
        &mut self,
        engine: &mut Engine,
        offered: &Arc<OfferedDocument>,
        read_for: DocumentFloor,
        files: ReadFiles,
    ) -> Result<(DocumentOutcome, DeskNews), Fatal> {
        let generation = offered.generation;
        let refuse = |refusal: &Refusal, diagnostics: Vec<String>| {
            Ok((refused(offered, refusal, diagnostics), DeskNews::Nothing))
        };
        // Signers, clock and floor may have changed while it was read.
        let floor = match engine.admit_document(offered).await? {
            DocumentAdmission::Admitted(floor) if *floor == read_for => *floor,
            DocumentAdmission::Admitted(floor) => {
                return Ok((DocumentOutcome::ToRead(floor), DeskNews::Nothing));
            }
            DocumentAdmission::InEffect => {
                return Ok((DocumentOutcome::InEffect(generation), DeskNews::Nothing));
            }
            DocumentAdmission::Refused(refusal) => return refuse(&refusal, Vec::new()),
        };
        let loaded = match files {
            Ok(loaded) => *loaded,
            Err(FileMistakes { count, shown }) => return refuse(&refuse_mistakes(count), shown),
        };
        let kept = Arc::clone(offered);
        let kept = self.store.off_the_loop(move |store| store.keep(&kept)).await;
        let trouble = match kept {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("writing it did not end".to_owned()),
        };
        if let Some(why) = trouble {
            let why = format!("the document could not be put on disk: {why}");
            return refuse(&Refusal::new(ReasonCode::Storage, why), Vec::new());
        }
        if let Err(error) = engine.keep_floor(&floor).await {
            return refuse(&error.refusal()?, Vec::new());
        }
        self.forget_others(&floor);
        let guests = loaded.desired.guests.len();
        let signer = floor.in_effect().and_then(|document| document.signer.as_ref());
        let signer = signer.map(tracing::field::display);
        tracing::info!(%generation, guests, signer, "a document of the hub was taken");
        let news = DeskNews::Desired(Box::new(loaded.into()));
        Ok((DocumentOutcome::Taken(generation), news))
    }

    /// Old documents are only in the way.
    fn forget_others(&self, floor: &DocumentFloor) {
        if let Some(DocumentBase { generation, manifest }) = floor.base() {
            self.store.forget_all_but(generation, manifest);
        }
    }

    async fn envelope(
        &mut self,
        engine: &mut Engine,
        envelope: EnvelopeId,
        bytes: &[u8],
        verdicts: mpsc::UnboundedSender<JudgedEnvelope>,
    ) -> Result<DeskNews, Fatal> {
        // Of bytes that are no envelope, the whole of them was judged.
        let payload = Envelope::parse(bytes)
            .map_or_else(|_| PayloadHash::of(bytes), |envelope| envelope.payload_hash());
        let waits = WaitingVerdict { envelope, payload, verdicts };
        Ok(match engine.submit_from(ApprovalOrigin::Hub, bytes).await? {
            Submitted::Accepted(op) | Submitted::Replay { op, result: OpResult::InFlight } => {
                let waiting = self.waiting.entry(op).or_default();
                // The same envelope brought again has one verdict all the same.
                waiting.retain(|known| known.envelope != waits.envelope);
                waiting.push(waits);
                DeskNews::Nothing
            }
            Submitted::Replay { op, result } => {
                waits.tell(ReasonCode::Replay, Some(op), result.as_str().to_owned());
                DeskNews::Nothing
            }
            Submitted::Rotated(version) => {
                let detail = format!("the signers are those of version {version} now");
                waits.tell(ReasonCode::AllowedSigned, None, detail);
                DeskNews::Authority
            }
            Submitted::Acknowledged(epoch) => {
                waits.tell(ReasonCode::AllowedSigned, None, format!("epoch {epoch} began"));
                DeskNews::Authority
            }
            Submitted::Collected(missing) => {
                waits.tell(missing.reason, None, missing.detail);
                DeskNews::Nothing
            }
            Submitted::Denied(item) => {
                waits.tell(ReasonCode::AllowedSigned, None, format!("{item} waits no longer"));
                DeskNews::Nothing
            }
            // The guest's lane is busy, or the host is: it is brought again and may fit then.
            Submitted::Refused(refusal) if refusal.reason == ReasonCode::Busy => DeskNews::Nothing,
            Submitted::Refused(refusal) => {
                waits.tell(refusal.reason, None, refusal.detail);
                DeskNews::Nothing
            }
        })
    }

    /// An operation ended: whoever sent its approval is told. Its end is in the journal by now.
    pub fn ended(&mut self, report: &OpReport) {
        let Some(waiting) = self.waiting.remove(&report.op) else { return };
        let code = match &report.end {
            OpOutcome::Held { reason, .. } => *reason,
            // It was not tried, because the agent goes down: it is brought again.
            OpOutcome::Skipped => return,
            OpOutcome::Succeeded { .. }
            | OpOutcome::Unneeded
            | OpOutcome::Stale { .. }
            | OpOutcome::Failed { .. }
            | OpOutcome::Unknown { .. } => ReasonCode::AllowedSigned,
        };
        for waits in waiting {
            waits.tell(code, Some(report.op), report.end.words());
        }
    }
}

async fn anchor(
    engine: &mut Engine,
    found: JournalHead,
    told: &ToldHeads,
    anchored: Option<JournalHead>,
) -> Result<(), Fatal> {
    if let Err(error) = engine.take_anchor(found, told, anchored).await {
        // What could not be written down is asked for again; until then signed work waits.
        let refusal = error.refusal()?;
        tracing::error!(%refusal, "what the hub says of the journal could not be written down");
    }
    Ok(())
}

/// What is told of a document that changes nothing.
fn refused(
    offered: &OfferedDocument,
    refusal: &Refusal,
    diagnostics: Vec<String>,
) -> DocumentOutcome {
    DocumentOutcome::Refused(RefusedGeneration {
        generation: offered.generation,
        manifest: Some(offered.manifest.hash()),
        code: refusal.reason.to_string(),
        why: refusal.detail.clone(),
        next: document_next_step(refusal.reason).to_owned(),
        diagnostics,
    })
}
