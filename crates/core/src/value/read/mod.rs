//! From text to normal form: strictly for what a person declares, leniently for what PVE stores.
//!
//! Called by the desired checker and by observation. `declared` refuses with a reason a person can act
//! on; `stored` never refuses, because PVE may hold anything an older release or a hand wrote.

mod property;

use std::collections::BTreeSet;

pub(crate) use property::{
    comma, declarable, declared_volume, goes_together, normalise, part_advice, require,
};

use super::{Misfit, Value, VolumeRef, percent_decode, rule};
use crate::model::quantity::{Bytes, Decimal};
use crate::registry::{Rule, Trailing, UNBOUNDED, ValueFormat, alias};

/// Reads a declared text.
pub fn declared(format: &ValueFormat, text: &str) -> Result<Value, Misfit> {
    read(format, text, ReadSide::Declared)
}

/// Reads a stored text; what cannot be read becomes `Value::Odd`.
pub fn stored(format: &ValueFormat, text: &str) -> Value {
    read(format, text, ReadSide::Stored).unwrap_or_else(|_| Value::Odd(text.into()))
}

/// Reads a text that is about to be written: PVE's spelling, allocations allowed. What cannot be read
/// becomes `Value::Odd`, which the classifier holds for the worst.
pub fn written(format: &ValueFormat, text: &str) -> Value {
    read(format, text, ReadSide::Written).unwrap_or_else(|_| Value::Odd(text.into()))
}

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadSide {
    /// A person's: checked, friendly spellings allowed.
    Declared,
    /// PVE's: never checked.
    Stored,
    /// PVE's spelling of something not stored yet.
    Written,
}

fn read(format: &ValueFormat, text: &str, side: ReadSide) -> Result<Value, Misfit> {
    Ok(match *format {
        ValueFormat::Bool => Value::Bool(boolean(text)?),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            Value::Integer(integer(text, min, max, side)?)
        }
        ValueFormat::Mebibytes { min } => Value::Integer(mebibytes(text, min, side)?),
        ValueFormat::Number { max } => Value::Number(number(text, max, side)?),
        ValueFormat::Choice(words) => choice(text, words, side)?,
        ValueFormat::Text(item) => trimmed_text(text, item, side)?,
        ValueFormat::Description(trailing) => description(text, trailing, side)?,
        ValueFormat::List { item, .. } => Value::List(items(text, item, side)?),
        ValueFormat::Words { item, .. } => {
            Value::Set(items(text, item, side)?.into_iter().collect())
        }
        ValueFormat::Tags => Value::Set(items(text, Rule::Tag, side)?.into_iter().collect()),
        ValueFormat::Hotplug => hotplug(text, side)?,
        ValueFormat::Boot => boot(text, side)?,
        ValueFormat::Environment => environment(text, side)?,
        ValueFormat::SshKeys => ssh_keys(text)?,
        ValueFormat::Secret => Value::Secret,
        ValueFormat::GeneratedUuid => uuid(text, side)?,
        ValueFormat::Size => Value::Size(size(text, side)?),
        ValueFormat::Mac => spelled(text, rule::mac, side)?,
        ValueFormat::Cidr4 => spelled(text, rule::cidr4, side)?,
        ValueFormat::Cidr6 => spelled(text, rule::cidr6, side)?,
        ValueFormat::Ip4 => spelled(text, rule::ip4, side)?,
        ValueFormat::Ip6 => spelled(text, rule::ip6, side)?,
        ValueFormat::Volume => Value::Volume(volume(text, side)?.0.into()),
        ValueFormat::Property(shape) => Value::Property(property::read(shape, text, side)?),
    })
}

/// PVE's words for off and on, in any case.
pub(crate) const BOOLEAN_WORDS: [[&str; 4]; 2] =
    [["0", "off", "no", "false"], ["1", "on", "yes", "true"]];

pub(crate) fn boolean(text: &str) -> Result<bool, Misfit> {
    let [off, on] = BOOLEAN_WORDS;
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_one_of(on) {
        Ok(true)
    } else if is_one_of(off) {
        Ok(false)
    } else {
        Err(Misfit::new("it must be true or false"))
    }
}

fn integer(text: &str, min: i64, max: i64, side: ReadSide) -> Result<i64, Misfit> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number: Option<i64> = text.parse().ok().filter(|_| digits || side == ReadSide::Stored);
    within(number.ok_or_else(|| Misfit::new("it must be a whole number"))?, min, max, side)
}

