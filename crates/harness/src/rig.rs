//! One agent in a simulated world, to be started, crashed and started again.
//!
//! The whole agent is one future: dropping it at any await point is the crash. What survives is the disk and the
//! node.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_agent::ambient::Ambient;
use evenkeel_agent::authority::Authority;
use evenkeel_agent::cluster_files::ClusterFiles;
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::engine::{
    AnchorWatch, ApprovalContext, Engine, EngineContext, Fatal, Progress,
};
use evenkeel_agent::journal::{
    Journal, JournalError, JournalHandle, JournalLimits, SimulatedDisk, Stamp, group,
};
use evenkeel_agent::policy::Policy;
use evenkeel_agent::pve::Client;
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::lane::LaneLimits;
use evenkeel_core::sign::{HostBinding, Namespace, Signer, TrustVersion, TrustedSigners};
use evenkeel_sim::{InProcess, Simulator, TOKENS};
use evenkeel_testkit::dice::Dice;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::operator::Operator;
use crate::sim_cluster_files::SimClusterFiles;
use crate::sim_exchange::SimExchange;

/// A world with room for one agent.
#[derive(Debug, Clone)]
pub struct Rig {
    /// The node.
    pub node: InProcess,
    /// The way to it.
    pub wire: SimExchange,
    /// The journal's disk.
    pub disk: SimulatedDisk,
    /// The sizes at which the journal acts.
    pub limits: JournalLimits,
    /// The agent's clock and randomness.
    pub ambient: Arc<SeededAmbient>,
    /// What judges destructive acts, if anything does.
    pub approvals: Option<ApprovalContext>,
    /// The numbers at which guests may be scratch, by root's file.
    pub scratch_vmids: VmidRanges,
    /// Whether an operator has frozen the host.
    pub frozen: Arc<AtomicBool>,
    /// Whether the host only observes, by its policy.
    pub observes: Arc<AtomicBool>,
    /// The living agent's way to its journal: what an operator's verbs use.
    pub journal: Arc<Mutex<Option<JournalHandle>>>,
    /// The name of the agent's token.
    pub owner: String,
    /// What was told while it happened, over all lives of the agent.
    pub progress: Arc<Mutex<Vec<Progress>>>,
    /// Whether somebody sits before a terminal and sees what tasks log.
    pub shows_logs: bool,
    /// The node's cluster file system, if the agent lives on the node.
    pub cluster_files: Option<SimClusterFiles>,
}

impl Rig {
    /// A new agent for a node. Must be called inside a runtime with a paused clock.
    pub fn new(simulator: Simulator, seed: u64) -> Self {
        let unix = simulator.unix_s();
        let node = InProcess::new(simulator);
        let (name, secret, _) = TOKENS[0];
        Self {
            wire: SimExchange::new(node.clone(), format!("{name}={secret}")),
            node,
            disk: SimulatedDisk::default(),
            limits: JournalLimits::default(),
            frozen: Arc::default(),
            observes: Arc::default(),
            journal: Arc::default(),
            ambient: Arc::new(SeededAmbient::new(unix, seed)),
            shows_logs: false,
            cluster_files: None,
            approvals: None,
            scratch_vmids: VmidRanges::default(),
            owner: name.to_owned(),
            progress: Arc::default(),
        }
    }

    /// The same with another token.
    #[must_use]
    pub fn with_token(mut self, name: &str, secret: &str) -> Self {
        self.wire = SimExchange::new(self.node.clone(), format!("{name}={secret}"));
        name.clone_into(&mut self.owner);
        self
    }

