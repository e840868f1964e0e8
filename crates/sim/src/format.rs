//! Value formats: what a single text must look like, and what PVE says when it does not.
//!
//! Called by the schema check for every parameter and every key inside a property string. Pure; it
//! must never panic on any text.

/// Why a text was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FormatRefusal {
    /// PVE prints `invalid format - TEXT` and a newline.
    Text(String),
    /// PVE prints `value does not match the regex pattern`.
    Pattern,
}

fn text<T>(message: impl Into<String>) -> Result<T, FormatRefusal> {
    Err(FormatRefusal::Text(message.into()))
}

fn must(ok: bool, message: impl Into<String>) -> Result<(), FormatRefusal> {
    if ok { Ok(()) } else { text(message) }
}

/// Checks a named format (`is(...)` in the tables).
pub(crate) fn check(name: &str, value: &str) -> Result<(), FormatRefusal> {
    match name {
        "dns" => must(is_dns(value), "value does not look like a valid DNS name"),
        "dns-list" => each(value, |v| must(is_dns(v), "value does not look like a valid DNS name")),
        "ip-list" => each(value, |v| must(is_ip(v), "value does not look like a valid IP address")),
        "address-list" => {
            each(value, |v| must(is_ip(v) || is_dns(v), "value does not look like a valid address"))
        }
        "ipv4" => must(is_ipv4(value), "value does not look like a valid IPv4 address"),
        "ipv6" => must(is_ipv6(value), "value does not look like a valid IPv6 address"),
        "ipv4-config" => must(
            matches!(value, "dhcp" | "manual") || is_cidr(value, is_ipv4, 32),
            "value does not look like a valid ipv4 network configuration",
        ),
        "ipv6-config" => must(
            matches!(value, "auto" | "dhcp" | "manual") || is_cidr(value, is_ipv6, 128),
            "value does not look like a valid ipv6 network configuration",
        ),
        "mac" => must(is_mac(value), "value does not look like a valid unicast MAC address"),
        "tags" => each(value, |v| must(is_tag(v), "invalid characters in tag")),
        "configid" => must(is_configid(value), format!("invalid configuration ID '{value}'")),
        "configid-list" => {
            each(value, |v| must(is_configid(v), format!("invalid configuration ID '{v}'")))
        }
        "vmid" => must(is_vmid(value), "value does not look like a valid VM ID"),
        "storage" => {
            must(is_storage(value), format!("storage ID '{value}' contains illegal characters"))
        }
        "volume" => must(is_volume(value), format!("unable to parse volume ID '{value}'")),
        "startup" => must(is_startup(value), "unable to parse startup options"),
        "timezone" => must(is_timezone(value), format!("invalid time zone '{value}'")),
        "urlencoded" => must(
            value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.!~*'()%".contains(&b)),
            format!("invalid urlencoded string: {value}"),
        ),
        "size" => must(
            crate::property::parse_size(value).is_some(),
            "value does not look like a valid disk size",
        ),
        "task-status-list" => each(value, |v| {
            must(
                matches!(v, "ok" | "error" | "warning" | "unknown"),
                format!("invalid status '{v}'"),
            )
        }),
        other => check_guest_format(other, value),
    }
}

fn check_guest_format(name: &str, value: &str) -> Result<(), FormatRefusal> {
    match name {
        "mount-path" | "dev-path" | "bridge" => must(!value.is_empty(), "value must not be empty"),
        "drive-file" => must(
            matches!(value, "none" | "cdrom") || value.starts_with('/') || value.contains(':'),
            format!("unable to parse volume ID '{value}'"),
        ),
        "hotplug" => must(
            matches!(value, "0" | "1")
                || value.split([',', ';', ' ']).all(|v| {
                    matches!(v, "network" | "disk" | "cpu" | "memory" | "usb" | "cloudinit")
                }),
            format!("invalid hotplug feature '{value}'"),
        ),
        "cpuset" => must(
            !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b",-".contains(&b)),
            format!("unable to parse cpuset '{value}'"),
        ),
        "cpu-type" | "cpu-type-7" => must(
            value.starts_with("custom-")
                || (CPU_TYPES.contains(&value)
                    && !(name == "cpu-type-7" && value.starts_with("x86-64"))),
            format!("Built-in cputype '{value}' is not defined (missing 'custom-' prefix?)"),
        ),
        "boot-devices" => {
            each(value, |v| must(is_boot_device(v), format!("invalid boot device '{v}'")))
        }
        "lxc-disk" => one_of(value, is_lxc_disk(value)),
        "lxc-volume" => one_of(value, is_lxc_disk(value) || indexed(value, "unused", 256)),
        "qemu-disk" => one_of(value, is_qemu_disk(value) || indexed(value, "unused", 256)),
        _ => Ok(()),
    }
}

