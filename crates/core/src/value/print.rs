//! From normal form to the text PVE is sent, and to the words a plan shows.
//!
//! The text is what PVE itself would print where it re-prints a value, so that a write changes nothing
//! but what it names.

use std::fmt::Write;

use super::{Property, Value, VolumeRef, percent_encode};
use crate::model::quantity::Bytes;
use crate::registry::{Shape, ValueFormat};

/// The text of a value as PVE takes it.
pub fn pve(format: &ValueFormat, value: &Value) -> String {
    match value {
        Value::Bool(on) => u8::from(*on).to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) | Value::Odd(text) => text.to_string(),
        Value::List(items) => list(format, items),
        Value::Set(items) => joined(format, items),
        Value::Size(size) => size.to_string(),
        Value::Volume(volume) => self::volume(volume, None),
        Value::Property(property) => {
            let shape = format.shape().expect("a property value belongs to a property format");
            self::property(shape, property)
        }
        Value::Secret => crate::model::secret::MASK.to_owned(),
        Value::AnyUuid => "1".to_owned(),
    }
}

/// What a value is shown as to a person: the same text, but with its unit, on one line and not too long.
pub fn shown(format: &ValueFormat, value: &Value) -> String {
    let text = match value {
        Value::Integer(mebibytes) if matches!(format, ValueFormat::Mebibytes { .. }) => {
            shown_mebibytes(*mebibytes)
        }
        Value::Size(size) => size.shown(),
        // QEMU's memory: a property string of one part, shown as that.
        Value::Property(property) if property.parts().len() == 1 && is_single_part(format) => {
            let (name, part) = &property.parts()[0];
            let shape = format.shape().expect("a property value belongs to a property format");
            return shown(&shape.named(name).format, part);
        }
        Value::List(items) if matches!(format, ValueFormat::SshKeys | ValueFormat::Environment) => {
            items.join(" ")
        }
        Value::Bool(_)
        | Value::Integer(_)
        | Value::Number(_)
        | Value::Text(_)
        | Value::Odd(_)
        | Value::List(_)
        | Value::Set(_)
        | Value::Volume(_)
        | Value::Property(_)
        | Value::Secret
        | Value::AnyUuid => pve(format, value),
    };
    let quoted =
        matches!(format, ValueFormat::Description(_)) || text.chars().any(char::is_control);
    cut(if quoted { format!("{text:?}") } else { text })
}

fn is_single_part(format: &ValueFormat) -> bool {
    format.shape().is_some_and(|shape| shape.parts.len() == 1)
}

/// Memory with its unit; a number that no memory can have stands as it is.
fn shown_mebibytes(number: i64) -> String {
    let bytes = u64::try_from(number).ok().and_then(|number| number.checked_mul(Bytes::MIB));
    match bytes {
        Some(0) => "0 MiB".to_owned(),
        Some(bytes) => Bytes(bytes).shown(),
        None => format!("{number} MiB"),
    }
}

/// A text, cut to what a plan shows.
pub(crate) fn cut(text: String) -> String {
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    let cut: String = text.chars().take(SHOWN_MAX - 1).collect();
    format!("{cut}…")
}

/// How much of a value a plan shows; the rest is in the file and on the server.
const SHOWN_MAX: usize = 60;

/// Items joined as their format joins them.
fn joined<'a>(format: &ValueFormat, items: impl IntoIterator<Item = &'a Box<str>>) -> String {
    let (_, separator) = format.items().expect("items belong to a format that has several");
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push(separator);
        }
        text.push_str(item);
    }
    text
}

fn list(format: &ValueFormat, items: &[Box<str>]) -> String {
    let text = joined(format, items);
    if matches!(format, ValueFormat::Boot) {
        format!("order={text}")
    } else if matches!(format, ValueFormat::SshKeys) {
        percent_encode(&text)
    } else {
        text
    }
}

fn volume(volume: &VolumeRef, size: Option<Bytes>) -> String {
    match volume {
        VolumeRef::Fresh { storage } => match size {
            Some(size) => format!("{storage}:{}", size.gib_decimal()),
            None => format!("{storage}:"),
        },
        VolumeRef::Existing { storage, name } => format!("{storage}:{name}"),
        VolumeRef::CloudInit { storage } => format!("{storage}:cloudinit"),
        VolumeRef::Path(path) => path.to_string(),
        VolumeRef::Empty => "none".to_owned(),
        VolumeRef::HostCdrom => "cdrom".to_owned(),
    }
}

/// The bare part first, then the required ones, then the rest, each group by name.
fn property(shape: &Shape, property: &Property) -> String {
    let mut text = String::new();
    let fresh = matches!(property.volume(), Some(VolumeRef::Fresh { .. }));
    let mut add = |name: Option<&str>, value: &str| {
        let comma = if text.is_empty() { "" } else { "," };
        match name {
            Some(name) => write!(text, "{comma}{name}={value}"),
            None => write!(text, "{comma}{value}"),
        }
        .expect("writing to a string cannot fail");
    };
    let mac = if shape.model_is_key { property.get("macaddr") } else { None };
    let known = |name: &str| shape.part(name).expect("parts are set by the shape's names");
    for pass in [Pass::Bare, Pass::Required, Pass::Rest] {
        for (name, value) in property.parts() {
            let part = known(name);
            let here = if shape.bare == Some(*name) {
                Pass::Bare
            } else if part.required {
                Pass::Required
            } else {
                Pass::Rest
            };
            let folded = (fresh && *name == "size") || (mac.is_some() && *name == "macaddr");
            if here != pass || folded {
                continue;
            }
            let printed = if let Value::Volume(held) = value {
                volume(held, property.size())
            } else {
                pve(&part.format, value)
            };
            match (here, mac) {
                (Pass::Bare, Some(mac)) => add(Some(&printed), &pve(&known("macaddr").format, mac)),
                // Bare, `/dev/a=b` would read as a part named `/dev/a`.
                (Pass::Bare, None) => add(printed.contains('=').then_some(*name), &printed),
                (Pass::Required | Pass::Rest, _) => add(Some(name), &printed),
            }
        }
    }
    for (name, value) in property.unknown() {
        add(Some(name), value);
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Bare,
    Required,
    Rest,
}
