//! The gate: judges an action inside its lane, on a fresh read, directly before it is sent (invariant 2).
//!
//! Called by `execute` alone. [`Cleared`] is the only thing the client's mutating calls accept, and only this
//! file and its `signed` half can make one: benign actions take the same way as all others. The guest is read and planned anew; what
//! runs is exactly what was planned, or nothing.
//!
//! ```text
//!   frozen? ─> read the guest ─> plan it again ─> the same act, not held ─> volumes of an allocating write ─> Cleared
//! ```

pub(super) mod signed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::actual;
use evenkeel_core::desired;
use evenkeel_core::destroy::Destroy;
use evenkeel_core::gate::{Site, Verdict, judge};
use evenkeel_core::id::{GuestId, IdError};
use evenkeel_core::identity::{identity, identity_after_restart};
use evenkeel_core::identity_proof::TaskListMark;
use evenkeel_core::operation::{IdentityHash, Intent, Repeat, Request, UnixSeconds, VolumeId};
use evenkeel_core::plan::{Action, Held, SetConfig, Step};
use evenkeel_core::reason::ReasonCode;
use serde_json::{Map, Value, json};

use super::error::Fatal;
use super::volumes::volumes_before;
use super::{Hands, backups};
use crate::journal::Details;
use crate::observe::observe_guest;
use crate::pve::error::Class;
use crate::pve::name::{ConfigDigest, ConfigKey, SnapshotName};
use crate::pve::writes::{ConfigChange, Settings};

/// One planned action with what is needed to judge it again.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// What was planned.
    pub(super) action: Action,
    /// What is declared of its guest.
    pub(super) desired: Arc<desired::Guest>,
    /// The node it was planned for.
    pub(super) site: Site,
}

/// An act the gate let through, with the guest as it was at that moment. Only the gate makes one:
///
/// ```compile_fail,E0451
/// use evenkeel_agent::engine::Cleared;
/// fn forge(real: Cleared) -> Cleared {
///     Cleared { identity: None, ..real }
/// }
/// ```
///
/// and only the executor can show it to the client:
///
/// ```compile_fail,E0624
/// use evenkeel_agent::{engine::Cleared, pve::Client};
/// async fn sneak(client: Client, cleared: Cleared) {
///     let _ = client.writes(&cleared);
/// }
/// ```
///
/// although anybody may read:
///
/// ```
/// async fn look(client: evenkeel_agent::pve::Client) {
///     let _ = client.version().await;
/// }
/// ```
#[derive(Debug)]
pub struct Cleared {
    guest: GuestId,
    kind: ActionKind,
    /// Every parameter, as the journal keeps it.
    params: BTreeMap<String, String>,
    reasons: Vec<String>,
    decision: Map<String, Value>,
    repeat: Repeat,
    act: Act,
    identity: Option<IdentityHash>,
    identity_after: Option<IdentityHash>,
    task_mark: Option<TaskListMark>,
    before: BTreeMap<String, String>,
    volumes_before: Option<BTreeSet<VolumeId>>,
}

/// What is sent: the steps that have an executor, in the client's words.
#[derive(Debug, Clone)]
pub(super) enum Act {
    SetConfig(ConfigChange),
    Resize { slot: ConfigKey, to_bytes: u64, digest: ConfigDigest },
    Start,
    Shutdown { timeout_s: u32 },
    Stop,
    Rollback { snapshot: SnapshotName },
    DeleteSnapshot { snapshot: SnapshotName },
    Destroy(Destroy),
}

impl Act {
    /// The first request it sends.
    pub(super) fn first(&self) -> Request {
        match self {
            Self::Destroy(Destroy { stop: true, .. }) => Request::Stop,
            Self::Destroy(Destroy { unprotect: true, .. }) => Request::Unprotect,
            Self::Destroy(_)
            | Self::SetConfig(_)
            | Self::Resize { .. }
            | Self::Start
            | Self::Shutdown { .. }
            | Self::Stop
            | Self::Rollback { .. }
            | Self::DeleteSnapshot { .. } => Request::Act,
        }
    }

