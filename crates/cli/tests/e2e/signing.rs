//! `sign`: what is signed, by whom, and that nothing bent is ever written.

use evenkeel_core::sign::{AnyStatement, Envelope, Namespace};

use crate::keys::{KINDS, Operator, steady};
use evenkeel_testkit::signing_keys::{Forged, TOUCHED, VERIFIED, ed, one_of_each, sk_ecdsa, sk_ed};

/// The exact bytes inside an envelope file.
fn payload(operator: &Operator, name: &str) -> Vec<u8> {
    Envelope::parse(operator.desk.read(name).as_bytes()).unwrap().payload().to_vec()
}

#[test]
fn v31_an_item_signed_with_a_key_file_of_each_kind_is_what_its_host_would_allow() {
    for kind in KINDS {
        let operator = Operator::new();
        operator.trust(kind);
        operator.approve("approval.json").ends_with(0);
        let told = operator
            .run(&["verify", "approval.json", "--trust", "trust.toml", "-o", "json"])
            .ends_with(0)
            .json();
        assert_eq!(told["decision"]["reason"], "allowed_signed", "{kind}");
        assert_eq!(told["signatures"][0]["name"], "alice");
        assert_eq!(told["signatures"][0]["role"], "operational");
        assert!(told["says"].as_str().unwrap().contains("test box"), "{told}");
    }
}

#[test]
fn v31_an_item_signed_through_a_real_ssh_agent_is_what_its_host_would_allow() {
    for kind in KINDS {
        let operator = Operator::new();
        operator.trust(kind);
        // The private file goes away, so only the agent can sign.
        let script = "ssh-add -q alice && rm alice && \
             evenkeel sign item.json --key alice.pub --out approval.json -y && \
             evenkeel verify approval.json --trust trust.toml";
        let told = operator.shell_with_agent(script).ends_with(0);
        assert!(told.stdout.contains("alice, operational\nallowed_signed"), "{}", told.stdout);
    }
}

#[test]
fn v31_signatures_of_security_keys_are_taken_when_they_were_touched_and_only_then() {
    for (flags, code) in [(0, 4), (0x04, 4), (TOUCHED, 0), (VERIFIED, 0)] {
        for key in [sk_ed(2), sk_ecdsa(4)] {
            let operator = Operator::new();
            operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
            let statement = operator.desk.read("statement");
            let armour =
                Forged::with(&key, "evenkeel.op.v1", b"", statement.as_bytes(), flags, 7).armour();
            operator.desk.write("statement.sig", &armour);
            let seal =
                ["sign", "statement", "--signature", "statement.sig", "--out", "approval.json"];
            let told = operator.run(&seal).ends_with(code);
            assert_eq!(operator.has("approval.json"), code == 0, "{flags} {}", key.name());
            if code == 0 {
                let told = operator.run(&["verify", "approval.json", "-o", "json"]).ends_with(0);
                let touch = &told.json()["signatures"][0]["touch"];
                assert_eq!(
                    (touch["verified"] == true, touch["counter"].as_u64()),
                    (flags == VERIFIED, Some(7))
                );
            } else {
                assert!(told.stderr.contains("refused as sk_presence"), "{}", told.stderr);
            }
        }
    }
}

#[test]
fn every_allowed_kind_of_key_can_be_enrolled_and_its_approval_is_allowed() {
    for key in one_of_each() {
        let operator = Operator::new();
        operator.generate("ed25519", "vault");
        operator.enrol("vault", "recovery").ends_with(0);
        operator.desk.write("alice.pub", &format!("{} alice\n", key.public()));
        operator.enrol("alice", "operational").ends_with(0);
        operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
        let armour = key.sign(Namespace::Op, operator.desk.read("statement").as_bytes());
        operator.desk.write("statement.sig", &armour);
        let seal = ["sign", "statement", "--signature", "statement.sig", "--out", "approval.json"];
        operator.run(&seal).ends_with(0);
        let told = operator.run(&["verify", "approval.json", "--trust", "trust.toml"]).ends_with(0);
        assert!(told.stdout.contains("alice, operational"), "{}", told.stdout);
    }
}

#[test]
fn n17_what_is_shown_is_what_is_signed() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let told = operator.approve("approval.json").ends_with(0);
    let payload = payload(&operator, "approval.json");
    let said = evenkeel_core::sign::render::statement(&payload).unwrap();
    assert!(told.stderr.contains(&format!("You sign:\n\n{said}")), "{}", told.stderr);
    insta::assert_snapshot!("an-item-that-is-signed", steady(&told.story()));
}

