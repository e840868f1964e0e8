//! A guest's configuration file: sections, rendering, digest, and the typed view of a value.
//!
//! The digest is the SHA-1 of the rendered text, byte for byte as PVE writes it, so it changes with
//! anything that changes the file (lock, after-restart values, snapshots) and with nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::release::Release;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use crate::schema::{Schema, SchemaShape};

/// Keys and values of one section.
pub type Section = BTreeMap<String, String>;

/// The whole file of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What is active.
    pub active: Section,
    /// Raw `lxc.*` lines, in order.
    #[serde(default)]
    pub raw: Vec<(String, String)>,
    /// What waits for a restart.
    #[serde(default)]
    pub pending: Section,
    /// Keys whose removal waits for a restart; `true` destroys the volume then.
    #[serde(default)]
    pub pending_delete: BTreeMap<String, bool>,
    /// Snapshots, oldest first.
    #[serde(default)]
    pub snapshots: Vec<SnapshotSection>,
}

/// One snapshot's section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSection {
    /// The snapshot's name.
    pub name: String,
    /// Its keys, `snaptime` and `parent` among them.
    pub section: Section,
}

impl Config {
    /// A file with these active keys.
    pub fn of(active: &[(&str, &str)]) -> Self {
        let active = active.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self { active, ..Self::default() }
    }

    /// One active value.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.active.get(key).map(String::as_str)
    }

    /// Whether an active boolean is set.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.get(key) == Some("1")
    }

    /// The config lock, if one is set.
    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    /// Sets or clears the config lock.
    pub(crate) fn set_lock(&mut self, lock: Option<&str>) {
        match lock {
            Some(lock) => self.active.insert("lock".into(), lock.into()),
            None => self.active.remove("lock"),
        };
    }

    /// What plain `GET config` shows: waiting values merged in, waiting removals carried out except
    /// where the value is false to Perl.
    pub(crate) fn merged(&self) -> Section {
        let mut merged = self.active.clone();
        for key in self.pending_delete.keys() {
            if merged.get(key).is_some_and(|value| !matches!(value.as_str(), "" | "0")) {
                merged.remove(key);
            }
        }
        merged.extend(self.pending.clone());
        merged
    }

    /// Reads the file back the way PVE does before every write: integers lose leading zeros.
    pub(crate) fn reread(&mut self, kind: GuestKind, release: Release) {
        for section in [&mut self.active, &mut self.pending] {
            for (key, value) in section.iter_mut() {
                let rule = Schema::shared().key(kind, key, release);
                if let Some(SchemaShape::Int { .. }) = rule.map(|rule| &rule.shape)
                    && let Ok(number) = value.parse::<i64>()
                {
                    *value = number.to_string();
                }
            }
        }
    }

    /// The SHA-1 of the rendered file.
    pub fn digest(&self, kind: GuestKind) -> String {
        let hash = Sha1::digest(self.render(kind).as_bytes());
        hash.iter().fold(String::new(), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }

    /// The file's text.
    pub(crate) fn render(&self, kind: GuestKind) -> String {
        let mut text = render_section(&self.active, kind);
        for (key, value) in &self.raw {
            let _infallible = writeln!(text, "{key}: {value}");
        }
        if !self.pending.is_empty() || !self.pending_delete.is_empty() {
            let mut section = self.pending.clone();
            if !self.pending_delete.is_empty() {
                let keys = self.pending_delete.iter();
                let keys: Vec<String> = keys
                    .map(|(key, force)| format!("{}{key}", if *force { "!" } else { "" }))
                    .collect();
                section.insert("delete".into(), keys.join(","));
            }
            text.push_str(match kind {
                GuestKind::Lxc => "\n[pve:pending]\n",
                GuestKind::Qemu => "\n[PENDING]\n",
            });
            text.push_str(&render_section(&section, kind));
        }
        for snapshot in &self.snapshots {
            let _infallible = write!(text, "\n[{}]\n", snapshot.name);
            text.push_str(&render_section(&snapshot.section, kind));
        }
        text
    }

    /// The snapshot of that name.
    pub(crate) fn snapshot(&self, name: &str) -> Option<&SnapshotSection> {
        self.snapshots.iter().find(|snapshot| snapshot.name == name)
    }

    /// Whether a snapshot's section names the volume.
    pub(crate) fn is_in_a_snapshot(&self, volume: &str) -> bool {
        let values = self.snapshots.iter().flat_map(|snapshot| snapshot.section.values());
        values.into_iter().any(|value| value.split(',').next() == Some(volume))
    }

    /// Whoever is attached again is no longer listed as unused.
    pub(crate) fn drop_used(&mut self, attached: &[String]) {
        self.active.retain(|key, value| !key.starts_with("unused") || !attached.contains(value));
    }

    /// The first free `unusedN` slot takes the volume; a volume already listed is not listed twice.
    pub(crate) fn add_unused(&mut self, volume: &str) {
        let listed = self.active.iter().any(|(k, v)| k.starts_with("unused") && v == volume);
        if listed {
            return;
        }
        for slot in 0..UNUSED_SLOTS {
            let key = format!("unused{slot}");
            if let std::collections::btree_map::Entry::Vacant(e) = self.active.entry(key) {
                e.insert(volume.to_owned());
                return;
            }
        }
    }
}

