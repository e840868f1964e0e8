//! What people write who come from Terraform, Ansible, Docker or the web interface, and what it is called here.
//!
//! The one table of other people's words. Desired files ask it when a name is unknown, so that the answer offers the
//! right key and not only the nearest spelling; nothing is ever accepted by it. A word stands here only if it is no key
//! itself for that kind of guest: the registry wins.

mod blocks;
mod parts;
mod words;

pub(crate) use blocks::{block, first, source};
pub(crate) use parts::{part, part_elsewhere};
pub(crate) use words::{choice, word};

use crate::model::id::GuestKind;

/// Words that are no key, and what to write instead.
struct KeyAlias {
    /// The words, lower case, `_` between parts, without a number at the end.
    words: &'static [&'static str],
    /// What to do for a container.
    lxc: &'static str,
    /// What to do for a machine.
    qemu: &'static str,
}

const fn alias(words: &'static [&'static str], lxc: &'static str, qemu: &'static str) -> KeyAlias {
    KeyAlias { words, lxc, qemu }
}

/// The same for both kinds.
const fn both(words: &'static [&'static str], advice: &'static str) -> KeyAlias {
    alias(words, advice, advice)
}

const LXC_NETWORK: &str = "write net0 = { name = \"eth0\", bridge = \"vmbr0\", ip = \"dhcp\" }";
const LXC_ADDRESS: &str =
    "it is a part of the network card: net0 = { …, ip = \"10.0.0.5/24\", gw = \"10.0.0.1\" }";
const LXC_DISK: &str = "write rootfs = { storage = \"local-lvm\", size = \"8GiB\" } for the root volume, and \
                        mp0 = { storage = \"local-lvm\", size = \"8GiB\", mp = \"/data\" } for a further one";
const QEMU_DISK: &str = "write scsi0 = { storage = \"local-lvm\", size = \"32GiB\" }; virtio0, sata0 and ide0 are the other buses";
const QEMU_NETWORK: &str = "write net0 = { model = \"virtio\", bridge = \"vmbr0\" }";
const QEMU_ADDRESS: &str = "a machine gets its address inside, or from cloud-init: ipconfig0 = { ip = \"10.0.0.5/24\", gw = \"10.0.0.1\" }";
const NO_HA: &str = "evenkeel leaves high availability to Proxmox VE: leave it out";

