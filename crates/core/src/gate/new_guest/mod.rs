//! A guest that is to be made: the one request that makes it, with every declared key that the request takes.
//!
//! ```text
//!   create   template or empty disks or an image: all keys
//!   clone    another guest: its name alone                    what is missing follows by the ordinary plan,
//!   restore  a backup: all keys but volumes                   before the first start
//! ```
//!
//! It never asks for a start, never for `force`, and always says whether a container is unprivileged.

mod brought;
mod judge;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use brought::as_brought;
pub use brought::{SourceContent, brought_volumes, may_bring_raw_lines, wants_source};
pub use judge::{MakeReading, SourceReading, StorageReading, judge_making, storages_used};

use crate::action_registry::ActionKind;
use crate::desired::{DeclaredField, FirstUse, GuestSource, Run, Spec, VolumeContent};
use crate::model::id::{GuestId, GuestKind, VmId};
use crate::model::quantity::Bytes;
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::release::Release;
use crate::operate::operation::StorageName;
use crate::plan::PlanProblem;
use crate::registry::{self, Declarable, Hazard, KeyRef};
use crate::value::read::written;
use crate::value::{Property, Value, VolumeRef, print};

/// A guest that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGuest {
    /// Its kind and number.
    pub guest: GuestId,
    /// What it is made from.
    pub source: GuestSource,
    /// The keys that go with the request, with the text PVE is sent.
    pub settings: BTreeMap<KeyRef, String>,
    /// Where the volumes of a backup go.
    pub storage: Option<StorageName>,
    /// What it gets once.
    pub first: FirstUse,
    /// Whether it shall run, once it is as declared.
    pub run: Option<Run>,
}

/// A text of a container's or machine's name, by its kind.
fn name_key(kind: GuestKind) -> &'static str {
    match kind {
        GuestKind::Lxc => "hostname",
        GuestKind::Qemu => "name",
    }
}

impl NewGuest {
    /// The request that makes a declared guest, or why there is none. `content` is what was found in its source.
    pub fn declared(
        guest: GuestId,
        spec: &Spec,
        release: Release,
        content: Option<&SourceContent>,
    ) -> Result<Self, PlanProblem> {
        let Some(source) = spec.source.clone() else {
            return Err(PlanProblem::NoSource);
        };
        let mut settings = BTreeMap::new();
        for field in spec.fields.iter().filter(|field| goes_with(&source, guest.kind, field.key)) {
            if let Some(text) = text(field, &source, release)? {
                settings.insert(field.key, text);
            }
        }
        let mut unless_declared = |name: &str, text: &str| {
            let key = registry::find(guest.kind, name).expect("a key of the registry");
            settings.entry(key).or_insert_with(|| text.to_owned());
        };
        match &source {
            GuestSource::Template(_) => unless_declared("unprivileged", "1"),
            GuestSource::Backup { .. } => {
                // A reboot of the node must not start what is not as declared yet.
                unless_declared("onboot", "0");
                if guest.kind == GuestKind::Lxc {
                    unless_declared("unprivileged", "1");
                }
            }
            GuestSource::Empty | GuestSource::Image { .. } | GuestSource::Clone(_) => {}
        }
        let storage = match &source {
            GuestSource::Backup { .. } => {
                match brought::backup_storage(guest.kind, spec, content) {
                    Some(storage) => Some(storage),
                    // It is held until somebody has read the archive.
                    None if guest.kind == GuestKind::Lxc => None,
                    None => return Err(PlanProblem::NoStorage),
                }
            }
            GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Image { .. }
            | GuestSource::Clone(_) => None,
        };
        Ok(Self { guest, source, settings, storage, first: spec.first.clone(), run: spec.run })
    }

    /// Why it cannot be made yet although nothing is wrong with it: Proxmox VE would put the volumes of a backup on a storage
    /// of its own choice.
    pub fn unready(&self) -> Option<Refusal> {
        match (&self.source, &self.storage) {
            (GuestSource::Backup { volume, .. }, None) => {
                let why = format!(
                    "evenkeel could not read {volume}, so the storage of {} is unknown; declare rootfs \
                     with its storage",
                    self.guest
                );
                Some(Refusal::new(ReasonCode::Storage, why))
            }
            (GuestSource::Backup { .. }, Some(_))
            | (
                GuestSource::Empty
                | GuestSource::Template(_)
                | GuestSource::Image { .. }
                | GuestSource::Clone(_),
                _,
            ) => None,
        }
    }

