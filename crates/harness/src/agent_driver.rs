//! The agent's daemon in a run: takes commands, drives the engine, and keeps what it is told for the run
//! to see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_agent::ambient::Ambient;
use evenkeel_agent::authority::Authority;
use evenkeel_agent::engine::{
    AnchorState, Engine, EngineEvent, Fatal, OpReport, PassCause, PassError, Submitted,
};
use evenkeel_agent::hub_link::picture::HostPicture;
use evenkeel_agent::hub_link::store::DocumentStore;
use evenkeel_agent::hub_link::{
    DeskNews, DeskRequest, DocumentReader, HubDesk, HubLink, LinkIdentity, LinkView,
};
use evenkeel_agent::journal::Record;
use evenkeel_agent::sometimes;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::fleet::{DocumentFloor, ManifestHash};
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::{OpEvent, OpRecord, Resolution};
use evenkeel_core::plan::Plan;
use evenkeel_core::sign::TrustedSigners;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::cluster_story::ClusterLook;
use crate::linked::DocumentShelf;
use crate::model_hub::{ModelHub, hub_id};
use crate::oracle::Oracle;
use crate::rig::Rig;
use crate::scene::GuestModes;

/// What the daemon is told to do.
#[derive(Debug)]
pub(crate) enum DriverCommand {
    /// A pass is due.
    Pass,
    /// The cluster file system is looked at; a pass follows about what changed.
    Look,
    /// A person wants a pass, and wants everything to be tried.
    AskedPass,
    /// A person wants what failed on a guest to be tried at once.
    Retry(GuestId),
    /// An operator closes an operation of unknown outcome.
    Resolve(OperationId),
    /// Somebody hands in an envelope; the number is the run's.
    Deliver(usize, Arc<str>),
    /// Somebody asks for an act that nobody declared.
    Ask(ActionKind, GuestId, BTreeMap<String, String>),
    /// SIGTERM, with so much time.
    ShutDown(Duration),
}

/// What the run and the agent share; so do clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentDriver(Arc<Mutex<DriverState>>);

#[derive(Debug, Default)]
struct DriverState {
    /// Who must hear of what people ask.
    oracle: Oracle,
    desired: Arc<Desired>,
    /// What the last pass about everything was about.
    passed_with: Option<Arc<Desired>>,
    modes: GuestModes,
    /// The plan of the last pass about everything; none if it could not read the node.
    plan: Option<Plan>,
    idle: bool,
    unknown: BTreeSet<OperationId>,
    reports: Vec<OpReport>,
    sleep_first: Duration,
    /// Root's trust file, if the host has one.
    founders: Option<TrustedSigners>,
    /// What was said to each envelope.
    answers: Vec<(usize, Submitted)>,
    /// Why the signers could not be read from the journal.
    trouble: Option<String>,
    /// The hub, and where its documents are kept.
    linked: Option<(ModelHub, Arc<DocumentShelf>)>,
    /// How the link to it stands.
    link_view: LinkView,
    /// The manifest of the document that passes are about.
    in_effect: Option<ManifestHash>,
    /// Whether root enrols the host again before the next life.
    enrols_again: bool,
    /// How long the longest pass took, from its look until its actions were in their lanes.
    longest_pass: Duration,
}

impl AgentDriver {
    pub(crate) fn watched_by(oracle: Oracle) -> Self {
        Self(Arc::new(Mutex::new(DriverState { oracle, ..DriverState::default() })))
    }

    fn oracle(&self) -> Oracle {
        self.papers().oracle.clone()
    }

    pub(crate) fn want(&self, desired: Desired, modes: GuestModes) {
        let mut papers = self.papers();
        (papers.desired, papers.modes) = (Arc::new(desired), modes);
    }

    /// From now on documents come from a hub.
    pub(crate) fn link(&self, hub: ModelHub, shelf: Arc<DocumentShelf>) {
        self.papers().linked = Some((hub, shelf));
    }

    /// Whether the host took no document because it cannot trust its clock: somebody must set that right, and sign for it.
    pub(crate) fn doubts_its_clock(&self) -> bool {
        let refused = self.papers().link_view.health().refused;
        refused.is_some_and(|refused| refused.code == ReasonCode::Clock.as_str())
    }

    pub(crate) fn born(&self) {
        let mut papers = self.papers();
        (papers.plan, papers.idle) = (None, false);
        papers.unknown.clear();
        papers.reports.clear();
    }

    /// Root installs a trust file.
    pub(crate) fn trust(&self, founders: TrustedSigners) {
        self.papers().founders = Some(founders);
    }

    /// What was said to the envelopes handed in, taken.
    pub(crate) fn take_answers(&self) -> Vec<(usize, Submitted)> {
        std::mem::take(&mut self.papers().answers)
    }

