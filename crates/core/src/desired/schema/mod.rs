//! The JSON Schema of a desired file, made from the key registry: what `evenkeel schema` prints and
//! editors check and complete with.
//!
//! ```text
//!   mod.rs      the file, its blocks, their words and keys
//!   value.rs    every spelling of one value
//!   pattern.rs  texts as regular expressions
//!   number.rs   numbers in texts
//!   making.rs   what a guest is made from
//! ```
//!
//! It accepts what [`super::load`] accepts, one file at a time; a shared corpus and a property test
//! hold the two together. It must never be looser or stricter on purpose. What a JSON Schema cannot
//! say, and `load` still refuses:
//!
//! - The same guest, profile or defaults in two files, a profile that no file declares or that is of another kind, and
//!   more than `GUESTS_MAX` guests over all files: a schema sees one file, and of a guest that takes its kind from a
//!   profile only that it fits one of the kinds.
//! - The same key twice in a table: a schema sees the table after its syntax was read.
//! - Size of the file, depth of nesting, repetition by YAML aliases, dates, tags, merge keys: likewise.
//! - A number with a fraction of more than 18 digits, all its zeros counted: a schema compares numbers
//!   by value and cannot count digits.
//! - One volume in two slots of a guest, a `format` beside a volume that exists, a guest that is a copy of itself, an image
//!   for a disk that is not declared or holds something else: a schema compares no two values.
//! - `template` and `run`, `first` and `source` at odds in two layers: a schema sees each block by itself.
//! - The node's release and root's keys: neither can `load`; the planner does.

mod making;
mod number;
mod pattern;
mod value;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use self::value::Definitions;
use super::check::{PROFILE_NAME_MAX, cannot_unset};
use super::ignore::ignorable_parts;
use super::{GUESTS_MAX, PROFILES_MAX, PROFILES_PER_GUEST_MAX};
use crate::model::id::{GuestKind, VmId};
use crate::registry::{self, Absent, Declarable, Key, KeyRef};

/// The schema of one desired file, draft 2020-12.
pub fn schema() -> Value {
    let mut definitions = Definitions::default();
    for kind in GuestKind::ALL {
        let (guest, shared) = blocks(kind, &mut definitions);
        definitions.define(kind.as_str(), guest);
        definitions.define(&format!("{kind}-shared"), shared);
    }
    let vmid = pattern::whole(&number::whole(VmId::MIN.into(), VmId::MAX.into()));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evenkeel desired state",
        "description": "What Proxmox VE guests shall be like. Only what is declared is managed.",
        "type": "object",
        "properties": {
            "guest": {
                "description": "The declared guests, by number.",
                "type": "object",
                "patternProperties": { vmid: guest_block() },
                "additionalProperties": false,
                "maxProperties": GUESTS_MAX,
            },
            "profile": {
                "description": "What guests share that name it in `use`, by name.",
                "type": "object",
                "patternProperties": { profile_name(): profile_block() },
                "additionalProperties": false,
                "maxProperties": PROFILES_MAX,
            },
            "defaults": {
                "description": "What holds for every guest of a kind.",
                "type": "object",
                "properties": {
                    "lxc": defaults_block(GuestKind::Lxc),
                    "qemu": defaults_block(GuestKind::Qemu),
                },
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
        "$defs": definitions.finish(),
    })
}

/// One declared guest. It may leave its kind to a profile, which may stand in another file.
fn guest_block() -> Value {
    json!({
        "type": "object",
        "anyOf": [{ "required": ["kind"] }, { "required": ["use"] }],
        "properties": { "kind": kind_word() },
        "if": { "required": ["kind"] },
        "then": by_kind(""),
        "else": { "anyOf": [{ "$ref": "#/$defs/lxc" }, { "$ref": "#/$defs/qemu" }] },
    })
}

fn profile_block() -> Value {
    json!({
        "type": "object",
        "required": ["kind"],
        "properties": { "kind": kind_word() },
        "allOf": [by_kind("-shared")],
    })
}

