//! Desired files as they may be shown: with every secret in them blotted out.
//!
//! Whoever draws a mistake with the lines it is in asks here first: a plan is made in a pipeline whose log many read.
//! The text keeps its length, its lines and its columns, so that every place in it stays where it is. A file that
//! breaks the rules of its syntax cannot be taken apart, so everything from the first name of a secret on is blotted; one
//! with YAML anchors is blotted as a whole, because a secret may stand anywhere in it.

use super::syntax;
use super::tree::{Node, Tree};
use crate::model::id::GuestKind;
use crate::model::secret::is_secret_name;
use crate::registry::table;
use crate::words::diagnostic::{SourceFile, Sources, Span, did_you_mean};

/// The same files without the secrets in them.
pub fn without_secrets(sources: &Sources) -> Sources {
    let mut clean = Sources::default();
    for file in sources {
        clean.add(file.path.clone(), blotted(file));
    }
    clean
}

fn blotted(file: &SourceFile) -> String {
    let mut spans = Vec::new();
    match syntax::parse(file) {
        Ok(node) if !may_have_anchors(file) => {
            secrets_of(&node, &mut spans);
            spans.extend(comments(file));
        }
        Ok(_) | Err(_) => spans.extend(from_first_name(file)),
    }
    let mut text = String::with_capacity(file.text.len());
    let mut at = 0;
    spans.sort_by_key(|span| span.start);
    for Span { start, end, .. } in spans {
        let start = start.max(at).min(file.text.len());
        let end = end.min(file.text.len());
        if start < end {
            text.push_str(&file.text[at..start]);
            text.extend(file.text[start..end].chars().map(blot));
            at = end;
        }
    }
    text.push_str(&file.text[at..]);
    text
}

/// Comments, which often are lines that were in force yesterday. A `#` inside a text is taken for one too.
fn comments(file: &SourceFile) -> impl Iterator<Item = Span> {
    let mut at = 0;
    let comment = move |line: &str| {
        let start = at;
        at += line.len();
        let is_comment = |place: &usize| {
            line[..*place].is_empty() || line[..*place].ends_with([' ', '\t', '[', ','])
        };
        let found = line.match_indices('#').map(|(place, _)| place).find(is_comment)?;
        Some(Span::new(file.id, start + found, start + line.len()))
    };
    file.text.split_inclusive('\n').filter_map(comment)
}

/// The values of all keys that are secret, at any depth.
fn secrets_of(node: &Node, spans: &mut Vec<Span>) {
    match &node.value {
        Tree::Table(entries) => {
            for entry in entries {
                if may_name_secret(&entry.key) {
                    spans.push(entry.value.span);
                } else {
                    secrets_of(&entry.value, spans);
                }
            }
        }
        Tree::List(items) => items.iter().for_each(|item| secrets_of(item, spans)),
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) | Tree::Text(_) => {}
    }
}

/// What a YAML alias stands for is written elsewhere in the file.
fn may_have_anchors(file: &SourceFile) -> bool {
    let is_yaml = [".yaml", ".yml"].iter().any(|ending| file.path.ends_with(ending));
    is_yaml && file.text.contains(['&', '*'])
}

/// From the end of the first word that names a secret to the end of the file: anything else that names one stands behind
/// it. YAML's anchors can be anywhere, so a file that may have one is blotted from its beginning.
fn from_first_name(file: &SourceFile) -> Option<Span> {
    let has_anchor = may_have_anchors(file);
    let is_word = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let mut at = 0;
    for word in file.text.split_inclusive(|letter| !is_word(letter)) {
        let name = word.trim_end_matches(|letter| !is_word(letter));
        if name.split('.').any(may_name_secret) {
            let start = if has_anchor { 0 } else { at + name.len() };
            return Some(Span::new(file.id, start, file.text.len()));
        }
        at += word.len();
    }
    None
}

