//! TOML 1.1 to tree, all syntax errors at once.
//!
//! Called by [`super::parse`] alone. TOML knows dates and no null; dates are refused, because
//! neither other syntax has them and no key takes one.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Growth, duplicate_key};
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::words::diagnostic::{Code, MISTAKES_TOLD_MAX, Span};

pub(super) fn read(growth: &mut Growth) -> Option<Node> {
    let text = growth.text;
    let (table, mut errors) = DeTable::parse_recoverable(text);
    // A wrong file has a mistake in every byte; only those that will be told are kept.
    errors.sort_by_key(|error| error.span().map(|span| span.start));
    growth.mistakes.count_untold(errors.len().saturating_sub(MISTAKES_TOLD_MAX));
    errors.truncate(MISTAKES_TOLD_MAX);
    let mut duplicates = Vec::new();
    for error in errors {
        match (error.message(), error.span()) {
            ("duplicate key", Some(again)) => duplicates.push(again),
            (message, at) => refuse(message, at, growth),
        }
    }
    refuse_duplicates(text, &duplicates, growth);
    if !growth.mistakes.is_empty() {
        // What a broken text seems to hold is a guess; mistakes found in a guess would mislead.
        return None;
    }
    node(0..0, table.get_ref(), 0, growth)
}

fn refuse(message: &str, at: Option<Range<usize>>, growth: &mut Growth) {
    if message == "recursion limit" || message.starts_with("cannot recurse") {
        growth.too_deep(at.unwrap_or(0..0));
    } else {
        growth.stumble(at.unwrap_or(0..0), message);
    }
}

fn node(range: Range<usize>, table: &DeTable, depth: usize, growth: &mut Growth) -> Option<Node> {
    if !growth.admit(range.clone(), depth) {
        return None;
    }
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        if let Some(node) = value_node(value, depth + 1, growth) {
            let key_span = growth.span(key.span());
            entries.push(TreeEntry { key: key.get_ref().to_string(), key_span, value: node });
        }
    }
    // The parser sorts by name; a person wrote them in another order.
    entries.sort_by_key(|entry| entry.key_span.start);
    Some(Node { span: growth.span(range), value: Tree::Table(entries) })
}

fn value_node(value: &Spanned<DeValue>, depth: usize, growth: &mut Growth) -> Option<Node> {
    let range = value.span();
    if let DeValue::Table(table) = value.get_ref() {
        return node(range, table, depth, growth);
    }
    if !growth.admit(range.clone(), depth) {
        return None;
    }
    let span = growth.span(range.clone());
    let value = match value.get_ref() {
        DeValue::String(text) => Tree::Text(text.to_string()),
        DeValue::Integer(integer) => growth.integer(integer.as_str(), integer.radix(), range)?,
        DeValue::Float(float) => growth.float(float.as_str(), range)?,
        DeValue::Boolean(boolean) => Tree::Bool(*boolean),
        DeValue::Datetime(_) => {
            let message = "dates and times are not used in desired files";
            growth.refuse(Code::Unsupported, range, message, "quote it if it is text");
            return None;
        }
        DeValue::Array(array) => {
            let items = array.iter();
            Tree::List(items.filter_map(|item| value_node(item, depth + 1, growth)).collect())
        }
        DeValue::Table(_) => unreachable!("tables are handled above"),
    };
    Some(Node { span, value })
}

/// Tells each repeated key with the place of its first declaration.
///
/// The parser names only the second place. So each repetition gets a name of its own and the text
/// is read once more: the first declaration is then the neighbour with the old name.
fn refuse_duplicates(text: &str, duplicates: &[Range<usize>], growth: &mut Growth) {
    let mut again: Vec<_> = duplicates.to_vec();
    again.sort_by_key(|range| range.start);
    again.dedup();
    if again.is_empty() {
        return;
    }
    let renamed = Renamed::new(text, &again);
    let mut first = vec![None; again.len()];
    let (table, _) = DeTable::parse_recoverable(&renamed.text);
    renamed.find_first(table.get_ref(), &mut first);
    for (index, range) in again.into_iter().enumerate() {
        let first = first[index].take().map(|range: Range<usize>| growth.span(range));
        let again: Span = growth.span(range);
        growth.mistake(duplicate_key(&renamed.keys[index], again, first));
    }
}

/// The text with every repeated key renamed to a NUL and its index, a name nobody uses.
struct Renamed {
    text: String,
    /// The repeated keys, unquoted.
    keys: Vec<String>,
    /// For each renaming: where its new name ends in the new text, and where the old one ended.
    ends: Vec<(usize, usize)>,
}

impl Renamed {
    /// A text that uses such a name itself only loses the note where a key was first declared.
    fn new(text: &str, again: &[Range<usize>]) -> Self {
        let mut renamed = Self { text: String::new(), keys: Vec::new(), ends: Vec::new() };
        let mut copied = 0;
        for (index, range) in again.iter().enumerate() {
            renamed.text.push_str(&text[copied..range.start]);
            renamed.text.push_str("\"\\u0000 again ");
            renamed.text.push_str(&index.to_string());
            renamed.text.push('"');
            copied = range.end;
            renamed.ends.push((renamed.text.len(), copied));
            renamed.keys.push(unquoted(&text[range.clone()]));
        }
        renamed.text.push_str(&text[copied..]);
        renamed
    }

    fn find_first(&self, table: &DeTable, first: &mut [Option<Range<usize>>]) {
        for (key, value) in table {
            // Found by its place, not its name: the text may hold any name.
            if let Ok(index) = self.ends.binary_search_by_key(&key.span().end, |(end, _)| *end) {
                let neighbour = table.iter().find(|(key, _)| *key.get_ref() == self.keys[index]);
                first[index] = neighbour.map(|(key, _)| self.old_range(key.span()));
            }
            self.find_first_in_value(value.get_ref(), first);
        }
    }

    fn find_first_in_value(&self, value: &DeValue, first: &mut [Option<Range<usize>>]) {
        if let DeValue::Table(table) = value {
            self.find_first(table, first);
        } else if let DeValue::Array(items) = value {
            for item in items {
                self.find_first_in_value(item.get_ref(), first);
            }
        }
    }

    /// A range of the new text that holds no renamed key, in the old text.
    fn old_range(&self, range: Range<usize>) -> Range<usize> {
        let before = self.ends.iter().rfind(|(new_end, _)| *new_end <= range.start);
        let (new_end, old_end) = before.copied().unwrap_or((0, 0));
        let start = range.start - new_end + old_end;
        start..start + range.len()
    }
}

fn unquoted(key: &str) -> String {
    let line = format!("{key} = 0");
    match DeTable::parse(&line) {
        Ok(table) => table.get_ref().keys().map(|key| key.get_ref().to_string()).collect(),
        Err(_) => key.to_owned(),
    }
}
