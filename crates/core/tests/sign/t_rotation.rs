//! T: roles and rotation. The chain goes on by one, by the right key, and nobody is locked out.

use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::{self, ClockDoubt, ClockReading, WallClock};
use evenkeel_core::sign::{
    AnyStatement, ClockChange, Envelope, HostBinding, Namespace, Role, Rotated, Rotation,
    RotationAuthority, STATEMENT_LIFE_MAX_S, Signer, SpentNonces, Statement, StatementLimits,
    TrustHash, TrustVersion, TrustedSigners, Validity, Window, authorise, render, rotate,
};

use evenkeel_testkit::signing_keys::{
    Key, NOW, act, alice, approved, clock, ecdsa, ed, host, reason, sealed, sk_ed, statement,
    trust, vault,
};

fn bob() -> Key {
    ed(11)
}

fn mallory() -> Key {
    ed(66)
}

fn op(key: &Key, name: &str) -> Signer {
    key.signer(name, Role::Operational)
}

fn recovery(key: &Key, name: &str) -> Signer {
    key.signer(name, Role::Recovery)
}

/// A rotation that follows a store, with these signers.
pub(crate) fn following(
    trust: &TrustedSigners,
    authority: RotationAuthority,
    signers: Vec<Signer>,
) -> Rotation {
    Rotation {
        authority,
        host: host(),
        version: TrustVersion(trust.version().0 + 1),
        previous: trust.head(),
        signers,
        clock: ClockChange::Keep,
        approve: None,
        window: Window::new(NOW.minus(60), NOW.plus(3600)).unwrap(),
        reason: "yearly change".to_owned(),
    }
}

/// Alice hands over to bob.
fn planned(trust: &TrustedSigners) -> Rotation {
    following(
        trust,
        RotationAuthority::Planned,
        vec![op(&bob(), "bob"), recovery(&vault(), "vault")],
    )
}

/// The bytes of a rotation, for the fuzz corpus.
pub(crate) fn a_rotation() -> Vec<u8> {
    planned(&trust()).to_bytes().unwrap()
}

fn signed(rotation: &Rotation, keys: &[&Key]) -> Envelope {
    sealed(&rotation.to_bytes().unwrap(), rotation.authority.namespace(), keys)
}

fn try_rotate(
    trust: &TrustedSigners,
    rotation: &Rotation,
    keys: &[&Key],
) -> Result<Rotated, Refusal> {
    let envelope = signed(rotation, keys);
    rotate(&envelope, rotation.authority, trust, &host(), &clock(), STATEMENT_LIFE_MAX_S)
}

fn refusal(rotation: &Rotation, keys: &[&Key]) -> R {
    try_rotate(&trust(), rotation, keys).unwrap_err().reason
}

fn allowed(trust: &TrustedSigners, approval: &Envelope) -> R {
    authorise(
        approval,
        &act(),
        trust,
        &clock(),
        &SpentNonces::default(),
        StatementLimits::default(),
    )
    .reason()
}

#[test]
fn a_planned_rotation_makes_the_next_version_and_the_chain_names_it() {
    let before = trust();
    let rotation = planned(&before);
    let after = try_rotate(&before, &rotation, &[&alice(), &bob()]).unwrap().trust;
    assert_eq!(after.version(), TrustVersion(2));
    assert_eq!(after.head(), TrustHash::of(&rotation.to_bytes().unwrap()));
    let names: Vec<String> = after.signers().map(|signer| signer.name.to_string()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"bob".to_owned()));
    // And on: bob's next one follows that head.
    let next = following(
        &after,
        RotationAuthority::Planned,
        vec![op(&alice(), "alice"), recovery(&vault(), "vault")],
    );
    assert!(try_rotate(&after, &next, &[&bob(), &alice()]).is_ok());
}

