//! What the agent takes for granted, denied: the rights of its token, the node's clock, the guest behind a number, and
//! that the world stands still between two requests of one act.
//!
//! Called by `run` for a share of its steps. At the end of a run everything is given back.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::PendingItem;
use evenkeel_sim::Event;
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::faults::FaultMaker;
use crate::last_removals::FAR_OFF_S;
use crate::run::{DriveEnd, LifeEnd, SeedRun, wait};
use crate::scene::{AGENT_TOKEN, AGENT_USER};
use crate::signers::SigningMistake;
use evenkeel_testkit::dice::Dice;

/// Seconds by which a clock is set: a moment, minutes, hours, more than a day, a year, many years.
const STEPS_S: [i64; 12] = [
    2,
    -2,
    40,
    -700,
    3_600,
    -3_600,
    90_000,
    -90_000,
    31_536_000,
    -31_536_000,
    600_000_000,
    -600_000_000,
];

/// What happens to an item while somebody signs for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ItemTrouble {
    /// Its guest is another one by then.
    Swap,
    /// Something comes between two requests of its act.
    Interruption,
    /// The signers change while it is judged.
    Rotation,
}

/// How often it is looked whether an act has come as far as it shall be met.
const LOOKS: u32 = 100;

/// What is denied in a run; each seed has a choice of its own, so that one trouble does not hide another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeniedFacts {
    rights: bool,
    pub(crate) clock: bool,
    guests: bool,
    /// How often somebody changed what backups leave out.
    exclusions: u64,
}

impl DeniedFacts {
    pub(crate) fn of(dice: &mut Dice) -> Self {
        let rights = dice.percent(60);
        let clock = dice.percent(30);
        let guests = dice.percent(70);
        Self { rights, clock, guests, exclusions: 0 }
    }
}

impl SeedRun {
    /// Some hosts never gave their token all the rights it needs; some clocks were never right.
    pub(crate) fn deny_from_the_start(&mut self) {
        if self.dice.percent(25) {
            self.withhold("/nodes/pve1", "Sys.Audit");
        }
        if self.dice.percent(25) {
            self.step_node_clock();
        }
    }

    /// One thing is denied, or given back.
    pub(crate) fn deny(&mut self) {
        match self.dice.below(13) {
            0..=3 => self.change_rights(),
            4 => self.give_all_rights(),
            5 => self.step_node_clock(),
            6 => self.step_both_clocks(),
            7 => self.exclude_from_backups(),
            _ => {
                let guest = self.some_guest();
                self.replace(guest);
            }
        }
    }

    /// The token loses a right, or has one back.
    fn change_rights(&mut self) {
        if !self.denied.rights {
            return;
        }
        let guest = *self.dice.pick(&self.guests);
        let of_guest = format!("/vms/{}", guest.vmid);
        match self.dice.below(12) {
            0..=2 => self.withhold("/nodes/pve1", "Sys.Audit"),
            3 => self.withhold("/", "Sys.Audit"),
            4 | 5 => self.withhold(&of_guest, "VM.Audit"),
            6 => {
                let storage =
                    *self.dice.pick(&["/storage/local-lvm", "/storage/tank", "/storage/store"]);
                self.withhold(storage, "Datastore.Audit");
                self.withhold(storage, "Datastore.AllocateSpace");
            }
            7 => {
                let privileges =
                    ["VM.Snapshot.Rollback", "VM.Allocate", "VM.PowerMgmt", "VM.Config.Options"];
                let privilege = *self.dice.pick(&privileges);
                self.withhold(&of_guest, privilege);
            }
            8 | 9 => self.give_back("/nodes/pve1"),
            10 => self.give_back("/"),
            _ => self.give_back(&of_guest),
        }
    }

    pub(crate) fn withhold(&mut self, path: &str, privilege: &str) {
        if !self.denied.rights {
            return;
        }
        self.note(|| format!("{AGENT_USER} loses {privilege} on {path}"));
        let holder = AGENT_USER.to_owned();
        let path = path.to_owned();
        let privilege = privilege.to_owned();
        self.rig.node.with(|sim| sim.happen(Event::Withhold { holder, path, privilege }));
    }

