//! What differs between two documents, guest by guest, as a person reads it.

use std::fmt::Write as _;

use evenkeel_hub::people::wire::{DifferenceBody, KeyDifferenceBody};

use super::style::{ADD, CHANGE, FAINT, GUEST, styled};
use super::tamed;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How much of one value is shown.
const VALUE_MAX: usize = 200;

/// Every guest that is declared otherwise; a sentence if there is none.
pub(crate) fn render(differences: &[DifferenceBody]) -> String {
    if differences.is_empty() {
        return "no guest is declared otherwise\n".to_owned();
    }
    let mut text = String::new();
    for DifferenceBody { guest, name, change, keys } in differences {
        let (guest, name) = (tamed(guest, 40), tamed(name, 64));
        let heading = format!("{guest} {name}");
        let heading = styled(GUEST, heading.trim_end());
        match change.as_str() {
            "added" => writeln!(text, "{} {heading}", styled(ADD, "+")),
            "released" => {
                let note = styled(FAINT, "(no longer managed; nothing happens to it)");
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
    let KeyDifferenceBody { key, before, after, origin } = change;
    let shown = |value: &str| tamed(value, VALUE_MAX);
    let values = match (before, after) {
        (None, Some(after)) => shown(after),
        (Some(before), None) => format!("{} -> no longer said", shown(before)),
        (Some(before), Some(after)) => format!("{} -> {}", shown(before), shown(after)),
        (None, None) => String::new(),
    };
    let origin =
        origin.as_deref().map(|origin| styled(FAINT, format!("  # {}", tamed(origin, 120))));
    format!("{}: {values}{}", tamed(key, 64), origin.unwrap_or_default())
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
        assert!(plain.contains("run: \"x\" -> no longer said"), "{plain}");
        assert!(plain.contains("(no longer managed"), "{plain}");
        assert!(!plain.contains("[2J") || plain.contains("␛[2J"), "{plain}");
        assert_eq!(render(&[]), "no guest is declared otherwise\n");
    }
}