    /// Whether it takes the protection off on the way.
    pub(super) fn unprotects(&self) -> bool {
        matches!(self, Self::Destroy(Destroy { unprotect: true, .. }))
    }
}

/// Why an action does not run.
#[derive(Debug)]
pub(super) enum Stop {
    /// The guest is as declared.
    Unneeded,
    /// It is no longer what was planned.
    Stale(String),
    /// It may not run now.
    Held(ReasonCode, String),
    /// It cannot be judged or done.
    Refused(String),
    /// The journal broke: everything ends.
    Fatal(Fatal),
}

impl Cleared {
    pub(super) fn guest(&self) -> GuestId {
        self.guest
    }

    pub(super) fn act(&self) -> &Act {
        &self.act
    }

    pub(super) fn identity(&self) -> Option<IdentityHash> {
        self.identity
    }

    /// `cores 2 -> 4`.
    pub(super) fn reason(&self) -> String {
        self.reasons.join(", ")
    }

    /// What the `started` record promises.
    pub(super) fn intent(&self, sent_at: UnixSeconds) -> Intent {
        Intent {
            guest: self.guest,
            kind: self.kind,
            repeat: self.repeat.clone(),
            first: self.act.first(),
            unprotects: self.act.unprotects(),
            sent_at,
            clone_source: None,
            id_was_free: false,
            volumes_before: self.volumes_before.clone(),
            identity: self.identity,
            identity_after: self.identity_after,
            task_mark: self.task_mark.clone(),
        }
    }

    /// What it tells besides: parameters, the values they replace, why, and the decision.
    pub(super) fn details(&self) -> Details {
        let texts = |texts: &BTreeMap<String, String>| -> Map<String, Value> {
            texts.iter().map(|(key, text)| (key.clone(), Value::from(text.as_str()))).collect()
        };
        Details::new(texts(&self.params), texts(&self.before), self.reason(), self.decision.clone())
    }

    /// One that clears nothing in particular, for tests of the client's own calls.
    #[cfg(test)]
    pub(crate) fn in_a_test() -> Self {
        Self {
            guest: "lxc/100".parse().unwrap(),
            kind: ActionKind::Start,
            params: BTreeMap::new(),
            reasons: Vec::new(),
            decision: Map::new(),
            repeat: Repeat::Convergent,
            act: Act::Start,
            identity: None,
            identity_after: None,
            task_mark: None,
            before: BTreeMap::new(),
            volumes_before: None,
        }
    }
}

