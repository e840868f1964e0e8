//! The schema of one value: every spelling `field.rs` takes for a format.
//!
//! `mod.rs` asks for each key of the registry. Formats and property strings that occur more than once
//! are definitions, so that the schema stays small enough for an editor.

use serde_json::{Map, Value, json};

use super::pattern;
use crate::registry::{FormatPart, Key, Rule, Shape, Trailing, UNBOUNDED, ValueFormat};
use crate::value::read::DESCRIPTION_MAX;

/// The definitions of a schema while it is built.
#[derive(Default)]
pub(super) struct Definitions(Map<String, Value>);

impl Definitions {
    pub(super) fn finish(self) -> Value {
        Value::Object(self.0)
    }

    /// Adds a definition and refers to it.
    pub(super) fn define(&mut self, name: &str, schema: Value) -> Value {
        self.0.insert(name.to_owned(), schema);
        reference(name)
    }

    /// The schema of a key's value.
    pub(super) fn key(&mut self, kind: &str, key: &Key) -> Value {
        let ValueFormat::Property(shape) = key.format else {
            return self.value(&key.format, None);
        };
        let slot = if key.slots.is_some() { "N" } else { "" };
        let schema = self.property(shape);
        self.define(&format!("{kind}-{}{slot}", key.name), schema)
    }

    /// The schema of a value, alone or as a part of a table.
    pub(super) fn value(&mut self, format: &ValueFormat, inside: Option<&Shape>) -> Value {
        let Some(name) = name(format, inside) else {
            return spellings(format, inside);
        };
        if !self.0.contains_key(&name) {
            let schema = spellings(format, inside);
            self.0.insert(name.clone(), schema);
        }
        reference(&name)
    }

    fn property(&mut self, shape: &'static Shape) -> Value {
        let format = ValueFormat::Property(shape);
        let mut spellings = vec![text(&format, None)];
        let bare = shape.bare.and_then(|name| shape.part(name));
        let alone = |bare: &&FormatPart| {
            shape.parts.iter().all(|part| !part.required || part.name == bare.name)
        };
        if let Some(bare) = bare.filter(alone) {
            spellings.extend(scalars(&bare.format));
        }
        spellings.push(self.table(shape));
        any_of(spellings)
    }

    fn table(&mut self, shape: &'static Shape) -> Value {
        let mut properties = Map::new();
        let mut conditions = Vec::new();
        for part in shape.parts.iter().filter(|part| part.instead.is_none()) {
            // Only these read differently inside: a comma would end the text, a volume may be a CD-ROM.
            let inside =
                matches!(part.format, ValueFormat::Text(_) | ValueFormat::Volume).then_some(shape);
            let schema = self.value(&part.format, inside);
            let mut names: Vec<&str> = [&[part.name], part.aliases].concat();
            for name in &names {
                properties.insert((*name).to_owned(), schema.clone());
            }
            if matches!(part.format, ValueFormat::Volume) {
                properties.insert(
                    "storage".to_owned(),
                    self.value(&ValueFormat::Text(Rule::ConfigId), None),
                );
                names.push("storage");
                let has_drives = shape.part("media").is_some();
                if has_drives {
                    properties.insert("cloudinit".to_owned(), json!({ "const": true }));
                }
                conditions.extend(allocation(&names, has_drives));
            }
            if part.required {
                conditions.push(one_of_required(&names));
            }
            conditions.extend(pairs(&names).map(|pair| json!({ "not": { "required": pair } })));
        }
        for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
            if shape.part(gateway).is_some() && shape.part(address).is_some() {
                let fixed =
                    json!({ "required": [address], "properties": { address: { "pattern": "/" } } });
                conditions.push(json!({ "if": { "required": [gateway] }, "then": fixed }));
            }
        }
        let mut table =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !conditions.is_empty() {
            table["allOf"] = Value::Array(conditions);
        }
        table
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A new volume has one size and is no CD-ROM; cloud-init's drive has none. `names` are those of the volume, `storage` the
/// last.
fn allocation(names: &[&str], has_drives: bool) -> Vec<Value> {
    let not_a_cdrom = json!({ "media": { "not": { "const": "cdrom" } } });
    let is_fresh: Vec<Value> = names[..names.len() - 1]
        .iter()
        .map(|name| {
            let fresh =
                json!({ "type": "string", "pattern": pattern::whole(&pattern::fresh_volume()) });
            json!({ "required": [name], "properties": { *name: fresh } })
        })
        .collect();
    let mut one_size = not_a_cdrom.clone();
    one_size["size"] = Value::Bool(false);
    let sized = json!({ "if": { "required": ["storage"] }, "then": { "required": ["size"], "properties": not_a_cdrom } });
    let unsized_drive = json!({ "required": ["storage"], "properties": { "size": false } });
    let storage = if has_drives {
        json!({ "if": { "required": ["cloudinit"] }, "then": unsized_drive, "else": sized })
    } else {
        sized
    };
    vec![storage, json!({ "if": any_of(is_fresh), "then": { "properties": one_size } })]
}

fn one_of_required(names: &[&str]) -> Value {
    any_of(names.iter().map(|name| json!({ "required": [name] })).collect())
}

fn pairs<'a>(names: &'a [&'a str]) -> impl Iterator<Item = [&'a str; 2]> {
    let pair =
        |(at, one): (usize, &'a &'a str)| names[at + 1..].iter().map(move |other| [*one, *other]);
    names.iter().enumerate().flat_map(pair)
}

/// Every spelling of a value that is no property string.
fn spellings(format: &ValueFormat, inside: Option<&Shape>) -> Value {
    let mut spellings = scalars(format);
    spellings.push(text(format, inside));
    if let Some((item, _)) = format.items() {
        let item = pattern::whole(&pattern::item(item));
        let items = json!({ "type": "string", "pattern": item });
        spellings.push(json!({ "type": "array", "items": items }));
        if matches!(format, ValueFormat::Hotplug) {
            spellings.push(json!({ "type": "array", "items": { "const": "0" } }));
        }
    }
    any_of(spellings)
}

fn text(format: &ValueFormat, inside: Option<&Shape>) -> Value {
    if let ValueFormat::Choice(words) = format {
        return json!({ "enum": words });
    }
    let mut schema =
        json!({ "type": "string", "pattern": pattern::whole(&pattern::text(format, inside)) });
    if matches!(format, ValueFormat::Description(_)) {
        schema["maxLength"] = json!(DESCRIPTION_MAX);
    }
    schema
}

/// The spellings that are neither text, list nor table.
fn scalars(format: &ValueFormat) -> Vec<Value> {
    match *format {
        ValueFormat::Bool | ValueFormat::Hotplug => {
            vec![json!({ "type": "boolean" }), json!({ "enum": [0, 1] })]
        }
        ValueFormat::GeneratedUuid => vec![json!({ "enum": [0, 1] })],
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            vec![json!({ "type": "integer", "minimum": min, "maximum": max })]
        }
        ValueFormat::Mebibytes { min } => {
            vec![json!({ "type": "integer", "minimum": min, "maximum": UNBOUNDED })]
        }
        ValueFormat::Number { max } => {
            vec![json!({ "type": "number", "minimum": 0, "maximum": max })]
        }
        ValueFormat::Choice(words) => {
            let numbers: Vec<i64> = words.iter().filter_map(|word| word.parse().ok()).collect();
            if numbers.is_empty() { Vec::new() } else { vec![json!({ "enum": numbers })] }
        }
        ValueFormat::Text(_)
        | ValueFormat::Description(_)
        | ValueFormat::List { .. }
        | ValueFormat::Words { .. }
        | ValueFormat::Tags
        | ValueFormat::Boot
        | ValueFormat::Environment
        | ValueFormat::SshKeys
        | ValueFormat::Secret
        | ValueFormat::Volume
        | ValueFormat::Size
        | ValueFormat::Mac
        | ValueFormat::Cidr4
        | ValueFormat::Cidr6
        | ValueFormat::Ip4
        | ValueFormat::Ip6
        | ValueFormat::Property(_) => Vec::new(),
    }
}

