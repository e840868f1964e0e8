//! The look at the node that is under way, what it is for, and what waits for it.
//!
//! One look at a time, beside the loop: while the node takes its time, lanes, signals, the hub and every client of the socket
//! are served as ever. Who wants a pass meanwhile waits for his turn. Dropped in the middle a look leaves nothing behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::plan::SavedPlan;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::AgentLoop;
use super::inputs::LoopInputs;
use super::pass::{LoopTurn, millis};
use super::protocol::SocketAnswer;
use crate::engine::{Fatal, LookTurn, NodeLook, PassCause, PassError};
use crate::preview::Preview;
use crate::pve::error::Error;

/// How long one pass may look at a node. Each answer has its own time limit; this bounds all of them together, so that
/// a node that answers everything late is said to be unreadable.
const LOOK_DEADLINE: Duration = Duration::from_mins(20);

/// A look that somebody wants.
pub(super) struct LookWish {
    pub(super) scope: PassScope,
    pub(super) purpose: LookPurpose,
}

/// What a look is for.
pub(super) enum LookPurpose {
    /// A pass is due.
    Due,
    /// Guests changed.
    Woken,
    /// Somebody wants a pass now, perhaps exactly this one.
    Apply { plan: Option<Box<SavedPlan>>, answer: oneshot::Sender<SocketAnswer> },
}

/// What is under way, and what waits for it.
#[derive(Default)]
pub(super) struct LookState {
    under_way: Option<UnderWay>,
    wanted: VecDeque<LookWish>,
}

enum UnderWay {
    Look(Box<LookUnderWay>),
    /// Nothing is declared: one question tells whether the node is there.
    Rest(BoxFuture<'static, Result<(), Error>>),
}

struct LookUnderWay {
    look: NodeLook<'static>,
    began: Instant,
    desired: Arc<Desired>,
    purpose: LookPurpose,
}

/// What a look came to.
pub(super) struct LookEnded {
    pub(super) desired: Arc<Desired>,
    /// The node and the plan, or why there is none.
    pub(super) seen: Result<Box<Preview>, String>,
    pub(super) took: Duration,
}

/// What is heard of what is under way.
pub(super) enum LookNews {
    /// The look wants something, or has ended.
    Turn(LookTurn),
    /// The look took too long.
    TooLong,
    /// The node answered, or did not.
    Rested(Result<(), Error>),
}

impl LookState {
    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Drops everything: who waits for a look hears that the agent goes down.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// The next news; never any if nothing is under way. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> LookNews {
        match &mut self.under_way {
            None => std::future::pending().await,
            Some(UnderWay::Rest(answer)) => LookNews::Rested(answer.await),
            Some(UnderWay::Look(under_way)) => {
                let deadline = under_way.began + LOOK_DEADLINE;
                match tokio::time::timeout_at(deadline, under_way.look.next()).await {
                    Ok(turn) => LookNews::Turn(turn),
                    Err(_) => LookNews::TooLong,
                }
            }
        }
    }

    /// Keeps a wish for later. Several about changed guests are one.
    fn keep(&mut self, wish: LookWish) {
        let LookWish { scope, purpose } = wish;
        if let (LookPurpose::Woken, PassScope::Chosen(more)) = (&purpose, &scope) {
            let woken =
                self.wanted.iter_mut().find_map(|kept| match (&kept.purpose, &mut kept.scope) {
                    (LookPurpose::Woken, PassScope::Chosen(chosen)) => Some(chosen),
                    (LookPurpose::Due | LookPurpose::Woken | LookPurpose::Apply { .. }, _) => None,
                });
            if let Some(chosen) = woken {
                chosen.extend(more);
                return;
            }
        }
        self.wanted.push_back(LookWish { scope, purpose });
    }
}

impl AgentLoop {
    /// Looks at the node, now or after what is under way.
    pub(super) fn want_look(&mut self, wish: LookWish) {
        if !self.looking.is_idle() {
            return self.looking.keep(wish);
        }
        let LookWish { scope, purpose } = wish;
        let Some(desired) = self.declared.desired() else {
            // What was declared is no more: who wanted it applied hears so.
            if let (LookPurpose::Apply { answer, .. }, Some(refused)) =
                (purpose, self.cannot_apply())
            {
                let _ = answer.send(SocketAnswer::Refused(refused));
            }
            return;
        };
        let cause = match purpose {
            LookPurpose::Due | LookPurpose::Woken => PassCause::Schedule,
            LookPurpose::Apply { .. } => PassCause::Person,
        };
        let look = self.engine.begin_look(Arc::clone(&desired), scope, cause);
        let under_way = LookUnderWay { look, began: Instant::now(), desired, purpose };
        self.looking.under_way = Some(UnderWay::Look(Box::new(under_way)));
    }

    /// Asks whether the node is there.
    pub(super) fn want_rest(&mut self) {
        let client = self.client.clone();
        let asking = async move { client.version().await.map(drop) };
        self.looking.under_way = Some(UnderWay::Rest(asking.boxed()));
    }

    /// Takes in what is heard of what is under way, and begins what waited for its end.
    pub(super) async fn hear_look(
        &mut self,
        news: LookNews,
        inputs: &mut LoopInputs,
    ) -> Result<LoopTurn, Fatal> {
        let seen = match news {
            LookNews::Turn(turn) => match self.engine.take_turn(turn) {
                None => return Ok(LoopTurn::Continue(())),
                Some(Ok(preview)) => Ok(Box::new(preview)),
                Some(Err(PassError::Actual(error))) => Err(error.to_string()),
                Some(Err(PassError::Fatal(fatal))) => return Err(fatal),
            },
            LookNews::TooLong => Err(format!("looking took longer than {LOOK_DEADLINE:?}")),
            LookNews::Rested(answered) => {
                self.looking.under_way = None;
                self.rested(answered);
                self.begin_next();
                return Ok(LoopTurn::Continue(()));
            }
        };
        let Some(UnderWay::Look(under_way)) = self.looking.under_way.take() else {
            return Ok(LoopTurn::Continue(()));
        };
        let LookUnderWay { look, began, desired, purpose } = *under_way;
        drop(look);
        let took = began.elapsed();
        if let Ok(preview) = &seen {
            if preview.scope == PassScope::Whole {
                self.metrics.planned(&preview.plan, took);
            }
            tracing::debug!(took_ms = millis(took), "looked at the node");
        }
        let ended = LookEnded { desired, seen, took };
        let turn = match purpose {
            LookPurpose::Due | LookPurpose::Woken => self.looked(ended, inputs).await?,
            LookPurpose::Apply { plan, answer } => {
                self.looked_to_apply(ended, plan, answer, inputs).await?
            }
        };
        self.begin_next();
        Ok(turn)
    }

    fn begin_next(&mut self) {
        while self.looking.is_idle()
            && let Some(wish) = self.looking.wanted.pop_front()
        {
            self.want_look(wish);
        }
    }
}
