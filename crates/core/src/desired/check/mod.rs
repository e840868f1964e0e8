//! From trees to `Desired`: every rule of a desired file but the form of single values.
//!
//! Collects all errors, each with its place in the text; knows nothing of any syntax. Values are read by
//! `field.rs`; defaults and profiles, which many guests share, are checked once by `shared.rs`; what a guest is made from
//! is read by `source.rs`, and what it gets once by `first.rs`. What only the node can tell (its release, root's keys) is left to the planner.

mod ending;
mod first;
mod shared;
mod source;
mod unknown;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::field;
use super::layers::{GuestOrigins, Layer, LayerName, Origin, Origins, Placed};
use super::tree::{Node, Tree, TreeEntry};
use super::{
    DeclaredBy, DeclaredGuest, Desired, GUESTS_MAX, ReconcileMode, Run, StopMode, WantedState,
};
use crate::model::id::{GuestId, GuestKind, VmId};
use crate::registry::{self, Absent, Declarable, KeyRef, alias};
use crate::value::Value;
use crate::words::diagnostic::{Code, Diagnostic, MistakeList, Sources, Span, did_you_mean};
use ending::{is_absent, is_in_bin};
pub(super) use shared::PROFILE_NAME_MAX;
use shared::SharedLayers;

/// Words of a guest's table that are not configuration keys.
const GUEST_WORDS: &[&str] = &[
    "final_backup",
    "first",
    "ignore",
    "kind",
    "mode",
    "run",
    "scratch",
    "source",
    "state",
    "stop",
    "template",
    "unset",
    "use",
];

/// What PVE shows beside a guest's keys and nobody sets.
const KEPT_BY_PVE: &[&str] =
    &["digest", "parent", "runningcpu", "runningmachine", "snapstate", "snaptime", "vmstate"];

pub(super) struct DesiredChecker<'a> {
    pub(super) errors: MistakeList,
    sources: &'a Sources,
    shared: SharedLayers,
    guests: BTreeMap<VmId, (DeclaredGuest, GuestOrigins, Span)>,
}