    /// The same with an agent that reads the node's cluster file system.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        self.cluster_files = Some(SimClusterFiles::new(self.node.clone()));
        self
    }

    /// Starts the agent and lets `life` drive it to the end; drop the returned future to crash it.
    pub async fn live<T>(
        &self,
        life: impl AsyncFnOnce(&mut Engine) -> Result<T, Fatal>,
    ) -> Result<Result<T, Fatal>, JournalError> {
        let journal = self.open_journal(self.disk.clone())?;
        let (handle, requests) = group::channel();
        *self.journal.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
        let clock = Arc::clone(&self.ambient);
        let writer = requests.serve(journal, move || wall(clock.as_ref()));
        let listener = Arc::clone(&self.progress);
        let frozen = Arc::clone(&self.frozen);
        let observes = Arc::clone(&self.observes);
        let client = Client::new(Arc::new(self.wire.clone()), self.node_name());
        let ambient = Arc::clone(&self.ambient) as Arc<dyn Ambient>;
        let files =
            self.cluster_files.clone().map(|files| Arc::new(files) as Arc<dyn ClusterFiles>);
        let context = EngineContext::new(client, handle, ambient, self.owner.clone())
            .frozen_when(move || frozen.load(Ordering::Relaxed))
            .observing_when(move || observes.load(Ordering::Relaxed))
            .approved_by(self.approvals.clone())
            .showing_logs(self.shows_logs)
            .with_scratch(self.scratch_vmids.clone())
            .remembering_by(files)
            .telling(move |progress| {
                listener.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
            });
        let agent = async move {
            let mut engine = Engine::start(context, LaneLimits::default()).await?;
            life(&mut engine).await
        };
        tokio::pin!(writer, agent);
        let mut writing = true;
        loop {
            tokio::select! {
                biased;
                _ = &mut writer, if writing => writing = false,
                ended = &mut agent => return Ok(ended),
            }
        }
    }

    /// The host of every rig, as statements name it.
    pub fn host() -> HostBinding {
        let key = host_key().key.fingerprint();
        HostBinding { id: "rig".parse().expect("rig is a host id"), key }
    }

    /// The same with these signers, and a host key of its own.
    #[must_use]
    pub fn judged_by(mut self, signers: Vec<Signer>) -> Self {
        let (host, binding) = (host_key(), Self::host());
        let trust =
            TrustedSigners::genesis(TrustVersion(1), signers).expect("signers in a test are good");
        self.approvals = Some(ApprovalContext {
            authority: Arc::new(RwLock::new(Authority::first(binding, trust))),
            seal: Arc::new(move |item| Ok(host.seal(Namespace::Pending, &item.to_bytes()?))),
            policy: Policy::default(),
            judging_lock: Arc::default(),
            host_key: host_key().key,
            vouch: Arc::new(|namespace, bytes| Ok(host_key().armour(namespace, bytes))),
            anchor: AnchorWatch::default(),
        });
        self
    }

    /// Opens the journal on a disk as the agent would.
    pub fn open_journal(
        &self,
        disk: SimulatedDisk,
    ) -> Result<Journal<SimulatedDisk>, JournalError> {
        let stamp = Stamp { machine: "rig".to_owned(), new_epoch: "first".to_owned() };
        Journal::open(disk, stamp, self.limits, wall(self.ambient.as_ref()))
    }

    pub(crate) fn node_name(&self) -> evenkeel_core::model::id::NodeName {
        self.node.with(|sim| sim.world.node.parse()).expect("a simulated node has a name")
    }
}

fn host_key() -> Operator {
    Operator::new("host", 200)
}

/// A clock that follows tokio's, or as somebody sets it, and random bits that follow a seed.
#[derive(Debug)]
pub struct SeededAmbient {
    began: Instant,
    base: Timestamp,
    /// How far the clock was set ahead of the true time, or back.
    off_s: AtomicI64,
    /// Whether the kernel says that it follows a time server.
    synchronised: AtomicBool,
    dice: Mutex<Dice>,
}

impl SeededAmbient {
    /// Starts the clock.
    pub fn new(unix: u64, seed: u64) -> Self {
        let base = i64::try_from(unix).ok().and_then(|unix| Timestamp::from_second(unix).ok());
        let base = base.unwrap_or(Timestamp::UNIX_EPOCH);
        let off_s = AtomicI64::new(0);
        let synchronised = AtomicBool::new(false);
        Self { began: Instant::now(), base, off_s, synchronised, dice: Mutex::new(Dice::new(seed)) }
    }

    /// Sets the clock so many seconds ahead of the true time, or behind it.
    pub fn set_off(&self, by_s: i64) {
        self.off_s.store(by_s, Ordering::Relaxed);
    }

    /// The kernel follows a time server from now on.
    pub fn synchronise(&self) {
        self.synchronised.store(true, Ordering::Relaxed);
    }

    /// How far the clock is ahead of the true time, or behind it, in seconds.
    pub fn off_s(&self) -> i64 {
        self.off_s.load(Ordering::Relaxed)
    }

    /// The true time, whatever the clock says.
    pub fn true_now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.began.elapsed()).unwrap_or(SignedDuration::ZERO);
        self.base.saturating_add(since).unwrap_or(self.base)
    }

    /// The next random number.
    pub fn next(&self) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).any()
    }
}

impl Ambient for SeededAmbient {
    fn now(&self) -> Timestamp {
        let off = SignedDuration::from_secs(self.off_s.load(Ordering::Relaxed));
        self.true_now().saturating_add(off).unwrap_or(self.base)
    }

    fn synchronised(&self) -> bool {
        self.synchronised.load(Ordering::Relaxed)
    }

    fn random(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
