//! One declared value, in any spelling, to its normal form.
//!
//! A value may be PVE's own string (`"name=eth0,bridge=vmbr0"`) or friendlier: booleans, sizes with
//! units, lists, and tables for property strings. All of them end in the reader of `value::read`, so a
//! value means the same however it is written.

use super::tree::{Node, Tree, TreeEntry};
use crate::registry::{FormatPart, KeyRef, Shape, ValueFormat};
use crate::value::{Misfit, Property, Value, VolumeRef, read};
use crate::words::diagnostic::{Code, Diagnostic, Sources, Span};

/// Reads a declared value, or says everything that is wrong with it.
pub(super) fn value(sources: &Sources, key: KeyRef, node: &Node) -> Result<Value, Vec<Diagnostic>> {
    let name = key.to_string();
    FieldReader { sources }.value(&name, &key.key().format, node)
}

/// A value of a type that does not belong there.
pub(super) fn wrong_type(node: &Node, message: &str) -> Diagnostic {
    let found = node.value.kind_name();
    let diagnostic = Diagnostic::new(Code::WrongType, message)
        .at(node.span, format!("this is {}", article(found)));
    match node.value {
        Tree::Null => diagnostic.hint("a key that must be absent goes into `unset`"),
        Tree::Bool(_)
        | Tree::Integer(_)
        | Tree::Float(_)
        | Tree::Text(_)
        | Tree::List(_)
        | Tree::Table(_) => diagnostic,
    }
}

pub(super) fn article(noun: &str) -> String {
    match noun {
        "integer" => "an integer".to_owned(),
        "text" | "null" => noun.to_owned(),
        _ => format!("a {noun}"),
    }
}

struct FieldReader<'a> {
    sources: &'a Sources,
}

