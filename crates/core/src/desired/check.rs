//! From trees to `Desired`: every rule of a desired file but the form of single values.
//!
//! Collects all errors, each with its place in the text; knows nothing of any syntax. Values are read by
//! `field.rs`. What only the node can tell (its release, root's keys) is left to the planner.

use std::collections::BTreeMap;

use super::field;
use super::tree::{Node, Tree, TreeEntry};
use super::{
    DeclaredField, DeclaredGuest, Desired, GUESTS_MAX, GuestSource, Run, Spec, StopMode,
    WantedState,
};
use crate::diagnostic::{Code, Diagnostic, Sources, Span, did_you_mean};
use crate::id::{GuestId, GuestKind, IdError, VmId};
use crate::registry::{self, Absent, Declarable, KeyRef, alias};

/// Words of a guest's table that are not configuration keys.
const GUEST_WORDS: &[&str] = &["kind", "run", "source", "state", "stop", "unset"];

/// What PVE shows beside a guest's keys and nobody sets.
const KEPT_BY_PVE: &[&str] =
    &["digest", "parent", "runningcpu", "runningmachine", "snapstate", "snaptime", "vmstate"];

pub(super) struct DesiredChecker<'a> {
    pub(super) errors: Vec<Diagnostic>,
    sources: &'a Sources,
    guests: BTreeMap<VmId, (DeclaredGuest, Span)>,
}

