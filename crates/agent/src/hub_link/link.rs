//! The link: one task that dials the hub, for ever, and brings what it finds to the desk.
//!
//! ```text
//!   anchor (until it was asked) ─► poll ─► document? envelopes? ─► desk
//!   every few seconds: is there news? ─► report, signed by the host key
//! ```
//!
//! Nobody waits for it. Every answer is bounded in size and time, and a hub that answers at once for ever is asked once a
//! second. It signs with the host key what the hub is told, and believes nothing but its own signature.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::fleet::{
    AnchorAnswer, DocumentFloor, Generation, HeadStatement, HubId, HubProblem, InstanceId,
    JournalHead, OfferedDocument, PollAnswer, RefusedGeneration, SealedText, WireDocument,
    document_next_step,
};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{HostBinding, PublicKey};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::desk::{AnchorFinding, DeskRequest, DocumentOutcome, JudgedEnvelope};
use super::document_reader::DocumentReader;
use super::exchange::{HubExchange, HubFailure, HubMethod, HubOutcome, HubRequest};
use super::history::HistorySource;
use super::limits::{
    BackOff, DOCUMENTS_PER_MINUTE, ENVELOPES_PER_MINUTE, LinkTrouble, LinkView, MinuteRate,
};
use super::memory::{self, ToldHeads};
use super::picture::HostPicture;
use crate::ambient::Ambient;
use crate::engine::{AnchorState, AnchorWatch, HubSigner};
use crate::journal::JournalHandle;

/// A hub that answers at once is asked no more often than this.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How long a refused document is left alone. Its window may open, or an author may be enrolled.
pub(super) const REFUSED_AGAIN: Duration = Duration::from_mins(10);

/// Envelopes without a verdict are asked for again after this: their guest may have been busy.
const ENVELOPES_AGAIN: Duration = Duration::from_mins(5);

/// How long beyond the time a poll may wait its answer may take.
const POLL_GRACE: Duration = Duration::from_secs(15);

/// How long any other request may take, a document of four megabytes over a slow line included.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_mins(1);

/// How long the first question for the anchor may hold up signed work.
const ANCHOR_DEADLINE: Duration = Duration::from_secs(15);

/// The largest answers: eight envelopes; a document; a head.
const POLL_MAX: usize = 2 << 20;
const DOCUMENT_MAX: usize = 12 << 20;
const ANCHOR_MAX: usize = 256 << 10;

/// The most envelopes that are taken from one answer.
const ENVELOPES_MAX: usize = 8;

/// Who speaks, and to whom.
#[derive(Clone)]
pub struct LinkIdentity {
    /// The hub this host enrolled with.
    pub hub_id: HubId,
    /// This host.
    pub host: HostBinding,
    /// Its public key.
    pub key: PublicKey,
    /// This life of the agent.
    pub instance: InstanceId,
    /// Signs for the hub.
    pub vouch: HubSigner,
}

/// What the link is made of.
pub struct HubLink {
    /// The way to the hub.
    pub exchange: Arc<dyn HubExchange>,
    /// Who speaks.
    pub identity: LinkIdentity,
    /// The journal.
    pub journal: JournalHandle,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// Where everything goes that must be judged.
    pub desk: mpsc::Sender<DeskRequest>,
    /// Where the files of a document are read.
    pub reader: DocumentReader,
    /// How the host stands.
    pub picture: Arc<dyn Fn() -> HostPicture + Send + Sync>,
    /// Where it is shown how the link stands.
    pub view: LinkView,
    /// What is known of the anchor.
    pub anchor: AnchorWatch,
    /// What happened, read from the journal's files; none if nobody can read them.
    pub history: Option<HistorySource>,
}

/// The agent goes down, or its journal is broken: the link ends.
pub(super) struct Ended;

impl HubLink {
    /// Runs until the desk is gone.
    pub async fn run(self) {
        let (verdicts, verdict) = mpsc::unbounded_channel();
        let link = &self;
        // Either ends when the agent does; which is asked first matters to nobody but a run that must be replayed.
        tokio::select! {
            biased;
            _ = link.ask_for_ever(verdicts) => {}
            _ = link.report_for_ever(verdict) => {}
        }
    }

