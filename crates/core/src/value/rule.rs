//! What declared texts must look like, and the one spelling of addresses.
//!
//! Only declared values pass here; what PVE stores is taken as it is. The rules are PVE's own, so
//! that a file that validates is not refused later by the server for its form.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::model::quantity::QuantityError;
use crate::registry::Rule;
use crate::words::diagnostic::did_you_mean;

/// Why a declared value does not fit its format, and what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Misfit {
    /// The reason, as the end of a sentence about the value.
    pub why: String,
    /// What to write instead, if there is one obvious thing.
    pub hint: Option<String>,
    /// The piece of the text that is wrong, if it is not the whole.
    pub piece: Option<String>,
    /// The part of a property string it is about, if its name was written.
    pub part: Option<&'static str>,
}

impl Misfit {
    /// A misfit with a reason only.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None, piece: None, part: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the one of these words that was likely meant.
    #[must_use]
    pub(super) fn meant(self, written: &str, words: &[&str]) -> Self {
        match did_you_mean(written, words.iter().copied()) {
            Some(near) => self.hint(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// Names the piece that is wrong.
    #[must_use]
    pub fn piece(mut self, piece: impl Into<String>) -> Self {
        self.piece = Some(piece.into());
        self
    }
}

impl From<QuantityError> for Misfit {
    fn from(error: QuantityError) -> Self {
        Self { hint: error.hint(), ..Self::new(error.to_string()) }
    }
}

/// Checks a declared text against its rule.
pub(super) fn check(rule: Rule, text: &str) -> Result<(), Misfit> {
    if fits(rule, text) {
        Ok(())
    } else {
        Err(Misfit { hint: mended(rule, text), ..Misfit::new(expected(rule)) })
    }
}

/// Whether a text fits its rule.
fn fits(rule: Rule, text: &str) -> bool {
    match rule {
        Rule::Line => !text.chars().any(char::is_control),
        Rule::DnsName => is_dns_name(text),
        Rule::Address => is_address(text),
        Rule::Tag => is_tag(text),
        Rule::ConfigId => is_config_id(text),
        Rule::Interface => {
            !text.is_empty() && text.bytes().all(|b| is_word(b) || b"-.".contains(&b))
        }
        Rule::VolumeId => text
            .split_once(':')
            .is_some_and(|(storage, name)| is_config_id(storage) && is_volume_name(name)),
        Rule::Path => {
            text.starts_with('/') && !text.contains(',') && !text.chars().any(char::is_control)
        }
        Rule::Range => is_range(text),
        Rule::FileMode => {
            text.len() == 4
                && text.starts_with('0')
                && text.bytes().all(|b| (b'0'..=b'7').contains(&b))
        }
        Rule::TimeZone => {
            !text.is_empty() && text.bytes().all(|b| is_word(b) || b"/+-".contains(&b))
        }
        Rule::Machine => is_machine(text),
        Rule::Word => !text.is_empty() && text.bytes().all(|b| is_word(b) || b"-.+:".contains(&b)),
        Rule::UrlEncoded => is_url_encoded(text),
        Rule::Device => {
            let base = text.trim_end_matches(|c: char| c.is_ascii_digit());
            base.len() < text.len()
                && !base.is_empty()
                && base.bytes().all(|b| b.is_ascii_lowercase())
        }
        Rule::Number => is_digits(text),
        Rule::MountOption => MOUNT_OPTIONS.contains(&text),
        Rule::SerialPort => {
            text == "socket"
                || text.len() > "/dev/".len() && text.starts_with("/dev/") && fits(Rule::Path, text)
        }
        Rule::ParallelPort => ["/dev/parport", "/dev/usb/lp"]
            .iter()
            .any(|port| text.strip_prefix(port).is_some_and(is_digits)),
        Rule::StartDate => is_start_date(text),
        Rule::WorldWideName => text.strip_prefix("0x").is_some_and(|hex| is_hex(hex, 16)),
        Rule::UsbHost => is_usb_host(text),
        Rule::ScsiVendor => is_scsi_label(text, 8),
        Rule::ScsiProduct => is_scsi_label(text, 16),
    }
}

/// What to write for a text that misses its rule by little.
fn mended(rule: Rule, text: &str) -> Option<String> {
    let dashed = |text: &str| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        text.trim().chars().map(letter).collect()
    };
    let mended = match rule {
        Rule::DnsName | Rule::Tag => dashed(text),
        Rule::Path => format!("/{text}"),
        Rule::FileMode => format!("0{text}"),
        Rule::Line
        | Rule::Address
        | Rule::ConfigId
        | Rule::Interface
        | Rule::VolumeId
        | Rule::Range
        | Rule::TimeZone
        | Rule::Machine
        | Rule::Word
        | Rule::UrlEncoded
        | Rule::Device
        | Rule::Number
        | Rule::MountOption
        | Rule::SerialPort
        | Rule::ParallelPort
        | Rule::StartDate
        | Rule::WorldWideName
        | Rule::UsbHost
        | Rule::ScsiVendor
        | Rule::ScsiProduct => return None,
    };
    (!text.is_empty() && fits(rule, &mended)).then(|| format!("write \"{mended}\""))
}

/// What a rule asks for, as the end of "it must be".
pub(crate) fn expected(rule: Rule) -> &'static str {
    match rule {
        Rule::Line => "it must be one line without control characters",
        Rule::DnsName => {
            "it must be a DNS name: letters, digits and inner hyphens, parts joined by dots"
        }
        Rule::Address => "it must be an IP address",
        Rule::Tag => "a tag must start with a letter, digit or _ and go on with those or - + .",
        Rule::ConfigId => "it must be an id: a letter, then letters, digits, - _ or .",
        Rule::Interface => "it must be an interface name: letters, digits, - _ or .",
        Rule::VolumeId => "it must be a volume id: a storage, a colon, and a name on that storage",
        Rule::Path => "it must be an absolute path without commas",
        Rule::Range => "it must be a number or a range such as 2-4",
        Rule::FileMode => "it must be a file mode such as 0660",
        Rule::TimeZone => "it must be a time zone such as Europe/Vienna, or host",
        Rule::Machine => "it must be a machine type such as q35 or pc-i440fx-8.1",
        Rule::Word => "it must be one word of letters, digits and - _ . + :",
        Rule::UrlEncoded => "it must be percent-encoded text",
        Rule::Device => "it must be a device such as scsi0",
        Rule::Number => "it must be a number",
        Rule::MountOption => "it must be one of discard, lazytime, noatime, nodev, noexec, nosuid",
        Rule::SerialPort => "it must be socket, or a device such as /dev/ttyS0",
        Rule::ParallelPort => "it must be a port such as /dev/parport0 or /dev/usb/lp0",
        Rule::StartDate => "it must be now, or a date such as 2006-06-17T16:01:21",
        Rule::WorldWideName => "it must be 0x and 16 hex digits",
        Rule::UsbHost => {
            "it must be spice, VENDOR:PRODUCT such as 0951:1666, or BUS-PORT such as 1-2.3"
        }
        Rule::ScsiVendor => "it must be at most 8 letters, digits, blanks, - or _",
        Rule::ScsiProduct => "it must be at most 16 letters, digits, blanks, - or _",
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// What PVE lets a container's mount be mounted with.
pub(crate) const MOUNT_OPTIONS: &[&str] =
    &["discard", "lazytime", "noatime", "nodev", "noexec", "nosuid"];

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Digits of these lengths with a mark between them.
fn is_digit_groups(text: &str, mark: char, lengths: [std::ops::RangeInclusive<usize>; 3]) -> bool {
    let groups: Vec<&str> = text.split(mark).collect();
    groups.len() == 3
        && groups
            .iter()
            .zip(lengths)
            .all(|(group, length)| is_digits(group) && length.contains(&group.len()))
}

fn is_start_date(text: &str) -> bool {
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    text == "now"
        || is_digit_groups(date, '-', [4..=4, 1..=2, 1..=2])
            && time.is_none_or(|time| is_digit_groups(time, ':', [1..=2, 1..=2, 1..=2]))
}

fn is_usb_host(text: &str) -> bool {
    let id = |part: &str| is_hex(part.strip_prefix("0x").unwrap_or(part), 4);
    text.eq_ignore_ascii_case("spice")
        || text.split_once(':').is_some_and(|(vendor, product)| id(vendor) && id(product))
        || text
            .split_once('-')
            .is_some_and(|(bus, port)| is_digits(bus) && port.split('.').all(is_digits))
}

fn is_scsi_label(text: &str, longest: usize) -> bool {
    text.len() <= longest && text.bytes().all(|b| is_word(b) || b"- ".contains(&b))
}

/// The name of a volume on its storage. A comma would end it inside a property string.
pub(super) fn is_volume_name(text: &str) -> bool {
    !text.is_empty()
        && !text.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b == b',')
}

fn is_config_id(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| is_word(b) || b"-.".contains(&b))
}

/// The longest DNS name.
const DNS_NAME_MAX: usize = 255;

fn is_dns_name(text: &str) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= DNS_NAME_MAX && text.split('.').all(label)
}

