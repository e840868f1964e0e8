//! The class of changing one configuration key, by value.
//!
//! Called by `classify` for every key of a write, and by the planner to part what needs a signature from
//! what does not. It never looks at who asks.

use super::{Class, Judgement};
use crate::actual::Config;
use crate::registry::{Hazard, KeyRef};
use crate::value::{Property, Value, Volume};

/// The class of one key's change, from what the guest will have after its next restart.
pub fn change(key: KeyRef, config: &Config, to: Option<&Value>) -> Judgement {
    let field = config.field(key);
    let from = field.and_then(|field| field.current.as_ref()).map(|reading| &reading.value);
    change_of(key, from, to, config.has_cloud_init())
}

/// The class of changing one key from a value to another; none stands for absence.
pub fn change_of(key: KeyRef, from: Option<&Value>, to: Option<&Value>, cloud_init: bool) -> Judgement {
    if to.is_some_and(is_odd) {
        return Judgement::new(Class::Destructive, format!("the value of `{key}` cannot be read"));
    }
    match key.key().hazard {
        Hazard::Safe => Judgement::benign(),
        Hazard::Disrupts => Judgement::new(Class::Disruptive, format!("`{key}` interrupts the guest")),
        Hazard::GuestName if cloud_init => {
            Judgement::new(Class::Disruptive, "a new name makes cloud-init run again")
        }
        Hazard::GuestName => Judgement::benign(),
        Hazard::Guard if to == Some(&Value::Bool(true)) => Judgement::benign(),
        Hazard::Guard => Judgement::new(Class::Destructive, format!("lifts `{key}`")),
        Hazard::RootVolume => Judgement::new(Class::Destructive, "loses the root volume"),
        Hazard::TpmState => match from {
            None => Judgement::benign(),
            Some(_) => Judgement::new(Class::Destructive, "the keys in the TPM are lost"),
        },
        Hazard::UnusedVolume => Judgement::new(Class::Destructive, "the volume is freed"),
        Hazard::Forbidden => {
            Judgement::new(Class::Destructive, format!("`{key}` is not evenkeel's to change"))
        }
        Hazard::VolumeSlot => slot(key, from, to),
    }
}

fn is_odd(value: &Value) -> bool {
    match value {
        Value::Odd(_) => true,
        Value::Property(property) => {
            !property.unknown().is_empty() || property.parts().iter().any(|(_, part)| is_odd(part))
        }
        Value::Bool(_)
        | Value::Integer(_)
        | Value::Number(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Set(_)
        | Value::Size(_)
        | Value::Volume(_)
        | Value::Secret
        | Value::AnyUuid => false,
    }
}

/// A drive or mount point.
fn slot(key: KeyRef, from: Option<&Value>, to: Option<&Value>) -> Judgement {
    let old = from.and_then(Value::as_property);
    let Some(new) = to.and_then(Value::as_property) else {
        let regenerable = matches!(old.and_then(Property::volume), Some(Volume::CloudInit { .. }));
        return match (from, regenerable) {
            (None, _) | (_, true) => Judgement::benign(),
            (Some(_), false) => Judgement::new(Class::Disruptive, format!("detaches `{key}`")),
        };
    };
    let set_to = |part: &str, word: &str| matches!(new.get(part), Some(Value::Text(text)) if &**text == word);
    let was_set_to =
        |part: &str, word: &str| matches!(old.and_then(|old| old.get(part)), Some(Value::Text(text)) if &**text == word);
    if new.is_on("snapshot") && !old.is_some_and(|old| old.is_on("snapshot")) {
        return Judgement::new(Class::Destructive, "later writes are discarded at shutdown");
    }
    for (part, word) in [("cache", "unsafe"), ("werror", "ignore")] {
        if set_to(part, word) && !was_set_to(part, word) {
            return Judgement::new(Class::Destructive, format!("`{part}={word}` loses writes"));
        }
    }
    let Some(old) = old else {
        return match from {
            None => Judgement::benign(),
            Some(_) => Judgement::new(Class::Disruptive, format!("replaces `{key}`")),
        };
    };
    // Mount points are in backups only when they say so, disks unless they say otherwise; in both
    // forms the normal value of the other side is absence.
    for part in ["backup", "replicate"] {
        let (before, after) = (old.get(part), new.get(part));
        let weaker = before == Some(&Value::Bool(true)) && after.is_none()
            || before.is_none() && after == Some(&Value::Bool(false));
        if weaker {
            return Judgement::new(Class::Destructive, format!("takes `{key}` out of {part}s"));
        }
    }
    Judgement::new(Class::Disruptive, format!("changes `{key}`"))
}
