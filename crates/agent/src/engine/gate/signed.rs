//! The gate for what an operator signed: everything is judged again inside the lane, on a fresh read.
//!
//! Nothing is remembered from the moment the approval came in: not the signature, not the signers, not the guest. The
//! signers are held fast until the caller has made the decision durable, so no rotation slips in between, and no second
//! act that would be judged by the same budget (invariants 3, 4, 12).

use std::collections::BTreeMap;

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::classify::never_written;
use evenkeel_core::destroy::Destroy;
use evenkeel_core::identity::identity;
use evenkeel_core::identity_proof::TaskListMark;
use evenkeel_core::operation::{Operation, Repeat};
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::registry;
use evenkeel_core::sign::{
    self, Approved, Decision, Envelope, PendingId, PendingItem, Statement, authorise,
};
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, RwLockReadGuard};

use super::{Act, Cleared};
use crate::authority::Authority;
use crate::budget;
use crate::engine::Hands;
use crate::engine::court::Court;
use crate::engine::error::Fatal;
use crate::engine::identity_proof::{end_is_provable, prove_identity};
use crate::engine::pending::waiting;
use crate::observe::observe_guest;
use crate::pve::error::Class;
use crate::pve::name::{ConfigDigest, ConfigKey};
use crate::pve::writes::{ConfigChange, Settings};

/// An approval of an item that waits.
#[derive(Debug, Clone)]
pub(in crate::engine) struct SignedOrder {
    pub(in crate::engine) envelope: Envelope,
    pub(in crate::engine) statement: Statement,
    pub(in crate::engine) id: PendingId,
    pub(in crate::engine) item: PendingItem,
    pub(in crate::engine) mark: TaskListMark,
}

/// What the gate let through, with the signers it was judged by held fast; nobody else is judged meanwhile.
pub(in crate::engine) struct Held<'c> {
    pub(in crate::engine) cleared: Cleared,
    pub(in crate::engine) authority: RwLockReadGuard<'c, Authority>,
    pub(in crate::engine) docket: MutexGuard<'c, ()>,
}

/// Judges a signed act now.
pub(in crate::engine) async fn clear_signed<'c>(
    hands: &Hands,
    court: &'c Court,
    order: &SignedOrder,
) -> Result<Result<Held<'c>, Refusal>, Fatal> {
    let refuse = |reason, why: String| Ok(Err(Refusal::new(reason, why)));
    let fresh = match observe_guest(&hands.client, order.item.guest).await {
        Ok(fresh) => fresh,
        Err(error) if error.class() == Some(&Class::GuestNotFound) => {
            return refuse(
                ReasonCode::IdentityMismatch,
                "no such guest is on this node now".into(),
            );
        }
        Err(error) => return refuse(ReasonCode::IdentityUnproven, error.to_string()),
    };
    if let Some(lock) = &fresh.lock {
        return refuse(ReasonCode::Locked, format!("the guest is locked ({lock})"));
    }
    let found = prove_identity(hands, &fresh, &order.mark).await?;
    let provable = end_is_provable(hands, order.item.op).await;
    let docket = court.docket.lock().await;
    let authority = court.authority.read().await;
    let Some(signers) = authority.trust() else {
        return refuse(ReasonCode::UnknownSigner, "nobody is enrolled on this host".to_owned());
    };
    let reading = hands.reading().await?;
    let (id, nonce, policy, node_now) =
        (order.id, order.statement.nonce, court.policy, hands.node_now());
    let asked = hands.journal.read(move |state, _| {
        let ledger = state.ledger();
        let budget = budget::judge(ledger, &policy, node_now);
        (waiting(state).contains_key(&id), ledger.spent(&nonce), budget)
    });
    let (waits, spent, budget) = asked.await.map_err(Fatal::Journal)?;
    let (op, guest, params) = (order.item.op, order.item.guest, order.item.params.clone());
    let act = sign::Act { op, host: authority.host().clone(), guest, found, params, item: id };
    let limits = court.policy.limits();
    let approved = match authorise(&order.envelope, &act, signers, &reading, &spent, limits) {
        Decision::Allowed(approved) => approved,
        Decision::Refused(refusal) => return Ok(Err(refusal)),
        Decision::Replay { op, result } => {
            let why = format!("it was executed before, by {op}: {}", result.as_str());
            return refuse(ReasonCode::Replay, why);
        }
    };
    if !waits {
        return refuse(ReasonCode::NotPending, "the item it approves no longer waits".to_owned());
    }
    if let Err(refusal) = budget.and(provable) {
        return Ok(Err(refusal));
    }
    if (hands.frozen)() {
        return refuse(ReasonCode::Frozen, "this host is frozen".to_owned());
    }
    match cleared(order, &fresh, &approved) {
        Ok(cleared) => Ok(Ok(Held { cleared, authority, docket })),
        Err(refusal) => Ok(Err(refusal)),
    }
}

fn cleared(order: &SignedOrder, fresh: &Guest, approved: &Approved) -> Result<Cleared, Refusal> {
    let SignedOrder { item, .. } = order;
    let Approved { by, nonce, payload, expires_at, reason } = approved;
    let signed_by: Vec<Value> = by
        .iter()
        .map(|by| json!({ "name": by.name.to_string(), "key": by.key.to_string(), "touch": by.touch.is_some() }))
        .collect();
    let act = act(item, fresh)?;
    Ok(Cleared {
        guest: item.guest,
        kind: item.op,
        params: item.params.clone(),
        reasons: vec![format!("signed: {reason}")],
        decision: super::object([
            ("reason", json!(ReasonCode::AllowedSigned)),
            ("class", json!("destructive")),
            ("signed_by", json!(signed_by)),
            ("nonce", json!(nonce)),
            ("payload", json!(payload)),
            ("pending", json!(order.id)),
            ("statement_reason", json!(reason)),
        ]),
        repeat: Repeat::AtMostOnce {
            key: nonce.idempotency_key(),
            payload: *payload,
            expires_at: *expires_at,
        },
        task_mark: act.unprotects().then(|| order.mark.clone()),
        act,
        identity: identity(fresh).ok(),
        identity_after: None,
        before: BTreeMap::new(),
        volumes_before: None,
    })
}

