//! What guests share: `[defaults.KIND]`, `[profile.NAME]`, and how a guest comes to use them.
//!
//! A shared block is checked once, where it stands, whether anybody uses it or not; a guest then takes what it says as it
//! is. One level only: a block that many guests rest on must be readable without following others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::ignore::{IgnoreList, IgnoredKey, cannot_ignore, ignorable_parts};
use super::super::layers::{
    GuestOrigins, Layer, LayerName, Origin, PROFILES_MAX, PROFILES_PER_GUEST_MAX, Placed,
};
use super::super::tree::TreeEntry;
use super::super::{ReconcileMode, WantedState};
use super::DesiredChecker;
use crate::model::id::{GuestId, GuestKind};
use crate::registry::KeyRef;
use crate::words::diagnostic::{Code, Diagnostic, Span, did_you_mean};

/// The longest name of a profile: it stands in diagnostics and in front of every line of `show --origin`.
pub(in super::super) const PROFILE_NAME_MAX: usize = 64;

/// The blocks that guests share.
#[derive(Default)]
pub(super) struct SharedLayers {
    defaults: BTreeMap<GuestKind, (Layer, Span)>,
    profiles: BTreeMap<Arc<str>, Arc<DeclaredProfile>>,
}

impl SharedLayers {
    pub(super) fn defaults(&self, kind: GuestKind) -> Option<&Layer> {
        self.defaults.get(&kind).map(|(layer, _)| layer)
    }
}

/// One profile.
pub(super) struct DeclaredProfile {
    name: Arc<str>,
    /// Its kind and where it says so; none if that is a mistake of its own.
    kind: Option<(GuestKind, Span)>,
    layer: Layer,
    heading: Span,
}

/// A profile as a guest names it.
pub(super) struct UsedProfile {
    profile: Arc<DeclaredProfile>,
    named_at: Span,
}

