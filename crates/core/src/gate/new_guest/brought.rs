//! What a source brings along: the volumes that a copy, a backup or an image makes beside what is declared.
//!
//! Told from the source as it was read; who could not read it knows nothing, and that is an answer of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::actual::GuestConfig;
use crate::desired::{DeclaredBy, DeclaredGuest, GuestSource, Spec, WantedState};
use crate::gate::classify::data_slots;
use crate::gate::create_policy::{BroughtVolume, CLOUD_INIT_DRIVE, SourceContribution};
use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::operate::operation::StorageName;
use crate::registry::{Hazard, KeyRef};
use crate::value::VolumeRef;

use super::first_storage;

/// What is in a source, as it was read.
#[derive(Debug, Clone)]
pub enum SourceContent {
    /// The configuration of the guest that is copied, or of the one that was saved.
    Guest(Arc<GuestConfig>),
    /// An image of this size.
    Image(Bytes),
}

/// Whether somebody must look into the source of a guest before it is made: where a hub's limits depend on what it brings,
/// and where nothing else says on which storage a container shall be.
pub fn wants_source(guest: &DeclaredGuest) -> bool {
    let WantedState::Present(spec) = &guest.state else { return false };
    match (&spec.source, guest.by) {
        (None | Some(GuestSource::Empty | GuestSource::Template(_)), _) => false,
        (Some(_), DeclaredBy::Hub | DeclaredBy::UnsignedHub) => true,
        (Some(GuestSource::Backup { .. }), DeclaredBy::LocalFiles) => {
            guest.id.kind == GuestKind::Lxc && first_storage(spec).is_none()
        }
        (Some(GuestSource::Image { .. } | GuestSource::Clone(_)), DeclaredBy::LocalFiles) => false,
    }
}

/// Whether a guest may have come with raw lines in its file: a container that was copied or restored. No view of its keys
/// shows them, so somebody must look before it runs for the first time.
pub fn may_bring_raw_lines(guest: &DeclaredGuest) -> bool {
    let WantedState::Present(spec) = &guest.state else { return false };
    guest.id.kind == GuestKind::Lxc
        && match &spec.source {
            Some(GuestSource::Clone(_) | GuestSource::Backup { .. }) => true,
            Some(GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. })
            | None => false,
        }
}

/// Where all volumes of a backup go: to the storage of the first declared one; a container of which none is declared goes
/// where its root volume was.
pub(super) fn backup_storage(
    kind: GuestKind,
    spec: &Spec,
    content: Option<&SourceContent>,
) -> Option<StorageName> {
    let saved = match (kind, content) {
        (GuestKind::Lxc, Some(SourceContent::Guest(config))) => root_storage(config),
        (GuestKind::Lxc, Some(SourceContent::Image(_)) | None) | (GuestKind::Qemu, _) => None,
    };
    first_storage(spec).or(saved)
}

fn root_storage(config: &GuestConfig) -> Option<StorageName> {
    let root = data_slots(config).find(|slot| slot.key.key().hazard == Hazard::RootVolume)?;
    root.volume.split_once(':')?.0.parse().ok()
}

/// The volumes that a source brings; none if nobody knows them.
pub fn brought_volumes(
    kind: GuestKind,
    spec: &Spec,
    content: Option<&SourceContent>,
) -> Option<BTreeMap<KeyRef, BroughtVolume>> {
    match (spec.source.as_ref()?, content) {
        (GuestSource::Empty | GuestSource::Template(_), _) => Some(BTreeMap::new()),
        (GuestSource::Image { into, .. }, Some(SourceContent::Image(size))) => {
            let field = spec.fields.iter().find(|field| field.key == *into)?;
            let volume = field.want.as_ref()?.as_property()?.volume()?;
            let storage = volume.storage()?.parse().ok()?;
            Some([(*into, BroughtVolume { storage, size: *size })].into())
        }
        // What a snapshot held may be more than the guest has now.
        (GuestSource::Clone(from), Some(SourceContent::Guest(config))) => {
            from.snapshot.is_none().then(|| volumes_of(config, from.storage.as_ref())).flatten()
        }
        (GuestSource::Backup { .. }, Some(SourceContent::Guest(config))) => {
            volumes_of(config, backup_storage(kind, spec, content).as_ref())
        }
        (GuestSource::Image { .. }, Some(SourceContent::Guest(_)) | None)
        | (
            GuestSource::Clone(_) | GuestSource::Backup { .. },
            Some(SourceContent::Image(_)) | None,
        ) => None,
    }
}

/// The same as the judge of a hub's limits takes it.
pub(crate) fn as_brought(
    volumes: Option<&BTreeMap<KeyRef, BroughtVolume>>,
) -> SourceContribution<'_> {
    volumes.map_or(SourceContribution::Unknown, SourceContribution::Volumes)
}

/// The volumes of a configuration, all on one storage or each where it is; none if one does not tell its size.
fn volumes_of(
    config: &GuestConfig,
    target: Option<&StorageName>,
) -> Option<BTreeMap<KeyRef, BroughtVolume>> {
    let mut brought = BTreeMap::new();
    for field in &*config.fields {
        let Some(property) = field.current.as_ref().and_then(|now| now.value.as_property()) else {
            continue;
        };
        let size = match property.volume() {
            _ if field.key.key().hazard == Hazard::UnusedVolume => continue,
            Some(VolumeRef::CloudInit { .. }) => CLOUD_INIT_DRIVE,
            Some(VolumeRef::Existing { .. }) if property.data_volume().is_some() => {
                property.size()?
            }
            Some(
                VolumeRef::Existing { .. }
                | VolumeRef::Fresh { .. }
                | VolumeRef::Path(_)
                | VolumeRef::Empty
                | VolumeRef::HostCdrom,
            )
            | None => continue,
        };
        let own = property.volume().and_then(VolumeRef::storage).and_then(|own| own.parse().ok());
        let storage = target.cloned().or(own)?;
        brought.insert(field.key, BroughtVolume { storage, size });
    }
    Some(brought)
}
