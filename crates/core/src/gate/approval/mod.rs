//! What waits for a signature: which items a plan or a request wants, when one is over, and which one an approval means.
//!
//! Decisions over values. The agent reads the guest, writes items down and carries approvals to their lane; nothing is
//! allowed here: that is `sign::authorise`, asked inside the lane.

mod asked;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::action_registry::{ActionKind, FilledFrom};
use crate::actual::identity_proof::identity_and_digest;
use crate::actual::{Guest, PRESENT, Snapshot, SnapshotPoint};
use crate::desired::selection::PassScope;
use crate::gate::classify::{self, ActionClass, Target, classify, never_written};
use crate::gate::destroy::Destroy;
use crate::gate::final_backup::{self, BackupContext, is_listed_in_old_form, left_out};
use crate::model::id::GuestId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::secret::masked_param;
use crate::operate::operation::{Provenance, UnixSeconds};
use crate::operate::pve_call::detached_volume;
use crate::plan::{Held, Plan};
use crate::sign::{Expected, PendingId, PendingItem, Statement, TrustVersion};

/// Who wants an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaisedBy {
    /// The desired state.
    Plan,
    /// Somebody who asked.
    Request,
}

/// An act that shall wait for a signature, before it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedItem {
    /// What it does.
    pub op: ActionKind,
    /// To which guest.
    pub guest: GuestId,
    /// What the guest must be when it is done.
    pub expected: Expected,
    /// Every parameter.
    pub params: BTreeMap<String, String>,
}

impl WantedItem {
    /// An act on a guest as it is now; refused if that cannot be told for certain, or nobody could have it done.
    pub fn of(
        op: ActionKind,
        params: BTreeMap<String, String>,
        guest: &Guest,
    ) -> Result<Self, Refusal> {
        if let Some(why) = op.not_signable() {
            return Err(Refusal::new(ReasonCode::NotExecutable, why));
        }
        // The journal, the hub and every reader see an item whole.
        let secret = params.iter().find(|(name, text)| masked_param(name, text) != text.as_str());
        if let Some((name, _)) = secret {
            let why = format!(
                "{name} holds a secret, and an item would show it; declare it in a desired file"
            );
            return Err(Refusal::new(ReasonCode::Payload, why));
        }
        let (identity, digest) = identity_and_digest(guest)?;
        Ok(Self { op, guest: guest.id, expected: Expected::Guest { identity, digest }, params })
    }

    /// The same act once more, as an item says it that nobody can execute any more.
    pub fn again(item: &PendingItem) -> Self {
        let PendingItem { op, guest, expected, params, .. } = item;
        Self { op: *op, guest: *guest, expected: expected.clone(), params: params.clone() }
    }

    /// Whether what it says depends on what no configuration tells: snapshots, and what the node excludes from backups.
    pub fn needs_backup_context(&self) -> bool {
        saves_first(&self.params)
    }

    /// The same, knowing that: a final backup leaves it out.
    #[must_use]
    pub fn with_backup_context(mut self, guest: &Guest, around: &BackupContext) -> Self {
        list_left_out(&mut self.params, guest, around);
        self
    }

    /// Whether an item that waits says the same, under these signers.
    pub fn is(&self, item: &PendingItem, version: TrustVersion) -> bool {
        (item.op, item.guest, &item.expected, &item.params, item.trust_version)
            == (self.op, self.guest, &self.expected, &self.params, version)
    }
}

/// Whether these parameters of a destroy ask for a backup first.
pub fn saves_first(params: &BTreeMap<String, String>) -> bool {
    params.get(final_backup::STORAGE).is_some_and(|storage| !storage.is_empty())
}

/// Spells out what the final backup leaves out, where there is one. What is read wins over what somebody gave.
fn list_left_out(params: &mut BTreeMap<String, String>, guest: &Guest, around: &BackupContext) {
    let left = if saves_first(params) { left_out(guest, around) } else { BTreeSet::new() };
    if let Some(text) = params.get_mut(final_backup::NOT_IN_BACKUP) {
        *text = left.into_iter().collect::<Vec<_>>().join(",");
    }
}

