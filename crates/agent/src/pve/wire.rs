//! JSON as Proxmox VE sends it, read into plain values.
//!
//! These are wire types: one struct per answer, unknown fields ignored, scalars lenient, identifiers
//! checked. They are not the domain's: `observe` turns them into core's snapshot. An entry of a list
//! that cannot be read makes the whole list unreadable, because a guest left out would look absent.

use std::collections::BTreeMap;

use evenkeel_core::id::{NodeName, VmId};
use evenkeel_core::release::Release;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::name::ConfigDigest;
use super::scalar::{self, Scalar};
use super::task::{ExitStatus, Upid};

/// `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The release, as far as it matters to the API.
    pub release: Release,
    /// The full version, such as `8.4.21` or `7.4-20`.
    pub version: String,
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(deserialize_with = "scalar::text")]
            version: String,
            #[serde(default, deserialize_with = "scalar::opt_text")]
            release: Option<String>,
        }
        let Wire { version, release } = Wire::deserialize(deserializer)?;
        let parsed = version.parse::<Release>();
        let parsed = parsed.or_else(|error| release.map_or(Err(error), |text| text.parse()));
        Ok(Self { release: parsed.map_err(D::Error::custom)?, version })
    }
}

/// One entry of `GET /nodes`. Without rights on the node only name and status are there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeEntry {
    /// The node's name.
    #[serde(deserialize_with = "scalar::parsed")]
    pub node: NodeName,
    /// `online`, `offline` or `unknown`.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub status: Option<String>,
    /// The fingerprint of its certificate.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub ssl_fingerprint: Option<String>,
}

/// `GET /nodes/NODE/status`, as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeStatus {
    /// Seconds since the node started.
    #[serde(default, deserialize_with = "scalar::opt_u64", rename = "uptime")]
    pub uptime_s: Option<u64>,
    /// `pve-manager/8.4.21/…`
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub pveversion: Option<String>,
    /// The running kernel.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub kversion: Option<String>,
}

/// One guest of `GET /nodes/NODE/{lxc,qemu}`, or of its `status/current`.
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
    /// Its name or host name.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub name: Option<String>,
    /// The config's `lock`.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub lock: Option<String>,
    /// Its tags as stored.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub tags: Option<String>,
    /// True for a template.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub template: bool,
    /// Seconds since it started.
    #[serde(default, deserialize_with = "scalar::opt_u64", rename = "uptime")]
    pub uptime_s: Option<u64>,
    /// HA, in `status/current` only.
    #[serde(default)]
    pub ha: Option<HaState>,
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
        Ok(match scalar::text(deserializer)?.as_str() {
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
pub struct Config {
    /// What a write is bound to.
    pub digest: Option<ConfigDigest>,
    /// Keys and values, without `digest` and `lxc`.
    pub values: BTreeMap<String, String>,
    /// Raw `lxc.*` lines of a container.
    pub lxc: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = BTreeMap::<String, Scalar>::deserialize(deserializer)?;
        let digest = match entries.remove("digest").and_then(Scalar::into_text) {
            Some(text) => Some(text.parse().map_err(D::Error::custom)?),
            None => None,
        };
        let lxc = match entries.remove("lxc") {
            Some(Scalar::Nested(json)) => serde_json::from_str(&json).map_err(D::Error::custom)?,
            Some(Scalar::Null | Scalar::Text(_)) | None => Vec::new(),
        };
        let values = entries
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.into_text()?)))
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
    #[serde(default, deserialize_with = "scalar::opt_u64", rename = "snaptime")]
    pub taken_unix_s: Option<u64>,
    /// `prepare` or `delete`: it is broken.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub snapstate: Option<String>,
    /// True if it holds memory.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub vmstate: bool,
}

/// One entry of a task list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskEntry {
    /// Which task.
    #[serde(deserialize_with = "scalar::parsed")]
    pub upid: Upid,
    /// When it ended, by the node's clock.
    #[serde(default, deserialize_with = "scalar::opt_u64", rename = "endtime")]
    pub end_unix_s: Option<u64>,
    /// Its exit status; `RUNNING` or absent while it runs.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub status: Option<String>,
}

impl TaskEntry {
    /// How it ended; none while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        match self.status.as_deref() {
            None if self.end_unix_s.is_none() => None,
            Some("RUNNING") => None,
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
    #[serde(default, deserialize_with = "scalar::opt_u64")]
    pub n: Option<u64>,
    /// Its text.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub t: Option<String>,
}

/// A task's log; PVE answers with a single object where the log file is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLines(pub(super) Vec<LogLine>);

