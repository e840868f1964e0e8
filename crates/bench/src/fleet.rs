//! A fleet for benches: half containers, half machines, about fifteen declared fields each, all as declared.

use std::collections::BTreeMap;

use evenkeel_core::actual::{self, ConfigEntry, GuestConfig, ListCoverage, Power, Snapshot};
use evenkeel_core::desired::{self, DeclaredField, Desired, Run, Spec, WantedState};
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::registry;
use evenkeel_core::value::compare::Conventions;
use evenkeel_core::value::read;

/// A declared value and how PVE stores it.
type Pair = (&'static str, String, String);

/// Guests as values, beyond the number a file may declare, and a node that has them as declared.
pub(crate) fn as_declared(guests: u32) -> (Desired, Snapshot) {
    let mut desired = Desired::default();
    let mut here = BTreeMap::new();
    for number in 0..guests {
        let vmid = VmId::try_from(VmId::MIN + number)
            .expect("a bench has fewer guests than there are numbers");
        let kind = if number % 2 == 0 { GuestKind::Lxc } else { GuestKind::Qemu };
        let id = GuestId { kind, vmid };
        let pairs = match kind {
            GuestKind::Lxc => container(number),
            GuestKind::Qemu => machine(number),
        };
        desired.guests.insert(vmid, declared(id, &pairs));
        here.insert(vmid, stored(id, &pairs));
    }
    let snapshot = Snapshot {
        node: "pve1".parse().expect("a node name"),
        release: Release::V8_4,
        conventions: Conventions::default(),
        guests: here,
        elsewhere: BTreeMap::new(),
        hidden: std::collections::BTreeSet::new(),
        coverage: ListCoverage::Whole,
    };
    (desired, snapshot)
}

fn same(name: &'static str, value: impl Into<String>) -> Pair {
    let value = value.into();
    (name, value.clone(), value)
}

fn container(n: u32) -> Vec<Pair> {
    let mac = mac(n);
    vec![
        same("arch", "amd64"),
        same("cores", (n % 8 + 1).to_string()),
        same("cpulimit", "2"),
        ("description", format!("front end {n}"), format!("front end {n}\n")),
        ("features", "nesting=1".to_owned(), "nesting=1".to_owned()),
        same("hostname", format!("web-{n}")),
        same("memory", "2048"),
        (
            "mp0",
            "local-lvm:8,mp=/data,backup=1".to_owned(),
            format!("local-lvm:vm-{n}-disk-1,mp=/data,backup=1,size=8G"),
        ),
        ("nameserver", "10.0.0.53,10.0.0.54".to_owned(), "10.0.0.53 10.0.0.54".to_owned()),
        (
            "net0",
            "name=eth0,bridge=vmbr0,ip=dhcp,firewall=1".to_owned(),
            format!("name=eth0,bridge=vmbr0,firewall=1,hwaddr={mac},ip=dhcp,type=veth"),
        ),
        same("onboot", "1"),
        same("ostype", "debian"),
        ("rootfs", "local-lvm:16".to_owned(), format!("local-lvm:vm-{n}-disk-0,size=16G")),
        ("startup", "order=2,up=30".to_owned(), "up=30,order=2".to_owned()),
        same("swap", "512"),
        ("tags", "web;prod".to_owned(), "prod;web".to_owned()),
    ]
}

fn machine(n: u32) -> Vec<Pair> {
    let mac = mac(n);
    vec![
        ("agent", "enabled=1".to_owned(), "1".to_owned()),
        same("balloon", "1024"),
        same("boot", "order=scsi0;net0"),
        same("cores", "4"),
        same("cpu", "x86-64-v2-AES"),
        same("description", format!("database {n}")),
        ("ide2", "none,media=cdrom".to_owned(), "none,media=cdrom".to_owned()),
        same("memory", "8192"),
        same("name", format!("db-{n}")),
        (
            "net0",
            "virtio,bridge=vmbr0,tag=20".to_owned(),
            format!("virtio={mac},bridge=vmbr0,tag=20"),
        ),
        same("onboot", "1"),
        same("ostype", "l26"),
        (
            "scsi0",
            "local-lvm:32,discard=on,iothread=1,ssd=1".to_owned(),
            format!("local-lvm:vm-{n}-disk-0,discard=on,iothread=1,size=32G,ssd=1"),
        ),
        same("scsihw", "virtio-scsi-single"),
        same("sockets", "2"),
        ("startup", "order=3".to_owned(), "3".to_owned()),
        ("tags", "db;prod".to_owned(), "db;prod".to_owned()),
    ]
}

fn mac(n: u32) -> String {
    let [_, high, middle, low] = n.to_be_bytes();
    format!("BC:24:11:{high:02X}:{middle:02X}:{low:02X}")
}

fn declared(id: GuestId, pairs: &[Pair]) -> desired::DeclaredGuest {
    let mut fields: Vec<DeclaredField> = pairs
        .iter()
        .map(|(name, text, _)| {
            let key = registry::find(id.kind, name).expect("a key of the registry");
            let want =
                read::declared(&key.key().format, text).expect("a value that can be declared");
            DeclaredField { key, want: Some(want) }
        })
        .collect();
    fields.sort_by_key(|field| field.key);
    let spec = Spec { run: Some(Run::Running), fields, ..Spec::default() };
    let mode = desired::ReconcileMode::Enforce;
    desired::DeclaredGuest {
        id,
        by: desired::DeclaredBy::LocalFiles,
        mode,
        state: WantedState::Present(spec),
    }
}

fn stored(id: GuestId, pairs: &[Pair]) -> actual::Guest {
    let entry = |key: &str, value: &str| ConfigEntry {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        pending: None,
        delete: 0,
    };
    let entries = pairs.iter().map(|(name, _, text)| entry(name, text));
    let digest = entry("digest", "5f3a9c1e0d7b48a6925c");
    actual::Guest {
        id,
        power: Power::Running,
        template: false,
        ha: None,
        lock: None,
        config: Ok(GuestConfig::from_pending(id.kind, entries.chain([digest])).into()),
    }
}
