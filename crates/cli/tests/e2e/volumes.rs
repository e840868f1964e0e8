//! Volumes as a person sees them: a move in plan and apply, what it leaves behind, and what is never forgotten.

use std::collections::BTreeMap;

use evenkeel_sim::Event;

use crate::support::Node;

const MOVED: &str =
    "[guest.102]\nkind = \"lxc\"\nrootfs = { storage = \"tank\", size = \"9GiB\" }\n";
const BACK: &str =
    "[guest.102]\nkind = \"lxc\"\nrootfs = { storage = \"local-lvm\", size = \"9GiB\" }\n";

#[test]
fn a_move_is_planned_done_and_what_it_leaves_is_shown_and_is_no_drift() {
    let node = Node::with_guests(4);
    node.desk.write("guests.toml", MOVED);
    let plan = node.run("plan", &["--desired", "guests.toml", "--detailed-exitcode"]).ends_with(2);
    insta::assert_snapshot!("a-move-in-a-plan", plan.story());
    let applied = node.run("apply", &["--desired", "guests.toml", "--state", "state", "-y"]);
    assert!(applied.ends_with(0).words().contains("2 actions done"));
    let rootfs = node.stored("lxc/102".parse().unwrap(), "rootfs").unwrap();
    assert!(rootfs.starts_with("tank:") && rootfs.contains("size=9G"), "{rootfs}");
    // What is left is told, and the exit code says that nothing is to be done.
    let told = ["--desired", "guests.toml", "--state", "state", "--detailed-exitcode"];
    let plan = node.run("plan", &told).ends_with(0);
    insta::assert_snapshot!("an-unused-volume-in-a-plan", plan.story());
    let json = node.run("plan", &[&told[..], &["-o", "json"]].concat()).ends_with(0).json();
    let unused = &json["unused_volumes"][0];
    assert_eq!(unused["guest"], "lxc/102", "{json}");
    assert_eq!((&unused["slot"], &unused["moved_from"]), (&"unused0".into(), &"rootfs".into()));
    // Back again only once the old volume is gone.
    node.desk.write("guests.toml", BACK);
    let plan = node.run("plan", &told).ends_with(0);
    let words = plan.words();
    assert!(words.contains("evenkeel request delete_volume lxc/102 slot=unused0"), "{words}");
    assert!(words.contains("1 storage"), "{words}");
}

#[test]
fn a_running_containers_move_is_held_with_its_sentence() {
    let node = Node::with_guests(2);
    node.desk.write(
        "guests.toml",
        "[guest.100]\nkind = \"lxc\"\nrootfs = { storage = \"tank\", size = \"32GiB\" }\n",
    );
    let plan = node.run("plan", &["--desired", "guests.toml", "--detailed-exitcode"]).ends_with(0);
    let words = plan.words();
    assert!(words.contains("a container's volumes move only while it is stopped"), "{words}");
}

#[test]
fn import_tells_of_volumes_that_no_slot_uses() {
    let node = Node::with_guests(2);
    let volume = "local-lvm:vm-100-disk-7";
    let set = BTreeMap::from([("unused3".to_owned(), Some(volume.to_owned()))]);
    node.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
    node.run("import", &["100", "--out", "desired"]).ends_with(0);
    let text = node.desk.read("desired/lxc-100.toml");
    assert!(text.contains(&format!("# unused3 keeps {volume}, which no slot uses")), "{text}");
    node.run("plan", &["--desired", "desired", "--detailed-exitcode"]).ends_with(0);
}

#[test]
fn whoever_types_the_action_is_told_to_declare_it() {
    let node = Node::with_guests(2);
    let refused = node.run("move_volume", &["100"]).ends_with(64);
    let told = refused.story();
    assert!(told.contains("declare the new storage of the disk"), "{told}");
}