/// Checks bounds of what is declared.
fn within(number: i64, min: i64, max: i64, side: ReadSide) -> Result<i64, Misfit> {
    if side == ReadSide::Stored || (min..=max).contains(&number) {
        Ok(number)
    } else if max == UNBOUNDED && number < min {
        Err(Misfit::new(format!("it must be at least {min}")))
    } else {
        Err(Misfit::new(format!("it must lie between {min} and {max}")))
    }
}

fn mebibytes(text: &str, min: i64, side: ReadSide) -> Result<i64, Misfit> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let bare = !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit());
    let number = if bare || side != ReadSide::Declared {
        text.parse()
            .map_err(|_| Misfit::new("it must be a number of MiB, or a size such as 2GiB"))?
    } else {
        let size = Bytes::from_person(text).map_err(Misfit::from)?;
        i64::try_from(size.whole_mib()).expect("u64 bytes are under i64 MiB")
    };
    if side == ReadSide::Stored || (min..=UNBOUNDED).contains(&number) {
        return Ok(number);
    }
    let bound =
        if number < min { format!("at least {min}") } else { format!("at most {UNBOUNDED}") };
    Err(Misfit::new(format!("it must be {bound} MiB, and this is {number} MiB")))
}

fn number(text: &str, max: i64, side: ReadSide) -> Result<Decimal, Misfit> {
    let decimal = match side {
        ReadSide::Declared => text.parse(),
        ReadSide::Stored | ReadSide::Written => Decimal::from_pve(text),
    };
    let decimal: Decimal = decimal.map_err(|_| Misfit::new("it must be a number such as 1.5"))?;
    if side == ReadSide::Stored || decimal.within(0, max) {
        Ok(decimal)
    } else if max == UNBOUNDED {
        Err(Misfit::new("it must not be negative"))
    } else {
        Err(Misfit::new(format!("it must lie between 0 and {max}")))
    }
}

