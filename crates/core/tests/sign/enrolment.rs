//! Enrolment, trust files, pinned hosts and pending items: text in, text out, whole or not at all.

use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::Nonce;
use evenkeel_core::sign::pin::{self, PinError, Pinned, Pins};
use evenkeel_core::sign::trust_file::{self, EditError};
use evenkeel_core::sign::{
    Envelope, KeyType, Loss, Namespace, PendingItem, PublicKey, Role, SkPolicy, Statement,
    TrustVersion, Validity, Window, enrol, render,
};
use evenkeel_core::words::diagnostic::{Code, FileId, SourceFile};

use evenkeel_testkit::signing_keys::{
    Key, NOW, act, alice, destroy_params, ed, expected, host, item_id, one_of_each, reason, sealed,
    sk_ed, vault,
};

fn source(text: &str) -> SourceFile {
    SourceFile::new(FileId(0), "trust.toml", text)
}

fn good() -> String {
    let text = trust_file::add(&trust_file::empty(), &alice().signer("alice", Role::Operational));
    trust_file::add(&text.unwrap(), &vault().signer("vault", Role::Recovery)).unwrap()
}

#[test]
fn a_trust_file_made_by_enrolling_loads() {
    let trust = trust_file::load(&source(&good())).unwrap();
    assert_eq!(trust.version(), TrustVersion(1));
    assert_eq!(trust.signers().count(), 2);
    assert_eq!(trust, evenkeel_testkit::signing_keys::trust());
}

#[test]
fn a_comment_does_not_change_the_chain_and_a_key_does() {
    let commented = format!("# ours\n{}", good());
    let head = |text: &str| trust_file::load(&source(text)).unwrap().head();
    assert_eq!(head(&commented), head(&good()));
    let other = good().replace(&vault().public().to_string(), &ed(21).public().to_string());
    assert_ne!(head(&other), head(&good()));
    assert_ne!(head(&good().replace("alice", "alicia")), head(&good()));
    assert_ne!(head(&good().replace("version = 1", "version = 2")), head(&good()));
}

#[test]
fn a_trust_file_with_any_mistake_is_refused_whole_with_every_mistake() {
    let bent = good()
        .replace("role = \"operational\"", "role = \"root\"")
        .replace("name = \"vault\"", "name = \"va ult\"\nnmae = \"x\"")
        .replace("version = 1", "version = 0");
    let mistakes = trust_file::parse(&source(&bent)).unwrap_err();
    let codes: Vec<Code> = mistakes.iter().map(|mistake| mistake.code).collect();
    assert_eq!(codes, [Code::BadValue, Code::BadValue, Code::BadValue, Code::UnknownKey]);
    assert!(mistakes.iter().all(|mistake| mistake.at.is_some()));
    assert_eq!(mistakes[3].hints, ["did you mean `name`?"]);
}

