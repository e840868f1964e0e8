//! Layers of a declaration: what defaults, profiles and a guest itself say, put over one another.
//!
//! ```text
//!   defaults.KIND  <  profile, in the order of `use`  <  the guest's own words
//! ```
//!
//! The checker makes a layer of each block and asks [`Layer::over`] to merge them. A key is taken whole from the nearest
//! layer that names it, set or unset; nothing is ever mixed from two values. Where each value comes from is kept beside
//! what is declared, never in it: a line that moves must not look like another wish.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::show::LineSubject;
use super::{DeclaredField, FirstUse, GuestSource, IgnoreList, ReconcileMode, Run, Spec, StopMode};
use crate::model::id::{GuestKind, VmId};
use crate::registry::KeyRef;
use crate::value::Value;
use crate::words::diagnostic::{Sources, Span};

/// How many profiles may be declared: one for every ten guests, which is more than anybody keeps apart.
pub const PROFILES_MAX: usize = 1_000;

/// How many profiles one guest may use: a reader must be able to follow who overrides whom, and merging ten thousand
/// guests must stay a matter of moments.
pub const PROFILES_PER_GUEST_MAX: usize = 8;

/// Which block says something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerName {
    /// The guest itself.
    Guest,
    /// A profile the guest uses.
    Profile(Arc<str>),
    /// The defaults of its kind.
    Defaults(GuestKind),
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest => f.write_str("guest"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Defaults(kind) => write!(f, "defaults {kind}"),
        }
    }
}

/// Where a declared value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The block.
    pub layer: LayerName,
    /// Its key, as it stands there.
    pub span: Span,
}

impl Origin {
    /// `web.toml:7`; none if the file is not one of these.
    pub fn place(&self, sources: &Sources) -> Option<String> {
        let (line, _) = sources.line_column(self.span)?;
        Some(format!("{}:{line}", sources.get(self.span.file)?.path))
    }
}

/// Where everything that is declared comes from, guest by guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origins {
    /// By number.
    pub guests: BTreeMap<VmId, GuestOrigins>,
}

/// Where what is declared of one guest comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestOrigins {
    /// The words that are no configuration keys: `kind`, `run`, `mode` and the like.
    pub words: BTreeMap<&'static str, Origin>,
    /// The keys, set or unset.
    pub fields: BTreeMap<KeyRef, Origin>,
}

