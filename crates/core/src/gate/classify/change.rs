//! The class of changing one configuration key, by value.
//!
//! Called by `classify` for every key of a write, and by the planner to part what needs a signature from
//! what does not. It never looks at who asks.

use std::collections::BTreeSet;

use super::volume::{self, BackupMemory, SlotChange};
use super::{ActionClass, Judgement};
use crate::actual::{ConfigField, GuestConfig, ValueReading};
use crate::gate::new_guest::{imported, is_public_image};
use crate::model::id::{GuestKind, VmId};
use crate::registry::{Declarable, Hazard, KeyRef, ValueFormat};
use crate::value::{Property, Value, VolumeRef, is_root_device};

/// The class of one key's change; none stands for absence. It is the worse of what the change does to the
/// value in effect and to the value that waits: a write replaces both.
pub(crate) fn change(
    key: KeyRef,
    vmid: VmId,
    config: &GuestConfig,
    memory: &BackupMemory,
    to: Option<&Value>,
) -> Judgement {
    let field = config.field(key);
    let current = field.and_then(|field| field.current.as_ref());
    let after = field.and_then(ConfigField::after_restart);
    let judge = |from: Option<&ValueReading>| {
        change_of(&SlotChange { key, vmid, config, memory, from: from.map(|from| &from.value), to })
    };
    let forgotten = match to {
        None => volume::forgets_waiting(key, config),
        Some(_) => Judgement::benign(),
    };
    judge(current).worse(judge(after)).worse(forgotten)
}

/// The class of one key of a guest that is being made. There is nothing to lose yet but what the value
/// itself brings in: code for the host, or a volume that has an owner.
pub(super) fn creation(key: KeyRef, value: &Value) -> Judgement {
    let destructive = |why: String| Judgement::new(ActionClass::Destructive, why);
    if is_odd(value) {
        return destructive(format!("evenkeel cannot read the value of `{key}`"));
    }
    if opens_host(key, None, Some(value)) {
        return destructive(format!("`{key}` opens the host to the guest"));
    }
    match key.key().hazard {
        Hazard::Safe | Hazard::Disrupts | Hazard::Guard | Hazard::GuestName => Judgement::benign(),
        Hazard::Forbidden if key.key().declared == Declarable::AtCreation => Judgement::benign(),
        Hazard::Forbidden | Hazard::UnusedVolume => {
            destructive(format!("evenkeel may not set `{key}`"))
        }
        Hazard::RootVolume | Hazard::TpmState | Hazard::VolumeSlot => {
            let new = value.as_property();
            if new.is_some_and(|new| new.data_volume().is_some()) {
                destructive(format!("the volume for `{key}` exists, so it may belong to someone"))
            } else if new.is_some_and(is_host_path) {
                destructive(format!("gives `{key}` a file or device of the host"))
            } else if new.is_some_and(copies_somebodys) {
                destructive(format!("`{key}` copies an image that may be another guest's"))
            } else {
                slot(key, None, Some(value))
            }
        }
    }
}

/// The class of changing one key from a value to another.
fn change_of(change: &SlotChange<'_>) -> Judgement {
    let SlotChange { key, config, from, to, .. } = *change;
    if to.is_some_and(is_odd) || from.is_some_and(has_unknown_parts) {
        return Judgement::new(
            ActionClass::Destructive,
            format!("evenkeel cannot read the value of `{key}`"),
        );
    }
    if opens_host(key, from, to) {
        return Judgement::new(
            ActionClass::Destructive,
            format!("`{key}` opens the host to the guest"),
        );
    }
    match key.key().hazard {
        Hazard::Safe => Judgement::benign(),
        Hazard::Disrupts if volume::unsaves_firmware(key, config, to) => Judgement::new(
            ActionClass::Destructive,
            "backups hold the firmware's variables only while `bios` is ovmf",
        ),
        Hazard::Disrupts => {
            Judgement::new(ActionClass::Disruptive, format!("`{key}` interrupts the guest"))
        }
        Hazard::GuestName if config.has_cloud_init() => {
            Judgement::new(ActionClass::Disruptive, "a new name makes cloud-init run again")
        }
        Hazard::GuestName => Judgement::benign(),
        Hazard::Guard if to == Some(&Value::Bool(true)) => Judgement::benign(),
        Hazard::Guard => Judgement::new(ActionClass::Destructive, format!("lifts `{key}`")),
        Hazard::RootVolume => Judgement::new(ActionClass::Destructive, "loses the root volume"),
        Hazard::TpmState => match from {
            None => from_outside(key, from, to).worse(volume::judge(change)),
            Some(_) => Judgement::new(ActionClass::Destructive, "the keys in the TPM are lost"),
        },
        Hazard::UnusedVolume => Judgement::new(ActionClass::Destructive, "the volume is freed"),
        Hazard::Forbidden => {
            Judgement::new(ActionClass::Destructive, format!("evenkeel may not change `{key}`"))
        }
        Hazard::VolumeSlot => {
            slot(key, from, to).worse(from_outside(key, from, to)).worse(volume::judge(change))
        }
    }
}

