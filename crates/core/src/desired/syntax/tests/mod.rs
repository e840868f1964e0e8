//! Rules all three syntaxes keep, and the corners of each.

mod corners;
mod limits;
mod properties;

use super::*;

fn read(path: &str, text: &str) -> Result<Node, Vec<Diagnostic>> {
    parse(&SourceFile::new(FileId(0), path, text))
}

/// The one mistake of a text: its code and the text it points at.
fn mistake(path: &str, text: &str) -> (Code, String) {
    let mistakes = read(path, text).expect_err(text);
    assert_eq!(mistakes.len(), 1, "{text}: {mistakes:#?}");
    let span = mistakes[0].at.expect("a mistake in a text has a place");
    (mistakes[0].code, text[span.start..span.end].to_owned())
}

/// The tree without its positions, tables sorted: a TOML header must come after plain keys.
fn bare(node: &Node) -> String {
    match &node.value {
        Tree::Null => "null".to_owned(),
        Tree::Bool(value) => value.to_string(),
        Tree::Integer(value) => value.to_string(),
        Tree::Float(value) => format!("{value:?}f"),
        Tree::Text(value) => format!("{value:?}"),
        Tree::List(items) => format!("{:?}", items.iter().map(bare).collect::<Vec<_>>()),
        Tree::Table(entries) => {
            let sorted: BTreeMap<_, _> =
                entries.iter().map(|entry| (&entry.key, bare(&entry.value))).collect();
            assert_eq!(sorted.len(), entries.len(), "no key twice");
            format!("{sorted:?}")
        }
    }
}
