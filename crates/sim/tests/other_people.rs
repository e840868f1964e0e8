//! What other people do, what a token may see of it, and what the node's clock has to do with it.

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::release::Release;
use evenkeel_sim::{
    Event, Reply, Scenario, SimOutcome, SimRequest, Simulator, SnapshotSection, TOKENS,
};
use serde_json::{Value, json};

/// A token of a user who may do everything on guests and storages, and nothing on nodes.
const AGENT: &str = "keel@pve!agent=secret";

struct Node(Simulator);

impl Node {
    fn new(guests: u32) -> Self {
        let mut world = Scenario { guests, ..Scenario::default() }.build();
        for guest in world.guests.values_mut() {
            guest.power = evenkeel_sim::SimPower::Stopped;
        }
        world.access.add_user("keel@pve", "x");
        world.access.add_token("keel@pve!agent", "secret", false);
        world.access.grant("/vms", "keel@pve", "PVEVMAdmin");
        world.access.grant("/storage", "keel@pve", "PVEDatastoreAdmin");
        Self(Simulator::new(world))
    }

    fn ask(&mut self, token: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let request = SimRequest::new(method, &format!("/api2/json{path}")).token(token);
        let request = if fields.is_empty() { request } else { request.form(fields) };
        match self.0.call(request) {
            SimOutcome::Reply(reply) => reply,
            other @ (SimOutcome::Dropped | SimOutcome::Wait { .. }) => {
                panic!("no answer: {other:?}")
            }
        }
    }

    fn get(&mut self, token: &str, path: &str) -> Value {
        let reply = self.ask(token, "GET", path, &[]);
        assert_eq!(reply.status, 200, "{path}: {}", reply.reason);
        reply.json().map(|body| body["data"].clone()).unwrap_or_default()
    }

    /// Type and number of every task in the node's list, newest first.
    fn tasks(&mut self, token: &str) -> Vec<String> {
        let list = self.get(token, "/nodes/pve1/tasks?source=all");
        let rows = list.as_array().cloned().unwrap_or_default();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        rows.iter().map(|row| format!("{} {}", text(row, "type"), text(row, "id"))).collect()
    }

    fn happen(&mut self, event: Event) {
        self.0.happen(event);
        self.0.run_tasks();
    }

    fn birth(&self, guest: &str) -> Option<u64> {
        self.0.world.birth(id(guest).vmid)
    }
}

fn root() -> String {
    let (name, secret, _) = TOKENS[0];
    format!("{name}={secret}")
}

fn id(text: &str) -> GuestId {
    text.parse().expect("a guest")
}

#[test]
fn a_token_without_sys_audit_is_shown_its_own_tasks_and_no_others() {
    let mut node = Node::new(3);
    let start = node.ask(AGENT, "POST", "/nodes/pve1/lxc/100/status/start", &[]);
    assert_eq!(start.status, 200);
    node.0.run_tasks();
    node.happen(Event::Recreate { guest: id("lxc/102") });
    assert_eq!(node.tasks(AGENT), ["vzstart 100"]);
    assert_eq!(node.tasks(&root()), ["vzcreate 102", "vzdestroy 102", "vzstart 100"]);
    let list = node.get(&root(), "/nodes/pve1/tasks");
    let theirs = list[0]["upid"].as_str().expect("a task").to_owned();
    for what in ["status", "log"] {
        let path = format!("/nodes/pve1/tasks/{theirs}/{what}");
        assert_eq!(node.ask(AGENT, "GET", &path, &[]).status, 403, "{what}");
    }
    assert_eq!(node.ask(AGENT, "GET", "/cluster/status", &[]).status, 403);
    let held = node.get(AGENT, "/access/permissions?path=/nodes/pve1");
    assert_eq!(held, json!({"/nodes/pve1": {}}));
    node.0.world.access.grant("/nodes", "keel@pve", "PVEAuditor");
    assert_eq!(node.tasks(AGENT).len(), 3);
    let held = node.get(AGENT, "/access/permissions?path=/nodes/pve1");
    assert_eq!(held["/nodes/pve1"]["Sys.Audit"], json!(1));
}

