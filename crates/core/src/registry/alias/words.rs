//! Other people's words for what a guest shall be and for what Proxmox VE calls one of a few; nothing is accepted by them.

use super::{folded, is_one_of};

/// The word that was meant by another for one of a guest's own words.
pub(crate) fn word(key: &str, written: &str) -> Option<&'static str> {
    let word = folded(written);
    Some(match (key, word.as_str()) {
        ("kind", "vm" | "kvm" | "machine" | "virtualmachine" | "qm" | "qemukvm") => {
            "a virtual machine is kind = \"qemu\""
        }
        ("kind", "ct" | "container" | "pct" | "lxd" | "openvz" | "containers") => {
            "a container is kind = \"lxc\""
        }
        ("kind", "docker" | "oci" | "podman") => {
            "Proxmox VE has containers, kind = \"lxc\", and machines, kind = \"qemu\""
        }
        (
            "run",
            "started" | "start" | "on" | "up" | "true" | "yes" | "online" | "poweron" | "active",
        ) => "write run = \"running\"",
        (
            "run",
            "stop" | "off" | "down" | "halted" | "shutdown" | "false" | "no" | "poweroff"
            | "offline",
        ) => "write run = \"stopped\"",
        ("run", "paused" | "suspended" | "pause" | "suspend") => {
            "evenkeel neither pauses nor resumes a guest: leave `run` out"
        }
        ("run", "absent" | "present") => "whether a guest shall be there is `state`",
        ("state", "running" | "started" | "stopped" | "start" | "stop" | "on" | "off") => {
            "`state` says whether the guest shall be there; whether it runs is `run`, such as run = \"running\""
        }
        ("state", "created" | "exists" | "exist" | "yes" | "true" | "present") => {
            "write state = \"present\""
        }
        ("state", "deleted" | "destroyed" | "removed" | "gone" | "no" | "false") => {
            "write state = \"absent\""
        }
        ("stop", "hard" | "kill" | "cut" | "immediate" | "poweroff" | "forced") => {
            "write stop = \"force\""
        }
        ("stop", "graceful" | "soft" | "acpi" | "clean") => "write stop = \"shutdown\"",
        _ => return None,
    })
}

/// Words for one of a few that Proxmox VE takes, and the word that may be meant.
const CHOICES: &[(&[&str], &str)] = &[
    (&["rocky", "rockylinux", "alma", "almalinux", "rhel", "redhat", "oracle", "amazon"], "centos"),
    (&["suse", "sles", "leap", "tumbleweed"], "opensuse"),
    (&["arch", "manjaro"], "archlinux"),
    (&["mint", "pop"], "ubuntu"),
    (&["raspbian", "kali"], "debian"),
    (&["linux", "debian", "ubuntu", "centos", "fedora"], "l26"),
    (&["windows", "windows11", "win2022", "w2k22", "win2025"], "win11"),
    (&["windows10", "win2019", "w2k19", "win2016"], "win10"),
    (&["uefi", "efi", "edk2"], "ovmf"),
    (&["legacy", "bios"], "seabios"),
    (&["virtio_scsi", "virtio"], "virtio-scsi-single"),
    (&["virtio_net", "virtio_pci"], "virtio"),
    (&["intel", "e1000_82545"], "e1000"),
    (&["x86_64", "x64", "x86"], "amd64"),
    (&["aarch64", "arm"], "arm64"),
    (&["write_back"], "writeback"),
    (&["qcow"], "qcow2"),
    (&["default", "vnc", "standard"], "std"),
];

/// The word out of a few that was likely meant by another.
pub(crate) fn choice(words: &[&'static str], written: &str) -> Option<&'static str> {
    let word = folded(written);
    let mut found = CHOICES.iter().filter(|(others, _)| is_one_of(&word, others));
    found.find_map(|(_, meant)| words.iter().find(|ours| *ours == meant)).copied()
}
