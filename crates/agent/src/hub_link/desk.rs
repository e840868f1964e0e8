//! The desk: what the link brings, judged and written down by whoever owns the engine.
//!
//! The daemon's loop owns one, and so does a test. Order matters: a document is on disk, then its floor is in the journal,
//! then it holds; a verdict is told once its end is in the journal, or nobody can know it. Whatever is dropped in the middle
//! is brought again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use evenkeel_core::desired::{Desired, without_secrets};
use evenkeel_core::diagnostic::Diagnostic;
use evenkeel_core::fleet::{
    DocumentFloor, DocumentVerdict, EnvelopeId, EnvelopeVerdict, Generation, JournalHead,
    LoadedDocument, OfferedDocument, RefusedGeneration, TakenDocument,
};
use evenkeel_core::id::OperationId;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::OpResult;
use tokio::sync::{mpsc, oneshot};

use super::memory::ToldHeads;
use super::picture::DocumentPlaces;
use super::store::DocumentStore;
use crate::engine::{AnchorState, ApprovalOrigin, Engine, Fatal, OpEnd, OpReport, Submitted};

/// Mistakes that travel back to the hub; whoever mends them sees the others by `evenkeel validate`.
const DIAGNOSTICS_MAX: usize = 20;

/// What the link brings.
#[derive(Debug)]
pub enum DeskRequest {
    /// A document.
    Document {
        /// As it came.
        offered: Box<OfferedDocument>,
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
        verdicts: mpsc::UnboundedSender<EnvelopeVerdict>,
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
    waiting: BTreeMap<OperationId, Vec<(EnvelopeId, mpsc::UnboundedSender<EnvelopeVerdict>)>>,
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
        if floor.manifest.is_some() && floor.signer.is_none() && engine.desired_signed() {
            let why = format!(
                "nobody signed generation {}, and root demands signatures now; it holds no longer",
                floor.generation
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
                let (told, news) = self.document(engine, *offered).await?;
                // Whoever brought it may have gone; it is asked for again.
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
        offered: OfferedDocument,
    ) -> Result<(DocumentOutcome, DeskNews), Fatal> {
        let generation = offered.generation;
        let manifest = offered.manifest.hash();
        let refuse = |refusal: &Refusal, diagnostics: Vec<String>| {
            let (code, why) = (refusal.reason.to_string(), refusal.detail.clone());
            let (manifest, next) = (Some(manifest), refusal.reason.next_step().to_owned());
            let refused = RefusedGeneration { generation, manifest, code, why, next, diagnostics };
            Ok((DocumentOutcome::Refused(refused), DeskNews::Nothing))
        };
        let TakenDocument { floor, loaded } = match engine.judge_document(&offered).await? {
            DocumentVerdict::Taken(taken) => *taken,
            DocumentVerdict::InEffect => {
                return Ok((DocumentOutcome::InEffect(generation), DeskNews::Nothing));
            }
            DocumentVerdict::Refused { refusal, diagnostics } => {
                return refuse(&refusal, told(&offered, &diagnostics));
            }
        };
        let kept = self.store.off_the_loop(move |store| store.keep(&offered)).await;
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
        let signer = floor.signer.as_ref().map(tracing::field::display);
        tracing::info!(%generation, guests, signer, "a document of the hub was taken");
        let news = DeskNews::Desired(Box::new(loaded.into()));
        Ok((DocumentOutcome::Taken(generation), news))
    }

    /// Old documents are only in the way.
    fn forget_others(&self, floor: &DocumentFloor) {
        if let Some(manifest) = floor.manifest {
            self.store.forget_all_but(floor.generation, manifest);
        }
    }

    async fn envelope(
        &mut self,
        engine: &mut Engine,
        id: EnvelopeId,
        bytes: &[u8],
        verdicts: mpsc::UnboundedSender<EnvelopeVerdict>,
    ) -> Result<DeskNews, Fatal> {
        let tell = |code: ReasonCode, op: Option<OperationId>, detail: String| {
            let (code, op) = (code.to_string(), op.map(|op| op.to_string()));
            // The link may have gone; the envelope is brought again then.
            let _ = verdicts.send(EnvelopeVerdict { envelope: id.clone(), code, op, detail });
        };
        Ok(match engine.submit_from(ApprovalOrigin::Hub, bytes).await? {
            Submitted::Accepted(op) | Submitted::Replay { op, result: OpResult::InFlight } => {
                let waiting = self.waiting.entry(op).or_default();
                // The same envelope brought again has one verdict all the same.
                waiting.retain(|(known, _)| *known != id);
                waiting.push((id, verdicts));
                DeskNews::Nothing
            }
            Submitted::Replay { op, result } => {
                tell(ReasonCode::Replay, Some(op), result.as_str().to_owned());
                DeskNews::Nothing
            }
            Submitted::Rotated(version) => {
                let detail = format!("the signers are those of version {version} now");
                tell(ReasonCode::AllowedSigned, None, detail);
                DeskNews::Authority
            }
            Submitted::Acknowledged(epoch) => {
                tell(ReasonCode::AllowedSigned, None, format!("epoch {epoch} began"));
                DeskNews::Authority
            }
            // The guest's lane is busy, or the host is: it is brought again and may fit then.
            Submitted::Refused(refusal) if refusal.reason == ReasonCode::Busy => DeskNews::Nothing,
            Submitted::Refused(refusal) => {
                tell(refusal.reason, None, refusal.detail);
                DeskNews::Nothing
            }
        })
    }

    /// An operation ended: whoever sent its approval is told. Its end is in the journal by now.
    pub fn ended(&mut self, report: &OpReport) {
        let Some(waiting) = self.waiting.remove(&report.op) else { return };
        let code = match &report.end {
            OpEnd::Held { reason, .. } => *reason,
            // It was not tried, because the agent goes down: it is brought again.
            OpEnd::Skipped => return,
            OpEnd::Succeeded { .. }
            | OpEnd::Unneeded
            | OpEnd::Stale { .. }
            | OpEnd::Failed { .. }
            | OpEnd::Unknown { .. } => ReasonCode::AllowedSigned,
        };
        for (envelope, verdicts) in waiting {
            let (op, detail) = (Some(report.op.to_string()), report.end.words());
            let _ = verdicts.send(EnvelopeVerdict { envelope, code: code.to_string(), op, detail });
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

/// The first mistakes of a document, as the command line shows them. A mistake shows the line it is in, which may hold a
/// secret.
fn told(offered: &OfferedDocument, diagnostics: &[Diagnostic]) -> Vec<String> {
    let sources = without_secrets(&offered.files.sources());
    diagnostics.iter().take(DIAGNOSTICS_MAX).map(|mistake| mistake.told(&sources)).collect()
}
