//! How approvals and requests come in: from an operator, by whatever hands. Nobody on the way is trusted.
//!
//! ```text
//!   envelope ─> signature, role, host, nonce, time ─> the item it approves ─> its guest's lane ─> judged again
//! ```
//!
//! What is refused here is refused early, so that a person hears it at once; what counts is said in the lane.

use std::collections::BTreeMap;

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::actual::PRESENT;
use evenkeel_core::classify::{self, Class, Target, classify, never_written};
use evenkeel_core::destroy::Destroy;
use evenkeel_core::id::{GuestId, OperationId};
use evenkeel_core::identity_proof::TaskListMark;
use evenkeel_core::lane::{Job, Refusal as LaneRefusal};
use evenkeel_core::operation::Provenance;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{
    Act, Decision, Envelope, Expected, Found, HostBinding, Namespace, OpResult, PayloadHash,
    PendingId, PendingItem, Statement, TrustVersion, authorise, statement_of,
};
use futures_util::future::FutureExt as _;
use serde_json::json;

use super::court::Court;
use super::error::Fatal;
use super::gate::signed::{SignedOrder, detached_volume};
use super::pending::{self, RaisedBy, Waiting, Wanted, waiting};
use super::report::{End, OpReport};
use super::{Engine, Hands, signed};
use crate::journal::{Kept, Record, Subject};
use crate::observe::{observe_guest, observe_snapshots};
use crate::queue::Work;

/// What became of an approval that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// It is in its guest's lane; `Event::Op` of this name tells the end.
    Accepted(OperationId),
    /// This very statement was executed before, or is being executed.
    Replay {
        /// The first one's op.
        op: OperationId,
        /// How that stands.
        result: OpResult,
    },
    /// The signers are these from now on; whatever was outstanding is void.
    Rotated(TrustVersion),
    /// No.
    Refused(Refusal),
}

impl Engine {
    /// Takes an approval, or refuses it. The same statement may come in any number of times, at once or later.
    pub async fn submit_approval(&mut self, bytes: &[u8]) -> Result<Submitted, Fatal> {
        let Some(court) = self.hands.court.clone() else {
            return Ok(Submitted::Refused(no_signers()));
        };
        if let Ok(envelope) = Envelope::parse(bytes)
            && let Some(Namespace::Rotate | Namespace::Recover) = envelope.claimed_namespace()
        {
            return self.rotate(court, bytes).await;
        }
        let judged = self.judge_early(&court, bytes).await?;
        let order = match judged {
            Ok(order) => order,
            Err(Submitted::Refused(refusal)) => {
                self.note(bytes, &refusal).await?;
                return Ok(Submitted::Refused(refusal));
            }
            Err(other) => return Ok(other),
        };
        let (nonce, payload) = (order.statement.nonce, order.envelope.payload_hash());
        match self.signed.get(&nonce) {
            Some((op, first)) if *first == payload => {
                return Ok(Submitted::Replay { op: *op, result: OpResult::InFlight });
            }
            Some((op, _)) => {
                let why = format!("its nonce is being spent on another statement by {op}");
                let refusal = Refusal::new(ReasonCode::NonceConflict, why);
                note_refusal(&self.hands, bytes, &refusal).await?;
                return Ok(Submitted::Refused(refusal));
            }
            None => {}
        }
        let (op, guest) = (self.hands.new_operation(), order.item.guest);
        let report = OpReport {
            op,
            guest,
            kind: order.item.op,
            reasons: vec![format!("signed: {}", order.statement.reason)],
            end: End::Skipped,
            upid: None,
            started: 0,
        };
        let hands = self.hands.clone();
        let work: Work<_> =
            Box::new(move |turn| signed::run(hands, court, op, order, turn).boxed());
        let job = Job { op, target: guest.vmid, source: None, storage: None };
        match self.queue.submit(guest.vmid, vec![(job, work)])? {
            Ok(()) => {
                self.signed.insert(nonce, (op, payload));
                self.submitted.insert(op, (None, report));
                Ok(Submitted::Accepted(op))
            }
            Err(refusal) => Ok(Submitted::Refused(busy(&refusal))),
        }
    }

