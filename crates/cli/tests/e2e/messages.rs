//! What is wrong with what the operator wrote: the right exit code, and words that say what, where, why
//! and what next. The words are snapshots: read them when they change.

use std::os::unix::fs::PermissionsExt as _;

use evenkeel_sim::{Http, TOKENS};

use crate::support::{Desk, Node, Run};

fn token() -> String {
    format!("{}={}", TOKENS[0].0, TOKENS[0].1)
}

/// `plan` with this configuration file and nothing else.
fn with_config(desk: &Desk, config: &str) -> Run {
    desk.write("agent.toml", config);
    desk.run("plan", &["--config", "agent.toml"])
}

#[test]
fn a_configuration_file_that_is_no_toml_is_invalid() {
    let desk = Desk::new();
    let told = with_config(&desk, "[pve]\nurl = https://pve1:8006\n").ends_with(3);
    insta::assert_snapshot!("config-that-is-no-TOML", told.story());
}

#[test]
fn an_unknown_key_in_the_configuration_is_invalid() {
    let desk = Desk::new();
    let told = with_config(&desk, "[pve]\nfingerprnt = \"AA\"\n").ends_with(3);
    insta::assert_snapshot!("config-with-an-unknown-key", told.story());
}

#[test]
fn a_configuration_file_that_is_not_there_is_not_found() {
    let told = Desk::new().run("plan", &["--config", "nowhere.toml"]).ends_with(5);
    insta::assert_snapshot!("config-that-is-not-there", told.story());
}

#[test]
fn without_any_configuration_the_first_step_is_named() {
    let told = Desk::new().run("plan", &[]).ends_with(3);
    insta::assert_snapshot!("no-configuration-at-all", told.story());
}

#[test]
fn a_pin_and_an_authority_together_are_invalid() {
    let desk = Desk::new();
    let file = desk.token_file(&token(), 0o600);
    let config = format!(
        "[pve]\nurl = \"https://127.0.0.1:8006\"\nfingerprint = \"AA\"\nca_file = \"ca.pem\"\ntoken_file = \"{}\"\n",
        file.display()
    );
    insta::assert_snapshot!(
        "a-pin-and-an-authority",
        with_config(&desk, &config).ends_with(3).story()
    );
}

#[test]
fn a_fingerprint_that_is_none_is_invalid() {
    let desk = Desk::new();
    let file = desk.token_file(&token(), 0o600);
    let mut command = desk.command("plan");
    command.args(["--url", "https://127.0.0.1:8006", "--fingerprint", "AB:CD", "--token-file"]);
    command.arg(file);
    insta::assert_snapshot!(
        "a-fingerprint-that-is-none",
        desk.finish(command).ends_with(3).story()
    );
}

#[test]
fn plain_http_to_another_machine_is_invalid() {
    let desk = Desk::new();
    let file = desk.token_file(&token(), 0o600);
    let mut command = desk.command("plan");
    command.args(["--url", "http://pve1.example:8006", "--token-file"]).arg(file);
    insta::assert_snapshot!(
        "plain-http-to-another-machine",
        desk.finish(command).ends_with(3).story()
    );
}

#[test]
fn a_token_file_others_can_read_is_invalid() {
    let desk = Desk::new();
    let file = desk.token_file(&token(), 0o600);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = desk.command("plan");
    command.args(["--url", "https://127.0.0.1:8006", "--token-file"]).arg(file);
    insta::assert_snapshot!(
        "a-token-file-others-can-read",
        desk.finish(command).ends_with(3).story()
    );
}

#[test]
fn a_token_file_without_a_token_is_invalid_and_its_text_not_repeated() {
    let desk = Desk::new();
    let file = desk.token_file(TOKENS[0].1, 0o600);
    let mut command = desk.command("plan");
    command.args(["--url", "https://127.0.0.1:8006", "--token-file"]).arg(file);
    insta::assert_snapshot!(
        "a-token-file-without-a-token",
        desk.finish(command).ends_with(3).story()
    );
}

#[test]
fn invalid_desired_files_are_told_with_line_and_column() {
    let node = Node::with_guests(2);
    node.desk
        .write("desired/a.toml", "[guest.100]\nkind = \"lxc\"\ncoers = 2\nmemory = \"4 apples\"\n");
    node.desk.write("desired/b.toml", "[guest.100]\nkind = \"qemu\"\n");
    let told = node.run("plan", &["--desired", "desired"]).ends_with(3);
    insta::assert_snapshot!("invalid-desired-files", told.story());
}

#[test]
fn desired_files_that_are_not_there_are_not_found() {
    let node = Node::with_guests(2);
    let told = node.run("plan", &["--desired", "nowhere"]).ends_with(5);
    insta::assert_snapshot!("desired-files-that-are-not-there", told.story());
    let told = node.run("plan", &[]).ends_with(3);
    insta::assert_snapshot!("nothing-says-where-desired-files-are", told.story());
}

#[test]
fn a_command_line_that_makes_no_sense_ends_with_64() {
    let desk = Desk::new();
    for arguments in [&["plan", "--colour"] as &[&str], &["pan"], &["import"], &["import", "12"]] {
        let told = desk.run(arguments[0], &arguments[1..]).ends_with(64);
        assert_eq!(told.stdout, "", "{arguments:?}");
        assert!(told.stderr.starts_with("error: "), "{arguments:?}: {}", told.stderr);
    }
    insta::assert_snapshot!("a-verb-that-does-not-exist", desk.run("pan", &[]).story());
    insta::assert_snapshot!(
        "a-number-no-guest-has",
        desk.run("import", &["12", "--out", "x"]).story()
    );
}

#[test]
fn a_node_that_does_not_exist_is_not_found() {
    let node = Node::with_guests(2);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let told = node.run("plan", &["--node", "pve7", "--desired", "desired"]).ends_with(5);
    insta::assert_snapshot!("an-unknown-node", told.story());
}

/// The last request before the check, so that what did not arrive is known not to have.
pub(crate) fn arrived(http: &Http) -> usize {
    http.node.with(|simulator| simulator.records().len())
}

/// The example names every key there is, and each of them is read.
#[test]
fn the_example_configuration_is_valid_and_complete() {
    let example = include_str!("../../../../docs/reference/agent.toml");
    let desk = Desk::new();
    let told = with_config(&desk, example).ends_with(5);
    assert!(
        told.stderr.contains("the token file cannot be used: cannot read /etc/evenkeel/token"),
        "{}",
        told.stderr
    );
    let told = with_config(&desk, "[pve]\nx = 1\n").stderr + &with_config(&desk, "x = 1\n").stderr;
    let known = told
        .split("\n\n")
        .filter_map(|block| block.split_once("= help: ")?.1.split_once(" has "))
        .map(|told| told.1);
    let keys: Vec<String> =
        known.flat_map(|keys| keys.split(',')).map(|key| key.trim().to_owned()).collect();
    assert!(keys.len() >= 8, "{told}");
    for key in keys {
        let named = |line: &str| {
            let line = line.trim_start_matches("# ");
            line.starts_with(&format!("{key} = ")) || line == format!("[{key}]")
        };
        assert!(example.lines().any(named), "{key} is not in the example");
    }
}