#[test]
fn a_right_can_be_withheld_and_given_back_while_the_node_runs() {
    let mut node = Node::new(3);
    node.0.world.access.grant("/", "keel@pve", "PVEAdmin");
    node.0.world.access.revoke("/vms", "keel@pve");
    let withhold = |path: &str, privilege: &str| Event::Withhold {
        holder: "keel@pve".to_owned(),
        path: path.to_owned(),
        privilege: privilege.to_owned(),
    };
    let listed = |node: &mut Node| {
        let list = node.get(AGENT, "/cluster/resources?type=vm");
        list.as_array().map_or(0, Vec::len)
    };
    assert_eq!(listed(&mut node), 3);
    node.happen(withhold("/vms/101", "VM.Audit"));
    assert_eq!(listed(&mut node), 2);
    assert_eq!(node.ask(AGENT, "GET", "/nodes/pve1/qemu/101/pending", &[]).status, 403);
    assert_eq!(node.get(AGENT, "/nodes/pve1/qemu"), json!([]));
    let revoke = Event::Revoke { holder: "keel@pve".to_owned(), path: "/vms/101".to_owned() };
    node.happen(revoke);
    assert_eq!(listed(&mut node), 3);
}

#[test]
fn whoever_replaces_a_guest_leaves_a_task_and_another_birth_mark() {
    for (event, tasks) in [
        (Event::Restore { guest: id("lxc/100") }, vec!["vzrestore 100"]),
        (Event::Restore { guest: id("qemu/101") }, vec!["qmrestore 101"]),
        (Event::Recreate { guest: id("qemu/101") }, vec!["qmcreate 101", "qmdestroy 101"]),
        (
            Event::CloneOver { source: id("lxc/102"), target: id("lxc/100") },
            vec!["vzclone 102", "vzdestroy 100"],
        ),
    ] {
        let mut node = Node::new(4);
        let guest = if format!("{event:?}").contains("Qemu") { "qemu/101" } else { "lxc/100" };
        let before = (node.birth(guest), node.0.world.guest(id(guest)).cloned().unwrap());
        node.happen(event.clone());
        assert_eq!(node.tasks(&root()), tasks, "{event:?}");
        let after = node.0.world.guest(id(guest)).cloned().unwrap();
        assert_ne!(Some(after.birth), before.0, "{event:?}");
        if !matches!(event, Event::CloneOver { .. }) {
            assert_eq!(after.config.active, before.1.config.active, "{event:?}");
        }
    }
}

#[test]
fn a_restored_guest_has_new_volumes_under_the_old_names() {
    let mut node = Node::new(1);
    let births = |node: &Node| -> Vec<(String, u64)> {
        let storages = node.0.world.storages.iter();
        let volumes = storages.flat_map(|(_, storage)| storage.volumes.iter());
        volumes
            .filter(|(_, volume)| volume.vmid == Some(id("lxc/100").vmid))
            .map(|(name, volume)| (name.clone(), volume.birth))
            .collect()
    };
    let before = births(&node);
    node.happen(Event::Restore { guest: id("lxc/100") });
    let after = births(&node);
    assert!(!before.is_empty());
    for ((old, was), (new, is)) in before.iter().zip(&after) {
        assert_eq!(old, new);
        assert_ne!(was, is, "{old}");
    }
}

#[test]
fn a_guest_that_rolls_back_moves_or_becomes_a_template_stays_who_it_is() {
    let mut node = Node::new(3);
    let birth = node.birth("qemu/101");
    let config = &mut node.0.world.guest_mut(id("qemu/101")).unwrap().config;
    let section = config.active.clone();
    config.snapshots.push(SnapshotSection { name: "before".to_owned(), section });
    node.happen(Event::Rollback { guest: id("qemu/101") });
    node.happen(Event::MigrateAway { guest: id("qemu/101") });
    assert_eq!(node.ask(&root(), "GET", "/nodes/pve1/qemu/101/pending", &[]).status, 500);
    assert_eq!(node.ask(&root(), "GET", "/cluster/nextid?vmid=101", &[]).status, 400);
    assert_eq!(node.birth("qemu/101"), birth);
    node.happen(Event::MigrateBack { guest: id("qemu/101"), another: false });
    node.ask(&root(), "DELETE", "/nodes/pve1/qemu/101/snapshot/before", &[]);
    node.0.run_tasks();
    node.happen(Event::Template { guest: id("qemu/101") });
    assert_eq!(node.birth("qemu/101"), birth);
    let tasks = ["qmtemplate 101", "qmdelsnapshot 101", "qmigrate 101", "qmrollback 101"];
    assert_eq!(node.tasks(&root()), tasks);
}

