//! Defaults and profiles as people see them: each guest whole, and the line behind every value.

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_core::desired::load;
use evenkeel_core::words::diagnostic::Sources;
use evenkeel_sim::Event;

use crate::support::{Desk, Node};

const SHARED: &str = r#"[defaults.lxc]
onboot = true
nameserver = ["192.168.1.1"]

[profile.web]
kind = "lxc"
run = "running"
cores = 2
tags = ["web"]
net0 = { name = "eth0", bridge = "vmbr0", ip = "dhcp", firewall = true }

[profile.large]
kind = "lxc"
memory = "4GiB"
unset = ["searchdomain"]
"#;

const GUESTS: &str = r#"[guest.101]
use = ["web", "large"]
hostname = "shop"
description = """
first line
second line"""
unset = ["nameserver"]
ignore = ["net0.rate", "tags"]

[guest.102]
kind = "qemu"
mode = "observe"
name = "shop-db"
"#;

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("desired/shared.toml", SHARED);
    desk.write("desired/guests.toml", GUESTS);
    desk
}

#[test]
fn a_guest_is_shown_whole_with_where_each_key_comes_from() {
    let desk = desk();
    let shown = desk.run("show", &["101", "--desired", "desired", "--origin"]).ends_with(0);
    insta::assert_snapshot!("a-guest-with-its-origins", shown.story());
    assert!(shown.stdout.lines().all(|line| line.chars().count() <= 80), "{}", shown.stdout);
}

#[test]
fn what_is_shown_can_be_declared_and_is_the_same() {
    let desk = desk();
    let whole = files(&desk, &["desired/guests.toml", "desired/shared.toml"]);
    for (guest, flags) in [("101", &[][..]), ("lxc/101", &["--origin"]), ("shop-db", &["--origin"])]
    {
        let arguments = [&[guest, "--desired", "desired"], flags].concat();
        let shown = desk.run("show", &arguments).ends_with(0);
        desk.write("shown/guest.toml", &shown.stdout);
        desk.run("validate", &["shown"]).ends_with(0);
        let again = files(&desk, &["shown/guest.toml"]);
        for (vmid, declared) in &again.guests {
            assert_eq!(whole.guests.get(vmid), Some(declared), "{}", shown.stdout);
        }
        assert_eq!(again.guests.len(), 1);
    }
}

fn files(desk: &Desk, names: &[&str]) -> evenkeel_core::desired::Desired {
    let mut sources = Sources::default();
    for name in names {
        sources.add(*name, desk.read(name));
    }
    load(&sources).unwrap()
}

#[test]
fn a_program_is_told_the_same_as_json() {
    let shown = desk().run("show", &["shop", "--desired", "desired", "-o", "json"]).ends_with(0);
    let shown = shown.json();
    assert_eq!((&shown["format_version"], &shown["guest"]), (&1.into(), &"lxc/101".into()));
    assert_eq!(shown["declared"]["memory"], "4GiB", "{shown:#}");
    assert_eq!(shown["masked"], false);
    let memory = &shown["origins"]["memory"];
    assert_eq!(memory["layer"], "profile large", "{shown:#}");
    assert_eq!((&memory["file"], &memory["line"]), (&"desired/shared.toml".into(), &14.into()));
    assert_eq!(shown["origins"]["nameserver"]["layer"], "guest", "{shown:#}");
}

#[test]
fn a_guest_that_is_not_declared_is_not_found() {
    let desk = desk();
    let other = desk.run("show", &["qemu/101", "--desired", "desired"]).ends_with(5);
    assert!(other.stderr.contains("lxc/101"), "{}", other.stderr);
    let near = desk.run("show", &["shpo", "--desired", "desired"]).ends_with(5);
    assert!(near.stderr.contains("did you mean shop?"), "{}", near.stderr);
    let none = desk.run("show", &["999", "--desired", "desired"]).ends_with(5);
    assert!(none.stderr.contains("there are lxc/101 shop, qemu/102 shop-db"), "{}", none.stderr);
    desk.write("desired/guests.toml", "[guest.101]\nuse = [\"wbe\"]\n");
    let wrong = desk.run("show", &["101", "--desired", "desired"]).ends_with(3);
    assert!(wrong.stderr.contains("did you mean `web`?"), "{}", wrong.stderr);
}

#[test]
fn a_secret_is_masked_and_that_is_said() {
    let desk = Desk::new();
    desk.write("a.toml", "[guest.101]\nkind = \"lxc\"\nenv = [\"TOKEN=marked\"]\ncores = 2\n");
    for flags in [&["-o", "table"][..], &["-o", "json"], &["--origin"]] {
        let shown = desk.run("show", &[&["101", "--desired", "a.toml"], flags].concat());
        let shown = shown.ends_with(0);
        assert!(!shown.stdout.contains("marked,"), "{}", shown.stdout);
        assert!(!shown.stdout.contains("=marked"), "{}", shown.stdout);
        let told =
            shown.stdout.contains("masked: this block") || shown.stdout.contains("\"masked\":true");
        assert!(told && shown.stdout.contains("TOKEN=***"), "{}", shown.stdout);
    }
}

#[test]
fn a_plan_names_the_file_and_line_behind_each_change() {
    let node = Node::with_guests(4);
    node.desk.write("desired/shared.toml", SHARED);
    node.desk.write("desired/guests.toml", "[guest.100]\nuse = [\"web\"]\nhostname = \"shop\"\n");
    let set = [("cores", "8"), ("hostname", "shop"), ("tags", "x")];
    let set: BTreeMap<String, Option<String>> =
        set.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into();
    node.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    let plain = node.run("plan", &["--desired", "desired"]).ends_with(0);
    assert!(!plain.stdout.contains("declared at"), "{}", plain.stdout);
    let told = node.run("plan", &["--desired", "desired", "-v"]).ends_with(0);
    insta::assert_snapshot!("a-plan-with-places", told.story());
    let json = node.run("plan", &["--desired", "desired", "-v", "-o", "json"]).ends_with(0).json();
    let cores = &json["guests"][0]["declared_at"]["cores"];
    assert_eq!(
        (&cores["file"], &cores["line"]),
        (&"desired/shared.toml".into(), &8.into()),
        "{json:#}"
    );
}

#[test]
fn the_examples_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for example in ["homelab", "profiles"] {
        let path = examples.join(example);
        Desk::new().run("validate", &[path.to_str().unwrap()]).ends_with(0);
    }
}