#[test]
fn each_rule_of_the_trust_file_bites() {
    let key = alice().public().to_string();
    let cases = [
        (good().replace("evenkeel/trust/v1", "evenkeel/trust/v2"), Code::BadValue),
        (good().replace("format", "# format"), Code::Structure),
        (good().replace("version = 1", "version = \"1\""), Code::WrongType),
        (good().replace("version = 1", "version = -1"), Code::BadValue),
        (good().replace("version = 1", ""), Code::Structure),
        (good().replace("name = \"alice\"\n", ""), Code::Structure),
        (good().replace("\"alice\"", "7"), Code::WrongType),
        (good().replace(&key, "ssh-rsa AAAAB3NzaC1yc2E="), Code::BadValue),
        (good().replace(&key, &key[..key.len() - 4]), Code::BadValue),
        (good().replace(&key, &key.replace("ssh-ed25519 ", "ssh-ed25519  ")), Code::BadValue),
        (good().replace(&key, &vault().public().to_string()), Code::Duplicate),
        (good().replace("\"vault\"", "\"alice\""), Code::Duplicate),
        (good() + "sk = \"verification\"\n", Code::BadValue),
        (good() + "valid_until = \"2026-01-01\"\n", Code::BadValue),
        (good() + "valid_until = 2026-01-01T00:00:00Z\n", Code::Unsupported),
        (
            good()
                + "valid_from = \"2027-01-01T00:00:00Z\"\nvalid_until = \"2026-01-01T00:00:00Z\"\n",
            Code::BadValue,
        ),
        (good() + "cert-authority = true\n", Code::UnknownKey),
        (good().replace("[[signer]]", "[signer]"), Code::Duplicate),
        (good() + "name = \"again\"\n", Code::Duplicate),
        ("signer = 1\n".to_owned() + &trust_file::empty(), Code::WrongType),
        ("signer = [1]\n".to_owned() + &trust_file::empty(), Code::WrongType),
        ("not toml".to_owned(), Code::Syntax),
    ];
    for (text, code) in cases {
        let mistakes = trust_file::load(&source(&text)).expect_err(&text);
        assert!(
            mistakes.iter().any(|mistake| mistake.code == code),
            "{code}: {mistakes:#?}\n{text}"
        );
    }
    let lone = trust_file::add(&trust_file::empty(), &alice().signer("alice", Role::Operational));
    let mistakes = trust_file::load(&source(&lone.unwrap())).unwrap_err();
    assert_eq!(mistakes[0].code, Code::Structure);
}

#[test]
fn adding_and_removing_a_signer_keeps_everything_else() {
    let text = good()
        .replace("[[signer]]\nname = \"vault\"", "# in the safe\n[[signer]]\nname = \"vault\"");
    let mut carol = sk_ed(12).signer("carol", Role::Operational);
    carol.validity =
        Validity { from: UnixSeconds(1_700_000_000), until: UnixSeconds(1_900_000_000) };
    carol.sk = SkPolicy::Verification;
    let more = trust_file::add(&text, &carol).unwrap();
    assert!(more.starts_with(&text));
    assert_eq!(trust_file::parse(&source(&more)).unwrap().signers[2], carol);
    assert_eq!(trust_file::remove(&more, &carol.name).unwrap().trim_end(), text.trim_end());
    let less = trust_file::remove(&text, &"alice".parse().unwrap()).unwrap();
    assert!(!less.contains("alice") && less.contains("vault"));
    let nobody = trust_file::remove(&text, &"nobody".parse().unwrap());
    assert_eq!(nobody, Err(EditError::NoSuchSigner("nobody".parse().unwrap())));
    let twice = trust_file::add(&text, &alice().signer("alice", Role::Operational));
    assert!(matches!(twice, Err(EditError::File(_))));
    let inline = format!(
        "{}signer = [{{ name = \"alice\", role = \"operational\", key = \"{}\" }}]\n",
        trust_file::empty(),
        alice().public()
    );
    let by_hand = trust_file::remove(&inline, &"alice".parse().unwrap());
    assert!(matches!(by_hand, Err(EditError::ByHand(_))), "{by_hand:?}");
    let mut odd = alice().signer("odd", Role::Operational);
    odd.sk = SkPolicy::Verification;
    let cannot = trust_file::add(&trust_file::empty(), &odd);
    assert!(matches!(cannot, Err(EditError::ByHand(_))), "a plain key asks for no PIN");
}

#[test]
fn a_key_reads_from_its_line_and_prints_as_it() {
    for key in one_of_each() {
        let public = key.public();
        assert_eq!(public.key_type().as_str(), key.name());
        assert_eq!(PublicKey::from_line(&public.to_string()).unwrap(), public);
        assert_eq!(PublicKey::from_line(&format!("{public} me@desk and more\n")).unwrap(), public);
        let print = public.fingerprint();
        assert_eq!(print.to_string().parse(), Ok(print));
    }
    let line = alice().public().to_string();
    let other = line.replacen("ssh-ed25519", "ecdsa-sha2-nistp256", 1);
    for bent in [
        &line[..20],
        "",
        "ssh-ed25519",
        &format!(" {line}"),
        &format!("{line}\n{line}"),
        &other,
        &line.replace(' ', "\t"),
    ] {
        assert!(PublicKey::from_line(bent).is_err(), "{bent}");
    }
    assert_eq!(KeyType::ALL.len(), 4);
}

