//! The people around the host in a run: operators who ask and sign, a hub that withholds, repeats and forges, whoever
//! sets the clock, and whoever works on the node besides.
//!
//! They know everything, the agent's mind included; only the oracle must not. Called by `run` for a share of its steps.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::engine::Submitted;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{ApprovalRules, Role, Signer, TrustVersion, TrustedSigners};
use evenkeel_sim::Event;
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::faults::FaultMaker;
use crate::last_removals::FAR_OFF_S;
use crate::oracle::HostRules;
use crate::rig::Rig;
use crate::run::{DriveEnd, LifeEnd, SeedRun, wait};
use crate::signers::{SignerGroup, SigningMistake};
use crate::sim_exchange::TwinRequest;

/// Seconds by which somebody sets the clock wrong: a little, past what is forgiven, past a day, by years.
const WRONG_BY_S: [i64; 10] =
    [5, -5, 500, -700, 3_000, -7_200, 80_000, 100_000, -90_000, 600_000_000];

impl SeedRun {
    /// Gives the host signers and a policy of its own.
    pub(crate) fn appoint(&mut self) {
        let host = Rig::host();
        let life_s = *self.dice.pick(&[3_600, 86_400]);
        let acts_per_day = *self.dice.pick(&[2, 10, 1_000]);
        // By the seed and not by chance: the seeds that are kept tell what they told.
        let quorum = if self.seed % 4 == 1 { 2 } else { 1 };
        let signers = SignerGroup::new(host, (life_s, quorum), self.authors());
        let founders = signers.founders();
        let trust = TrustedSigners::genesis(TrustVersion(1), founders.clone());
        self.driver.trust(trust.expect("the founders are good signers"));
        let is_operational = |signer: &&Signer| signer.role == Role::Operational;
        let operational = founders.iter().filter(is_operational);
        self.oracle.enrol(HostRules {
            operational: operational.map(|signer| signer.key.fingerprint().to_string()).collect(),
            statement_life_s: life_s,
            acts_per_day,
            quorum,
            clock: Arc::clone(&self.rig.ambient),
        });
        self.rig = self.rig.clone().judged_by(founders);
        if let Some(approvals) = &mut self.rig.approvals {
            approvals.policy.statement_life_s = life_s;
            approvals.policy.destructive_per_day = acts_per_day;
            if quorum > 1 {
                let rules = format!("[policy]\napprove = [{{ signers = {quorum} }}]\n");
                let rules = ApprovalRules::of_agent_file(&rules).expect("the rule is a good one");
                approvals.policy.approve = rules.clone();
                let authority = Arc::get_mut(&mut approvals.authority).expect("nobody has it yet");
                *authority.get_mut() = authority.get_mut().clone().with_rules(&rules);
            }
        }
        self.signers = Some(signers);
    }

