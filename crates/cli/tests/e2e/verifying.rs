//! `verify`: who signed, what it would allow, or the reason code with its exit code.

use evenkeel_core::sign::{Envelope, Namespace};

use crate::keys::{Operator, steady};
use evenkeel_testkit::signing_keys::{alice, statement};

/// The reason code `verify` gives, in both forms, with one exit code.
#[track_caller]
fn reason(operator: &Operator, arguments: &[&str], code: i32) -> String {
    let mut table = vec!["verify"];
    table.extend_from_slice(arguments);
    let told = operator.run(&table).ends_with(code);
    assert_eq!(told.stdout, "");
    table.extend_from_slice(&["-o", "json"]);
    let json = operator.run(&table).ends_with(code);
    assert_eq!(json.stderr, "");
    let json = json.json();
    let reason = json["decision"]["reason"].as_str().unwrap().to_owned();
    assert_eq!(json["format_version"], 2);
    assert!(told.stderr.contains(&format!("refused as {reason}: ")), "{}", told.stderr);
    assert!(told.stderr.contains("\n  hint: "), "{}", told.stderr);
    reason
}

#[test]
fn an_approval_is_told_with_its_signer_and_what_it_would_allow() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.approve("approval.json").ends_with(0);
    let told = operator.run(&["verify", "approval.json", "--trust", "trust.toml"]).ends_with(0);
    insta::assert_snapshot!("an-approval-that-holds", steady(&told.story()));
    let told = operator.run(&["verify", "approval.json"]).ends_with(0);
    assert!(told.stdout.contains("who may sign was not asked"), "{}", told.stdout);
    let json = operator.run(&["verify", "approval.json", "-o", "json"]).ends_with(0).json();
    assert_eq!(json["decision"], serde_json::Value::Null, "valid is not authorised");
}

#[test]
fn a_pending_item_is_told_as_what_waits() {
    let operator = Operator::new();
    let told = operator.run(&["verify", "item.json"]).ends_with(0);
    insta::assert_snapshot!("an-item-that-waits", steady(&told.story()));
    let json = operator.run(&["verify", "item.json", "-o", "json"]).ends_with(0).json();
    assert_eq!(json["decision"]["reason"], "pending_signature");
    operator.shell("rm -r .config").ends_with(0);
    let json = operator.run(&["verify", "item.json", "-o", "json"]).ends_with(4).json();
    assert_eq!(json["decision"]["reason"], "unknown_signer");
}

#[test]
fn who_may_not_sign_is_told_by_the_hosts_own_reasons() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.generate("ed25519", "stranger");
    for (key, expected) in [("stranger", "unknown_signer"), ("vault", "role_denied")] {
        let out = format!("{key}.json");
        operator.run(&["sign", "item.json", "--key", key, "--out", &out, "-y"]).ends_with(0);
        assert_eq!(reason(&operator, &[&out, "--trust", "trust.toml"], 4), expected);
        operator.run(&["verify", &out]).ends_with(0);
    }
}

#[test]
fn a_statement_outside_of_its_window_or_of_another_trust_version_is_for_another_time() {
    let operator = Operator::new();
    operator.desk.write("alice.pub", &format!("{}\n", alice().public()));
    operator.generate("ed25519", "vault");
    operator.enrol("alice", "operational").ends_with(0);
    operator.enrol("vault", "recovery").ends_with(0);
    let trusted = ["statement.json", "--trust", "trust.toml"];
    let seal = |text: &str| {
        let armour = alice().sign(Namespace::Op, text.as_bytes());
        let sealed = Envelope::seal(text.as_bytes(), &[&armour]).unwrap();
        operator.desk.write("statement.json", &sealed);
    };
    let text = String::from_utf8(statement().to_bytes().unwrap()).unwrap();
    let window = |from: u64, until: u64| {
        text.replace("1799999940", &from.to_string()).replace("1800003600", &until.to_string())
    };
    seal(&window(1_000, 2_000));
    assert_eq!(reason(&operator, &trusted, 7), "expired");
    seal(&window(253_402_300_000, 253_402_300_700));
    assert_eq!(reason(&operator, &trusted, 7), "not_yet_valid");
    seal(&window(1_000, 1_000_000));
    assert_eq!(reason(&operator, &trusted, 4), "lifetime_exceeded");
    seal(&text.replace("\"trust_version\": 1", "\"trust_version\": 2"));
    assert_eq!(reason(&operator, &trusted, 7), "trust_version");
}

#[test]
fn what_was_bent_is_refused_by_the_rule_it_breaks() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.approve("approval.json").ends_with(0);
    let good = operator.desk.read("approval.json");
    let value: serde_json::Value = serde_json::from_str(&good).unwrap();
    let base64 = value["payload"].as_str().unwrap();
    // One letter of the base64 that stays base64: another byte in the payload.
    let other = if base64.as_bytes()[40] == b'A' { "B" } else { "A" };
    let bent_base64 = format!("{}{other}{}", &base64[..40], &base64[41..]);
    let op = value["signatures"][0].as_str().unwrap();
    let cases: [(String, i32, &str); 6] = [
        (good.replace(base64, &bent_base64), 4, "sig_invalid"),
        (good.replace("\"payload\"", "\"hint\": \"alice\", \"payload\""), 3, "envelope"),
        (good.replace("-----BEGIN", " -----BEGIN"), 4, "sig_format"),
        ("{}".to_owned(), 3, "envelope"),
        (String::new(), 3, "envelope"),
        (
            // A statement of one kind, signed for another.
            {
                let text = statement().to_bytes().unwrap();
                Envelope::seal(&text, &[&alice().sign(Namespace::Rotate, &text)]).unwrap()
            },
            4,
            "sig_namespace",
        ),
    ];
    assert!(op.starts_with("-----BEGIN SSH SIGNATURE-----\n"));
    for (text, code, expected) in cases {
        operator.desk.write("bent.json", &text);
        assert_eq!(reason(&operator, &["bent.json"], code), expected);
    }
}

#[test]
fn a_trust_file_with_mistakes_is_told_with_line_and_column_and_judges_nothing() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.approve("approval.json").ends_with(0);
    operator.desk.write("trust.toml", "format = \"evenkeel/trust/v1\"\nversion = 1\nsigners = 3\n");
    let told = operator.run(&["verify", "approval.json", "--trust", "trust.toml"]).ends_with(3);
    insta::assert_snapshot!("a-trust-file-with-mistakes", told.story());
    let told = operator.run(&["verify", "approval.json", "--trust", "no.toml"]).ends_with(5);
    assert!(told.stderr.contains("no.toml"), "{}", told.stderr);
}