/// The act in the client's words. What has no executor is refused although it is signed.
fn act(item: &PendingItem, fresh: &Guest) -> Result<Act, Refusal> {
    let not_executable = |why: &str| Err(Refusal::new(ReasonCode::NotExecutable, why));
    let is_on = |name: &str| item.params.get(name).map(String::as_str) == Some("1");
    match item.op {
        ActionKind::Destroy => Ok(Act::Destroy(Destroy::signed(&item.params, fresh)?)),
        ActionKind::Rollback if is_on("start") => {
            not_executable("a rollback that starts the guest")
        }
        ActionKind::Rollback => Ok(Act::Rollback { snapshot: named(item, "snapname")? }),
        ActionKind::DeleteSnapshot if is_on("force") => not_executable("a forced removal"),
        ActionKind::DeleteSnapshot => {
            Ok(Act::DeleteSnapshot { snapshot: named(item, "snapname")? })
        }
        ActionKind::DeleteVolume => delete_volume(item, fresh),
        ActionKind::SetConfig => Ok(Act::SetConfig(change(item, fresh)?)),
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
        | ActionKind::Template
        | ActionKind::WipeStorage
        | ActionKind::Decommission => not_executable("evenkeel has no executor for it"),
    }
}

fn named<T: std::str::FromStr>(item: &PendingItem, name: &str) -> Result<T, Refusal> {
    let text = item.params.get(name).map_or("", String::as_str);
    text.parse().map_err(|_| payload(format!("`{text}` is no {name}")))
}

fn payload(why: String) -> Refusal {
    Refusal::new(ReasonCode::Payload, why)
}

fn digest(fresh: &Guest) -> Result<ConfigDigest, Refusal> {
    let config = fresh.config.as_ref().map_err(|error| payload(error.to_string()))?;
    config.digest.parse().map_err(|error| payload(format!("{error}")))
}

/// The volume that hangs on a guest in this slot, detached.
pub(in crate::engine) fn detached_volume(guest: &Guest, slot: &str) -> Option<String> {
    let key = registry::find(guest.id.kind, slot).filter(|_| slot.starts_with("unused"))?;
    let reading = guest.config.as_ref().ok()?.field(key)?.current.as_ref()?;
    reading.value.as_property()?.volume()?.volid()
}

/// `PUT delete=unusedN`, and only while that slot holds the volume that was signed away.
fn delete_volume(item: &PendingItem, fresh: &Guest) -> Result<Act, Refusal> {
    let (slot, volume) = (item.params.get("slot"), item.params.get("volume"));
    let held = slot.and_then(|slot| detached_volume(fresh, slot));
    if held.is_none() || held.as_ref() != volume {
        let why = "the slot does not hold the volume that was signed away, detached";
        return Err(Refusal::new(ReasonCode::Stale, why));
    }
    let delete = vec![named::<ConfigKey>(item, "slot")?];
    let (set, revert) = (Settings::new(), Vec::new());
    Ok(Act::SetConfig(ConfigChange { set, delete, revert, digest: digest(fresh)? }))
}

fn change(item: &PendingItem, fresh: &Guest) -> Result<ConfigChange, Refusal> {
    if let Some(why) = never_written(fresh, &item.params) {
        return Err(Refusal::new(ReasonCode::NotExecutable, why));
    }
    let mut change = ConfigChange {
        set: Settings::new(),
        delete: Vec::new(),
        revert: Vec::new(),
        digest: digest(fresh)?,
    };
    let key = |text: &str| {
        text.parse::<ConfigKey>().map_err(|_| payload(format!("`{text}` is no configuration key")))
    };
    for (name, text) in &item.params {
        match name.as_str() {
            "digest" => {}
            "delete" => change.delete = text.split(',').map(key).collect::<Result<_, _>>()?,
            "revert" => change.revert = text.split(',').map(key).collect::<Result<_, _>>()?,
            _ => change.set = change.set.set(&key(name)?, text.clone()),
        }
    }
    Ok(change)
}

/// The write that sets a guest's protection and nothing else; none without a digest.
pub(in crate::engine) fn protection(fresh: &Guest, to: &str) -> Option<ConfigChange> {
    let set = Settings::new().set(&"protection".parse::<ConfigKey>().ok()?, to);
    let digest = digest(fresh).ok()?;
    Some(ConfigChange { set, delete: Vec::new(), revert: Vec::new(), digest })
}

/// Gives a guest back the protection that is [owed](evenkeel_core::destroy::Owed) to it; none without a digest.
pub(in crate::engine) fn clear_protection(owed: &Operation, fresh: &Guest) -> Option<Cleared> {
    let change = protection(fresh, "1")?;
    let digest = change.digest.as_str().to_owned();
    let params = [("digest", digest), ("protection", "1".to_owned())];
    let params = params.map(|(name, text)| (name.to_owned(), text)).into();
    Some(Cleared {
        guest: owed.intent.guest,
        kind: ActionKind::SetConfig,
        params,
        reasons: vec![format!("protection unset -> 1 (taken off by {})", owed.id)],
        decision: super::allowed("benign", ""),
        repeat: Repeat::Convergent,
        act: Act::SetConfig(change),
        identity: owed.intent.identity,
        identity_after: None,
        task_mark: None,
        before: BTreeMap::new(),
        volumes_before: None,
    })
}