impl<'de> Deserialize<'de> for LogLines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let lines = if raw.starts_with('{') {
            serde_json::from_str(raw).map(|line| vec![line])
        } else {
            serde_json::from_str(raw)
        };
        lines.map(Self).map_err(D::Error::custom)
    }
}

/// One entry of `GET /cluster/resources`. Its status is up to minutes old: never act on it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Resource {
    /// `lxc/100`, `node/pve1`, `storage/pve1/local`, …
    #[serde(deserialize_with = "scalar::text")]
    pub id: String,
    /// `lxc`, `qemu`, `node`, `storage`, …
    #[serde(rename = "type", deserialize_with = "scalar::text")]
    pub kind: String,
    /// Where it is.
    #[serde(default, deserialize_with = "scalar::opt_parsed")]
    pub node: Option<NodeName>,
    /// The guest's number, for guests.
    #[serde(default, deserialize_with = "scalar::opt_parsed")]
    pub vmid: Option<VmId>,
    /// Its name.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub name: Option<String>,
    /// What was last broadcast about it.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub status: Option<String>,
    /// True for a template.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub template: bool,
    /// The config's `lock`.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub lock: Option<String>,
}

/// One entry of `GET /cluster/status`: the cluster itself, or a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ClusterEntry {
    /// `cluster` or `node`.
    #[serde(rename = "type", deserialize_with = "scalar::text")]
    pub kind: String,
    /// Its name.
    #[serde(deserialize_with = "scalar::text")]
    pub name: String,
    /// For the cluster: whether it has quorum. A host of its own has no cluster entry.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub quorate: bool,
    /// For a node: whether it is online.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub online: bool,
    /// For a node: whether it is the one that answered.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub local: bool,
}

/// One storage of `GET /nodes/NODE/storage`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StorageEntry {
    /// Its name.
    #[serde(deserialize_with = "scalar::text")]
    pub storage: String,
    /// Its type: `dir`, `lvmthin`, `zfspool`, …
    #[serde(default, rename = "type", deserialize_with = "scalar::opt_text")]
    pub kind: Option<String>,
    /// What it may hold, separated by commas.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub content: Option<String>,
    /// True if it can be reached.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub active: bool,
    /// True if several nodes share it.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub shared: bool,
    /// Its size.
    #[serde(default, rename = "total", deserialize_with = "scalar::opt_u64")]
    pub total_bytes: Option<u64>,
    /// What is free.
    #[serde(default, rename = "avail", deserialize_with = "scalar::opt_u64")]
    pub free_bytes: Option<u64>,
}

/// One volume of `GET /nodes/NODE/storage/STORAGE/content`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// `STORAGE:NAME`.
    #[serde(deserialize_with = "scalar::text")]
    pub volid: String,
    /// `images`, `rootdir`, `backup`, `vztmpl`, `iso`, …
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub content: Option<String>,
    /// The guest that owns it.
    #[serde(default, deserialize_with = "scalar::opt_parsed")]
    pub vmid: Option<VmId>,
    /// Its size.
    #[serde(default, rename = "size", deserialize_with = "scalar::opt_u64")]
    pub size_bytes: Option<u64>,
    /// When it was made, by the node's clock.
    #[serde(default, rename = "ctime", deserialize_with = "scalar::opt_u64")]
    pub made_unix_s: Option<u64>,
    /// True if a backup may not be removed.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub protected: bool,
}

/// `GET /access/permissions`: path, then privilege, then whether it reaches below the path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions(pub BTreeMap<String, BTreeMap<String, bool>>);

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Propagates(#[serde(deserialize_with = "scalar::flag")] bool);
        let paths = BTreeMap::<String, BTreeMap<String, Propagates>>::deserialize(deserializer)?;
        let plain = |privileges: BTreeMap<String, Propagates>| {
            privileges.into_iter().map(|(name, propagates)| (name, propagates.0)).collect()
        };
        Ok(Self(paths.into_iter().map(|(path, privileges)| (path, plain(privileges))).collect()))
    }
}

/// `GET …/feature`.
#[derive(Deserialize)]
pub(super) struct HasFeature {
    #[serde(rename = "hasFeature", deserialize_with = "scalar::flag")]
    pub(super) has_feature: bool,
}

/// An object of settings, such as `GET /cluster/options`; nested values stay JSON.
#[derive(Deserialize)]
pub(super) struct Options(pub(super) BTreeMap<String, Scalar>);

/// A guest number, which PVE sends as text.
#[derive(Deserialize)]
pub(super) struct Number(#[serde(deserialize_with = "scalar::parsed")] pub(super) VmId);

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