    /// One thing that people do.
    pub(crate) async fn people<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: Pin<&mut F>,
    ) -> DriveEnd {
        match self.dice.below(100) {
            0..=17 => self.ask(commands),
            18..=47 => {
                self.sign_something(commands, SigningMistake::Nothing);
                if self.dice.percent(40) {
                    return self.race(commands, agent).await;
                }
            }
            48..=57 => self.hand_in_old(commands),
            58..=67 => self.forge(commands),
            68..=75 => {
                let twist = *self.dice.pick(&SigningMistake::ALL);
                self.sign_something(commands, twist);
            }
            76..=80 => self.change_signers(commands),
            81..=86 => self.set_clock(),
            _ => self.work_on_the_node(),
        }
        DriveEnd::Elapsed
    }

    /// Something happens a moment after an approval was handed in: before it is judged, while it is, or after.
    async fn race<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let ms = *self.dice.pick(&[0, 1, 2, 5, 20, 100, 1_000, 4_000]);
        let waited = if self.dice.percent(50) {
            let polls = self.dice.below(60);
            wait(agent.as_mut(), Duration::from_millis(ms), &mut Some(polls)).await
        } else {
            wait(agent.as_mut(), Duration::from_millis(ms), &mut None).await
        };
        // Being out of polls is no crash here: the agent goes on at the next step.
        if let ended @ DriveEnd::Ended(_) = waited {
            return ended;
        }
        match self.dice.below(8) {
            0 | 1 => {
                let guest = self.some_guest();
                self.reuse(guest);
            }
            2 => self.change_signers(commands),
            3 => self.freeze(true),
            4 => self.set_clock(),
            5 => self.hand_in_old(commands),
            6 => self.sign_something(commands, SigningMistake::Nothing),
            _ => self.work_on_the_node(),
        }
        DriveEnd::Elapsed
    }

    /// Somebody wants something done that no file declares.
    pub(crate) fn ask(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let guest = *self.dice.pick(&self.guests);
        let dice = &mut self.dice;
        let (op, name, value) = self.rig.node.with(|sim| {
            let config = sim.world.guest(guest).map(|found| &found.config);
            let snapshots = config.map_or(&[][..], |config| &config.snapshots[..]);
            let names: Vec<&str> = snapshots.iter().map(|point| point.name.as_str()).collect();
            let keys = config.into_iter().flat_map(|config| config.active.keys());
            let unused: Vec<&String> = keys.filter(|key| key.starts_with("unused")).collect();
            let (op, name, value) = match dice.below(14) {
                10 | 11 => (ActionKind::Snapshot, "snapname", *dice.pick(&["asked1", "asked2"])),
                12 | 13 => {
                    (ActionKind::Backup, "storage", *dice.pick(&["store", "store", "local"]))
                }
                0..=2 if !names.is_empty() => {
                    (ActionKind::Rollback, "snapname", *dice.pick(&names))
                }
                3..=5 if !names.is_empty() => {
                    (ActionKind::DeleteSnapshot, "snapname", *dice.pick(&names))
                }
                6 | 7 if !unused.is_empty() => {
                    (ActionKind::DeleteVolume, "slot", dice.pick(&unused).as_str())
                }
                8 => (ActionKind::SetConfig, "protection", "0"),
                // A word that makes nothing benign.
                9 => (ActionKind::Destroy, "scratch", "true"),
                _ => (ActionKind::Destroy, "purge", "0"),
            };
            (op, name.to_owned(), value.to_owned())
        });
        let params = BTreeMap::from([(name, value)]);
        self.tell(commands, DriverCommand::Ask(op, guest, params));
    }

    /// An operator signs one of the items, and mostly hands it in at once.
    pub(crate) fn sign_something(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        twist: SigningMistake,
    ) {
        let items = self.oracle.items();
        if items.is_empty() {
            return self.tell(commands, DriverCommand::Pass);
        }
        let (id, item, _) = self.dice.pick(&items);
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let trust = self.trust();
        let Some(signers) = &mut self.signers else { return };
        let when = (now_s, trust.as_ref());
        let paper = signers.approve(&mut self.dice, &self.oracle, (id, item), when, twist);
        self.signed_guest = Some(item.guest);
        self.note(|| {
            format!("somebody signs {} of {} ({twist:?}) as {paper}", item.op, item.guest)
        });
        if self.dice.percent(10) {
            self.rig.wire.twin_once(*self.dice.pick(&[TwinRequest::First, TwinRequest::Second]));
        }
        if self.dice.percent(75) {
            for _ in 0..*self.dice.pick(&[1, 1, 1, 3]) {
                self.hand_in(commands, paper);
            }
        }
    }

    fn forge(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let items = self.oracle.items();
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let Some(signers) = self.signers.as_mut().filter(|_| !items.is_empty()) else { return };
        let (_, item, sealed) = self.dice.pick(&items);
        let paper = signers.forge(&mut self.dice, (item, sealed), now_s);
        self.hand_in(commands, paper);
    }

    /// Whatever was ever made comes again, or for the first time, in any order.
    fn hand_in_old(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let made = self.signers.as_ref().map_or(0, |signers| signers.papers.len() as u64);
        for _ in 0..self.dice.between(1, 4).min(made) {
            // Mostly one of the last: most things change soon.
            let oldest = if self.dice.percent(60) { made.saturating_sub(6) } else { 0 };
            let paper = usize::try_from(self.dice.between(oldest, made - 1)).unwrap_or(0);
            self.hand_in(commands, paper);
        }
    }

    pub(crate) fn hand_in(&mut self, commands: &UnboundedSender<DriverCommand>, paper: usize) {
        let Some(bytes) = self.signers.as_ref().map(|signers| signers.papers[paper].bytes.clone())
        else {
            return;
        };
        if self.hand_to_hub(paper, &bytes) {
            return self.note(|| format!("paper {paper} is handed in at the hub"));
        }
        self.note(|| format!("paper {paper} is handed in"));
        let _ = commands.send(DriverCommand::Deliver(paper, bytes));
    }

    fn change_signers(&mut self, commands: &UnboundedSender<DriverCommand>) {
        if self.dice.percent(50) {
            return self.rotate(commands);
        }
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let trust = self.trust();
        let signers = &mut self.signers;
        if let (Some(signers), Some(trust)) = (signers, trust) {
            let paper = signers.usurp(&mut self.dice, &trust, now_s);
            self.hand_in(commands, paper);
        }
    }

    /// Who may do so changes the signers, and mostly hands that in at once.
    pub(crate) fn rotate(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let trust = self.trust();
        let signers = &mut self.signers;
        if let (Some(signers), Some(trust)) = (signers, trust) {
            let paper = signers.rotate(&mut self.dice, &self.oracle, &trust, now_s);
            if self.dice.percent(85) {
                self.hand_in(commands, paper);
            }
        }
    }

    /// The signers as the agent has them now, unless it is just changing them.
    pub(crate) fn trust(&self) -> Option<TrustedSigners> {
        self.rig.approvals.as_ref()?.authority.try_read().ok()?.trust().cloned()
    }

    /// Somebody sets the clock wrong, or right again: not behind what the host has seen, or nothing would be done.
    fn set_clock(&mut self) {
        self.oracle.clock_is_set();
        if self.dice.percent(50) {
            return self.set_clock_right();
        }
        let by_s = *self.dice.pick(&WRONG_BY_S);
        self.note(|| format!("the clock is set off by {by_s} s"));
        self.rig.ambient.set_off(by_s);
        self.leapt |= by_s.unsigned_abs() > FAR_OFF_S;
        self.oracle.clock_is_set();
    }

    pub(crate) fn set_clock_right(&mut self) {
        self.oracle.clock_is_set();
        self.rig.ambient.set_off(0);
        let true_s = self.rig.ambient.true_now().as_second();
        let seen_s = self.oracle.effective_s(&self.rig.ambient);
        let ahead_s = i64::try_from(seen_s).unwrap_or(0) - true_s;
        self.note(|| format!("the clock is set right, {ahead_s} s ahead"));
        self.rig.ambient.set_off(ahead_s);
    }

    /// Any guest; rather the one that somebody signed for.
    pub(crate) fn some_guest(&mut self) -> GuestId {
        let any = *self.dice.pick(&self.guests);
        self.signed_guest.filter(|_| self.dice.percent(60)).unwrap_or(any)
    }

    fn work_on_the_node(&mut self) {
        let guest = self.some_guest();
        match self.dice.below(11) {
            10 => self.break_archives(guest),
            0 | 1 => self.reuse(guest),
            2..=8 => {
                let told =
                    self.faults.stranger(&mut self.dice, &self.rig.node, guest, &self.oracle);
                self.note(|| told);
            }
            _ => {
                let told = FaultMaker::recreate(&self.rig.node, &self.faults.first_files);
                self.note(|| told);
            }
        }
    }

    /// A backup of the guest is emptied, loses a volume, or is removed.
    pub(crate) fn break_archives(&mut self, guest: GuestId) {
        let how = self.dice.below(3);
        self.note(|| format!("the backups of {guest} are broken ({how})"));
        self.oracle.archives_are_broken(&self.rig.node);
        self.rig.node.with(|sim| {
            for storage in sim.world.storages.values_mut() {
                let of_guest = |volume: &evenkeel_sim::Volume| {
                    volume.archive.as_ref().is_some_and(|archive| archive.guest == guest)
                };
                if how == 0 {
                    storage.volumes.retain(|_, volume| !of_guest(volume));
                }
                for volume in storage.volumes.values_mut().filter(|volume| of_guest(volume)) {
                    match (how, &mut volume.archive) {
                        (1, Some(archive)) => {
                            archive.config.active.retain(|key, _| {
                                !["rootfs", "scsi0", "virtio0"].contains(&key.as_str())
                            });
                        }
                        (_, _) => volume.size_bytes = 0,
                    }
                }
            }
        });
    }

    fn reuse(&mut self, guest: GuestId) {
        // A number that is free is taken by nobody here. Nor is one whose guest is being made: this exchange leaves no
        // task, Proxmox VE locks what it makes, and who it was before the making ended nobody could ever tell.
        let is_made = self.leftovers.guests.contains(&guest);
        if self
            .rig
            .node
            .with(|sim| sim.world.guest(guest).is_none() || (is_made && sim.is_at_work()))
        {
            return;
        }
        self.note(|| format!("another guest takes the number of {guest}"));
        // Who has nothing of its own but a name cannot be told from another whose coming left no task.
        let own: &[&str] = match guest.kind {
            GuestKind::Lxc => &["net0"],
            GuestKind::Qemu => &["net0", "smbios1", "vmgenid", "meta"],
        };
        let is_told_apart = self.rig.node.with(|sim| {
            let found = sim.world.guest(guest);
            found.is_some_and(|found| own.iter().any(|key| found.config.active.contains_key(*key)))
        });
        if !is_told_apart {
            self.oracle.exchanges_are_unseen();
        }
        self.rig.node.with(|sim| sim.happen(Event::Reuse { guest }));
    }

    /// What the agent said to the papers: a hopeless one is refused, whenever it comes.
    pub(crate) fn hear_answers(&mut self) {
        if let Some(trouble) = self.driver.take_trouble() {
            self.oracle.broke(format!("the signers cannot be read from the journal: {trouble}"));
        }
        for (paper, said) in self.driver.take_answers() {
            self.note(|| format!("paper {paper}: {said:?}"));
            // Nothing is written down of a lane that was at work.
            if !matches!(&said, Submitted::Refused(refusal) if refusal.reason == ReasonCode::Busy) {
                self.accepted.insert(paper);
            }
            let hopeless =
                self.signers.as_ref().is_some_and(|signers| signers.papers[paper].hopeless);
            match said {
                Submitted::Refused(_) => {}
                Submitted::Accepted(_)
                | Submitted::Replay { .. }
                | Submitted::Rotated(_)
                | Submitted::Collected(_)
                | Submitted::Denied(_)
                | Submitted::Acknowledged(_) => {
                    if hopeless {
                        self.oracle.broke(format!("(3) a forged paper was taken: {said:?}"));
                    }
                }
            }
        }
    }
}
