//! `evenkeel selftest --guest GUEST`: everything a change depends on, tried on one guest, and a report to send with a bug.
//!
//! ```text
//!   write a line ──> a write that must be refused ──> as it was ──> backup: lock seen, engine dropped ──> taken up ──> compare
//! ```
//!
//! Every change is a pass, or an act somebody asks for, of the same engine that `apply` uses: judged in the guest's lane and
//! in the journal. The write that must be refused is one that was judged, too; on its way to the wire its digest is made
//! stale, so that it can only become a refusal ([`StaleOnce`]). Where the node takes it all the same, that is the finding,
//! and what was written is put back. No lock is set and no task started for its own sake, because evenkeel has no way to do
//! either: a backup brings both, and its archive stays, because evenkeel never removes one. One that is over before anybody
//! could look has shown neither, which is said and no failure. The report names no server, no token, and no guest but by its
//! number. Root goes on as the owner of the state directory, so that the journal stays the agent's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_agent::ambient::{Ambient, Machine};
use evenkeel_agent::engine::{Engine, EngineError, EngineEvent, OpOutcome};
use evenkeel_agent::journal::JournalState;
use evenkeel_agent::observe::observe_guest;
use evenkeel_agent::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpRequest};
use evenkeel_agent::pve::wait::WaitOutcome;
use evenkeel_agent::pve::{TaskFilter, TaskSource};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::Guest;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::{GuestId, OperationId};
use evenkeel_core::operate::operation::{OpState, StorageName, Upid};
use tokio::time::Instant;

use super::apply::{recover, start};
use super::doctor::findings::Findings;
use super::doctor::write::{declared, description, eprintln_quietly, find, not_opened, one_pass};
use crate::agent_user::become_owner;
use crate::cli::{OutputFormat, SelftestArgs};
use crate::connect::{Connection, ConnectionParts, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::SelftestFormat;
use crate::terminal;

/// What is written: letters that are easily lost on the way.
const LINE: &str = "evenkeel selftest: ümläut, 100 % = # : \"quoted\". If you still read this a minute later, remove this line.";

/// How long a backup may take until it is left alone; the operation stays in the journal.
const BACKUP_PATIENCE: Duration = Duration::from_mins(15);

/// How long the journal may take to be let go of by the engine that went away.
const JOURNAL_PATIENCE: Duration = Duration::from_mins(1);

/// What is said of something that a small guest does not show.
const TOO_QUICK: &str = "too quick to see";

/// And what to do about that.
const TRY_A_LARGER_ONE: &str = "a guest with more in it shows it";

/// How often is looked whether the backup's task runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(crate) async fn run(arguments: &SelftestArgs) -> Result<Exit, CommandFailure> {
    let stale = Arc::new(StaleWrite::default());
    let write = stale.clone();
    let through = |inner| Arc::new(StaleOnce { inner, write }) as Arc<dyn Exchange>;
    let parts = ConnectionParts::read(&arguments.connect)?;
    let state = state_dir(arguments.state.as_deref(), &parts.config);
    if let Some(user) = become_owner(state.path())? {
        let directory = state.path().display();
        eprintln_quietly(&format!("root goes on as user {user}, who owns {directory}"));
    }
    let connection = parts.connect(through).await?;
    let proxmox = connection.client.version().await?.version;
    let before = find(&connection, &arguments.guest).await?;
    let id = before.id;
    if !arguments.yes && !asked(id)? {
        return Ok(Exit::Ok);
    }
    let mut findings = Findings::default();
    findings
        .ok("about", format!("evenkeel {}, Proxmox VE {proxmox}, {id}", env!("CARGO_PKG_VERSION")));
    let trial = GuestTrial { connection: &connection, state: &state, id, stale };
    let steps = trial.run(&before, arguments.storage.as_ref(), &mut findings);
    let ended = Box::pin(to_the_end(steps)).await;
    if let Err(failure) = &ended {
        let next = failure
            .hint
            .clone()
            .unwrap_or_else(|| "`evenkeel journal` has the operation".to_owned());
        findings.fail("stopped", &failure.message, &next);
    }
    match arguments.output.output {
        OutputFormat::Table => findings.tell(OutputFormat::Table)?,
        OutputFormat::Json => format::print(&SelftestFormat {
            format_version: 1,
            evenkeel: env!("CARGO_PKG_VERSION"),
            proxmox,
            guest: id.to_string(),
            findings: findings.as_format(),
        })?,
    }
    Ok(findings.exit())
}

