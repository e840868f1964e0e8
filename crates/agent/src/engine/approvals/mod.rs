//! How approvals and requests come in: from an operator, by whatever hands. Nobody on the way is trusted.
//!
//! ```text
//!   envelope ─> signature, role, host, nonce, time ─> the item it approves ─> its guest's lane ─> judged again
//! ```
//!
//! What is refused here is refused early, so that a person hears it at once; what counts is said in the lane.

pub(super) mod approval_context;
pub(super) mod collected;
pub(super) mod hub;
pub(super) mod pending;
pub(super) mod raise_again;
mod refusals;
mod requested;
pub(super) mod withdraw;
use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::gate::approval::approved_item;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::lane::LaneRefusal;
use evenkeel_core::sign::{
    Act, ApprovalDemand, Collected, Envelope, Expected, FoundGuest, HostBinding, JudgedBy,
    Namespace, OpResult, PendingId, PendingItem, RotationAuthority, Statement, TrustVersion,
    collect, statement_of,
};
use futures_util::future::{BoxFuture, FutureExt as _};

use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::pending::{KeptItem, waiting};
use crate::engine::error::{EngineError, Fatal};
use crate::engine::gate::Order;
use crate::engine::gate::approved::ApprovedOrder;
use crate::engine::gate::asked::AskedOrder;
use crate::engine::{Engine, EngineContext};
use crate::find_guest::{FindGuestError, find_guest};
use crate::journal::Record;
use crate::sometimes;

use refusals::{HUB_REFUSALS_PER_HOUR, REFUSALS_PER_HOUR};
pub(super) use refusals::{RefusalCount, note_refusal};
use requested::{RequestedAct, request};

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
    /// A rollback of the journal is known; this is the epoch that begins.
    Acknowledged(u64),
    /// Its signatures hold and are kept; more must come, and this says how many and whose are there.
    Collected(Refusal),
    /// The item ended by an operator's no.
    Denied(PendingId),
    /// No.
    Refused(Refusal),
}

/// What became of something that somebody asks for.
pub(crate) enum RequestTaken {
    /// It waits for a signature.
    Raised {
        /// Under this name.
        id: PendingId,
        /// To be done to this guest.
        guest: GuestId,
    },
    /// It needs none, and may go into its lane.
    MayRun(JudgedRequest),
}

/// Something that needs no signature and was found to make sense.
pub(crate) struct JudgedRequest(AskedOrder);

/// Why what somebody asks for is not taken.
pub(crate) enum RequestError {
    /// Nobody knows which guest is meant.
    Find(FindGuestError),
    /// It makes no sense, or the engine must end.
    Engine(EngineError),
}

impl From<EngineError> for RequestError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// By whose hands an approval came. Nobody's are trusted; a hub's are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalOrigin {
    /// Somebody on this host.
    Host,
    /// The hub.
    Hub,
}

impl Engine {
    /// Takes an approval that somebody on this host handed in, or refuses it.
    pub async fn submit_approval(&mut self, bytes: &[u8]) -> Result<Submitted, Fatal> {
        self.submit_from(ApprovalOrigin::Host, bytes).await
    }

    /// Takes an approval, or refuses it. The same statement may come in any number of times, at once or later.
    pub async fn submit_from(
        &mut self,
        origin: ApprovalOrigin,
        bytes: &[u8],
    ) -> Result<Submitted, Fatal> {
        let Some(approvals) = self.context.approvals.clone() else {
            return Ok(Submitted::Refused(no_signers()));
        };
        if let Some(submitted) = self.submit_other(origin, &approvals, bytes).await? {
            return Ok(submitted);
        }
        let order = match self.judge_early(&approvals, bytes).await? {
            EarlyVerdict::Order(order) => *order,
            EarlyVerdict::Answer(Submitted::Refused(refusal)) => {
                self.note(origin, bytes, &refusal).await?;
                return Ok(Submitted::Refused(refusal));
            }
            EarlyVerdict::Answer(other) => return Ok(other),
        };
        self.queue_approved(order, bytes).await
    }

