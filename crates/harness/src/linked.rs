//! A run whose host takes its documents from a hub: the hub's mood, an author who pushes, disks and hubs that are put back.
//!
//! Its dice are its own, so that a seed without a hub is as it always was. The hub is honest part of the time; whatever it
//! does, the last good document holds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_agent::engine::AnchorState;
use evenkeel_agent::hub_link::store::DocumentDisk;
use evenkeel_agent::journal::SimulatedDisk;
use evenkeel_agent::policy::AnchorPolicy;
use evenkeel_core::fleet::EnvelopeId;
use evenkeel_core::sign::Signer;
use tokio::sync::mpsc::UnboundedSender;

use crate::agent_driver::DriverCommand;
use crate::forged_document::DocumentForger;
use crate::model_hub::{HubManner, ModelHub};
use crate::oracle::{LinkRules, PutBackJournal, STEP_MAX};
use crate::run::{DriveEnd, LifeEnd, SeedRun, pass_and_wait, wait};
use evenkeel_testkit::dice::Dice;

/// The share of pushes that a hub keeps back beside the one that it takes.
const KEPT_BACK_PERCENT: u64 = 20;

/// The share of deaths after which root enrols the host again before the next life.
const ENROLLED_AGAIN_PERCENT: u64 = 6;

/// Makes the dice of the hub differ from those of everything else.
const OWN_DICE: u64 = 0x6875_6220_6c69_6e6b;

/// The share of runs with signers that have a hub.
const LINKED_PERCENT: u64 = 40;

/// The share of steps in which something happens to the hub.
const HUB_PERCENT: u64 = 12;

/// A hub that is honest again has so many passes until its newest document holds. It answered nonsense to a report, which
/// then waits ten minutes, or was put back and learns its number from the next report.
const HONEST_PASSES: u32 = 80;
const BETWEEN_PASSES: Duration = Duration::from_secs(30);

/// Every so many of them an author pushes again: what was pushed under a number that is too low stays refused.
const PUSHED_AGAIN: u32 = 12;

/// Envelopes are brought again after five minutes, and refusals that were too many are counted when their hour is over;
/// some time later nothing is said any more.
const QUIET: Duration = Duration::from_mins(80);

/// A copy may be put back while its time is less than a day ago: a host that was off for longer doubts its clock.
const COPY_AGE_MAX_S: u64 = 80_000;

/// The hub's part of a run.
pub(crate) struct LinkedRun {
    dice: Dice,
    pub(crate) hub: ModelHub,
    pub(crate) shelf: Arc<DocumentShelf>,
    /// Whether root demands an author's signature.
    is_signed: bool,
    /// Whether disks are put back.
    puts_back: bool,
    /// Which paper an envelope is.
    envelopes: BTreeMap<EnvelopeId, usize>,
    copy: Option<HostCopy>,
    /// The manifest that was pushed last.
    newest: String,
    /// What root did for the host at the end, once each.
    helped: BTreeSet<RootHelp>,
}

/// What root does for a host at the end of a run that cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RootHelp {
    /// The agent is started again, because a full disk kept it from being enrolled.
    Restart,
    /// The host is enrolled again, because the hub's numbers are out of its reach.
    Enrolment,
}

/// A host's disk as it was.
struct HostCopy {
    disk: SimulatedDisk,
    documents: BTreeMap<String, Vec<u8>>,
    journal: PutBackJournal,
}

/// The documents of a simulated host: what is put there survives.
#[derive(Debug, Default)]
pub(crate) struct DocumentShelf(Mutex<BTreeMap<String, Vec<u8>>>);

impl DocumentShelf {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DocumentDisk for DocumentShelf {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> Vec<String> {
        self.files().keys().cloned().collect()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }

