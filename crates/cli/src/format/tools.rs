//! What `doctor`, `selftest`, `freeze`, `thaw`, `sim`, `explain` and `show` print with `-o json`.

use std::collections::BTreeMap;

use super::plan::PlaceFormat;
use evenkeel_agent::freeze::Frozen;
use schemars::JsonSchema;
use serde::Serialize;

/// What `doctor` found, in order.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DoctorFormat {
    /// 1.
    format_version: u32,
    /// Each thing that was looked at.
    findings: Vec<FindingFormat>,
}

impl DoctorFormat {
    pub(crate) fn new(findings: Vec<FindingFormat>) -> Self {
        Self { format_version: 1, findings }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FindingFormat {
    /// `ok`, `warning` or `failed`.
    pub(crate) verdict: &'static str,
    /// What it is about.
    pub(crate) subject: &'static str,
    /// What was found.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) next: Option<String>,
}

/// What `selftest` tried, in order: the report to send with a bug. It names no server, no token and no guest by name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SelftestFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The version of evenkeel.
    pub(crate) evenkeel: &'static str,
    /// The version of Proxmox VE, as the node tells it.
    pub(crate) proxmox: String,
    /// The guest it was tried on.
    pub(crate) guest: String,
    /// Each step.
    pub(crate) findings: Vec<FindingFormat>,
}

/// A host was frozen.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FreezeFormat {
    /// 1.
    format_version: u32,
    /// True: it is frozen now.
    frozen: bool,
    /// Whether it was frozen before.
    already: bool,
    /// The state directory of the agent that stands still.
    directory: String,
    /// The freeze that holds; null if it cannot be read.
    freeze: Option<FrozenFormat>,
}

impl FreezeFormat {
    pub(crate) fn new(already: bool, directory: String, freeze: Option<Frozen>) -> Self {
        let freeze = freeze.map(FrozenFormat::from);
        Self { format_version: 1, frozen: true, already, directory, freeze }
    }
}

/// A host was thawed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ThawFormat {
    /// 1.
    format_version: u32,
    /// False: it is not frozen now.
    frozen: bool,
    /// Whether it was not frozen before.
    already: bool,
    /// The state directory of the agent that goes on.
    directory: String,
    /// The freeze that ended; null if there was none or it cannot be read.
    ended: Option<FrozenFormat>,
}

impl ThawFormat {
    pub(crate) fn new(already: bool, directory: String, ended: Option<Frozen>) -> Self {
        let ended = ended.map(FrozenFormat::from);
        Self { format_version: 1, frozen: false, already, directory, ended }
    }
}

/// A freeze.
#[derive(Debug, Serialize, JsonSchema)]
struct FrozenFormat {
    /// Since when.
    at: String,
    /// Who froze it.
    by: String,
    /// Why; may be empty.
    reason: String,
}

impl From<Frozen> for FrozenFormat {
    fn from(Frozen { at, by, reason }: Frozen) -> Self {
        Self { at, by, reason }
    }
}

/// Where the simulator listens.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SimFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// Its address.
    pub(crate) url: String,
    /// A token that may do everything.
    pub(crate) token: String,
    /// The name of its node.
    pub(crate) node: String,
    /// The SHA-256 of its certificate; null without TLS.
    pub(crate) fingerprint: Option<String>,
}

/// What is known of keys: of those that were asked for, or a line on each.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExplainFormat {
    /// 1.
    format_version: u32,
    /// The keys of that name, or all.
    keys: KeysFormat,
}

impl ExplainFormat {
    pub(crate) fn new(keys: KeysFormat) -> Self {
        Self { format_version: 1, keys }
    }
}

/// Everything about one name, or a line on every key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum KeysFormat {
    /// `explain KEY`.
    Told(Vec<KeyFormat>),
    /// `explain`.
    Listed(Vec<KeyLineFormat>),
}

/// All about a key.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyFormat {
    /// Its name.
    pub(crate) name: String,
    /// The kinds of guests that have it.
    pub(crate) kinds: Vec<String>,
    /// What it is for.
    pub(crate) about: String,
    /// Format, default, effect, class, rights and releases, by name.
    pub(crate) facts: BTreeMap<String, String>,
    /// The parts of a property string.
    pub(crate) parts: Vec<PartFormat>,
    /// How it is written.
    pub(crate) example: String,
}

/// A part of a property string.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PartFormat {
    /// Its name.
    pub(crate) name: String,
    /// What it takes.
    pub(crate) value: String,
}

/// A line on a key.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyLineFormat {
    /// The kind of guests that have it; null for words of every guest.
    pub(crate) kind: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) about: String,
}

/// One declared guest, whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShowFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// Which.
    pub(crate) guest: String,
    /// Its block as a desired file in JSON would have it.
    pub(crate) declared: serde_json::Value,
    /// Whether something in it is masked.
    pub(crate) masked: bool,
    /// The files and lines behind each key.
    pub(crate) origins: BTreeMap<String, PlaceFormat>,
}
