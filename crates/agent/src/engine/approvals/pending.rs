//! Items that wait for a signature: raised, kept, superseded, ended.
//!
//! An item tells the truth about one act on one guest as it is now, signed by the host key, known by its hash. A pass
//! raises one for every destructive action of its plan; `request` raises one for anything else. What changes makes a
//! new item and ends the old one, so an approval of the old one is stale by itself. At rest nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::actual::storage_hearing::PATIENCE;
use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::gate::approval::{
    ItemReview, RaisedBy, WantedByPlan, WantedItem, wanted_by_plan,
};
use evenkeel_core::gate::final_backup::{BackupContext, FinalBackup};
use evenkeel_core::gate::loss::{is_purged, losses, takes_surroundings};
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::plan::Plan;
use evenkeel_core::sign::{
    ApprovalDemand, ApprovalRules, Envelope, LastBackup, Nonce, PendingId, PendingItem,
    TrustVersion,
};
use evenkeel_core::value::Value;
use futures_util::future::{self, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};

use crate::engine::EngineContext;
use crate::engine::approvals::approval_context::ApprovalContext;
use crate::engine::approvals::collected;
use crate::engine::approvals::raise_again::{WaitingItem, renew_items};
use crate::engine::error::{EngineError, Fatal};
use crate::engine::gate::act_rights::check_rights;
use crate::engine::gate::identity_proof::{end_is_provable, mark};
use crate::engine::gate::surroundings::observe_surroundings;
use crate::engine::gate::volumes::check_removable;
use crate::engine::lane::final_backup::{backup_context, holds_backups};
use crate::journal::{ExactBytes, JournalState, Kept, KeptSubject, Record};
use crate::observe::{observe_guest, observe_snapshots};
use crate::pve::ContentFilter;
use crate::pve::error::Error;

/// The shape of a kept item.
const VERSION: u32 = 1;

/// An item as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptItem {
    /// The item and the host's signature, exactly as an operator is handed it.
    pub envelope: ExactBytes,
    /// Where it comes from.
    pub from: RaisedBy,
    /// The task list at that moment.
    pub(in crate::engine) anchor: TaskListMark,
    /// The item it was raised in the place of, because nobody could execute that any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplacedItem>,
    /// The guest's tags at that moment: a rule about one of them holds although it is taken off meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::engine) tags: Vec<String>,
    /// Whose signature may not count, because they asked for it; the signer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
}

impl KeptItem {
    /// What root's rules ask of an act on this item, on a guest that has these tags now.
    pub(in crate::engine) fn demand(
        &self,
        rules: &ApprovalRules,
        item: &PendingItem,
        tags: &[String],
    ) -> ApprovalDemand {
        let tags = self.tags.iter().chain(tags).map(String::as_str);
        // Whoever is no signer's name is nobody's key.
        let requester = self.requester.as_deref().and_then(|name| name.parse().ok());
        rules.demand(item.op, item.guest, tags, requester.as_ref())
    }
}

/// An item that another was raised in the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplacedItem {
    /// Its name.
    pub id: PendingId,
    /// Why nobody could execute it any more.
    pub why: String,
}

/// Every item that waits, by its name.
pub(crate) fn waiting(state: &JournalState) -> BTreeMap<PendingId, (PendingItem, KeptItem)> {
    let read = |(key, kept): (&str, &crate::journal::Versioned)| {
        let waiting: KeptItem = serde_json::from_value(kept.value.clone()).ok()?;
        let envelope = Envelope::parse(&waiting.envelope.0).ok()?;
        let item = PendingItem::parse(envelope.payload()).ok()?;
        Some((key.parse().ok()?, (item, waiting)))
    };
    state.kept(KeptSubject::Pending).filter_map(read).collect()
}

