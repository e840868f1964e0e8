//! Creates: stubs, sizes, refusals by the answer and by the task.

use serde_json::json;

use crate::node::{Node, RELEASES, container};

#[test]
fn a_stub_is_there_when_the_answer_comes_and_shows_nothing_but_its_lock() {
    for release in RELEASES {
        for (kind, fields) in [
            ("lxc", container("300", &[])),
            ("qemu", vec![("vmid", "300"), ("scsi0", "store:0.1"), ("memory", "64")]),
        ] {
            let mut node = Node::new(release);
            assert_eq!(node.get("/cluster/nextid?vmid=300"), json!("300"));
            let upid = node.fork("POST", &format!("/{kind}"), &fields);
            let config = node.get(&format!("/{kind}/300/config"));
            assert_eq!(
                config,
                json!({"lock": "create", "digest": "a7e9f8c42935261b36fcd1d7d6cd8cd41648da49"})
            );
            let taken = node.ask("GET", "/cluster/nextid?vmid=300", &[]);
            assert_eq!(taken.json().unwrap()["errors"]["vmid"], "VM 300 already exists");
            let row = node.get("/cluster/resources?type=vm")[0].clone();
            assert_eq!((&row["status"], &row["name"]), (&json!("unknown"), &json!(null)));
            assert_eq!(row["template"], json!(null));
            let active = node.get("/tasks?source=active")[0].clone();
            assert_eq!(
                (&active["user"], &active["status"], &active["tokenid"]),
                (&json!("root@pam!full"), &json!("RUNNING"), &json!(null))
            );
            assert_eq!(node.get("/tasks"), json!([]), "the archive does not list what runs");
            assert_eq!(node.exit(&upid), "OK");
            let ended = node.get("/tasks")[0].clone();
            assert_eq!((&ended["user"], &ended["tokenid"]), (&json!("root@pam"), &json!("full")));
        }
    }
}

#[test]
fn sizes_read_back_as_each_kind_rounds_them() {
    let mut node = Node::new(RELEASES[0]);
    for (vmid, given, read) in [
        ("300", "store:0.1", "store:300/vm-300-disk-0.raw,size=102M"),
        ("301", "store:0.15", "store:301/vm-301-disk-0.raw,size=153M"),
        ("302", "store:1,size=2G", "store:302/vm-302-disk-0.raw,size=1G"),
        ("303", "volume=store:1", "store:303/vm-303-disk-0.raw,size=1G"),
        ("304", "store:0.1,ro=0,acl=1", "store:304/vm-304-disk-0.raw,acl=1,ro=0,size=102M"),
        ("305", "store:0", "store:305/subvol-305-disk-0.subvol,size=0T"),
        ("306", "btr:99999", "btr:306/vm-306-disk-0.raw,size=99999G"),
    ] {
        node.container(vmid, &[("rootfs", given)]);
        assert_eq!(node.get(&format!("/lxc/{vmid}/config"))["rootfs"], read, "{given}");
    }
    for (vmid, given, read) in [
        ("400", "store:0.1", "store:400/vm-400-disk-0.raw,size=104858K"),
        ("401", "store:0.2,format=qcow2", "store:401/vm-401-disk-0.qcow2,size=209716K"),
        ("402", "btr:0.1,size=1G", "btr:402/vm-402-disk-0.raw,size=104858K"),
    ] {
        node.machine(vmid, &[("scsi0", given)]);
        assert_eq!(node.get(&format!("/qemu/{vmid}/config"))["scsi0"], read, "{given}");
    }
    node.machine("403", &[("efidisk0", "store:4"), ("scsi0", "store:1"), ("tpmstate0", "store:9")]);
    let config = node.get("/qemu/403/config");
    assert_eq!(config["efidisk0"], "store:403/vm-403-disk-0.raw,size=528K");
    assert_eq!(config["scsi0"], "store:403/vm-403-disk-1.raw,size=1G");
    assert_eq!(config["tpmstate0"], "store:403/vm-403-disk-2.raw,size=4M");
    node.machine("404", &[]);
    assert_eq!(node.get("/qemu/404/config")["boot"], " ");
}

