//! One run: a seed makes a node, wishes, faults of wire and disk and deaths of the agent, and an oracle
//! watches. At the end everything is healed, and the node must come to what is wanted and then to rest.
//!
//! ```text
//!   life ── steps: time · pass · wish · faults · people · disk ── crash, fatal end or shutdown ──> disk after it ──> life …
//!                                                                                    └──> (steps over) end.rs
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use evenkeel_agent::engine::Fatal;
use evenkeel_agent::journal::{DiskFault, JournalError, JournalLimits};
use evenkeel_agent::situation::take_counts;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Config, Event};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::agent_driver::{AgentDriver, DriverCommand};
use crate::cluster_story::ClusterStory;
use crate::denials::{DeniedFacts, ItemTrouble};
use crate::faults::FaultMaker;
use crate::leftovers::Leftovers;
use crate::linked::{LinkedRun, is_linked};
use crate::newcomers::Newcomers;
use crate::oracle::Oracle;
use crate::rig::Rig;
use crate::scene::{self, Wishes};
use crate::signers::SignerGroup;
use crate::sim_exchange::{PanicPoint, TwinRequest};
use crate::step_ambush::StepAmbush;
use crate::storage_story::StorageStory;
use evenkeel_testkit::dice::Dice;

/// The share of steps in which people ask, sign, forge, or work on the node.
const PEOPLE_PERCENT: u64 = 30;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// Its seed.
    pub seed: u64,
    /// What was broken; empty if nothing.
    pub broken: Vec<String>,
    /// The same for the same seed and steps: of the requests, and of the journal's lines.
    pub trace: (u64, u64),
    /// Requests that changed something.
    pub writes: u64,
    /// How often the agent was started.
    pub lives: u64,
    /// Operations an operator had to close.
    pub resolved: u64,
    /// Signed acts that were carried out or tried.
    pub acts: u64,
    /// Documents of a hub that were taken; none in a run without one.
    pub documents: u64,
    /// How often the host's disk was put back to an old copy.
    pub put_back: u64,
    /// What happened, line by line, if it was to be told.
    pub story: Vec<String>,
    /// How often it was in each named situation.
    pub reached: BTreeMap<String, u64>,
}

/// A run under way.
pub(crate) struct SeedRun {
    pub(crate) seed: u64,
    pub(crate) dice: Dice,
    pub(crate) rig: Rig,
    pub(crate) oracle: Oracle,
    pub(crate) driver: AgentDriver,
    pub(crate) wishes: Wishes,
    pub(crate) faults: FaultMaker,
    /// What this run denies the agent.
    pub(crate) denied: DeniedFacts,
    /// How far somebody has set the node's clock ahead, in seconds, or back.
    pub(crate) node_off_s: i64,
    /// The guests the node began with.
    pub(crate) guests: Vec<GuestId>,
    /// Their birth marks: who has another one took a number over.
    pub(crate) first_births: BTreeMap<u32, u64>,
    /// Guests it shall have besides.
    pub(crate) newcomers: Newcomers,
    /// Guests whose making fails, and such that nobody would miss.
    pub(crate) leftovers: Leftovers,
    /// What becomes of the node's cluster file system.
    cluster: ClusterStory,
    /// Which storages hang.
    storages: StorageStory,
    /// When somebody strikes in the middle of a destroy.
    pub(crate) ambush: StepAmbush,
    /// Who may sign, if the host trusts anybody.
    pub(crate) signers: Option<SignerGroup>,
    /// The hub it takes its documents from, if it has one.
    pub(crate) linked: Option<LinkedRun>,
    /// Whether the host's or the node's clock was once set far off: what began then counts in budgets, or it is doubted.
    pub(crate) leapt: bool,
    /// Whom somebody signed for last.
    pub(crate) signed_guest: Option<GuestId>,
    /// Papers of it that the agent took, or refused for good.
    pub(crate) accepted: BTreeSet<usize>,
    /// A call of the disk that goes wrong.
    pub(crate) armed: Option<(u64, DiskFault)>,
    /// Whether the disk has little space left.
    pub(crate) is_full: bool,
    pub(crate) steps_left: u64,
    lives: u64,
    pub(crate) resolved: u64,
}

/// The agent's end, as `Rig::live` tells it.
pub(crate) type LifeEnd = Result<Result<(), Fatal>, JournalError>;

/// Why waiting ended.
pub(crate) enum DriveEnd {
    Elapsed,
    Ended(LifeEnd),
    /// The agent was polled as often as it may be.
    Killed,
}

/// Runs one seed.
pub fn run(seed: u64, steps: u64) -> RunOutcome {
    run_told(seed, steps, false)
}

