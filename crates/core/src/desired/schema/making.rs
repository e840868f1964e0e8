//! The schema of what a guest is made from and what it gets once: `source` and `first`.
//!
//! `mod.rs` asks for each kind. It says what `check/source.rs` says of one block.

use serde_json::{Value, json};

use super::super::source::{IMAGE_SLOTS, PUBLIC_KEY_TYPES, SECRET_NAME_MAX, SSH_KEYS_MAX};
use super::{family, pattern};
use crate::model::id::{GuestKind, VmId};
use crate::registry;

/// Every form of `source`.
pub(super) fn source(kind: GuestKind) -> Value {
    let vmid = json!({ "type": "integer", "minimum": VmId::MIN, "maximum": VmId::MAX });
    let switch = json!({ "type": "boolean" });
    let clone = json!({
        "properties": {
            "clone": vmid,
            "full": switch,
            "storage": text("[A-Za-z][A-Za-z0-9_.-]{0,98}[A-Za-z0-9]"),
            "snapshot": text("(?!(?:current|vzdump|pending)$)[A-Za-z][A-Za-z0-9_-]{1,39}"),
        },
        "required": ["clone"],
        "additionalProperties": false,
        // A linked clone stays where its source is.
        "not": { "required": ["full", "storage"], "properties": { "full": { "const": false } } },
    });
    let backup = json!({
        "properties": { "backup": volume("backup"), "unique": switch },
        "required": ["backup"],
        "additionalProperties": false,
    });
    let mut forms = vec![clone, backup];
    match kind {
        GuestKind::Lxc => forms.push(json!({
            "properties": { "template": volume("vztmpl") },
            "required": ["template"],
            "additionalProperties": false,
        })),
        GuestKind::Qemu => forms.extend([
            json!({
                "properties": { "image": volume("import"), "into": text(&image_slots()) },
                "required": ["image", "into"],
                "additionalProperties": false,
            }),
            json!({ "properties": { "empty": { "const": true } }, "additionalProperties": false }),
        ]),
    }
    json!({
        "description": "What the guest is made from, if it is not there; it says nothing about a guest that is.",
        "type": "object",
        "anyOf": forms,
    })
}

/// What a new container gets once.
pub(super) fn first() -> Value {
    let types: Vec<String> = PUBLIC_KEY_TYPES.iter().map(|kind| pattern::escaped(kind)).collect();
    let key = format!(
        "{blank}(?:{}) [A-Za-z0-9+/]+={{0,2}}(?: [^\\x00-\\x1f\\x7f-\\x9f]*)?{blank}",
        types.join("|"),
        blank = pattern::BLANK,
    );
    let secret = format!("[A-Za-z0-9][A-Za-z0-9_.-]{{0,{}}}", SECRET_NAME_MAX - 1);
    json!({
        "description": "What a new container gets once, when it is made from a template; it is shown nowhere.",
        "type": "object",
        "properties": {
            "ssh_keys": {
                "description": "Public keys of its root user.",
                "type": "array",
                "items": text(&key),
                "maxItems": SSH_KEYS_MAX,
            },
            "password": {
                "description": "The secret of the host that holds the password of its root user.",
                "type": "object",
                "properties": { "secret": text(&secret) },
                "required": ["secret"],
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
    })
}

/// Words of one block that cannot both hold.
pub(super) fn at_odds() -> Value {
    let running_template = json!({ "template": { "const": true }, "run": { "const": "running" } });
    let copied = json!({ "anyOf": [{ "required": ["clone"] }, { "required": ["backup"] }] });
    json!([
        { "not": { "required": ["template", "run"], "properties": running_template } },
        { "not": { "required": ["first", "source"], "properties": { "source": copied } } },
    ])
}

fn text(whole: &str) -> Value {
    json!({ "type": "string", "pattern": pattern::whole(whole) })
}

/// A volume whose name begins with its content.
fn volume(content: &str) -> Value {
    let id = pattern::CONFIG_ID;
    let blank = pattern::BLANK;
    text(&format!("{blank}(?![!-~]{{256}}){id}:{content}/[!-+\\x2d-~]+{blank}"))
}

fn image_slots() -> String {
    let slots = registry::table(GuestKind::Qemu).iter().filter_map(|key| {
        let count = key.slots.filter(|_| IMAGE_SLOTS.contains(&key.name))?;
        Some(family(key.name, count))
    });
    slots.collect::<Vec<_>>().join("|")
}