    /// Everything that waits for a signature.
    pub async fn pending(&self) -> Result<BTreeMap<PendingId, (PendingItem, Waiting)>, Fatal> {
        self.hands.journal.read(|state, _| waiting(state)).await.map_err(Fatal::Journal)
    }

    /// Raises an item for an act nobody declared. Missing parameters are filled in from the guest as it is.
    pub async fn request(
        &mut self,
        op: ActionKind,
        guest: GuestId,
        params: BTreeMap<String, String>,
    ) -> Result<Result<PendingId, Refusal>, Fatal> {
        let Some(court) = self.hands.court.clone() else {
            return Ok(Err(no_signers()));
        };
        let hands = self.hands.clone();
        self.meanwhile(async move { request(&hands, &court, op, guest, params).await }).await?
    }

    /// Changes the signers. Acts being judged finish first; none is judged between the old list and the new one.
    async fn rotate(&mut self, court: Court, bytes: &[u8]) -> Result<Submitted, Fatal> {
        let (hands, exact) = (self.hands.clone(), bytes.to_vec());
        let rotation = async move {
            let mut authority = court.authority.write().await;
            let reading = hands.reading().await?;
            let accepted = match authority.accept(&exact, &reading, court.policy.limits()) {
                Ok(accepted) => accepted,
                Err(refusal) => return Ok(Submitted::Refused(refusal)),
            };
            if let Err(error) = hands.begin(Record::Kept(accepted.record)).await? {
                let refusal = Refusal::new(ReasonCode::Storage, error.to_string());
                return Ok(Submitted::Refused(refusal));
            }
            *authority = accepted.authority;
            Ok(Submitted::Rotated(authority.version().unwrap_or(TrustVersion(0))))
        };
        let submitted: Submitted = self.meanwhile::<Result<_, Fatal>>(rotation).await??;
        if let Submitted::Refused(refusal) = &submitted {
            self.note(bytes, refusal).await?;
        }
        Ok(submitted)
    }

    async fn note(&mut self, bytes: &[u8], refusal: &Refusal) -> Result<(), Fatal> {
        tracing::warn!(%refusal, "an approval was refused");
        if self.refusals.may_write(self.hands.ambient.now()) {
            note_refusal(&self.hands, bytes, refusal).await?;
        }
        Ok(())
    }

    /// Signature, role, host, nonce, trust and time as they stand now, and the item that is meant.
    async fn judge_early(
        &self,
        court: &Court,
        bytes: &[u8],
    ) -> Result<Result<SignedOrder, Submitted>, Fatal> {
        let refused = |refusal| Ok(Err(Submitted::Refused(refusal)));
        let envelope = match Envelope::parse(bytes) {
            Ok(envelope) => envelope,
            Err(refusal) => return refused(refusal),
        };
        let authority = court.authority.read().await.clone();
        let Some(trust) = authority.trust() else {
            return refused(no_signers());
        };
        let reading = self.hands.reading().await?;
        let statement = match statement_of(&envelope, trust, reading.now) {
            Ok(statement) => statement,
            Err(refusal) => return refused(refusal),
        };
        let nonce = statement.nonce;
        let asked =
            self.hands.journal.read(move |state, _| (state.ledger().spent(&nonce), waiting(state)));
        let (spent, items) = asked.await.map_err(Fatal::Journal)?;
        // As if the world were what was signed: what the world is, is asked in the lane.
        let act = as_signed(authority.host(), &statement);
        let limits = court.policy.limits();
        match authorise(&envelope, &act, trust, &reading, &spent, limits) {
            Decision::Allowed(_) => {}
            Decision::Replay { op, result } => return Ok(Err(Submitted::Replay { op, result })),
            Decision::Refused(refusal) => return refused(refusal),
        }
        match approved_item(&statement, items) {
            Ok((id, item, mark)) => Ok(Ok(SignedOrder { envelope, statement, id, item, mark })),
            Err(refusal) => refused(refusal),
        }
    }
}

