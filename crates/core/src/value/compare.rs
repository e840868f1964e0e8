//! Whether what PVE stores is what was declared, in normal form.
//!
//! The planner asks for every declared field of every guest, so the common case is one equality test;
//! the rules below run only for values that are not plainly equal. Nothing here writes anything.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{Property, Value, VolumeRef};
use crate::model::id::VmId;
use crate::model::quantity::{Bytes, Decimal};
use crate::registry::{Absent, Compared, Key, Shape, ValueFormat};

/// What a node does to values, as far as comparing must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conventions {
    /// The datacenter keeps the case of tags.
    pub tags_have_case: bool,
    /// The node's kernel interface for CPU weights.
    pub cgroup: Cgroup,
}

/// The version of the kernel's control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cgroup {
    /// Version 1: weights default to 1024 and are at least 2.
    V1,
    /// Version 2: weights default to 100 and are at most 10000.
    #[default]
    V2,
}

/// The smallest CPU weight cgroup v1 has; PVE stores no smaller one there.
const CGROUP_V1_WEIGHT_MIN: i64 = 2;

/// The largest CPU weight cgroup v2 has; PVE stores no larger one there.
const CGROUP_V2_WEIGHT_MAX: i64 = 10_000;

/// LVM rounds a volume up to its extents of 4 MiB, ZFS to 1 MiB: up to that, a larger volume is equal.
const EXTENT: u64 = 4 * Bytes::MIB;

/// How a stored value differs from the declared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Not at all.
    Same,
    /// Only in the size of its volume. `have` is none when PVE does not say.
    Size {
        /// The declared size.
        want: Bytes,
        /// The stored size.
        have: Option<Bytes>,
    },
    /// In something else.
    Other,
}

/// Compares a declared value (none: the key must be absent) with a stored one (none: it is absent).
pub fn difference(
    key: &Key,
    vmid: VmId,
    want: Option<&Value>,
    have: Option<&Value>,
    conventions: Conventions,
) -> Difference {
    match (want, have) {
        (Some(want), Some(have)) => {
            // An empty list and the blank PVE keeps of it are both nothing.
            if want == have || (want.is_empty() && have.is_empty()) {
                Difference::Same
            } else {
                tolerant(&key.format, want, have, conventions)
            }
        }
        (Some(value), None) => same_if(absence_equals(key, vmid, value, conventions)),
        (None, Some(value)) => same_if(
            key.absent == Absent::ServerFilled || absence_equals(key, vmid, value, conventions),
        ),
        (None, None) => Difference::Same,
    }
}

/// The declared and stored size of a volume that exists and is too small or too large. The stored size is
/// none when PVE does not tell it.
pub fn size_gap(
    format: &ValueFormat,
    want: Option<&Value>,
    have: Option<&Value>,
) -> Option<(Bytes, Option<Bytes>)> {
    let ValueFormat::Property(shape) = format else {
        return None;
    };
    let compared = shape.part("size").is_some_and(|part| part.compared == Compared::WhenDeclared);
    let want = want?.as_property()?;
    let have = have?.as_property()?;
    let exists = matches!(have.volume(), Some(VolumeRef::Existing { .. })) && !have.is_cdrom();
    let same_volume = volume_fits(want.volume()?, have.volume()?);
    let declared = want.size().filter(|_| compared && exists && same_volume)?;
    match have.size() {
        Some(size) if size_fits(declared, size) => None,
        size => Some((declared, size)),
    }
}

fn same_if(same: bool) -> Difference {
    if same { Difference::Same } else { Difference::Other }
}

/// Whether a value says what the absence of its key says.
fn absence_equals(key: &Key, vmid: VmId, value: &Value, conventions: Conventions) -> bool {
    if value.is_empty() {
        return true;
    }
    match key.absent {
        Absent::ContainerName => *value == Value::text(&format!("CT{vmid}")),
        Absent::CpuWeight => {
            let default = match conventions.cgroup {
                Cgroup::V1 => 1024,
                Cgroup::V2 => 100,
            };
            *value == Value::Integer(default)
        }
        Absent::Nothing
        | Absent::Bool(_)
        | Absent::Integer(_)
        | Absent::Text(_)
        | Absent::ServerFilled => says_nothing(key.absent, value),
    }
}

/// Whether a value equals the fixed meaning of absence.
pub(super) fn says_nothing(absent: Absent, value: &Value) -> bool {
    match (absent, value) {
        (Absent::Bool(default), Value::Bool(value)) => default == *value,
        (Absent::Integer(default), Value::Integer(value)) => default == *value,
        (Absent::Integer(default), Value::Number(value)) => Decimal::whole(default) == *value,
        (Absent::Text(default), Value::Text(value)) => default == &**value,
        (Absent::Text(default), Value::Number(value)) => default.parse() == Ok(*value),
        (Absent::Text(default), Value::Set(set)) => {
            set.iter().map(AsRef::as_ref).eq(default.split(','))
        }
        (
            Absent::Nothing
            | Absent::Bool(_)
            | Absent::Integer(_)
            | Absent::Text(_)
            | Absent::ContainerName
            | Absent::CpuWeight
            | Absent::ServerFilled,
            _,
        ) => false,
    }
}

