//! T: time and nonces. Inside its window, once, ever.

use evenkeel_core::model::id::OperationId;
use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::{self, ClockReading, WallClock};
use evenkeel_core::sign::{
    Act, ApprovalDecision, Envelope, Namespace, Nonce, OpResult, REMEMBERED_AFTER_EXPIRY_S,
    SpentNonces, SpentOn, Statement, StatementLimits, TrustVersion, Window, authorise,
};

use evenkeel_testkit::signing_keys::{
    NOW, act, alice, approved, clock as steady, ed, found, sealed, statement, trust, vault,
};

fn at(approval: &Envelope, now: UnixSeconds) -> R {
    let clock = ClockReading { now, mark: now, doubt: None };
    authorise(
        approval,
        &act(),
        &trust(),
        &clock,
        &SpentNonces::default(),
        StatementLimits::default(),
    )
    .reason()
}

fn with_spent(approval: &Envelope, act: &Act, spent: &SpentNonces) -> ApprovalDecision {
    authorise(approval, act, &trust(), &steady(), spent, StatementLimits::default())
}

fn op(number: u128) -> OperationId {
    OperationId::from_parts(1, number)
}

fn spent_on(approval: &Envelope, result: OpResult) -> SpentNonces {
    let mut spent = SpentNonces::default();
    let record = SpentOn {
        payload: approval.payload_hash(),
        op: op(1),
        result,
        expires_at: statement().window.expires_at(),
    };
    spent.spend(statement().nonce, record).unwrap();
    spent
}

#[test]
fn t01_the_same_nonce_on_another_statement_is_a_conflict() {
    let first = approved(&statement());
    let other = approved(&Statement { reason: "another".to_owned(), ..statement() });
    let spent = spent_on(&first, OpResult::Succeeded);
    assert_eq!(with_spent(&other, &act(), &spent).reason(), R::NonceConflict);
    // But only if it is validly signed: anybody can send bytes.
    let forged = sealed(other.payload(), Namespace::Op, &[&ed(77)]);
    assert_eq!(with_spent(&forged, &act(), &spent).reason(), R::UnknownSigner);
}

#[test]
fn t02_the_same_statement_signed_by_another_key_is_the_same_statement() {
    let bob = ed(11);
    let signers = vec![
        alice().signer("alice", evenkeel_core::sign::Role::Operational),
        bob.signer("bob", evenkeel_core::sign::Role::Operational),
        vault().signer("vault", evenkeel_core::sign::Role::Recovery),
    ];
    let trust = evenkeel_core::sign::TrustedSigners::genesis(TrustVersion(1), signers).unwrap();
    let payload = statement().to_bytes().unwrap();
    let by_alice = sealed(&payload, Namespace::Op, &[&alice()]);
    let by_bob = sealed(&payload, Namespace::Op, &[&bob]);
    let by_both = sealed(&payload, Namespace::Op, &[&alice(), &bob]);
    let spent = spent_on(&by_alice, OpResult::Succeeded);
    for again in [by_bob, by_both] {
        let fresh = authorise(
            &again,
            &act(),
            &trust,
            &steady(),
            &SpentNonces::default(),
            StatementLimits::default(),
        );
        assert_eq!(fresh.reason(), R::AllowedSigned);
        let decision =
            authorise(&again, &act(), &trust, &steady(), &spent, StatementLimits::default());
        assert_eq!(decision, ApprovalDecision::Replay { op: op(1), result: OpResult::Succeeded });
    }
}

#[test]
fn t02_a_malleated_ecdsa_signature_is_the_same_statement() {
    let key = evenkeel_testkit::signing_keys::ecdsa(3);
    let payload = statement().to_bytes().unwrap();
    let evenkeel_testkit::signing_keys::Key::P256(secret) = &key else { unreachable!() };
    let bytes = evenkeel_core::sign::signed_bytes(Namespace::Op, &payload);
    let made: p256::ecdsa::Signature = p256::ecdsa::signature::Signer::sign(secret, &bytes);
    let (r, s) = made.split_scalars();
    let twin = p256::ecdsa::Signature::from_scalars(r, -s).unwrap();
    let armour = |signature: &p256::ecdsa::Signature| {
        let inner = evenkeel_testkit::signing_keys::numbers(signature);
        let string = evenkeel_testkit::signing_keys::string;
        let raw = [string(b"ecdsa-sha2-nistp256"), string(&inner)].concat();
        evenkeel_core::sign::assemble(&key.public(), Namespace::Op, &raw).unwrap()
    };
    // Both verify: OpenSSH does not normalise S. The nonce, not the signature, makes it once.
    for signature in [made, twin] {
        let text = armour(&signature);
        evenkeel_core::sign::verify(&text, Namespace::Op, &payload).unwrap();
        let sealed = Envelope::seal(&payload, &[&text]).unwrap();
        let envelope = Envelope::parse(sealed.as_bytes()).unwrap();
        assert_eq!(envelope.payload_hash(), approved(&statement()).payload_hash());
    }
}

