//! An operation's event as the fields of a line, in the spellings a person greps for.
//!
//! `state` is the state the operation is in *after* the event, so that the last line of an
//! operation tells where it stands. The way back is strict: a field that does not belong to the
//! event is an error, because a record that is half understood must stop the agent.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity_proof::TaskListMark;
use evenkeel_core::actual::surroundings::SurroundingsHash;
use evenkeel_core::model::id::{GuestId, OperationId, VmId};
use evenkeel_core::operate::back_off::{AttemptHash, TryFailure};
use evenkeel_core::operate::operation::{
    Closer, HubShare, IdentityHash, OpEvent, OpPhase, OpRecord, Repeat, Resolution, SourceMark,
    StartedIntent, UnixSeconds, Upid, VolumeId,
};
use evenkeel_core::sign::PayloadHash;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::details::{Details, Object};
use super::record::{NotUnderstood, OpEntry};

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
        /// The fields of an `op` line as it is read. Which are there depends on the event.
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct OpLine {
            op: OperationId,
            state: StateName,
            $($(#[$doc])* $field: Option<$type>,)+
        }

        impl OpLine {
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
    request: OpPhase,
    node_time: UnixSeconds,
    unprotects: bool,
    restarts: bool,
    clone_source: VmId,
    id_was_free: bool,
    volumes_before: BTreeSet<VolumeId>,
    /// Of unsigned acts: what the guest must name after it. Left out if there is nothing.
    volumes_named: BTreeSet<VolumeId>,
    identity: IdentityHash,
    /// Where a power action makes it another one.
    identity_after: IdentityHash,
    /// Of acts that take a protection off, and of makings.
    task_mark: TaskListMark,
    /// Of makings: what the guest is made from.
    source: SourceMark,
    /// Of makings of scratch guests.
    scratch: bool,
    /// Of makings: what others had given the number.
    around: SurroundingsHash,
    /// Of acts that a hub declares and that take room: what the guest takes of each storage then.
    for_hub: HubShare,
    /// Of the removal of what a making of ours left: that making.
    making: OperationId,
    /// Of what is tried again if it fails.
    attempt: AttemptHash,
    upid: Upid,
    /// Left out when the answer named the task.
    found: bool,
    by: Closer,
    warning: String,
    left_volume: VolumeId,
    /// Of a failure that counts: it is tried again after a pause.
    tried: TryFailure,
    reason: String,
    params: Object,
    before: Object,
    decision: Object,
}

/// An operation's event on its way to a line.
pub(super) struct WrittenOp<'a>(pub(super) &'a OpEntry);

impl Serialize for WrittenOp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let OpEntry { record: OpRecord { op, event }, details } = self.0;
        let mut line = LineFields(serializer.serialize_map(None)?);
        line.put("op", op)?;
        line.put("state", &state_after(event))?;
        match event {
            OpEvent::Started(intent) => {
                put_intent(&mut line, intent)?;
                put_details(&mut line, details)?;
            }
            OpEvent::RequestStarted { request, sent_at } => {
                line.put("request", request)?;
                line.put("node_time", sent_at)?;
            }
            OpEvent::TaskRunning { upid, found } => {
                line.put("upid", upid)?;
                line.put_some("found", found.then_some(&true))?;
            }
            OpEvent::Succeeded { identity, warning } => {
                line.put_some("identity", identity.as_ref())?;
                line.put_some("warning", warning.as_ref())?;
            }
            OpEvent::Failed { reason, left_volume, tried, identity } => {
                line.put("reason", reason)?;
                line.put_some("left_volume", left_volume.as_ref())?;
                line.put_some("tried", tried.as_ref())?;
                line.put_some("identity", identity.as_ref())?;
            }
            OpEvent::Unknown { reason } => line.put("reason", reason)?,
            OpEvent::Resolved { outcome: _ } => line.put("by", &Closer::Operator)?,
        }
        line.0.end()
    }
}

fn state_after(event: &OpEvent) -> StateName {
    match event {
        OpEvent::Started(_) | OpEvent::RequestStarted { .. } => StateName::Started,
        OpEvent::TaskRunning { .. } => StateName::TaskRunning,
        OpEvent::Succeeded { .. } | OpEvent::Resolved { outcome: Resolution::Succeeded } => {
            StateName::Succeeded
        }
        OpEvent::Failed { .. } | OpEvent::Resolved { outcome: Resolution::Failed } => {
            StateName::Failed
        }
        OpEvent::Unknown { .. } => StateName::Unknown,
    }
}

