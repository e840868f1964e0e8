//! The queue: runs operations as core's lane table allows, and nothing else runs them (invariant 1).
//!
//! The engine submits one pass's actions of a guest and awaits [`Queue::next`] for what became of them. Every
//! operation is a future owned here: dropping the queue drops them all, as a crash would. An operation that
//! panics ends as unknown, because its request may have left, and keeps no other lane waiting.
//!
//! ```text
//!   submit ──> LaneTable ──Start──> running ──> next(): Ended · Skipped
//!                  ▲                   │
//!                  └── Turn: want / wrote (two requests at a time) ──┘
//! ```

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_core::model::id::{OperationId, VmId};
use evenkeel_core::operate::lane::{
    Job, LaneBusy, LaneEffect, LaneError, LaneEvent, LaneOutcome, LaneRefusal, LaneTable,
};
use evenkeel_core::operate::operation::UnixSeconds;
use futures_util::future::{BoxFuture, CatchUnwind, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot, watch};

/// What an operation does once it is its turn. Making the future must not do anything yet: only running it is
/// guarded against panics. It ends with what the lane must know, and what the engine wants to know.
pub type LaneWork<R> = Box<dyn FnOnce(Turn) -> BoxFuture<'static, (LaneOutcome, R)> + Send>;

/// What became of a submitted operation.
#[derive(Debug)]
pub enum JobEvent<R> {
    /// It ran to its end.
    Ended {
        /// Which.
        op: OperationId,
        /// How it ended.
        result: R,
    },
    /// It panicked; its lane is held, because what it sent is not known.
    Panicked {
        /// Which.
        op: OperationId,
        /// What the panic said.
        message: String,
    },
    /// It was not run: an action before it failed, or the agent goes down.
    Skipped(OperationId),
}

/// Why no work was taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError {
    /// The lane is at work, full or shut; nothing was changed.
    #[error("{0:?}")]
    Refused(LaneRefusal),
    /// The table is in disorder.
    #[error(transparent)]
    Lanes(#[from] LaneError),
}

impl SubmitError {
    /// The refusal; disorder stays an error.
    pub fn refusal(self) -> Result<LaneRefusal, LaneError> {
        match self {
            Self::Refused(refusal) => Ok(refusal),
            Self::Lanes(error) => Err(error),
        }
    }
}

/// An operation under way. It ends with what a panic said, if it panicked.
struct RunningJob<R> {
    op: OperationId,
    future: CatchUnwind<AssertUnwindSafe<BoxFuture<'static, (LaneOutcome, R)>>>,
}

impl<R> Future for RunningJob<R> {
    type Output = (OperationId, Result<(LaneOutcome, R), JobPanic>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let op = self.op;
        let ended = self.future.poll_unpin(context);
        ended.map(|ended| (op, ended.map_err(|panic| JobPanic::of(panic.as_ref()))))
    }
}

/// Where the time comes from.
pub type Now = Arc<dyn Fn() -> UnixSeconds + Send + Sync>;

/// Lanes at work.
pub struct Queue<R> {
    table: LaneTable,
    now: Now,
    waiting: BTreeMap<OperationId, LaneWork<R>>,
    running: FuturesUnordered<RunningJob<R>>,
    asked: mpsc::UnboundedReceiver<Ask>,
    asking: mpsc::UnboundedSender<Ask>,
    granting: BTreeMap<OperationId, oneshot::Sender<TurnGrant>>,
    /// Who is being answered: a turn that is given now was free.
    answering: Option<OperationId>,
    stopping: watch::Sender<bool>,
    told: VecDeque<JobEvent<R>>,
}