#[test]
fn t12_an_operational_key_cannot_touch_recovery_keys() {
    let before = trust();
    let with = |recovery: Vec<Signer>| {
        let mut signers = vec![op(&alice(), "alice")];
        signers.extend(recovery);
        following(&before, RotationAuthority::Planned, signers)
    };
    let mut shortened = recovery(&vault(), "vault");
    shortened.validity = Validity { from: UnixSeconds(0), until: NOW.plus(1) };
    let attempts = [
        vec![recovery(&mallory(), "vault")],
        vec![recovery(&vault(), "vault"), recovery(&mallory(), "second")],
        vec![shortened],
        vec![recovery(&vault(), "renamed")],
    ];
    for attempt in attempts {
        let rotation = with(attempt);
        let strangers = rotation.signers.iter().any(|signer| signer.key == mallory().public());
        let alice = alice();
        let mallory = mallory();
        let keys: Vec<&Key> = if strangers { vec![&alice, &mallory] } else { vec![&alice] };
        assert_eq!(refusal(&rotation, &keys), R::RoleDenied);
    }
    // Nor sign a recovery.
    let recover = Rotation {
        authority: RotationAuthority::Recovery,
        ..with(vec![recovery(&vault(), "vault")])
    };
    assert_eq!(refusal(&recover, &[&alice()]), R::RoleDenied);
}

#[test]
fn t13_a_recovery_key_signs_no_act_whatever_it_is_wrapped_in() {
    let payload = statement().to_bytes().unwrap();
    let as_op = sealed(&payload, Namespace::Op, &[&vault()]);
    assert_eq!(reason(&as_op, &act()), R::RoleDenied);
    let with_alice = sealed(&payload, Namespace::Op, &[&alice(), &vault()]);
    assert_eq!(reason(&with_alice, &act()), R::RoleDenied);
    let as_recovery = sealed(&payload, Namespace::Recover, &[&vault()]);
    assert_eq!(reason(&as_recovery, &act()), R::SigNamespace);
    // An act carried in a rotation's extra field.
    let rotation = following(
        &trust(),
        RotationAuthority::Recovery,
        vec![op(&alice(), "alice"), recovery(&vault(), "vault")],
    );
    let text = String::from_utf8(rotation.to_bytes().unwrap()).unwrap();
    let carried = text.replacen('{', "{\"op\": \"destroy\", \"guest\": \"qemu/101\",", 1);
    let envelope = sealed(carried.as_bytes(), Namespace::Recover, &[&vault()]);
    let answer = rotate(
        &envelope,
        RotationAuthority::Recovery,
        &trust(),
        &host(),
        &clock(),
        STATEMENT_LIFE_MAX_S,
    );
    assert_eq!(answer.unwrap_err().reason, R::Payload);
    // Nor a planned rotation.
    assert_eq!(refusal(&planned(&trust()), &[&vault(), &bob()]), R::RoleDenied);
}

#[test]
fn t14_one_key_has_one_role_and_one_name() {
    let both = vec![
        op(&alice(), "alice"),
        op(&bob(), "bob"),
        recovery(&alice(), "also"),
        recovery(&vault(), "vault"),
    ];
    assert_eq!(
        TrustedSigners::genesis(TrustVersion(1), both.clone()).unwrap_err().reason,
        R::Payload
    );
    let rotation = following(&trust(), RotationAuthority::Recovery, both);
    assert_eq!(refusal(&rotation, &[&vault(), &bob()]), R::RoleDenied);
    let twins = vec![op(&alice(), "alice"), op(&alice(), "twin"), recovery(&vault(), "vault")];
    let rotation = following(&trust(), RotationAuthority::Planned, twins);
    assert_eq!(refusal(&rotation, &[&alice()]), R::Payload);
    let named = vec![op(&alice(), "alice"), op(&bob(), "alice"), recovery(&vault(), "vault")];
    assert_eq!(TrustedSigners::genesis(TrustVersion(1), named).unwrap_err().reason, R::Payload);
    // A key does not change its role either: what it signed under one must not count under another.
    let swapped = vec![op(&vault(), "vault"), recovery(&alice(), "alice")];
    assert_eq!(
        refusal(&following(&trust(), RotationAuthority::Recovery, swapped), &[&vault()]),
        R::RoleDenied
    );
}

