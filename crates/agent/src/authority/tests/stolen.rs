//! What somebody with a stolen operational key can do to the signers, and that a recovery key takes the host back
//! from each of these states, also with a key whose validity ends.

use evenkeel_core::sign::clock::{self, WallClock};

use super::*;

const DAY: u64 = 86_400;

/// A recovery key that is replaced every year.
fn dated_vault() -> Signer {
    let validity = Validity { from: NOW.minus(30 * DAY), until: NOW.plus(335 * DAY) };
    Signer { validity, ..vault() }
}

fn mallory() -> Signer {
    key(66).signer("mallory", Role::Operational)
}

fn carol() -> Signer {
    key(40).signer("carol", Role::Operational)
}

/// A host with alice and a dated recovery key.
fn host_of_alice() -> (tempfile::NamedTempFile, JournalState, Authority) {
    let file = installed(1, &[alice(), dated_vault()]);
    let mut state = JournalState::default();
    let authority = load(&file, &state).unwrap();
    apply_all(&mut state, authority.owed());
    let authority = load(&file, &state).unwrap();
    (file, state, authority)
}

/// The recovery that somebody makes who knows these signers and nothing of what was done since.
fn recovery_from(trust: &TrustedSigners, clock: ClockChange) -> Vec<u8> {
    let signers = vec![carol(), alice(), dated_vault()];
    let version = TrustVersion(trust.version().0 + PLANNED_LINKS_MAX as u64 + 1);
    let by = sign::RotationAuthority::Recovery;
    let change = Rotation { version, clock, ..rotation(trust, by, signers) };
    let is_new = |signer: &Signer| !trust.signers().any(|known| known.key == signer.key);
    let mut keys = vec![key(20), key(40)];
    keys.extend(Some(key(10)).filter(|_| is_new(&alice())));
    sealed(&change, &keys)
}

fn take(authority: &mut Authority, state: &mut JournalState, envelope: &[u8]) {
    let accepted = accept(authority, envelope).unwrap();
    apply(state, &accepted.record);
    *authority = accepted.authority;
}

/// Mallory in everybody's place, then as many rotations more as are wanted.
fn stolen(authority: &mut Authority, state: &mut JournalState, rotations: usize) {
    for number in 0..rotations {
        let trust = authority.trust().unwrap().clone();
        let by = sign::RotationAuthority::Planned;
        let change = Rotation {
            reason: format!("number {number}"),
            ..rotation(&trust, by, vec![mallory(), dated_vault()])
        };
        let keys = if number == 0 { vec![key(10), key(66)] } else { vec![key(66)] };
        take(authority, state, &sealed(&change, &keys));
    }
}

#[test]
fn x05_an_operational_key_sets_no_clock_neither_ahead_nor_back() {
    let (_, _, authority) = host_of_alice();
    let trust = authority.trust().unwrap();
    for to in [NOW.plus(20 * 365 * DAY), NOW.plus(2 * DAY), NOW.plus(1), NOW, NOW.minus(DAY)] {
        let change = Rotation {
            clock: ClockChange::Set { from: NOW, to },
            approve: None,
            ..rotation(trust, sign::RotationAuthority::Planned, vec![alice(), dated_vault()])
        };
        let refusal = accept(&authority, &sealed(&change, &[key(10)])).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::RoleDenied, "{refusal}");
        assert!(refusal.detail.contains("recovery"), "{refusal}");
    }
}

