//! Every configuration key of a container, one row each. Facts: Proxmox VE 7.4 to 9.2.

use super::format::{Absent, Rule, Trailing, ValueFormat};
use super::{Applies, Declarable, Hazard, Key, Privilege, both, kept, key, parts};
use crate::model::release::Release;

const ARCHITECTURES: &[&str] = &["amd64", "i386", "arm64", "armhf", "riscv32", "riscv64"];
const LOCKS: &[&str] = &[
    "backup",
    "create",
    "destroyed",
    "disk",
    "fstrim",
    "migrate",
    "mounted",
    "rollback",
    "snapshot",
    "snapshot-delete",
];
const SYSTEMS: &[&str] = &[
    "debian",
    "devuan",
    "ubuntu",
    "centos",
    "fedora",
    "opensuse",
    "archlinux",
    "alpine",
    "gentoo",
    "nixos",
    "unmanaged",
];

pub(super) const KEYS: &[Key] = &[
    key("arch", ValueFormat::Choice(ARCHITECTURES), "CPU architecture of the container.")
        .disrupts()
        .required(),
    key(
        "cmode",
        ValueFormat::Choice(&["shell", "console", "tty"]),
        "What the console attaches to.",
    )
    .absent(Absent::Text("tty")),
    key("console", ValueFormat::Bool, "Give the container a console device.")
        .absent(Absent::Bool(true)),
    key(
        "cores",
        ValueFormat::Integer { min: 1, max: 8192 },
        "CPU cores; all of the host's if unset.",
    )
    .live()
    .privilege(Privilege::Cpu)
    .hub_may(),
    both::cpu_limit(8192),
    both::cpu_units(0, 500_000),
    key("debug", ValueFormat::Bool, "Verbose log while starting.").absent(Absent::Bool(false)),
    both::description(Trailing::Newlines),
    key("dev", ValueFormat::Property(&parts::LXC_DEVICE), "A host device passed through.")
        .slots(256)
        .applies(Applies::LxcDevice)
        .disrupts()
        .root_only()
        .since(Release::V8_1),
    key("entrypoint", ValueFormat::Text(Rule::Line), "Command started as init.")
        .absent(Absent::Text("/sbin/init"))
        .disrupts()
        .since(Release::V9_1),
    key("env", ValueFormat::Environment, "Environment of the entry point, as NAME=value items.")
        .disrupts()
        .secret()
        .since(Release::V9_1),
    key(
        "features",
        ValueFormat::Property(&parts::LXC_FEATURES),
        "Kernel features the container may use.",
    )
    .disrupts(),
    both::HOOK_SCRIPT,
    key("hostname", ValueFormat::Text(Rule::DnsName), "Host name inside the container.")
        .absent(Absent::ContainerName)
        .applies(Applies::AtNextStart)
        .privilege(Privilege::Network),
    kept(
        "lock",
        ValueFormat::Choice(LOCKS),
        "a lock belongs to the task that set it; no call can undo it",
    ),
    key("memory", ValueFormat::Mebibytes { min: 16 }, "Memory; a bare number is MiB.")
        .absent(Absent::Integer(512))
        .live()
        .required()
        .privilege(Privilege::Memory)
        .hub_may(),
    key("mp", ValueFormat::Property(&parts::LXC_MOUNT), "A further volume, or a host directory.")
        .slots(256)
        .applies(Applies::LxcMount)
        .hazard(Hazard::VolumeSlot)
        .privilege(Privilege::Disk),
    key(
        "nameserver",
        ValueFormat::List { item: Rule::Address, separator: ' ' },
        "DNS servers, in order of use.",
    )
    .privilege(Privilege::Network),
    key("net", ValueFormat::Property(&parts::LXC_NETWORK), "A network interface.")
        .slots(32)
        .applies(Applies::LxcNetwork)
        .disrupts()
        .privilege(Privilege::Network),
    both::ON_BOOT,
    key("ostype", ValueFormat::Choice(SYSTEMS), "Distribution, for the files PVE edits inside.")
        .disrupts()
        .required(),
    both::protection("Refuse removal of the container and its volumes."),
    key(
        "rootfs",
        ValueFormat::Property(&parts::LXC_ROOT),
        "The root volume; it can grow, never shrink.",
    )
    .hazard(Hazard::RootVolume)
    .required()
    .privilege(Privilege::Disk),
    key(
        "searchdomain",
        ValueFormat::List { item: Rule::DnsName, separator: ' ' },
        "DNS search domains, in order of use.",
    )
    .privilege(Privilege::Network),
    both::STARTUP,
    key("swap", ValueFormat::Mebibytes { min: 0 }, "Swap; a bare number is MiB.")
        .absent(Absent::Integer(0))
        .live()
        .privilege(Privilege::Memory)
        .hub_may(),
    both::TAGS,
    both::template("The container is a template."),
    key("timezone", ValueFormat::Text(Rule::TimeZone), "Time zone inside, or `host`."),
    key("tty", ValueFormat::Integer { min: 0, max: 6 }, "Number of terminals.")
        .absent(Absent::Integer(2)),
    key("unprivileged", ValueFormat::Bool, "Run as an unprivileged user; fixed at creation.")
        .absent(Absent::Bool(false))
        .hazard(Hazard::Forbidden)
        .declared(Declarable::AtCreation),
    both::unused(&parts::LXC_UNUSED),
];