#[test]
fn an_allowed_signers_line_is_taken_over_in_full_or_not_at_all() {
    let key = alice().public();
    let take = |line: &str, role| enrol::from_allowed_signers(line, role);
    let plain = take(&format!("alice@example.org {key} comment\n"), Role::Operational).unwrap();
    assert_eq!((plain.name.to_string(), &plain.key), ("alice@example.org".to_owned(), &key));
    assert_eq!((plain.role, plain.validity), (Role::Operational, Validity::ALWAYS));
    let dated = take(
        &format!("alice valid-after=\"20260101Z\",valid-before=\"20270101120000Z\" {key}"),
        Role::Recovery,
    );
    let Validity { from, until } = dated.unwrap().validity;
    assert_eq!((from, until), (UnixSeconds(1_767_225_600), UnixSeconds(1_798_804_800)));
    let ours = "namespaces=\"evenkeel.op.v1,evenkeel.rotate.v1\"";
    assert!(take(&format!("alice {ours} {key}"), Role::Operational).is_ok());
    let refused = [
        format!("alice {ours} {key}"),
        format!("* {key}"),
        format!("!alice {key}"),
        format!("alice,bob {key}"),
        format!("a?ice {key}"),
        format!("alice cert-authority {key}"),
        format!("alice cert-authority,{ours} {key}"),
        format!("alice namespaces=\"git\" {key}"),
        format!("alice namespaces=\"evenkeel.*\" {key}"),
        format!("alice no-touch-required {key}"),
        format!("alice valid-after=\"20260101\" {key}"),
        format!("alice valid-after=20260101Z {key}"),
        format!("alice valid-after=\"20261301Z\" {key}"),
        format!("alice valid-after=\"20270101Z\",valid-before=\"20260101Z\" {key}"),
        format!("alice valid-after=\"20260101Z\",valid-after=\"20260101Z\" {key}"),
        format!("alice valid-after=\"20260101Z {key}"),
        format!("alice {key}\nbob {key}"),
        format!("alice  {key}"),
        format!(" alice {key}"),
        "alice ssh-rsa AAAAB3NzaC1yc2E=".to_owned(),
        "alice".to_owned(),
        "# comment".to_owned(),
        String::new(),
    ];
    for line in refused {
        assert!(take(&line, Role::Recovery).is_err(), "{line}");
    }
}

#[test]
fn a_pinned_host_key_is_the_same_different_or_unknown() {
    let pve1 = "pve1".parse().unwrap();
    let pve2 = "pve2".parse().unwrap();
    let one = ed(1).public();
    let two = ed(2).public();
    let text = pin::add("# my hosts\n", &pve1, &one).unwrap();
    let pins = Pins::parse(&text).unwrap();
    assert_eq!(pins.compare(&pve1, &one), Pinned::Same);
    assert_eq!(pins.compare(&pve1, &two), Pinned::Different);
    assert_eq!(pins.compare(&pve2, &one), Pinned::Unknown);
    assert_eq!(pins.get(&pve1), Some(&one));
    assert_eq!(pin::add(&text, &pve1, &one), Ok(text.clone()), "nothing twice");
    assert_eq!(pin::add(&text, &pve1, &two), Err(PinError::Different(pve1.clone())));
    let both = pin::add(text.trim_end(), &pve2, &two).unwrap();
    assert_eq!(Pins::parse(&both).unwrap().get(&pve2), Some(&two));
    let bent = [
        format!("{text}{text}"),
        "pve1\n".to_owned(),
        format!("pve_1 {one}\n"),
        "pve1 ssh-rsa AAAA\n".to_owned(),
        format!(" pve1 {one}\n"),
    ];
    for (place, text) in bent.iter().enumerate() {
        assert!(matches!(Pins::parse(text), Err(PinError::Line { .. })), "{place}");
    }
}

