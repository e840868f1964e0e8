//! The plan comes to rest, tells the truth, and does not depend on how the files are written.

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::{DeclaredField, WantedState};
use evenkeel_core::model::id::VmId;
use evenkeel_core::plan::{Action, How, PlanContext, Step, plan};
use evenkeel_core::registry::Declarable;
use evenkeel_core::value::compare::{Conventions, Difference, difference};
use proptest::prelude::*;

use crate::dice::{cases, dice};
use crate::early::compared_early;
use crate::pve::held;
use crate::world::{World, load};

/// An action in words, for the message of a failure.
fn told(action: &Action) -> String {
    format!(
        "{} {} {:?} {:?}",
        action.guest,
        action.step.kind(),
        action.reasons(),
        action.step.params()
    )
}

/// A silent plan means that the volume has its declared size, but for one extent of rounding.
fn check_size(world: &World, vmid: VmId, field: &DeclaredField) -> Result<(), TestCaseError> {
    let name = field.key.to_string();
    let want = field.want.as_ref().and_then(|want| want.as_property()?.size());
    let stored = world.pve.guests[&vmid].fields.get(&name);
    let volume = stored.and_then(|stored| held(stored.current.as_ref()?));
    let (Some(want), Some(volume)) = (want, volume) else {
        return Ok(());
    };
    // PVE chooses the size of these by itself.
    if !matches!(name.as_str(), "efidisk0" | "tpmstate0") {
        let have = world.pve.volumes[&volume];
        prop_assert!((want.0..want.0 + (4 << 20)).contains(&have), "{name}: {want} and {have}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(120))]

    /// One pass does it. A second one is needed only where something waited for a restart: our own write or
    /// start brings it about, and what was refused because of it (a taken slot) can then be done; and where a volume
    /// moves: a container is shut down before, and what else differs of the slot is written after.
    #[test]
    fn planning_after_applying_yields_nothing(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let mut waited: Vec<VmId> = world.pve.guests.values().filter(|guest| guest.waits()).map(|g| g.id.vmid).collect();
        let moves = |action: &&Action| matches!(action.step, Step::MoveVolume { .. });
        waited.extend(world.plan().actions().filter(moves).map(|action| action.guest.vmid));
        let before = world.story();
        world.pass(&mut dice);
        let left: Vec<String> = world.plan().runnable().filter(|a| !waited.contains(&a.guest.vmid)).map(told).collect();
        prop_assert!(left.is_empty(), "{left:#?} left of\n{before}\nafter:\n{}", world.story());
        for _ in 0..3 {
            world.pass(&mut dice);
        }
        let left: Vec<String> = world.plan().runnable().map(told).collect();
        prop_assert!(left.is_empty(), "{left:#?} left of\n{before}\nafter:\n{}", world.story());
    }

    #[test]
    fn a_plan_that_may_run_nothing_stays_the_same(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        // A shutdown comes before a container's move, and a move before what else differs of its slot.
        for _ in 0..4 {
            world.pass(&mut dice);
        }
        let rested = world.plan();
        let story = world.story();
        world.pass(&mut dice);
        prop_assert_eq!(&world.story(), &story, "a pass over a guest at rest wrote something");
        prop_assert_eq!(rested, world.plan());
    }

    /// Neither while everything is as it was compared, nor where a configuration or the conventions are others by then.
    #[test]
    fn what_is_compared_early_changes_no_plan(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let desired = world.desired();
        let before = world.pve.snapshot();
        for _ in 0..4 {
            world.pass(&mut dice);
        }
        let rested = world.pve.snapshot();
        let early = compared_early(&desired, &rested);
        let conventions = Conventions { tags_have_case: !rested.conventions.tags_have_case, ..rested.conventions };
        for actual in [&rested, &before, &Snapshot { conventions, ..rested.clone() }] {
            let planned = plan(&desired, actual, &PlanContext::default());
            prop_assert_eq!(early.plan(actual, &PlanContext::default()), planned);
        }
    }

    #[test]
    fn a_guest_the_plan_is_silent_about_is_as_declared(mut dice in dice()) {
        let world = World::new(&mut dice);
        let desired = world.desired();
        let actual = world.pve.snapshot();
        let plan = plan(&desired, &actual, &PlanContext::default());
        prop_assert_eq!(plan.in_sync + plan.guests.len(), desired.guests.len());
        for (vmid, guest) in &desired.guests {
            let said = plan.guests.iter().any(|planned| planned.guest.vmid == *vmid);
            let (WantedState::Present(spec), Some(here), false) = (&guest.state, actual.guests.get(vmid), said) else {
                continue;
            };
            let config = here.config.as_ref().expect("an unreadable configuration is said");
            for field in &spec.fields {
                check_size(&world, *vmid, field)?;
                let stored = config.field(field.key);
                let now = stored.and_then(|stored| stored.current.as_ref());
                let after = stored.and_then(|stored| stored.after_restart());
                for reading in [now, after] {
                    let have = reading.map(|reading| &reading.value);
                    let gap = difference(field.key.key(), *vmid, field.want.as_ref(), have, actual.conventions);
                    prop_assert_eq!(gap, Difference::Same, "{} in {}", field.key, world.story());
                }
            }
        }
    }

    #[test]
    fn the_order_of_files_and_of_keys_does_not_matter(mut dice in dice()) {
        let mut world = World::new(&mut dice);
        let planned = world.plan();
        let mut files: Vec<String> = Vec::new();
        dice.shuffle(&mut world.files);
        for guest in &mut world.files {
            dice.shuffle(&mut guest.lines);
            match files.last_mut().filter(|_| dice.chance(50)) {
                Some(file) => file.push_str(&guest.toml()),
                None => files.push(guest.toml()),
            }
        }
        let shuffled = plan(&load(&files), &world.pve.snapshot(), &PlanContext::default());
        prop_assert_eq!(planned, shuffled);
    }

    #[test]
    fn what_only_root_or_another_release_can_set_is_a_problem_and_no_action(mut dice in dice()) {
        let world = World::new(&mut dice);
        for action in world.plan().actions() {
            // Dropping a waiting change sets nothing.
            for change in action.changes.iter().filter(|change| change.how != How::Revert) {
                let row = change.key.key();
                prop_assert!(row.releases.contains(world.pve.release), "{}", change.key);
                prop_assert_eq!(row.declared, Declarable::Yes, "{}", change.key);
            }
        }
    }
}
