//! Every body that travels over the link, bent: read or refused with a reason, never a panic, and what is read is bounded.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_types, reason = "how long bodies are bent is measured")]

use std::time::Instant;

use evenkeel_core::fleet::{
    AcknowledgeStatement, AnchorAnswer, DesiredStatement, DocumentFiles, EnrolAnswer, EnrolRequest,
    EnrolStatement, Generation, HeadStatement, HostReport, HubProblem, LoginStatement, PollAnswer,
    ReportAnswer, ReportStatement, SealedText, WireDocument,
};
use evenkeel_core::sign::{Namespace, SIGNATURES_MAX, STATEMENT_BYTES_MAX};
use evenkeel_testkit::bent_json::BodyBender;
use serde_json::{Value, json};

/// What every sealed value holds to: an envelope within its bounds, or a reason.
fn sealed(sealed: &SealedText) {
    match sealed.envelope() {
        Ok(envelope) => {
            assert!((1..=SIGNATURES_MAX).contains(&envelope.signatures().len()));
            assert!(envelope.payload().len() <= STATEMENT_BYTES_MAX);
            let _ = envelope.claimed_namespace();
            statements(envelope.payload());
        }
        Err(refusal) => assert!(!refusal.detail.is_empty()),
    }
}

/// Exact bytes as any of the statements: what is read reads back the same.
fn statements(bytes: &[u8]) {
    if let Ok(statement) = EnrolStatement::parse(bytes) {
        assert_eq!(EnrolStatement::parse(&statement.to_bytes().unwrap()).unwrap(), statement);
    }
    if let Ok(statement) = ReportStatement::parse(bytes) {
        assert_eq!(ReportStatement::parse(&statement.to_bytes().unwrap()).unwrap(), statement);
    }
    if let Ok(statement) = HeadStatement::parse(bytes) {
        assert_eq!(HeadStatement::parse(&statement.to_bytes().unwrap()).unwrap(), statement);
    }
    for namespace in [Namespace::Desired, Namespace::DesiredV1] {
        if let Ok(statement) = DesiredStatement::parse(bytes, namespace) {
            assert_eq!(statement.namespace(), namespace);
            let again = statement.to_bytes().unwrap();
            assert_eq!(DesiredStatement::parse(&again, namespace).unwrap(), statement);
        }
    }
    if let Ok(statement) = AcknowledgeStatement::parse(bytes) {
        assert_eq!(AcknowledgeStatement::parse(&statement.to_bytes().unwrap()).unwrap(), statement);
    }
    if let Ok(statement) = LoginStatement::parse(bytes) {
        assert_eq!(LoginStatement::parse(&statement.to_bytes().unwrap()).unwrap(), statement);
    }
}

fn good_seal(payload: &Value) -> Value {
    use base64_of::encode;
    json!({"payload": encode(payload.to_string().as_bytes()), "signatures": ["-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"]})
}

/// The alphabet, once more: a test needs no crate for it.
mod base64_of {
    pub(super) fn encode(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for place in 0..4 {
                let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
                text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
            }
        }
        text
    }
}

fn head() -> Value {
    let host = json!({"id": "pve1", "key": "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"});
    json!({"format": "evenkeel/head/v1", "hub_id": "0123456789abcdef0123456789abcdef", "host": host,
        "epoch": 0, "seq": 7, "sum": "ab".repeat(32), "trust_version": 3})
}

fn document() -> Value {
    let text = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";
    let files = DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap();
    let hub_id = "0123456789abcdef0123456789abcdef".parse().unwrap();
    let document = WireDocument::of(hub_id, "pve1".parse().unwrap(), Generation(7), &files, None);
    let mut document = serde_json::to_value(document).unwrap();
    document["author"] = good_seal(&head());
    document
}

fn report() -> Value {
    json!({
        "generation": {"number": 7, "manifest": "cd".repeat(32), "signer": "ada"},
        "refused": {"generation": 8, "manifest": null, "code": "policy", "why": "no", "diagnostics": ["x"]},
        "agent": {"version": "0.2.0", "node": "pve1", "since": "", "mode": "enforce", "troubles": []},
        "pass": {"at": "", "planned": 1, "succeeded": 1, "failed": 0, "held": 0, "in_sync": 4},
        "guests": [{"guest": "lxc/101", "name": "web", "state": "drifted", "held": [{"code": "policy", "why": "x"}],
            "differences": [{"key": "cores", "declared": "4", "actual": "2"}], "config": {"cores": "2"}}],
        "gone": ["lxc/102"],
        "ops": [{"op": "op_1", "guest": "lxc/101", "kind": "set_config", "state": "succeeded", "at": "", "reason": ""}],
        "pending": [{"id": "ef".repeat(32), "item": good_seal(&head())}],
        "pending_gone": ["ef".repeat(32)],
        "verdicts": [{"envelope": format!("env_{}", "0".repeat(32)), "code": "allowed_signed", "op": "op_1", "detail": ""}],
        "head": good_seal(&head()), "at": "2026-01-01T00:00:00Z"
    })
}