/// What a plan wants signed, and what of it nobody could sign, with the reason.
#[derive(Debug, Default)]
pub struct WantedByPlan {
    /// What shall wait.
    pub items: Vec<WantedItem>,
    /// What has no executor although it would need a signature.
    pub refused: BTreeMap<(GuestId, ActionKind), Refusal>,
}

/// What a plan wants signed.
pub fn wanted_by_plan(plan: &Plan, actual: &Snapshot) -> WantedByPlan {
    let mut wanted = WantedByPlan::default();
    for action in plan.actions().filter(|action| action.held == Some(Held::PendingSignature)) {
        let Some(guest) = actual.guests.get(&action.guest.vmid) else {
            continue;
        };
        // An item is read by people and hubs. No change of a secret needs a signature today; if one ever does, what
        // was masked is not what would be sent, so the item stands for nothing rather than for a secret.
        let mut params = action.step.shown_params();
        params.remove("digest");
        let op = action.step.kind();
        match WantedItem::of(op, params, guest) {
            Ok(item) => wanted.items.push(item),
            Err(refusal) if refusal.reason == ReasonCode::NotExecutable => {
                wanted.refused.insert((action.guest, op), refusal);
            }
            // Whoever cannot be told apart now may be with the next pass.
            Err(_) => {}
        }
    }
    wanted
}

/// What decides whether an item still waits.
#[derive(Debug)]
pub struct ItemReview<'a> {
    /// What the plan wants.
    pub wanted: &'a [WantedItem],
    /// The node as it was read.
    pub actual: &'a Snapshot,
    /// Which guests were looked at: nothing is decided about the others but that they are too old.
    pub scope: &'a PassScope,
    /// Guests whose lane is at work, or of which not all could be read: nothing is decided about them.
    pub busy: &'a BTreeSet<GuestId>,
    /// The version of the signers.
    pub version: TrustVersion,
    /// The time to judge by.
    pub now: UnixSeconds,
    /// How long an item may wait.
    pub life_s: u64,
}

impl ItemReview<'_> {
    /// Whether an item is over: too old, wanted by nobody, or about a guest that is no longer the same.
    pub fn is_over(&self, item: &PendingItem, raised_by: RaisedBy) -> bool {
        if self.now >= item.raised_at.plus(self.life_s) {
            return true;
        }
        if !self.scope.has(item.guest.vmid) {
            return false;
        }
        let holds = match raised_by {
            RaisedBy::Plan => self.wanted.iter().any(|wanted| wanted.is(item, self.version)),
            RaisedBy::Request => self.is_unchanged(item) && item.trust_version == self.version,
        };
        !holds && !self.busy.contains(&item.guest)
    }

    /// Whether the guest of an item is still the same, as far as the node was read; and whether the item says all that
    /// one would say today.
    fn is_unchanged(&self, item: &PendingItem) -> bool {
        if is_listed_in_old_form(item.guest.kind, &item.params) {
            return false;
        }
        let Some(guest) = self.actual.guests.get(&item.guest.vmid) else {
            return false;
        };
        WantedItem::of(item.op, item.params.clone(), guest)
            .is_ok_and(|wanted| wanted.expected == item.expected && wanted.guest == item.guest)
    }
}

/// The item a statement approves: the one it names, if that waits here and says the same. A guest that is made again and
/// looks the same gets an item that says the same under another name; who signed for the former one has not seen it.
pub fn approved_item<T>(
    statement: &Statement,
    mut items: BTreeMap<PendingId, (PendingItem, T)>,
) -> Result<(PendingItem, T), Refusal> {
    let same_act = |item: &PendingItem| item.op == statement.op && item.guest == statement.guest;
    if let Some((item, waiting)) = items.remove(&statement.item) {
        if same_act(&item) && item.params == statement.params && item.expected == statement.expected
        {
            return Ok((item, waiting));
        }
        return Err(Refusal::new(ReasonCode::Stale, "it differs from the item that it names"));
    }
    Err(match items.iter().find(|(_, (item, _))| same_act(item)) {
        Some((id, _)) => {
            let why =
                format!("the item it approves was replaced by {id}; look at that one and sign it");
            Refusal::new(ReasonCode::Stale, why)
        }
        None => Refusal::new(ReasonCode::NotPending, "no pending item matches it"),
    })
}

