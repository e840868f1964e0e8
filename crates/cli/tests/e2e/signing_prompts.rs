//! What is asked on a terminal before anything is signed, and what an answer does.

use crate::keys::Operator;

#[test]
fn a_new_host_is_pinned_by_a_person_who_says_yes_and_only_then_is_its_item_offered() {
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    let (code, seen) = operator
        .on_a_terminal("sign item.json --key alice --out approval.json")
        .shows("Is this the host's key? [y/N] ")
        .types("y")
        .shows("Sign this with alice? [y/N] ")
        .types("y")
        .ends();
    assert_eq!(code, 0, "{seen}");
    let print = operator.host.public().fingerprint().to_string();
    assert!(seen.contains(&print), "{seen}");
    let pins = operator.desk.read(".config/evenkeel/known_hosts");
    assert_eq!(pins, format!("pve1 {}\n", operator.host.public()));
    operator.run(&["verify", "approval.json", "--trust", "trust.toml"]).ends_with(0);
    // Known from now on: without a terminal too.
    operator.approve("again.json").ends_with(0);
}

#[test]
fn everything_but_yes_is_no_and_nothing_is_written() {
    for answer in ["n", "", "yep", "j", "Y es"] {
        let operator = Operator::without_pin();
        operator.trust("ed25519");
        let (code, seen) = operator
            .on_a_terminal("sign item.json --key alice --out approval.json")
            .shows("Is this the host's key? [y/N] ")
            .types(answer)
            .ends();
        assert_eq!(code, 4, "{seen}");
        assert!(!operator.has(".config") && !operator.has("approval.json"), "{answer:?}");
        operator.pin(&operator.host);
        let (code, seen) = operator
            .on_a_terminal("sign item.json --key alice --out approval.json")
            .shows("Sign this with alice? [y/N] ")
            .types(answer)
            .ends();
        assert_eq!(code, 1, "{seen}");
        assert!(!operator.has("approval.json"), "{answer:?}");
    }
}

#[test]
fn yes_on_the_command_line_answers_for_the_signature_and_not_for_the_host() {
    let operator = Operator::without_pin();
    operator.trust("ed25519");
    let (code, seen) = operator
        .on_a_terminal("sign item.json --key alice --out approval.json --yes")
        .shows("Is this the host's key? [y/N] ")
        .types("n")
        .ends();
    assert_eq!(code, 4, "{seen}");
    operator.pin(&operator.host);
    let (code, seen) =
        operator.on_a_terminal("sign item.json --key alice --out approval.json --yes").ends();
    assert_eq!(code, 0, "{seen}");
    assert!(!seen.contains("[y/N]"), "{seen}");
}

#[test]
fn a_passphrase_is_asked_by_ssh_keygen_on_the_terminal() {
    let operator = Operator::new();
    operator.generate_with(&["-t", "ed25519", "-N", "correct horse"], "alice");
    let (code, seen) = operator
        .on_a_terminal("sign item.json --key alice --out approval.json --yes")
        .shows("Enter passphrase")
        .shows(": ")
        .types("correct horse")
        .ends();
    assert_eq!(code, 0, "{seen}");
    assert!(!seen.contains("correct horse"), "{seen}");
    operator.run(&["verify", "approval.json"]).ends_with(0);
    // Without a terminal nobody is asked, and the run ends by itself.
    let told = operator.approve("again.json").ends_with(4);
    assert!(
        told.stderr.contains("ssh-keygen did not sign with alice\n  hint: "),
        "{}",
        told.stderr
    );
    assert!(!operator.has("again.json"));
}
