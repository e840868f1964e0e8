//! The end of a run: everything is well again, and so the node must become what is wanted, and then rest.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use evenkeel_agent::journal::Files;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::plan::{Action, Held, Plan};
use evenkeel_sim::SimGuest;
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::faults::FaultMaker;
use crate::leftovers::clear_around;
use crate::newcomers::clear;
use crate::run::{DriveEnd, LifeEnd, SeedRun, pass_and_wait};
use crate::scene::{Wish, loose, second_slot};
use crate::script::journal;
use crate::signers::{SignerGroup, SigningMistake};
use crate::sim_exchange::{PanicPoint, TwinRequest};
use crate::storage_story::{StorageStory, waited_for_storage, waits_for_storage};

/// Passes after which a healthy node must be as declared: a lost answer costs two minutes, an ignored shutdown six,
/// a fact that does not follow another two, and what failed is tried again.
const PASSES_MAX: u32 = 90;

/// The pause between them.
const BETWEEN_PASSES: Duration = Duration::from_secs(30);

/// The same while something waits because it failed: the longest pause, and a little, is over after twelve of them.
const BETWEEN_TRIES: Duration = Duration::from_mins(6);
const TRIES_IN_LONGEST_PAUSE: u32 = 12;

/// After so many passes somebody looks after guests whose making did not end well.
const LOOKED_AFTER: u32 = 6;

/// After so many passes it is a hub's budget that is waited for.
const HUB_WAITS: u32 = 10;

/// Every so many passes somebody closes by hand what evidence could not close.
const OPERATOR_COMES: u32 = 25;

/// A day of rest, one pass every hour.
const IDLE_PASSES: u32 = 24;
const IDLE_PAUSE: Duration = Duration::from_hours(1);