/// The item for an act that somebody asks for, with every parameter spelled out: an operator signs no default.
/// What is around the guest is read where the act is [filled from its snapshots](FilledFrom::Snapshot) or saves the guest
/// first.
pub fn requested_item(
    op: ActionKind,
    guest: &Guest,
    around: &BackupContext,
    given: BTreeMap<String, String>,
) -> Result<WantedItem, Refusal> {
    let params = requested_params(op, guest, around, given)?;
    if let Some(why) = never_written(guest, &params) {
        return Err(Refusal::new(ReasonCode::NotExecutable, why));
    }
    let intent = classify::ActIntent {
        op: op.as_str(),
        kind: guest.id.kind,
        params: &params,
        target: Target::Seen(guest),
    };
    if classify(&intent, &Provenance::none()).class != ActionClass::Destructive {
        let why = "it needs no signature: declare it in the desired files";
        return Err(Refusal::new(ReasonCode::NotPending, why));
    }
    WantedItem::of(op, params, guest)
}

/// The parameters of an act that somebody asks for and that is done at once; refused if it would destroy something.
pub fn asked_params(
    op: ActionKind,
    guest: &Guest,
    snapshots: &[SnapshotPoint],
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    let payload = |why: String| Err(Refusal::new(ReasonCode::Payload, why));
    let needed = if op == ActionKind::Backup { "storage" } else { "snapname" };
    if !given.contains_key(needed) {
        let what = needed.to_uppercase();
        return payload(format!("{op} needs {needed}={what}"));
    }
    let around = BackupContext { snapshots: snapshots.to_vec(), ..Default::default() };
    let params = requested_params(op, guest, &around, given)?;
    let name = params.get("snapname");
    if let Some(taken) = snapshots.iter().find(|point| Some(&point.name) == name) {
        return payload(format!("{} has a snapshot `{}` already", guest.id, taken.name));
    }
    let kind = guest.id.kind;
    let target = Target::Seen(guest);
    let intent = classify::ActIntent { op: op.as_str(), kind, params: &params, target };
    let judged = classify(&intent, &Provenance::none());
    match judged.class {
        ActionClass::Benign | ActionClass::Disruptive => Ok(params),
        ActionClass::Destructive => Err(Refusal::new(
            ReasonCode::NotExecutable,
            format!("evenkeel does not do it: {}", judged.why),
        )),
    }
}

fn requested_params(
    op: ActionKind,
    guest: &Guest,
    around: &BackupContext,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    if let Some(why) = op.not_requestable() {
        return Err(Refusal::new(ReasonCode::NotExecutable, why));
    }
    asked::check(op, guest, &around.snapshots, &given)?;
    let row = op.row();
    let of_guest = row.params.iter().filter(|param| param.is_of(guest.id.kind));
    let defaults =
        of_guest.filter_map(|param| Some((param.name.to_owned(), param.default?.to_owned())));
    let mut params: BTreeMap<String, String> = defaults.collect();
    if row.filled_from == FilledFrom::GuestToDestroy {
        params.extend(Destroy::of(guest).params());
    }
    params.extend(given);
    let payload = |why: String| Refusal::new(ReasonCode::Payload, why);
    let named = |name: &str| params.get(name).cloned().unwrap_or_default();
    // What is read wins over what somebody gave in its place.
    match row.filled_from {
        FilledFrom::Defaults => {}
        FilledFrom::GuestToDestroy => list_left_out(&mut params, guest, around),
        FilledFrom::Snapshot => {
            let name = named("snapname");
            let points = &around.snapshots;
            let point = points.iter().find(|point| point.name == name && name != PRESENT);
            let none = || payload(format!("{} has no snapshot `{name}`", guest.id));
            let point = point.ok_or_else(none)?;
            let at = point.taken_at.ok_or_else(none)?;
            params.insert("snaptime".to_owned(), at.0.to_string());
            if op == ActionKind::Rollback {
                fill_start(&mut params, point)?;
            }
        }
        FilledFrom::DetachedVolume => {
            let slot = named("slot");
            let none = || payload(format!("`{slot}` holds no detached volume"));
            params.insert("volume".to_owned(), detached_volume(guest, &slot).ok_or_else(none)?);
        }
    }
    Ok(params)
}

