//! Backups and restores.

use evenkeel_sim::{Effect, Event};
use serde_json::{Value, json};

use crate::node::{Node, RELEASES, id};

const NOTES: &str = "{{guestname}} {{vmid}} on {{node}} op-1\\nsecond line";

fn save(vmid: &str) -> [(&str, &str); 6] {
    [
        ("vmid", vmid),
        ("storage", "store"),
        ("remove", "0"),
        ("protected", "1"),
        ("compress", "zstd"),
        ("notes-template", NOTES),
    ]
}

fn saved_container(node: &mut Node) -> String {
    node.container(
        "300",
        &[
            ("hostname", "web"),
            ("mp0", "store:0.1,mp=/data,backup=1"),
            ("mp1", "store:0.1,mp=/nobak"),
            ("net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:03:00"),
            ("onboot", "1"),
        ],
    );
    node.done("POST", "/vzdump", &save("300"));
    node.backup(300)["volid"].as_str().expect("a name").to_owned()
}

fn saved_machine(node: &mut Node) -> String {
    node.machine(
        "400",
        &[
            ("name", "db"),
            ("scsi0", "store:0.1"),
            ("scsi1", "store:0.1,backup=0"),
            ("net0", "virtio=BC:24:11:00:04:00,bridge=vmbr0"),
            ("description", "kept"),
        ],
    );
    node.done("POST", "/vzdump", &save("400"));
    node.backup(400)["volid"].as_str().expect("a name").to_owned()
}

#[test]
fn an_archive_is_listed_when_it_is_whole_and_tells_what_it_holds() {
    for release in RELEASES {
        let mut node = Node::new(release);
        node.container("300", &[("hostname", "web"), ("mp0", "store:0.1,mp=/data")]);
        let began = node.0.unix_s();
        let upid = node.fork("POST", "/vzdump", &save("300"));
        assert_eq!(node.get("/storage/store/content?content=backup&vmid=300"), json!([]));
        assert_eq!(node.refused("DELETE", "/lxc/300", &[]), "CT is locked (backup)");
        assert_eq!(node.exit(&upid), "OK");
        let row = node.backup(300);
        assert_eq!(
            (&row["notes"], &row["protected"], &row["ctime"]),
            (&json!("web 300 on pve1 op-1"), &json!(1), &json!(began))
        );
        assert_eq!((&row["format"], &row["subtype"]), (&json!("tar.zst"), &json!("lxc")));
        let volid = row["volid"].as_str().unwrap();
        let text = node.get(&format!("/vzdump/extractconfig?volume={volid}"));
        let text = text.as_str().unwrap();
        assert!(text.contains("mp0: store:300/vm-300-disk-1.raw,mp=/data,size=102M\n"), "{text}");
        assert!(!text.contains("lock"), "{text}");
        let single = node.get(&format!("/storage/store/content/{volid}"));
        assert_eq!(single["format"], "raw");
        assert_ne!(single["size"], row["size"], "only the list tells the size");
        let name = volid.split_once(':').unwrap().1;
        assert_eq!(
            node.failed("DELETE", &format!("/storage/store/content/{volid}"), &[]),
            format!("cannot remove protected volume '{name}' on 'store'")
        );
    }
}

#[test]
fn a_stopped_machine_has_a_process_while_it_is_saved_and_a_start_keeps_it() {
    let mut node = Node::new(RELEASES[0]);
    node.machine("400", &[("scsi0", "store:0.1")]);
    for started in [false, true] {
        let upid = node.fork("POST", "/vzdump", &[("vmid", "400"), ("storage", "store")]);
        let status = node.get("/qemu/400/status/current");
        assert_eq!(
            (&status["status"], &status["qmpstatus"], &status["lock"]),
            (&json!("running"), &json!("prelaunch"), &json!("backup"))
        );
        assert_eq!(node.refused("DELETE", "/qemu/400", &[]), "VM 400 is running - destroy failed");
        if started {
            node.fork("POST", "/qemu/400/status/start", &[]);
        }
        assert_eq!(node.exit(&upid), "OK");
        let status = node.get("/qemu/400/status/current");
        let word = if started { "running" } else { "stopped" };
        assert_eq!((&status["status"], &status["qmpstatus"]), (&json!(word), &json!(word)));
    }
}