impl<'a> DesiredChecker<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        Self { errors: Vec::new(), sources, guests: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> (Desired, Vec<Diagnostic>) {
        let guests = self.guests.into_iter().map(|(vmid, (guest, _))| (vmid, guest)).collect();
        (Desired { guests }, self.errors)
    }

    /// Checks one file: a table whose only key is `guest`.
    pub(super) fn file(&mut self, root: &Node) {
        let Some(entries) = self.table(root, "a desired file") else {
            return;
        };
        for entry in entries {
            if entry.key != "guest" {
                self.unknown(entry, "a desired file", ["guest"].into_iter());
                continue;
            }
            if let Some(guests) = self.table(&entry.value, "`guest`") {
                for guest in guests {
                    self.guest(guest);
                }
            }
        }
    }

    fn guest(&mut self, entry: &TreeEntry) {
        let vmid = match entry.key.parse::<VmId>() {
            Ok(vmid) => vmid,
            Err(error) => {
                let diagnostic = Diagnostic::new(Code::BadValue, error.to_string());
                let hint = "write the number that Proxmox VE has for it, as in [guest.101]; \
                            its name is `hostname` (lxc) or `name` (qemu)";
                self.errors.push(diagnostic.at(entry.key_span, "this number").hint(hint));
                return;
            }
        };
        let Some(entries) = self.table(&entry.value, "a guest") else {
            return;
        };
        let Some(kind) = self.kind(entry) else {
            return;
        };
        let id = GuestId::new(kind, vmid);
        let state = if is_absent(&entry.value) {
            self.absent(id, entries)
        } else {
            self.present(id, entries)
        };
        if let Some((_, first)) = self.guests.get(&vmid) {
            let diagnostic =
                Diagnostic::new(Code::Duplicate, format!("guest {vmid} is declared twice"));
            let diagnostic = diagnostic.at(entry.key_span, "declared again here");
            let diagnostic = diagnostic.related(*first, "first declared here");
            self.errors.push(diagnostic.hint("keep one of the two"));
            return;
        }
        if self.guests.len() == GUESTS_MAX {
            let message = format!("more than {GUESTS_MAX} guests are declared");
            self.errors
                .push(Diagnostic::new(Code::Limit, message).at(entry.key_span, "one too many"));
        }
        self.guests.insert(vmid, (DeclaredGuest { id, state }, entry.key_span));
    }

    fn kind(&mut self, guest: &TreeEntry) -> Option<GuestKind> {
        let Some(entry) = guest.value.entry("kind") else {
            let message = format!("guest {} does not say its kind", guest.key);
            let diagnostic =
                Diagnostic::new(Code::Structure, message).at(guest.key_span, "this guest");
            self.errors.push(
                diagnostic.hint("add kind = \"lxc\" for a container, or \"qemu\" for a machine"),
            );
            return None;
        };
        self.word(entry, &[("lxc", GuestKind::Lxc), ("qemu", GuestKind::Qemu)])
    }

    /// An absent guest has a kind and a state, and nothing else.
    fn absent(&mut self, id: GuestId, entries: &[TreeEntry]) -> WantedState {
        for entry in entries {
            if !matches!(entry.key.as_str(), "kind" | "state") {
                let message =
                    format!("`{}` is declared for a guest that shall be absent", entry.key);
                let diagnostic = Diagnostic::new(Code::Contradiction, message)
                    .at(entry.key_span, "of no use here");
                self.errors.push(diagnostic.hint(format!("keep only `kind` and `state` for {id}")));
            }
        }
        WantedState::Absent
    }

    fn present(&mut self, id: GuestId, entries: &[TreeEntry]) -> WantedState {
        let mut spec = Spec::default();
        let mut unset = None;
        for entry in entries {
            match entry.key.as_str() {
                "kind" => {}
                "state" => {
                    self.word(entry, &[("present", ()), ("absent", ())]);
                }
                "run" => {
                    spec.run =
                        self.word(entry, &[("running", Run::Running), ("stopped", Run::Stopped)]);
                }
                "stop" => {
                    let word = self.word(
                        entry,
                        &[("shutdown", StopMode::Shutdown), ("force", StopMode::Force)],
                    );
                    spec.stop = word.unwrap_or_default();
                }
                "source" => spec.source = self.source(id.kind, entry),
                "unset" => unset = Some(entry),
                _ => spec.fields.extend(self.field(id.kind, entry)),
            }
        }
        if let Some(entry) = unset {
            self.unset(id.kind, entry, entries, &mut spec.fields);
        }
        self.volumes_in_two_slots(&spec.fields, entries);
        spec.fields.sort_by_key(|field| field.key);
        WantedState::Present(spec)
    }

    /// Two disks that write to one volume destroy it.
    fn volumes_in_two_slots(&mut self, fields: &[DeclaredField], entries: &[TreeEntry]) {
        let place = |key: KeyRef| entries.iter().find(|entry| entry.key == key.to_string());
        let held =
            |field: &DeclaredField| field.want.as_ref()?.as_property()?.data_volume()?.volid();
        for (at, field) in fields.iter().enumerate() {
            let first = fields[..at].iter().find(|other| held(other) == held(field));
            let (Some(volid), Some(first)) = (held(field), first) else {
                continue;
            };
            let message = format!("{volid} is declared for `{}` and `{}`", first.key, field.key);
            let mut diagnostic = Diagnostic::new(Code::Contradiction, message);
            if let (Some(first), Some(again)) = (place(first.key), place(field.key)) {
                diagnostic = diagnostic.at(again.value.span, "again here");
                diagnostic = diagnostic.related(first.key_span, "first here");
            }
            self.errors.push(diagnostic.hint("a volume has room in one slot only"));
        }
    }

    fn field(&mut self, kind: GuestKind, entry: &TreeEntry) -> Option<DeclaredField> {
        let key = self.key(kind, &entry.key, entry.key_span)?;
        match field::value(self.sources, key, &entry.value) {
            Ok(value) => Some(DeclaredField { key, want: Some(value) }),
            Err(errors) => {
                self.errors.extend(errors);
                None
            }
        }
    }

    /// A key that may be declared.
    fn key(&mut self, kind: GuestKind, name: &str, span: Span) -> Option<KeyRef> {
        let Some(key) = registry::find(kind, name) else {
            self.unknown_key(kind, name, span);
            return None;
        };
        if let Declarable::No(why) = key.key().declared {
            let message = format!("`{name}` cannot be declared: {why}");
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(span, "not for a desired file");
            let advice = alias::key(kind, name).unwrap_or("leave it out");
            let says = why.starts_with("write ");
            self.errors.push(diagnostic.hints((!says).then_some(advice)));
            return None;
        }
        Some(key)
    }

    fn unknown_key(&mut self, kind: GuestKind, name: &str, span: Span) {
        let other = GuestKind::ALL.into_iter().find(|other| *other != kind);
        if let Some(other) = other.filter(|other| registry::find(*other, name).is_some()) {
            let message = format!("`{name}` is a key of {other} guests, and this one is {kind}");
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(span, "not a key of this kind");
            let advice = alias::key(kind, name).unwrap_or("leave it out, or correct `kind`");
            self.errors.push(diagnostic.hint(advice));
            return;
        }
        if GUEST_WORDS.contains(&name) {
            let message = format!("`{name}` is a word of the file and no key of Proxmox VE's");
            let diagnostic = Diagnostic::new(Code::UnknownKey, message).at(span, "cannot be unset");
            self.errors.push(diagnostic.hint("leave it out; what is not declared is left alone"));
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

    /// Keys that must be absent.
    fn unset(
        &mut self,
        kind: GuestKind,
        entry: &TreeEntry,
        entries: &[TreeEntry],
        fields: &mut Vec<DeclaredField>,
    ) {
        let Tree::List(items) = &entry.value.value else {
            let error = field::wrong_type(&entry.value, "`unset` must be a list of keys");
            self.errors.push(error.hint("write unset = [\"nameserver\"]"));
            return;
        };
        for item in items {
            let Tree::Text(name) = &item.value else {
                self.wrong_type(item, "`unset` must be a list of keys");
                continue;
            };
            let Some(key) = self.key(kind, name, item.span) else {
                continue;
            };
            if let Some(set) = entries.iter().find(|other| other.key == *name) {
                let diagnostic =
                    Diagnostic::new(Code::Contradiction, format!("`{name}` is both set and unset"));
                let diagnostic = diagnostic.at(item.span, "unset here");
                let diagnostic = diagnostic.related(set.key_span, "set here");
                self.errors.push(diagnostic.hint("keep one of the two"));
            } else if let Some(why) = cannot_unset(key) {
                let diagnostic =
                    Diagnostic::new(Code::BadValue, format!("`{name}` cannot be unset: {why}"));
                self.errors.push(diagnostic.at(item.span, "").hint("leave it out of `unset`"));
            } else if fields.iter().any(|field| field.key == key) {
                let diagnostic =
                    Diagnostic::new(Code::Duplicate, format!("`{name}` is unset twice"));
                self.errors
                    .push(diagnostic.at(item.span, "again here").hint("keep one of the two"));
            } else {
                fields.push(DeclaredField { key, want: None });
            }
        }
    }

    /// `source = { template = … }`, `{ clone = … }` or `{ backup = … }`.
    fn source(&mut self, kind: GuestKind, entry: &TreeEntry) -> Option<GuestSource> {
        let entries = self.table(&entry.value, "`source`")?;
        let [source] = entries else {
            let diagnostic = Diagnostic::new(
                Code::Structure,
                "`source` must name exactly one thing to make the guest from",
            );
            self.errors.push(
                diagnostic
                    .at(entry.value.span, "")
                    .hint("write template = \"…\", clone = 9000 or backup = \"…\""),
            );
            return None;
        };
        if source.key == "template" && kind != GuestKind::Lxc {
            let diagnostic = Diagnostic::new(
                Code::Contradiction,
                format!("a {kind} guest is not made from a template"),
            );
            let diagnostic = diagnostic.at(source.key_span, "templates are for containers");
            self.errors.push(
                diagnostic
                    .hint("write clone = 9000 to copy a guest, or backup = \"…\" to restore one"),
            );
            return None;
        }
        match (source.key.as_str(), &source.value.value) {
            ("template", Tree::Text(volume)) => {
                self.volume(source, volume).map(GuestSource::Template)
            }
            ("backup", Tree::Text(volume)) => self.volume(source, volume).map(GuestSource::Backup),
            // A float prints without its `.0`: JSON knows one kind of number, and so does its schema.
            ("clone", Tree::Integer(_) | Tree::Float(_)) => match clone_number(&source.value.value)
                .parse()
            {
                Ok(vmid) => Some(GuestSource::Clone(vmid)),
                Err(error) => {
                    let diagnostic = Diagnostic::new(Code::BadValue, IdError::to_string(&error));
                    self.errors.push(diagnostic.at(source.value.span, "this number"));
                    None
                }
            },
            ("template" | "backup", _) => {
                let message = format!("`source.{}` must be a volume id in quotes", source.key);
                let error = field::wrong_type(&source.value, &message);
                self.errors.push(error.hint(VOLUME_HINT));
                None
            }
            ("clone", _) => {
                let error = field::wrong_type(
                    &source.value,
                    "`source.clone` must be the number of a guest",
                );
                self.errors.push(error.hint("write clone = 9000, without quotes"));
                None
            }
            (_, _) => {
                self.unknown(source, "`source`", ["backup", "clone", "template"].into_iter());
                None
            }
        }
    }

    fn volume(&mut self, entry: &TreeEntry, volume: &str) -> Option<String> {
        let format = registry::ValueFormat::Text(registry::Rule::VolumeId);
        match crate::value::read::declared(&format, volume) {
            Ok(_) => Some(volume.trim_ascii().to_owned()),
            Err(misfit) => {
                let diagnostic =
                    Diagnostic::new(Code::BadValue, format!("`{}`: {misfit}", entry.key));
                let example = match entry.key.as_str() {
                    "template" => "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
                    _ => "local:backup/vzdump-lxc-101-2024_01_31-02_00_00.tar.zst",
                };
                let hint = format!("write it as Proxmox VE lists it, such as {example}");
                self.errors.push(diagnostic.at(entry.value.span, "").hint(hint));
                None
            }
        }
    }

    /// One word out of a few.
    fn word<T: Clone>(&mut self, entry: &TreeEntry, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let Tree::Text(text) = &entry.value.value else {
            let message = format!("`{}` must be {}", entry.key, choice_of(&names));
            let advice = match &entry.value.value {
                Tree::Bool(on) => alias::word(&entry.key, if *on { "true" } else { "false" }),
                Tree::Null
                | Tree::Integer(_)
                | Tree::Float(_)
                | Tree::Text(_)
                | Tree::List(_)
                | Tree::Table(_) => None,
            };
            self.errors.push(field::wrong_type(&entry.value, &message).hints(advice));
            return None;
        };
        if let Some((_, value)) = words.iter().find(|(name, _)| name == text) {
            return Some(value.clone());
        }
        let message = format!("`{}` must be {}", entry.key, choice_of(&names));
        let diagnostic =
            Diagnostic::new(Code::BadValue, message).at(entry.value.span, "not one of these");
        let near = did_you_mean(text, names.into_iter());
        let near = near.map(|near| format!("did you mean \"{near}\"?"));
        let advice = alias::word(&entry.key, text).map(str::to_owned);
        self.errors.push(diagnostic.hints(advice.or(near)));
        None
    }

    fn table<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [TreeEntry]> {
        match &node.value {
            Tree::Table(entries) => Some(entries),
            Tree::Null
            | Tree::Bool(_)
            | Tree::Integer(_)
            | Tree::Float(_)
            | Tree::Text(_)
            | Tree::List(_) => {
                let message = format!("{what} must be a table");
                let found = format!("this is {}", field::article(node.value.kind_name()));
                let diagnostic = Diagnostic::new(Code::WrongType, message).at(node.span, found);
                let hint = match what {
                    "`source`" => {
                        "write source = { template = \"local:vztmpl/…\" }, { clone = 9000 } or { backup = \"…\" }"
                    }
                    "`guest`" => "each guest has a block under its number, as in [guest.101]",
                    "a guest" => "write its keys below it, `kind` at least",
                    _ => "write [guest.101], and the guest's keys below it",
                };
                self.errors.push(diagnostic.hint(hint));
                None
            }
        }
    }

    fn wrong_type(&mut self, node: &Node, message: &str) {
        self.errors.push(field::wrong_type(node, message));
    }

    fn unknown<'w>(
        &mut self,
        entry: &TreeEntry,
        place: &str,
        words: impl Iterator<Item = &'w str> + Clone,
    ) {
        let message = format!("unknown key `{}` in {place}", entry.key);
        let mut diagnostic =
            Diagnostic::new(Code::UnknownKey, message).at(entry.key_span, "not known here");
        let all: Vec<&str> = words.clone().collect();
        let advice =
            if place == "`source`" { alias::source(&entry.key) } else { alias::block(&entry.key) };
        diagnostic = match (advice, did_you_mean(&entry.key, words)) {
            (Some(advice), _) => diagnostic.hint(advice),
            (None, Some(near)) => diagnostic.hint(format!("did you mean `{near}`?")),
            (None, None) => diagnostic.hint(format!("{place} has {}", all.join(", "))),
        };
        self.errors.push(diagnostic);
    }
}

