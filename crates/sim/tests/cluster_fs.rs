//! What the cluster file system of the simulated node tells of configuration files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use evenkeel_sim::{Event, Scenario, SimOutcome, SimRequest, Simulator, TOKENS};
use serde_json::Value;

fn simulator() -> Simulator {
    Simulator::new(Scenario { guests: 4, ..Scenario::default() }.build())
}

fn list(sim: &mut Simulator) -> Value {
    serde_json::from_str(&sim.cluster_list()).unwrap()
}

fn started(sim: &mut Simulator) -> u64 {
    let told: Value = serde_json::from_str(&sim.cluster_version()).unwrap();
    told["starttime"].as_u64().unwrap()
}

/// The number of each guest.
fn versions(sim: &mut Simulator) -> BTreeMap<String, u64> {
    let list = list(sim);
    let ids = list["ids"].as_object().unwrap();
    ids.iter().map(|(id, entry)| (id.clone(), entry["version"].as_u64().unwrap())).collect()
}

fn ask(sim: &mut Simulator, method: &str, path: &str, form: &[(&str, &str)]) {
    let (name, secret, _) = TOKENS[0];
    let path = format!("/api2/json/nodes/pve1/{path}");
    let request = SimRequest::new(method, &path).form(form).token(&format!("{name}={secret}"));
    let SimOutcome::Reply(reply) = sim.call(request) else { panic!("{path} is not answered") };
    assert!(reply.status < 300, "{path}: {reply:?}");
    sim.run_tasks();
}

#[test]
fn every_write_of_a_file_draws_a_new_number_and_nothing_else_does() {
    let mut sim = simulator();
    let guest = "lxc/100".parse().unwrap();
    sim.happen(Event::Power { guest, running: false });
    for (what, method, path, form, writes) in [
        ("a write", "PUT", "lxc/100/config", &[("cores", "3")][..], true),
        ("a read", "GET", "lxc/100/pending", &[], false),
        ("a snapshot", "POST", "lxc/100/snapshot", &[("snapname", "one")], true),
        ("its end", "DELETE", "lxc/100/snapshot/one", &[], true),
        ("a start", "POST", "lxc/100/status/start", &[], false),
    ] {
        let before = versions(&mut sim);
        ask(&mut sim, method, path, form);
        let after = versions(&mut sim);
        let newest = *before.values().max().unwrap();
        assert_eq!(after["100"] > newest, writes, "{what}: {before:?}, {after:?}");
        for other in ["101", "102", "103"] {
            assert_eq!(before[other], after[other], "{what}");
        }
    }
}

#[test]
fn a_guest_that_comes_moves_or_goes_is_told() {
    let mut sim = simulator();
    let first = list(&mut sim);
    let guest = "lxc/102".parse().unwrap();
    sim.happen(Event::MigrateAway { guest });
    sim.run_tasks();
    let moved = list(&mut sim);
    assert_eq!(first["ids"]["102"]["node"], "pve1");
    assert_eq!(moved["ids"]["102"]["node"], "pve2");
    assert!(moved["version"].as_u64() > first["version"].as_u64());
    sim.happen(Event::Destroy { guest: "lxc/100".parse().unwrap() });
    assert!(list(&mut sim)["ids"].get("100").is_none());
    sim.happen(Event::Create { guest: "qemu/300".parse().unwrap() });
    sim.run_tasks();
    assert_eq!(list(&mut sim)["ids"]["300"]["type"], "qemu");
}

#[test]
fn a_process_that_starts_again_counts_anew_and_one_that_takes_files_over_goes_on_counting() {
    let mut sim = simulator();
    let first = (started(&mut sim), versions(&mut sim));
    let set = [("cores".to_owned(), Some("3".to_owned()))].into();
    sim.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    let newest = *versions(&mut sim).values().max().unwrap();
    sim.happen(Event::ResyncClusterFs);
    assert_eq!(started(&mut sim), first.0);
    assert!(versions(&mut sim).values().all(|version| *version > newest));
    sim.happen(Event::RestartClusterFs);
    assert!(started(&mut sim) > first.0);
    assert_eq!(versions(&mut sim), first.1, "the same numbers, of another process");
}
