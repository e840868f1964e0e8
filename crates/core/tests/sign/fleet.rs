//! What a hub hands over, judged on the host: one table a rule, every row a way to be wrong.

use evenkeel_core::desired::DeclaredBy;
use evenkeel_core::fleet::{
    AUTHOR_WINDOW_MAX_S, AcknowledgeStatement, Acknowledged, DesiredStatement, DocumentFiles,
    DocumentFloor, DocumentTerms, DocumentVerdict, EnrolStatement, GENERATION_STEP_MAX, Generation,
    HeadStatement, HubId, JournalHead, LoginStatement, Manifest, OfferedDocument, ReportStatement,
    SealedText, WireDocument, judge_document,
};
use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::reason::ReasonCode as R;
use evenkeel_core::sign::{
    Envelope, Namespace, Nonce, PayloadHash, Role, TrustVersion, TrustedSigners, Validity, Window,
};
use proptest::prelude::*;

use crate::support::{Key, NOW, alice, ed, host, sealed, vault};

const WEB: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";

/// What makes a statement another.
type Bend<S> = fn(&mut S);

/// Whether bytes are a statement of one kind.
type Reads = fn(&[u8]) -> bool;

fn hub(digit: char) -> HubId {
    digit.to_string().repeat(32).parse().unwrap()
}

fn author() -> Key {
    ed(30)
}

/// The signers of the tests, and an author.
fn trust() -> TrustedSigners {
    let signers = vec![
        alice().signer("alice", Role::Operational),
        vault().signer("vault", Role::Recovery),
        author().signer("ada", Role::Author),
    ];
    TrustedSigners::genesis(TrustVersion(1), signers).unwrap()
}

fn files(text: &str) -> DocumentFiles {
    DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap()
}

fn statement(generation: u64) -> DesiredStatement {
    DesiredStatement {
        hub_id: hub('a'),
        host: host(),
        generation: Generation(generation),
        manifest: files(WEB).manifest().hash(),
        window: Window::new(NOW.minus(60), NOW.plus(3600)).unwrap(),
    }
}

fn signed(statement: &DesiredStatement, key: &Key) -> Envelope {
    sealed(&statement.to_bytes().unwrap(), Namespace::Desired, &[key])
}

fn offered(generation: u64, author: Option<Envelope>) -> OfferedDocument {
    let files = files(WEB);
    OfferedDocument {
        hub_id: hub('a'),
        host: host().id,
        generation: Generation(generation),
        manifest: files.manifest(),
        files,
        author,
    }
}

fn good(generation: u64) -> OfferedDocument {
    offered(generation, Some(signed(&statement(generation), &author())))
}

fn floor(generation: u64) -> DocumentFloor {
    let manifest = (generation > 0).then(|| files("# another\n").manifest().hash());
    let signer = (generation > 0).then(|| "ada".parse().unwrap());
    DocumentFloor { hub_id: hub('a'), generation: Generation(generation), manifest, signer }
}

fn judge(offered: &OfferedDocument, floor: &DocumentFloor) -> Result<DocumentFloor, R> {
    judge_by(offered, floor, true, Some(NOW))
}

fn judge_by(
    offered: &OfferedDocument,
    floor: &DocumentFloor,
    desired_signed: bool,
    now: Option<UnixSeconds>,
) -> Result<DocumentFloor, R> {
    let (trust, host) = (trust(), host());
    let terms = DocumentTerms { floor, host: &host, trust: Some(&trust), desired_signed, now };
    match judge_document(offered, terms) {
        DocumentVerdict::Taken(taken) => {
            let by = taken.floor.declared_by();
            assert!(taken.loaded.desired.guests.values().all(|guest| guest.by == by));
            Ok(taken.floor)
        }
        DocumentVerdict::InEffect => Ok(floor.clone()),
        DocumentVerdict::Refused { refusal, .. } => Err(refusal.reason),
    }
}