/// Writing a value replaces it whole: parts nobody knows would be dropped, or carried along unjudged.
fn has_unknown_parts(value: &Value) -> bool {
    value.as_property().is_some_and(|property| !property.unknown().is_empty())
}

/// Whether a change gives the guest something of the host that only root@pam may give: a device, or a
/// kernel feature.
fn opens_host(key: KeyRef, from: Option<&Value>, to: Option<&Value>) -> bool {
    let part =
        |value: Option<&Value>, name: &str| value.and_then(Value::as_property)?.get(name).cloned();
    let is_device =
        |value: Option<&Value>| matches!(value, Some(Value::Text(text)) if is_root_device(text));
    let is_new = |name: &str| part(to, name).is_some() && part(to, name) != part(from, name);
    match (key.kind(), key.key().name, key.key().format) {
        (GuestKind::Lxc, "dev", _) | (GuestKind::Qemu, "parallel", _) => to.is_some(),
        (GuestKind::Qemu, "serial", _) => is_device(to),
        (GuestKind::Qemu, "usb", _) => is_new("host") && is_device(part(to, "host").as_ref()),
        (_, _, ValueFormat::Property(shape)) => {
            shape.parts.iter().any(|part| part.root_only && is_new(part.name))
        }
        (_, _, _) => false,
    }
}

/// What comes into a slot from outside of the storages, or as a copy: the host's own files are not a guest's, and an
/// image may be another guest's. Volumes are judged by `volume`.
fn from_outside(key: KeyRef, from: Option<&Value>, to: Option<&Value>) -> Judgement {
    let Some(new) = to.and_then(Value::as_property) else {
        return Judgement::benign();
    };
    let destructive = |why: String| Judgement::new(ActionClass::Destructive, why);
    if new.get("import-from").is_some() {
        return destructive(format!("`{key}` copies an image that may be another guest's"));
    }
    let old = from.and_then(Value::as_property).and_then(Property::volume);
    if new.volume() == old {
        return Judgement::benign();
    }
    if is_host_path(new) {
        return destructive(format!("gives `{key}` a file or device of the host"));
    }
    // An image may be shown as a CD-ROM, which cannot be written to.
    if new.volume().is_some_and(VolumeRef::is_image) && !new.is_cdrom() {
        return destructive(format!("the owner of the volume for `{key}` is unknown"));
    }
    Judgement::benign()
}

/// Whether a slot is filled from the host itself, and not from a storage.
fn is_host_path(new: &Property) -> bool {
    match new.volume() {
        Some(VolumeRef::Path(_)) => true,
        Some(
            VolumeRef::Existing { .. }
            | VolumeRef::Fresh { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Empty
            | VolumeRef::HostCdrom,
        )
        | None => false,
    }
}

/// Whether a new volume is filled from something that may be a guest's own.
fn copies_somebodys(new: &Property) -> bool {
    new.get("import-from").is_some() && !imported(new).is_some_and(is_public_image)
}

/// What a configuration that came from elsewhere opens to its guest besides what is declared: code that runs on the host,
/// devices and directories of the host, and keys that nobody here can read.
pub fn opens_the_host(config: &GuestConfig, declared: &BTreeSet<KeyRef>) -> Option<String> {
    if let Some(name) = config.unknown.first() {
        return Some(format!("it came with `{name}`, which evenkeel does not know"));
    }
    let opens = |field: &&ConfigField| {
        let Some(reading) = field.after_restart().or(field.current.as_ref()) else {
            return false;
        };
        let key = field.key.key();
        let runs_code = key.hazard == Hazard::Forbidden && key.declared == Declarable::RootOnly;
        // Whoever may use a mapping hands its device or directory to a guest; a copy did not ask.
        let is_mapped =
            reading.value.as_property().is_some_and(|value| value.get("mapping").is_some());
        runs_code
            || matches!(key.name, "hostpci" | "virtiofs")
            || (key.name == "usb" && is_mapped)
            || opens_host(field.key, None, Some(&reading.value))
            || reading.value.as_property().is_some_and(is_host_path)
    };
    let opened = config.fields.iter().filter(|field| !declared.contains(&field.key)).find(opens);
    opened.map(|field| format!("it came with `{}`, which opens the host to it", field.key))
}

/// The same for the raw lines of a container's file, which no view of its keys shows. Lines about its own first process are
/// harmless: Proxmox VE writes them by itself for a container that is made from an OCI image.
pub fn opened_by_raw_line<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let is_harmless = |name: &str| name.starts_with("lxc.init.") || name == "lxc.signal.halt";
    let opens = names.into_iter().find(|name| !is_harmless(name))?;
    Some(format!("it came with the raw line `{opens}`, which may open the host to it"))
}