fn is_address(text: &str) -> bool {
    match text.split_once('%') {
        Some((address, zone)) => address.parse::<Ipv6Addr>().is_ok() && fits(Rule::Interface, zone),
        None => text.parse::<std::net::IpAddr>().is_ok(),
    }
}

fn is_tag(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.bytes().all(|b| is_word(b) || b"-+.".contains(&b))
}

fn is_range(text: &str) -> bool {
    match text.split_once('-') {
        Some((from, to)) => is_digits(from) && is_digits(to),
        None => is_digits(text),
    }
}

fn is_machine(text: &str) -> bool {
    let version = |rest: &str| {
        let rest = rest.strip_suffix(".pxe").unwrap_or(rest);
        let (version, revision) = rest.split_once("+pve").unwrap_or((rest, "0"));
        version.contains('.') && version.split('.').all(is_digits) && is_digits(revision)
    };
    matches!(text, "pc" | "q35" | "virt")
        || ["pc-i440fx-", "pc-q35-", "pc-", "virt-"]
            .iter()
            .any(|prefix| text.strip_prefix(prefix).is_some_and(version))
}

fn is_url_encoded(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| is_word(b) || b"%-.~()'*!".contains(&b))
        && percent_decode(text).is_some()
}

/// Whether a USB or serial value names a device of the host, which only root@pam may use.
pub fn is_root_device(text: &str) -> bool {
    !text.eq_ignore_ascii_case("spice") && text != "socket"
}

