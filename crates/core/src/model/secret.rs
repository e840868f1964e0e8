//! What must not be shown or stored, and what stands in its place (invariant 17).
//!
//! A secret is a property of a key or part in the registry. Everything that prints a value, writes it into a record, a
//! saved plan or an answer asks here, so that there is one rule and one mask. Texts the registry knows nothing of (a
//! part of a newer release, a sentence of PVE's) are judged by the names in them, on the safe side: a value masked
//! without need costs a reader a look into PVE. Public keys are no secrets.

use std::borrow::Cow;

use crate::model::id::GuestKind;
use crate::registry::{self, Key, KeyRef, ValueFormat};
use crate::value::{Value, print};

/// What stands in a secret's place. PVE itself shows the same.
pub const MASK: &str = "**********";

/// A name is a secret's when it holds one of these words. PVE's own are `cipassword`, `password` (containers,
/// storages), `encryption-key`, `csrfpreventiontoken` and `ticket`.
const SECRET_WORDS: [&str; 9] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "ticket",
    "private",
    "credential",
    "encryption-key",
];

/// Whether what is stored under a name is a secret: by the registry, for a guest of either kind, or by the name itself.
pub fn is_secret_name(name: &str) -> bool {
    let by_registry = GuestKind::ALL
        .into_iter()
        .filter_map(|kind| registry::find(kind, name))
        .any(|key| key.key().secret);
    by_registry || has_secret_word(name)
}

fn has_secret_word(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| text.contains(word))
}

/// The text of a parameter or key, as it may be shown or stored: `MASK` for a secret, of a property string only its
/// secret parts masked.
pub fn masked_param<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    if is_secret_name(name) { Cow::Owned(MASK.to_owned()) } else { masked_parts(name, text) }
}

/// A text in which secrets stand as `name=value`, cleaned of them: `a=1,password=x` becomes `a=1,password=**********`.
pub fn masked_text(text: &str) -> Cow<'_, str> {
    mask_pairs(text, &has_secret_word)
}

/// A line of a task's log, cleaned of secrets: besides `name=value` also `-name value`, `name: value` and `name:value`,
/// which commands print.
pub fn masked_log_line(line: &str) -> String {
    let line = masked_text(line);
    let mut clean = String::with_capacity(line.len());
    let mut hides_next = false;
    for piece in line.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let behind = &piece[word.len()..];
        let is_option = word.starts_with('-');
        // A path is where a secret is kept, and `mount --make-rprivate /` has none.
        if hides_next && !word.is_empty() && !is_option && !word.starts_with('/') {
            clean.push_str(MASK);
            clean.push_str(behind);
            hides_next = false;
            continue;
        }
        match word.split_once(':') {
            Some((name, value)) if is_secret_word(name) && !value.is_empty() => {
                clean.push_str(name);
                clean.push(':');
                clean.push_str(MASK);
                clean.push_str(behind);
                hides_next = false;
            }
            Some((name, value)) => {
                clean.push_str(piece);
                hides_next = value.is_empty() && is_secret_word(name);
            }
            None => {
                clean.push_str(piece);
                // An empty word is a second blank behind a name.
                hides_next = (word.is_empty() && hides_next) || (is_option && is_secret_word(word));
            }
        }
    }
    clean
}

/// Whether a word, dashes and all, is the plain name of a secret.
fn is_secret_word(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    !name.is_empty() && is_plain && is_secret_name(name)
}

fn masked_parts<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    let shapes: Vec<_> = GuestKind::ALL
        .into_iter()
        .filter_map(|kind| registry::find(kind, name)?.key().format.shape())
        .collect();
    let is_secret_part = |part: &str| {
        let known = || shapes.iter().filter_map(|shape| shape.part(part)).any(|part| part.secret);
        has_secret_word(part) || known()
    };
    mask_pairs(text, &is_secret_part)
}

/// In each piece of a text everything behind the first `name=` of a secret is masked.
fn mask_pairs<'a>(text: &'a str, is_secret: &dyn Fn(&str) -> bool) -> Cow<'a, str> {
    let value_of_secret = |piece: &str| {
        let mut equals = piece.match_indices('=').map(|(at, _)| at);
        let at = equals.find(|at| is_secret(last_word(&piece[..*at])))?;
        let value = &piece[at + 1..];
        (!value.trim().is_empty()).then(|| at + 1)
    };
    let mut clean: Option<String> = None;
    let mut copied = 0;
    let mut start = 0;
    for piece in text.split_inclusive([',', ';', '&', '\n', '\0']) {
        let end = start + piece.trim_end_matches([',', ';', '&', '\n', '\0']).len();
        if let Some(value) = value_of_secret(&text[start..end]) {
            let clean = clean.get_or_insert_default();
            clean.push_str(&text[copied..start + value]);
            clean.push_str(MASK);
            copied = end;
        }
        start += piece.len();
    }
    match clean {
        None => Cow::Borrowed(text),
        Some(clean) => Cow::Owned(clean + &text[copied..]),
    }
}

/// The name that stands directly before an equals sign.
fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let is_part_of_name = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let start = text.trim_end_matches(is_part_of_name).len();
    &text[start..]
}

/// Whether a text was masked, so that nothing can be compared with it.
pub fn is_masked(text: &str) -> bool {
    text.contains(MASK)
}

