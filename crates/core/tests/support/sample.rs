//! Sample values for every format of the registry, in the spelling PVE is sent.
//!
//! Two that differ per format, so that a test can set a key, change it and take it away. A sample that the
//! reader cannot read would pin nothing: the tests check that first.

use evenkeel_core::registry::{FormatPart, Rule, Shape, ValueFormat};

/// Two values that differ, where the format has two.
pub(crate) fn samples(format: &ValueFormat) -> [String; 2] {
    let pair = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
    match *format {
        ValueFormat::Bool => pair("1", "0"),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            [min.max(1).to_string(), (min.max(1) + 1).min(max).to_string()]
        }
        ValueFormat::Mebibytes { min } => [(min + 16).to_string(), (min + 32).to_string()],
        ValueFormat::Number { .. } => pair("1", "1.5"),
        ValueFormat::Choice(words) => pair(words[0], words[words.len() - 1]),
        ValueFormat::Text(rule) => texts(rule),
        ValueFormat::Description(_) => pair("front end", "back end"),
        ValueFormat::List { item, .. } | ValueFormat::Words { item, .. } => texts(item),
        ValueFormat::Tags => pair("a;b", "a;c"),
        ValueFormat::Hotplug => pair("network", "disk"),
        ValueFormat::Boot => pair("order=scsi0", "order=net0"),
        ValueFormat::Environment => pair("A=1", "A=2"),
        ValueFormat::SshKeys => pair("ssh-ed25519%20AAAA%20a", "ssh-ed25519%20BBBB%20b"),
        ValueFormat::Secret => pair("secret", "other"),
        ValueFormat::GeneratedUuid => {
            pair("11111111-2222-4333-8444-555555555555", "11111111-2222-4333-8444-666666666666")
        }
        ValueFormat::Volume => pair("local-lvm:vm-200-disk-0", "local-lvm:vm-200-disk-1"),
        ValueFormat::Size => pair("8G", "16G"),
        ValueFormat::Mac => pair("BC:24:11:00:00:01", "BC:24:11:00:00:02"),
        ValueFormat::Cidr4 => pair("10.0.0.5/24", "10.0.0.6/24"),
        ValueFormat::Cidr6 => pair("fd00::5/64", "fd00::6/64"),
        ValueFormat::Ip4 => pair("10.0.0.1", "10.0.0.2"),
        ValueFormat::Ip6 => pair("fd00::1", "fd00::2"),
        ValueFormat::Property(shape) => property(shape),
    }
}

/// The least a property string needs, and the same with one value changed.
fn property(shape: &Shape) -> [String; 2] {
    let part = shape.parts.iter().find(|part| part.required).or_else(|| shape.parts.first());
    [0, 1].map(|which| with_part(shape, part.expect("a shape has parts"), which))
}

/// A property string with what is required and one part more.
pub(crate) fn with_part(shape: &Shape, part: &FormatPart, which: usize) -> String {
    let mut pieces: Vec<String> = required(shape, part).into_iter().map(named).collect();
    pieces.push(named((part.name, samples(&part.format)[which].clone())));
    pieces.join(",")
}

/// A property string with what is required but for one part; empty if nothing else is.
pub(crate) fn without_part(shape: &Shape, part: &FormatPart) -> String {
    required(shape, part).into_iter().map(named).collect::<Vec<_>>().join(",")
}

fn required(shape: &Shape, but: &FormatPart) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&'static str, String)> = shape
        .parts
        .iter()
        .filter(|part| part.required && but.name != part.name)
        .map(|part| (part.name, samples(&part.format)[0].clone()))
        .collect();
    // A gateway is refused without the fixed address it belongs to.
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        if but.name == gateway
            && let Some(address) = shape.part(address)
        {
            parts.push((address.name, samples(&address.format)[0].clone()));
        }
    }
    parts
}

fn named((name, value): (&str, String)) -> String {
    format!("{name}={value}")
}

fn texts(rule: Rule) -> [String; 2] {
    let (a, b) = match rule {
        Rule::Line => ("some text", "other text"),
        Rule::DnsName => ("a.example", "b.example"),
        Rule::Address => ("10.0.0.1", "10.0.0.2"),
        Rule::Tag => ("a", "b"),
        Rule::ConfigId => ("store-a", "store-b"),
        Rule::Interface => ("eth0", "eth1"),
        Rule::VolumeId => ("local:snippets/a", "local:snippets/b"),
        Rule::Path => ("/srv/a", "/srv/b"),
        Rule::Range => ("1-2", "3-4"),
        Rule::FileMode => ("0660", "0600"),
        Rule::TimeZone => ("host", "Europe/Vienna"),
        Rule::Machine => ("q35", "pc"),
        Rule::Word => ("word", "other"),
        Rule::UrlEncoded => ("A%20B", "C"),
        Rule::Device => ("scsi0", "net0"),
        Rule::Number => ("1", "2"),
        Rule::MountOption => ("noatime", "nodev"),
        Rule::SerialPort => ("socket", "/dev/ttyS0"),
        Rule::ParallelPort => ("/dev/parport0", "/dev/usb/lp0"),
        Rule::StartDate => ("2006-06-17", "now"),
        Rule::WorldWideName => ("0x5000c50015ea71ac", "0x5000c50015ea71ad"),
        Rule::UsbHost => ("1-2", "spice"),
        Rule::ScsiVendor => ("vendor-a", "vendor-b"),
        Rule::ScsiProduct => ("product-a", "product-b"),
    };
    [a.to_owned(), b.to_owned()]
}
