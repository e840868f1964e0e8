//! Clones, moves, hand-overs and templates.

use serde_json::{Value, json};

use crate::node::{Node, RELEASES, id};

#[test]
fn a_clone_of_a_container_locks_both_and_copies_everything_but_its_volumes() {
    for release in RELEASES {
        let mut node = Node::new(release);
        let further = [
            ("hostname", "gold"),
            ("mp0", "store:0.1,mp=/data,backup=1"),
            ("net0", "name=eth0,bridge=vmbr0"),
            ("onboot", "1"),
            ("protection", "1"),
            ("description", "text"),
        ];
        node.container("300", &further);
        let source = node.get("/lxc/300/config");
        let upid = node.fork("POST", "/lxc/300/clone", &[("newid", "301"), ("full", "1")]);
        assert!(upid.contains(":vzclone:300:"), "{upid}");
        assert_eq!(node.get("/lxc/300/config")["lock"], "disk");
        let stub = node.get("/lxc/301/config");
        assert_eq!((&stub["lock"], &stub["rootfs"]), (&json!("create"), &Value::Null));
        for key in ["hostname", "onboot", "protection", "description"] {
            assert_eq!(stub[key], source[key], "{key}");
        }
        assert_ne!(stub["net0"], source["net0"]);
        let put = [("cores", "1")];
        assert_eq!(node.refused("PUT", "/lxc/300/config", &put), "CT is locked (disk)");
        assert_eq!(node.refused("PUT", "/lxc/301/config", &put), "CT is locked (create)");
        assert_eq!(
            node.refused("DELETE", "/lxc/301", &[]),
            "can't remove CT 301 - protection mode enabled"
        );
        assert_eq!(node.exit(&upid), "OK");
        let copy = node.get("/lxc/301/config");
        assert_eq!(
            (&copy["lock"], &node.get("/lxc/300/config")["lock"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(node.volumes(301).len(), 2);
        assert!(copy["mp0"].as_str().unwrap().ends_with(",mp=/data,backup=1,size=102M"), "{copy}");
        let births = |vmid: &str| node.0.world.birth(id(&format!("lxc/{vmid}")).vmid);
        assert_ne!(births("300"), births("301"));
        let volumes = &node.0.world.storages["store"].volumes;
        for name in ["301/vm-301-disk-0.raw", "301/vm-301-disk-1.raw"] {
            let origin = volumes[name].origin.clone().expect("a copy");
            assert_eq!(origin.guest_birth, births("300"));
            assert!(
                volumes.iter().all(|(other, v)| other == name || v.birth != volumes[name].birth)
            );
        }
    }
}

#[test]
fn a_clone_of_a_machine_locks_nobody_and_a_second_one_runs_beside() {
    let mut node = Node::new(RELEASES[0]);
    node.machine(
        "300",
        &[("name", "gold"), ("scsi0", "store:0.1"), ("ide2", "store:cloudinit"), ("onboot", "1")],
    );
    let first = node.fork("POST", "/qemu/300/clone", &[("newid", "301"), ("full", "1")]);
    assert!(first.contains(":qmclone:300:"), "{first}");
    assert_eq!(node.get("/qemu/300/config")["lock"], Value::Null);
    let stub = node.get("/qemu/301/config");
    assert_eq!(stub["description"], " qmclone temporary file");
    assert_eq!((&stub["lock"], &stub["name"]), (&json!("clone"), &Value::Null));
    let second = node.fork("POST", "/qemu/300/clone", &[("newid", "302"), ("full", "1")]);
    assert!(node.0.is_running(&first) && node.get("/qemu/302/config")["lock"] == "clone");
    // A write to the source waits for both.
    assert_eq!(node.ask("PUT", "/qemu/300/config", &[("cores", "2")]).status, 200);
    assert!(!node.0.is_running(&first) && !node.0.is_running(&second));
    let source = node.get("/qemu/300/config");
    let copy = node.get("/qemu/301/config");
    assert_eq!((&copy["name"], &copy["onboot"]), (&json!("Copy-of-VM-gold"), &json!(1)));
    assert_eq!(copy["meta"], source["meta"]);
    assert_ne!(copy["smbios1"], source["smbios1"]);
    assert_ne!(copy["vmgenid"], source["vmgenid"]);
    assert_eq!(copy["ide2"], "store:301/vm-301-cloudinit.qcow2,media=cdrom,size=4M");
}

#[test]
fn clones_are_refused_in_the_words_of_their_kind() {
    let running = [
        "Cannot do full clones on a running container without snapshots",
        "Full clone of a running container is only possible from a snapshot",
    ];
    for (release, running) in RELEASES.into_iter().zip(running) {
        let mut node = Node::new(release);
        node.container("300", &[]);
        node.machine("400", &[("scsi0", "store:0.1")]);
        let lxc = [
            (vec![("newid", "400")], "VM 400 already exists on node 'pve1'"),
            (
                vec![("newid", "301"), ("full", "0")],
                "Linked clone feature for 'store:300/vm-300-disk-0.raw' is not available",
            ),
            (vec![("newid", "301"), ("storage", "nope")], "storage 'nope' does not exist"),
            (vec![("newid", "301"), ("snapname", "nosnap")], "snapshot 'nosnap' does not exist"),
        ];
        for (fields, text) in lxc {
            assert_eq!(node.refused("POST", "/lxc/300/clone", &fields), text);
            assert_eq!(node.get("/lxc/300/config")["lock"], Value::Null);
        }
        assert_eq!(
            node.failed("POST", "/lxc/300/clone", &[("newid", "301"), ("storage", "local")]),
            "clone failed: content type 'rootdir' is not available or configured on storage 'local'"
        );
        assert_eq!(node.get("/cluster/nextid?vmid=301"), json!("301"));
        node.done("POST", "/lxc/300/status/start", &[]);
        assert_eq!(node.refused("POST", "/lxc/300/clone", &[("newid", "301")]), running);
        let qemu = [
            (
                vec![("newid", "401"), ("full", "0")],
                "Linked clone feature is not supported for 'store:400/vm-400-disk-0.raw' (scsi0)",
            ),
            (vec![("newid", "400")], "unable to create VM 400: config file already exists"),
        ];
        for (fields, text) in qemu {
            assert_eq!(node.refused("POST", "/qemu/400/clone", &fields), text);
        }
        // A container's number is found taken by the task only, and the container is unharmed.
        let before = node.get("/lxc/300/config");
        assert_eq!(
            node.failed("POST", "/qemu/400/clone", &[("newid", "300")]),
            "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/300.conf' failed: File exists"
        );
        assert_eq!(node.get("/lxc/300/config"), before);
    }
}

#[test]
fn a_template_has_base_volumes_and_links_where_its_storage_can() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[("rootfs", "btr:0.1")]);
    let answer = node.ask("POST", "/lxc/300/template", &[]);
    assert_eq!(answer.json().unwrap()["data"], Value::Null, "it forks a task and tells nobody");
    node.0.run_tasks();
    assert_eq!(node.get("/lxc/300/config")["rootfs"], "btr:300/base-300-disk-0.raw,size=102M");
    node.done("POST", "/lxc/300/clone", &[("newid", "301")]);
    assert_eq!(node.get("/lxc/301/config")["rootfs"], "btr:301/vm-301-disk-0.raw,size=102M");
    node.done("DELETE", "/lxc/300", &[]);

    node.container("302", &[]);
    node.ask("POST", "/lxc/302/template", &[]);
    node.0.run_tasks();
    assert_eq!(
        node.refused("POST", "/lxc/302/clone", &[("newid", "303")]),
        "Linked clone feature for 'store:302/base-302-disk-0.raw' is not available"
    );
    // The flag alone makes no guest of it again.
    assert_eq!(node.ask("PUT", "/lxc/302/config", &[("template", "0")]).status, 200);
    assert_eq!(
        node.failed("POST", "/lxc/302/status/start", &[]),
        "startup for container '302' failed"
    );
    node.0.world.unmake_template(id("lxc/302"));
    node.done("POST", "/lxc/302/status/start", &[]);
}

#[test]
fn a_moved_volume_leaves_the_old_one_as_unused_and_keeps_its_birth_mark() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    let birth = |node: &Node, storage: &str| {
        node.0.world.storages[storage].volumes["300/vm-300-disk-0.raw"].birth
    };
    let before = birth(&node, "store");
    let upid =
        node.fork("POST", "/lxc/300/move_volume", &[("volume", "rootfs"), ("storage", "btr")]);
    assert_eq!(node.get("/lxc/300/config")["lock"], "disk");
    assert_eq!(node.refused("PUT", "/lxc/300/config", &[("cores", "1")]), "CT is locked (disk)");
    assert_eq!(node.exit(&upid), "OK");
    let config = node.get("/lxc/300/config");
    assert_eq!(config["rootfs"], "btr:300/vm-300-disk-0.raw,size=102M");
    assert_eq!(config["unused0"], "store:300/vm-300-disk-0.raw");
    assert_eq!(birth(&node, "btr"), before);
    assert_eq!(
        node.failed("POST", "/lxc/300/move_volume", &[("volume", "rootfs"), ("storage", "nope")]),
        "storage 'nope' does not exist"
    );
    assert_eq!(node.get("/lxc/300/config")["lock"], Value::Null);
    node.machine("400", &[("scsi0", "store:0.1")]);
    for (fields, text) in [
        (
            [("disk", "scsi0"), ("storage", "store")],
            "you can't move to the same storage with same format",
        ),
        ([("disk", "scsi9"), ("storage", "btr")], "disk 'scsi9' does not exist"),
        ([("disk", "scsi0"), ("storage", "nope")], "storage 'nope' does not exist"),
    ] {
        assert_eq!(node.refused("POST", "/qemu/400/move_disk", &fields), text);
    }
    node.machine("401", &[("scsi0", "store:0.1")]);
    let upid = node.done(
        "POST",
        "/qemu/400/move_disk",
        &[("disk", "scsi0"), ("target-vmid", "401"), ("target-disk", "scsi1")],
    );
    assert!(upid.contains(":qmmove:400-scsi0>401-scsi1:"), "{upid}");
    assert_eq!(node.get("/qemu/401/config")["scsi1"], "store:401/vm-401-disk-1.raw,size=104858K");
}