#[test]
fn every_refusal_of_a_backup_is_its_tasks_and_backups_wait_for_each_other() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    let on = |storage: &'static str, vmid: &'static str| [("vmid", vmid), ("storage", storage)];
    assert_eq!(
        node.failed("POST", "/vzdump", &on("nope", "300")),
        "could not activate storage 'nope': storage 'nope' does not exist could not get storage information for 'nope': storage 'nope' does not exist"
    );
    assert_eq!(
        node.failed("POST", "/vzdump", &on("btr", "300")),
        "could not get storage information for 'btr': can't use storage 'btr' for backups - wrong content type"
    );
    assert_eq!(node.failed("POST", "/vzdump", &on("store", "999")), "job errors");
    let reply = node.ask("POST", "/vzdump", &[("vmid", "300"), ("notes-template", "{{bogus}} x")]);
    assert_eq!(
        reply.json().unwrap()["errors"]["notes-template"],
        "found unknown: variable 'bogus' at char 4\n"
    );
    node.container("301", &[]);
    let first = node.fork("POST", "/vzdump", &on("store", "300"));
    let second = node.fork("POST", "/vzdump", &on("store", "301"));
    assert_eq!(node.get("/lxc/301/config")["lock"], Value::Null, "it waits for the first");
    assert_eq!((node.exit(&first), node.exit(&second)), ("OK".into(), "OK".into()));
}

#[test]
fn a_full_retention_fails_the_backup_that_may_remove_none() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    let retention = |keep_last, max_protected| Event::Retention {
        storage: "store".to_owned(),
        keep_last,
        max_protected,
    };
    node.0.happen(retention(Some(1), None));
    let fields = [("vmid", "300"), ("storage", "store"), ("remove", "0")];
    node.done("POST", "/vzdump", &fields);
    assert_eq!(node.failed("POST", "/vzdump", &fields), "job errors");
    node.done("POST", "/vzdump", &fields[..2]);
    let one = node.backup(300);
    assert_eq!(one["protected"], Value::Null);
    node.0.happen(retention(None, Some(0)));
    assert_eq!(node.failed("POST", "/vzdump", &save("300")), "job errors");
    let list = node.get("/storage/store/content?content=backup&vmid=300");
    assert_eq!(list.as_array().map(Vec::len), Some(2), "the archive stays, unprotected: {list}");
    let storage = node.get("/storage/store/status");
    assert_eq!(storage["active"], 1);
}

#[test]
fn a_container_comes_back_with_its_keys_and_new_volumes() {
    for release in RELEASES {
        let mut node = Node::new(release);
        let archive = saved_container(&mut node);
        let restore = |vmid: &'static str, further: &[(&'static str, &'static str)]| {
            let fields = [("vmid", vmid), ("ostemplate", archive.as_str()), ("restore", "1")];
            fields.iter().chain(further).copied().collect::<Vec<_>>()
        };
        let upid =
            node.fork("POST", "/lxc", &restore("301", &[("storage", "btr"), ("unique", "1")]));
        assert!(upid.contains(":vzrestore:301:"));
        assert_eq!(node.get("/lxc/301/config")["lock"], "create");
        assert_eq!(node.exit(&upid), "OK");
        let config = node.get("/lxc/301/config");
        assert_eq!(config["rootfs"], "btr:301/vm-301-disk-0.raw,size=102M");
        assert_eq!(config["mp1"], "btr:301/vm-301-disk-2.raw,mp=/nobak,size=102M");
        assert_eq!((&config["hostname"], &config["onboot"]), (&json!("web"), &json!(1)));
        assert!(!config["net0"].as_str().unwrap().contains("BC:24:11:00:03:00"));
        let birth = node.0.world.birth(id("lxc/301").vmid);
        let origin = node.0.world.storages["btr"].volumes["301/vm-301-disk-0.raw"].origin.clone();
        assert_ne!(birth, node.0.world.birth(id("lxc/300").vmid));
        assert_eq!(origin.unwrap().guest_birth, node.0.world.birth(id("lxc/300").vmid));

        // With `unique` a card of the request is ignored where the backup has one; without, it counts.
        let net = "name=eth0,bridge=vmbr9,hwaddr=BC:24:11:00:03:02";
        let further = [("storage", "store"), ("unique", "1"), ("net0", net), ("memory", "80")];
        node.done("POST", "/lxc", &restore("302", &further));
        let config = node.get("/lxc/302/config");
        assert!(config["net0"].as_str().unwrap().contains("bridge=vmbr0"), "{config}");
        assert_eq!(config["memory"], 80);
        node.done("POST", "/lxc", &restore("303", &[("storage", "store"), ("net0", net)]));
        let config = node.get("/lxc/303/config");
        assert_eq!(config["net0"], "name=eth0,bridge=vmbr9,hwaddr=BC:24:11:00:03:02,type=veth");

        // A root disk in the request drops every other mount.
        node.done("POST", "/lxc", &restore("304", &[("rootfs", "btr:0.2")]));
        let config = node.get("/lxc/304/config");
        assert_eq!((&config["mp0"], &config["mp1"]), (&Value::Null, &Value::Null));
        assert_eq!(config["rootfs"], "btr:304/vm-304-disk-0.raw,size=204M");
    }
}

