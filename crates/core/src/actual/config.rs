//! A guest's configuration as PVE's `pending` view tells it: what is in effect, and what waits.
//!
//! Read from `GET …/pending` only: the plain configuration mixes waiting values in and hides waiting
//! deletions. Keys the registry does not know are remembered by name and never touched.

use std::collections::BTreeMap;

use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::registry::{self, Hazard, HotplugFeature, KeyRef};
use crate::value::{Property, Value, VolumeRef, read};

/// One line of the `pending` view, scalars as PVE prints them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The key.
    pub key: String,
    /// The value in effect.
    pub value: Option<String>,
    /// The value that waits for a restart.
    pub pending: Option<String>,
    /// A deletion that waits: 1 detaches, 2 destroys.
    pub delete: u8,
}

/// A configuration in normal form.
#[derive(Debug, Clone, Default)]
pub struct GuestConfig {
    /// PVE's digest of the file. Empty if PVE told none: then nothing may be written.
    pub digest: String,
    /// The known keys, sorted.
    pub fields: Box<[ConfigField]>,
    /// Names of keys the registry does not know.
    pub unknown: Vec<String>,
    /// What waits on keys the registry does not know: a start applies it like everything else.
    pub unknown_waits: UnknownWaits,
}

/// What waits on keys the registry does not know, from nothing to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum UnknownWaits {
    /// Nothing.
    #[default]
    Nothing,
    /// A change or a detachment.
    Change,
    /// A volume waits to be destroyed.
    DestroySteps,
}

/// One key of a configuration.
#[derive(Debug, Clone)]
pub struct ConfigField {
    /// The key.
    pub key: KeyRef,
    /// What is in effect.
    pub current: Option<ValueReading>,
    /// What waits for a restart. In a box, because hardly any field has it and every pass walks them all.
    pub waiting: Option<Box<WaitingChange>>,
}

/// A stored text and its normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueReading {
    /// Exactly as PVE stores it; the spelling of a MAC address is taken from here.
    pub text: Box<str>,
    /// In normal form.
    pub value: Value,
}

/// A change that waits for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingChange {
    /// It will get this value.
    Set(ValueReading),
    /// It will be removed; a volume stays as `unusedN`.
    Delete,
    /// It will be removed and its volume destroyed, by the next start, stop or write.
    ForceDelete,
}

/// Keys PVE keeps for itself: they appear in a configuration and say nothing about drift.
const SERVER_KEYS: &[&str] = &[
    "digest",
    "lxc",
    "parent",
    "running-nets-host-mtu",
    "runningcpu",
    "runningmachine",
    "snapstate",
    "snaptime",
    "vmstate",
];

impl GuestConfig {
    /// Puts the lines of the `pending` view into normal form.
    pub fn from_pending(kind: GuestKind, entries: impl IntoIterator<Item = ConfigEntry>) -> Self {
        let mut config = Self::default();
        let mut fields = Vec::new();
        for entry in entries {
            if entry.key == "digest" {
                config.digest = entry.value.unwrap_or_default();
                continue;
            }
            let known = registry::find(kind, &entry.key);
            if known.is_none() {
                config.unknown_waits = config.unknown_waits.max(UnknownWaits::of(&entry));
            }
            match known {
                Some(key) => fields.push(ConfigField::new(key, entry)),
                None if SERVER_KEYS.contains(&entry.key.as_str()) => {}
                None => config.unknown.push(entry.key),
            }
        }
        fields.sort_by_key(|field| field.key);
        config.fields = fields.into();
        config.unknown.sort();
        config
    }

    /// The field of a key.
    pub fn field(&self, key: KeyRef) -> Option<&ConfigField> {
        self.fields.binary_search_by_key(&key, |field| field.key).ok().map(|at| &self.fields[at])
    }

    /// The value in effect under a name.
    pub fn current(&self, kind: GuestKind, name: &str) -> Option<&Value> {
        let field = self.field(registry::find(kind, name)?)?;
        field.current.as_ref().map(|reading| &reading.value)
    }

    /// Every volume it mentions, in effect, waiting or detached, with its size if that is told.
    pub fn volumes(&self) -> BTreeMap<String, Option<Bytes>> {
        let readings =
            self.fields.iter().flat_map(|field| field.current.iter().chain(field.after_restart()));
        readings
            .filter_map(|reading| reading.value.as_property())
            .filter_map(|property| Some((property.volume()?.volid()?, property.size())))
            .collect()
    }

    /// The volumes in effect that hold data, without those that are detached.
    pub fn data_volumes(&self) -> impl Iterator<Item = &VolumeRef> {
        let attached = |field: &&ConfigField| field.key.key().hazard != Hazard::UnusedVolume;
        let readings =
            self.fields.iter().filter(attached).filter_map(|field| field.current.as_ref());
        readings
            .filter_map(|reading| reading.value.as_property())
            .filter(|property| !property.is_cdrom())
            .filter_map(Property::data_volume)
    }

    /// Whether a deletion waits that will destroy a volume.
    pub fn destruction_waits(&self) -> bool {
        self.unknown_waits == UnknownWaits::DestroySteps
            || self.fields.iter().any(ConfigField::destruction_waits)
    }

    /// Whether anything waits for a restart.
    pub fn anything_waits(&self) -> bool {
        self.unknown_waits != UnknownWaits::Nothing
            || self.fields.iter().any(|field| field.waiting.is_some())
    }