fn defaults_block(kind: GuestKind) -> Value {
    json!({
        "description": format!("What holds for every {kind} guest that does not say otherwise."),
        "type": "object",
        "properties": { "kind": false },
        "$ref": format!("#/$defs/{kind}-shared"),
    })
}

fn kind_word() -> Value {
    json!({ "description": "Container or virtual machine.", "enum": ["lxc", "qemu"] })
}

/// The definition of the block's own kind.
fn by_kind(ending: &str) -> Value {
    json!({
        "if": { "properties": { "kind": { "const": "lxc" } } },
        "then": { "$ref": format!("#/$defs/lxc{ending}") },
        "else": { "$ref": format!("#/$defs/qemu{ending}") },
    })
}

/// A guest of one kind, absent with nothing else, or present with its keys; and a block that such guests share.
fn blocks(kind: GuestKind, definitions: &mut Definitions) -> (Value, Value) {
    let present = present(kind, definitions);
    let mut shared = present.clone();
    // `kind` stays: a profile must say it, and defaults refuse it by themselves.
    for word in ["state", "use"] {
        shared["properties"][word] = Value::Bool(false);
    }
    let guest = json!({
        "if": { "required": ["state"], "properties": { "state": { "const": "absent" } } },
        "then": {
            "properties": {
                "kind": true,
                "state": true,
                "mode": present["properties"]["mode"],
                "final_backup": {
                    "description": "The storage it is saved to first; without that backup it is not destroyed.",
                    "type": "string",
                    "pattern": pattern::whole("[A-Za-z][A-Za-z0-9._-]{0,98}[A-Za-z0-9]"),
                },
            },
            "additionalProperties": false,
        },
        "else": present,
    });
    (guest, shared)
}

fn profile_name() -> String {
    pattern::whole(&format!("[A-Za-z0-9_-]{{1,{PROFILE_NAME_MAX}}}"))
}

fn present(kind: GuestKind, definitions: &mut Definitions) -> Value {
    let mut properties = words(kind);
    let mut families = Map::new();
    for key in declarable(kind) {
        let mut schema = definitions.key(kind.as_str(), key);
        schema["description"] = description(key).into();
        if let Some(default) = default(key.absent) {
            schema["default"] = default;
        }
        match key.slots {
            None => {
                properties.insert(key.name.to_owned(), schema);
            }
            Some(count) => {
                families.insert(pattern::whole(&family(key.name, count)), schema);
            }
        }
    }
    json!({
        "properties": properties,
        "patternProperties": families,
        "additionalProperties": false,
        "dependentSchemas": contradictions(kind),
        "allOf": making::at_odds(),
    })
}

/// The words of a guest that are not configuration keys.
fn words(kind: GuestKind) -> Map<String, Value> {
    let mut words = json!({
        "kind": true,
        "state": {
            "description": "Whether the guest shall exist; `bin` puts it aside, `absent` asks for a signed destroy.",
            "enum": ["present", "bin", "absent"],
            "default": "present",
        },
        "run": {
            "description": "Whether the guest shall run; left out, that is not managed.",
            "enum": ["running", "stopped"],
        },
        "stop": {
            "description": "How it is brought down: asked, or its power cut.",
            "enum": ["shutdown", "force"],
            "default": "shutdown",
        },
        "source": making::source(kind),
        "scratch": {
            "description": "It holds nothing anybody would miss: what we made we may destroy unsigned, where the host allows it.",
            "type": "boolean",
            "default": false,
        },
        "template": {
            "description": "It shall be a template; the conversion is signed.",
            "type": "boolean",
            "default": false,
        },
        "mode": {
            "description": "Whether what differs is changed, or only shown.",
            "enum": ["enforce", "observe"],
            "default": "enforce",
        },
        "use": {
            "description": "Profiles whose keys it takes over; the later one wins, and what the guest says itself wins over all.",
            "type": "array",
            "items": { "type": "string", "pattern": profile_name() },
            "uniqueItems": true,
            "maxItems": PROFILES_PER_GUEST_MAX,
        },
        "ignore": {
            "description": "Keys, parts such as `net0.rate`, or `run`, that are neither compared nor written.",
            "type": "array",
            "items": { "type": "string", "pattern": ignorable_names(kind) },
            "uniqueItems": true,
        },
        "unset": {
            "description": "Keys that must be absent.",
            "type": "array",
            "items": { "type": "string", "pattern": unsettable_names(kind) },
            "uniqueItems": true,
        },
    });
    if kind == GuestKind::Lxc {
        words["first"] = making::first();
    }
    let Value::Object(words) = words else { unreachable!("the literal above is an object") };
    words
}