#[test]
fn a_signed_document_is_taken_and_becomes_the_floor() {
    let taken = judge(&good(7), &floor(0)).unwrap();
    assert_eq!(taken.generation, Generation(7));
    assert_eq!(taken.manifest, Some(files(WEB).manifest().hash()));
    assert_eq!(taken.signer, Some("ada".parse().unwrap()));
    assert_eq!(taken.declared_by(), DeclaredBy::Hub);
    assert_eq!(judge(&good(7), &taken).unwrap(), taken, "again changes nothing");
    assert_eq!(
        judge(&offered(7, None), &taken).unwrap(),
        taken,
        "what was taken needs no author again"
    );
    assert_eq!(
        judge_by(&good(7), &taken, true, Some(NOW.plus(99_999_999))),
        Ok(taken),
        "nor its window"
    );
}

#[test]
fn a_number_never_goes_down_never_jumps_and_means_one_document() {
    for (generation, at, expected) in [
        (1, 0, None),
        (8, 7, None),
        (GENERATION_STEP_MAX + 7, 7, None),
        (GENERATION_STEP_MAX + 8, 7, Some(R::Policy)),
        (u64::MAX, 7, Some(R::Policy)),
        (7, 7, Some(R::GenerationRollback)),
        (6, 7, Some(R::GenerationRollback)),
        (1, u64::MAX, Some(R::GenerationRollback)),
    ] {
        let answer = judge(&good(generation), &floor(at));
        assert_eq!(answer.err(), expected, "{generation} over {at}");
    }
    assert_eq!(
        judge(&offered(0, None), &floor(0)),
        Err(R::GenerationRollback),
        "none has the number 0"
    );
}

#[test]
fn a_document_of_another_hub_host_or_hash_is_refused() {
    let mut other_hub = good(7);
    other_hub.hub_id = hub('b');
    assert_eq!(judge(&other_hub, &floor(0)), Err(R::BindingMismatch));
    let mut other_host = good(7);
    other_host.host = "pve2".parse().unwrap();
    assert_eq!(judge(&other_host, &floor(0)), Err(R::HostMismatch));
    let mut other_files = good(7);
    other_files.files = files("[guest.102]\nkind = \"lxc\"\n");
    assert_eq!(judge(&other_files, &floor(0)), Err(R::BindingMismatch));
    let mut other_manifest = good(7);
    other_manifest.manifest = files("").manifest();
    assert_eq!(judge(&other_manifest, &floor(0)), Err(R::BindingMismatch));
    let mut no_manifest = good(7);
    no_manifest.manifest = Manifest::from_bytes(b"{}".to_vec());
    assert_eq!(judge(&no_manifest, &floor(0)), Err(R::BindingMismatch));
}

#[test]
fn only_an_author_of_this_host_vouches_and_only_for_exactly_this() {
    let by = |key: &Key| judge(&offered(7, Some(signed(&statement(7), key))), &floor(0));
    assert_eq!(by(&alice()), Err(R::RoleDenied));
    assert_eq!(by(&vault()), Err(R::RoleDenied));
    assert_eq!(by(&ed(99)), Err(R::UnknownSigner));
    let bytes = statement(7).to_bytes().unwrap();
    for namespace in Namespace::ALL.into_iter().filter(|name| *name != Namespace::Desired) {
        let envelope = sealed(&bytes, namespace, &[&author()]);
        assert_eq!(judge(&offered(7, Some(envelope)), &floor(0)), Err(R::SigNamespace));
    }
    let bent: [(Bend<DesiredStatement>, R); 7] = [
        (|s| s.hub_id = hub('b'), R::BindingMismatch),
        (|s| s.host.id = "pve2".parse().unwrap(), R::HostMismatch),
        (|s| s.host.key = ed(99).public().fingerprint(), R::HostMismatch),
        (|s| s.generation = Generation(8), R::BindingMismatch),
        (|s| s.manifest = files("").manifest().hash(), R::BindingMismatch),
        (|s| s.window = Window::new(NOW.plus(1), NOW.plus(60)).unwrap(), R::NotYetValid),
        (|s| s.window = Window::new(NOW.minus(60), NOW).unwrap(), R::Expired),
    ];
    for (bend, expected) in bent {
        let mut statement = statement(7);
        bend(&mut statement);
        let offered = offered(7, Some(signed(&statement, &author())));
        assert_eq!(judge(&offered, &floor(0)), Err(expected), "{statement:?}");
    }
    let mut long = statement(7);
    long.window = Window::new(NOW.minus(60), NOW.plus(AUTHOR_WINDOW_MAX_S)).unwrap();
    let long = offered(7, Some(signed(&long, &author())));
    assert_eq!(judge(&long, &floor(0)), Err(R::LifetimeExceeded));
    assert_eq!(judge_by(&good(7), &floor(0), true, None), Err(R::Clock), "time in doubt");
}

