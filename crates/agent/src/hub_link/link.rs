//! The link: one task that dials the hub, for ever, and brings what it finds to the desk.
//!
//! ```text
//!   anchor (until it was asked) ─► poll ─► document? envelopes? ─► desk
//!   every few seconds: is there news? ─► report, signed by the host key
//! ```
//!
//! Nobody waits for it. Every answer is bounded in size and time, and a hub that answers at once for ever is asked once a
//! second. It signs with the host key what the hub is told, and believes nothing but its own signature.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{
    AnchorAnswer, DocumentFloor, EnvelopeVerdict, Generation, GenerationState, HeadStatement,
    HostReport, HubId, HubProblem, InstanceId, JournalHead, OpReport, PollAnswer,
    RefusedGeneration, ReportStatement, SealedText, WireDocument,
};
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{
    Envelope, HostBinding, Namespace, PayloadHash, PendingId, PublicKey, armour,
};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::Instant;

use super::desk::{AnchorFinding, DeskRequest, DocumentAnswer};
use super::exchange::{HubExchange, HubFailure, HubMethod, HubOutcome, HubRequest};
use super::limits::{BackOff, EnvelopeRate, LinkTrouble, LinkView};
use super::memory::{self, JournalEpoch, ToldHeads};
use super::picture::HostPicture;
use super::report_memory::{ReportMemory, ReportedNow};
use crate::ambient::Ambient;
use crate::engine::{AnchorState, AnchorWatch, Progress, Vouch, waiting};
use crate::journal::{JournalHandle, Record};

/// A hub that answers at once is asked no more often than this.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether there is news.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// How long a refused document is left alone. Its window may open, or an author may be enrolled.
const REFUSED_AGAIN: Duration = Duration::from_mins(10);

/// Envelopes without a verdict are asked for again after this: their guest may have been busy.
const ENVELOPES_AGAIN: Duration = Duration::from_mins(5);

/// How long beyond the time a poll may wait its answer may take.
const POLL_GRACE: Duration = Duration::from_secs(15);

/// How long any other request may take, a document of four megabytes over a slow line included.
const REQUEST_DEADLINE: Duration = Duration::from_secs(60);

/// How long the first question for the anchor may hold up signed work.
const ANCHOR_DEADLINE: Duration = Duration::from_secs(15);

/// The largest answers: eight envelopes; a document; a head; a word.
const POLL_MAX: usize = 2 << 20;
const DOCUMENT_MAX: usize = 12 << 20;
const ANCHOR_MAX: usize = 256 << 10;
const REPORT_MAX: usize = 64 << 10;

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
    pub vouch: Vouch,
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
    /// How the host stands.
    pub picture: Arc<dyn Fn() -> HostPicture + Send + Sync>,
    /// Where it is shown how the link stands.
    pub view: LinkView,
    /// What is known of the anchor.
    pub anchor: AnchorWatch,
    /// What happens, as it happens.
    pub progress: Option<broadcast::Receiver<Progress>>,
}

/// The agent goes down, or its journal is broken: the link ends.
struct Ended;

impl HubLink {
    /// Runs until the desk is gone.
    pub async fn run(mut self) {
        let progress = self.progress.take();
        let (verdicts, verdict) = mpsc::unbounded_channel();
        let link = &self;
        // Either ends when the agent does.
        tokio::select! {
            _ = link.ask_for_ever(verdicts) => {}
            _ = link.report_for_ever(verdict, progress) => {}
        }
    }

