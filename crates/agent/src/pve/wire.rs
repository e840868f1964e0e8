//! JSON about guests and tasks as Proxmox VE sends it, read into plain values.
//!
//! These are wire types: one struct per answer, unknown fields ignored, scalars lenient, identifiers
//! checked. They are not the domain's: `observe` turns them into core's snapshot. A row of a list that
//! cannot be read is handed on as that (`list`), because a guest left out would look absent. The keys of one
//! guest and its snapshots are one thing: what of them cannot be read makes that guest unreadable, and no other.

use std::collections::BTreeMap;

use evenkeel_core::model::id::VmId;
use evenkeel_core::sign::ConfigDigest;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::scalar::{self, Scalar};
use super::task::{ExitStatus, Upid};

/// One guest of `GET /nodes/NODE/{lxc,qemu}`, or of its `status/current`: what a pass must know of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestEntry {
    /// The guest's number.
    #[serde(deserialize_with = "scalar::parsed")]
    pub vmid: VmId,
    /// Whether it runs.
    pub status: RunStatus,
    /// QEMU's own word: `running`, `paused`, `prelaunch`, …
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub qmpstatus: Option<String>,
    /// The config's `lock`.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub lock: Option<String>,
    /// True for a template.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub template: bool,
    /// HA, in `status/current` only.
    #[serde(default)]
    pub ha: Option<HaState>,
}

/// The same guest as people choose it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NamedEntry {
    /// The guest's number.
    #[serde(deserialize_with = "scalar::parsed")]
    pub vmid: VmId,
    /// Its name or host name.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub name: Option<String>,
    /// Its tags as stored.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub tags: Option<String>,
}

/// Whether a guest runs, as lists and `status/current` say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// A process exists; a paused VM counts as running.
    Running,
    /// None exists.
    Stopped,
    /// A word this client does not know.
    Other(String),
}

impl<'de> Deserialize<'de> for RunStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match &*scalar::word(deserializer)? {
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            other => Self::Other(super::text::clean(other)),
        })
    }
}

/// What HA says about a guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HaState {
    /// True if HA manages it.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub managed: bool,
    /// The requested state.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub state: Option<String>,
}

/// `GET …/config`: every key with its value as PVE printed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawConfig {
    /// What a write is bound to.
    pub digest: Option<ConfigDigest>,
    /// Keys and values, without `digest` and `lxc`.
    pub values: BTreeMap<String, String>,
    /// Raw `lxc.*` lines of a container.
    pub lxc: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for RawConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = BTreeMap::<String, Scalar<'_>>::deserialize(deserializer)?;
        let digest = match entries.remove("digest").and_then(Scalar::into_string) {
            Some(text) => Some(text.parse().map_err(D::Error::custom)?),
            None => None,
        };
        let lxc = match entries.remove("lxc") {
            Some(Scalar::Nested(json)) => serde_json::from_str(json).map_err(D::Error::custom)?,
            Some(Scalar::Null | Scalar::Text(_)) | None => Vec::new(),
        };
        let values = entries
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.into_string()?)))
            .collect();
        Ok(Self { digest, values, lxc })
    }
}

/// One entry of `GET …/pending`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PendingEntry {
    /// The config key; `digest` is among them.
    #[serde(deserialize_with = "scalar::text")]
    pub key: String,
    /// What is active.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub value: Option<String>,
    /// What waits for a restart.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub pending: Option<String>,
    /// 1: removal waits for a restart; 2: and it destroys the volume.
    #[serde(default, deserialize_with = "scalar::opt_parsed")]
    pub delete: Option<u8>,
}

