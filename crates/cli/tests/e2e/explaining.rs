//! `explain` tells what the registry knows of a key, without a server.

use crate::support::Desk;

#[test]
fn a_key_is_explained_for_both_kinds_where_they_differ() {
    let desk = Desk::new();
    insta::assert_snapshot!("cores", desk.run("explain", &["cores"]).ends_with(0).story());
    insta::assert_snapshot!("tags", desk.run("explain", &["tags"]).ends_with(0).story());
}

#[test]
fn a_part_a_slot_and_a_word_are_explained() {
    let desk = Desk::new();
    let part = desk.run("explain", &["net0.rate"]).ends_with(0);
    insta::assert_snapshot!("net0-rate", part.story());
    let slot = desk.run("explain", &["lxc/mp1"]).ends_with(0);
    insta::assert_snapshot!("lxc-mp1", slot.story());
    insta::assert_snapshot!("state", desk.run("explain", &["state"]).ends_with(0).story());
}

#[test]
fn every_explanation_fits_a_terminal_and_is_json_too() {
    let desk = Desk::new();
    let all = desk.run("explain", &["-o", "json"]).ends_with(0).json();
    let keys = all["keys"].as_array().unwrap();
    assert!(keys.len() > 100, "{}", keys.len());
    for key in
        ["cores", "net", "scsi", "memory", "cpu", "rootfs", "boot", "run", "source", "hostpci"]
    {
        let text = desk.run("explain", &[key]).ends_with(0).stdout;
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{text}");
        let json = desk.run("explain", &[key, "-o", "json"]).ends_with(0).json();
        assert!(json["format_version"] == 1 && json["keys"][0]["example"].is_string(), "{json}");
    }
}

#[test]
fn a_key_that_is_none_is_not_found_and_what_was_meant_is_offered() {
    let desk = Desk::new();
    for (asked, offered) in [
        ("coers", "did you mean `cores`?"),
        ("net0.vlan", "write `tag`"),
        ("qemu/hostname", "write `name`"),
    ] {
        let told = desk.run("explain", &[asked]).ends_with(5);
        assert!(told.stderr.contains(offered) && told.stdout.is_empty(), "{}", told.stderr);
    }
}
