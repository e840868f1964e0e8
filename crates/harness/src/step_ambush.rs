//! Something happens in the middle of a signed destroy with all its steps: a guest that runs and is protected, with a backup
//! before its end. The agent is polled some number of times after the signature was handed in, then somebody strikes.
//!
//! Faults that come by chance seldom fall between two requests of one act, and there is where a promise breaks. Its dice are
//! its own, so that what else happens in a seed does not depend on it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::PendingItem;
use evenkeel_sim::{Effect, Event, Fault, NumberThing};
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::faults::FaultMaker;
use crate::run::{DriveEnd, LifeEnd, SeedRun, wait};
use crate::storage_story::StorageStory;
use evenkeel_testkit::dice::Dice;

/// Makes its dice differ from those of the run.
const OWN_DICE: u64 = 0x616d_6275_7368_6573;

/// The share of runs in which somebody strikes, and of their steps.
const RUNS_PERCENT: u64 = 60;
const STEPS_PERCENT: u64 = 2;

/// A destroy with all its steps takes some 160 polls.
const POLLS_MAX: u64 = 200;

/// The share of other acts, how many are asked for to have one, and how many polls one takes.
const OTHER_ACTS_PERCENT: u64 = 35;
const ASKED_AT_ONCE: u32 = 4;
const SHORT_POLLS_MAX: u64 = 60;

/// As long as all the steps may take.
const STEPS_LAST: Duration = Duration::from_secs(40);

/// When somebody strikes.
pub(crate) struct StepAmbush {
    dice: Dice,
    strikes: bool,
}

impl StepAmbush {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        let strikes = dice.percent(RUNS_PERCENT);
        Self { dice, strikes }
    }

    /// Whether it is time.
    pub(crate) fn is_due(&mut self) -> bool {
        self.strikes && self.dice.percent(STEPS_PERCENT)
    }
}

