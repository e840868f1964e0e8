//! A plan as it was shown, to be applied later exactly so or not at all.
//!
//! `plan --out` writes one, `apply PLAN` compares it with a plan made anew. It holds what would be sent and what is
//! held, not the digests: those change with every write, our own included. Of a secret it holds a seal that only
//! somebody with the same API token can make, so that another secret is noticed and none can be guessed from the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512_256};

use super::{Action, GuestBusy, Held, Plan};
use crate::action_registry::ActionKind;
use crate::desired::selection::PassScope;
use crate::model::id::{GuestId, NodeName, VmId};
use crate::model::reason::ReasonCode;
use crate::model::secret;

/// A plan in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPlan {
    /// What the file is.
    pub format: SavedFormat,
    /// The node it was made for.
    pub node: NodeName,
    /// Every action that would run, in order.
    pub actions: Vec<SavedAction>,
    /// The guests it is about, if they were chosen; what else is declared was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<BTreeSet<VmId>>,
    /// Which token its seals were made with; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_by: Option<PlanSeal>,
}

/// The one format there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedFormat {
    /// The first.
    #[serde(rename = "evenkeel/plan/v1")]
    V1,
}

/// One action that would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedAction {
    /// The guest.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// Every parameter but the digest, secrets masked.
    pub params: BTreeMap<String, String>,
    /// The seals of those that are masked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seals: BTreeMap<String, PlanSeal>,
    /// What a person was shown.
    pub reasons: Vec<String>,
}

/// What seals of secrets are made with: derived from the secret of an API token, which is too long to be guessed. Whoever
/// has the file and not the token learns nothing from a seal, not even by trying passwords.
#[derive(Clone)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// The key that belongs to a token's secret.
    pub fn of_token(secret: &str) -> Self {
        Self(digest(&[b"evenkeel/plan/seal-key/v1", secret.as_bytes()]))
    }

    fn seal(&self, guest: GuestId, name: &str, text: &str) -> PlanSeal {
        let guest = guest.to_string();
        let bytes = [b"evenkeel/plan/seal/v1", &self.0[..], guest.as_bytes(), name.as_bytes()];
        let sealed = digest(&[&bytes[..], &[text.as_bytes()]].concat());
        PlanSeal::of(&sealed)
    }

    /// What tells keys apart without giving one away.
    fn mark(&self) -> PlanSeal {
        let mark = digest(&[b"evenkeel/plan/seal-mark/v1", &self.0]);
        PlanSeal::of(&mark[..8])
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Parts with their lengths, so that no two lists of parts give the same bytes. SHA-512/256 cannot be extended by
/// somebody who knows a digest and not the key in front.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha512_256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A secret that can be compared and not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanSeal(String);

impl PlanSeal {
    fn of(bytes: &[u8]) -> Self {
        let mut hex = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
        }
        Self(hex)
    }
}

/// How a plan made now differs from the saved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// It was made for another node.
    OtherNode(NodeName),
    /// Its secrets were sealed with another API token, so they cannot be compared.
    OtherToken,
    /// This would run now and was not in the plan.
    New(SavedAction),
    /// This was in the plan and would not run now, or not so.
    Gone(SavedAction),
    /// This was in the plan and something holds it now: the host is frozen, the guest is locked.
    HeldNow(SavedAction, Held),
    /// This was in the plan, and its guest's lane is at work now.
    BusyNow(SavedAction, GuestBusy),
}

impl Stale {
    /// With the cause, where the plan made now has it: that an act is held is no reason to plan again.
    #[must_use]
    pub fn explained_by(self, now: &Plan) -> Self {
        let Self::Gone(action) = self else {
            return self;
        };
        let Some(guest) = now.guests.iter().find(|guest| guest.guest == action.guest) else {
            return Self::Gone(action);
        };
        if let Some(busy) = &guest.busy {
            return Self::BusyNow(action, busy.clone());
        }
        let alike = |planned: &&Action| planned.step.kind() == action.kind;
        match guest.actions.iter().filter(alike).find_map(|planned| planned.held.clone()) {
            Some(held) => Self::HeldNow(action, held),
            None => Self::Gone(action),
        }
    }

    /// What holds it, as a code; none if it is simply stale.
    pub fn held_by(&self) -> Option<ReasonCode> {
        match self {
            Self::OtherNode(_) | Self::OtherToken | Self::New(_) | Self::Gone(_) => None,
            Self::HeldNow(_, held) => Some(held.reason()),
            Self::BusyNow(_, busy) => Some(busy.reason()),
        }
    }

    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::OtherNode(_) => "nothing was sent; name that node with --node, or plan this one",
            Self::OtherToken => "nothing was sent; plan with the token you apply with",
            Self::New(_) | Self::Gone(_) => "nothing was sent; plan again, and look again",
            Self::HeldNow(_, Held::Frozen) => {
                "nothing was sent; `evenkeel status` tells who froze this host and why, `evenkeel thaw` ends it"
            }
            Self::HeldNow(..) | Self::BusyNow(..) => {
                "nothing was sent; apply the plan once that is over"
            }
        }
    }
}

impl SavedPlan {
    /// What of a plan would run.
    pub fn of(plan: &Plan, scope: &PassScope, node: &NodeName, key: &SealKey) -> Self {
        let actions: Vec<SavedAction> =
            plan.runnable().map(|action| SavedAction::of(action, key)).collect();
        let is_sealed = actions.iter().any(|action| !action.seals.is_empty());
        let sealed_by = is_sealed.then(|| key.mark());
        let chosen = match scope {
            PassScope::Whole => None,
            PassScope::Chosen(chosen) => Some(chosen.clone()),
        };
        Self { format: SavedFormat::V1, node: node.clone(), actions, chosen, sealed_by }
    }

