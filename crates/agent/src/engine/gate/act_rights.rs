//! Asks whether the token has the rights that an act takes, on the very paths that Proxmox looks at. Core's `rights` says which.
//!
//! Called when an act is put before a signer, in the lane before its nonce is spent, and before what somebody asks for is
//! begun. It is asked each time and never remembered.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::rights::{ActRight, of_act};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};

use crate::pve::Client;

/// Refuses an act for which the token lacks a right, with the right and its path.
pub(in crate::engine) async fn check_rights(
    client: &Client,
    op: ActionKind,
    guest: GuestId,
    params: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let mut held: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for ActRight { path, any } in of_act(op, guest, params) {
        if !held.contains_key(&path) {
            let asked = client.held_on(&path).await.map_err(|error| {
                let why = format!("the token's rights on {path} cannot be read: {error}");
                Refusal::new(ReasonCode::IdentityUnproven, why)
            })?;
            held.insert(path.clone(), asked);
        }
        let has = held.get(&path).is_some_and(|held| any.iter().any(|name| held.contains(*name)));
        if !has {
            missing.push(ActRight { path, any }.to_string());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "the token lacks {}, which {op} of {guest} takes; grant it, `evenkeel doctor` prints the role",
        missing.join(", ")
    );
    Err(Refusal::new(ReasonCode::Rights, why))
}
