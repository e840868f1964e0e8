//! Which changes of a guest make it another one, and when nobody can tell.

#[expect(dead_code, reason = "the golden cases use the rest of it")]
mod support;

use evenkeel_core::actual::Guest;
use evenkeel_core::actual::identity::{Unproven, identity};
use proptest::prelude::*;

const VM: &str = "\
qemu/200 running
name: web
tags: prod
description: front end
memory: 2048
scsi0: local-lvm:vm-200-disk-0,size=8G
scsi1: tank:vm-200-disk-1,size=8G
ide2: local:iso/debian-12.iso,media=cdrom
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0
smbios1: uuid=11111111-2222-4333-8444-555555555555
vmgenid: 11111111-2222-4333-8444-666666666666
meta: creation-qemu=8.1.2,ctime=1700000000
";

const CT: &str = "\
lxc/101 running
hostname: web
tags: prod
memory: 512
ostype: debian
rootfs: local-lvm:vm-101-disk-0,size=8G
mp0: tank:subvol-101-disk-1,mp=/data,size=8G
net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01
";

fn guest(text: &str) -> Guest {
    let (snapshot, _) = support::actual(text);
    snapshot.guests.into_values().next().expect("a case has a guest")
}

/// A text with one line replaced, added (`""` to a line) or taken away (a line to `""`).
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "`{from}` is in the guest");
    match (from, to) {
        ("", line) => format!("{text}{line}\n"),
        (from, to) => text.replacen(from, to, 1),
    }
}

#[test]
fn what_anybody_may_change_leaves_a_guest_the_same() {
    for (text, from, to) in [
        (VM, "name: web", "name: db"),
        (VM, "tags: prod", "tags: test;other"),
        (VM, "description: front end", "description: changed"),
        (VM, "memory: 2048", "memory: 4096"),
        (VM, "qemu/200 running", "qemu/200 stopped locked(backup) ha(started)"),
        (VM, "debian-12", "debian-13"),
        (VM, "ide2: local:iso/debian-12.iso,media=cdrom\n", ""),
        (VM, "", "ide3: local-lvm:vm-200-cloudinit,media=cdrom,size=4M"),
        (VM, "", "unused0: local-lvm:vm-200-disk-9"),
        (VM, "", "cores: 2\n  waits: 4"),
        (VM, "tank:vm-200-disk-1,size=8G", "tank:vm-200-disk-1,size=64G,ssd=1"),
        (
            VM,
            "scsi1: tank:vm-200-disk-1,size=8G",
            "scsi1: tank:vm-200-disk-1,size=8G\n  waits to be deleted",
        ),
        (VM, "", "scsi2:\n  waits: tank:vm-200-disk-7"),
        (VM, "scsi1: tank", "virtio3: tank"),
        (VM, "bridge=vmbr0", "bridge=vmbr1,tag=5"),
        (VM, "BC:24:11:00:00:01", "bc:24:11:00:00:01"),
        (
            VM,
            "11111111-2222-4333-8444-555555555555",
            "11111111-2222-4333-8444-555555555555,serial=A",
        ),
        (VM, "", "quantum: 7"),
        (CT, "hostname: web", "hostname: db"),
        (CT, "tags: prod\n", ""),
        (CT, "memory: 512", "memory: 1024"),
        (CT, "mp=/data", "mp=/srv,backup=1"),
        (CT, "size=8G\nmp0", "size=16G\nmp0"),
        (CT, "", "unused0: tank:subvol-101-disk-9"),
        (CT, "", "nameserver: 10.0.0.1\n  waits: 10.0.0.2"),
    ] {
        let changed = edited(text, from, to);
        assert_eq!(identity(&guest(text)), identity(&guest(&changed)), "{from:?} -> {to:?}");
    }
}

