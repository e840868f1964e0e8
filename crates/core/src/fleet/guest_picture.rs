//! One declared guest as people shall see it: what is declared, what is, what differs and where that is written.
//!
//! Made by the agent once a pass, from the same values the pass plans with, for the reports that a hub is told. Everything
//! in it is in normal form, so that both sides can be laid side by side, and masked: of `first` there is nothing.

use std::collections::BTreeMap;

use super::report::{GuestDifference, GuestReport, ReportedOrigin};
use crate::actual::{Guest, GuestConfig};
use crate::desired::selection::Candidate;
use crate::desired::{
    DeclaredGuest, GuestBlock, GuestOrigins, LineSubject, Origin, Spec, WantedState,
};
use crate::model::secret;
use crate::plan::{GuestPlan, KeyChange};
use crate::words::diagnostic::Sources;

/// The word of a declaration that is shown nowhere.
const FIRST: &str = "first";

impl GuestReport {
    /// The guest as a pass found it. How it stands, what holds it and what is wrong is for whoever runs the pass to say.
    pub fn pictured(
        declared: &DeclaredGuest,
        places: Option<(&GuestOrigins, &Sources)>,
        actual: Option<&Guest>,
        planned: Option<&GuestPlan>,
    ) -> Self {
        let changes = planned.iter().flat_map(|planned| &planned.actions);
        let changes = changes.flat_map(crate::plan::Action::key_changes);
        let config = actual.and_then(|guest| guest.config.as_deref().ok());
        Self {
            guest: declared.id.to_string(),
            kind: declared.id.kind.to_string(),
            name: Candidate::declared(declared).name.unwrap_or_default(),
            power: actual.map(|guest| guest.power.to_string()).unwrap_or_default(),
            differences: changes.map(|change| difference(change, places)).collect(),
            declared: declared_values(declared),
            actual: config.map(actual_values).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// The same once everything that differed was done and seen to be done.
    #[must_use]
    pub fn as_declared(mut self) -> Self {
        for GuestDifference { key, declared, .. } in std::mem::take(&mut self.differences) {
            match (key.as_str(), declared) {
                ("run", Some(run)) => self.power = run,
                // What is made, gone or a template now is read by the next pass.
                ("state" | "template", _) => {}
                (key, _) if key.contains('.') => {}
                (key, Some(value)) => {
                    self.actual.insert(key.to_owned(), value);
                }
                (key, None) => {
                    self.actual.remove(key);
                }
            }
        }
        self
    }
}

fn difference(change: KeyChange, places: Option<(&GuestOrigins, &Sources)>) -> GuestDifference {
    let KeyChange { key, subject, before, after } = change;
    let origin = places.and_then(|(origins, sources)| placed(origins.of(subject)?, sources));
    GuestDifference { key, declared: after, actual: before, origin }
}

fn placed(origin: &Origin, sources: &Sources) -> Option<ReportedOrigin> {
    let (line, _) = sources.line_column(origin.span)?;
    let file = sources.get(origin.span.file)?.path.clone();
    Some(ReportedOrigin { file, line: line as u64, layer: origin.layer.to_string() })
}

/// Where everything that is declared of a guest is written, by the names that its report has for it.
///
/// A report carries this for what differs alone. Whoever has the document, as a hub has, needs no host to be told the rest.
pub fn told_origins(origins: &GuestOrigins, sources: &Sources) -> BTreeMap<String, ReportedOrigin> {
    let words = origins.words.iter().map(|(word, origin)| ((*word).to_owned(), origin));
    let fields = origins.fields.iter().map(|(key, origin)| (key.to_string(), origin));
    let told = words.chain(fields);
    told.filter_map(|(name, origin)| Some((name, placed(origin, sources)?))).collect()
}

fn declared_values(declared: &DeclaredGuest) -> BTreeMap<String, Option<String>> {
    let mut values = BTreeMap::new();
    for line in GuestBlock::of(declared).lines {
        if let [LineSubject::Word(word)] = line.subjects.as_slice()
            && *word != FIRST
        {
            let text = line.text.split_once(" = ").map_or("", |(_, value)| value);
            let plain = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            values.insert((*word).to_owned(), Some(plain.unwrap_or(text).to_owned()));
        }
    }
    let spec: Option<&Spec> = match &declared.state {
        WantedState::Present(spec) | WantedState::Bin(spec) => Some(spec),
        WantedState::Absent { .. } => None,
    };
    for field in spec.iter().flat_map(|spec| &spec.fields) {
        let value = field.want.as_ref().and_then(|value| secret::stored_form(field.key, value));
        values.insert(field.key.to_string(), value);
    }
    values
}

fn actual_values(config: &GuestConfig) -> BTreeMap<String, String> {
    let shown = |field: &crate::actual::ConfigField| {
        let reading = field.current.as_ref()?;
        Some((field.key.to_string(), secret::stored_form(field.key, &reading.value)?))
    };
    config.fields.iter().filter_map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::{ConfigEntry, Power};
    use crate::desired::load_with_origins;
    use crate::model::id::GuestKind;

    fn actual(entries: &[(&str, &str)]) -> Guest {
        let entry = |(key, value): &(&str, &str)| ConfigEntry {
            key: (*key).to_owned(),
            value: Some((*value).to_owned()),
            pending: None,
            delete: 0,
        };
        Guest {
            id: "lxc/101".parse().unwrap(),
            power: Power::Running,
            template: false,
            ha: None,
            lock: None,
            config: Ok(GuestConfig::from_pending(GuestKind::Lxc, entries.iter().map(entry)).into()),
        }
    }

    #[test]
    fn x08_both_sides_are_told_in_one_form_and_no_secret_is_in_it() {
        let mut sources = Sources::default();
        sources.add(
            "web.toml",
            "[profile.small]\nkind = \"lxc\"\nmemory = \"2GiB\"\n[guest.101]\nuse = [\"small\"]\nhostname = \"web\"\n\
             run = \"running\"\ncores = 4\nenv = [\"A=marked-1\"]\nunset = [\"nameserver\"]\n\
             first = { ssh_keys = [\"ssh-ed25519 AAAA marked-2\"] }\n",
        );
        let (desired, origins) = load_with_origins(&sources).unwrap_or_else(|e| panic!("{e:?}"));
        let guest = desired.guests.values().next().unwrap();
        let here =
            actual(&[("digest", "d"), ("cores", "2"), ("memory", "512"), ("env", "A=marked-3")]);
        let known = &origins.guests[&guest.id.vmid];
        let picture = GuestReport::pictured(guest, Some((known, &sources)), Some(&here), None);
        assert!(!format!("{picture:?}").contains("marked"), "{picture:?}");
        let declared = |key: &str| picture.declared[key].as_deref();
        assert_eq!((declared("memory"), declared("run")), (Some("2048"), Some("running")));
        assert_eq!((declared("env"), declared("nameserver")), (Some(secret::MASK), None));
        assert!(!picture.declared.contains_key("first"));
        assert_eq!(picture.actual["memory"], "512");
        assert_eq!(picture.actual["env"], secret::MASK);
        assert_eq!((picture.kind.as_str(), picture.name.as_str()), ("lxc", "web"));
        assert_eq!(picture.power, "running");
        let subject = LineSubject::Key(crate::registry::find(GuestKind::Lxc, "memory").unwrap());
        let origin = placed(known.of(subject).unwrap(), &sources).unwrap();
        assert_eq!((origin.file.as_str(), origin.line), ("web.toml", 3));
        assert_eq!(origin.layer, "profile small");
    }

    #[test]
    fn what_was_done_is_told_as_it_is_now() {
        let text = |text: &str| Some(text.to_owned());
        let difference = |key: &str, declared, actual| GuestDifference {
            key: key.to_owned(),
            declared,
            actual,
            origin: None,
        };
        let picture = GuestReport {
            power: "stopped".to_owned(),
            differences: vec![
                difference("cores", text("4"), text("2")),
                difference("tags", None, text("old")),
                difference("run", text("running"), text("stopped")),
                difference("mp0.size", text("8G"), text("4G")),
            ],
            actual: [("cores".into(), "2".into()), ("tags".into(), "old".into())].into(),
            ..GuestReport::default()
        };
        let done = picture.as_declared();
        assert!(done.differences.is_empty());
        assert_eq!(done.power, "running");
        assert_eq!(done.actual, [("cores".to_owned(), "4".to_owned())].into());
    }

    #[test]
    fn where_everything_is_declared_is_told_by_the_names_of_the_report() {
        let mut sources = Sources::default();
        sources.add(
            "web.toml",
            "[profile.small]\nkind = \"lxc\"\nmemory = \"2GiB\"\n[guest.101]\nuse = [\"small\"]\n\
             run = \"running\"\ncores = 4\nunset = [\"nameserver\"]\n",
        );
        let (desired, origins) = load_with_origins(&sources).unwrap();
        let guest = desired.guests.values().next().unwrap();
        let told = told_origins(&origins.guests[&guest.id.vmid], &sources);
        let place = |key: &str| {
            told.get(key).map(|origin| format!("{}:{} {}", origin.file, origin.line, origin.layer))
        };
        assert_eq!(place("cores").as_deref(), Some("web.toml:7 guest"));
        assert_eq!(place("memory").as_deref(), Some("web.toml:3 profile small"));
        assert_eq!(place("run").as_deref(), Some("web.toml:6 guest"));
        for key in declared_values(guest).keys() {
            assert!(told.contains_key(key), "{key} of {told:?}");
        }
    }
}
