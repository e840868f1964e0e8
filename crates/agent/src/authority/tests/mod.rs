//! Rotations across restarts: what was accepted stays, what was not never was, and nothing damaged starts.

mod stolen;

use std::io::Write as _;

use ed25519_dalek::Signer as _;
use evenkeel_core::sign::clock::ClockDoubt;
use evenkeel_core::sign::{
    ClockChange, Namespace, PublicKey, Role, Signer, SkPolicy, Validity, Window, assemble,
    signed_bytes, trust_file,
};
use serde_json::json;

use super::*;
use crate::journal::{Journal, JournalLimits, KeptSubject, SimulatedDisk, Stamp, seconds, verify};

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

struct Key(ed25519_dalek::SigningKey);

fn key(seed: u8) -> Key {
    Key(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]))
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

impl Key {
    fn public(&self) -> PublicKey {
        let blob = [string(b"ssh-ed25519"), string(self.0.verifying_key().as_bytes())].concat();
        PublicKey::from_blob(&blob).unwrap()
    }

    fn signer(&self, name: &str, role: Role) -> Signer {
        let name = name.parse().unwrap();
        let key = self.public();
        Signer { name, role, key, validity: Validity::ALWAYS, sk: SkPolicy::Presence }
    }

    fn sign(&self, namespace: Namespace, message: &[u8]) -> String {
        let signature = self.0.sign(&signed_bytes(namespace, message)).to_vec();
        let blob = [string(b"ssh-ed25519"), string(&signature)].concat();
        assemble(&self.public(), namespace, &blob).unwrap()
    }
}

fn alice() -> Signer {
    key(10).signer("alice", Role::Operational)
}

fn vault() -> Signer {
    key(20).signer("vault", Role::Recovery)
}

fn bob() -> Signer {
    key(30).signer("bob", Role::Operational)
}

fn host() -> HostBinding {
    HostBinding { id: "pve1".parse().unwrap(), key: key(200).public().fingerprint() }
}

fn reading() -> ClockReading {
    ClockReading { now: NOW, mark: NOW, doubt: None }
}

/// A trust file on disk.
fn installed(version: u64, signers: &[Signer]) -> tempfile::NamedTempFile {
    let mut text = trust_file::empty().replace("version = 1", &format!("version = {version}"));
    for signer in signers {
        text = trust_file::add(&text, signer).unwrap();
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn rotation(trust: &TrustedSigners, by: sign::RotationAuthority, signers: Vec<Signer>) -> Rotation {
    Rotation {
        authority: by,
        host: host(),
        version: trust.version().next().unwrap(),
        previous: trust.head(),
        signers,
        clock: ClockChange::Keep,
        approve: None,
        window: Window::new(NOW.minus(60), NOW.plus(3_600)).unwrap(),
        reason: "yearly change".to_owned(),
    }
}

fn sealed(rotation: &Rotation, keys: &[Key]) -> Vec<u8> {
    let bytes = rotation.to_bytes().unwrap();
    let namespace = rotation.authority.namespace();
    let armours: Vec<String> = keys.iter().map(|key| key.sign(namespace, &bytes)).collect();
    let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
    Envelope::seal(&bytes, &armours).unwrap().into_bytes()
}

/// Alice hands over to bob.
fn to_bob(trust: &TrustedSigners) -> Vec<u8> {
    let change = rotation(trust, sign::RotationAuthority::Planned, vec![bob(), vault()]);
    sealed(&change, &[key(10), key(30)])
}

fn load(file: &tempfile::NamedTempFile, state: &JournalState) -> Result<Authority, AuthorityError> {
    Authority::load(Some(file.path()), host(), state)
}

fn accept(authority: &Authority, envelope: &[u8]) -> Result<Accepted, Refusal> {
    authority.accept(envelope, &reading(), StatementLimits::default())
}

fn apply(state: &mut JournalState, record: &Kept) {
    state.apply(Record::Kept(record.clone())).unwrap();
}

fn apply_all(state: &mut JournalState, records: &[Record]) {
    for record in records {
        state.apply(record.clone()).unwrap();
    }
}

/// A state with one accepted rotation, and the trust file it follows.
fn rotated() -> (tempfile::NamedTempFile, JournalState, Accepted) {
    let file = installed(1, &[alice(), vault()]);
    let mut state = JournalState::default();
    let authority = load(&file, &state).unwrap();
    apply_all(&mut state, authority.owed());
    let accepted = accept(&authority, &to_bob(authority.trust().unwrap())).unwrap();
    apply(&mut state, &accepted.record);
    (file, state, accepted)
}

#[test]
fn no_trust_file_means_no_signers_and_an_agent_that_starts() {
    let nowhere = Path::new("/nonexistent/trust.toml");
    for path in [None, Some(nowhere)] {
        let authority = Authority::load(path, host(), &JournalState::default()).unwrap();
        assert_eq!((authority.trust(), authority.version()), (None, None));
        assert_eq!(*authority.host(), host());
        let trust = TrustedSigners::genesis(TrustVersion(1), vec![alice(), vault()]).unwrap();
        let refusal = accept(&authority, &to_bob(&trust)).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::UnknownSigner);
    }
}

#[test]
fn an_invalid_trust_file_stops_the_start_and_tells_every_mistake() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"format = \"evenkeel/trust/v1\"\nversion = 0\nsinger = 1\n").unwrap();
    let error = load(&file, &JournalState::default()).unwrap_err();
    let AuthorityError::Invalid { errors, sources, .. } = &error else { panic!("{error}") };
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| sources.line_column(error.at.unwrap()).is_some()));
    assert!(error.to_string().contains("and 1 more") && !error.hint().is_empty());

    let not_text = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(not_text.path(), [0xff, 0xfe]).unwrap();
    assert!(matches!(
        load(&not_text, &JournalState::default()),
        Err(AuthorityError::Invalid { .. })
    ));
    // Only one role: whoever starts with it could never recover.
    let lonely = installed(1, &[alice()]);
    assert!(matches!(load(&lonely, &JournalState::default()), Err(AuthorityError::Invalid { .. })));
}