impl SeedRun {
    /// Heals, converges, checks, rests.
    pub(crate) async fn end<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        self.heal();
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.hub_repents(commands, agent.as_mut()).await
        {
            return ended;
        }
        let mut found: Option<Plan> = None;
        let mut waits_in_lane = false;
        for pass in 0..PASSES_MAX {
            let reported = self.driver.reports_after(0).len();
            // A hub's disruptive acts may have to wait for the next hour.
            let waits = found.as_ref().is_some_and(has_failed)
                || waits_in_lane
                || (self.linked.is_some() && pass > HUB_WAITS);
            let pause = if waits { BETWEEN_TRIES } else { BETWEEN_PASSES };
            let was_at_work = self.rig.node.with(|sim| sim.is_at_work());
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), pause).await {
                return ended;
            }
            self.faults.pass(&self.rig.node, &self.oracle);
            self.hear_answers();
            self.tell_progress();
            found = self.driver.take_plan();
            // Somebody else's last act may have changed the guest after it was read.
            let settled = found.as_ref().is_some_and(|plan| self.is_settled(plan));
            let settled = settled && !was_at_work && !self.rig.node.with(|sim| sim.is_at_work());
            let is_clear = !FaultMaker::clear_dead_work(&self.rig.node);
            waits_in_lane = waited_for_storage(&self.driver.reports_after(reported));
            let settled = settled && is_clear && !waits_in_lane;
            let nobody = self.newcomers.guests.is_empty() && self.leftovers.guests.is_empty();
            let looked_after = nobody || pass > LOOKED_AFTER;
            if settled && looked_after && self.driver.is_idle() && self.driver.unknown().is_empty()
            {
                break;
            }
            if pass % OPERATOR_COMES == OPERATOR_COMES - 1 {
                self.resolve(commands);
            }
            if pass % OPERATOR_COMES == OPERATOR_COMES - 1 || pass == LOOKED_AFTER {
                self.look_after_newcomers(commands);
            }
        }
        // A clock that was set far ahead keeps a hub's documents and budget waiting as long.
        if self.linked.is_some() && (self.leapt || self.driver.doubts_its_clock()) {
            return DriveEnd::Elapsed;
        }
        self.check_end(found.as_ref());
        if !self.is_fine() {
            return DriveEnd::Elapsed;
        }
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.sign_all(commands, agent.as_mut()).await
        {
            return ended;
        }
        if !self.is_fine() {
            return DriveEnd::Elapsed;
        }
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.hub_rests(commands, agent.as_mut()).await
        {
            return ended;
        }
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.rest(commands, agent.as_mut()).await
        {
            return ended;
        }
        if !self.is_fine() {
            return DriveEnd::Elapsed;
        }
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.storages_hang(commands, agent.as_mut()).await
        {
            return ended;
        }
        if !self.is_fine() {
            return DriveEnd::Elapsed;
        }
        self.last_removals(commands, agent).await
    }

    /// An administrator removes what a killed worker left, and says of a guest that may be anybody's that it is meant.
    fn look_after_newcomers(&mut self, commands: &UnboundedSender<DriverCommand>) {
        if !self.rig.node.with(|sim| sim.is_at_work()) {
            clear(&self.newcomers.guests, &self.rig.node);
            clear(&self.leftovers.guests, &self.rig.node);
        }
        for guest in self.newcomers.guests.clone().into_iter().chain(self.leftovers.guests.clone())
        {
            self.tell(commands, DriverCommand::Retry(guest));
        }
    }

    /// Without faults every item is signed once: it is done, or the journal tells why not.
    async fn sign_all<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let mut papers = Vec::new();
        for (id, item, _) in self.oracle.items() {
            let now_s = self.oracle.effective_s(&self.rig.ambient);
            let trust = self.trust();
            let Some(signers) = &mut self.signers else { continue };
            if !signers.can_sign_whole(trust.as_ref()) {
                continue;
            }
            signers.all_sign = true;
            let when = (now_s, trust.as_ref());
            let paper = signers.approve(
                &mut self.dice,
                &self.oracle,
                (&id, &item),
                when,
                SigningMistake::Nothing,
            );
            papers.push(paper);
        }
        self.accepted.clear();
        let mut rested = 0;
        for _ in 0..PASSES_MAX {
            // A lane that is at work takes nothing, and whoever hands in comes again.
            for paper in papers.iter().copied() {
                if !self.accepted.contains(&paper) {
                    self.hand_in(commands, paper);
                }
            }
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), BETWEEN_PASSES).await {
                return ended;
            }
            self.tell_progress();
            self.hear_answers();
            let plan = self.driver.take_plan();
            let is_still = plan.is_some_and(|plan| self.is_settled(&plan))
                && self.driver.is_idle()
                && self.driver.unknown().is_empty()
                && papers.iter().all(|paper| self.is_answered(*paper));
            rested = if is_still { rested + 1 } else { 0 };
            if rested == 3 {
                break;
            }
        }
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            self.pay_debts(commands, agent).await
        {
            return ended;
        }
        for (name, guest, state, reason) in self.oracle.open_operations() {
            self.oracle.broke(format!("(13) {name} of {guest} is still {state}: {reason:?}"));
        }
        for paper in papers.into_iter().filter(|paper| !self.is_answered(*paper)) {
            self.oracle.broke(format!("(13) nobody knows what became of paper {paper}"));
        }
        for owed in self.rig.node.with(|sim| self.oracle.owed_protection(&sim.world)) {
            self.oracle.broke(owed);
        }
        for belied in self.rig.node.with(|sim| self.oracle.belied(sim)) {
            self.oracle.broke(belied);
        }
        for whole in self.rig.node.with(|sim| self.oracle.removed_in_name_only(&sim.world)) {
            self.oracle.broke(whole);
        }
        DriveEnd::Elapsed
    }

    /// Whether the journal tells what became of a paper. A hub may have kept it to itself.
    fn is_answered(&self, paper: usize) -> bool {
        let signers = self.signers.as_ref();
        signers.is_none_or(|signers| self.oracle.is_answered(&signers.papers[paper]))
    }

    /// A protection that could not be given back waits like everything that failed, and no plan shows that it does: it
    /// has until the longest pause is over. The pass after it ends the items of the guest as it was before.
    async fn pay_debts<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let mut unpaid = self.has_unpaid_protection();
        for _ in 0..TRIES_IN_LONGEST_PAUSE {
            if !unpaid {
                break;
            }
            // Whether it was there before the pass, so that one more follows the payment.
            unpaid = self.has_unpaid_protection();
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), BETWEEN_TRIES).await {
                return ended;
            }
            self.tell_progress();
        }
        DriveEnd::Elapsed
    }

    fn has_unpaid_protection(&self) -> bool {
        !self.rig.node.with(|sim| self.oracle.unpaid_protection(&sim.world)).is_empty()
    }

    fn heal(&mut self) {
        FaultMaker::heal(&self.rig.node, &self.guests);
        StorageStory::heal(&self.rig.node);
        self.faults.let_rest();
        self.faults.mend_guests(&self.rig.node);
        self.give_all_rights();
        for guest in &self.leftovers.guests {
            clear_around(&self.rig.node, *guest);
        }
        self.rig.wire.set_down(false);
        self.rig.wire.panic_once(PanicPoint::Never);
        self.rig.wire.twin_once(TwinRequest::Never);
        self.make_room();
        self.freeze(false);
        self.set_clock_right();
        self.set_node_clock(self.rig.ambient.off_s());
    }

    /// Nothing left that could run, but for a new disk beside one that hangs on nothing on its storage, and what
    /// comes after it.
    fn is_settled(&self, plan: &Plan) -> bool {
        !has_failed(plan)
            && plan.guests.iter().all(|guest| {
                let loose = self.rig.node.with(|sim| loose(&sim.world, guest.guest));
                let mut runnable = guest.actions.iter().filter(|action| action.held.is_none());
                guest.busy.is_none()
                    && runnable.next().is_none_or(|first| is_refused(first, &loose))
            })
    }

    /// Somebody closes what is unknown; what is not unknown by now has been forgotten by the engine.
    fn resolve(&mut self, commands: &UnboundedSender<DriverCommand>) {
        for (name, guest, state, reason) in self.oracle.open_operations() {
            if state != "unknown" || reason.is_empty() {
                let what = format!("(13) {name} of {guest} is still {state} ({reason:?})");
                self.oracle.broke(what);
            } else if let Ok(op) = name.parse() {
                self.resolved += 1;
                let _ = commands.send(DriverCommand::Resolve(op));
            }
        }
    }

    fn check_end(&mut self, plan: Option<&Plan>) {
        if !plan.is_some_and(|plan| self.is_settled(plan)) {
            let told = plan
                .map(|plan| plan.runnable().map(|a| (a.guest, a.reasons())).collect::<Vec<_>>());
            let busy = plan.map(|plan| {
                plan.guests
                    .iter()
                    .filter_map(|g| Some((g.guest, g.busy.clone()?)))
                    .collect::<Vec<_>>()
            });
            return self.oracle.broke(format!("(7) it does not converge: {told:?} {busy:?}"));
        }
        for (name, guest, state, reason) in self.oracle.open_operations() {
            self.oracle.broke(format!("(13) {name} of {guest} is still {state}: {reason:?}"));
        }
        for report in self.driver.take_reports() {
            let state = self.oracle.state_of(&report.op.to_string());
            let told = state.as_deref().unwrap_or("succeeded");
            if report.end.as_str() == "succeeded" && told != "succeeded" {
                self.oracle.broke(format!("{} is reported done, yet it is {state:?}", report.op));
            }
            if report.end.as_str() == "failed" && state.as_deref() == Some("succeeded") {
                self.oracle.broke(format!("{} is reported failed, yet it is done", report.op));
            }
        }
        let mut wrong = Vec::new();
        self.rig.node.with(|sim| {
            for guest in &self.newcomers.guests {
                let wish = self.wishes.guests.get(guest);
                let wanted = wish.filter(|wish| wish.source.is_some() && !wish.observed);
                // A copy may have lost its source; what comes from a template has no excuse.
                let from_template = wanted.filter(|wish| wish.first_disk.is_some());
                if from_template.is_some() && !sim.world.guests.contains_key(&guest.vmid.get()) {
                    wrong.push(format!("(7) {guest} is wanted and was never made: {wish:?}"));
                }
            }
            for (guest, wish) in &self.wishes.guests {
                let all_was_written =
                    !wish.absent && !wish.observed && loose(&sim.world, *guest).is_empty();
                if let Some(found) = sim.world.guest(*guest).filter(|_| all_was_written) {
                    let config = &found.config;
                    let told =
                        |key| format!("(7) {guest} is not as wanted: {key}; {wish:?} {config:?}");
                    // A copy, and what somebody else made, may have come with what keeps it from starting.
                    let taken = self.newcomers.taken.contains(&guest.vmid.get());
                    let copied = taken
                        || (wish.source.is_some() && wish.first_disk.is_none())
                        || wish.is_smaller_than(found)
                        // Somebody made a template of it, which nothing undoes.
                        || config.active.get("template").is_some_and(|on| on == "1");
                    let unlike = differs(wish, found).filter(|key| !copied || *key != "run");
                    wrong.extend(unlike.map(told));
                }
            }
            // A rollback detaches what came after its snapshot.
            let rolled_back = |guest: &&SimGuest| self.oracle.was_rolled_back(guest.id);
            for found in sim.world.guests.values().filter(|guest| !rolled_back(guest)) {
                let foreign = self.faults.foreign_loose.get(&found.id.vmid.get()).copied();
                let loose = loose(&sim.world, found.id);
                let twins = self.oracle.twins(found.id);
                // What a killed task leaves is one volume, beside which nothing more is made on that storage.
                let most = most_on_one_storage(&loose);
                if most > 1 + foreign.unwrap_or(0) + twins {
                    wrong.push(format!("{} has loose volumes: {loose:?}", found.id));
                }
                let moved = self.oracle.moved_out(found.id);
                let active = found.config.active.iter();
                let spare = active.filter(|(key, _)| key.starts_with("unused"));
                let spare = spare.filter(|(_, volume)| !moved.contains(*volume));
                let number = found.id.vmid.get();
                let taken_over = self.first_births.get(&number) != Some(&found.birth);
                let theirs = taken_over
                    || self.faults.detached.contains(&number)
                    || self.oracle.was_detached(found.id);
                let spare: Vec<_> = spare.collect();
                if spare.len() > twins && !theirs {
                    wrong.push(format!("{} was given a second volume: {spare:?}", found.id));
                }
            }
        });
        wrong.extend(self.rig.node.with(|sim| self.oracle.lost_by_moves(&sim.world)));
        for what in wrong {
            self.oracle.broke(what);
        }
    }

    /// A day in which nothing is written anywhere.
    async fn rest<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        // Where the node's clock was set back, an item may have been raised at a moment that is still to come: what becomes of
        // it shows once that has passed, and then it rests.
        // So do signatures that are too few: they are forgotten when the window of their statement ends, a day after it was
        // signed. The signer's clock may have been ahead of the host's, so that this is late on the second day.
        let takes_several = self.signers.as_ref().is_some_and(SignerGroup::takes_several);
        let mut days = match (takes_several, self.denied.clock) {
            (true, _) => 3,
            (false, true) => 2,
            (false, false) => 1,
        };
        loop {
            let before = (self.oracle.writes(), self.disk_bytes());
            for _ in 0..IDLE_PASSES {
                if let Some(ended) = pass_and_wait(commands, agent.as_mut(), IDLE_PAUSE).await {
                    return ended;
                }
            }
            let after = (self.oracle.writes(), self.disk_bytes());
            days -= 1;
            if before == after {
                return DriveEnd::Elapsed;
            }
            if days == 0 {
                let newest = journal(&self.rig).pop();
                self.oracle.broke(format!(
                    "(7) no rest: writes and journal bytes {before:?}, then {after:?}; the newest line: {newest:?}"
                ));
                return DriveEnd::Elapsed;
            }
        }
    }

    fn disk_bytes(&self) -> usize {
        let files = self.rig.disk.list().unwrap_or_default();
        files.iter().filter_map(|name| self.rig.disk.read(name).ok()).map(|bytes| bytes.len()).sum()
    }
}