impl<'a> DesiredChecker<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        let shared = SharedLayers::default();
        Self { errors: MistakeList::default(), sources, shared, guests: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> (Desired, Origins, MistakeList) {
        let mut desired = Desired::default();
        let mut origins = Origins::default();
        for (vmid, (guest, whence, _)) in self.guests {
            desired.guests.insert(vmid, guest);
            origins.guests.insert(vmid, whence);
        }
        (desired, origins, self.errors)
    }

    /// Checks all files: what guests share first, because it may stand in any of them.
    pub(super) fn files(&mut self, roots: &[Node]) {
        for root in roots {
            for entry in self.table(root, "a desired file").unwrap_or_default() {
                match entry.key.as_str() {
                    "defaults" => self.defaults(entry),
                    "profile" => self.profiles(entry),
                    "guest" => {}
                    _ => {
                        let words = ["guest", "profile", "defaults"].into_iter();
                        self.unknown(entry, "a desired file", words);
                    }
                }
            }
        }
        for entry in roots.iter().filter_map(|root| root.entry("guest")) {
            for guest in self.table(&entry.value, "`guest`").unwrap_or_default() {
                self.guest(guest);
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
        let uses = self.uses(entry);
        let Some(kind) = self.guest_kind(entry, &uses) else {
            return;
        };
        let id = GuestId::new(kind.value, vmid);
        let (state, mode, mut origins) = if is_absent(&entry.value) {
            self.absent(id, entries)
        } else {
            let own = self.layer(id.kind, &LayerName::Guest, entries);
            let (state, mode, mut origins) = self.present(id, own, &uses);
            match (state, entry.value.entry("state").filter(|_| is_in_bin(&entry.value))) {
                (WantedState::Present(spec), Some(word)) => {
                    let origin = Origin { layer: LayerName::Guest, span: word.key_span };
                    origins.words.insert("state", origin);
                    (WantedState::Bin(spec), mode, origins)
                }
                (state, _) => (state, mode, origins),
            }
        };
        origins.words.insert("kind", kind.origin);
        if let Some((_, _, first)) = self.guests.get(&vmid) {
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
        let guest = DeclaredGuest { id, by: DeclaredBy::LocalFiles, mode, state };
        self.guests.insert(vmid, (guest, origins, entry.key_span));
    }

    /// The kind a block says it is of, with the place of the word.
    fn kind(&mut self, block: &TreeEntry) -> Option<(GuestKind, Span)> {
        let entry = block.value.entry("kind")?;
        let kind = self.word(entry, &[("lxc", GuestKind::Lxc), ("qemu", GuestKind::Qemu)])?;
        Some((kind, entry.key_span))
    }

    fn no_kind(&mut self, what: &str, block: &TreeEntry) {
        let message = format!("{what} {} does not say its kind", block.key);
        let diagnostic = Diagnostic::new(Code::Structure, message)
            .at(block.key_span, format!("this {what}"))
            .hint("add kind = \"lxc\" for a container, or \"qemu\" for a machine");
        self.errors.push(diagnostic);
    }

    /// What one block says, whoever it is for.
    fn layer(&mut self, kind: GuestKind, name: &LayerName, entries: &[TreeEntry]) -> Layer {
        let mut layer = Layer::default();
        let mut unset = None;
        for entry in entries {
            if self.is_misplaced(name, entry) {
                continue;
            }
            match entry.key.as_str() {
                "kind" | "use" => {}
                "state" => {
                    self.word(entry, &[("present", ()), ("bin", ()), ("absent", ())]);
                }
                "run" => {
                    let words = [("running", Run::Running), ("stopped", Run::Stopped)];
                    layer.run = self.word(entry, &words).map(|run| placed(name, entry, run));
                }
                "stop" => {
                    let words = [("shutdown", StopMode::Shutdown), ("force", StopMode::Force)];
                    layer.stop = self.word(entry, &words).map(|stop| placed(name, entry, stop));
                }
                "mode" => layer.mode = self.mode(name, entry),
                "source" => {
                    layer.source = self.source(kind, entry).map(|from| placed(name, entry, from));
                }
                "first" => {
                    layer.first = self.first(kind, entry).map(|first| placed(name, entry, first));
                }
                "scratch" => {
                    layer.scratch = self.switch(entry).map(|on| placed(name, entry, on));
                }
                "template" => {
                    layer.template = self.switch(entry).map(|on| placed(name, entry, on));
                }
                "ignore" => layer.ignore = Some(placed(name, entry, self.ignore(kind, entry))),
                "unset" => unset = Some(entry),
                "final_backup" => self.no_end(entry),
                _ => {
                    if let Some((key, value)) = self.field(kind, entry) {
                        layer.fields.insert(key, placed(name, entry, Some(value)));
                    }
                }
            }
        }
        if let Some(entry) = unset {
            self.unset(kind, name, entry, entries, &mut layer);
        }
        self.volumes_in_two_slots(&layer, None);
        self.words_at_odds(&layer, None);
        layer
    }

    fn mode(&mut self, name: &LayerName, entry: &TreeEntry) -> Option<Placed<ReconcileMode>> {
        let words = [("enforce", ReconcileMode::Enforce), ("observe", ReconcileMode::Observe)];
        self.word(entry, &words).map(|mode| placed(name, entry, mode))
    }

    /// Two disks that write to one volume destroy it. Asked of each block by itself, and of a guest (`whose`) once its
    /// layers are merged: then of disks that come from two of them.
    fn volumes_in_two_slots(&mut self, layer: &Layer, whose: Option<GuestId>) {
        let held = |field: &Placed<Option<Value>>| {
            field.value.as_ref()?.as_property()?.data_volume()?.volid()
        };
        // What is nearer to the guest, or further down, comes second.
        let mut fields: Vec<_> = layer.fields.iter().collect();
        fields.sort_by_key(|(_, field)| (Reverse(&field.origin.layer), field.origin.span));
        for (at, (key, field)) in fields.iter().enumerate() {
            let first = fields[..at].iter().find(|(_, other)| held(other) == held(field));
            let (Some(volid), Some((first_key, first))) = (held(field), first) else {
                continue;
            };
            if whose.is_some() == (first.origin.layer == field.origin.layer) {
                continue;
            }
            let of = whose.map_or_else(String::new, |guest| format!(" of {guest}"));
            let message = format!("{volid} is declared for `{first_key}` and `{key}`{of}");
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(field.origin.span, "again here")
                .related(first.origin.span, "first here")
                .hint("a volume has room in one slot only");
            self.errors.push(diagnostic);
        }
    }

    fn field(&mut self, kind: GuestKind, entry: &TreeEntry) -> Option<(KeyRef, Value)> {
        let key = self.key(kind, &entry.key, entry.key_span)?;
        match field::value(self.sources, key, &entry.value) {
            Ok(value) => Some((key, value)),
            Err(errors) => {
                self.errors.extend(errors);
                None
            }
        }
    }

    /// A key that may be declared.
    fn key(&mut self, kind: GuestKind, name: &str, span: Span) -> Option<KeyRef> {
        if GUEST_WORDS.contains(&name) {
            let message = format!("`{name}` is no configuration key of the guest");
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, message).at(span, "only keys can stand here");
            let advice = match name {
                "run" => "to leave to others whether it runs, write ignore = [\"run\"]",
                _ => "leave it out; what is not declared is left alone",
            };
            self.errors.push(diagnostic.hint(advice));
            return None;
        }
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

    /// Keys that must be absent.
    fn unset(
        &mut self,
        kind: GuestKind,
        layer_name: &LayerName,
        entry: &TreeEntry,
        entries: &[TreeEntry],
        layer: &mut Layer,
    ) {
        for (name, span) in self.names(entry, "`unset` must be a list of keys") {
            let Some(key) = self.key(kind, name, span) else {
                continue;
            };
            if let Some(set) = entries.iter().find(|other| other.key == *name) {
                let diagnostic =
                    Diagnostic::new(Code::Contradiction, format!("`{name}` is both set and unset"));
                let diagnostic = diagnostic.at(span, "unset here");
                let diagnostic = diagnostic.related(set.key_span, "set here");
                self.errors.push(diagnostic.hint("keep one of the two"));
            } else if let Some(why) = cannot_unset(key) {
                let diagnostic =
                    Diagnostic::new(Code::BadValue, format!("`{name}` cannot be unset: {why}"));
                self.errors.push(diagnostic.at(span, "").hint("leave it out of `unset`"));
            } else if let Entry::Vacant(free) = layer.fields.entry(key) {
                let origin = Origin { layer: layer_name.clone(), span };
                free.insert(Placed { value: None, origin });
            } else {
                let diagnostic =
                    Diagnostic::new(Code::Duplicate, format!("`{name}` is unset twice"));
                self.errors.push(diagnostic.at(span, "again here").hint("keep one of the two"));
            }
        }
    }

    /// A list of names, each with its place.
    fn names<'n>(&mut self, entry: &'n TreeEntry, message: &str) -> Vec<(&'n str, Span)> {
        let Tree::List(items) = &entry.value.value else {
            let mut diagnostic = field::wrong_type(&entry.value, message);
            if let Tree::Text(name) = &entry.value.value {
                diagnostic = diagnostic.hint(format!("write {} = [{name:?}]", entry.key));
            }
            self.errors.push(diagnostic);
            return Vec::new();
        };
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            match &item.value {
                Tree::Text(name) => names.push((name.as_str(), item.span)),
                Tree::Null
                | Tree::Bool(_)
                | Tree::Integer(_)
                | Tree::Float(_)
                | Tree::List(_)
                | Tree::Table(_) => self.wrong_type(item, message),
            }
        }
        names
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
                    "`source`" => source::SOURCE_HINT,
                    "`first`" => "write [guest.101.first], and ssh_keys or password below it",
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
        let advice = match place {
            "`source`" => alias::source(&entry.key),
            "`first`" => alias::first(&entry.key),
            "`defaults`" => alias::word("kind", &entry.key),
            _ => alias::block(&entry.key),
        };
        diagnostic = match (advice, did_you_mean(&entry.key, words)) {
            (Some(advice), _) => diagnostic.hint(advice),
            (None, Some(near)) => diagnostic.hint(format!("did you mean `{near}`?")),
            (None, None) => diagnostic.hint(format!("{place} has {}", all.join(", "))),
        };
        self.errors.push(diagnostic);
    }
}

fn placed<T>(layer: &LayerName, entry: &TreeEntry, value: T) -> Placed<T> {
    Placed { value, origin: Origin { layer: layer.clone(), span: entry.key_span } }
}

/// `"lxc" or "qemu"`.
fn choice_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(" or ")
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