/// Two values that are not plainly equal.
fn tolerant(
    format: &ValueFormat,
    want: &Value,
    have: &Value,
    conventions: Conventions,
) -> Difference {
    match (want, have) {
        (Value::Property(want), Value::Property(have)) => {
            format.shape().map_or(Difference::Other, |shape| properties(shape, want, have))
        }
        (Value::Set(want), Value::Set(have)) if matches!(format, ValueFormat::Tags) => {
            same_if(!conventions.tags_have_case && lower(want) == lower(have))
        }
        (Value::Integer(want), Value::Integer(have))
            if matches!(format, ValueFormat::Weight { .. }) =>
        {
            same_if(clamped(*want, conventions.cgroup) == *have)
        }
        (Value::AnyUuid, Value::Text(_)) => Difference::Same,
        (Value::Size(want), Value::Size(have)) => same_if(size_fits(*want, *have)),
        (Value::Volume(want), Value::Volume(have)) => same_if(volume_fits(want, have)),
        _ => Difference::Other,
    }
}

/// The weight PVE stores for a declared one.
fn clamped(weight: i64, cgroup: Cgroup) -> i64 {
    match cgroup {
        Cgroup::V1 => weight.max(CGROUP_V1_WEIGHT_MIN),
        Cgroup::V2 => weight.min(CGROUP_V2_WEIGHT_MAX),
    }
}

fn lower(tags: &BTreeSet<Box<str>>) -> BTreeSet<String> {
    tags.iter().map(|tag| tag.to_lowercase()).collect()
}

fn size_fits(want: Bytes, have: Bytes) -> bool {
    want <= have && have.0 - want.0 < EXTENT
}

/// A volume to be allocated is there once the slot holds one of that storage, but for a base image: then
/// the guest has become a template.
pub(crate) fn volume_fits(want: &VolumeRef, have: &VolumeRef) -> bool {
    match (want, have) {
        (VolumeRef::Fresh { storage: want }, VolumeRef::Existing { storage, .. }) => {
            want == storage && !have.is_base_image()
        }
        (
            VolumeRef::Fresh { .. }
            | VolumeRef::Existing { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Path(_)
            | VolumeRef::Empty
            | VolumeRef::HostCdrom,
            _,
        ) => want == have,
    }
}

/// Both lists of parts are sorted by name: they are walked side by side, and the shape is asked only about
/// parts that one side lacks or that are not equal.
fn properties(shape: &Shape, want: &Property, have: &Property) -> Difference {
    let mut size = Difference::Same;
    let mut wanted = want.parts();
    let mut found = have.parts();
    loop {
        let order = match (wanted, found) {
            ([], []) => return size,
            ([_, ..], []) => Ordering::Less,
            ([], [_, ..]) => Ordering::Greater,
            ([(want, _), ..], [(have, _), ..]) => want.cmp(have),
        };
        let want = if order.is_le() { wanted.split_off_first() } else { None };
        let have = if order.is_ge() { found.split_off_first() } else { None };
        match part_difference(shape, want, have) {
            Difference::Same => {}
            gap @ Difference::Size { .. } => size = gap,
            Difference::Other => return Difference::Other,
        }
    }
}

/// One part of that name; at least one side has it.
fn part_difference(
    shape: &Shape,
    want: Option<&(&'static str, Value)>,
    have: Option<&(&'static str, Value)>,
) -> Difference {
    let same = match (want, have) {
        (Some((_, Value::Size(want))), Some((_, Value::Size(have)))) => size_fits(*want, *have),
        (Some((_, Value::Volume(want))), Some((_, Value::Volume(have)))) => volume_fits(want, have),
        (Some((_, want)), Some((_, have))) => want == have,
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    let Some((name, _)) = want.or(have).filter(|_| !same) else {
        return Difference::Same;
    };
    let counts = match shape.named(name).compared {
        Compared::Always => true,
        Compared::WhenDeclared => want.is_some(),
        Compared::Never => false,
    };
    match (counts, want, have) {
        (false, _, _) => Difference::Same,
        (true, Some((_, Value::Size(want))), have) => {
            let have = match have {
                Some((_, Value::Size(have))) => Some(*have),
                Some(_) | None => None,
            };
            Difference::Size { want: *want, have }
        }
        (true, _, _) => Difference::Other,
    }
}
