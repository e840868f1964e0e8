//! The gate for what somebody asks for and needs no signature: a snapshot, a backup.
//!
//! It is judged in the lane like everything else, on the guest as it is now. What would destroy something, and what
//! Proxmox would refuse for want of room, is not begun. Whether a guest is only observed does not matter: a person asked.

use std::collections::BTreeMap;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::gate::approval::asked_params;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::pve_call::PveCall;

use super::NotCleared;
use super::cleared::{Cleared, allowed};
use crate::engine::EngineContext;
use crate::engine::gate::act_rights::check_rights;
use crate::engine::lane::final_backup::check_room;
use crate::observe::{observe_guest, observe_snapshots};

/// What somebody asked for.
#[derive(Debug, Clone)]
pub(in crate::engine) struct AskedOrder {
    pub(in crate::engine) op: ActionKind,
    pub(in crate::engine) guest: GuestId,
    /// As they were given.
    pub(in crate::engine) params: BTreeMap<String, String>,
}

impl AskedOrder {
    /// Why it is done.
    pub(super) fn reason(&self) -> String {
        let given = self.params.iter().map(|(name, text)| format!("{name}={text}"));
        format!("asked for: {}", given.collect::<Vec<_>>().join(" "))
    }

    /// What would be sent for the guest as it is now.
    pub(in crate::engine) async fn judge(
        &self,
        context: &EngineContext,
    ) -> Result<(PveCall, BTreeMap<String, String>, evenkeel_core::actual::Guest), Refusal> {
        let unread = |why: String| Refusal::new(ReasonCode::IdentityUnproven, why);
        let fresh = observe_guest(&context.client, self.guest).await;
        let fresh = fresh.map_err(|error| unread(error.to_string()))?;
        if let Some(lock) = &fresh.lock {
            let why = format!("the guest is locked ({lock})");
            return Err(Refusal::new(ReasonCode::Locked, why));
        }
        let snapshots = observe_snapshots(&context.client, self.guest).await;
        let snapshots = snapshots.map_err(|error| unread(error.to_string()))?;
        let params = asked_params(self.op, &fresh, &snapshots, self.params.clone())?;
        let call = PveCall::asked(self.op, &params)?;
        // A backup without its right is answered by 200, and its task fails.
        check_rights(&context.client, self.op, self.guest, &params).await?;
        if let PveCall::Backup { storage } = &call {
            check_room(context, storage, self.guest).await?;
        }
        Ok((call, params, fresh))
    }
}

/// Judges what somebody asked for, now.
pub(super) async fn clear(
    context: &EngineContext,
    order: &AskedOrder,
) -> Result<Cleared, NotCleared> {
    let (call, params, fresh) = order.judge(context).await.map_err(NotCleared::Held)?;
    // No attempt is counted: who wants it again asks again.
    Ok(Cleared {
        params,
        reasons: vec![order.reason()],
        decision: allowed("benign", "somebody asked for it"),
        identity: identity(&fresh).ok(),
        ..Cleared::plain(order.guest, order.op, call)
    })
}