impl GuestOrigins {
    /// Where a line of the guest's block comes from.
    pub fn of(&self, subject: LineSubject) -> Option<&Origin> {
        match subject {
            LineSubject::Word(word) => self.words.get(word),
            LineSubject::Key(key) => self.fields.get(&key),
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// What one block says, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Layer {
    pub(super) run: Option<Placed<Run>>,
    pub(super) stop: Option<Placed<StopMode>>,
    pub(super) source: Option<Placed<GuestSource>>,
    pub(super) first: Option<Placed<FirstUse>>,
    pub(super) scratch: Option<Placed<bool>>,
    pub(super) template: Option<Placed<bool>>,
    pub(super) mode: Option<Placed<ReconcileMode>>,
    pub(super) ignore: Option<Placed<IgnoreList>>,
    /// Keys that are set, or that must be absent.
    pub(super) fields: BTreeMap<KeyRef, Placed<Option<Value>>>,
}

impl Layer {
    /// This layer put over one that is farther from the guest: what is nearer wins, key by key.
    #[must_use]
    pub(super) fn over(self, farther: &Self) -> Self {
        let Self { run, stop, source, first, scratch, template, mode, ignore, mut fields } = self;
        for (key, field) in &farther.fields {
            fields.entry(*key).or_insert_with(|| field.clone());
        }
        Self {
            run: run.or_else(|| farther.run.clone()),
            stop: stop.or_else(|| farther.stop.clone()),
            source: source.or_else(|| farther.source.clone()),
            first: first.or_else(|| farther.first.clone()),
            scratch: scratch.or_else(|| farther.scratch.clone()),
            template: template.or_else(|| farther.template.clone()),
            mode: mode.or_else(|| farther.mode.clone()),
            ignore: ignore.or_else(|| farther.ignore.clone()),
            fields,
        }
    }

    /// A guest's layer over its profiles, the last one nearest, over the defaults.
    #[must_use]
    pub(super) fn merged(self, profiles: &[&Self], defaults: Option<&Self>) -> Self {
        profiles.iter().rev().copied().chain(defaults).fold(self, Self::over)
    }

    /// What is declared, and where each of it comes from.
    pub(super) fn apart(self) -> (Spec, ReconcileMode, GuestOrigins) {
        let Self { run, stop, source, first, scratch, template, mode, ignore, fields } = self;
        let mut origins = GuestOrigins::default();
        let mut words = Words(&mut origins.words);
        let spec_run = words.take("run", run);
        let stop = words.take("stop", stop).unwrap_or_default();
        let source = words.take("source", source);
        let first = words.take("first", first).unwrap_or_default();
        let scratch = words.take("scratch", scratch).unwrap_or_default();
        let template = words.take("template", template).unwrap_or_default();
        let mode = words.take("mode", mode).unwrap_or_default();
        let ignore = words.take("ignore", ignore).unwrap_or_default();
        let mut declared = Vec::with_capacity(fields.len());
        for (key, Placed { value, origin }) in fields {
            origins.fields.insert(key, origin);
            declared.push(DeclaredField { key, want: value });
        }
        let fields = declared;
        let spec = Spec { run: spec_run, stop, source, first, scratch, template, ignore, fields };
        (spec, mode, origins)
    }
}

struct Words<'a>(&'a mut BTreeMap<&'static str, Origin>);

impl Words<'_> {
    fn take<T>(&mut self, word: &'static str, placed: Option<Placed<T>>) -> Option<T> {
        let Placed { value, origin } = placed?;
        self.0.insert(word, origin);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::registry;
    use crate::words::diagnostic::FileId;

    fn placed<T: fmt::Debug + Clone + 'static>(
        value: impl Strategy<Value = T> + 'static,
    ) -> BoxedStrategy<Placed<T>> {
        let layer = prop_oneof![
            Just(LayerName::Guest),
            Just(LayerName::Defaults(GuestKind::Lxc)),
            "[a-c]".prop_map(|name| LayerName::Profile(name.as_str().into())),
        ];
        (value, layer, 0_usize..9)
            .prop_map(|(value, layer, at)| {
                let span = Span::new(FileId(0), at, at + 1);
                Placed { value, origin: Origin { layer, span } }
            })
            .boxed()
    }

    fn layer() -> BoxedStrategy<Layer> {
        let keys = ["cores", "memory", "tags", "net0", "net1", "description"];
        let key = select(keys.to_vec()).prop_map(|name| registry::find(GuestKind::Lxc, name));
        let key = key.prop_map(|key| key.expect("these are keys of containers"));
        let value = prop::option::of((0_i64..4).prop_map(Value::Integer));
        let fields = prop::collection::btree_map(key, placed(value), 0..5);
        let run = prop::option::of(placed(select(vec![Run::Running, Run::Stopped])));
        let stop = prop::option::of(placed(select(vec![StopMode::Shutdown, StopMode::Force])));
        let modes = vec![ReconcileMode::Enforce, ReconcileMode::Observe];
        let mode = prop::option::of(placed(select(modes)));
        let ignore = any::<bool>().prop_map(|run| IgnoreList { run, ..IgnoreList::default() });
        let switch = || prop::option::of(placed(any::<bool>()));
        let source = select(vec![
            GuestSource::Empty,
            GuestSource::Template("local:vztmpl/a.tar.zst".parse().unwrap()),
            GuestSource::Backup { volume: "b:backup/x".parse().unwrap(), unique: false },
        ]);
        let first = select(vec!["a", "b"])
            .prop_map(|key| FirstUse { ssh_keys: vec![key.to_owned()], password: None });
        let making =
            (prop::option::of(placed(source)), prop::option::of(placed(first)), switch(), switch());
        (run, stop, mode, prop::option::of(placed(ignore)), fields, making)
            .prop_map(|(run, stop, mode, ignore, fields, making)| {
                let (source, first, scratch, template) = making;
                Layer { run, stop, source, first, scratch, template, mode, ignore, fields }
            })
            .boxed()
    }

    proptest! {
        #[test]
        fn merging_nothing_changes_nothing(layer in layer()) {
            prop_assert_eq!(layer.clone().merged(&[], None), layer.clone());
            let nothing = Layer::default();
            prop_assert_eq!(layer.clone().merged(&[&nothing], Some(&nothing)), layer.clone());
            prop_assert_eq!(nothing.over(&layer), layer);
        }

        #[test]
        fn a_layer_over_itself_is_itself(layer in layer()) {
            prop_assert_eq!(layer.clone().over(&layer), layer);
        }

        #[test]
        fn merging_twice_is_merging_once(own in layer(), a in layer(), b in layer(), c in layer()) {
            let once = own.merged(&[&a, &b], Some(&c));
            prop_assert_eq!(once.clone().merged(&[&a, &b], Some(&c)), once);
        }

        #[test]
        fn it_does_not_matter_which_two_layers_are_merged_first(a in layer(), b in layer(), c in layer()) {
            prop_assert_eq!(a.clone().over(&b).over(&c), a.over(&b.over(&c)));
        }

        #[test]
        fn every_word_and_key_is_the_nearest_layers_and_whole(
            own in layer(), profiles in prop::collection::vec(layer(), 0..4), defaults in layer(),
        ) {
            let uses: Vec<&Layer> = profiles.iter().collect();
            let merged = own.clone().merged(&uses, Some(&defaults));
            // The guest, then its profiles from the last to the first, then the defaults.
            let nearest: Vec<&Layer> =
                [&own].into_iter().chain(profiles.iter().rev()).chain([&defaults]).collect();
            prop_assert_eq!(&merged.run, &nearest.iter().find_map(|layer| layer.run.clone()));
            prop_assert_eq!(&merged.stop, &nearest.iter().find_map(|layer| layer.stop.clone()));
            prop_assert_eq!(&merged.mode, &nearest.iter().find_map(|layer| layer.mode.clone()));
            prop_assert_eq!(&merged.source, &nearest.iter().find_map(|layer| layer.source.clone()));
            prop_assert_eq!(&merged.first, &nearest.iter().find_map(|layer| layer.first.clone()));
            prop_assert_eq!(&merged.scratch, &nearest.iter().find_map(|layer| layer.scratch.clone()));
            prop_assert_eq!(&merged.template, &nearest.iter().find_map(|layer| layer.template.clone()));
            prop_assert_eq!(&merged.ignore, &nearest.iter().find_map(|layer| layer.ignore.clone()));
            for layer in &nearest {
                for key in layer.fields.keys() {
                    let first = nearest.iter().find_map(|layer| layer.fields.get(key));
                    prop_assert_eq!(merged.fields.get(key), first);
                }
            }
            prop_assert!(merged.fields.keys().all(|key| nearest.iter().any(|layer| layer.fields.contains_key(key))));
        }

        #[test]
        fn what_is_declared_does_not_know_where_it_stands(layer in layer(), at in 0_usize..9) {
            let mut moved = layer.clone();
            for field in moved.fields.values_mut() {
                field.origin.span.start = at;
            }
            let ((spec, mode, _), (moved_spec, moved_mode, _)) = (layer.apart(), moved.apart());
            prop_assert_eq!((spec, mode), (moved_spec, moved_mode));
        }
    }
}
