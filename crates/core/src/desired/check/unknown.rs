//! What is said of a key that no guest has: whose it is, what was meant, or where all of them are listed.

use super::{DesiredChecker, GUEST_WORDS, KEPT_BY_PVE};
use crate::model::id::GuestKind;
use crate::registry::{self, Declarable, alias};
use crate::words::diagnostic::{Code, Diagnostic, Span, did_you_mean};

impl DesiredChecker<'_> {
    pub(super) fn unknown_key(&mut self, kind: GuestKind, name: &str, span: Span) {
        // Every key there is is compared with it, letter by letter: too much for a word that nobody will read.
        if self.errors.is_full() {
            self.errors.count_untold(1);
            return;
        }
        let other = GuestKind::ALL.into_iter().find(|other| *other != kind);
        if let Some(other) = other.filter(|other| registry::find(*other, name).is_some()) {
            let message = format!("`{name}` is a key of {other} guests, and this one is {kind}");
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(span, "not a key of this kind");
            let advice = alias::key(kind, name).unwrap_or("leave it out, or correct `kind`");
            self.errors.push(diagnostic.hint(advice));
            return;
        }
        if KEPT_BY_PVE.contains(&name) {
            let message = format!("`{name}` cannot be declared: Proxmox VE keeps it for itself");
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(span, "not for a desired file");
            self.errors.push(diagnostic.hint("leave it out"));
            return;
        }
        let mut diagnostic = Diagnostic::new(Code::UnknownKey, format!("unknown key `{name}`"))
            .at(span, "not a key of a guest");
        if let Some((family, last)) = family_of(kind, name) {
            diagnostic = diagnostic.hint(format!("its slots go from {family}0 to {family}{last}"));
            self.errors.push(diagnostic);
            return;
        }
        if let Some(advice) = alias::key(kind, name) {
            self.errors.push(diagnostic.hint(advice));
            return;
        }
        let names = key_names(kind, name);
        let near =
            did_you_mean(name, names.iter().map(String::as_str).chain(GUEST_WORDS.iter().copied()));
        diagnostic = match near {
            Some(near) => diagnostic.hint(format!("did you mean `{near}`?")),
            None => diagnostic.hint("`evenkeel explain` lists every key"),
        };
        self.errors.push(diagnostic);
    }
}

/// The names a misspelt key may have meant: families with the number that was written.
fn key_names(kind: GuestKind, written: &str) -> Vec<String> {
    let digits = &written[written.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    registry::table(kind)
        .iter()
        .filter(|key| !matches!(key.declared, Declarable::No(_)))
        .map(|key| match key.slots {
            Some(_) if digits.is_empty() => format!("{}0", key.name),
            Some(_) => format!("{}{digits}", key.name),
            None => key.name.to_owned(),
        })
        .filter(|name| registry::find(kind, name).is_some())
        .collect()
}

/// The numbered family a slot out of range was meant for, and its last slot.
fn family_of(kind: GuestKind, name: &str) -> Option<(&'static str, u16)> {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = base.len() < name.len();
    let row = registry::table(kind)
        .iter()
        .find(|key| numbered && key.name == base && key.slots.is_some())?;
    Some((row.name, row.slots? - 1))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::desired;
    use crate::words::diagnostic::{COMPARED, MISTAKES_TOLD_MAX, Sources};

    const UNKNOWN: usize = 20_000;

    /// A container with many keys that nobody knows, in each syntax.
    fn files() -> [(&'static str, String); 3] {
        let mut toml = "[guest.101]\nkind = \"lxc\"\n".to_owned();
        let mut yaml = "guest:\n  101:\n    kind: lxc\n".to_owned();
        let mut json = "{\"guest\":{\"101\":{\"kind\":\"lxc\"".to_owned();
        for number in 0..UNKNOWN {
            writeln!(toml, "nonsense{number}x = 1").unwrap();
            writeln!(yaml, "    nonsense{number}x: 1").unwrap();
            write!(json, ",\"nonsense{number}x\":1").unwrap();
        }
        json.push_str("}}}");
        [("a.toml", toml), ("a.yaml", yaml), ("a.json", json)]
    }

    #[test]
    fn y16_many_unknown_keys_are_counted_and_only_those_that_are_told_are_thought_about() {
        let keys = registry::table(GuestKind::Lxc).len() + GUEST_WORDS.len();
        for (path, text) in files() {
            let mut sources = Sources::default();
            sources.add(path, text);
            COMPARED.set(0);
            let mistakes = desired::load(&sources).unwrap_err();
            assert_eq!(mistakes.len(), MISTAKES_TOLD_MAX + 1, "{path}");
            let rest = mistakes.last().unwrap();
            assert_eq!(rest.message, "19900 more mistakes are not told", "{path}");
            assert_eq!(mistakes.iter().map(Diagnostic::stands_for).sum::<usize>(), UNKNOWN);
            let compared = COMPARED.get();
            assert!((1..=MISTAKES_TOLD_MAX * keys).contains(&compared), "{path}: {compared}");
        }
    }
}