#[test]
fn two_approvals_of_one_item_have_two_nonces() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let nonce = |name: &str| {
        operator.approve(name).ends_with(0);
        match AnyStatement::parse(&payload(&operator, name)).unwrap() {
            AnyStatement::Op(statement) => statement.nonce,
            AnyStatement::Deny(_) | AnyStatement::Rotation(_) | AnyStatement::Acknowledge(_) => {
                panic!("an approval is no rotation")
            }
        }
    };
    assert_ne!(nonce("one.json"), nonce("two.json"));
}

#[test]
fn the_commands_that_are_printed_do_the_same_by_hand() {
    for subject in ["item.json", "statement file.json", "half.json"] {
        let operator = Operator::new();
        operator.trust("ed25519");
        operator.generate("ed25519", "bob");
        operator.run(&["sign", "item.json", "--prepare", "statement file.json"]).ends_with(0);
        let half = ["sign", "statement file.json", "--key", "bob", "--out", "half.json", "-y"];
        operator.run(&half).ends_with(0);
        let told =
            operator.run(&["sign", subject, "--key", "alice", "--out", "approval.json", "-y"]);
        let told = told.ends_with(0);
        let commands: Vec<&str> = told
            .stderr
            .lines()
            .skip_while(|line| *line != "The same by hand:")
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .collect();
        assert!(commands.len() >= 2, "{}", told.stderr);
        operator.shell(&format!("rm approval.json\n{}", commands.join("\n"))).ends_with(0);
        operator.run(&["verify", "approval.json"]).ends_with(0);
    }
}

#[test]
fn v24_a_key_of_another_type_signs_nothing() {
    let operator = Operator::new();
    for options in
        [&["-t", "rsa", "-b", "2048", "-N", ""][..], &["-t", "ecdsa", "-b", "384", "-N", ""]]
    {
        operator.generate_with(options, "other");
        let told = operator
            .run(&["sign", "item.json", "--key", "other", "--out", "approval.json", "-y"])
            .ends_with(4);
        assert!(told.stderr.contains("refused as key_type"), "{}", told.stderr);
        assert!(!operator.has("approval.json"));
        operator.shell("rm other other.pub").ends_with(0);
    }
}

#[test]
fn g24_n17_an_item_that_was_tampered_with_is_noticed_and_refused() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let sealed: serde_json::Value = serde_json::from_str(&operator.desk.read("item.json")).unwrap();
    let armour = sealed["signatures"][0].as_str().unwrap();
    let item = String::from_utf8(payload(&operator, "item.json")).unwrap();
    // A hub that calls the guest by another name, hides a loss, or aims at another guest.
    for (from, to) in
        [("\"web\"", "\"test\""), ("vm-101-disk-0", "vm-999-disk-0"), ("qemu/101", "qemu/102")]
    {
        let bent = item.replace(from, to);
        assert_ne!(bent, item);
        operator.desk.write("bent.json", &Envelope::seal(bent.as_bytes(), &[armour]).unwrap());
        for verb in [
            &["sign", "bent.json", "--key", "alice", "--out", "approval.json", "-y"][..],
            &["sign", "bent.json", "--prepare", "statement"],
            &["verify", "bent.json"],
        ] {
            let told = operator.run(verb).ends_with(4);
            assert!(told.stderr.contains("refused as sig_invalid"), "{}", told.stderr);
            assert_eq!(told.stdout, "");
        }
    }
    assert!(!operator.has("approval.json") && !operator.has("statement"));
}

#[test]
fn an_item_signed_by_another_key_than_the_pinned_one_is_refused_whatever_is_said() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let other = Operator::without_pin();
    operator.desk.write("item.json", &other.desk.read("item.json"));
    let told = operator.approve("approval.json").ends_with(4);
    insta::assert_snapshot!("a-host-with-another-key", steady(&told.story()));
    assert!(!operator.has("approval.json"));
}

#[test]
fn a_pin_in_the_working_directory_needs_no_directory_to_be_made() {
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    let sign = ["sign", "item.json", "--key", "alice", "--out", "approval.json", "-y"];
    let pins = ["--reason", "test box", "--known-hosts", "known_hosts"];
    let told = operator.run(&[&sign[..], &pins[..]].concat()).ends_with(4);
    assert!(
        !told.stderr.contains("mkdir") && told.stderr.contains("echo 'pve1"),
        "{}",
        told.stderr
    );
}

