//! An operation's event as the fields of a line, in the spellings a person greps for.
//!
//! `state` is the state the operation is in *after* the event, so that the last line of an
//! operation tells where it stands. The way back is strict: a field that does not belong to the
//! event is an error, because a record that is half understood must stop the agent.

use std::collections::BTreeSet;

use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::id::{GuestId, OperationId, VmId};
use evenkeel_core::operation::{
    Closer, IdentityHash, Intent, OpEvent, OpRecord, Repeat, Request, Resolution, UnixSeconds,
    Upid, VolumeId,
};
use evenkeel_core::sign::PayloadHash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::{Details, NotUnderstood, OpEntry};

/// The five spellings of an operation's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Started,
    TaskRunning,
    Succeeded,
    Failed,
    Unknown,
}

impl StateName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::TaskRunning => "task_running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

macro_rules! optional_fields {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {
        /// The fields of an `op` line. Which are there depends on the event.
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct OpLine {
            op: OperationId,
            state: StateName,
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>,)+
        }

        impl OpLine {
            fn new(op: OperationId, state: StateName) -> Self {
                Self { op, state, $($field: None,)+ }
            }

            /// Whether every field has been taken.
            fn is_spent(&self) -> bool {
                $(self.$field.is_none())&&+
            }
        }
    };
}

optional_fields! {
    guest: GuestId,
    kind: ActionKind,
    /// Empty for operations that may run again.
    key: String,
    /// Of signed operations only.
    payload: PayloadHash,
    expires_at: UnixSeconds,
    request: Request,
    node_time: UnixSeconds,
    unprotects: bool,
    clone_source: VmId,
    id_was_free: bool,
    volumes_before: BTreeSet<VolumeId>,
    identity: IdentityHash,
    upid: Upid,
    by: Closer,
    warning: String,
    left_volume: VolumeId,
    reason: String,
    params: Map<String, Value>,
    before: Map<String, Value>,
    decision: Value,
}

impl From<&OpEntry> for OpLine {
    fn from(entry: &OpEntry) -> Self {
        let op = entry.record.op;
        match &entry.record.event {
            OpEvent::Started(intent) => started(op, intent, &entry.details),
            OpEvent::RequestStarted { request, sent_at } => Self {
                request: Some(*request),
                node_time: Some(*sent_at),
                ..Self::new(op, StateName::Started)
            },
            OpEvent::TaskRunning { upid } => {
                Self { upid: Some(upid.clone()), ..Self::new(op, StateName::TaskRunning) }
            }
            OpEvent::Succeeded { identity, warning } => Self {
                identity: *identity,
                warning: warning.clone(),
                ..Self::new(op, StateName::Succeeded)
            },
            OpEvent::Failed { reason, left_volume } => Self {
                reason: Some(reason.clone()),
                left_volume: left_volume.clone(),
                ..Self::new(op, StateName::Failed)
            },
            OpEvent::Unknown { reason } => {
                Self { reason: Some(reason.clone()), ..Self::new(op, StateName::Unknown) }
            }
            OpEvent::Resolved { outcome } => {
                let state = match outcome {
                    Resolution::Succeeded => StateName::Succeeded,
                    Resolution::Failed => StateName::Failed,
                };
                Self { by: Some(Closer::Operator), ..Self::new(op, state) }
            }
        }
    }
}

fn started(op: OperationId, intent: &Intent, details: &Details) -> OpLine {
    let Intent {
        guest,
        kind,
        repeat,
        first,
        unprotects,
        sent_at,
        clone_source,
        id_was_free,
        volumes_before,
        identity,
    } = intent;
    let Details { params, before, reason, decision } = details;
    OpLine {
        guest: Some(*guest),
        kind: Some(*kind),
        key: Some(match repeat {
            Repeat::Convergent => String::new(),
            Repeat::AtMostOnce { key, .. } => key.as_str().to_owned(),
        }),
        payload: match repeat {
            Repeat::Convergent => None,
            Repeat::AtMostOnce { payload, .. } => Some(*payload),
        },
        expires_at: match repeat {
            Repeat::Convergent => None,
            Repeat::AtMostOnce { expires_at, .. } => Some(*expires_at),
        },
        request: Some(*first),
        node_time: Some(*sent_at),
        unprotects: Some(*unprotects),
        clone_source: *clone_source,
        id_was_free: Some(*id_was_free),
        volumes_before: volumes_before.clone(),
        identity: *identity,
        reason: (!reason.is_empty()).then(|| reason.clone()),
        params: (!params.is_empty()).then(|| params.clone()),
        before: (!before.is_empty()).then(|| before.clone()),
        decision: (!decision.is_null()).then(|| decision.clone()),
        ..OpLine::new(op, StateName::Started)
    }
}