/// How a volume is written.
const VOLUME_HINT: &str =
    "write it as Proxmox VE lists it, such as \"local:vztmpl/debian-12.tar.zst\"";

fn is_absent(guest: &Node) -> bool {
    guest.entry("state").is_some_and(|entry| entry.value.value == Tree::Text("absent".to_owned()))
}

/// `"lxc" or "qemu"`.
fn choice_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(" or ")
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

/// The digits of a number; of anything else nothing.
fn clone_number(value: &Tree) -> String {
    match value {
        Tree::Integer(number) => number.to_string(),
        Tree::Float(number) => number.to_string(),
        Tree::Null | Tree::Bool(_) | Tree::Text(_) | Tree::List(_) | Tree::Table(_) => {
            String::new()
        }
    }
}

/// Why a key cannot be absent.
pub(crate) fn cannot_unset(key: KeyRef) -> Option<&'static str> {
    match (key.key().absent, key.key().declared) {
        (_, Declarable::AtCreation) => Some("it is fixed when the guest is created"),
        (Absent::ServerFilled, _) => Some("Proxmox VE fills it in by itself"),
        (_, Declarable::Yes | Declarable::RootOnly | Declarable::No(_)) => {
            key.key().required.then_some("Proxmox VE requires it")
        }
    }
}
