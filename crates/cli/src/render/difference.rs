//! What differs between two documents, guest by guest, as a person reads it before they sign: whole, nothing is cut.

use std::fmt::Write as _;

use evenkeel_core::words::shown_text::escaped;
use evenkeel_hub::people::wire::{DifferenceBody, KeyDifferenceBody};

use super::style::{ADD, CHANGE, FAINT, GUEST, REMOVE, styled};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// Every guest that is declared otherwise; a sentence if there is none.
pub(crate) fn render(differences: &[DifferenceBody]) -> String {
    if differences.is_empty() {
        return "no guest's declaration differs\n".to_owned();
    }
    let mut text = String::new();
    for DifferenceBody { guest, name, change, keys } in differences {
        let heading = format!("{} {}", escaped(guest), escaped(name));
        let heading = styled(GUEST, heading.trim_end());
        match change.as_str() {
            "added" => writeln!(text, "{} {heading}", styled(ADD, "+")),
            "released" => {
                let note = styled(FAINT, "(no longer managed; evenkeel leaves it as it is)");
                writeln!(text, "{} {heading} {note}", styled(CHANGE, "-"))
            }
            _ => writeln!(text, "{} {heading}", styled(CHANGE, "~")),
        }
        .expect(INFALLIBLE);
        for key in keys {
            writeln!(text, "    {}", one(key)).expect(INFALLIBLE);
        }
    }
    text
}

fn one(change: &KeyDifferenceBody) -> String {
    let KeyDifferenceBody { key, before, after, removed, added, origin } = change;
    let values = match (before, after) {
        _ if !(removed.is_empty() && added.is_empty()) => entries(removed, added),
        (None, Some(after)) => format!(": {}", escaped(after)),
        (Some(before), None) => format!(": {} -> no longer declared", escaped(before)),
        (Some(before), Some(after)) => format!(": {} -> {}", escaped(before), escaped(after)),
        (None, None) => ":".to_owned(),
    };
    let origin = origin.as_deref().map(|origin| styled(FAINT, format!("  # {}", escaped(origin))));
    let (first, rest) = values.split_once('\n').unwrap_or((&values, ""));
    let rest = if rest.is_empty() { String::new() } else { format!("\n{rest}") };
    format!("{}{first}{}{rest}", escaped(key), origin.unwrap_or_default())
}

/// What a list lost and gained, an entry a line.
fn entries(removed: &[String], added: &[String]) -> String {
    let line = |sign, entry: &String| format!("\n      {sign} {}", escaped(entry));
    let removed = removed.iter().map(|entry| line(styled(REMOVE, "-"), entry));
    let added = added.iter().map(|entry| line(styled(ADD, "+"), entry));
    std::iter::once(":".to_owned()).chain(removed).chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_reads_as_lines_and_acts_on_no_terminal() {
        let key = |key: &str, before: Option<&str>, after: Option<&str>| KeyDifferenceBody {
            key: key.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
            removed: Vec::new(),
            added: Vec::new(),
            origin: Some("web.toml:4".to_owned()),
        };
        let guest = |change: &str, keys| DifferenceBody {
            guest: "lxc/101".to_owned(),
            name: "we\u{1b}[2Jb".to_owned(),
            change: change.to_owned(),
            keys,
        };
        let text = render(&[
            guest(
                "changed",
                vec![key("cores", Some("2"), Some("4")), key("run", Some("\"x\""), None)],
            ),
            guest("released", Vec::new()),
        ]);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.contains("    cores: 2 -> 4  # web.toml:4\n"), "{plain}");
        assert!(plain.contains("run: \"x\" -> no longer declared"), "{plain}");
        assert!(plain.contains("(no longer managed"), "{plain}");
        assert!(plain.contains("we\\u{1b}[2Jb"), "{plain}");
        assert_eq!(render(&[]), "no guest's declaration differs\n");
    }

    #[test]
    fn z05_the_last_of_many_long_entries_is_shown_whole() {
        let keys = |count: usize| -> String {
            let keys: Vec<String> =
                (0..count).map(|n| format!("\"ssh-ed25519 {} key{n}\"", "A".repeat(68))).collect();
            format!("[{}]", keys.join(", "))
        };
        let before = keys(9);
        let after = keys(10);
        let long = "x".repeat(5000);
        let change = |key: &str, before: &str, after: &str, added: Vec<String>| KeyDifferenceBody {
            key: key.to_owned(),
            before: Some(before.to_owned()),
            after: Some(after.to_owned()),
            removed: Vec::new(),
            added,
            origin: Some("web.toml:4".to_owned()),
        };
        let tenth = format!("\"ssh-ed25519 {} key9\"", "A".repeat(68));
        let text = render(&[DifferenceBody {
            guest: "qemu/200".to_owned(),
            name: String::new(),
            change: "changed".to_owned(),
            keys: vec![
                change("sshkeys", &before, &after, vec![tenth.clone()]),
                change("description", "\"a\"", &format!("\"{long}!\""), Vec::new()),
            ],
        }]);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert!(plain.contains(&format!("sshkeys:  # web.toml:4\n      + {tenth}\n")), "{plain}");
        assert!(plain.contains(&format!("-> \"{long}!\"")), "nothing is cut");
    }
}