#[test]
fn x05_t18_recovery_wins_with_a_dated_key_from_every_state_of_the_chain() {
    for rotations in [0, 1, 2, 17, PLANNED_LINKS_MAX] {
        let (file, mut state, mut authority) = host_of_alice();
        let first = authority.trust().unwrap().clone();
        stolen(&mut authority, &mut state, rotations);
        // Made by somebody who never saw what the thief did, or who saw all of it.
        for known in [&first, &authority.trust().unwrap().clone()] {
            let mut authority = authority.clone();
            let mut state = state.clone();
            take(&mut authority, &mut state, &recovery_from(known, ClockChange::Keep));
            let after = load(&file, &state).unwrap();
            assert_eq!(after.trust(), authority.trust(), "and after a restart");
            let names: Vec<String> =
                after.trust().unwrap().signers().map(|signer| signer.name.to_string()).collect();
            assert!(names.contains(&"alice".to_owned()) && names.contains(&"carol".to_owned()));
            assert!(!names.contains(&"mallory".to_owned()), "{names:?}");
            // What the thief signs or has signed is worth nothing, and planned rotations go on.
            let planned = rotation(
                after.trust().unwrap(),
                sign::RotationAuthority::Planned,
                vec![mallory(), dated_vault()],
            );
            assert!(accept(&after, &sealed(&planned, &[key(66)])).is_err());
            let planned = Rotation { signers: vec![carol(), dated_vault()], ..planned };
            accept(&after, &sealed(&planned, &[key(40)])).unwrap();
        }
    }
}

#[test]
fn t18_a_stolen_key_cannot_fill_the_journal_with_rotations_and_recovery_is_always_taken() {
    let (file, mut state, mut authority) = host_of_alice();
    stolen(&mut authority, &mut state, PLANNED_LINKS_MAX);
    for full in [authority.clone(), load(&file, &state).unwrap()] {
        let trust = full.trust().unwrap().clone();
        let planned =
            rotation(&trust, sign::RotationAuthority::Planned, vec![mallory(), dated_vault()]);
        let refusal = accept(&full, &sealed(&planned, &[key(66)])).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Budget);
        accept(&full, &recovery_from(&trust, ClockChange::Keep)).unwrap();
    }
}

/// What releases wrote in which an operational key could set the clock: the start takes the rotation as it was
/// accepted and not the time it set.
#[test]
fn x05_a_mark_that_an_operational_key_set_ahead_once_locks_no_recovery_key_out() {
    let moment = |at: UnixSeconds| Timestamp::from_second(i64::try_from(at.0).unwrap()).unwrap();
    let stamp = || Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    let file = installed(1, &[alice(), dated_vault()]);
    let disk = SimulatedDisk::default();
    let open = |at: UnixSeconds| {
        Journal::open(disk.clone(), stamp(), JournalLimits::default(), moment(at)).unwrap()
    };
    // Two steps, as a careful thief would take them.
    let mut journal = open(NOW);
    let mut mark = NOW;
    let first = load(&file, journal.state()).unwrap();
    let base = first.trust().unwrap().head();
    let mut lineage = Lineage::new(first.trust().unwrap().clone());
    for to in [NOW.plus(300 * DAY), NOW.plus(20 * 365 * DAY)] {
        let trust = lineage.current().clone();
        let change = Rotation {
            clock: ClockChange::Set { from: mark, to },
            approve: None,
            window: Window::new(mark.minus(60), mark.plus(60)).unwrap(),
            ..rotation(&trust, sign::RotationAuthority::Planned, vec![mallory(), dated_vault()])
        };
        let keys = if mark == NOW { vec![key(10), key(66)] } else { vec![key(66)] };
        let envelope = sealed(&change, &keys);
        let link = ChainLink { base, envelope: ExactBytes(envelope), now: mark, mark };
        let version = change.version;
        journal
            .append(Record::Kept(link.to_record(version).setting_mark(moment(to))), moment(NOW))
            .unwrap();
        lineage = link.follow(version, &lineage, &host()).unwrap().1;
        mark = to;
    }
    drop(journal);

    let later = NOW.plus(60);
    let reading = |journal: &Journal<SimulatedDisk>| {
        let wall = WallClock { at: NOW.plus(60), synchronised: true };
        clock::read(Some(seconds(journal.clock_mark())), wall)
    };
    let mut journal = open(later);
    let authority = load(&file, journal.state()).unwrap();
    assert_eq!(authority.version(), Some(TrustVersion(3)), "it starts");
    let locked_out = recovery_from(first.trust().unwrap(), ClockChange::Keep);
    let refusal =
        authority.accept(&locked_out, &reading(&journal), StatementLimits::default()).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::KeyRevoked, "without more, the key is out of date");
    for record in authority.owed() {
        journal.append(record.clone(), moment(later)).unwrap();
    }
    let undone = authority.undone_mark(&reading(&journal)).unwrap();
    journal.append(undone, moment(later)).unwrap();
    drop(journal);

    let mut journal = open(later);
    let authority = load(&file, journal.state()).unwrap();
    assert_eq!(reading(&journal).doubt, None);
    assert_eq!(authority.undone_mark(&reading(&journal)), None, "once");
    let recovery = recovery_from(first.trust().unwrap(), ClockChange::Keep);
    let accepted =
        authority.accept(&recovery, &reading(&journal), StatementLimits::default()).unwrap();
    journal.append(Record::Kept(accepted.record), moment(later)).unwrap();
    assert_eq!(load(&file, journal.state()).unwrap().version(), Some(TrustVersion(258)));
    verify::verify(&disk).unwrap();
    let mut told = Vec::new();
    crate::audit::read(&disk, &crate::audit::Filter::default(), |one| told.push(one.why)).unwrap();
    assert!(told.iter().any(|why| why.contains("signed by an operational key")), "{told:?}");
}

