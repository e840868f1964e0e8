//! What a hub hands over, judged on the host: one table a rule, every row a way to be wrong.

use evenkeel_core::desired::DeclaredBy;
use evenkeel_core::fleet::{
    AUTHOR_WINDOW_MAX_S, AcknowledgeStatement, DesiredStatement, DocumentBase, DocumentFiles,
    DocumentFloor, DocumentTerms, DocumentVerdict, EPOCH_STEP_MAX, EffectiveDocument,
    EnrolStatement, FIRST_GENERATION_MAX, FloorState, GENERATION_STEP_MAX, Generation,
    HEAD_NUMBER_MAX, HeadStatement, HubId, JournalHead, LoginStatement, Manifest, OfferedDocument,
    ReportStatement, SealedText, SignedBase, WireDocument, document_next_step, judge_document,
};
use evenkeel_core::model::reason::{ReasonCode as R, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{
    Envelope, Namespace, Nonce, PayloadHash, Role, TrustVersion, TrustedSigners, Validity, Window,
};
use proptest::prelude::*;

use crate::acknowledge::{acknowledgement, head};
use evenkeel_testkit::signing_keys::{Key, NOW, alice, ed, host, sealed, vault};

const WEB: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";

/// What makes a statement another.
pub(crate) type Bend<S> = fn(&mut S);

/// Whether bytes are a statement of one kind.
type Reads = fn(&[u8]) -> bool;

pub(crate) fn hub(digit: char) -> HubId {
    digit.to_string().repeat(32).parse().unwrap()
}

pub(crate) fn author() -> Key {
    ed(30)
}

/// The signers of the tests, and an author.
pub(crate) fn trust() -> TrustedSigners {
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
        base: SignedBase::First,
        window: Window::new(NOW.minus(60), NOW.plus(3600)).unwrap(),
    }
}

/// The same as a change of what is in effect.
fn statement_over(generation: u64, floor: &DocumentFloor) -> DesiredStatement {
    DesiredStatement { base: SignedBase::after(floor.base()), ..statement(generation) }
}

fn signed(statement: &DesiredStatement, key: &Key) -> Envelope {
    sealed(&statement.to_bytes().unwrap(), statement.namespace(), &[key])
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

fn good_over(generation: u64, floor: &DocumentFloor) -> OfferedDocument {
    offered(generation, Some(signed(&statement_over(generation, floor), &author())))
}

fn floor(generation: u64) -> DocumentFloor {
    if generation == 0 {
        return DocumentFloor::enrolled(hub('a'));
    }
    let state = FloorState::Taken(EffectiveDocument {
        generation: Generation(generation),
        manifest: files("# another\n").manifest().hash(),
        signer: Some("ada".parse().unwrap()),
        signed_at: None,
    });
    DocumentFloor { hub_id: hub('a'), state }
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
    let bend = |terms: &mut DocumentTerms<'_>| {
        (terms.desired_signed, terms.now) = (desired_signed, now);
    };
    judge_by_terms(offered, floor, bend).map_err(|refusal| refusal.reason)
}