fn is_odd(value: &Value) -> bool {
    match value {
        Value::Odd(_) => true,
        Value::Property(property) => {
            !property.unknown().is_empty() || property.parts().iter().any(|(_, part)| is_odd(part))
        }
        Value::Bool(_)
        | Value::Integer(_)
        | Value::Number(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Set(_)
        | Value::Size(_)
        | Value::Volume(_)
        | Value::Secret
        | Value::AnyUuid => false,
    }
}

/// A drive or mount point.
fn slot(key: KeyRef, from: Option<&Value>, to: Option<&Value>) -> Judgement {
    let old = from.and_then(Value::as_property);
    let Some(new) = to.and_then(Value::as_property) else {
        let regenerable =
            matches!(old.and_then(Property::volume), Some(VolumeRef::CloudInit { .. }));
        return match (from, regenerable) {
            (None, _) | (_, true) => Judgement::benign(),
            (Some(_), false) => {
                Judgement::new(ActionClass::Disruptive, format!("detaches `{key}`"))
            }
        };
    };
    let set_to = |part: &str, word: &str| matches!(new.get(part), Some(Value::Text(text)) if &**text == word);
    let was_set_to = |part: &str, word: &str| matches!(old.and_then(|old| old.get(part)), Some(Value::Text(text)) if &**text == word);
    if new.is_on("snapshot") && !old.is_some_and(|old| old.is_on("snapshot")) {
        return Judgement::new(ActionClass::Destructive, "later writes are discarded at shutdown");
    }
    for (part, word) in [("cache", "unsafe"), ("werror", "ignore")] {
        if set_to(part, word) && !was_set_to(part, word) {
            return Judgement::new(
                ActionClass::Destructive,
                format!("`{part}={word}` loses writes"),
            );
        }
    }
    let Some(old) = old else {
        return match from {
            None => Judgement::benign(),
            Some(_) => Judgement::new(ActionClass::Disruptive, format!("replaces `{key}`")),
        };
    };
    // Mount points are in backups only when they say so, disks unless they say otherwise; in both
    // forms the normal value of the other side is absence.
    for part in ["backup", "replicate"] {
        let before = old.get(part);
        let after = new.get(part);
        let weaker = before == Some(&Value::Bool(true)) && after.is_none()
            || before.is_none() && after == Some(&Value::Bool(false));
        if weaker {
            return Judgement::new(
                ActionClass::Destructive,
                format!("takes `{key}` out of {part}s"),
            );
        }
    }
    Judgement::new(ActionClass::Disruptive, format!("changes `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::ConfigEntry;

    fn opened(kind: GuestKind, key: &str, value: &str) -> Option<String> {
        let entry = ConfigEntry {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            pending: None,
            delete: 0,
        };
        opens_the_host(&GuestConfig::from_pending(kind, [entry]), &BTreeSet::new())
    }

    #[test]
    fn y14_a_copy_that_brings_a_shared_directory_or_a_mapped_device_opens_the_host() {
        for (key, value) in [
            ("hostpci0", "mapping=gpu"),
            ("virtiofs0", "dirid=home"),
            ("virtiofs3", "home,cache=never"),
            ("usb0", "mapping=dongle"),
            ("usb1", "mapping=dongle,usb3=1"),
            ("usb2", "host=1234:5678"),
        ] {
            let why = opened(GuestKind::Qemu, key, value);
            assert!(why.is_some_and(|why| why.contains(key)), "{key}={value}");
        }
        for (key, value) in [("usb0", "spice"), ("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0")] {
            assert_eq!(opened(GuestKind::Qemu, key, value), None, "{key}={value}");
        }
    }

    #[test]
    fn y14_what_is_declared_is_nothing_that_a_copy_brought() {
        let key = crate::registry::find(GuestKind::Qemu, "virtiofs0").unwrap();
        let entry = ConfigEntry {
            key: "virtiofs0".to_owned(),
            value: Some("dirid=home".to_owned()),
            pending: None,
            delete: 0,
        };
        let config = GuestConfig::from_pending(GuestKind::Qemu, [entry]);
        assert_eq!(opens_the_host(&config, &[key].into()), None);
    }

    #[test]
    fn y19_raw_lines_about_the_first_process_open_nothing() {
        let image = ["lxc.init.uid", "lxc.init.cwd", "lxc.signal.halt"];
        assert_eq!(opened_by_raw_line(image), None);
        for name in ["lxc.mount.entry", "lxc.hook.pre-start", "lxc.signal.stop", "lxc.cap.drop"] {
            let why = opened_by_raw_line(image.into_iter().chain([name]));
            assert!(why.is_some_and(|why| why.contains(name)), "{name}");
        }
    }
}