/// A MAC address in its one spelling: upper case. A multicast address is refused, as PVE does.
pub(super) fn mac(text: &str) -> Result<String, Misfit> {
    let groups: Vec<&str> = text.split(':').collect();
    let hex = |group: &&str| group.len() == 2 && group.bytes().all(|b| b.is_ascii_hexdigit());
    if groups.len() != 6 || !groups.iter().all(hex) {
        let colons = text.replace('-', ":");
        let misfit = Misfit::new("it must be a MAC address such as BC:24:11:00:00:01");
        return Err(if colons != text && mac(&colons).is_ok() {
            misfit.hint(format!("write {colons}"))
        } else {
            misfit
        });
    }
    let first = u8::from_str_radix(groups[0], 16).expect("two hex digits fit a byte");
    if first & 1 == 1 {
        return Err(Misfit::new("it is a multicast address: the first byte must be even"));
    }
    Ok(text.to_ascii_uppercase())
}

/// An IPv4 address with prefix length in its one spelling, or one of PVE's words.
pub(super) fn cidr4(text: &str) -> Result<String, Misfit> {
    cidr(text, &["dhcp", "manual"], 32, |address| {
        Some(address.parse::<Ipv4Addr>().ok()?.to_string())
    })
    .ok_or_else(|| {
        let why = "it must be dhcp, manual, or an address with a prefix such as 10.0.0.5/24";
        Misfit { hint: prefix_left_out(text, "24"), ..Misfit::new(why) }
    })
}

/// An IPv6 address with prefix length in its one spelling, or one of PVE's words.
pub(super) fn cidr6(text: &str) -> Result<String, Misfit> {
    cidr(text, &["auto", "dhcp", "manual"], 128, |address| {
        Some(address.parse::<Ipv6Addr>().ok()?.to_string())
    })
    .ok_or_else(|| {
        let why = "it must be auto, dhcp, manual, or an address with a prefix such as fd00::5/64";
        Misfit { hint: prefix_left_out(text, "64"), ..Misfit::new(why) }
    })
}

/// What to write for an address without a prefix.
fn prefix_left_out(text: &str, usual: &str) -> Option<String> {
    let plain = text.parse::<std::net::IpAddr>().is_ok();
    plain.then(|| format!("write {text}/{usual}, or the prefix that your network has"))
}

/// What to write for an address with a prefix where none belongs.
fn prefix_too_many(text: &str) -> Option<String> {
    let (address, _) = text.split_once('/')?;
    address.parse::<std::net::IpAddr>().ok().map(|_| format!("write {address}, without the prefix"))
}

