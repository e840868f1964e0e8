//! Other people's names for the parts of a value, such as a card's VLAN; a part that the shape has is never asked for here.

use super::super::Shape;
use super::{QEMU_ADDRESS, folded, is_one_of};

/// Words for parts of property strings, and the parts that may be meant: the first that the shape has.
const PARTS: &[(&[&str], &[&str])] = &[
    (&["vlan", "vlan_id", "vlan_tag", "vlanid"], &["tag"]),
    (
        &["mac", "mac_address", "mac_addr", "macaddr", "hwaddr", "hardware_address"],
        &["hwaddr", "macaddr"],
    ),
    (&["address", "ipv4", "ip_address", "ipaddr", "ip4", "ip_addr"], &["ip"]),
    (&["ipv6", "ip6_address", "address6"], &["ip6"]),
    (&["gateway", "gw4", "gateway4", "default_gateway"], &["gw"]),
    (&["gateway6"], &["gw6"]),
    (&["interface", "ifname", "device", "dev", "nic", "iface"], &["name"]),
    (&["type", "driver", "card"], &["model"]),
    (&["speed", "bandwidth", "rate_limit", "ratelimit", "limit"], &["rate"]),
    (&["network", "br", "switch", "bridge_name"], &["bridge"]),
    (&["link", "disconnected", "disconnect", "connected"], &["link_down"]),
    (&["file", "volume", "volid", "file_id", "image", "disk", "vol"], &["file", "volume"]),
    (&["path", "mountpoint", "mount_point", "mount", "target", "dir", "guest_path"], &["mp"]),
    (&["readonly", "read_only"], &["ro"]),
    (&["datastore", "datastore_id", "pool", "store"], &["storage"]),
    (&["capacity", "disk_size", "gb", "size_gb", "disksize"], &["size"]),
    (&["io_thread", "iothreads"], &["iothread"]),
    (&["ssd_emulation"], &["ssd"]),
    (&["options", "mount_options"], &["mountoptions"]),
    (&["cpu", "model", "type"], &["cputype"]),
    (&["order", "priority"], &["order"]),
    (&["delay", "up_delay", "startup_delay"], &["up"]),
    (&["down_delay", "shutdown_timeout"], &["down"]),
];

/// The part that was likely meant by one the shape does not have.
pub(crate) fn part(shape: &Shape, written: &str) -> Option<&'static str> {
    let word = folded(written);
    let has = |name: &&&str| {
        let fresh = **name == "storage" && shape.part("size").is_some();
        fresh || shape.part(name).is_some()
    };
    let mut found = PARTS.iter().filter(|(words, _)| is_one_of(&word, words));
    found.find_map(|(_, parts)| parts.iter().find(has)).copied()
}

/// What to do about a part that belongs elsewhere.
pub(crate) fn part_elsewhere(shape: &Shape, written: &str) -> Option<&'static str> {
    let word = folded(written);
    let network = shape.part("bridge").is_some();
    match word.as_str() {
        "dhcp" if shape.part("ip").is_some() => Some("write ip = \"dhcp\""),
        "netmask" | "prefix" | "cidr" if shape.part("ip").is_some() => {
            Some("the prefix is a part of the address: ip = \"10.0.0.5/24\"")
        }
        "ip" | "ip6" | "gw" | "gw6" | "address" | "gateway" | "dhcp" | "ipv4" | "ipaddress"
            if network =>
        {
            Some(QEMU_ADDRESS)
        }
        "model" if network => Some("a container's network card has no model: leave it out"),
        "bus" | "interface" | "slot" if shape.part("size").is_some() => {
            Some("the name of the key says the bus: scsi0, virtio0, sata0 or ide0")
        }
        _ => None,
    }
}