/// Runs one seed; with its story, if it shall be told.
pub fn run_told(seed: u64, steps: u64, told: bool) -> RunOutcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without threads can always be made");
    drop(take_counts());
    runtime.block_on(async {
        let mut run = SeedRun::new(seed, steps);
        if told {
            run.oracle.write_story();
        }
        Box::pin(run.go()).await;
        RunOutcome {
            seed,
            broken: run.oracle.broken(),
            trace: run.oracle.trace(),
            writes: run.oracle.writes(),
            lives: run.lives,
            resolved: run.resolved,
            acts: run.oracle.acts(),
            documents: run.oracle.linked().0,
            put_back: run.oracle.linked().1,
            story: run.oracle.story(),
            reached: take_counts(),
        }
    })
}

impl SeedRun {
    fn new(seed: u64, steps: u64) -> Self {
        let mut dice = Dice::new(seed);
        let oracle = Oracle::default();
        let (token, secret) = scene::AGENT_TOKEN;
        let mut rig = Rig::new(scene::node(&mut dice), dice.any()).with_token(token, secret);
        rig.wire = rig.wire.watched_by(oracle.clone());
        rig.limits = JournalLimits {
            segment_bytes: *dice.pick(&[2 << 10, 8 << 10, 1 << 20]),
            archive_segments: usize::try_from(dice.between(2, 6)).unwrap_or(2),
            reserve_bytes: 16 << 10,
            ..JournalLimits::default()
        };
        let first_files: Vec<(GuestId, Config)> = rig.node.with(|sim| {
            sim.world.guests.values().map(|guest| (guest.id, guest.config.clone())).collect()
        });
        let has_signers = dice.percent(85);
        let denied = DeniedFacts::of(&mut dice);
        let layered = dice.percent(50);
        let first_guests: Vec<GuestId> = first_files.iter().map(|(guest, _)| *guest).collect();
        let first_births = rig.node.with(|sim| {
            let guests = sim.world.guests.values();
            guests.map(|guest| (guest.id.vmid.get(), guest.birth)).collect()
        });
        let leftovers = Leftovers::of(seed, &mut rig);
        let cluster = ClusterStory::of(seed, &mut rig);
        let mut run = Self {
            seed,
            linked: None,
            leapt: false,
            first_births,
            dice,
            rig,
            driver: AgentDriver::watched_by(oracle.clone()),
            oracle,
            wishes: Wishes { layered, ..Wishes::default() },
            newcomers: Newcomers::of(seed, &first_guests),
            leftovers,
            cluster,
            storages: StorageStory::of(seed),
            ambush: StepAmbush::of(seed),
            guests: first_guests,
            faults: FaultMaker::of(first_files),
            signers: None,
            signed_guest: None,
            accepted: BTreeSet::new(),
            armed: None,
            is_full: false,
            denied,
            node_off_s: 0,
            steps_left: steps,
            lives: 0,
            resolved: 0,
        };
        if has_signers {
            run.appoint();
            if is_linked(seed) {
                run.link(seed);
            }
        }
        run
    }

    async fn go(&mut self) {
        self.deny_from_the_start();
        for _ in 0..self.guests.len() * 2 {
            self.change_wishes();
        }
        while self.is_fine() {
            let (commands, taken) = mpsc::unbounded_channel();
            let last = Box::pin(self.live(&commands, taken)).await;
            if last {
                return;
            }
            self.after_death();
        }
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.oracle.broken().is_empty()
    }

    /// One life of the agent; true if it was the last and saw the end of the run.
    async fn live(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        mut taken: UnboundedReceiver<DriverCommand>,
    ) -> bool {
        self.lives += 1;
        self.note(|| "a life begins".to_owned());
        self.oracle.born(&self.rig.disk);
        self.copy_disk();
        self.driver.born();
        let rig = self.rig.clone();
        let driver = self.driver.clone();
        let agent = rig.live(async |engine| Box::pin(driver.work(engine, &rig, &mut taken)).await);
        let mut agent = pin!(agent);
        while self.steps_left > 0 && self.is_fine() {
            self.steps_left -= 1;
            match self.step(commands, agent.as_mut()).await {
                DriveEnd::Elapsed => {}
                DriveEnd::Killed => return false,
                DriveEnd::Ended(end) => {
                    self.judge_end(&end);
                    return false;
                }
            }
        }
        if !self.is_fine() {
            return true;
        }
        match self.end(commands, agent.as_mut()).await {
            DriveEnd::Elapsed => true,
            DriveEnd::Killed => false,
            DriveEnd::Ended(end) => {
                self.judge_end(&end);
                false
            }
        }
    }