    async fn ask_for_ever(
        &self,
        verdicts: mpsc::UnboundedSender<JudgedEnvelope>,
    ) -> Result<(), Ended> {
        let begun =
            self.journal.read(|state, head| (memory::head_of(state, head), memory::told(state)));
        let (found, told) = begun.await.map_err(|_| Ended)?;
        let mut back_off = BackOff::default();
        let mut poll = PollState::new(Instant::now());
        loop {
            let began = Instant::now();
            let asked = match self.anchor.state() {
                AnchorState::Asking | AnchorState::Unreachable | AnchorState::Withheld => {
                    self.ask_anchor(found, told).await?
                }
                AnchorState::Known | AnchorState::Doubted | AnchorState::NoHub => Ok(()),
            };
            let polled = match asked {
                Ok(()) => self.poll(&mut poll, &back_off, &verdicts).await?,
                Err(trouble) => Err(trouble),
            };
            match polled {
                Ok(()) => {
                    back_off.succeeded();
                    tokio::time::sleep_until(began + POLL_EVERY).await;
                }
                Err((trouble, why)) => {
                    self.view.trouble(&why);
                    tokio::time::sleep(back_off.pause(trouble, self.ambient.random())).await;
                }
            }
        }
    }

    /// Asks how far the journal had come when the hub last heard of it.
    async fn ask_anchor(
        &self,
        found: Option<JournalHead>,
        told: ToldHeads,
    ) -> Result<Result<(), (LinkTrouble, String)>, Ended> {
        let Some(found) = found else { return Err(Ended) };
        let asked = self.get("/v1/agent/anchor".to_owned(), ANCHOR_MAX, ANCHOR_DEADLINE).await;
        let read = asked.and_then(|(status, body)| match status {
            200 => {
                serde_json::from_slice::<AnchorAnswer>(&body).map_err(|_| nonsense("the anchor"))
            }
            _ => Err(unexpected(status, &body)),
        });
        let (says, asked) = match read {
            Err(trouble) => (AnchorFinding::Unreachable, Err(trouble)),
            Ok(AnchorAnswer { head: None }) => (AnchorFinding::Nothing, Ok(())),
            Ok(AnchorAnswer { head: Some(head) }) => match self.own_head(&head, &found) {
                Ok(head) => (AnchorFinding::Head(head), Ok(())),
                // A forged one proves nothing: it is as if nobody had answered.
                Err(refusal) => {
                    tracing::warn!(%refusal, "the hub's anchor of this journal is not ours");
                    (AnchorFinding::Unreachable, Ok(()))
                }
            },
        };
        let (answer, taken) = oneshot::channel();
        self.bring(DeskRequest::Anchor { found, told, says, answer }).await?;
        taken.await.map_err(|_| Ended)?;
        Ok(asked)
    }

    /// A head is believed by our own signature, for this hub and this host alone.
    fn own_head(&self, sealed: &SealedText, found: &JournalHead) -> Result<JournalHead, Refusal> {
        let statement = HeadStatement::verify(&sealed.envelope()?, &self.identity.key)?;
        let HeadStatement { hub_id, host, head } = statement;
        if hub_id != self.identity.hub_id || host != self.identity.host {
            let why = "it was signed for another hub, or under another name";
            return Err(Refusal::new(ReasonCode::BindingMismatch, why));
        }
        if !head.is_within_reach(found) {
            let why = format!("epoch {} is out of reach of epoch {}", head.epoch, found.epoch);
            return Err(Refusal::new(ReasonCode::BindingMismatch, why));
        }
        Ok(head)
    }