fn no_signers() -> Refusal {
    Refusal::new(ReasonCode::UnknownSigner, "nobody is enrolled on this host")
}

fn busy(refusal: &LaneRefusal) -> Refusal {
    let why = match refusal {
        LaneRefusal::Busy(busy) => format!("the guest is busy with {}; nothing was spent", busy.op),
        LaneRefusal::TooMany => "the guest's lane is full".to_owned(),
        LaneRefusal::ShuttingDown => "the agent is going down".to_owned(),
    };
    Refusal::new(ReasonCode::Busy, why)
}

fn as_signed(host: &HostBinding, statement: &Statement) -> Act {
    let found = match &statement.expected {
        Expected::Guest { identity, digest } => {
            Found::Guest { identity: *identity, digest: digest.clone() }
        }
        Expected::Free => Found::Free,
    };
    Act {
        op: statement.op,
        host: host.clone(),
        guest: statement.guest,
        found,
        params: statement.params.clone(),
        item: statement.item,
    }
}

/// The item a statement approves: the one it names, if that waits here and says the same. A guest that is made again and
/// looks the same gets an item that says the same under another name; who signed for the former one has not seen it.
fn approved_item(
    statement: &Statement,
    mut items: BTreeMap<PendingId, (PendingItem, Waiting)>,
) -> Result<(PendingId, PendingItem, TaskListMark), Refusal> {
    let same_act = |item: &PendingItem| item.op == statement.op && item.guest == statement.guest;
    if let Some((item, waiting)) = items.remove(&statement.item) {
        if same_act(&item) && item.params == statement.params && item.expected == statement.expected
        {
            return Ok((statement.item, item, waiting.anchor));
        }
        let why = "the item it names says otherwise";
        return Err(Refusal::new(ReasonCode::Stale, why));
    }
    Err(if items.values().any(|(item, _)| same_act(item)) {
        let why = "the item it approves was replaced by another; look at that one and sign it";
        Refusal::new(ReasonCode::Stale, why)
    } else {
        Refusal::new(ReasonCode::NotPending, "nothing waits here that this approves")
    })
}

