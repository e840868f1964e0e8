//! What import writes, and what it leaves alone.

use std::collections::BTreeMap;

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Event, Scenario};

use crate::support::Node;

#[test]
fn import_writes_one_tidy_file_for_each_guest() {
    let node = Node::with_guests(14);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let names: Vec<String> = node.desk.names("desired").into_iter().collect();
    assert_eq!(names.len(), 14);
    assert!(names.contains(&"lxc-100.toml".to_owned()), "{names:?}");
    assert!(names.contains(&"qemu-113.toml".to_owned()), "{names:?}");
    insta::assert_snapshot!("a-container", node.desk.read("desired/lxc-100.toml"));
    insta::assert_snapshot!("a-machine", node.desk.read("desired/qemu-111.toml"));
    node.desk.run("validate", &["desired"]).ends_with(0);
}

#[test]
fn import_writes_only_the_guests_it_is_asked_for() {
    let node = Node::with_guests(14);
    node.run("import", &["101", "104", "--out", "desired"]).ends_with(0);
    let names: Vec<String> = node.desk.names("desired").into_iter().collect();
    assert_eq!(names, ["lxc-104.toml", "qemu-101.toml"]);
}

#[test]
fn secrets_of_guests_are_never_written() {
    let scenario = Scenario { release: Release::V9_2, guests: 4, ..Scenario::default() };
    let node = Node::start(&scenario);
    let hide = |guest: &str, key: &str, secret: &str| {
        let set = BTreeMap::from([(key.to_owned(), Some(secret.to_owned()))]);
        node.happen(Event::Edit { guest: guest.parse().unwrap(), set });
    };
    hide("qemu/101", "cipassword", "hunter2");
    hide("lxc/100", "env", "DB_PASSWORD=hunter2\0MODE=prod");
    node.run("import", &["--out", "desired"]).ends_with(0);
    for (file, key) in [("qemu-101.toml", "cipassword"), ("lxc-100.toml", "env")] {
        let text = node.desk.read(&format!("desired/{file}"));
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(&format!("# {key} is left out: it may hold a secret")), "{text}");
    }
    node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
}

#[test]
fn a_file_that_is_there_already_is_left_alone_unless_forced() {
    let node = Node::with_guests(4);
    node.desk.write("desired/qemu-103.toml", "# mine\n");
    let refused = node.run("import", &["--out", "desired"]).ends_with(1);
    insta::assert_snapshot!("import-over-a-file-that-is-there", refused.story());
    assert_eq!(node.desk.read("desired/qemu-103.toml"), "# mine\n");
    assert_eq!(node.desk.names("desired").len(), 1, "all files or none");
    node.run("import", &["--out", "desired", "--force"]).ends_with(0);
    assert!(node.desk.read("desired/qemu-103.toml").starts_with("[guest.103]"));
    assert_eq!(node.desk.names("desired").len(), 4);
}

#[test]
fn a_guest_that_does_not_exist_is_not_found() {
    let node = Node::with_guests(4);
    let missing = node.run("import", &["100", "9999", "--out", "desired"]).ends_with(5);
    insta::assert_snapshot!("import-of-a-guest-that-is-not-there", missing.story());
    assert!(!node.desk.work.path().join("desired").exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let node = Node::with_guests(1);
    node.desk.write("file", "");
    let refused = node.run("import", &["--out", "file/desired"]).ends_with(1);
    insta::assert_snapshot!("import-into-a-file", refused.story());
}

#[test]
fn a_token_that_sees_nothing_imports_nothing_and_says_why() {
    let node = Node::with_guests(4);
    let blind = node.run_as(3, "import", &["--out", "desired", "--node", "pve1"]);
    insta::assert_snapshot!("import-with-a-token-without-rights", blind.ends_with(4).story());
}

/// Every kind of guest the simulator has, on every release it pretends.
#[test]
fn a_plan_right_after_import_is_empty_in_every_format() {
    for release in [Release::V7_4, Release::V8_4, Release::V9_2] {
        let node = Node::start(&Scenario { release, guests: 40, ..Scenario::default() });
        for format in ["toml", "yaml", "json"] {
            node.run("import", &["--out", format, "--format", format]).ends_with(0);
            let names = node.desk.names(format);
            assert!(names.iter().all(|name| name.ends_with(format)), "{names:?}");
            assert_eq!(names.len(), 40);
            node.run("plan", &["--desired", format, "--detailed-exitcode"]).ends_with(0);
        }
    }
}

#[test]
fn a_guest_that_another_file_declares_is_skipped_and_the_set_stays_valid() {
    let node = Node::with_guests(6);
    node.desk
        .write("desired/pair.yaml", "guest:\n  100: {kind: lxc}\n  102: {kind: lxc, cores: 1}\n");
    node.desk.write("desired/db.json", "{\"guest\": {\"101\": {\"kind\": \"qemu\"}}}\n");
    let first = node.run("import", &["--out", "desired"]).ends_with(0);
    insta::assert_snapshot!("import-beside-other-files", first.story());
    assert_eq!(node.desk.names("desired").len(), 5, "{:?}", node.desk.names("desired"));
    node.desk.run("validate", &["desired"]).ends_with(0);
    // What it wrote itself is declared too: doing it again writes nothing.
    node.run("import", &["--out", "desired"]).ends_with(0);
    let forced = node.run("import", &["--out", "desired", "--force"]).ends_with(0);
    assert!(forced.stderr.contains("skipped lxc/100: desired/pair.yaml"), "{}", forced.stderr);
    assert!(!forced.stderr.contains("skipped qemu/101"), "{}", forced.stderr);
    assert!(node.desk.read("desired/db.json").contains("\"name\""), "replaced where it stands");
    node.desk.run("validate", &["desired"]).ends_with(0);
    node.run("import", &["--out", "desired", "--format", "xml"]).ends_with(64);
}