    fn takes_long(&self) -> bool {
        false
    }
}

/// Whether a seed's host has a hub, if it has signers.
pub(crate) fn is_linked(seed: u64) -> bool {
    Dice::new(seed ^ OWN_DICE).percent(LINKED_PERCENT)
}

impl SeedRun {
    /// Gives the host a hub, and root's rules for one.
    pub(crate) fn link(&mut self, seed: u64) {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        dice.any();
        let is_signed = dice.percent(70);
        let puts_back = dice.percent(50);
        let per_hour = *dice.pick(&[2, 5, 20, 1_000]);
        let Some(approvals) = &mut self.rig.approvals else { return };
        approvals.policy.desired_signed = is_signed;
        let without_base = dice.percent(15);
        approvals.policy.desired_without_base = without_base;
        approvals.policy.disruptive_per_hour = per_hour;
        // Who puts a disk back and keeps the hub away would be believed otherwise, as root was told.
        if puts_back || dice.percent(50) {
            approvals.policy.anchor = AnchorPolicy::Required;
        }
        let host_key = approvals.host_key.clone();
        self.oracle.link(LinkRules {
            demands_author: is_signed,
            without_base,
            disruptive_per_hour: per_hour,
        });
        let forger = DocumentForger::new(Arc::clone(&self.rig.ambient), self.oracle.clone());
        let hub_dice = Dice::new(dice.any());
        let hub = ModelHub::new(hub_dice, forger, self.oracle.clone(), host_key, !puts_back);
        let shelf = Arc::new(DocumentShelf::default());
        self.driver.link(hub.clone(), Arc::clone(&shelf));
        self.newcomers.guests.clear();
        self.leftovers.guests.clear();
        self.linked = Some(LinkedRun {
            dice,
            hub,
            shelf,
            is_signed,
            puts_back,
            envelopes: BTreeMap::new(),
            copy: None,
            newest: String::new(),
            helped: BTreeSet::new(),
        });
    }

    /// An author pushes what is wished for now. False if there is no hub.
    pub(crate) fn push_wishes(&mut self) -> bool {
        let Some(linked) = &mut self.linked else { return false };
        self.wishes.as_a_hub_may(linked.is_signed);
        let text = self.wishes.text();
        let modes = self.wishes.modes();
        let generation = linked.hub.next_generation();
        if linked.dice.percent(KEPT_BACK_PERCENT) {
            // The hub says that it refuses a push, and keeps it for another day.
            let later = generation + 1 + linked.dice.below(3);
            let kept = linked.hub.forger(|forger| forger.declare(later, &text, modes.clone()));
            linked.hub.keep_back(later, kept.1);
        }
        let (manifest, bytes) =
            linked.hub.forger(|forger| forger.declare(generation, &text, modes));
        linked.newest = manifest.to_string();
        linked.hub.push(generation, bytes);
        self.note(|| format!("an author pushes generation {generation}"));
        true
    }

    /// Something happens to the hub, perhaps.
    pub(crate) fn hub_step(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let Some(linked) = &mut self.linked else { return };
        for verdict in linked.hub.take_verdicts() {
            let paper = linked.envelopes.get(&verdict.envelope).copied();
            let papers = self.signers.as_ref().map(|signers| &signers.papers);
            let hopeless = paper.zip(papers).is_some_and(|(paper, all)| all[paper].hopeless);
            if hopeless && verdict.code == "allowed_signed" {
                self.oracle.broke(format!("(3) a forged paper was taken: {verdict:?}"));
            }
        }
        if !linked.dice.percent(HUB_PERCENT) {
            return;
        }
        match linked.dice.below(100) {
            0..=39 => {
                let manner = *linked.dice.pick(&HubManner::HOSTILE);
                linked.hub.behaves(manner);
                self.note(|| format!("the hub: {manner:?}"));
            }
            40..=74 => {
                linked.hub.behaves(HubManner::Honest);
                self.note(|| "the hub is honest".to_owned());
            }
            75..=82 => {
                self.push_wishes();
            }
            83..=87 => linked.hub.back_up(),
            88..=90 => {
                let is_back = linked.hub.put_back();
                self.note(|| format!("an old backup of the hub is put back: {is_back}"));
            }
            _ => self.acknowledge(commands),
        }
    }