fn any_of(mut schemas: Vec<Value>) -> Value {
    match schemas.len() {
        1 => schemas.remove(0),
        _ => json!({ "anyOf": schemas }),
    }
}

/// The name of a format's definition; none for what is shorter than a reference to it.
fn name(format: &ValueFormat, inside: Option<&Shape>) -> Option<String> {
    let rule = |rule: Rule| {
        if rule == Rule::Line && inside.is_some() {
            "line-without-comma".to_owned()
        } else {
            kebab(&format!("{rule:?}"))
        }
    };
    Some(match *format {
        ValueFormat::Bool => "boolean".to_owned(),
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max }
            if max == UNBOUNDED =>
        {
            format!("whole-from-{min}")
        }
        ValueFormat::Integer { min, max } | ValueFormat::Weight { min, max } => {
            format!("whole-{min}-to-{max}")
        }
        ValueFormat::Mebibytes { min } => format!("memory-from-{min}"),
        ValueFormat::Number { max: UNBOUNDED } => "number".to_owned(),
        ValueFormat::Number { max } => format!("number-to-{max}"),
        ValueFormat::Choice(_) => return None,
        ValueFormat::Text(item) => rule(item),
        ValueFormat::Description(Trailing::Newlines) => "description-of-lxc".to_owned(),
        ValueFormat::Description(Trailing::WhiteSpace) => "description-of-qemu".to_owned(),
        ValueFormat::List { item, .. } => format!("list-of-{}", rule(item)),
        ValueFormat::Words { item, .. } => format!("set-of-{}", rule(item)),
        ValueFormat::Tags => "tags".to_owned(),
        ValueFormat::Hotplug => "hotplug".to_owned(),
        ValueFormat::Boot => "boot".to_owned(),
        ValueFormat::Environment => "environment".to_owned(),
        ValueFormat::SshKeys => "ssh-keys".to_owned(),
        ValueFormat::Secret => "secret".to_owned(),
        ValueFormat::GeneratedUuid => "generated-uuid".to_owned(),
        ValueFormat::Volume if inside.is_some_and(|shape| shape.part("media").is_some()) => {
            "drive".to_owned()
        }
        ValueFormat::Volume => "volume".to_owned(),
        ValueFormat::Size => "size".to_owned(),
        ValueFormat::Mac => "mac".to_owned(),
        ValueFormat::Cidr4 => "cidr4".to_owned(),
        ValueFormat::Cidr6 => "cidr6".to_owned(),
        ValueFormat::Ip4 => "ip4".to_owned(),
        ValueFormat::Ip6 => "ip6".to_owned(),
        ValueFormat::Property(_) => return None,
    })
}

/// `DnsName` as `dns-name`.
fn kebab(camel: &str) -> String {
    let mut kebab = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}
