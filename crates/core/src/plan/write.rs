//! What a write must carry along, so that it changes nothing but what was declared.
//!
//! PVE replaces a property string whole: a `netN` sent without its MAC gets a new one, a drive sent as
//! `STORAGE:SIZE` is allocated again. Here the declared value takes over what is already there: the MAC
//! in its actual spelling, the volume, the size, and parts only the server fills in.

use crate::actual::{GuestConfig, ValueReading};
use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::model::release::Release;
use crate::registry::{Compared, FormatPart, Hazard, KeyRef, Shape, ValueFormat};
use crate::value::{Property, Value, VolumeRef, is_root_device, print};

/// Why a value cannot be written into its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteRefusal {
    /// The volume waits on another storage.
    OtherStorage {
        /// The declared storage.
        want: String,
        /// The storage it is on.
        have: String,
    },
    /// The slot holds something that is not a volume to take over.
    SlotTaken,
}

/// The text to send for a declared value; none if it says no more than absence. A volume that grows before the write
/// is named with the size it then has.
pub(super) fn text(
    key: KeyRef,
    want: &Value,
    have: Option<&ValueReading>,
    grown: Option<Bytes>,
) -> Result<Option<String>, WriteRefusal> {
    let format = &key.key().format;
    if want.is_empty() {
        return Ok(None);
    }
    let (ValueFormat::Property(shape), Value::Property(declared)) = (format, want) else {
        return Ok(Some(print::pve(format, want)));
    };
    let mut property = declared.clone();
    if let Some(have) = have {
        take_over_volume(&mut property, have)?;
        take_over_parts(shape, &mut property, have);
    }
    if let Some(size) = grown {
        property.set("size", Value::Size(size));
    }
    Ok(Some(print::pve(format, &Value::Property(property))))
}

/// A volume to be allocated that is already there is named, never allocated again.
fn take_over_volume(property: &mut Property, have: &ValueReading) -> Result<(), WriteRefusal> {
    let Some(VolumeRef::Fresh { storage: want }) = property.volume().cloned() else {
        return Ok(());
    };
    let stored = have.value.as_property();
    // An ISO image has a storage too; it is no disk to take over.
    if stored.is_some_and(Property::is_cdrom) {
        return Err(WriteRefusal::SlotTaken);
    }
    match stored.and_then(Property::volume) {
        Some(volume @ VolumeRef::Existing { storage, .. }) => {
            if volume.is_base_image() {
                return Err(WriteRefusal::SlotTaken);
            }
            if *want != **storage {
                return Err(WriteRefusal::OtherStorage {
                    want: want.into(),
                    have: storage.to_string(),
                });
            }
            let name = if property.get("file").is_some() { "file" } else { "volume" };
            property.set(name, Value::Volume(volume.clone().into()));
            // The image was imported when the volume was made; PVE refuses the source beside a volume. The format
            // was chosen then too; beside a volume it would change how what the guest wrote is read.
            property.remove("import-from");
            property.remove("format");
            match stored.and_then(Property::size) {
                Some(size) => property.set("size", Value::Size(size)),
                None => property.remove("size"),
            }
            Ok(())
        }
        Some(
            VolumeRef::Fresh { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Path(_)
            | VolumeRef::Empty
            | VolumeRef::HostCdrom,
        )
        | None => Err(WriteRefusal::SlotTaken),
    }
}

/// Parts the server fills in, and parts of a newer release, stay as they are.
fn take_over_parts(shape: &Shape, property: &mut Property, have: &ValueReading) {
    let Some(stored) = have.value.as_property() else {
        return;
    };
    let same_volume = property.volume() == stored.volume();
    for part in shape.parts {
        let kept = match part.compared {
            Compared::WhenDeclared => part.name != "size" || same_volume,
            Compared::Never => same_volume,
            Compared::Always => false,
        };
        let Some(value) = stored.get(part.name).filter(|_| kept) else {
            continue;
        };
        if matches!(part.format, ValueFormat::Mac) {
            // Even another case of the same address makes PVE plug the card anew: keep the spelling.
            if property.get(part.name).is_none_or(|declared| declared == value) {
                property.set(part.name, Value::text(spelled_mac(&have.text).unwrap_or_default()));
            }
        } else if property.get(part.name).is_none() || part.name == "size" {
            property.set(part.name, value.clone());
        }
    }
    property.keep_unknown(stored);
}

/// The MAC address in a stored network value, as it is spelled there.
fn spelled_mac(text: &str) -> Option<&str> {
    text.split(',').find_map(|piece| {
        let (_, value) = piece.split_once('=')?;
        let is_mac = value.len() == 17 && value.bytes().filter(|b| *b == b':').count() == 5;
        is_mac.then_some(value)
    })
}

/// Whether `protection` makes PVE refuse the write: of any mount point of a container, of the removal of a
/// machine's drive. The whole write would be refused with it, every pass.
pub(super) fn is_protected(key: KeyRef, want: Option<&Value>, config: &GuestConfig) -> bool {
    let on = config.is_protected(key.kind());
    let guarded = match key.key().hazard {
        Hazard::VolumeSlot | Hazard::TpmState => key.kind() == GuestKind::Lxc || want.is_none(),
        Hazard::Safe
        | Hazard::Disrupts
        | Hazard::Guard
        | Hazard::GuestName
        | Hazard::RootVolume
        | Hazard::UnusedVolume
        | Hazard::Forbidden => false,
    };
    on && guarded
}

/// A part of a declared value that the release does not have.
pub(super) fn missing_part(
    key: KeyRef,
    want: Option<&Value>,
    release: Release,
) -> Option<&'static str> {
    let (ValueFormat::Property(shape), Some(Value::Property(property))) = (&key.key().format, want)
    else {
        return None;
    };
    let absent = |part: &FormatPart| !part.releases.contains(release);
    property.parts().iter().map(|(name, _)| *name).find(|name| shape.part(name).is_some_and(absent))
}