    /// What comes in the same way and is no approval: a change of the signers, a no, an acknowledgement. Nothing is done
    /// if it is none of those.
    async fn submit_other(
        &mut self,
        origin: ApprovalOrigin,
        approvals: &ApprovalContext,
        bytes: &[u8],
    ) -> Result<Option<Submitted>, Fatal> {
        let Ok(envelope) = Envelope::parse(bytes) else { return Ok(None) };
        let Some(namespace) = envelope.claimed_namespace() else { return Ok(None) };
        // Boxed, all three: they are rare, and every approval would carry them along.
        let submitted = if RotationAuthority::of(namespace).is_some() {
            Box::pin(self.rotate(approvals, bytes)).await?
        } else if namespace == Namespace::Deny {
            let context = self.context.clone();
            let denying = collected::deny(&context, approvals, &envelope);
            Box::pin(self.drive_lanes_until(denying)).await?
        } else if namespace == Namespace::Acknowledge {
            Box::pin(self.acknowledge(approvals, &envelope)).await?
        } else {
            return Ok(None);
        };
        if let Submitted::Refused(refusal) = &submitted {
            self.note(origin, bytes, refusal).await?;
        }
        Ok(Some(submitted))
    }

    /// Puts an approval into its guest's lane, unless its statement is being executed already.
    async fn queue_approved(
        &mut self,
        order: ApprovedOrder,
        bytes: &[u8],
    ) -> Result<Submitted, Fatal> {
        let nonce = order.statement.nonce;
        let payload = order.envelope.payload_hash();
        match self.signed.get(&nonce) {
            Some((op, first)) if *first == payload => {
                return Ok(Submitted::Replay { op: *op, result: OpResult::InFlight });
            }
            Some((op, _)) => {
                let why = format!("its nonce is being spent on another statement by {op}");
                let refusal = Refusal::new(ReasonCode::NonceConflict, why);
                note_refusal(&self.context, bytes, &refusal).await?;
                return Ok(Submitted::Refused(refusal));
            }
            None => {}
        }
        let op = self.context.new_operation();
        let guest = order.item.guest;
        let (job, report) = self.job(op, Order::Approved(Box::new(order)));
        match self.queue.submit(guest.vmid, vec![job]) {
            Ok(()) => {
                self.signed.insert(nonce, (op, payload));
                self.submitted.insert(op, (None, report));
                Ok(Submitted::Accepted(op))
            }
            Err(error) => Ok(Submitted::Refused(busy(&error.refusal()?))),
        }
    }

    /// Everything that waits for a signature.
    pub async fn pending(&self) -> Result<BTreeMap<PendingId, (PendingItem, KeptItem)>, Fatal> {
        self.context.journal.read(|state, _| waiting(state)).await.map_err(Fatal::Journal)
    }

    /// Raises an item for an act nobody declared. Missing parameters are filled in from the guest as it is.
    pub async fn request(
        &mut self,
        op: ActionKind,
        guest: GuestId,
        params: BTreeMap<String, String>,
    ) -> Result<PendingId, EngineError> {
        self.request_as(op, guest, params, None).await
    }

    /// The same, asked for by a signer, whose own signature may not count.
    pub async fn request_as(
        &mut self,
        op: ActionKind,
        guest: GuestId,
        params: BTreeMap<String, String>,
        requester: Option<String>,
    ) -> Result<PendingId, EngineError> {
        let approvals = self.context.approvals.clone().ok_or_else(no_signers)?;
        let context = self.context.clone();
        let asked = RequestedAct { op, guest, params, requester };
        self.drive_lanes_until(request(&context, &approvals, asked)).await
    }

    /// Does at once what somebody asks for and needs no signature, in the guest's lane. `EngineEvent::Op` of that name
    /// tells the end. What makes no sense is refused here, so that whoever asks hears it at once.
    pub async fn ask(
        &mut self,
        op: ActionKind,
        guest: GuestId,
        params: BTreeMap<String, String>,
    ) -> Result<OperationId, EngineError> {
        let order = AskedOrder { op, guest, params };
        let context = self.context.clone();
        let judging = async { order.judge(&context).await.map_err(EngineError::Refused) };
        self.drive_lanes_until(judging).await?;
        self.run_asked(JudgedRequest(order))
    }

