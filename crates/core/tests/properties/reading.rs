//! What was printed reads back, and every way PVE can store a value is the same value.

use std::collections::BTreeSet;

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::registry::{Declarable, Key, ValueFormat, table};
use evenkeel_core::value::compare::{Cgroup, Conventions, Difference, difference};
use evenkeel_core::value::{Value, VolumeRef, print, read};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::dice::{Dice, cases, dice};
use crate::pve::Pve;
use crate::{spelling, toml, world};

const VMID: u32 = 101;

/// Every key that can be declared.
fn declarable() -> Vec<(GuestKind, &'static Key)> {
    let rows =
        GuestKind::ALL.into_iter().flat_map(|kind| table(kind).iter().map(move |key| (kind, key)));
    rows.filter(|(_, key)| !matches!(key.declared, Declarable::No(_))).collect()
}

/// The name a key has in a file; of a family its first slot.
fn name(key: &Key) -> String {
    if key.slots.is_some() { format!("{}0", key.name) } else { key.name.to_owned() }
}

/// A declared value of a key in some spelling of a file, and PVE's text of it.
fn declared(dice: &mut Dice, kind: GuestKind, key: &Key) -> Option<(Value, String)> {
    let said = spelling::value(dice, &key.format, "vm-101");
    let text = said.text(&key.format);
    read::declared(&key.format, &text).ok()?;
    let line = toml::value(dice, &key.format, &said);
    let file = format!("[guest.{VMID}]\nkind = \"{kind}\"\n{} = {line}\n", name(key));
    let desired = world::load(&[file]);
    let (_, guest) = desired.guests.into_iter().next().unwrap();
    match guest.state {
        evenkeel_core::desired::WantedState::Present(spec) => {
            Some((spec.fields[0].want.clone().unwrap(), text))
        }
        evenkeel_core::desired::WantedState::Bin(_)
        | evenkeel_core::desired::WantedState::Absent { .. } => None,
    }
}

fn is_allocation(value: &Value) -> bool {
    matches!(
        value.as_property().and_then(|property| property.volume()),
        Some(VolumeRef::Fresh { .. })
    )
}

#[test]
fn every_key_that_can_be_declared_is_generated() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for (kind, key) in declarable() {
        let generated = (0..20).any(|_| {
            let mut dice = dice().new_tree(&mut runner).unwrap().current();
            declared(&mut dice, kind, key).is_some()
        });
        if !generated {
            missing.insert(format!("{kind} {}", key.name));
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_part_cannot_smuggle_another_part_in() {
    for (kind, key) in declarable() {
        let ValueFormat::Property(shape) = &key.format else {
            continue;
        };
        for part in shape
            .parts
            .iter()
            .filter(|part| matches!(part.format, ValueFormat::Text(_) | ValueFormat::Volume))
        {
            let mut dice = Dice::plain();
            let said = spelling::value(&mut dice, &key.format, "vm-101");
            let spelling::Said::Parts(mut parts) = said else { panic!("{} has parts", key.name) };
            let text = parts
                .iter()
                .position(|(name, _)| *name == part.name)
                .map_or("a".to_owned(), |at| parts.remove(at).1);
            parts.push((part.name, format!("{text},backup=0")));
            let table: Vec<String> = parts
                .iter()
                .map(|(name, text)| format!("{name} = {}", toml::quoted(text)))
                .collect();
            let file = format!(
                "guest.{VMID} = {{ kind = \"{kind}\", {} = {{ {} }} }}",
                name(key),
                table.join(", ")
            );
            let mut sources = evenkeel_core::words::diagnostic::Sources::default();
            sources.add("guest.toml", file.as_str());
            assert!(evenkeel_core::desired::load(&sources).is_err(), "{file}");
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn what_is_printed_reads_back(mut dice in dice(), at in any::<prop::sample::Index>()) {
        let keys = declarable();
        let (kind, key) = *at.get(&keys);
        let Some((value, _)) = declared(&mut dice, kind, key) else {
            return Ok(());
        };
        let printed = print::pve(&key.format, &value);
        let back = if is_allocation(&value) {
            read::written(&key.format, &printed)
        } else {
            read::stored(&key.format, &printed)
        };
        prop_assert_eq!(&back, &value, "{} {} {:?}", kind, key.name, printed);
        let written = read::written(&key.format, &printed);
        prop_assert!(value.is_empty() || written == value, "{} cannot read its own write: {:?}", key.name, written);
    }

    #[test]
    fn every_way_to_store_a_declared_value_is_the_same(mut dice in dice(), at in any::<prop::sample::Index>()) {
        let keys = declarable();
        let (kind, key) = *at.get(&keys);
        let Some((want, text)) = declared(&mut dice, kind, key) else {
            return Ok(());
        };
        let conventions = Conventions {
            tags_have_case: dice.chance(50),
            cgroup: dice.pick(&[Cgroup::V2, Cgroup::V1]),
        };
        let id = GuestId { kind, vmid: VmId::try_from(VMID).unwrap() };
        let mut pve = Pve::new(Release::V9_2, conventions);
        let stored = pve.accept(id, &name(key), &text, &mut dice);
        let have = read::stored(&key.format, &stored);
        let gap = difference(key, id.vmid, Some(&want), Some(&have), conventions);
        let secret = matches!(key.format, ValueFormat::Secret);
        prop_assert!(secret || gap == Difference::Same, "{} {}: {want:?} stored as {stored:?}: {gap:?}", kind, key.name);
        let respelled = spelling::respelled(&mut dice, &key.format, &stored, conventions.tags_have_case);
        let again = read::stored(&key.format, &respelled);
        let gap = difference(key, id.vmid, Some(&want), Some(&again), conventions);
        prop_assert!(secret || gap == Difference::Same, "{} {}: {want:?} respelled as {respelled:?}", kind, key.name);
    }
}