#[test]
fn t15_the_chain_goes_on_by_exactly_one_from_exactly_its_head() {
    let good = planned(&trust());
    for version in [0, 1, 3, 100, u64::MAX] {
        let bent = Rotation { version: TrustVersion(version), ..good.clone() };
        assert_eq!(refusal(&bent, &[&alice(), &bob()]), R::TrustVersion, "{version}");
    }
    let bent = Rotation { previous: TrustHash([7; 32]), ..good.clone() };
    assert_eq!(refusal(&bent, &[&alice(), &bob()]), R::TrustVersion);
    assert!(try_rotate(&trust(), &good, &[&alice(), &bob()]).is_ok());
}

#[test]
fn t15_the_last_version_has_no_successor() {
    let signers = vec![op(&alice(), "alice"), recovery(&vault(), "vault")];
    let last = TrustedSigners::genesis(TrustVersion(u64::MAX), signers.clone()).unwrap();
    let mut rotation = following(&trust(), RotationAuthority::Planned, signers);
    (rotation.version, rotation.previous) = (TrustVersion(0), last.head());
    assert_eq!(try_rotate(&last, &rotation, &[&alice()]).unwrap_err().reason, R::TrustVersion);
}

#[test]
fn t16_every_new_key_must_sign() {
    assert_eq!(refusal(&planned(&trust()), &[&alice()]), R::Envelope);
    let two = following(
        &trust(),
        RotationAuthority::Planned,
        vec![op(&bob(), "bob"), op(&sk_ed(12), "carol"), recovery(&vault(), "vault")],
    );
    assert_eq!(refusal(&two, &[&alice(), &bob()]), R::Envelope);
    assert!(try_rotate(&trust(), &two, &[&alice(), &bob(), &sk_ed(12)]).is_ok());
    // A signature by the new key alone authorises nothing.
    assert_eq!(refusal(&planned(&trust()), &[&bob()]), R::UnknownSigner);
    // A bad signature by the new key is no possession.
    let payload = planned(&trust()).to_bytes().unwrap();
    let good = alice().sign(Namespace::Rotate, &payload);
    let bad = bob().sign(Namespace::Rotate, b"x");
    let envelope = Envelope::seal(&payload, &[&good, &bad]).unwrap();
    let envelope = Envelope::parse(envelope.as_bytes()).unwrap();
    let answer = rotate(
        &envelope,
        RotationAuthority::Planned,
        &trust(),
        &host(),
        &clock(),
        STATEMENT_LIFE_MAX_S,
    );
    assert_eq!(answer.unwrap_err().reason, R::SigInvalid);
    // A stranger who signs along is no signer.
    assert_eq!(refusal(&planned(&trust()), &[&alice(), &bob(), &mallory()]), R::UnknownSigner);
}

#[test]
fn t16_a_new_key_that_is_weak_or_of_another_type_is_refused() {
    let text = String::from_utf8(planned(&trust()).to_bytes().unwrap()).unwrap();
    let bobs = bob().public().to_string();
    // The identity point, and an RSA key.
    let weak = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (key, answer) in [(weak, R::WeakKey), ("ssh-rsa AAAAB3NzaC1yc2E=", R::KeyType)] {
        let bent = text.replace(&bobs, key);
        assert_ne!(bent, text);
        assert_eq!(
            Rotation::parse(bent.as_bytes(), RotationAuthority::Planned).unwrap_err().reason,
            answer
        );
    }
}

