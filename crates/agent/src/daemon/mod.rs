//! The running agent: passes and work for ever, until it is told to end.
//!
//! ```text
//!                 ┌────────────── lanes: what became of operations
//!   interval ─────┤
//!   files change ─┤
//!   guests change ┤
//!   SIGHUP ───────┼──> the loop ──> pass: desired, look, submit ──> status, metrics, log
//!   SIGTERM ──────┤        │                        └── beside the loop: nobody waits for it
//!   socket ───────┘        └── journal broken: the process ends at once, nothing more is sent
//! ```
//!
//! `evenkeel run` calls [`run`]. One task owns the engine and everything it decides by; clients of the socket and
//! scrapers of the metrics have tasks of their own that end with it and can only read the shared status or ask the loop. A
//! pass never waits for lanes, no command waits for the look of a pass, and nothing waits for a client.

pub mod approvals;
mod bearer;
pub mod client;
pub mod cluster_watch;
mod commands;
mod declared;
mod hub;
mod inputs;
mod log;
mod looking;
mod metrics;
mod pass;
pub mod protocol;
mod schedule;
mod scrape;
mod shared_status;
mod socket;
pub mod status;
pub mod systemd;
mod watch;

pub(crate) use declared::places;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_core::desired::ReconcileMode;
use evenkeel_core::model::id::{NodeName, OperationId};
use evenkeel_core::operate::lane::LaneLimits;
use evenkeel_core::operate::operation::Upid;
use evenkeel_core::plan::SealKey;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use approvals::AnswerUnderWay;
use bearer::BearerToken;
use cluster_watch::{NodeWatch, WakeLimits};
use declared::DeclaredFiles;
use hub::HubSide;
use inputs::{LoopInput, LoopInputs};
use log::LogMemory;
use looking::LookState;
use metrics::{Counted, Metrics};
use pass::LoopTurn;
use protocol::SocketAnswer;
use schedule::Schedule;
use scrape::ScrapeService;
use shared_status::SharedStatus;
use socket::{Listener, SocketError, SocketService};
use status::{AgentStatus, DesiredStatus};
use systemd::Systemd;

use crate::ambient::Ambient;
use crate::cluster_files::ClusterFiles;
use crate::config::AgentConfig;
use crate::engine::{
    ApprovalContext, ApprovalContextError, Engine, EngineContext, Fatal, LogViewers, PassId,
    Progress,
};
use crate::hub_link::config::HubConfigError;
use crate::journal::JournalHandle;
use crate::pve::Client;
use crate::pve::exchange::Exchange;
use crate::secret_file::SecretFileError;
use crate::state_dir::{StateDir, StateError};

/// How long operations under way may go on after SIGTERM. It ends well before systemd's patience (90 s, 45 s in our
/// unit); what is not done then is in the journal, and the next start takes it up.
pub(crate) const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(20);

/// Commands that wait for the loop; more make their clients wait.
const COMMANDS_MAX: usize = 16;

/// Steps a client that follows a pass may lag behind before it misses some.
const PROGRESS_MAX: usize = 1_024;

/// What an agent is made of.
pub struct Setup {
    /// Its configuration.
    pub config: AgentConfig,
    /// Where that came from, to be read again.
    pub config_path: PathBuf,
    /// Its state directory.
    pub state: StateDir,
    /// The way to Proxmox VE.
    pub exchange: Arc<dyn Exchange>,
    /// The node it keeps.
    pub node: NodeName,
    /// Our token as tasks show it: `user@realm!token`.
    pub owner: String,
    /// What the secrets in a saved plan are sealed with.
    pub seal_key: SealKey,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// Where the node tells which configuration files were written, if it can be read.
    pub cluster_files: Option<Arc<dyn ClusterFiles>>,
    /// Its version, for status and metrics.
    pub version: &'static str,
}

