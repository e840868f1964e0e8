//! What is known of guests that are not listed; a list that leaves one out is never taken for its absence (invariant 14).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::{Elsewhere, ListCoverage};
use evenkeel_core::model::id::VmId;
use futures_util::future::FutureExt as _;
use futures_util::stream::{self, StreamExt};

use crate::pve::Client;
use crate::pve::error::Error;
use crate::pve::list::{ListReading, UnreadRow};
use crate::pve::site::{ClusterEntry, Permissions, Resource};

/// Whether the token sees every guest, and the node has quorum to speak for the cluster.
pub(super) fn coverage(
    unlisted: Option<&Error>,
    permissions: Result<Permissions, Error>,
    status: Result<ListReading<ClusterEntry>, Error>,
) -> ListCoverage {
    let partial = |why: String| ListCoverage::Partial(why);
    if let Some(error) = unlisted {
        return partial(format!("the cluster's guests cannot be listed: {error}"));
    }
    match permissions {
        Ok(permissions) if sees_all_guests(&permissions) => {}
        Ok(_) => return partial("the token lacks VM.Audit on /vms".to_owned()),
        Err(error) => return partial(format!("the token's rights cannot be read: {error}")),
    }
    match status {
        Ok(entries) if has_quorum(&entries) => ListCoverage::Whole,
        Ok(_) => partial("the cluster has no quorum".to_owned()),
        Err(error) => partial(format!("quorum cannot be read: {error}")),
    }
}

/// `VM.Audit` that reaches every guest: on `/` or `/vms`, passed on to what is below.
fn sees_all_guests(permissions: &Permissions) -> bool {
    ["/", "/vms"].iter().any(|path| {
        permissions
            .0
            .get(*path)
            .and_then(|rights| rights.get("VM.Audit"))
            .is_some_and(|reaches| *reaches)
    })
}

/// A host of its own has no cluster entry, and nobody to lose. A row that cannot be read may be the cluster's.
pub(crate) fn has_quorum(status: &ListReading<ClusterEntry>) -> bool {
    let is_node = |row: &UnreadRow| row.text("type") == Some("node");
    let mut clusters = status.rows.iter().filter(|entry| entry.kind == "cluster");
    status.unread.iter().all(is_node) && clusters.all(|cluster| cluster.quorate)
}

pub(super) fn elsewhere(client: &Client, everywhere: &[Resource]) -> BTreeMap<VmId, Elsewhere> {
    let there = |resource: &Resource| {
        let node = resource.node.clone().filter(|node| node != client.node())?;
        Some((resource.vmid?, Elsewhere { kind: resource.kind.parse().ok()?, node }))
    };
    everywhere.iter().filter_map(there).collect()
}

/// Asks for numbers nobody listed: one that is taken belongs to a guest the token cannot see.
pub(super) async fn ask_for<'a>(
    client: &Client,
    numbers: impl Iterator<Item = &'a VmId> + Send,
    coverage: ListCoverage,
    concurrency: usize,
) -> (BTreeSet<VmId>, ListCoverage) {
    let mut hidden = BTreeSet::new();
    // As many as are declared and not there: guests that are yet to be made are among them, however many.
    let asked = numbers.map(|vmid| async { (*vmid, client.vmid_is_free(*vmid).await) }.boxed());
    let mut answers = stream::iter(asked).buffer_unordered(concurrency.max(1));
    while let Some((vmid, answer)) = answers.next().await {
        match answer {
            Ok(true) => {}
            Ok(false) => {
                hidden.insert(vmid);
            }
            Err(error) => {
                let why = format!("number {vmid} cannot be asked for: {error}");
                return (hidden, ListCoverage::Partial(why));
            }
        }
    }
    (hidden, coverage)
}