impl FieldReader<'_> {
    fn value(
        &self,
        name: &str,
        format: &ValueFormat,
        node: &Node,
    ) -> Result<Value, Vec<Diagnostic>> {
        match &node.value {
            Tree::Text(text) => self.text(name, format, text, node.span),
            Tree::List(items) => self.list(name, format, items, node),
            Tree::Table(entries) => match format.shape() {
                Some(shape) => self.table(name, shape, entries, node),
                None => Err(vec![mismatch(name, format, node)]),
            },
            Tree::Integer(number) if takes_number(format) => {
                self.text(name, format, &number.to_string(), node.span)
            }
            // `2.0` prints as `2`: JSON knows one kind of number, and so does its schema.
            Tree::Float(number) if takes_number(format) => {
                self.text(name, format, &number.to_string(), node.span)
            }
            Tree::Bool(on) if takes_bool(format) => {
                self.text(name, format, if *on { "1" } else { "0" }, node.span)
            }
            Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) => {
                Err(vec![mismatch(name, format, node)])
            }
        }
    }

    fn text(
        &self,
        name: &str,
        format: &ValueFormat,
        text: &str,
        span: Span,
    ) -> Result<Value, Vec<Diagnostic>> {
        let value = read::declared(format, text)
            .map_err(|misfit| vec![self.misfit(name, &misfit, span)])?;
        if needs_size(&value) {
            return Err(vec![no_size(name, &value, span)]);
        }
        Ok(value)
    }

    /// A list of items, each in quotes.
    fn list(
        &self,
        name: &str,
        format: &ValueFormat,
        items: &[Node],
        node: &Node,
    ) -> Result<Value, Vec<Diagnostic>> {
        let Some((_, separator)) = format.items() else {
            return Err(vec![mismatch(name, format, node)]);
        };
        let mut texts = Vec::new();
        let mut errors = Vec::new();
        for item in items {
            let Some(text) = item.value.as_text() else {
                let message = format!("the items of `{name}` must be text in quotes");
                errors.push(wrong_type(item, &message));
                continue;
            };
            match self.item(name, format, text, item.span) {
                Ok(()) => texts.push(text),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let joined = texts.join(separator.encode_utf8(&mut [0; 4]));
        let joined =
            if matches!(format, ValueFormat::Boot) { format!("order={joined}") } else { joined };
        self.text(name, format, &joined, node.span)
    }

    /// One item must be one item: a separator inside would make two of it.
    fn item(
        &self,
        name: &str,
        format: &ValueFormat,
        text: &str,
        span: Span,
    ) -> Result<(), Diagnostic> {
        let whole = if matches!(format, ValueFormat::Boot) {
            format!("order={text}")
        } else {
            text.to_owned()
        };
        match read::declared(format, &whole) {
            Ok(Value::List(items)) if items.iter().map(AsRef::as_ref).eq([text]) => Ok(()),
            Ok(Value::Set(items)) if items.iter().map(AsRef::as_ref).eq([text]) => Ok(()),
            Ok(_) => Err(Diagnostic::new(
                Code::BadValue,
                format!("an item of `{name}` must be one word"),
            )
            .at(span, "not one item")),
            Err(misfit) => Err(self.misfit(name, &misfit, span)),
        }
    }

    /// A property string as a table.
    fn table(
        &self,
        name: &str,
        shape: &Shape,
        entries: &[TreeEntry],
        node: &Node,
    ) -> Result<Value, Vec<Diagnostic>> {
        let mut property = Property::default();
        let mut errors = Vec::new();
        let mut given: Vec<(&str, Span)> = Vec::new();
        for entry in entries {
            if let Some(part) = shape.part(&entry.key) {
                if let Some((_, first)) = given.iter().find(|(given, _)| *given == part.name) {
                    errors.push(given_twice(name, part, entry, *first));
                    continue;
                }
                given.push((part.name, entry.key_span));
            }
            if let Err(mut more) = self.part(name, shape, entry, &mut property) {
                errors.append(&mut more);
            }
        }
        let size = given.iter().find(|(part, _)| *part == "size");
        if let (Some((_, size)), Some(VolumeRef::Fresh { .. })) = (size, property.volume()) {
            errors.push(two_sizes(name, *size));
        }
        let storage = entries.iter().find(|entry| entry.key == "storage" && has_volume(shape));
        let drive = entries.iter().find(|entry| is_cloud_init_word(shape, entry));
        if let Some(drive) = drive {
            errors.extend(cloud_init_mistake(name, drive, storage, size.map(|(_, size)| *size)));
        }
        if let Some(storage) = storage {
            let drive = drive.is_some();
            errors.extend(self.storage(name, shape, storage, drive, &mut property).err());
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        read::require(shape, &property)
            .and_then(|()| read::goes_together(&property))
            .map_err(|misfit| vec![self.misfit(name, &misfit, node.span)])?;
        read::normalise(shape, &mut property);
        let value = Value::Property(property);
        if needs_size(&value) { Err(vec![no_size(name, &value, node.span)]) } else { Ok(value) }
    }

    fn part(
        &self,
        name: &str,
        shape: &Shape,
        entry: &TreeEntry,
        property: &mut Property,
    ) -> Result<(), Vec<Diagnostic>> {
        if is_cloud_init_word(shape, entry) || entry.key == "storage" && has_volume(shape) {
            return Ok(());
        }
        let Some(part) = shape.part(&entry.key) else {
            return Err(vec![unknown_part(name, shape, entry)]);
        };
        let full = format!("{name}.{}", part.name);
        read::declarable(part)
            .map_err(|misfit| vec![self.misfit(&full, &misfit, entry.key_span)])?;
        if let (ValueFormat::Volume, Tree::Text(text)) = (&part.format, &entry.value.value) {
            return read::declared_volume(property, part, text)
                .map_err(|misfit| vec![self.misfit(&full, &misfit, entry.value.span)]);
        }
        let value = self.value(&full, &part.format, &entry.value)?;
        if matches!(&value, Value::Text(text) if text.contains(',')) {
            return Err(vec![self.misfit(&full, &read::comma(), entry.value.span)]);
        }
        property.set(part.name, value);
        Ok(())
    }

    /// `storage = "local-lvm"` stands for a volume to be allocated there, or for cloud-init's drive.
    fn storage(
        &self,
        name: &str,
        shape: &Shape,
        entry: &TreeEntry,
        is_cloud_init: bool,
        property: &mut Property,
    ) -> Result<(), Diagnostic> {
        let part = volume_part(shape).expect("the caller saw a volume part");
        if property.volume().is_some() {
            let message = format!("`{name}` names both a storage and a volume");
            return Err(Diagnostic::new(Code::Contradiction, message).at(entry.key_span, "").hint(
                format!(
                    "keep `{}` for a volume that exists, `storage` and `size` for a new one",
                    part.name
                ),
            ));
        }
        let Tree::Text(storage) = &entry.value.value else {
            return Err(wrong_type(
                &entry.value,
                &format!("`{name}.storage` must be the name of a storage"),
            ));
        };
        let format = ValueFormat::Text(crate::registry::Rule::ConfigId);
        let storage = read::declared(&format, storage)
            .map_err(|misfit| self.misfit(&format!("{name}.storage"), &misfit, entry.value.span))?;
        if let Value::Text(storage) = storage {
            let volume = if is_cloud_init {
                VolumeRef::CloudInit { storage }
            } else {
                VolumeRef::Fresh { storage }
            };
            property.set(part.name, Value::Volume(volume.into()));
        }
        Ok(())
    }

    fn misfit(&self, name: &str, misfit: &Misfit, span: Span) -> Diagnostic {
        let place =
            misfit.piece.as_deref().and_then(|piece| self.narrow(span, piece)).unwrap_or(span);
        let name = match misfit.part {
            Some(part) => format!("{name}.{part}"),
            None => name.to_owned(),
        };
        let diagnostic =
            Diagnostic::new(Code::BadValue, format!("`{name}`: {}", misfit.why)).at(place, "");
        match &misfit.hint {
            Some(hint) => diagnostic.hint(hint.clone()),
            None => diagnostic,
        }
    }

    /// The place of a piece inside a value's text, if it stands there just once.
    fn narrow(&self, span: Span, piece: &str) -> Option<Span> {
        let text = self.sources.get(span.file)?.text.get(span.start..span.end)?;
        let mut places = text.match_indices(piece);
        let (at, _) = places.next()?;
        let once = places.next().is_none() && !piece.is_empty();
        once.then(|| Span::new(span.file, span.start + at, span.start + at + piece.len()))
    }
}

fn mismatch(name: &str, format: &ValueFormat, node: &Node) -> Diagnostic {
    if node.value == Tree::Null {
        return wrong_type(node, &format!("`{name}` has no value"));
    }
    wrong_type(node, &format!("`{name}` must be {}", expectation(format)))
}

fn given_twice(name: &str, part: &FormatPart, entry: &TreeEntry, first: Span) -> Diagnostic {
    let message = if entry.key == part.name {
        format!("`{}` is given twice in `{name}`", part.name)
    } else {
        format!(
            "`{}` of `{name}` is another name of `{}`, which is given too",
            entry.key, part.name
        )
    };
    Diagnostic::new(Code::Duplicate, message)
        .at(entry.key_span, "given again here")
        .related(first, "first given here")
}

fn two_sizes(name: &str, size: Span) -> Diagnostic {
    Diagnostic::new(Code::Contradiction, format!("`{name}` names two sizes"))
        .at(size, "the volume to allocate has one already")
        .hint(
            "write storage = \"local-lvm\" and size = \"8GiB\", without a number after the storage",
        )
}

fn unknown_part(name: &str, shape: &Shape, entry: &TreeEntry) -> Diagnostic {
    let message = format!("`{name}` has no part `{}`", entry.key);
    let diagnostic =
        Diagnostic::new(Code::UnknownKey, message).at(entry.key_span, "not a part of it");
    diagnostic.hint(read::part_advice(shape, &entry.key))
}

fn volume_part(shape: &Shape) -> Option<&'static FormatPart> {
    shape.parts.iter().find(|part| matches!(part.format, ValueFormat::Volume))
}

fn has_volume(shape: &Shape) -> bool {
    volume_part(shape).is_some()
}

/// `cloudinit = true` beside a storage stands for the drive that PVE fills with cloud-init's answers.
fn is_cloud_init_word(shape: &Shape, entry: &TreeEntry) -> bool {
    entry.key == "cloudinit" && shape.part("media").is_some()
}

fn cloud_init_mistake(
    name: &str,
    entry: &TreeEntry,
    storage: Option<&TreeEntry>,
    size: Option<Span>,
) -> Option<Diagnostic> {
    let example = format!("write {name} = {{ storage = \"local-lvm\", cloudinit = true }}");
    if entry.value.value != Tree::Bool(true) {
        let error = wrong_type(&entry.value, &format!("`{name}.cloudinit` must be true"));
        return Some(error.hint(format!("{example}, or leave it out")));
    }
    if storage.is_none() {
        let message = format!("`{name}` is cloud-init's drive and names no storage");
        let error =
            Diagnostic::new(Code::Structure, message).at(entry.key_span, "on which storage?");
        return Some(error.hint(example));
    }
    let size = size?;
    let message = format!("`{name}` is cloud-init's drive, which has no size of its own");
    Some(Diagnostic::new(Code::Contradiction, message).at(size, "not here").hint(example))
}

/// A volume that must be allocated and has no size.
fn needs_size(value: &Value) -> bool {
    let property = value.as_property();
    property.is_some_and(|property| {
        matches!(property.volume(), Some(VolumeRef::Fresh { .. })) && property.size().is_none()
    })
}

fn no_size(name: &str, value: &Value, span: Span) -> Diagnostic {
    if value.as_property().is_some_and(Property::is_cdrom) {
        return Diagnostic::new(
            Code::Contradiction,
            format!("`{name}` is a CD-ROM, which cannot be allocated"),
        )
        .at(span, "both a new volume and media=cdrom")
        .hint("name an image such as local:iso/debian.iso, or none for an empty drive");
    }
    Diagnostic::new(Code::Structure, format!("`{name}` names a storage and no size"))
        .at(span, "how large shall it be?")
        .hint("add size = \"8GiB\"")
}

/// The format a scalar has: of a property string, that of its bare part.
fn scalar(format: &ValueFormat) -> &ValueFormat {
    let bare = format.shape().and_then(|shape| shape.part(shape.bare?));
    bare.map_or(format, |part| &part.format)
}

fn takes_number(format: &ValueFormat) -> bool {
    matches!(
        scalar(format),
        ValueFormat::Integer { .. }
            | ValueFormat::Weight { .. }
            | ValueFormat::Mebibytes { .. }
            | ValueFormat::Number { .. }
            | ValueFormat::Bool
            | ValueFormat::Choice(_)
            | ValueFormat::GeneratedUuid
            | ValueFormat::Hotplug
    )
}

fn takes_bool(format: &ValueFormat) -> bool {
    matches!(scalar(format), ValueFormat::Bool | ValueFormat::Hotplug)
}

/// What a format asks for, as the end of "must be".
fn expectation(format: &ValueFormat) -> &'static str {
    match format {
        ValueFormat::Bool => "true or false",
        ValueFormat::Integer { .. } | ValueFormat::Weight { .. } => "a whole number",
        ValueFormat::Mebibytes { .. } => "a number of MiB, or a size in quotes such as \"2GiB\"",
        ValueFormat::Number { .. } => "a number",
        ValueFormat::Choice(_) | ValueFormat::Text(_) | ValueFormat::Description(_) => {
            "text in quotes"
        }
        ValueFormat::List { .. }
        | ValueFormat::Words { .. }
        | ValueFormat::Tags
        | ValueFormat::Hotplug
        | ValueFormat::Environment
        | ValueFormat::SshKeys => "a list of texts in quotes",
        ValueFormat::Boot => "a list of devices",
        ValueFormat::Secret => "left out",
        ValueFormat::GeneratedUuid => "a UUID in quotes",
        ValueFormat::Volume => "a volume id in quotes",
        ValueFormat::Size => "a size in quotes such as \"8GiB\"",
        ValueFormat::Mac
        | ValueFormat::Cidr4
        | ValueFormat::Cidr6
        | ValueFormat::Ip4
        | ValueFormat::Ip6 => "an address in quotes",
        ValueFormat::Property(_) => "a table, or Proxmox VE's own text in quotes",
    }
}
