//! One guest's declared fields against its configuration.
//!
//! Each declared field ends in one of six ways: it is right, it waits for a restart, it must be
//! written, its volume must move or grow, or it cannot be done. Fields that are not declared are not looked at.

use super::action::{Change, Held, How, SetConfig, Step};
use super::comparison::{FieldComparison, declared_fields};
use super::problem::PlanProblem;
use super::volumes::{self, PlannedMove, VolumeMemory};
use super::write::{self, WriteRefusal};
use super::{GuestPlan, hold_last, push};
use crate::actual::{ConfigField, Guest, GuestConfig, Snapshot, ValueReading};
use crate::desired::{self, DeclaredBy, Spec};
use crate::fleet;
use crate::gate::classify::{self, ActionClass};
use crate::model::id::GuestKind;
use crate::model::quantity::Bytes;
use crate::registry::effect::{When, when};
use crate::registry::{Declarable, Hazard, KeyRef};
use crate::value::compare::{Difference, size_gap};
use crate::value::{Property, Value, VolumeRef, read};

/// Plans at most one write that can run, one that needs a signature, and the volumes that must grow or move.
pub(super) fn plan_config(
    spec: &Spec,
    by: DeclaredBy,
    guest: &Guest,
    config: &GuestConfig,
    actual: &Snapshot,
    memory: &VolumeMemory,
    planned: &mut GuestPlan,
) {
    let fields = FieldComparison::new(guest.id.vmid, spec, actual.conventions);
    let differ = Differ { fields, guest, config, memory, actual };
    let mut found = FoundChanges::default();
    for (field, have) in declared_fields(spec, config) {
        differ.field(field, have, &mut found);
    }
    if found.is_empty() {
        return;
    }
    planned.waiting = found.waiting;
    planned.problems.append(&mut found.problems);
    let nothing_sent = found.changes.is_empty() && found.grow.is_empty() && found.moves.is_empty();
    if config.digest.is_empty() && !nothing_sent {
        planned.problems.push(PlanProblem::NoDigest);
        return;
    }
    // Volumes grow first: a write that then waits for a restart is stored with the new size.
    let moves = |disk: &KeyRef| found.moves.iter().any(|planned| planned.disk == *disk);
    let (moved, stay): (Vec<_>, Vec<_>) =
        found.grow.into_iter().partition(|(disk, ..)| moves(disk));
    for (disk, from, to) in stay {
        push(planned, Step::Resize { disk, from, to, digest: config.digest.clone() }, Vec::new());
    }
    // What needs a signature must not hold up what does not.
    let (signed, unsigned): (Vec<Change>, Vec<Change>) =
        found.changes.into_iter().partition(|change| change.class == ActionClass::Destructive);
    // Nor what opens the guest and nobody vouches for.
    let (opening, unsigned): (Vec<Change>, Vec<Change>) =
        unsigned.into_iter().partition(|change| fleet::opened_by(by, change).is_some());
    let held = opening.first().and_then(|change| fleet::opened_by(by, change)).map(Held::Until);
    for (changes, held) in [(unsigned, None), (opening, held), (signed, None)] {
        if !changes.is_empty() {
            push(planned, Step::SetConfig(set_config(&changes, &config.digest)), changes);
            hold_last(planned, held);
        }
    }
    // A move takes long and may fail for want of room: it comes after what does not depend on it. A volume that also
    // grows does so where it shall be.
    for PlannedMove { disk, volume, from, to, hold } in found.moves {
        let digest = config.digest.clone();
        let held = hold.map(Held::Volume);
        push(planned, Step::MoveVolume { disk, volume, from, to, digest }, Vec::new());
        hold_last(planned, held.clone());
        for &(_, from, to) in moved.iter().filter(|(grows, ..)| *grows == disk) {
            let digest = config.digest.clone();
            push(planned, Step::Resize { disk, from, to, digest }, Vec::new());
            hold_last(planned, held.clone());
        }
    }
}

/// What the fields of one guest came to.
#[derive(Default)]
struct FoundChanges {
    changes: Vec<Change>,
    waiting: Vec<Change>,
    problems: Vec<PlanProblem>,
    grow: Vec<(KeyRef, Bytes, Bytes)>,
    moves: Vec<PlannedMove>,
}

