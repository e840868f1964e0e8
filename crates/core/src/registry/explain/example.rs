//! A value of each format as it may be written in a desired file: for answers about keys, and for messages that ask for one.

use crate::registry::{FormatPart, Rule, Shape, ValueFormat};

/// A value as it may be written in TOML. What is offered is taken: a test reads each one.
pub(crate) fn example(name: &str, format: &ValueFormat) -> String {
    match format {
        ValueFormat::Bool => "true".to_owned(),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            2.clamp(*min, *max).to_string()
        }
        ValueFormat::Mebibytes { .. } => "\"2GiB\"".to_owned(),
        ValueFormat::Number { .. } => "1.5".to_owned(),
        ValueFormat::Choice(words) => format!("\"{}\"", words[0]),
        ValueFormat::Text(rule) => format!("\"{}\"", text_example(name, *rule)),
        ValueFormat::Description(_) => "\"front end\"".to_owned(),
        ValueFormat::List { item, .. } | ValueFormat::Words { item, .. } => {
            format!("[\"{}\"]", text_example(name, *item))
        }
        ValueFormat::Tags => "[\"prod\", \"web\"]".to_owned(),
        ValueFormat::Hotplug => "[\"network\", \"disk\", \"usb\"]".to_owned(),
        ValueFormat::Boot => "[\"scsi0\", \"net0\"]".to_owned(),
        ValueFormat::Environment => "[\"LANG=C.UTF-8\"]".to_owned(),
        ValueFormat::SshKeys => "[\"ssh-ed25519 AAAA… you@example\"]".to_owned(),
        ValueFormat::Secret => "\"…\"".to_owned(),
        ValueFormat::GeneratedUuid => "\"1\"".to_owned(),
        ValueFormat::Volume => "\"local-lvm:8\"".to_owned(),
        ValueFormat::Size => "\"8GiB\"".to_owned(),
        ValueFormat::Mac => "\"BC:24:11:00:00:01\"".to_owned(),
        ValueFormat::Cidr4 => "\"10.0.0.5/24\"".to_owned(),
        ValueFormat::Cidr6 => "\"fd00::5/64\"".to_owned(),
        ValueFormat::Ip4 => "\"10.0.0.1\"".to_owned(),
        ValueFormat::Ip6 => "\"fd00::1\"".to_owned(),
        ValueFormat::Property(shape) => property_example(name, shape),
    }
}

fn property_example(name: &str, shape: &Shape) -> String {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let own = match base {
        "net" if shape.model_is_key => Some("{ model = \"virtio\", bridge = \"vmbr0\" }"),
        "net" => Some("{ name = \"eth0\", bridge = \"vmbr0\", ip = \"dhcp\" }"),
        "mp" => Some("{ storage = \"local-lvm\", size = \"8GiB\", mp = \"/data\" }"),
        "rootfs" | "scsi" | "virtio" | "sata" => {
            Some("{ storage = \"local-lvm\", size = \"32GiB\" }")
        }
        "ipconfig" => Some("{ ip = \"dhcp\" }"),
        "ide" => Some("\"local:iso/debian-12.iso,media=cdrom\""),
        _ => None,
    };
    if let Some(own) = own {
        return own.to_owned();
    }
    let written = |part: &FormatPart| example(part.name, &part.format);
    let bare = shape.bare.and_then(|bare| shape.part(bare));
    let needed: Vec<&FormatPart> = shape.parts.iter().filter(|part| part.required).collect();
    match (bare, needed.as_slice()) {
        // The part that may stand alone is what the key is about.
        (Some(bare), []) => written(bare),
        (Some(bare), [only]) if only.name == bare.name => written(bare),
        (_, needed) => {
            let first = shape.parts.iter().take(usize::from(needed.is_empty()));
            let parts = first.chain(needed.iter().copied());
            let parts: Vec<String> =
                parts.map(|part| format!("{} = {}", part.name, written(part))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
    }
}

/// A text that fits a rule.
fn text_example(name: &str, rule: Rule) -> &'static str {
    match rule {
        Rule::Line => "…",
        Rule::DnsName if name == "searchdomain" => "example.com",
        Rule::DnsName => "web",
        Rule::Address => "9.9.9.9",
        Rule::Tag => "web",
        Rule::ConfigId => "local-lvm",
        Rule::Interface if name == "bridge" => "vmbr0",
        Rule::Interface => "eth0",
        Rule::VolumeId => "local:snippets/first.yaml",
        Rule::Path => "/data",
        Rule::Range => "0-3",
        Rule::FileMode => "0660",
        Rule::TimeZone => "Europe/Vienna",
        Rule::Machine => "q35",
        Rule::Word => "host",
        Rule::UrlEncoded => "ABC123",
        Rule::Device => "scsi0",
        Rule::Number => "5",
        Rule::MountOption => "noatime",
        Rule::SerialPort => "socket",
        Rule::ParallelPort => "/dev/parport0",
        Rule::StartDate => "now",
        Rule::WorldWideName => "0x5000c500a1b2c3d4",
        Rule::UsbHost => "1-2.3",
        Rule::ScsiVendor => "ATA",
        Rule::ScsiProduct => "Disk_1",
    }
}