async fn request(
    hands: &Hands,
    court: &Court,
    op: ActionKind,
    id: GuestId,
    params: BTreeMap<String, String>,
) -> Result<Result<PendingId, Refusal>, Fatal> {
    let guest = match observe_guest(&hands.client, id).await {
        Ok(guest) => guest,
        Err(error) => {
            return Ok(Err(Refusal::new(ReasonCode::IdentityUnproven, error.to_string())));
        }
    };
    let params = match filled(hands, op, &guest, params).await {
        Ok(params) => params,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(why) = never_written(&guest, &params) {
        return Ok(Err(Refusal::new(ReasonCode::NotExecutable, why)));
    }
    let intent = classify::Intent {
        op: op.as_str(),
        kind: id.kind,
        params: &params,
        target: Target::Seen(&guest),
    };
    if classify(&intent, &Provenance::none()).class != Class::Destructive {
        let why = "it needs no signature: declare it in the desired files";
        return Ok(Err(Refusal::new(ReasonCode::NotPending, why)));
    }
    let wanted = match Wanted::of(op, params, &guest) {
        Ok(wanted) => wanted,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let known = hands.journal.read(|state, _| waiting(state)).await.map_err(Fatal::Journal)?;
    let version = pending::version(court).await;
    if let Some((id, _)) = known.iter().find(|(_, (item, _))| wanted.is(item, version)) {
        return Ok(Ok(*id));
    }
    pending::raise(hands, court, &wanted, RaisedBy::Request).await
}

/// Every parameter spelled out: an operator signs no default.
async fn filled(
    hands: &Hands,
    op: ActionKind,
    guest: &evenkeel_core::actual::Guest,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut params = match op {
        ActionKind::Destroy => Destroy::of(guest).params(),
        ActionKind::Rollback => [("start".to_owned(), "0".to_owned())].into(),
        ActionKind::DeleteSnapshot => [("force".to_owned(), "0".to_owned())].into(),
        ActionKind::SetConfig | ActionKind::DeleteVolume => BTreeMap::new(),
        ActionKind::WipeStorage | ActionKind::Decommission => {
            return Err(Refusal::new(
                ReasonCode::NotExecutable,
                format!("evenkeel never does a {op}"),
            ));
        }
        ActionKind::Start
        | ActionKind::Shutdown
        | ActionKind::Stop
        | ActionKind::Resize
        | ActionKind::Create
        | ActionKind::Clone
        | ActionKind::Restore
        | ActionKind::Snapshot
        | ActionKind::MoveVolume
        | ActionKind::Migrate
        | ActionKind::Template => {
            let why = format!("{op} is not requested by hand: declare it in the desired files");
            return Err(Refusal::new(ReasonCode::NotExecutable, why));
        }
    };
    params.extend(given);
    if let ActionKind::Rollback | ActionKind::DeleteSnapshot = op {
        let name = params.get("snapname").cloned().unwrap_or_default();
        let points = observe_snapshots(&hands.client, guest.id).await;
        let points = points
            .map_err(|error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string()))?;
        let point = points.iter().find(|point| point.name == name && name != PRESENT);
        let Some(at) = point.and_then(|point| point.taken_at) else {
            return Err(Refusal::new(
                ReasonCode::Payload,
                format!("there is no snapshot `{name}`"),
            ));
        };
        params.insert("snaptime".to_owned(), at.0.to_string());
    }
    if op == ActionKind::DeleteVolume {
        let slot = params.get("slot").cloned().unwrap_or_default();
        let volume = detached_volume(guest, &slot).ok_or_else(|| {
            Refusal::new(ReasonCode::Payload, format!("`{slot}` holds no detached volume"))
        })?;
        params.insert("volume".to_owned(), volume);
    }
    Ok(params)
}

/// Refusals that are written down in an hour. A flood of forged approvals must not fill the disk; the log has all of
/// them.
const REFUSALS_PER_HOUR: u32 = 60;

/// Refusals the journal keeps; the oldest make room.
const REFUSALS_KEPT: usize = 128;

/// Keys of decisions about approvals begin so.
const APPROVAL: &str = "approval ";

/// How many refusals were written down lately.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    hour: i64,
    written: u32,
}

impl Refusals {
    /// Whether one more may be written at this moment.
    fn may_write(&mut self, at: jiff::Timestamp) -> bool {
        let hour = at.as_second() / 3_600;
        if self.hour != hour {
            *self = Self { hour, written: 0 };
        }
        self.written += 1;
        self.written <= REFUSALS_PER_HOUR
    }
}

/// Writes down that an approval was refused, once for the same bytes and reason.
pub(super) async fn note_refusal(
    hands: &Hands,
    bytes: &[u8],
    refusal: &Refusal,
) -> Result<(), Fatal> {
    let key = format!("{APPROVAL}{}", PayloadHash::of(bytes));
    let at = hands.ambient.now().to_string();
    let value =
        json!({ "op": "approval", "reason": refusal.reason, "why": refusal.detail, "at": at });
    let (reason, asked) = (refusal.reason, key.clone());
    let kept = hands.journal.read(move |state, _| {
        let about = state.kept(Subject::Decision).filter(|(key, _)| key.starts_with(APPROVAL));
        let known: Vec<(String, String, bool)> = about
            .map(|(key, kept)| {
                let at = kept.value["at"].as_str().unwrap_or_default().to_owned();
                let same = key == asked && kept.value["reason"] == json!(reason);
                (at, key.to_owned(), same)
            })
            .collect();
        known
    });
    let mut known = kept.await.map_err(Fatal::Journal)?;
    if known.iter().any(|(_, _, same)| *same) {
        return Ok(());
    }
    known.sort();
    let room = known.len().saturating_sub(REFUSALS_KEPT - 1);
    let over = known.into_iter().take(room).map(|(_, key, _)| Kept::remove(Subject::Decision, key));
    for kept in over.chain([Kept::put(Subject::Decision, key, 1, value)]) {
        // Nothing rests on it: on a nearly full disk it is left out.
        hands.begin(Record::Kept(kept)).await?.ok();
    }
    Ok(())
}
