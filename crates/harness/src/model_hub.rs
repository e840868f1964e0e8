//! The hub of a run: a few maps in memory that speak the link's shapes, honest or not.
//!
//! It keeps what a hub keeps (documents, envelopes until their verdict, the host's newest head, the last report), can be put
//! back to a backup of it, and misbehaves as the run tells it. Whatever reaches it is shown to the oracle first: a host
//! must not tell what is not on its disk. It never helps the agent, and no answer of it depends on anything but the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_agent::hub_link::{HubExchange, HubFailure, HubFuture, HubOutcome, HubRequest};
use evenkeel_core::fleet::{
    AnchorAnswer, EnvelopeId, EnvelopeVerdict, Generation, HeadStatement, HostReport, HubId,
    JournalHead, PayloadHash, PollAnswer, ReportAnswer, ReportStatement, SealedText,
    WaitingEnvelope,
};
use evenkeel_core::sign::{Namespace, PublicKey, SshSig, TrustVersion};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::forged_document::DocumentForger;
use crate::operator::Operator;
use crate::oracle::Oracle;
use crate::rig::Rig;
use evenkeel_testkit::dice::Dice;

/// The most envelopes in an honest answer.
const ENVELOPES_MAX: usize = 8;

/// A poll, a document, a report and an anchor, of an agent that is started anew several times.
const ASKED_PER_SECOND_MAX: u32 = 40;

/// The hub of every run.
pub(crate) fn hub_id() -> HubId {
    "0123456789abcdef0123456789abcdef".parse().expect("it is the name of a hub")
}

/// How the hub behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HubManner {
    Honest,
    /// Nobody listens.
    Gone,
    /// It takes a request and never answers.
    Hangs,
    /// It does what it is asked, and the answer is lost.
    LosesAnswers,
    /// It dies before it has kept what it is told.
    LosesRequests,
    /// It answers what makes no sense.
    Garbage,
    /// It answers every poll at once.
    Floods,
    /// It offers numbers and documents that are not what an author meant for this host now.
    ForgesDocuments,
    /// It brings envelopes again, in any order, under any cursor and name.
    RepeatsEnvelopes,
    /// It says something else about the journal than what it was told.
    LiesAboutHead,
}

impl HubManner {
    /// What an unfriendly hub does.
    pub(crate) const HOSTILE: [Self; 11] = [
        Self::Gone,
        Self::Hangs,
        Self::LosesAnswers,
        Self::LosesRequests,
        Self::Garbage,
        Self::Floods,
        Self::ForgesDocuments,
        Self::ForgesDocuments,
        Self::RepeatsEnvelopes,
        Self::RepeatsEnvelopes,
        Self::LiesAboutHead,
    ];
}

/// What a hub keeps, and loses when a backup is put back.
#[derive(Debug, Clone, Default)]
struct KeptState {
    documents: BTreeMap<u64, Vec<u8>>,
    newest: u64,
    /// The generation that the host says is in effect.
    reported: u64,
    envelopes: Vec<WaitingEnvelope>,
    verdicts: BTreeSet<EnvelopeId>,
    head: Option<(JournalHead, SealedText)>,
    last_report: Option<(String, u64)>,
}

#[derive(Debug)]
struct ModelState {
    kept: KeptState,
    backup: Option<KeptState>,
    manner: HubManner,
    /// Whether a host's newest head may ever be withheld: where disks are put back, nobody else knows it.
    withholds_heads: bool,
    /// Every head that was ever told.
    heads: Vec<SealedText>,
    /// Pushes that it said it refused, by the number that it had asked for.
    kept_back: BTreeMap<u64, Vec<u8>>,
    /// Every envelope that was ever handed in.
    envelopes_ever: Vec<SealedText>,
    /// What verdicts said, to be taken by the run.
    verdicts: Vec<EnvelopeVerdict>,
    forger: DocumentForger,
    dice: Dice,
    oracle: Oracle,
    host_key: PublicKey,
    /// When the last second began in which it was asked, and how often it was.
    hurry: (Instant, u32),
}

