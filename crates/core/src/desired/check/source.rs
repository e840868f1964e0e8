//! What a guest is made from: `source`, `scratch` and `template`, and what they and `first` contradict.
//!
//! A block is judged where it stands; what only the whole guest can tell (an image goes into a slot that a profile
//! declares) is judged once its layers are merged.

use super::super::Run;
use super::super::field;
use super::super::layers::{Layer, LayerName, Origin, Placed};
use super::super::source::{CloneSource, GuestSource, IMAGE_SLOTS, VolumeContent};
use super::super::tree::{Tree, TreeEntry};
use super::DesiredChecker;
use crate::model::id::{GuestId, GuestKind, IdError, VmId};
use crate::operate::operation::{StorageName, VolumeId};
use crate::operate::pve_call::SnapshotName;
use crate::registry::{self, KeyRef, Rule, ValueFormat};
use crate::value::{Value, VolumeRef, read};
use crate::words::diagnostic::{Code, Diagnostic};

/// What `source` looks like.
pub(super) const SOURCE_HINT: &str = "write source = { template = \"local:vztmpl/…\" }, { image = \"local:import/…\", into = \"scsi0\" }, \
                                      { clone = 9000 } or { backup = \"…\" }";

/// The ways to make a guest.
const FORMS: &[&str] = &["backup", "clone", "empty", "image", "template"];

/// What stands beside one of them, and beside which.
const COMPANIONS: &[(&str, &str)] = &[
    ("full", "clone"),
    ("into", "image"),
    ("snapshot", "clone"),
    ("storage", "clone"),
    ("unique", "backup"),
];