    /// An operator, or somebody who would like to be one, says that a rollback is known.
    fn acknowledge(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let (Some(heads), Some(trust)) = (self.oracle.rollback(), self.trust()) else { return };
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let (Some(linked), Some(signers)) = (&mut self.linked, &mut self.signers) else { return };
        let wrongly = linked.dice.percent(30);
        if !wrongly {
            self.oracle.acknowledged(heads);
        }
        let paper = signers.acknowledge(&mut linked.dice, heads, now_s, &trust, wrongly);
        if let Some(paper) = paper {
            self.note(|| format!("a rollback is acknowledged by paper {paper}"));
            self.hand_in(commands, paper);
        }
    }

    /// Whether a paper goes to the hub, and not to the host by somebody's hand.
    pub(crate) fn hand_to_hub(&mut self, paper: usize, bytes: &str) -> bool {
        let Some(linked) = &mut self.linked else { return false };
        if !linked.dice.percent(60) {
            return false;
        }
        let Some(id) = linked.hub.queue(bytes) else { return false };
        linked.envelopes.insert(id, paper);
        true
    }

    /// The next life is about to begin: somebody may copy the disk first.
    pub(crate) fn copy_disk(&mut self) {
        if self.linked.is_none() {
            return;
        }
        let at_work = self.rig.node.with(|sim| sim.is_at_work());
        let is_quiet = !at_work && self.oracle.open_operations().is_empty();
        let Some(linked) = self.linked.as_mut().filter(|linked| linked.puts_back) else { return };
        let has_none = linked.copy.is_none();
        if !is_quiet || !(has_none || linked.dice.percent(20)) || self.oracle.is_put_back() {
            return;
        }
        linked.copy = Some(HostCopy {
            disk: self.rig.disk.copy(),
            documents: linked.shelf.files().clone(),
            journal: self.oracle.copied(),
        });
    }

    /// The agent is dead: root may enrol the host again with the same hub.
    pub(crate) fn enrol_again(&mut self) {
        let is_enrolled = self.oracle.is_enrolled();
        let Some(linked) = &mut self.linked else { return };
        if is_enrolled && linked.dice.percent(ENROLLED_AGAIN_PERCENT) {
            self.oracle.enrolled_again();
            self.driver.enrol_again();
            self.note(|| "root enrols the host again".to_owned());
        }
    }

    /// The agent is dead: somebody may put the copy back, where the hub knows of more than the copy does.
    pub(crate) fn put_disk_back(&mut self) {
        if self.linked.is_none() {
            return;
        }
        let at_work = self.rig.node.with(|sim| sim.is_at_work());
        let is_quiet = !at_work && self.oracle.open_operations().is_empty();
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let Some(linked) = &mut self.linked else { return };
        let Some(HostCopy { disk, documents, journal }) = &linked.copy else { return };
        let is_known = linked
            .hub
            .head()
            .is_some_and(|head| (head.epoch, head.seq) > (journal.epoch(), journal.last()));
        let is_recent = journal.high_s() + COPY_AGE_MAX_S > now_s;
        if !is_quiet || !is_known || !is_recent || !linked.dice.percent(35) {
            return;
        }
        self.rig.disk = disk.copy();
        linked.shelf.files().clone_from(documents);
        self.oracle.put_back(journal);
        self.forget_disk_faults();
        self.note(|| "the disk is put back to an old copy".to_owned());
    }

    /// The hub is honest from now on: its newest document is waited for, and a rollback that was is found and acknowledged.
    pub(crate) async fn hub_repents<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let Some(linked) = &self.linked else { return DriveEnd::Elapsed };
        linked.hub.behaves(HubManner::Honest);
        self.note(|| "the hub repents".to_owned());
        for pass in 0..HONEST_PASSES {
            if pass % PUSHED_AGAIN == 0 {
                self.push_wishes();
            }
            self.acknowledge_rightly(commands);
            if let Some(ended) = pass_and_wait(commands, agent.as_mut(), BETWEEN_PASSES).await {
                return ended;
            }
            self.faults.pass(&self.rig.node, &self.oracle);
            self.tell_progress();
            self.hear_answers();
            if self.is_linked_well() {
                break;
            }
        }
        if let Some(linked) = &mut self.linked
            && !self.oracle.is_enrolled()
            && linked.helped.insert(RootHelp::Restart)
        {
            // Enrolment is a command of its own; a life that had no room for it asks the hub for nothing.
            self.note(|| "the agent is started again, with room to be enrolled".to_owned());
            return DriveEnd::Killed;
        }
        if self.vouches_for_the_disk() || self.is_brought_near() {
            return DriveEnd::Killed;
        }
        if !self.is_linked_well() && !self.leapt && !self.driver.doubts_its_clock() {
            let (generation, _) = self.oracle.floor();
            let is_put_back = self.oracle.is_put_back();
            let what = format!(
                "(13) the hub is honest, and generation {generation} holds; put back: {is_put_back}"
            );
            self.oracle.broke(what);
        }
        // What holds is held against everybody.
        if let Some(linked) = self.linked.as_mut().filter(|linked| linked.is_signed) {
            let manner = *linked.dice.pick(&HubManner::HOSTILE);
            linked.hub.forger(DocumentForger::author_is_wary);
            linked.hub.behaves(manner);
            self.note(|| format!("the hub at the end: {manner:?}"));
        }
        DriveEnd::Elapsed
    }