    fn give_back(&mut self, path: &str) {
        self.note(|| format!("{AGENT_USER} has back what it had on {path}"));
        self.rig.node.with(|sim| {
            sim.world.access.revoke(path, AGENT_USER);
            if path == "/" {
                sim.world.access.grant("/", AGENT_USER, "Administrator");
            }
        });
    }

    pub(crate) fn give_all_rights(&mut self) {
        self.rig.node.with(|sim| {
            let access = &mut sim.world.access;
            access.acl.retain(|grant| grant.holder != AGENT_USER && grant.holder != AGENT_TOKEN.0);
            access.grant("/", AGENT_USER, "Administrator");
        });
    }

    /// Somebody sets the node's clock, and not the agent's.
    fn step_node_clock(&mut self) {
        if !self.denied.clock {
            return;
        }
        let by_s = *self.dice.pick(&STEPS_S);
        let back = self.dice.percent(30);
        self.set_node_clock(if back { 0 } else { by_s });
    }

    /// Agent and node are one machine: somebody sets its clock.
    fn step_both_clocks(&mut self) {
        if !self.denied.clock {
            return;
        }
        let by_s = *self.dice.pick(&STEPS_S);
        self.oracle.clock_is_set();
        self.rig.ambient.set_off(by_s);
        self.oracle.clock_is_set();
        self.note(|| format!("the agent's clock is set off by {by_s} s"));
        self.set_node_clock(by_s);
    }

    /// Sets the node's clock so many seconds ahead of the true time, or behind it.
    pub(crate) fn set_node_clock(&mut self, off_s: i64) {
        let step_s = off_s - self.node_off_s;
        self.node_off_s = off_s;
        self.leapt |= off_s.unsigned_abs() > FAR_OFF_S;
        self.note(|| format!("the node's clock is set off by {off_s} s"));
        self.rig.node.with(|sim| sim.happen(Event::Clock { step_s }));
        self.oracle.asked_to_try(None);
        self.oracle.node_clock_is_set();
    }

    /// Somebody changes what the node leaves out of every container's backup. No setting comes twice: one that is put back
    /// between two looks was in force for a backup, and no request shows that.
    pub(crate) fn exclude_from_backups(&mut self) {
        self.denied.exclusions += 1;
        let choice = [&["/var/lib/*"][..], &["*.db", "/home/user"], &["/etc/hostname"], &[]];
        let chosen = self.dice.pick(&choice).iter().map(|path| (*path).to_owned());
        let paths: Vec<String> =
            chosen.chain([format!("/mnt/{}", self.denied.exclusions)]).collect();
        self.note(|| format!("backups leave out {paths:?} from now on"));
        self.rig.node.with(|sim| sim.happen(Event::BackupExcludes { paths }));
    }

    /// Somebody puts another guest, or other data, behind a number, or moves the guest.
    pub(crate) fn replace(&mut self, guest: GuestId) {
        if !self.denied.guests {
            return;
        }
        FaultMaker::define_storages(&self.rig.node);
        let is_away = self.rig.node.with(|sim| sim.world.elsewhere.contains_key(&guest.vmid.get()));
        let source = *self.dice.pick(&self.guests);
        let event = match self.dice.below(10) {
            _ if is_away => {
                self.oracle.exchanges_are_unseen();
                Event::MigrateBack { guest, another: self.dice.percent(50) }
            }
            0..=2 => Event::Restore { guest },
            3..=5 => Event::Recreate { guest },
            6 => Event::MigrateAway { guest },
            7 => {
                self.faults.detached.insert(guest.vmid.get());
                Event::Rollback { guest }
            }
            8 if source.kind == guest.kind => Event::CloneOver { source, target: guest },
            8 => Event::MigrateAway { guest },
            _ => Event::Template { guest },
        };
        self.note(|| format!("somebody else: {event:?}"));
        self.rig.node.with(|sim| sim.happen(event));
    }