    /// One thing happens.
    async fn step<F: Future<Output = LifeEnd>>(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        agent: Pin<&mut F>,
    ) -> DriveEnd {
        self.faults.pass(&self.rig.node, &self.oracle);
        let told = self.newcomers.mischief(&self.rig.node);
        let cluster = self.cluster.mischief(&self.rig.node, &self.guests);
        let leftovers = self.leftovers.mischief(&self.rig.node);
        let storages = self.storages.mischief(&self.rig.node);
        for told in told.into_iter().chain(leftovers).chain(cluster).chain(storages) {
            self.note(|| told);
        }
        if self.cluster.is_looked_at() {
            self.tell(commands, DriverCommand::Look);
        }
        self.tell_progress();
        self.hear_answers();
        self.hub_step(commands);
        if self.signers.is_some() && self.ambush.is_due() {
            return self.ambush(commands, agent).await;
        }
        if self.signers.is_some() && self.dice.percent(PEOPLE_PERCENT) {
            return match self.dice.below(100) {
                0..=5 => self.trouble_item(commands, agent, ItemTrouble::Swap).await,
                6..=11 => self.trouble_item(commands, agent, ItemTrouble::Interruption).await,
                12..=14 => self.trouble_item(commands, agent, ItemTrouble::Rotation).await,
                15 | 16 => self.sign_at_once(commands, agent).await,
                17 | 18 => self.raise_again(commands, agent).await,
                _ => self.people(commands, agent).await,
            };
        }
        match self.dice.below(100) {
            0..=17 => self.tell(commands, DriverCommand::Pass),
            18..=20 => self.tell(commands, DriverCommand::AskedPass),
            21 => {
                let guest = *self.dice.pick(&self.guests);
                self.tell(commands, DriverCommand::Retry(guest));
            }
            22..=35 => {
                let fault = FaultMaker::fault(&mut self.dice, &self.guests);
                self.note(|| format!("{fault:?}"));
                self.rig.node.with(|sim| sim.inject(fault));
            }
            36..=45 => {
                let dice = &mut self.dice;
                let node = &self.rig.node;
                let told = self.faults.event(dice, node, &self.oracle, &self.guests);
                if self.faults.tasks_forgotten {
                    self.oracle.exchanges_are_unseen();
                }
                self.note(|| told);
            }
            46..=57 => self.change_wishes(),
            58 | 59 => return self.kill(agent).await,
            60 => self.arm_disk(),
            61 => {
                let within = Duration::from_secs(self.dice.between(0, 90));
                self.tell(commands, DriverCommand::ShutDown(within));
            }
            62 => {
                let down = self.dice.percent(40);
                self.rig.wire.set_down(down);
            }
            63 => {
                let places = [
                    PanicPoint::BeforeSending,
                    PanicPoint::AfterAnswer,
                    PanicPoint::AfterSecondTry,
                ];
                let here = *self.dice.pick(&places);
                if here == PanicPoint::AfterSecondTry {
                    // Mostly every guest: which of them is written to is not known.
                    let all = self.dice.percent(70);
                    let one = *self.dice.pick(&self.guests);
                    let ms = self.dice.between(11_000, 25_000);
                    for guest in self.guests.iter().copied().filter(|guest| all || *guest == one) {
                        let event = Event::HoldFileLock { guest, ms };
                        self.rig.node.with(|sim| sim.happen(event));
                    }
                    self.tell(commands, DriverCommand::Pass);
                }
                self.note(|| format!("the next change panics: {here:?}"));
                self.rig.wire.panic_once(here);
            }
            64 => {
                let frozen = self.dice.percent(50);
                self.freeze(frozen);
            }
            65..=68 => {
                FaultMaker::heal(&self.rig.node, &self.guests);
                StorageStory::heal(&self.rig.node);
                self.give_all_rights();
                self.rig.wire.set_down(false);
                self.freeze(false);
                self.make_room();
            }
            69 => self.mischief(commands),
            70..=73 => self.deny(),
            _ => {
                let ms = *self.dice.pick(&[0, 1, 20, 500, 2_000, 10_000, 31_000, 70_000, 200_000]);
                return wait(agent, Duration::from_millis(ms), &mut None).await;
            }
        }
        // What was decided takes effect only once somebody is polled; not always at once.
        if self.dice.percent(50) {
            return wait(agent, Duration::from_millis(self.dice.below(3)), &mut None).await;
        }
        DriveEnd::Elapsed
    }

    /// What the agent told since the last step.
    pub(crate) fn tell_progress(&self) {
        let told =
            std::mem::take(&mut *self.rig.progress.lock().unwrap_or_else(PoisonError::into_inner));
        for progress in told {
            self.note(|| format!("{progress:?}"));
        }
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let now_ms = self.rig.node.with(|sim| sim.now_ms());
        self.oracle.tell(now_ms, line);
    }

    pub(crate) fn tell(
        &mut self,
        commands: &UnboundedSender<DriverCommand>,
        command: DriverCommand,
    ) {
        self.note(|| format!("command {command:?}"));
        // An agent that has gone hears nothing; the next life gets its own commands.
        let _ = commands.send(command);
    }

