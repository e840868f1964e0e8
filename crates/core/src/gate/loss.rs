//! What an act would destroy, spelled out for the person who is to sign it.
//!
//! Called when a pending item is raised. It names more rather than less: what cannot be read is said to be unknown,
//! never left out.

use std::collections::BTreeMap;

use crate::action_registry::{ActionKind, LossRule};
use crate::actual::surroundings::GuestSurroundings;
use crate::actual::{Guest, PRESENT, SnapshotPoint};
use crate::sign::Loss;

/// Everything an act with these parameters would destroy of a guest as it is now.
pub fn losses(
    op: ActionKind,
    params: &BTreeMap<String, String>,
    guest: &Guest,
    snapshots: Option<&[SnapshotPoint]>,
    around: Option<&GuestSurroundings>,
) -> Vec<Loss> {
    match op.row().loss {
        LossRule::WholeGuest => {
            let mut lost = volumes(guest);
            lost.extend(all_snapshots(snapshots));
            match around {
                Some(around) => lost.extend(around.losses(is_purged(params))),
                None => lost.push(unknown(UNREAD_AROUND.to_owned())),
            }
            lost
        }
        LossRule::SinceSnapshot => {
            let since = params.get("snapname").map_or("the snapshot", String::as_str);
            let mut lost = vec![unknown(format!("everything written since {since}"))];
            if params.get("start").is_some_and(|start| start == "1") {
                lost.push(unknown(format!(
                    "that it is stopped: {since} holds memory, and Proxmox starts the machine from it"
                )));
            }
            lost
        }
        LossRule::OneSnapshot => {
            let name = params.get("snapname").map_or("?", String::as_str);
            vec![unknown(format!("snapshot {name}"))]
        }
        LossRule::OneVolume => {
            let name = params.get("volume").cloned().unwrap_or_default();
            let known =
                guest.config.as_ref().ok().and_then(|config| *config.volumes().get(&name)?);
            vec![Loss { what: format!("volume {name}"), size_bytes: known.map(|size| size.0) }]
        }
        LossRule::Running => {
            let lost = "the guest's running: it never starts again, and its volumes are read-only";
            vec![unknown(lost.to_owned())]
        }
        // Which part of a write destroys is in its parameters, shown beside this.
        LossRule::AsParameters => Vec::new(),
    }
}

/// What a DELETE takes beside the guest, where nobody looked.
const UNREAD_AROUND: &str = "firewall, roles and pool of its number; which is not known";

/// Whether jobs and HA forget the guest too.
pub fn is_purged(params: &BTreeMap<String, String>) -> bool {
    params.get("purge").map(String::as_str) == Some("1")
}

/// Whether an act takes what is kept under the guest's number.
pub fn takes_surroundings(op: ActionKind) -> bool {
    op.row().loss == LossRule::WholeGuest
}

fn volumes(guest: &Guest) -> Vec<Loss> {
    match &guest.config {
        Ok(config) => config
            .volumes()
            .into_iter()
            .map(|(name, size)| Loss {
                what: format!("volume {name}"),
                size_bytes: size.map(|size| size.0),
            })
            .collect(),
        Err(why) => vec![unknown(format!("all volumes; which is not known: {why}"))],
    }
}

fn all_snapshots(snapshots: Option<&[SnapshotPoint]>) -> Vec<Loss> {
    match snapshots {
        Some(points) => points
            .iter()
            .filter(|point| point.name != PRESENT)
            .map(|point| unknown(format!("snapshot {}", point.name)))
            .collect(),
        None => vec![unknown("all snapshots; which is not known".to_owned())],
    }
}

fn unknown(what: String) -> Loss {
    Loss { what, size_bytes: None }
}
