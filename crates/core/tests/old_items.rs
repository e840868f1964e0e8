//! Items that an older version raised: what they do not say ends them.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up shall stop")]

#[expect(dead_code, reason = "only the text of an actual state is read here")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::gate::approval::{ItemReview, RaisedBy, requested_item};
use evenkeel_core::gate::final_backup::BackupContext;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Fingerprint, HostBinding, LastBackup, Nonce, PendingItem, TrustVersion};

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// Whether a requested destroy with a final backup is over, if its list of what is left out is this.
fn is_over(guest: &str, listed: impl FnOnce(&str) -> String) -> bool {
    let slot = if guest.starts_with("lxc") { "rootfs" } else { "scsi0" };
    let (mut actual, _) =
        support::actual(&format!("{guest} stopped\n{slot}: local-lvm:vm-101-disk-0,size=8G\n"));
    let found = actual.guests.values_mut().next().unwrap();
    Arc::make_mut(found.config.as_mut().unwrap()).digest = "1".repeat(40);
    let found = &*found;
    let given = BTreeMap::from([("final_backup".to_owned(), "store".to_owned())]);
    let around = BackupContext::default();
    let wanted = requested_item(ActionKind::Destroy, found, &around, given).unwrap();
    let mut params = wanted.params.clone();
    let left = listed(&params["not_in_backup"]);
    params.insert("not_in_backup".to_owned(), left);
    let item = PendingItem {
        op: wanted.op,
        host: HostBinding { id: "pve1".parse().unwrap(), key: Fingerprint([7; 32]) },
        guest: wanted.guest,
        guest_name: "web".to_owned(),
        expected: wanted.expected.clone(),
        params,
        losses: Vec::new(),
        last_backup: LastBackup::Never,
        serial: Nonce::from_random([5; 16]).unwrap(),
        raised_at: NOW,
        trust_version: TrustVersion(1),
    };
    let review = ItemReview {
        wanted: &[],
        actual: &actual,
        scope: &PassScope::Whole,
        busy: &BTreeSet::new(),
        version: TrustVersion(1),
        now: NOW,
        life_s: 3_600,
    };
    review.is_over(&item, RaisedBy::Request)
}

#[test]
fn y01_a_requested_item_that_does_not_say_what_no_backup_holds_is_over() {
    assert!(!is_over("lxc/101", str::to_owned), "as it would be raised today");
    assert!(is_over("lxc/101", |_| String::new()), "as an older version raised it");
    assert!(!is_over("qemu/101", str::to_owned), "a machine's list has not changed");
}
