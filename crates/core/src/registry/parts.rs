//! The property strings of containers and virtual machines, part by part. Drives are in `drive.rs`.

use super::Releases;
use super::format::{Absent, FormatPart, Rule, Shape, ValueFormat, flag, part};
use crate::model::release::Release;

const MAX: i64 = super::format::UNBOUNDED;

pub(super) const STARTUP: Shape = Shape::new(&[
    part("down", ValueFormat::Integer { min: 0, max: MAX }),
    part("order", ValueFormat::Integer { min: 0, max: MAX }),
    part("up", ValueFormat::Integer { min: 0, max: MAX }),
])
.bare("order");

// Containers.

pub(super) const LXC_DEVICE: Shape = Shape::new(&[
    flag("deny-write").releases(Releases::from(Release::V8_3)),
    part("gid", ValueFormat::Integer { min: 0, max: MAX }),
    part("mode", ValueFormat::Text(Rule::FileMode)),
    part("path", ValueFormat::Text(Rule::Path)).required(),
    part("uid", ValueFormat::Integer { min: 0, max: MAX }),
])
.bare("path");

pub(super) const LXC_FEATURES: Shape = Shape::new(&[
    flag("force_rw_sys").root_only(),
    flag("fuse").root_only(),
    flag("keyctl").root_only(),
    flag("mknod").root_only(),
    part("mount", ValueFormat::Words { item: Rule::Word, separator: ';' }).root_only(),
    flag("nesting"),
]);

const MOUNT_OPTIONS: FormatPart =
    part("mountoptions", ValueFormat::Words { item: Rule::MountOption, separator: ';' });
const REPLICATE: FormatPart = part("replicate", ValueFormat::Bool).absent(Absent::Bool(true));
const IDMAP: FormatPart =
    part("idmap", ValueFormat::Text(Rule::Line)).releases(Releases::from(Release::V9_2));
const SIZE: FormatPart = part("size", ValueFormat::Size).when_declared();
const VOLUME: FormatPart = part("volume", ValueFormat::Volume).required();

pub(super) const LXC_MOUNT: Shape = Shape::new(&[
    flag("acl"),
    flag("backup"),
    IDMAP,
    flag("keepattrs").releases(Releases::from(Release::V9_2)),
    MOUNT_OPTIONS,
    part("mp", ValueFormat::Text(Rule::Path)).required(),
    flag("quota"),
    REPLICATE,
    flag("ro"),
    flag("shared"),
    SIZE,
    VOLUME,
])
.bare("volume");

pub(super) const LXC_ROOT: Shape = Shape::new(&[
    flag("acl"),
    IDMAP,
    MOUNT_OPTIONS,
    flag("quota"),
    REPLICATE,
    flag("ro"),
    flag("shared"),
    SIZE,
    VOLUME,
])
.bare("volume");

pub(super) const LXC_UNUSED: Shape = Shape::new(&[VOLUME]).bare("volume");

pub(super) const LXC_NETWORK: Shape = Shape::new(&[
    part("bridge", ValueFormat::Text(Rule::Interface)),
    flag("firewall"),
    part("gw", ValueFormat::Ip4),
    part("gw6", ValueFormat::Ip6),
    // Proxmox VE sets it by itself for a container that is made from an OCI image.
    part("host-managed", ValueFormat::Bool).releases(Releases::from(Release::V9_1)).when_declared(),
    part("hwaddr", ValueFormat::Mac).when_declared(),
    part("ip", ValueFormat::Cidr4),
    part("ip6", ValueFormat::Cidr6),
    flag("link_down"),
    part("mtu", ValueFormat::Integer { min: 64, max: 65535 }),
    part("name", ValueFormat::Text(Rule::Interface)).required(),
    part("rate", ValueFormat::Number { max: MAX }),
    part("tag", ValueFormat::Integer { min: 1, max: 4094 }),
    part("trunks", ValueFormat::Words { item: Rule::Number, separator: ';' }),
    part("type", ValueFormat::Choice(&["veth"])).absent(Absent::Text("veth")),
]);

// Virtual machines.

pub(super) const AGENT: Shape = Shape::new(&[
    part("enabled", ValueFormat::Bool).absent(Absent::Bool(false)).required(),
    // The oldest of its names: every release that has it under a newer one takes this one too.
    part("freeze-fs-on-backup", ValueFormat::Bool)
        .aliases(&["freeze-fs", "guest-fsfreeze"])
        .absent(Absent::Bool(true)),
    flag("fstrim_cloned_disks"),
    part("type", ValueFormat::Choice(&["virtio", "isa"])).absent(Absent::Text("virtio")),
])
.bare("enabled")
.switch("enabled");