#[test]
fn t03_t04_a_replay_is_told_the_first_op_and_its_result_in_every_state() {
    let approval = approved(&statement());
    for result in [OpResult::InFlight, OpResult::Succeeded, OpResult::Failed, OpResult::Unknown] {
        let spent = spent_on(&approval, result);
        let answer = with_spent(&approval, &act(), &spent);
        assert_eq!(answer, ApprovalDecision::Replay { op: op(1), result });
        assert_eq!(answer.reason(), R::Replay);
        // The guest is gone by then, and the window may be over: the answer is the same.
        let mut gone = act();
        gone.found = evenkeel_core::sign::FoundGuest::Free;
        assert_eq!(with_spent(&approval, &gone, &spent).reason(), R::Replay);
        let late = ClockReading { now: NOW.plus(90_000), mark: NOW, doubt: None };
        let answer =
            authorise(&approval, &act(), &trust(), &late, &spent, StatementLimits::default());
        assert_eq!(answer.reason(), R::Replay);
    }
}

#[test]
fn t03_a_nonce_is_spent_once() {
    let mut spent = spent_on(&approved(&statement()), OpResult::InFlight);
    let again = spent.get(&statement().nonce).unwrap().clone();
    assert_eq!(spent.spend(statement().nonce, again).unwrap_err().op, op(1));
    spent.set_result(&statement().nonce, OpResult::Succeeded);
    assert_eq!(spent.get(&statement().nonce).unwrap().result, OpResult::Succeeded);
}

#[test]
fn t04_after_its_nonce_is_forgotten_a_statement_is_expired() {
    let approval = approved(&statement());
    let mut spent = spent_on(&approval, OpResult::Succeeded);
    let end = statement().window.expires_at();
    spent.forget_ended(end.plus(REMEMBERED_AFTER_EXPIRY_S - 1));
    assert_eq!(spent.len(), 1);
    let mark = end.plus(REMEMBERED_AFTER_EXPIRY_S);
    spent.forget_ended(mark);
    assert!(spent.is_empty());
    assert_eq!(at(&approval, mark), R::Expired);
}

#[test]
fn t05_a_nonce_has_one_spelling() {
    let good = "0123456789abcdef0123456789abcdef";
    assert_eq!(good.parse::<Nonce>().unwrap().to_string(), good);
    assert_eq!(good.parse::<Nonce>().unwrap().idempotency_key().as_str(), good);
    let bent = [
        "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef 123456789abcdef",
        "",
        "00",
        "00000000000000000000000000000000",
        "ASNFZ4mrze8BI0VniavN7w==",
        "0123456789abcdef0123456789abcdef0",
        "0123456789abcdef0123456789abcde",
        "+123456789abcdef0123456789abcdef",
        "0x23456789abcdef0123456789abcdef",
    ];
    for text in bent {
        assert!(text.parse::<Nonce>().is_err(), "{text}");
        let bytes = String::from_utf8(statement().to_bytes().unwrap()).unwrap();
        let bytes = bytes.replace(&statement().nonce.to_string(), text);
        assert_eq!(Statement::parse(bytes.as_bytes()).unwrap_err().reason, R::Payload);
    }
    assert!(Nonce::from_random([0; 16]).is_err());
}

#[test]
fn t06_a_window_that_is_too_long_or_upside_down_is_refused() {
    let window = |from: u64, until: u64| Window::new(UnixSeconds(from), UnixSeconds(until));
    assert!(window(5, 5).is_err());
    assert!(window(6, 5).is_err());
    assert!(window(5, 253_402_300_800).is_err(), "after the year 9999");
    let day = 24 * 60 * 60;
    for (life, answer) in [
        (day, R::AllowedSigned),
        (day + 1, R::LifetimeExceeded),
        (10 * 365 * day, R::LifetimeExceeded),
    ] {
        let window = Window::new(NOW, NOW.plus(life)).unwrap();
        assert_eq!(at(&approved(&Statement { window, ..statement() }), NOW), answer);
    }
    // A host may allow less.
    let limits = StatementLimits { statement_life_max_s: 60 };
    let approval = approved(&statement());
    let answer = authorise(&approval, &act(), &trust(), &steady(), &SpentNonces::default(), limits);
    assert_eq!(answer.reason(), R::LifetimeExceeded);
}

