//! T and X: which list of signers a rotation follows, and who sets the mark of time.

use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::{ClockDoubt, ClockReading};
use evenkeel_core::sign::{
    ClockChange, Envelope, Lineage, Occasion, PLANNED_LINKS_MAX, RECOVERY_AHEAD_MAX, Role,
    Rotation, RotationAuthority, STATEMENT_LIFE_MAX_S, SignerCount, TrustHash, TrustVersion,
    TrustedSigners, Window,
};

use crate::t_rotation::following;
use evenkeel_testkit::signing_keys::{Key, NOW, alice, clock, ed, host, sealed, trust, vault};

const DAY: u64 = 86_400;

fn mallory() -> Key {
    ed(66)
}

fn signed(rotation: &Rotation, keys: &[&Key]) -> Envelope {
    sealed(&rotation.to_bytes().unwrap(), rotation.authority.namespace(), keys)
}

fn next(lineage: &Lineage, rotation: &Rotation, keys: &[&Key]) -> Result<Lineage, Refusal> {
    let envelope = signed(rotation, keys);
    let life = STATEMENT_LIFE_MAX_S;
    lineage
        .follow(
            &envelope,
            rotation.authority,
            &host(),
            &clock(),
            (life, Occasion::HandedIn { signers: SignerCount::ONE }),
        )
        .map(|(_, next)| next)
}

fn to_mallory(trust: &TrustedSigners) -> Rotation {
    let signers = vec![
        mallory().signer("mallory", Role::Operational),
        vault().signer("vault", Role::Recovery),
    ];
    following(trust, RotationAuthority::Planned, signers)
}

/// Alice in her place again, for somebody who knows this list.
fn back(known: &TrustedSigners) -> Rotation {
    let signers = known.signers().cloned().collect();
    let version = TrustVersion(known.version().0 + PLANNED_LINKS_MAX as u64 + 1);
    Rotation { version, ..following(known, RotationAuthority::Recovery, signers) }
}

/// Mallory's list, after so many rotations.
fn taken(first: &TrustedSigners, rotations: usize) -> Lineage {
    let mut lineage = Lineage::new(first.clone());
    for number in 0..rotations {
        let change = Rotation { reason: number.to_string(), ..to_mallory(lineage.current()) };
        let alice = alice();
        let mallory = mallory();
        let keys = if number == 0 { vec![&alice, &mallory] } else { vec![&mallory] };
        lineage = next(&lineage, &change, &keys).unwrap();
        assert_eq!(lineage.planned_links(), number + 1);
    }
    lineage
}

#[test]
fn t18_t19_a_recovery_follows_any_list_since_the_last_recovery_and_keys_that_were_there_need_not_sign()
 {
    let first = trust();
    for rotations in [0, 1, 2, 9] {
        let taken = taken(&first, rotations);
        let recovered = next(&taken, &back(&first), &[&vault()]).unwrap();
        assert_eq!(recovered.current().version(), TrustVersion(PLANNED_LINKS_MAX as u64 + 2));
        assert!(recovered.current().lookup(alice().public().blob()).trusted().is_ok());
        let thief = recovered.current().lookup(mallory().public().blob()).trusted().unwrap_err();
        let gone = if rotations == 0 { R::UnknownSigner } else { R::KeyRevoked };
        assert_eq!(thief.reason, gone);
        assert_eq!(recovered.planned_links(), 0, "planned rotations may go on");
        // Once: what it followed is no ground for another one.
        let again = next(&recovered, &back(&first), &[&vault()]).unwrap_err();
        assert_eq!(again.reason, R::TrustVersion);
        let other = Rotation { version: TrustVersion(500), ..back(&first) };
        assert_eq!(next(&recovered, &other, &[&vault()]).unwrap_err().reason, R::TrustVersion);
    }
}