pub(super) const AUDIO: Shape = Shape::new(&[
    part("device", ValueFormat::Choice(&["ich9-intel-hda", "intel-hda", "AC97"])).required(),
    part("driver", ValueFormat::Choice(&["spice", "none"])).absent(Absent::Text("spice")),
]);

pub(super) const CICUSTOM: Shape = Shape::new(&[
    part("meta", ValueFormat::Text(Rule::VolumeId)),
    part("network", ValueFormat::Text(Rule::VolumeId)),
    part("user", ValueFormat::Text(Rule::VolumeId)),
    part("vendor", ValueFormat::Text(Rule::VolumeId)),
]);

pub(super) const CPU: Shape = Shape::new(&[
    part("cputype", ValueFormat::Text(Rule::Word)).absent(Absent::Text("kvm64")),
    part("flags", ValueFormat::Words { item: Rule::Word, separator: ';' }),
    part("guest-phys-bits", ValueFormat::Integer { min: 32, max: 64 })
        .releases(Releases::from(Release::V9_1)),
    flag("hidden"),
    part("hv-vendor-id", ValueFormat::Text(Rule::Word)),
    part("phys-bits", ValueFormat::Text(Rule::Word)),
    part("reported-model", ValueFormat::Text(Rule::Word)).absent(Absent::Text("kvm64")),
])
.bare("cputype");

pub(super) const HOST_PCI: Shape = Shape::new(&[
    part("device-id", ValueFormat::Text(Rule::Word)),
    flag("driver").releases(Releases::from(Release::V9_0)),
    part("host", ValueFormat::Text(Rule::Line)).root_only(),
    flag("legacy-igd"),
    part("mapping", ValueFormat::Text(Rule::ConfigId)).releases(Releases::from(Release::V8_0)),
    part("mdev", ValueFormat::Text(Rule::Word)),
    flag("pcie"),
    part("rombar", ValueFormat::Bool).absent(Absent::Bool(true)),
    part("romfile", ValueFormat::Text(Rule::Line)).root_only(),
    part("sub-device-id", ValueFormat::Text(Rule::Word)),
    part("sub-vendor-id", ValueFormat::Text(Rule::Word)),
    part("vendor-id", ValueFormat::Text(Rule::Word)),
    flag("x-vga"),
])
.bare("host");

pub(super) const IP_CONFIG: Shape = Shape::new(&[
    part("gw", ValueFormat::Ip4),
    part("gw6", ValueFormat::Ip6),
    part("ip", ValueFormat::Cidr4),
    part("ip6", ValueFormat::Cidr6),
]);

pub(super) const SHARED_MEMORY: Shape = Shape::new(&[
    part("name", ValueFormat::Text(Rule::Word)),
    part("size", ValueFormat::Integer { min: 1, max: MAX }).required(),
]);

pub(super) const MACHINE: Shape = Shape::new(&[
    part("aw-bits", ValueFormat::Integer { min: 32, max: 64 })
        .releases(Releases::from(Release::V9_1)),
    part("enable-s3", ValueFormat::Bool).releases(Releases::from(Release::V8_2)),
    part("enable-s4", ValueFormat::Bool).releases(Releases::from(Release::V8_2)),
    part("type", ValueFormat::Text(Rule::Machine)),
    part("viommu", ValueFormat::Choice(&["intel", "virtio"]))
        .releases(Releases::from(Release::V8_2)),
])
.bare("type");

pub(super) const MEMORY: Shape = Shape::new(&[part("current", ValueFormat::Mebibytes { min: 16 })
    .absent(Absent::Integer(512))
    .required()])
.bare("current");