/// PVE keeps at most this many detached volumes per guest.
const UNUSED_SLOTS: u32 = 256;

fn render_section(section: &Section, kind: GuestKind) -> String {
    let mut text = String::new();
    let description = section.get("description").map(String::as_str).unwrap_or_default();
    // For QEMU the comment is written only if it is true to Perl.
    if kind == GuestKind::Lxc || description != "0" {
        for line in description.trim_end_matches('\n').split('\n') {
            if !description.trim_end_matches('\n').is_empty() {
                let _infallible = writeln!(text, "#{}", encode_comment(line));
            }
        }
    }
    for (key, value) in section {
        if key != "description" {
            let _infallible = writeln!(text, "{key}: {value}");
        }
    }
    text
}

/// Comment lines escape control characters, the percent sign and everything beyond ASCII.
fn encode_comment(line: &str) -> String {
    let mut out = String::new();
    for byte in line.bytes() {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A description as it will be read back; `None` if nothing of it survives.
pub(crate) fn stored_description(kind: GuestKind, text: &str) -> Option<String> {
    match kind {
        GuestKind::Lxc => {
            let text = text.trim_end_matches('\n');
            (!text.is_empty()).then(|| format!("{text}\n"))
        }
        GuestKind::Qemu => {
            let text = text.trim_end();
            (!text.is_empty() && text != "0").then(|| text.to_owned())
        }
    }
}

/// A value as JSON: numbers for integers and booleans, text for the rest, one blank for nothing.
pub(crate) fn typed(kind: GuestKind, key: &str, value: &str, release: Release) -> Value {
    if value.is_empty() {
        return json!(" ");
    }
    let numeric = match key {
        "snaptime" => true,
        _ => Schema::shared().key(kind, key, release).is_some_and(|rule| match rule.shape {
            SchemaShape::Bool | SchemaShape::Int { .. } => true,
            SchemaShape::Text
            | SchemaShape::List
            | SchemaShape::Num { .. }
            | SchemaShape::Enum(_)
            | SchemaShape::Is(_)
            | SchemaShape::Like(_)
            | SchemaShape::Prop(_) => false,
        }),
    };
    match value.parse::<i64>() {
        Ok(number) if numeric => json!(number),
        Ok(_) | Err(_) => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_file_pve_writes() {
        let mut config = Config::of(&[
            ("arch", "amd64"),
            ("hostname", "ct100"),
            ("memory", "64"),
            ("net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:F5:73:DC,ip=dhcp,type=veth"),
            ("ostype", "alpine"),
            ("rootfs", "store:100/vm-100-disk-0.raw,size=1G"),
            ("swap", "0"),
            ("unprivileged", "1"),
        ]);
        // Both values were answered by a real server.
        assert_eq!(config.digest(GuestKind::Lxc), "a1d60909b454d1aa294601c254531f04fb1907a8");
        config.active.insert("description".into(), "hello\n".into());
        assert_eq!(config.digest(GuestKind::Lxc), "227a2c6300138a3c90bd04f9ba3e0a06f03e0a4f");
    }

    #[test]
    fn a_waiting_removal_of_a_false_value_still_shows_it() {
        let mut config = Config::of(&[("console", "0"), ("nameserver", "1.1.1.1")]);
        config.pending_delete = [("console".into(), false), ("nameserver".into(), false)].into();
        assert_eq!(config.merged().into_keys().collect::<Vec<_>>(), ["console"]);
    }
}
