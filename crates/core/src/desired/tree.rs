//! The one tree every desired file becomes, whatever its syntax: values with byte positions.
//!
//! The parsers in [`super::syntax`] build it and the checker reads it. It knows nothing of guests
//! or keys, and two files that say the same in TOML, YAML and JSON give trees that differ only in
//! their spans.

use crate::words::diagnostic::{FILE_BYTES_MAX, Span};

/// How deep tables and lists may nest. A desired file needs five levels; the rest is room for a
/// person's own order, and a recursive walk over any tree stays shallow.
pub const DEPTH_MAX: usize = 32;

/// How many values one file may hold, copies made by YAML aliases included: a thousand guests of a
/// hundred values each. It stops an alias bomb before it costs memory or time.
pub const NODES_MAX: usize = 100_000;

/// How many bytes of text YAML anchors and aliases may copy: a file may not repeat more than the
/// largest file could say.
pub const COPIED_TEXT_BYTES_MAX: usize = FILE_BYTES_MAX;

/// One value and where it stands.
///
/// The span covers the value as written, quotes and brackets included. A TOML table with a header
/// has the span of its header, one made by dotted keys the span of its key, a YAML block the span
/// from its first to its last child, a YAML alias the span of the alias (its children stay where
/// they are defined), and the top table the whole file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub value: Tree,
}

/// A value of any of the three syntaxes. Integers have the range of TOML's; floats are finite.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    /// YAML's and JSON's null; TOML has none.
    Null,
    /// `true` or `false`; the `yes` and `off` of old YAML are text.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number written with a point or an exponent.
    Float(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Keys with values in the order they are written, no key twice.
    Table(Vec<TreeEntry>),
}

impl Tree {
    /// The kind of value in a person's words.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Integer(_) => "integer",
            Self::Float(_) => "float",
            Self::Text(_) => "text",
            Self::List(_) => "list",
            Self::Table(_) => "table",
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

impl Node {
    /// The entry with this key, when this is a table that has it.
    pub fn entry(&self, key: &str) -> Option<&TreeEntry> {
        match &self.value {
            Tree::Table(entries) => entries.iter().find(|entry| entry.key == key),
            Tree::Null
            | Tree::Bool(_)
            | Tree::Integer(_)
            | Tree::Float(_)
            | Tree::Text(_)
            | Tree::List(_) => None,
        }
    }
}

/// One key of a table with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeEntry {
    /// The key, unquoted. YAML's `101:` is the key `101`, as in TOML.
    pub key: String,
    /// Where the key stands, quotes included.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}
