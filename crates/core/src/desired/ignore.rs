//! `ignore`: what a declaration leaves to others, whole keys or parts of property strings.
//!
//! What is ignored is neither compared nor written. Where another part of the same value must be written, the ignored one
//! goes along as it is on the guest, because PVE replaces a property string whole. What is written that way is classified
//! whole, like every other write.

use crate::registry::{FormatPart, KeyRef, Shape, ValueFormat};
use crate::value::compare::volume_fits;
use crate::value::{Property, Value};

/// What is left alone although it may be declared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IgnoreList {
    /// Whether the guest runs.
    pub run: bool,
    /// Keys and parts, sorted.
    pub keys: Vec<IgnoredKey>,
}

/// One key, or one part of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredKey {
    /// The key.
    pub key: KeyRef,
    /// The part; none if the whole key is ignored.
    pub part: Option<&'static str>,
}

impl IgnoreList {
    /// Whether a key is ignored as a whole.
    pub fn whole(&self, key: KeyRef) -> bool {
        self.keys.iter().any(|ignored| ignored.key == key && ignored.part.is_none())
    }

    /// The parts of a key's value that are ignored.
    pub fn parts(&self, key: KeyRef) -> impl Iterator<Item = &'static str> {
        self.keys
            .iter()
            .filter(move |ignored| ignored.key == key)
            .filter_map(|ignored| ignored.part)
    }

    /// A declared value with the ignored parts as they are in a stored one, so that the two cannot differ in them; none
    /// where nothing is ignored, where what is stored is no property string, or where it is about another volume: options
    /// of one disk say nothing about another.
    pub(crate) fn as_stored(&self, key: KeyRef, want: &Value, stored: &Value) -> Option<Value> {
        let mut parts = self.parts(key).peekable();
        parts.peek()?;
        let mut property = want.as_property()?.clone();
        let stored = stored.as_property()?;
        if let (Some(want), Some(have)) = (property.volume(), stored.volume())
            && !volume_fits(want, have)
        {
            return None;
        }
        for part in parts {
            match stored.get(part) {
                Some(value) => property.set(part, value.clone()),
                None => property.remove(part),
            }
        }
        Some(Value::Property(property))
    }

    /// A declared value without its ignored parts: what must be there for others to add to. None where nothing is ignored.
    pub(crate) fn without(&self, key: KeyRef, want: &Value) -> Option<Value> {
        let mut parts = self.parts(key).peekable();
        parts.peek()?;
        let mut property = want.as_property()?.clone();
        parts.for_each(|part| property.remove(part));
        Some(Value::Property(property))
    }

    /// Whether two values of a key say the same in the parts that are ignored.
    pub(crate) fn alike(&self, key: KeyRef, one: Option<&Value>, other: Option<&Value>) -> bool {
        let part = |value: Option<&Value>, part| {
            value.and_then(Value::as_property).and_then(|value: &Property| value.get(part)).cloned()
        };
        self.parts(key).all(|name| part(one, name) == part(other, name))
    }
}

/// Why a part cannot be ignored by itself.
pub(super) fn cannot_ignore(shape: &Shape, part: &FormatPart) -> Option<String> {
    if matches!(part.format, ValueFormat::Volume) {
        return Some("a slot that holds another volume is another disk".into());
    }
    // Off, it leaves nothing of the other parts: what is declared of them could never rest.
    if shape.switch == Some(part.name) {
        return Some("it switches all the others on and off".into());
    }
    part.instead.map(|other| format!("Proxmox VE stores it as `{other}`"))
}

/// The names of the parts that may be ignored by themselves.
pub(super) fn ignorable_parts(shape: &'static Shape) -> impl Iterator<Item = &'static str> {
    let parts = shape.parts.iter().filter(|part| cannot_ignore(shape, part).is_none());
    parts.flat_map(|part| [part.name].into_iter().chain(part.aliases.iter().copied()))
}
