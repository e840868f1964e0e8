//! What holds for any text: one document gives one tree, places lie in the text, nothing panics.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{bare, read};
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::words::diagnostic::{Code, FileId, Span};

fn keys_in_order(node: &Node, keys: &mut Vec<String>) {
    match &node.value {
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) | Tree::Text(_) => {}
        Tree::List(items) => items.iter().for_each(|item| keys_in_order(item, keys)),
        Tree::Table(entries) => {
            for entry in entries {
                keys.push(entry.key.clone());
                keys_in_order(&entry.value, keys);
            }
        }
    }
}

fn unplaced(value: Tree) -> Node {
    Node { span: Span::new(FileId(0), 0, 0), value }
}

/// A table in the order given, without the keys that come again.
fn table(given: Vec<(String, Tree)>) -> Tree {
    let mut entries: Vec<TreeEntry> = Vec::new();
    for (key, value) in given {
        if entries.iter().all(|entry| entry.key != key) {
            let value = unplaced(value);
            entries.push(TreeEntry { key, key_span: value.span, value });
        }
    }
    Tree::Table(entries)
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9:=,./ -]{0,12}",
        "\\PC{0,8}",
        Just("yes".to_owned()),
        Just("12".to_owned()),
        Just("a\nb\t\"c\" \\ # '\u{7f}\u{1f600}\u{85}".to_owned()),
    ]
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Integer),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Tree::Float),
        any_text().prop_map(Tree::Text),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| Tree::List(items.into_iter().map(unplaced).collect())),
            prop::collection::vec((any_text(), inner), 0..4).prop_map(table),
        ]
    });
    prop::collection::vec((any_text(), tree), 0..4).prop_map(table)
}