/// The hub; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct ModelHub(Arc<(Mutex<ModelState>, Notify)>);

impl ModelHub {
    pub(crate) fn new(
        dice: Dice,
        forger: DocumentForger,
        oracle: Oracle,
        host_key: PublicKey,
        withholds_heads: bool,
    ) -> Self {
        let state = ModelState {
            kept: KeptState::default(),
            backup: None,
            manner: HubManner::Honest,
            withholds_heads,
            heads: Vec::new(),
            kept_back: BTreeMap::new(),
            envelopes_ever: Vec::new(),
            verdicts: Vec::new(),
            forger,
            dice,
            oracle,
            host_key,
            hurry: (Instant::now(), 0),
        };
        Self(Arc::new((Mutex::new(state), Notify::new())))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut ModelState) -> T) -> T {
        let state: &mut MutexGuard<'_, ModelState> =
            &mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        use_it(state)
    }

    /// From now on it behaves so. Whoever waits for an answer loses the connection.
    pub(crate) fn behaves(&self, manner: HubManner) {
        self.with(|state| state.manner = manner);
        self.0.1.notify_waiters();
    }

    /// The number of the next document: above everything the hub has, or was told.
    pub(crate) fn next_generation(&self) -> u64 {
        self.with(|state| state.kept.newest.max(state.kept.reported) + 1)
    }

    /// Somebody pushed a document.
    pub(crate) fn push(&self, generation: u64, bytes: Vec<u8>) {
        self.with(|state| {
            state.kept.documents.insert(generation, bytes);
            state.kept.newest = generation;
        });
        self.0.1.notify_waiters();
    }

    /// Somebody pushed a document, and was told that it was refused.
    pub(crate) fn keep_back(&self, generation: u64, bytes: Vec<u8>) {
        self.with(|state| state.kept_back.insert(generation, bytes));
    }

    /// Somebody handed in an envelope; its name, if it is one at all.
    pub(crate) fn queue(&self, envelope: &str) -> Option<EnvelopeId> {
        let envelope = SealedText::of(envelope).ok()?;
        let id = self.with(|state| {
            let id = state.fresh_name();
            state.envelopes_ever.push(envelope.clone());
            let cursor = state.kept.envelopes.last().map_or(0, |last| last.cursor) + 1;
            state.kept.envelopes.push(WaitingEnvelope { cursor, id: id.clone(), envelope });
            id
        });
        self.0.1.notify_waiters();
        Some(id)
    }

    /// A backup is made.
    pub(crate) fn back_up(&self) {
        self.with(|state| state.backup = Some(state.kept.clone()));
    }

    /// The last backup is put back, if there is one.
    pub(crate) fn put_back(&self) -> bool {
        let is_back = self.with(|state| {
            let Some(backup) = state.backup.clone() else { return false };
            let head = state.kept.head.take();
            state.kept = backup;
            if !state.withholds_heads {
                state.kept.head = head;
            }
            true
        });
        self.0.1.notify_waiters();
        is_back
    }

    /// The newest head that the host told.
    pub(crate) fn head(&self) -> Option<JournalHead> {
        self.with(|state| state.kept.head.as_ref().map(|(head, _)| *head))
    }

    /// What the host said about envelopes, taken.
    pub(crate) fn take_verdicts(&self) -> Vec<EnvelopeVerdict> {
        self.with(|state| std::mem::take(&mut state.verdicts))
    }

    /// Makes documents, also for who is honest.
    pub(crate) fn forger<T>(&self, use_it: impl FnOnce(&mut DocumentForger) -> T) -> T {
        self.with(|state| use_it(&mut state.forger))
    }

    async fn answer(&self, request: HubRequest) -> HubOutcome {
        let manner = self.with(|state| {
            state.count();
            state.manner
        });
        let lost = || HubOutcome::Failed(HubFailure::Lost("it was reset".to_owned()));
        match manner {
            HubManner::Gone => HubOutcome::Failed(HubFailure::Connect("refused".to_owned())),
            HubManner::Hangs => std::future::pending().await,
            HubManner::LosesRequests => lost(),
            HubManner::Garbage => self.with(|state| state.garbage(&request)),
            HubManner::LosesAnswers => {
                self.carry_out(&request).await;
                lost()
            }
            HubManner::Honest
            | HubManner::Floods
            | HubManner::ForgesDocuments
            | HubManner::RepeatsEnvelopes
            | HubManner::LiesAboutHead => self.carry_out(&request).await,
        }
    }

    async fn carry_out(&self, request: &HubRequest) -> HubOutcome {
        if let Some(query) = request.target.strip_prefix("/v1/agent/poll?") {
            return self.polled(query).await;
        }
        if let Some(number) = request.target.strip_prefix("/v1/agent/documents/") {
            let number = number.parse().unwrap_or(0);
            return self.with(|state| state.document(number));
        }
        match request.target.as_str() {
            "/v1/agent/anchor" => self.with(ModelState::anchor),
            "/v1/agent/reports" => self.with(|state| state.reported(request)),
            other => {
                self.with(|state| {
                    state.oracle.broke(format!("a host asks a hub for {other}"));
                });
                HubOutcome::Answered { status: 404, body: Vec::new() }
            }
        }
    }

    async fn polled(&self, query: &str) -> HubOutcome {
        let number = |name: &str| -> u64 {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let found = pairs.into_iter().find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        let generation = number("generation");
        let cursor = number("cursor");
        let until = Instant::now() + Duration::from_secs(number("wait"));
        let manner = self.with(|state| state.manner);
        loop {
            let changed = self.0.1.notified();
            let answer = self.with(|state| state.poll_answer(generation, cursor));
            if let Some(answer) = answer {
                return answered(&answer);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => return self.with(|state| {
                    let newest = Generation(state.kept.newest);
                    // Put back to an old state itself, it is behind its host and says so, slowly.
                    if newest < Generation(generation) {
                        return answered(&PollAnswer { generation: newest, envelopes: Vec::new() });
                    }
                    HubOutcome::Answered { status: 204, body: Vec::new() }
                }),
            }
            if self.with(|state| state.manner) != manner {
                return HubOutcome::Failed(HubFailure::Lost("the hub went down".to_owned()));
            }
        }
    }
}