fn put_intent<M: SerializeMap>(
    line: &mut LineFields<M>,
    intent: &StartedIntent,
) -> Result<(), M::Error> {
    let StartedIntent {
        guest,
        kind,
        repeat,
        first,
        unprotects,
        restarts,
        sent_at,
        clone_source,
        id_was_free,
        volumes_before,
        volumes_named,
        identity,
        identity_after,
        task_mark,
        source,
        scratch,
        around,
        for_hub,
        attempt,
    } = intent;
    line.put("guest", guest)?;
    line.put("kind", kind)?;
    line.put(
        "key",
        match repeat {
            Repeat::Convergent | Repeat::OncePerMaking { .. } => "",
            Repeat::AtMostOnce { key, .. } => key.as_str(),
        },
    )?;
    match repeat {
        Repeat::Convergent => {}
        Repeat::OncePerMaking { making } => line.put("making", making)?,
        Repeat::AtMostOnce { payload, expires_at, .. } => {
            line.put("payload", payload)?;
            line.put("expires_at", expires_at)?;
        }
    }
    line.put("request", first)?;
    line.put("node_time", sent_at)?;
    line.put("unprotects", unprotects)?;
    line.put_some("restarts", restarts.then_some(restarts).as_ref())?;
    line.put_some("clone_source", clone_source.as_ref())?;
    line.put("id_was_free", id_was_free)?;
    line.put_some("volumes_before", volumes_before.as_ref())?;
    line.put_some("volumes_named", Some(volumes_named).filter(|named| !named.is_empty()))?;
    line.put_some("identity", identity.as_ref())?;
    line.put_some("identity_after", identity_after.as_ref())?;
    line.put_some("task_mark", task_mark.as_ref())?;
    line.put_some("source", source.as_ref())?;
    line.put_some("scratch", scratch.then_some(scratch).as_ref())?;
    line.put_some("around", around.as_ref())?;
    line.put_some("for_hub", for_hub.as_ref())?;
    line.put_some("attempt", attempt.as_ref())
}

/// What is empty is left out.
fn put_details<M: SerializeMap>(
    line: &mut LineFields<M>,
    details: &Details,
) -> Result<(), M::Error> {
    let Details { params, before, reason, decision, hidden: _ } = details;
    line.put_some("reason", Some(reason).filter(|reason| !reason.is_empty()))?;
    line.put_some("params", Some(params).filter(|params| !params.is_empty()))?;
    line.put_some("before", Some(before).filter(|before| !before.is_empty()))?;
    line.put_some("decision", Some(decision).filter(|decision| !decision.is_empty()))
}

/// The fields of a line while it is written.
struct LineFields<M>(M);

impl<M: SerializeMap> LineFields<M> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), M::Error> {
        self.0.serialize_entry(name, value)
    }

    fn put_some<T: Serialize>(&mut self, name: &str, value: Option<&T>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |value| self.put(name, value))
    }
}

impl OpLine {
    /// Takes out what the line says. The fields are taken where they lie: they are many, and a start-up reads many lines.
    pub(super) fn take_entry(&mut self) -> Result<OpEntry, NotUnderstood> {
        let state = self.state.as_str();
        let refuse = |why| NotUnderstood::Op { state, why };
        let (event, details) = self.take_event().map_err(refuse)?;
        if !self.is_spent() {
            return Err(refuse("there is a field that has no meaning in this state"));
        }
        Ok(OpEntry { record: OpRecord { op: self.op, event }, details })
    }

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
            StateName::TaskRunning => OpEvent::TaskRunning {
                upid: self.upid.take().ok_or("`upid` is missing")?,
                found: self.found.take().unwrap_or(false),
            },
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
                    tried: self.tried.take(),
                    identity: self.identity.take(),
                },
            },
            StateName::Unknown => {
                OpEvent::Unknown { reason: self.reason.take().ok_or("`reason` is missing")? }
            }
        };
        Ok((event, Details::default()))
    }

    fn take_intent(&mut self) -> Result<StartedIntent, &'static str> {
        let key = self.key.take().ok_or("`key` is missing")?;
        let repeat = match (key.as_str(), self.making.take()) {
            ("", None) => Repeat::Convergent,
            ("", Some(making)) => Repeat::OncePerMaking { making },
            (_, Some(_)) => return Err("`making` stands beside a key"),
            (key, None) => Repeat::AtMostOnce {
                key: key.parse().map_err(|_| "`key` is no key")?,
                payload: self.payload.take().ok_or("`payload` is missing")?,
                expires_at: self.expires_at.take().ok_or("`expires_at` is missing")?,
            },
        };
        Ok(StartedIntent {
            guest: self.guest.take().ok_or("`guest` is missing")?,
            kind: self.kind.take().ok_or("`kind` is missing")?,
            repeat,
            first: self.request.take().ok_or("`request` is missing")?,
            unprotects: self.unprotects.take().ok_or("`unprotects` is missing")?,
            restarts: self.restarts.take().unwrap_or_default(),
            sent_at: self.node_time.take().ok_or("`node_time` is missing")?,
            clone_source: self.clone_source.take(),
            id_was_free: self.id_was_free.take().ok_or("`id_was_free` is missing")?,
            volumes_before: self.volumes_before.take(),
            volumes_named: self.volumes_named.take().unwrap_or_default(),
            identity: self.identity.take(),
            identity_after: self.identity_after.take(),
            task_mark: self.task_mark.take(),
            source: self.source.take(),
            scratch: self.scratch.take().unwrap_or_default(),
            around: self.around.take(),
            for_hub: self.for_hub.take(),
            attempt: self.attempt.take(),
        })
    }

    fn take_details(&mut self) -> Details {
        Details {
            params: self.params.take().unwrap_or_default(),
            before: self.before.take().unwrap_or_default(),
            reason: self.reason.take().unwrap_or_default(),
            decision: self.decision.take().unwrap_or_default(),
            ..Details::default()
        }
    }
}
