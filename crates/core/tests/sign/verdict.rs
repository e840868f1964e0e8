//! What a host says of an envelope, as the person who handed it in reads it: one row a way in which a hub could lie.

use evenkeel_core::fleet::{EnvelopeVerdict, HandedIn, HubId, SealedText, VerdictStatement};
use evenkeel_core::model::reason::ReasonCode as R;
use evenkeel_core::sign::{Envelope, Namespace, PayloadHash};

use evenkeel_testkit::signing_keys::{Key, ed, host};

/// What makes a statement another.
type Bend = fn(&mut VerdictStatement);

fn host_key() -> Key {
    ed(40)
}

fn hub(digit: char) -> HubId {
    digit.to_string().repeat(32).parse().unwrap()
}

fn handed_in() -> HandedIn {
    HandedIn { hub_id: hub('a'), host: host().id, payload: PayloadHash::of(b"approval") }
}

fn told(code: &str) -> EnvelopeVerdict {
    let envelope = format!("env_{}", "0".repeat(32)).parse().unwrap();
    let detail = "destroyed".to_owned();
    let op = Some("op_1".to_owned());
    EnvelopeVerdict { envelope, code: code.to_owned(), op, detail, sealed: None }
}

fn statement(code: &str) -> VerdictStatement {
    let HandedIn { hub_id, host: id, payload } = handed_in();
    let mut host = host();
    host.id = id;
    host.key = host_key().public().fingerprint();
    VerdictStatement::of(hub_id, host, payload, &told(code))
}

fn sealed_by(keys: &[&Key], namespace: Namespace, bytes: &[u8]) -> SealedText {
    let armours: Vec<String> = keys.iter().map(|key| key.sign(namespace, bytes)).collect();
    let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
    SealedText::of(&Envelope::seal(bytes, &armours).unwrap()).unwrap()
}

fn read(sealed: Option<SealedText>, code: &str) -> Result<VerdictStatement, R> {
    let told = EnvelopeVerdict { sealed, ..told(code) };
    let read = VerdictStatement::about(&told, &host_key().public(), &handed_in());
    read.map_err(|refusal| refusal.reason)
}

#[test]
fn z09_a_verdict_that_the_host_signed_about_these_bytes_is_believed() {
    let bytes = statement("allowed_signed").to_bytes().unwrap();
    let sealed = sealed_by(&[&host_key()], Namespace::Verdict, &bytes);
    // What the hub writes beside the seal is not read.
    let read = read(Some(sealed), "unknown_signer").unwrap();
    assert_eq!(read, statement("allowed_signed"));
}

#[test]
fn z09_a_hub_that_writes_a_verdict_of_its_own_is_not_believed() {
    assert_eq!(read(None, "allowed_signed"), Err(R::BindingMismatch), "no signature");
    let bytes = statement("allowed_signed").to_bytes().unwrap();
    let by_another = sealed_by(&[&ed(41)], Namespace::Verdict, &bytes);
    assert_eq!(read(Some(by_another), "allowed_signed"), Err(R::UnknownSigner));
    let for_something_else = sealed_by(&[&host_key()], Namespace::Report, &bytes);
    assert_eq!(read(Some(for_something_else), "allowed_signed"), Err(R::SigNamespace));
    let bends: [(&str, Bend); 4] = [
        ("another approval", |said| said.payload = PayloadHash::of(b"another approval")),
        ("another hub", |said| said.hub_id = hub('b')),
        ("another host", |said| said.host.id = "pve9".parse().unwrap()),
        ("another key", |said| said.host.key = ed(41).public().fingerprint()),
    ];
    for (name, bend) in bends {
        let mut bent = statement("allowed_signed");
        bend(&mut bent);
        let sealed = sealed_by(&[&host_key()], Namespace::Verdict, &bent.to_bytes().unwrap());
        assert!(read(Some(sealed), "allowed_signed").is_err(), "{name}");
    }
    let two = sealed_by(&[&host_key(), &ed(41)], Namespace::Verdict, &bytes);
    assert_eq!(read(Some(two), "allowed_signed"), Err(R::Envelope), "a second signature");
}
