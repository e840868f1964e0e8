//! Walks an act of several requests: each is durable before it is sent, and awaited before the next one.
//!
//! The act says what each request must see and what it sends; nothing here decides that. What cannot be awaited is left to
//! recovery's rules, and an act that ends before its last request has touched no data.

use std::time::Duration;

use evenkeel_core::actual::identity::identity;
use evenkeel_core::gate::destroy::{self, DestroyStep};
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{OpEvent, OpPhase, Upid};
use evenkeel_core::words::task_log::quoting;
use tokio::time::Instant;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::gate::cleared::Cleared;
use crate::engine::lane::progress::Progress;
use crate::engine::pass::report::OpOutcome;
use crate::engine::settle::{SettledBy, settle, why};
use crate::observe::observe_guest;
use crate::pve::error::Error;
use crate::pve::task::ExitStatus;
use crate::pve::wait::WaitOutcome;
use crate::pve::writes::Taken;
use crate::sometimes;

/// How long the guest may take to show what a request did.
const SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

pub(in crate::engine) const GOING_DOWN: &str = "evenkeel was told to stop";

pub(in crate::engine) const ANOTHER: &str = "another guest has the number now";

/// An act under way.
#[derive(Clone, Copy)]
pub(in crate::engine) struct StepWalk<'a> {
    pub(in crate::engine) context: &'a EngineContext,
    pub(in crate::engine) op: OperationId,
    pub(in crate::engine) cleared: &'a Cleared,
}

/// Why a request must not leave.
pub(in crate::engine) enum StepRefused {
    /// The act ends here.
    Because(String),
    /// The engine must end.
    Fatal(Fatal),
}

impl From<Fatal> for StepRefused {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

impl StepWalk<'_> {
    /// Makes the next request durable before it is sent.
    pub(in crate::engine) async fn begin_next(&self, request: OpPhase) -> Result<(), Fatal> {
        let sent_at = self.context.node_now();
        self.context.record(self.op, OpEvent::RequestStarted { request, sent_at }).await
    }

    /// Awaits a step until the guest is ready for the next request. An end means that nothing must follow.
    pub(in crate::engine) async fn ended(
        &self,
        answer: Result<Taken, Error>,
        step: &DestroyStep,
        next: OpPhase,
    ) -> Result<Option<OpOutcome>, Fatal> {
        match answer {
            Ok(Taken::Done) if step.must_end_well => {
                return self.abandon("Proxmox VE began no task for it").await.map(Some);
            }
            Ok(Taken::Done) => {}
            Ok(Taken::Task(upid)) => {
                if let Some(end) = self.task_ended(&upid, step).await? {
                    return Ok(Some(end));
                }
            }
            Err(Error::Unknown { .. }) => {
                sometimes!("the answer to a destroy's preparation was lost");
                return self.by_evidence().await.map(Some);
            }
            Err(error @ (Error::NotSent { .. } | Error::Refused(_))) => {
                sometimes!("a destroy's preparation was refused");
                return self.abandon(&error.to_string()).await.map(Some);
            }
        }
        match self.until(next).await {
            None => Ok(None),
            Some(why) => {
                sometimes!("a destroy's preparation did not show");
                self.abandon(&why).await.map(Some)
            }
        }
    }

    /// Awaits the task of a step. Where it must end well, anything else ends the act.
    async fn task_ended(
        &self,
        upid: &Upid,
        step: &DestroyStep,
    ) -> Result<Option<OpOutcome>, Fatal> {
        let running = OpEvent::TaskRunning { upid: upid.clone(), found: false };
        self.context.record(self.op, running).await?;
        if step.must_end_well {
            let guest = self.cleared.guest();
            self.context.tell(Progress::Task { op: self.op, guest, upid: upid.clone() });
        }
        match self.end_of(upid, step.task_max).await {
            None => self.by_evidence().await.map(Some),
            Some(ExitStatus::Ok) => Ok(None),
            Some(exit) if step.must_end_well => {
                let step = step.request.as_str();
                let why = format!("the {step} did not end well ({exit}); its task log says more");
                let why = quoting(&why, &self.context.telling_lines(&exit, upid).await);
                self.abandon(&why).await.map(Some)
            }
            // The guest is looked at before anything follows.
            Some(_) => Ok(None),
        }
    }

    /// How a task ended, if it did within this time.
    async fn end_of(&self, upid: &Upid, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let op = self.op;
            let guest = self.cleared.guest();
            let waited = self.context.wait_for_task(op, guest, upid, deadline).await;
            if let Ok(WaitOutcome::Ended(exit)) = waited {
                return Some(exit);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        None
    }

    /// Waits until the guest, still the same one, is ready for this request; otherwise why not.
    async fn until(&self, next: OpPhase) -> Option<String> {
        let deadline = Instant::now() + SHOWS_WITHIN;
        loop {
            let why = match observe_guest(&self.context.client, self.cleared.guest()).await {
                Ok(fresh) if identity(&fresh).ok() != self.cleared.identity() => {
                    return Some(ANOTHER.to_owned());
                }
                Ok(fresh) if destroy::is_ready(next, &fresh) => return None,
                Ok(_) => destroy::NOT_READY.to_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Some(why);
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Ends the act because a request was refused.
    pub(in crate::engine) async fn end_refused(
        &self,
        refused: StepRefused,
    ) -> Result<OpOutcome, Fatal> {
        match refused {
            StepRefused::Because(why) => self.abandon(&why).await,
            StepRefused::Fatal(fatal) => Err(fatal),
        }
    }

    /// Ends it before the act: nothing of the guest's data was touched.
    pub(in crate::engine) async fn abandon(&self, why: &str) -> Result<OpOutcome, Fatal> {
        let reason = format!("the act was not sent: {why}");
        let failed = OpEvent::Failed {
            reason: reason.clone(),
            left_volume: None,
            tried: None,
            identity: None,
        };
        self.context.record(self.op, failed).await?;
        Ok(OpOutcome::Failed { why: reason })
    }

    async fn by_evidence(&self) -> Result<OpOutcome, Fatal> {
        let settled = settle(self.context, self.op, None, SettledBy::Lane).await?;
        let reason = settled.map(|settled| {
            (settled.operation.is_in_flight(), why(&settled.operation.state).to_owned())
        });
        Ok(match reason {
            Some((true, why)) => OpOutcome::Unknown { why },
            Some((false, why)) => OpOutcome::Failed { why },
            None => OpOutcome::Failed { why: "an operator closed it".to_owned() },
        })
    }
}