/// Half-way is the one place not to stop at; each request has its own time limit.
async fn to_the_end<T>(steps: impl Future<Output = T>) -> T {
    tokio::pin!(steps);
    loop {
        tokio::select! {
            ended = &mut steps => return ended,
            _ = tokio::signal::ctrl_c() => eprintln_quietly("the guest is put back first"),
        }
    }
}

fn asked(id: GuestId) -> Result<bool, CommandFailure> {
    terminal::must_be_there("give -y to try it without being asked")?;
    terminal::agrees(&format!("Change the description of {id}, and put it back?"))
}

/// The write that is made stale, and what became of it.
#[derive(Default)]
struct StaleWrite {
    /// The next write that carries a digest is the one.
    armed: AtomicBool,
    answer: Mutex<StaleAnswer>,
}

/// What the node said to a write with a stale digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum StaleAnswer {
    /// None was sent, or no answer came.
    #[default]
    None,
    /// As it must.
    Refused,
    /// It was taken.
    Taken,
}

impl StaleWrite {
    fn answer(&self) -> StaleAnswer {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Between the client and the wire: one write gets a digest that no configuration has.
struct StaleOnce {
    inner: Arc<dyn Exchange>,
    write: Arc<StaleWrite>,
}

impl Exchange for StaleOnce {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        if request.is_read() || !self.write.armed.load(Ordering::SeqCst) {
            return self.inner.exchange(request);
        }
        let Some(stale) = request.clone().with_stale_digest() else {
            return self.inner.exchange(request);
        };
        self.write.armed.store(false, Ordering::SeqCst);
        Box::pin(async move {
            let outcome = self.inner.exchange(stale).await;
            let said = match &outcome {
                ExchangeOutcome::Answered(answer) if answer.status == 200 => StaleAnswer::Taken,
                ExchangeOutcome::Answered(_) => StaleAnswer::Refused,
                ExchangeOutcome::NotSent(_) | ExchangeOutcome::Unknown(_) => StaleAnswer::None,
            };
            *self.write.answer.lock().unwrap_or_else(PoisonError::into_inner) = said;
            outcome
        })
    }
}

/// What every step needs.
struct GuestTrial<'a> {
    connection: &'a Connection,
    state: &'a StateDir,
    id: GuestId,
    stale: Arc<StaleWrite>,
}