/// A secret's name, or one that may be meant for it: the mistake that is told may be in the name itself.
fn may_name_secret(word: &str) -> bool {
    // Public keys are no secret, but a private one is soon pasted where they belong.
    if is_secret_name(word) || word == "ssh_keys" {
        return true;
    }
    let keys = || GuestKind::ALL.into_iter().flat_map(table);
    let is_known = || keys().any(|key| key.name == word);
    let mut secret = keys().filter(|key| key.secret).map(|key| key.name);
    let near = || did_you_mean(word, keys().filter(|key| key.secret).map(|key| key.name));
    !is_known() && (secret.any(|name| word.contains(name)) || near().is_some())
}

/// A character of the same length in bytes that says nothing; lines stay lines.
fn blot(letter: char) -> char {
    match (letter, letter.len_utf8()) {
        ('\n' | '\r', _) => letter,
        (_, 1) => '*',
        (_, 2) => '\u{d7}',
        (_, 3) => '\u{2022}',
        (_, _) => '\u{1f784}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "m\u{e4}rked\u{2014}\u{1f600}value";

    fn shown(path: &str, text: &str) -> String {
        let mut sources = Sources::default();
        sources.add(path, text);
        let clean = without_secrets(&sources);
        let clean = clean.iter().next().unwrap().text.clone();
        assert_eq!(clean.len(), text.len(), "places stay where they are");
        let columns =
            |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(columns(&clean), columns(text));
        clean
    }

    fn files() -> [(&'static str, String); 4] {
        [
            (
                "a.toml",
                format!(
                    "[guest.101]\nkind = \"lxc\"\ncores = 2\nenv = [\n  \"A={MARK}\",\n]\ntags = [\"x\"]\n"
                ),
            ),
            (
                "a.yaml",
                format!(
                    "guest:\n  101:\n    kind: lxc\n    cores: 2\n    env:\n      - A={MARK}\n    tags: [x]\n"
                ),
            ),
            (
                "a.yaml",
                format!(
                    "x: &x [\"A={MARK}\"]\nguest: {{101: {{kind: lxc, cores: 2, env: *x, tags: [x]}}}}\n"
                ),
            ),
            (
                "a.json",
                format!(
                    "{{\"guest\":{{\"101\":{{\"kind\":\"lxc\",\"cores\":2,\"env\":[\"A={MARK}\"],\"tags\":[\"x\"]}}}}}}"
                ),
            ),
        ]
    }

    #[test]
    fn x08_the_secrets_of_a_file_are_blotted_out_and_nothing_else() {
        for (path, text) in files() {
            let clean = shown(path, &text);
            assert!(!clean.contains("rked") && !clean.contains("value"), "{clean}");
            let kept = clean.contains("cores") && clean.contains("tags");
            assert!(kept || text.contains("&x"), "{clean}");
        }
    }

    /// Any one character gone, or one too many: whatever the reader makes of it, the secret is not shown, and no
    /// message quotes it.
    #[test]
    fn x08_no_slip_of_the_finger_shows_a_secret() {
        for (path, text) in files() {
            let mark = text.find("rked").unwrap();
            for (at, letter) in text.char_indices() {
                let rest = &text[at + letter.len_utf8()..];
                for wrong in ["", "\"", "[", "}", ":", "\n", "#", "=", "&"] {
                    // Two names may be made of one, of which no reader can know that it was a secret's.
                    let name = text.find("env").unwrap();
                    let splits = (name..name + 3).contains(&at) && !wrong.is_empty();
                    if (mark..mark + MARK.len()).contains(&at) || splits {
                        continue;
                    }
                    let broken = format!("{}{wrong}{rest}", &text[..at]);
                    let clean = shown(path, &broken);
                    assert!(!clean.contains("rked"), "{wrong:?} at {at}:\n{broken}\n{clean}");
                    let mut sources = Sources::default();
                    sources.add(path, broken);
                    for mistake in crate::desired::load(&sources).err().unwrap_or_default() {
                        assert!(!format!("{mistake:?}").contains("rked"), "{mistake:?}");
                    }
                }
            }
        }
    }
}