    /// Asks once whether there is anything for this host, and takes it.
    async fn poll(
        &self,
        poll: &mut PollState,
        back_off: &BackOff,
        verdicts: &mpsc::UnboundedSender<JudgedEnvelope>,
    ) -> Result<Result<(), (LinkTrouble, String)>, Ended> {
        let now = Instant::now();
        poll.forget_what_is_old(now);
        let floor = self.floor().await?;
        let generation = poll.refused.map_or(floor.generation(), |(refused, _)| refused);
        let cursor = poll.cursor;
        let wait = back_off.wait_s();
        let target = format!("/v1/agent/poll?generation={generation}&cursor={cursor}&wait={wait}");
        let deadline = Duration::from_secs(wait) + POLL_GRACE;
        let answer = match self.get(target, POLL_MAX, deadline).await {
            Ok((204, _)) => None,
            Ok((200, body)) => match serde_json::from_slice::<PollAnswer>(&body) {
                Ok(answer) => Some(answer),
                Err(_) => return Ok(Err(nonsense("a poll"))),
            },
            Ok((status, body)) => return Ok(Err(unexpected(status, &body))),
            Err(trouble) => return Ok(Err(trouble)),
        };
        self.view.heard(self.ambient.now());
        let Some(PollAnswer { generation: offered, envelopes }) = answer else {
            return Ok(Ok(()));
        };
        for envelope in envelopes.into_iter().take(ENVELOPES_MAX) {
            // A hub that repeats or reorders is answered as often as it asks, within the rate.
            tokio::time::sleep(poll.envelopes.take(Instant::now())).await;
            poll.cursor = poll.cursor.max(envelope.cursor);
            let id = envelope.id;
            let bytes = envelope.envelope.to_bytes();
            self.bring(DeskRequest::Envelope { id, bytes, verdicts: verdicts.clone() }).await?;
        }
        if offered == floor.generation() || poll.refused.is_some_and(|(known, _)| known == offered)
        {
            return Ok(Ok(()));
        }
        self.fetch(offered, &floor, poll).await
    }

    /// Fetches a document and has it judged.
    async fn fetch(
        &self,
        offered: Generation,
        floor: &DocumentFloor,
        poll: &mut PollState,
    ) -> Result<Result<(), (LinkTrouble, String)>, Ended> {
        let refuse = |poll: &mut PollState, refused: RefusedGeneration| {
            poll.refused = Some((offered, Instant::now()));
            self.view.refused(Some(refused));
            Ok(Ok(()))
        };
        let taken = floor.generation();
        if offered < taken {
            let why = format!("the hub offers generation {offered}, and {taken} was taken");
            return refuse(poll, refusal_of(offered, ReasonCode::GenerationRollback, why));
        }
        tokio::time::sleep(poll.documents.take(Instant::now())).await;
        let target = format!("/v1/agent/documents/{offered}");
        let document = match self.get(target, DOCUMENT_MAX, REQUEST_DEADLINE).await {
            Ok((200, body)) => match serde_json::from_slice::<WireDocument>(&body) {
                Ok(document) => document,
                Err(_) => return Ok(Err(nonsense("a document"))),
            },
            Ok((status, body)) => return Ok(Err(unexpected(status, &body))),
            Err(trouble) => return Ok(Err(trouble)),
        };
        let document = match document.offered() {
            Ok(document) if document.generation == offered => document,
            Ok(other) => {
                let why =
                    format!("asked for generation {offered}, the hub gave {}", other.generation);
                return refuse(poll, refusal_of(offered, ReasonCode::BindingMismatch, why));
            }
            Err(Refusal { reason, detail }) => {
                return refuse(poll, refusal_of(offered, reason, detail));
            }
        };
        match self.have_judged(document).await? {
            None => {
                poll.refused = None;
                self.view.refused(None);
                Ok(Ok(()))
            }
            Some(refused) => refuse(poll, refused),
        }
    }

    /// Has a document admitted, read beside everything else, and taken. None if it holds now, or why not.
    async fn have_judged(
        &self,
        document: OfferedDocument,
    ) -> Result<Option<RefusedGeneration>, Ended> {
        let offered = Arc::new(document);
        let (answer, judged) = oneshot::channel();
        self.bring(DeskRequest::Document { offered: Arc::clone(&offered), answer }).await?;
        let mut outcome = judged.await.map_err(|_| Ended)?;
        loop {
            let floor = match outcome {
                DocumentOutcome::Taken(_) | DocumentOutcome::InEffect(_) => return Ok(None),
                DocumentOutcome::Refused(refused) => return Ok(Some(refused)),
                DocumentOutcome::ToRead(floor) => floor,
            };
            let files = match self.reader.read(&offered, &floor).await {
                Ok(files) => files,
                Err(Refusal { reason, detail }) => {
                    return Ok(Some(refusal_of(offered.generation, reason, detail)));
                }
            };
            let (answer, judged) = oneshot::channel();
            let offered = Arc::clone(&offered);
            self.bring(DeskRequest::ReadDocument { offered, floor, files, answer }).await?;
            outcome = judged.await.map_err(|_| Ended)?;
        }
    }