/// How many items wait, by what they would do.
pub(crate) fn waiting_by_op(state: &JournalState) -> BTreeMap<ActionKind, usize> {
    let mut counts = BTreeMap::new();
    for (item, _) in waiting(state).into_values() {
        *counts.entry(item.op).or_default() += 1;
    }
    counts
}

/// Acts that need a signature and cannot even be put before somebody, and why.
pub(in crate::engine) type NotRaised = BTreeMap<(GuestId, ActionKind), Refusal>;

/// How long the storages are asked for the newest backup of a guest: as long as one of them may take.
const LAST_BACKUP_BUDGET: Duration = PATIENCE;

/// How many items are raised at a time. Each asks the node a few times, and one may wait for a storage.
const RAISED_AT_ONCE: usize = 3;

/// Brings the items to what a plan wants: new ones are raised, those nobody wants or that changed are ended. What cannot
/// be raised now is tried again by the next pass. It owns what it needs of the pass, which does not wait for it.
pub(in crate::engine) struct PlanFollowing {
    context: EngineContext,
    approvals: ApprovalContext,
    items: Vec<WantedItem>,
    not_raised: NotRaised,
    known: BTreeMap<PendingId, (PendingItem, KeptItem)>,
    busy: BTreeSet<GuestId>,
    /// The node as it was read, with the guests that this is about.
    actual: Snapshot,
    scope: PassScope,
}

impl PlanFollowing {
    /// By what the journal says now. Nothing is read of the node yet.
    pub(in crate::engine) async fn begin(
        context: EngineContext,
        approvals: ApprovalContext,
        plan: &Plan,
        actual: &Snapshot,
        scope: &PassScope,
    ) -> Result<Self, Fatal> {
        let known = context.journal.read(|state, _| waiting(state)).await;
        let known = known.map_err(Fatal::Journal)?;
        let busy = plan.guests.iter().filter(|guest| guest.busy.is_some());
        let busy = busy.map(|guest| guest.guest).collect();
        let WantedByPlan { items, refused: not_raised } = wanted_by_plan(plan, actual);
        let wanted = items.iter().map(|item| item.guest.vmid);
        let about = wanted.chain(known.values().map(|(item, _)| item.guest.vmid));
        let guest = |vmid| Some((vmid, actual.guests.get(&vmid)?.clone()));
        let actual = Snapshot {
            node: actual.node.clone(),
            release: actual.release,
            conventions: actual.conventions,
            guests: about.filter_map(guest).collect(),
            elsewhere: BTreeMap::new(),
            hidden: BTreeSet::new(),
            coverage: actual.coverage.clone(),
        };
        let scope = scope.clone();
        Ok(Self { context, approvals, items, not_raised, known, busy, actual, scope })
    }