    /// The kind of act.
    pub fn kind(&self) -> ActionKind {
        match self.source {
            GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. } => {
                ActionKind::Create
            }
            GuestSource::Clone(_) => ActionKind::Clone,
            GuestSource::Backup { .. } => ActionKind::Restore,
        }
    }

    /// The guest that is copied.
    pub fn clone_source(&self) -> Option<VmId> {
        match &self.source {
            GuestSource::Clone(from) => Some(from.guest),
            GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Image { .. }
            | GuestSource::Backup { .. } => None,
        }
    }

    /// The parameters as PVE's call takes them, but for what is used once, which nobody keeps.
    pub fn params(&self) -> BTreeMap<String, String> {
        let mut params: BTreeMap<String, String> =
            self.settings.iter().map(|(key, text)| (key.to_string(), text.clone())).collect();
        let mut add = |name: &str, text: String| params.insert(name.to_owned(), text);
        let flag = |on: bool| if on { "1" } else { "0" }.to_owned();
        match &self.source {
            GuestSource::Empty | GuestSource::Image { .. } => {}
            GuestSource::Template(volume) => {
                add("ostemplate", volume.as_str().to_owned());
            }
            GuestSource::Clone(from) => {
                add("newid", self.guest.vmid.to_string());
                add("full", flag(from.full));
                if let Some(storage) = &from.storage {
                    add("storage", storage.as_str().to_owned());
                }
                if let Some(snapshot) = &from.snapshot {
                    add("snapname", snapshot.as_str().to_owned());
                }
            }
            GuestSource::Backup { volume, unique } => {
                match self.guest.kind {
                    GuestKind::Lxc => {
                        add("ostemplate", volume.as_str().to_owned());
                        add("restore", flag(true));
                    }
                    GuestKind::Qemu => {
                        add("archive", volume.as_str().to_owned());
                    }
                }
                add("unique", flag(*unique));
                if let Some(storage) = &self.storage {
                    add("storage", storage.as_str().to_owned());
                }
            }
        }
        params
    }

    /// What is allocated with certainty, by storage. A clone or a backup takes what its source has, which is not known
    /// here; its storage is named all the same.
    pub fn allocates(&self) -> BTreeMap<String, Bytes> {
        let mut sizes: BTreeMap<String, Bytes> = BTreeMap::new();
        for (key, text) in &self.settings {
            let value = written(&key.key().format, text);
            let Some(property) = value.as_property() else { continue };
            let Some(storage) = property.volume().and_then(VolumeRef::storage) else { continue };
            let fresh = matches!(property.volume(), Some(VolumeRef::Fresh { .. }));
            let size = property.size().filter(|_| fresh).unwrap_or(Bytes(0));
            let sum = sizes.entry(storage.to_owned()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(size.0);
        }
        let clone_to = match &self.source {
            GuestSource::Clone(from) => from.storage.as_ref(),
            GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Image { .. }
            | GuestSource::Backup { .. } => None,
        };
        for storage in self.storage.iter().chain(clone_to) {
            sizes.entry(storage.as_str().to_owned()).or_insert(Bytes(0));
        }
        sizes
    }

    /// The same with what its source is known to take of storages.
    pub fn takes(&self, brought: &BTreeMap<String, Bytes>) -> BTreeMap<String, Bytes> {
        let mut sizes = self.allocates();
        for (storage, more) in brought {
            let sum = sizes.entry(storage.clone()).or_insert(Bytes(0));
            sum.0 = sum.0.saturating_add(more.0);
        }
        sizes
    }

    /// The storages on which something comes into being by what is said here; a copy may have its own: see
    /// [`storages_used`].
    pub fn storages(&self) -> BTreeSet<String> {
        self.allocates().into_keys().collect()
    }
}

/// Whether a declared key goes with the request that makes the guest.
fn goes_with(source: &GuestSource, kind: GuestKind, key: KeyRef) -> bool {
    let is_volume = match key.key().hazard {
        Hazard::RootVolume | Hazard::VolumeSlot | Hazard::TpmState | Hazard::UnusedVolume => true,
        Hazard::Safe | Hazard::Disrupts | Hazard::Guard | Hazard::GuestName | Hazard::Forbidden => {
            false
        }
    };
    match source {
        GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. } => true,
        GuestSource::Clone(_) => key.key().name == name_key(kind),
        // A container's cards of the backup come before ours if they get new addresses; then ours follow by the plan.
        GuestSource::Backup { unique: true, .. } if kind == GuestKind::Lxc => {
            !is_volume && key.key().name != "net"
        }
        // A guard would keep what follows from being written.
        GuestSource::Backup { .. } => !is_volume,
    }
}

/// The text of a declared key as the request takes it; none if it must be absent.
fn text(
    field: &DeclaredField,
    source: &GuestSource,
    release: Release,
) -> Result<Option<String>, PlanProblem> {
    let DeclaredField { key, want: Some(want) } = field else {
        return Ok(None);
    };
    if !key.key().releases.contains(release) {
        return Err(PlanProblem::NotInRelease { key: *key, part: None, release });
    }
    match key.key().declared {
        Declarable::RootOnly => return Err(PlanProblem::RootOnly(*key)),
        Declarable::Yes | Declarable::AtCreation | Declarable::No(_) => {}
    }
    if want.is_empty() {
        return Ok(None);
    }
    let format = &key.key().format;
    let mut want = want.clone();
    if let (GuestSource::Image { volume, into }, Value::Property(property)) = (source, &mut want)
        && into == key
    {
        // The image brings its own size; the volume grows to the declared one afterwards.
        property.set("import-from", Value::text(volume.as_str()));
        property.set("size", Value::Size(Bytes(0)));
    }
    Ok(Some(print::pve(format, &want)))
}

/// The storage of the first declared volume, root first.
fn first_storage(spec: &Spec) -> Option<StorageName> {
    let storage = |field: &DeclaredField| {
        let volume = field.want.as_ref()?.as_property()?.volume()?;
        let disk = matches!(volume, VolumeRef::Fresh { .. } | VolumeRef::Existing { .. });
        volume.storage().filter(|_| disk)?.parse().ok()
    };
    let root = spec.fields.iter().filter(|field| field.key.key().hazard == Hazard::RootVolume);
    root.chain(&spec.fields).find_map(storage)
}

/// Whether a volume is an image for everybody: of content `import`, which has no owner, and no file of the host.
pub(crate) fn is_public_image(volume: &str) -> bool {
    let content = volume.parse().ok().map(|volume| VolumeContent::of(&volume));
    content == Some(VolumeContent::Import) && !volume.contains("..")
}

/// The image a new volume is filled from.
pub(crate) fn imported(property: &Property) -> Option<&str> {
    match property.get("import-from") {
        Some(Value::Text(text)) => Some(text),
        Some(_) | None => None,
    }
}
