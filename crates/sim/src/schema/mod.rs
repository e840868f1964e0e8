//! The tables: which calls exist, which parameters they take, which keys a guest's config has.
//!
//! Three text files beside this one hold the facts; this module reads them once and checks
//! parameters against them in PVE's order and with PVE's words. It must never look at the world.

mod check;
mod read;

use std::sync::OnceLock;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::release::Release;

pub(crate) use check::{Errors, check_parameters};

/// What a value must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SchemaShape {
    Text,
    List,
    Bool,
    Int {
        min: Option<i64>,
        max: Option<i64>,
    },
    Num {
        min: Option<f64>,
        max: Option<f64>,
    },
    Enum(Vec<String>),
    /// A named format.
    Is(String),
    /// A named pattern.
    Like(String),
    /// A property string of this format.
    Prop(String),
}

/// One parameter, one key of a config, or one key inside a property string.
#[derive(Debug, Clone)]
pub(crate) struct SchemaRule {
    pub(crate) name: String,
    /// How many numbered slots the name stands for; `None` for a plain name.
    pub(crate) slots: Option<u32>,
    pub(crate) shape: SchemaShape,
    /// A further format of an integer, checked before its range.
    pub(crate) also: Option<String>,
    pub(crate) max_length: Option<usize>,
    pub(crate) required: bool,
    pub(crate) default_key: bool,
    pub(crate) alias: Option<String>,
    pub(crate) key_alias: Option<String>,
    pub(crate) requires: Option<String>,
    since: Option<Release>,
    until: Option<Release>,
}

impl SchemaRule {
    /// Whether this release knows the name.
    pub(crate) fn exists_in(&self, release: Release) -> bool {
        self.since.is_none_or(|since| release >= since)
            && self.until.is_none_or(|until| release <= until)
    }

    fn names(&self, key: &str) -> bool {
        match self.slots {
            None => self.name == key,
            Some(slots) => key.strip_prefix(self.name.as_str()).is_some_and(|number| {
                !number.is_empty()
                    && (number == "0" || !number.starts_with('0'))
                    && number.bytes().all(|b| b.is_ascii_digit())
                    && number.parse::<u32>().is_ok_and(|number| number < slots)
            }),
        }
    }
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    World,
    User,
    /// Any of these privileges on this path (with `{name}` to be filled in).
    Holder {
        path: String,
        privileges: Vec<String>,
    },
}

/// One row of the surface.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSchema {
    pub(crate) method: String,
    segments: Vec<String>,
    pub(crate) call: crate::endpoints::EndpointCall,
    /// Whether the root daemon does it: one of three workers, `Connection: close`.
    pub(crate) protected: bool,
    pub(crate) who: Who,
    pub(crate) rules: Vec<SchemaRule>,
    /// Whether all config keys of this kind are parameters too.
    pub(crate) config_of: Option<GuestKind>,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Schema {
    endpoints: Vec<EndpointSchema>,
    lxc: Vec<SchemaRule>,
    qemu: Vec<SchemaRule>,
    formats: std::collections::BTreeMap<String, Vec<SchemaRule>>,
}

impl Schema {
    /// The tables, read once per process.
    pub(crate) fn shared() -> &'static Self {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(read::tables)
    }

    /// The row for a method and the segments of a path, with what stands in its holes.
    pub(crate) fn route(
        &self,
        method: &str,
        segments: &[String],
    ) -> Option<(&EndpointSchema, Vec<(String, String)>)> {
        self.endpoints.iter().filter(|endpoint| endpoint.method == method).find_map(|endpoint| {
            // A volume id contains slashes, so the last hole of its row takes the rest of the path.
            let greedy = endpoint.segments.last().is_some_and(|last| last == "{volume}");
            let fits = endpoint.segments.len() == segments.len()
                || (greedy && segments.len() > endpoint.segments.len());
            if !fits {
                return None;
            }
            let mut holes = Vec::new();
            for (at, pattern) in endpoint.segments.iter().enumerate() {
                if let Some(name) = pattern.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                    let rest = greedy && at + 1 == endpoint.segments.len();
                    let text = if rest { segments[at..].join("/") } else { segments[at].clone() };
                    holes.push((name.to_owned(), text));
                } else if *pattern != segments[at] {
                    return None;
                }
            }
            Some((endpoint, holes))
        })
    }

    /// The rule for one config key, if this release has it.
    pub(crate) fn key(&self, kind: GuestKind, key: &str, release: Release) -> Option<&SchemaRule> {
        self.keys(kind).iter().find(|rule| rule.exists_in(release) && rule.names(key))
    }

    /// The keys inside one property string.
    pub(crate) fn format(&self, name: &str) -> &[SchemaRule] {
        self.formats.get(name).map_or(&[], Vec::as_slice)
    }

    fn keys(&self, kind: GuestKind) -> &[SchemaRule] {
        match kind {
            GuestKind::Lxc => &self.lxc,
            GuestKind::Qemu => &self.qemu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_row_is_read_and_every_named_format_exists() {
        let schema = Schema::shared();
        assert!(schema.endpoints.len() > 90, "{}", schema.endpoints.len());
        assert!(schema.lxc.len() > 30 && schema.qemu.len() > 80);
        for rule in schema.lxc.iter().chain(&schema.qemu) {
            if let SchemaShape::Prop(name) = &rule.shape {
                assert!(!schema.format(name).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn keys_exist_only_in_their_releases() {
        let schema = Schema::shared();
        assert!(schema.key(GuestKind::Lxc, "env", Release::V8_4).is_none());
        assert!(schema.key(GuestKind::Lxc, "env", Release::V9_2).is_some());
        assert!(schema.key(GuestKind::Lxc, "net31", Release::V8_4).is_some());
        assert!(schema.key(GuestKind::Lxc, "net32", Release::V8_4).is_none());
        assert!(schema.key(GuestKind::Qemu, "scsi01", Release::V8_4).is_none());
    }
}
