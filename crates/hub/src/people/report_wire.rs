//! What hosts told, as people are shown it. The names are those of core's reports; a test holds both side by side.
//!
//! What is stored was written from core's types, so reading it back fails only for what a host never told: then it is empty.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a host told, read back; empty if it told nothing.
pub(super) fn told<T: DeserializeOwned + Default>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_default()
}

/// A document that its host did not take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RefusedBody {
    /// Its number; 0 if the last one was taken.
    pub generation: u64,
    /// The hash of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The reason code.
    pub code: String,
    /// In words.
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// Mistakes in its files, each with its place, its line and hints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<String>,
}

/// An agent as it tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentBody {
    /// Its version; empty if it never reported.
    pub version: String,
    /// The node it keeps.
    pub node: String,
    /// Since when it runs, by the host's clock.
    pub since: String,
    /// Since when the host is frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// `enforce` or `observe`.
    pub mode: String,
    /// The host's own limits, from `[policy]` of its agent.toml.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// What is wrong, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// The last pass of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PassBody {
    /// When it ended, by the host's clock; empty if there was none.
    pub at: String,
    /// Actions it began.
    pub planned: u64,
    /// Of those, how many were done.
    pub succeeded: u64,
    /// And how many failed.
    pub failed: u64,
    /// Actions that wait.
    pub held: u64,
    /// Guests that are as declared.
    pub in_sync: u64,
}

/// A guest as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestReportBody {
    /// `lxc/101`.
    pub guest: String,
    /// `lxc` or `qemu`.
    pub kind: String,
    /// Its own name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `as_declared`, `drifted`, `held`, `failed`, `busy` or `unreadable`.
    pub state: String,
    /// `running`, `paused`, `stopped` or `unknown`; missing if it is not on the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub power: String,
    /// What is not as declared, held or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<GuestDifferenceBody>,
    /// What is not done now, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldBody>,
    /// What cannot be done, or was not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What is stored and waits for a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_restart: Vec<String>,
    /// What is declared, in normal form, secrets masked; null for a key that shall be absent. Not in lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub declared: BTreeMap<String, Option<String>>,
    /// What is, in the same form. Not in lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub actual: BTreeMap<String, String>,
    /// Whether something did not fit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl GuestReportBody {
    /// The same for a list, of which a page must stay small.
    pub(super) fn listed(mut self) -> Self {
        self.declared.clear();
        self.actual.clear();
        self
    }
}

/// One key of a guest that differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GuestDifferenceBody {
    /// `cores`; `run`, `state` and `template` for what is no key, `mp0.size` and `mp0.storage` for a volume.
    pub key: String,
    /// What is declared; missing if it shall be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// What is; missing if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
    /// Where it is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginBody>,
}

/// Where something is declared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OriginBody {
    /// `web.toml`.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// `guest`, `profile NAME` or `defaults KIND`.
    pub layer: String,
}

/// Something that waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HeldBody {
    /// The reason code.
    pub code: String,
    /// In words.
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// An operation as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpReportBody {
    /// `op_…`.
    pub op: String,
    /// `lxc/101`.
    pub guest: String,
    /// `set_config`.
    pub kind: String,
    /// `started`, `task_running`, `succeeded`, `failed` or `unknown`.
    pub state: String,
    /// When it came to that, by the host's clock.
    pub at: String,
    /// Why it was begun.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it failed or is unknown, or a warning.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// The keys it changes, secrets masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<OpChangeBody>,
    /// Who signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

/// One key an operation changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpChangeBody {
    /// `cores`.
    pub key: String,
    /// Before; missing if it was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// After; missing if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A decision as its host told it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DecisionReportBody {
    /// The sum of its record in the host's journal.
    pub id: String,
    /// When, by the host's clock.
    pub at: String,
    /// `decision`, `pending`, `approval`, `trust`, `frozen`, `thawed`, `tail_cut` or `note`.
    pub event: String,
    /// About which guest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub guest: String,
    /// About which act.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// The reason code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Who signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
}

#[cfg(test)]
mod tests {
    use evenkeel_core::fleet::{
        AgentState, GuestDifference, GuestReport, HeldReport, OpChange, PassReport,
        RefusedGeneration, ReportedDecision, ReportedOrigin, ToldOperation,
    };
    use serde_json::Value;

    use super::*;

    /// What core writes is read back by ours and written again the same.
    fn same<T: DeserializeOwned + Default + Serialize>(of_core: &impl Serialize) {
        let text = serde_json::to_string(of_core).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(told::<T>(&text)).unwrap(), value);
    }

    #[test]
    fn everything_a_host_tells_is_shown_under_the_same_name() {
        let text = |text: &str| Some(text.to_owned());
        same::<RefusedBody>(&RefusedGeneration {
            generation: evenkeel_core::fleet::Generation(8),
            manifest: Some(evenkeel_core::fleet::ManifestHash([1; 32])),
            code: "policy".into(),
            why: "w".into(),
            next: "n".into(),
            diagnostics: vec!["d".into()],
        });
        same::<AgentBody>(&AgentState {
            version: "1".into(),
            node: "pve1".into(),
            since: "s".into(),
            frozen: text("f"),
            mode: "observe".into(),
            policy: [("a".to_owned(), "b".to_owned())].into(),
            troubles: vec!["t".into()],
        });
        same::<PassBody>(&PassReport {
            at: "a".into(),
            planned: 1,
            succeeded: 2,
            failed: 3,
            held: 4,
            in_sync: 5,
        });
        let origin = ReportedOrigin { file: "f".into(), line: 3, layer: "guest".into() };
        same::<GuestReportBody>(&GuestReport {
            guest: "lxc/101".into(),
            kind: "lxc".into(),
            name: "web".into(),
            state: "held".into(),
            power: "running".into(),
            differences: vec![GuestDifference {
                key: "cores".into(),
                declared: text("4"),
                actual: text("2"),
                origin: Some(origin),
            }],
            held: vec![HeldReport { code: "c".into(), why: "w".into(), next: "n".into() }],
            problems: vec!["p".into()],
            after_restart: vec!["a".into()],
            declared: [("cores".to_owned(), text("4")), ("tags".to_owned(), None)].into(),
            actual: [("cores".to_owned(), "2".to_owned())].into(),
            cut: true,
        });
        same::<OpReportBody>(&ToldOperation {
            op: "op_1".into(),
            guest: "lxc/101".into(),
            kind: "set_config".into(),
            state: "succeeded".into(),
            at: "a".into(),
            reason: "r".into(),
            outcome: "o".into(),
            changes: vec![OpChange { key: "cores".into(), before: text("2"), after: text("4") }],
            signer: text("alice"),
        });
        same::<DecisionReportBody>(&ReportedDecision {
            id: "i".into(),
            at: "a".into(),
            event: "decision".into(),
            guest: "lxc/101".into(),
            op: "destroy".into(),
            code: "budget".into(),
            detail: "d".into(),
            signer: text("alice"),
        });
    }
}
