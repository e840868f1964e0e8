//! Carries out what clients of the socket ask for, and SIGHUP.
//!
//! Called by the loop only, so that nothing asked for can meet anything else half-way. A new kind of request is a new
//! arm in [`AgentLoop::obey`].

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_core::desired::ReconcileMode;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::{OperationId, VmId};
use evenkeel_core::operate::operation::Resolution;
use evenkeel_core::plan::{SavedPlan, Stale};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::AgentLoop;
use super::declared::{SourceTrouble, UnusableFile, not_in_time};
use super::inputs::LoopInputs;
use super::looking::{LookEnded, LookPurpose, LookWish};
use super::pass::LoopTurn;
use super::protocol::{Refused, RefusedCode, SocketAnswer, SocketRequest};
use super::socket::SocketCommand;
use crate::config::AgentConfig;
use crate::engine::Fatal;
use crate::plain_file::{READ_DEADLINE, off_loop};
use crate::policy::Policy;
use crate::preview::Preview;

impl AgentLoop {
    /// Carries out one request. An answer that nobody waits for any more is dropped.
    pub(super) async fn obey(
        &mut self,
        command: SocketCommand,
        inputs: &mut LoopInputs,
    ) -> Result<LoopTurn, Fatal> {
        let SocketCommand { request, answer } = command;
        let told = match request {
            SocketRequest::Apply { plan, logs: _ } => {
                return self.apply(plan, answer, inputs).await;
            }
            SocketRequest::Resolve { op, outcome, note } => {
                let _ = answer.send(self.resolve(op, outcome, note).await?);
                return Ok(ControlFlow::Continue(()));
            }
            SocketRequest::Retry { guest, by } => {
                let _ = answer.send(self.retry(guest, by).await?);
                return Ok(ControlFlow::Continue(()));
            }
            SocketRequest::Reload {} => match self.reload(inputs).await {
                Some(told) => told,
                None => return Ok(ControlFlow::Break(())),
            },
            SocketRequest::Submit { envelope } => {
                self.take_approval(&envelope, answer).await?;
                return Ok(ControlFlow::Continue(()));
            }
            SocketRequest::Withdraw { id, note } => {
                self.withdraw(id, note, answer);
                return Ok(ControlFlow::Continue(()));
            }
            SocketRequest::Request { op, guest, params, requester } => {
                self.take_request(op, guest, params, requester, answer);
                return Ok(ControlFlow::Continue(()));
            }
            // The socket answers them from the shared status and the journal, so that they never wait for the loop.
            SocketRequest::Status { .. } | SocketRequest::Pending {} => {
                let message = "this is answered by the socket itself";
                Err(Refused::new(RefusedCode::Failed, message, "this is a bug in evenkeel"))
            }
        };
        let _ = answer.send(match told {
            Ok(message) => SocketAnswer::Done { message },
            Err(refused) => SocketAnswer::Refused(refused),
        });
        Ok(ControlFlow::Continue(()))
    }

    /// One pass now. With a plan: exactly that plan, or nothing. It waits for its own look, and for one that is under way.
    async fn apply(
        &mut self,
        plan: Option<SavedPlan>,
        answer: oneshot::Sender<SocketAnswer>,
        inputs: &mut LoopInputs,
    ) -> Result<LoopTurn, Fatal> {
        if self.read_desired(inputs).await.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(refused) = self.cannot_apply() {
            let _ = answer.send(SocketAnswer::Refused(refused));
            return Ok(ControlFlow::Continue(()));
        }
        let scope = plan.as_ref().map_or(PassScope::Whole, SavedPlan::scope);
        let purpose = LookPurpose::Apply { plan: plan.map(Box::new), answer };
        self.want_look(LookWish { scope, purpose });
        Ok(ControlFlow::Continue(()))
    }

