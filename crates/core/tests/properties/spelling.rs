//! Values of every format of the registry, and the many ways the same value can be stored.
//!
//! What is made here is PVE's own text form, by an own reading of PVE's rules: nothing of core's
//! readers or printers is used, or both could be wrong together.
#![expect(clippy::wildcard_enum_match_arm, reason = "a format without spellings keeps its text")]

use evenkeel_core::registry::{Absent, Rule, Shape, Trailing, ValueFormat};

use crate::dice::Dice;

/// A value as PVE's text, property strings still in parts.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    Plain(String),
    Parts(Vec<(&'static str, String)>),
}

impl Said {
    /// The text PVE would be sent for it.
    pub(crate) fn text(&self, format: &ValueFormat) -> String {
        match (self, format) {
            (Self::Parts(parts), ValueFormat::Property(shape)) => joined(shape, parts),
            (Self::Plain(text), _) => text.clone(),
            (Self::Parts(_), _) => panic!("only property strings have parts"),
        }
    }
}

/// Some value of a format that a person may declare.
pub(crate) fn value(dice: &mut Dice, format: &ValueFormat, owner: &str) -> Said {
    match format {
        ValueFormat::Property(shape) => Said::Parts(parts(dice, shape, owner)),
        _ => Said::Plain(scalar(dice, format)),
    }
}

fn scalar(dice: &mut Dice, format: &ValueFormat) -> String {
    match *format {
        ValueFormat::Bool => dice.pick(&["0", "1"]).to_owned(),
        ValueFormat::Integer { min, max } => {
            let most = max.min(min + 4000);
            dice.pick(&[min, most, (min + 1).min(max), i64::midpoint(min, most)]).to_string()
        }
        ValueFormat::Weight { min, max } => {
            dice.pick(&[100, 1024, 512, 10_000, 20_000, min, min + 1, max]).to_string()
        }
        ValueFormat::Mebibytes { min } => {
            dice.pick(&[512, 2048, 4096, 1000, min.max(16)]).to_string()
        }
        ValueFormat::Number { .. } => dice.pick(&["0", "1", "1.5", "2.25", "0.1", "16"]).to_owned(),
        ValueFormat::Choice(words) => dice.pick(words).to_owned(),
        ValueFormat::Text(rule) => dice.pick(texts(rule)).to_owned(),
        ValueFormat::Description(_) => dice.pick(DESCRIPTIONS).to_owned(),
        ValueFormat::List { item, .. } => some_of(dice, texts(item), &[",", " ", ";"]),
        // Most of these are parts of property strings, where a comma would end the part.
        ValueFormat::Words { item, .. } => some_of(dice, texts(item), &[";"]),
        ValueFormat::Tags => {
            some_of(dice, &["web", "Prod", "db_2", "a+b", "web.1", "PROD"], &[";", ",", " "])
        }
        ValueFormat::Hotplug => dice
            .pick(&["network,disk,usb", "0", "1", "disk", "cpu,disk", "memory,network", "usb"])
            .to_owned(),
        ValueFormat::Boot => dice
            .pick(&["order=scsi0", "order=scsi0;net0", "order=net0;ide2", "cdn", "order=", "n"])
            .to_owned(),
        ValueFormat::Environment => some_of(dice, &["A=1", "LANG=C", "B=x y", "EMPTY="], &["\0"]),
        ValueFormat::SshKeys => some_of(
            dice,
            &[
                "ssh-ed25519 AAAAC3Nza user@host",
                "ssh-rsa AAAAB3+/= b",
                "ecdsa-sha2-nistp256 AAAAE2 é%20",
            ],
            &["\n"],
        ),
        ValueFormat::GeneratedUuid => {
            dice.pick(&["1", "8F2C1C9E-2A5B-4D0F-9B3C-0123456789AB", "0"]).to_owned()
        }
        ValueFormat::Size => dice.pick(&["8G", "4G", "16G", "1536M", "20G"]).to_owned(),
        ValueFormat::Mac => dice
            .pick(&[
                "BC:24:11:00:00:01",
                "bc:24:11:00:00:01",
                "BC:24:11:Aa:bB:02",
                "02:00:00:00:00:03",
            ])
            .to_owned(),
        ValueFormat::Cidr4 => {
            dice.pick(&["dhcp", "manual", "10.0.0.5/24", "10.0.0.6/24"]).to_owned()
        }
        ValueFormat::Cidr6 => {
            dice.pick(&["auto", "fd00::5/64", "FD00:0::5/64", "dhcp", "manual"]).to_owned()
        }
        ValueFormat::Ip4 => dice.pick(&["10.0.0.1", "10.0.0.2"]).to_owned(),
        ValueFormat::Ip6 => dice.pick(&["fd00::1", "FD00:0:0::1", "fe80::1"]).to_owned(),
        ValueFormat::Secret => "**********".to_owned(),
        ValueFormat::Volume | ValueFormat::Property(_) => panic!("made with their parts"),
    }
}

const DESCRIPTIONS: &[&str] = &[
    "front end",
    "",
    "two\nlines",
    "ümläut ✓",
    "  lead",
    "a: b #c",
    "trail  ",
    "x\n\n",
    "0.0",
    "%41",
];

fn texts(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::Line => &["spice", "some words", "01:00.0;02:00", "a=b", "socket", "Ünï"],
        Rule::DnsName => &["web", "db.example.com", "Web", "a-1"],
        Rule::Address => &["10.0.0.53", "fd00::53", "1.1.1.1"],
        Rule::Tag => &["web"],
        Rule::ConfigId => &["local-lvm", "map_1", "Dir.2"],
        Rule::Interface => &["eth0", "vmbr0", "vmbr1", "vmbr0.10"],
        Rule::VolumeId => &["local:snippets/hook.sh", "local:snippets/user.yaml"],
        Rule::Path => &["/data", "/srv/with space", "/dev/ttyS1"],
        Rule::Range => &["2", "4-7", "10"],
        Rule::FileMode => &["0660", "0600"],
        Rule::TimeZone => &["host", "Europe/Vienna"],
        Rule::Machine => &["q35", "pc", "pc-q35-8.1+pve0"],
        Rule::Word => &["host", "kvm64", "x86-64-v2-AES", "nfs"],
        Rule::UrlEncoded => &["ABC", "ABC%20D"],
        Rule::Device => &["scsi0", "net0"],
        Rule::Number => &["1", "30"],
        Rule::MountOption => &["noatime", "nodev", "discard"],
        Rule::SerialPort => &["socket", "/dev/ttyS1"],
        Rule::ParallelPort => &["/dev/parport0", "/dev/usb/lp1"],
        Rule::StartDate => &["now", "2006-06-17T16:01:21"],
        Rule::WorldWideName => &["0x5000c50015ea71ac"],
        Rule::UsbHost => &["spice", "1-2", "0x1234:5678"],
        Rule::ScsiVendor => &["QEMU", "Keel-1"],
        Rule::ScsiProduct => &["Disk", "Even_Keel 2"],
    }
}

