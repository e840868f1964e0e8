//! The property strings of containers and virtual machines, part by part. Drives are in `drive.rs`.

use super::Releases;
use super::format::{Absent, Format, Part, Rule, Shape, flag, part};
use crate::release::Release;

const MAX: i64 = super::format::UNBOUNDED;

pub(super) const STARTUP: Shape = Shape::new(&[
    part("down", Format::Integer { min: 0, max: MAX }),
    part("order", Format::Integer { min: 0, max: MAX }),
    part("up", Format::Integer { min: 0, max: MAX }),
])
.bare("order");

// Containers.

pub(super) const LXC_DEVICE: Shape = Shape::new(&[
    flag("deny-write").releases(Releases::from(Release::V8_3)),
    part("gid", Format::Integer { min: 0, max: MAX }),
    part("mode", Format::Text(Rule::FileMode)),
    part("path", Format::Text(Rule::Path)).required(),
    part("uid", Format::Integer { min: 0, max: MAX }),
])
.bare("path");

pub(super) const LXC_FEATURES: Shape = Shape::new(&[
    flag("force_rw_sys").root_only(),
    flag("fuse").root_only(),
    flag("keyctl").root_only(),
    flag("mknod").root_only(),
    part("mount", Format::Words { item: Rule::Word, separator: ';' }).root_only(),
    flag("nesting"),
]);

const MOUNT_OPTIONS: Part =
    part("mountoptions", Format::Words { item: Rule::MountOption, separator: ';' });
const REPLICATE: Part = part("replicate", Format::Bool).absent(Absent::Bool(true));
const IDMAP: Part = part("idmap", Format::Text(Rule::Line)).releases(Releases::from(Release::V9_2));
const SIZE: Part = part("size", Format::Size).when_declared();
const VOLUME: Part = part("volume", Format::Volume).required();

pub(super) const LXC_MOUNT: Shape = Shape::new(&[
    flag("acl"),
    flag("backup"),
    IDMAP,
    flag("keepattrs").releases(Releases::from(Release::V9_2)),
    MOUNT_OPTIONS,
    part("mp", Format::Text(Rule::Path)).required(),
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
    part("bridge", Format::Text(Rule::Interface)),
    flag("firewall"),
    part("gw", Format::Ip4),
    part("gw6", Format::Ip6),
    flag("host-managed").releases(Releases::from(Release::V9_1)),
    part("hwaddr", Format::Mac).when_declared(),
    part("ip", Format::Cidr4),
    part("ip6", Format::Cidr6),
    flag("link_down"),
    part("mtu", Format::Integer { min: 64, max: 65535 }),
    part("name", Format::Text(Rule::Interface)).required(),
    part("rate", Format::Number { max: MAX }),
    part("tag", Format::Integer { min: 1, max: 4094 }),
    part("trunks", Format::Words { item: Rule::Number, separator: ';' }),
    part("type", Format::Choice(&["veth"])).absent(Absent::Text("veth")),
]);

// Virtual machines.

pub(super) const AGENT: Shape = Shape::new(&[
    part("enabled", Format::Bool).absent(Absent::Bool(false)).required(),
    // The oldest of its names: every release that has it under a newer one takes this one too.
    part("freeze-fs-on-backup", Format::Bool)
        .aliases(&["freeze-fs", "guest-fsfreeze"])
        .absent(Absent::Bool(true)),
    flag("fstrim_cloned_disks"),
    part("type", Format::Choice(&["virtio", "isa"])).absent(Absent::Text("virtio")),
])
.bare("enabled")
.switch("enabled");

pub(super) const AUDIO: Shape = Shape::new(&[
    part("device", Format::Choice(&["ich9-intel-hda", "intel-hda", "AC97"])).required(),
    part("driver", Format::Choice(&["spice", "none"])).absent(Absent::Text("spice")),
]);

pub(super) const CICUSTOM: Shape = Shape::new(&[
    part("meta", Format::Text(Rule::VolumeId)),
    part("network", Format::Text(Rule::VolumeId)),
    part("user", Format::Text(Rule::VolumeId)),
    part("vendor", Format::Text(Rule::VolumeId)),
]);

pub(super) const CPU: Shape = Shape::new(&[
    part("cputype", Format::Text(Rule::Word)).absent(Absent::Text("kvm64")),
    part("flags", Format::Words { item: Rule::Word, separator: ';' }),
    part("guest-phys-bits", Format::Integer { min: 32, max: 64 })
        .releases(Releases::from(Release::V9_1)),
    flag("hidden"),
    part("hv-vendor-id", Format::Text(Rule::Word)),
    part("phys-bits", Format::Text(Rule::Word)),
    part("reported-model", Format::Text(Rule::Word)).absent(Absent::Text("kvm64")),
])
.bare("cputype");

pub(super) const HOST_PCI: Shape = Shape::new(&[
    part("device-id", Format::Text(Rule::Word)),
    flag("driver").releases(Releases::from(Release::V9_0)),
    part("host", Format::Text(Rule::Line)).root_only(),
    flag("legacy-igd"),
    part("mapping", Format::Text(Rule::ConfigId)).releases(Releases::from(Release::V8_0)),
    part("mdev", Format::Text(Rule::Word)),
    flag("pcie"),
    part("rombar", Format::Bool).absent(Absent::Bool(true)),
    part("romfile", Format::Text(Rule::Line)).root_only(),
    part("sub-device-id", Format::Text(Rule::Word)),
    part("sub-vendor-id", Format::Text(Rule::Word)),
    part("vendor-id", Format::Text(Rule::Word)),
    flag("x-vga"),
])
.bare("host");