#[test]
fn an_unsigned_document_is_taken_only_where_root_says_so_and_never_counts_as_signed() {
    assert_eq!(judge(&offered(7, None), &floor(0)), Err(R::Policy));
    let taken = judge_by(&offered(7, None), &floor(0), false, None).unwrap();
    assert_eq!((taken.signer.clone(), taken.declared_by()), (None, DeclaredBy::UnsignedHub));
    // Root demands signatures again: the same document needs one now.
    assert_eq!(judge(&offered(7, None), &taken), Err(R::Policy));
    assert_eq!(judge(&good(7), &taken).unwrap().signer, Some("ada".parse().unwrap()));
    // A signature that is there must hold, even where none is needed.
    let forged = offered(7, Some(signed(&statement(7), &ed(99))));
    assert_eq!(judge_by(&forged, &floor(0), false, Some(NOW)), Err(R::UnknownSigner));
}

#[test]
fn a_document_with_a_mistake_or_a_secret_is_refused_whole() {
    for text in [
        "[guest.101]\nkind = \"lxc\"\ncoers = 2\n",
        "[guest.101]\nkind = \"lxc\"\nenv = [\"A=hunter2\"]\n",
    ] {
        let files = files(text);
        let mut bad = offered(7, None);
        (bad.manifest, bad.files) = (files.manifest(), files);
        assert_eq!(judge_by(&bad, &floor(0), false, None), Err(R::Payload), "{text}");
    }
}

#[test]
fn a_document_travels_whole() {
    let envelope = signed(&statement(7), &author());
    let armour = author().sign(Namespace::Desired, envelope.payload());
    let text = SealedText::of(&Envelope::seal(envelope.payload(), &[&armour]).unwrap()).unwrap();
    let sent = WireDocument::of(hub('a'), host().id, Generation(7), &files(WEB), Some(text));
    let json = serde_json::to_vec(&sent).unwrap();
    let read: WireDocument = serde_json::from_slice(&json).unwrap();
    assert_eq!(judge(&read.offered().unwrap(), &floor(0)).unwrap().generation, Generation(7));
}