/// How many of these volumes are on the storage that has the most of them.
fn most_on_one_storage(volumes: &BTreeSet<String>) -> usize {
    let storage = |volume: &String| volume.split(':').next().unwrap_or_default().to_owned();
    let of_storage = |name: String| volumes.iter().filter(|other| storage(other) == name).count();
    volumes.iter().map(storage).map(of_storage).max().unwrap_or(0)
}

/// Whether the gate refuses it: because of a volume that hangs on nothing, or of the guest that is copied.
fn is_refused(action: &Action, loose: &BTreeSet<String>) -> bool {
    let on_its_storage = |value: &String| {
        let fresh = value.split(',').next().and_then(|volume| volume.split_once(':'));
        fresh.filter(|(_, size)| size.parse::<u32>().is_ok()).is_some_and(|(storage, _)| {
            loose.iter().any(|volume| volume.starts_with(&format!("{storage}:")))
        })
    };
    let kind = action.step.kind();
    let params = action.step.params();
    let copies_to = params.get("storage").filter(|_| kind == ActionKind::MoveVolume);
    let copies = copies_to.is_some_and(|storage| {
        loose.iter().any(|volume| volume.starts_with(&format!("{storage}:")))
    });
    // A container that runs is not copied, and its copy waits for that.
    let waits = kind == ActionKind::Clone;
    copies || waits || (kind == ActionKind::SetConfig && params.values().any(on_its_storage))
}

