//! What the host lets a hub have made: `[policy.create]` of agent.toml, and the judgement by it.
//!
//! The planner asks before it plans an act for a guest (`plan/bounds.rs`), the gate asks again in the lane. Whoever can write the local files
//! is root and unlimited; a hub is bounded by what root wrote, whether its document is signed or not. Without the section
//! a hub has nothing made and nothing grown. Each field bounds by itself, and a refusal names it. It decides nothing about
//! signatures, and never widens what classes and locks say.

mod source_pattern;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

pub use source_pattern::SourcePattern;
pub use usage::{CreateContext, CreateUsage, GuestVolumes, hub_volumes, larger, sizes_in};

use crate::actual::GuestConfig;
use crate::desired::{DeclaredBy, DeclaredGuest, GuestSource, Spec, WantedState};
use crate::model::id::{GuestId, GuestKind};
use crate::model::quantity::Bytes;
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::vmid_ranges::VmidRanges;
use crate::operate::operation::StorageName;
use crate::registry::KeyRef;
use crate::value::{Value, VolumeRef};

/// The size PVE gives cloud-init's drive.
pub(crate) const CLOUD_INIT_DRIVE: Bytes = Bytes(4 * Bytes::MIB);

/// A hub that may have more guests made a day than this fills a host in an hour.
pub const PER_DAY_MAX: u64 = 1_000;

/// The host's limits on what a hub has made. What is left out allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreatePolicy {
    /// The numbers new guests may have.
    pub vmids: VmidRanges,
    /// What they may be made from.
    pub sources: Vec<SourcePattern>,
    /// The storages their volumes may be on, and how much of each they may use together.
    pub storages: BTreeMap<StorageName, Bytes>,
    /// The bridges their cards may be on.
    pub bridges: BTreeSet<String>,
    /// How many guests may be made in 24 hours.
    pub per_day: u64,
    /// Whether containers may be privileged.
    pub privileged: bool,
}

/// Where a volume of a clone's or backup's source will be, and how large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtVolume {
    /// The storage it will be on.
    pub storage: StorageName,
    /// Its size.
    pub size: Bytes,
}

/// What a source brings along beside what is declared.
#[derive(Debug, Clone, Copy)]
pub enum SourceContribution<'a> {
    /// Nobody looked, or the source could not be read.
    Unknown,
    /// These volumes; none for a template, and for a machine with empty disks.
    Volumes(&'a BTreeMap<KeyRef, BroughtVolume>),
}

/// Judges what somebody has made by the host's limits.
#[derive(Debug, Clone, Copy)]
pub struct CreateJudge<'a> {
    /// Who wants it.
    pub by: DeclaredBy,
    /// The host's limits; none if agent.toml has no `[policy.create]`.
    pub policy: Option<&'a CreatePolicy>,
    /// What is used of them.
    pub usage: &'a CreateUsage,
}