    /// Why a life could not read its signers, taken.
    pub(crate) fn take_trouble(&self) -> Option<String> {
        self.papers().trouble.take()
    }

    /// Root enrols the host again before the next life.
    pub(crate) fn enrol_again(&self) {
        self.papers().enrols_again = true;
    }

    /// The next life begins only after a while.
    pub(crate) fn sleep_first(&self, time: Duration) {
        self.papers().sleep_first = time;
    }

    /// The last pass's plan, taken.
    pub(crate) fn take_plan(&self) -> Option<Plan> {
        self.papers().plan.take()
    }

    /// How long the longest pass since the last question took.
    pub(crate) fn take_longest_pass(&self) -> Duration {
        std::mem::take(&mut self.papers().longest_pass)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.papers().idle
    }

    pub(crate) fn unknown(&self) -> BTreeSet<OperationId> {
        self.papers().unknown.clone()
    }

    /// What the engine reported of actions that ended after the first so many.
    pub(crate) fn reports_after(&self, first: usize) -> Vec<OpReport> {
        self.papers().reports.iter().skip(first).cloned().collect()
    }

    /// What the engine reported of ended actions, taken.
    pub(crate) fn take_reports(&self) -> Vec<OpReport> {
        std::mem::take(&mut self.papers().reports)
    }

    /// Drives the engine until it is told to stop or must end.
    pub(crate) async fn work(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        commands: &mut UnboundedReceiver<DriverCommand>,
    ) -> Result<(), Fatal> {
        let first = std::mem::take(&mut self.papers().sleep_first);
        tokio::time::sleep(first).await;
        self.read_signers(engine, rig).await?;
        let linked = self.papers().linked.clone();
        let Some((hub, shelf)) = linked else {
            return self.serve(engine, rig, commands, &mut None).await;
        };
        let (mut side, link) = self.open_link(engine, rig, hub, shelf).await?;
        let link = async {
            if let Some(link) = link {
                link.run().await;
            }
            std::future::pending::<()>().await;
        };
        // Beside the loop, as in the daemon: neither waits for the other.
        tokio::select! {
            biased;
            ended = self.serve(engine, rig, commands, &mut side) => ended,
            () = link => Ok(()),
        }
    }

