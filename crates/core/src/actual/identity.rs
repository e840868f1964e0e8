//! The identity of a guest: which one it is, whatever number it has today.
//!
//! A number is re-used; the disks, the addresses and the marks PVE makes at creation are not. The gate
//! compares this hash before any destructive act (invariant 12). Tags, names and descriptions are left
//! out: anybody can set them. What waits for a restart is left out too: it is not yet so.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::actual::{ConfigField, Guest, GuestConfig, ValueReading};
use crate::model::id::GuestKind;
use crate::operate::operation::IdentityHash;
use crate::registry::{self, Hazard};
use crate::value::{Property, Value, VolumeRef, print};

/// Why a guest's identity cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Nothing could be read.
    #[error("its configuration could not be read: {0}")]
    Unreadable(String),
    /// Nothing in the configuration tells this guest from another.
    #[error("it has no disk and no network address to be known by")]
    Featureless,
}

/// The identity of a guest, from what is in effect.
pub fn identity(guest: &Guest) -> Result<IdentityHash, Unproven> {
    identity_by(guest, |field| field.current.as_ref())
}

/// The identity it has once everything that waits is applied, as Proxmox does at a start and after a stop.
pub fn identity_after_restart(guest: &Guest) -> Result<IdentityHash, Unproven> {
    identity_by(guest, ConfigField::after_restart)
}

/// Its marks one by one, as far as a change of one leaves the others: volumes, addresses, and what a machine is called by
/// its own hardware.
pub fn marks(guest: &Guest) -> BTreeSet<String> {
    let Ok(config) = &guest.config else {
        return BTreeSet::new();
    };
    let side: ConfigSide = |field| field.current.as_ref();
    let mut marks = volumes(config, side);
    marks.extend(addresses(config, side));
    marks.extend(Some(uuid(config, side)).filter(|(_, text)| !text.is_empty()));
    marks.into_iter().map(|(label, text)| format!("{label} {text}")).collect()
}

/// Which of a key's two values counts.
type ConfigSide = fn(&ConfigField) -> Option<&ValueReading>;

fn identity_by(guest: &Guest, side: ConfigSide) -> Result<IdentityHash, Unproven> {
    let config = guest.config.as_ref().map_err(|error| Unproven::Unreadable(error.to_string()))?;
    let mut marks = volumes(config, side);
    marks.extend(addresses(config, side));
    marks.extend(unread(config, side));
    if marks.is_empty() {
        return Err(Unproven::Featureless);
    }
    marks.sort();
    let made = match guest.id.kind {
        GuestKind::Lxc => vec![named(config, side, guest.id.kind, "ostype")],
        GuestKind::Qemu => vec![
            uuid(config, side),
            named(config, side, guest.id.kind, "vmgenid"),
            named(config, side, guest.id.kind, "meta"),
        ],
    };
    let mut hasher = Sha256::new();
    let kind = [("kind", guest.id.kind.as_str().to_owned())];
    for (label, text) in kind.into_iter().chain(made).chain(marks) {
        // Lengths first, so that no two lists of marks are the same bytes.
        hasher.update((label.len() as u64).to_be_bytes());
        hasher.update(label);
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    }
    Ok(IdentityHash(hasher.finalize().into()))
}

type Mark = (&'static str, String);

/// Volumes that hold data: not CD-ROMs, not cloud-init, not what is detached.
fn volumes(config: &GuestConfig, side: ConfigSide) -> Vec<Mark> {
    properties(config, side)
        .filter(|(hazard, property)| *hazard != Hazard::UnusedVolume && !property.is_cdrom())
        .filter_map(|(_, property)| match property.volume()? {
            VolumeRef::Existing { storage, name } => Some(("volume", format!("{storage}:{name}"))),
            VolumeRef::Path(path) => Some(("path", path.to_string())),
            VolumeRef::Fresh { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Empty
            | VolumeRef::HostCdrom => None,
        })
        .collect()
}

fn addresses(config: &GuestConfig, side: ConfigSide) -> Vec<Mark> {
    properties(config, side)
        .filter_map(|(_, property)| property.get("hwaddr").or_else(|| property.get("macaddr")))
        .filter_map(
            |mac| if let Value::Text(mac) = mac { Some(("mac", mac.to_string())) } else { None },
        )
        .collect()
}

/// A slot or a card whose text cannot be read still tells one guest from another: leaving it out would
/// let what it holds change unseen.
fn unread(config: &GuestConfig, side: ConfigSide) -> impl Iterator<Item = Mark> {
    config.fields.iter().filter_map(move |field| {
        let Value::Odd(text) = &side(field)?.value else {
            return None;
        };
        let key = field.key.key();
        let counts = key.name == "net" || key.hazard.is_volume_slot();
        counts.then(|| ("unread", format!("{}={text}", field.key)))
    })
}

fn properties(config: &GuestConfig, side: ConfigSide) -> impl Iterator<Item = (Hazard, &Property)> {
    config.fields.iter().filter_map(move |field| {
        let property = side(field)?.value.as_property()?;
        Some((field.key.key().hazard, property))
    })
}

fn value<'c>(
    config: &'c GuestConfig,
    side: ConfigSide,
    kind: GuestKind,
    name: &str,
) -> Option<&'c Value> {
    let field = config.field(registry::find(kind, name)?)?;
    side(field).map(|reading| &reading.value)
}

fn named(config: &GuestConfig, side: ConfigSide, kind: GuestKind, name: &'static str) -> Mark {
    let key = registry::find(kind, name).expect("the marks of creation are in the registry").key();
    let text = value(config, side, kind, name).map(|value| print::pve(&key.format, value));
    (name, text.unwrap_or_default())
}

fn uuid(config: &GuestConfig, side: ConfigSide) -> Mark {
    let uuid = value(config, side, GuestKind::Qemu, "smbios1").and_then(Value::as_property);
    match uuid.and_then(|smbios| smbios.get("uuid")) {
        Some(Value::Text(uuid)) => ("uuid", uuid.to_ascii_lowercase()),
        Some(_) | None => ("uuid", String::new()),
    }
}
