//! Carries out what operators ask about signed acts: show, propose, withdraw, submit.
//!
//! Called by the loop through `obey`, and by the verbs where no agent runs. It judges nothing: the engine does, in the
//! guest's lane.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{PendingId, PendingItem};
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::oneshot;

use super::AgentLoop;
use super::protocol::{PendingView, Refused, RefusedCode, SocketAnswer};
use crate::engine::{
    Engine, EngineError, Fatal, KeptItem, RequestError, RequestTaken, Submitted, WithdrawError,
    signatures_of, waiting,
};
use crate::find_guest::FindGuestError;
use crate::journal::JournalState;

/// Everything that waits for a signature by a journal, oldest first.
pub fn pending_views(state: &JournalState) -> Vec<PendingView> {
    let signed = |id| {
        let envelope = signatures_of(state, id)?;
        Some(String::from_utf8_lossy(&envelope).into_owned())
    };
    views(waiting(state), signed)
}

fn views(
    items: BTreeMap<PendingId, (PendingItem, KeptItem)>,
    signed: impl Fn(PendingId) -> Option<String>,
) -> Vec<PendingView> {
    let mut items: Vec<_> = items
        .into_iter()
        .map(|(id, (item, waiting))| {
            let envelope = String::from_utf8_lossy(&waiting.envelope.0).into_owned();
            let replaces = waiting.replaces;
            let signed = signed(id);
            let requester = waiting.requester;
            let view =
                PendingView { id, from: waiting.from, envelope, replaces, signed, requester };
            (item.raised_at, view)
        })
        .collect();
    items.sort_by_key(|(raised_at, view)| (*raised_at, view.id));
    items.into_iter().map(|(_, view)| view).collect()
}

/// Raises an item for an act nobody declared, or begins one that needs no signature: then its end has to be awaited.
pub async fn request(
    engine: &mut Engine,
    op: ActionKind,
    guest: &GuestName,
    params: BTreeMap<String, String>,
    requester: Option<String>,
) -> Result<Result<SocketAnswer, OperationId>, Fatal> {
    let guest = match engine.find_guest(guest).await {
        Ok(guest) => guest,
        Err(FindGuestError::Fatal(fatal)) => return Err(fatal),
        Err(error) => return Ok(Ok(SocketAnswer::Refused(not_found(&error)))),
    };
    let asked = if op.runs_when_asked() {
        engine.ask(op, guest, params).await.map(Err)
    } else {
        let raised = engine.request_as(op, guest, params, requester).await;
        raised.map(|id| Ok(SocketAnswer::Raised { id, guest }))
    };
    Ok(match asked {
        Ok(answer) => answer,
        Err(error) => Ok(SocketAnswer::Refused(refused(&error.refusal()?))),
    })
}

fn not_found(error: &FindGuestError) -> Refused {
    let code = match error {
        FindGuestError::Selection(_) | FindGuestError::Elsewhere { .. } => RefusedCode::NotFound,
        FindGuestError::Hidden(_) => RefusedCode::Denied,
        FindGuestError::Actual(error) if error.is_transient() => RefusedCode::Busy,
        FindGuestError::Actual(_) | FindGuestError::Fatal(_) => RefusedCode::Failed,
    };
    Refused::new(code, error.to_string(), error.hint())
}

/// Something that a client of the socket asked for, while the node is asked about it.
pub(super) type AnswerUnderWay = BoxFuture<'static, ReadyAnswer>;

/// What is to be answered, and to whom.
pub(super) struct ReadyAnswer {
    to: oneshot::Sender<SocketAnswer>,
    what: ReadyWhat,
}

enum ReadyWhat {
    /// What somebody asked for is taken, or not.
    Request(Result<RequestTaken, RequestError>),
    /// An item is withdrawn, or not.
    Withdrawn(PendingId, Result<(), WithdrawError>),
}

impl AgentLoop {
    /// Ends an item that somebody asked for. One that is judged just now is waited for, beside the loop.
    pub(super) fn withdraw(
        &mut self,
        id: PendingId,
        note: String,
        to: oneshot::Sender<SocketAnswer>,
    ) {
        let withdrawing = self.engine.withdrawing(id, note);
        let answering =
            async move { ReadyAnswer { to, what: ReadyWhat::Withdrawn(id, withdrawing.await) } };
        self.answering.push(answering.boxed());
    }

    /// Takes what somebody asks for. The node is asked about it beside the loop.
    pub(super) fn take_request(
        &mut self,
        op: ActionKind,
        guest: GuestName,
        params: BTreeMap<String, String>,
        requester: Option<String>,
        to: oneshot::Sender<SocketAnswer>,
    ) {
        let requesting = self.engine.requesting(op, guest, params, requester);
        let answering =
            async move { ReadyAnswer { to, what: ReadyWhat::Request(requesting.await) } };
        self.answering.push(answering.boxed());
    }