/// Whether only root@pam could make this change.
pub(super) fn needs_root(
    key: KeyRef,
    want: Option<&Value>,
    have: Option<&Value>,
    config: &GuestConfig,
    release: Release,
) -> bool {
    let ValueFormat::Property(shape) = &key.key().format else {
        let real = |value: Option<&Value>| matches!(value, Some(Value::Text(text)) if is_root_device(text));
        return key.key().name == "serial" && (real(want) || real(have));
    };
    let want = want.and_then(Value::as_property);
    let have = have.and_then(Value::as_property);
    let of = |property: Option<&Property>, name: &str| property.and_then(|p| p.get(name)).cloned();
    let root_part =
        |part: &&FormatPart| part.root_only && of(want, part.name) != of(have, part.name);
    if shape.parts.iter().any(|part| root_part(&part)) {
        return true;
    }
    match (key.kind(), key.key().name) {
        // All features of a privileged container are root's.
        (GuestKind::Lxc, "features") => {
            config.current(GuestKind::Lxc, "unprivileged") != Some(&Value::Bool(true))
        }
        (GuestKind::Lxc, "mp") => {
            matches!(want.and_then(Property::volume), Some(VolumeRef::Path(_)))
        }
        // A real device is root's to give and to take away, in every write that carries it.
        (GuestKind::Qemu, "usb") => [want, have].into_iter().any(
            |side| matches!(of(side, "host"), Some(Value::Text(host)) if is_root_device(&host)),
        ),
        (GuestKind::Qemu, "hostpci") => [want, have]
            .into_iter()
            .any(|side| of(side, "host").is_some() || of(side, "romfile").is_some()),
        (GuestKind::Qemu, "rng0") => release < Release::V8_0,
        (GuestKind::Lxc | GuestKind::Qemu, _) => false,
    }
}