/// Every syntax reads this spelling of text alike, but for the braces of `\u`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() || letter == '\u{feff}' => {
                write!(out, "\\u{:04x}", u32::from(letter)).unwrap();
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// A tree on one line; `equals` is `=` for TOML and `:` for the others.
fn inline(tree: &Tree, equals: &str) -> String {
    match tree {
        Tree::Null => "null".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Integer(value) => value.to_string(),
        Tree::Float(value) => format!("{value:?}"),
        Tree::Text(value) => quoted(value),
        Tree::List(items) => {
            let items: Vec<_> = items.iter().map(|item| inline(&item.value, equals)).collect();
            format!("[{}]", items.join(", "))
        }
        Tree::Table(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|e| format!("{}{equals} {}", quoted(&e.key), inline(&e.value.value, equals)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn entries(tree: &Tree) -> &[TreeEntry] {
    if let Tree::Table(entries) = tree { entries } else { &[] }
}

fn items(tree: &Tree) -> &[Node] {
    if let Tree::List(items) = tree { items } else { &[] }
}

/// Plain keys first, then a header for each table.
fn toml_with_headers(tree: &Tree, path: &str, out: &mut String) {
    let is_table = |entry: &&TreeEntry| matches!(entry.value.value, Tree::Table(_));
    for entry in entries(tree).iter().filter(|entry| !is_table(entry)) {
        writeln!(out, "{} = {}", quoted(&entry.key), inline(&entry.value.value, " =")).unwrap();
    }
    for entry in entries(tree).iter().filter(is_table) {
        let path = format!("{path}{}", quoted(&entry.key));
        writeln!(out, "[{path}]").unwrap();
        toml_with_headers(&entry.value.value, &format!("{path}."), out);
    }
}

fn yaml_block(tree: &Tree, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    for entry in entries(tree) {
        write!(out, "\n{pad}{}:", quoted(&entry.key)).unwrap();
        yaml_block(&entry.value.value, indent + 2, out);
    }
    for item in items(tree) {
        write!(out, "\n{pad}-").unwrap();
        yaml_block(&item.value, indent + 2, out);
    }
    if entries(tree).is_empty() && items(tree).is_empty() {
        write!(out, " {}", inline(tree, ":")).unwrap();
    }
}

/// Each scalar's span holds text that, alone as a value, is read as the same scalar.
fn spans_hold_their_scalars(path: &str, text: &str, node: &Node) {
    let written = &text[node.span.start..node.span.end];
    let alone = match path {
        "a.toml" => format!("x = {written}"),
        "a.yaml" => format!("x: {written}"),
        _ => format!("{{\"x\": {written}}}"),
    };
    match &node.value {
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) | Tree::Text(_) => {
            let again = read(path, &alone).unwrap();
            assert_eq!(bare(&again.entry("x").unwrap().value), bare(node), "{alone}");
        }
        Tree::List(items) => {
            for item in items {
                spans_hold_their_scalars(path, text, item);
            }
        }
        Tree::Table(entries) => {
            for entry in entries {
                let key = &text[entry.key_span.start..entry.key_span.end];
                assert_eq!(key, quoted(&entry.key));
                spans_hold_their_scalars(path, text, &entry.value);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_same_document_gives_the_same_tree_in_every_syntax(tree in any_tree()) {
        let mut headers = String::new();
        toml_with_headers(&tree, "", &mut headers);
        let mut block = String::new();
        yaml_block(&tree, 0, &mut block);
        let wanted = unplaced(tree.clone());
        let mut wanted_keys = Vec::new();
        keys_in_order(&wanted, &mut wanted_keys);
        for (path, text, ordered) in [
            ("a.toml", &inline_top(&tree), true),
            ("a.toml", &headers, false),
            ("a.yaml", &inline(&tree, ":"), true),
            ("a.yaml", &block, true),
            ("a.json", &inline(&tree, ":"), true),
        ] {
            let node = read(path, text).unwrap_or_else(|e| panic!("{path} {text}: {e:#?}"));
            prop_assert_eq!(bare(&node), bare(&wanted), "{} {}", path, text);
            spans_hold_their_scalars(path, text, &node);
            if ordered {
                let mut keys = Vec::new();
                keys_in_order(&node, &mut keys);
                prop_assert_eq!(&keys, &wanted_keys, "{} {}", path, text);
            }
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,60}|[\\[\\]{}:,#&*!|>'\"%@ \n\t=a0.~<?-]{0,60}") {
        for path in PATHS {
            places_lie_in_the_text(path, &text);
        }
    }

    #[test]
    fn a_damaged_document_is_read_or_refused_with_a_place(
        tree in any_tree(), at in any::<prop::sample::Index>(), cut in 0..4usize, put in "\\PC{0,2}|[\\[\\]{}:,\"\n=*&]{0,2}",
    ) {
        for (path, text) in [("a.toml", inline_top(&tree)), ("a.yaml", inline(&tree, ":")), ("a.json", inline(&tree, ":"))] {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary((start + cut).min(text.len())).max(start);
            places_lie_in_the_text(path, &[&text[..start], &put, &text[end..]].concat());
        }
    }

    #[test]
    fn json_is_what_serde_json_calls_json(text in "[\\[\\]{},:\"\\\\u0-9dDcCeE+. truefalsn/*'-]{0,16}") {
        agrees_with_serde_json(&format!("{{\"x\":{text}}}"));
    }

    #[test]
    fn a_damaged_json_is_refused_where_serde_json_refuses_it(
        tree in any_tree(), at in any::<prop::sample::Index>(), cut in 0..3usize, put in "[\\[\\]{}:,\"\\\\0-9eE.+\u{a0}\u{1}-]{0,2}",
    ) {
        let text = inline(&tree, ":");
        let start = text.floor_char_boundary(at.index(text.len() + 1));
        let end = text.floor_char_boundary((start + cut).min(text.len())).max(start);
        agrees_with_serde_json(&[&text[..start], &put, &text[end..]].concat());
    }
}

const PATHS: [&str; 3] = ["a.toml", "a.yaml", "a.json"];

fn inline_top(tree: &Tree) -> String {
    let mut out = String::new();
    for entry in entries(tree) {
        writeln!(out, "{} = {}", quoted(&entry.key), inline(&entry.value.value, " =")).unwrap();
    }
    out
}

fn places_lie_in_the_text(path: &str, text: &str) {
    match read(path, text) {
        Ok(node) => places_of_node(text, &node),
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                let places = mistake.at.iter().chain(mistake.related.iter().map(|(span, _)| span));
                for span in places {
                    assert!(
                        text.get(span.start..span.end).is_some(),
                        "{path} {text:?} {mistake:?}"
                    );
                }
            }
        }
    }
}

fn places_of_node(text: &str, node: &Node) {
    assert!(text.get(node.span.start..node.span.end).is_some(), "{text:?} {node:?}");
    match &node.value {
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) | Tree::Text(_) => {}
        Tree::List(items) => items.iter().for_each(|item| places_of_node(text, item)),
        Tree::Table(entries) => {
            for entry in entries {
                assert!(text.get(entry.key_span.start..entry.key_span.end).is_some(), "{text:?}");
                places_of_node(text, &entry.value);
            }
        }
    }
}

/// The same verdict, but for what only desired files refuse: duplicates, ranges, limits.
fn agrees_with_serde_json(text: &str) {
    let ours = read("a.json", text);
    let theirs = serde_json::from_str::<serde_json::Value>(text);
    match (&ours, &theirs) {
        (Ok(node), Ok(value)) => {
            assert!(value.is_object() || text.trim().is_empty());
            same_texts(node, value);
        }
        (Ok(_), Err(error)) => {
            assert!(text.trim_matches([' ', '\n', '\t', '\r']).is_empty(), "{text:?}: {error}");
        }
        (Err(mistakes), Ok(_)) => {
            assert!(mistakes.iter().all(|m| m.code != Code::Syntax), "{text:?}: {mistakes:?}");
        }
        (Err(_), Err(_)) => {}
    }
}

fn same_texts(node: &Node, value: &serde_json::Value) {
    match &node.value {
        Tree::Text(text) => assert_eq!(Some(text.as_str()), value.as_str()),
        Tree::List(items) => {
            items.iter().enumerate().for_each(|(index, item)| same_texts(item, &value[index]));
        }
        Tree::Table(entries) => {
            for entry in entries {
                same_texts(&entry.value, &value[&entry.key]);
            }
        }
        Tree::Null => assert!(value.is_null()),
        Tree::Bool(boolean) => assert_eq!(Some(*boolean), value.as_bool()),
        Tree::Integer(number) => {
            assert!(
                value.as_i64() == Some(*number) || (*number == 0 && value.as_f64() == Some(0.0))
            );
        }
        Tree::Float(number) => assert_eq!(Some(*number), value.as_f64()),
    }
}