/// Enumerations too long to list in a table; the text names the value as PVE does.
fn one_of(value: &str, ok: bool) -> Result<(), FormatRefusal> {
    must(ok, format!("value '{value}' does not have a value in the enumeration"))
}

/// Checks a named pattern (`like(...)` in the tables).
pub(crate) fn matches(name: &str, value: &str) -> bool {
    let all = |ok: fn(u8) -> bool| !value.is_empty() && value.bytes().all(ok);
    match name {
        "word" => all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)),
        "label" => value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_ ".contains(&b)),
        "number-list" => value.split(';').all(is_digits),
        "range-list" => value.split(';').all(|part| part.splitn(2, '-').all(is_digits)),
        "octal-mode" => {
            value.len() == 4 && value.starts_with('0') && all(|b| (b'0'..=b'7').contains(&b))
        }
        "mount-list" => all(|b| b.is_ascii_alphanumeric() || b"_; ".contains(&b)),
        "mount-options" => value.split(';').all(|v| {
            matches!(v, "discard" | "lazytime" | "noatime" | "nodev" | "noexec" | "nosuid")
        }),
        "resize" => crate::property::parse_resize(value).is_some(),
        "boot-letters" => !value.is_empty() && value.len() <= 4 && all(|b| b"acdn".contains(&b)),
        "machine" => {
            value == "pc"
                || value == "q35"
                || ["pc-", "virt"].iter().any(|prefix| value.starts_with(prefix))
        }
        "serial-port" => value == "socket" || value.starts_with("/dev/"),
        "parport" => value.starts_with("/dev/parport") || value.starts_with("/dev/usb/lp"),
        "usb-host" => value.eq_ignore_ascii_case("spice") || value.contains([':', '-']),
        "disk-name" => is_qemu_disk(value),
        "generation-id" => matches!(value, "0" | "1") || is_uuid(value),
        "wwn" => value.len() == 18 && value.starts_with("0x"),
        "printable" => all(|b| b == b'\t' || (b >= 0x20 && b != 0x7f)),
        "environment" => value.split('\0').all(|v| {
            v.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            })
        }),
        "start-date" => value == "now" || value.as_bytes().first().is_some_and(u8::is_ascii_digit),
        "cpu-flags" => value.split(';').all(|v| v.starts_with(['+', '-']) && v.len() > 1),
        _ => true,
    }
}

const CPU_TYPES: [&str; 24] = [
    "host",
    "max",
    "kvm32",
    "kvm64",
    "qemu32",
    "qemu64",
    "x86-64-v2",
    "x86-64-v2-AES",
    "x86-64-v3",
    "x86-64-v4",
    "EPYC",
    "EPYC-Rome",
    "EPYC-Milan",
    "EPYC-Genoa",
    "Haswell",
    "Broadwell",
    "Nehalem",
    "SandyBridge",
    "IvyBridge",
    "Westmere",
    "Skylake-Client",
    "Skylake-Server",
    "Cascadelake-Server",
    "Icelake-Server",
];

/// Splits a list the way PVE does: commas, semicolons and blanks, empty parts dropped.
pub(crate) fn split_list(value: &str) -> Vec<&str> {
    value.split([',', ';', ' ', '\t', '\n', '\0']).filter(|part| !part.is_empty()).collect()
}

fn each(
    value: &str,
    check: impl Fn(&str) -> Result<(), FormatRefusal>,
) -> Result<(), FormatRefusal> {
    split_list(value).into_iter().try_for_each(check)
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit())
}

fn is_dns(value: &str) -> bool {
    value.split('.').all(|label| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    })
}