    /// Root knows that the disk is as it was, and lets the agent begin again without the head that the hub lost; once.
    fn vouches_for_the_disk(&mut self) -> bool {
        let Some(approvals) = &mut self.rig.approvals else { return false };
        let is_withheld = approvals.anchor.state() == AnchorState::Withheld;
        if !is_withheld || approvals.policy.anchor == AnchorPolicy::Optional {
            return false;
        }
        approvals.policy.anchor = AnchorPolicy::Optional;
        self.note(|| "root vouches for the disk of a host whose head the hub lost".to_owned());
        true
    }

    /// A number of the enrolment before may be in effect while the hub's are far above it. Root enrols the host again, as its
    /// refusal says; once.
    fn is_brought_near(&mut self) -> bool {
        let (generation, _) = self.oracle.floor();
        let Some(linked) = &mut self.linked else { return false };
        let is_far = generation > 0 && linked.hub.next_generation() > generation + STEP_MAX;
        if !is_far || !linked.helped.insert(RootHelp::Enrolment) {
            return false;
        }
        self.oracle.enrolled_again();
        self.driver.enrol_again();
        self.note(|| "root enrols the host again, whose hub is far ahead".to_owned());
        true
    }

    fn acknowledge_rightly(&mut self, commands: &UnboundedSender<DriverCommand>) {
        let (Some(heads), Some(trust)) = (self.oracle.rollback(), self.trust()) else { return };
        let now_s = self.oracle.effective_s(&self.rig.ambient);
        let (Some(linked), Some(signers)) = (&mut self.linked, &mut self.signers) else { return };
        self.oracle.acknowledged(heads);
        if let Some(paper) = signers.acknowledge(&mut linked.dice, heads, now_s, &trust, false) {
            self.hand_in(commands, paper);
        }
    }

    /// Whether the newest document holds. Where a rotation left no author, none can be taken any more.
    fn is_linked_well(&self) -> bool {
        let is_author = |signer: &Signer| signer.key == DocumentForger::author().key;
        if self.trust().is_some_and(|trust| !trust.signers().any(is_author)) {
            return true;
        }
        let newest = self.linked.as_ref().map(|linked| linked.newest.clone());
        newest == Some(self.oracle.floor().1) && !self.oracle.is_put_back()
    }

    /// Before the day of rest: an honest hub, and time until everything is told. What it held back may have changed the
    /// signers, and then the next pass ends the items of the former ones.
    pub(crate) async fn hub_rests<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut agent: Pin<&mut F>,
    ) -> DriveEnd {
        let Some(linked) = &self.linked else { return DriveEnd::Elapsed };
        linked.hub.behaves(HubManner::Honest);
        if let ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) =
            wait(agent.as_mut(), QUIET, &mut None).await
        {
            return ended;
        }
        pass_and_wait(commands, agent, QUIET).await.unwrap_or(DriveEnd::Elapsed)
    }

    /// Which signers a host with a hub has besides.
    pub(crate) fn authors(&self) -> Vec<Signer> {
        if is_linked(self.seed) { vec![DocumentForger::author()] } else { Vec::new() }
    }
}
