//! What is ignored stays as it is, what is observed is left alone, and both come to rest like everything else.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::plan::{Action, PlanContext, plan};
use evenkeel_core::registry::{self, ValueFormat};
use evenkeel_core::value::{Property, read};
use proptest::prelude::*;

use crate::dice::{Dice, cases, dice};
use crate::pve::Stored;
use crate::world::World;

/// What each file ignores: keys, and parts of them.
type Ignored = Vec<Vec<(String, Option<&'static str>)>>;

/// Lets every guest ignore some of what it declares.
fn ignore_some(world: &mut World, dice: &mut Dice) -> Ignored {
    let mut all = Vec::new();
    for file in &mut world.files {
        let mut ignored = Vec::new();
        let is_absent = file.lines.iter().any(|line| line.contains("absent"));
        for name in file.keys.iter().filter(|_| !is_absent) {
            let shape = registry::find(file.id.kind, name).unwrap().key().format.shape();
            let parts: Vec<&'static str> = shape
                .into_iter()
                .flat_map(|shape| shape.parts.iter().map(move |part| (shape, part)))
                .filter(|(shape, part)| shape.switch != Some(part.name) && part.instead.is_none())
                .filter(|(_, part)| !matches!(part.format, ValueFormat::Volume))
                .map(|(_, part)| part.name)
                .collect();
            if dice.chance(20) {
                ignored.push((name.clone(), None));
            } else if !parts.is_empty() && dice.chance(60) {
                let part = dice.pick(&parts);
                ignored.push((name.clone(), Some(part)));
            }
        }
        let spelled = |(name, part): &(String, Option<&str>)| match part {
            Some(part) => format!("\"{name}.{part}\""),
            None => format!("\"{name}\""),
        };
        let names: Vec<String> = ignored.iter().map(spelled).collect();
        if !names.is_empty() {
            file.lines.push(format!("ignore = [{}]", names.join(", ")));
        }
        all.push(ignored);
    }
    all
}

/// A stored text with parts; none if the key is not there or cannot be read.
fn stored(kind: GuestKind, name: &str, text: Option<&String>) -> Option<Property> {
    let value = read::stored(&registry::find(kind, name)?.key().format, text?);
    value.as_property().cloned()
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn what_is_ignored_is_never_changed(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let ignored = ignore_some(&mut world, &mut dice);
        let before = world.pve.guests.clone();
        let story = world.story();
        world.pass(&mut dice);
        world.pass(&mut dice);
        for (file, ignored) in world.files.iter().zip(&ignored) {
            let Some(old) = before.get(&file.id.vmid) else { continue };
            let new = &world.pve.guests[&file.id.vmid];
            for (name, part) in ignored {
                let was = old.fields.get(name).cloned().unwrap_or_default();
                let is = new.fields.get(name).cloned().unwrap_or_default();
                let Some(part) = part else {
                    let applied = Stored { current: was.after().cloned(), waiting: None };
                    prop_assert!(is == was || is == applied, "{name}: {was:?} became {is:?} in\n{story}");
                    continue;
                };
                // A key that was not there, or is to go, is made or removed as a whole, and another volume is another
                // disk.
                let of = |text: Option<&String>| stored(file.id.kind, name, text);
                let (Some(then), Some(now)) = (of(was.after()), of(is.after())) else { continue };
                if then.volume() != now.volume() {
                    continue;
                }
                let first = of(was.current.as_ref()).and_then(|first| first.get(part).cloned());
                let same = now.get(part) == then.get(part) || now.get(part) == first.as_ref();
                prop_assert!(same, "{name}.{part}: {then:?} became {now:?} in\n{story}");
            }
        }
    }

    #[test]
    fn with_parts_ignored_a_plan_comes_to_rest(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        ignore_some(&mut world, &mut dice);
        let story = world.story();
        world.pass(&mut dice);
        world.pass(&mut dice);
        let left: Vec<String> = world.plan().runnable().flat_map(Action::reasons).collect();
        prop_assert!(left.is_empty(), "{left:#?} left of\n{story}\nafter:\n{}", world.story());
    }

    #[test]
    fn what_is_observed_is_planned_and_nothing_of_it_would_run(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let enforced = world.plan();
        for file in &mut world.files {
            file.lines.push("mode = \"observe\"".to_owned());
        }
        let observed = plan(&world.desired(), &world.pve.snapshot(), &PlanContext::default());
        prop_assert_eq!(observed.runnable().count(), 0);
        // Everything else is the same: observing hides nothing.
        let steps = |plan: &evenkeel_core::plan::Plan| {
            let actions = plan.actions().map(|action| (action.guest, action.step.clone()));
            let problems = plan.guests.iter().map(|guest| (guest.guest, guest.problems.clone()));
            (actions.collect::<Vec<_>>(), problems.collect::<BTreeMap<_, _>>())
        };
        prop_assert_eq!(steps(&observed), steps(&enforced));
    }
}