#[test]
fn an_unknown_host_is_refused_without_a_terminal_and_the_message_says_how_to_pin_it() {
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    let told = operator.approve("approval.json").ends_with(4);
    insta::assert_snapshot!("an-unknown-host", steady(&told.story()));
    assert!(!operator.has("approval.json"));
    assert!(!operator.has(".config"), "nothing is pinned by -y");
    // What it says works as it stands.
    let (_, pin) = told.stderr.split_once("if it is the same: ").unwrap();
    operator.shell(pin.trim()).ends_with(0);
    operator.approve("approval.json").ends_with(0);
    // A file of one's own choice does too.
    operator.shell("mv .config/evenkeel/known_hosts hosts && rm -r .config").ends_with(0);
    let told = operator.run(&["verify", "item.json"]).ends_with(4);
    assert!(told.stderr.contains("is not known here"), "{}", told.stderr);
    operator.run(&["verify", "item.json", "--known-hosts", "hosts"]).ends_with(0);
}

#[test]
fn a_file_of_pinned_hosts_with_a_bad_line_is_refused_whole() {
    let operator = Operator::new();
    let good = operator.desk.read(".config/evenkeel/known_hosts");
    operator.desk.write(".config/evenkeel/known_hosts", &format!("{good}pve2\n"));
    let told = operator.run(&["verify", "item.json"]).ends_with(3);
    insta::assert_snapshot!("a-bad-line-of-pinned-hosts", told.story());
}

#[test]
fn without_a_terminal_nothing_is_signed_unless_it_was_said_before() {
    let operator = Operator::new();
    operator.trust("ed25519");
    let told = operator
        .run(&["sign", "item.json", "--key", "alice", "--out", "approval.json"])
        .ends_with(64);
    assert!(told.stderr.contains("there is no terminal to ask on\n  hint: "), "{}", told.stderr);
    assert!(!operator.has("approval.json"));
}

#[test]
fn a_file_that_is_there_is_not_overwritten_unless_forced() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.desk.write("approval.json", "precious");
    let told = operator.approve("approval.json").ends_with(1);
    assert!(told.stderr.contains("approval.json already exists"), "{}", told.stderr);
    assert!(
        !told.stderr.contains("You sign"),
        "it is said before anybody reads or touches anything"
    );
    assert_eq!(operator.desk.read("approval.json"), "precious");
    let force = ["sign", "item.json", "--key", "alice", "--out", "approval.json", "-y", "--force"];
    operator.run(&force).ends_with(0);
    operator.run(&["verify", "approval.json"]).ends_with(0);
    assert!(operator.desk.names(".").iter().all(|name| !name.starts_with(".evenkeel")));
}

#[test]
fn a_signature_over_other_bytes_or_for_another_purpose_is_refused() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
    let seal = ["sign", "statement", "--signature", "statement.sig", "--out", "approval.json"];
    let sign = |options: &str, file: &str| {
        let script = format!("ssh-keygen -q -Y sign -f alice {options} {file}");
        operator.shell(&format!("rm -f {file}.sig && {script}")).ends_with(0);
    };
    for (options, reason) in [
        ("-n file", "sig_namespace"),
        ("-n evenkeel.rotate.v1", "sig_namespace"),
        ("-n evenkeel.op.v1 -O hashalg=sha256", "sig_hash"),
    ] {
        sign(options, "statement");
        let told = operator.run(&seal).ends_with(4);
        assert!(told.stderr.contains(&format!("refused as {reason}")), "{}", told.stderr);
    }
    operator.run(&["sign", "item.json", "--prepare", "other"]).ends_with(0);
    sign("-n evenkeel.op.v1", "other");
    operator.shell("cp other.sig statement.sig").ends_with(0);
    let told = operator.run(&seal).ends_with(4);
    assert!(told.stderr.contains("refused as sig_invalid"), "{}", told.stderr);
    assert!(!operator.has("approval.json"));
}

