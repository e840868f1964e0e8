//! Carries out what operators ask of a running agent about signed acts: show, propose, submit.
//!
//! Called by the loop through `obey`. It judges nothing: the engine does, in the guest's lane.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::id::GuestId;
use evenkeel_core::reason::Refusal;
use tokio::sync::oneshot;

use super::AgentLoop;
use super::protocol::{PendingView, Refused, RefusedCode, SocketAnswer};
use crate::engine::{Fatal, Submitted};

impl AgentLoop {
    /// Everything that waits for a signature, oldest first.
    pub(super) async fn pending(&self) -> Result<SocketAnswer, Fatal> {
        let items = self.engine.pending().await?.into_iter();
        let mut items: Vec<_> = items
            .map(|(id, (item, waiting))| {
                let envelope = String::from_utf8_lossy(&waiting.envelope.0).into_owned();
                let view = PendingView { id, from: waiting.from, envelope };
                (item.raised_at, view)
            })
            .collect();
        items.sort_by_key(|(raised_at, view)| (*raised_at, view.id));
        Ok(SocketAnswer::Pending { items: items.into_iter().map(|(_, view)| view).collect() })
    }

    /// Raises an item for an act nobody declared.
    pub(super) async fn request(
        &mut self,
        op: ActionKind,
        guest: GuestId,
        params: BTreeMap<String, String>,
    ) -> Result<SocketAnswer, Fatal> {
        Ok(match self.engine.request(op, guest, params).await {
            Ok(id) => SocketAnswer::Raised { id },
            Err(error) => SocketAnswer::Refused(refused(&error.refusal()?)),
        })
    }

    /// Takes an approval or a rotation. What becomes of an act is answered when it has ended.
    pub(super) async fn take_approval(
        &mut self,
        envelope: &str,
        answer: oneshot::Sender<SocketAnswer>,
    ) -> Result<(), Fatal> {
        let told = match self.engine.submit_approval(envelope.as_bytes()).await? {
            Submitted::Accepted(op) => {
                self.submitters.insert(op, answer);
                return Ok(());
            }
            Submitted::Replay { op, result } => SocketAnswer::Replay { op, result },
            Submitted::Rotated(version) => {
                self.metrics.trust(Some(version));
                tracing::warn!(%version, "the signers of this host have changed");
                SocketAnswer::Done {
                    message: format!("the signers are those of version {version} now"),
                }
            }
            Submitted::Refused(refusal) => SocketAnswer::Refused(refused(&refusal)),
        };
        // Whoever asked may have gone; the journal has it.
        let _ = answer.send(told);
        Ok(())
    }
}

fn refused(refusal: &Refusal) -> Refused {
    let hint = "nothing was sent to Proxmox VE; `evenkeel pending` shows what waits";
    let code = RefusedCode::Gate(refusal.reason);
    Refused::new(code, refusal.to_string(), hint)
}
