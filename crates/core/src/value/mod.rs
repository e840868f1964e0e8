//! A configuration value in normal form: what is compared, and what is printed when it is written.
//!
//! ```text
//!   declared text ──read──┐
//!                         ├─> Value ──compare──> Difference
//!   stored text ────read──┘     │
//!                               └──print──> the text PVE is sent
//! ```
//!
//! Everything PVE's round trip changes is gone once a text has become a `Value`: order of parts,
//! boolean words, explicit defaults, case of MAC addresses, spelling of sizes and addresses. What a
//! person declares is checked on the way (`read::declared`); what PVE stores never is
//! (`read::stored`), and a stored text that cannot be read is kept as `Odd` and equals nothing.

pub mod compare;
pub mod print;
pub mod read;
mod rule;
pub(crate) mod spell;
mod volume;

use std::collections::BTreeSet;

pub(crate) use rule::{MOUNT_OPTIONS, expected};
pub use rule::{Misfit, is_root_device, percent_decode, percent_encode};

pub use volume::VolumeRef;

use crate::model::quantity::{Bytes, Decimal};

/// A value in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Bool(bool),
    /// A whole number, or MiB.
    Integer(i64),
    /// A decimal number.
    Number(Decimal),
    /// Text; addresses, MACs and choices in their one spelling.
    Text(Box<str>),
    /// Items whose order counts.
    List(Vec<Box<str>>),
    /// Items whose order does not count.
    Set(BTreeSet<Box<str>>),
    /// A size.
    Size(Bytes),
    /// A volume. In a box, because every pass walks all values of all guests, and few are volumes.
    Volume(Box<VolumeRef>),
    /// A property string.
    Property(Property),
    /// Something is set that PVE never shows.
    Secret,
    /// Any UUID that PVE makes.
    AnyUuid,
    /// A stored text that its format cannot read. It equals nothing that can be declared.
    Odd(Box<str>),
}

impl Value {
    /// Text from a borrowed string.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Whether it says no more than absence does.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Set(items) => items.is_empty(),
            Self::Property(property) => property.is_empty(),
            Self::Bool(_)
            | Self::Integer(_)
            | Self::Number(_)
            | Self::Size(_)
            | Self::Volume(_)
            | Self::Secret
            | Self::AnyUuid
            | Self::Odd(_) => false,
        }
    }

    /// The text inside, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The property string inside, if it is one.
    pub fn as_property(&self) -> Option<&Property> {
        if let Self::Property(property) = self { Some(property) } else { None }
    }
}

/// A property string in normal form: its parts by name, without those that say what absence says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Property {
    /// The known parts, sorted by name.
    parts: Vec<(&'static str, Value)>,
    /// Parts of a newer release, kept as they were so that writing does not drop them; none if there are none.
    unknown: Option<Box<UnknownParts>>,
}

/// Names and texts, in a box of their own, because hardly any property has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct UnknownParts(Vec<(Box<str>, Box<str>)>);

impl Property {
    /// The value of a part. There are few, and names of another length are told apart at once: no search is quicker.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.parts.iter().find(|(part, _)| *part == name).map(|(_, value)| value)
    }

    /// Sets a part.
    pub fn set(&mut self, name: &'static str, value: Value) {
        match self.parts.binary_search_by(|(part, _)| (*part).cmp(name)) {
            Ok(at) => self.parts[at].1 = value,
            Err(at) => self.parts.insert(at, (name, value)),
        }
    }

    /// Removes a part.
    pub fn remove(&mut self, name: &str) {
        self.parts.retain(|(part, _)| *part != name);
    }

    /// All known parts, sorted by name.
    pub fn parts(&self) -> &[(&'static str, Value)] {
        &self.parts
    }

    /// Parts the registry does not know.
    pub fn unknown(&self) -> &[(Box<str>, Box<str>)] {
        self.unknown.as_deref().map_or(&[], |unknown| &unknown.0)
    }

    /// Whether nothing is left that absence does not say.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.unknown.is_none()
    }

    /// The volume a drive or mount point holds.
    pub fn volume(&self) -> Option<&VolumeRef> {
        let value = self.get("file").or_else(|| self.get("volume"));
        match value {
            Some(Value::Volume(volume)) => Some(volume),
            Some(_) | None => None,
        }
    }

    /// The volume it holds data in: not an empty drive, not cloud-init's, not an image of a CD-ROM. A volume
    /// that has an owner holds data even where it is shown to the guest as a CD-ROM.
    pub fn data_volume(&self) -> Option<&VolumeRef> {
        self.volume().filter(|volume| match volume {
            VolumeRef::Existing { .. } => {
                !volume.is_image() && (volume.owner().is_some() || !self.is_cdrom())
            }
            VolumeRef::Fresh { .. }
            | VolumeRef::CloudInit { .. }
            | VolumeRef::Path(_)
            | VolumeRef::Empty
            | VolumeRef::HostCdrom => false,
        })
    }

    /// The size part.
    pub fn size(&self) -> Option<Bytes> {
        match self.get("size") {
            Some(Value::Size(size)) => Some(*size),
            Some(_) | None => None,
        }
    }

    /// Whether a drive is a CD-ROM, an empty one or cloud-init's included.
    pub fn is_cdrom(&self) -> bool {
        self.get("media").and_then(Value::as_text) == Some("cdrom")
    }

    /// Whether a part is the boolean `true`.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    /// Takes over the parts only PVE's side knows: what a write without them would change.
    pub(crate) fn keep_unknown(&mut self, stored: &Self) {
        self.unknown.clone_from(&stored.unknown);
    }

    /// Adds a part the registry does not know.
    fn push_unknown(&mut self, name: &str, value: &str) {
        self.unknown.get_or_insert_default().0.push((name.into(), value.into()));
    }
}