    /// Somebody with our token does what we are about to do, and our own answer is lost.
    fn mischief(&mut self, commands: &UnboundedSender<DriverCommand>) {
        if self.dice.percent(50) {
            let twin = *self.dice.pick(&[TwinRequest::First, TwinRequest::Second]);
            self.note(|| format!("somebody sends what we send: {twin:?}"));
            self.rig.wire.twin_once(twin);
            return self.tell(commands, DriverCommand::Pass);
        }
        let guest = *self.dice.pick(&self.guests);
        let wanted = self.wishes.guests.get(&guest).and_then(|wish| wish.run);
        let told = self.faults.twin(&mut self.dice, &self.rig.node, guest, wanted);
        self.note(|| told);
        self.tell(commands, DriverCommand::Pass);
    }

    fn change_wishes(&mut self) {
        let dice = &mut self.dice;
        let wishes = &mut self.wishes;
        let guests = &self.guests;
        self.rig.node.with(|sim| wishes.change(dice, guests, &sim.world));
        self.newcomers.change(&mut self.wishes);
        self.leftovers.change(&mut self.wishes);
        self.tell_wishes();
    }

    /// The agent hears what is wanted now.
    pub(crate) fn tell_wishes(&mut self) {
        self.note(|| format!("wishes {:?}", self.wishes.guests));
        for (guest, keys) in self.wishes.keys() {
            self.oracle.declare(guest, keys);
        }
        if !self.push_wishes() {
            self.driver.want(self.wishes.desired(), self.wishes.modes());
        }
    }

    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.rig.frozen.store(frozen, Ordering::Relaxed);
        let now_ms = self.rig.node.with(|sim| sim.now_ms());
        self.oracle.frozen(frozen.then_some(now_ms));
    }

    /// Lets the agent be polled a few times more.
    async fn kill<F: Future<Output = LifeEnd>>(&mut self, agent: Pin<&mut F>) -> DriveEnd {
        let longest = *self.dice.pick(&[3, 30, 150, 600]);
        let polls = self.dice.below(longest);
        match wait(agent, Duration::from_mins(1), &mut Some(polls)).await {
            DriveEnd::Elapsed | DriveEnd::Killed => DriveEnd::Killed,
            DriveEnd::Ended(end) => DriveEnd::Ended(end),
        }
    }

    /// One of the next calls of the disk goes wrong, or there is little space left.
    pub(crate) fn arm_disk(&mut self) {
        if self.dice.percent(30) {
            self.is_full = true;
            return self.rig.disk.limit_space(Some(self.dice.below(64 << 10)));
        }
        if self.armed.is_none() {
            let fault = *self.dice.pick(&[DiskFault::Io, DiskFault::NoSpace, DiskFault::PowerLoss]);
            let call = self.rig.disk.calls() + self.dice.below(8);
            self.rig.disk.fail_at(call, fault);
            self.note(|| format!("call {call} of the disk will fail: {fault:?}"));
            self.armed = Some((call, fault));
            self.oracle.armed(self.armed);
        }
    }

    pub(crate) fn make_room(&mut self) {
        self.is_full = false;
        self.rig.disk.limit_space(None);
    }

    /// The disk is another one.
    pub(crate) fn forget_disk_faults(&mut self) {
        self.armed = None;
        self.oracle.armed(None);
        self.rig.disk.forget_faults();
        self.make_room();
    }
}

/// Asks for a pass and lets the agent live for a while; how it ended, if it did. A command that cannot be heard shows as
/// that end.
pub(crate) async fn pass_and_wait<F: Future<Output = LifeEnd>>(
    commands: &UnboundedSender<DriverCommand>,
    agent: Pin<&mut F>,
    time: Duration,
) -> Option<DriveEnd> {
    let _ = commands.send(DriverCommand::Pass);
    match wait(agent, time, &mut None).await {
        DriveEnd::Elapsed => None,
        ended @ (DriveEnd::Killed | DriveEnd::Ended(_)) => Some(ended),
    }
}

/// Lets the agent live for a while, or for so many polls.
pub(crate) async fn wait<F: Future<Output = LifeEnd>>(
    mut agent: Pin<&mut F>,
    time: Duration,
    polls_left: &mut Option<u64>,
) -> DriveEnd {
    let mut over = pin!(tokio::time::sleep(time));
    std::future::poll_fn(|context| {
        if let Some(left) = polls_left {
            if *left == 0 {
                return Poll::Ready(DriveEnd::Killed);
            }
            *left -= 1;
        }
        if let Poll::Ready(end) = agent.as_mut().poll(context) {
            return Poll::Ready(DriveEnd::Ended(end));
        }
        over.as_mut().poll(context).map(|()| DriveEnd::Elapsed)
    })
    .await
}