impl ModelState {
    /// Whatever it answers, it is not asked without end.
    fn count(&mut self) {
        let (began, asked) = &mut self.hurry;
        if began.elapsed() >= Duration::from_secs(1) {
            (*began, *asked) = (Instant::now(), 0);
        }
        *asked += 1;
        if *asked == ASKED_PER_SECOND_MAX {
            self.oracle.broke("(7) the hub is asked without end".to_owned());
        }
    }

    fn fresh_name(&mut self) -> EnvelopeId {
        let high = self.dice.any();
        let low = self.dice.any();
        format!("env_{high:016x}{low:016x}").parse().expect("it is the name of an envelope")
    }

    /// What there is for the host, if there is anything.
    fn poll_answer(&mut self, generation: u64, cursor: u64) -> Option<PollAnswer> {
        let verdicts = &self.kept.verdicts;
        let waits =
            |waiting: &&WaitingEnvelope| waiting.cursor > cursor && !verdicts.contains(&waiting.id);
        let waiting = self.kept.envelopes.iter().filter(waits).take(ENVELOPES_MAX);
        let envelopes: Vec<WaitingEnvelope> = waiting.cloned().collect();
        let newest = self.kept.newest;
        match self.manner {
            HubManner::ForgesDocuments => {
                // Two such steps and a disk that is put back leave a host behind for ever: root enrols it anew then.
                let step = if self.withholds_heads { 1 << 20 } else { 2 };
                let beside = generation.saturating_add(step);
                let near = [newest, generation, generation.saturating_add(1), newest + 1];
                let far = [0, 1, beside, beside.saturating_add(1), u64::MAX];
                let kept_back =
                    self.kept_back.range(generation..).next().map(|(number, _)| *number);
                let from: &[u64] = if self.dice.percent(70) { &near } else { &far };
                let generation = match kept_back.filter(|_| self.dice.percent(25)) {
                    Some(kept_back) => Generation(kept_back),
                    None => Generation(*self.dice.pick(from)),
                };
                Some(PollAnswer { generation, envelopes })
            }
            HubManner::RepeatsEnvelopes => Some(self.repeated(generation)),
            HubManner::Floods => {
                Some(PollAnswer { generation: Generation(newest), envelopes: Vec::new() })
            }
            HubManner::Honest
            | HubManner::Gone
            | HubManner::Hangs
            | HubManner::LosesAnswers
            | HubManner::LosesRequests
            | HubManner::Garbage
            | HubManner::LiesAboutHead => (newest > generation || !envelopes.is_empty())
                .then_some(PollAnswer { generation: Generation(newest), envelopes }),
        }
    }