#[test]
fn a_clock_that_was_set_back_is_in_every_later_upid_and_changes_no_order() {
    let mut node = Node::new(3);
    let start = |node: &Node| node.0.unix_s();
    let before = start(&node);
    node.happen(Event::Recreate { guest: id("lxc/100") });
    node.happen(Event::Clock { step_s: -3_600 });
    assert!(start(&node) < before);
    node.happen(Event::Recreate { guest: id("lxc/102") });
    let list = node.get(&root(), "/nodes/pve1/tasks");
    let times: Vec<u64> =
        list.as_array().unwrap().iter().map(|row| row["starttime"].as_u64().unwrap()).collect();
    assert!(times[0] < before && times[2] >= before, "{times:?}");
    assert_eq!(
        node.tasks(&root()),
        ["vzcreate 102", "vzdestroy 102", "vzcreate 100", "vzdestroy 100"]
    );
}

#[test]
fn a_cluster_that_lost_its_quorum_says_so_and_runs_no_task() {
    let mut node = Node::new(3);
    let alone = node.get(&root(), "/cluster/status");
    assert_eq!(alone.as_array().map(Vec::len), Some(1));
    let birth = node.birth("lxc/100");
    node.happen(Event::Quorum { quorate: false });
    let status = node.get(&root(), "/cluster/status");
    assert_eq!((&status[0]["type"], &status[0]["quorate"]), (&json!("cluster"), &json!(0)));
    node.happen(Event::Recreate { guest: id("lxc/100") });
    assert_eq!(node.birth("lxc/100"), birth);
    node.happen(Event::Quorum { quorate: true });
    assert_eq!(node.get(&root(), "/cluster/status")[0]["quorate"], json!(1));
}

#[test]
fn a_volume_that_was_called_a_cd_rom_is_left_behind_when_its_slot_goes() {
    for release in [Release::V7_4, Release::V8_4, Release::V9_2] {
        let mut node = Node::new(0);
        node.0 = Simulator::new(Scenario { release, guests: 2, ..Scenario::default() }.build());
        node.happen(Event::Power { guest: id("qemu/101"), running: false });
        let config = |node: &Node| node.0.world.guest(id("qemu/101")).unwrap().config.clone();
        let drive = config(&node).active["scsi0"].clone();
        let volume = drive.split(',').next().unwrap().to_owned();
        let put = |node: &mut Node, key: &str, value: &str| {
            node.ask(&root(), "PUT", "/nodes/pve1/qemu/101/config", &[(key, value)]).status
        };
        assert_eq!(put(&mut node, "scsi0", &format!("{volume},media=cdrom")), 200);
        assert_eq!(put(&mut node, "delete", "scsi0"), 200);
        let keys: Vec<String> = config(&node).active.into_keys().collect();
        assert!(!keys.iter().any(|key| key == "scsi0" || key.starts_with("unused")), "{keys:?}");
        let (storage, name) = volume.split_once(':').unwrap();
        assert!(node.0.world.storages[storage].volumes.contains_key(name));
    }
}

#[test]
fn a_power_action_applies_what_waits_to_both_kinds_of_guest() {
    for (guest, act, key, value) in [
        ("qemu/101", "stop", "net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
        ("qemu/101", "stop", "smbios1", "uuid=11111111-1111-4111-8111-111111111111"),
        ("qemu/101", "shutdown", "vmgenid", "11111111-1111-4111-8111-111111111111"),
        ("lxc/100", "stop", "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,type=veth"),
        (
            "lxc/100",
            "shutdown",
            "net0",
            "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,type=veth",
        ),
    ] {
        let mut node = Node::new(2);
        node.happen(Event::Power { guest: id(guest), running: true });
        let record = node.0.world.guest_mut(id(guest)).unwrap();
        record.config.pending.insert(key.to_owned(), value.to_owned());
        let path = format!("/nodes/pve1/{guest}/status/{act}");
        assert_eq!(node.ask(&root(), "POST", &path, &[]).status, 200);
        node.0.run_tasks();
        let found = node.0.world.guest(id(guest)).unwrap();
        assert_eq!(found.config.active[key], value, "{act} {guest}");
        assert!(found.config.pending.is_empty(), "{act} {guest}");
    }
}