    /// Whether a guest of this kind is protected by it.
    pub fn is_protected(&self, kind: GuestKind) -> bool {
        self.current(kind, "protection") == Some(&Value::Bool(true))
    }

    /// Whether a QEMU guest takes a change of this feature while it runs.
    pub fn can_hotplug(&self, feature: &str) -> bool {
        match self.current(GuestKind::Qemu, "hotplug") {
            Some(Value::Set(features)) => features.contains(feature),
            Some(_) => false,
            None => matches!(feature, "network" | "disk" | "usb"),
        }
    }

    /// Whether a cloud-init drive is attached.
    pub fn has_cloud_init(&self) -> bool {
        self.fields.iter().filter_map(|field| field.current.as_ref()).any(|reading| {
            let volume = reading.value.as_property().and_then(|property| property.volume());
            matches!(volume, Some(VolumeRef::CloudInit { .. }))
        })
    }
}

impl ConfigField {
    fn new(key: KeyRef, entry: ConfigEntry) -> Self {
        let reading = |text: String| ValueReading {
            value: read::stored(&key.key().format, &text),
            text: text.into(),
        };
        let waiting = match (entry.pending, entry.delete) {
            (_, 2..) => Some(WaitingChange::ForceDelete),
            // Both wait in a container whose key was written and then removed: PVE deletes first and sets then.
            (Some(text), 0 | 1) => Some(WaitingChange::Set(reading(text))),
            (None, 1) => Some(WaitingChange::Delete),
            (None, 0) => None,
        };
        Self { key, current: entry.value.map(reading), waiting: waiting.map(Box::new) }
    }

    /// Whether a deletion waits that will destroy the volume of this key. What is already detached has
    /// nowhere to be detached to: its deletion frees it.
    pub fn destruction_waits(&self) -> bool {
        match self.waiting.as_deref() {
            Some(WaitingChange::ForceDelete) => true,
            Some(WaitingChange::Delete) => self.key.key().hazard == Hazard::UnusedVolume,
            Some(WaitingChange::Set(_)) | None => false,
        }
    }

    /// The value the guest has after its next restart.
    pub fn after_restart(&self) -> Option<&ValueReading> {
        match self.waiting.as_deref() {
            None => self.current.as_ref(),
            Some(WaitingChange::Set(reading)) => Some(reading),
            Some(WaitingChange::Delete | WaitingChange::ForceDelete) => None,
        }
    }
}

impl UnknownWaits {
    fn of(entry: &ConfigEntry) -> Self {
        match (&entry.pending, entry.delete) {
            (_, 2..) => Self::DestroySteps,
            (_, 1) | (Some(_), 0) => Self::Change,
            (None, 0) => Self::Nothing,
        }
    }
}

impl HotplugFeature {
    /// Whether a guest's configuration has it.
    pub fn is_on(self, config: &GuestConfig) -> bool {
        config.can_hotplug(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: Option<&str>, pending: Option<&str>, delete: u8) -> ConfigEntry {
        ConfigEntry {
            key: key.into(),
            value: value.map(Into::into),
            pending: pending.map(Into::into),
            delete,
        }
    }

    #[test]
    fn the_pending_view_becomes_current_and_waiting_values() {
        let config = GuestConfig::from_pending(
            GuestKind::Qemu,
            [
                entry("digest", Some("abc"), None, 0),
                entry("scsi1", Some("store:vm-1-disk-1,size=4G"), None, 2),
                entry("cores", Some("2"), Some("4"), 0),
                entry("numa", Some("0"), None, 1),
                entry("runningmachine", Some("pc"), None, 0),
                entry("zz-new-key", Some("1"), None, 0),
            ],
        );
        assert_eq!(config.digest, "abc");
        assert_eq!(config.unknown, ["zz-new-key"]);
        assert!(config.destruction_waits());
        let names: Vec<String> = config.fields.iter().map(|field| field.key.to_string()).collect();
        assert_eq!(names, ["cores", "numa", "scsi1"]);
        let after: Vec<Option<&str>> =
            config.fields.iter().map(|field| field.after_restart().map(|r| &*r.text)).collect();
        assert_eq!(after, [Some("4"), None, None]);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_field_fits_into_one_line_of_the_processors_cache() {
        assert_eq!(size_of::<ConfigField>(), 64);
    }

    #[test]
    fn a_value_that_waits_beneath_a_deletion_is_what_a_restart_brings() {
        let both = entry("mp0", Some("tank:a,mp=/a"), Some("tank:b,mp=/a"), 1);
        let config = GuestConfig::from_pending(GuestKind::Lxc, [both]);
        let after = config.fields[0].after_restart().map(|reading| &*reading.text);
        assert_eq!(after, Some("tank:b,mp=/a"));
    }

    #[test]
    fn hotplug_follows_the_guest_and_defaults_when_unset() {
        let with = |text: Option<&str>| {
            GuestConfig::from_pending(
                GuestKind::Qemu,
                text.map(|text| entry("hotplug", Some(text), None, 0)),
            )
        };
        assert!(
            HotplugFeature::Network.is_on(&with(None)) && !HotplugFeature::Cpu.is_on(&with(None))
        );
        assert!(!HotplugFeature::Network.is_on(&with(Some("0"))));
        assert!(HotplugFeature::Cpu.is_on(&with(Some("cpu,disk"))));
    }
}