impl FoundChanges {
    fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.waiting.is_empty()
            && self.problems.is_empty()
            && self.grow.is_empty()
            && self.moves.is_empty()
    }
}

struct Differ<'a> {
    fields: FieldComparison<'a>,
    guest: &'a Guest,
    config: &'a GuestConfig,
    memory: &'a VolumeMemory,
    actual: &'a Snapshot,
}

impl Differ<'_> {
    fn field(
        &self,
        field: &desired::DeclaredField,
        have: Option<&ConfigField>,
        found: &mut FoundChanges,
    ) {
        if self.fields.is_settled(field, have) {
            return;
        }
        if let Some((volume, storage)) = volumes::other_storage(field, have) {
            self.moves(field, have, (volume, storage), found);
        } else {
            self.compare(&self.fields.on_base(field, have), have, found);
        }
    }

    /// A volume that is on another storage than declared.
    fn moves(
        &self,
        field: &desired::DeclaredField,
        have: Option<&ConfigField>,
        (volume, storage): (&VolumeRef, &str),
        found: &mut FoundChanges,
    ) {
        let memory = &self.memory.moved;
        let here = volumes::where_it_is(field, volume);
        let planned =
            volumes::plan_move(field.key, volume, storage, self.guest, self.config, memory);
        match planned {
            Ok(planned) if planned.hold.is_none() => {
                // What else differs is written once the volume has its new name.
                let current = have.and_then(|have| have.current.as_ref());
                let here = self.fields.effective(&here, current.map(|reading| &reading.value));
                compare_sizes(&here, have, found);
                found.moves.push(planned);
            }
            Ok(planned) => {
                self.compare(&here, have, found);
                found.moves.push(planned);
            }
            Err(problem) => found.problems.push(problem),
        }
    }

    /// A field whose volume, if it has one, is where it shall be.
    fn compare(
        &self,
        field: &desired::DeclaredField,
        have: Option<&ConfigField>,
        found: &mut FoundChanges,
    ) {
        let want = field.want.as_ref();
        let current = have.and_then(|have| have.current.as_ref());
        let now = self.fields.difference(field, current.map(|reading| &reading.value));
        let Some(have) = have.filter(|have| have.waiting.is_some()) else {
            if now != Difference::Same {
                self.differs(field, now, have, found);
            }
            return;
        };
        let after = have.after_restart().map(|reading| &reading.value);
        let then = self.fields.difference(field, after);
        match (now, then) {
            (Difference::Same, Difference::Same) => {}
            // Dropping what waits would drop a change of a part that is left to others: the key is written instead.
            (Difference::Same, Difference::Size { .. } | Difference::Other)
                if !self.fields.ignore.alike(field.key, current.map(|r| &r.value), after) =>
            {
                let known = found.changes.len();
                self.differs(field, then, Some(have), found);
                // What changes is what waits.
                for change in &mut found.changes[known..] {
                    change.from = after.cloned();
                }
            }
            (Difference::Same, Difference::Size { .. } | Difference::Other) => {
                found.changes.push(self.change(
                    field,
                    current.map(|r| r.value.clone()),
                    How::Revert,
                ));
            }
            // PVE's resize leaves the size in a waiting value behind, so a volume grows after the restart.
            (
                Difference::Size { .. } | Difference::Other,
                Difference::Same | Difference::Size { .. },
            ) => {
                let how =
                    have.after_restart().map_or(How::Delete, |r| How::Set(r.text.to_string()));
                let field = &*self.fields.effective(field, after);
                found.waiting.push(self.change(field, current.map(|r| r.value.clone()), how));
            }
            // A container would keep the value that waits beside the deletion, and get it with the restart. It is
            // dropped first; the pass after this one removes the key.
            (Difference::Size { .. } | Difference::Other, Difference::Other)
                if want.is_none() && self.guest.id.kind == GuestKind::Lxc && after.is_some() =>
            {
                let from = current.map(|reading| reading.value.clone());
                found.changes.push(self.change(field, from, How::Revert));
            }
            (Difference::Size { .. } | Difference::Other, Difference::Other) => {
                self.differs(field, then, Some(have), found);
            }
        }
    }

    /// A field that is not as declared, and will not be after a restart either.
    fn differs(
        &self,
        field: &desired::DeclaredField,
        difference: Difference,
        have: Option<&ConfigField>,
        found: &mut FoundChanges,
    ) {
        // What a waiting deletion would take away is still there: its volume and its MAC are taken over, or
        // the write would allocate a second volume beside the one that holds the data.
        let there = have.and_then(|have| have.after_restart().or(have.current.as_ref()));
        let is_odd = there.is_some_and(|reading| reading.value.as_property().is_none());
        if is_odd && field.want.is_some() && self.fields.ignore.parts(field.key).next().is_some() {
            found.problems.push(PlanProblem::IgnoredUnread(field.key));
            return;
        }
        let field = &*self.fields.effective(field, there.map(|reading| &reading.value));
        if let Some(problem) = self.refusal(field, there.map(|reading| &reading.value)) {
            found.problems.push(problem);
            return;
        }
        // A write that comes after the growth carries the size that will be.
        let mut grown = None;
        if have.is_none_or(|have| have.waiting.is_none()) {
            grown = compare_sizes(field, have, found);
        }
        if let Difference::Size { .. } = difference {
            return;
        }
        if let Some(problem) = self.volume_at_risk(field, there.map(|reading| &reading.value)) {
            found.problems.push(problem);
            return;
        }
        let from = have.and_then(|have| have.current.as_ref()).map(|reading| reading.value.clone());
        match how_written(field, there, grown) {
            Ok(how) => found.changes.push(self.change(field, from, how)),
            // A volume that only waits for its slot cannot be moved yet.
            Err(WriteRefusal::OtherStorage { want, have }) => {
                found.problems.push(PlanProblem::OtherStorage { disk: field.key, want, have });
            }
            Err(WriteRefusal::SlotTaken) => found.problems.push(PlanProblem::SlotTaken(field.key)),
        }
    }

    /// What the write would do to a volume that it must leave alone.
    fn volume_at_risk(
        &self,
        field: &desired::DeclaredField,
        there: Option<&Value>,
    ) -> Option<PlanProblem> {
        let disk = field.key;
        if disk.key().hazard == Hazard::RootVolume {
            return Some(PlanProblem::RootVolume);
        }
        if let (None, Some(unused)) = (there, self.left_unused(field)) {
            return Some(PlanProblem::LeftUnused { disk, unused });
        }
        if let Some(other) = self.other_slot(field) {
            return Some(PlanProblem::InOtherSlot { disk, other });
        }
        self.taken_elsewhere(field, there)
    }

    /// A detached volume on the storage where a new one is declared. A rollback or a hand detaches volumes;
    /// an empty one in their place would look like lost data to the guest.
    fn left_unused(&self, field: &desired::DeclaredField) -> Option<KeyRef> {
        let volume = field.want.as_ref()?.as_property()?.volume()?;
        let VolumeRef::Fresh { storage } = volume else {
            return None;
        };
        // What is known to have been moved out of another slot was never in this one.
        let moved_elsewhere = |volume: &VolumeRef| {
            let slot = volume.volid().and_then(|name| self.memory.moved.slot_of(&name));
            slot.is_some_and(|slot| slot != field.key.to_string())
        };
        let unused = self.config.fields.iter().find(|other| {
            let held = volumes::detached(other).filter(|held| !moved_elsewhere(held));
            held.and_then(VolumeRef::storage) == Some(storage)
        });
        unused.map(|field| field.key)
    }

    /// Another slot that holds the declared volume, now or after a restart.
    fn other_slot(&self, field: &desired::DeclaredField) -> Option<KeyRef> {
        let volume = field.want.as_ref()?.as_property()?.data_volume()?;
        classify::slot_of(self.config, field.key, volume)
    }

    /// A volume that would come into the slot while another guest's configuration names it. Proxmox VE would take it
    /// without a word.
    fn taken_elsewhere(
        &self,
        field: &desired::DeclaredField,
        have: Option<&Value>,
    ) -> Option<PlanProblem> {
        let volume = field.want.as_ref()?.as_property()?.data_volume()?;
        if have.and_then(Value::as_property).and_then(Property::data_volume) == Some(volume) {
            return None;
        }
        let guest = volumes::other_user(self.actual, self.guest.id, volume)?;
        let volume = volume.volid().unwrap_or_default();
        Some(PlanProblem::UsedByOther { disk: field.key, volume, guest })
    }

    fn change(&self, field: &desired::DeclaredField, from: Option<Value>, how: How) -> Change {
        let to = field.want.clone();
        let when = match how {
            // Nothing of the guest changes: what would have come with a restart no longer comes.
            How::Revert => When::Live,
            How::Set(_) | How::Delete => {
                when(field.key, from.as_ref(), to.as_ref(), self.guest, self.actual.release)
            }
        };
        let class = match &how {
            // Reverting drops what waits; what is in effect stays.
            How::Revert => classify::revert(field.key, self.guest.id.vmid, self.config).class,
            How::Delete => self.class(field.key, None),
            How::Set(text) => {
                self.class(field.key, Some(&read::written(&field.key.key().format, text)))
            }
        };
        Change { key: field.key, from, to, how, when, class }
    }

    fn class(&self, key: KeyRef, to: Option<&Value>) -> ActionClass {
        classify::change(key, self.guest.id.vmid, self.config, &self.memory.backups, to).class
    }

    /// Why a field cannot be written at all, whatever its value is now.
    fn refusal(&self, field: &desired::DeclaredField, have: Option<&Value>) -> Option<PlanProblem> {
        let key = field.key;
        let release = self.actual.release;
        if !key.key().releases.contains(release) {
            return Some(PlanProblem::NotInRelease { key, part: None, release });
        }
        match key.key().declared {
            Declarable::RootOnly => return Some(PlanProblem::RootOnly(key)),
            Declarable::AtCreation => return Some(PlanProblem::FixedAtCreation(key)),
            Declarable::Yes | Declarable::No(_) => {}
        }
        if write::is_protected(key, field.want.as_ref(), self.config) {
            return Some(PlanProblem::Protected(key));
        }
        if let Some(part) = write::missing_part(key, field.want.as_ref(), release) {
            return Some(PlanProblem::NotInRelease { key, part: Some(part), release });
        }
        write::needs_root(key, field.want.as_ref(), have, self.config, release)
            .then_some(PlanProblem::RootOnly(key))
    }
}