#[test]
fn x05_a_recovery_sets_the_mark_to_about_the_host_s_time_and_to_nothing_else() {
    let (_, _, authority) = host_of_alice();
    let trust = authority.trust().unwrap();
    let poisoned = NOW.plus(200 * DAY);
    let doubt = Some(ClockDoubt::Behind { by_s: 200 * DAY });
    let reading = ClockReading { now: poisoned, mark: poisoned, doubt };
    let setting = |to: UnixSeconds| {
        let change = Rotation {
            clock: ClockChange::Set { from: poisoned, to },
            approve: None,
            window: Window::new(poisoned.minus(60), poisoned.plus(60)).unwrap(),
            ..rotation(trust, sign::RotationAuthority::Recovery, vec![alice(), dated_vault()])
        };
        authority.accept(&sealed(&change, &[key(20)]), &reading, StatementLimits::default())
    };
    for to in [NOW, NOW.plus(600), NOW.minus(DAY)] {
        assert_eq!(setting(to).unwrap().mark, Some(to));
    }
    for to in [UnixSeconds(0), NOW.minus(DAY + 1), NOW.plus(601), poisoned, NOW.plus(9_999 * DAY)] {
        let refusal = setting(to).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Clock, "{refusal}");
        assert!(refusal.detail.contains("set the clock right first"), "{refusal}");
    }
}

#[test]
fn t19_a_recovery_wins_over_a_planned_rotation_whichever_comes_first_and_is_taken_once() {
    let (file, state, authority) = host_of_alice();
    let trust = authority.trust().unwrap().clone();
    let plan = rotation(&trust, sign::RotationAuthority::Planned, vec![bob(), dated_vault()]);
    let plan = sealed(&plan, &[key(10), key(30)]);
    let recovery = recovery_from(&trust, ClockChange::Keep);
    // The plan first: the recovery follows the list it was made for, and wins.
    let mut after = authority.clone();
    let mut later = state.clone();
    take(&mut after, &mut later, &plan);
    take(&mut after, &mut later, &recovery);
    // The recovery first: the plan no longer follows.
    let mut first = authority;
    let mut sooner = state;
    take(&mut first, &mut sooner, &recovery);
    let refusal = accept(&first, &plan).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::TrustVersion);
    let names = |authority: &Authority| -> Vec<String> {
        authority.trust().unwrap().signers().map(|signer| signer.name.to_string()).collect()
    };
    assert_eq!(names(&after), names(&first));
    assert_eq!(after.version(), first.version());
    for (authority, state) in [(after, later), (first, sooner)] {
        // Neither again, before or after a restart, and no other recovery for the list before this one.
        for authority in [authority, load(&file, &state).unwrap()] {
            for again in [&recovery, &plan] {
                assert!(accept(&authority, again).is_err());
            }
            let second = Rotation {
                reason: "another".to_owned(),
                ..rotation(&trust, sign::RotationAuthority::Recovery, vec![alice(), dated_vault()])
            };
            let refusal = accept(&authority, &sealed(&second, &[key(20)])).unwrap_err();
            assert_eq!(refusal.reason, ReasonCode::TrustVersion);
        }
    }
}