pub(super) const IP_CONFIG: Shape = Shape::new(&[
    part("gw", Format::Ip4),
    part("gw6", Format::Ip6),
    part("ip", Format::Cidr4),
    part("ip6", Format::Cidr6),
]);

pub(super) const SHARED_MEMORY: Shape = Shape::new(&[
    part("name", Format::Text(Rule::Word)),
    part("size", Format::Integer { min: 1, max: MAX }).required(),
]);

pub(super) const MACHINE: Shape = Shape::new(&[
    part("aw-bits", Format::Integer { min: 32, max: 64 }).releases(Releases::from(Release::V9_1)),
    part("enable-s3", Format::Bool).releases(Releases::from(Release::V8_2)),
    part("enable-s4", Format::Bool).releases(Releases::from(Release::V8_2)),
    part("type", Format::Text(Rule::Machine)),
    part("viommu", Format::Choice(&["intel", "virtio"])).releases(Releases::from(Release::V8_2)),
])
.bare("type");

pub(super) const MEMORY: Shape = Shape::new(&[part("current", Format::Mebibytes { min: 16 })
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
    part("bridge", Format::Text(Rule::Interface)),
    flag("firewall"),
    flag("host-tunnel").releases(Releases::from(Release::V9_2)),
    flag("link_down"),
    part("macaddr", Format::Mac).when_declared(),
    part("model", Format::Choice(NETWORK_MODELS)).required(),
    part("mtu", Format::Integer { min: 1, max: 65520 }),
    part("queues", Format::Integer { min: 0, max: 64 }).absent(Absent::Integer(0)),
    part("rate", Format::Number { max: MAX }),
    part("tag", Format::Integer { min: 1, max: 4094 }),
    part("trunks", Format::Words { item: Rule::Range, separator: ';' }),
])
.bare("model")
.model_is_key();

pub(super) const NUMA_NODE: Shape = Shape::new(&[
    part("cpus", Format::Words { item: Rule::Range, separator: ';' }).required(),
    part("hostnodes", Format::Words { item: Rule::Range, separator: ';' }),
    part("memory", Format::Number { max: MAX }),
    part("policy", Format::Choice(&["preferred", "bind", "interleave"])),
]);

pub(super) const RANDOM: Shape = Shape::new(&[
    part("max_bytes", Format::Integer { min: 0, max: MAX }).absent(Absent::Integer(1024)),
    part("period", Format::Integer { min: 0, max: MAX }).absent(Absent::Integer(1000)),
    part("source", Format::Choice(&["/dev/urandom", "/dev/random", "/dev/hwrng"])).required(),
])
.bare("source");

pub(super) const SEV: Shape = Shape::new(&[
    flag("allow-smt"),
    flag("kernel-hashes"),
    flag("no-debug"),
    flag("no-key-sharing"),
    part("type", Format::Choice(&["std", "es", "snp"])).required(),
])
.bare("type");

pub(super) const SMBIOS: Shape = Shape::new(&[
    flag("base64"),
    part("family", Format::Text(Rule::Line)),
    part("manufacturer", Format::Text(Rule::Line)),
    part("product", Format::Text(Rule::Line)),
    part("serial", Format::Text(Rule::Line)),
    part("sku", Format::Text(Rule::Line)),
    part("uuid", Format::Text(Rule::Word)).when_declared(),
    part("version", Format::Text(Rule::Line)),
]);

pub(super) const SPICE: Shape = Shape::new(&[
    flag("foldersharing"),
    part("videostreaming", Format::Choice(&["off", "all", "filter"])).absent(Absent::Text("off")),
]);

pub(super) const TDX: Shape = Shape::new(&[
    part("attestation", Format::Bool).absent(Absent::Bool(true)),
    part("type", Format::Choice(&["tdx"])).required(),
    part("vsock-cid", Format::Integer { min: 0, max: MAX }),
    part("vsock-port", Format::Integer { min: 0, max: MAX }),
])
.bare("type");

pub(super) const USB: Shape = Shape::new(&[
    part("host", Format::Text(Rule::UsbHost)),
    part("mapping", Format::Text(Rule::ConfigId)).releases(Releases::from(Release::V8_0)),
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
    part("clipboard", Format::Choice(&["vnc"])),
    part("memory", Format::Integer { min: 4, max: 512 }),
    part("type", Format::Choice(DISPLAYS)).absent(Absent::Text("std")),
])
.bare("type");

pub(super) const SHARED_DIRECTORY: Shape = Shape::new(&[
    part("cache", Format::Choice(&["auto", "always", "metadata", "never"]))
        .absent(Absent::Text("auto")),
    flag("direct-io"),
    part("dirid", Format::Text(Rule::ConfigId)).required(),
    flag("expose-acl"),
    flag("expose-xattr"),
])
.bare("dirid");

pub(super) const WATCHDOG: Shape = Shape::new(&[
    part("action", Format::Choice(&["reset", "shutdown", "poweroff", "pause", "debug", "none"])),
    part("model", Format::Choice(&["i6300esb", "ib700"])),
])
.bare("model");