    /// Raises and ends; tells what could not be raised.
    pub(in crate::engine) async fn carry_out(mut self) -> Result<NotRaised, Fatal> {
        let wanted = self.with_backup_contexts().await;
        let Self { context, approvals, mut not_raised, known, busy, actual, scope, .. } = self;
        let version = version(&approvals).await;
        let now = context.reading().await?.now;
        let wanted = &wanted;
        let scope = &scope;
        let busy = &busy;
        let life_s = approvals.policy.pending_life_s();
        let review = ItemReview { wanted, actual: &actual, scope, busy, version, now, life_s };
        let mut left = 0;
        let mut looked_at: Vec<WaitingItem<'_>> = Vec::new();
        for (id, (item, waiting)) in &known {
            if review.is_over(item, waiting.from) {
                end(&context, *id).await?;
            } else {
                left += 1;
                if scope.has(item.guest.vmid) && !busy.contains(&item.guest) {
                    looked_at.push((*id, item, waiting));
                }
            }
        }
        renew_items(&context, &approvals, &looked_at).await?;
        let denied = collected::prune(&context, wanted, (scope, busy), version, now).await?;
        for (guest, op, refusal) in denied.told {
            not_raised.insert((guest, op), refusal);
        }
        let is_new = |wanted: &&WantedItem| {
            !known.values().any(|(item, _)| wanted.is(item, version))
                && !denied.items.iter().any(|item| wanted.is(item, version))
        };
        let room = max(&approvals).saturating_sub(left);
        let new: Vec<&WantedItem> = wanted.iter().filter(is_new).take(room).collect();
        let context = &context;
        let approvals = &approvals;
        let mut drafting = Vec::with_capacity(new.len());
        for wanted in new {
            let draft = draft(context, approvals, wanted, (RaisedBy::Plan, None), None);
            drafting.push(async move { (wanted, draft.await) }.boxed());
        }
        let mut drafts = stream::iter(drafting).buffer_unordered(RAISED_AT_ONCE);
        while let Some((wanted, drafted)) = drafts.next().await {
            let raised = match drafted {
                Ok(drafted) => put_down(context, approvals, drafted).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = raised {
                not_raised.insert((wanted.guest, wanted.op), error.refusal()?);
            }
        }
        Ok(not_raised)
    }

    /// The wanted items, with what is around each guest among what a final backup leaves out. What an item would say of a guest
    /// that cannot be looked around is not known: one that waits is not ended for that.
    async fn with_backup_contexts(&mut self) -> Vec<WantedItem> {
        let items = std::mem::take(&mut self.items);
        let context = &self.context;
        let actual = &self.actual;
        let mut reading = Vec::with_capacity(items.len());
        for item in items {
            let of = (item.guest, item.op);
            let knowing = knowing_backup_context(context, item, actual);
            reading.push(async move { (of, knowing.await) }.boxed());
        }
        let read: Vec<_> = stream::iter(reading).buffered(RAISED_AT_ONCE).collect().await;
        let mut wanted = Vec::new();
        for ((guest, op), item) in read {
            match item {
                Ok(item) => wanted.push(item),
                Err(refusal) => {
                    self.not_raised.insert((guest, op), refusal);
                    self.busy.insert(guest);
                }
            }
        }
        wanted
    }
}

/// The same item, with the guest's snapshots and the node's exclusions among what its final backup leaves out.
async fn knowing_backup_context(
    context: &EngineContext,
    wanted: WantedItem,
    actual: &Snapshot,
) -> Result<WantedItem, Refusal> {
    let guest = actual.guests.get(&wanted.guest.vmid).filter(|_| wanted.needs_backup_context());
    let Some(guest) = guest else {
        return Ok(wanted);
    };
    let around = backup_context_of(context, guest.id, &wanted.params).await?;
    Ok(wanted.with_backup_context(guest, &around))
}

/// What a final backup with these parameters leaves out of a guest besides what its configuration tells.
pub(in crate::engine) async fn backup_context_of(
    context: &EngineContext,
    guest: GuestId,
    params: &BTreeMap<String, String>,
) -> Result<BackupContext, Refusal> {
    match FinalBackup::signed(params)? {
        Some(backup) => backup_context(&context.client, guest, &backup.storage).await,
        None => Ok(BackupContext::default()),
    }
}

/// Writes an item down, signed, unless too many wait. The answer is its name.
pub(in crate::engine) async fn raise(
    context: &EngineContext,
    approvals: &ApprovalContext,
    wanted: &WantedItem,
    from: (RaisedBy, Option<String>),
) -> Result<PendingId, EngineError> {
    has_room(context, approvals).await?;
    let drafted = draft(context, approvals, wanted, from, None).await?;
    put_down(context, approvals, drafted).await
}

async fn has_room(context: &EngineContext, approvals: &ApprovalContext) -> Result<(), EngineError> {
    let known = context.journal.read(|state, _| waiting(state).len()).await;
    if known.map_err(Fatal::Journal)? >= max(approvals) {
        let why = format!("{} items wait already", max(approvals));
        return Err(Refusal::new(ReasonCode::Budget, why).into());
    }
    Ok(())
}

/// An item that is signed by the host and not written down yet.
pub(in crate::engine) struct DraftedItem {
    pub(in crate::engine) id: PendingId,
    pub(in crate::engine) record: Record,
}

/// Writes a drafted item down, unless too many wait by now.
async fn put_down(
    context: &EngineContext,
    approvals: &ApprovalContext,
    drafted: DraftedItem,
) -> Result<PendingId, EngineError> {
    has_room(context, approvals).await?;
    context.append(drafted.record).await?;
    Ok(drafted.id)
}

/// Reads everything that an item says and signs it. `requester` is the signer who asked; `replaces` is the one that ends
/// for it.
pub(in crate::engine) async fn draft(
    context: &EngineContext,
    approvals: &ApprovalContext,
    wanted: &WantedItem,
    (from, requester): (RaisedBy, Option<String>),
    replaces: Option<ReplacedItem>,
) -> Result<DraftedItem, EngineError> {
    let anchor = mark(context, wanted.guest.vmid).await?;
    end_is_provable(context, wanted.op).await?;
    check_rights(&context.client, wanted.op, wanted.guest, &wanted.params).await?;
    // Whoever was read before the task list may have been replaced since.
    let unread = |error: Error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string());
    let guest = observe_guest(&context.client, wanted.guest).await.map_err(unread)?;
    let snapshots = observe_snapshots(&context.client, guest.id).await.ok();
    check_unchanged(context, wanted, &guest).await?;
    if wanted.op == ActionKind::DeleteVolume {
        check_removable(&context.client, &guest, &wanted.params).await?;
    }
    let around = if takes_surroundings(wanted.op) {
        Some(observe_surroundings(&context.client, guest.id).await)
    } else {
        None
    };
    let purge = is_purged(&wanted.params);
    if let Some(refusal) = around.as_ref().and_then(|around| around.hinder_destroy(purge)) {
        return Err(refusal.into());
    }
    let serial = Nonce::from_random(context.ambient.random().to_be_bytes())
        .map_err(|error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string()))?;
    let item = PendingItem {
        op: wanted.op,
        host: approvals.host().await,
        guest: wanted.guest,
        guest_name: name_of(&guest),
        expected: wanted.expected.clone(),
        params: wanted.params.clone(),
        losses: losses(wanted.op, &wanted.params, &guest, snapshots.as_deref(), around.as_ref()),
        last_backup: last_backup(context, guest.id).await,
        serial,
        raised_at: context.reading().await?.now,
        trust_version: version(approvals).await,
    };
    let id = PendingItem::id(&item.to_bytes()?);
    let envelope = (approvals.seal)(&item)?;
    let envelope = ExactBytes(envelope.into_bytes());
    let tags = tags_of(&guest);
    let waiting = KeptItem { envelope, from, anchor, replaces, tags, requester };
    let value = serde_json::to_value(&waiting).expect("an item has only texts for keys");
    let kept = Kept::put(KeptSubject::Pending, id.to_string(), VERSION, value);
    Ok(DraftedItem { id, record: Record::Kept(kept) })
}

