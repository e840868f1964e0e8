//! Regular expressions for declared texts: one for each format, rule and property string.
//!
//! `value.rs` puts them into the schema. They say in the language of editors what `value::read` says
//! in Rust, and a property test holds the two together. Only what both JavaScript's and Rust's
//! engines know is used: classes, groups, repetition, lookahead and back references.

use super::number;
use crate::registry::{FormatPart, ListItem, Rule, Shape, Trailing, ValueFormat};
use crate::value::MOUNT_OPTIONS;
use crate::value::read::{BOOLEAN_WORDS, HOTPLUG_WORDS, SIZE_UNITS};

/// White space around a text, which the reader drops.
pub(super) const BLANK: &str = "[\\t\\n\\f\\r ]*";
/// What Rust's `trim_end` drops; `\s` is not the same in every engine.
const UNICODE_BLANK: &str =
    "[\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]*";
pub(super) const CONFIG_ID: &str = "[A-Za-z][A-Za-z0-9_.-]+";
const VOLUME_NAME: &str = "[^\\x00-\\x20\\x7f,]+";
const DEVICE: &str = "[a-z]+[0-9]+";
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
/// Pieces of a property string before the one that is looked for.
const PIECES: &str = "(?:[^,]*,)*";

/// A pattern for the whole text.
pub(super) fn whole(pattern: &str) -> String {
    format!("^(?:{pattern})$")
}

/// The text of a value, standing alone (`inside` none) or as a part of a property string.
pub(super) fn text(format: &ValueFormat, inside: Option<&Shape>) -> String {
    let separators = if inside.is_some() { "; \\t\\n\\f\\r\\x00" } else { ",; \\t\\n\\f\\r\\x00" };
    match *format {
        ValueFormat::Bool => any_case(&BOOLEAN_WORDS.concat()),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            number::zero_padded(min, max)
        }
        ValueFormat::Mebibytes { min } => {
            let bare = number::zero_padded(min, crate::registry::UNBOUNDED);
            format!("(?:{bare}|{})", number::size(min))
        }
        ValueFormat::Number { max } => number::decimal(max),
        ValueFormat::Choice(words) => {
            format!("(?:{})", words.iter().map(|word| escaped(word)).collect::<Vec<_>>().join("|"))
        }
        ValueFormat::Text(rule) => format!("{BLANK}{}{BLANK}", self::rule(rule, inside.is_some())),
        ValueFormat::Description(Trailing::Newlines) => "(?!0\\n*$)[\\s\\S]*".to_owned(),
        ValueFormat::Description(Trailing::WhiteSpace) => format!("(?!0{UNICODE_BLANK}$)[\\s\\S]*"),
        ValueFormat::List { item, .. } | ValueFormat::Words { item, .. } => {
            list(&rule(item, true), separators)
        }
        ValueFormat::Tags => list(&rule(Rule::Tag, true), separators),
        ValueFormat::Hotplug => {
            let words = list(&hotplug_word(), separators);
            let none = list("0", separators);
            format!("(?:{BLANK}1{BLANK}|{words}|{none})")
        }
        ValueFormat::Boot => format!(
            "{BLANK}(?:order=;*(?:{DEVICE}(?:;+{DEVICE})*)?;*|(?:legacy=)?[acdn]{{1,4}}){BLANK}"
        ),
        ValueFormat::Environment => {
            format!("\\x00*(?:{0}(?:\\x00+{0})*)?\\x00*", environment_item())
        }
        ValueFormat::SshKeys => {
            let word = "[^\\t\\n\\f\\r ]";
            format!(
                "(?:[\\s\\S]*{word}[\\t\\n\\f\\r ]+{word}[\\s\\S]*|(?:[^%]|{})*)",
                encoded_character()
            )
        }
        ValueFormat::Secret => "[\\s\\S]*".to_owned(),
        ValueFormat::GeneratedUuid => {
            "(?:[01]|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})".to_owned()
        }
        ValueFormat::Volume => volume(inside.is_some_and(|shape| shape.part("media").is_some())),
        ValueFormat::Size => number::size(0),
        ValueFormat::Mac => "[0-9A-Fa-f][02468ACEace](?::[0-9A-Fa-f]{2}){5}".to_owned(),
        ValueFormat::Cidr4 => format!("(?:dhcp|manual|{}/{})", address4(), number::whole(8, 32)),
        ValueFormat::Cidr6 => {
            format!("(?:auto|dhcp|manual|{}/{})", address6(), number::whole(8, 128))
        }
        ValueFormat::Ip4 => address4(),
        ValueFormat::Ip6 => address6(),
        ValueFormat::Property(shape) => property(shape),
    }
}

/// One item of a list.
pub(super) fn item(item: ListItem) -> String {
    match item {
        ListItem::Ruled(item) => rule(item, true),
        ListItem::HotplugWord => hotplug_word(),
        ListItem::BootDevice => DEVICE.to_owned(),
        ListItem::Variable => environment_item(),
        ListItem::SshKey => {
            // A key of several words, or a word that no percent encoding would change.
            let word = "[^\\t\\n\\f\\r ]";
            format!("(?:(?={word}+[\\t\\f\\r ])|(?![^%]*%)){word}(?:[^\\n]*{word})?")
        }
    }
}

