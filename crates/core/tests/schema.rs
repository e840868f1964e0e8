//! The JSON Schema and `desired::load` give the same verdict: on a corpus of documents, and on documents
//! made from the registry, good by construction or broken by chance.
//!
//! `corpus/valid` and `corpus/invalid` hold one document a file, named by what it shows. What a schema
//! cannot say is listed in `desired/schema`, and no document of the corpus rests on it.
#![expect(clippy::disallowed_methods, reason = "a test reads its own cases")]
#![expect(clippy::unwrap_used, reason = "a case that cannot be read shall stop its test")]

mod documents;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use evenkeel_core::desired::{self, syntax, tree};
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::registry::{self, Declarable};
use evenkeel_core::words::diagnostic::Sources;
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Map, Value};

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    jsonschema::draft202012::new(&desired::schema()).expect("the schema is a schema")
});

#[test]
fn the_schema_is_itself_valid_and_refers_only_to_what_it_defines() {
    let schema = desired::schema();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let text = schema.to_string();
    for part in text.split("\"#/$defs/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schema["$defs"].get(name).is_some(), "{name}");
    }
}

#[test]
fn every_declarable_key_has_a_description_and_no_other_is_there() {
    let schema = desired::schema();
    for kind in GuestKind::ALL {
        let present = &schema["$defs"][kind.as_str()]["else"];
        for key in registry::table(kind) {
            let single = present["properties"].get(key.name).filter(|_| key.slots.is_none());
            let families = present["patternProperties"].as_object().unwrap();
            let family = families.iter().find(|(pattern, _)| {
                key.slots.is_some()
                    && pattern.trim_start_matches("^(?:").split(['(', '[']).next() == Some(key.name)
            });
            // `template` is a word of desired files too, which asks for a signed conversion.
            let single = single.filter(|_| key.name != "template");
            let found = single.or(family.map(|(_, schema)| schema));
            let declarable = !matches!(key.declared, Declarable::No(_));
            assert_eq!(found.is_some(), declarable, "{kind} {}", key.name);
            assert!(
                found.is_none_or(|found| found["description"]
                    .as_str()
                    .unwrap()
                    .starts_with(key.doc))
            );
        }
    }
}

#[test]
fn schema_and_load_agree_on_every_document_of_the_corpus() {
    let mut documents = 0;
    let mut wrong = Vec::new();
    for (folder, good) in [("valid", true), ("invalid", false)] {
        for (name, sources) in corpus(folder) {
            documents += 1;
            let (loaded, fits) = verdicts(&sources);
            if loaded != good || fits != good {
                wrong.push(format!("{folder}/{name}: load says {loaded}, the schema says {fits}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(documents >= 150, "{documents} documents");
}

#[test]
fn the_corpus_shows_every_declarable_key_well_and_badly_spelled() {
    for (folder, names) in [("valid", keys_in("valid")), ("invalid", keys_in("invalid"))] {
        for kind in GuestKind::ALL {
            for key in registry::table(kind)
                .iter()
                .filter(|key| !matches!(key.declared, Declarable::No(_)))
            {
                let name = format!("{kind} {}", key.name);
                assert!(names.contains(&name), "{name} is not in corpus/{folder}");
            }
        }
    }
}

proptest! {
    // PROPTEST_CASES=40000 looks longer.
    #[test]
    fn documents_made_from_the_registry_are_accepted_by_both(document in documents::good()) {
        let sources = json_sources(&document);
        prop_assert!(desired::load(&sources).is_ok(), "{:#?}\n{document}", desired::load(&sources));
        prop_assert!(VALIDATOR.is_valid(&document), "the schema refuses {document}");
    }

    #[test]
    fn a_guest_spread_over_layers_is_accepted_by_both_and_is_the_same_guest(
        (flat, layered) in documents::layered(),
    ) {
        let flat = desired::load(&json_sources(&flat));
        let sources = json_sources(&layered);
        let loaded = desired::load(&sources);
        prop_assert_eq!(&loaded, &flat, "{}", layered);
        prop_assert!(VALIDATOR.is_valid(&layered), "the schema refuses {layered}");
    }

    #[test]
    fn a_guest_printed_back_is_the_same_guest((_, layered) in documents::layered()) {
        let Ok(declared) = desired::load(&json_sources(&layered)) else {
            return Ok(());
        };
        for (vmid, guest) in &declared.guests {
            let block = desired::GuestBlock::of(guest);
            let mut sources = Sources::default();
            sources.add("shown.toml", block.toml());
            let again = desired::load(&sources);
            if block.is_masked {
                continue;
            }
            let again = again.map(|mut again| again.guests.remove(vmid));
            let document = serde_json::json!({ "guest": { (vmid.to_string()): block.json() } });
            let as_json = desired::load(&json_sources(&document));
            prop_assert_eq!(&as_json.map(|mut again| again.guests.remove(vmid)), &again);
            prop_assert_eq!(again.as_ref(), Ok(&Some(guest.clone())), "{}", block.toml());
        }
    }

    #[test]
    fn documents_broken_by_chance_get_the_same_verdict_from_both(document in documents::broken()) {
        let sources = json_sources(&document);
        let loaded = desired::load(&sources);
        prop_assert_eq!(loaded.is_ok(), VALIDATOR.is_valid(&document), "{}\n{:?}", document, loaded);
    }
}

/// The keys a folder's documents use, families without their numbers.
fn keys_in(folder: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, sources) in corpus(folder) {
        for guest in as_json(&sources)["guest"].as_object().into_iter().flat_map(Map::values) {
            let Some(kind) = guest["kind"].as_str().and_then(|kind| kind.parse::<GuestKind>().ok())
            else {
                continue;
            };
            for name in guest.as_object().unwrap().keys() {
                names.extend(
                    registry::find(kind, name).map(|key| format!("{kind} {}", key.key().name)),
                );
            }
        }
    }
    names
}

fn verdicts(sources: &Sources) -> (bool, bool) {
    (desired::load(sources).is_ok(), VALIDATOR.is_valid(&as_json(sources)))
}

fn corpus(folder: &str) -> Vec<(String, Sources)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut sources = Sources::default();
            sources.add(name.clone(), std::fs::read_to_string(&path).unwrap());
            (name, sources)
        })
        .collect()
}

fn json_sources(document: &Value) -> Sources {
    let mut sources = Sources::default();
    sources.add("document.json", document.to_string());
    sources
}

/// A document as a schema sees it, whatever its syntax.
fn as_json(sources: &Sources) -> Value {
    let file = sources.iter().next().unwrap();
    let top = syntax::parse(file).unwrap_or_else(|errors| panic!("{}: {errors:#?}", file.path));
    json(&top)
}

fn json(node: &tree::Node) -> Value {
    match &node.value {
        tree::Tree::Null => Value::Null,
        tree::Tree::Bool(on) => Value::Bool(*on),
        tree::Tree::Integer(number) => (*number).into(),
        tree::Tree::Float(number) => (*number).into(),
        tree::Tree::Text(text) => text.as_str().into(),
        tree::Tree::List(items) => items.iter().map(json).collect(),
        tree::Tree::Table(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), json(&entry.value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}