/// What the journal says of an action that needs nobody's signature.
fn allowed(class: &str, why: &str) -> Map<String, Value> {
    object([("reason", json!(ReasonCode::Allowed)), ("class", json!(class)), ("why", json!(why))])
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Judges one action now.
pub(super) async fn clear(hands: &Hands, order: &Order) -> Result<Cleared, Stop> {
    if (hands.frozen)() {
        return Err(Stop::Held(ReasonCode::Frozen, Held::Frozen.to_string()));
    }
    let guest = order.action.guest;
    let fresh = match observe_guest(&hands.client, guest).await {
        Ok(fresh) => fresh,
        Err(error) if error.class() == Some(&Class::GuestNotFound) => {
            return Err(Stop::Stale("the guest is no longer on this node".to_owned()));
        }
        Err(error) => return Err(Stop::Refused(format!("the guest could not be read: {error}"))),
    };
    let memories = backups::memories(hands).await.map_err(Stop::Fatal)?;
    let memory = memories.get(&guest.vmid).cloned().unwrap_or_default();
    let action = match judge(&order.action, &order.desired, &fresh, &order.site, memory) {
        Verdict::Clear(action) => *action,
        Verdict::Unneeded => return Err(Stop::Unneeded),
        Verdict::Stale(why) => return Err(Stop::Stale(why)),
        Verdict::Held(held) => return Err(Stop::Held(held.reason(), held.to_string())),
        Verdict::Refused(problem) => return Err(Stop::Refused(problem.to_string())),
    };
    let act = act(&action.step)?;
    let volumes_before = match &action.step {
        Step::SetConfig(write) => {
            backups::remember(hands, &fresh, write).await.map_err(Stop::Fatal)?;
            volumes_before(&hands.client, &fresh, &action).await.map_err(Stop::Refused)?
        }
        Step::Resize { .. }
        | Step::Start
        | Step::Shutdown { .. }
        | Step::Stop
        | Step::Create
        | Step::Destroy(_) => None,
    };
    let class = action.class.to_string();
    Ok(Cleared {
        guest,
        kind: action.step.kind(),
        params: action.step.params(),
        reasons: action.reasons(),
        decision: allowed(&class, &action.why),
        repeat: Repeat::Convergent,
        identity_after: identity_after(&act, &fresh),
        task_mark: None,
        act,
        identity: identity(&fresh).ok(),
        before: before(&action, &fresh),
        volumes_before,
    })
}

/// The identity a power action gives a guest by applying what waits.
fn identity_after(act: &Act, fresh: &actual::Guest) -> Option<IdentityHash> {
    match act {
        Act::Start | Act::Shutdown { .. } | Act::Stop => {
            let after = identity_after_restart(fresh).ok();
            after.filter(|after| identity(fresh).as_ref() != Ok(after))
        }
        Act::SetConfig(_)
        | Act::Resize { .. }
        | Act::Rollback { .. }
        | Act::DeleteSnapshot { .. }
        | Act::Destroy(_) => None,
    }
}

fn act(step: &Step) -> Result<Act, Stop> {
    let refused = |error: IdError| Stop::Refused(error.to_string());
    Ok(match step {
        Step::SetConfig(write) => Act::SetConfig(change(write).map_err(refused)?),
        Step::Resize { disk, to, digest, from: _ } => Act::Resize {
            slot: disk.to_string().parse().map_err(refused)?,
            to_bytes: to.0,
            digest: digest.parse().map_err(refused)?,
        },
        Step::Start => Act::Start,
        Step::Shutdown { timeout_s } => Act::Shutdown { timeout_s: *timeout_s },
        Step::Stop => Act::Stop,
        Step::Create => {
            let why = "creating guests is not available yet".to_owned();
            return Err(Stop::Held(ReasonCode::NotExecutable, why));
        }
        Step::Destroy(_) => {
            return Err(Stop::Held(
                ReasonCode::PendingSignature,
                Held::PendingSignature.to_string(),
            ));
        }
    })
}

fn change(write: &SetConfig) -> Result<ConfigChange, IdError> {
    let mut set = Settings::new();
    for (key, text) in &write.set {
        set = set.set(&key.to_string().parse()?, text.clone());
    }
    let keys = |keys: &[evenkeel_core::registry::KeyRef]| {
        keys.iter().map(|key| key.to_string().parse()).collect::<Result<Vec<ConfigKey>, _>>()
    };
    let (delete, revert) = (keys(&write.delete)?, keys(&write.revert)?);
    Ok(ConfigChange { set, delete, revert, digest: write.digest.parse()? })
}

/// The old text of every key the action writes.
fn before(action: &Action, guest: &actual::Guest) -> BTreeMap<String, String> {
    let Ok(config) = &guest.config else {
        return BTreeMap::new();
    };
    let old = |key| Some(config.field(key)?.current.as_ref()?.text.to_string());
    match &action.step {
        Step::SetConfig(_) => {
            let keys = action.changes.iter().map(|change| change.key);
            keys.filter_map(|key| Some((key.to_string(), old(key)?))).collect()
        }
        Step::Resize { disk, .. } => {
            old(*disk).map(|text| (disk.to_string(), text)).into_iter().collect()
        }
        Step::Start | Step::Shutdown { .. } | Step::Stop | Step::Create | Step::Destroy(_) => {
            [("run".to_owned(), guest.power.to_string())].into()
        }
    }
}