fn head(epoch: u64, seq: u64) -> JournalHead {
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

fn acknowledgement() -> AcknowledgeStatement {
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

#[test]
fn every_statement_of_the_fleet_reads_back_and_nothing_else_does() {
    let enrol = EnrolStatement {
        token: PayloadHash::of(b"evke_"),
        host: host(),
        hub_url: "https://hub.example:8443".to_owned(),
    };
    let report = ReportStatement {
        hub_id: hub('a'),
        host: host(),
        instance: "0123456789abcdef".parse().unwrap(),
        seq: 2,
        base: 1,
        sha256: PayloadHash::of(b"{}"),
    };
    let anchored = HeadStatement { hub_id: hub('a'), host: host(), head: head(1, 2) };
    let login = LoginStatement {
        hub_id: hub('a'),
        origin: "https://hub.example".to_owned(),
        account: "alice".to_owned(),
        nonce: Nonce::from_random([3; 16]).unwrap(),
    };
    let all = [
        enrol.to_bytes().unwrap(),
        report.to_bytes().unwrap(),
        anchored.to_bytes().unwrap(),
        statement(7).to_bytes().unwrap(),
        acknowledgement().to_bytes().unwrap(),
        login.to_bytes().unwrap(),
    ];
    let readers: [Reads; 6] = [
        |bytes| EnrolStatement::parse(bytes).is_ok(),
        |bytes| ReportStatement::parse(bytes).is_ok(),
        |bytes| HeadStatement::parse(bytes).is_ok(),
        |bytes| DesiredStatement::parse(bytes).is_ok(),
        |bytes| AcknowledgeStatement::parse(bytes).is_ok(),
        |bytes| LoginStatement::parse(bytes).is_ok(),
    ];
    for (made, bytes) in all.iter().enumerate() {
        for (asked, reads) in readers.iter().enumerate() {
            assert_eq!(reads(bytes), made == asked, "{}", String::from_utf8_lossy(bytes));
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        let more = text.replacen('{', "{\"more\":\"x\",", 1);
        let twice = text.replacen('{', "{\"format\":\"x\",", 1);
        for bent in [more, twice, format!("{text}\n"), text.replacen("v1", "v2", 1)] {
            assert!(!readers[made](bent.as_bytes()), "{bent}");
        }
    }
    let with_slash = EnrolStatement { hub_url: "https://hub/".into(), ..enrol };
    assert!(with_slash.to_bytes().is_err());
    let ahead = ReportStatement { base: 2, ..report };
    assert!(ahead.to_bytes().is_err());
}

#[test]
fn a_head_and_a_login_are_believed_by_their_own_key_alone() {
    let statement = HeadStatement { hub_id: hub('a'), host: host(), head: head(1, 2) };
    let bytes = statement.to_bytes().unwrap();
    let by = |key: &Key, namespace| {
        HeadStatement::verify(&sealed(&bytes, namespace, &[key]), &ed(200).public())
    };
    assert_eq!(by(&ed(200), Namespace::Head), Ok(statement));
    assert_eq!(by(&ed(201), Namespace::Head).unwrap_err().reason, R::UnknownSigner);
    assert_eq!(by(&ed(200), Namespace::Pending).unwrap_err().reason, R::SigNamespace);
    let other = sealed(&bytes, Namespace::Head, &[&ed(201)]);
    assert_eq!(
        HeadStatement::verify(&other, &ed(201).public()).unwrap_err().reason,
        R::HostMismatch
    );
}

#[test]
fn a_host_needs_no_author_and_an_author_signs_no_act() {
    let without =
        vec![alice().signer("alice", Role::Operational), vault().signer("vault", Role::Recovery)];
    assert!(TrustedSigners::genesis(TrustVersion(1), without).is_ok());
    let alone = vec![author().signer("ada", Role::Author)];
    assert!(TrustedSigners::genesis(TrustVersion(1), alone).is_err());
    let statement = crate::support::statement();
    let approval = sealed(&statement.to_bytes().unwrap(), Namespace::Op, &[&author()]);
    let refusal = evenkeel_core::sign::statement_of(&approval, &trust(), NOW).unwrap_err();
    assert_eq!(refusal.reason, R::RoleDenied);
}

#[test]
fn an_author_whose_key_is_over_vouches_no_more() {
    let mut ada = author().signer("ada", Role::Author);
    ada.validity = Validity { from: UnixSeconds(0), until: NOW };
    let signers = vec![
        alice().signer("alice", Role::Operational),
        vault().signer("vault", Role::Recovery),
        ada,
    ];
    let trust = TrustedSigners::genesis(TrustVersion(1), signers).unwrap();
    let (floor, host) = (floor(0), host());
    let terms = DocumentTerms {
        floor: &floor,
        host: &host,
        trust: Some(&trust),
        desired_signed: true,
        now: Some(NOW),
    };
    let verdict = judge_document(&good(7), terms);
    assert!(
        matches!(verdict, DocumentVerdict::Refused { refusal, .. } if refusal.reason == R::KeyRevoked)
    );
}

proptest! {
    /// Whatever a hub offers in whatever order, what holds never goes down, and one number is one document.
    #[test]
    fn the_floor_of_no_sequence_goes_down(offers in proptest::collection::vec((0_u64..12, any::<bool>(), 0_u8..3), 1..40)) {
        let mut floor = floor(0);
        let mut taken = std::collections::BTreeMap::new();
        for (generation, signs, content) in offers {
            let files = files(&format!("# {content}\n{WEB}"));
            let mut said = statement(generation.max(1));
            said.manifest = files.manifest().hash();
            let author = signs.then(|| signed(&said, &author()));
            let offer = OfferedDocument { manifest: files.manifest(), files, ..offered(generation, author) };
            if let Ok(next) = judge(&offer, &floor) {
                prop_assert!(next.generation >= floor.generation && next.signer.is_some());
                let known = taken.entry(next.generation).or_insert(next.manifest);
                prop_assert_eq!(*known, next.manifest);
                floor = next;
            }
        }
    }
}
