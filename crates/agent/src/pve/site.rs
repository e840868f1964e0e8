//! JSON about everything around the guests, as Proxmox VE sends it: versions, nodes, the cluster,
//! storages, permissions. The rules are those of `wire`.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{NodeName, VmId};
use evenkeel_core::model::release::Release;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::scalar::{self, Scalar};

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
    /// What HA shall do with it; none if HA does not manage it.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub hastate: Option<String>,
    /// The pool of a guest, if the token may see it.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub pool: Option<String>,
    /// For a node: the version of the kernel's control groups.
    #[serde(default, rename = "cgroup-mode", deserialize_with = "scalar::known_u64")]
    pub cgroup_mode: Option<u64>,
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
    #[serde(default, rename = "total", deserialize_with = "scalar::known_u64")]
    pub total_bytes: Option<u64>,
    /// What is free.
    #[serde(default, rename = "avail", deserialize_with = "scalar::known_u64")]
    pub free_bytes: Option<u64>,
}

/// One volume of `GET /nodes/NODE/storage/STORAGE/content`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListedVolume {
    /// `STORAGE:NAME`.
    #[serde(deserialize_with = "scalar::text")]
    pub volid: String,
    /// `images`, `rootdir`, `backup`, `vztmpl`, `iso`, …
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub content: Option<String>,
    /// The guest that owns it.
    #[serde(default, deserialize_with = "scalar::opt_parsed")]
    pub vmid: Option<VmId>,
    /// Its size; none where the storage does not tell. What newer ones call `approximate-size` is none.
    #[serde(default, rename = "size", deserialize_with = "scalar::known_u64")]
    pub size_bytes: Option<u64>,
    /// When it was made, by the node's clock.
    #[serde(default, rename = "ctime", deserialize_with = "scalar::known_u64")]
    pub made_unix_s: Option<u64>,
    /// True if a backup may not be removed.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub protected: bool,
    /// The first line of a backup's notes.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub notes: Option<String>,
}

/// `GET /access/permissions`: path, then privilege, then whether it reaches below the path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions(pub BTreeMap<String, BTreeMap<String, bool>>);

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A right that cannot be read is none, and takes no other with it.
        let paths = BTreeMap::<String, &RawValue>::deserialize(deserializer)?;
        let rights = |raw: &RawValue| {
            let rights: BTreeMap<String, Scalar<'_>> =
                serde_json::from_str(raw.get()).unwrap_or_default();
            rights
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.into_flag()?)))
                .collect()
        };
        Ok(Self(paths.into_iter().map(|(path, raw)| (path, rights(raw))).collect()))
    }
}

/// One entry of `GET /access/users?full=1`, as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UserEntry {
    /// `user@realm`.
    #[serde(deserialize_with = "scalar::text")]
    pub userid: String,
    /// Its tokens.
    #[serde(default, deserialize_with = "scalar::readable_rows")]
    pub tokens: Vec<TokenEntry>,
}

/// One token of a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TokenEntry {
    /// The part after the `!`.
    #[serde(deserialize_with = "scalar::text")]
    pub tokenid: String,
    /// Whether it has rights of its own. PVE leaves a 1 out.
    #[serde(default, deserialize_with = "scalar::opt_u64")]
    pub privsep: Option<u64>,
}

/// A guest number, which PVE sends as text.
#[derive(Deserialize)]
pub(super) struct LooseNumber(#[serde(deserialize_with = "scalar::parsed")] pub(super) VmId);

/// A text.
#[derive(Deserialize)]
pub(super) struct LooseText(#[serde(deserialize_with = "scalar::text")] pub(super) String);
