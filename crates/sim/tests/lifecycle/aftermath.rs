//! What is left when a worker is killed, stopped or fails in the middle.

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Effect, Event};
use serde_json::{Value, json};

use crate::node::{Node, RELEASES, container, id};

fn kill(node: &mut Node, upid: &str) -> String {
    node.0.happen(Event::KillTask { contains: upid.to_owned() });
    node.0.exit_of(upid).expect("it was killed").to_owned()
}

#[test]
fn a_killed_create_leaves_a_locked_stub_and_volumes_that_only_the_storage_knows() {
    for release in RELEASES {
        let mut node = Node::new(release);
        let further = [("mp0", "store:0.1,mp=/a"), ("mp1", "store:0.1,mp=/b")];
        let upid = node.fork("POST", "/lxc", &container("300", &further));
        assert_eq!(kill(&mut node, &upid), "unexpected status");
        assert_eq!(node.get("/lxc/300/config")["lock"], "create");
        for (method, path, fields) in [
            ("PUT", "/lxc/300/config", vec![("cores", "1")]),
            ("PUT", "/lxc/300/config", vec![("delete", "lock")]),
            ("DELETE", "/lxc/300", vec![]),
            ("DELETE", "/lxc/300?force=1", vec![]),
        ] {
            assert_eq!(node.refused(method, path, &fields), "CT is locked (create)");
        }
        assert_eq!(node.failed("POST", "/lxc/300/status/start", &[]), "CT is locked (create)");
        // An administrator unlocks it on the node; the stub goes, and its volumes stay.
        node.0.happen(Event::Lock { guest: id("lxc/300"), lock: None });
        node.done("DELETE", "/lxc/300", &[]);
        assert_eq!(node.get("/cluster/nextid?vmid=300"), json!("300"));
        let orphans = node.get("/storage/store/content?vmid=300&content=images");
        assert_eq!(orphans.as_array().map(Vec::len), Some(2), "{orphans}");
        assert_eq!(node.get("/storage/store/content?vmid=300&content=rootdir"), json!([]));
        node.container("300", &[]);
        assert_eq!(node.get("/lxc/300/config")["rootfs"], "store:300/vm-300-disk-2.raw,size=102M");
        node.done("DELETE", "/lxc/300?destroy-unreferenced-disks=1", &[]);
        assert_eq!(node.volumes(300), Vec::<String>::new());
    }
}

#[test]
fn a_killed_create_of_a_machine_is_destroyed_by_nobody_with_a_token() {
    let mut node = Node::new(RELEASES[0]);
    let upid = node.fork("POST", "/qemu", &[("vmid", "400")]);
    assert_eq!(kill(&mut node, &upid), "unable to read tail (got 0 bytes)", "it had said nothing");
    assert_eq!(node.failed("DELETE", "/qemu/400", &[]), "VM is locked (create)");
    assert_eq!(
        node.refused("PUT", "/qemu/400/config", &[("delete", "lock")]),
        "only root can set 'lock' config"
    );
}

#[test]
fn a_killed_clone_leaves_a_containers_source_locked_and_a_machines_alone() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[("mp0", "store:0.1,mp=/a"), ("protection", "1")]);
    let upid = node.fork("POST", "/lxc/300/clone", &[("newid", "301"), ("full", "1")]);
    assert_eq!(kill(&mut node, &upid), "unexpected status");
    assert_eq!(node.get("/lxc/300/config")["lock"], "disk");
    assert_eq!(node.failed("POST", "/lxc/300/status/start", &[]), "CT is locked (disk)");
    let stub = node.get("/lxc/301/config");
    assert_eq!((&stub["lock"], &stub["rootfs"]), (&json!("create"), &Value::Null));
    assert_eq!(node.volumes(301).len(), 1, "one volume, which no file names");
    assert_eq!(
        node.refused("DELETE", "/lxc/301", &[]),
        "can't remove CT 301 - protection mode enabled"
    );
    node.0.happen(Event::Lock { guest: id("lxc/301"), lock: None });
    // Refused, and written all the same.
    assert_eq!(
        node.refused("PUT", "/lxc/301/config", &[("protection", "0")]),
        "missing 'rootfs' configuration"
    );
    node.done("DELETE", "/lxc/301", &[]);

    node.machine("400", &[("scsi0", "store:0.1"), ("scsi1", "store:0.1"), ("cores", "2")]);
    let before = node.get("/qemu/400/config");
    let upid = node.fork("POST", "/qemu/400/clone", &[("newid", "401"), ("full", "1")]);
    kill(&mut node, &upid);
    assert_eq!(node.get("/qemu/400/config"), before);
    let half = node.get("/qemu/401/config");
    assert_eq!((&half["lock"], &half["cores"]), (&json!("clone"), &json!(2)));
    assert_eq!((&half["scsi0"], &half["scsi1"]), (&Value::Null, &Value::Null));
    assert_eq!(node.volumes(401), ["store:401/vm-401-disk-0.raw"]);
}

