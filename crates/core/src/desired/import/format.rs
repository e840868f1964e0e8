//! The three syntaxes a desired file can be written in, from the same lines.
//!
//! Comments say what was left out. JSON has none, so its caller is handed them.

use std::fmt::Write as _;
use std::str::FromStr;

use crate::model::id::{GuestId, IdError};
use crate::value::spell::SpelledValue;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// A syntax of desired files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFormat {
    /// TOML, what people write first.
    #[default]
    Toml,
    /// YAML.
    Yaml,
    /// JSON, for machines.
    Json,
}

impl FileFormat {
    /// The ending of its files.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Toml => "toml",
            Self::Yaml => "yaml",
            Self::Json => "json",
        }
    }

    /// The syntax of a file with this ending.
    pub fn of_ending(ending: &str) -> Option<Self> {
        match ending {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl FromStr for FileFormat {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text {
            "toml" => Ok(Self::Toml),
            "yaml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            _ => {
                let what = "format of desired files";
                let why = "it must be toml, yaml or json";
                Err(IdError { what, text: crate::model::name::shown(text), why })
            }
        }
    }
}

/// One line below a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileLine {
    /// A key and its value.
    Declare(String, SpelledValue),
    /// What a reader would miss.
    Comment(String),
}

/// The file of one guest.
pub(super) fn written(guest: GuestId, lines: &[FileLine], format: FileFormat) -> String {
    match format {
        FileFormat::Toml => toml(guest, lines),
        FileFormat::Yaml => yaml(guest, lines),
        FileFormat::Json => json(guest, lines),
    }
}

fn toml(guest: GuestId, lines: &[FileLine]) -> String {
    let mut text = format!("[guest.{}]\n", guest.vmid);
    for line in lines {
        match line {
            FileLine::Declare(key, value) => writeln!(text, "{key} = {}", value.toml()),
            FileLine::Comment(why) => writeln!(text, "# {why}"),
        }
        .expect(INFALLIBLE);
    }
    text
}

fn yaml(guest: GuestId, lines: &[FileLine]) -> String {
    let mut text = format!("guest:\n  {}:\n", guest.vmid);
    for line in lines {
        match line {
            FileLine::Declare(key, value) => writeln!(text, "    {key}: {}", yaml_value(value)),
            FileLine::Comment(why) => writeln!(text, "    # {why}"),
        }
        .expect(INFALLIBLE);
    }
    text
}

fn yaml_value(value: &SpelledValue) -> String {
    match value {
        SpelledValue::Bool(on) => on.to_string(),
        SpelledValue::Number(number) => number.clone(),
        SpelledValue::Text(text) => yaml_text(text),
        SpelledValue::List(items) => {
            format!("[{}]", items.iter().map(|item| yaml_text(item)).collect::<Vec<_>>().join(", "))
        }
        SpelledValue::Table(parts) => {
            let parts = parts.iter().map(|(name, value)| format!("{name}: {}", yaml_value(value)));
            format!("{{ {} }}", parts.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Words that some reader of YAML takes for something else than text.
const YAML_WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan"];

/// A word as it is, everything else between quotes with JSON's escapes, which YAML reads too.
fn yaml_text(text: &str) -> String {
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._/-".contains(letter);
    let is_word = starts && text.chars().all(plain);
    if is_word && !YAML_WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    json_text(text)
}

fn json(guest: GuestId, lines: &[FileLine]) -> String {
    let declared = lines.iter().filter_map(|line| match line {
        FileLine::Declare(key, value) => {
            Some(format!("      {}: {}", json_text(key), json_value(value)))
        }
        FileLine::Comment(_) => None,
    });
    let declared = declared.collect::<Vec<_>>().join(",\n");
    let vmid = guest.vmid;
    format!("{{\n  \"guest\": {{\n    \"{vmid}\": {{\n{declared}\n    }}\n  }}\n}}\n")
}

fn json_value(value: &SpelledValue) -> String {
    match value {
        SpelledValue::Bool(on) => on.to_string(),
        SpelledValue::Number(number) => number.clone(),
        SpelledValue::Text(text) => json_text(text),
        SpelledValue::List(items) => {
            format!("[{}]", items.iter().map(|item| json_text(item)).collect::<Vec<_>>().join(", "))
        }
        SpelledValue::Table(parts) => {
            let part = |(name, value): &(String, SpelledValue)| {
                format!("{}: {}", json_text(name), json_value(value))
            };
            format!("{{ {} }}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