    /// What it is about: a plan made anew to compare with it looks at the same guests.
    pub fn scope(&self) -> PassScope {
        self.chosen.clone().map_or(PassScope::Whole, PassScope::Chosen)
    }

    /// Whether a plan made now would run something else; the first difference.
    pub fn stale_against(&self, now: &Self) -> Option<Stale> {
        if self.node != now.node {
            return Some(Stale::OtherNode(self.node.clone()));
        }
        if let (Some(then), Some(now)) = (&self.sealed_by, &now.sealed_by)
            && then != now
        {
            return Some(Stale::OtherToken);
        }
        let missing = |from: &Self, other: &Self| {
            from.actions.iter().find(|action| !other.actions.contains(action)).cloned()
        };
        missing(self, now).map(Stale::Gone).or_else(|| missing(now, self).map(Stale::New))
    }
}

impl SavedAction {
    fn of(action: &Action, key: &SealKey) -> Self {
        let guest = action.guest;
        let mut params = action.step.shown_params();
        params.remove("digest");
        let sent = action.step.params();
        let masked = params.iter().filter(|(_, text)| secret::is_masked(text));
        let seals = masked
            .filter_map(|(name, _)| Some((name.clone(), key.seal(guest, name, sent.get(name)?))))
            .collect();
        Self { guest, kind: action.step.kind(), params, seals, reasons: action.reasons() }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |f: &mut fmt::Formatter<'_>, action: &SavedAction, how: &str| {
            let SavedAction { guest, kind, reasons, .. } = action;
            write!(f, "{guest}: {} ({}) {how}", kind.as_str(), reasons.join(", "))
        };
        match self {
            Self::OtherNode(node) => write!(f, "it was made for node {node}"),
            Self::OtherToken => f.write_str(
                "it was made with another API token, so that its secrets cannot be compared with those of now",
            ),
            Self::New(action) => told(f, action, "would run now and was not in the plan"),
            Self::Gone(action) => told(f, action, "is in the plan and would not run so now"),
            Self::HeldNow(_, Held::Frozen) => f.write_str("this host is frozen"),
            Self::HeldNow(action, held) => told(f, action, &format!("is held now: {held}")),
            Self::BusyNow(action, busy) => told(f, action, &format!("waits: {busy}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::classify::ActionClass;
    use crate::plan::{GuestPlan, Step};

    fn planned(held: Option<Held>, busy: Option<GuestBusy>) -> Plan {
        let guest: GuestId = "lxc/101".parse().unwrap();
        let step = Step::Start;
        let class = ActionClass::Benign;
        let action = Action { guest, step, changes: Vec::new(), class, why: String::new(), held };
        let actions = if busy.is_some() { Vec::new() } else { vec![action] };
        let waiting = Vec::new();
        let problems = Vec::new();
        let guests = vec![GuestPlan { guest, actions, waiting, problems, busy }];
        Plan { guests, ..Plan::default() }
    }

    #[test]
    fn a_plan_that_something_holds_now_says_what_and_not_to_plan_again() {
        let node = "pve1".parse().unwrap();
        let key = SealKey::of_token("t");
        let saved = SavedPlan::of(&planned(None, None), &PassScope::Whole, &node, &key);
        let told = |plan: &Plan| {
            let stale =
                saved.stale_against(&SavedPlan::of(plan, &PassScope::Whole, &node, &key)).unwrap();
            let stale = stale.explained_by(plan);
            (stale.held_by(), stale.to_string(), stale.hint())
        };
        let (by, text, hint) = told(&planned(Some(Held::Frozen), None));
        assert_eq!((by, text.as_str()), (Some(ReasonCode::Frozen), "this host is frozen"));
        assert!(hint.contains("evenkeel thaw") && !hint.contains("plan again"), "{hint}");
        let lock = Held::Locked { lock: "backup".to_owned(), by: None, left: None };
        let (by, text, hint) = told(&planned(Some(lock), None));
        assert_eq!(by, Some(ReasonCode::Locked));
        assert!(text.contains("is held now") && !hint.contains("plan again"), "{text} {hint}");
        let op = "op_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let busy = GuestBusy { op, since: "12:00".to_owned(), unknown: None, left: None };
        let (by, text, _) = told(&planned(None, Some(busy)));
        assert_eq!(by, Some(ReasonCode::Busy));
        assert!(text.contains("busy with op_"), "{text}");
        let (by, _, hint) = told(&Plan::default());
        assert_eq!(by, None);
        assert!(hint.contains("plan again"), "{hint}");
    }

    #[test]
    fn x08_a_seal_differs_by_token_guest_key_and_secret_and_shows_none_of_them() {
        let (guest, other): (GuestId, GuestId) =
            ("lxc/101".parse().unwrap(), "lxc/102".parse().unwrap());
        let one = SealKey::of_token("token-one");
        let two = SealKey::of_token("token-two");
        let seal = one.seal(guest, "env", "A=marked");
        assert_eq!(seal, one.seal(guest, "env", "A=marked"));
        for another in [
            two.seal(guest, "env", "A=marked"),
            one.seal(other, "env", "A=marked"),
            one.seal(guest, "args", "A=marked"),
            one.seal(guest, "env", "A=marke"),
            one.seal(guest, "en", "vA=marked"),
        ] {
            assert_ne!(seal, another);
        }
        assert_ne!(one.mark(), two.mark());
        assert!(!format!("{one:?}{seal:?}").contains("marked"));
    }
}
