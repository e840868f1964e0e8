//! The same declared value in the ways TOML lets a person write it.
#![expect(clippy::wildcard_enum_match_arm, reason = "a format without spellings is put in quotes")]

use std::fmt::Write as _;

use evenkeel_core::registry::{Shape, ValueFormat};

use crate::dice::Dice;
use crate::spelling::{Said, joined};

/// A declared value as TOML.
pub(crate) fn value(dice: &mut Dice, format: &ValueFormat, said: &Said) -> String {
    match (format, said) {
        (ValueFormat::Property(shape), Said::Parts(parts)) if dice.chance(50) => {
            table(dice, shape, parts)
        }
        (ValueFormat::Property(shape), Said::Parts(parts)) => quoted(&joined(shape, parts)),
        (_, Said::Plain(text)) => plain(dice, format, text),
        (_, Said::Parts(_)) => panic!("only property strings have parts"),
    }
}

/// A text in quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => write!(quoted, "\\u{:04X}", u32::from(c)).unwrap(),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn plain(dice: &mut Dice, format: &ValueFormat, text: &str) -> String {
    match format {
        ValueFormat::Bool => match (text, dice.roll(4)) {
            ("1", 0) => "true".to_owned(),
            ("1", 1) => "\"yes\"".to_owned(),
            (_, 0) => "false".to_owned(),
            (_, 1) => "\"Off\"".to_owned(),
            (text, 2) => text.to_owned(),
            (text, _) => quoted(text),
        },
        ValueFormat::Mebibytes { .. } => match dice.roll(4) {
            0 => text.to_owned(),
            1 => format!("\"{text}MiB\""),
            2 => format!("\"{text} M\""),
            _ => quoted(text),
        },
        ValueFormat::Integer { .. } | ValueFormat::Weight { .. } | ValueFormat::Number { .. }
            if dice.chance(50) =>
        {
            text.to_owned()
        }
        ValueFormat::List { .. } | ValueFormat::Words { .. } | ValueFormat::Tags
            if dice.chance(50) =>
        {
            array(text.split([',', ';', ' ']))
        }
        ValueFormat::Hotplug if text.contains(',') && dice.chance(50) => array(text.split(',')),
        ValueFormat::Boot if text.starts_with("order=") && dice.chance(50) => {
            array(text["order=".len()..].split(';'))
        }
        ValueFormat::Environment => array(text.split('\0')),
        ValueFormat::SshKeys if dice.chance(50) => array(text.split('\n')),
        _ => quoted(text),
    }
}

fn array<'t>(items: impl Iterator<Item = &'t str>) -> String {
    let items: Vec<String> = items.filter(|item| !item.is_empty()).map(quoted).collect();
    format!("[{}]", items.join(", "))
}

fn table(dice: &mut Dice, shape: &Shape, parts: &[(&'static str, String)]) -> String {
    let mut entries = Vec::new();
    for (name, value) in parts {
        let part = shape.part(name).unwrap();
        let fresh = value.split_once(':').filter(|(_, size)| size.parse::<f64>().is_ok());
        match (part.format, fresh) {
            (ValueFormat::Volume, Some((storage, size))) if dice.chance(60) => {
                entries.push(format!("storage = {}", quoted(storage)));
                entries.push(format!("size = \"{size}GiB\""));
            }
            (format, _) => entries.push(format!("{name} = {}", plain(dice, &format, value))),
        }
    }
    dice.shuffle(&mut entries);
    format!("{{ {} }}", entries.join(", "))
}
