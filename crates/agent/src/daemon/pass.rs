//! One pass of the running agent, and what becomes of it.
//!
//! Desired files are read, the node is looked at beside everything else (`looking`), and the engine gets what is to be done.
//! With nothing declared no guest is looked at.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::actual::remembered::ChangedGuests;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::operate::operation::OpState;
use tokio::time::Instant;

use super::AgentLoop;
use super::declared::{FilesNews, SourceTrouble};
use super::inputs::LoopInputs;
use super::log;
use super::looking::{LookEnded, LookPurpose, LookWish};
use super::metrics::Reconciled;
use super::protocol::SocketAnswer;
use super::status::DesiredStatus;
use crate::engine::{BegunPass, EngineEvent, Fatal, OpOutcome, PassId};
use crate::freeze;
use crate::preview::Preview;
use crate::pve::error::Error;

/// The agent shall end, or goes on.
pub(super) type LoopTurn = ControlFlow<()>;

impl AgentLoop {
    /// A pass that is due: its look begins.
    pub(super) async fn pass(&mut self, inputs: &mut LoopInputs) -> Result<LoopTurn, Fatal> {
        let state = self.state.clone();
        self.engine.keep_due(move |journal| freeze::records_due(&state, journal)).await?;
        if self.read_desired(inputs).await.is_break() {
            return Ok(LoopTurn::Break(()));
        }
        if self.declared.desired().is_none() {
            // Operations of unknown outcome are looked at and protections are given back as by every pass: a destroy
            // that was requested by hand may have left them.
            self.engine.recheck_unknown();
            self.engine.pay_debts().await?;
            self.want_rest();
            return Ok(LoopTurn::Continue(()));
        }
        self.want_look(LookWish { scope: PassScope::Whole, purpose: LookPurpose::Due });
        Ok(LoopTurn::Continue(()))
    }

    /// Configurations of guests were written, or tasks about them ended: those that are declared are looked at now, or a
    /// whole pass is due.
    pub(super) fn wake(&mut self, changed: ChangedGuests) {
        let Some(desired) = self.declared.desired() else { return };
        match self.wakes.scope(changed, &desired, Instant::now()) {
            Some(scope @ PassScope::Chosen(_)) => {
                tracing::debug!(?scope, "guests changed");
                self.want_look(LookWish { scope, purpose: LookPurpose::Woken });
            }
            Some(PassScope::Whole) => self.schedule.at_once(Instant::now()),
            None => {}
        }
    }

    /// A look of the agent's own has ended.
    pub(super) async fn looked(
        &mut self,
        ended: LookEnded,
        inputs: &mut LoopInputs,
    ) -> Result<LoopTurn, Fatal> {
        let LookEnded { desired, seen, took } = ended;
        match seen {
            Err(why) => self.could_not_look(&why),
            Ok(preview) => {
                if self.submit(&desired, *preview, took, inputs).await?.is_none() {
                    return Ok(LoopTurn::Break(()));
                }
            }
        }
        inputs.systemd.status(&self.sentence());
        Ok(LoopTurn::Continue(()))
    }

    /// Reads the desired files; what was good holds if they are not. Signals to end and the watchdog are heard
    /// meanwhile.
    pub(super) async fn read_desired(&mut self, inputs: &mut LoopInputs) -> LoopTurn {
        let now = self.ambient.now();
        let news = tokio::select! {
            // Dropped in the middle it leaves nothing behind.
            news = self.declared.read(now) => news,
            () = inputs.stop() => return LoopTurn::Break(()),
        };
        let guests = self.declared.desired().map_or(0, |desired| desired.guests.len());
        match (&news, self.declared.trouble()) {
            (FilesNews::Broken, Some(SourceTrouble { why, .. })) => {
                let since = self.declared.since().map(tracing::field::display);
                tracing::error!(
                    holds_since = since,
                    guests,
                    "desired files cannot be used, the last good ones \
                    hold:\n{why}"
                );
            }
            (FilesNews::Good, _) => tracing::info!(guests, "desired files read"),
            (FilesNews::Broken, None) | (FilesNews::Nothing, _) => {}
        }
        let directory = self.declared.directory().map(|path| path.display().to_string());
        let since = self.declared.since();
        let trouble = self.declared.trouble().cloned();
        self.metrics.desired(trouble.is_none(), guests, self.declared.last_good());
        let hub = self.hub_status().await;
        if let Some(hub) = &hub {
            self.metrics.hub(hub);
        }
        self.shared_status.agent().desired =
            DesiredStatus { directory, guests, since, trouble, hub };
        if news == FilesNews::Good {
            self.shared_status.declared(self.declared.desired().as_deref());
        }
        LoopTurn::Continue(())
    }

