//! How guests are declared that shall be made, and what people are told of it before anything is made.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Desk, Node};

const TOML: &str = r#"[defaults.lxc]
first = { ssh_keys = ["ssh-ed25519 AAAAmarked ops"] }

[profile.cloud]
kind = "qemu"
source = { image = "local:import/debian-12.qcow2", into = "scsi0" }
scsi0 = { storage = "local-lvm", size = "20GiB" }
ide2 = { storage = "local-lvm", cloudinit = true }

[guest.120]
kind = "lxc"
source = { template = "local:vztmpl/debian-12.tar.zst" }
rootfs = { storage = "local-lvm", size = "8GiB" }
unprivileged = false
[guest.120.first]
ssh_keys = ["ssh-ed25519 AAAAmarked ops"]
password = { secret = "marked-root" }

[guest.220]
use = ["cloud"]

[guest.221]
kind = "qemu"
source = { clone = 9000, full = false }
scratch = true

[guest.222]
kind = "lxc"
source = { backup = "store:backup/vzdump-lxc-101.tar.zst", unique = false }

[guest.9000]
kind = "qemu"
source = {}
template = true
"#;

const YAML: &str = r#"defaults:
  lxc:
    first: { ssh_keys: ["ssh-ed25519 AAAAmarked ops"] }
profile:
  cloud:
    kind: qemu
    source: { image: "local:import/debian-12.qcow2", into: scsi0 }
    scsi0: { storage: local-lvm, size: 20GiB }
    ide2: { storage: local-lvm, cloudinit: true }
guest:
  120:
    kind: lxc
    source: { template: "local:vztmpl/debian-12.tar.zst" }
    rootfs: { storage: local-lvm, size: 8GiB }
    unprivileged: false
    first:
      ssh_keys: ["ssh-ed25519 AAAAmarked ops"]
      password: { secret: marked-root }
  220: { use: [cloud] }
  221: { kind: qemu, source: { clone: 9000, full: false }, scratch: true }
  222: { kind: lxc, source: { backup: "store:backup/vzdump-lxc-101.tar.zst", unique: false } }
  9000: { kind: qemu, source: { empty: true }, template: true }
"#;

const JSON: &str = r#"{
 "defaults": {
  "lxc": {
   "first": {
    "ssh_keys": [
     "ssh-ed25519 AAAAmarked ops"
    ]
   }
  }
 },
 "profile": {
  "cloud": {
   "kind": "qemu",
   "source": {
    "image": "local:import/debian-12.qcow2",
    "into": "scsi0"
   },
   "scsi0": {
    "storage": "local-lvm",
    "size": "20GiB"
   },
   "ide2": {
    "storage": "local-lvm",
    "cloudinit": true
   }
  }
 },
 "guest": {
  "120": {
   "kind": "lxc",
   "source": {
    "template": "local:vztmpl/debian-12.tar.zst"
   },
   "rootfs": {
    "storage": "local-lvm",
    "size": "8GiB"
   },
   "unprivileged": false,
   "first": {
    "ssh_keys": [
     "ssh-ed25519 AAAAmarked ops"
    ],
    "password": {
     "secret": "marked-root"
    }
   }
  },
  "220": {
   "use": [
    "cloud"
   ]
  },
  "221": {
   "kind": "qemu",
   "source": {
    "clone": 9000,
    "full": false
   },
   "scratch": true
  },
  "222": {
   "kind": "lxc",
   "source": {
    "backup": "store:backup/vzdump-lxc-101.tar.zst",
    "unique": false
   }
  },
  "9000": {
   "kind": "qemu",
   "source": {},
   "template": true
  }
 }
}
"#;

const GUESTS: [&str; 5] = ["120", "220", "221", "222", "9000"];

fn shown(desk: &Desk, guest: &str, more: &[&str]) -> String {
    let arguments = [&[guest, "--desired", "desired"][..], more].concat();
    desk.run("show", &arguments).ends_with(0).stdout
}

/// A file that only its owner can reach.
fn write_secret(desk: &Desk, name: &str, text: &str) {
    desk.write(name, text);
    let alone = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(desk.work.path().join(name), alone).unwrap();
}

#[test]
fn every_way_to_make_a_guest_is_said_in_every_syntax_and_what_is_given_once_is_shown_in_none() {
    let [toml, yaml, json] =
        [("a.toml", TOML), ("a.yaml", YAML), ("a.json", JSON)].map(|(name, text)| {
            let desk = Desk::new();
            desk.write(&format!("desired/{name}"), text);
            desk.run("validate", &["desired"]).ends_with(0);
            let told = GUESTS
                .map(|guest| shown(&desk, guest, &[]) + &shown(&desk, guest, &["-o", "json"]));
            assert!(!told.concat().contains("marked"), "{}", told.concat());
            GUESTS.map(|guest| shown(&desk, guest, &[])).concat()
        });
    assert_eq!(toml, yaml);
    assert_eq!(toml, json);
    insta::assert_snapshot!("guests-to-be-made", toml);
}

#[test]
fn doctor_names_the_rights_that_making_takes_and_whether_secrets_are_ready() {
    let node = Node::with_guests(2);
    node.desk.write("desired/a.toml", TOML);
    let config =
        format!("[secrets]\ndir = \"{}\"\n", node.desk.work.path().join("secrets").display());
    node.desk.write("agent.toml", &config);
    let arguments = ["-c", "agent.toml", "--desired", "desired", "--state", "state"];
    let auditor = [&arguments[..], &["--node", "pve1"]].concat();
    let told = node.run_as(1, "doctor", &auditor).ends_with(1);
    for words in [
        "lacks Datastore.AllocateSpace on /storage, for making guests, cloning guests, restoring backups",
        "VM.Allocate, VM.Backup, VM.Clone,",
        "SDN.Use on /sdn/zones, for cloning guests, restoring backups",
    ] {
        assert!(told.words().contains(words), "{words}\n{}", told.stdout);
    }
    assert!(
        told.words().contains("lxc/120 could not be given its password: cannot read"),
        "{}",
        told.stdout
    );
    assert!(told.words().contains("install -m 600 /dev/null"), "{}", told.stdout);

    write_secret(&node.desk, "secrets/marked-root", "vmids = \"120-129\"\nmarked horse\n");
    let told = node.run("doctor", &arguments).ends_with(0);
    assert!(told.words().contains("1 password for new guests ready"), "{}", told.stdout);
    assert!(!told.words().contains("marked horse"), "{}", told.stdout);
    write_secret(&node.desk, "secrets/marked-root", "vmids = \"121\"\nmarked horse\n");
    let told = node.run("doctor", &arguments).ends_with(0);
    assert!(told.words().contains("serves other guests than 120"), "{}", told.stdout);
}

#[test]
fn doctor_says_what_else_a_token_would_need_for_what_nobody_declared_yet() {
    let node = Node::with_guests(2);
    node.desk.write("desired/a.toml", "[guest.100]\nkind = \"lxc\"\nmode = \"observe\"\n");
    let arguments = ["--desired", "desired", "--state", "state", "--node", "pve1"];
    let told = node.run_as(1, "doctor", &arguments).ends_with(0);
    for words in [
        "for making guests it would need Datastore.AllocateSpace on /storage, VM.Allocate on /vms",
        "for backing guests up it would need Datastore.AllocateSpace on /storage, VM.Backup on /vms",
    ] {
        assert!(told.words().contains(words), "{words}\n{}", told.stdout);
    }
}
