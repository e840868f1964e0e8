//! A value as a person would write it in a desired file, in TOML.
//!
//! Called by `import`, which turns what PVE stores into a declaration, and by `desired::show`, which prints a declaration
//! back. Reading it again gives the same value; a property test holds the two together. No secret is ever spelled.

use super::{Property, Value, VolumeRef, print};
use crate::quantity::Bytes;
use crate::registry::{Compared, Shape, ValueFormat};

/// Which parts of a property string are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartChoice {
    /// What a comparison looks at: of a stored value, without what PVE filled in. A volume is named by its storage.
    Compared,
    /// All of them: of a declared value, as it was declared.
    All,
}

/// The text of a value; none for a secret and for what cannot be written as text.
pub(crate) fn spelled(format: &ValueFormat, value: &Value, parts: PartChoice) -> Option<String> {
    Some(match value {
        Value::Bool(on) => on.to_string(),
        Value::Integer(mib) if matches!(format, ValueFormat::Mebibytes { .. }) => memory(*mib),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => decimal(&number.to_string()),
        Value::Text(text) => quoted(text),
        Value::List(items) => list(items.iter()),
        Value::Set(items) => list(items.iter()),
        Value::Size(size) => quoted(&friendly_size(*size)),
        Value::Property(property) => table(format.shape()?, property, parts)?,
        Value::Volume(_) => quoted(&print::pve(format, value)),
        Value::AnyUuid if parts == PartChoice::All => quoted(&print::pve(format, value)),
        Value::Secret | Value::AnyUuid | Value::Odd(_) => return None,
    })
}

/// A property string: its bare part alone if that is all there is, else a table.
fn table(shape: &Shape, property: &Property, parts: PartChoice) -> Option<String> {
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
        return Some(format!("{{ {switch} = false }}"));
    }
    let fresh = match parts {
        PartChoice::Compared => can_be_named_by_storage(property),
        PartChoice::All => matches!(property.volume(), Some(VolumeRef::Fresh { .. })),
    };
    let mut entries = Vec::new();
    // A part that must be there and says nothing was declared as an empty list; normal form drops it.
    let is_empty = |name: &str| parts == PartChoice::All && property.get(name).is_none();
    let empty = shape.parts.iter().filter(|part| part.required && is_empty(part.name));
    entries.extend(empty.map(|part| format!("{} = \"\"", part.name)));
    for (name, value) in &shown {
        if let (Value::Volume(volume), true) = (value, fresh) {
            entries.push(format!("storage = {}", quoted(volume.storage()?)));
            entries.push(format!("size = {}", quoted(&friendly_size(property.size()?))));
        } else if !(fresh && matches!(value, Value::Size(_))) {
            entries.push(format!("{name} = {}", spelled(&shape.part(name)?.format, value, parts)?));
        }
    }
    Some(format!("{{ {} }}", entries.join(", ")))
}

/// A volume that `storage` and `size` find again: of a known size, and not a template's base image.
fn can_be_named_by_storage(property: &Property) -> bool {
    let volume = property.volume();
    property.size().is_some_and(|size| size.0 > 0)
        && matches!(volume, Some(VolumeRef::Existing { .. }))
        && !volume.is_some_and(VolumeRef::is_base_image)
}

fn memory(mib: i64) -> String {
    if mib > 0 && mib % 1024 == 0 { quoted(&format!("{}GiB", mib / 1024)) } else { mib.to_string() }
}

/// `8GiB` for PVE's `8G`.
fn friendly_size(size: Bytes) -> String {
    let text = size.to_string();
    match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => format!("{number}{}iB", &text[number.len()..]),
        None => format!("{text}B"),
    }
}

pub(crate) fn list<'a>(items: impl Iterator<Item = &'a Box<str>>) -> String {
    let items: Vec<String> = items.map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

/// A decimal number; one that a double cannot hold is a text.
fn decimal(text: &str) -> String {
    if text.parse::<f64>().map(|number| number.to_string()).as_deref() != Ok(text) {
        return quoted(text);
    }
    if text.contains('.') { text.to_owned() } else { format!("{text}.0") }
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
