//! What people leave lying about is read or named, never overlooked: directories below, endings in capitals, other files;
//! a state directory that `mkdir` made; an interval with its unit.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::Event;

use crate::agent::{Agent, configure, wait_for};
use crate::support::{Desk, Node};

#[test]
fn directories_below_are_read_and_other_files_are_named_once() {
    let desk = Desk::new();
    desk.write("desired/web.toml", "[guest.101]\nkind = \"lxc\"\n");
    desk.write("desired/team/DB.TOML", "[guest.102]\nkind = \"lxc\"\n");
    desk.write("desired/team/old.toml.bak", "x");
    let told = desk.run("validate", &["desired"]).ends_with(0);
    assert!(told.stdout.contains("2 guests in 2 files: valid"), "{}", told.stdout);
    assert!(
        told.stderr.contains("warning: desired/team/old.toml.bak is not read"),
        "{}",
        told.stderr
    );
    let json = desk.run("validate", &["desired", "-o", "json"]).ends_with(0);
    assert_eq!(json.stderr, "");
    let json = json.json();
    assert_eq!(json["warnings"][0]["file"], "desired/team/old.toml.bak", "{json}");
}

#[test]
fn a_state_directory_for_all_to_see_is_tightened_and_that_is_said() {
    let node = Node::with_guests(2);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let state = node.desk.work.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let apply = ["--desired", "desired", "--state", "state", "-y"];
    let told = node.run("apply", &apply).ends_with(0);
    assert!(told.stderr.contains("state had mode 0755 and has 0700 now"), "{}", told.stderr);
    assert_eq!(state.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    let told = node.run("apply", &apply).ends_with(0);
    assert!(!told.stderr.contains("0700"), "it is said once: {}", told.stderr);
}

#[test]
fn the_agent_reads_below_names_what_it_passes_over_and_takes_an_interval_with_its_unit() {
    let node = Node::with_guests(2);
    node.run("import", &["--out", "desired/team"]).ends_with(0);
    node.desk.write("desired/notes.txt", "x");
    let work = node.desk.work.path().display();
    configure(&node, &format!("interval = \"5s\"\ndesired.dir = \"{work}/desired\""));
    let agent = Agent::start(&node);
    let listed = || {
        let requests = node.requests();
        requests.iter().filter(|request| request.path.ends_with("/nodes/pve1/lxc")).count()
    };
    wait_for(|| format!("three passes: {}", agent.log()), || (listed() >= 3).then_some(()));
    let log = agent.log();
    assert_eq!(log.matches("desired/notes.txt is not read").count(), 1, "{log}");
    let guest: GuestId = "lxc/100".parse().unwrap();
    let declared = node.stored(guest, "cores");
    let set = BTreeMap::from([("cores".to_owned(), Some("7".to_owned()))]);
    node.happen(Event::Edit { guest, set });
    let healed = || (node.stored(guest, "cores") == declared).then_some(());
    wait_for(|| format!("drift is healed: {}", agent.log()), healed);
    agent.terminate();
}