#[test]
fn a_container_that_cannot_come_back_leaves_nothing() {
    let mut node = Node::new(RELEASES[0]);
    let archive = saved_container(&mut node);
    let machine = saved_machine(&mut node);
    let fields = |archive: &str| {
        [("vmid", "301"), ("ostemplate", archive), ("restore", "1"), ("storage", "store")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    };
    let missing = "store:backup/vzdump-lxc-300-2020_01_01-00_00_00.tar.zst";
    let failed = |node: &mut Node, archive: &str| {
        let fields = fields(archive);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(k, v)| (&**k, &**v)).collect();
        node.failed("POST", "/lxc", &fields)
    };
    assert_eq!(
        failed(&mut node, missing),
        format!("unable to restore CT 301 - volume '{missing}' does not exist")
    );
    assert_eq!(
        failed(&mut node, &machine),
        "unable to restore CT 301 - ERROR: archive contains no configuration file"
    );
    node.0.happen(Event::Truncate { volid: archive.clone() });
    assert!(failed(&mut node, &archive).ends_with("failed: exit code 2"));
    assert_eq!(node.volumes(301), Vec::<String>::new());
    assert_eq!(node.get("/cluster/nextid?vmid=301"), json!("301"));
}

#[test]
fn a_machine_comes_back_without_a_lock_and_half_made_when_it_fails() {
    for release in RELEASES {
        let mut node = Node::new(release);
        let archive = saved_machine(&mut node);
        let fields = [("vmid", "401"), ("archive", archive.as_str()), ("unique", "1")];
        let upid = node.fork("POST", "/qemu", &fields);
        assert!(upid.contains(":qmrestore:401:"));
        assert_eq!(node.get("/qemu/401/config")["lock"], "create", "for a moment");
        let next = node.0.next_event_ms().expect("it works");
        node.0.advance(next);
        let config = node.get("/qemu/401/config");
        assert_eq!((&config["memory"], &config["lock"]), (&json!("128"), &Value::Null));
        assert_eq!(node.exit(&upid), "OK");
        let old = node.get("/qemu/400/config");
        let new = node.get("/qemu/401/config");
        assert_eq!(new["scsi0"], "store:401/vm-401-disk-0.raw,size=104858K");
        assert_eq!(
            new["description"],
            "kept\nscsi1: store:400/vm-400-disk-1.raw,backup=0,size=104858K"
        );
        for key in ["smbios1", "vmgenid", "net0"] {
            assert_ne!(old[key], new[key], "{key}");
        }
        assert_eq!(old["meta"], new["meta"]);

        let nowhere = [("vmid", "402"), ("archive", archive.as_str()), ("storage", "nope")];
        let exit = node.failed("POST", "/qemu", &nowhere);
        assert!(exit.ends_with("failed: storage 'nope' does not exist"), "{exit}");
        assert_eq!(
            node.get("/qemu/402/config"),
            json!({"digest": "da39a3ee5e6b4b0d3255bfef95601890afd80709"})
        );
        node.done("DELETE", "/qemu/402", &[]);
        node.0.happen(Event::Truncate { volid: archive.clone() });
        node.failed("POST", "/qemu", &[("vmid", "402"), ("archive", archive.as_str())]);
        assert_eq!(node.get("/qemu/402/config")["memory"], "128");
        assert_eq!(node.volumes(402), Vec::<String>::new());
        assert_eq!(
            node.refused("POST", "/qemu", &[("vmid", "402"), ("archive", archive.as_str())]),
            "unable to restore VM 402 - VM 402 already exists on node 'pve1'"
        );
        let drive = [("vmid", "403"), ("archive", archive.as_str()), ("ide2", "none,media=cdrom")];
        let reply = node.ask("POST", "/qemu", &drive);
        assert_eq!(
            reply.json().unwrap()["errors"]["ide2"],
            "option conflicts with option 'archive'"
        );
    }
}

#[test]
fn a_backup_can_end_with_warnings_and_an_archive_can_vanish() {
    let mut node = Node::new(RELEASES[0]);
    node.container("300", &[]);
    node.0.inject(Effect::TaskWarns { warnings: 1 }.on(":vzdump:300:"));
    let upid = node.fork("POST", "/vzdump", &save("300"));
    assert_eq!(node.exit(&upid), "WARNINGS: 1");
    let volid = node.backup(300)["volid"].as_str().unwrap().to_owned();
    node.0.happen(Event::LoseVolume { volid });
    assert_eq!(node.get("/storage/store/content?content=backup&vmid=300"), json!([]));
}