impl TryFrom<OpLine> for OpEntry {
    type Error = NotUnderstood;

    fn try_from(mut line: OpLine) -> Result<Self, NotUnderstood> {
        let state = line.state.as_str();
        let refuse = |why| NotUnderstood::Op { state, why };
        let (event, details) = line.take_event().map_err(refuse)?;
        if !line.is_spent() {
            return Err(refuse("there is a field that has no meaning in this state"));
        }
        Ok(Self { record: OpRecord { op: line.op, event }, details })
    }
}

impl OpLine {
    /// Takes out the fields of the event this line tells.
    fn take_event(&mut self) -> Result<(OpEvent, Details), &'static str> {
        let event = match self.state {
            StateName::Started if self.guest.is_some() => {
                let intent = self.take_intent()?;
                return Ok((OpEvent::Started(Box::new(intent)), self.take_details()));
            }
            StateName::Started => OpEvent::RequestStarted {
                request: self.request.take().ok_or("`request` is missing")?,
                sent_at: self.node_time.take().ok_or("`node_time` is missing")?,
            },
            StateName::TaskRunning => {
                OpEvent::TaskRunning { upid: self.upid.take().ok_or("`upid` is missing")? }
            }
            StateName::Succeeded => match self.by.take() {
                Some(Closer::Operator) => OpEvent::Resolved { outcome: Resolution::Succeeded },
                Some(Closer::Evidence) => return Err("`by` names an operator or is left out"),
                None => OpEvent::Succeeded {
                    identity: self.identity.take(),
                    warning: self.warning.take(),
                },
            },
            StateName::Failed => match self.by.take() {
                Some(Closer::Operator) => OpEvent::Resolved { outcome: Resolution::Failed },
                Some(Closer::Evidence) => return Err("`by` names an operator or is left out"),
                None => OpEvent::Failed {
                    reason: self.reason.take().ok_or("`reason` is missing")?,
                    left_volume: self.left_volume.take(),
                },
            },
            StateName::Unknown => {
                OpEvent::Unknown { reason: self.reason.take().ok_or("`reason` is missing")? }
            }
        };
        Ok((event, Details::default()))
    }

    fn take_intent(&mut self) -> Result<Intent, &'static str> {
        let key = self.key.take().ok_or("`key` is missing")?;
        let repeat = if key.is_empty() {
            Repeat::Convergent
        } else {
            Repeat::AtMostOnce {
                key: key.parse().map_err(|_| "`key` is no key")?,
                payload: self.payload.take().ok_or("`payload` is missing")?,
                expires_at: self.expires_at.take().ok_or("`expires_at` is missing")?,
            }
        };
        Ok(Intent {
            guest: self.guest.take().ok_or("`guest` is missing")?,
            kind: self.kind.take().ok_or("`kind` is missing")?,
            repeat,
            first: self.request.take().ok_or("`request` is missing")?,
            unprotects: self.unprotects.take().ok_or("`unprotects` is missing")?,
            sent_at: self.node_time.take().ok_or("`node_time` is missing")?,
            clone_source: self.clone_source.take(),
            id_was_free: self.id_was_free.take().ok_or("`id_was_free` is missing")?,
            volumes_before: self.volumes_before.take(),
            identity: self.identity.take(),
        })
    }

    fn take_details(&mut self) -> Details {
        Details {
            params: self.params.take().unwrap_or_default(),
            before: self.before.take().unwrap_or_default(),
            reason: self.reason.take().unwrap_or_default(),
            decision: self.decision.take().unwrap_or_default(),
        }
    }
}
