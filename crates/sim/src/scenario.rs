//! Ready worlds: an empty node with tokens, and a node full of deterministic, odd guests.

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::model::release::Release;

use crate::config::{Config, SnapshotSection};
use crate::random::Random;
use crate::storage::{Storage, StorageKind};
use crate::world::{SimPower, World};

/// What to pretend.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The release.
    pub release: Release,
    /// The node's name.
    pub node: String,
    /// How many guests, half containers, half machines.
    pub guests: u32,
    /// Where addresses and oddities come from.
    pub seed: u64,
}

/// The tokens every scenario has: name, secret, and the role of its user on `/`. Their secrets are
/// published here, so they are accepted from loopback addresses only.
pub const TOKENS: [(&str, &str, &str); 4] = [
    ("root@pam!full", "00000000-0000-4000-8000-000000000001", "Administrator"),
    ("viewer@pve!ro", "00000000-0000-4000-8000-000000000002", "PVEAuditor"),
    ("ops@pve!ops", "00000000-0000-4000-8000-000000000003", "PVEAdmin"),
    ("nobody@pve!bare", "00000000-0000-4000-8000-000000000004", ""),
];

impl Default for Scenario {
    fn default() -> Self {
        Self { release: Release::V8_4, node: "pve1".into(), guests: 0, seed: 1 }
    }
}

impl Scenario {
    /// Builds the world.
    pub fn build(&self) -> World {
        let mut world = World::new(self.release, &self.node, self.seed);
        for (token, secret, role) in TOKENS {
            let (user, _) = token.split_once('!').expect("a token names its user");
            if user != "root@pam" {
                world.access.add_user(user, crate::world::PASSWORD);
            }
            world.access.add_token(token, secret, false);
            if !role.is_empty() && user != "root@pam" {
                world.access.grant("/", user, role);
            }
        }
        let all = "images,rootdir,vztmpl,backup,iso,snippets";
        let mut store = Storage::new(StorageKind::Dir, all, "/mnt/store");
        store.put_file(
            "vztmpl/alpine-3.19-default_20240207_amd64.tar.gz",
            "vztmpl",
            "tgz",
            1_037_367,
        );
        store.put_file(
            "vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
            "vztmpl",
            "tzst",
            126_000_000,
        );
        store.put_file("iso/debian-12.iso", "iso", "iso", 600 << 20);
        world.storages.insert("store".into(), store);
        if let Some(local) = world.storages.get_mut("local") {
            add_images(local, self.release);
        }
        world
            .storages
            .insert("local-lvm".into(), Storage::new(StorageKind::LvmThin, "images,rootdir", ""));
        world
            .storages
            .insert("tank".into(), Storage::new(StorageKind::ZfsPool, "images,rootdir", ""));
        let mut random = Random::new(self.seed);
        for number in 0..self.guests {
            let vmid = VmId::try_from(VmId::MIN + number)
                .expect("a scenario stays below the largest number");
            add_guest(&mut world, &mut random, vmid, number);
        }
        world
    }
}

/// What one makes guests of; images can be imported from a storage since 8.3.
fn add_images(local: &mut Storage, release: Release) {
    let template = "vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";
    local.put_file(template, "vztmpl", "tzst", 126_000_000);
    if release >= Release::V8_3 {
        local.content.insert("import".to_owned());
        let image = "import/debian-12-genericcloud-amd64.qcow2";
        local.put_file(image, "import", "qcow2", 3 << 30);
    }
}

/// Whether a token, written `name=secret`, is one of those everybody knows.
pub(crate) fn is_published(token: &str) -> bool {
    TOKENS.iter().any(|(_, secret, _)| token.ends_with(secret))
}

fn add_guest(world: &mut World, random: &mut Random, vmid: VmId, number: u32) {
    let kind = if number.is_multiple_of(2) { GuestKind::Lxc } else { GuestKind::Qemu };
    let id = GuestId::new(kind, vmid);
    let mut config = match kind {
        GuestKind::Lxc => container(world, random, vmid, number),
        GuestKind::Qemu => machine(world, random, vmid, number),
    };
    oddities(&mut config, kind, number, world.release());
    let template = number % 50 == 7;
    if template {
        config.active.insert("template".into(), "1".into());
    }
    let running = !template && number % 3 != 2;
    if running && number % 9 == 4 {
        waiting(&mut config, kind);
    }
    match number % 100 {
        33 => config.set_lock(Some("backup")),
        66 => config.set_lock(Some("snapshot")),
        _ => {}
    }
    let power = if running {
        SimPower::Running { since_ms: 0, pid: 2000 + number, paused: false }
    } else {
        SimPower::Stopped
    };
    world.put_guest(id, config, power);
}