impl GuestTrial<'_> {
    /// All steps; whatever becomes of them, the description is put back.
    async fn run(
        &self,
        before: &Guest,
        storage: Option<&StorageName>,
        findings: &mut Findings,
    ) -> Result<(), CommandFailure> {
        if let Some(lock) = &before.lock {
            let message = format!("{} has the lock `{lock}`: somebody works on it", self.id);
            return Err(
                CommandFailure::new(Exit::Transient, message).hint("try again when that is over")
            );
        }
        let text = description(before)?;
        let mut engine = self.engine().await?;
        let written = self.writes(&mut engine, text.as_deref(), findings).await;
        let restored = one_pass(&mut engine, &declared(self.id, text.as_deref())?, self.id).await;
        written?;
        restored?;
        if let Some(storage) = storage {
            self.backs_up(engine, storage, findings).await?;
        } else {
            let what = "lock and task were not tried: a backup would show both";
            let next = "give --storage with a storage for backups; the archive stays there";
            findings.warn("task", what, next);
        }
        self.compare(before, findings).await
    }

    /// The engine, as every verb without an agent starts it.
    async fn engine(&self) -> Result<Engine, CommandFailure> {
        let ambient: Arc<dyn Ambient> = Arc::new(Machine);
        let journal = self.state.open_journal(&ambient).map_err(not_opened)?;
        let mut engine = start(self.connection, self.state, journal.handle, ambient).await?;
        recover(&mut engine).await?;
        Ok(engine)
    }

    async fn current(&self) -> Result<Option<String>, CommandFailure> {
        description(&find(self.connection, &GuestName::Id(self.id)).await?)
    }

    /// The description there and back, and a write that the node must refuse.
    async fn writes(
        &self,
        engine: &mut Engine,
        text: Option<&str>,
        findings: &mut Findings,
    ) -> Result<(), CommandFailure> {
        let began = Instant::now();
        let more = match text {
            Some(text) => format!("{}\n\n{LINE}", text.trim_end()),
            None => LINE.to_owned(),
        };
        one_pass(engine, &declared(self.id, Some(&more))?, self.id).await?;
        let now = self.current().await?;
        if now.as_deref().map(str::trim_end) == Some(more.as_str()) {
            let took = began.elapsed().as_millis();
            findings.ok(
                "write",
                format!("a description was written and read back letter by letter, in {took} ms"),
            );
        } else {
            let next = "send this report: the node stored something else than it was sent";
            findings.fail("write", "the description that was read back is another one", next);
        }

        self.stale.armed.store(true, Ordering::SeqCst);
        // The engine looks anew when it is refused, and then writes it: that is how it is meant to end.
        let other = format!("{more}\nA second line.");
        let written = one_pass(engine, &declared(self.id, Some(&other))?, self.id).await;
        self.stale.armed.store(false, Ordering::SeqCst);
        match (self.stale.answer(), written) {
            (StaleAnswer::Taken, _) => {
                let next = "evenkeel relies on it: two people's changes could overwrite each other; send this report";
                findings.fail("digest", "the node took a write with a stale digest", next);
            }
            (StaleAnswer::Refused, Ok(())) => {
                let what = "a write with a stale digest was refused by the node, and done upon a fresh look";
                findings.ok("digest", what.to_owned());
            }
            (StaleAnswer::Refused, Err(failure)) => {
                let what =
                    "a write with a stale digest was refused by the node; it was not tried again";
                findings.warn("digest", what, &failure.message);
            }
            (StaleAnswer::None, written) => {
                let why = written.err().map(|failure| failure.message).unwrap_or_default();
                let what = format!("no answer came to a write with a stale digest: {why}");
                findings.warn("digest", &what, "send this report");
            }
        }
        Ok(())
    }

    /// A backup: the lock that it brings is seen, the engine goes away in the middle, and the next one takes the task up.
    async fn backs_up(
        &self,
        mut engine: Engine,
        storage: &StorageName,
        findings: &mut Findings,
    ) -> Result<(), CommandFailure> {
        let params = BTreeMap::from([("storage".to_owned(), storage.to_string())]);
        let begun = engine.ask(ActionKind::Backup, self.id, params).await;
        let op = match begun.map_err(EngineError::refusal) {
            Ok(op) => op,
            Err(Ok(refusal)) => {
                let next = "name another storage, or see `evenkeel doctor` for the rights it takes";
                findings.warn("task", &format!("no backup was begun: {refusal}"), next);
                return Ok(());
            }
            Err(Err(fatal)) => return Err(fatal.into()),
        };
        let upid = match self.until_task(&mut engine, op).await? {
            SeenTask::Running(upid) => upid,
            SeenTask::Over(end) => {
                tell_unseen(&end, findings);
                return Ok(());
            }
        };
        let lock = observe_guest(&self.connection.client, self.id).await?.lock;
        // A moment in the past: it is looked at once.
        let task = self.connection.client.wait(&upid, Instant::now()).await?;
        match lock {
            Some(lock) => findings
                .ok("lock", format!("seen while the task runs: `{lock}`; it holds every write")),
            None if matches!(task, WaitOutcome::Ended(_)) => {
                findings.ok(
                    "lock",
                    format!("{TOO_QUICK}: the task was over before the lock was looked for"),
                );
                findings.advise(TRY_A_LARGER_ONE);
            }
            None => findings.warn("lock", "none was seen while the task runs", TRY_A_LARGER_ONE),
        }
        // What a crash does: nobody is told, and the journal is what is left.
        drop(engine);
        let mut engine = self.engine_again().await?;
        let deadline = Instant::now() + BACKUP_PATIENCE;
        while engine.is_settling() && Instant::now() < deadline {
            drop(engine.work().await?);
        }
        self.judge(&engine, op, &upid, storage, findings).await
    }

    /// How the operation ended, and that its task was started once.
    async fn judge(
        &self,
        engine: &Engine,
        op: OperationId,
        upid: &Upid,
        storage: &StorageName,
        findings: &mut Findings,
    ) -> Result<(), CommandFailure> {
        let known =
            move |state: &JournalState, _| state.ledger().get(op).map(|op| op.state.clone());
        let ended = engine.journal().read(known).await.ok().flatten();
        // Both stand in its name: what it does, and when it was started.
        let part =
            |upid: &Upid, at| upid.as_str().split(':').nth(at).unwrap_or_default().to_owned();
        let filter = TaskFilter {
            source: Some(TaskSource::All),
            vmid: Some(self.id.vmid),
            kind: Some(part(upid, 5)),
            limit: Some(50),
            ..TaskFilter::default()
        };
        let tasks = self.connection.client.tasks(&filter).await?.rows;
        let started = part(upid, 4);
        let since = tasks.iter().filter(|task| part(&task.upid, 4) >= started).count();
        match (ended, since) {
            (Some(OpState::Succeeded { .. }), 1) => {
                let what = "the agent went away in the middle of a task; the next one took it up and closed it";
                findings.ok("task", what.to_owned());
                findings.advise(&format!(
                    "the archive of this backup is on {storage}; remove it there if you do not want it"
                ));
            }
            (state, since) => {
                let state = state.map_or("not there", |state| state.as_str());
                let what = format!(
                    "after the agent went away its operation is {state}, and {since} tasks were started"
                );
                let next = "send this report with `evenkeel journal show` of the operation";
                findings.fail("task", &what, next);
            }
        }
        Ok(())
    }

    /// Waits until the operation's task runs, or is over.
    async fn until_task(
        &self,
        engine: &mut Engine,
        op: OperationId,
    ) -> Result<SeenTask, CommandFailure> {
        loop {
            tokio::select! {
                event = engine.work() => {
                    if let EngineEvent::Op(report) = event? && report.op == op {
                        return Ok(SeenTask::Over(report.end));
                    }
                }
                () = tokio::time::sleep(LOOK_EVERY) => {
                    let running = engine.in_flight().await?.into_iter().find(|running| running.id == op);
                    if let Some(OpState::TaskRunning { upid, .. }) = running.map(|running| running.state) {
                        return Ok(SeenTask::Running(upid));
                    }
                }
            }
        }
    }

    /// A second engine on the same journal, as soon as the first one's writer has let go of it.
    async fn engine_again(&self) -> Result<Engine, CommandFailure> {
        let deadline = Instant::now() + JOURNAL_PATIENCE;
        loop {
            match self.engine().await {
                Err(failure) if failure.exit == Exit::Transient && Instant::now() < deadline => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                ended => return ended,
            }
        }
    }

    /// Everything is as it was.
    async fn compare(&self, before: &Guest, findings: &mut Findings) -> Result<(), CommandFailure> {
        let after = find(self.connection, &GuestName::Id(self.id)).await?;
        let changed = changed_keys(before, &after);
        if changed.is_empty() && before.power == after.power && after.lock.is_none() {
            findings.ok("restored", "the guest is as it was, key by key".to_owned());
        } else {
            let keys = if changed.is_empty() {
                "its run state or lock".to_owned()
            } else {
                changed.join(", ")
            };
            let next = "somebody else may have changed it meanwhile; `evenkeel journal` has what was done here";
            findings.fail("restored", &format!("the guest is not as it was: {keys}"), next);
        }
        Ok(())
    }
}

