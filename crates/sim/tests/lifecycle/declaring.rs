//! A scenario file: what guests are made of can be declared.

use evenkeel_sim::{ScenarioError, ScenarioFile};
use serde_json::json;

use crate::node::{Node, RELEASES};

fn apply(node: &mut Node, file: &serde_json::Value) -> Result<(), ScenarioError> {
    let file: ScenarioFile = serde_json::from_value(file.clone()).expect("a scenario");
    file.apply(&mut node.0)
}

#[test]
fn templates_images_guests_and_backups_are_declared_and_used() {
    let mut node = Node::new(RELEASES[0]);
    apply(
        &mut node,
        &json!({
            "storages": {"nas": {"content": "backup", "size": "100G", "keep_last": 3}},
            "files": [
                {"volid": "local:vztmpl/alpine-3.20_amd64.tar.gz", "size": "3M"},
                {"volid": "local:import/tiny.raw", "size": "64M"},
                {"volid": "local:iso/tiny.iso", "size": "8M"},
            ],
            "guests": [
                {"guest": "lxc/600", "running": true, "config": {"arch": "amd64", "hostname": "old", "rootfs": "store:600/vm-600-disk-0.raw,size=1G"}},
            ],
            "backups": [
                {"storage": "nas", "guest": "lxc/600", "compress": "zst", "notes": "nightly", "protected": true},
                {"storage": "nas", "guest": "qemu/700", "config": {"name": "gone", "scsi0": "store:700/vm-700-disk-0.raw,size=1G"}},
            ],
            "timings": {"create_ms": 5},
        }),
    )
    .expect("it fits");
    let list = node.get("/storage/nas/content?content=backup");
    assert_eq!((&list[0]["notes"], &list[0]["protected"]), (&json!("nightly"), &json!(1)));
    assert_eq!(list[1]["subtype"], "qemu");
    let archive = list[1]["volid"].as_str().unwrap().to_owned();
    node.done("POST", "/qemu", &[("vmid", "700"), ("archive", &archive)]);
    assert_eq!(node.get("/qemu/700/config")["name"], "gone");
    node.container("601", &[("ostemplate", "local:vztmpl/alpine-3.20_amd64.tar.gz")]);
    node.machine("701", &[("scsi0", "store:0,import-from=local:import/tiny.raw")]);
    assert_eq!(node.get("/qemu/701/config")["scsi0"], "store:701/vm-701-disk-0.raw,size=64M");
    assert_eq!(node.get("/lxc/600/status/current")["status"], "running");
}

#[test]
fn a_scenario_with_a_mistake_changes_nothing_and_says_which() {
    let mut node = Node::new(RELEASES[0]);
    for (file, message) in [
        (
            json!({"bridges": ["vmbr5"], "files": [{"volid": "nope:iso/x.iso", "size": "1M"}]}),
            "the scenario names the storage `nope`, which the node does not have",
        ),
        (
            json!({"bridges": ["vmbr5"], "files": [{"volid": "local:iso/x.iso", "size": "1 MB"}]}),
            "`1 MB` is no size; write 126M or 2G",
        ),
        (
            json!({"bridges": ["vmbr5"], "backups": [{"storage": "store", "guest": "lxc/600"}]}),
            "the backup of lxc/600 has no `config`, and the node has no such guest to take it from",
        ),
    ] {
        let error = apply(&mut node, &file).expect_err("it does not fit");
        assert_eq!(error.to_string(), message);
        assert!(!node.0.world.bridges.contains("vmbr5"));
    }
}