/// The host key of the tests' host.
fn host_key() -> Key {
    ed(200)
}

pub(crate) fn item() -> PendingItem {
    PendingItem {
        op: act().op,
        host: host(),
        guest: act().guest,
        guest_name: "billing\u{1b}[31m".to_owned(),
        expected: expected(),
        params: destroy_params(),
        losses: vec![
            Loss { what: "local-lvm:vm-101-disk-0".to_owned(), size_bytes: Some(34_359_738_368) },
            Loss { what: "local-lvm:vm-101-disk-1".to_owned(), size_bytes: None },
        ],
        last_backup: evenkeel_core::sign::LastBackup::Never,
        serial: Nonce::from_random([5; 16]).unwrap(),
        raised_at: NOW,
        trust_version: TrustVersion(1),
    }
}

#[test]
fn a_pending_item_is_believed_by_the_pinned_key_alone() {
    let bytes = item().to_bytes().unwrap();
    let envelope = sealed(&bytes, Namespace::Pending, &[&host_key()]);
    assert_eq!(PendingItem::verify(&envelope, &host_key().public()).unwrap(), item());
    let answer = |envelope: &Envelope, key: &Key| {
        PendingItem::verify(envelope, &key.public()).unwrap_err().reason
    };
    assert_eq!(answer(&envelope, &ed(201)), R::UnknownSigner);
    let other = sealed(&bytes, Namespace::Pending, &[&ed(201)]);
    assert_eq!(answer(&other, &ed(201)), R::HostMismatch, "it names the other host's key");
    let for_op = sealed(&bytes, Namespace::Op, &[&host_key()]);
    assert_eq!(answer(&for_op, &host_key()), R::SigNamespace);
    let two = sealed(&bytes, Namespace::Pending, &[&host_key(), &ed(201)]);
    assert_eq!(answer(&two, &host_key()), R::Envelope);
    let lie = String::from_utf8(bytes.clone()).unwrap().replace("qemu/101", "qemu/102");
    let armour = host_key().sign(Namespace::Pending, &bytes);
    let lie = Envelope::seal(lie.as_bytes(), &[&armour]).unwrap();
    assert_eq!(answer(&Envelope::parse(lie.as_bytes()).unwrap(), &host_key()), R::SigInvalid);
}

#[test]
fn a_new_digest_makes_a_new_item() {
    let bytes = item().to_bytes().unwrap();
    let mut changed = item();
    changed.expected = evenkeel_core::sign::Expected::Guest {
        identity: evenkeel_testkit::signing_keys::IDENTITY.parse().unwrap(),
        digest: "3333333333333333333333333333333333333333".parse().unwrap(),
    };
    assert_ne!(PendingItem::id(&bytes), PendingItem::id(&changed.to_bytes().unwrap()));
    assert_eq!(PendingItem::id(&bytes).to_string().len(), 64);
}

#[test]
fn the_statement_made_from_an_item_approves_exactly_it() {
    let window = Window::new(NOW, NOW.plus(600)).unwrap();
    let statement =
        item().statement(item_id(), Nonce::from_random([3; 16]).unwrap(), window, "gone for good");
    let bytes = statement.to_bytes().unwrap();
    assert_eq!(Statement::parse(&bytes).unwrap().params, item().params);
    assert_eq!(reason(&sealed(&bytes, Namespace::Op, &[&alice()]), &act()), R::AllowedSigned);
}

#[test]
fn a_person_is_shown_what_is_lost() {
    let shown = render::pending(&item().to_bytes().unwrap()).unwrap();
    for part in [
        "DESTROY qemu/101 \"billing\\u{1b}[31m\"",
        "local-lvm:vm-101-disk-0, 32 GiB",
        "size unknown",
        "none known",
        "pve1",
        "2027-01-15T08:00:00Z",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}