impl DesiredChecker<'_> {
    /// `[defaults.lxc]`, `[defaults.qemu]`.
    pub(super) fn defaults(&mut self, entry: &TreeEntry) {
        for block in self.table(&entry.value, "`defaults`").unwrap_or_default() {
            let Ok(kind) = block.key.parse::<GuestKind>() else {
                self.unknown(block, "`defaults`", ["lxc", "qemu"].into_iter());
                continue;
            };
            let Some(entries) = self.table(&block.value, "defaults") else {
                continue;
            };
            let layer = self.layer(kind, &LayerName::Defaults(kind), entries);
            if let Some((_, first)) = self.shared.defaults.get(&kind) {
                let first = *first;
                self.declared_twice(&format!("the defaults of {kind} guests are"), block, first);
                continue;
            }
            self.shared.defaults.insert(kind, (layer, block.key_span));
        }
    }

    /// `[profile.NAME]`.
    pub(super) fn profiles(&mut self, entry: &TreeEntry) {
        for block in self.table(&entry.value, "`profile`").unwrap_or_default() {
            if !is_profile_name(&block.key) {
                let message = format!("`{}` is no name of a profile", block.key);
                let diagnostic =
                    Diagnostic::new(Code::BadValue, message).at(block.key_span, "this name");
                let hint =
                    format!("write letters, digits, `-` and `_`, at most {PROFILE_NAME_MAX}");
                self.errors.push(diagnostic.hint(hint));
                continue;
            }
            self.profile(block);
        }
    }

    fn profile(&mut self, block: &TreeEntry) {
        let Some(entries) = self.table(&block.value, "a profile") else {
            return;
        };
        let name: Arc<str> = block.key.as_str().into();
        if block.value.entry("kind").is_none() {
            self.no_kind("profile", block);
        }
        let kind = self.kind(block);
        let layer_name = LayerName::Profile(Arc::clone(&name));
        let layer =
            kind.map(|(kind, _)| self.layer(kind, &layer_name, entries)).unwrap_or_default();
        if let Some(first) = self.shared.profiles.get(&name) {
            let first = first.heading;
            self.declared_twice(&format!("profile {name} is"), block, first);
            return;
        }
        if self.shared.profiles.len() == PROFILES_MAX {
            let message = format!("more than {PROFILES_MAX} profiles are declared");
            self.errors
                .push(Diagnostic::new(Code::Limit, message).at(block.key_span, "one too many"));
        }
        let heading = block.key_span;
        let profile = DeclaredProfile { name: Arc::clone(&name), kind, layer, heading };
        self.shared.profiles.insert(name, Arc::new(profile));
    }

    fn declared_twice(&mut self, what: &str, block: &TreeEntry, first: Span) {
        let diagnostic = Diagnostic::new(Code::Duplicate, format!("{what} declared twice"));
        let diagnostic = diagnostic.at(block.key_span, "declared again here");
        self.errors.push(diagnostic.related(first, "first declared here"));
    }

    /// Tells a word that does not belong into a block of this sort.
    pub(super) fn is_misplaced(&mut self, layer: &LayerName, entry: &TreeEntry) -> bool {
        let block = match layer {
            LayerName::Guest => return false,
            LayerName::Profile(_) => "a profile",
            LayerName::Defaults(_) => "defaults",
        };
        let (why, hint) = match (entry.key.as_str(), layer) {
            ("use", _) => (
                "one level only",
                "name both profiles in `use` of the guest; the later one wins".to_owned(),
            ),
            ("state", _) => (
                "it is for one guest",
                "write state = \"absent\" into the block of the guest that shall go".to_owned(),
            ),
            ("final_backup", _) => (
                "it is for one guest",
                "write it beside state = \"absent\" of the guest that shall go".to_owned(),
            ),
            ("kind", LayerName::Defaults(kind)) => (
                "the heading says it",
                format!("leave it out: these are defaults of {kind} guests"),
            ),
            (_, LayerName::Guest | LayerName::Profile(_) | LayerName::Defaults(_)) => return false,
        };
        let message = format!("`{}` cannot stand in {block}: {why}", entry.key);
        let diagnostic = Diagnostic::new(Code::Structure, message);
        self.errors.push(diagnostic.at(entry.key_span, "not here").hint(hint));
        true
    }

    /// The profiles a guest uses, those that exist.
    pub(super) fn uses(&mut self, guest: &TreeEntry) -> Vec<UsedProfile> {
        let Some(entry) = guest.value.entry("use") else {
            return Vec::new();
        };
        let names = self.names(entry, "`use` must be a list of profiles");
        let mut used: Vec<UsedProfile> = Vec::new();
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for (name, span) in names {
            if let Some((_, first)) = seen.iter().find(|(seen, _)| *seen == name) {
                let message = format!("profile {name} is used twice");
                let diagnostic = Diagnostic::new(Code::Duplicate, message).at(span, "again here");
                let diagnostic = diagnostic.related(*first, "first here");
                self.errors.push(diagnostic.hint("keep one of the two"));
                continue;
            }
            seen.push((name, span));
            match self.shared.profiles.get(name) {
                Some(profile) => {
                    used.push(UsedProfile { profile: Arc::clone(profile), named_at: span });
                }
                None => self.unknown_profile(name, span),
            }
        }
        if let Some((_, span)) = seen.get(PROFILES_PER_GUEST_MAX) {
            let message = format!("a guest uses at most {PROFILES_PER_GUEST_MAX} profiles");
            let diagnostic = Diagnostic::new(Code::Limit, message).at(*span, "one too many");
            self.errors.push(diagnostic.hint("put what several of them say into one profile"));
        }
        used
    }

    fn unknown_profile(&mut self, name: &str, span: Span) {
        let known: Vec<&str> = self.shared.profiles.keys().map(|name| &**name).collect();
        let diagnostic = Diagnostic::new(Code::UnknownKey, format!("there is no profile `{name}`"))
            .at(span, "not declared in these files");
        let diagnostic = match did_you_mean(name, known.iter().copied()) {
            Some(near) => diagnostic.hint(format!("did you mean `{near}`?")),
            None => diagnostic.hint(format!("declare it in any file of the set: [profile.{name}]")),
        };
        self.errors.push(diagnostic);
    }

    /// The kind of a guest: its own word, else that of the profiles it uses. All of them must agree.
    pub(super) fn guest_kind(
        &mut self,
        guest: &TreeEntry,
        uses: &[UsedProfile],
    ) -> Option<Placed<GuestKind>> {
        let own = self.kind(guest);
        if own.is_none() && guest.value.entry("kind").is_some() {
            return None;
        }
        let known = |used: &UsedProfile| {
            let (kind, span) = used.profile.kind?;
            let layer = LayerName::Profile(Arc::clone(&used.profile.name));
            Some(Placed { value: kind, origin: Origin { layer, span } })
        };
        let own = own.map(|(kind, span)| Placed {
            value: kind,
            origin: Origin { layer: LayerName::Guest, span },
        });
        let Some(kind) = own.or_else(|| uses.iter().find_map(known)) else {
            if guest.value.entry("use").is_none() {
                self.no_kind("guest", guest);
            }
            return None;
        };
        for used in uses {
            if let Some(other) = known(used).filter(|other| other.value != kind.value) {
                self.other_kind(guest, used, &kind, &other);
            }
        }
        Some(kind)
    }

    fn other_kind(
        &mut self,
        guest: &TreeEntry,
        used: &UsedProfile,
        kind: &Placed<GuestKind>,
        other: &Placed<GuestKind>,
    ) {
        let is = kind.value;
        let name = &used.profile.name;
        let message = format!("profile {name} is for {} guests, and this one is {is}", other.value);
        let said_by = match &kind.origin.layer {
            LayerName::Guest => format!("guest {} is {is} by this", guest.key),
            LayerName::Profile(first) => format!("profile {first} is for {is} guests by this"),
            LayerName::Defaults(_) => format!("{is} by this"),
        };
        let diagnostic = Diagnostic::new(Code::Contradiction, message)
            .at(used.named_at, "used here")
            .related(other.origin.span, format!("profile {name} says its kind here"))
            .related(kind.origin.span, said_by);
        self.errors
            .push(diagnostic.hint(format!("use profiles of {is} guests, or correct `kind`")));
    }

    /// A guest that shall be, with everything it inherits.
    pub(super) fn present(
        &mut self,
        id: GuestId,
        own: Layer,
        uses: &[UsedProfile],
    ) -> (WantedState, ReconcileMode, GuestOrigins) {
        // A profile of another kind was told; nothing of it is taken.
        let fits = |used: &&UsedProfile| used.profile.kind.is_some_and(|(kind, _)| kind == id.kind);
        let profiles: Vec<&Layer> =
            uses.iter().filter(fits).map(|used| &used.profile.layer).collect();
        let mut merged = own.merged(&profiles, self.shared.defaults(id.kind));
        self.volumes_in_two_slots(&merged, Some(id));
        self.words_at_odds(&merged, Some(id));
        self.source_fits(&merged, id);
        // What all containers get once is not for one that comes with users of its own.
        if merged.source.as_ref().is_some_and(|source| source.value.brings_users()) {
            merged.first = None;
        }
        let (spec, mode, origins) = merged.apart();
        (WantedState::Present(spec), mode, origins)
    }

    /// `ignore = ["tags", "net0.rate", "run"]`.
    pub(super) fn ignore(&mut self, kind: GuestKind, entry: &TreeEntry) -> IgnoreList {
        let mut list = IgnoreList::default();
        let mut seen: Vec<(&str, Span)> = Vec::new();
        for (name, span) in self.names(entry, "`ignore` must be a list of keys and parts") {
            if let Some((_, first)) = seen.iter().find(|(seen, _)| *seen == name) {
                let message = format!("`{name}` is ignored twice");
                let diagnostic = Diagnostic::new(Code::Duplicate, message).at(span, "again here");
                let diagnostic = diagnostic.related(*first, "first here");
                self.errors.push(diagnostic.hint("keep one of the two"));
                continue;
            }
            seen.push((name, span));
            if name == "run" {
                list.run = true;
                continue;
            }
            let (key, part) =
                name.split_once('.').map_or((name, None), |(key, part)| (key, Some(part)));
            let Some(key) = self.key(kind, key, span) else {
                continue;
            };
            match part.map(|part| self.ignored_part(key, part, span)) {
                None => list.keys.push(IgnoredKey { key, part: None }),
                Some(Some(part)) => list.keys.push(IgnoredKey { key, part: Some(part) }),
                Some(None) => {}
            }
        }
        list.keys.sort_unstable();
        list.keys.dedup();
        list
    }

    fn ignored_part(&mut self, key: KeyRef, name: &str, span: Span) -> Option<&'static str> {
        let Some(shape) = key.key().format.shape() else {
            let diagnostic = Diagnostic::new(Code::UnknownKey, format!("`{key}` has no parts"));
            let diagnostic = diagnostic.at(span, "not a part of it");
            self.errors.push(diagnostic.hint(format!("write `{key}` to ignore it")));
            return None;
        };
        let Some(part) = shape.part(name) else {
            let diagnostic =
                Diagnostic::new(Code::UnknownKey, format!("`{key}` has no part `{name}`"))
                    .at(span, "not a part of it");
            let names: Vec<&str> = ignorable_parts(shape).collect();
            let diagnostic = match did_you_mean(name, names.iter().copied()) {
                Some(near) => diagnostic.hint(format!("did you mean `{key}.{near}`?")),
                None => diagnostic.hint(format!("its parts are {}", names.join(", "))),
            };
            self.errors.push(diagnostic);
            return None;
        };
        if let Some(why) = cannot_ignore(shape, part) {
            let message = format!("`{key}.{name}` cannot be ignored: {why}");
            let diagnostic = Diagnostic::new(Code::BadValue, message).at(span, "not by itself");
            self.errors.push(diagnostic.hint(format!("write `{key}` to ignore the whole key")));
            return None;
        }
        Some(part.name)
    }
}

/// What TOML, YAML and JSON take without quotes, and people can say aloud.
fn is_profile_name(name: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"-_".contains(&letter);
    (1..=PROFILE_NAME_MAX).contains(&name.len()) && name.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::desired::load;
    use crate::words::diagnostic::Sources;

    #[test]
    fn profiles_are_taken_up_to_their_limit_and_none_above() {
        let declared = |count: usize| {
            let mut text = String::new();
            for number in 0..count {
                writeln!(text, "[profile.p{number}]\nkind = \"lxc\"").expect("it is a string");
            }
            let mut sources = Sources::default();
            sources.add("many.toml", text);
            load(&sources)
        };
        assert!(declared(PROFILES_MAX).is_ok());
        let errors = declared(PROFILES_MAX + 1).unwrap_err();
        assert_eq!((errors.len(), errors[0].code), (1, Code::Limit), "{errors:?}");
    }
}