/// The guest as it was just read makes the very item that is wanted.
async fn check_unchanged(
    context: &EngineContext,
    wanted: &WantedItem,
    guest: &Guest,
) -> Result<(), Refusal> {
    let now = match WantedItem::of(wanted.op, wanted.params.clone(), guest) {
        Ok(now) if now.needs_backup_context() => {
            let around = backup_context_of(context, guest.id, &now.params).await?;
            Ok(now.with_backup_context(guest, &around))
        }
        Ok(now) => Ok(now),
        Err(refusal) => Err(refusal),
    };
    if now.as_ref() == Ok(wanted) {
        return Ok(());
    }
    Err(Refusal::new(ReasonCode::Stale, "the guest changed while it was put down"))
}

/// Ends an item: approvals of it are refused from now on. Not while one of it is judged: what was found to wait still
/// waits when its act is on disk. Whoever calls this lets the lanes go on meanwhile.
pub(in crate::engine) async fn end(context: &EngineContext, id: PendingId) -> Result<(), Fatal> {
    let _judging = context.judging().await;
    end_judged(context, id).await
}

/// The same for whoever holds the judge's lock.
pub(in crate::engine) async fn end_judged(
    context: &EngineContext,
    id: PendingId,
) -> Result<(), Fatal> {
    let ended =
        context.append(Record::Kept(Kept::remove(KeptSubject::Pending, id.to_string()))).await;
    // On a nearly full disk it stays; whoever approves it is refused by what has changed.
    if let Err(error) = ended {
        let why = error.refusal()?.detail;
        tracing::warn!(%id, why, "a pending item could not be ended");
    }
    Ok(())
}