#[test]
fn what_the_task_finds_out_is_refused_by_the_task_and_leaves_nothing() {
    for release in RELEASES {
        let mut node = Node::new(release);
        let missing = [("ostemplate", "store:vztmpl/nope_1_amd64.tar.gz")];
        let large = [("rootfs", "store:99999")];
        let small = [("rootfs", "store:0.001")];
        for (fields, text) in [
            (
                container("300", &missing),
                "unable to create CT 300 - volume 'store:vztmpl/nope_1_amd64.tar.gz' does not exist",
            ),
            (
                container("300", &large),
                "unable to create CT 300 - unable to create image: qemu-img: /mnt/store/images/300/vm-300-disk-0.raw: The image size is too large for file format 'raw'",
            ),
            (
                container("300", &small),
                "unable to create CT 300 - command 'lxc-usernsexec -m u:0:100000:65536 -m g:0:100000:65536 -- tar xpf - -z --totals --one-file-system -p --sparse --numeric-owner --acls --xattrs '--xattrs-include=user.*' '--xattrs-include=security.capability' '--warning=no-file-ignored' '--warning=no-xattr-write' -C /var/lib/lxc/300/rootfs --skip-old-files --anchored --exclude './dev/*'' failed: exit code 2",
            ),
        ] {
            assert_eq!(node.failed("POST", "/lxc", &fields), text);
        }
        for (drive, text) in [
            (
                ("ide2", "store:iso/nope.iso,media=cdrom"),
                "unable to create VM 300 - volume 'store:iso/nope.iso' does not exist",
            ),
            (
                ("scsi0", "store:0,import-from=local:import/nope.qcow2"),
                "unable to create VM 300 - cannot import from 'local:import/nope.qcow2' - could not get size of local:import/nope.qcow2",
            ),
        ] {
            let fields = [("vmid", "300"), ("scsi1", "store:1"), drive];
            assert_eq!(node.failed("POST", "/qemu", &fields), text);
        }
        assert_eq!(node.volumes(300), Vec::<String>::new());
        assert_eq!(node.get("/cluster/nextid?vmid=300"), json!("300"));
    }
}

#[test]
fn what_the_answer_refuses_is_told_in_the_order_of_pve() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    for (fields, text) in [
        (container("300", &[]), "CT 300 already exists on node 'pve1'"),
        (container("400", &[]), "VM 400 already exists on node 'pve1'"),
        (container("301", &[("rootfs", "nope:1")]), "storage 'nope' does not exist"),
        (
            container("301", &[("ostemplate", "nope:vztmpl/x.tar.gz")]),
            "storage 'nope' does not exist",
        ),
        (container("301", &[("rootfs", "local:1")]), "Parameter verification failed."),
        (container("301", &[("rootfs", "store:1G")]), "unable to parse directory volume name '1G'"),
        (
            container("301", &[("rootfs", "1")]),
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 581.",
        ),
        (container("301", &[("ssh-public-keys", "not a key")]), "SSH public key validation error"),
        (
            container("301", &[("pool", "nopool")]),
            "Permission check failed (pool 'nopool' does not exist)",
        ),
        (container("301", &[("unique", "1")]), "Parameter verification failed."),
    ] {
        assert_eq!(node.refused("POST", "/lxc", &fields), text);
    }
    for (fields, text) in [
        (vec![("vmid", "400")], "unable to create VM 400 - VM 400 already exists on node 'pve1'"),
        (vec![("vmid", "300")], "unable to create VM 300 - CT 300 already exists on node 'pve1'"),
        (vec![("vmid", "401"), ("args", "-x")], "only root can set 'args' config"),
        (vec![("vmid", "401"), ("scsi0", "nope:1")], "storage 'nope' does not exist"),
        (
            vec![
                ("vmid", "401"),
                ("scsi0", "store:2,import-from=local:import/debian-12-genericcloud-amd64.qcow2"),
            ],
            "Parameter verification failed.",
        ),
        (
            vec![("vmid", "401"), ("scsi0", "store:0,import-from=/etc/hosts")],
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 581.",
        ),
    ] {
        assert_eq!(node.refused("POST", "/qemu", &fields), text);
    }
}