    async fn floor(&self) -> Result<DocumentFloor, Ended> {
        let read = self.journal.read(|state, _| memory::floor(state)).await;
        read.map_err(|_| Ended)?.ok_or(Ended)
    }

    async fn bring(&self, request: DeskRequest) -> Result<(), Ended> {
        self.desk.send(request).await.map_err(|_| Ended)
    }

    async fn get(
        &self,
        target: String,
        answer_max_bytes: usize,
        deadline: Duration,
    ) -> Result<(u16, Vec<u8>), (LinkTrouble, String)> {
        let method = HubMethod::Get;
        let headers = Vec::new();
        let body = Vec::new();
        self.answer(HubRequest { method, target, headers, body, answer_max_bytes, deadline }).await
    }

    /// One exchange, bounded here too: whatever carries it may hang.
    pub(super) async fn answer(
        &self,
        request: HubRequest,
    ) -> Result<(u16, Vec<u8>), (LinkTrouble, String)> {
        let max = request.answer_max_bytes;
        let deadline = request.deadline;
        let exchanged = tokio::time::timeout(deadline, self.exchange.exchange(request)).await;
        match exchanged.unwrap_or(HubOutcome::Failed(HubFailure::Timeout(deadline))) {
            HubOutcome::Answered { body, .. } if body.len() > max => {
                Err((LinkTrouble::Connection, HubFailure::TooLarge(max).to_string()))
            }
            HubOutcome::Answered { status, body } => Ok((status, body)),
            HubOutcome::Failed(failure @ HubFailure::Lost(_)) => {
                Err((LinkTrouble::CutOff, failure.to_string()))
            }
            HubOutcome::Failed(
                failure @ (HubFailure::Connect(_)
                | HubFailure::Timeout(_)
                | HubFailure::TooLarge(_)),
            ) => Err((LinkTrouble::Connection, failure.to_string())),
        }
    }
}

/// Where polling stands.
struct PollState {
    cursor: u64,
    cursor_since: Instant,
    /// The newest document that was refused, and when.
    refused: Option<(Generation, Instant)>,
    envelopes: MinuteRate,
    documents: MinuteRate,
}

impl PollState {
    fn new(now: Instant) -> Self {
        Self {
            cursor: 0,
            cursor_since: now,
            refused: None,
            envelopes: MinuteRate::new(ENVELOPES_PER_MINUTE, now),
            documents: MinuteRate::new(DOCUMENTS_PER_MINUTE, now),
        }
    }

    /// What was refused may fit by now, and whose guest was busy may be free.
    fn forget_what_is_old(&mut self, now: Instant) {
        self.refused = self.refused.filter(|(_, at)| now < *at + REFUSED_AGAIN);
        if now >= self.cursor_since + ENVELOPES_AGAIN {
            (self.cursor, self.cursor_since) = (0, now);
        }
    }
}

fn refusal_of(generation: Generation, reason: ReasonCode, why: String) -> RefusedGeneration {
    let code = reason.to_string();
    let diagnostics = Vec::new();
    let next = document_next_step(reason).to_owned();
    RefusedGeneration { generation, manifest: None, code, why, next, diagnostics }
}

fn nonsense(what: &str) -> (LinkTrouble, String) {
    (LinkTrouble::Connection, format!("the hub's answer to {what} makes no sense"))
}

/// A status that is no answer to what was asked; a redirect is one.
pub(super) fn unexpected(status: u16, body: &[u8]) -> (LinkTrouble, String) {
    let trouble = match status {
        401 | 403 | 429 => LinkTrouble::Denied,
        502 | 504 => LinkTrouble::CutOff,
        _ => LinkTrouble::Connection,
    };
    let said = serde_json::from_slice::<HubProblem>(body).ok();
    let said = said.map(|problem| problem.detail).filter(|detail| !detail.is_empty());
    let said: String =
        said.unwrap_or_default().chars().filter(|c| !c.is_control()).take(200).collect();
    let why = format!("the hub answered {status} {said}");
    (trouble, why.trim_end().to_owned())
}