impl CreateJudge<'_> {
    /// Whether a guest may be made as it is declared.
    pub fn create(
        &self,
        guest: &DeclaredGuest,
        brought: SourceContribution<'_>,
    ) -> Result<(), Refusal> {
        let Some(policy) = self.bounds()? else { return Ok(()) };
        let WantedState::Present(spec) = &guest.state else { return Ok(()) };
        let id = guest.id;
        if !policy.vmids.has(id.vmid) {
            return Err(refuse("vmids", &format!("a hub may not use the number of {id}")));
        }
        if self.usage.made_in_last_day >= policy.per_day {
            let made = self.usage.made_in_last_day;
            let limit = policy.per_day;
            return Err(refuse(
                "per_day",
                &format!(
                    "{made} guests were made for the hub in the last 24 hours, and the limit is {limit}"
                ),
            ));
        }
        source_allowed(policy, id, spec)?;
        privilege_allowed(policy, id, spec)?;
        for field in &spec.fields {
            if let Some(value) = &field.want {
                self.network(id, field.key, value)?;
                image_allowed(id, field.key, value)?;
            }
        }
        self.room(policy, id, &volumes(id, spec, brought)?)
    }

    /// Whether a guest may run for the first time with what its source brought along: cards on other bridges, and a
    /// privileged container, are nothing that a hub may have by copying them.
    pub fn first_start(&self, guest: GuestId, config: &GuestConfig) -> Result<(), Refusal> {
        let Some(policy) = self.bounds()? else { return Ok(()) };
        for field in &*config.fields {
            let stored = field.after_restart().or(field.current.as_ref());
            if let Some(reading) = stored {
                self.network(guest, field.key, &reading.value)?;
            }
        }
        let is_privileged = guest.kind == GuestKind::Lxc
            && config.current(GuestKind::Lxc, "unprivileged") != Some(&Value::Bool(true));
        if is_privileged && !policy.privileged {
            return Err(refuse("privileged", &format!("{guest} is a privileged container")));
        }
        Ok(())
    }

    /// Whether a guest that is there may get a new volume as a key says: `more` is what is added.
    pub fn volume(&self, guest: GuestId, key: KeyRef, value: &Value) -> Result<(), Refusal> {
        if self.bounds()?.is_none() {
            return Ok(());
        }
        image_allowed(guest, key, value)?;
        match new_volume(value) {
            None => Ok(()),
            Some((storage, size)) => self.allocate(guest, &storage_named(guest, storage)?, size),
        }
    }

    /// Whether a guest may get a new volume, a larger one, or one on another storage: `more` is what is added there.
    pub fn allocate(
        &self,
        guest: GuestId,
        storage: &StorageName,
        more: Bytes,
    ) -> Result<(), Refusal> {
        let Some(policy) = self.bounds()? else { return Ok(()) };
        self.room(policy, guest, &BTreeMap::from([(storage.clone(), more)]))
    }

    /// Whether a key may have this value, as far as it is a network card.
    pub fn network(&self, guest: GuestId, key: KeyRef, value: &Value) -> Result<(), Refusal> {
        if key.key().name != "net" {
            return Ok(());
        }
        let Some(policy) = self.bounds()? else { return Ok(()) };
        let bridge =
            value.as_property().and_then(|card| card.get("bridge")).and_then(Value::as_text);
        match bridge {
            Some(bridge) if policy.bridges.contains(bridge) => Ok(()),
            Some(bridge) => Err(refuse(
                "bridges",
                &format!("{key} of {guest} is on {bridge}, which a hub may not use"),
            )),
            // A machine's card without a bridge goes out through the host.
            None => Err(refuse("bridges", &format!("{key} of {guest} names no bridge"))),
        }
    }

    /// The limits that hold for whoever wants it; none for the local files.
    fn bounds(&self) -> Result<Option<&CreatePolicy>, Refusal> {
        match (self.by, self.policy) {
            (DeclaredBy::LocalFiles, _) => Ok(None),
            (DeclaredBy::Hub | DeclaredBy::UnsignedHub, Some(policy)) => Ok(Some(policy)),
            (DeclaredBy::Hub | DeclaredBy::UnsignedHub, None) => {
                let detail = "this host makes, grows and moves nothing for a hub: agent.toml has no \
                              [policy.create]; root may add it, or declare the guest in a local file";
                Err(Refusal::new(ReasonCode::Policy, detail))
            }
        }
    }

    fn room(
        &self,
        policy: &CreatePolicy,
        guest: GuestId,
        wanted: &BTreeMap<StorageName, Bytes>,
    ) -> Result<(), Refusal> {
        for (storage, more) in wanted {
            let Some(limit) = policy.storages.get(storage) else {
                let what =
                    format!("{guest} would have a volume on {storage}, which a hub may not use");
                return Err(refuse("storages", &what));
            };
            let used = self.usage.bytes.get(storage).copied().unwrap_or(Bytes(0));
            if used.0.saturating_add(more.0) > limit.0 {
                let more = more.shown();
                let used = used.shown();
                let limit = limit.shown();
                let what = format!(
                    "{guest} would take {more} more on {storage}, where {used} of {limit} are used"
                );
                return Err(refuse("storages", &what));
            }
        }
        Ok(())
    }
}

fn source_allowed(policy: &CreatePolicy, guest: GuestId, spec: &Spec) -> Result<(), Refusal> {
    let source = match &spec.source {
        // Nothing is read in.
        None | Some(GuestSource::Empty) => return Ok(()),
        Some(source) => source,
    };
    if policy.sources.iter().any(|pattern| pattern.fits(source)) {
        return Ok(());
    }
    let shown = match source {
        GuestSource::Empty => "nothing".to_owned(),
        GuestSource::Template(volume)
        | GuestSource::Image { volume, .. }
        | GuestSource::Backup { volume, .. } => volume.to_string(),
        GuestSource::Clone(from) => format!("clone:{}", from.guest),
    };
    Err(refuse("sources", &format!("{guest} would be made from {shown}, which a hub may not use")))
}