/// The shortest prefix length PVE takes for a guest's address.
const PREFIX_MIN: u8 = 8;

fn cidr(
    text: &str,
    words: &[&str],
    longest: u8,
    canonical: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    if words.contains(&text) {
        return Some(text.to_owned());
    }
    let (address, prefix) = text.split_once('/')?;
    let plain = prefix.bytes().all(|b| b.is_ascii_digit()) && !prefix.starts_with('0');
    let length: u8 =
        prefix.parse().ok().filter(|length| plain && (PREFIX_MIN..=longest).contains(length))?;
    Some(format!("{}/{length}", canonical(address)?))
}

/// An IPv4 address in its one spelling.
pub(super) fn ip4(text: &str) -> Result<String, Misfit> {
    text.parse::<Ipv4Addr>().map(|address| address.to_string()).map_err(|_| Misfit {
        hint: prefix_too_many(text),
        ..Misfit::new("it must be an IPv4 address such as 10.0.0.1")
    })
}

/// An IPv6 address in its one spelling.
pub(super) fn ip6(text: &str) -> Result<String, Misfit> {
    text.parse::<Ipv6Addr>().map(|address| address.to_string()).map_err(|_| Misfit {
        hint: prefix_too_many(text),
        ..Misfit::new("it must be an IPv6 address such as fd00::1")
    })
}

/// Undoes percent encoding; none if it is broken or not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?);
            let low = char::from(rest.next()?);
            let value = high.to_digit(16)? * 16 + low.to_digit(16)?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes everything but unreserved characters.
pub fn percent_encode(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_take_what_pve_takes_and_no_more() {
        for (rule, good, bad) in [
            (Rule::DnsName, "CT.Example.COM", "a_b"),
            (Rule::Address, "fe80::1%eth0", "dns.example.com"),
            (Rule::Tag, "db_2", "-web"),
            (Rule::ConfigId, "local-lvm", "1abc"),
            (Rule::Interface, "vmbr0.10", "eth 0"),
            (Rule::VolumeId, "local:snippets/h.sh", "local:"),
            (Rule::Path, "/srv/x", "srv/x"),
            (Rule::Range, "2-4", "2-"),
            (Rule::FileMode, "0660", "660"),
            (Rule::TimeZone, "Europe/Vienna", "a b"),
            (Rule::Machine, "pc-q35-8.1+pve0", "q36"),
            (Rule::Word, "x86-64-v2-AES", "a,b"),
            (Rule::UrlEncoded, "ABC%20D", "ABC D"),
            (Rule::Device, "scsi0", "scsi"),
            (Rule::Line, "anything", "two\nlines"),
            (Rule::Number, "4094", "2-4"),
            (Rule::MountOption, "noatime", "rw"),
            (Rule::SerialPort, "/dev/ttyS0", "/dev/"),
            (Rule::ParallelPort, "/dev/usb/lp0", "/dev/lp0"),
            (Rule::StartDate, "2006-6-17T16:1:21", "2006-06-17 16:01"),
            (Rule::WorldWideName, "0x5000c500a1b2c3d4", "5000c500a1b2c3d4"),
            (Rule::UsbHost, "1-2.3", "1234:56789"),
            (Rule::ScsiVendor, "ATA Co", "ninechars"),
            (Rule::ScsiProduct, "Disk_1 two", "a/b"),
        ] {
            assert_eq!(check(rule, good), Ok(()), "{rule:?} {good}");
            assert!(check(rule, bad).is_err(), "{rule:?} {bad}");
        }
    }

    #[test]
    fn addresses_have_one_spelling() {
        assert_eq!(cidr6("FD00:0::1/64").unwrap(), "fd00::1/64");
        assert_eq!(cidr4("dhcp").unwrap(), "dhcp");
        assert!(
            cidr4("10.0.0.5").is_err() && cidr4("10.0.0.5/33").is_err() && cidr4("auto").is_err()
        );
        assert_eq!(mac("bc:24:11:aa:bb:cc").unwrap(), "BC:24:11:AA:BB:CC");
        assert!(mac("01:BB:CC:DD:EE:FF").is_err() && mac("BC:24:11:AA:BB").is_err());
    }

    proptest::proptest! {
        #[test]
        fn percent_encoding_round_trips(text in ".*") {
            proptest::prop_assert_eq!(percent_decode(&percent_encode(&text)), Some(text));
        }
    }
}