pub(super) const NETWORK_MODELS: &[&str] = &[
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

pub(super) const QEMU_NETWORK: Shape = Shape::new(&[
    part("bridge", ValueFormat::Text(Rule::Interface)),
    flag("firewall"),
    flag("host-tunnel").releases(Releases::from(Release::V9_2)),
    flag("link_down"),
    part("macaddr", ValueFormat::Mac).when_declared(),
    part("model", ValueFormat::Choice(NETWORK_MODELS)).required(),
    part("mtu", ValueFormat::Integer { min: 1, max: 65520 }),
    part("queues", ValueFormat::Integer { min: 0, max: 64 }).absent(Absent::Integer(0)),
    part("rate", ValueFormat::Number { max: MAX }),
    part("tag", ValueFormat::Integer { min: 1, max: 4094 }),
    part("trunks", ValueFormat::Words { item: Rule::Range, separator: ';' }),
])
.bare("model")
.model_is_key();

pub(super) const NUMA_NODE: Shape = Shape::new(&[
    part("cpus", ValueFormat::Words { item: Rule::Range, separator: ';' }).required(),
    part("hostnodes", ValueFormat::Words { item: Rule::Range, separator: ';' }),
    part("memory", ValueFormat::Number { max: MAX }),
    part("policy", ValueFormat::Choice(&["preferred", "bind", "interleave"])),
]);

pub(super) const RANDOM: Shape = Shape::new(&[
    part("max_bytes", ValueFormat::Integer { min: 0, max: MAX }).absent(Absent::Integer(1024)),
    part("period", ValueFormat::Integer { min: 0, max: MAX }).absent(Absent::Integer(1000)),
    part("source", ValueFormat::Choice(&["/dev/urandom", "/dev/random", "/dev/hwrng"])).required(),
])
.bare("source");

pub(super) const SEV: Shape = Shape::new(&[
    flag("allow-smt"),
    flag("kernel-hashes"),
    flag("no-debug"),
    flag("no-key-sharing"),
    part("type", ValueFormat::Choice(&["std", "es", "snp"])).required(),
])
.bare("type");

pub(super) const SMBIOS: Shape = Shape::new(&[
    flag("base64"),
    part("family", ValueFormat::Text(Rule::Line)),
    part("manufacturer", ValueFormat::Text(Rule::Line)),
    part("product", ValueFormat::Text(Rule::Line)),
    part("serial", ValueFormat::Text(Rule::Line)),
    part("sku", ValueFormat::Text(Rule::Line)),
    part("uuid", ValueFormat::Text(Rule::Word)).when_declared(),
    part("version", ValueFormat::Text(Rule::Line)),
]);

pub(super) const SPICE: Shape = Shape::new(&[
    flag("foldersharing"),
    part("videostreaming", ValueFormat::Choice(&["off", "all", "filter"]))
        .absent(Absent::Text("off")),
]);

pub(super) const TDX: Shape = Shape::new(&[
    part("attestation", ValueFormat::Bool).absent(Absent::Bool(true)),
    part("type", ValueFormat::Choice(&["tdx"])).required(),
    part("vsock-cid", ValueFormat::Integer { min: 0, max: MAX }),
    part("vsock-port", ValueFormat::Integer { min: 0, max: MAX }),
])
.bare("type");

pub(super) const USB: Shape = Shape::new(&[
    part("host", ValueFormat::Text(Rule::UsbHost)),
    part("mapping", ValueFormat::Text(Rule::ConfigId)).releases(Releases::from(Release::V8_0)),
    flag("usb3"),
])
.bare("host");

const DISPLAYS: &[&str] = &[
    "cirrus",
    "qxl",
    "qxl2",
    "qxl3",
    "qxl4",
    "none",
    "serial0",
    "serial1",
    "serial2",
    "serial3",
    "std",
    "virtio",
    "virtio-gl",
    "vmware",
];

pub(super) const VGA: Shape = Shape::new(&[
    part("clipboard", ValueFormat::Choice(&["vnc"])),
    part("memory", ValueFormat::Integer { min: 4, max: 512 }),
    part("type", ValueFormat::Choice(DISPLAYS)).absent(Absent::Text("std")),
])
.bare("type");

pub(super) const SHARED_DIRECTORY: Shape = Shape::new(&[
    part("cache", ValueFormat::Choice(&["auto", "always", "metadata", "never"]))
        .absent(Absent::Text("auto")),
    flag("direct-io"),
    part("dirid", ValueFormat::Text(Rule::ConfigId)).required(),
    flag("expose-acl"),
    flag("expose-xattr"),
])
.bare("dirid");

pub(super) const WATCHDOG: Shape = Shape::new(&[
    part(
        "action",
        ValueFormat::Choice(&["reset", "shutdown", "poweroff", "pause", "debug", "none"]),
    ),
    part("model", ValueFormat::Choice(&["i6300esb", "ib700"])),
])
.bare("model");