#[test]
fn n09_a_trust_file_that_others_may_write_is_not_root_s_word() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = installed(1, &[alice(), vault()]);
    for mode in [0o620, 0o602, 0o666] {
        fs_err::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(load(&file, &JournalState::default()), Err(AuthorityError::Loose { .. })));
    }
    fs_err::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    load(&file, &JournalState::default()).unwrap();
}

#[test]
fn t23_a_rotation_is_in_force_after_a_restart_iff_its_record_was_durable() {
    let (file, state, accepted) = rotated();
    let before = load(&file, &JournalState::default()).unwrap();
    assert_eq!(before.version(), Some(TrustVersion(1)), "without the record: the old set");
    let after = load(&file, &state).unwrap();
    assert_eq!(after.trust(), accepted.authority.trust(), "with it: the new one");
    assert_eq!(after.version(), Some(TrustVersion(2)));
    assert_eq!(after.owed(), []);
    // Loading again, from what a snapshot would hold, changes nothing.
    assert_eq!(load(&file, &state.compacted()).unwrap().trust(), after.trust());
}

#[test]
fn t23_a_crash_at_any_disk_call_of_a_rotation_leaves_the_old_or_the_new_set() {
    let file = installed(1, &[alice(), vault()]);
    let stamp = || Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    let now = Timestamp::from_second(i64::try_from(NOW.0).unwrap()).unwrap();
    let open =
        |disk: &SimulatedDisk| Journal::open(disk.clone(), stamp(), JournalLimits::default(), now);
    let clean = SimulatedDisk::default();
    let authority = load(&file, open(&clean).unwrap().state()).unwrap();
    let record = accept(&authority, &to_bob(authority.trust().unwrap())).unwrap().record;
    let mut seen = std::collections::BTreeSet::new();
    for call in 0.. {
        let disk = SimulatedDisk::default();
        drop(open(&disk).unwrap());
        let start = disk.calls();
        disk.fail_at(start + call, crate::journal::DiskFault::PowerLoss);
        let append = |mut journal: Journal<SimulatedDisk>| {
            journal.append(Record::Kept(record.clone()), now).is_ok()
        };
        let done = open(&disk).is_ok_and(append);
        let subsets = (0..1_u64 << disk.uncertain().min(8)).map(|kept| disk.after_crash(kept, 0));
        let cuts = (0..=disk.growing()).step_by(97).map(|cut| disk.after_crash(u64::MAX, cut));
        for image in subsets.chain(cuts) {
            let journal = open(&image).unwrap();
            let version = load(&file, journal.state()).unwrap().version().unwrap();
            assert!(version == TrustVersion(2) || !done, "acknowledged and lost");
            seen.insert(version);
        }
        if done {
            break;
        }
    }
    assert_eq!(seen, [TrustVersion(1), TrustVersion(2)].into());
}