    /// Why nothing can be applied: nothing is declared, or what is declared is broken.
    pub(super) fn cannot_apply(&self) -> Option<Refused> {
        let (message, hint) = match (self.declared.desired(), self.declared.trouble()) {
            (Some(_), None) => return None,
            (_, Some(trouble)) => (
                format!("the desired files of the running agent are broken:\n{}", trouble.why),
                "correct them, then apply again; `evenkeel status` shows where they are",
            ),
            (None, None) => (
                "nothing is declared to the running agent".to_owned(),
                "set `dir` under [desired] in agent.toml and `systemctl reload evenkeel`, or wait for the hub's document",
            ),
        };
        Some(Refused::new(RefusedCode::Invalid, message, hint))
    }

    /// A look for somebody who wants a pass now has ended.
    pub(super) async fn looked_to_apply(
        &mut self,
        ended: LookEnded,
        plan: Option<Box<SavedPlan>>,
        answer: oneshot::Sender<SocketAnswer>,
        inputs: &mut LoopInputs,
    ) -> Result<LoopTurn, Fatal> {
        let LookEnded { desired, seen, took } = ended;
        let refused = match seen {
            Err(why) => {
                let hint = "the running agent keeps trying";
                Refused::new(RefusedCode::Failed, why, hint)
            }
            Ok(preview) => {
                let Preview { actual, plan: planned, scope } = preview.as_ref();
                let now = SavedPlan::of(planned, scope, &actual.node, &self.seal_key);
                match plan.and_then(|plan| plan.stale_against(&now)) {
                    None => {
                        let Some(id) = self.submit(&desired, *preview, took, inputs).await? else {
                            return Ok(ControlFlow::Break(()));
                        };
                        self.followers.insert(id, answer);
                        return Ok(ControlFlow::Continue(()));
                    }
                    Some(stale) => self.not_that_plan(&stale.explained_by(&preview.plan)),
                }
            }
        };
        let _ = answer.send(SocketAnswer::Refused(refused));
        Ok(ControlFlow::Continue(()))
    }

    /// Why a plan somebody agreed to is not carried out: what holds it, or that it is stale and whose files decide.
    fn not_that_plan(&self, stale: &Stale) -> Refused {
        match stale.held_by() {
            None => {
                let directory = self.declared.directory().unwrap_or_else(|| Path::new("nowhere"));
                let message = format!("the plan is stale: {stale}");
                let hint = format!(
                    "{}; the running agent reads desired files in {}",
                    stale.hint(),
                    directory.display()
                );
                Refused::new(RefusedCode::Stale, message, hint)
            }
            Some(reason) => {
                let message = format!("the plan cannot be applied now: {stale}");
                Refused::new(RefusedCode::Gate(reason), message, stale.hint())
            }
        }
    }

    /// Closes an operation of unknown outcome by an operator's word.
    async fn resolve(
        &mut self,
        op: OperationId,
        outcome: Resolution,
        note: String,
    ) -> Result<SocketAnswer, Fatal> {
        if let Err(error) = self.engine.resolve(op, outcome, note).await {
            let hint = "`evenkeel status` lists unknown outcomes; the agent still watches running operations";
            let message = error.refusal()?.detail;
            return Ok(SocketAnswer::Refused(Refused::new(RefusedCode::NotFound, message, hint)));
        }
        self.schedule.soon(Instant::now());
        tracing::warn!(%op, ?outcome, "an operator closed an operation of unknown outcome");
        Ok(SocketAnswer::Done {
            message: format!("{op} is closed; the agent looks at its guest again"),
        })
    }

    /// Lets what failed be tried at once.
    async fn retry(&mut self, guest: VmId, by: String) -> Result<SocketAnswer, Fatal> {
        let waited = match self.engine.retry(guest, by).await {
            Ok(waited) => waited,
            Err(error) => {
                let hint = "make room on the disk of the state directory";
                let message = error.refusal()?.detail;
                return Ok(SocketAnswer::Refused(Refused::new(RefusedCode::Failed, message, hint)));
            }
        };
        self.schedule.at_once(Instant::now());
        let message = if waited {
            format!("the agent retries guest {guest} now, and clears its warnings")
        } else {
            format!("no failed action waits on guest {guest}; the agent looks at it now")
        };
        Ok(SocketAnswer::Done { message })
    }