fn is_ipv4(value: &str) -> bool {
    value.parse::<std::net::Ipv4Addr>().is_ok()
}

fn is_ipv6(value: &str) -> bool {
    value.split('%').next().is_some_and(|v| v.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_ip(value: &str) -> bool {
    is_ipv4(value) || is_ipv6(value)
}

fn is_cidr(value: &str, address: fn(&str) -> bool, bits: u8) -> bool {
    value
        .split_once('/')
        .is_some_and(|(ip, mask)| address(ip) && mask.parse::<u8>().is_ok_and(|mask| mask <= bits))
}

fn is_mac(value: &str) -> bool {
    let parts: Vec<&str> = value.split(':').collect();
    let bytes: Option<Vec<u8>> = parts
        .iter()
        .map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None })
        .collect();
    bytes.is_some_and(|bytes| bytes.len() == 6 && bytes[0] & 1 == 0)
}

fn is_tag(value: &str) -> bool {
    let mut bytes = value.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_-+.".contains(&b))
}

pub(crate) fn is_configid(value: &str) -> bool {
    value.len() >= 2
        && value.as_bytes()[0].is_ascii_alphabetic()
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

fn is_vmid(value: &str) -> bool {
    (3..=9).contains(&value.len()) && is_digits(value) && !value.starts_with('0')
}

fn is_storage(value: &str) -> bool {
    value.len() >= 2
        && value.as_bytes()[0].is_ascii_alphabetic()
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_volume(value: &str) -> bool {
    value.split_once(':').is_some_and(|(storage, name)| is_storage(storage) && !name.is_empty())
}

fn is_startup(value: &str) -> bool {
    value.split(',').all(|part| match part.split_once('=') {
        Some(("order" | "up" | "down", number)) => is_digits(number),
        Some(_) => false,
        None => is_digits(part),
    })
}

fn is_timezone(value: &str) -> bool {
    const AREAS: [&str; 12] = [
        "Africa",
        "America",
        "Antarctica",
        "Arctic",
        "Asia",
        "Atlantic",
        "Australia",
        "Europe",
        "Indian",
        "Pacific",
        "Etc",
        "US",
    ];
    matches!(value, "host" | "UTC" | "GMT" | "CET" | "EST" | "MST" | "Zulu")
        || value.split_once('/').is_some_and(|(area, place)| {
            AREAS.contains(&area)
                && !place.is_empty()
                && place.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-+/".contains(&b))
        })
}

fn is_uuid(value: &str) -> bool {
    value.len() == 36
        && value.bytes().enumerate().all(|(at, b)| {
            if matches!(at, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() }
        })
}

fn indexed(value: &str, prefix: &str, slots: u32) -> bool {
    value
        .strip_prefix(prefix)
        .is_some_and(|n| is_digits(n) && n.parse::<u32>().is_ok_and(|n| n < slots))
}

fn is_lxc_disk(value: &str) -> bool {
    value == "rootfs" || indexed(value, "mp", 256)
}

fn is_qemu_disk(value: &str) -> bool {
    [("ide", 4), ("sata", 6), ("scsi", 31), ("virtio", 16)]
        .iter()
        .any(|(prefix, slots)| indexed(value, prefix, *slots))
        || matches!(value, "efidisk0" | "tpmstate0")
}

fn is_boot_device(value: &str) -> bool {
    is_qemu_disk(value)
        || [("net", 32), ("usb", 14), ("hostpci", 16)]
            .iter()
            .any(|(prefix, slots)| indexed(value, prefix, *slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_refuse_with_the_words_of_pve() {
        assert_eq!(
            check("dns", "bad_host"),
            Err(FormatRefusal::Text("value does not look like a valid DNS name".into()))
        );
        assert!(check("dns", "web.example.").is_err() && check("dns", "WEB.Example.COM").is_ok());
        assert!(check("mac", "01:BB:CC:DD:EE:FF").is_err());
        assert!(check("tags", "a+b;c.d;e-f;_x").is_ok() && check("tags", "-a").is_err());
        assert!(check("configid", "s").is_err() && check("configid", "s1").is_ok());
        assert!(!matches("boot-letters", "net0") && matches("boot-letters", "cdn"));
    }
}
