//! Items that wait for a signature: raised, kept, superseded, ended.
//!
//! An item tells the truth about one act on one guest as it is now, signed by the host key, known by its hash. A pass
//! raises one for every destructive action of its plan; `request` raises one for anything else. What changes makes a
//! new item and ends the old one, so an approval of the old one is stale by itself. At rest nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::id::{GuestId, GuestKind};
use evenkeel_core::identity::identity;
use evenkeel_core::identity_proof::TaskListMark;
use evenkeel_core::loss::losses;
use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::plan::{Held, Plan};
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{Envelope, Expected, Nonce, PendingId, PendingItem, TrustVersion};
use serde::{Deserialize, Serialize};

use super::Hands;
use super::court::Court;
use super::error::Fatal;
use super::identity_proof::{end_is_provable, mark};
use crate::journal::{ExactBytes, Kept, Record, State, Subject};
use crate::observe::{observe_guest, observe_snapshots};
use crate::pve::ContentFilter;

/// The shape of a kept item.
const VERSION: u32 = 1;

/// An item as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// The item and the host's signature, exactly as an operator is handed it.
    pub envelope: ExactBytes,
    /// Where it comes from.
    pub from: RaisedBy,
    /// The task list at that moment.
    pub(super) anchor: TaskListMark,
}

/// Who wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaisedBy {
    /// The desired state.
    Plan,
    /// Somebody who asked.
    Request,
}

/// An act that shall wait, before it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) op: ActionKind,
    pub(super) guest: GuestId,
    pub(super) expected: Expected,
    pub(super) params: BTreeMap<String, String>,
}

/// Every item that waits, by its name.
pub(super) fn waiting(state: &State) -> BTreeMap<PendingId, (PendingItem, Waiting)> {
    let read = |(key, kept): (&str, &crate::journal::Versioned)| {
        let waiting: Waiting = serde_json::from_value(kept.value.clone()).ok()?;
        let envelope = Envelope::parse(&waiting.envelope.0).ok()?;
        let item = PendingItem::parse(envelope.payload()).ok()?;
        Some((key.parse().ok()?, (item, waiting)))
    };
    state.kept(Subject::Pending).filter_map(read).collect()
}

impl Wanted {
    /// What is wanted of a guest as it is; in words if that cannot be told for certain.
    pub(super) fn of(
        op: ActionKind,
        params: BTreeMap<String, String>,
        guest: &Guest,
    ) -> Result<Self, Refusal> {
        let unproven = |why: String| Refusal::new(ReasonCode::IdentityUnproven, why);
        let identity = identity(guest).map_err(|error| unproven(error.to_string()))?;
        let config = guest.config.as_ref().map_err(|error| unproven(error.to_string()))?;
        let no_digest = |_| unproven("Proxmox gave no digest of its configuration".to_owned());
        let digest = config.digest.parse().map_err(no_digest)?;
        Ok(Self { op, guest: guest.id, expected: Expected::Guest { identity, digest }, params })
    }

    pub(super) fn is(&self, item: &PendingItem, version: TrustVersion) -> bool {
        (item.op, item.guest, &item.expected, &item.params, item.trust_version)
            == (self.op, self.guest, &self.expected, &self.params, version)
    }
}

/// Acts that need a signature and cannot even be put before somebody, and why.
pub(super) type NotRaised = BTreeMap<(GuestId, ActionKind), Refusal>;

/// Brings the items to what a plan wants: new ones are raised, those nobody wants or that changed are ended. What cannot
/// be raised now is tried again by the next pass.
pub(super) async fn follow_plan(
    hands: &Hands,
    court: &Court,
    plan: &Plan,
    actual: &Snapshot,
) -> Result<NotRaised, Fatal> {
    let (version, now) = (version(court).await, hands.reading().await?.now);
    let known = hands.journal.read(|state, _| waiting(state)).await.map_err(Fatal::Journal)?;
    let busy: BTreeSet<GuestId> =
        plan.guests.iter().filter(|guest| guest.busy.is_some()).map(|guest| guest.guest).collect();
    let wanted = wanted_by(plan, actual);
    let over = |item: &PendingItem, waiting: &Waiting| {
        let still = wanted.iter().any(|wanted| wanted.is(item, version));
        let same = || is_unchanged(item, actual) && item.trust_version == version;
        let late = now >= item.raised_at.plus(court.policy.pending_life_s());
        late || match waiting.from {
            RaisedBy::Plan => !still && !busy.contains(&item.guest),
            RaisedBy::Request => !same() && !busy.contains(&item.guest),
        }
    };
    let mut left = 0;
    for (id, (item, waiting)) in &known {
        if over(item, waiting) {
            end(hands, *id).await?;
        } else {
            left += 1;
        }
    }
    let new =
        wanted.iter().filter(|wanted| !known.values().any(|(item, _)| wanted.is(item, version)));
    let mut not_raised = NotRaised::new();
    for wanted in new.take(max(court).saturating_sub(left)) {
        if let Err(refusal) = raise(hands, court, wanted, RaisedBy::Plan).await? {
            not_raised.insert((wanted.guest, wanted.op), refusal);
        }
    }
    Ok(not_raised)
}