    /// An item that waits is signed for, and not everything goes well; if there is none, a pass may raise one.
    pub(crate) async fn trouble_item<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: Pin<&mut F>,
        trouble: ItemTrouble,
    ) -> DriveEnd {
        let Some((id, item)) = self.some_item() else {
            self.tell(commands, DriverCommand::Pass);
            return DriveEnd::Elapsed;
        };
        match trouble {
            ItemTrouble::Swap => self.swap(commands, agent, (&id, &item)).await,
            ItemTrouble::Interruption => self.interrupt(commands, agent, (&id, &item)).await,
            ItemTrouble::Rotation => self.rotate_meanwhile(commands, agent, (&id, &item)).await,
        }
    }

    /// A guest that waits to be destroyed is replaced by one that looks the same, behind the agent's back, and then
    /// somebody signs for the former one.
    async fn swap<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
        (id, item): (&str, &PendingItem),
    ) -> DriveEnd {
        let guest = item.guest;
        if !self.denied.guests {
            self.sign_item(commands, (id, item));
            return DriveEnd::Elapsed;
        }
        FaultMaker::define_storages(&self.rig.node);
        let hides = self.dice.below(4);
        match hides {
            0 => self.withhold("/nodes/pve1", "Sys.Audit"),
            1 => self.step_node_clock(),
            2 => self.step_both_clocks(),
            _ => {}
        }
        let events = match self.dice.below(3) {
            0 => vec![Event::Recreate { guest }],
            1 => vec![Event::Restore { guest }],
            _ => {
                self.oracle.exchanges_are_unseen();
                vec![Event::MigrateAway { guest }, Event::MigrateBack { guest, another: true }]
            }
        };
        self.note(|| format!("behind the agent's back: {events:?}"));
        for event in events {
            self.rig.node.with(|sim| sim.happen(event));
            match wait(agent.as_mut(), Duration::from_secs(4), &mut None).await {
                DriveEnd::Elapsed => {}
                ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
            }
        }
        if self.dice.percent(30) {
            self.tell(commands, DriverCommand::Pass);
        }
        self.sign_item(commands, (id, item));
        let seconds = self.dice.between(1, 40);
        let waited = wait(agent, Duration::from_secs(seconds), &mut None).await;
        if hides == 0 && self.dice.percent(70) {
            self.give_back("/nodes/pve1");
        }
        waited
    }

    fn some_item(&mut self) -> Option<(String, PendingItem)> {
        let items = self.oracle.items();
        if items.is_empty() {
            return None;
        }
        let (id, item, _) = self.dice.pick(&items);
        Some((id.clone(), item.clone()))
    }

    pub(crate) fn sign_item(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        item: (&str, &PendingItem),
    ) {
        if let Some(paper) = self.sign_for_later(item) {
            self.hand_in(commands, paper);
        }
    }

    fn sign_for_later(&mut self, (id, item): (&str, &PendingItem)) -> Option<usize> {
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let trust = self.trust();
        let signers = self.signers.as_mut()?;
        let when = (now_s, trust.as_ref());
        let paper = signers.approve(
            &mut self.dice,
            &self.oracle,
            (id, item),
            when,
            SigningMistake::Nothing,
        );
        self.signed_guest = Some(item.guest);
        self.note(|| format!("somebody signs {} of {} as {paper}", item.op, item.guest));
        Some(paper)
    }

    /// The host's time stands still, because its clock is a little behind; an item is signed, ends, and is raised again
    /// for another guest, and then the signature for the former one is handed in.
    pub(crate) async fn raise_again<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let guest = self.some_guest();
        if !self.denied.guests {
            return DriveEnd::Elapsed;
        }
        FaultMaker::define_storages(&self.rig.node);
        self.oracle.clock_is_set();
        self.set_clock_right();
        self.rig.ambient.set_off(self.rig.ambient.off_s() - 300);
        self.oracle.clock_is_set();
        let ask = || {
            let params = BTreeMap::from([("purge".to_owned(), "0".to_owned())]);
            DriverCommand::Ask(ActionKind::Destroy, guest, params)
        };
        self.tell(commands, ask());
        match wait(agent.as_mut(), Duration::from_secs(1), &mut None).await {
            DriveEnd::Elapsed => {}
            ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
        }
        let items = self.oracle.items();
        let Some((id, item, _)) = items.into_iter().find(|(_, item, _)| item.guest == guest) else {
            return DriveEnd::Elapsed;
        };
        let paper = self.sign_for_later((&id, &item));
        self.note(|| format!("behind the agent's back: {guest} is made again"));
        self.rig.node.with(|sim| sim.happen(Event::Recreate { guest }));
        for (ms, command) in [(1_200, DriverCommand::Pass), (4_000, ask())] {
            match wait(agent.as_mut(), Duration::from_millis(ms), &mut None).await {
                DriveEnd::Elapsed => {}
                ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
            }
            self.tell(commands, command);
        }
        let waited = wait(agent, Duration::from_secs(1), &mut None).await;
        if let Some(paper) = paper {
            self.hand_in(commands, paper);
        }
        waited
    }

    /// Something happens between two requests of an act that has begun.
    async fn interrupt<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
        (id, item): (&str, &PendingItem),
    ) -> DriveEnd {
        self.sign_item(commands, (id, item));
        let last = self.dice.percent(30);
        let pause_ms = *self.dice.pick(&[20, 100, 250]);
        for _ in 0..LOOKS {
            match wait(agent.as_mut(), Duration::from_millis(pause_ms), &mut None).await {
                DriveEnd::Elapsed => {}
                ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => return ended,
            }
            self.hear_answers();
            if self.oracle.has_come_to(item.guest, last) {
                self.note(|| format!("{} is met, last request: {last}", item.guest));
                if last {
                    self.rig.node.with(|sim| sim.happen(Event::Quorum { quorate: false }));
                } else {
                    self.intervene(commands, item.guest);
                }
                let seconds = self.dice.between(1, 40);
                return wait(agent, Duration::from_secs(seconds), &mut None).await;
            }
        }
        DriveEnd::Elapsed
    }

    /// Several things are asked for, signed and handed in at once: together they may be more than the budget.
    pub(crate) async fn sign_at_once<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: Pin<&mut F>,
    ) -> DriveEnd {
        for guest in self.guests.clone() {
            if self.dice.percent(40) {
                continue;
            }
            let params = BTreeMap::from([("purge".to_owned(), "0".to_owned())]);
            self.tell(commands, DriverCommand::Ask(ActionKind::Destroy, guest, params));
        }
        let waited = wait(agent, Duration::from_secs(1), &mut None).await;
        for (id, item, _) in self.oracle.items() {
            self.sign_item(commands, (&id, &item));
        }
        waited
    }

    /// While an act is judged, the signers change.
    async fn rotate_meanwhile<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: Pin<&mut F>,
        item: (&str, &PendingItem),
    ) -> DriveEnd {
        self.sign_item(commands, item);
        let polls = self.dice.below(60);
        let waited = wait(agent, Duration::from_millis(1), &mut Some(polls)).await;
        self.rotate(commands);
        // Being out of polls is no crash here: the agent goes on at the next step.
        match waited {
            DriveEnd::Killed => DriveEnd::Elapsed,
            waited @ (DriveEnd::Elapsed | DriveEnd::Ended(_)) => waited,
        }
    }

    fn intervene(&mut self, commands: &UnboundedSender<DriverCommand>, guest: GuestId) {
        match self.dice.below(9) {
            0..=2 => self.rotate(commands),
            3 => self.freeze(true),
            // Past the end of most statements, and not so far that the clock is in doubt.
            4 => {
                self.oracle.clock_is_set();
                let off_s = self.rig.ambient.off_s() + 4_000;
                self.rig.ambient.set_off(off_s);
                self.oracle.clock_is_set();
                self.note(|| format!("the agent's clock is set off by {off_s} s"));
            }
            5 => self.change_rights(),
            6 => self.step_node_clock(),
            7 => self.exclude_from_backups(),
            _ => self.replace(guest),
        }
    }
}