/// One entry of `GET …/snapshot`; `current` is the pseudo entry for now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SnapshotEntry {
    /// Its name.
    #[serde(deserialize_with = "scalar::text")]
    pub name: String,
    /// The snapshot it stands on.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub parent: Option<String>,
    /// Its description.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub description: Option<String>,
    /// When it was taken, by the node's clock.
    #[serde(default, deserialize_with = "scalar::known_u64", rename = "snaptime")]
    pub taken_unix_s: Option<u64>,
    /// `prepare` or `delete`: it is broken.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub snapstate: Option<String>,
    /// True if it holds memory.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub vmstate: bool,
}

/// The status of a task that has not ended.
pub(crate) const RUNNING: &str = "RUNNING";

/// One entry of a task list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskEntry {
    /// Which task.
    #[serde(deserialize_with = "scalar::parsed")]
    pub upid: Upid,
    /// When it ended, by the node's clock.
    #[serde(default, deserialize_with = "scalar::some_moment", rename = "endtime")]
    pub end_unix_s: Option<u64>,
    /// Its exit status; `RUNNING` or absent while it runs.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub status: Option<String>,
}

impl TaskEntry {
    /// How it ended; none while it runs.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        match self.status.as_deref() {
            None if self.end_unix_s.is_none() => None,
            Some(RUNNING) => None,
            Some(text) => Some(ExitStatus::read(text)),
            None => Some(ExitStatus::read("")),
        }
    }
}

/// `GET …/tasks/UPID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStatus {
    /// Its process exists.
    Running,
    /// It ended like this.
    Ended(ExitStatus),
}

impl<'de> Deserialize<'de> for TaskStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(deserialize_with = "scalar::text")]
            status: String,
            #[serde(default, deserialize_with = "scalar::opt_text")]
            exitstatus: Option<String>,
        }
        let wire = Wire::deserialize(deserializer)?;
        match wire.status.as_str() {
            "running" => Ok(Self::Running),
            "stopped" => Ok(Self::Ended(ExitStatus::read(&wire.exitstatus.unwrap_or_default()))),
            _ => Err(D::Error::custom("a task that is neither running nor stopped")),
        }
    }
}

/// One line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LogLine {
    /// Its number, from 1.
    #[serde(default, deserialize_with = "scalar::known_u64")]
    pub n: Option<u64>,
    /// Its text.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub t: Option<String>,
}

/// A part of a task's log, and how many lines the whole has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct LogPage {
    #[serde(rename = "data", deserialize_with = "log_lines")]
    pub(crate) lines: Vec<LogLine>,
    #[serde(default, deserialize_with = "scalar::opt_u64")]
    pub(crate) total: Option<u64>,
}

fn log_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LogLine>, D::Error> {
    LogLines::deserialize(deserializer).map(|log| log.0)
}

/// A task's log; PVE answers with a single object where the log file is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLines(pub(super) Vec<LogLine>);

impl<'de> Deserialize<'de> for LogLines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        if raw.starts_with('{') {
            return serde_json::from_str(raw)
                .map(|line| Self(vec![line]))
                .map_err(D::Error::custom);
        }
        let lines: Vec<&RawValue> = serde_json::from_str(raw).map_err(D::Error::custom)?;
        let unread = || LogLine { n: None, t: Some("(a line that cannot be read)".to_owned()) };
        let line = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| unread());
        Ok(Self(lines.into_iter().map(line).collect()))
    }
}

/// `GET …/feature`.
#[derive(Deserialize)]
pub(super) struct HasFeature {
    #[serde(rename = "hasFeature", deserialize_with = "scalar::flag")]
    pub(super) has_feature: bool,
}

/// What a call that changes something answers: nothing, or a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MaybeTask(pub(super) Option<Upid>);

impl<'de> Deserialize<'de> for MaybeTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match scalar::opt_text(deserializer)? {
            None => Ok(Self(None)),
            Some(text) => text.parse().map(|upid| Self(Some(upid))).map_err(D::Error::custom),
        }
    }
}

/// What a call that always starts a task answers.
#[derive(Deserialize)]
pub(super) struct Task(#[serde(deserialize_with = "scalar::parsed")] pub(super) Upid);