#[test]
fn an_imported_disk_has_the_size_of_its_image_and_says_where_it_came_from() {
    let mut node = Node::new(RELEASES[0]);
    let image = "local:import/debian-12-genericcloud-amd64.qcow2";
    let scsi0 = format!("local-lvm:0,import-from={image},discard=on");
    node.machine("300", &[("scsi0", &scsi0), ("ide2", "store:cloudinit")]);
    let config = node.get("/qemu/300/config");
    assert_eq!(config["scsi0"], "local-lvm:vm-300-disk-0,discard=on,size=3G");
    assert_eq!(config["ide2"], "store:300/vm-300-cloudinit.qcow2,media=cdrom");
    let volumes = &node.0.world.storages["local-lvm"].volumes;
    let origin = volumes["vm-300-disk-0"].origin.clone().expect("it was filled");
    assert_eq!((origin.volid.as_str(), origin.vmid), (image, None));
    // Another guest's disk is taken without a word, and remembered.
    node.machine("301", &[("scsi0", "store:0,import-from=local-lvm:vm-300-disk-0")]);
    let volumes = &node.0.world.storages["store"].volumes;
    let origin = volumes["301/vm-301-disk-0.raw"].origin.clone().expect("it was filled");
    assert_eq!(origin.guest_birth, node.0.world.birth(origin.vmid.expect("a guest's")));
}

#[test]
fn a_start_after_the_making_is_a_task_of_its_own_whose_failure_is_its_own() {
    for (release, words) in RELEASES
        .into_iter()
        .zip(["start failed: QEMU exited with code 1", "bridge 'vmbr77' does not exist"])
    {
        let mut node = Node::new(release);
        let fields = container("300", &[("start", "1"), ("net0", "name=eth0,bridge=vmbr77")]);
        node.done("POST", "/lxc", &fields);
        node.machine("400", &[("start", "1"), ("net0", "virtio,bridge=vmbr77")]);
        node.machine("401", &[("start", "1")]);
        let list = node.get("/tasks");
        let exits: Vec<(String, String)> = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| (row["type"].to_string(), row["status"].to_string()))
            .filter(|(kind, _)| kind.contains("start"))
            .collect();
        let quoted = |text: &str| format!("\"{text}\"");
        assert_eq!(
            exits,
            [
                (quoted("qmstart"), quoted("OK")),
                (quoted("qmstart"), quoted(words)),
                (quoted("vzstart"), quoted("bridge 'vmbr77' does not exist")),
            ]
        );
        assert_eq!(node.get("/qemu/401/status/current")["status"], "running");
    }
}

#[test]
fn what_is_sent_to_a_guest_being_made_waits_and_hits_the_finished_one() {
    let mut node = Node::new(RELEASES[0]);
    let create = node.fork("POST", "/lxc", &container("300", &[]));
    assert_eq!(node.refused("DELETE", "/lxc/300", &[]), "CT is locked (create)");
    assert_eq!(node.ask("PUT", "/lxc/300/config", &[("cores", "1")]).status, 200);
    assert_eq!(node.get("/lxc/300/config")["cores"], 1);
    assert_eq!(node.exit(&create), "OK");

    let create = node.fork("POST", "/qemu", &[("vmid", "400"), ("scsi0", "store:1")]);
    let destroy = node.fork("DELETE", "/qemu/400", &[]);
    // Sent after the DELETE, it waits longer, and finds no guest.
    assert_eq!(
        node.refused("PUT", "/qemu/400/config", &[("cores", "1")]),
        "Configuration file 'nodes/pve1/qemu-server/400.conf' does not exist"
    );
    assert_eq!((node.exit(&create), node.exit(&destroy)), ("OK".into(), "OK".into()));
    assert_eq!(node.volumes(400), Vec::<String>::new());
}

#[test]
fn a_number_is_free_before_its_destroy_has_ended_and_shows_its_former_guest_for_a_while() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[("hostname", "former")]);
    let later = node.0.now_ms() + 20_000;
    node.0.advance(later);
    let destroy = node.fork("DELETE", "/lxc/300", &[]);
    while node.ask("GET", "/cluster/nextid?vmid=300", &[]).status != 200 {
        let next = node.0.next_event_ms().expect("the task works");
        node.0.advance(next);
    }
    assert!(node.0.is_running(&destroy));
    node.machine("300", &[("name", "latter"), ("scsi0", "store:1")]);
    let row = node.get("/cluster/resources?type=vm")[0].clone();
    assert_eq!((&row["type"], &row["name"]), (&json!("qemu"), &json!("former")));
    let later = node.0.now_ms() + 10_000;
    node.0.advance(later);
    assert_eq!(node.get("/cluster/resources?type=vm")[0]["name"], "latter");
}