#[test]
fn t17_no_role_is_ever_left_without_a_key() {
    for signers in [vec![], vec![op(&alice(), "alice")], vec![recovery(&vault(), "vault")]] {
        let answer = TrustedSigners::genesis(TrustVersion(1), signers.clone());
        assert_eq!(answer.unwrap_err().reason, R::Payload);
        for authority in RotationAuthority::ALL {
            let key = match authority {
                RotationAuthority::Recovery => vault(),
                RotationAuthority::Planned => alice(),
            };
            let rotation = following(&trust(), authority, signers.clone());
            assert!(matches!(refusal(&rotation, &[&key]), R::Payload | R::RoleDenied));
        }
    }
    // A key that is no longer or not yet valid is no key.
    for validity in [
        Validity { from: UnixSeconds(0), until: NOW },
        Validity { from: NOW.plus(1), until: NOW.plus(9) },
    ] {
        let mut dead = op(&alice(), "alice");
        dead.validity = validity;
        let signers = vec![dead, recovery(&vault(), "vault")];
        assert_eq!(
            refusal(&following(&trust(), RotationAuthority::Planned, signers), &[&alice()]),
            R::Payload
        );
    }
}

#[test]
fn t18_recovery_wins_from_any_state_and_voids_what_is_outstanding() {
    // Mallory has alice's key and makes the host his own.
    let stolen = following(
        &trust(),
        RotationAuthority::Planned,
        vec![op(&mallory(), "mallory"), recovery(&vault(), "vault")],
    );
    let taken = try_rotate(&trust(), &stolen, &[&alice(), &mallory()]).unwrap().trust;
    let job = Statement { trust_version: TrustVersion(2), ..statement() };
    let job = sealed(&job.to_bytes().unwrap(), Namespace::Op, &[&mallory()]);
    assert_eq!(allowed(&taken, &job), R::AllowedSigned);
    // The vault gives it back.
    let recover = following(
        &taken,
        RotationAuthority::Recovery,
        vec![op(&bob(), "bob"), recovery(&vault(), "vault")],
    );
    let back = try_rotate(&taken, &recover, &[&vault(), &bob()]).unwrap().trust;
    assert_eq!(allowed(&back, &job), R::KeyRevoked);
    // Even where mallory's key stays, his accepted job is void.
    let keeps = following(
        &taken,
        RotationAuthority::Recovery,
        vec![op(&mallory(), "mallory"), recovery(&vault(), "vault")],
    );
    let back = try_rotate(&taken, &keeps, &[&vault()]).unwrap().trust;
    assert_eq!(allowed(&back, &job), R::TrustVersion);
}

#[test]
fn t19_of_two_rotations_one_becomes_the_next_and_recovery_goes_first() {
    let before = trust();
    let plan = planned(&before);
    let recover = following(
        &before,
        RotationAuthority::Recovery,
        vec![op(&ecdsa(13), "carol"), recovery(&vault(), "vault")],
    );
    let mut waiting = [plan.authority, recover.authority];
    waiting.sort();
    assert_eq!(waiting[0], RotationAuthority::Recovery);
    let after = try_rotate(&before, &recover, &[&vault(), &ecdsa(13)]).unwrap().trust;
    let late = try_rotate(&after, &plan, &[&alice(), &bob()]).unwrap_err();
    assert_eq!(late.reason, R::KeyRevoked, "alice is no signer any more");
    let after = try_rotate(&before, &plan, &[&alice(), &bob()]).unwrap().trust;
    let late = try_rotate(&after, &recover, &[&vault(), &ecdsa(13)]).unwrap_err();
    assert_eq!(late.reason, R::TrustVersion);
    // And none is taken twice.
    assert_eq!(try_rotate(&after, &plan, &[&bob()]).unwrap_err().reason, R::TrustVersion);
}

#[test]
fn t20_a_job_queued_before_a_rotation_is_refused_after_it() {
    let job = approved(&statement());
    assert_eq!(allowed(&trust(), &job), R::AllowedSigned);
    let after = try_rotate(&trust(), &planned(&trust()), &[&alice(), &bob()]).unwrap().trust;
    assert_eq!(allowed(&after, &job), R::KeyRevoked);
    // A key that comes back is a signer again.
    let again = following(
        &after,
        RotationAuthority::Planned,
        vec![op(&alice(), "alice"), recovery(&vault(), "vault")],
    );
    let again = try_rotate(&after, &again, &[&bob(), &alice()]).unwrap().trust;
    assert_eq!(allowed(&again, &job), R::TrustVersion);
}