#[test]
fn t15_a_rotation_is_taken_once_and_a_second_delivery_no_longer_follows() {
    let (file, state, accepted) = rotated();
    let first = load(&file, &JournalState::default()).unwrap();
    let envelope = to_bob(first.trust().unwrap());
    for authority in [accepted.authority, load(&file, &state).unwrap()] {
        let refusal = accept(&authority, &envelope).unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::TrustVersion);
    }
}

#[test]
fn t18_recovery_wins_over_a_stolen_key_and_after_a_restart_still() {
    let (file, mut state, _) = rotated();
    let stolen = load(&file, &state).unwrap();
    let back = rotation(
        stolen.trust().unwrap(),
        sign::RotationAuthority::Recovery,
        vec![key(40).signer("carol", Role::Operational), vault()],
    );
    let accepted = accept(&stolen, &sealed(&back, &[key(20), key(40)])).unwrap();
    assert_eq!(accepted.rotation.authority, sign::RotationAuthority::Recovery);
    apply(&mut state, &accepted.record);
    let recovered = load(&file, &state).unwrap();
    assert_eq!(recovered.version(), Some(TrustVersion(3)));
    let names: Vec<String> =
        recovered.trust().unwrap().signers().map(|signer| signer.name.to_string()).collect();
    assert!(names.contains(&"carol".to_owned()) && !names.contains(&"bob".to_owned()));
}

#[test]
fn t22_the_chain_of_another_host_does_not_start_here() {
    let (file, state, _) = rotated();
    let other = HostBinding { id: "pve2".parse().unwrap(), ..host() };
    let error = Authority::load(Some(file.path()), other, &state).unwrap_err();
    let AuthorityError::BrokenLink { version, source } = &error else { panic!("{error}") };
    assert_eq!((*version, source.reason), (TrustVersion(2), ReasonCode::HostMismatch));
}