fn disk(id: VmId, random: &mut Random, index: u32) -> (String, u64) {
    let gib = [1, 2, 4, 8, 16, 32][usize::try_from(random.below(6)).unwrap_or(0)];
    let volume = match random.below(3) {
        0 => format!("store:{id}/vm-{id}-disk-{index}.raw"),
        1 => format!("local-lvm:vm-{id}-disk-{index}"),
        _ => format!("tank:vm-{id}-disk-{index}"),
    };
    (volume, gib)
}

fn container(world: &mut World, random: &mut Random, id: VmId, number: u32) -> Config {
    let (root, gib) = disk(id, random, 0);
    let mac = world.new_mac();
    let mut config = Config::of(&[("arch", "amd64"), ("swap", "512"), ("unprivileged", "1")]);
    let set =
        |config: &mut Config, key: &str, value: String| config.active.insert(key.to_owned(), value);
    set(&mut config, "ostype", ["debian", "alpine", "ubuntu"][number as usize / 2 % 3].into());
    set(&mut config, "hostname", format!("ct{id}"));
    set(&mut config, "memory", (256_u64 << random.below(5)).to_string());
    set(&mut config, "cores", (1 + random.below(4)).to_string());
    set(&mut config, "rootfs", format!("{root},size={gib}G"));
    set(&mut config, "net0", format!("name=eth0,bridge=vmbr0,hwaddr={mac},ip=dhcp,type=veth"));
    if number.is_multiple_of(5) {
        let (volume, gib) = disk(id, random, 1);
        set(&mut config, "mp0", format!("{volume},mp=/data,backup=1,size={gib}G"));
    }
    config
}

fn machine(world: &mut World, random: &mut Random, id: VmId, number: u32) -> Config {
    let (root, gib) = disk(id, random, 0);
    let mac = world.new_mac();
    let smbios = world.random.uuid();
    let generation = world.random.uuid();
    let mut config = Config::of(&[
        ("ostype", "l26"),
        ("scsihw", "virtio-scsi-single"),
        ("boot", "order=scsi0;net0"),
    ]);
    let set =
        |config: &mut Config, key: &str, value: String| config.active.insert(key.to_owned(), value);
    set(&mut config, "name", format!("vm{id}"));
    set(&mut config, "memory", (512_u64 << random.below(5)).to_string());
    set(&mut config, "cores", (1 + random.below(4)).to_string());
    set(&mut config, "scsi0", format!("{root},iothread=1,size={gib}G"));
    set(&mut config, "net0", format!("virtio={mac},bridge=vmbr0"));
    set(&mut config, "smbios1", format!("uuid={smbios}"));
    set(&mut config, "vmgenid", generation);
    set(&mut config, "meta", format!("creation-qemu=9.2.0,ctime={}", world.epoch_s));
    if number % 5 == 1 {
        set(&mut config, "ide2", "none,media=cdrom".into());
    }
    config
}