#[test]
fn a_statement_no_host_would_read_is_not_signed() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
    let good = operator.desk.read("statement");
    for bad in [
        format!("{good}\n"),
        good.replace("\"purge\": \"0\"", "\"purge\": \"0\", \"purge\": \"1\""),
        good.replace("evenkeel/statement/v1", "evenkeel/statement/v2"),
        "{}".to_owned(),
        "not json".to_owned(),
    ] {
        operator.desk.write("bad", &bad);
        let told = operator.run(&["sign", "bad", "--key", "alice", "--out", "approval.json", "-y"]);
        let told = told.ends_with(3);
        assert!(told.stderr.starts_with("error: bad: refused as payload"), "{}", told.stderr);
    }
    assert!(!operator.has("approval.json"));
}

#[test]
fn a_statement_for_another_key_than_the_hosts_pinned_one_is_not_signed() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
    let sign = ["sign", "statement", "--key", "alice", "--out", "approval.json", "-y"];
    operator.pin(&Operator::without_pin().host);
    let told = operator.run(&sign).ends_with(4);
    assert!(told.stderr.contains("statement: refused as host_mismatch"), "{}", told.stderr);
    assert!(!operator.has("approval.json"));
    // Where nothing is pinned, as on the machine a recovery key is kept at, it is said and signed.
    operator.shell("rm -r .config").ends_with(0);
    let told = operator.run(&sign).ends_with(0);
    assert!(told.stderr.contains("note: the host pve1 is not pinned here"), "{}", told.stderr);
}

#[test]
fn a_signature_is_added_to_an_envelope_whose_signatures_hold_and_to_no_other() {
    let operator = Operator::new();
    operator.trust("ed25519");
    operator.generate("ecdsa", "bob");
    operator.approve("one.json").ends_with(0);
    operator.run(&["sign", "one.json", "--key", "bob", "--out", "two.json", "-y"]).ends_with(0);
    let told = operator.run(&["verify", "two.json"]).ends_with(0);
    assert_eq!(told.stdout.matches("signed by ").count(), 2, "{}", told.stdout);
    assert_eq!(payload(&operator, "one.json"), payload(&operator, "two.json"));
    let again = operator.run(&["sign", "two.json", "--key", "bob", "--out", "3.json", "-y"]);
    assert!(again.ends_with(3).stderr.contains("one key signed twice"));
    // One signature of the two is over other bytes.
    let text = String::from_utf8(payload(&operator, "one.json")).unwrap();
    let armour = ed(66).sign(Namespace::Op, b"other bytes");
    operator.desk.write("bad.json", &Envelope::seal(text.as_bytes(), &[&armour]).unwrap());
    let told = operator.run(&["sign", "bad.json", "--key", "bob", "--out", "3.json", "-y"]);
    assert!(told.ends_with(4).stderr.contains("refused as sig_invalid"));
    assert!(!operator.has("3.json"));
}

#[test]
fn an_id_is_said_to_need_the_running_agent() {
    let operator = Operator::new();
    let id = "ab".repeat(32);
    let told = operator.run(&["sign", &id, "--key", "k", "--out", "x.json"]).ends_with(5);
    insta::assert_snapshot!("an-id-instead-of-a-file", steady(&told.story()));
}

#[test]
fn what_is_missing_is_told_with_the_next_step() {
    let operator = Operator::new();
    for (arguments, code) in [
        (&["sign", "nothing.json", "--key", "k", "--out", "x.json"][..], 5),
        (&["sign", "item.json", "--key", "nokey", "--out", "x.json", "-y"], 5),
        (&["sign", "item.json", "--key", "k", "--out", "nowhere/x.json", "-y"], 5),
        (&["sign", "item.json", "--signature", "s", "--out", "x.json"], 64),
        (&["sign", "item.json", "--out", "x.json"], 64),
        (&["sign", "item.json", "--key", "k", "--signature", "s", "--out", "x.json"], 64),
        (&["sign", "item.json", "--key", "k", "--out", "x.json", "--life", "25h"], 64),
        (&["sign", "item.json", "--key", "k", "--out", "x.json", "--life", "1s"], 64),
    ] {
        let told = operator.run(arguments).ends_with(code);
        assert_eq!(told.stdout, "", "{arguments:?}");
        assert!(told.stderr.contains("error: "), "{arguments:?}: {}", told.stderr);
        assert!(code == 64 || told.stderr.contains("\n  hint: "), "{}", told.stderr);
    }
    operator.run(&["sign", "item.json", "--prepare", "statement"]).ends_with(0);
    let told =
        operator.run(&["sign", "statement", "--prepare", "s2", "--life", "2h"]).ends_with(64);
    assert!(told.stderr.contains("its own window"), "{}", told.stderr);
}
