//! A journal that was put back, and the operator who acknowledges it.

use evenkeel_core::fleet::{AcknowledgeStatement, Acknowledged, JournalHead};
use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{Namespace, Nonce, PayloadHash, TrustVersion, Window};

use crate::fleet::{Bend, author, hub, trust};
use evenkeel_testkit::signing_keys::{Key, NOW, alice, ed, host, sealed, vault};

pub(crate) fn head(epoch: u64, seq: u64) -> JournalHead {
    JournalHead { epoch, seq, sum: PayloadHash([7; 32]), trust_version: TrustVersion(1) }
}

#[test]
fn a_key_that_the_lost_part_of_the_journal_revoked_acknowledges_nothing() {
    // The journal had come to version 2, which may have thrown alice out; put back, the host believes version 1 again.
    let anchored = JournalHead { trust_version: TrustVersion(2), ..head(1, 99) };
    let about = Acknowledged { host: host(), hub_id: hub('a'), anchored, found: head(1, 40) };
    let statement = AcknowledgeStatement { anchored, ..acknowledgement() };
    let envelope = sealed(&statement.to_bytes().unwrap(), Namespace::Acknowledge, &[&alice()]);
    let judged = AcknowledgeStatement::judge(&envelope, &about, &trust(), NOW, 86_400);
    let refusal = judged.unwrap_err();
    assert_eq!(refusal.reason, R::TrustVersion);
    assert!(refusal.detail.contains("version 2") && refusal.detail.contains("again"), "{refusal}");
}

pub(crate) fn acknowledgement() -> AcknowledgeStatement {
    AcknowledgeStatement {
        host: host(),
        hub_id: hub('a'),
        anchored: head(1, 99),
        found: head(1, 40),
        nonce: Nonce::from_random([3; 16]).unwrap(),
        window: Window::new(NOW.minus(60), NOW.plus(600)).unwrap(),
        trust_version: TrustVersion(1),
        reason: "restored from backup".to_owned(),
    }
}

#[test]
fn a_rollback_is_acknowledged_by_an_operator_about_exactly_these_heads() {
    let about =
        Acknowledged { host: host(), hub_id: hub('a'), anchored: head(1, 99), found: head(1, 40) };
    let judged = |statement: &AcknowledgeStatement, key: &Key| {
        let envelope = sealed(&statement.to_bytes().unwrap(), Namespace::Acknowledge, &[key]);
        AcknowledgeStatement::judge(&envelope, &about, &trust(), NOW, 86_400)
            .map(|(name, ..)| name.to_string())
            .map_err(|refusal| refusal.reason)
    };
    assert_eq!(judged(&acknowledgement(), &alice()), Ok("alice".to_owned()));
    assert_eq!(judged(&acknowledgement(), &vault()), Err(R::RoleDenied));
    assert_eq!(judged(&acknowledgement(), &author()), Err(R::RoleDenied));
    assert_eq!(judged(&acknowledgement(), &ed(99)), Err(R::UnknownSigner));
    let bent: [(Bend<AcknowledgeStatement>, R); 7] = [
        (|s| s.host.id = "pve2".parse().unwrap(), R::HostMismatch),
        (|s| s.hub_id = hub('b'), R::BindingMismatch),
        (|s| s.anchored = head(1, 98), R::BindingMismatch),
        (|s| s.found = head(1, 41), R::BindingMismatch),
        (|s| s.found = head(0, 40), R::BindingMismatch),
        (|s| s.trust_version = TrustVersion(2), R::TrustVersion),
        (|s| s.window = Window::new(NOW.minus(60), NOW.plus(86_400)).unwrap(), R::LifetimeExceeded),
    ];
    for (bend, expected) in bent {
        let mut statement = acknowledgement();
        bend(&mut statement);
        assert_eq!(judged(&statement, &alice()), Err(expected), "{statement:?}");
    }
}