/// Why an agent ended, other than because it was told to.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Nothing could be judged.
    #[error(transparent)]
    ApprovalContext(#[from] ApprovalContextError),
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Nobody could read the metrics.
    #[error("cannot listen at {address} for metrics")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The token of the metrics cannot be used.
    #[error("`token_file` under [metrics]: {0}")]
    MetricsToken(#[from] SecretFileError),
    /// Signals cannot be heard.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// The hub cannot be dialled as configured.
    #[error(transparent)]
    Hub(#[from] HubConfigError),
    /// The journal or the lanes are broken.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

/// Runs until SIGTERM or SIGINT, or until it must not go on.
pub async fn run(setup: Setup, systemd: Systemd) -> Result<(), DaemonError> {
    let journal = setup.state.open_journal(&setup.ambient)?.handle;
    let metrics = Arc::new(Metrics::new(setup.version));
    let (progress, _) = broadcast::channel(PROGRESS_MAX);
    let (commands, commanded) = mpsc::channel(COMMANDS_MAX);
    let mut inputs = LoopInputs::open(systemd, commanded).map_err(DaemonError::Signals)?;
    let shared_status =
        SharedStatus::new(first_status(&setup), setup.state.clone(), journal.clone());

    // Dropped before the engine: whoever still asks then is told that the agent goes down.
    let mut tasks = JoinSet::new();
    let log_viewers = LogViewers::default();
    let desk = SocketService {
        shared_status: shared_status.clone(),
        commands,
        progress: progress.clone(),
        log_viewers: log_viewers.clone(),
    };
    tasks.spawn(Listener::bind(&setup.state.socket())?.serve(desk));
    if let Some(address) = setup.config.metrics.listen {
        let token = setup.config.metrics.token_file.as_deref().map(BearerToken::from_file);
        let token = token.transpose()?;
        let listening = TcpListener::bind(address).await;
        let listener = listening.map_err(|source| DaemonError::Metrics { address, source })?;
        tracing::info!(address = ?listener.local_addr().ok(), "metrics");
        let metrics = Arc::clone(&metrics);
        let shared_status = shared_status.clone();
        tasks.spawn(scrape::serve(listener, ScrapeService { metrics, shared_status, token }));
    }
    if let Some(files) = setup.cluster_files.clone() {
        let (changes, changed) = mpsc::channel(1);
        let node = NodeWatch::new(files, setup.node.clone(), setup.owner.clone());
        tasks.spawn(cluster_watch::watch(node, changes));
        inputs.hear_cluster(changed);
    }
    let hub = hub::prepare(&setup.config)?;
    let mut agent =
        AgentLoop::start(setup, journal, shared_status, metrics, progress, log_viewers).await?;
    if let Some(hub) = hub {
        let link = agent.open_hub(hub, &mut inputs).await?;
        // Beside the loop: a hub that hangs delays no pass.
        if let Some(link) = link {
            tasks.spawn(link.run());
        }
    }
    let lived = match agent.begin(&mut inputs).await {
        LoopTurn::Continue(()) => agent.live(&mut inputs).await,
        LoopTurn::Break(()) => agent.stop(&mut inputs).await,
    };
    if lived.is_ok() {
        tracing::info!("stopped");
    }
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    Ok(lived?)
}

fn first_status(setup: &Setup) -> AgentStatus {
    AgentStatus {
        version: setup.version.to_owned(),
        pid: std::process::id(),
        host: setup.config.host_id.clone(),
        node: setup.node.clone(),
        since: setup.ambient.now(),
        desired: DesiredStatus::default(),
        configuration_trouble: None,
        node_trouble: None,
        last_pass: None,
        next_pass: None,
        in_sync: 0,
        guests: Vec::new(),
        queue_depth: 0,
        silent_storages: Vec::new(),
    }
}

/// The agent: what one task owns.
struct AgentLoop {
    engine: Engine,
    client: Client,
    ambient: Arc<dyn Ambient>,
    config: AgentConfig,
    config_path: PathBuf,
    declared: DeclaredFiles,
    schedule: Schedule,
    shared_status: SharedStatus,
    metrics: Arc<Metrics>,
    said: LogMemory,
    /// Who waits for the report of a pass.
    followers: BTreeMap<PassId, oneshot::Sender<SocketAnswer>>,
    /// Whether the host only observes, as the configuration says that was read last.
    observes: Arc<AtomicBool>,
    /// Its state directory.
    state: StateDir,
    /// What the secrets in a saved plan are sealed with.
    seal_key: SealKey,
    /// Who waits for which signed act.
    submitters: BTreeMap<OperationId, oneshot::Sender<SocketAnswer>>,
    /// The hub, if desired state comes from one.
    hub: Option<HubSide>,
    /// Who woke the loop by changes of its configuration, and how often.
    wakes: WakeLimits,
    /// The look at the node that is under way.
    looking: LookState,
    /// What clients of the socket asked for and the node is asked about.
    answering: FuturesUnordered<AnswerUnderWay>,
    /// Passes about chosen guests that have not ended: they say nothing of how the host as a whole stands.
    partial_passes: BTreeSet<PassId>,
}

impl AgentLoop {
    /// Takes up what the journal says is in flight; waits for nothing.
    async fn start(
        setup: Setup,
        journal: JournalHandle,
        shared_status: SharedStatus,
        metrics: Arc<Metrics>,
        progress: broadcast::Sender<Progress>,
        log_viewers: LogViewers,
    ) -> Result<Self, DaemonError> {
        let Setup { config, config_path, state, exchange, node, owner, seal_key, .. } = setup;
        let ambient = setup.ambient;
        let cluster_files = setup.cluster_files;
        let version = setup.version;
        let approvals =
            ApprovalContext::open(&config, &state, &node, &journal, ambient.as_ref()).await?;
        metrics.trust(approvals.authority.read().await.version());
        let client = Client::new(Arc::new(Counted::new(exchange, Arc::clone(&metrics))), node)
            .remembering_in(shared_status.storages());
        let frozen = state.clone();
        let observes = Arc::new(AtomicBool::new(config.policy.mode == ReconcileMode::Observe));
        let observes_now = Arc::clone(&observes);
        let context = EngineContext::new(client.clone(), journal, Arc::clone(&ambient), owner)
            .frozen_when(move || frozen.is_frozen())
            .observing_when(move || observes_now.load(Ordering::Relaxed))
            .approved_by(Some(approvals))
            .reading_secrets(config.secrets.store())
            .with_scratch(config.policy.scratch_vmids.clone())
            .remembering_by(cluster_files)
            .showing_logs_to(log_viewers)
            .telling(move |step| {
                log::progress(&step);
                // Nobody may be following, which is no error.
                let _ = progress.send(step);
            });
        let engine = Engine::start(context, LaneLimits::default()).await?;
        let in_flight = engine.unknown().count();
        tracing::info!(version, node = %client.node(), in_flight, "evenkeel runs");
        let interval = Duration::from_secs(config.interval);
        Ok(Self {
            engine,
            client,
            ambient,
            declared: DeclaredFiles::from(&config.desired),
            schedule: Schedule::new(interval, Instant::now()),
            config,
            config_path,
            shared_status,
            metrics,
            said: LogMemory::default(),
            followers: BTreeMap::new(),
            submitters: BTreeMap::new(),
            observes,
            hub: None,
            wakes: WakeLimits::default(),
            looking: LookState::default(),
            answering: FuturesUnordered::new(),
            partial_passes: BTreeSet::new(),
            state,
            seal_key,
        })
    }

    /// Reads what is declared for the first time, and says that the agent is there.
    async fn begin(&mut self, inputs: &mut LoopInputs) -> LoopTurn {
        inputs.watch(self.declared.directory());
        if self.read_desired(inputs).await.is_break() {
            return LoopTurn::Break(());
        }
        if self.declared.directory().is_none() && self.hub.is_none() {
            tracing::info!("nothing is declared: guests are not even looked at");
        }
        inputs.systemd.ready(&self.sentence());
        LoopTurn::Continue(())
    }

    /// The loop.
    async fn live(&mut self, inputs: &mut LoopInputs) -> Result<(), Fatal> {
        loop {
            // One look at a time.
            let due = self.looking.is_idle().then(|| self.schedule.due());
            // Dropping any of them loses nothing; each says so.
            tokio::select! {
                event = self.engine.work() => self.took(event?),
                news = self.looking.next() => {
                    if self.hear_look(news, inputs).await?.is_break() {
                        return self.stop(inputs).await;
                    }
                }
                Some(ready) = self.answering.next() => self.answered(ready)?,
                heard = inputs.hear(due) => match heard {
                    LoopInput::Due => {
                        if self.pass(inputs).await?.is_break() {
                            return self.stop(inputs).await;
                        }
                    }
                    LoopInput::Stop => return self.stop(inputs).await,
                    LoopInput::Reload => {
                        // It is in the log and in the status; a signal takes no answer.
                        if self.reload(inputs).await.is_none() {
                            return self.stop(inputs).await;
                        }
                    }
                    LoopInput::Hub(request) => self.take_from_hub(request).await?,
                    LoopInput::GuestsChanged(changed) => self.wake(changed),
                    LoopInput::FilesChanged => self.schedule.files_changed(Instant::now()),
                    LoopInput::Command(command) => {
                        if self.obey(command, inputs).await?.is_break() {
                            return self.stop(inputs).await;
                        }
                    }
                },
            }
            self.show();
        }
    }

    /// Begins nothing more, awaits what was sent until the deadline; a second signal ends it at once.
    async fn stop(&mut self, inputs: &mut LoopInputs) -> Result<(), Fatal> {
        inputs.systemd.stopping();
        self.looking.stop();
        let under_way = self.engine.queue_depth();
        tracing::info!(under_way, deadline = ?SHUTDOWN_DEADLINE, "stopping");
        tokio::select! {
            events = self.engine.shut_down(SHUTDOWN_DEADLINE) => {
                for event in events? {
                    self.took(event);
                }
            }
            () = inputs.stop() => tracing::warn!("stopped at once"),
        }
        for operation in self.engine.in_flight().await? {
            let op = operation.id;
            let guest = operation.intent.guest;
            let kind = operation.intent.kind;
            let task = operation.task.as_ref().map(Upid::as_str);
            tracing::warn!(%op, %guest, %kind, task, "still in flight; the next start takes it up");
        }
        Ok(())
    }

    /// Puts what changes with every turn into the shared status.
    fn show(&self) {
        let wait = self.schedule.due().saturating_duration_since(Instant::now());
        let wait = jiff::SignedDuration::try_from(wait).unwrap_or_default();
        let mut agent = self.shared_status.agent();
        agent.next_pass = self.ambient.now().saturating_add(wait).ok();
        agent.queue_depth = self.engine.queue_depth();
    }

    /// How it stands, for `systemctl status`.
    fn sentence(&self) -> String {
        let agent = self.shared_status.agent();
        let held: usize = agent.guests.iter().map(|guest| guest.held.len()).sum();
        let mut sentence = format!(
            "{} declared, {} as declared, {} not, {held} held",
            agent.desired.guests,
            agent.in_sync,
            agent.guests.len()
        );
        if agent.desired.trouble.is_some() || agent.configuration_trouble.is_some() {
            sentence.push_str("; files are broken, the last good ones hold");
        }
        if agent.node_trouble.is_some() {
            sentence.push_str("; Proxmox VE cannot be read");
        }
        sentence
    }
}