const KEYS: &[KeyAlias] = &[
    alias(
        &[
            "vcpu",
            "vcpus",
            "cpu",
            "cpus",
            "cpu_cores",
            "cpu_count",
            "num_cpus",
            "ncpu",
            "processors",
        ],
        "write `cores`",
        "write `cores` (of each socket); `vcpus` says how many of them are plugged in at start",
    ),
    alias(&["sockets", "socket"], "a container has no sockets: write `cores`", "write `sockets`"),
    alias(
        &["cpu_type", "cpu_model", "processor"],
        "a container sees the processor of the host: leave it out",
        "write `cpu`, such as cpu = \"host\"",
    ),
    both(&["cpu_shares", "cpu_weight", "shares"], "write `cpuunits`"),
    both(&["cpu_quota", "cpu_max"], "write `cpulimit`, in cores"),
    both(
        &[
            "mem",
            "ram",
            "mem_mb",
            "ram_mb",
            "memory_mb",
            "memory_mib",
            "mem_size",
            "memory_size",
            "maxmem",
            "max_memory",
        ],
        "write `memory`, such as memory = \"2GiB\"; a bare number is MiB",
    ),
    alias(
        &["min_memory", "minimum_memory", "floating", "balloon", "ballooning"],
        "a container takes only what it uses: write `memory`, which is the limit",
        "write `balloon`, the memory it may be shrunk to",
    ),
    alias(
        &["swap", "swap_size", "memory_swap"],
        "write `swap`",
        "a machine makes its swap inside, on its own disk: leave it out",
    ),
    alias(
        &[
            "disk",
            "disks",
            "disk_size",
            "hdd",
            "hd",
            "harddisk",
            "root_disk",
            "root_fs",
            "volume",
            "volumes",
            "storage",
            "size",
            "scsi",
            "virtio",
            "sata",
            "ide",
            "efidisk",
        ],
        LXC_DISK,
        QEMU_DISK,
    ),
    alias(
        &["mp", "mount", "mounts", "mount_point", "mount_points", "bind"],
        "write mp0 = { storage = \"local-lvm\", size = \"8GiB\", mp = \"/data\" }",
        "a machine mounts its disks inside; `virtiofs0` shares a directory of the host",
    ),
    alias(
        &["ostemplate", "template_file_id", "vztmpl"],
        "write source = { template = \"local:vztmpl/debian-12.tar.zst\" }",
        "write source = { clone = 9000 }, with the number of the template",
    ),
    alias(
        &["image", "disk_image", "cloud_image", "import_from", "import", "qcow2"],
        "write source = { template = \"local:vztmpl/debian-12.tar.zst\" }",
        "write source = { image = \"local:import/debian-12.qcow2\", into = \"scsi0\" }",
    ),
    both(
        &["clone", "cloned_from", "clone_from", "clone_id", "clone_vmid"],
        "write source = { clone = 9000 }, with the number of the guest to copy",
    ),
    both(
        &["full_clone", "linked_clone", "linked"],
        "write source = { clone = 9000, full = false } for a linked clone; a full one is the default",
    ),
    both(
        &["ephemeral", "temporary", "disposable", "throwaway"],
        "write scratch = true for a guest that nobody would miss",
    ),
    both(
        &["is_template", "convert_to_template", "templated"],
        "write template = true; the conversion waits for a signature",
    ),
    both(
        &["restore", "archive", "backup", "restore_from"],
        "write source = { backup = \"…\" } to make the guest from a backup; whether a volume is backed up is its \
         part `backup`",
    ),
    alias(
        &["iso", "cdrom", "cd", "dvd", "iso_file", "install_iso", "boot_iso"],
        "a container has no CD-ROM drive: leave it out",
        "write ide2 = \"local:iso/debian-12.iso,media=cdrom\"",
    ),
    alias(
        &["password", "passwd", "root_password", "rootpw", "user_password", "cipassword"],
        "many people read a desired file, so it holds no password: a new container gets one by \
         password = { secret = \"NAME\" } under [guest.101.first]; set another inside with `pct exec NUMBER -- passwd`",
        "many people read a desired file, so it holds no password: write `sshkeys` for cloud-init, or set one inside",
    ),
    alias(
        &[
            "sshkeys",
            "ssh_key",
            "ssh_public_keys",
            "ssh_public_key",
            "pubkey",
            "public_keys",
            "authorized_keys",
            "keys",
        ],
        "Proxmox VE takes SSH keys for a container only while it makes it: write ssh_keys = [\"…\"] under [guest.101.first]",
        "write sshkeys = [\"ssh-ed25519 AAAA… you@example\"]",
    ),
    alias(
        &["user", "username", "ci_user", "cloud_init_user"],
        "a container has no cloud-init: set its users up inside",
        "write `ciuser`",
    ),
    alias(
        &["cloud_init", "cloud_config", "initialization", "user_data", "ipconfig", "cicustom"],
        "a container has no cloud-init: its address is a part of net0, the rest is set up inside",
        "write ciuser, sshkeys and ipconfig0, and ide2 = \"local-lvm:cloudinit\" for the drive; own files go into cicustom",
    ),
    alias(
        &[
            "net",
            "network",
            "networks",
            "networking",
            "nic",
            "nics",
            "netif",
            "network_interface",
            "network_device",
            "bridge",
            "eth",
            "ens",
            "interface",
            "interfaces",
        ],
        LXC_NETWORK,
        QEMU_NETWORK,
    ),
    alias(
        &[
            "ip",
            "ips",
            "ipv4",
            "ipv6",
            "ip_address",
            "ip_addr",
            "address",
            "gateway",
            "gw",
            "netmask",
            "dhcp",
        ],
        LXC_ADDRESS,
        QEMU_ADDRESS,
    ),
    both(
        &["vlan", "vlan_id", "vlan_tag"],
        "a VLAN is the part `tag` of a network card: net0 = { …, tag = 5 }",
    ),
    both(&["tag"], "write tags = [\"web\"] for labels; a VLAN is the part `tag` of a network card"),
    both(
        &["mac", "macaddr", "mac_address", "hwaddr"],
        "it is a part of the network card, and kept as it is if you leave it out",
    ),
    both(&["firewall"], "it is a part of each network card: net0 = { …, firewall = true }"),
    both(
        &["dns", "dns_server", "dns_servers", "nameservers", "resolver", "resolvers"],
        "write nameserver = [\"9.9.9.9\"]",
    ),
    both(
        &["dns_domain", "domain", "search", "search_domain", "search_domains", "dns_search"],
        "write searchdomain = [\"example.com\"]",
    ),
    alias(
        &["name", "vm_name", "ct_name", "guest_name", "host_name", "host", "fqdn", "title"],
        "write `hostname`",
        "write `name`",
    ),
    both(
        &["vmid", "ctid", "id", "guest_id", "number"],
        "the number of a guest is in its heading: [guest.101]",
    ),
    both(
        &["node", "target_node", "node_name", "host_node", "target", "pve_node"],
        "an agent keeps the guests of its own node: leave it out",
    ),
    both(&["type", "vm_type", "guest_type", "virt"], "write kind = \"lxc\" or kind = \"qemu\""),
    both(&["notes", "note", "comment", "comments", "desc", "annotation"], "write `description`"),
    both(&["labels", "label", "category", "groups"], "write tags = [\"web\"]"),
    both(&["pool", "resource_pool", "pool_id"], "evenkeel does not manage pools: leave it out"),
    both(
        &["os", "os_type", "distro", "distribution", "guest_os", "operating_system"],
        "write `ostype`; `evenkeel explain ostype` lists its words",
    ),
    both(
        &[
            "autostart",
            "start_on_boot",
            "start_at_boot",
            "on_boot",
            "boot_start",
            "start_at_node_boot",
        ],
        "write onboot = true",
    ),
    both(
        &["start", "started", "running", "power", "power_state", "status", "vm_state"],
        "write run = \"running\" or run = \"stopped\"",
    ),
    alias(
        &["boot", "boot_order", "boot_disk"],
        "a container boots from rootfs; the order in which guests start is startup = { order = 2 }",
        "write boot = [\"scsi0\", \"net0\"] for its devices; the order in which guests start is startup = { order = 2 }",
    ),
    both(
        &["order", "startup_order", "start_order", "startup_delay", "depends_on", "priority"],
        "write startup = { order = 2, up = 30 }",
    ),
    alias(
        &["unprivileged", "privileged"],
        "write `unprivileged`, which is fixed when the container is made",
        "a machine has a kernel of its own: only containers are privileged or not",
    ),
    alias(
        &["nesting", "fuse", "keyctl", "mknod", "feature", "features", "nested"],
        "write features = { nesting = true }",
        "write cpu = \"host\" for machines inside a machine",
    ),
    alias(
        &["bios", "uefi", "efi", "firmware", "secure_boot"],
        "a container uses the kernel of the host: leave it out",
        "write bios = \"ovmf\", and efidisk0 = { storage = \"local-lvm\", size = \"4MiB\" }",
    ),
    alias(
        &["agent", "guest_agent", "qemu_agent", "qemu_guest_agent", "qga"],
        "a container needs no guest agent: leave it out",
        "write agent = true",
    ),
    alias(
        &["scsi_hardware", "scsi_controller", "scsi_controller_model", "scsi_type", "controller"],
        LXC_DISK,
        "write scsihw = \"virtio-scsi-single\"",
    ),
    alias(
        &["display", "video", "graphics", "gpu", "vga"],
        "a container has no display: leave it out",
        "write `vga`, such as vga = \"serial0\"",
    ),
    alias(
        &["timezone", "tz"],
        "write timezone = \"host\", or such as \"Europe/Vienna\"",
        "a machine sets its time zone inside: leave it out",
    ),
    both(
        &[
            "protect",
            "protected",
            "prevent_destroy",
            "lifecycle",
            "deletion_protection",
            "delete_protection",
        ],
        "write protection = true",
    ),
    both(&["ha", "ha_state", "ha_group"], NO_HA),
    both(
        &["ensure", "present", "absent", "exists"],
        "write state = \"present\" or state = \"absent\"",
    ),
    both(
        &["count", "for_each", "replicas", "instances"],
        "each guest has a block of its own: [guest.101], [guest.102]",
    ),
    both(
        &["delete", "remove", "remove_keys", "removed"],
        "write unset = [\"nameserver\"], with the keys that must be absent",
    ),
    both(
        &["env", "environment"],
        "write `env`, a list of NAME=value, which containers have from Proxmox VE 9.1 on",
    ),
    both(
        &["ignore_changes"],
        "a key that is not declared is left alone: leave out what evenkeel shall not keep",
    ),
];