impl SeedRun {
    /// Has a destroy with all its steps begin, and strikes in the middle.
    pub(crate) async fn ambush<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let guest = *self.ambush.dice.pick(&self.guests);
        self.prepare(guest);
        if self.ambush.dice.percent(OTHER_ACTS_PERCENT) {
            return self.ambush_other(commands, agent).await;
        }
        let asked = [("purge", "0"), ("final_backup", "store")];
        let params: BTreeMap<String, String> =
            asked.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for command in [DriverCommand::Pass, DriverCommand::Ask(ActionKind::Destroy, guest, params)]
        {
            self.tell(commands, command);
            match wait(agent.as_mut(), Duration::from_secs(3), &mut None).await {
                DriveEnd::Elapsed => {}
                ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
            }
        }
        let saves = |item: &PendingItem| {
            item.params.get("final_backup").is_some_and(|storage| storage == "store")
        };
        let items = self.oracle.items();
        let wanted = items.into_iter().find(|(_, item, _)| item.guest == guest && saves(item));
        let Some((id, item, _)) = wanted else {
            return DriveEnd::Elapsed;
        };
        self.sign_item(commands, (&id, &item));
        let polls = self.ambush.dice.below(POLLS_MAX);
        match wait(agent.as_mut(), STEPS_LAST, &mut Some(polls)).await {
            // Being out of polls is no crash here.
            DriveEnd::Elapsed | DriveEnd::Killed => {}
            ended @ DriveEnd::Ended(_) => return ended,
        }
        if let Some(killed) = self.strike(commands, guest) {
            return killed;
        }
        let seconds = self.ambush.dice.between(1, 40);
        wait(agent, Duration::from_secs(seconds), &mut None).await
    }

    /// The same for an act of one request that waits, if one does: only its begin and end are met.
    async fn ambush_other<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        for _ in 0..ASKED_AT_ONCE {
            self.ask(commands);
        }
        if let Some((guest, slot)) = self.detached_volume() {
            let params = [("slot".to_owned(), slot)].into();
            self.tell(commands, DriverCommand::Ask(ActionKind::DeleteVolume, guest, params));
        }
        match wait(agent.as_mut(), Duration::from_secs(3), &mut None).await {
            DriveEnd::Elapsed => {}
            ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
        }
        let items = self.oracle.items();
        let others = items.into_iter().filter(|(_, item, _)| item.op != ActionKind::Destroy);
        // The rarest first.
        let rarest = others.min_by_key(|(_, item, _)| item.op != ActionKind::DeleteVolume);
        let Some((id, item, _)) = rarest else {
            return DriveEnd::Elapsed;
        };
        self.sign_item(commands, (&id, &item));
        let polls = self.ambush.dice.below(SHORT_POLLS_MAX);
        match wait(agent.as_mut(), STEPS_LAST, &mut Some(polls)).await {
            DriveEnd::Elapsed | DriveEnd::Killed => {}
            ended @ DriveEnd::Ended(_) => return ended,
        }
        if self.ambush.dice.percent(60) {
            return DriveEnd::Killed;
        }
        self.arm_disk();
        wait(agent, Duration::from_secs(5), &mut None).await
    }

    /// A volume that hangs on some guest detached, by its slot.
    fn detached_volume(&self) -> Option<(GuestId, String)> {
        self.rig.node.with(|sim| {
            sim.world.guests.values().find_map(|found| {
                let mut slots = found.config.active.keys();
                let slot = slots.find(|key| key.starts_with("unused"))?;
                Some((found.id, slot.clone()))
            })
        })
    }

    /// What would keep the destroy from beginning is well, and it needs every step.
    fn prepare(&mut self, guest: GuestId) {
        FaultMaker::heal(&self.rig.node, &self.guests);
        StorageStory::heal(&self.rig.node);
        FaultMaker::define_storages(&self.rig.node);
        self.give_all_rights();
        self.rig.wire.set_down(false);
        self.freeze(false);
        self.make_room();
        let dice = &mut self.ambush.dice;
        let runs = dice.percent(80);
        let protected = dice.percent(80);
        self.note(|| format!("{guest} is made ready: runs {runs}, protected {protected}"));
        self.rig.node.with(|sim| {
            let set = [("protection".to_owned(), protected.then(|| "1".to_owned()))].into();
            sim.happen(Event::Edit { guest, set });
            sim.happen(Event::Power { guest, running: runs });
        });
        self.oracle.protection_is_theirs(guest);
    }

    /// Something that must end the act, wherever it is; with the agent's end, if that is it.
    fn strike(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        guest: GuestId,
    ) -> Option<DriveEnd> {
        let choice = self.ambush.dice.below(14);
        self.note(|| format!("somebody strikes at {guest}: {choice}"));
        match choice {
            0 | 1 => self.freeze(true),
            2 | 3 => {
                let within = Duration::from_secs(self.ambush.dice.between(0, 90));
                self.tell(commands, DriverCommand::ShutDown(within));
            }
            4 => return Some(DriveEnd::Killed),
            5 => self.arm_disk(),
            6 => self.replace(guest),
            7 => {
                let set = [("description".to_owned(), Some("changed in between".to_owned()))];
                self.rig.node.with(|sim| sim.happen(Event::Edit { guest, set: set.into() }));
            }
            8 => {
                let contains = Some(format!("/{guest}/pending"));
                let effect = Effect::ProxyStatus { status: 595, executed: false };
                let fault = Fault { effect, method: None, contains, times: Some(6) };
                self.rig.node.with(|sim| sim.inject(fault));
            }
            9 => self.withhold("/nodes/pve1", "Sys.Audit"),
            10 => self.exclude_from_backups(),
            11 => {
                let thing = *self.ambush.dice.pick(&NumberThing::ALL);
                let event = Event::Around { guest, thing, present: true };
                self.rig.node.with(|sim| sim.happen(event));
            }
            12 => self.break_archives(guest),
            _ => self.rotate(commands),
        }
        None
    }
}
