//! What somebody changed behind our back is listed, all of it and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::Event;
use serde_json::Value;

use crate::support::Node;

/// Guest, key and how its stored text is changed; `None` removes the key.
type Edit = (&'static str, &'static str, fn(&str) -> Option<String>);

const EDITS: [Edit; 17] = [
    ("lxc/100", "description", |_| Some("changed by hand\n".into())),
    ("lxc/100", "tags", |old| Some(format!("{old};more"))),
    ("lxc/102", "startup", |_| Some("order=9".into())),
    ("lxc/108", "nameserver", |_| None),
    ("lxc/108", "searchdomain", |_| Some("example.org".into())),
    ("lxc/110", "net0", |old| Some(old.replace("vmbr0", "vmbr9"))),
    ("lxc/110", "mp0", |old| Some(old.replace("backup=1", "backup=0"))),
    ("lxc/116", "cores", |_| None),
    ("lxc/118", "memory", |_| Some("333".into())),
    ("lxc/120", "hostname", |_| Some("other.example.com".into())),
    ("qemu/101", "tags", |_| None),
    ("qemu/103", "agent", |_| Some("0".into())),
    ("qemu/105", "balloon", |_| Some("256".into())),
    ("qemu/109", "kvm", |_| None),
    ("qemu/115", "net0", |old| Some(format!("{old},tag=5"))),
    ("qemu/119", "machine", |_| None),
    ("qemu/121", "scsi0", |old| Some(format!("{old},discard=on"))),
];

/// Guests that were switched on or off, and what a plan does about it.
const SWITCHED: [(&str, bool, &str); 3] =
    [("lxc/114", true, "shutdown"), ("lxc/106", false, "start"), ("qemu/111", true, "shutdown")];

#[test]
fn twenty_foreign_changes_are_listed_exactly() {
    let node = Node::with_guests(60);
    node.run("import", &["--out", "desired"]).ends_with(0);
    let plan = || node.run("plan", &["--desired", "desired", "--detailed-exitcode", "-o", "json"]);
    let before = plan().ends_with(0).json();
    assert_eq!(actions(&before), BTreeSet::new());

    let mut expected = BTreeSet::new();
    for (guest, key, change) in EDITS {
        let id: GuestId = guest.parse().unwrap();
        let old = node.stored(id, key).unwrap_or_else(|| panic!("{guest} has no {key}"));
        node.happen(Event::Edit { guest: id, set: BTreeMap::from([(key.into(), change(&old))]) });
        expected.insert(format!("{guest} {key}"));
    }
    for (guest, running, action) in SWITCHED {
        node.happen(Event::Power { guest: guest.parse().unwrap(), running });
        expected.insert(format!("{guest} {action}"));
    }
    assert_eq!(expected.len(), 20);

    let after = plan().ends_with(2).json();
    assert_eq!(actions(&after), expected);
    assert_eq!(waiting(&after), waiting(&before), "nobody touched what waits for a restart");
    let problems = |plan: &Value| -> usize {
        guests(plan).map(|guest| guest["problems"].as_array().unwrap().len()).sum()
    };
    assert_eq!(problems(&after), 0);
    let held = |action: &&Value| !action["held"].is_null();
    let all = guests(&after).flat_map(|guest| guest["actions"].as_array().unwrap());
    assert_eq!(all.filter(held).count(), 0, "all of it could run");
}

#[test]
fn n13_a_guest_nobody_declared_is_never_listed() {
    let node = Node::with_guests(10);
    node.run("import", &["100", "--out", "desired"]).ends_with(0);
    let edit = BTreeMap::from([("cores".to_owned(), Some("16".to_owned()))]);
    node.happen(Event::Edit { guest: "qemu/101".parse().unwrap(), set: edit });
    let plan = node.run("plan", &["--desired", "desired", "--detailed-exitcode", "-o", "json"]);
    assert_eq!(guests(&plan.ends_with(0).json()).count(), 0);
}

fn guests(plan: &Value) -> impl Iterator<Item = &Value> {
    plan["guests"].as_array().unwrap().iter()
}

/// `lxc/100 cores` for a changed key, `lxc/100 start` for another action.
fn actions(plan: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for guest in guests(plan) {
        for action in guest["actions"].as_array().unwrap() {
            let words: Vec<&Value> = match action["kind"].as_str().unwrap() {
                "set_config" => {
                    action["changes"].as_array().unwrap().iter().map(|c| &c["key"]).collect()
                }
                _ => vec![&action["kind"]],
            };
            for word in words {
                let new = found.insert(format!(
                    "{} {}",
                    guest["guest"].as_str().unwrap(),
                    word.as_str().unwrap()
                ));
                assert!(new, "{word} of {} is listed twice", guest["guest"]);
            }
        }
    }
    found
}

fn waiting(plan: &Value) -> BTreeSet<String> {
    let of = |guest: &Value| {
        let name = guest["guest"].as_str().unwrap().to_owned();
        let keys = guest["after_restart"].as_array().unwrap().clone();
        keys.into_iter().map(move |change| {
            format!("{name} {} {} {}", change["key"], change["before"], change["after"])
        })
    };
    guests(plan).flat_map(of).collect()
}
