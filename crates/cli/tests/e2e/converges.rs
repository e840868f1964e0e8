//! What import wrote is what the node has, whatever Proxmox VE made of the values.

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Scenario, TOKENS};

use crate::support::{Desk, Node, SimProcess};

const GUESTS: u32 = 500;

fn a_plan_after_import_is_empty(release: Release) {
    let node = Node::start(&Scenario { release, guests: GUESTS, ..Scenario::default() });
    let imported = node.run("import", &["--out", "desired"]).ends_with(0);
    assert_eq!(imported.stdout, "wrote 500 desired files to desired\n");
    assert_eq!(node.desk.names("desired").len(), GUESTS as usize);
    let planned = node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
    assert!(planned.stdout.contains("Plan: nothing to run"), "{}", planned.stdout);
    assert!(!planned.stdout.contains("problem"), "{}", planned.stdout);
    let changed: Vec<_> = node.requests().into_iter().filter(|request| request.mutating).collect();
    assert_eq!(changed, [], "import and plan only read");
}

#[test]
fn a_plan_right_after_import_is_empty_on_7_4() {
    a_plan_after_import_is_empty(Release::V7_4);
}

#[test]
fn a_plan_right_after_import_is_empty_on_8_4() {
    a_plan_after_import_is_empty(Release::V8_4);
}

#[test]
fn a_plan_right_after_import_is_empty_on_9_2() {
    a_plan_after_import_is_empty(Release::V9_2);
}

/// The same through the verb `sim` and what it announces, as a script would do it.
#[test]
fn the_simulator_as_a_child_process_announces_all_that_import_and_plan_need() {
    let desk = Desk::new();
    let simulator = SimProcess::start(&desk, &["--guests", "40", "--node", "alpha"]);
    let ready = &simulator.ready;
    let text = |key: &str| ready[key].as_str().unwrap_or_else(|| panic!("no {key}: {ready}"));
    assert_eq!(ready["format_version"], 1);
    assert_eq!(text("node"), "alpha");
    assert_eq!(text("token"), format!("{}={}", TOKENS[0].0, TOKENS[0].1));
    let run = |verb: &str, arguments: &[&str]| {
        let mut command = desk.command(verb);
        command.env("PROXMOX_VE_ENDPOINT", text("url"));
        command.env("PROXMOX_VE_API_TOKEN", text("token"));
        command.args(["--fingerprint", text("fingerprint")]).args(arguments);
        desk.finish(command)
    };
    run("import", &["--out", "desired"]).ends_with(0);
    run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
    run("doctor", &["--desired", "desired"]).ends_with(0);
    simulator.terminate();
}
