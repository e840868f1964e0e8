//! What an action changes, key by key, for people and programs: the one place that says so.
//!
//! `plan -o json` shows it and hubs are told it. Values are whole, in the form Proxmox VE stores, secrets masked; nothing is
//! decided by it.

use super::{Action, Step};
use crate::desired::LineSubject;

/// One key, or one word for what is no key, that an action changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// `net0`; `run`, `state` and `template` for what is no key, `mp0.size` and `mp0.storage` for a volume.
    pub key: String,
    /// What of the declaration it comes from.
    pub subject: LineSubject,
    /// What is; none if the key is absent.
    pub before: Option<String>,
    /// What shall be; none if the key shall be absent.
    pub after: Option<String>,
}

impl Action {
    /// What it changes.
    pub fn key_changes(&self) -> Vec<KeyChange> {
        let word = |name: &'static str, before: &str, after: &str| {
            let before = Some(before.to_owned());
            let after = Some(after.to_owned());
            vec![KeyChange {
                key: name.to_owned(),
                subject: LineSubject::Word(name),
                before,
                after,
            }]
        };
        let part = |disk, name: &str, before: String, after: String| {
            let key = format!("{disk}.{name}");
            let subject = LineSubject::Key(disk);
            vec![KeyChange { key, subject, before: Some(before), after: Some(after) }]
        };
        match &self.step {
            Step::SetConfig(_) => {
                let one = |change: &super::Change| KeyChange {
                    key: change.key.to_string(),
                    subject: LineSubject::Key(change.key),
                    before: change.before(),
                    after: change.after(),
                };
                self.changes.iter().map(one).collect()
            }
            Step::Resize { disk, from, to, .. } => {
                part(*disk, "size", from.to_string(), to.to_string())
            }
            Step::MoveVolume { disk, from, to, .. } => {
                part(*disk, "storage", from.clone(), to.clone())
            }
            Step::Start => word("run", "stopped", "running"),
            Step::Shutdown { .. } | Step::Stop => word("run", "running", "stopped"),
            Step::Make(_) => word("state", "absent", "present"),
            Step::Destroy(_) | Step::Remove(_) => word("state", "present", "absent"),
            Step::Template => word("template", "false", "true"),
        }
    }
}