    /// Answers what is ready; what is done at once is answered when it has ended.
    pub(super) fn answered(&mut self, ready: ReadyAnswer) -> Result<(), Fatal> {
        let ReadyAnswer { to, what } = ready;
        let told = match what {
            ReadyWhat::Withdrawn(id, withdrawn) => withdrawn_answer(id, withdrawn)?,
            ReadyWhat::Request(Ok(RequestTaken::Raised { id, guest })) => {
                SocketAnswer::Raised { id, guest }
            }
            ReadyWhat::Request(Ok(RequestTaken::MayRun(judged))) => {
                match self.engine.run_asked(judged) {
                    Ok(op) => {
                        self.submitters.insert(op, to);
                        return Ok(());
                    }
                    Err(error) => SocketAnswer::Refused(refused(&error.refusal()?)),
                }
            }
            ReadyWhat::Request(Err(RequestError::Find(FindGuestError::Fatal(fatal)))) => {
                return Err(fatal);
            }
            ReadyWhat::Request(Err(RequestError::Find(error))) => {
                SocketAnswer::Refused(not_found(&error))
            }
            ReadyWhat::Request(Err(RequestError::Engine(error))) => {
                SocketAnswer::Refused(refused(&error.refusal()?))
            }
        };
        // Whoever asked may have gone; the journal has it.
        let _ = to.send(told);
        Ok(())
    }

    /// Takes an approval or a rotation. What becomes of an act is answered when it has ended.
    pub(super) async fn take_approval(
        &mut self,
        envelope: &str,
        answer: oneshot::Sender<SocketAnswer>,
    ) -> Result<(), Fatal> {
        let submitted = self.engine.submit_approval(envelope.as_bytes()).await?;
        match &submitted {
            Submitted::Rotated(version) => self.metrics.trust(Some(*version)),
            Submitted::Acknowledged(_) => self.show_hub().await,
            Submitted::Accepted(_)
            | Submitted::Replay { .. }
            | Submitted::Collected(_)
            | Submitted::Denied(_)
            | Submitted::Refused(_) => {}
        }
        let told = match taken(submitted) {
            Err(op) => {
                self.submitters.insert(op, answer);
                return Ok(());
            }
            Ok(told) => told,
        };
        // Whoever asked may have gone; the journal has it.
        let _ = answer.send(told);
        Ok(())
    }
}

fn withdrawn_answer(
    id: PendingId,
    withdrawn: Result<(), WithdrawError>,
) -> Result<SocketAnswer, Fatal> {
    let error = match withdrawn {
        Ok(()) => {
            tracing::warn!(%id, "an operator withdrew what had been asked for");
            return Ok(SocketAnswer::Done { message: format!("{id} waits no longer") });
        }
        Err(WithdrawError::Engine(EngineError::Fatal(fatal))) => return Err(fatal),
        Err(error) => error,
    };
    let code = match &error {
        WithdrawError::NotWaiting(_) => RefusedCode::NotFound,
        WithdrawError::Declared { .. } | WithdrawError::Engine(_) => RefusedCode::Failed,
    };
    Ok(SocketAnswer::Refused(Refused::new(code, error.to_string(), error.hint())))
}

/// What is answered to an approval that came in; the operation if its end has to be awaited.
pub fn taken(submitted: Submitted) -> Result<SocketAnswer, OperationId> {
    Ok(match submitted {
        Submitted::Accepted(op) => return Err(op),
        Submitted::Replay { op, result } => SocketAnswer::Replay { op, result },
        Submitted::Rotated(version) => {
            tracing::warn!(%version, "the signers of this host have changed");
            SocketAnswer::Done {
                message: format!("the signers are those of version {version} now"),
            }
        }
        Submitted::Acknowledged(epoch) => SocketAnswer::Done {
            message: format!("the rollback is acknowledged; this journal is at epoch {epoch} now"),
        },
        Submitted::Collected(missing) => {
            let hint =
                "another operational key signs the same: `evenkeel approve PENDING --key KEY`";
            let message = format!("kept, and more must sign: {}", missing.detail);
            SocketAnswer::Refused(Refused::new(RefusedCode::Gate(missing.reason), message, hint))
        }
        Submitted::Denied(id) => {
            SocketAnswer::Done { message: format!("denied: {id} waits no longer") }
        }
        Submitted::Refused(refusal) => SocketAnswer::Refused(refused(&refusal)),
    })
}

fn refused(refusal: &Refusal) -> Refused {
    let hint = "nothing was sent to Proxmox VE; `evenkeel pending` shows what waits";
    let code = RefusedCode::Gate(refusal.reason);
    Refused::new(code, refusal.to_string(), hint)
}