    async fn serve(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        commands: &mut UnboundedReceiver<DriverCommand>,
        side: &mut Option<LinkedSide>,
    ) -> Result<(), Fatal> {
        let mut cluster = ClusterLook::of(rig);
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(DriverCommand::ShutDown(within)) => {
                        self.oracle().stopped(rig.node.with(|sim| sim.now_ms()));
                        engine.shut_down(within).await?;
                        return Ok(());
                    }
                    Some(DriverCommand::Look) => self.look(engine, rig, &mut cluster).await?,
                    Some(command) => self.carry_out(engine, rig, command).await?,
                    None => return Ok(()),
                },
                request = next_request(side) => {
                    if let Some(side) = side
                        && let DeskNews::Desired(new) = side.desk.take(engine, request).await?
                    {
                        self.took(engine, Some(new.desired)).await?;
                        self.pass(engine, rig, PassScope::Whole, PassCause::Schedule).await?;
                    }
                }
                event = engine.work() => self.hear(event?, side),
            }
            let unknown = engine.unknown().map(|(op, _)| op).collect();
            if engine.is_idle() {
                self.oracle().older_orders(false);
            }
            let mut papers = self.papers();
            (papers.idle, papers.unknown) = (engine.is_idle(), unknown);
        }
    }

    async fn carry_out(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        command: DriverCommand,
    ) -> Result<(), Fatal> {
        match command {
            DriverCommand::Pass => {
                self.pass(engine, rig, PassScope::Whole, PassCause::Schedule).await?;
            }
            DriverCommand::AskedPass => {
                self.pass(engine, rig, PassScope::Whole, PassCause::Person).await?;
                // Its actions are in their lanes now; what failed while it looked does not hold them.
                self.oracle().asked_to_try(None);
            }
            DriverCommand::Retry(guest) => {
                self.oracle().asked_to_try(Some(guest));
                if let Err(error) = engine.retry(guest.vmid, "somebody".to_owned()).await {
                    error.refusal()?;
                }
            }
            DriverCommand::Resolve(op) => resolve(engine, rig, op).await?,
            DriverCommand::Deliver(number, bytes) => {
                let said = engine.submit_approval(bytes.as_bytes()).await?;
                match &said {
                    Submitted::Accepted(_) => sometimes!("an approval goes into its lane"),
                    Submitted::Replay { .. } => sometimes!("an approval is a replay"),
                    Submitted::Rotated(_) => sometimes!("the signers are rotated"),
                    Submitted::Acknowledged(_) => sometimes!("a rollback is acknowledged"),
                    Submitted::Collected(_) => sometimes!("a signature is kept until more come"),
                    Submitted::Denied(_) => sometimes!("an item is denied"),
                    Submitted::Refused(_) => {}
                }
                self.papers().answers.push((number, said));
            }
            DriverCommand::Ask(op @ (ActionKind::Snapshot | ActionKind::Backup), guest, params) => {
                self.oracle().asked_for(op, guest);
                match engine.ask(op, guest, params).await {
                    Ok(_) => sometimes!("a snapshot or a backup is asked for"),
                    Err(error) => {
                        let refusal = error.refusal()?;
                        sometimes!("a request is refused on arrival", refusal.reason);
                    }
                }
            }
            DriverCommand::Ask(op, guest, params) => {
                // What is refused is not asked for again: whoever wants it looks at what waits.
                if let Err(error) = engine.request(op, guest, params).await {
                    error.refusal()?;
                }
            }
            // Taken by the loop itself.
            DriverCommand::Look | DriverCommand::ShutDown(_) => {}
        }
        Ok(())
    }

    /// The desk and the link of a host with a hub, as the daemon opens them.
    async fn open_link(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        hub: ModelHub,
        shelf: Arc<DocumentShelf>,
    ) -> Result<(Option<LinkedSide>, Option<HubLink>), Fatal> {
        let enrols_again = std::mem::take(&mut self.papers().enrols_again);
        let enrolled = match engine.floor().await? {
            None => Some(DocumentFloor::enrolled(hub_id())),
            Some(floor) => enrols_again.then(|| floor.enrolled_again(hub_id())),
        };
        if let Some(floor) = enrolled
            && let Err(error) = engine.keep_floor(&floor).await
        {
            error.refusal()?;
        }
        let store = DocumentStore::on(shelf);
        let (desk, desired, _) = HubDesk::open_on(store, engine).await?;
        self.took(engine, desired.map(|taken| taken.desired)).await?;
        engine.set_anchor(AnchorState::Asking);
        let (requests, requested) = mpsc::channel(4);
        let side = Some(LinkedSide { desk, requested });
        let Some(bench) = rig.approvals.clone() else { return Ok((side, None)) };
        let instance = format!("{:016x}", rig.ambient.next());
        let link = HubLink {
            exchange: Arc::new(hub),
            identity: LinkIdentity {
                hub_id: hub_id(),
                host: Rig::host(),
                key: bench.host_key,
                instance: instance.parse().expect("sixteen digits name an instance"),
                vouch: bench.vouch,
            },
            journal: engine.journal().clone(),
            ambient: Arc::clone(&rig.ambient) as Arc<dyn Ambient>,
            desk: requests,
            reader: DocumentReader::in_place(),
            picture: Arc::new(HostPicture::default),
            view: self.papers().link_view.clone(),
            anchor: bench.anchor,
            history: None,
        };
        Ok((side, Some(link)))
    }

    /// A document holds from now on: exactly the one whose floor the journal keeps, or none if none was ever taken.
    async fn took(&self, engine: &Engine, desired: Option<Arc<Desired>>) -> Result<(), Fatal> {
        let document = engine.floor().await?.and_then(|floor| floor.in_effect().cloned());
        let manifest = document.as_ref().map(|document| document.manifest);
        let hub = self.papers().linked.as_ref().map(|(hub, _)| hub.clone());
        let known = hub.zip(manifest).and_then(|(hub, hash)| hub.forger(|all| all.known(hash)));
        let by = document.map(|document| document.declared_by());
        let meant = known.as_ref().zip(by).and_then(|(known, by)| known.files.load(by).ok());
        let is_it = match (&meant, &desired) {
            (Some(meant), Some(desired)) => meant.desired == **desired,
            (None, None) => manifest.is_none(),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_it {
            self.oracle().broke(format!("what holds is not the document {manifest:?}"));
        }
        let mut papers = self.papers();
        papers.desired = desired.unwrap_or_default();
        papers.modes = known.map(|known| known.modes).unwrap_or_default();
        papers.in_effect = manifest;
        Ok(())
    }

    /// Before a pass: what it is about is what the journal says was taken last.
    async fn is_last_good(&self, engine: &Engine) -> Result<(), Fatal> {
        if self.papers().linked.is_none() {
            return Ok(());
        }
        let manifest =
            engine.floor().await?.and_then(|floor| floor.base()).map(|base| base.manifest);
        if manifest != self.papers().in_effect {
            self.oracle().broke("a pass is not about the last good document".to_owned());
        }
        Ok(())
    }

    /// Who may sign, by root's file and the rotations in the journal, as every start reads it.
    async fn read_signers(&self, engine: &Engine, rig: &Rig) -> Result<(), Fatal> {
        let (Some(approvals), Some(founders)) = (&rig.approvals, self.papers().founders.clone())
        else {
            return Ok(());
        };
        let host = approvals.authority.read().await.host().clone();
        let rules = approvals.policy.approve.clone();
        let slot = Arc::new(Mutex::new(None));
        let found = "trust.toml".to_owned();
        let into = Arc::clone(&slot);
        let read = engine.keep_due(move |state| {
            let read = Authority::on(founders, found, host, state);
            let read = read.map(|authority| authority.with_rules(&rules));
            *into.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
            Vec::new()
        });
        read.await?;
        let read = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        match read {
            Some(Ok(authority)) => *approvals.authority.write().await = authority,
            Some(Err(error)) => self.papers().trouble = Some(error.to_string()),
            None => {}
        }
        Ok(())
    }

    /// What the daemon does each second: a pass about what changed, if anything did.
    async fn look(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        cluster: &mut Option<ClusterLook>,
    ) -> Result<(), Fatal> {
        let desired = Arc::clone(&self.papers().desired);
        let Some(cluster) = cluster else { return Ok(()) };
        let Some(scope) = cluster.look(&desired).await else { return Ok(()) };
        let now_ms = rig.node.with(|sim| sim.now_ms());
        self.oracle().tell(now_ms, || format!("woken for {scope:?}"));
        self.pass(engine, rig, scope, PassCause::Schedule).await
    }

    async fn pass(
        &self,
        engine: &mut Engine,
        rig: &Rig,
        scope: PassScope,
        cause: PassCause,
    ) -> Result<(), Fatal> {
        self.is_last_good(engine).await?;
        let desired = Arc::clone(&self.papers().desired);
        let was_idle = engine.is_idle();
        let modes = self.papers().modes.clone();
        let now_ms = rig.node.with(|sim| sim.now_ms());
        // From here on the agent knows them.
        self.oracle().modes(now_ms, modes);
        // What another declaration asks for is another thing, and nothing that failed holds it. Lanes go on with the old
        // one while the node is read.
        let is_whole = scope == PassScope::Whole;
        let same = self.papers().passed_with.clone();
        if is_whole {
            self.papers().passed_with = Some(Arc::clone(&desired));
        }
        if !same.is_some_and(|same| Arc::ptr_eq(&same, &desired)) {
            self.oracle().asked_to_try(None);
            if !was_idle {
                self.oracle().older_orders(true);
            }
        }
        let began = tokio::time::Instant::now();
        let passed = match engine.look(&desired, scope, cause).await {
            Ok(preview) => engine.submit(&desired, preview).await.map_err(PassError::Fatal),
            Err(error) => Err(error),
        };
        let plan = match passed {
            Ok(pass) => Some(pass.plan),
            Err(PassError::Fatal(fatal)) => return Err(fatal),
            Err(PassError::Actual(_)) => None,
        };
        let longest = self.papers().longest_pass.max(began.elapsed());
        self.papers().longest_pass = longest;
        // What a pass about a few guests planned says nothing of the others.
        if is_whole {
            self.papers().plan = plan;
        }
        Ok(())
    }

    fn hear(&self, event: EngineEvent, side: &mut Option<LinkedSide>) {
        match event {
            EngineEvent::Op(report) => {
                if let Some(side) = side {
                    side.desk.ended(&report);
                }
                self.papers().reports.push(*report);
            }
            EngineEvent::Settled(_) | EngineEvent::Pass { .. } => {}
        }
    }

    fn papers(&self) -> MutexGuard<'_, DriverState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the loop has of a hub.
struct LinkedSide {
    desk: HubDesk,
    requested: mpsc::Receiver<DeskRequest>,
}

/// The next thing that the link brings; never anything without one.
async fn next_request(side: &mut Option<LinkedSide>) -> DeskRequest {
    if let Some(side) = side
        && let Some(request) = side.requested.recv().await
    {
        return request;
    }
    std::future::pending().await
}

/// What `evenkeel journal resolve OP --as failed` does in a running agent.
async fn resolve(engine: &mut Engine, rig: &Rig, op: OperationId) -> Result<(), Fatal> {
    let handle = rig.journal.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(handle) = handle else { return Ok(()) };
    let event = OpEvent::Resolved { outcome: Resolution::Failed };
    match handle.append(Record::op(OpRecord { op, event })).await {
        Ok(_) => engine.release(op),
        Err(error) if error.is_fatal() => Err(Fatal::Journal(error)),
        // Evidence was faster.
        Err(_) => Ok(()),
    }
}
