//! What a hub may have guests made from: `local:vztmpl/*`, `clone:9000-9009`.
//!
//! A pattern names its storage and its content whole, so that none can reach the disks of guests. `*` stands for any
//! text; a name that climbs (`..`) fits nothing.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::desired::{GuestSource, VolumeContent};
use crate::model::id::IdError;
use crate::model::vmid_ranges::VmidRanges;
use crate::operate::operation::{StorageName, VolumeId};

/// Sources that are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum SourcePattern {
    /// Volumes: templates, images or backups of one storage.
    Volumes(VolumePattern),
    /// Copies of these guests.
    Clones(VmidRanges),
}

/// `local:vztmpl/debian-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePattern {
    text: String,
    content: VolumeContent,
}

impl SourcePattern {
    /// Whether a guest may be made from this.
    pub fn fits(&self, source: &GuestSource) -> bool {
        match (self, source) {
            (Self::Clones(guests), GuestSource::Clone(from)) => guests.has(from.guest),
            (Self::Volumes(pattern), GuestSource::Template(volume)) => {
                pattern.fits(volume, VolumeContent::Template)
            }
            (Self::Volumes(pattern), GuestSource::Image { volume, .. }) => {
                pattern.fits(volume, VolumeContent::Import)
            }
            (Self::Volumes(pattern), GuestSource::Backup { volume, .. }) => {
                pattern.fits(volume, VolumeContent::Backup)
            }
            (
                Self::Clones(_),
                GuestSource::Template(_) | GuestSource::Image { .. } | GuestSource::Backup { .. },
            )
            | (Self::Volumes(_), GuestSource::Clone(_))
            | (Self::Clones(_) | Self::Volumes(_), GuestSource::Empty) => false,
        }
    }
}

impl VolumePattern {
    fn fits(&self, volume: &VolumeId, content: VolumeContent) -> bool {
        let climbs = volume.as_str().split('/').any(|name| name == "..");
        !climbs
            && self.content == content
            && VolumeContent::of(volume) == content
            && is_like(&self.text, volume.as_str())
    }
}

/// Whether a text is what a pattern with `*` stands for. The pieces between the stars are looked for from the left, which
/// is enough: a star takes whatever is between.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    true
}

const RULE: &str = "write a storage and a content with a name, such as \"local:vztmpl/*\", \"local:import/*\" or \
                    \"store:backup/*\", or \"clone:9000-9009\"";

impl FromStr for SourcePattern {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let refuse = |why| IdError { what: "source", text: crate::model::name::shown(text), why };
        let Some((storage, name)) = text.split_once(':') else { return Err(refuse(RULE)) };
        if storage == "clone" {
            let guests: VmidRanges = name.parse().map_err(|error: IdError| refuse(error.why))?;
            return if guests.is_empty() { Err(refuse(RULE)) } else { Ok(Self::Clones(guests)) };
        }
        let volume = text.parse::<VolumeId>().map_err(|_| refuse(RULE))?;
        let content = VolumeContent::of(&volume);
        if storage.parse::<StorageName>().is_err() || text.contains(',') {
            return Err(refuse(RULE));
        }
        match content {
            VolumeContent::Template | VolumeContent::Import | VolumeContent::Backup => {
                Ok(Self::Volumes(VolumePattern { text: text.to_owned(), content }))
            }
            VolumeContent::Iso | VolumeContent::GuestDisk(_) | VolumeContent::Other => {
                Err(refuse(RULE))
            }
        }
    }
}

impl TryFrom<String> for SourcePattern {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl fmt::Display for SourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volumes(pattern) => f.write_str(&pattern.text),
            Self::Clones(guests) => write!(f, "clone:{guests}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_everything_else_for_itself() {
        for (pattern, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("*c", "abc", true),
            ("*c", "abcd", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "aece", true),
            ("a*c*e", "ace", true),
            ("a*c*e", "ae", false),
            ("a*a", "a", false),
            ("a*ab", "aab", true),
            ("a*b*b", "ab", false),
            ("**", "", true),
            ("a?", "ab", false),
        ] {
            assert_eq!(is_like(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn only_templates_images_backups_and_copies_can_be_allowed() {
        for text in [
            "local:vztmpl/*",
            "local:import/debian-*.qcow2",
            "store:backup/*",
            "clone:9000-9009, 8000",
        ] {
            assert_eq!(text.parse::<SourcePattern>().unwrap().to_string(), text);
        }
        for text in [
            "*",
            "local:*",
            "*:vztmpl/*",
            "local",
            "local:",
            "local:vztmpl",
            "local:vztmpl/",
            "local:iso/*",
            "local-lvm:vm-*",
            "local-lvm:vm-105-disk-0",
            "clone:",
            "clone:*",
            "clone:99",
            "/root/*",
            "local:vztmpl/a b",
        ] {
            assert!(text.parse::<SourcePattern>().is_err(), "{text}");
        }
    }
}