/// Values PVE stores and a comparer must not stumble over; each guest gets one of them.
fn oddities(config: &mut Config, kind: GuestKind, number: u32, release: Release) {
    let lxc: &[&[(&str, &str)]] = &[
        &[("description", "line one\nline two\n"), ("tags", "a;b")],
        &[("startup", "down=5,up=30,order=2"), ("onboot", "0")],
        &[("features", "keyctl=1,nesting=true"), ("cpulimit", "2.0")],
        &[("features", "nesting=0"), ("tags", "")],
        &[("nameserver", "1.1.1.1 8.8.8.8"), ("searchdomain", "Example.COM")],
        &[("console", "0"), ("tty", "0"), ("cmode", "shell")],
        &[("cpuunits", "10000"), ("protection", "1")],
        &[("timezone", "host"), ("startup", "2")],
        &[("description", "ünïcode € # 100% [snap]\ncores: 4\n")],
        &[("cpulimit", "0"), ("debug", "0"), ("swap", "0")],
        &[("hostname", "WEB.Example.COM"), ("tags", "_x;a+b;c.d;e-f")],
    ];
    let qemu: &[&[(&str, &str)]] = &[
        &[("description", "no newline at the end"), ("tags", "a;b")],
        &[("agent", "enabled=1,fstrim_cloned_disks=1"), ("onboot", "1")],
        &[("agent", "fstrim_cloned_disks=1,enabled=1"), ("balloon", "0")],
        &[("cpu", "cputype=host,flags=+aes"), ("numa", "0")],
        &[("vga", "type=std"), ("serial0", "socket"), ("kvm", "0")],
        &[("startup", "order=01"), ("hotplug", "disk,network")],
        &[
            ("ciuser", "admin"),
            ("ipconfig0", "ip=10.0.0.5/24,gw=10.0.0.1"),
            ("cipassword", "$5$x$y"),
        ],
        &[("tags", ""), ("migrate_downtime", "0.1")],
        &[("boot", "cdn"), ("nameserver", "8.8.8.8,1.1.1.1")],
        &[("rng0", "/dev/urandom,max_bytes=1024"), ("machine", "q35")],
        &[("protection", "1"), ("sockets", "1"), ("cpuunits", "10000")],
    ];
    let table = match kind {
        GuestKind::Lxc => lxc,
        GuestKind::Qemu => qemu,
    };
    for (key, value) in table[number as usize / 2 % table.len()] {
        config.active.insert((*key).to_owned(), (*value).to_owned());
    }
    match (kind, number % 20) {
        (GuestKind::Lxc, 6) if release >= Release::V9_1 => {
            config.active.insert("env".into(), "A=1".into());
        }
        (GuestKind::Lxc, 8) => {
            config.raw.push(("lxc.apparmor.profile".into(), "unconfined".into()));
        }
        (GuestKind::Qemu, 9) if release >= Release::V8_1 => {
            config.active.insert("memory".into(), "current=2048".into());
        }
        (GuestKind::Qemu, 11) => snapshot(config),
        (_, _) => {}
    }
    if number % 40 == 12 {
        config
            .active
            .insert("unused0".into(), format!("local-lvm:vm-{}-disk-9", VmId::MIN + number));
    }
}

fn snapshot(config: &mut Config) {
    let mut section = config.active.clone();
    section.insert("snaptime".into(), "1789999000".into());
    section.remove("description");
    config.snapshots.push(SnapshotSection { name: "before-upgrade".into(), section });
    config.active.insert("parent".into(), "before-upgrade".into());
}

/// Changes that wait for a restart.
fn waiting(config: &mut Config, kind: GuestKind) {
    match kind {
        GuestKind::Lxc => {
            config.pending.insert("nameserver".into(), "9.9.9.9".into());
            if config.active.contains_key("console") {
                config.pending_delete.insert("console".into(), false);
            }
        }
        GuestKind::Qemu => {
            config.pending.insert("cores".into(), "8".into());
            if config.active.contains_key("ide2") {
                config.pending_delete.insert("ide2".into(), false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_builds_the_same_world() {
        let scenario = Scenario { guests: 200, ..Scenario::default() };
        let text = |world: World| serde_json::to_string(&world).unwrap();
        assert_eq!(text(scenario.build()), text(scenario.build()));
        let other = Scenario { seed: 2, ..scenario.clone() };
        assert_ne!(text(scenario.build()), text(other.build()));
    }

    #[test]
    fn a_crowd_has_both_kinds_locks_templates_snapshots_and_waiting_changes() {
        let world = Scenario { guests: 200, ..Scenario::default() }.build();
        let count = |test: &dyn Fn(&crate::SimGuest) -> bool| {
            world.guests.values().filter(|g| test(g)).count()
        };
        assert_eq!(count(&|g| g.id.kind == GuestKind::Lxc), 100);
        assert!(count(&|g| g.config.lock().is_some()) >= 2);
        assert!(count(&|g| g.config.is_set("template")) >= 2);
        assert!(count(&|g| !g.config.pending.is_empty()) >= 10);
        assert!(count(&|g| !g.config.pending_delete.is_empty()) >= 1);
        assert!(count(&|g| !g.config.snapshots.is_empty()) >= 5);
    }
}