impl DesiredChecker<'_> {
    /// `source = { … }`: one way to make a guest, with what goes with it.
    pub(super) fn source(&mut self, kind: GuestKind, entry: &TreeEntry) -> Option<GuestSource> {
        let entries = self.table(&entry.value, "`source`")?;
        let mistakes = self.errors.len();
        for stranger in entries.iter().filter(|entry| !is_source_word(&entry.key)) {
            self.unknown(stranger, "`source`", source_words());
        }
        let mut forms = entries.iter().filter(|entry| FORMS.contains(&entry.key.as_str()));
        let form = forms.next();
        let second = forms.next();
        if let (Some(first), Some(second)) = (form, second) {
            let message = "`source` must name one thing to make the guest from";
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(second.key_span, "a second one")
                .related(first.key_span, "the first one");
            self.errors.push(diagnostic.hint("keep one of the two"));
            return None;
        }
        let Some(form) = form else {
            let is_empty = entries.is_empty() && kind == GuestKind::Qemu;
            if !is_empty && self.errors.len() == mistakes {
                self.says_no_form(kind, entry, entries);
            }
            return is_empty.then_some(GuestSource::Empty);
        };
        self.companions_fit(form, entries);
        let source = self.source_form(kind, form, entries);
        source.filter(|_| self.errors.len() == mistakes)
    }

    fn source_form(
        &mut self,
        kind: GuestKind,
        form: &TreeEntry,
        entries: &[TreeEntry],
    ) -> Option<GuestSource> {
        let beside = |name: &str| entries.iter().find(|entry| entry.key == name);
        match (form.key.as_str(), kind) {
            ("template", GuestKind::Lxc) => {
                self.volume(form, VolumeContent::Template).map(GuestSource::Template)
            }
            ("image", GuestKind::Qemu) => {
                let volume = self.volume(form, VolumeContent::Import);
                let into = self.image_slot(form, beside("into"));
                Some(GuestSource::Image { volume: volume?, into: into? })
            }
            ("empty", GuestKind::Qemu) => match form.value.value {
                Tree::Bool(true) => Some(GuestSource::Empty),
                Tree::Bool(false)
                | Tree::Null
                | Tree::Integer(_)
                | Tree::Float(_)
                | Tree::Text(_)
                | Tree::List(_)
                | Tree::Table(_) => {
                    let error = field::wrong_type(&form.value, "`source.empty` must be true");
                    self.errors
                        .push(error.hint("write source = { empty = true }, or leave it out"));
                    None
                }
            },
            ("clone", GuestKind::Lxc | GuestKind::Qemu) => {
                self.clone_source(form, beside("full"), beside("storage"), beside("snapshot"))
            }
            ("backup", GuestKind::Lxc | GuestKind::Qemu) => {
                let volume = self.volume(form, VolumeContent::Backup);
                let unique = beside("unique").map_or(Some(true), |entry| self.switch(entry));
                Some(GuestSource::Backup { volume: volume?, unique: unique? })
            }
            (_, GuestKind::Lxc | GuestKind::Qemu) => {
                self.form_of_other_kind(kind, form);
                None
            }
        }
    }

    fn clone_source(
        &mut self,
        form: &TreeEntry,
        full: Option<&TreeEntry>,
        storage: Option<&TreeEntry>,
        snapshot: Option<&TreeEntry>,
    ) -> Option<GuestSource> {
        let guest = self.guest_number(form);
        let is_full = full.map_or(Some(true), |entry| self.switch(entry));
        if let (Some(full), Some(false), Some(storage)) = (full, is_full, storage) {
            let message = "a linked clone stays on the storage of its source";
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(storage.key_span, "not beside full = false")
                .related(full.key_span, "linked by this");
            self.errors.push(diagnostic.hint("leave `storage` out, or write full = true"));
        }
        // What could not be read was told, and nothing is made of the whole set.
        let storage = storage.and_then(|entry| self.parsed::<StorageName>(entry, STORAGE_HINT));
        let snapshot = snapshot.and_then(|entry| self.parsed::<SnapshotName>(entry, SNAPSHOT_HINT));
        Some(GuestSource::Clone(CloneSource { guest: guest?, full: is_full?, storage, snapshot }))
    }

    /// A name in quotes.
    fn parsed<T: std::str::FromStr<Err = IdError>>(
        &mut self,
        entry: &TreeEntry,
        hint: &str,
    ) -> Option<T> {
        let Tree::Text(text) = &entry.value.value else {
            let message = format!("`source.{}` must be a name in quotes", entry.key);
            self.errors.push(field::wrong_type(&entry.value, &message).hint(hint));
            return None;
        };
        match text.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                let message = format!("`source.{}`: {}", entry.key, error.why);
                let diagnostic = Diagnostic::new(Code::BadValue, message).at(entry.value.span, "");
                self.errors.push(diagnostic.hint(hint));
                None
            }
        }
    }

    fn guest_number(&mut self, entry: &TreeEntry) -> Option<VmId> {
        let digits = match &entry.value.value {
            Tree::Integer(number) => number.to_string(),
            // A float prints without its `.0`: JSON knows one kind of number, and so does its schema.
            Tree::Float(number) => number.to_string(),
            Tree::Null | Tree::Bool(_) | Tree::Text(_) | Tree::List(_) | Tree::Table(_) => {
                let message = "`source.clone` must be the number of a guest";
                let error = field::wrong_type(&entry.value, message);
                self.errors.push(error.hint("write clone = 9000, without quotes"));
                return None;
            }
        };
        match digits.parse() {
            Ok(guest) => Some(guest),
            Err(error) => {
                let diagnostic = Diagnostic::new(Code::BadValue, IdError::to_string(&error));
                let hint = "write the number that Proxmox VE has for the guest to copy";
                self.errors.push(diagnostic.at(entry.value.span, "this number").hint(hint));
                None
            }
        }
    }

    /// The disk an image becomes.
    fn image_slot(&mut self, form: &TreeEntry, entry: Option<&TreeEntry>) -> Option<KeyRef> {
        let Some(entry) = entry else {
            let message = "`source` names an image and no disk for it";
            let diagnostic = Diagnostic::new(Code::Structure, message);
            let diagnostic = diagnostic.at(form.key_span, "which disk shall it become?");
            self.errors.push(diagnostic.hint("add into = \"scsi0\", and declare scsi0"));
            return None;
        };
        let Tree::Text(text) = &entry.value.value else {
            let error = field::wrong_type(&entry.value, "`source.into` must be a disk in quotes");
            self.errors.push(error.hint("write into = \"scsi0\""));
            return None;
        };
        let key = registry::find(GuestKind::Qemu, text);
        let key = key.filter(|key| IMAGE_SLOTS.contains(&key.key().name));
        if key.is_none() {
            let message = "`source.into` must be a disk of a machine";
            let diagnostic = Diagnostic::new(Code::BadValue, message)
                .at(entry.value.span, "not a disk an image can become");
            self.errors.push(diagnostic.hint("write scsi0, virtio0, sata0 or ide0, as declared"));
        }
        key
    }

    /// A volume of some content.
    fn volume(&mut self, entry: &TreeEntry, wanted: VolumeContent) -> Option<VolumeId> {
        let example = format!("write it as Proxmox VE lists it, such as {}", wanted.example());
        let Tree::Text(text) = &entry.value.value else {
            let message = format!("`source.{}` must be a volume id in quotes", entry.key);
            self.errors.push(field::wrong_type(&entry.value, &message).hint(example));
            return None;
        };
        let text = text.trim_ascii();
        let refuse =
            |code, message: String| Diagnostic::new(code, message).at(entry.value.span, "");
        if text.starts_with('/') {
            let message = format!("`source.{}` is a path, which only root@pam may read", entry.key);
            let hint = format!("put the file on a storage, then {example}");
            self.errors.push(refuse(Code::Contradiction, message).hint(hint));
            return None;
        }
        let rule = read::declared(&ValueFormat::Text(Rule::VolumeId), text);
        let volume = rule
            .map_err(|misfit| misfit.to_string())
            .and_then(|_| text.parse::<VolumeId>().map_err(|error| error.why.to_owned()));
        let volume = match volume {
            Ok(volume) => volume,
            Err(why) => {
                let message = format!("`source.{}`: {why}", entry.key);
                self.errors.push(refuse(Code::BadValue, message).hint(example));
                return None;
            }
        };
        let content = VolumeContent::of(&volume);
        if content == wanted {
            return Some(volume);
        }
        let message = format!("{volume} is {content}, not {wanted}");
        let hint = match (content, wanted) {
            (VolumeContent::GuestDisk(owner), _) => format!(
                "its owner may still change it: write source = {{ clone = {owner} }} to copy that guest, or an image such as {}",
                VolumeContent::Import.example()
            ),
            (VolumeContent::Iso, VolumeContent::Import) => {
                "declare the disks without a source, and ide2 = \"local:iso/debian-12.iso,media=cdrom\" to install from \
                 it; an image to start from is of content import"
                    .to_owned()
            }
            (VolumeContent::Template, VolumeContent::Backup | VolumeContent::Import)
            | (VolumeContent::Backup, VolumeContent::Template | VolumeContent::Import)
            | (VolumeContent::Import, VolumeContent::Template | VolumeContent::Backup) => {
                format!("write source = {{ {} = … }} for it, if that was meant", content.source_word())
            }
            (
                VolumeContent::Template
                | VolumeContent::Import
                | VolumeContent::Backup
                | VolumeContent::Iso
                | VolumeContent::Other,
                _,
            ) => example,
        };
        self.errors.push(refuse(Code::Contradiction, message).hint(hint));
        None
    }

    /// Words that belong to another way to make a guest.
    fn companions_fit(&mut self, form: &TreeEntry, entries: &[TreeEntry]) {
        for entry in entries {
            let owner = COMPANIONS.iter().find(|(name, _)| *name == entry.key).map(|(_, of)| *of);
            let Some(owner) = owner.filter(|owner| *owner != form.key) else { continue };
            let message = format!("`{}` says nothing beside `{}`", entry.key, form.key);
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(entry.key_span, format!("this goes with `{owner}`"))
                .related(form.key_span, "made from this");
            let hint = match (entry.key.as_str(), form.key.as_str()) {
                ("storage", "template" | "image" | "empty") => {
                    "leave it out: where each volume goes stands with the volume, as in rootfs or scsi0"
                }
                ("snapshot", "backup") => "leave it out: a backup is of one moment",
                (_, _) => "leave it out",
            };
            self.errors.push(diagnostic.hint(hint));
        }
    }

    fn says_no_form(&mut self, kind: GuestKind, entry: &TreeEntry, entries: &[TreeEntry]) {
        let diagnostic =
            Diagnostic::new(Code::Structure, "`source` must name one thing to make the guest from");
        let lonely = entries.iter().find_map(|entry| {
            COMPANIONS.iter().find(|(name, _)| *name == entry.key).map(|of| (entry, of.1))
        });
        let diagnostic = match (lonely, kind) {
            (Some((entry, owner)), _) => diagnostic
                .at(entry.key_span, format!("this goes with `{owner}`"))
                .hint(format!("add {}", owner_hint(owner))),
            (None, GuestKind::Lxc) => diagnostic
                .at(entry.value.span, "")
                .hint("write template = \"local:vztmpl/…\", clone = 9000 or backup = \"…\""),
            (None, GuestKind::Qemu) => diagnostic.at(entry.value.span, "").hint(SOURCE_HINT),
        };
        self.errors.push(diagnostic);
    }

    fn form_of_other_kind(&mut self, kind: GuestKind, form: &TreeEntry) {
        let (what, label) = match form.key.as_str() {
            "template" => ("a template", "templates are for containers"),
            "image" => ("a disk image", "images are for machines"),
            _ => ("nothing", "a container needs a system inside"),
        };
        let hint = match kind {
            GuestKind::Lxc => {
                "write template = \"local:vztmpl/…\", clone = 9000 to copy a guest, or backup = \"…\" to restore one"
            }
            GuestKind::Qemu => {
                "write image = \"local:import/…\" with into = \"scsi0\", clone = 9000 to copy a guest, or backup = \"…\" \
                 to restore one"
            }
        };
        let article = match kind {
            GuestKind::Lxc => "an lxc",
            GuestKind::Qemu => "a qemu",
        };
        let message = format!("{article} guest is not made from {what}");
        let diagnostic = Diagnostic::new(Code::Contradiction, message);
        self.errors.push(diagnostic.at(form.key_span, label).hint(hint));
    }

    /// A word that is true or false.
    pub(super) fn switch(&mut self, entry: &TreeEntry) -> Option<bool> {
        if let Tree::Bool(on) = entry.value.value {
            return Some(on);
        }
        let message = format!("`{}` must be true or false", entry.key);
        let hint = match (&entry.value.value, entry.key.as_str()) {
            (Tree::Text(text), "template") if text.contains(':') => {
                format!("to make the guest from it, write source = {{ template = {text:?} }}")
            }
            (Tree::Text(text), _) => {
                let off = ["false", "no", "off", "0"].contains(&text.to_ascii_lowercase().as_str());
                format!("write {} = {}, without quotes", entry.key, !off)
            }
            (
                Tree::Null
                | Tree::Bool(_)
                | Tree::Integer(_)
                | Tree::Float(_)
                | Tree::List(_)
                | Tree::Table(_),
                _,
            ) => format!("write {} = true", entry.key),
        };
        self.errors.push(field::wrong_type(&entry.value, &message).hint(hint));
        None
    }

    /// Words that cannot both hold: asked of each block by itself, and of a guest (`whose`) once its layers are merged,
    /// then of words that come from two of them.
    pub(super) fn words_at_odds(&mut self, layer: &Layer, whose: Option<GuestId>) {
        let asked = |one: &Origin, other: &Origin| whose.is_none() == (one.layer == other.layer);
        let of = whose.map_or_else(String::new, |guest| format!(" of {guest}"));
        if let (Some(template), Some(run)) = (&layer.template, &layer.run)
            && (template.value, run.value) == (true, Run::Running)
            && asked(&template.origin, &run.origin)
        {
            let message = format!("a template cannot run: `template` and `run`{of}");
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(template.origin.span, "a template by this")
                .related(run.origin.span, "running by this");
            self.errors.push(diagnostic.hint("leave `run` out, or write run = \"stopped\""));
        }
        let (Some(first), Some(source)) = (&layer.first, &layer.source) else { return };
        // What all containers share may be of no use to one of them; what stands beside its source, or is said of it
        // alone, was meant.
        let meant = first.origin.layer == LayerName::Guest || whose.is_none();
        let from = match source.value {
            GuestSource::Clone(_) => "a copy",
            GuestSource::Backup { .. } => "a restored guest",
            GuestSource::Empty | GuestSource::Template(_) | GuestSource::Image { .. } => return,
        };
        if meant && asked(&first.origin, &source.origin) {
            let message =
                format!("{from} brings its own keys and passwords: `first`{of} is of no use");
            let diagnostic = Diagnostic::new(Code::Contradiction, message)
                .at(first.origin.span, "only for what is made from a template")
                .related(source.origin.span, "made from this");
            self.errors.push(diagnostic.hint("leave `first` out"));
        }
    }

    /// What only a guest with everything it inherits can tell of its source.
    pub(super) fn source_fits(&mut self, layer: &Layer, id: GuestId) {
        let Some(Placed { value: source, origin }) = &layer.source else { return };
        let refuse = |message: String| {
            Diagnostic::new(Code::Contradiction, message).at(origin.span, "made from this")
        };
        let error = match source {
            GuestSource::Clone(from) if from.guest == id.vmid => {
                refuse(format!("{id} cannot be a copy of itself"))
                    .hint("name the guest to copy, or leave `source` out if this one exists")
            }
            GuestSource::Image { into, .. } => {
                let field = layer.fields.get(into);
                let held = field.and_then(|field| field.value.as_ref());
                let held = held.and_then(Value::as_property).map(|property| property.volume());
                let example = format!("{into} = {{ storage = \"local-lvm\", size = \"20GiB\" }}");
                match held {
                    Some(Some(VolumeRef::Fresh { .. })) => return,
                    None => {
                        refuse(format!("the image of {id} has no place: `{into}` is not declared"))
                            .hint(format!("add {example}"))
                    }
                    Some(
                        Some(
                            VolumeRef::Existing { .. }
                            | VolumeRef::CloudInit { .. }
                            | VolumeRef::Path(_)
                            | VolumeRef::Empty
                            | VolumeRef::HostCdrom,
                        )
                        | None,
                    ) => {
                        let message = format!(
                            "the image of {id} needs a new volume, and `{into}` is another"
                        );
                        let error = refuse(message);
                        let error = match field {
                            Some(field) => error.related(field.origin.span, "holds something else"),
                            None => error,
                        };
                        error.hint(format!("write {example}"))
                    }
                }
            }
            GuestSource::Clone(_)
            | GuestSource::Empty
            | GuestSource::Template(_)
            | GuestSource::Backup { .. } => return,
        };
        self.errors.push(error);
    }
}

const STORAGE_HINT: &str = "write storage = \"local-lvm\", as Proxmox VE names it";
const SNAPSHOT_HINT: &str = "write snapshot = \"gold\", as Proxmox VE lists it";

/// What a word cannot do without.
fn owner_hint(owner: &str) -> &'static str {
    match owner {
        "clone" => "clone = 9000, the number of the guest to copy",
        "image" => "image = \"local:import/…\", which the disk is made from",
        _ => "backup = \"store:backup/…\", which is restored",
    }
}

fn source_words() -> impl Iterator<Item = &'static str> + Clone {
    FORMS.iter().copied().chain(COMPANIONS.iter().map(|(name, _)| *name))
}

fn is_source_word(word: &str) -> bool {
    source_words().any(|known| known == word)
}