/// What was seen of a task.
enum SeenTask {
    Running(Upid),
    Over(OpOutcome),
}

/// A backup that was over before anybody could look: it has shown nothing, unless it failed.
fn tell_unseen(end: &OpOutcome, findings: &mut Findings) {
    match end {
        OpOutcome::Succeeded { .. } | OpOutcome::Unneeded => {
            for subject in ["lock", "task"] {
                let what = format!("{TOO_QUICK}: the backup was over before it could be looked at");
                findings.ok(subject, what);
                findings.advise(TRY_A_LARGER_ONE);
            }
        }
        OpOutcome::Stale { why }
        | OpOutcome::Held { why, .. }
        | OpOutcome::Failed { why }
        | OpOutcome::Unknown { why } => {
            let next = "`evenkeel journal` has the operation; see `evenkeel doctor` for the rights it takes";
            findings.fail("task", &format!("the backup ended as {}: {why}", end.as_str()), next);
        }
        OpOutcome::Skipped => findings.warn("task", "the backup was not begun", "try again"),
    }
}

/// The keys whose stored text, in effect or waiting, is another one. Values are nobody's business in a report.
fn changed_keys(before: &Guest, after: &Guest) -> Vec<String> {
    let texts = |guest: &Guest| -> BTreeMap<String, String> {
        let fields = guest.config.as_ref().map(|config| config.fields.clone()).unwrap_or_default();
        fields
            .iter()
            .map(|field| {
                let current = field.current.as_ref().map(|value| value.text.trim_end().to_owned());
                (field.key.to_string(), format!("{current:?} {:?}", field.waiting))
            })
            .collect()
    };
    let before = texts(before);
    let after = texts(after);
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
}