/// Says whether the guest runs after a rollback. Proxmox starts it from a snapshot that holds memory, whatever is asked;
/// evenkeel starts no other.
fn fill_start(params: &mut BTreeMap<String, String>, point: &SnapshotPoint) -> Result<(), Refusal> {
    if params.get("start").is_some_and(|start| start == "1") && !point.with_memory {
        let why = "a rollback starts the guest only from a snapshot that holds memory; start it afterwards, or declare \
                   run = \"running\"";
        return Err(Refusal::new(ReasonCode::NotExecutable, why));
    }
    let starts = if point.with_memory { "1" } else { "0" };
    params.insert("start".to_owned(), starts.to_owned());
    Ok(())
}

/// Whether a rollback still does what was signed: the snapshot of that name is the one that was seen, and the guest runs
/// after it if and only if that was signed.
pub fn check_rollback(
    params: &BTreeMap<String, String>,
    snapshots: &[SnapshotPoint],
) -> Result<(), Refusal> {
    let stale = |why: String| Err(Refusal::new(ReasonCode::Stale, why));
    let text = |name: &str| params.get(name).map_or("", String::as_str);
    let name = text("snapname");
    let Some(point) = snapshots.iter().find(|point| point.name == name && name != PRESENT) else {
        return stale(format!("the guest has no snapshot `{name}` any more"));
    };
    if point.taken_at.map(|at| at.0.to_string()).as_deref() != Some(text("snaptime")) {
        return stale(format!("`{name}` is not the snapshot that was signed for"));
    }
    match (point.with_memory, text("start") == "1") {
        (true, true) | (false, false) => Ok(()),
        (true, false) => stale(format!(
            "`{name}` holds memory, so the machine would run afterwards, and that was not signed; request the \
             rollback again and sign that"
        )),
        (false, true) => {
            let why =
                format!("`{name}` holds no memory, and evenkeel starts no guest after a rollback");
            Err(Refusal::new(ReasonCode::NotExecutable, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y13_a_rollback_is_bound_to_its_snapshot_and_to_whether_it_starts_the_guest() {
        let point = |name: &str, at, with_memory| SnapshotPoint {
            name: name.to_owned(),
            taken_at: Some(UnixSeconds(at)),
            parent: None,
            with_memory,
        };
        let listed = [point("cold", 7, false), point("warm", 8, true), point(PRESENT, 9, false)];
        for (name, time, start, judged) in [
            ("cold", "7", "0", Ok(())),
            ("warm", "8", "1", Ok(())),
            ("warm", "8", "0", Err(ReasonCode::Stale)),
            ("cold", "7", "1", Err(ReasonCode::NotExecutable)),
            ("cold", "8", "0", Err(ReasonCode::Stale)),
            ("gone", "7", "0", Err(ReasonCode::Stale)),
            (PRESENT, "9", "0", Err(ReasonCode::Stale)),
        ] {
            let params = [("snapname", name), ("snaptime", time), ("start", start)];
            let params = params.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
            let found = check_rollback(&params, &listed).map_err(|refusal| refusal.reason);
            assert_eq!(found, judged, "{name} {time} {start}");
        }
    }
}
