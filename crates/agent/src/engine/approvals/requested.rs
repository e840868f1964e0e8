//! Acts that nobody declared and somebody asks for: each becomes an item that waits; nothing is ever done here.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::{ActionKind, FilledFrom};
use evenkeel_core::actual::Guest;
use evenkeel_core::gate::approval::{RaisedBy, requested_item, saves_first};
use evenkeel_core::gate::final_backup::BackupContext;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::{PendingId, PendingItem, TrustedSigners};
use evenkeel_core::words::shown_text;

use super::approval_context::ApprovalContext;
use super::pending::{self, KeptItem, waiting};
use super::raise_again;
use crate::engine::EngineContext;
use crate::engine::error::{EngineError, Fatal};
use crate::observe::{observe_guest, observe_snapshots};
use crate::pve::error::Error;

/// An act that somebody asks for.
pub(super) struct RequestedAct {
    pub(super) op: ActionKind,
    pub(super) guest: GuestId,
    pub(super) params: BTreeMap<String, String>,
    pub(super) requester: Option<String>,
}

/// Whether it is said who asks, where that makes a difference: a name that is no signer's would exclude nobody.
async fn check_requester(
    approvals: &ApprovalContext,
    asked: &RequestedAct,
    guest: &Guest,
) -> Result<(), Refusal> {
    let authority = approvals.authority.read().await;
    let is_signer = |name: &str| {
        let mut signers = authority.trust().into_iter().flat_map(TrustedSigners::signers);
        signers.any(|signer| signer.name.to_string() == name)
    };
    match &asked.requester {
        Some(name) if is_signer(name) => Ok(()),
        Some(name) => {
            let why =
                format!("no signer of this host is called {}", shown_text::one_line(name, 64));
            Err(Refusal::new(ReasonCode::UnknownSigner, why))
        }
        None => {
            let tags = pending::tags_of(guest);
            let tags = tags.iter().map(String::as_str);
            let demand = authority.rules().demand(asked.op, asked.guest, tags, None);
            if demand.requester_counts {
                return Ok(());
            }
            let why =
                "the signature of who asks for this does not count: say whose it is with --as NAME";
            Err(Refusal::new(ReasonCode::Policy, why))
        }
    }
}

/// Raises an item for an act somebody asks for; if the same waits already, that is the answer.
pub(super) async fn request(
    context: &EngineContext,
    approvals: &ApprovalContext,
    asked: RequestedAct,
) -> Result<PendingId, EngineError> {
    let op = asked.op;
    let id = asked.guest;
    let unproven = |error: Error| Refusal::new(ReasonCode::IdentityUnproven, error.to_string());
    let guest = observe_guest(&context.client, id).await.map_err(unproven)?;
    check_requester(approvals, &asked, &guest).await?;
    let RequestedAct { params, requester, .. } = asked;
    let around = if saves_first(&params) {
        pending::backup_context_of(context, id, &params).await?
    } else if op.row().filled_from == FilledFrom::Snapshot {
        let snapshots = observe_snapshots(&context.client, id).await.map_err(unproven)?;
        BackupContext { snapshots, ..Default::default() }
    } else {
        BackupContext::default()
    };
    let wanted = requested_item(op, &guest, &around, params)?;
    let known = context.journal.read(|state, _| waiting(state)).await.map_err(Fatal::Journal)?;
    let version = pending::version(approvals).await;
    // One that somebody else asked for excludes somebody else.
    let is_same = |(_, (item, kept)): &(&PendingId, &(PendingItem, KeptItem))| {
        wanted.is(item, version) && (requester.is_none() || kept.requester == requester)
    };
    match known.iter().find(is_same) {
        Some((id, (item, kept))) => {
            raise_again::still_good(context, approvals, (*id, item, kept)).await
        }
        None => pending::raise(context, approvals, &wanted, (RaisedBy::Request, requester)).await,
    }
}