    /// Whatever was ever handed in, in any order, more than may be, under old names and new ones.
    fn repeated(&mut self, generation: u64) -> PollAnswer {
        let mut envelopes = Vec::new();
        for _ in 0..self.dice.below(12).min(self.envelopes_ever.len() as u64 * 3) {
            let envelope = self.dice.pick(&self.envelopes_ever).clone();
            let known = self.kept.envelopes.iter().find(|known| known.envelope == envelope);
            let id = known.map(|known| known.id.clone()).filter(|_| self.dice.percent(50));
            let id = id.unwrap_or_else(|| self.fresh_name());
            let cursor = *self.dice.pick(&[0, 1, 2, 7, u64::MAX]);
            envelopes.push(WaitingEnvelope { cursor, id, envelope });
        }
        PollAnswer { generation: Generation(generation), envelopes }
    }

    fn document(&mut self, number: u64) -> HubOutcome {
        let body = if self.manner == HubManner::ForgesDocuments {
            let kept_back = self.kept_back.get(&number).cloned();
            let kept_back = kept_back.filter(|_| self.dice.percent(70));
            Some(kept_back.unwrap_or_else(|| self.forger.forge(&mut self.dice, number)))
        } else {
            self.kept.documents.get(&number).cloned()
        };
        let status = if body.is_some() { 200 } else { 404 };
        HubOutcome::Answered { status, body: body.unwrap_or_default() }
    }

    fn anchor(&mut self) -> HubOutcome {
        let true_head = self.kept.head.as_ref().map(|(_, sealed)| sealed.clone());
        if self.manner != HubManner::LiesAboutHead {
            return answered(&AnchorAnswer { head: true_head });
        }
        let forged = Some(forged_head(&mut self.dice, self.kept.head.as_ref()));
        let head = match self.dice.below(4) {
            0 if self.withholds_heads => None,
            1 if self.withholds_heads && !self.heads.is_empty() => {
                Some(self.dice.pick(&self.heads).clone())
            }
            _ => forged,
        };
        answered(&AnchorAnswer { head })
    }

    /// Keeps a report as a hub does, which reads nothing that the host did not sign.
    fn reported(&mut self, request: &HubRequest) -> HubOutcome {
        let (statement, report) = match self.read_report(request) {
            Ok(read) => read,
            Err(why) => {
                self.oracle.broke(format!("a hub cannot read what its host reports: {why}"));
                return HubOutcome::Answered { status: 422, body: Vec::new() };
            }
        };
        let told = (statement.instance.as_str().to_owned(), statement.seq);
        if self.kept.last_report.as_ref() == Some(&told) {
            return answered(&ReportAnswer { seq: statement.seq });
        }
        let last = self.kept.last_report.as_ref().filter(|(instance, _)| *instance == told.0);
        if statement.base != 0 && last.map(|(_, seq)| *seq) != Some(statement.base) {
            return HubOutcome::Answered { status: 409, body: Vec::new() };
        }
        self.kept.last_report = Some(told);
        if let Some(generation) = &report.generation {
            self.kept.reported = generation.number.0;
        }
        for verdict in report.verdicts {
            self.kept.verdicts.insert(verdict.envelope.clone());
            self.verdicts.push(verdict);
        }
        answered(&ReportAnswer { seq: statement.seq })
    }

