//! Every configuration key of a virtual machine, one row each. Facts: Proxmox VE 7.4 to 9.2.

use super::format::{Absent, Rule, Trailing, ValueFormat};
use super::{
    Applies, Declarable, Hazard, HotplugFeature, Key, Privilege, Shape, both, drive, kept, key,
    parts,
};
use crate::model::release::Release;

const KEYBOARDS: &[&str] = &[
    "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch", "hu", "is",
    "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
];
const LOCKS: &[&str] = &[
    "backup",
    "clone",
    "create",
    "migrate",
    "rollback",
    "snapshot",
    "snapshot-delete",
    "suspending",
    "suspended",
];
const SCSI_CONTROLLERS: &[&str] =
    &["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"];
const SYSTEMS: &[&str] = &[
    "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24",
    "l26", "solaris",
];
const MAX: i64 = super::format::UNBOUNDED;

/// A key cloud-init reads: stored at once, and first-boot logic runs again at the next start.
const fn cloud_init(name: &'static str, format: ValueFormat, doc: &'static str) -> Key {
    key(name, format, doc)
        .applies(Applies::Hotplug(HotplugFeature::CloudInit))
        .disrupts()
        .privilege(Privilege::CloudInit)
}

/// A drive of one bus.
const fn bus(name: &'static str, shape: &'static Shape, slots: u16) -> Key {
    key(name, ValueFormat::Property(shape), "A disk, CD-ROM or cloud-init drive.")
        .slots(slots)
        .applies(Applies::HotplugDrive)
        .hazard(Hazard::VolumeSlot)
        .privilege(Privilege::Disk)
}