#[test]
fn what_a_guest_is_made_of_makes_it_another() {
    for (text, from, to) in [
        (VM, "tank:vm-200-disk-1", "tank:vm-200-disk-2"),
        (VM, "tank:vm-200-disk-1", "local-lvm:vm-200-disk-1"),
        (VM, "scsi1: tank:vm-200-disk-1,size=8G\n", ""),
        (VM, "", "scsi2: tank:vm-200-disk-7,size=8G"),
        (VM, "", "efidisk0: tank:vm-200-disk-7"),
        (VM, "", "tpmstate0: tank:vm-200-disk-7"),
        (VM, "", "scsi5: what is this"),
        (VM, "BC:24:11:00:00:01", "BC:24:11:00:00:02"),
        (VM, "", "net1: virtio=BC:24:11:00:00:02,bridge=vmbr0"),
        (VM, "555555555555", "555555555556"),
        (VM, "smbios1: uuid=11111111-2222-4333-8444-555555555555\n", ""),
        (VM, "666666666666", "666666666667"),
        (VM, "ctime=1700000000", "ctime=1700000001"),
        (CT, "ostype: debian", "ostype: ubuntu"),
        (CT, "vm-101-disk-0", "vm-101-disk-5"),
        (CT, "rootfs: local-lvm:vm-101-disk-0,size=8G", "rootfs: local-lvm:16"),
        (CT, "subvol-101-disk-1", "subvol-101-disk-2"),
        (CT, "", "mp1: /srv/data,mp=/x"),
        (CT, "BC:24:11:00:00:01", "BC:24:11:00:00:02"),
        (CT, "net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01\n", ""),
    ] {
        let changed = edited(text, from, to);
        assert_ne!(
            identity(&guest(text)).unwrap(),
            identity(&guest(&changed)).unwrap(),
            "{from:?} -> {to:?}"
        );
    }
}

#[test]
fn the_kind_is_part_of_the_identity_and_the_number_is_not() {
    let bare = "rootfs: tank:vm-101-disk-0\nnet0: name=eth0,hwaddr=BC:24:11:00:00:01";
    let machine = "scsi0: tank:vm-101-disk-0\nnet0: virtio=BC:24:11:00:00:01";
    let of = |head: &str, body: &str| identity(&guest(&format!("{head} stopped\n{body}"))).unwrap();
    assert_ne!(of("lxc/101", bare), of("qemu/101", machine));
    assert_eq!(
        of("lxc/101", bare),
        of("lxc/102", bare),
        "a guest keeps its identity under another number"
    );
}

#[test]
fn marks_cannot_be_shifted_from_one_place_to_another() {
    let of = |body: &str| identity(&guest(&format!("qemu/200 stopped\n{body}"))).unwrap();
    assert_ne!(of("scsi0: a1:bc"), of("scsi0: a1b:c"), "storage and name");
    assert_ne!(
        of("scsi0: tank:a\nvmgenid: x\nmeta: "),
        of("scsi0: tank:a\nmeta: x\nvmgenid: "),
        "two marks of creation"
    );
    assert_eq!(
        of("scsi0: tank:a\nscsi1: tank:b"),
        of("scsi0: tank:b\nscsi1: tank:a"),
        "slots do not count"
    );
    assert_ne!(of("scsi0: tank:a"), of("scsi0: tank:a\nscsi1: tank:a"), "the same volume twice");
}

#[test]
fn a_guest_that_cannot_be_known_is_unproven() {
    let unreadable = guest("lxc/101 stopped\nunreadable 403 Permission check failed");
    assert_eq!(
        identity(&unreadable),
        Err(Unproven::Unreadable("403 Permission check failed".to_owned()))
    );
    for featureless in [
        "lxc/101 stopped\nostype: debian\nhostname: web",
        "qemu/200 stopped\nide2: local:iso/x.iso,media=cdrom\nide3: none,media=cdrom",
        "qemu/200 stopped\nide2: local-lvm:vm-200-cloudinit,media=cdrom\nunused0: tank:vm-200-disk-0",
        "qemu/200 stopped\nsmbios1: uuid=11111111-2222-4333-8444-555555555555\nnet0: virtio,bridge=vmbr0",
        "qemu/200 stopped\nscsi0:\n  waits: tank:vm-200-disk-0",
    ] {
        assert_eq!(identity(&guest(featureless)), Err(Unproven::Featureless), "{featureless}");
    }
}

proptest! {
    #[test]
    fn the_order_of_the_configuration_does_not_matter(seed in any::<u64>(), machine in any::<bool>()) {
        let text = if machine { VM } else { CT };
        let (head, body) = text.split_once('\n').unwrap();
        let mut lines: Vec<&str> = body.lines().collect();
        let mut state = seed;
        for at in (1..lines.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = usize::try_from(state >> 33).unwrap() % (at + 1);
            lines.swap(at, other);
        }
        let shuffled = format!("{head}\n{}", lines.join("\n"));
        prop_assert_eq!(identity(&guest(text)), identity(&guest(&shuffled)));
    }
}