fn wanted_by(plan: &Plan, actual: &Snapshot) -> Vec<Wanted> {
    let held = plan.actions().filter(|action| action.held == Some(Held::PendingSignature));
    held.filter_map(|action| {
        let guest = actual.guests.get(&action.guest.vmid)?;
        // An item is read by people and hubs. No change of a secret needs a signature today; if one ever does, what
        // was masked is not what would be sent, so the item stands for nothing rather than for a secret.
        let mut params = action.step.shown_params();
        params.remove("digest");
        Wanted::of(action.step.kind(), params, guest).ok()
    })
    .collect()
}

/// Whether the guest of an item is still the same, as far as the node was read.
fn is_unchanged(item: &PendingItem, actual: &Snapshot) -> bool {
    let Some(guest) = actual.guests.get(&item.guest.vmid) else {
        return false;
    };
    Wanted::of(item.op, item.params.clone(), guest)
        .is_ok_and(|wanted| wanted.expected == item.expected && wanted.guest == item.guest)
}

/// Writes an item down, signed, unless too many wait. The answer is its name.
pub(super) async fn raise(
    hands: &Hands,
    court: &Court,
    wanted: &Wanted,
    from: RaisedBy,
) -> Result<Result<PendingId, Refusal>, Fatal> {
    let known = hands.journal.read(|state, _| waiting(state).len()).await;
    if known.map_err(Fatal::Journal)? >= max(court) {
        let why = format!("{} items wait already", max(court));
        return Ok(Err(Refusal::new(ReasonCode::Budget, why)));
    }
    let unproven = |why: String| Ok(Err(Refusal::new(ReasonCode::IdentityUnproven, why)));
    let anchor = match mark(hands, wanted.guest.vmid).await {
        Ok(anchor) => anchor,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Err(refusal) = end_is_provable(hands, wanted.op).await {
        return Ok(Err(refusal));
    }
    // Whoever was read before the task list may have been replaced since.
    let guest = match observe_guest(&hands.client, wanted.guest).await {
        Ok(guest) => guest,
        Err(error) => return unproven(error.to_string()),
    };
    let now = Wanted::of(wanted.op, wanted.params.clone(), &guest);
    if now.as_ref() != Ok(wanted) {
        let why = "the guest changed while it was put down";
        return Ok(Err(Refusal::new(ReasonCode::Stale, why)));
    }
    let snapshots = observe_snapshots(&hands.client, guest.id).await.ok();
    let serial = match Nonce::from_random(hands.ambient.random().to_be_bytes()) {
        Ok(serial) => serial,
        Err(refusal) => return unproven(refusal.to_string()),
    };
    let item = PendingItem {
        op: wanted.op,
        host: court.host().await,
        guest: wanted.guest,
        guest_name: name_of(&guest),
        expected: wanted.expected.clone(),
        params: wanted.params.clone(),
        losses: losses(wanted.op, &wanted.params, &guest, snapshots.as_deref()),
        last_backup: last_backup(hands, guest.id).await,
        serial,
        raised_at: hands.reading().await?.now,
        trust_version: version(court).await,
    };
    let sealed =
        item.to_bytes().and_then(|bytes| Ok((PendingItem::id(&bytes), (court.seal)(&item)?)));
    let (id, envelope) = match sealed {
        Ok(sealed) => sealed,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let waiting = Waiting { envelope: ExactBytes(envelope.into_bytes()), from, anchor };
    let value = serde_json::to_value(&waiting).expect("an item has only texts for keys");
    let kept = Kept::put(Subject::Pending, id.to_string(), VERSION, value);
    match hands.begin(Record::Kept(kept)).await? {
        Ok(()) => Ok(Ok(id)),
        Err(error) => Ok(Err(Refusal::new(ReasonCode::Storage, error.to_string()))),
    }
}

/// Ends an item: approvals of it are refused from now on.
pub(super) async fn end(hands: &Hands, id: PendingId) -> Result<(), Fatal> {
    let ended = hands.begin(Record::Kept(Kept::remove(Subject::Pending, id.to_string()))).await?;
    // On a nearly full disk it stays; whoever approves it is refused by what has changed.
    if let Err(error) = ended {
        tracing::warn!(%id, %error, "a pending item could not be ended");
    }
    Ok(())
}

pub(super) async fn version(court: &Court) -> TrustVersion {
    court.authority.read().await.version().unwrap_or(TrustVersion(0))
}

fn max(court: &Court) -> usize {
    usize::try_from(court.policy.pending_items).unwrap_or(usize::MAX)
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

/// When the newest backup of a guest was made, on any storage that can be read.
async fn last_backup(hands: &Hands, guest: GuestId) -> Option<UnixSeconds> {
    let storages = hands.client.storages().await.unwrap_or_default();
    let holds = |content: &Option<String>| {
        content.as_deref().is_some_and(|content| content.split(',').any(|kind| kind == "backup"))
    };
    let mut newest = None;
    for storage in storages.into_iter().filter(|storage| storage.active && holds(&storage.content))
    {
        let Ok(name) = storage.storage.parse() else {
            continue;
        };
        let found = hands.client.volumes(&name, &ContentFilter::BackupsOf(guest.vmid)).await;
        newest = newest
            .max(found.unwrap_or_default().iter().filter_map(|volume| volume.made_unix_s).max());
    }
    newest.map(UnixSeconds)
}