    /// What somebody asks for, looked at beside the lanes: the node may take long to tell which guest is meant. Whoever
    /// calls this drives it, and hands what may run to `run_asked`.
    pub(crate) fn requesting(
        &self,
        op: ActionKind,
        name: GuestName,
        params: BTreeMap<String, String>,
        requester: Option<String>,
    ) -> BoxFuture<'static, Result<RequestTaken, RequestError>> {
        let context = self.context.clone();
        let taking = async move {
            let guest = find_guest(&context.client, &name).await.map_err(RequestError::Find)?;
            if op.runs_when_asked() {
                let order = AskedOrder { op, guest, params };
                order.judge(&context).await.map_err(EngineError::Refused)?;
                return Ok(RequestTaken::MayRun(JudgedRequest(order)));
            }
            let approvals =
                context.approvals.clone().ok_or_else(|| EngineError::Refused(no_signers()))?;
            let asked = RequestedAct { op, guest, params, requester };
            let id = request(&context, &approvals, asked).await?;
            Ok(RequestTaken::Raised { id, guest })
        };
        taking.boxed()
    }

    /// Puts what was judged to make sense into its guest's lane, where it is judged again.
    pub(crate) fn run_asked(&mut self, judged: JudgedRequest) -> Result<OperationId, EngineError> {
        let JudgedRequest(order) = judged;
        let op = self.context.new_operation();
        let guest = order.guest;
        let (job, report) = self.job(op, Order::Asked(Box::new(order)));
        match self.queue.submit(guest.vmid, vec![job]) {
            Ok(()) => {
                self.submitted.insert(op, (None, report));
                Ok(op)
            }
            Err(error) => Err(busy(&error.refusal().map_err(Fatal::from)?).into()),
        }
    }

    /// Changes the signers. Acts being judged finish first; none is judged between the old list and the new one.
    async fn rotate(
        &mut self,
        approvals: &ApprovalContext,
        bytes: &[u8],
    ) -> Result<Submitted, Fatal> {
        let context = self.context.clone();
        self.drive_lanes_until(rotate(&context, approvals, bytes)).await
    }

    async fn note(
        &mut self,
        origin: ApprovalOrigin,
        bytes: &[u8],
        refusal: &Refusal,
    ) -> Result<(), Fatal> {
        tracing::warn!(%refusal, ?origin, "an approval was refused");
        sometimes!("an approval is refused on arrival", refusal.reason);
        let now = self.context.ambient.now();
        let (refusals, limit) = match origin {
            ApprovalOrigin::Host => (&mut self.refusals, REFUSALS_PER_HOUR),
            ApprovalOrigin::Hub => (&mut self.hub_refusals, HUB_REFUSALS_PER_HOUR),
        };
        let left_out = refusals.left_out_before(now, limit);
        let writes = refusals.may_write(now, limit);
        if let Some(count) = left_out {
            let text = format!("{count} more approvals were refused within an hour");
            self.remark("refusals", text).await?;
        }
        if writes {
            note_refusal(&self.context, bytes, refusal).await?;
        }
        Ok(())
    }

    /// Signature, role, host, nonce, trust and time as they stand now, and the item that is meant.
    async fn judge_early(
        &self,
        approvals: &ApprovalContext,
        bytes: &[u8],
    ) -> Result<EarlyVerdict, Fatal> {
        let refused = |refusal| Ok(EarlyVerdict::Answer(Submitted::Refused(refusal)));
        let envelope = match Envelope::parse(bytes) {
            Ok(envelope) => envelope,
            Err(refusal) => return refused(refusal),
        };
        let authority = approvals.authority.read().await.clone();
        let Some(trust) = authority.trust() else {
            return refused(no_signers());
        };
        let reading = self.context.reading().await?;
        let statement = match statement_of(&envelope, trust, reading.now) {
            Ok(statement) => statement,
            Err(refusal) => return refused(refusal),
        };
        let nonce = statement.nonce;
        let item = statement.item;
        let asked = self.context.journal.read(move |state, _| {
            let signatures = collected::signatures_of(state, item);
            (state.ledger().spent(&nonce), waiting(state), signatures)
        });
        let (spent, items, kept) = asked.await.map_err(Fatal::Journal)?;
        // As if the world were what was signed: what the world is, is asked in the lane.
        let waits = items.get(&item);
        let demand = waits.map(|(item, kept)| kept.demand(&authority.rules(), item, &[]));
        let act = as_signed(authority.host(), &statement, demand);
        let limits = approvals.policy.limits();
        let by = JudgedBy { trust, clock: &reading, spent: &spent, limits };
        let approved = item_or_successor(&statement, items);
        let envelope = match collect(kept.as_deref(), bytes, &act, by) {
            Collected::Enough(envelope) => envelope,
            Collected::Kept { text, missing } => {
                if let Err(refusal) = approved {
                    return refused(refusal);
                }
                return match collected::keep(&self.context, item, &text).await? {
                    Ok(()) => Ok(EarlyVerdict::Answer(Submitted::Collected(missing))),
                    Err(refusal) => refused(refusal),
                };
            }
            Collected::Replay { op, result } => {
                return Ok(EarlyVerdict::Answer(Submitted::Replay { op, result }));
            }
            Collected::Refused(refusal) => return refused(refusal),
        };
        match approved {
            Ok((item, kept)) => {
                let approvals = approvals.clone();
                let id = statement.item;
                let order = ApprovedOrder { approvals, envelope, statement, id, item, kept };
                Ok(EarlyVerdict::Order(Box::new(order)))
            }
            Err(refusal) => refused(refusal),
        }
    }
}