/// A body, and whoever reads it.
type LinkBody = (&'static str, Value, fn(&[u8]));

fn bodies() -> Vec<LinkBody> {
    let envelope = json!({"cursor": 1, "id": format!("env_{}", "0".repeat(32)), "envelope": good_seal(&head())});
    vec![
        ("poll", json!({"generation": 7, "envelopes": [envelope]}), |bytes| {
            if let Ok(answer) = serde_json::from_slice::<PollAnswer>(bytes) {
                answer.envelopes.iter().for_each(|waiting| sealed(&waiting.envelope));
            }
        }),
        ("document", document(), |bytes| {
            let Ok(document) = serde_json::from_slice::<WireDocument>(bytes) else { return };
            document.author.iter().for_each(sealed);
            match document.offered() {
                Ok(offered) => {
                    let fits = offered.files.fit(&offered.manifest).is_ok();
                    let loaded =
                        offered.files.load(evenkeel_core::desired::DeclaredBy::UnsignedHub);
                    assert!(offered.files.iter().len() <= 1_000, "{fits} {}", loaded.is_ok());
                }
                Err(refusal) => assert!(!refusal.detail.is_empty()),
            }
        }),
        ("anchor", json!({"head": good_seal(&head())}), |bytes| {
            if let Ok(AnchorAnswer { head: Some(head) }) = serde_json::from_slice(bytes) {
                sealed(&head);
            }
        }),
        (
            "enrol request",
            json!({"token": "evke_0", "host_key": "ssh-ed25519 AAAA", "enrolment": good_seal(&head())}),
            |bytes| {
                if let Ok(request) = serde_json::from_slice::<EnrolRequest>(bytes) {
                    sealed(&request.enrolment);
                    let _ = evenkeel_core::sign::PublicKey::from_line(request.host_key.trim_end());
                }
            },
        ),
        (
            "enrol answer",
            json!({"hub_id": "0123456789abcdef0123456789abcdef", "credential": "evkc_0"}),
            |bytes| {
                let _ = serde_json::from_slice::<EnrolAnswer>(bytes);
            },
        ),
        ("report", report(), |bytes| match HostReport::read(bytes) {
            Ok(report) => {
                let again = HostReport::read(&report.to_bytes());
                assert_eq!(again.unwrap(), report, "what is read can be told again");
                report.head.iter().for_each(sealed);
                report.pending.iter().for_each(|pending| sealed(&pending.item));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }),
        ("report answer", json!({"seq": 5}), |bytes| {
            let _ = serde_json::from_slice::<ReportAnswer>(bytes);
        }),
        (
            "problem",
            json!({"type": "about:blank", "title": "x", "status": 409, "detail": "y", "code": "resync", "diagnostics": ["z"]}),
            |bytes| {
                let _ = serde_json::from_slice::<HubProblem>(bytes);
            },
        ),
        ("envelope", good_seal(&head()), |bytes| {
            if let Ok(text) = serde_json::from_slice::<SealedText>(bytes) {
                sealed(&text);
            }
            let _ = evenkeel_core::sign::Envelope::parse(bytes);
        }),
        ("head statement", head(), statements),
    ]
}

#[test]
fn whatever_travels_over_the_link_is_read_or_refused() {
    let mut bender = BodyBender::seeded();
    for (name, good, read) in bodies() {
        read(&serde_json::to_vec(&good).unwrap());
        let began = Instant::now();
        let mut case = 0;
        while BodyBender::goes_on(case, began) {
            let bytes = bender.bend(&good);
            let told = std::panic::catch_unwind(|| read(&bytes));
            assert!(told.is_ok(), "{name}, case {case}: {}", String::from_utf8_lossy(&bytes));
            case += 1;
        }
    }
}

#[test]
fn the_good_bodies_are_good() {
    assert!(HostReport::read(&serde_json::to_vec(&report()).unwrap()).is_ok());
    let document: WireDocument = serde_json::from_value(document()).unwrap();
    assert!(WireDocument { author: None, ..document }.offered().is_ok());
    assert!(HeadStatement::parse(head().to_string().as_bytes()).is_ok(), "{}", head());
}