/// What a person is shown of a secret key's value: that it is set, and of an environment the names in it.
pub(crate) fn shown(key: &Key, value: &Value) -> String {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let named = |item: &str| match item.split_once('=') {
        Some((name, _)) if is_name(name) => format!("{name}={MASK}"),
        Some(_) | None => MASK.to_owned(),
    };
    match (&key.format, value) {
        (ValueFormat::Environment, Value::List(items)) => {
            items.iter().map(|item| named(item)).collect::<Vec<_>>().join(" ")
        }
        _ => MASK.to_owned(),
    }
}

/// A value as PVE stores it, secrets masked; none for one that says no more than absence.
pub fn stored_form(key: KeyRef, value: &Value) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    if key.key().secret {
        return Some(MASK.to_owned());
    }
    let text = print::pve(&key.key().format, value);
    Some(masked_param(&key.to_string(), &text).into_owned())
}

/// The pieces of a secret that could be quoted alone: the whole text, and of a list its items and their values. What
/// is shorter than `PIECE_MIN` is left out: it would blot out half a sentence and is no secret to speak of.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let items = text.split('\0').flat_map(|item| {
        let value = item.split_once('=').map(|(_, value)| value);
        [Some(item), value].into_iter().flatten()
    });
    let long = items.filter(|piece| piece.len() >= PIECE_MIN);
    std::iter::once(text).filter(|text| !text.is_empty()).chain(long)
}

/// The shortest piece of a secret that is looked for by itself.
const PIECE_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    /// Every key and part the registry calls secret, with a value that must be seen nowhere.
    #[test]
    fn x08_every_secret_key_and_part_of_the_registry_is_masked() {
        let mut secret = 0;
        for (kind, key) in
            GuestKind::ALL.into_iter().flat_map(|k| table(k).iter().map(move |key| (k, key)))
        {
            let name = key.slots.map_or(key.name.to_owned(), |_| format!("{}0", key.name));
            if key.secret {
                secret += 1;
                assert_eq!(masked_param(&name, "NAME=marked"), MASK, "{kind} {name}");
                for value in [
                    Value::text("marked"),
                    Value::Odd("marked".into()),
                    Value::List(vec!["marked".into(), "N=marked".into(), "no name=marked".into()]),
                    Value::Secret,
                ] {
                    let shown = shown(key, &value);
                    assert!(shown.contains(MASK) && !shown.contains("marked"), "{name}: {shown}");
                }
            }
            for part in key.format.shape().map_or(&[][..], |shape| shape.parts) {
                let text = format!("x,{}=marked,y=1", part.name);
                let masked = masked_param(&name, &text);
                assert_eq!(
                    masked.contains("marked"),
                    !part.secret && !key.secret,
                    "{name}: {masked}"
                );
            }
        }
        assert!(secret >= 3, "args, cipassword and env at least");
    }

    #[test]
    fn what_pve_never_shows_is_secret_to_us() {
        for key in GuestKind::ALL.into_iter().flat_map(table) {
            assert!(key.secret || !matches!(key.format, ValueFormat::Secret), "{}", key.name);
        }
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is() {
        for (name, text) in [
            ("cores", "2"),
            ("sshkeys", "ssh-ed25519 AAAA"),
            ("description", "a token of affection"),
            ("scsi0", "store:disk,size=8G"),
            ("net0", "name=eth0,bridge=vmbr0"),
            ("delete", "env"),
        ] {
            assert_eq!(masked_param(name, text), text);
        }
        assert_eq!(
            masked_param("cifs", "server=a,password=x,share=b"),
            "server=a,password=**********,share=b"
        );
        for text in ["no secrets, a=1", "a token of affection=yes", "password=", "", ",,;"] {
            assert_eq!(masked_text(text), text);
        }
        for (text, masked) in [
            ("a=1\npassword=x\ny", "a=1\npassword=**********\ny"),
            ("a=1 api_token=x y, b", "a=1 api_token=**********, b"),
            ("Secret = x&y=1", "Secret =**********&y=1"),
        ] {
            assert_eq!(masked_text(text), masked);
        }
    }

    #[test]
    fn y21_a_secret_in_a_log_line_is_masked_however_a_command_prints_it() {
        for (line, masked) in [
            (
                "kvm: -vnc x,password=hunter2,y=1: failed",
                "kvm: -vnc x,password=**********,y=1: failed",
            ),
            (
                "update VM 310: -cipassword hunter2 -cores 2",
                "update VM 310: -cipassword ********** -cores 2",
            ),
            ("login --password  hunter2 failed", "login --password  ********** failed"),
            ("password: hunter2 is wrong", "password: ********** is wrong"),
            ("api_token:hunter2 refused", "api_token:********** refused"),
        ] {
            assert_eq!(masked_log_line(line), masked);
        }
        for line in [
            "unable to open '/etc/pve/priv/token.cfg': No such file",
            "volume 'private:101/vm-101-disk-0.raw' does not exist",
            "-password -cores 2",
            "",
            "  two  blanks ",
        ] {
            assert_eq!(masked_log_line(line), line);
        }
    }

    #[test]
    fn a_secret_is_looked_for_whole_and_in_pieces() {
        let found: Vec<&str> = pieces("A=hunter2\0B=x\0long-item").collect();
        assert_eq!(found, ["A=hunter2\0B=x\0long-item", "A=hunter2", "hunter2", "long-item"]);
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces("ab").collect::<Vec<_>>(), ["ab"]);
    }
}
