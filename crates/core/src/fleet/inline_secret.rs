//! Secrets that stand in a document: named with their place, never quoted.
//!
//! A document lies in the hub's database, in its backups and in everybody's history; a secret in it is lost. What counts as
//! one is said once, in `secret`. `first` is left out: it names secrets that root keeps on the host, and holds public keys
//! that the reader checks.

use std::borrow::Cow;

use crate::desired::syntax;
use crate::desired::tree::{Node, Tree, TreeEntry};
use crate::model::secret::{is_secret_name, masked_param};
use crate::words::diagnostic::{Code, Diagnostic, Sources};

/// The blocks in which configuration keys stand.
const BLOCKS: [&str; 3] = ["guest", "profile", "defaults"];

/// Words of a block under which names stand and no values.
const WITHOUT_VALUES: [&str; 4] = ["first", "ignore", "unset", "use"];

/// One diagnostic for every secret in the files. A file that does not parse has none: it is refused anyway.
pub(super) fn found(sources: &Sources) -> Vec<Diagnostic> {
    let mut secrets = Vec::new();
    for top in sources.iter().filter_map(|file| syntax::parse(file).ok()) {
        let blocks = BLOCKS.iter().filter_map(|word| top.entry(word));
        for block in blocks.flat_map(|entry| entries(&entry.value)) {
            for field in entries(&block.value) {
                if !WITHOUT_VALUES.contains(&field.key.as_str()) {
                    look(&field.key, field, &mut secrets);
                }
            }
        }
    }
    secrets
}

/// Looks at a key, or at a part of one, under the name of the key.
fn look(key: &str, field: &TreeEntry, secrets: &mut Vec<Diagnostic>) {
    if is_secret_name(&field.key) && says_something(&field.value) {
        secrets.push(told(&field.key, &field.value));
        return;
    }
    look_into(key, &field.value, secrets);
}

fn look_into(key: &str, node: &Node, secrets: &mut Vec<Diagnostic>) {
    match &node.value {
        Tree::Text(text) => {
            if let Cow::Owned(_) = masked_param(key, text) {
                secrets.push(told(key, node));
            }
        }
        Tree::List(items) => items.iter().for_each(|item| look_into(key, item, secrets)),
        Tree::Table(parts) => parts.iter().for_each(|part| look(key, part, secrets)),
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) => {}
    }
}

fn says_something(node: &Node) -> bool {
    match &node.value {
        Tree::Null | Tree::Bool(_) => false,
        Tree::Text(text) => !text.is_empty(),
        Tree::List(items) => !items.is_empty(),
        Tree::Table(parts) => !parts.is_empty(),
        Tree::Integer(_) | Tree::Float(_) => true,
    }
}

fn told(key: &str, node: &Node) -> Diagnostic {
    let message = format!("`{key}` is a secret, and a document of a hub holds none");
    Diagnostic::new(Code::BadValue, message)
        .at(node.span, "a secret")
        .hint("keep it on the host: `first` names a secret that root put there")
}

fn entries(node: &Node) -> &[TreeEntry] {
    match &node.value {
        Tree::Table(entries) => entries,
        Tree::Null
        | Tree::Bool(_)
        | Tree::Integer(_)
        | Tree::Float(_)
        | Tree::Text(_)
        | Tree::List(_) => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets_in(path: &str, text: &str) -> usize {
        let mut sources = Sources::default();
        sources.add(path, text);
        let found = found(&sources);
        assert!(found.iter().all(|secret| !format!("{secret:?}").contains("hunter2")), "{found:?}");
        found.len()
    }

    #[test]
    fn a_secret_is_found_wherever_it_stands_and_never_quoted() {
        for (path, text) in [
            ("a.toml", "[guest.101]\nkind = \"lxc\"\nenv = [\"A=hunter2\"]\n"),
            ("a.toml", "[guest.101]\nkind = \"lxc\"\nenv = { A = \"hunter2\" }\n"),
            ("a.toml", "[profile.x]\nkind = \"lxc\"\nenv = \"A=hunter2\"\n"),
            ("a.toml", "[defaults.lxc]\nenv = [\"hunter2\"]\n"),
            ("a.yaml", "x: &x [\"A=hunter2\"]\nguest: {101: {kind: lxc, env: *x}}\n"),
            ("a.json", "{\"guest\":{\"101\":{\"kind\":\"qemu\",\"cipassword\":\"hunter2\"}}}"),
            ("a.toml", "[guest.101]\nkind = \"qemu\"\ncipassword = 12345\n"),
            ("a.toml", "[guest.101]\nkind = \"lxc\"\ndescription = \"login: password=hunter2\"\n"),
            ("a.toml", "[guest.101]\nkind = \"lxc\"\nmp0 = { password = \"hunter2\" }\n"),
        ] {
            assert_eq!(secrets_in(path, text), 1, "{text}");
        }
    }

    #[test]
    fn what_only_names_a_secret_is_none() {
        for text in [
            "[guest.101]\nkind = \"lxc\"\nhostname = \"password-store\"\n",
            "[profile.token-service]\nkind = \"lxc\"\ncores = 2\n",
            "[guest.101]\nkind = \"lxc\"\n[guest.101.first]\npassword = \"web-root\"\n",
            "[guest.101]\nkind = \"lxc\"\nunset = [\"env\"]\nignore = [\"env\"]\n",
            "[guest.101]\nkind = \"qemu\"\nsshkeys = [\"ssh-ed25519 AAAA\"]\n",
            "not toml at all",
        ] {
            assert_eq!(secrets_in("a.toml", text), 0, "{text}");
        }
    }
}
