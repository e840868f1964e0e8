//! JSON to tree, by RFC 8259 and nothing more: no comments, no trailing commas, no bare words.
//!
//! Called by [`super::parse`] alone. The parser reads JSON's looser cousins too, so every liberty
//! is switched off here and the tests hold it against `serde_json`.

use std::ops::Range;

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::tokens::TokenAndRange;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Growth, Keys};
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::words::diagnostic::Code;

const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn read(growth: &mut Growth) -> Option<Node> {
    let collect = CollectOptions { tokens: true, ..CollectOptions::default() };
    match parse_to_ast(growth.text, &collect, &STRICT) {
        Ok(parsed) => {
            refuse_liberties(&parsed.tokens.unwrap_or_default(), growth);
            match parsed.value {
                Some(value) => node(&value, 0, growth),
                None => Some(Node { span: growth.span(0..0), value: Tree::Table(Vec::new()) }),
            }
        }
        Err(error) => {
            refuse(&error, growth);
            None
        }
    }
}

/// Refuses the two liberties the parser has no switch for: other white space than JSON's between
/// the tokens, and control characters written raw inside a string.
fn refuse_liberties(tokens: &[TokenAndRange], growth: &mut Growth) {
    let text = growth.text;
    let mut previous_end = 0;
    for token in tokens {
        let range = range(token);
        refuse_space(previous_end..range.start, growth);
        if let Some(at) = text[range.clone()].find(|letter: char| letter < ' ') {
            let at = growth.character_at(range.start + at);
            let message = "a control character inside a string";
            growth.refuse(Code::Syntax, at, message, "write it as an escape such as `\\n`");
        }
        previous_end = range.end;
    }
    refuse_space(previous_end..text.len(), growth);
}

fn refuse_space(gap: Range<usize>, growth: &mut Growth) {
    let json_space = |letter: char| matches!(letter, ' ' | '\t' | '\n' | '\r');
    if let Some(at) = growth.text[gap.clone()].find(|letter| !json_space(letter)) {
        let at = growth.character_at(gap.start + at);
        growth.refuse(Code::Syntax, at, "white space that JSON does not know", "use plain spaces");
    }
}

fn refuse(error: &ParseError, growth: &mut Growth) {
    let range = range(&error.range());
    if matches!(error.kind(), ParseErrorKind::NestingDepthExceeded) {
        growth.too_deep(growth.character_at(range.start));
    } else {
        growth.stumble(range, &error.kind().to_string());
    }
}

fn node(value: &Value, depth: usize, growth: &mut Growth) -> Option<Node> {
    let range = range(value);
    if !growth.admit(range.clone(), depth) {
        return None;
    }
    let span = growth.span(range.clone());
    let value = match value {
        Value::NullKeyword(_) => Tree::Null,
        Value::BooleanLit(literal) => Tree::Bool(literal.value),
        Value::NumberLit(literal) => number(literal.value, range, growth)?,
        Value::StringLit(literal) => Tree::Text(literal.value.clone().into_owned()),
        Value::Array(array) => {
            let items = array.elements.iter();
            Tree::List(items.filter_map(|item| node(item, depth + 1, growth)).collect())
        }
        Value::Object(object) => table(&object.properties, depth, growth),
    };
    Some(Node { span, value })
}

fn table(properties: &[ObjectProp], depth: usize, growth: &mut Growth) -> Tree {
    let mut keys = Keys::default();
    for property in properties {
        let key = property.name.as_str();
        let key_span = growth.span(range(&property.name));
        let new = keys.claim(key, key_span, growth);
        // A repeated key's value is still read, so that its own mistakes are told too.
        let value = node(&property.value, depth + 1, growth);
        if let (true, Some(value)) = (new, value) {
            keys.entries.push(TreeEntry { key: key.to_owned(), key_span, value });
        }
    }
    Tree::Table(keys.entries)
}

fn number(literal: &str, range: Range<usize>, growth: &mut Growth) -> Option<Tree> {
    if literal.contains(['.', 'e', 'E']) {
        growth.float(literal, range)
    } else {
        growth.integer(literal, 10, range)
    }
}

fn range(place: &impl Ranged) -> Range<usize> {
    let range = place.range();
    range.start..range.end
}
