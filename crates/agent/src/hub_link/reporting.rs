//! How the hub is told: every few seconds the link looks whether there is news, signs it and sends it until it is kept.
//!
//! A head leaves only after the record that it leaves is on disk, and only once the anchor is known: it would take the place
//! of what it must be held against. Nothing is sent by a host at rest.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_core::fleet::{
    DocumentFloor, EnvelopeVerdict, Generation, GenerationState, HeadStatement, HostReport,
    JournalHead, ReportStatement, SealedText, VerdictStatement,
};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{Envelope, Namespace, PayloadHash, PendingId, armour};
use tokio::sync::mpsc;

use super::desk::JudgedEnvelope;
use super::exchange::{HubMethod, HubRequest};
use super::history::ToldHistory;
use super::limits::BackOff;
use super::link::{Ended, HubLink, LinkIdentity, REFUSED_AGAIN, REQUEST_DEADLINE, unexpected};
use super::memory::{self, JournalEpoch, ToldHeads};
use super::report_memory::{ReportMemory, ReportedNow};
use crate::engine::{AnchorState, waiting};
use crate::journal::{Record, Seq};

/// How often it is looked whether there is news.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// The largest answer to a report: a word.
const REPORT_MAX: usize = 64 << 10;

impl HubLink {
    pub(super) async fn report_for_ever(
        &self,
        mut judged: mpsc::UnboundedReceiver<JudgedEnvelope>,
    ) -> Result<(), Ended> {
        let mut memory = ReportMemory::default();
        let mut numbers = ReportNumbers::default();
        let mut back_off = BackOff::default();
        // The head that the hub is known to keep, in this life.
        let mut kept_head = None;
        // The newest record whose story is told or waits to be; none before the first look.
        let mut told_upto = None;
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            while let Ok(judged) = judged.try_recv() {
                memory.verdict(self.sealed_verdict(judged));
            }
            let journal = self.journal_picture().await?;
            self.take_history(&journal, &mut told_upto, &mut memory).await;
            let (now, head) = self.now(journal, kept_head, memory.history_fits()).await?;
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
        pages: &mut VecDeque<HostReport>,
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

    async fn journal_picture(&self) -> Result<JournalPicture, Ended> {
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
        read.await.map_err(|_| Ended)
    }

    /// What the journal tells that was not told yet. At the beginning of a life that is what is behind the head which the hub
    /// is known to keep: everything before it went out with it.
    async fn take_history(
        &self,
        journal: &JournalPicture,
        told_upto: &mut Option<u64>,
        memory: &mut ReportMemory,
    ) {
        let (Some(source), Some(head)) = (self.history.clone(), journal.head) else { return };
        let kept = journal.told.acknowledged.map_or(0, |head| head.seq);
        let after = told_upto.unwrap_or(kept);
        if head.seq <= after {
            return;
        }
        // Files are read beside the loop.
        match tokio::task::spawn_blocking(move || source(Seq(after))).await {
            Ok(Ok(ToldHistory { ops, decisions, upto })) => {
                memory.history(ops, decisions);
                *told_upto = Some(upto.max(head.seq));
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the hub is not told what happened: the journal cannot be read");
                *told_upto = Some(head.seq);
            }
            // The agent goes down.
            Err(_) => {}
        }
    }

    /// How the host stands now, and the head that goes out with it: none while something before it waits for another report.
    async fn now(
        &self,
        journal: JournalPicture,
        kept_head: Option<JournalHead>,
        history_fits: bool,
    ) -> Result<(ReportedNow, Option<JournalHead>), Ended> {
        let head = if history_fits { self.head_to_tell(&journal, kept_head).await? } else { None };
        let mut picture = (self.picture)();
        picture.generation = journal.floor.map(|floor| match floor.in_effect() {
            None => GenerationState { number: Generation::NONE, manifest: None, signer: None },
            Some(document) => GenerationState {
                number: document.generation,
                manifest: Some(document.manifest),
                signer: document.signer.as_ref().map(ToString::to_string),
            },
        });
        picture.refused = self.view.health().refused;
        let sealed = head.and_then(|head| self.sealed_head(head).ok());
        // What could not be signed was not told.
        let head = head.filter(|_| sealed.is_some());
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
        let is_known = match self.anchor.state() {
            AnchorState::Known | AnchorState::Doubted => true,
            AnchorState::NoHub
            | AnchorState::Asking
            | AnchorState::Unreachable
            | AnchorState::Withheld => false,
        };
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

    /// The verdict with the same under the host's key. One that cannot be sealed is told all the same, and reads as unverified.
    fn sealed_verdict(&self, judged: JudgedEnvelope) -> EnvelopeVerdict {
        let LinkIdentity { hub_id, host, .. } = &self.identity;
        let JudgedEnvelope { verdict, payload } = judged;
        let statement = VerdictStatement::of(hub_id.clone(), host.clone(), payload, &verdict);
        let sealed =
            statement.to_bytes().and_then(|bytes| self.sealed_by_host(Namespace::Verdict, &bytes));
        EnvelopeVerdict { sealed: sealed.ok(), ..verdict }
    }

    fn sealed_head(&self, head: JournalHead) -> Result<SealedText, Refusal> {
        let LinkIdentity { hub_id, host, .. } = &self.identity;
        let statement = HeadStatement { hub_id: hub_id.clone(), host: host.clone(), head };
        self.sealed_by_host(Namespace::Head, &statement.to_bytes()?)
    }

    fn sealed_by_host(&self, namespace: Namespace, bytes: &[u8]) -> Result<SealedText, Refusal> {
        let armoured = (self.identity.vouch)(namespace, bytes)?;
        SealedText::of(&Envelope::seal(bytes, &[&armoured])?)
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
}

/// What the journal says for a report.
struct JournalPicture {
    floor: Option<DocumentFloor>,
    head: Option<JournalHead>,
    told: ToldHeads,
    epoch: JournalEpoch,
    pending: BTreeMap<PendingId, SealedText>,
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