/// The same without the run state: what must be so before a new guest starts.
pub(crate) fn differs_stopped(wish: &Wish, found: &SimGuest) -> Option<&'static str> {
    differs(wish, found).find(|key| *key != "run")
}

/// The declared keys whose value is neither in effect nor waits for a restart, by the node's own file.
fn differs(wish: &Wish, found: &SimGuest) -> impl Iterator<Item = &'static str> {
    let stored = |key: &str| {
        let waiting = found.config.pending.get(key);
        waiting.or_else(|| found.config.active.get(key)).cloned()
    };
    let is =
        |key: &str, wanted: Option<String>| wanted.is_none_or(|want| stored(key) == Some(want));
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let onboot = wish.onboot.is_none_or(|on| (stored("onboot").as_deref() == Some("1")) == on);
    let described = wish.description.as_ref().is_none_or(|text| {
        stored("description").is_some_and(|have| have.trim_end() == text.trim_end())
    });
    // No wish is the default: evenkeel may store that by removing the key.
    let memory = stored("memory").map(|have| have.trim_start_matches("current=").to_owned());
    let memory = wish.memory_mib.is_none_or(|mib| memory == Some(mib.to_string()));
    let runs = wish.run.is_none_or(|runs| runs == found.power.is_running());
    let slot = second_slot(found.id.kind);
    [
        ("cores", wish.ignores_cores || is("cores", number(wish.cores))),
        ("memory", memory),
        ("onboot", onboot),
        ("description", described),
        ("nameserver", is("nameserver", wish.nameserver.clone())),
        ("run", runs),
        (slot, true),
        ("the first disk's storage", wish.is_where_wanted(found)),
    ]
    .into_iter()
    .filter(|(_, right)| !right)
    .map(|(key, _)| key)
}

/// Whether something waits because it failed before, or because a storage kept silent.
fn has_failed(plan: &Plan) -> bool {
    waits_for_storage(plan)
        || plan.actions().any(|action| matches!(action.held, Some(Held::FailedBefore(_))))
}