pub(in crate::engine) async fn version(approvals: &ApprovalContext) -> TrustVersion {
    approvals.authority.read().await.version().unwrap_or(TrustVersion(0))
}

fn max(approvals: &ApprovalContext) -> usize {
    usize::try_from(approvals.policy.pending_items).unwrap_or(usize::MAX)
}

fn name_of(guest: &Guest) -> String {
    let key = match guest.id.kind {
        GuestKind::Lxc => "hostname",
        GuestKind::Qemu => "name",
    };
    let config = guest.config.as_ref().ok();
    let name = config.and_then(|config| config.current(guest.id.kind, key)?.as_text());
    name.unwrap_or_default().to_owned()
}

/// The guest's tags, as they are stored.
pub(in crate::engine) fn tags_of(guest: &Guest) -> Vec<String> {
    let config = guest.config.as_ref().ok();
    let tags = config.and_then(|config| config.current(guest.id.kind, "tags"));
    match tags {
        Some(Value::Set(tags)) => tags.iter().map(ToString::to_string).collect(),
        Some(Value::List(tags)) => tags.iter().map(ToString::to_string).collect(),
        Some(Value::Text(text) | Value::Odd(text)) => {
            text.split([';', ',', ' ']).map(str::to_owned).collect()
        }
        Some(
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Number(_)
            | Value::Size(_)
            | Value::Volume(_)
            | Value::Property(_)
            | Value::Secret
            | Value::AnyUuid,
        )
        | None => Vec::new(),
    }
}

/// When the newest backup of a guest was made. A storage that may hold backups and cannot be read may hold a newer one.
async fn last_backup(context: &EngineContext, guest: GuestId) -> LastBackup {
    let reading = newest_backup(context, guest);
    // One storage after the other may be slow; an item tells that nobody knows rather than never.
    let read = tokio::time::timeout(LAST_BACKUP_BUDGET, reading).await;
    read.unwrap_or(LastBackup::Unknown)
}

async fn newest_backup(context: &EngineContext, guest: GuestId) -> LastBackup {
    let Ok(storages) = context.client.storage_list().await else {
        return LastBackup::Unknown;
    };
    if !storages.unread.is_empty() {
        return LastBackup::Unknown;
    }
    let mut listing = Vec::new();
    for storage in storages.rows.iter().filter(|storage| holds_backups(storage)) {
        let newest = async move {
            let name = storage.storage.parse().ok()?;
            let found = context.client.volumes(&name, &ContentFilter::BackupsOf(guest.vmid)).await;
            let found = found.ok().filter(|found| found.unread.is_empty())?;
            Some(found.rows.iter().filter_map(|volume| volume.made_unix_s).max())
        };
        listing.push(newest.boxed());
    }
    match future::join_all(listing).await.into_iter().collect::<Option<Vec<_>>>() {
        None => LastBackup::Unknown,
        Some(made) => match made.into_iter().flatten().max() {
            None => LastBackup::Never,
            Some(at) => LastBackup::At(UnixSeconds(at)),
        },
    }
}