/// A key that is set cannot be unset too. A schema has no way to say so but key by key.
fn contradictions(kind: GuestKind) -> Value {
    let contradiction = |key: KeyRef| {
        let name = key.to_string();
        let not_unset =
            json!({ "properties": { "unset": { "not": { "contains": { "const": name } } } } });
        (name, not_unset)
    };
    Value::Object(unsettable(kind).map(contradiction).collect())
}

fn unsettable_names(kind: GuestKind) -> String {
    let mut names: Vec<String> = Vec::new();
    for key in unsettable(kind).filter(|key| key.slot() == 0).map(KeyRef::key) {
        names.push(match key.slots {
            None => key.name.to_owned(),
            Some(count) => family(key.name, count),
        });
    }
    pattern::whole(&names.join("|"))
}

/// Keys, their parts, and the run state.
fn ignorable_names(kind: GuestKind) -> String {
    let mut names = vec!["run".to_owned()];
    for key in declarable(kind) {
        let name = key.slots.map_or_else(|| key.name.to_owned(), |count| family(key.name, count));
        let parts: Vec<&str> = key.format.shape().into_iter().flat_map(ignorable_parts).collect();
        names.push(match parts.as_slice() {
            [] => name,
            parts => format!("{name}(?:\\.(?:{}))?", parts.join("|")),
        });
    }
    pattern::whole(&names.join("|"))
}

/// Every key and slot that `unset` may name.
fn unsettable(kind: GuestKind) -> impl Iterator<Item = KeyRef> {
    declarable(kind)
        .flat_map(move |key| {
            let slots = 0..key.slots.unwrap_or(1);
            slots.map(move |slot| match key.slots {
                None => key.name.to_owned(),
                Some(_) => format!("{}{slot}", key.name),
            })
        })
        .filter_map(move |name| registry::find(kind, &name))
        .filter(|key| cannot_unset(*key).is_none())
}

fn declarable(kind: GuestKind) -> impl Iterator<Item = &'static Key> {
    registry::table(kind).iter().filter(|key| match key.declared {
        Declarable::Yes | Declarable::RootOnly | Declarable::AtCreation => true,
        Declarable::No(_) => false,
    })
}

fn family(name: &str, slots: u16) -> String {
    format!("{name}{}", number::whole(0, u128::from(slots) - 1))
}

fn description(key: &Key) -> String {
    let mut text = key.doc.to_owned();
    if key.releases.from > crate::model::release::Release::V7_4 {
        write!(text, " Since Proxmox VE {}.", key.releases.from)
            .expect("writing to a string cannot fail");
    }
    if key.declared == Declarable::RootOnly {
        text.push_str(" Only root@pam may set it.");
    }
    text
}

/// What an editor may show as the value of a key that is left out.
fn default(absent: Absent) -> Option<Value> {
    match absent {
        Absent::Bool(value) => Some(value.into()),
        Absent::Integer(value) => Some(value.into()),
        Absent::Text(value) => Some(value.into()),
        Absent::Nothing | Absent::ContainerName | Absent::CpuWeight | Absent::ServerFilled => None,
    }
}