/// What is not said is unprivileged: it is spelled out when the container is made.
fn privilege_allowed(policy: &CreatePolicy, guest: GuestId, spec: &Spec) -> Result<(), Refusal> {
    let is_unprivileged =
        |name: &str, value: &Value| name == "unprivileged" && *value == Value::Bool(false);
    let is_privileged = spec.fields.iter().any(|field| {
        field.want.as_ref().is_some_and(|value| is_unprivileged(field.key.key().name, value))
    });
    match guest.kind {
        GuestKind::Lxc if is_privileged && !policy.privileged => {
            Err(refuse("privileged", &format!("{guest} would be a privileged container")))
        }
        GuestKind::Lxc | GuestKind::Qemu => Ok(()),
    }
}

/// A volume that is allocated if the value is written: where, and how large.
pub fn new_volume(value: &Value) -> Option<(&str, Bytes)> {
    let property = value.as_property()?;
    match property.volume()? {
        VolumeRef::Fresh { storage } => Some((storage, property.size().unwrap_or(Bytes(0)))),
        VolumeRef::CloudInit { storage } => Some((storage, CLOUD_INIT_DRIVE)),
        VolumeRef::Existing { .. }
        | VolumeRef::Path(_)
        | VolumeRef::Empty
        | VolumeRef::HostCdrom => None,
    }
}

fn storage_named(guest: GuestId, storage: &str) -> Result<StorageName, Refusal> {
    let what = || format!("{guest} would have a volume on {storage}, which a hub may not use");
    storage.parse().map_err(|_| refuse("storages", &what()))
}

/// An image is read in as the source of a new guest, where its size is known and `sources` was asked, and not otherwise.
fn image_allowed(guest: GuestId, key: KeyRef, value: &Value) -> Result<(), Refusal> {
    if value.as_property().is_none_or(|property| property.get("import-from").is_none()) {
        return Ok(());
    }
    let what = format!("{key} of {guest} would be filled from an image that is not its `source`");
    Err(refuse("sources", &what))
}

/// What a new guest takes on each storage: its declared volumes, and those its source brings in other slots.
pub(crate) fn volumes(
    guest: GuestId,
    spec: &Spec,
    brought: SourceContribution<'_>,
) -> Result<BTreeMap<StorageName, Bytes>, Refusal> {
    let mut slots: BTreeMap<KeyRef, (StorageName, Bytes)> = BTreeMap::new();
    for field in &spec.fields {
        if let Some((storage, size)) = field.want.as_ref().and_then(new_volume) {
            slots.insert(field.key, (storage_named(guest, storage)?, size));
        }
    }
    match (&spec.source, brought) {
        (
            Some(GuestSource::Clone(_) | GuestSource::Backup { .. } | GuestSource::Image { .. }),
            SourceContribution::Unknown,
        ) => {
            let what = format!("evenkeel could not read the size of the source of {guest}");
            return Err(refuse("storages", &what));
        }
        (
            None | Some(GuestSource::Empty | GuestSource::Template(_)),
            SourceContribution::Unknown,
        ) => {}
        (_, SourceContribution::Volumes(brought)) => {
            for (slot, BroughtVolume { storage, size }) in brought {
                let declared = slots.remove(slot).map_or(Bytes(0), |(_, size)| size);
                slots.insert(*slot, (storage.clone(), declared.max(*size)));
            }
        }
    }
    let is_root = |key: &KeyRef| key.key().name == "rootfs";
    if matches!(spec.source, Some(GuestSource::Template(_))) && !slots.keys().any(is_root) {
        // PVE would choose a storage by itself.
        return Err(refuse(
            "storages",
            &format!("the storage of the root volume of {guest} is not declared"),
        ));
    }
    let mut wanted: BTreeMap<StorageName, Bytes> = BTreeMap::new();
    for (storage, size) in slots.into_values() {
        let sum = wanted.entry(storage).or_insert(Bytes(0));
        sum.0 = sum.0.saturating_add(size.0);
    }
    Ok(wanted)
}

/// That a field of the limits does not allow something, and what to do.
pub(crate) fn refuse(field: &str, what: &str) -> Refusal {
    let detail = format!(
        "{what}: change the declaration, or let root widen `{field}` under [policy.create] in agent.toml"
    );
    Refusal::new(ReasonCode::Policy, detail)
}

#[cfg(test)]
mod tests;