fn choice(text: &str, words: &[&'static str], side: ReadSide) -> Result<Value, Misfit> {
    if side == ReadSide::Stored || words.contains(&text) {
        Ok(Value::text(text))
    } else {
        let misfit = Misfit::new(format!("it must be one of {}", words.join(", ")));
        Err(match alias::choice(words, text) {
            Some(meant) => misfit.hint(format!("write \"{meant}\"")),
            None => misfit.meant(text, words),
        })
    }
}

/// PVE drops surrounding blanks and one pair of double quotes when it parses its file.
fn unquoted(text: &str) -> &str {
    let text = text.trim_ascii();
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn trimmed_text(text: &str, item: Rule, side: ReadSide) -> Result<Value, Misfit> {
    let unquoted = match (side, item) {
        (ReadSide::Stored, _) | (_, Rule::Line) => unquoted(text),
        (ReadSide::Declared | ReadSide::Written, _) => text.trim_ascii(),
    };
    if side != ReadSide::Stored {
        rule::check(item, unquoted)?;
    }
    Ok(Value::text(unquoted))
}

/// The longest description PVE takes, in characters.
pub(crate) const DESCRIPTION_MAX: usize = 8192;

fn description(text: &str, trailing: Trailing, side: ReadSide) -> Result<Value, Misfit> {
    let kept = match trailing {
        Trailing::Newlines => text.trim_end_matches('\n'),
        Trailing::WhiteSpace => text.trim_end(),
    };
    if side != ReadSide::Stored && kept == "0" {
        return Err(Misfit::new("Proxmox VE cannot store a description that is just 0")
            .hint("write a word more"));
    }
    if side != ReadSide::Stored && text.chars().count() > DESCRIPTION_MAX {
        return Err(Misfit::new(format!("it has over {DESCRIPTION_MAX} characters")));
    }
    Ok(Value::text(kept))
}

/// Items split on commas, semicolons and blanks, as PVE splits lists.
fn items(text: &str, item: Rule, side: ReadSide) -> Result<Vec<Box<str>>, Misfit> {
    let pieces = unquoted(text)
        .split(|c: char| c == ',' || c == ';' || c.is_ascii_whitespace() || c == '\0');
    let mut list = Vec::new();
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if side != ReadSide::Stored {
            rule::check(item, piece).map_err(|misfit| misfit.piece(piece))?;
        }
        list.push(piece.into());
    }
    Ok(list)
}

/// What QEMU can plug while running.
pub(crate) const HOTPLUG_WORDS: &[&str] = &["network", "disk", "cpu", "memory", "usb", "cloudinit"];

/// `1` stands for the default set and `0` for none, which is spelled as itself: an empty set would read
/// as absence, and absence means the default.
fn hotplug(text: &str, side: ReadSide) -> Result<Value, Misfit> {
    let text = text.trim_ascii();
    let words = match text {
        "1" => "network,disk,usb",
        other => other,
    };
    let set: BTreeSet<Box<str>> = items(words, Rule::Word, ReadSide::Stored)?.into_iter().collect();
    let none = set.len() == 1 && set.contains("0");
    let unknown = set.iter().find(|word| !HOTPLUG_WORDS.contains(&&***word) && !none);
    match (side, unknown) {
        (ReadSide::Declared | ReadSide::Written, Some(word)) => {
            Err(Misfit::new(format!("it must be 0, 1, or a list of {}", HOTPLUG_WORDS.join(", ")))
                .meant(word, HOTPLUG_WORDS)
                .piece(&**word))
        }
        (ReadSide::Declared | ReadSide::Written, None) | (ReadSide::Stored, _) => {
            Ok(Value::Set(set))
        }
    }
}

/// `order=a;b` becomes a list; the legacy letters stay text.
fn boot(text: &str, side: ReadSide) -> Result<Value, Misfit> {
    let text = text.trim_ascii();
    if let Some(order) = text.strip_prefix("order=") {
        let devices: Vec<Box<str>> =
            order.split(';').filter(|device| !device.is_empty()).map(Into::into).collect();
        if side != ReadSide::Stored {
            for device in &devices {
                rule::check(Rule::Device, device).map_err(|misfit| misfit.piece(&**device))?;
            }
        }
        return Ok(Value::List(devices));
    }
    let letters = text.strip_prefix("legacy=").unwrap_or(text);
    if side != ReadSide::Stored
        && (!(1..=4).contains(&letters.len()) || !letters.bytes().all(|b| b"acdn".contains(&b)))
    {
        return Err(
            Misfit::new("it must be a boot order").hint("write boot = \"order=scsi0;net0\"")
        );
    }
    Ok(Value::text(letters))
}

fn environment(text: &str, side: ReadSide) -> Result<Value, Misfit> {
    let entries: Vec<Box<str>> =
        text.split('\0').filter(|item| !item.is_empty()).map(Into::into).collect();
    if side != ReadSide::Stored {
        for item in &entries {
            let named = item.split_once('=').is_some_and(|(name, value)| {
                !name.is_empty()
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                    && !value.chars().any(|c| c.is_control() && c != '\t')
            });
            if !named {
                return Err(Misfit::new("each item must look like NAME=value").piece(&**item));
            }
        }
    }
    Ok(Value::List(entries))
}

/// Keys are percent-encoded on PVE's side and plain lines on ours.
fn ssh_keys(text: &str) -> Result<Value, Misfit> {
    // A key has blanks between its parts, and encoded text has none.
    let several_words = text.trim_ascii().contains(|c: char| c.is_ascii_whitespace());
    let decoded = if several_words { Some(text.to_owned()) } else { percent_decode(text) };
    let decoded = decoded.ok_or_else(|| {
        Misfit::new("the percent encoding is broken")
            .hint("write keys as they stand in an id_ed25519.pub, one a line or in a list")
    })?;
    let lines = decoded.split('\n').map(str::trim_ascii).filter(|line| !line.is_empty());
    Ok(Value::List(lines.map(Into::into).collect()))
}

fn uuid(text: &str, side: ReadSide) -> Result<Value, Misfit> {
    if text == "1" {
        return Ok(Value::AnyUuid);
    }
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if side != ReadSide::Stored && (groups != [8, 4, 4, 4, 12] || !hex) && text != "0" {
        return Err(Misfit::new("it must be a UUID, or 1 to have one made"));
    }
    Ok(Value::text(&text.to_ascii_lowercase()))
}

fn size(text: &str, side: ReadSide) -> Result<Bytes, Misfit> {
    let size = match side {
        ReadSide::Declared => Bytes::from_person(text),
        ReadSide::Stored | ReadSide::Written => Bytes::from_pve(text),
    };
    size.map_err(Misfit::from)
}

/// Declared text must fit; a stored one that does not is kept as it is.
fn spelled(
    text: &str,
    canonical: impl Fn(&str) -> Result<String, Misfit>,
    side: ReadSide,
) -> Result<Value, Misfit> {
    match (canonical(text), side) {
        (Ok(one), _) => Ok(Value::text(&one)),
        (Err(_), ReadSide::Stored) => Ok(Value::text(text)),
        (Err(misfit), ReadSide::Declared | ReadSide::Written) => Err(misfit),
    }
}

/// A volume, and the size that `STORAGE:GiB` asks for.
fn volume(text: &str, side: ReadSide) -> Result<(VolumeRef, Option<Bytes>), Misfit> {
    if text == "none" {
        return Ok((VolumeRef::Empty, None));
    }
    if text == "cdrom" {
        return Ok((VolumeRef::HostCdrom, None));
    }
    if text.starts_with('/') {
        if side != ReadSide::Stored {
            rule::check(Rule::Path, text)?;
        }
        return Ok((VolumeRef::Path(text.into()), None));
    }
    let Some((storage, name)) = text.split_once(':') else {
        return Err(match rule::check(Rule::ConfigId, text) {
            Ok(()) => Misfit::new("it names a storage and no size")
                .hint(format!("write {text}:8 to allocate 8 GiB there")),
            Err(_) => Misfit::new("it is not a volume")
                .hint("write STORAGE:GiB for a new one, such as local-lvm:8, or the volume id of one that exists"),
        });
    };
    if side != ReadSide::Stored {
        rule::check(Rule::ConfigId, storage).map_err(|misfit| misfit.piece(storage))?;
    }
    let storage: Box<str> = storage.into();
    let file = name.rsplit('/').next().unwrap_or(name);
    if let Some(gib) = gib_with_unit(name).filter(|_| side == ReadSide::Declared) {
        return Err(Misfit::new("the number after a storage is GiB, and has no unit")
            .piece(name)
            .hint(format!("write {storage}:{gib}")));
    }
    if side != ReadSide::Stored && !name.is_empty() && !rule::is_volume_name(name) {
        return Err(Misfit::new("the name of a volume has no blanks and no commas").piece(name));
    }
    if is_cloud_init(file) {
        return Ok((VolumeRef::CloudInit { storage }, None));
    }
    if is_allocation(name) {
        // PVE's config PUT takes `rootfs=STORAGE:16`, allocates nothing and forgets the real volume: stored,
        // this syntax is damage.
        if side == ReadSide::Stored {
            return Err(Misfit::new("an allocation is stored where a volume should be"));
        }
        let kib =
            Bytes::from_pve(&format!("{name}G")).map_err(|error| Misfit::new(error.to_string()))?;
        return Ok((VolumeRef::Fresh { storage }, Some(Bytes(kib.0 / Bytes::KIB * Bytes::KIB))));
    }
    if name.is_empty() {
        return Err(Misfit::new("it names a storage and no volume")
            .hint("write STORAGE:GiB to allocate one"));
    }
    Ok((VolumeRef::Existing { storage, name: name.into() }, None))
}

/// The GiB of `STORAGE:GiB`. A number too long to count is one too, or it would pass for a name.
fn is_allocation(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// The GiB that somebody meant by `8G`, `8GiB` or `8 GB` after a storage: a size, and not the name of a volume.
fn gib_with_unit(name: &str) -> Option<String> {
    let rest = name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &name[..name.len() - rest.len()];
    let unit = rest.trim_start_matches(' ').to_ascii_lowercase();
    if !number.starts_with(|c: char| c.is_ascii_digit()) || !SIZE_UNITS.contains(&unit.as_str()) {
        return None;
    }
    let letter = unit[..1].to_ascii_uppercase();
    let size = Bytes::from_pve(&format!("{number}{letter}"));
    Some(size.map_or_else(|_| "8".to_owned(), Bytes::gib_decimal))
}

/// What people put behind the number after a storage, in lower case.
pub(crate) const SIZE_UNITS: &[&str] =
    &["k", "kb", "kib", "m", "mb", "mib", "g", "gb", "gib", "t", "tb", "tib"];

/// `vm-200-cloudinit` or `cloudinit`, with or without an image format: exactly the names whose volume PVE frees
/// when the drive goes. Any other name is a disk, and its loss must not pass for a cloud-init drive's.
fn is_cloud_init(file: &str) -> bool {
    let stem = match file.rsplit_once('.') {
        Some((stem, "raw" | "qcow" | "qcow2" | "qed" | "vmdk" | "cloop")) => stem,
        Some(_) | None => file,
    };
    let guest = |name: &str| {
        let owner = name.strip_prefix("vm-")?.strip_suffix("-cloudinit")?.to_owned();
        (!owner.is_empty() && owner.bytes().all(|b| b.is_ascii_digit())).then_some(())
    };
    stem == "cloudinit" || guest(stem).is_some()
}