/// None to three items of a list, joined by one of the separators.
fn some_of(dice: &mut Dice, words: &[&str], separators: &[&str]) -> String {
    let count = dice.pick(&[1, 2, 3, 0]);
    let words: Vec<&str> = (0..count).map(|_| dice.pick(words)).collect();
    words.join(dice.pick(separators))
}

/// Parts that are not for a file: PVE converts `bps` to a wrong `mbps`, and an import is a creation.
const LEFT_OUT: &[&str] = &["bps", "bps_rd", "bps_wr", "import-from"];

fn parts(dice: &mut Dice, shape: &Shape, owner: &str) -> Vec<(&'static str, String)> {
    let mut parts: Vec<(&'static str, String)> = Vec::new();
    let percent = if shape.parts.len() > 20 { 4 } else { 25 };
    for part in shape.parts {
        if matches!(part.format, ValueFormat::Volume | ValueFormat::Size)
            || LEFT_OUT.contains(&part.name)
        {
            continue;
        }
        if part.required || dice.chance(percent) {
            parts.push((part.name, scalar(dice, &part.format)));
        }
    }
    let fixed = |parts: &[(&str, String)], name: &str| {
        parts.iter().any(|(n, v)| *n == name && v.contains('/'))
    };
    let ip = fixed(&parts, "ip");
    let ip6 = fixed(&parts, "ip6");
    parts.retain(|(name, value)| {
        !value.is_empty() && (*name != "gw" || ip) && (*name != "gw6" || ip6)
    });
    if let Some(part) = shape.parts.iter().find(|part| matches!(part.format, ValueFormat::Volume)) {
        volume(dice, part.name, shape, owner, &mut parts);
    }
    parts
}

fn volume(
    dice: &mut Dice,
    name: &'static str,
    shape: &Shape,
    owner: &str,
    parts: &mut Vec<(&'static str, String)>,
) {
    let drive = shape.part("media").is_some();
    let sized = shape.part("size").is_some();
    let storage = dice.pick(&["local-lvm", "local-lvm", "tank"]);
    let (text, cdrom) = match dice.roll(10) {
        0..=5 if sized => {
            (format!("{storage}:{}", dice.pick(&["8", "4", "16", "1.5", "0.1"])), false)
        }
        6 if drive => ("none".to_owned(), true),
        7 if drive => (format!("{storage}:cloudinit"), false),
        8 if drive => ("local:iso/debian.iso".to_owned(), true),
        8 if name == "volume" && sized => ("/srv/data".to_owned(), false),
        _ => (format!("{storage}:{owner}-disk-{}", dice.pick(&[7, 8])), false),
    };
    let existing = text.contains("-disk-");
    parts.push((name, text));
    parts.retain(|(name, _)| *name != "media");
    if cdrom {
        parts.push(("media", "cdrom".to_owned()));
    }
    if existing && sized && dice.chance(50) {
        parts.push(("size", dice.pick(&["8G", "16G", "8192M"]).to_owned()));
    }
}

/// Parts as one property string, the bare one first.
pub(crate) fn joined(shape: &Shape, parts: &[(&'static str, String)]) -> String {
    let is_bare = |name: &str| shape.bare == Some(name);
    let bare = parts.iter().filter(|(name, _)| is_bare(name)).map(|(_, value)| value.clone());
    let named = parts
        .iter()
        .filter(|(name, _)| !is_bare(name))
        .map(|(name, value)| format!("{name}={value}"));
    bare.chain(named).collect::<Vec<String>>().join(",")
}

/// A property string taken apart, by names; PVE's `virtio=MAC` becomes two parts.
pub(crate) fn split(shape: &Shape, text: &str) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        match piece.split_once('=') {
            Some((name, value)) if shape.part(name).is_some() => {
                parts.push((shape.part(name).unwrap().name.to_owned(), value.to_owned()));
            }
            Some((model, mac)) if shape.model_is_key => {
                parts.push(("model".to_owned(), model.to_owned()));
                parts.push(("macaddr".to_owned(), mac.to_owned()));
            }
            Some((name, value)) => parts.push((name.to_owned(), value.to_owned())),
            None => parts.push((shape.bare.expect("a bare part").to_owned(), piece.to_owned())),
        }
    }
    parts
}

/// The same value, as PVE or a hand may have stored it.
pub(crate) fn respelled(
    dice: &mut Dice,
    format: &ValueFormat,
    text: &str,
    tags_have_case: bool,
) -> String {
    match format {
        ValueFormat::Number { .. } => number(dice, text),
        ValueFormat::List { .. } => relisted(dice, text, &[" ", ",", ";"]),
        ValueFormat::Tags => {
            let mut tags: Vec<&str> = text.split([',', ';', ' ']).collect();
            dice.shuffle(&mut tags);
            let text = tags.join(dice.pick(&[";", ",", " "]));
            if dice.chance(20) && !tags_have_case { text.to_uppercase() } else { text }
        }
        ValueFormat::Description(Trailing::Newlines) => {
            format!("{text}{}", dice.pick(&["\n", "", "\n\n"]))
        }
        ValueFormat::Description(Trailing::WhiteSpace) => text.trim_end().to_owned(),
        ValueFormat::Hotplug => {
            let mut words: Vec<&str> = text.split(',').collect();
            dice.shuffle(&mut words);
            words.sort_unstable_by_key(|word| *word == "0");
            let default = words.len() == 3
                && ["network", "disk", "usb"].iter().all(|word| words.contains(word));
            if default && dice.chance(50) { "1".to_owned() } else { words.join(",") }
        }
        ValueFormat::Boot
            if !text.starts_with("order=") && dice.chance(30) && !text.starts_with("legacy=") =>
        {
            format!("legacy={text}")
        }
        ValueFormat::Property(shape) => property(dice, shape, text),
        _ => text.to_owned(),
    }
}

fn property(dice: &mut Dice, shape: &Shape, text: &str) -> String {
    let mut parts = split(shape, text);
    // PVE leaves out that a drive is no CD-ROM; writing a default out says nothing new.
    for part in shape.parts {
        let there = parts.iter().any(|(name, _)| name == part.name);
        let default = match part.absent {
            Absent::Bool(on) => u8::from(on).to_string(),
            Absent::Integer(number) => number.to_string(),
            Absent::Text(text) => text.to_owned(),
            Absent::Nothing | Absent::ContainerName | Absent::CpuWeight | Absent::ServerFilled => {
                continue;
            }
        };
        if !there && !parts.is_empty() && part.name != "media" && dice.chance(5) {
            parts.push((part.name.to_owned(), default));
        }
    }
    dice.shuffle(&mut parts);
    let mut pieces = Vec::new();
    for (name, value) in parts {
        let Some(part) = shape.part(&name) else {
            pieces.push(format!("{name}={value}"));
            continue;
        };
        let value = part_value(dice, &part.format, &value);
        let name = if part.aliases.is_empty() || dice.chance(60) {
            part.name
        } else {
            dice.pick(part.aliases)
        };
        let bare = shape.bare == Some(part.name) && dice.chance(50);
        pieces.push(if bare { value } else { format!("{name}={value}") });
    }
    let comma = if dice.chance(10) && !pieces.is_empty() { "," } else { "" };
    format!("{}{comma}", pieces.join(","))
}

fn part_value(dice: &mut Dice, format: &ValueFormat, text: &str) -> String {
    match format {
        ValueFormat::Bool if ["1", "on", "yes", "true"].contains(&text.to_lowercase().as_str()) => {
            dice.pick(&["1", "on", "yes", "TRUE"]).to_owned()
        }
        ValueFormat::Bool => dice.pick(&["0", "off", "No", "false"]).to_owned(),
        ValueFormat::Number { .. } => number(dice, text),
        ValueFormat::Words { .. } => {
            let mut words: Vec<&str> = text.split(';').collect();
            dice.shuffle(&mut words);
            words.join(";")
        }
        ValueFormat::Size => {
            match text.strip_suffix('G').and_then(|digits| digits.parse::<u64>().ok()) {
                Some(gib) => {
                    let mib = gib * 1024;
                    let kib = gib * 1024 * 1024;
                    dice.pick(&[&format!("{gib}G"), &format!("{mib}M"), &format!("{kib}K")])
                        .to_owned()
                }
                None => text.to_owned(),
            }
        }
        ValueFormat::Cidr6 | ValueFormat::Ip6 if text.contains(':') && dice.chance(50) => {
            text.to_ascii_uppercase()
        }
        ValueFormat::Mac if dice.chance(30) => text.to_ascii_lowercase(),
        _ => text.to_owned(),
    }
}

fn number(dice: &mut Dice, text: &str) -> String {
    match (text.contains('.'), dice.roll(3)) {
        (_, 0) => text.to_owned(),
        (true, _) => format!("{text}0"),
        (false, 1) => format!("{text}.0"),
        (false, _) => format!("0{text}"),
    }
}

fn relisted(dice: &mut Dice, text: &str, separators: &[&str]) -> String {
    let items: Vec<&str> = text.split([',', ';', ' ']).filter(|item| !item.is_empty()).collect();
    items.join(dice.pick(separators))
}