#[test]
fn x07_a_trust_file_that_is_neither_the_first_one_nor_newer_stops_the_start() {
    let five = installed(5, &[alice(), vault()]);
    let mut state = JournalState::default();
    let authority = load(&five, &state).unwrap();
    assert!(!authority.owed().is_empty(), "which file it is, is kept at the first start");
    apply_all(&mut state, authority.owed());
    assert_eq!(load(&five, &state).unwrap().owed(), [], "and once");
    for (version, signers) in [
        (1, [alice(), vault()]),
        (4, [alice(), vault()]),
        (5, [bob(), vault()]),
        (5, [alice(), Signer { validity: Validity { from: NOW, ..Validity::ALWAYS }, ..vault() }]),
    ] {
        let other = installed(version, &signers);
        let error = load(&other, &state.compacted()).unwrap_err();
        assert!(
            matches!(error, AuthorityError::NotHigher { newest: TrustVersion(5), .. }),
            "{error}"
        );
        let told = error.to_string();
        let path = other.path().display().to_string();
        assert!(told.contains(&path) && told.contains("version 5"), "{told}");
        assert!(error.hint().contains("above 5"), "{}", error.hint());
    }
    // A comment changes nothing, a higher version replaces it, and then the former one is older.
    let mut text = fs_err::read_to_string(five.path()).unwrap();
    text.push_str("# the same\n");
    fs_err::write(five.path(), text).unwrap();
    assert_eq!(load(&five, &state).unwrap().owed(), []);
    let six = installed(6, &[bob(), vault()]);
    let replaced = load(&six, &state).unwrap();
    apply_all(&mut state, replaced.owed());
    assert!(matches!(load(&five, &state), Err(AuthorityError::NotHigher { .. })));
    // No file at all is no signers, and no way to an older one either.
    let nowhere = Path::new("/nonexistent/trust.toml");
    assert_eq!(Authority::load(Some(nowhere), host(), &state).unwrap().version(), None);
}

#[test]
fn x14_a_recovery_is_taken_on_a_nearly_full_disk_and_a_planned_rotation_is_not() {
    let (_, _, authority) = host_of_alice();
    let trust = authority.trust().unwrap().clone();
    let planned = rotation(&trust, sign::RotationAuthority::Planned, vec![bob(), dated_vault()]);
    let planned = accept(&authority, &sealed(&planned, &[key(10), key(30)])).unwrap();
    let recovery = accept(&authority, &recovery_from(&trust, ClockChange::Keep)).unwrap();
    let stamp = || Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    let now = Timestamp::from_second(i64::try_from(NOW.0).unwrap()).unwrap();
    let limits = JournalLimits { reserve_bytes: 64 << 10, ..JournalLimits::default() };
    for free in [limits.reserve_bytes - 1, 100, 0] {
        let disk = SimulatedDisk::default();
        let mut journal = Journal::open(disk.clone(), stamp(), limits, now).unwrap();
        journal.append(Record::Kept(Kept::remove(KeptSubject::Txn, "x")), now).unwrap();
        disk.limit_space(Some(free));
        let refused = journal.append(Record::Kept(planned.record.clone()), now).unwrap_err();
        assert!(matches!(refused, crate::journal::AppendError::Full { .. }), "{refused}");
        journal.append(Record::Kept(recovery.record.clone()), now).unwrap();
        let again = Journal::open(disk.after_crash(0, 0), stamp(), limits, now).unwrap();
        assert_eq!(again.state().kept(KeptSubject::Trust).count(), 1, "{free} bytes were free");
    }
}
