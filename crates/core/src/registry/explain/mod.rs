//! What is known of one key, in words: what `evenkeel explain` tells, derived from the registry.
//!
//! Every line of an answer is made from the row that the planner, the gate and the reader of desired files use, so that it
//! cannot say anything else. Only the words of a desired file that are no keys (`run`, `source` …) have their sentences here.

mod example;
mod words;

pub(crate) use example::example;
use words::{WORDS, part, words};

use super::reference::{absent, applies, value};
use super::{
    Absent, Applies, Declarable, FormatPart, Hazard, Key, KeyRef, Releases, Rule, Shape,
    ValueFormat, find, table,
};
use crate::model::id::GuestKind;
use crate::model::release::Release;
use crate::value::expected;
use crate::words::diagnostic::{Sources, did_you_mean};

/// What is known of a key, a part of one, or a word of a desired file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Its name, as it is written: `cores`, `net0.rate`, `run`.
    pub name: String,
    /// The kinds of guest it is told for.
    pub kinds: Vec<GuestKind>,
    /// What it is, in one sentence or two.
    pub about: String,
    /// Facts by their names, in order.
    pub facts: Vec<(&'static str, String)>,
    /// The parts it is made of, with what each takes.
    pub parts: Vec<(&'static str, String)>,
    /// A line for a desired file.
    pub example: String,
}

/// What was asked for does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no key `{asked}`{}", kind.map(|kind| format!(" of {kind} guests")).unwrap_or_default())]
pub struct UnknownKey {
    /// What was asked for.
    pub asked: String,
    /// The kind it was asked for.
    pub kind: Option<GuestKind>,
    /// What to ask instead.
    pub hint: String,
}

/// Explains `cores`, `net0`, `net0.rate`, `qemu/scsi0` or a word such as `run`; for both kinds where they differ.
pub fn explain(asked: &str) -> Result<Vec<Explanation>, UnknownKey> {
    let (kind, name) = match asked.split_once('/') {
        Some(("lxc", name)) => (Some(GuestKind::Lxc), name),
        Some(("qemu", name)) => (Some(GuestKind::Qemu), name),
        Some(_) | None => (None, asked),
    };
    if let Some(word) = words().into_iter().find(|word| word.name == name).or_else(|| part(name)) {
        return Ok(vec![word]);
    }
    let mut told: Vec<Explanation> = Vec::new();
    for kind in kinds_of(kind) {
        let Some(one) = of_kind(kind, name) else { continue };
        match told
            .iter_mut()
            .find(|other| one == Explanation { kinds: one.kinds.clone(), ..(*other).clone() })
        {
            Some(same) => same.kinds.push(kind),
            None => told.push(one),
        }
    }
    if told.is_empty() { Err(unknown(kind, name)) } else { Ok(told) }
}

/// Every key and word there is, with its line.
pub fn every_key() -> Vec<(Option<GuestKind>, String, &'static str)> {
    let keys = GuestKind::ALL.into_iter().flat_map(|kind| {
        let declarable = |key: &&Key| !matches!(key.declared, Declarable::No(_));
        table(kind).iter().filter(declarable).map(move |key| (Some(kind), slot_names(key), key.doc))
    });
    let words = WORDS.iter().map(|word| (None, word.name.to_owned(), word.line));
    words.chain(keys).collect()
}

fn of_kind(kind: GuestKind, name: &str) -> Option<Explanation> {
    let (key, part) = match name.split_once('.') {
        Some((key, part)) => (key, Some(part)),
        None => (name, None),
    };
    // A family may be asked for by its name alone.
    let key = find(kind, key).or_else(|| find(kind, &format!("{key}0")))?;
    match part {
        None => Some(of_key(key)),
        Some(part) => Some(of_part(key, key.key().format.shape()?.part(part)?)),
    }
}

fn of_key(key: KeyRef) -> Explanation {
    let row = key.key();
    let mut facts = vec![("value", takes(&row.format))];
    if let Some(count) = row.slots {
        facts.push(("slots", format!("{0}0 to {0}{1}", row.name, count - 1)));
    }
    facts.push(("if absent", default_of(&row.format, row.absent)));
    facts.push(("effect", effect(row.applies)));
    let (changed, removed) = classes(row.hazard);
    facts.push(("changed", changed.to_owned()));
    facts.push(("removed", removal(key, removed)));
    facts.push(("right", row.privilege.names().join(" and ")));
    facts.push(("releases", releases(row.releases)));
    facts.extend(declared(row).map(|who| ("declared", who)));
    if row.secret {
        facts.push(("secret", "its value is shown and stored nowhere".to_owned()));
    }
    let shape = row.format.shape();
    let several = shape.filter(|shape| shape.parts.len() > 1);
    let parts =
        several.map(|shape| shape.parts.iter().map(|part| (part.name, told(part))).collect());
    let name = key.to_string();
    let example = format!("{name} = {}", example(&name, &row.format));
    Explanation {
        name,
        kinds: vec![key.kind()],
        about: row.doc.to_owned(),
        facts,
        parts: parts.unwrap_or_default(),
        example,
    }
}

fn of_part(key: KeyRef, part: &'static FormatPart) -> Explanation {
    let row = key.key();
    let mut facts = vec![("value", takes(&part.format))];
    if part.required {
        facts.push(("required", "yes: Proxmox VE refuses the key without it".to_owned()));
    } else {
        facts.push(("if absent", default_of(&part.format, part.absent)));
    }
    facts.push(("effect", effect(row.applies)));
    facts.push(("changed", classes(row.hazard).0.to_owned()));
    facts.push(("right", row.privilege.names().join(" and ")));
    facts.push(("releases", releases(part.releases)));
    if part.root_only {
        facts.push(("declared", ROOT_ONLY.to_owned()));
    } else {
        facts.extend(declared(row).map(|who| ("declared", who)));
    }
    Explanation {
        name: format!("{key}.{}", part.name),
        kinds: vec![key.kind()],
        about: format!("A part of {key}. {}", row.doc),
        facts,
        parts: Vec::new(),
        example: part_example(key, part),
    }
}

/// A line with the part in it: the fullest one that is taken, because not all parts go together.
fn part_example(key: KeyRef, part: &FormatPart) -> String {
    let row = key.key();
    let written =
        |part: &FormatPart| format!("{} = {}", part.name, example(part.name, &part.format));
    let own = written(part);
    let whole = example(&key.to_string(), &row.format);
    let shape = row.format.shape().expect("a part belongs to a property string");
    let others = shape.parts.iter().filter(|other| other.name != part.name);
    let required: Vec<String> =
        others.clone().filter(|other| other.required).map(written).collect();
    // A gateway needs an address, a card of a container its name.
    let address = part.name.strip_prefix("gw").map(|six| format!("ip{six}"));
    let address = others.clone().find(|other| Some(other.name) == address.as_deref()).map(written);
    let joined = |first: &[String]| {
        let parts: Vec<&str> =
            first.iter().chain(&address).map(String::as_str).chain([own.as_str()]).collect();
        format!("{key} = {{ {} }}", parts.join(", "))
    };
    let candidates = [
        format!("{key} = {whole}"),
        whole
            .strip_suffix(" }")
            .map_or_else(|| joined(&required), |open| format!("{key} = {open}, {own} }}")),
        joined(&["storage = \"local-lvm\"".to_owned(), "size = \"8GiB\"".to_owned()]),
        joined(&["storage = \"local-lvm\"".to_owned()]),
        joined(&["file = \"local:iso/debian-12.iso\"".to_owned()]),
        joined(&required),
        joined(&[]),
    ];
    let fits =
        |line: &&String| line.contains(&format!("{} =", part.name)) && is_taken(key.kind(), line);
    candidates.iter().find(fits).unwrap_or(&candidates[5]).clone()
}

/// Whether a desired file may hold this line.
fn is_taken(kind: GuestKind, line: &str) -> bool {
    let mut sources = Sources::default();
    sources.add("example.toml", format!("[guest.101]\nkind = \"{kind}\"\n{line}\n"));
    crate::desired::load(&sources).is_ok()
}

fn told(part: &FormatPart) -> String {
    let mut text = takes(&part.format);
    let default = absent(part.absent);
    if part.required {
        text.push_str("; required");
    } else if !default.is_empty() {
        text = format!("{text}; if absent {default}");
    }
    if part.root_only {
        text.push_str("; only root@pam");
    }
    if part.releases != Releases::ALL {
        text = format!("{text}; {}", releases(part.releases));
    }
    text
}

const ROOT_ONLY: &str = "only root@pam can set it, and an API token never is: set it on the node";

/// Who may declare it, if not everybody.
fn declared(row: &Key) -> Option<String> {
    match row.declared {
        Declarable::Yes => None,
        Declarable::RootOnly => Some(ROOT_ONLY.to_owned()),
        Declarable::AtCreation => {
            Some("fixed when the guest is made; compared, never written".to_owned())
        }
        Declarable::No(why) => Some(format!("cannot be declared: {why}")),
    }
}

/// What a format takes, a little more telling than the table of the reference has room for.
fn takes(format: &ValueFormat) -> String {
    let ruled = |rule: Rule| expected(rule).trim_start_matches("it must be ").to_owned();
    match format {
        ValueFormat::Text(Rule::Line) => "text on one line".to_owned(),
        ValueFormat::Text(rule) => ruled(*rule),
        ValueFormat::List { item, .. } => format!("list, in order; each {}", ruled(*item)),
        ValueFormat::Words { item, .. } => format!("list; each {}", ruled(*item)),
        // QEMU's memory is a property string of one part, which everybody writes alone.
        ValueFormat::Property(Shape { parts: [only], .. }) => takes(&only.format),
        ValueFormat::Bool
        | ValueFormat::Integer { .. }
        | ValueFormat::Weight { .. }
        | ValueFormat::Mebibytes { .. }
        | ValueFormat::Number { .. }
        | ValueFormat::Choice(_)
        | ValueFormat::Description(_)
        | ValueFormat::Tags
        | ValueFormat::Hotplug
        | ValueFormat::Boot
        | ValueFormat::Environment
        | ValueFormat::SshKeys
        | ValueFormat::Secret
        | ValueFormat::GeneratedUuid
        | ValueFormat::Volume
        | ValueFormat::Size
        | ValueFormat::Mac
        | ValueFormat::Cidr4
        | ValueFormat::Cidr6
        | ValueFormat::Ip4
        | ValueFormat::Ip6
        | ValueFormat::Property(_) => value(format),
    }
}

fn default_of(format: &ValueFormat, default: Absent) -> String {
    match (format, absent(default)) {
        (ValueFormat::Property(Shape { parts: [only], .. }), _) => {
            default_of(&only.format, only.absent)
        }
        (_, nothing) if nothing.is_empty() => "not set".to_owned(),
        (ValueFormat::Mebibytes { .. }, number) => format!("{number} MiB"),
        (_, told) => told,
    }
}

fn effect(how: Applies) -> String {
    match how {
        Applies::Live => "live: a running guest has it at once".to_owned(),
        Applies::AtNextStart | Applies::AfterRestart => {
            "after restart: a running guest has it when it next starts".to_owned()
        }
        Applies::Hotplug(feature) => {
            format!("live if `hotplug` has {}, else after restart", feature.as_str())
        }
        Applies::LxcNetwork
        | Applies::LxcMount
        | Applies::LxcDevice
        | Applies::Balloon
        | Applies::HotplugDrive
        | Applies::HotplugSet
        | Applies::LiveSince8 => applies(how).to_owned(),
    }
}

/// What the gate makes of a change, and of a removal.
fn classes(hazard: Hazard) -> (&'static str, &'static str) {
    match hazard {
        Hazard::Safe => ("benign: it can be set back", "benign"),
        Hazard::Disrupts => {
            ("disruptive: it can interrupt the guest, and runs when declared", "disruptive")
        }
        Hazard::Guard => (
            "benign to raise; destructive to lift, which needs a signature",
            "destructive if it is on",
        ),
        Hazard::GuestName => (
            "benign; disruptive with a cloud-init drive, which runs first-boot logic again",
            "as a change",
        ),
        Hazard::RootVolume => (
            "benign to grow or move; anything else would lose it and is never written",
            "never written",
        ),
        Hazard::VolumeSlot => (
            "depends on the change: a new volume is benign, another one in its place disruptive, what loses data or its \
             safety destructive",
            "disruptive: the volume is detached and kept as unusedN",
        ),
        Hazard::TpmState => ("destructive: keys would be lost", "destructive"),
        Hazard::UnusedVolume => ("destructive", "destructive: the volume is freed"),
        Hazard::Forbidden => {
            ("destructive: it reaches the host, or must never change", "destructive")
        }
    }
}

fn removal(key: KeyRef, class: &'static str) -> String {
    match crate::desired::cannot_unset(key) {
        Some(why) => format!("not possible: {why}"),
        None => class.to_owned(),
    }
}

fn releases(releases: Releases) -> String {
    match (releases.from, releases.until) {
        (Release::V7_4, None) => "all".to_owned(),
        (from, None) => format!("from {from} on"),
        (Release::V7_4, Some(last)) => format!("until {last}"),
        (from, Some(last)) => format!("{from} to {last}"),
    }
}

fn slot_names(key: &Key) -> String {
    match key.slots {
        Some(count) => format!("{0}0 … {0}{1}", key.name, count - 1),
        None => key.name.to_owned(),
    }
}

fn unknown(kind: Option<GuestKind>, name: &str) -> UnknownKey {
    let (key, part) = name.split_once('.').map_or((name, None), |(key, part)| (key, Some(part)));
    let shape = kinds_of(kind).find_map(|kind| {
        find(kind, key).or_else(|| find(kind, &format!("{key}0")))?.key().format.shape()
    });
    let hint = if let (Some(part), Some(shape)) = (part, shape) {
        crate::value::read::part_advice(shape, part)
    } else {
        key_advice(kind, key)
    };
    UnknownKey { asked: name.to_owned(), kind, hint }
}

/// The kinds an answer is about.
fn kinds_of(kind: Option<GuestKind>) -> impl Iterator<Item = GuestKind> {
    GuestKind::ALL.into_iter().filter(move |other| kind.is_none_or(|kind| kind == *other))
}

/// What to ask for instead of a key that is none.
fn key_advice(kind: Option<GuestKind>, key: &str) -> String {
    if let Some(advice) = kinds_of(kind).find_map(|kind| super::alias::key(kind, key)) {
        return advice.to_owned();
    }
    let row_name = |row: &Key| match row.slots {
        Some(_) => format!("{}0", row.name),
        None => row.name.to_owned(),
    };
    let names: Vec<String> = kinds_of(kind).flat_map(table).map(row_name).collect();
    let all = names.iter().map(String::as_str).chain(WORDS.iter().map(|word| word.name));
    match did_you_mean(key, all) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`evenkeel explain` lists every key".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may not be written, or not by an example that fits all.
    const WITHOUT_EXAMPLE: &[&str] = &["\"…\""];

    #[test]
    fn every_example_is_taken_by_the_reader_of_desired_files() {
        let mut wrong = Vec::new();
        for kind in GuestKind::ALL {
            for row in table(kind) {
                if matches!(row.declared, Declarable::No(_)) {
                    continue;
                }
                let name = if row.slots.is_some() {
                    format!("{}0", row.name)
                } else {
                    row.name.to_owned()
                };
                let told = of_kind(kind, &name).unwrap();
                let parts = row.format.shape().map(|shape| shape.parts).unwrap_or_default();
                let parts = parts.iter().filter(|part| part.instead.is_none());
                let parts =
                    parts.filter_map(|part| of_kind(kind, &format!("{name}.{}", part.name)));
                for told in std::iter::once(told).chain(parts) {
                    if WITHOUT_EXAMPLE.iter().any(|words| told.example.contains(words)) {
                        continue;
                    }
                    if !is_taken(kind, &told.example) {
                        wrong.push(format!("{kind}: {}", told.example));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn what_is_the_same_for_both_kinds_is_told_once() {
        let kinds = |asked: &str| -> Vec<usize> {
            explain(asked).unwrap().iter().map(|one| one.kinds.len()).collect()
        };
        assert_eq!(kinds("tags"), [2]);
        assert_eq!(kinds("cores"), [1, 1]);
        assert_eq!(kinds("qemu/cores"), [1]);
        assert_eq!((kinds("run"), kinds("lxc/run")), (vec![2], vec![2]));
        assert_eq!(kinds("scsi"), [1]);
        assert_eq!(explain("net3.rate").unwrap()[0].name, "net3.rate");
    }

    #[test]
    fn what_is_not_there_is_told_with_what_was_meant() {
        for (asked, hint) in [
            ("coers", "did you mean `cores`?"),
            ("vcpu", "write `cores`"),
            ("ostemplate", "source"),
            ("net0.vlan", "write `tag`"),
            ("qemu/hostname", "write `name`"),
            ("xyzzy", "`evenkeel explain` lists every key"),
        ] {
            let error = explain(asked).unwrap_err();
            assert!(error.hint.contains(hint), "{asked}: {error} {}", error.hint);
        }
    }

    #[test]
    fn every_key_has_a_line_and_can_be_asked_for() {
        for (kind, name, line) in every_key() {
            let name = name.split(' ').next().unwrap();
            let asked = kind.map_or(name.to_owned(), |kind| format!("{kind}/{name}"));
            assert!(explain(&asked).is_ok() && !line.is_empty(), "{asked}");
        }
    }
}