#[test]
fn a_killed_restore_leaves_a_stub_of_a_container_and_half_a_machine_without_a_lock() {
    let mut node = Node::new(RELEASES[1]);
    node.container("300", &[]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    for vmid in ["300", "400"] {
        node.done("POST", "/vzdump", &[("vmid", vmid), ("storage", "store")]);
    }
    let archive = |node: &mut Node, vmid| node.backup(vmid)["volid"].as_str().unwrap().to_owned();
    let container = archive(&mut node, 300);
    let machine = archive(&mut node, 400);
    let fields =
        [("vmid", "301"), ("ostemplate", &*container), ("restore", "1"), ("storage", "store")];
    let upid = node.fork("POST", "/lxc", &fields);
    kill(&mut node, &upid);
    assert_eq!(node.get("/lxc/301/config")["lock"], "create");
    assert_eq!(node.refused("DELETE", "/lxc/301", &[]), "CT is locked (create)");

    let upid = node.fork("POST", "/qemu", &[("vmid", "401"), ("archive", &*machine)]);
    let next = node.0.next_event_ms().expect("it works");
    node.0.advance(next);
    assert_eq!(kill(&mut node, &upid), "unexpected status");
    let config = node.get("/qemu/401/config");
    assert_eq!((&config["memory"], &config["lock"]), (&json!("128"), &Value::Null));
    assert_eq!(node.volumes(401).len(), 1);
    node.done("DELETE", "/qemu/401", &[]);
    assert_eq!(node.volumes(401).len(), 1, "an orphan now");
}

#[test]
fn a_machines_restore_is_struck_while_its_data_is_read() {
    for (effect, exit, volumes) in [
        (Effect::TaskKilled, "unexpected status", 1),
        (Effect::TaskFails { message: "it broke".to_owned() }, "it broke", 0),
    ] {
        let mut node = Node::new(RELEASES[0]);
        node.machine("400", &[("scsi0", "store:0.1")]);
        node.done("POST", "/vzdump", &[("vmid", "400"), ("storage", "store")]);
        let archive = node.backup(400)["volid"].as_str().unwrap().to_owned();
        node.0.inject(effect.on(":qmrestore:401:"));
        let fields = [("vmid", "401"), ("archive", &*archive)];
        assert_eq!(node.failed("POST", "/qemu", &fields), exit);
        let config = node.get("/qemu/401/config");
        assert_eq!((&config["memory"], &config["lock"]), (&json!("128"), &Value::Null));
        assert_eq!(node.volumes(401).len(), volumes);
    }
}

#[test]
fn a_killed_backup_leaves_its_lock_its_process_and_no_archive() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    for (vmid, guest) in [("300", "lxc/300"), ("400", "qemu/400")] {
        let upid = node.fork("POST", "/vzdump", &[("vmid", vmid), ("storage", "store")]);
        assert_eq!(kill(&mut node, &upid), "unexpected status");
        assert_eq!(node.get(&format!("/{guest}/config"))["lock"], "backup");
        let list = node.get(&format!("/storage/store/content?content=backup&vmid={vmid}"));
        assert_eq!(list, json!([]));
    }
    assert_eq!(node.get("/qemu/400/status/current")["qmpstatus"], "prelaunch");
    node.done("POST", "/qemu/400/status/start", &[]);
    assert_eq!(node.get("/qemu/400/status/current")["qmpstatus"], "running");
}

#[test]
fn a_killed_move_leaves_a_copy_that_no_file_names() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    let fields = [("volume", "rootfs"), ("storage", "btr")];
    let upid = node.fork("POST", "/lxc/300/move_volume", &fields);
    kill(&mut node, &upid);
    let config = node.get("/lxc/300/config");
    assert_eq!(
        (&config["lock"], &config["rootfs"]),
        (&json!("disk"), &json!("store:300/vm-300-disk-0.raw,size=102M"))
    );
    assert_eq!(node.volumes(300).len(), 2);
    let upid = node.fork("POST", "/qemu/400/move_disk", &[("disk", "scsi0"), ("storage", "btr")]);
    kill(&mut node, &upid);
    assert_eq!(node.get("/qemu/400/config")["lock"], Value::Null);
    assert_eq!(node.volumes(400).len(), 2);
}