/// How a field becomes what is declared. `there` is what the write takes over from, `grown` the size that will be.
fn how_written(
    field: &desired::DeclaredField,
    there: Option<&ValueReading>,
    grown: Option<Bytes>,
) -> Result<How, WriteRefusal> {
    let Some(want) = &field.want else {
        return Ok(How::Delete);
    };
    let text = write::text(field.key, want, there, grown)?;
    // A value that says no more than absence is written by removing the key: PVE would store an empty value as a blank.
    Ok(text.map_or(How::Delete, How::Set))
}

/// Declared and actual size of a volume that exists; tells the size it will have if it must grow.
fn compare_sizes(
    field: &desired::DeclaredField,
    have: Option<&ConfigField>,
    found: &mut FoundChanges,
) -> Option<Bytes> {
    let current = have.and_then(|have| have.current.as_ref()).map(|reading| &reading.value);
    let (want, size) = size_gap(&field.key.key().format, field.want.as_ref(), current)?;
    match size {
        None => found.problems.push(PlanProblem::SizeUnknown(field.key)),
        Some(have) if have > want => {
            found.problems.push(PlanProblem::Shrink { disk: field.key, want, have });
        }
        Some(have) => {
            found.grow.push((field.key, have, want));
            return Some(want);
        }
    }
    None
}

/// The write of these changes.
pub(super) fn set_config(changes: &[Change], digest: &str) -> SetConfig {
    let mut write = SetConfig { digest: digest.to_owned(), ..SetConfig::default() };
    for change in changes {
        match &change.how {
            How::Set(text) => {
                write.set.insert(change.key, text.clone());
            }
            How::Delete => write.delete.push(change.key),
            How::Revert => write.revert.push(change.key),
        }
    }
    write
}