/// A volume that is to be allocated.
pub(super) fn fresh_volume() -> String {
    format!("{CONFIG_ID}:[0-9][0-9.]*")
}

/// What a rule asks for. Inside a property string or a list, a comma ends the text.
fn rule(rule: Rule, comma_ends: bool) -> String {
    match rule {
        Rule::Line if comma_ends => "[^\\x00-\\x1f\\x7f-\\x9f,]*".to_owned(),
        Rule::Line => "[^\\x00-\\x1f\\x7f-\\x9f]*".to_owned(),
        Rule::DnsName => {
            let label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
            format!("(?![A-Za-z0-9.-]{{256}}){label}(?:\\.{label})*")
        }
        Rule::Address => format!("(?:{}|{}(?:%[A-Za-z0-9_.-]+)?)", address4(), address6()),
        Rule::Tag => "[A-Za-z0-9_][A-Za-z0-9_+.-]*".to_owned(),
        Rule::ConfigId => CONFIG_ID.to_owned(),
        Rule::Interface => "[A-Za-z0-9_.-]+".to_owned(),
        Rule::VolumeId => format!("{CONFIG_ID}:{VOLUME_NAME}"),
        Rule::Path => "/[^\\x00-\\x1f\\x7f-\\x9f,]*".to_owned(),
        Rule::Range => "[0-9]+(?:-[0-9]+)?".to_owned(),
        Rule::FileMode => "0[0-7]{3}".to_owned(),
        Rule::TimeZone => "[A-Za-z0-9_/+-]+".to_owned(),
        Rule::Machine => {
            let version = "[0-9]+(?:\\.[0-9]+)+(?:\\+pve[0-9]+)?(?:\\.pxe)?";
            format!("(?:pc|q35|virt|(?:pc|pc-i440fx|pc-q35|virt)-{version})")
        }
        Rule::Word => "[A-Za-z0-9_.+:-]+".to_owned(),
        Rule::UrlEncoded => format!("(?:[A-Za-z0-9_.~()'*!-]|{})+", encoded_character()),
        Rule::Device => DEVICE.to_owned(),
        Rule::Number => "[0-9]+".to_owned(),
        Rule::MountOption => format!("(?:{})", MOUNT_OPTIONS.join("|")),
        Rule::SerialPort => "(?:socket|/dev/[^\\x00-\\x1f\\x7f-\\x9f,]+)".to_owned(),
        Rule::ParallelPort => "/dev/(?:parport|usb/lp)[0-9]+".to_owned(),
        Rule::StartDate => {
            let two = "[0-9]{1,2}";
            format!("(?:now|[0-9]{{4}}-{two}-{two}(?:T{two}:{two}:{two})?)")
        }
        Rule::WorldWideName => "0x[0-9A-Fa-f]{16}".to_owned(),
        Rule::UsbHost => {
            let id = "(?:0x)?[0-9A-Fa-f]{4}";
            format!("(?:{}|{id}:{id}|[0-9]+-[0-9]+(?:\\.[0-9]+)*)", any_case(&["spice"]))
        }
        Rule::ScsiVendor => label(8),
        Rule::ScsiProduct => label(16),
    }
}

/// A SCSI label: the blanks around it do not count.
fn label(longest: usize) -> String {
    format!("(?:[A-Za-z0-9_-](?:[A-Za-z0-9_ -]{{0,{}}}[A-Za-z0-9_-])?)?", longest - 2)
}

/// Items between separators; one pair of quotes around the whole is dropped, as PVE does.
fn list(item: &str, separators: &str) -> String {
    let (inner, end) =
        if separators.starts_with(',') { ("[^\"]*", "$") } else { ("[^\",]*", "(?:,|$)") };
    let quotes = format!("(?={BLANK}(?:\"{inner}\"|{inner}){BLANK}{end})");
    format!("{quotes}(?:{item}(?=[{separators}\",]|$)|[{separators}\"])*")
}

fn hotplug_word() -> String {
    format!("(?:{})", HOTPLUG_WORDS.join("|"))
}

fn environment_item() -> String {
    "[A-Za-z0-9_]+=[^\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f]*".to_owned()
}

fn address4() -> String {
    format!("{OCTET}(?:\\.{OCTET}){{3}}")
}

/// The grammar of RFC 3986, by the number of groups before `::`.
fn address6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let address4 = address4();
    let mut choices =
        vec![format!("(?:{group}:){{7}}{group}"), format!("(?:{group}:){{6}}{address4}")];
    for before in 0..=7 {
        let head = match before {
            0 => String::new(),
            more => format!("(?:{group}:){{{}}}{group}", more - 1),
        };
        // `::` stands for at least one group, and an IPv4 address for two.
        let tail = match 7 - before {
            0 => String::new(),
            1 => format!("(?:{group})?"),
            left => format!(
                "(?:(?:{group}:){{0,{}}}{group}|(?:{group}:){{0,{}}}{address4})?",
                left - 1,
                left - 2
            ),
        };
        choices.push(format!("{head}::{tail}"));
    }
    format!("(?:{})", choices.join("|"))
}