    /// Reads configuration and desired files again. What is broken changes nothing, and is said. None if the agent shall
    /// end meanwhile.
    pub(super) async fn reload(
        &mut self,
        inputs: &mut LoopInputs,
    ) -> Option<Result<String, Refused>> {
        inputs.systemd.reloading();
        let configured = self.read_config(inputs).await?;
        self.metrics.configuration(configured.is_ok());
        let broken = match configured {
            Ok(config) => {
                self.shared_status.agent().configuration_trouble = None;
                self.take_config(config, inputs);
                None
            }
            Err(UnusableFile(why)) => {
                tracing::error!(
                    "the configuration is invalid; the previous one stays in use:\n{why}"
                );
                let trouble = SourceTrouble { since: self.ambient.now(), why: why.clone() };
                self.shared_status.agent().configuration_trouble = Some(trouble);
                Some(why)
            }
        };
        if self.read_desired(inputs).await.is_break() {
            return None;
        }
        self.schedule.at_once(Instant::now());
        inputs.systemd.ready(&self.sentence());
        let broken = broken.or_else(|| self.declared.trouble().map(|trouble| trouble.why.clone()));
        Some(match broken {
            None => {
                tracing::info!("reloaded");
                Ok("reloaded".to_owned())
            }
            Some(why) => {
                let hint = "the previous files stay in use; correct the files and reload";
                Err(Refused::new(RefusedCode::Invalid, why, hint))
            }
        })
    }

    /// Reads the configuration beside the loop; none if the agent shall end meanwhile.
    async fn read_config(
        &self,
        inputs: &mut LoopInputs,
    ) -> Option<Result<AgentConfig, UnusableFile>> {
        let path = self.config_path.clone();
        let reading = off_loop(move || AgentConfig::from_file(&path));
        let read = tokio::select! {
            read = tokio::time::timeout(READ_DEADLINE, reading) => read,
            () = inputs.stop() => return None,
        };
        Some(if let Ok(Ok(read)) = read {
            read.map_err(|error| UnusableFile(error.to_string()))
        } else {
            Err(not_in_time(&self.config_path))
        })
    }

    /// Takes over what may change while the agent runs, and says what may not.
    fn take_config(&mut self, new: AgentConfig, inputs: &mut LoopInputs) {
        let AgentConfig { host_id, pve, desired, state, trust, secrets, policy, metrics, interval } =
            &new;
        let fixed_policy = Policy { mode: self.config.policy.mode, ..policy.clone() };
        let fixed = [
            ("host_id", *host_id != self.config.host_id),
            ("[pve]", *pve != self.config.pve),
            ("[state]", *state != self.config.state),
            ("[trust]", *trust != self.config.trust),
            ("[secrets]", *secrets != self.config.secrets),
            ("[policy]", fixed_policy != self.config.policy),
            ("[metrics]", *metrics != self.config.metrics),
            ("hub under [desired]", desired.hub != self.config.desired.hub),
        ];
        for (what, changed) in fixed {
            if changed {
                tracing::warn!(
                    what,
                    "changed in the configuration; it takes effect at the next start"
                );
            }
        }
        // Whoever sets a host to observe must not have to wait for a restart.
        self.config.policy.mode = policy.mode;
        self.observes.store(policy.mode == ReconcileMode::Observe, Ordering::Relaxed);
        self.schedule.set_interval(Duration::from_secs(*interval), Instant::now());
        if self.hub.is_none() && desired.hub.is_none() {
            self.declared.now_from(desired);
        }
        // Begun anew even for the same path: the directory itself may have been replaced.
        inputs.watch(self.declared.directory());
        // The parts that are fixed are compared with what is in force, not with what was read last.
        let interval = new.interval;
        let desired = new.desired;
        self.config.interval = interval;
        // A hub is dialled, or no longer dialled, from the next start on.
        if desired.hub == self.config.desired.hub {
            self.config.desired = desired;
        }
    }
}