#[test]
fn a_link_that_is_bent_missing_or_not_understood_stops_the_start() {
    let (file, state, accepted) = rotated();
    let next = accepted.authority.trust().unwrap();
    let third = rotation(next, sign::RotationAuthority::Planned, vec![alice(), vault()]);
    let third = accept(&accepted.authority, &sealed(&third, &[key(30), key(10)])).unwrap().record;
    let value = |record: &Kept| record.value.clone().unwrap().value;
    let with = |records: &[Kept]| {
        let mut state = state.clone();
        for record in records {
            apply(&mut state, record);
        }
        load(&file, &state)
    };
    assert_eq!(with(std::slice::from_ref(&third)).unwrap().version(), Some(TrustVersion(3)));

    let missing = [Kept::remove(KeptSubject::Trust, "2"), third.clone()];
    assert!(with(&missing).is_err(), "the link between is missing");
    let mut bent = value(&third);
    let envelope = bent["envelope"].as_str().unwrap().to_owned();
    let flipped = if envelope.as_bytes()[200] == b'A' { "B" } else { "A" };
    bent["envelope"] = format!("{}{flipped}{}", &envelope[..200], &envelope[201..]).into();
    let bent = Kept::put(KeptSubject::Trust, "3", 1, bent);
    assert!(matches!(with(&[bent]), Err(AuthorityError::BrokenLink { .. })));
    let renamed = Kept::put(KeptSubject::Trust, "4", 1, value(&third));
    assert!(with(&[renamed]).is_err(), "kept under another version");
    let mut later = value(&third);
    later["now"] = (NOW.0 + 999_999).into();
    assert!(with(&[Kept::put(KeptSubject::Trust, "3", 1, later)]).is_err(), "accepted too late");
    let mut foreign = value(&third);
    foreign["base"] = "0".repeat(64).into();
    assert!(with(&[Kept::put(KeptSubject::Trust, "3", 1, foreign)]).is_err(), "of another chain");
    for (key, version, value) in [
        ("3", 2, value(&third)),
        ("x", 1, value(&third)),
        ("3", 1, json!({})),
        ("base", 1, json!(7)),
    ] {
        let error = with(&[Kept::put(KeptSubject::Trust, key, version, value)]).unwrap_err();
        assert!(matches!(error, AuthorityError::Malformed { .. }), "{error}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn root_replaces_the_whole_chain_by_a_file_of_a_higher_version_and_it_is_told() {
    let (_, mut state, _) = rotated();
    let newer = installed(5, &[alice(), vault()]);
    let authority = load(&newer, &state).unwrap();
    assert_eq!(authority.version(), Some(TrustVersion(5)));
    let notes: Vec<&Note> = authority
        .owed()
        .iter()
        .filter_map(|record| if let Record::Note(note) = record { Some(note) } else { None })
        .collect();
    assert!(notes.len() == 1 && notes[0].text.contains("version 5 after 2"), "{notes:?}");
    // A crash after any of the owed records: the next start owes the rest and ends the same.
    let owed = authority.owed().to_vec();
    for done in 0..=owed.len() {
        let mut state = state.clone();
        apply_all(&mut state, &owed[..done]);
        let again = load(&newer, &state).unwrap();
        assert_eq!(again.trust(), authority.trust());
        apply_all(&mut state, again.owed());
        assert_eq!(load(&newer, &state).unwrap().owed(), []);
    }
    apply_all(&mut state, &owed);
    // Rotations go on from the new file.
    let accepted = accept(&authority, &to_bob(authority.trust().unwrap())).unwrap();
    apply(&mut state, &accepted.record);
    assert_eq!(load(&newer, &state).unwrap().version(), Some(TrustVersion(6)));
}

#[test]
fn another_trust_file_that_is_not_newer_stops_the_start() {
    let (former, mut state, _) = rotated();
    for version in [1, 2] {
        let other = installed(version, &[bob(), vault()]);
        let error = load(&other, &state).unwrap_err();
        assert!(matches!(error, AuthorityError::NotHigher { newest: TrustVersion(2), .. }));
        assert!(error.hint().contains("above 2"), "{}", error.hint());
    }
    // Once replaced, the former file is no way back either.
    let newer = installed(5, &[alice(), vault()]);
    let owed = load(&newer, &state).unwrap().owed().to_vec();
    apply_all(&mut state, &owed);
    assert!(matches!(load(&former, &state), Err(AuthorityError::NotHigher { .. })));
}

/// The key was stolen, and root made another one. Rotations name the key of their host.
#[test]
fn a_new_host_key_starts_only_with_a_trust_file_of_a_higher_version() {
    let (file, mut state, _) = rotated();
    let renewed = HostBinding { key: key(201).public().fingerprint(), ..host() };
    let start = |file: &tempfile::NamedTempFile, state: &JournalState| {
        Authority::load(Some(file.path()), renewed.clone(), state)
    };
    let error = start(&file, &state).unwrap_err();
    let AuthorityError::BrokenLink { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.reason, ReasonCode::HostMismatch, "{error}");
    for version in [1, 2] {
        let error = start(&installed(version, &[bob(), vault()]), &state).unwrap_err();
        assert!(matches!(error, AuthorityError::NotHigher { .. }), "{version}: {error}");
    }
    let newer = installed(3, &[alice(), vault()]);
    let authority = start(&newer, &state).unwrap();
    assert_eq!(authority.version(), Some(TrustVersion(3)));
    // What was signed for the former key is no rotation here, and what names the new one is.
    let trust = authority.trust().unwrap();
    let former = accept(&authority, &to_bob(trust)).unwrap_err();
    assert_eq!(former.reason, ReasonCode::HostMismatch, "{former}");
    let planned = sign::RotationAuthority::Planned;
    let change = rotation(trust, planned, vec![bob(), vault()]);
    let change = Rotation { host: renewed.clone(), ..change };
    let accepted = accept(&authority, &sealed(&change, &[key(10), key(30)])).unwrap();
    apply_all(&mut state, authority.owed());
    apply(&mut state, &accepted.record);
    assert_eq!(start(&newer, &state).unwrap().version(), Some(TrustVersion(4)));
}

#[test]
fn t10_a_signed_clock_change_is_durable_with_its_rotation_and_holds_once() {
    let file = installed(1, &[alice(), vault()]);
    let poisoned = NOW.plus(20 * 365 * 86_400);
    let moment = |at: UnixSeconds| Timestamp::from_second(i64::try_from(at.0).unwrap()).unwrap();
    let stamp = || Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    let disk = SimulatedDisk::default();
    let mut journal =
        Journal::open(disk.clone(), stamp(), JournalLimits::default(), moment(poisoned)).unwrap();
    let authority = load(&file, journal.state()).unwrap();
    let doubt = Some(ClockDoubt::Behind { by_s: poisoned.0 - NOW.0 });
    let reading = ClockReading { now: poisoned, mark: poisoned, doubt };
    let change = Rotation {
        clock: ClockChange::Set { from: poisoned, to: NOW },
        approve: None,
        window: Window::new(poisoned.minus(60), poisoned.plus(60)).unwrap(),
        ..rotation(
            authority.trust().unwrap(),
            sign::RotationAuthority::Recovery,
            vec![alice(), vault()],
        )
    };
    let envelope = sealed(&change, &[key(20)]);
    let accepted = authority.accept(&envelope, &reading, StatementLimits::default()).unwrap();
    assert_eq!(accepted.mark, Some(NOW));
    journal.append(Record::Kept(accepted.record), moment(poisoned)).unwrap();
    drop(journal);

    let journal =
        Journal::open(disk.clone(), stamp(), JournalLimits::default(), moment(NOW)).unwrap();
    assert_eq!(seconds(journal.clock_mark()), NOW);
    let after = load(&file, journal.state()).unwrap();
    let reading = ClockReading { now: NOW, mark: NOW, doubt: None };
    let refusal = after.accept(&envelope, &reading, StatementLimits::default()).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::TrustVersion, "replayed");
    verify::verify(&disk).unwrap();
}

#[test]
fn t06_a_shorter_life_set_by_root_binds_new_rotations_and_voids_no_old_one() {
    let (file, state, accepted) = rotated();
    let short = StatementLimits { statement_life_max_s: 60 };
    let trust = accepted.authority.trust().unwrap();
    let change = rotation(trust, sign::RotationAuthority::Planned, vec![alice(), vault()]);
    let envelope = sealed(&change, &[key(30), key(10)]);
    let refusal = accepted.authority.accept(&envelope, &reading(), short).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::LifetimeExceeded);
    load(&file, &state).unwrap();
}

