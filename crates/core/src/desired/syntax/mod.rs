//! Text to tree: a desired file in TOML, YAML or JSON becomes one [`Node`].
//!
//! ```text
//! a.toml ──► toml.rs ─┐
//! a.yaml ──► yaml.rs ─┼─► Growth: limits, numbers, duplicate keys ──► Node | every mistake found
//! a.json ──► json.rs ─┘
//! ```
//!
//! The checker calls [`parse`] for each file. What the three syntaxes share is decided once, in
//! `Growth`, so that no value is allowed by one and refused by another. Nothing here may panic,
//! hang or grow without bound, whatever the text: it may come from a stranger.

mod advice;
mod json;
mod toml;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use super::field::article;
use super::tree::{DEPTH_MAX, NODES_MAX, Node, Tree, TreeEntry};
use crate::words::diagnostic::{
    Code, Diagnostic, FILE_BYTES_MAX, FileId, MistakeList, SourceFile, Span,
};

/// Reads a file by its extension. The tree's top is always a table; an empty file is an empty one.
/// On error, the mistakes found are told, in the order of the text: the first hundred, and how many more there are.
pub fn parse(file: &SourceFile) -> Result<Node, Vec<Diagnostic>> {
    let read = match extension(&file.path).as_deref() {
        Some("toml") => toml::read,
        Some("yaml" | "yml") => yaml::read,
        Some("json") => json::read,
        Some(_) | None => return Err(vec![unknown_extension(&file.path)]),
    };
    if file.text.len() > FILE_BYTES_MAX {
        return Err(vec![SourceFile::too_large(&file.path, file.text.len())]);
    }
    let mut growth = Growth::new(file);
    if file.text.starts_with('\u{feff}') {
        // One mark was dropped when the file was made; TOML and YAML would skip this one silently.
        growth.refuse(Code::Syntax, 0..3, "a second byte order mark", "remove it");
        return Err(growth.mistakes.finish());
    }
    let top = read(&mut growth);
    growth.finish(top)
}

/// The ending of a name, in lower case: `WEB.TOML` is as good as `web.toml`.
fn extension(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase())
}

/// Reads a file as TOML, whatever its name is: `agent.toml` is told its mistakes as desired files are.
pub fn parse_toml(file: &SourceFile) -> Result<Node, Vec<Diagnostic>> {
    let mut growth = Growth::new(file);
    let top = toml::read(&mut growth);
    growth.finish(top)
}

fn unknown_extension(path: &str) -> Diagnostic {
    Diagnostic::new(Code::Extension, format!("`{path}` has no extension that names its syntax"))
        .hint("a desired file ends in .toml, .yaml (or .yml) or .json")
}

/// A tree while it grows: the rules all syntaxes share, and the mistakes found so far.
struct Growth<'text> {
    file: FileId,
    text: &'text str,
    nodes: usize,
    full: bool,
    mistakes: MistakeList,
}

impl<'text> Growth<'text> {
    fn new(file: &'text SourceFile) -> Self {
        let mistakes = MistakeList::default();
        Self { file: file.id, text: &file.text, nodes: 0, full: false, mistakes }
    }

    /// The tree, if there was no mistake and its top is a table.
    fn finish(mut self, top: Option<Node>) -> Result<Node, Vec<Diagnostic>> {
        let whole = self.span(0..self.text.len());
        let top = top.map(|mut node| {
            let kind = node.value.kind_name();
            if let Tree::Table(_) = node.value {
                node.span = whole;
            } else {
                self.mistake(
                    Diagnostic::new(Code::WrongType, "the top of a desired file must be a table")
                        .at(node.span, format!("this is {}", article(kind)))
                        .hint("start with a key such as `guest`"),
                );
            }
            node
        });
        match top {
            Some(node) if self.mistakes.is_empty() => Ok(node),
            Some(_) | None => {
                assert!(!self.mistakes.is_empty(), "a reader without a tree tells a mistake");
                Err(self.mistakes.finish())
            }
        }
    }

    fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.file, range.start, range.end)
    }

    /// The range of the one character at an offset, empty at the end of the text.
    fn character_at(&self, offset: usize) -> Range<usize> {
        let start = self.text.floor_char_boundary(offset);
        let length = self.text[start..].chars().next().map_or(0, char::len_utf8);
        start..start + length
    }

    fn mistake(&mut self, mistake: Diagnostic) {
        self.mistakes.push(mistake);
    }

    /// Notes a mistake at a place; an empty hint is left out.
    fn refuse(&mut self, code: Code, range: Range<usize>, message: impl Into<String>, hint: &str) {
        let mut mistake = Diagnostic::new(code, message).at(self.span(range), "");
        if !hint.is_empty() {
            mistake = mistake.hint(hint);
        }
        self.mistake(mistake);
    }

    /// Notes what a parser stumbled over, in its words and with the next step in ours.
    fn stumble(&mut self, range: Range<usize>, message: &str) {
        self.refuse(Code::Syntax, range, phrase(message), advice::advice(message));
    }

    /// Whether one more value may stand here. The first refusal is told, the rest are silent.
    fn admit(&mut self, range: Range<usize>, depth: usize) -> bool {
        self.nodes = self.nodes.saturating_add(1);
        if self.full {
            return false;
        }
        if depth > DEPTH_MAX {
            self.full = true;
            self.too_deep(range);
        } else if self.nodes > NODES_MAX {
            self.full = true;
            self.too_many(range);
        }
        !self.full
    }

    fn too_deep(&mut self, range: Range<usize>) {
        let message = format!("nested deeper than {DEPTH_MAX} levels");
        self.refuse(
            Code::Limit,
            range,
            message,
            "no desired file needs that: see that brackets are closed",
        );
    }

    fn too_many(&mut self, range: Range<usize>) {
        let message = format!("more than {NODES_MAX} values in one file");
        let hint = "split the guests over several files of the directory";
        self.refuse(Code::Limit, range, message, hint);
    }

    /// A whole number from digits with an optional sign.
    fn integer(&mut self, digits: &str, radix: u32, range: Range<usize>) -> Option<Tree> {
        if let Ok(number) = i64::from_str_radix(digits, radix) {
            return Some(Tree::Integer(number));
        }
        let message = format!("this number does not lie between {} and {}", i64::MIN, i64::MAX);
        self.refuse(Code::BadValue, range, message, "quote it if it is text");
        None
    }

    /// A finite number with a fraction or an exponent.
    fn float(&mut self, digits: &str, range: Range<usize>) -> Option<Tree> {
        if let Ok(number) = digits.parse::<f64>()
            && number.is_finite()
        {
            return Some(Tree::Float(number));
        }
        self.refuse(Code::BadValue, range, "not a finite number", "quote it if it is text");
        None
    }
}

/// A table while it grows: keeps the order, refuses a key twice with both places.
#[derive(Default)]
struct Keys {
    first: BTreeMap<String, Span>,
    entries: Vec<TreeEntry>,
}

impl Keys {
    /// Whether the key is new here; a repetition is told.
    fn claim(&mut self, key: &str, key_span: Span, growth: &mut Growth) -> bool {
        if let Some(first) = self.first.get(key) {
            growth.mistake(duplicate_key(key, key_span, Some(*first)));
            return false;
        }
        self.first.insert(key.to_owned(), key_span);
        true
    }
}

fn duplicate_key(key: &str, again: Span, first: Option<Span>) -> Diagnostic {
    let mistake = Diagnostic::new(Code::Duplicate, format!("the key `{key}` stands twice"))
        .at(again, "declared again here")
        .hint("keep one of the two");
    match first {
        Some(first) => mistake.related(first, "first declared here"),
        None => mistake,
    }
}

/// A parser's own message in our manner: a lower-case phrase.
fn phrase(message: &str) -> String {
    let mut letters = message.chars();
    match (letters.next(), letters.clone().next()) {
        // `YAML directives …` and `EOF …` keep their capitals.
        (Some(first), second) if !second.is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        (Some(_) | None, _) => message.to_owned(),
    }
}