fn judge_by_terms(
    offered: &OfferedDocument,
    floor: &DocumentFloor,
    bend: impl FnOnce(&mut DocumentTerms<'_>),
) -> Result<DocumentFloor, Refusal> {
    let trust = trust();
    let host = host();
    let mut terms = DocumentTerms {
        floor,
        host: &host,
        trust: Some(&trust),
        desired_signed: true,
        without_base: false,
        now: Some(NOW),
    };
    bend(&mut terms);
    match judge_document(offered, terms) {
        DocumentVerdict::Taken(taken) => {
            let by = taken.floor.in_effect().unwrap().declared_by();
            assert!(taken.loaded.desired.guests.values().all(|guest| guest.by == by));
            Ok(taken.floor)
        }
        DocumentVerdict::InEffect => Ok(floor.clone()),
        DocumentVerdict::Refused { refusal, .. } => Err(refusal),
    }
}

#[test]
fn a_signed_document_is_taken_and_becomes_the_floor() {
    let taken = judge(&good(7), &floor(0)).unwrap();
    assert_eq!(taken.generation(), Generation(7));
    let document = taken.in_effect().unwrap();
    assert_eq!(document.manifest, files(WEB).manifest().hash());
    assert_eq!(document.signer, Some("ada".parse().unwrap()));
    assert_eq!(document.declared_by(), DeclaredBy::Hub);
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
        (GENERATION_STEP_MAX + 8, 0, None),
        (FIRST_GENERATION_MAX, 0, None),
        (FIRST_GENERATION_MAX + 1, 0, Some(R::Policy)),
        (8, 7, None),
        (GENERATION_STEP_MAX + 7, 7, None),
        (GENERATION_STEP_MAX + 8, 7, Some(R::Policy)),
        (u64::MAX, 7, Some(R::Policy)),
        (7, 7, Some(R::GenerationRollback)),
        (6, 7, Some(R::GenerationRollback)),
        (1, u64::MAX, Some(R::GenerationRollback)),
    ] {
        let floor = floor(at);
        let answer = judge(&good_over(generation, &floor), &floor);
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
        // Claimed to be in the old format, the signature holds, and the bytes are not in that format.
        let why = if namespace == Namespace::DesiredV1 { R::Payload } else { R::SigNamespace };
        assert_eq!(judge(&offered(7, Some(envelope)), &floor(0)), Err(why));
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
    let document = taken.in_effect().unwrap();
    assert_eq!((&document.signer, document.declared_by()), (&None, DeclaredBy::UnsignedHub));
    assert_eq!(taken.lacks_signature(true), Some(Generation(7)));
    assert_eq!(taken.lacks_signature(false), None);
    // Root demands signatures again: the same document needs one now, over what was taken.
    assert_eq!(judge(&offered(7, None), &taken), Err(R::Policy));
    assert_eq!(judge(&good(7), &taken), Err(R::Stale));
    let vouched = judge(&good_over(7, &taken), &taken).unwrap();
    assert_eq!(vouched.in_effect().unwrap().signer, Some("ada".parse().unwrap()));
    assert_eq!(vouched.base(), taken.base());
    // A signature that is there must hold, even where none is needed.
    let forged = offered(7, Some(signed(&statement(7), &ed(99))));
    assert_eq!(judge_by(&forged, &floor(0), false, Some(NOW)), Err(R::UnknownSigner));
}

/// Another document under a number, as a base to sign over.
fn base(generation: u64, text: &str) -> DocumentBase {
    let manifest = files(text).manifest().hash();
    DocumentBase { generation: Generation(generation), manifest }
}

#[test]
fn z01_a_document_is_taken_only_if_it_was_signed_over_the_one_in_effect() {
    let by = |said: SignedBase, floor: &DocumentFloor| {
        let statement = DesiredStatement { base: said, ..statement(9) };
        judge_by_terms(&offered(9, Some(signed(&statement, &author()))), floor, |_| {})
    };
    let in_effect = base(7, "# another\n");
    assert_eq!(floor(7).base(), Some(in_effect));
    let taken = by(SignedBase::Over(in_effect), &floor(7)).unwrap();
    assert_eq!(taken.base(), Some(base(9, WEB)), "the next one is signed over it");
    let refused = [
        (SignedBase::First, floor(7), "first document of this host, and generation 7"),
        (SignedBase::Over(base(6, "# another\n")), floor(7), "generation 6 ("),
        (SignedBase::Over(base(8, "# another\n")), floor(7), "generation 8 ("),
        (SignedBase::Over(base(7, "# rewritten\n")), floor(7), "generation 7 ("),
        (SignedBase::Over(in_effect), floor(0), "no document is in effect here"),
    ];
    for (said, floor, why) in refused {
        let refusal = by(said, &floor).unwrap_err();
        assert_eq!(refusal.reason, R::Stale, "{refusal}");
        assert!(refusal.detail.contains(why), "{refusal}");
    }
    assert!(document_next_step(R::Stale).contains("evenkeel fleet push"));
}

#[test]
fn a_host_without_an_author_says_so_and_the_next_step_enrols_one() {
    let unsigned = offered(9, None);
    let refusal = judge_by_terms(&unsigned, &floor(0), |terms| terms.trust = None).unwrap_err();
    assert!(refusal.detail.contains("no author is enrolled here yet"), "{refusal}");
    let refusal = judge_by_terms(&unsigned, &floor(0), |_| {}).unwrap_err();
    assert!(!refusal.detail.contains("no author"), "{refusal}");
    assert!(document_next_step(R::UnknownSigner).contains("--add-author NAME=AUTHOR.pub"));
}

#[test]
fn z01_the_old_format_is_taken_only_where_root_says_so_and_what_holds_stays() {
    let old = |generation| {
        let statement = DesiredStatement { base: SignedBase::Unsaid, ..statement(generation) };
        offered(generation, Some(signed(&statement, &author())))
    };
    let refusal = judge_by_terms(&old(9), &floor(7), |_| {}).unwrap_err();
    assert_eq!(refusal.reason, R::Policy);
    assert!(refusal.detail.contains("old format"), "{refusal}");
    let allowed = |terms: &mut DocumentTerms<'_>| terms.without_base = true;
    let taken = judge_by_terms(&old(9), &floor(7), allowed).unwrap();
    // Root takes the permission back: what was taken holds, and today's format goes on from it.
    assert_eq!(judge(&old(9), &taken), Ok(taken.clone()));
    assert!(judge(&old(10), &taken).is_err());
    assert_eq!(judge(&good_over(10, &taken), &taken).unwrap().generation(), Generation(10));
    // It must hold in every other respect.
    let mut other_host = old(9);
    other_host.host = "pve2".parse().unwrap();
    assert_eq!(
        judge_by_terms(&other_host, &floor(7), allowed).unwrap_err().reason,
        R::HostMismatch
    );
    let forged = DesiredStatement { base: SignedBase::Unsaid, ..statement(9) };
    let forged = offered(9, Some(signed(&forged, &ed(99))));
    assert_eq!(judge_by_terms(&forged, &floor(7), allowed).unwrap_err().reason, R::UnknownSigner);
}

#[test]
fn z04_a_push_that_was_kept_back_is_refused_after_a_newer_one() {
    let before = floor(4);
    // Signed under a high number and said to be refused; then signed anew under a lower one, which is taken.
    let kept_back = good_over(9, &before);
    let files_of_newer = files("[guest.101]\nkind = \"lxc\"\ncores = 4\n");
    let mut newer = statement_over(5, &before);
    newer.manifest = files_of_newer.manifest().hash();
    let newer = OfferedDocument {
        manifest: files_of_newer.manifest(),
        files: files_of_newer,
        ..offered(5, Some(signed(&newer, &author())))
    };
    assert_eq!(
        judge(&kept_back, &before).unwrap().generation(),
        Generation(9),
        "it would fit before"
    );
    let after = judge(&newer, &before).unwrap();
    assert_eq!(judge(&kept_back, &after), Err(R::Stale));
}

#[test]
fn z23_after_a_new_enrolment_what_is_in_effect_is_the_base_whatever_the_numbers_say() {
    let before = judge(&good_over(8, &floor(7)), &floor(7)).unwrap();
    let again = before.clone().enrolled_again(hub('a'));
    assert_eq!((again.generation(), again.base()), (Generation::NONE, before.base()));
    // Old documents in their window: the first one of the host, and the one before what is in effect.
    assert_eq!(judge(&good(1), &again), Err(R::Stale));
    assert_eq!(judge(&good_over(9, &floor(7)), &again), Err(R::Stale));
    let other = OfferedDocument { generation: Generation(9), ..good_over(8, &floor(7)) };
    assert!(judge(&other, &again).is_err());
    // The one in effect is known by its hash, whatever its window and author are by now.
    let known = judge_by(&offered(8, None), &again, true, Some(NOW.plus(99_999_999)));
    assert_eq!(known, Ok(before.clone()));
    // The next one goes on from there, whatever number the hub gives it.
    assert_eq!(judge(&good_over(3, &again), &again).unwrap().generation(), Generation(3));
    // The hub's numbers go on, however far they went before.
    let far = 2 * GENERATION_STEP_MAX + 9;
    assert_eq!(judge(&good_over(far, &again), &again).unwrap().generation(), Generation(far));
    // So it is with another hub, and when the host is enrolled more than once.
    let elsewhere = again.clone().enrolled_again(hub('b')).enrolled_again(hub('b'));
    assert_eq!(elsewhere.base(), before.base());
    let mut first = statement(1);
    first.hub_id = hub('b');
    let at_b = |statement: &DesiredStatement| OfferedDocument {
        hub_id: hub('b'),
        ..offered(1, Some(signed(statement, &author())))
    };
    assert_eq!(judge(&at_b(&first), &elsewhere), Err(R::Stale));
    first.base = SignedBase::after(before.base());
    assert_eq!(judge(&at_b(&first), &elsewhere).unwrap().hub_id, hub('b'));
    // A document of the same number and content at another hub is not the one in effect.
    let same = OfferedDocument { hub_id: hub('b'), ..offered(8, None) };
    assert_eq!(judge(&same, &elsewhere), Err(R::Policy));
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
    assert_eq!(judge(&read.offered().unwrap(), &floor(0)).unwrap().generation(), Generation(7));
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
        DesiredStatement { base: SignedBase::Unsaid, ..statement(7) }.to_bytes().unwrap(),
        acknowledgement().to_bytes().unwrap(),
        login.to_bytes().unwrap(),
    ];
    let readers: [Reads; 7] = [
        |bytes| EnrolStatement::parse(bytes).is_ok(),
        |bytes| ReportStatement::parse(bytes).is_ok(),
        |bytes| HeadStatement::parse(bytes).is_ok(),
        |bytes| DesiredStatement::parse(bytes, Namespace::Desired).is_ok(),
        |bytes| DesiredStatement::parse(bytes, Namespace::DesiredV1).is_ok(),
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
        for bent in [more, twice, format!("{text}\n"), text.replacen("/v", "/v9", 1)] {
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

/// A thief of the host key who makes up a head must not hold signed work for good.
#[test]
fn a_head_beyond_every_journal_is_not_read_and_an_epoch_out_of_reach_is_not_believed() {
    let read = |head: JournalHead| {
        let statement = HeadStatement { hub_id: hub('a'), host: host(), head };
        // What cannot be read is not written either.
        statement.to_bytes().is_ok_and(|bytes| HeadStatement::parse(&bytes).is_ok())
    };
    let own = head(1, 2);
    assert!(read(JournalHead { epoch: HEAD_NUMBER_MAX, seq: HEAD_NUMBER_MAX, ..own }));
    for beyond in [HEAD_NUMBER_MAX + 1, u64::MAX] {
        assert!(!read(JournalHead { epoch: beyond, ..own }));
        assert!(!read(JournalHead { seq: beyond, ..own }));
        assert!(!read(JournalHead { trust_version: TrustVersion(beyond), ..own }));
    }
    assert!(head(1 + EPOCH_STEP_MAX, 2).is_within_reach(&own));
    assert!(!head(2 + EPOCH_STEP_MAX, 2).is_within_reach(&own));
}

#[test]
fn a_host_needs_no_author_and_an_author_signs_no_act() {
    let without =
        vec![alice().signer("alice", Role::Operational), vault().signer("vault", Role::Recovery)];
    assert!(TrustedSigners::genesis(TrustVersion(1), without).is_ok());
    let alone = vec![author().signer("ada", Role::Author)];
    assert!(TrustedSigners::genesis(TrustVersion(1), alone).is_err());
    let statement = evenkeel_testkit::signing_keys::statement();
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
    let floor = floor(0);
    let host = host();
    let terms = DocumentTerms {
        floor: &floor,
        host: &host,
        trust: Some(&trust),
        desired_signed: true,
        without_base: false,
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
            let mut said = statement_over(generation.max(1), &floor);
            said.manifest = files.manifest().hash();
            let author = signs.then(|| signed(&said, &author()));
            let offer = OfferedDocument { manifest: files.manifest(), files, ..offered(generation, author) };
            if let Ok(next) = judge(&offer, &floor) {
                let document = next.in_effect().unwrap();
                prop_assert!(next.generation() >= floor.generation() && document.signer.is_some());
                let known = taken.entry(next.generation()).or_insert(document.manifest);
                prop_assert_eq!(*known, document.manifest);
                floor = next;
            }
        }
    }
}