/// One percent-encoded character of UTF-8.
fn encoded_character() -> String {
    let hex = "[0-9A-Fa-f]";
    let next = format!("%[89ABab]{hex}");
    format!(
        "%(?:[0-7]{hex}|[Cc][2-9A-Fa-f]{next}|[Dd]{hex}{next}|[Ee]0%[ABab]{hex}{next}\
         |[Ee][1-9A-Ca-cEeFf](?:{next}){{2}}|[Ee][Dd]%[89]{hex}{next}|[Ff]0%[9ABab]{hex}(?:{next}){{2}}\
         |[Ff][1-3](?:{next}){{3}}|[Ff]4%8{hex}(?:{next}){{2}})"
    )
}

fn volume(may_be_cdrom: bool) -> String {
    let path = rule(Rule::Path, true);
    let end = "(?:,|$)";
    let fresh = format!("{CONFIG_ID}:{}", number::allocation());
    // A size with a unit is meant as one, and refused with the number to write.
    let size = format!("[0-9][0-9.]*(?:{})?{end}", any_case(SIZE_UNITS));
    if may_be_cdrom {
        let existing = format!("{CONFIG_ID}:(?!{size}){VOLUME_NAME}");
        return format!("(?:none|cdrom|{path}|{fresh}|{existing})");
    }
    let cloud_init = format!("(?:[^,]*/)?vm-[0-9]+-cloudinit(?:\\.[^,/]*)?{end}");
    let existing = format!("{CONFIG_ID}:(?!{size}|cloudinit{end}|{cloud_init}){VOLUME_NAME}");
    format!("(?:{path}|{fresh}|{existing})")
}

/// A property string: conditions on the whole first, then pieces between commas.
fn property(shape: &Shape) -> String {
    let mut conditions = vec![
        // No name twice.
        format!("(?!{PIECES}([^,=]+)=[^,]*,{PIECES}\\1=)"),
    ];
    let mut pieces = Vec::new();
    for part in shape.parts.iter().filter(|part| part.instead.is_none()) {
        let names = names(part);
        let value = text(&part.format, Some(shape));
        pieces.push(format!("{names}=(?!,|$){value}"));
        let starts = starts(shape, part);
        if part.required {
            conditions.push(format!("(?={PIECES}{starts})"));
        }
        if starts != format!("{}=", part.name) {
            conditions.push(format!("(?!{PIECES}{starts}[^,]*,{PIECES}{starts})"));
        }
    }
    if let Some(bare) = shape.bare.and_then(|name| shape.part(name)) {
        pieces.push(format!("(?![^,]*=){}", text(&bare.format, Some(shape))));
    }
    if let Some(models) = models(shape) {
        pieces.push(format!("{models}={}", text(&ValueFormat::Mac, Some(shape))));
    }
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        if shape.part(gateway).is_some() && shape.part(address).is_some() {
            conditions.push(format!("(?:(?!{PIECES}{gateway}=)|(?={PIECES}{address}=[^,]*/))"));
        }
    }
    if shape.part("media").is_some() {
        let volume = shape.parts.iter().find(|part| matches!(part.format, ValueFormat::Volume));
        let names = volume.map(names).unwrap_or_default();
        conditions.push(format!(
            "(?!(?={PIECES}media=cdrom(?:,|$)){PIECES}(?:{names}=)?{}(?:,|$))",
            fresh_volume()
        ));
    }
    format!("{}(?:(?:{})(?=,|$)|,)*", conditions.concat(), pieces.join("|"))
}

/// How a piece that gives this part begins: by a name, bare, or by a network model.
fn starts(shape: &Shape, part: &FormatPart) -> String {
    let mut starts = vec![format!("{}=", names(part))];
    if shape.bare == Some(part.name) {
        starts.push("[^=,]+(?=,|$)".to_owned());
    }
    if let Some(models) = models(shape).filter(|_| matches!(part.name, "model" | "macaddr")) {
        starts.push(format!("{models}="));
    }
    match starts.as_slice() {
        [one] => one.clone(),
        many => format!("(?:{})", many.join("|")),
    }
}

/// The names of a part.
fn names(part: &FormatPart) -> String {
    if part.aliases.is_empty() {
        return escaped(part.name);
    }
    format!("(?:{}|{})", escaped(part.name), part.aliases.join("|"))
}

/// The models of a network card that may stand for `model`.
fn models(shape: &Shape) -> Option<String> {
    let model = shape.part("model").filter(|_| shape.model_is_key)?;
    Some(text(&model.format, Some(shape)))
}

/// Words in any case.
fn any_case(words: &[&str]) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphabetic() {
            format!("[{}{}]", letter.to_ascii_uppercase(), letter)
        } else {
            letter.to_string()
        }
    };
    let words: Vec<String> = words.iter().map(|word| word.chars().map(letter).collect()).collect();
    format!("(?:{})", words.join("|"))
}

/// A word as itself; the registry's words hold no other special character than the point.
pub(super) fn escaped(word: &str) -> String {
    word.replace('.', "\\.")
}
