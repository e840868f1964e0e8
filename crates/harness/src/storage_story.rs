//! Storages that hang in a run: for a minute or a quarter of an hour, alone or with the list of all of them; and at the end,
//! when everything else is well, all of them for ever while somebody changes a guest. It must be as wanted within two
//! intervals, and no pass may take longer than its own reading (case Y04).
//!
//! Its dice are its own, so that what else happens in a seed does not depend on it.

use std::pin::Pin;
use std::time::Duration;

use evenkeel_agent::engine::{OpOutcome, OpReport};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::plan::{Held, Plan};
use evenkeel_sim::{Event, InProcess};
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::end::differs_stopped;
use crate::run::{DriveEnd, LifeEnd, SeedRun, pass_and_wait};
use evenkeel_testkit::dice::Dice;

/// Makes its dice differ from those of the run.
const OWN_DICE: u64 = 0x7374_6f72_6167_6573;

/// The storages of every scene.
const STORAGES: [&str; 4] = ["local", "store", "local-lvm", "tank"];

/// The share of runs in which storages hang.
const RUNS_PERCENT: u64 = 40;

/// The share of steps in which one begins to.
const STEPS_PERCENT: u64 = 2;

/// One interval of the agent's own.
const INTERVAL: Duration = Duration::from_mins(1);

/// What a pass may take while every storage hangs and nothing else is wrong.
const PASS_MAX: Duration = Duration::from_secs(3);

/// Which storages hang.
pub(crate) struct StorageStory {
    dice: Dice,
    hangs: bool,
}

impl StorageStory {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        let hangs = dice.percent(RUNS_PERCENT);
        Self { dice, hangs }
    }

    /// One begins to hang, for a while that the design counts on.
    pub(crate) fn mischief(&mut self, node: &InProcess) -> Option<String> {
        if !self.hangs || !self.dice.percent(STEPS_PERCENT) {
            return None;
        }
        let storage = (*self.dice.pick(&STORAGES)).to_owned();
        let ms = Some(*self.dice.pick(&[10_000, 60_000, 300_000, 900_000]));
        let event = Event::StorageHangs { storage, ms, lists: self.dice.percent(30) };
        let told = format!("{event:?}");
        node.with(|sim| sim.happen(event));
        Some(told)
    }

    /// All of them answer again.
    pub(crate) fn heal(node: &InProcess) {
        node.with(|sim| {
            for storage in STORAGES {
                sim.happen(Event::StorageAnswers { storage: storage.to_owned() });
            }
        });
    }
}

/// Whether something waits for a storage that kept silent: the pause after that must be over first.
pub(crate) fn waits_for_storage(plan: &Plan) -> bool {
    plan.actions().any(|action| match &action.held {
        Some(Held::Until(refusal)) => tells_of_silence(refusal.reason, &refusal.detail),
        Some(_) | None => false,
    })
}

/// The same of what waits in its lane, where no plan shows it.
pub(crate) fn waited_for_storage(reports: &[OpReport]) -> bool {
    reports.iter().any(|report| match &report.end {
        OpOutcome::Held { reason, why } => tells_of_silence(*reason, why),
        OpOutcome::Succeeded { .. }
        | OpOutcome::Unneeded
        | OpOutcome::Stale { .. }
        | OpOutcome::Failed { .. }
        | OpOutcome::Unknown { .. }
        | OpOutcome::Skipped => false,
    })
}

fn tells_of_silence(reason: ReasonCode, detail: &str) -> bool {
    let words = ["does not answer", "do not answer", "not known yet", "answers slowly"];
    reason == ReasonCode::Storage && words.iter().any(|word| detail.contains(word))
}

impl SeedRun {
    /// Every storage hangs for ever, and somebody changes a guest that needs none.
    pub(crate) async fn storages_hang<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let Some(guest) = self.guest_to_change() else { return DriveEnd::Elapsed };
        self.rig.node.with(|sim| {
            for storage in STORAGES {
                let storage = storage.to_owned();
                sim.happen(Event::StorageHangs { storage, ms: None, lists: true });
            }
            let set = [("cores".to_owned(), Some("7".to_owned()))].into();
            sim.happen(Event::Edit { guest, set });
        });
        self.note(|| format!("every storage hangs, and somebody changes {guest}"));
        self.driver.take_longest_pass();
        for _ in 0..2 {
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), INTERVAL).await {
                return ended;
            }
        }
        self.tell_progress();
        let longest = self.driver.take_longest_pass();
        if longest > PASS_MAX {
            self.oracle.broke(format!("(Y04) a pass took {longest:?} while storages hang"));
        }
        let wish = self.wishes.guests.get(&guest).cloned().unwrap_or_default();
        let unlike = self.rig.node.with(|sim| {
            let found = sim.world.guest(guest)?;
            differs_stopped(&wish, found).filter(|key| *key == "cores")
        });
        if unlike.is_some() {
            let why = "while storages hang that it does not need";
            self.oracle.broke(format!("(Y04) {guest} was not healed within two intervals {why}"));
        }
        StorageStory::heal(&self.rig.node);
        DriveEnd::Elapsed
    }

    /// A guest that is as wanted, whose cores are cared for and whose wishes need no storage.
    fn guest_to_change(&self) -> Option<GuestId> {
        self.rig.node.with(|sim| {
            let wishes = self.wishes.guests.iter();
            let mut cared_for = wishes.filter(|(_, wish)| {
                let needs_storage = wish.first_disk.is_some() || wish.second_disk.is_some();
                let is_cared_for = wish.cores.is_some() && !wish.ignores_cores;
                is_cared_for && !needs_storage && !wish.absent && !wish.observed
            });
            let well = cared_for.find(|(guest, wish)| {
                sim.world.guest(**guest).is_some_and(|found| {
                    let config = &found.config.active;
                    let is_odd = config.contains_key("template") || config.contains_key("lock");
                    !is_odd && differs_stopped(wish, found).is_none()
                })
            });
            well.map(|(guest, _)| *guest)
        })
    }
}
