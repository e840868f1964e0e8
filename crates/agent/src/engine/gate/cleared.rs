//! An act the gate let through: what is sent, and what the journal says of it. Only the gate makes one.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::back_off::AttemptHash;
use evenkeel_core::operate::operation::{
    HubShare, IdentityHash, Repeat, StartedIntent, UnixSeconds, VolumeId,
};
use evenkeel_core::operate::pve_call::PveCall;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::make::MakingMarks;
use crate::engine::gate::removals::RemovalProof;
use crate::journal::Details;

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
    pub(super) guest: GuestId,
    pub(super) kind: ActionKind,
    /// Every parameter, as the journal keeps it.
    pub(super) params: BTreeMap<String, String>,
    pub(super) reasons: Vec<String>,
    pub(super) decision: Map<String, Value>,
    pub(super) repeat: Repeat,
    pub(super) call: PveCall,
    pub(super) identity: Option<IdentityHash>,
    pub(super) identity_after: Option<IdentityHash>,
    pub(super) task_mark: Option<TaskListMark>,
    pub(super) purpose: ClearedPurpose,
    /// What it tries, if it is tried again after a failure.
    pub(super) attempt: Option<AttemptHash>,
    pub(super) before: BTreeMap<String, String>,
    pub(super) volumes_before: Option<BTreeSet<VolumeId>>,
    /// Of an unsigned act: the volumes that the guest must name after it.
    pub(super) volumes_named: BTreeSet<VolumeId>,
    /// Of an act that takes room for a hub: what its guest takes then.
    pub(super) for_hub: Option<HubShare>,
}

/// What an act is for, with what only such an act needs.
#[derive(Debug)]
pub(super) enum ClearedPurpose {
    /// Neither of the following.
    Ordinary,
    /// It makes a guest.
    Making {
        /// What the node had just before, as `started` keeps it.
        marks: MakingMarks,
        /// Whether the guest is scratch, under a number at which that counts.
        scratch: bool,
        /// Its first password: sent, and kept nowhere.
        password: Option<SecretString>,
    },
    /// It removes a guest of ours, which this proves.
    Removal(Box<RemovalProof>),
}

impl Cleared {
    pub(in crate::engine) fn guest(&self) -> GuestId {
        self.guest
    }

    pub(in crate::engine) fn call(&self) -> &PveCall {
        &self.call
    }

    pub(in crate::engine) fn identity(&self) -> Option<IdentityHash> {
        self.identity
    }

    /// What proves that the guest is ours to remove, and its configuration by then.
    pub(in crate::engine) fn removal(&self) -> Option<&RemovalProof> {
        match &self.purpose {
            ClearedPurpose::Removal(proof) => Some(proof),
            ClearedPurpose::Ordinary | ClearedPurpose::Making { .. } => None,
        }
    }

    pub(in crate::engine) fn password(&self) -> Option<SecretString> {
        match &self.purpose {
            ClearedPurpose::Making { password, .. } => password.clone(),
            ClearedPurpose::Ordinary | ClearedPurpose::Removal(_) => None,
        }
    }

    /// `cores 2 -> 4`.
    pub(in crate::engine) fn reason(&self) -> String {
        self.reasons.join(", ")
    }

    /// What the `started` record promises.
    pub(in crate::engine) fn intent(&self, sent_at: UnixSeconds) -> StartedIntent {
        let (source, around, scratch) = match &self.purpose {
            ClearedPurpose::Making { marks, scratch, password: _ } => {
                (marks.source.clone(), marks.around, *scratch)
            }
            ClearedPurpose::Ordinary | ClearedPurpose::Removal(_) => (None, None, false),
        };
        StartedIntent {
            guest: self.guest,
            kind: self.kind,
            repeat: self.repeat.clone(),
            first: self.call.first_request(),
            unprotects: self.call.unprotects(),
            restarts: self.call.restarts(),
            sent_at,
            clone_source: self.call.clone_source(),
            id_was_free: self.call.makes(),
            volumes_before: self.volumes_before.clone(),
            volumes_named: self.volumes_named.clone(),
            identity: self.identity,
            identity_after: self.identity_after,
            task_mark: self.task_mark.clone(),
            source,
            scratch,
            around,
            for_hub: self.for_hub.clone(),
            attempt: self.attempt,
        }
    }

    /// What it tells besides: parameters, the values they replace, why, and the decision.
    pub(in crate::engine) fn details(&self) -> Details {
        let texts = |texts: &BTreeMap<String, String>| -> Map<String, Value> {
            texts.iter().map(|(key, text)| (key.clone(), Value::from(text.as_str()))).collect()
        };
        Details::new(texts(&self.params), texts(&self.before), self.reason(), self.decision.clone())
    }

    /// One that clears nothing in particular, for tests of the client's own calls.
    #[cfg(test)]
    pub(crate) fn in_a_test() -> Self {
        Self::plain("lxc/100".parse().unwrap(), ActionKind::Start, PveCall::Start)
    }

    /// An act that may be repeated, with nothing said of it yet.
    pub(super) fn plain(guest: GuestId, kind: ActionKind, call: PveCall) -> Self {
        Self {
            guest,
            kind,
            params: BTreeMap::new(),
            reasons: Vec::new(),
            decision: Map::new(),
            repeat: Repeat::Convergent,
            call,
            identity: None,
            identity_after: None,
            task_mark: None,
            purpose: ClearedPurpose::Ordinary,
            attempt: None,
            before: BTreeMap::new(),
            volumes_before: None,
            volumes_named: BTreeSet::new(),
            for_hub: None,
        }
    }
}

/// What the journal says of an action that needs nobody's signature.
pub(super) fn allowed(class: &str, why: &str) -> Map<String, Value> {
    object([("reason", json!(ReasonCode::Allowed)), ("class", json!(class)), ("why", json!(why))])
}

pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
