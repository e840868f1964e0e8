//! The guests of the demonstration, and the node they live on.

use evenkeel_core::desired::import::FileFormat;
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_sim::{Config, Scenario, SimPower, World};
use jiff::Timestamp;

/// A guest of the story.
pub(super) struct DemoGuest {
    kind: GuestKind,
    vmid: u32,
    /// What it is called.
    pub(super) name: &'static str,
    cores: &'static str,
    memory: &'static str,
    disk: &'static str,
    tags: &'static str,
}

/// Changed by hand.
pub(super) const WEB: DemoGuest = container(101, "web", "prod");
/// Changed by hand.
pub(super) const MAIL: DemoGuest = container(102, "mail", "prod");
/// Destroyed when that is signed.
pub(super) const OLD_TEST: DemoGuest = container(190, "old-test", "test");
/// Its number is taken by another guest.
pub(super) const OLD_SHOP: DemoGuest = container(191, "old-shop", "test");
/// Switched off by hand.
pub(super) const DB: DemoGuest = machine(201, "db", "prod");
/// Starts slowly, while the agent is killed.
pub(super) const BUILDER: DemoGuest = machine(202, "builder", "ci");

const ALL: [DemoGuest; 6] = [WEB, MAIL, OLD_TEST, OLD_SHOP, DB, BUILDER];

const fn container(vmid: u32, name: &'static str, tags: &'static str) -> DemoGuest {
    DemoGuest { kind: GuestKind::Lxc, vmid, name, cores: "2", memory: "1024", disk: "8G", tags }
}

const fn machine(vmid: u32, name: &'static str, tags: &'static str) -> DemoGuest {
    DemoGuest { kind: GuestKind::Qemu, vmid, name, cores: "4", memory: "4096", disk: "32G", tags }
}

/// The node, with every guest running.
pub(super) fn world() -> World {
    let mut world = Scenario::default().build();
    world.epoch_s = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    for (part, pid) in ALL.iter().zip(2000..) {
        let power = SimPower::Running { since_ms: 0, pid, paused: false };
        world.put_guest(part.id(), part.config(world.epoch_s), power);
    }
    world
}

impl DemoGuest {
    pub(super) fn id(&self) -> GuestId {
        let vmid = VmId::try_from(self.vmid).expect("the cast has numbers that Proxmox VE takes");
        GuestId::new(self.kind, vmid)
    }

    /// Its desired file, as `import` names it.
    pub(super) fn file(&self) -> String {
        format!("desired/{}", crate::command::import::file_name(self.id(), FileFormat::Toml))
    }

    fn config(&self, epoch_s: u64) -> Config {
        let Self { vmid, name, cores, memory, disk, tags, .. } = self;
        let volume = format!("local-lvm:vm-{vmid}-disk-0");
        let mac = format!("BC:24:11:00:{:02X}:{:02X}", vmid / 256, vmid % 256);
        let mut config = Config::of(&[("cores", cores), ("memory", memory), ("tags", tags)]);
        let mut set = |key: &str, value: String| config.active.insert(key.to_owned(), value);
        match self.kind {
            GuestKind::Lxc => {
                set("hostname", (*name).to_owned());
                set("ostype", "debian".to_owned());
                set("arch", "amd64".to_owned());
                set("unprivileged", "1".to_owned());
                set("swap", "512".to_owned());
                set("rootfs", format!("{volume},size={disk}"));
                set("net0", format!("name=eth0,bridge=vmbr0,hwaddr={mac},ip=dhcp,type=veth"));
            }
            GuestKind::Qemu => {
                set("name", (*name).to_owned());
                set("ostype", "l26".to_owned());
                set("scsihw", "virtio-scsi-single".to_owned());
                set("boot", "order=scsi0".to_owned());
                set("scsi0", format!("{volume},iothread=1,size={disk}"));
                set("net0", format!("virtio={mac},bridge=vmbr0"));
                set("smbios1", format!("uuid=00000000-0000-4000-8000-{vmid:012}"));
                set("vmgenid", format!("00000000-0000-4000-9000-{vmid:012}"));
                set("meta", format!("creation-qemu=9.2.0,ctime={epoch_s}"));
            }
        }
        config
    }
}