pub(super) const KEYS: &[Key] = &[
    key("acpi", ValueFormat::Bool, "Give the machine ACPI.")
        .absent(Absent::Bool(true))
        .disrupts()
        .privilege(Privilege::Hardware),
    key("affinity", ValueFormat::Text(Rule::Line), "Host cores the machine may use.").root_only(),
    key("agent", ValueFormat::Property(&parts::AGENT), "Talk to the guest agent."),
    key("allow-ksm", ValueFormat::Bool, "Let the host merge equal memory pages.")
        .absent(Absent::Bool(true))
        .privilege(Privilege::Memory)
        .since(Release::V9_1),
    key("amd-sev", ValueFormat::Property(&parts::SEV), "AMD memory encryption.")
        .disrupts()
        .root_only()
        .since(Release::V8_3),
    key("arch", ValueFormat::Choice(&["x86_64", "aarch64"]), "Processor architecture.")
        .disrupts()
        .root_only(),
    key("args", ValueFormat::Text(Rule::Line), "Arguments handed to QEMU as they are.")
        .secret()
        .hazard(Hazard::Forbidden)
        .root_only(),
    key("audio0", ValueFormat::Property(&parts::AUDIO), "An audio device.")
        .privilege(Privilege::Hardware),
    key("autostart", ValueFormat::Bool, "Start again after a crash (not used by PVE).")
        .absent(Absent::Bool(false)),
    key(
        "balloon",
        ValueFormat::Mebibytes { min: 0 },
        "Target of the balloon in MiB; 0 removes the device.",
    )
    .applies(Applies::Balloon)
    .privilege(Privilege::Memory)
    .hub_may(),
    key("bios", ValueFormat::Choice(&["seabios", "ovmf"]), "Firmware.")
        .absent(Absent::Text("seabios"))
        .disrupts(),
    key("boot", ValueFormat::Boot, "Boot order, as order=scsi0;net0.")
        .absent(Absent::ServerFilled)
        .disrupts()
        .privilege(Privilege::Disk),
    key("bootdisk", ValueFormat::Text(Rule::Device), "Legacy boot disk.")
        .declared(Declarable::No("write boot = \"order=scsi0\" instead"))
        .disrupts()
        .privilege(Privilege::Disk),
    key("cdrom", ValueFormat::Property(&drive::IDE), "Another name of ide2.")
        .hazard(Hazard::VolumeSlot)
        .privilege(Privilege::Disk)
        .declared(Declarable::No("write ide2 instead, of which it is another name")),
    cloud_init("cicustom", ValueFormat::Property(&parts::CICUSTOM), "Own cloud-init files."),
    cloud_init("cipassword", ValueFormat::Secret, "Password cloud-init sets.").secret().declared(
        Declarable::No("a password in a desired file is a secret in a repository; use sshkeys"),
    ),
    cloud_init(
        "citype",
        ValueFormat::Choice(&["configdrive2", "nocloud", "opennebula"]),
        "Format of the cloud-init drive.",
    ),
    cloud_init("ciupgrade", ValueFormat::Bool, "Upgrade packages at first boot.")
        .absent(Absent::Bool(true))
        .since(Release::V8_0),
    cloud_init("ciuser", ValueFormat::Text(Rule::Line), "User cloud-init sets up."),
    key("cores", ValueFormat::Integer { min: 1, max: MAX }, "CPU cores per socket.")
        .absent(Absent::Integer(1))
        .privilege(Privilege::Cpu)
        .hub_may(),
    key("cpu", ValueFormat::Property(&parts::CPU), "Emulated CPU type.")
        .disrupts()
        .privilege(Privilege::Cpu),
    both::cpu_limit(128),
    both::cpu_units(1, 262_144),
    both::description(Trailing::WhiteSpace),
    key("efidisk0", ValueFormat::Property(&drive::EFI_DISK), "The disk that holds EFI variables.")
        .hazard(Hazard::VolumeSlot)
        .privilege(Privilege::Disk),
    key("freeze", ValueFormat::Bool, "Freeze the CPU at start.")
        .absent(Absent::Bool(false))
        .disrupts()
        .privilege(Privilege::Power),
    both::HOOK_SCRIPT,
    key("hostpci", ValueFormat::Property(&parts::HOST_PCI), "A PCI device of the host.")
        .slots(16)
        .disrupts()
        .privilege(Privilege::Hardware),
    key("hotplug", ValueFormat::Hotplug, "What may be changed while running.")
        .absent(Absent::Text("disk,network,usb"))
        .applies(Applies::HotplugSet)
        .privilege(Privilege::Hardware),
    key("hugepages", ValueFormat::Choice(&["any", "2", "1024"]), "Huge pages for memory.")
        .disrupts()
        .root_only(),
    bus("ide", &drive::IDE, 4),
    key("intel-tdx", ValueFormat::Property(&parts::TDX), "Intel memory encryption.")
        .disrupts()
        .root_only()
        .since(Release::V9_1),
    cloud_init(
        "ipconfig",
        ValueFormat::Property(&parts::IP_CONFIG),
        "Addresses cloud-init sets on netN.",
    )
    .slots(32),
    key(
        "ivshmem",
        ValueFormat::Property(&parts::SHARED_MEMORY),
        "Memory shared with other machines.",
    )
    .disrupts()
    .root_only(),
    key("keephugepages", ValueFormat::Bool, "Keep huge pages after stopping.")
        .absent(Absent::Bool(false))
        .root_only(),
    key("keyboard", ValueFormat::Choice(KEYBOARDS), "Keyboard layout of the console."),
    key("kvm", ValueFormat::Bool, "Use hardware virtualisation.")
        .absent(Absent::Bool(true))
        .disrupts()
        .privilege(Privilege::Hardware),
    key("localtime", ValueFormat::Bool, "Keep the machine's clock in local time."),
    kept("lock", ValueFormat::Choice(LOCKS), "a lock belongs to the task that set it"),
    key("machine", ValueFormat::Property(&parts::MACHINE), "Emulated machine type.")
        .disrupts()
        .privilege(Privilege::Hardware),
    key("memory", ValueFormat::Property(&parts::MEMORY), "Memory; a bare number is MiB.")
        .applies(Applies::Hotplug(HotplugFeature::Memory))
        .privilege(Privilege::Memory)
        .hub_may(),
    kept("meta", ValueFormat::Text(Rule::Line), "Proxmox VE writes it when the guest is created")
        .absent(Absent::ServerFilled),
    key(
        "migrate_downtime",
        ValueFormat::Number { max: MAX },
        "Longest pause of a migration in seconds.",
    )
    .absent(Absent::Text("0.1"))
    .applies(Applies::LiveSince8),
    key(
        "migrate_speed",
        ValueFormat::Integer { min: 0, max: MAX },
        "Migration speed in MB/s; 0 is no limit.",
    )
    .absent(Absent::Integer(0))
    .live(),
    key("name", ValueFormat::Text(Rule::DnsName), "Name shown in the web interface.")
        .live()
        .hazard(Hazard::GuestName),
    cloud_init(
        "nameserver",
        ValueFormat::List { item: Rule::Address, separator: ' ' },
        "DNS servers cloud-init sets, in order of use.",
    ),
    key("net", ValueFormat::Property(&parts::QEMU_NETWORK), "A network card.")
        .slots(32)
        .applies(Applies::Hotplug(HotplugFeature::Network))
        .disrupts()
        .privilege(Privilege::Network),
    key("numa", ValueFormat::Bool, "Emulate NUMA.")
        .absent(Absent::Bool(false))
        .disrupts()
        .privilege(Privilege::Cpu),
    key("numa", ValueFormat::Property(&parts::NUMA_NODE), "One NUMA node.")
        .slots(8)
        .disrupts()
        .privilege(Privilege::Cpu),
    both::ON_BOOT,
    key("ostype", ValueFormat::Choice(SYSTEMS), "Operating system, for its defaults.")
        .absent(Absent::Text("other"))
        .disrupts(),
    key("parallel", ValueFormat::Text(Rule::ParallelPort), "A parallel port of the host.")
        .slots(3)
        .disrupts()
        .root_only(),
    both::protection("Refuse removal of the machine and its disks."),
    key("reboot", ValueFormat::Bool, "Allow a reboot; else it ends the machine.")
        .absent(Absent::Bool(true)),
    key("rng0", ValueFormat::Property(&parts::RANDOM), "A source of randomness.")
        .privilege(Privilege::Hardware),
    bus("sata", &drive::SATA, 6),
    bus("scsi", &drive::SCSI, 31),
    key("scsihw", ValueFormat::Choice(SCSI_CONTROLLERS), "SCSI controller.")
        .absent(Absent::Text("lsi"))
        .disrupts()
        .privilege(Privilege::Hardware),
    cloud_init(
        "searchdomain",
        ValueFormat::List { item: Rule::DnsName, separator: ' ' },
        "DNS search domains cloud-init sets, in order of use.",
    ),
    key(
        "serial",
        ValueFormat::Text(Rule::SerialPort),
        "A serial port: socket, or a device of the host.",
    )
    .slots(4)
    .disrupts()
    .privilege(Privilege::Hardware),
    key("shares", ValueFormat::Integer { min: 0, max: 50_000 }, "Memory weight for ballooning.")
        .absent(Absent::Integer(1000))
        .live()
        .privilege(Privilege::Memory)
        .hub_may(),
    key("smbios1", ValueFormat::Property(&parts::SMBIOS), "SMBIOS fields of type 1.")
        .absent(Absent::ServerFilled)
        .disrupts()
        .privilege(Privilege::Hardware),
    key("smp", ValueFormat::Integer { min: 1, max: MAX }, "Legacy number of CPUs.")
        .declared(Declarable::No("write cores and sockets instead"))
        .privilege(Privilege::Cpu),
    key("sockets", ValueFormat::Integer { min: 1, max: MAX }, "CPU sockets.")
        .absent(Absent::Integer(1))
        .privilege(Privilege::Cpu)
        .hub_may(),
    key("spice_enhancements", ValueFormat::Property(&parts::SPICE), "Extras of the SPICE console.")
        .root_only(),
    cloud_init("sshkeys", ValueFormat::SshKeys, "SSH public keys cloud-init installs."),
    key("startdate", ValueFormat::Text(Rule::StartDate), "Date the machine's clock starts with.")
        .absent(Absent::Text("now")),
    both::STARTUP.privilege(Privilege::OptionsAndSysModify),
    key("tablet", ValueFormat::Bool, "Give the machine a pointer tablet.")
        .absent(Absent::Bool(true))
        .live()
        .privilege(Privilege::Hardware),
    both::TAGS,
    key("tdf", ValueFormat::Bool, "Time drift fix.").absent(Absent::Bool(false)),
    both::template("The machine is a template."),
    key("tpmstate0", ValueFormat::Property(&drive::TPM_STATE), "The volume that holds TPM state.")
        .hazard(Hazard::TpmState)
        .privilege(Privilege::Disk),
    both::unused(&drive::UNUSED).privilege(Privilege::Disk),
    key("usb", ValueFormat::Property(&parts::USB), "A USB device.")
        .slots(14)
        .applies(Applies::Hotplug(HotplugFeature::Usb))
        .disrupts()
        .privilege(Privilege::Hardware),
    key("vcpus", ValueFormat::Integer { min: 1, max: MAX }, "CPUs plugged in at start.")
        .applies(Applies::Hotplug(HotplugFeature::Cpu))
        .privilege(Privilege::Cpu)
        .hub_may(),
    key("vga", ValueFormat::Property(&parts::VGA), "Display adapter.")
        .disrupts()
        .privilege(Privilege::Hardware),
    bus("virtio", &drive::VIRTIO, 16),
    key(
        "virtiofs",
        ValueFormat::Property(&parts::SHARED_DIRECTORY),
        "A host directory shared by virtiofs.",
    )
    .slots(10)
    .disrupts()
    .privilege(Privilege::Disk)
    .since(Release::V8_4),
    key("vmgenid", ValueFormat::GeneratedUuid, "Generation id; 1 asks for a new one.")
        .absent(Absent::ServerFilled)
        .disrupts()
        .root_only(),
    key("vmstatestorage", ValueFormat::Text(Rule::ConfigId), "Storage for suspended memory.")
        .live()
        .privilege(Privilege::Disk),
    key("watchdog", ValueFormat::Property(&parts::WATCHDOG), "A virtual watchdog.")
        .disrupts()
        .privilege(Privilege::Hardware),
];
