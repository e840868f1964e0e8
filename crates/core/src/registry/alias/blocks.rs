//! Other people's words for the blocks of a desired file, for what a guest is made from and for what it gets once.

use super::{folded, key};
use crate::model::id::GuestKind;

/// What to write instead of a block or key at the top of a desired file.
pub(crate) fn block(written: &str) -> Option<&'static str> {
    Some(match folded(written).as_str() {
        "guests" => "write [guest.101], a block for each guest",
        "vm" | "vms" | "machine" | "machines" | "qemu" | "kvm" | "virtualmachine"
        | "virtualmachines" => "write [guest.101] with kind = \"qemu\", and a block for each guest",
        "lxc" | "ct" | "cts" | "container" | "containers" => {
            "write [guest.101] with kind = \"lxc\", and a block for each guest"
        }
        "resource" | "provider" | "variable" | "module" | "data" => {
            "this is Terraform's; here a guest is a block [guest.101] with its keys, and `evenkeel import` writes one"
        }
        "hosts" | "tasks" | "vars" => {
            "this is Ansible's; here a guest is a block [guest.101] with its keys, and `evenkeel import` writes one"
        }
        "pve" | "desired" | "trust" | "policy" | "metrics" | "interval" | "hostid" => {
            "this belongs into agent.toml"
        }
        "version" | "apiversion" | "format" => "leave it out",
        _ => {
            let of_a_guest = GuestKind::ALL.into_iter().any(|kind| {
                crate::registry::find(kind, written).is_some() || key(kind, written).is_some()
            });
            let word = matches!(
                written,
                "first"
                    | "kind"
                    | "run"
                    | "scratch"
                    | "source"
                    | "state"
                    | "stop"
                    | "template"
                    | "unset"
            );
            return (of_a_guest || word)
                .then_some("a guest's keys stand below its heading: [guest.101]");
        }
    })
}

/// What to write instead of a way to make a guest.
pub(crate) fn source(written: &str) -> Option<&'static str> {
    Some(match folded(written).as_str() {
        "ostemplate" | "vztmpl" | "templatefileid" => "write template = \"local:vztmpl/…\"",
        "importfrom" | "import" | "diskimage" | "cloudimage" | "qcow2" | "fileid" => {
            "write image = \"local:import/…\" and into = \"scsi0\""
        }
        "url" => {
            "evenkeel downloads nothing: put it on a storage with `Download from URL`, and write what Proxmox VE lists it as"
        }
        "slot" | "disk" | "interface" | "device" => "write into = \"scsi0\"",
        "vmid" | "vm" | "from" | "guest" | "clonefrom" | "id" => "write clone = 9000",
        "linked" | "linkedclone" => "write full = false",
        "fullclone" => "write full = true, or nothing: it is the default",
        "snapname" => "write snapshot = \"gold\"",
        "datastore" | "datastoreid" | "targetstorage" => "write storage = \"local-lvm\"",
        "archive" | "restore" | "file" => "write backup = \"store:backup/…\"",
        "iso" | "cdrom" => {
            "an ISO is no source: declare the disks, and ide2 = \"local:iso/debian-12.iso,media=cdrom\""
        }
        _ => return None,
    })
}

/// What to write instead of a word of `first`.
pub(crate) fn first(written: &str) -> Option<&'static str> {
    Some(match folded(written).as_str() {
        "sshkeys" | "sshkey" | "sshpublickeys" | "sshpublickey" | "pubkey" | "publickeys"
        | "authorizedkeys" | "keys" => "write ssh_keys = [\"ssh-ed25519 AAAA… you@example\"]",
        "passwd" | "rootpassword" | "rootpw" | "secret" => "write password = { secret = \"NAME\" }",
        "user" | "username" | "ciuser" => {
            "a container is made with root alone: set up other users inside"
        }
        _ => return None,
    })
}