/// What to write instead of a key that a guest of this kind does not have.
pub(crate) fn key(kind: GuestKind, written: &str) -> Option<&'static str> {
    let word = folded(written);
    let base = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let found = KEYS
        .iter()
        .find(|alias| is_one_of(&word, alias.words))
        .or_else(|| KEYS.iter().find(|alias| is_one_of(base, alias.words)))?;
    Some(match kind {
        GuestKind::Lxc => found.lxc,
        GuestKind::Qemu => found.qemu,
    })
}

/// Lower case, without marks between the parts of a word: `CPU-Cores`, `cpu_cores` and `cpuCores` are one word.
fn folded(written: &str) -> String {
    let letters = written.chars().filter(|letter| !matches!(letter, '-' | '_' | ' ' | '.'));
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

fn is_one_of(folded: &str, words: &[&str]) -> bool {
    words.iter().any(|word| word.chars().filter(|letter| *letter != '_').eq(folded.chars()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, Declarable};

    #[test]
    fn every_word_stands_once_and_finds_its_own_row() {
        let mut seen = std::collections::BTreeSet::new();
        for alias in KEYS {
            for word in alias.words {
                assert!(seen.insert(folded(word)), "{word} stands twice");
                assert_eq!(key(GuestKind::Lxc, word), Some(alias.lxc), "{word}");
                assert_eq!(key(GuestKind::Qemu, word), Some(alias.qemu), "{word}");
            }
        }
    }

    /// Every key in backquotes that an answer offers can be declared for that kind.
    #[test]
    fn what_is_offered_can_be_written() {
        let words = ["kind", "run", "source", "state", "stop", "unset", "current", "tag", "backup"];
        for alias in KEYS {
            for (kind, advice) in [(GuestKind::Lxc, alias.lxc), (GuestKind::Qemu, alias.qemu)] {
                for offered in advice.split('`').skip(1).step_by(2) {
                    let is_key = registry::find(kind, offered)
                        .is_some_and(|key| !matches!(key.key().declared, Declarable::No(_)));
                    let said = offered.contains(' ') || words.contains(&offered);
                    assert!(is_key || said || offered == "env", "{kind}: {advice}");
                }
            }
        }
    }

    #[test]
    fn a_word_is_found_in_any_spelling_and_with_a_number() {
        for word in ["disk", "disk0", "Disk1", "disk_0", "scsi0"] {
            assert_eq!(key(GuestKind::Lxc, word), Some(LXC_DISK), "{word}");
        }
        for word in ["cpuCores", "cpu-cores", "CPU_CORES", "vCPU"] {
            assert!(
                key(GuestKind::Lxc, word).is_some_and(|advice| advice.contains("cores")),
                "{word}"
            );
        }
        assert_eq!(key(GuestKind::Lxc, "coers"), None);
    }
}