/// The item that is approved; if it no longer waits, why it was raised again or is gone.
fn item_or_successor(
    statement: &Statement,
    items: BTreeMap<PendingId, (PendingItem, KeptItem)>,
) -> Result<(PendingItem, KeptItem), Refusal> {
    let found = successor(&items, statement.item);
    approved_item(statement, items).map_err(|refusal| found.unwrap_or(refusal))
}

/// Why an item that no longer waits was raised again, and as what; none if it was not.
fn successor(
    items: &BTreeMap<PendingId, (PendingItem, KeptItem)>,
    former: PendingId,
) -> Option<Refusal> {
    items.iter().find_map(|(id, (_, kept))| {
        let replaced = kept.replaces.as_ref().filter(|replaced| replaced.id == former)?;
        let why = format!("{}; a new item was raised: {id}", replaced.why);
        Some(Refusal::new(ReasonCode::Stale, why))
    })
}

/// What a first look at an approval makes of it.
enum EarlyVerdict {
    /// It goes into its guest's lane.
    Order(Box<ApprovedOrder>),
    /// Nothing more is to be done.
    Answer(Submitted),
}

/// Where no key is enrolled nothing signed can hold.
pub(in crate::engine) fn no_signers() -> Refusal {
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

fn as_signed(host: &HostBinding, statement: &Statement, demand: Option<ApprovalDemand>) -> Act {
    let found = match &statement.expected {
        Expected::Guest { identity, digest } => {
            FoundGuest::Guest { identity: *identity, digest: digest.clone() }
        }
        Expected::Free => FoundGuest::Free,
    };
    Act {
        op: statement.op,
        host: host.clone(),
        guest: statement.guest,
        found,
        params: statement.params.clone(),
        item: statement.item,
        demand: demand.unwrap_or(ApprovalDemand::one()),
    }
}

/// Judges a change of the signers with their lock held, and makes it durable before it counts.
async fn rotate(
    context: &EngineContext,
    approvals: &ApprovalContext,
    bytes: &[u8],
) -> Result<Submitted, Fatal> {
    let mut authority = approvals.authority.write().await;
    let reading = context.reading().await?;
    let accepted = match authority.accept(bytes, &reading, approvals.policy.limits()) {
        Ok(accepted) => accepted,
        Err(refusal) => return Ok(Submitted::Refused(refusal)),
    };
    if let Err(error) = context.append(Record::Kept(accepted.record)).await {
        return Ok(Submitted::Refused(error.refusal()?));
    }
    *authority = accepted.authority;
    // What it says of the rules stands in the rotation too: a crash before this is mended at the start.
    if let Some(record) = accepted.rules {
        context.append_if_room(record).await?;
    }
    Ok(Submitted::Rotated(authority.version().unwrap_or(TrustVersion(0))))
}
