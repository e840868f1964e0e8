//! The class of every configuration key and of every part of one, pinned in `cases/class.txt`.
//!
//! One line a key or part, one column a release, three letters a cell: what it costs to set it, to change
//! it and to take it away. A change of the registry or of the classifier shows as a diff of that file;
//! `EVENKEEL_BLESS=1` writes it anew, to be reviewed.
#![expect(clippy::disallowed_methods, reason = "a test reads its own cases")]

#[path = "support/sample.rs"]
mod sample;

use std::collections::BTreeMap;

use evenkeel_core::actual::{ConfigEntry, Guest, GuestConfig, Power};
use evenkeel_core::gate::classify::{ActIntent, ActionClass, Target, classify};
use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::model::release::Release;
use evenkeel_core::operate::operation::Provenance;
use evenkeel_core::registry::{self, Key, Releases, ValueFormat};
use evenkeel_core::value::{Value, read};

const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/class.txt");

const LEGEND: &str = "\
# What it costs to set a key that is absent, to change it, and to take it away, release by release.
# b benign, x disruptive, D destructive, - not in that release, . not tried.
# A line with a dot is one part of a value whose other parts stay, tried with sample values; a further
# line names a word of it that costs something else.
";

#[test]
fn g08_the_class_of_every_key_and_part_is_pinned() {
    let mut text = LEGEND.to_owned();
    let releases = Release::CHECKED.map(|release| release.to_string());
    show_line("#", releases.each_ref().map(String::as_str), &mut text);
    for kind in GuestKind::ALL {
        for key in registry::table(kind) {
            show_key(kind, key, &mut text);
        }
    }
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(PINNED, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(PINNED).unwrap();
    for (line, pinned) in text.lines().zip(pinned.lines()) {
        assert_eq!(line, pinned, "a class changed");
    }
    assert_eq!(text.lines().count(), pinned.lines().count(), "a key came or went");
}

fn show_key(kind: GuestKind, key: &Key, text: &mut String) {
    let name = if key.slots.is_some() { format!("{}0", key.name) } else { key.name.to_owned() };
    let [first, second] = sample::samples(&key.format);
    let step = |from: Option<&str>, to: Option<&str>| Some(letter(kind, &name, key, from, to));
    let cell =
        [step(None, Some(&first)), step(Some(&first), Some(&second)), step(Some(&first), None)];
    show_row(&format!("{kind} {name}"), key.releases, key.releases, cell, text);
    let ValueFormat::Property(shape) = key.format else {
        return;
    };
    for part in shape.parts {
        let [first, second] = [0, 1].map(|which| sample::with_part(shape, part, which));
        let bare = sample::without_part(shape, part);
        // Without any part the key is not there.
        let rest = Some(bare.as_str()).filter(|bare| !bare.is_empty());
        let cell = if part.required {
            [None, step(Some(&first), Some(&second)), None]
        } else {
            [step(rest, Some(&first)), step(Some(&first), Some(&second)), step(Some(&first), rest)]
        };
        show_row(&format!("{kind} {name}.{}", part.name), key.releases, part.releases, cell, text);
        let ValueFormat::Choice(words) = part.format else {
            continue;
        };
        // Of the words a part can be, those that cost something else than its first one.
        for word in words {
            let to = format!("{bare},{}={word}", part.name);
            let worth_a_line =
                step(rest, Some(&to)).filter(|letter| rest.is_some() && Some(*letter) != cell[0]);
            if let (Some(letter), false) = (worth_a_line, part.required) {
                let row = format!("{kind} {name}.{}={word}", part.name);
                show_row(&row, key.releases, part.releases, [Some(letter), None, None], text);
            }
        }
    }
}

fn show_row(
    name: &str,
    of_key: Releases,
    of_part: Releases,
    cell: [Option<char>; 3],
    text: &mut String,
) {
    let letters: String = cell.iter().map(|letter| letter.unwrap_or('.')).collect();
    let cells = Release::CHECKED.map(|release| {
        let there = of_key.contains(release) && of_part.contains(release);
        if there { letters.as_str() } else { "-" }
    });
    show_line(name, cells, text);
}

fn show_line(name: &str, cells: [&str; Release::CHECKED.len()], text: &mut String) {
    let cells = cells.map(|cell| format!("{cell:<3}"));
    let line = format!("{name:<36} {}", cells.join(" "));
    text.push_str(line.trim_end());
    text.push('\n');
}

/// The class of writing one key of a stopped guest that has only that key, and the volumes of the samples, detached.
fn letter(kind: GuestKind, name: &str, key: &Key, from: Option<&str>, to: Option<&str>) -> char {
    let readable = to.is_none_or(|to| !matches!(read::written(&key.format, to), Value::Odd(_)));
    assert!(readable, "the sample {to:?} of {name} is no value of it");
    // `cdrom` is another name of `ide2`, under which PVE stores it.
    let stored = if name == "cdrom" { "ide2" } else { name };
    let entry = |key: &str, value: &str| ConfigEntry {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        pending: None,
        delete: 0,
    };
    let loose = sample::samples(&ValueFormat::Volume);
    let loose = [("unused8", &loose[0]), ("unused9", &loose[1])];
    let entries = loose.map(|(key, volume)| entry(key, volume)).into_iter();
    let entries = entries.chain(from.map(|from| entry(stored, from)));
    let guest = Guest {
        id: GuestId::new(kind, "200".parse().expect("a guest number")),
        power: Power::Stopped,
        template: false,
        ha: None,
        lock: None,
        config: Ok(GuestConfig::from_pending(kind, entries).into()),
    };
    let params = match to {
        Some(to) => BTreeMap::from([(name.to_owned(), to.to_owned())]),
        None => BTreeMap::from([("delete".to_owned(), name.to_owned())]),
    };
    let intent =
        ActIntent { op: "set_config", kind, params: &params, target: Target::Seen(&guest) };
    match classify(&intent, &Provenance::none()).class {
        ActionClass::Benign => 'b',
        ActionClass::Disruptive => 'x',
        ActionClass::Destructive => 'D',
    }
}
