//! `evenkeel demo --fleet`: it checks itself while it tells, so a whole story is a test of hub, hosts and verbs together.

use std::time::{Duration, Instant};

use super::desk::Desk;

/// Four times what it takes on an idle machine: tests run on busy ones.
const TOLD_WITHIN: Duration = Duration::from_mins(10);

#[test]
fn the_fleet_demo_tells_its_story_and_leaves_nothing_behind() {
    let desk = Desk::new();
    fs_err::create_dir(desk.path("tmp")).unwrap();
    let begun = Instant::now();
    let mut command = desk.command("demo --fleet --headless");
    let output = command.env("TMPDIR", desk.path("tmp")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    assert!(output.status.success(), "{out}\n{err}");
    assert!(begun.elapsed() < TOLD_WITHIN, "it took {:?}", begun.elapsed());
    assert_eq!(err, "");
    let left: Vec<_> = fs_err::read_dir(desk.path("tmp")).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(!desk.path("home").exists(), "the home directory is not touched");
    let mut rest = out.as_str();
    for part in [
        "$ evenkeel hub enrol-token oslo | ssh oslo evenkeel enrol https://127.0.0.1:",
        "✓ three hosts dial out to the hub",
        "cores: 2 -> 4",
        "$ evenkeel fleet status berlin",
        "cores 2 -> 4",
        "✓ berlin was sent one change, the other two nothing",
        "$ evenkeel fleet pending",
        " --hub --key alice --yes --reason ",
        "DELETE /nodes/pve1/lxc/190",
        "✓ lxc/190 of oslo is gone, destroyed once",
        "unknown_signer",
        "✓ refused whole, by the host",
        "$ kill -9 ",
        "paris    lxc/101 web: cores 1 -> 2",
        "✓ each host went on alone",
        "✓ guests destroyed in the whole fleet: 1",
    ] {
        let found = rest.split_once(part);
        let (_, after) = found.unwrap_or_else(|| panic!("no `{part}` from here on:\n{rest}"));
        rest = after;
    }
}