#[test]
fn a_worker_that_fails_by_itself_takes_away_what_it_made() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    node.0.inject(Effect::TaskFails { message: "it broke".to_owned() }.on(":"));
    for (method, path, fields) in [
        ("POST", "/lxc", container("301", &[])),
        ("POST", "/lxc/300/clone", vec![("newid", "301")]),
        ("POST", "/qemu/400/clone", vec![("newid", "301"), ("full", "1")]),
        ("POST", "/lxc/300/move_volume", vec![("volume", "rootfs"), ("storage", "btr")]),
        ("POST", "/vzdump", vec![("vmid", "400"), ("storage", "store")]),
    ] {
        assert_eq!(node.failed(method, path, &fields), "it broke");
        assert_eq!(node.get("/cluster/nextid?vmid=301"), json!("301"), "{path}");
        assert_eq!(node.volumes(301), Vec::<String>::new(), "{path}");
        assert_eq!((node.volumes(300).len(), node.volumes(400).len()), (1, 1), "{path}");
        assert_eq!(node.get("/lxc/300/config")["lock"], Value::Null, "{path}");
        assert_eq!(node.get("/qemu/400/status/current")["status"], "stopped", "{path}");
    }
}

#[test]
fn a_task_that_is_stopped_may_go_on_clean_up_or_leave_everything() {
    for release in RELEASES {
        let old = release < Release::V9_0;
        let mut node = Node::new(release);
        let create = node.fork("POST", "/lxc", &container("300", &[]));
        assert_eq!(node.ask("DELETE", &format!("/tasks/{create}"), &[]).status, 200);
        let exit = node.exit(&create);
        assert_eq!(exit == "OK", old, "{exit}");
        if !old {
            assert_eq!(node.get("/cluster/nextid?vmid=300"), json!("300"));
            node.container("300", &[]);
        }
        let clone = node.fork("POST", "/lxc/300/clone", &[("newid", "301")]);
        node.ask("DELETE", &format!("/tasks/{clone}"), &[]);
        let lock = node.get("/lxc/300/config")["lock"].clone();
        assert_eq!(lock == "disk", old, "{lock}");
        let machine = node.fork("POST", "/qemu", &[("vmid", "400"), ("scsi0", "store:1")]);
        node.ask("DELETE", &format!("/tasks/{machine}"), &[]);
        assert_eq!(
            node.exit(&machine),
            "unable to create VM 400 - disk image '/mnt/store/images/400/vm-400-disk-0.raw' already exists"
        );
        assert_eq!(node.volumes(400), Vec::<String>::new());
    }
}

#[test]
fn other_people_make_copy_restore_and_destroy_under_any_number() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    for (event, task) in [
        (Event::Create { guest: id("qemu/500") }, "qmcreate 500"),
        (Event::RestoreAs { guest: id("lxc/501") }, "vzrestore 501"),
        (Event::CloneAs { source: id("lxc/300"), target: id("lxc/502") }, "vzclone 300"),
        (Event::Remove { guest: id("qemu/500") }, "qmdestroy 500"),
    ] {
        node.0.happen(event);
        node.0.run_tasks();
        let newest = node.get("/tasks")[0].clone();
        let shown =
            format!("{} {}", newest["type"].as_str().unwrap(), newest["id"].as_str().unwrap());
        assert_eq!((shown.as_str(), &newest["user"]), (task, &json!("root@pam")));
    }
    assert!(node.0.world.birth(id("lxc/501").vmid).is_some());
    assert!(node.0.world.birth(id("lxc/502").vmid).is_some());
    assert!(node.0.world.birth(id("qemu/500").vmid).is_none());
    node.done("POST", "/lxc/501/status/start", &[]);
}

#[test]
fn a_guest_can_lag_in_the_list_of_resources() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    let wait = |node: &mut Node, ms: u64| {
        let later = node.0.now_ms() + ms;
        node.0.advance(later);
    };
    wait(&mut node, 10_000);
    node.0.happen(Event::Lag { guest: id("lxc/300"), ms: 60_000 });
    node.done("POST", "/lxc/300/status/start", &[]);
    wait(&mut node, 30_000);
    let status = |node: &mut Node| node.get("/cluster/resources?type=vm")[0]["status"].clone();
    assert_eq!(status(&mut node), "stopped");
    wait(&mut node, 40_000);
    assert_eq!(status(&mut node), "running");
}
