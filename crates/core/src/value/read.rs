//! From text to normal form: strictly for what a person declares, leniently for what PVE stores.
//!
//! Called by the desired checker and by observation. `declared` refuses with a reason a person can act
//! on; `stored` never refuses, because PVE may hold anything an older release or a hand wrote.

use std::collections::BTreeSet;

use super::{Misfit, Property, Value, Volume, percent_decode, rule};
use crate::quantity::{Bytes, Decimal};
use crate::registry::{Format, Part, Rule, Shape, Trailing, UNBOUNDED};

/// Reads a declared text.
pub fn declared(format: &Format, text: &str) -> Result<Value, Misfit> {
    read(format, text, Side::Declared)
}

/// Reads a stored text; what cannot be read becomes `Value::Odd`.
pub fn stored(format: &Format, text: &str) -> Value {
    read(format, text, Side::Stored).unwrap_or_else(|_| Value::Odd(text.into()))
}

/// Reads a text that is about to be written: PVE's spelling, allocations allowed. What cannot be read
/// becomes `Value::Odd`, which the classifier holds for the worst.
pub fn written(format: &Format, text: &str) -> Value {
    read(format, text, Side::Written).unwrap_or_else(|_| Value::Odd(text.into()))
}

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A person's: checked, friendly spellings allowed.
    Declared,
    /// PVE's: never checked.
    Stored,
    /// PVE's spelling of something not stored yet.
    Written,
}

fn read(format: &Format, text: &str, side: Side) -> Result<Value, Misfit> {
    Ok(match *format {
        Format::Bool => Value::Bool(boolean(text)?),
        Format::Integer { min, max } | Format::Weight { min, max } => {
            Value::Integer(integer(text, min, max, side)?)
        }
        Format::Mebibytes { min } => Value::Integer(mebibytes(text, min, side)?),
        Format::Number { max } => Value::Number(number(text, max, side)?),
        Format::Choice(words) => choice(text, words, side)?,
        Format::Text(item) => trimmed_text(text, item, side)?,
        Format::Description(trailing) => description(text, trailing, side)?,
        Format::List { item, .. } => Value::List(items(text, item, side)?),
        Format::Words { item, .. } => Value::Set(items(text, item, side)?.into_iter().collect()),
        Format::Tags => Value::Set(items(text, Rule::Tag, side)?.into_iter().collect()),
        Format::Hotplug => hotplug(text, side)?,
        Format::Boot => boot(text, side)?,
        Format::Environment => environment(text, side)?,
        Format::SshKeys => ssh_keys(text)?,
        Format::Secret => Value::Secret,
        Format::GeneratedUuid => uuid(text, side)?,
        Format::Size => Value::Size(size(text, side)?),
        Format::Mac => spelled(text, rule::mac, side)?,
        Format::Cidr4 => spelled(text, rule::cidr4, side)?,
        Format::Cidr6 => spelled(text, rule::cidr6, side)?,
        Format::Ip4 => spelled(text, rule::ip4, side)?,
        Format::Ip6 => spelled(text, rule::ip6, side)?,
        Format::Volume => Value::Volume(volume(text, side)?.0),
        Format::Property(shape) => Value::Property(property(shape, text, side)?),
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

fn integer(text: &str, min: i64, max: i64, side: Side) -> Result<i64, Misfit> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number: Option<i64> = text.parse().ok().filter(|_| digits || side == Side::Stored);
    within(number.ok_or_else(|| Misfit::new("it must be a whole number"))?, min, max, side)
}

/// Checks bounds of what is declared.
fn within(number: i64, min: i64, max: i64, side: Side) -> Result<i64, Misfit> {
    if side == Side::Stored || (min..=max).contains(&number) {
        Ok(number)
    } else if max == UNBOUNDED && number < min {
        Err(Misfit::new(format!("it must be at least {min}")))
    } else {
        Err(Misfit::new(format!("it must lie between {min} and {max}")))
    }
}

fn mebibytes(text: &str, min: i64, side: Side) -> Result<i64, Misfit> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let bare = !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit());
    let number = if bare || side != Side::Declared {
        text.parse()
            .map_err(|_| Misfit::new("it must be a number of MiB, or a size such as 2GiB"))?
    } else {
        let size = Bytes::from_person(text).map_err(|error| Misfit::new(error.to_string()))?;
        i64::try_from(size.whole_mib()).expect("u64 bytes are under i64 MiB")
    };
    if side == Side::Stored || (min..=UNBOUNDED).contains(&number) {
        return Ok(number);
    }
    let bound =
        if number < min { format!("at least {min}") } else { format!("at most {UNBOUNDED}") };
    Err(Misfit::new(format!("it must be {bound} MiB, and this is {number} MiB")))
}

