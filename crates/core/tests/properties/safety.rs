//! What no plan may ever hold, whatever is declared and whatever is there.

use std::collections::BTreeSet;

use evenkeel_core::actual::identity::identity;
use evenkeel_core::gate::classify::{ActIntent, ActionClass, Target, classify};
use evenkeel_core::operate::operation::Provenance;
use evenkeel_core::plan::{Action, PlanContext, Step, plan};
use evenkeel_core::registry;
use proptest::prelude::*;

use crate::dice::{cases, dice};
use crate::pve::{Guest, Stored, Waits, held};
use crate::world::World;

/// The keys an action names.
fn keys(action: &Action) -> BTreeSet<String> {
    if let Step::SetConfig(write) = &action.step {
        let set = write.set.keys();
        return set.chain(&write.delete).chain(&write.revert).map(ToString::to_string).collect();
    }
    action.step.slot().iter().map(ToString::to_string).collect()
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn only_declared_guests_and_fields_are_in_a_plan(mut dice in dice()) {
        let world = World::new(&mut dice);
        let plan = world.plan();
        for planned in &plan.guests {
            let file = world.files.iter().find(|file| file.id == planned.guest);
            let file = file.expect("a guest that is not declared is not in a plan");
            for action in &planned.actions {
                prop_assert_eq!(action.guest, planned.guest);
                let undeclared: Vec<String> = keys(action).difference(&file.keys).cloned().collect();
                prop_assert!(undeclared.is_empty(), "{undeclared:?} in {action:#?}");
            }
            for change in &planned.waiting {
                prop_assert!(file.keys.contains(&change.key.to_string()));
            }
        }
    }

    #[test]
    fn a_field_that_is_not_declared_is_never_changed(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let before = world.pve.guests.clone();
        world.pass(&mut dice);
        world.pass(&mut dice);
        for (vmid, guest) in &before {
            let file = world.files.iter().find(|file| file.id.vmid == *vmid);
            let after = &world.pve.guests[vmid];
            let Some(file) = file else {
                prop_assert_eq!(&guest.fields, &after.fields);
                prop_assert_eq!(guest.power, after.power);
                continue;
            };
            for (name, field) in guest.fields.iter().filter(|(name, _)| !file.keys.contains(*name)) {
                let then = after.fields.get(name).cloned().unwrap_or_default();
                // A restart, and on a stopped machine any write, brings about what waited.
                let applied = Stored { current: field.after().cloned(), waiting: None };
                prop_assert!(then == *field || then == applied, "{name}: {field:?} became {then:?}");
            }
        }
    }

    #[test]
    fn every_action_has_the_class_the_gate_will_give_it(mut dice in dice()) {
        let world = World::new(&mut dice);
        let actual = world.pve.snapshot();
        let context = PlanContext { frozen: dice.chance(10), ..PlanContext::default() };
        let plan = plan(&world.desired(), &actual, &context);
        for action in plan.actions() {
            let params = action.step.params();
            let here = actual.guests.get(&action.guest.vmid);
            let target = here.map_or(Target::Free, Target::Seen);
            let op = action.step.kind();
            let intent = ActIntent { op: op.as_str(), kind: action.guest.kind, params: &params, target };
            let judged = classify(&intent, &Provenance::none());
            prop_assert_eq!((action.class, &action.why), (judged.class, &judged.why));
            prop_assert!(action.class != ActionClass::Destructive || action.held.is_some(), "{action:#?}");
            prop_assert!(!context.frozen || action.held.is_some());
            let unknown = keys(action).into_iter().find(|key| registry::find(action.guest.kind, key).is_none());
            prop_assert_eq!(unknown, None);
        }
    }

    #[test]
    fn no_write_is_blind(mut dice in dice()) {
        let world = World::new(&mut dice);
        for action in world.plan().actions() {
            let Some(guest) = world.pve.guests.get(&action.guest.vmid) else {
                prop_assert!(matches!(action.step, Step::Make(_)));
                continue;
            };
            prop_assert!(guest.lock.is_none() || action.held.is_some(), "a locked guest is left alone");
            // A start or stop sets off what waits, which nobody could see.
            prop_assert!(guest.readable || action.held.is_some(), "{action:#?}");
            if keys(action).is_empty() {
                continue;
            }
            prop_assert!(guest.readable, "what cannot be read is not written");
            let digest = &action.step.params()["digest"];
            prop_assert!(!digest.is_empty() && *digest == guest.digest());
        }
    }

    #[test]
    fn a_write_keeps_macs_and_volumes(mut dice in dice()) {
        let world = World::new(&mut dice);
        for action in world.plan().actions() {
            let Step::SetConfig(write) = &action.step else {
                continue;
            };
            let guest = &world.pve.guests[&action.guest.vmid];
            prop_assert!(!keys(action).contains("rootfs"), "the root volume is never written");
            for (key, text) in &write.set {
                let file = world.files.iter().find(|file| file.id == action.guest).unwrap();
                let name = key.to_string();
                let line = file.lines.iter().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
                check_kept(guest, &name, text, line)?;
            }
        }
    }

    #[test]
    fn a_volume_only_grows_and_not_while_a_change_of_its_drive_waits(mut dice in dice()) {
        let world = World::new(&mut dice);
        for planned in &world.plan().guests {
            let is_write = |action: &Action| matches!(action.step, Step::SetConfig(_));
            let writes_from = planned.actions.iter().position(is_write).unwrap_or(usize::MAX);
            for (at, action) in planned.actions.iter().enumerate() {
                let Step::Resize { disk, from, to, .. } = &action.step else {
                    continue;
                };
                let field = &world.pve.guests[&planned.guest.vmid].fields[&disk.to_string()];
                prop_assert!(from < to && field.waiting.is_none(), "{disk} {field:?} to {to}");
                // What also moves grows where it shall be, and then nothing else of its drive is written.
                let moves = |action: &Action| matches!(&action.step, Step::MoveVolume { disk: moved, .. } if moved == disk);
                let moved = planned.actions[..at].iter().any(moves);
                prop_assert!(moved || at < writes_from, "a write that waits would keep the old size");
                let volume = held(field.current.as_ref().unwrap()).unwrap();
                prop_assert_eq!(world.pve.volumes[&volume], from.0);
            }
        }
    }

    #[test]
    fn nothing_that_may_run_sets_off_a_waiting_destruction(mut dice in dice()) {
        let world = World::new(&mut dice);
        for action in world.plan().runnable() {
            let guest = &world.pve.guests[&action.guest.vmid];
            let mut doomed =
                guest.fields.iter().filter(|(_, field)| field.waiting == Some(Waits::Destroy));
            // A write that drops every waiting destruction saves the volumes: PVE edits what waits before it
            // applies any of it.
            let saved = |name: &String| {
                matches!(&action.step, Step::SetConfig(write)
                    if write.revert.iter().any(|key| key.to_string() == *name))
            };
            prop_assert!(doomed.all(|(name, _)| saved(name)), "{action:#?}");
        }
    }

    #[test]
    fn identity_outlives_benign_actions_that_attach_nothing(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let plan = world.plan();
        // A move gives a slot another volume.
        let keeps = |action: &&Action| !matches!(action.step, Step::MoveVolume { .. });
        let benign = plan.runnable().filter(|action| action.class == ActionClass::Benign);
        for action in benign.filter(keeps) {
            let attaches = keys(action).iter().any(|key| {
                let field = world.pve.guests[&action.guest.vmid].fields.get(key);
                matches!(&action.step, Step::SetConfig(write)
                    if write.set.iter().any(|(name, text)| name.to_string() == *key && text.contains(':')))
                    && field.is_none_or(|field| field.current.is_none())
            });
            if attaches {
                continue;
            }
            let of = |world: &World| identity(&world.pve.snapshot().guests[&action.guest.vmid]);
            let before = of(&world);
            world.pve.apply(action, &mut dice);
            prop_assert_eq!(before, of(&world), "{:#?}", action);
        }
    }
}