#[test]
fn v21_an_approval_of_an_act_changes_no_signers() {
    let (file, state, _) = rotated();
    let authority = load(&file, &state).unwrap();
    let payload = b"{}";
    let armour = key(30).sign(Namespace::Op, payload);
    let envelope = Envelope::seal(payload, &[&armour]).unwrap();
    let refusal = accept(&authority, envelope.as_bytes()).unwrap_err();
    assert_eq!(refusal.reason, ReasonCode::SigNamespace);
    assert_eq!(accept(&authority, b"{").unwrap_err().reason, ReasonCode::Envelope);
}

/// What the audit tells of an accepted rotation.
fn audited(record: Kept) -> crate::audit::AuditEntry {
    let stamp = Stamp { machine: "m".to_owned(), new_epoch: "e".to_owned() };
    let disk = SimulatedDisk::default();
    let now = Timestamp::UNIX_EPOCH;
    let mut journal = Journal::open(disk.clone(), stamp, JournalLimits::default(), now).unwrap();
    journal.append(Record::Kept(record), now).unwrap();
    let mut entries = Vec::new();
    crate::audit::read(&disk, &crate::audit::Filter::default(), |one| entries.push(one)).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

fn fingerprint(seed: u8) -> String {
    key(seed).public().fingerprint().to_string()
}

#[test]
fn the_audit_tells_a_rotation_from_the_bytes_that_were_signed() {
    let (_, _, accepted) = rotated();
    let entry = audited(accepted.record);
    assert_eq!((entry.event.as_str(), entry.kind.as_str()), ("trust", "rotate"));
    assert_eq!(entry.statement_reason, "yearly change");
    assert!(entry.why.contains("version 2") && entry.why.contains("bob (operational)"));
    let signed: Vec<(&str, String)> =
        entry.signed_by.iter().map(|by| (by.name.as_str(), by.key.clone())).collect();
    assert_eq!(signed, [("", fingerprint(10)), ("bob", fingerprint(30))]);
}

#[test]
fn the_audit_tells_a_recovery_with_its_kind_and_both_keys() {
    let (file, state, _) = rotated();
    let stolen = load(&file, &state).unwrap();
    let signers = vec![key(40).signer("carol", Role::Operational), vault()];
    let back = rotation(stolen.trust().unwrap(), sign::RotationAuthority::Recovery, signers);
    let accepted = accept(&stolen, &sealed(&back, &[key(20), key(40)])).unwrap();
    let entry = audited(accepted.record);
    assert_eq!((entry.event.as_str(), entry.kind.as_str()), ("trust", "recover"));
    assert!(entry.why.contains("version 3") && entry.why.contains("carol (operational)"));
    let signed: Vec<&str> = entry.signed_by.iter().map(|by| by.key.as_str()).collect();
    assert_eq!(signed, [fingerprint(20), fingerprint(40)]);
}

/// Rules as root's file has them.
fn rules(text: &str) -> ApprovalRules {
    serde_json::from_str(text).unwrap()
}

#[test]
fn z08_root_s_file_raises_what_an_act_takes_and_lowers_nothing() {
    let two = rules(r#"[{"op": "destroy", "signers": 2}]"#);
    let file = installed(1, &[alice(), bob(), vault()]);
    let mut state = JournalState::default();
    let raised = load(&file, &state).unwrap().with_rules(&two);
    assert_eq!(raised.rules(), two);
    apply_all(&mut state, raised.owed());
    // Taken out of the file, or lower in it: what was in force stays, and at rest nothing is owed.
    for lower in ["[]", r#"[{"op": "destroy", "signers": 1}]"#] {
        let after = load(&file, &state).unwrap().with_rules(&rules(lower));
        assert_eq!(after.rules(), two, "{lower}");
        assert!(after.owed().is_empty(), "{:?}", after.owed());
    }
    let three = rules(r#"[{"op": "destroy", "signers": 3}]"#);
    let more = load(&file, &state).unwrap().with_rules(&three);
    assert_eq!(more.rules(), three);
    assert_eq!(more.owed().len(), 1);
}

#[test]
fn z08_less_is_taken_after_a_rotation_that_says_so_signed_by_as_many_as_before() {
    let two = rules(r#"[{"op": "destroy", "signers": 2}]"#);
    let nothing = ApprovalRules::default();
    let file = installed(1, &[alice(), bob(), vault()]);
    let mut state = JournalState::default();
    let authority = load(&file, &state).unwrap().with_rules(&two);
    apply_all(&mut state, authority.owed());
    let authority = load(&file, &state).unwrap().with_rules(&nothing);
    let trust = authority.trust().unwrap().clone();
    let mut change =
        rotation(&trust, sign::RotationAuthority::Planned, trust.signers().cloned().collect());
    let silent = change.clone();
    change.approve = Some(nothing.clone());
    let alone = accept(&authority, &sealed(&change, &[key(10)])).unwrap_err();
    assert_eq!(alone.reason, ReasonCode::PendingSignature);
    // A rotation that says nothing of it lowers nothing.
    let kept = accept(&authority, &sealed(&silent, &[key(10), key(30)])).unwrap();
    assert_eq!(kept.authority.rules(), two);
    let lowered = accept(&authority, &sealed(&change, &[key(10), key(30)])).unwrap();
    assert_eq!(lowered.authority.rules(), nothing);
    apply(&mut state, &lowered.record);
    // A crash before the second record, and then with it: the next start knows the same.
    let mut crashed = state.clone();
    let after = load(&file, &crashed).unwrap().with_rules(&nothing);
    assert_eq!(after.rules(), nothing);
    apply_all(&mut crashed, after.owed());
    assert_eq!(load(&file, &crashed).unwrap().with_rules(&nothing).rules(), nothing);
    apply_all(&mut state, lowered.rules.as_slice());
    let after = load(&file, &state).unwrap().with_rules(&nothing);
    assert_eq!(after.rules(), nothing);
    // Root may raise it again, and then it takes two again.
    assert_eq!(load(&file, &state).unwrap().with_rules(&two).rules(), two);
}