#[test]
fn t07_the_window_is_judged_to_the_second_whenever_asked() {
    let approval = approved(&statement());
    let from = statement().window.not_before();
    let until = statement().window.expires_at();
    assert_eq!(at(&approval, from.minus(1)), R::NotYetValid);
    assert_eq!(at(&approval, from), R::AllowedSigned);
    assert_eq!(at(&approval, until.minus(1)), R::AllowedSigned);
    assert_eq!(at(&approval, until), R::Expired);
    assert_eq!(at(&approval, until.plus(1_000_000)), R::Expired);
}

#[test]
fn t09_a_clock_set_back_does_not_revive_a_statement_and_holds_destruction() {
    let approval = approved(&statement());
    let mark = statement().window.expires_at();
    let back = clock::read(Some(mark), WallClock { at: NOW, synchronised: true });
    let spent = SpentNonces::default();
    let answer = authorise(&approval, &act(), &trust(), &back, &spent, StatementLimits::default());
    assert_eq!(answer.reason(), R::Expired);
    // One that is still valid by the mark waits until the clock is right.
    let back = clock::read(Some(NOW), WallClock { at: UnixSeconds(0), synchronised: false });
    let answer = authorise(&approval, &act(), &trust(), &back, &spent, StatementLimits::default());
    assert_eq!(answer.reason(), R::Clock);
}

#[test]
fn t10_a_leap_of_the_clock_holds_destruction() {
    let far = NOW.plus(20 * 365 * 86_400);
    let leap = clock::read(Some(NOW), WallClock { at: far, synchronised: false });
    let window = Window::new(far.minus(60), far.plus(60)).unwrap();
    let approval = approved(&Statement { window, ..statement() });
    let spent = SpentNonces::default();
    let answer = authorise(&approval, &act(), &trust(), &leap, &spent, StatementLimits::default());
    assert_eq!(answer.reason(), R::Clock, "even a statement made for that time");
    // One that would have expired by the leap only waits: the leap may be undone.
    let approval = approved(&statement());
    let answer = authorise(&approval, &act(), &trust(), &leap, &spent, StatementLimits::default());
    assert_eq!(answer.reason(), R::Clock);
}

#[test]
fn t11_times_are_utc_seconds_and_nothing_else() {
    let good = String::from_utf8(statement().to_bytes().unwrap()).unwrap();
    let expires = format!("\"expires_at\": {}", NOW.0 + 3600);
    assert!(good.contains(&expires));
    for other in
        ["\"2027-01-15T09:00:00Z\"", "1800003600.5", "\"1800003600\"", "1.8e9", "-1", "null"]
    {
        let bent = good.replace(&expires, &format!("\"expires_at\": {other}"));
        assert_eq!(Statement::parse(bent.as_bytes()).unwrap_err().reason, R::Payload, "{other}");
    }
}

#[test]
fn t26_a_clock_that_leaps_and_returns_makes_no_nonce_forgotten() {
    let approval = approved(&statement());
    let mut spent = spent_on(&approval, OpResult::Succeeded);
    let far = NOW.plus(20 * 365 * 86_400);
    let leap = clock::read(Some(NOW), WallClock { at: far, synchronised: false });
    spent.forget_ended(leap.mark);
    let back = clock::read(Some(leap.mark), WallClock { at: NOW.plus(10), synchronised: false });
    let answer = authorise(&approval, &act(), &trust(), &back, &spent, StatementLimits::default());
    assert_eq!(answer.reason(), R::Replay);
    assert_eq!(act().found, found());
}

#[test]
fn t27_ended_nonces_are_forgotten_and_a_refused_statement_costs_none() {
    let mut spent = SpentNonces::default();
    for number in 1..=20_000_u128 {
        let nonce = Nonce::from_random(number.to_be_bytes()).unwrap();
        let record = SpentOn {
            payload: approved_hash(),
            op: op(number),
            result: OpResult::Succeeded,
            expires_at: NOW,
        };
        spent.spend(nonce, record).unwrap();
    }
    let before = spent.clone();
    let stranger = sealed(&statement().to_bytes().unwrap(), Namespace::Op, &[&ed(77)]);
    assert_eq!(with_spent(&stranger, &act(), &spent).reason(), R::UnknownSigner);
    assert_eq!(spent, before, "judging spends nothing");
    spent.forget_ended(NOW.plus(2 * REMEMBERED_AFTER_EXPIRY_S));
    assert!(spent.is_empty());
}

fn approved_hash() -> evenkeel_core::sign::PayloadHash {
    evenkeel_core::sign::PayloadHash::of(b"x")
}
