//! An item as a host raises it: the destroy of a running machine. Shared by the tests of everything that carries items.

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::destroy::Destroy;
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Expected, HostBinding, LastBackup, Nonce, PendingItem, TrustVersion};

/// The destroy of `qemu/101`, which nobody ever backed up.
pub fn destroy_item(host: HostBinding, serial: Nonce, raised_at: UnixSeconds) -> PendingItem {
    let destroy = Destroy {
        kind: GuestKind::Qemu,
        stop: true,
        unprotect: false,
        purge: false,
        final_backup: None,
    };
    PendingItem {
        op: ActionKind::Destroy,
        host,
        guest: "qemu/101".parse().unwrap(),
        guest_name: "billing".to_owned(),
        expected: Expected::Guest {
            identity: "a".repeat(64).parse().unwrap(),
            digest: "b".repeat(40).parse().unwrap(),
        },
        params: destroy.params(),
        losses: Vec::new(),
        last_backup: LastBackup::Never,
        serial,
        raised_at,
        trust_version: TrustVersion(1),
    }
}