#[test]
fn t21_a_key_outside_of_its_validity_signs_nothing() {
    let at = |from: UnixSeconds, until: UnixSeconds| {
        let mut alice = op(&alice(), "alice");
        alice.validity = Validity { from, until };
        let signers = vec![alice, recovery(&vault(), "vault")];
        let trust = TrustedSigners::genesis(TrustVersion(1), signers).unwrap();
        allowed(&trust, &approved(&statement()))
    };
    assert_eq!(at(NOW, NOW.plus(1)), R::AllowedSigned);
    assert_eq!(at(NOW.minus(9), NOW), R::KeyRevoked);
    assert_eq!(at(NOW.plus(1), NOW.plus(9)), R::KeyRevoked);
    // A rotation neither.
    let mut old = op(&alice(), "alice");
    old.validity = Validity { from: NOW.minus(9), until: NOW };
    let trust =
        TrustedSigners::genesis(TrustVersion(1), vec![old, recovery(&vault(), "vault")]).unwrap();
    let answer = try_rotate(&trust, &planned(&trust), &[&alice(), &bob()]);
    assert_eq!(answer.unwrap_err().reason, R::KeyRevoked);
}

#[test]
fn t22_a_rotation_for_one_host_says_nothing_on_another() {
    let envelope = signed(&planned(&trust()), &[&alice(), &bob()]);
    let other_key = HostBinding { key: ed(9).public().fingerprint(), ..host() };
    let other_name = HostBinding { id: "pve2".parse().unwrap(), ..host() };
    for other in [other_key, other_name] {
        let answer = rotate(
            &envelope,
            RotationAuthority::Planned,
            &trust(),
            &other,
            &clock(),
            STATEMENT_LIFE_MAX_S,
        );
        assert_eq!(answer.unwrap_err().reason, R::HostMismatch);
    }
}

#[test]
fn t23_a_store_survives_the_journal_as_it_is_or_not_at_all() {
    let after = try_rotate(&trust(), &planned(&trust()), &[&alice(), &bob()]).unwrap().trust;
    let json = serde_json::to_string(&after).unwrap();
    let read: TrustedSigners = serde_json::from_str(&json).unwrap();
    assert_eq!(read, after);
    assert_eq!(allowed(&read, &approved(&statement())), R::KeyRevoked, "retired keys come along");
    // Refused, the old store is untouched: rotate takes it by reference and gives a new one.
    let before = trust();
    assert!(try_rotate(&before, &planned(&before), &[&alice()]).is_err());
    assert_eq!(before, trust());
    for bent in
        [json.replace("\"recovery\"", "\"operational\""), json.replace("\"head\"", "\"Head\"")]
    {
        assert!(serde_json::from_str::<TrustedSigners>(&bent).is_err());
    }
}