    async fn ask_for_ever(
        &self,
        verdicts: mpsc::UnboundedSender<EnvelopeVerdict>,
    ) -> Result<(), Ended> {
        let begun =
            self.journal.read(|state, head| (memory::head_of(state, head), memory::told(state)));
        let (found, told) = begun.await.map_err(|_| Ended)?;
        let mut back_off = BackOff::default();
        let mut poll = PollState::new(Instant::now());
        loop {
            let began = Instant::now();
            let asked = match self.anchor.state() {
                AnchorState::Asking | AnchorState::Unreachable => {
                    self.ask_anchor(found, told).await?
                }
                AnchorState::Known | AnchorState::NoHub => Ok(()),
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
            Ok(AnchorAnswer { head: Some(head) }) => match self.own_head(&head) {
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
    fn own_head(&self, sealed: &SealedText) -> Result<JournalHead, Refusal> {
        let statement = HeadStatement::verify(&sealed.envelope()?, &self.identity.key)?;
        let HeadStatement { hub_id, host, head } = statement;
        if hub_id != self.identity.hub_id || host != self.identity.host {
            let why = "it was signed for another hub, or under another name";
            return Err(Refusal::new(ReasonCode::BindingMismatch, why));
        }
        Ok(head)
    }

    /// Asks once whether there is anything for this host, and takes it.
    async fn poll(
        &self,
        poll: &mut PollState,
        back_off: &BackOff,
        verdicts: &mpsc::UnboundedSender<EnvelopeVerdict>,
    ) -> Result<Result<(), (LinkTrouble, String)>, Ended> {
        let now = Instant::now();
        poll.forget_what_is_old(now);
        let floor = self.floor().await?;
        let generation = poll.refused.map_or(floor.generation, |(refused, _)| refused);
        let (cursor, wait) = (poll.cursor, back_off.wait_s());
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
            tokio::time::sleep(poll.rate.take(Instant::now())).await;
            poll.cursor = poll.cursor.max(envelope.cursor);
            let (id, bytes) = (envelope.id, envelope.envelope.to_bytes());
            self.bring(DeskRequest::Envelope { id, bytes, verdicts: verdicts.clone() }).await?;
        }
        if offered == floor.generation || poll.refused.is_some_and(|(known, _)| known == offered) {
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
        if offered < floor.generation {
            let why =
                format!("the hub offers generation {offered}, and {} was taken", floor.generation);
            return refuse(poll, refusal_of(offered, ReasonCode::GenerationRollback, why));
        }
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
        let (answer, judged) = oneshot::channel();
        self.bring(DeskRequest::Document { offered: Box::new(document), answer }).await?;
        match judged.await.map_err(|_| Ended)? {
            DocumentAnswer::Taken(_) | DocumentAnswer::InEffect(_) => {
                poll.refused = None;
                self.view.refused(None);
                Ok(Ok(()))
            }
            DocumentAnswer::Refused(refused) => refuse(poll, refused),
        }
    }

    async fn report_for_ever(
        &self,
        mut verdict: mpsc::UnboundedReceiver<EnvelopeVerdict>,
        mut progress: Option<broadcast::Receiver<Progress>>,
    ) -> Result<(), Ended> {
        let mut memory = ReportMemory::default();
        let mut numbers = ReportNumbers::default();
        let mut back_off = BackOff::default();
        // The head that the hub is known to keep, in this life.
        let mut kept_head = None;
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            while let Ok(verdict) = verdict.try_recv() {
                memory.verdict(verdict);
            }
            self.take_progress(progress.as_mut(), &mut memory);
            let (now, head) = self.now(kept_head).await?;
            let Some(mut report) = memory.news(now) else { continue };
            let sent =
                self.send_pages(&mut report.pages, report.whole, &mut numbers, &mut back_off);
            match sent.await? {
                PagesSent::Kept => {
                    memory.kept(report);
                    kept_head = head.or(kept_head);
                }
                PagesSent::Resync => memory.forget(),
            }
        }
    }

    /// Sends pages until the hub keeps them all, each byte for byte until it is answered.
    async fn send_pages(
        &self,
        pages: &mut std::collections::VecDeque<HostReport>,
        whole: bool,
        numbers: &mut ReportNumbers,
        back_off: &mut BackOff,
    ) -> Result<PagesSent, Ended> {
        let mut base = if whole { 0 } else { numbers.kept };
        while let Some(page) = pages.pop_front() {
            numbers.seq += 1;
            let body = page.to_bytes();
            let Ok(request) = self.report_request(body, numbers.seq, base) else {
                tracing::error!("a report to the hub could not be signed");
                return Ok(PagesSent::Resync);
            };
            loop {
                let trouble = match self.answer(request.clone()).await {
                    Ok((200, _)) => break,
                    Ok((409, _)) => return Ok(PagesSent::Resync),
                    // It will not be read however often it comes.
                    Ok((status @ (400 | 413 | 422), body)) => {
                        let (_, why) = unexpected(status, &body);
                        tracing::error!(why, "the hub does not take a report");
                        tokio::time::sleep(REFUSED_AGAIN).await;
                        return Ok(PagesSent::Resync);
                    }
                    Ok((status, body)) => unexpected(status, &body),
                    Err(trouble) => trouble,
                };
                if self.desk.is_closed() {
                    return Err(Ended);
                }
                self.view.trouble(&trouble.1);
                tokio::time::sleep(back_off.pause(trouble.0, self.ambient.random())).await;
            }
            back_off.succeeded();
            self.view.heard(self.ambient.now());
            numbers.kept = numbers.seq;
            base = numbers.seq;
        }
        Ok(PagesSent::Kept)
    }

    /// How the host stands now, and the head that goes out with it.
    async fn now(
        &self,
        kept_head: Option<JournalHead>,
    ) -> Result<(ReportedNow, Option<JournalHead>), Ended> {
        let read = self.journal.read(|state, head| JournalPicture {
            floor: memory::floor(state),
            head: memory::head_of(state, head),
            told: memory::told(state),
            epoch: memory::epoch(state),
            pending: waiting(state)
                .into_iter()
                .filter_map(|(id, (_, kept))| {
                    let text = String::from_utf8(kept.envelope.0).ok()?;
                    Some((id, SealedText::of(&text).ok()?))
                })
                .collect(),
        });
        let journal = read.await.map_err(|_| Ended)?;
        let head = self.head_to_tell(&journal, kept_head).await?;
        let mut picture = (self.picture)();
        picture.generation = journal.floor.map(|floor| GenerationState {
            number: floor.generation,
            manifest: floor.manifest,
            signer: floor.signer.map(|name| name.to_string()),
        });
        picture.refused = self.view.health().refused;
        let sealed = head.and_then(|head| self.sealed_head(head).ok());
        let at = self.ambient.now().to_string();
        Ok((ReportedNow { picture, pending: journal.pending, head: sealed, at }, head))
    }

    /// The head that goes out now: one that was sent and not answered, or a new one, which is written down first. None
    /// before the anchor is known: it would take the place of what it must be held against.
    async fn head_to_tell(
        &self,
        journal: &JournalPicture,
        kept_head: Option<JournalHead>,
    ) -> Result<Option<JournalHead>, Ended> {
        let is_known = self.anchor.state() == AnchorState::Known;
        let Some(head) = journal.head.filter(|_| is_known && journal.epoch.rollback.is_none())
        else {
            return Ok(None);
        };
        let sent = journal.told.sent.filter(|sent| sent.epoch == head.epoch);
        match sent {
            Some(sent) if kept_head != Some(sent) => Ok(Some(sent)),
            // Nothing but our own record that it was told.
            Some(sent) if head.seq <= sent.seq + 1 => Ok(None),
            Some(_) | None => {
                let told = ToldHeads { acknowledged: sent, sent: Some(head) };
                match self.journal.append(Record::Kept(memory::told_record(told))).await {
                    Ok(_) => Ok(Some(head)),
                    Err(error) if error.is_fatal() => Err(Ended),
                    // On a full disk no head leaves: it could not be told from a rollback later.
                    Err(_) => Ok(None),
                }
            }
        }
    }

    fn sealed_head(&self, head: JournalHead) -> Result<SealedText, Refusal> {
        let LinkIdentity { hub_id, host, vouch, .. } = &self.identity;
        let statement = HeadStatement { hub_id: hub_id.clone(), host: host.clone(), head };
        let bytes = statement.to_bytes()?;
        let armoured = vouch(Namespace::Head, &bytes)?;
        SealedText::of(&Envelope::seal(&bytes, &[&armoured])?)
    }

    fn report_request(&self, body: Vec<u8>, seq: u64, base: u64) -> Result<HubRequest, Refusal> {
        let LinkIdentity { hub_id, host, instance, vouch, .. } = &self.identity;
        let statement = ReportStatement {
            hub_id: hub_id.clone(),
            host: host.clone(),
            instance: instance.clone(),
            seq,
            base,
            sha256: PayloadHash::of(&body),
        };
        let bytes = statement.to_bytes()?;
        let signature = armour::decode(&vouch(Namespace::Report, &bytes)?)?;
        Ok(HubRequest {
            method: HubMethod::Post,
            target: "/v1/agent/reports".to_owned(),
            headers: vec![
                ("evenkeel-statement", STANDARD.encode(&bytes)),
                ("evenkeel-signature", STANDARD.encode(&signature)),
            ],
            body,
            answer_max_bytes: REPORT_MAX,
            deadline: REQUEST_DEADLINE,
        })
    }

    /// Operations that began or ended since.
    fn take_progress(
        &self,
        progress: Option<&mut broadcast::Receiver<Progress>>,
        memory: &mut ReportMemory,
    ) {
        let Some(progress) = progress else { return };
        loop {
            let op = match progress.try_recv() {
                Ok(Progress::Started { op, guest, what }) => {
                    let kind = what.split(' ').next().unwrap_or_default().to_owned();
                    op_report(&op, &guest, kind, "started", what)
                }
                Ok(Progress::Ended(report)) => {
                    let why = match report.end.words() {
                        words if words.is_empty() => report.reasons.join(", "),
                        words => words,
                    };
                    op_report(
                        &report.op,
                        &report.guest,
                        report.kind.to_string(),
                        report.end.as_str(),
                        why,
                    )
                }
                Ok(Progress::Task { .. } | Progress::Waiting { .. })
                | Err(broadcast::error::TryRecvError::Lagged(_)) => continue,
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => {
                    return;
                }
            };
            memory.op(OpReport { at: self.ambient.now().to_string(), ..op });
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
        let (method, headers, body) = (HubMethod::Get, Vec::new(), Vec::new());
        self.answer(HubRequest { method, target, headers, body, answer_max_bytes, deadline }).await
    }

    /// One exchange, bounded here too: whatever carries it may hang.
    async fn answer(&self, request: HubRequest) -> Result<(u16, Vec<u8>), (LinkTrouble, String)> {
        let (max, deadline) = (request.answer_max_bytes, request.deadline);
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

/// What the journal says for a report.
struct JournalPicture {
    floor: Option<DocumentFloor>,
    head: Option<JournalHead>,
    told: ToldHeads,
    epoch: JournalEpoch,
    pending: BTreeMap<PendingId, SealedText>,
}

/// Where polling stands.
struct PollState {
    cursor: u64,
    cursor_since: Instant,
    /// The newest document that was refused, and when.
    refused: Option<(Generation, Instant)>,
    rate: EnvelopeRate,
}

impl PollState {
    fn new(now: Instant) -> Self {
        Self { cursor: 0, cursor_since: now, refused: None, rate: EnvelopeRate::new(now) }
    }

    /// What was refused may fit by now, and whose guest was busy may be free.
    fn forget_what_is_old(&mut self, now: Instant) {
        self.refused = self.refused.filter(|(_, at)| now < *at + REFUSED_AGAIN);
        if now >= self.cursor_since + ENVELOPES_AGAIN {
            (self.cursor, self.cursor_since) = (0, now);
        }
    }
}

/// The numbers of reports in this life.
#[derive(Default)]
struct ReportNumbers {
    seq: u64,
    kept: u64,
}

enum PagesSent {
    Kept,
    Resync,
}

fn op_report(
    op: &impl ToString,
    guest: &impl ToString,
    kind: String,
    state: &str,
    reason: String,
) -> OpReport {
    let (op, guest, state) = (op.to_string(), guest.to_string(), state.to_owned());
    OpReport { op, guest, kind, state, reason, ..OpReport::default() }
}

fn refusal_of(generation: Generation, reason: ReasonCode, why: String) -> RefusedGeneration {
    let (code, diagnostics) = (reason.to_string(), Vec::new());
    RefusedGeneration { generation, manifest: None, code, why, diagnostics }
}

fn nonsense(what: &str) -> (LinkTrouble, String) {
    (LinkTrouble::Connection, format!("the hub's answer to {what} makes no sense"))
}

/// A status that is no answer to what was asked; a redirect is one.
fn unexpected(status: u16, body: &[u8]) -> (LinkTrouble, String) {
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