#[test]
fn t15_t19_a_recovery_is_numbered_above_what_is_in_force_and_not_out_of_reach() {
    let first = trust();
    let taken = taken(&first, 3);
    let base = first.version().0;
    for (version, taken_on) in [
        (base, false),
        (base + 1, false),
        (base + 3, false),
        (base + 4, true),
        (base + RECOVERY_AHEAD_MAX, true),
        (base + RECOVERY_AHEAD_MAX + 1, false),
        (u64::MAX, false),
    ] {
        let change = Rotation { version: TrustVersion(version), ..back(&first) };
        match next(&taken, &change, &[&vault()]) {
            Ok(_) => assert!(taken_on, "{version}"),
            Err(refusal) => assert!(!taken_on && refusal.reason == R::TrustVersion, "{refusal}"),
        }
    }
    // A list this host never had is no ground, nor is a recovery that nobody with a recovery key signed.
    let strange = Rotation { previous: TrustHash([7; 32]), ..back(&first) };
    assert_eq!(next(&taken, &strange, &[&vault()]).unwrap_err().reason, R::TrustVersion);
    assert_eq!(next(&taken, &back(&first), &[&mallory()]).unwrap_err().reason, R::RoleDenied);
    assert_eq!(next(&taken, &back(&first), &[&ed(77)]).unwrap_err().reason, R::UnknownSigner);
    // A planned rotation has no such freedom.
    let late = following(&first, RotationAuthority::Planned, first.signers().cloned().collect());
    for version in [2, 5, 9] {
        let late = Rotation { version: TrustVersion(version), ..late.clone() };
        assert!(next(&taken, &late, &[&mallory()]).is_err(), "{version}");
    }
}

fn setting(authority: RotationAuthority, to: UnixSeconds) -> Rotation {
    let clock = ClockChange::Set { from: NOW, to };
    Rotation { clock, ..following(&trust(), authority, trust().signers().cloned().collect()) }
}

#[test]
fn x05_only_a_recovery_key_sets_the_mark_of_time() {
    let lineage = Lineage::new(trust());
    for to in [NOW.plus(20 * 365 * DAY), NOW.plus(1), NOW.minus(1)] {
        let change = setting(RotationAuthority::Planned, to);
        assert_eq!(next(&lineage, &change, &[&alice()]).unwrap_err().reason, R::RoleDenied);
        // What was accepted when it was allowed is not judged by it again.
        let envelope = signed(&change, &[&alice()]);
        let life = STATEMENT_LIFE_MAX_S;
        let replayed = lineage.follow(
            &envelope,
            RotationAuthority::Planned,
            &host(),
            &clock(),
            (life, Occasion::AcceptedBefore),
        );
        assert_eq!(replayed.unwrap().0.mark, Some(to));
    }
    assert!(
        next(&lineage, &setting(RotationAuthority::Recovery, NOW.plus(1)), &[&vault()]).is_ok()
    );
}

#[test]
fn x05_the_mark_is_set_to_about_what_the_host_s_clock_says() {
    let lineage = Lineage::new(trust());
    for (wall, doubt) in [
        (NOW, None),
        (NOW.minus(90 * DAY), Some(ClockDoubt::Behind { by_s: 90 * DAY })),
        (NOW.plus(90 * DAY), Some(ClockDoubt::Ahead { by_s: 90 * DAY })),
    ] {
        let reading = ClockReading { now: NOW.max(wall), mark: NOW, doubt };
        assert_eq!(reading.wall(), wall);
        let set = |to: UnixSeconds| {
            let window = Window::new(reading.now.minus(60), reading.now.plus(60)).unwrap();
            let change = Rotation { window, ..setting(RotationAuthority::Recovery, to) };
            let envelope = signed(&change, &[&vault()]);
            let life = STATEMENT_LIFE_MAX_S;
            let rotated = lineage.follow(
                &envelope,
                RotationAuthority::Recovery,
                &host(),
                &reading,
                (life, Occasion::HandedIn { signers: SignerCount::ONE }),
            );
            rotated.map(|(rotated, _)| rotated.mark).map_err(|refusal| refusal.reason)
        };
        for to in [wall.minus(DAY), wall, wall.plus(600)] {
            assert_eq!(set(to), Ok(Some(to)));
        }
        for to in [UnixSeconds(0), wall.minus(DAY + 1), wall.plus(601), wall.plus(9_999 * DAY)] {
            assert_eq!(set(to), Err(R::Clock));
        }
    }
}
