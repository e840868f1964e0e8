//! A value as a person would write it in a desired file, whatever its syntax.
//!
//! Called by `import`, which turns what PVE stores into a declaration, and by `desired::show`, which prints a declaration
//! back. Reading it again gives the same value; a property test holds the two together. No secret is ever spelled.

use super::{Property, Value, VolumeRef, print};
use crate::model::quantity::Bytes;
use crate::registry::{Compared, Shape, ValueFormat};

/// Which parts of a property string are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartChoice {
    /// What a comparison looks at: of a stored value, without what PVE filled in. A volume is named by its storage.
    Compared,
    /// All of them: of a declared value, as it was declared.
    All,
}

/// A value as it is spelled in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpelledValue {
    /// `true`.
    Bool(bool),
    /// A number, as text that all three syntaxes read alike.
    Number(String),
    /// Text.
    Text(String),
    /// Texts in order.
    List(Vec<String>),
    /// Parts with names.
    Table(Vec<(String, SpelledValue)>),
}

impl SpelledValue {
    /// The same in TOML.
    pub(crate) fn toml(&self) -> String {
        match self {
            Self::Bool(on) => on.to_string(),
            Self::Number(number) => number.clone(),
            Self::Text(text) => quoted(text),
            Self::List(items) => list(items),
            Self::Table(parts) => {
                let parts = parts.iter().map(|(name, value)| format!("{name} = {}", value.toml()));
                format!("{{ {} }}", parts.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The spelling of a value; none for a secret and for what cannot be written as text.
pub(crate) fn spelled(
    format: &ValueFormat,
    value: &Value,
    parts: PartChoice,
) -> Option<SpelledValue> {
    Some(match value {
        Value::Bool(on) => SpelledValue::Bool(*on),
        Value::Integer(mib) if matches!(format, ValueFormat::Mebibytes { .. }) => memory(*mib),
        Value::Integer(number) => SpelledValue::Number(number.to_string()),
        Value::Number(number) => decimal(&number.to_string()),
        Value::Text(text) => SpelledValue::Text(text.to_string()),
        Value::List(items) => SpelledValue::List(items.iter().map(ToString::to_string).collect()),
        Value::Set(items) => SpelledValue::List(items.iter().map(ToString::to_string).collect()),
        Value::Size(size) => SpelledValue::Text(friendly_size(*size)),
        Value::Property(property) => table(format.shape()?, property, parts)?,
        Value::Volume(_) => SpelledValue::Text(print::pve(format, value)),
        Value::AnyUuid if parts == PartChoice::All => SpelledValue::Text(print::pve(format, value)),
        Value::Secret | Value::AnyUuid | Value::Odd(_) => return None,
    })
}

/// A property string: its bare part alone if that is all there is, else a table.
fn table(shape: &Shape, property: &Property, parts: PartChoice) -> Option<SpelledValue> {
    let mut shown: Vec<&(&'static str, Value)> = property
        .parts()
        .iter()
        .filter(|(name, _)| {
            let part = shape.part(name).expect("parts are set by the shape's names");
            parts == PartChoice::All || part.compared == Compared::Always || *name == "size"
        })
        .collect();
    // What a reader looks for first stands first, as PVE itself prints it.
    shown.sort_by_key(|(name, _)| {
        let required = shape.part(name).is_some_and(|part| part.required);
        (shape.bare != Some(*name), !required)
    });
    if let [(name, value)] = shown.as_slice()
        && shape.bare == Some(*name)
        && !matches!(value, Value::Volume(_))
        // Alone, `/dev/a=b` would read as a part named `/dev/a`.
        && !value.as_text().is_some_and(|text| text.contains('='))
    {
        return spelled(&shape.part(name)?.format, value, parts);
    }
    // A part that switches the whole and is off leaves nothing else; an empty table would not say so.
    if let (Some(switch), true) = (shape.switch, property.is_empty()) {
        return Some(SpelledValue::Table(vec![(switch.to_owned(), SpelledValue::Bool(false))]));
    }
    let fresh = match parts {
        PartChoice::Compared => can_be_named_by_storage(property),
        PartChoice::All => matches!(property.volume(), Some(VolumeRef::Fresh { .. })),
    };
    let mut entries = Vec::new();
    // A part that must be there and says nothing was declared as an empty list; normal form drops it.
    let is_empty = |name: &str| parts == PartChoice::All && property.get(name).is_none();
    let empty = shape.parts.iter().filter(|part| part.required && is_empty(part.name));
    entries.extend(empty.map(|part| (part.name.to_owned(), SpelledValue::Text(String::new()))));
    let drive = match property.volume() {
        Some(VolumeRef::CloudInit { storage }) if shape.part("media").is_some() => Some(storage),
        Some(_) | None => None,
    };
    for (name, value) in &shown {
        if let (Value::Volume(_), Some(storage)) = (value, drive) {
            entries.push(("storage".to_owned(), SpelledValue::Text(storage.to_string())));
            entries.push(("cloudinit".to_owned(), SpelledValue::Bool(true)));
            continue;
        }
        // Cloud-init's drive is a CD-ROM, whatever is said.
        if drive.is_some() && *name == "media" {
            continue;
        }
        if let (Value::Volume(volume), true) = (value, fresh) {
            let storage = volume.storage()?.to_owned();
            let size = friendly_size(property.size()?);
            entries.push(("storage".to_owned(), SpelledValue::Text(storage)));
            entries.push(("size".to_owned(), SpelledValue::Text(size)));
        } else if !(fresh && matches!(value, Value::Size(_))) {
            entries.push(((*name).to_owned(), spelled(&shape.part(name)?.format, value, parts)?));
        }
    }
    Some(SpelledValue::Table(entries))
}

/// A volume that `storage` and `size` find again: of a known size, and not a template's base image.
fn can_be_named_by_storage(property: &Property) -> bool {
    let volume = property.volume();
    property.size().is_some_and(|size| size.0 > 0)
        && matches!(volume, Some(VolumeRef::Existing { .. }))
        && !volume.is_some_and(VolumeRef::is_base_image)
}

fn memory(mib: i64) -> SpelledValue {
    if mib > 0 && mib % 1024 == 0 {
        SpelledValue::Text(format!("{}GiB", mib / 1024))
    } else {
        SpelledValue::Number(mib.to_string())
    }
}

/// `8GiB` for PVE's `8G`.
fn friendly_size(size: Bytes) -> String {
    let text = size.to_string();
    match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => format!("{number}{}iB", &text[number.len()..]),
        None => format!("{text}B"),
    }
}

pub(crate) fn list(items: impl IntoIterator<Item: AsRef<str>>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A decimal number; one that a double cannot hold is a text.
fn decimal(text: &str) -> SpelledValue {
    if text.parse::<f64>().map(|number| number.to_string()).as_deref() != Ok(text) {
        return SpelledValue::Text(text.to_owned());
    }
    SpelledValue::Number(if text.contains('.') { text.to_owned() } else { format!("{text}.0") })
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