#[test]
fn a_rotation_is_judged_by_its_window_too() {
    let envelope = signed(&planned(&trust()), &[&alice(), &bob()]);
    let at = |now: UnixSeconds, life| {
        let clock = ClockReading { now, mark: now, doubt: None };
        let answer = rotate(&envelope, RotationAuthority::Planned, &trust(), &host(), &clock, life);
        answer.map(|_| ()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(at(NOW, STATEMENT_LIFE_MAX_S), Ok(()));
    assert_eq!(at(NOW.plus(3600), STATEMENT_LIFE_MAX_S), Err(R::Expired));
    assert_eq!(at(NOW.minus(61), STATEMENT_LIFE_MAX_S), Err(R::NotYetValid));
    assert_eq!(at(NOW, 3659), Err(R::LifetimeExceeded));
}

#[test]
fn t10_a_signed_clock_change_sets_a_poisoned_mark_once_and_voids_what_is_outstanding() {
    // A synchronised clock was wrong by twenty years once; the mark stands there since.
    let poisoned = NOW.plus(20 * 365 * 86_400);
    let reading = clock::read(Some(poisoned), WallClock { at: NOW, synchronised: true });
    assert!(matches!(reading.doubt, Some(ClockDoubt::Behind { .. })));
    let mut change =
        following(&trust(), RotationAuthority::Recovery, trust().signers().cloned().collect());
    change.window = Window::new(poisoned.minus(60), poisoned.plus(60)).unwrap();
    change.clock = ClockChange::Set { from: poisoned, to: NOW };
    let envelope = signed(&change, &[&vault()]);
    let rotated = rotate(
        &envelope,
        RotationAuthority::Recovery,
        &trust(),
        &host(),
        &reading,
        STATEMENT_LIFE_MAX_S,
    )
    .unwrap();
    assert_eq!(rotated.mark, Some(NOW));
    let after = clock::read(rotated.mark, WallClock { at: NOW.plus(5), synchronised: true });
    assert_eq!(after.doubt, None);
    // Nonces forgotten under the wrong mark do not come back: their statements name version 1.
    assert_eq!(allowed(&rotated.trust, &approved(&statement())), R::TrustVersion);
    // Replayed, it is refused, even if the mark should be wrong in the same way again.
    let again = rotate(
        &envelope,
        RotationAuthority::Recovery,
        &rotated.trust,
        &host(),
        &reading,
        STATEMENT_LIFE_MAX_S,
    );
    assert_eq!(again.unwrap_err().reason, R::TrustVersion);
    // And it sets no other mark than the one it was made for.
    let other = ClockReading { mark: poisoned.plus(1), ..reading };
    let answer = rotate(
        &envelope,
        RotationAuthority::Recovery,
        &trust(),
        &host(),
        &other,
        STATEMENT_LIFE_MAX_S,
    );
    assert_eq!(answer.unwrap_err().reason, R::Stale);
}

#[test]
fn a_person_is_shown_every_signer_of_a_rotation() {
    let mut rotation = planned(&trust());
    rotation.clock = ClockChange::Set { from: NOW.plus(9), to: NOW };
    rotation.signers[0].validity = Validity { from: UnixSeconds(0), until: NOW.plus(86_400) };
    rotation.signers.push(op(&sk_ed(12), "carol"));
    let shown =
        render::rotation(&rotation.to_bytes().unwrap(), RotationAuthority::Planned).unwrap();
    let print = bob().public().fingerprint().to_string();
    for part in [
        "version 2",
        "bob",
        "vault",
        "carol",
        "presence",
        "void",
        "yearly change",
        &print,
        "2027-01-16T08:00:00Z",
        "2027-01-15T08:00:09Z -> 2027-01-15T08:00:00Z",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(render::rotation(&rotation.to_bytes().unwrap(), RotationAuthority::Recovery).is_err());
}

#[test]
fn the_purpose_of_a_signature_follows_from_the_bytes_that_are_signed() {
    let kind = |bytes: &[u8]| AnyStatement::parse(bytes).map(|found| found.namespace());
    assert_eq!(kind(&statement().to_bytes().unwrap()), Ok(Namespace::Op));
    let mut rotation = planned(&trust());
    assert_eq!(kind(&rotation.to_bytes().unwrap()), Ok(Namespace::Rotate));
    rotation.authority = RotationAuthority::Recovery;
    let bytes = rotation.to_bytes().unwrap();
    assert_eq!(kind(&bytes), Ok(Namespace::Recover));
    let shown = render::any_statement(&bytes).unwrap();
    assert_eq!(shown, render::rotation(&bytes, RotationAuthority::Recovery).unwrap());
    // Another kind's name over these fields is no statement, and neither is what a host signs.
    let text = String::from_utf8(bytes).unwrap();
    for format in ["evenkeel/statement/v1", "evenkeel/pending/v1", "evenkeel/recover/v2", ""] {
        let bent = text.replace("evenkeel/recover/v1", format);
        assert_eq!(kind(bent.as_bytes()).unwrap_err().reason, R::Payload, "{format}");
    }
}