    /// Hands out what is to be done; none if the agent shall end before that.
    pub(super) async fn submit(
        &mut self,
        desired: &Arc<Desired>,
        preview: Preview,
        took: Duration,
        inputs: &mut LoopInputs,
    ) -> Result<Option<PassId>, Fatal> {
        if self.schedule.failures() > 0 {
            tracing::info!("Proxmox VE can be read again");
        }
        let scope = preview.scope.clone();
        // Chosen guests bring the next pass over all of them neither nearer nor farther.
        if scope == PassScope::Whole {
            let now = Instant::now();
            let random = self.ambient.random();
            self.schedule.succeeded(now, random);
        }
        self.show_found(desired, &preview);
        let BegunPass { id, plan } = tokio::select! {
            // Lanes get their actions at the very end; what waits for a signature may be written before.
            pass = self.engine.submit(desired, preview) => pass?,
            () = inputs.stop() => return Ok(None),
        };
        if scope != PassScope::Whole {
            self.partial_passes.insert(id);
        }
        self.shared_status.planned(id, &plan, &scope, self.ambient.now(), millis(took));
        self.count_guests();
        Ok(Some(id))
    }

    fn could_not_look(&mut self, why: &str) {
        let now = Instant::now();
        let random = self.ambient.random();
        self.schedule.failed(now, random);
        self.metrics.reconciled(Reconciled::Failed, 0);
        self.note_node_trouble(why);
    }

    /// Said when it is new; a node that stays away fills no log.
    fn note_node_trouble(&self, why: &str) {
        let mut agent = self.shared_status.agent();
        if let Some(trouble) = &mut agent.node_trouble {
            tracing::debug!(why, "Proxmox VE still cannot be read");
            why.clone_into(&mut trouble.why);
        } else {
            tracing::warn!(why, "Proxmox VE cannot be read; guests are left as they are");
            agent.node_trouble =
                Some(SourceTrouble { since: self.ambient.now(), why: why.to_owned() });
        }
    }

    /// Nothing is declared, and the node answered or did not.
    pub(super) fn rested(&mut self, answered: Result<(), Error>) {
        let now = Instant::now();
        let random = self.ambient.random();
        match answered {
            Ok(()) => {
                self.schedule.succeeded(now, random);
                let mut agent = self.shared_status.agent();
                (agent.node_trouble, agent.in_sync) = (None, 0);
                agent.guests.clear();
                // Something shall be declared, and nothing good was ever read.
                if self.declared.trouble().is_some() {
                    self.metrics.reconciled(Reconciled::Incomplete, 0);
                }
            }
            Err(error) => {
                self.schedule.failed(now, random);
                self.note_node_trouble(&error.to_string());
            }
        }
        self.count_guests();
    }

    /// Takes in what became of something.
    pub(super) fn took(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Op(report) => {
                self.metrics.op(&report);
                if let Some(hub) = &mut self.hub {
                    hub.desk.ended(&report);
                }
                if let Some(submitter) = self.submitters.remove(&report.op) {
                    // Whoever asked may have gone; the end is in the journal.
                    let _ = submitter.send(SocketAnswer::Op { report: report.clone() });
                    self.schedule.soon(Instant::now());
                }
                if let OpOutcome::Stale { .. } = report.end {
                    self.schedule.soon(Instant::now());
                }
            }
            EngineEvent::Settled(operation) => {
                log::settled(&operation);
                let result = match &operation.state {
                    OpState::Succeeded { .. } => "succeeded",
                    OpState::Failed { .. } => "failed",
                    OpState::Started { .. }
                    | OpState::TaskRunning { .. }
                    | OpState::Unknown { .. } => "unknown",
                };
                self.metrics.op_ended(operation.intent.kind.as_str(), result);
                // Its guest was left alone until now.
                self.schedule.soon(Instant::now());
            }
            EngineEvent::Pass { id, report } => {
                self.said.pass(id, &report);
                self.shared_status.ended(id, &report);
                // Files that are broken may declare what this pass knows nothing of.
                let how = if report.is_clean() && self.declared.trouble().is_none() {
                    Reconciled::Succeeded
                } else {
                    Reconciled::Incomplete
                };
                if !self.partial_passes.remove(&id) {
                    self.metrics.reconciled(how, self.ambient.now().as_second());
                }
                if let Some(follower) = self.followers.remove(&id) {
                    // Whoever asked may have gone; the report is in the log.
                    let _ = follower.send(SocketAnswer::Report { report });
                }
            }
        }
        self.count_guests();
    }

    fn count_guests(&self) {
        let desired = self.declared.desired();
        let declared = desired.iter().flat_map(|desired| desired.guests.values());
        let unknown = self.engine.unknown().count();
        let mut agent = self.shared_status.agent();
        agent.queue_depth = self.engine.queue_depth();
        self.metrics.guests(declared.map(|guest| guest.id), &agent, unknown);
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