/// What a written network card or drive must say.
fn check_kept(guest: &Guest, name: &str, text: &str, line: &str) -> Result<(), TestCaseError> {
    let stored = guest.fields.get(name).cloned().unwrap_or_default();
    let there = [stored.after(), stored.current.as_ref()];
    if name.starts_with("net") {
        let declared = mac(line);
        let macs: Vec<&str> = there.iter().flatten().filter_map(|text| mac(text)).collect();
        let Some(first) = macs.first() else {
            return Ok(());
        };
        let sent = mac(text).unwrap_or_default();
        match declared {
            Some(declared) if !declared.eq_ignore_ascii_case(first) => {
                prop_assert!(sent.eq_ignore_ascii_case(declared), "{text} for {line}");
            }
            Some(_) | None => prop_assert_eq!(sent, *first, "{} over {:?}", text, stored),
        }
    }
    if there.iter().flatten().any(|text| held(text).is_some()) {
        let volume = text.split(',').find_map(|piece| {
            let volume =
                piece.strip_prefix("file=").or(piece.strip_prefix("volume=")).unwrap_or(piece);
            volume.split_once(':').filter(|_| !volume.contains('='))
        });
        let allocates = volume.is_some_and(|(_, rest)| rest.parse::<f64>().is_ok());
        prop_assert!(!allocates, "{text} would be allocated again over {stored:?}");
    }
    Ok(())
}

/// The MAC address in a text.
fn mac(text: &str) -> Option<&str> {
    text.split(['"', ',', '=', ' ']).find(|word| word.len() == 17 && word.matches(':').count() == 5)
}