impl<R: Send + 'static> Queue<R> {
    /// A queue with nothing in it.
    pub fn new(table: LaneTable, now: Now) -> Self {
        // Bounded by what runs: an operation asks, and waits for the answer.
        let (asking, asked) = mpsc::unbounded_channel();
        Self {
            table,
            now,
            waiting: BTreeMap::new(),
            running: FuturesUnordered::new(),
            asked,
            asking,
            granting: BTreeMap::new(),
            answering: None,
            stopping: watch::Sender::new(false),
            told: VecDeque::new(),
        }
    }

    /// Takes one pass's actions of one guest, in order, or refuses them all.
    pub fn submit(&mut self, vmid: VmId, jobs: Vec<(Job, LaneWork<R>)>) -> Result<(), SubmitError> {
        let named = |(job, work): (Job, LaneWork<R>)| {
            let op = job.op;
            (job, (op, work))
        };
        let (jobs, work): (Vec<Job>, Vec<(OperationId, LaneWork<R>)>) =
            jobs.into_iter().map(named).unzip();
        let effects = self.table.step(LaneEvent::Submit { vmid, jobs }, (self.now)())?;
        if let [LaneEffect::Refuse { refusal, .. }] = effects.as_slice() {
            return Err(SubmitError::Refused(refusal.clone()));
        }
        self.waiting.extend(work);
        self.carry_out(effects);
        Ok(())
    }

    /// Shuts the lanes of an operation that was in flight when the agent ended.
    pub fn hold(&mut self, job: Job) -> Result<(), LaneError> {
        self.step(LaneEvent::Hold(job))
    }

    /// Opens them again.
    pub fn release(&mut self, op: OperationId) -> Result<(), LaneError> {
        self.step(LaneEvent::Release(op))
    }

    /// Takes no more work, starts nothing that waits and lets nothing more be sent; what was sent is still awaited.
    pub fn shut_down(&mut self) -> Result<(), LaneError> {
        self.stopping.send_replace(true);
        self.step(LaneEvent::Shutdown)
    }

    /// What a guest is busy with.
    pub fn busy(&self, vmid: VmId) -> Option<LaneBusy> {
        self.table.busy(vmid)
    }

    /// What every guest whose lane is at work is busy with.
    pub fn all_busy(&self) -> Vec<(VmId, LaneBusy)> {
        self.table.all_busy()
    }

    /// How many operations run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The next thing that became of an operation; none when nothing runs. Dropping the future loses nothing:
    /// what has ended stays in the queue until it is told.
    pub async fn next(&mut self) -> Result<Option<JobEvent<R>>, LaneError> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Ok(Some(event));
            }
            if self.running.is_empty() {
                return Ok(None);
            }
            // Both only take out what is ready; the one that was not stays as it was. An end is looked for
            // first, because it hears what was asked before it anyhow.
            tokio::select! {
                biased;
                Some((op, ended)) = self.running.next() => self.ended(op, ended)?,
                Some(ask) = self.asked.recv() => self.answer(ask)?,
            }
        }
    }

    fn ended(
        &mut self,
        op: OperationId,
        ended: Result<(LaneOutcome, R), JobPanic>,
    ) -> Result<(), LaneError> {
        // It gave its turn back before it ended; the table must hear that first.
        while let Ok(ask) = self.asked.try_recv() {
            self.answer(ask)?;
        }
        let (outcome, event) = match ended {
            Ok((outcome, result)) => (outcome, JobEvent::Ended { op, result }),
            Err(JobPanic { message }) => (LaneOutcome::Unknown, JobEvent::Panicked { op, message }),
        };
        self.told.push_back(event);
        self.step(LaneEvent::Finish { op, outcome })
    }

    fn answer(&mut self, ask: Ask) -> Result<(), LaneError> {
        match ask {
            Ask::Want(op, granted) => {
                self.granting.insert(op, granted);
                self.answering = Some(op);
                let stepped = self.step(LaneEvent::WantWrite(op));
                self.answering = None;
                stepped
            }
            Ask::Wrote(op) => self.step(LaneEvent::Wrote(op)),
        }
    }

    fn step(&mut self, event: LaneEvent) -> Result<(), LaneError> {
        let effects = self.table.step(event, (self.now)())?;
        self.carry_out(effects);
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<LaneEffect>) {
        for effect in effects {
            match effect {
                LaneEffect::Start(op) => self.start(op),
                LaneEffect::Write(op) => {
                    if let Some(granted) = self.granting.remove(&op) {
                        // Whoever asked may have ended meanwhile; its turn comes back with it.
                        let _ = granted.send(TurnGrant { at_once: self.answering == Some(op) });
                    }
                }
                // Whoever waits for the turn sees that nobody can give it any more.
                LaneEffect::Deny(op) => drop(self.granting.remove(&op)),
                LaneEffect::Skip(op) => {
                    self.waiting.remove(&op);
                    self.told.push_back(JobEvent::Skipped(op));
                }
                // Only a submission is refused, and it looks for itself.
                LaneEffect::Refuse { .. } => {}
            }
        }
    }

    fn start(&mut self, op: OperationId) {
        let work = self.waiting.remove(&op).expect("the table starts only what was submitted");
        let turn = Turn { op, asking: self.asking.clone(), stopping: self.stopping.subscribe() };
        let future = AssertUnwindSafe(work(turn)).catch_unwind();
        self.running.push(RunningJob { op, future });
    }
}

/// What an operation said when it panicked.
struct JobPanic {
    message: String,
}

impl JobPanic {
    fn of(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self { message: text.unwrap_or_else(|| "a panic".to_owned()) }
    }
}

enum Ask {
    Want(OperationId, oneshot::Sender<TurnGrant>),
    Wrote(OperationId),
}

/// A turn that is given.
#[derive(Debug)]
struct TurnGrant {
    /// Nobody had to be waited for.
    at_once: bool,
}

/// An operation's way to its turn to send a request: a node has three processes for those, and all three stuck
/// would stall it.
#[derive(Debug)]
pub struct Turn {
    op: OperationId,
    asking: mpsc::UnboundedSender<Ask>,
    stopping: watch::Receiver<bool>,
}

impl Turn {
    /// Waits for the turn; it lasts until the permit is dropped. None when the queue shuts down or is gone: then the
    /// operation must send nothing.
    pub async fn take(&mut self) -> Option<Permit<'_>> {
        let (grant, granted) = oneshot::channel();
        self.asking.send(Ask::Want(self.op, grant)).ok()?;
        let TurnGrant { at_once } = granted.await.ok()?;
        Some(Permit { turn: self, at_once })
    }

    /// Lets time pass, but not beyond a shutdown.
    pub(crate) async fn pause(&mut self, duration: Duration) {
        // Gone or shutting down is the same: there is nothing to wait for.
        let stopping = async { drop(self.stopping.wait_for(|stopping| *stopping).await) };
        tokio::select! {
            () = stopping => {}
            () = tokio::time::sleep(duration) => {}
        }
    }
}

/// The turn itself.
#[derive(Debug)]
pub struct Permit<'a> {
    turn: &'a Turn,
    at_once: bool,
}

impl Permit<'_> {
    /// Whether the turn was free when it was asked for. Otherwise time has passed, and what was read before is old.
    pub(crate) fn was_free(&self) -> bool {
        self.at_once
    }

    /// Whether a shutdown came since the turn was given: what has not been sent by then must not be.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.turn.stopping.borrow()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        // A queue that is gone counts no turns.
        let _ = self.turn.asking.send(Ask::Wrote(self.turn.op));
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Want(op, _) => write!(f, "want {op}"),
            Self::Wrote(op) => write!(f, "wrote {op}"),
        }
    }
}

#[cfg(test)]
mod tests;
