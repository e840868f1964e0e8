//! Whether a rollback starts the guest only where that was signed. It reads the snapshot on the node, nothing of the agent.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::World;

use super::claims::SignedClaim;

/// PVE starts a machine from a snapshot that holds memory, whatever the request says.
pub(super) fn starts_as_signed(
    world: &World,
    guest: GuestId,
    claim: &SignedClaim,
) -> Result<(), String> {
    let signed = |name: &str| claim.params.get(name).map(String::as_str).unwrap_or_default();
    let snapshots = world.guest(guest).map_or(&[][..], |found| &found.config.snapshots[..]);
    let is_meant = |section: &evenkeel_sim::Section| {
        section.get("snaptime").map(String::as_str) == Some(signed("snaptime"))
    };
    let meant =
        snapshots.iter().find(|point| point.name == signed("snapname") && is_meant(&point.section));
    let starts = meant.is_some_and(|point| point.section.contains_key("vmstate"));
    if starts && signed("start") != "1" {
        return Err("(21) a rollback starts the machine, and that was not signed".to_owned());
    }
    Ok(())
}