    /// The report, shown to the oracle before anything is kept of it.
    fn read_report(
        &mut self,
        request: &HubRequest,
    ) -> Result<(ReportStatement, HostReport), String> {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(key, _)| *key == name);
            let value = found.map(|(_, value)| value.as_str()).unwrap_or_default();
            STANDARD.decode(value).map_err(|_| format!("{name} is no base64"))
        };
        let bytes = header("evenkeel-statement")?;
        let signature = header("evenkeel-signature")?;
        let signed = SshSig::from_blob(&signature)
            .and_then(|signature| signature.verify(&self.host_key, Namespace::Report, &bytes))
            .and_then(|_| ReportStatement::parse(&bytes));
        let statement = signed.map_err(|refusal| refusal.to_string())?;
        let is_ours = statement.hub_id == hub_id() && statement.host == Rig::host();
        if !is_ours || statement.sha256 != PayloadHash::of(&request.body) {
            return Err("it is signed for something else".to_owned());
        }
        let report = HostReport::read(&request.body).map_err(|error| error.to_string())?;
        let head = match &report.head {
            None => None,
            Some(sealed) => {
                let envelope = sealed.envelope().map_err(|refusal| refusal.to_string())?;
                let head = HeadStatement::verify(&envelope, &self.host_key)
                    .map_err(|refusal| refusal.to_string())?;
                Some((head.head, sealed.clone()))
            }
        };
        self.oracle.reported(&report, head.as_ref().map(|(head, _)| *head));
        if let Some((head, sealed)) = head {
            self.heads.push(sealed.clone());
            let order = |head: &JournalHead| (head.epoch, head.seq);
            if self.kept.head.as_ref().is_none_or(|(known, _)| order(known) < order(&head)) {
                self.kept.head = Some((head, sealed));
            }
        }
        Ok((statement, report))
    }

    fn garbage(&mut self, request: &HubRequest) -> HubOutcome {
        let status = *self.dice.pick(&[200, 200, 200, 204, 302, 401, 403, 404, 429, 500, 502, 503]);
        let bodies: [&[u8]; 8] = [
            b"",
            b"<html>",
            b"{}",
            b"null",
            b"{\"generation\":18446744073709551616}",
            b"{\"generation\":-1,\"envelopes\":[]}",
            b"{\"head\":{\"payload\":\"\",\"signatures\":[]}}",
            &[0xff; 300],
        ];
        let mut body = self.dice.pick(&bodies).to_vec();
        // Of the anchor an empty object is no nonsense: it says that no head was ever told.
        if body == b"{}" && request.target.ends_with("/anchor") && !self.withholds_heads {
            body.clear();
        }
        HubOutcome::Answered { status, body }
    }
}

/// A head that the host's journal never had: by another key, for another hub, or under another namespace.
fn forged_head(dice: &mut Dice, known: Option<&(JournalHead, SealedText)>) -> SealedText {
    let sum = PayloadHash([7; 32]);
    let first = JournalHead { epoch: 0, seq: 1, sum, trust_version: TrustVersion(0) };
    let head = known.map_or(first, |(head, _)| *head);
    let head = JournalHead { seq: head.seq + dice.below(1_000), sum, ..head };
    let statement = HeadStatement { hub_id: hub_id(), host: Rig::host(), head };
    let bytes = statement.to_bytes().expect("a head reads back");
    let sealed = Operator::new("mallory", 66).seal(Namespace::Head, &bytes);
    SealedText::of(&sealed).expect("what was just sealed is an envelope")
}

fn answered(value: &impl serde::Serialize) -> HubOutcome {
    let body = serde_json::to_vec(value).expect("texts and numbers can always be written as JSON");
    HubOutcome::Answered { status: 200, body }
}

impl HubExchange for ModelHub {
    fn exchange(&self, request: HubRequest) -> HubFuture<'_> {
        Box::pin(self.answer(request))
    }
}