fn number(text: &str, max: i64, side: Side) -> Result<Decimal, Misfit> {
    let decimal: Decimal =
        text.parse().map_err(|_| Misfit::new("it must be a number such as 1.5"))?;
    if side == Side::Stored || decimal.within(0, max) {
        Ok(decimal)
    } else if max == UNBOUNDED {
        Err(Misfit::new("it must not be negative"))
    } else {
        Err(Misfit::new(format!("it must lie between 0 and {max}")))
    }
}

fn choice(text: &str, words: &[&str], side: Side) -> Result<Value, Misfit> {
    if side == Side::Stored || words.contains(&text) {
        Ok(Value::text(text))
    } else {
        let misfit = Misfit::new(format!("it must be one of {}", words.join(", ")));
        Err(misfit.meant(text, words))
    }
}

/// PVE drops surrounding blanks and one pair of double quotes when it parses its file.
fn unquoted(text: &str) -> &str {
    let text = text.trim_ascii();
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn trimmed_text(text: &str, item: Rule, side: Side) -> Result<Value, Misfit> {
    let unquoted = match (side, item) {
        (Side::Stored, _) | (_, Rule::Line) => unquoted(text),
        (Side::Declared | Side::Written, _) => text.trim_ascii(),
    };
    if side != Side::Stored {
        rule::check(item, unquoted)?;
    }
    Ok(Value::text(unquoted))
}

/// The longest description PVE takes, in characters.
pub(crate) const DESCRIPTION_MAX: usize = 8192;

fn description(text: &str, trailing: Trailing, side: Side) -> Result<Value, Misfit> {
    let kept = match trailing {
        Trailing::Newlines => text.trim_end_matches('\n'),
        Trailing::WhiteSpace => text.trim_end(),
    };
    if side != Side::Stored && kept == "0" {
        return Err(Misfit::new("Proxmox VE cannot store a description that is just 0"));
    }
    if side != Side::Stored && text.chars().count() > DESCRIPTION_MAX {
        return Err(Misfit::new(format!("it has over {DESCRIPTION_MAX} characters")));
    }
    Ok(Value::text(kept))
}

/// Items split on commas, semicolons and blanks, as PVE splits lists.
fn items(text: &str, item: Rule, side: Side) -> Result<Vec<Box<str>>, Misfit> {
    let pieces = unquoted(text)
        .split(|c: char| c == ',' || c == ';' || c.is_ascii_whitespace() || c == '\0');
    let mut list = Vec::new();
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if side != Side::Stored {
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
fn hotplug(text: &str, side: Side) -> Result<Value, Misfit> {
    let text = text.trim_ascii();
    let words = match text {
        "1" => "network,disk,usb",
        other => other,
    };
    let set: BTreeSet<Box<str>> = items(words, Rule::Word, Side::Stored)?.into_iter().collect();
    let none = set.len() == 1 && set.contains("0");
    let unknown = set.iter().find(|word| !HOTPLUG_WORDS.contains(&&***word) && !none);
    match (side, unknown) {
        (Side::Declared | Side::Written, Some(word)) => {
            Err(Misfit::new(format!("it must be 0, 1, or a list of {}", HOTPLUG_WORDS.join(", ")))
                .meant(word, HOTPLUG_WORDS)
                .piece(&**word))
        }
        (Side::Declared | Side::Written, None) | (Side::Stored, _) => Ok(Value::Set(set)),
    }
}

/// `order=a;b` becomes a list; the legacy letters stay text.
fn boot(text: &str, side: Side) -> Result<Value, Misfit> {
    let text = text.trim_ascii();
    if let Some(order) = text.strip_prefix("order=") {
        let devices: Vec<Box<str>> =
            order.split(';').filter(|device| !device.is_empty()).map(Into::into).collect();
        if side != Side::Stored {
            for device in &devices {
                rule::check(Rule::Device, device).map_err(|misfit| misfit.piece(&**device))?;
            }
        }
        return Ok(Value::List(devices));
    }
    let letters = text.strip_prefix("legacy=").unwrap_or(text);
    if side != Side::Stored
        && (!(1..=4).contains(&letters.len()) || !letters.bytes().all(|b| b"acdn".contains(&b)))
    {
        return Err(
            Misfit::new("it must be a boot order").hint("write boot = \"order=scsi0;net0\"")
        );
    }
    Ok(Value::text(letters))
}

fn environment(text: &str, side: Side) -> Result<Value, Misfit> {
    let entries: Vec<Box<str>> =
        text.split('\0').filter(|item| !item.is_empty()).map(Into::into).collect();
    if side != Side::Stored {
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
    let decoded = decoded.ok_or_else(|| Misfit::new("the percent encoding is broken"))?;
    let lines = decoded.split('\n').map(str::trim_ascii).filter(|line| !line.is_empty());
    Ok(Value::List(lines.map(Into::into).collect()))
}

fn uuid(text: &str, side: Side) -> Result<Value, Misfit> {
    if text == "1" {
        return Ok(Value::AnyUuid);
    }
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let hex = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if side != Side::Stored && (groups != [8, 4, 4, 4, 12] || !hex) && text != "0" {
        return Err(Misfit::new("it must be a UUID, or 1 to have one made"));
    }
    Ok(Value::text(&text.to_ascii_lowercase()))
}

fn size(text: &str, side: Side) -> Result<Bytes, Misfit> {
    let size = match side {
        Side::Declared => Bytes::from_person(text),
        Side::Stored | Side::Written => Bytes::from_pve(text),
    };
    size.map_err(|error| Misfit::new(error.to_string()))
}

/// Declared text must fit; a stored one that does not is kept as it is.
fn spelled(
    text: &str,
    canonical: impl Fn(&str) -> Result<String, Misfit>,
    side: Side,
) -> Result<Value, Misfit> {
    match (canonical(text), side) {
        (Ok(one), _) => Ok(Value::text(&one)),
        (Err(_), Side::Stored) => Ok(Value::text(text)),
        (Err(misfit), Side::Declared | Side::Written) => Err(misfit),
    }
}

/// A volume, and the size that `STORAGE:GiB` asks for.
fn volume(text: &str, side: Side) -> Result<(Volume, Option<Bytes>), Misfit> {
    if text == "none" {
        return Ok((Volume::Empty, None));
    }
    if text == "cdrom" {
        return Ok((Volume::HostCdrom, None));
    }
    if text.starts_with('/') {
        if side != Side::Stored {
            rule::check(Rule::Path, text)?;
        }
        return Ok((Volume::Path(text.into()), None));
    }
    let Some((storage, name)) = text.split_once(':') else {
        return Err(match rule::check(Rule::ConfigId, text) {
            Ok(()) => Misfit::new("it names a storage and no size")
                .hint(format!("write {text}:8 to allocate 8 GiB there")),
            Err(_) => Misfit::new("it is not a volume")
                .hint("write STORAGE:GiB for a new one, such as local-lvm:8, or the volume id of one that exists"),
        });
    };
    if side != Side::Stored {
        rule::check(Rule::ConfigId, storage).map_err(|misfit| misfit.piece(storage))?;
    }
    let storage: Box<str> = storage.into();
    let file = name.rsplit('/').next().unwrap_or(name);
    if side != Side::Stored && !name.is_empty() && !rule::is_volume_name(name) {
        return Err(Misfit::new("the name of a volume has no blanks and no commas").piece(name));
    }
    if name == "cloudinit" || is_cloud_init(file) {
        return Ok((Volume::CloudInit { storage }, None));
    }
    if is_allocation(name) {
        // PVE's config PUT takes `rootfs=STORAGE:16`, allocates nothing and forgets the real volume: stored,
        // this syntax is damage.
        if side == Side::Stored {
            return Err(Misfit::new("an allocation is stored where a volume should be"));
        }
        let kib =
            Bytes::from_pve(&format!("{name}G")).map_err(|error| Misfit::new(error.to_string()))?;
        return Ok((Volume::Fresh { storage }, Some(Bytes(kib.0 / Bytes::KIB * Bytes::KIB))));
    }
    if name.is_empty() {
        return Err(Misfit::new("it names a storage and no volume")
            .hint("write STORAGE:GiB to allocate one"));
    }
    Ok((Volume::Existing { storage, name: name.into() }, None))
}

/// The GiB of `STORAGE:GiB`. A number too long to count is one too, or it would pass for a name.
fn is_allocation(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// `vm-200-cloudinit`, with or without an image format.
fn is_cloud_init(file: &str) -> bool {
    let stem = file.split('.').next().unwrap_or(file);
    stem.strip_prefix("vm-")
        .and_then(|rest| rest.strip_suffix("-cloudinit"))
        .is_some_and(|vmid| !vmid.is_empty() && vmid.bytes().all(|b| b.is_ascii_digit()))
}

fn property(shape: &Shape, text: &str, side: Side) -> Result<Property, Misfit> {
    let mut property = Property::default();
    let mut given = Given::default();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        match piece.split_once('=') {
            Some((name, "")) if side != Side::Stored && shape.part(name).is_some() => {
                return Err(Misfit::new(format!("`{name}` has no value")).piece(piece));
            }
            Some((name, value)) => {
                named_part(shape, (&mut property, &mut given), name, value, side)
            }
            None => match shape.bare {
                Some(name) => named_part(shape, (&mut property, &mut given), name, piece, side),
                None => Err(nameless(shape, piece)),
            },
        }
        .map_err(|misfit| Misfit {
            piece: misfit.piece.or_else(|| Some(piece.to_owned())),
            ..misfit
        })?;
    }
    finish(shape, &mut property, side)?;
    Ok(property)
}

/// The refusal of a piece without a name where every part has one.
fn nameless(shape: &Shape, piece: &str) -> Misfit {
    let misfit = Misfit::new("every part must look like name=value");
    match shape.part(piece) {
        Some(Part { format: Format::Bool, .. }) => misfit.hint(format!("write {piece}=1")),
        Some(_) => misfit.hint(format!("write {piece}= and its value")),
        None => misfit,
    }
}

/// Reads one `name=value` into the property.
fn named_part(
    shape: &Shape,
    (property, given): (&mut Property, &mut Given),
    name: &str,
    value: &str,
    side: Side,
) -> Result<(), Misfit> {
    if let Some(part) = shape.part(name) {
        given.once(part, side)?;
        return set_part(property, part, value, side);
    }
    if let Some(model) = shape.model_is_key.then(|| model_part(shape, name)).flatten() {
        given.once(model, side)?;
        set_part(property, model, name, side)?;
        let mac = shape.part("macaddr").expect("a shape with models has macaddr");
        given.once(mac, side)?;
        return set_part(property, mac, value, side);
    }
    match side {
        Side::Stored | Side::Written => property.push_unknown(name, value),
        Side::Declared => return Err(unknown_part(shape, name)),
    }
    Ok(())
}

/// The model part, if a name is one of its models.
fn model_part(shape: &Shape, name: &str) -> Option<&'static Part> {
    let part = shape.part("model")?;
    matches!(part.format, Format::Choice(models) if models.contains(&name)).then_some(part)
}

/// The refusal of a part nobody knows.
pub(crate) fn unknown_part(shape: &Shape, name: &str) -> Misfit {
    let names: Vec<&str> = shape.parts.iter().map(|part| part.name).collect();
    let misfit = Misfit::new(format!("it has no part `{name}`")).piece(name).meant(name, &names);
    let parts = format!("its parts are {}", names.join(", "));
    Misfit { hint: misfit.hint.or(Some(parts)), ..misfit }
}

/// The parts a text has named so far.
#[derive(Default)]
struct Given(Vec<&'static str>);

impl Given {
    /// Refuses a part that was given before. What PVE stores may repeat one: the last counts.
    fn once(&mut self, part: &'static Part, side: Side) -> Result<(), Misfit> {
        if side != Side::Stored && self.0.contains(&part.name) {
            return Err(Misfit::new(format!("`{}` is given twice", part.name)));
        }
        self.0.push(part.name);
        Ok(())
    }
}

fn set_part(
    property: &mut Property,
    part: &'static Part,
    text: &str,
    side: Side,
) -> Result<(), Misfit> {
    let in_part = |misfit: Misfit| Misfit {
        why: format!("`{}`: {}", part.name, misfit.why),
        piece: misfit.piece.or_else(|| Some(text.to_owned())),
        hint: misfit.hint,
    };
    if matches!(part.format, Format::Volume) {
        return set_volume(property, part, text, side).map_err(in_part);
    }
    let value = read(&part.format, text, side).map_err(in_part)?;
    let fresh = matches!(property.volume(), Some(Volume::Fresh { .. }));
    if part.name == "size" && fresh {
        // `STORAGE:8,size=99G` allocates 8 GiB: PVE does not look at the size.
        return Ok(());
    }
    property.set(part.name, value);
    Ok(())
}

/// Reads a declared volume into its part, and the size it asks for into `size`.
pub(crate) fn declared_volume(
    property: &mut Property,
    part: &'static Part,
    text: &str,
) -> Result<(), Misfit> {
    if text.contains(',') {
        return Err(comma());
    }
    set_volume(property, part, text, Side::Declared)
}

/// PVE ends a part at a comma and knows no way to quote one.
pub(crate) fn comma() -> Misfit {
    Misfit::new("it must not contain a comma, which would end it").piece(",")
}

fn set_volume(
    property: &mut Property,
    part: &'static Part,
    text: &str,
    side: Side,
) -> Result<(), Misfit> {
    let (volume, size) = volume(text, side)?;
    property.set(part.name, Value::Volume(volume));
    if let Some(size) = size {
        property.set("size", Value::Size(size));
    }
    Ok(())
}

/// Whether a volume makes its drive a CD-ROM.
fn is_cdrom(volume: &Volume) -> bool {
    match volume {
        Volume::Empty | Volume::HostCdrom | Volume::CloudInit { .. } => true,
        Volume::Fresh { .. } | Volume::Existing { .. } | Volume::Path(_) => false,
    }
}

/// Turns the parts into normal form: nothing that says what absence says.
pub(crate) fn normalise(shape: &Shape, property: &mut Property) {
    if shape.part("media").is_some() && property.volume().is_some_and(is_cdrom) {
        property.set("media", Value::text("cdrom"));
    }
    if property.is_cdrom() {
        property.remove("size");
    }
    if let (Some(Volume::Fresh { .. }), Some(size)) = (property.volume(), property.size()) {
        // LXC allocates whole MiB, QEMU whole KiB, however the size was spelled.
        let unit = if property.get("volume").is_some() { Bytes::MIB } else { Bytes::KIB };
        property.set("size", Value::Size(Bytes(size.0 / unit * unit)));
    }
    property.parts.retain(|(name, value)| {
        // `STORAGE:8` brings a size along even where the shape has none.
        let part = shape.part(name);
        part.is_some_and(|part| {
            !value.is_empty() && !super::compare::says_nothing(part.absent, value)
        })
    });
    if shape.switch.is_some_and(|switch| property.get(switch).is_none()) {
        property.parts.clear();
    }
}

fn finish(shape: &Shape, property: &mut Property, side: Side) -> Result<(), Misfit> {
    if side != Side::Stored {
        require(shape, property)?;
    }
    normalise(shape, property);
    Ok(())
}

/// Refuses a declared property that lacks what PVE requires.
pub(crate) fn require(shape: &Shape, property: &Property) -> Result<(), Misfit> {
    for part in shape.parts {
        if part.required && property.get(part.name).is_none() {
            return Err(Misfit::new(format!("it needs a `{}` part", part.name)));
        }
    }
    if shape.part("media").is_none() && property.volume().is_some_and(is_cdrom) {
        return Err(Misfit::new("only a drive can be a CD-ROM or hold cloud-init"));
    }
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        let fixed = matches!(property.get(address), Some(Value::Text(text)) if text.contains('/'));
        if property.get(gateway).is_some() && shape.part(address).is_some() && !fixed {
            return Err(Misfit::new(format!("`{gateway}` needs a fixed address in `{address}`"))
                .piece(format!("{gateway}=")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::GuestKind;
    use crate::registry;
    use crate::value::print;

    fn format(kind: GuestKind, name: &str) -> Format {
        registry::find(kind, name).unwrap().key().format
    }

    #[test]
    fn a_cdrom_where_no_drive_is_is_refused_when_declared_and_read_when_stored() {
        for (kind, name, rest) in [
            (GuestKind::Lxc, "mp0", ",mp=/x"),
            (GuestKind::Lxc, "rootfs", ""),
            (GuestKind::Qemu, "efidisk0", ""),
        ] {
            for volume in ["none", "cdrom", "local:cloudinit", "local:vm-101-cloudinit"] {
                let text = format!("{volume}{rest}");
                assert!(declared(&format(kind, name), &text).is_err(), "{name} {text}");
                assert!(
                    stored(&format(kind, name), &text).as_property().is_some(),
                    "{name} {text}"
                );
            }
        }
    }

    #[test]
    fn a_bare_part_with_an_equals_sign_is_printed_with_its_name() {
        let device = format(GuestKind::Lxc, "dev0");
        let value = declared(&device, "path=/dev/by-id/a=b").unwrap();
        assert_eq!(print::pve(&device, &value), "path=/dev/by-id/a=b");
    }

    #[test]
    fn a_stored_part_given_twice_counts_as_its_last() {
        let network = format(GuestKind::Lxc, "net0");
        let twice = stored(&network, "name=eth0,bridge=a,bridge=b");
        assert_eq!(twice, stored(&network, "name=eth0,bridge=b"));
    }
}
