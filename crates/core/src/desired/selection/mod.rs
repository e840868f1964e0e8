//! Which guests a command is about: named one by one, or by tag, kind and name.
//!
//! The one way to name a guest, for every verb: `101`, `lxc/101`, or a name that only one guest has. `plan`, `apply` and
//! `status` choose among what is declared, `import` among what is there. It never guesses: a name that fits two guests
//! is an error that names both, and a choice that fits none says what there is.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::desired::{DeclaredGuest, Desired, WantedState};
use crate::model::id::{GuestId, GuestKind, IdError, VmId};
use crate::model::name::shown;
use crate::value::Value;
use crate::words::diagnostic::did_you_mean;

/// The longest name of a guest: what DNS allows a whole name.
const NAME_LENGTH_MAX: usize = 253;

/// How many guests or tags an error lists before it only counts them.
const LISTED_MAX: usize = 8;

/// A guest as people name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestName {
    /// `101`, of whichever kind.
    Number(VmId),
    /// `lxc/101`.
    Id(GuestId),
    /// `web`: its `hostname` or `name`.
    Name(String),
}

impl FromStr for GuestName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.contains('/') {
            return text.parse().map(Self::Id);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Number);
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if text.is_empty() || text.len() > NAME_LENGTH_MAX || !text.chars().all(is_name) {
            let why = "write its number, lxc/NUMBER or qemu/NUMBER, or its name";
            return Err(IdError { what: "guest", text: shown(text), why });
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl GuestName {
    /// Whether a guest is meant, by its number alone; a name has to be looked up first.
    pub fn has_number_of(&self, guest: GuestId) -> bool {
        match self {
            Self::Number(vmid) => guest.vmid == *vmid,
            Self::Id(id) => guest == *id,
            Self::Name(_) => false,
        }
    }
}

impl fmt::Display for GuestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(vmid) => vmid.fmt(f),
            Self::Id(guest) => guest.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

crate::model::id::serde_as_text!(GuestName, NamePattern);

/// A name in which `*` stands for any letters and `?` for one: `web-*`. Case does not count, as in DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl FromStr for NamePattern {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() || text.len() > NAME_LENGTH_MAX {
            let why = "it must be 1 to 253 letters; * stands for any, ? for one";
            return Err(IdError { what: "pattern of a name", text: shown(text), why });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamePattern {
    /// Whether a name fits. One walk that steps back to the last `*` only: its time is bounded by both lengths.
    pub fn fits(&self, name: &str) -> bool {
        let pattern = self.0.as_bytes();
        let name = name.to_ascii_lowercase().into_bytes();
        let mut at = 0;
        let mut seen = 0;
        let mut star: Option<(usize, usize)> = None;
        while seen < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, seen));
                    at += 1;
                }
                Some(letter) if *letter == b'?' || *letter == name[seen] => {
                    (at, seen) = (at + 1, seen + 1);
                }
                Some(_) | None => {
                    let Some((star_at, taken)) = star else {
                        return false;
                    };
                    star = Some((star_at, taken + 1));
                    (at, seen) = (star_at + 1, taken + 1);
                }
            }
        }
        pattern[at..].iter().all(|letter| *letter == b'*')
    }
}

/// Which guests are meant. Each kind of condition that is given must hold; within one kind any of its words will do.
/// Nothing given means every guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// These guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestName>,
    /// Those with one of these tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Those of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<GuestKind>,
    /// Those whose name fits one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NamePattern>,
}

/// A guest that may be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Kind and number.
    pub id: GuestId,
    /// Its `hostname` or `name`.
    pub name: Option<String>,
    /// Its tags.
    pub tags: BTreeSet<String>,
}

impl Candidate {
    /// A guest as it is declared.
    pub fn declared(guest: &DeclaredGuest) -> Self {
        let mut candidate = Self { id: guest.id, name: None, tags: BTreeSet::new() };
        let (WantedState::Present(spec) | WantedState::Bin(spec)) = &guest.state else {
            return candidate;
        };
        for field in &spec.fields {
            match (field.key.key().name, &field.want) {
                ("hostname" | "name", Some(Value::Text(name))) => {
                    candidate.name = Some(name.to_string());
                }
                ("tags", Some(Value::Set(tags))) => {
                    candidate.tags = tags.iter().map(ToString::to_string).collect();
                }
                (_, Some(_) | None) => {}
            }
        }
        candidate
    }

    /// A guest as a node lists it: PVE separates tags by `;`, and reads `,` and blanks too.
    pub fn listed(id: GuestId, name: Option<String>, tags: &str) -> Self {
        let tags = tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty());
        Self { id, name, tags: tags.map(str::to_owned).collect() }
    }

    fn is(&self, wanted: &GuestName) -> bool {
        match wanted {
            GuestName::Number(vmid) => self.id.vmid == *vmid,
            GuestName::Id(id) => self.id == *id,
            GuestName::Name(name) => {
                self.name.as_ref().is_some_and(|other| other.eq_ignore_ascii_case(name))
            }
        }
    }

    fn has_tag(&self, wanted: &str) -> bool {
        self.tags.iter().any(|tag| tag.eq_ignore_ascii_case(wanted))
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {}", self.id, shown(name)),
            None => self.id.fmt(f),
        }
    }
}

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A name that several guests have.
    #[error("{name} is the name of {}", .guests.join(" and of "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Who has it.
        guests: Vec<String>,
    },
    /// A guest that is not among them.
    #[error("there is no guest {name} {among}")]
    NoSuchGuest {
        /// As it was named.
        name: GuestName,
        /// Among what was looked for.
        among: &'static str,
        /// What there is.
        there: String,
    },
    /// No guest fits all conditions.
    #[error("no guest {among} fits {conditions}")]
    Nothing {
        /// What was asked for, as it was written.
        conditions: String,
        /// Among what was looked for.
        among: &'static str,
        /// What there is.
        there: String,
    },
}

impl SelectionError {
    /// What there is, or how to say it better.
    pub fn hint(&self) -> String {
        match self {
            Self::Ambiguous { guests, .. } => {
                let one = guests
                    .first()
                    .map_or("lxc/101", |guest| guest.split(' ').next().unwrap_or(guest));
                format!("write the one that is meant with its number, such as {one}")
            }
            Self::NoSuchGuest { there, .. } | Self::Nothing { there, .. } => there.clone(),
        }
    }
}

/// Among the guests of the desired files.
pub const DECLARED: &str = "among those declared";

/// Among the guests of a node.
pub const ON_NODE: &str = "on this node";

impl Selection {
    /// Whether every guest is meant.
    pub fn is_everything(&self) -> bool {
        let Self { guests, tags, kind, names } = self;
        guests.is_empty() && tags.is_empty() && kind.is_none() && names.is_empty()
    }

    /// The numbers of the chosen guests; `among` says of what the candidates are.
    pub fn choose(
        &self,
        candidates: &[Candidate],
        among: &'static str,
    ) -> Result<BTreeSet<VmId>, SelectionError> {
        let mut named = BTreeSet::new();
        for name in &self.guests {
            named.insert(find(name, candidates, among)?.id);
        }
        let chosen: BTreeSet<VmId> = candidates
            .iter()
            .filter(|guest| self.guests.is_empty() || named.contains(&guest.id))
            .filter(|guest| self.kind.is_none_or(|kind| guest.id.kind == kind))
            .filter(|guest| self.tags.is_empty() || self.tags.iter().any(|tag| guest.has_tag(tag)))
            .filter(|guest| {
                let fits = |name: &String| self.names.iter().any(|pattern| pattern.fits(name));
                self.names.is_empty() || guest.name.as_ref().is_some_and(fits)
            })
            .map(|guest| guest.id.vmid)
            .collect();
        if chosen.is_empty() && !self.is_everything() {
            let conditions = self.to_string();
            let there = self.there(candidates, among);
            return Err(SelectionError::Nothing { conditions, among, there });
        }
        Ok(chosen)
    }

    /// What there is that could have been asked for.
    fn there(&self, candidates: &[Candidate], among: &'static str) -> String {
        if self.tags.is_empty() {
            return what_there_is(candidates, among);
        }
        let tags: BTreeSet<&String> = candidates.iter().flat_map(|guest| &guest.tags).collect();
        match tags.len() {
            0 => format!("no guest {among} has a tag"),
            _ => format!("the tags {among}: {}", listed(tags.into_iter())),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.guests.iter().map(ToString::to_string).collect();
        words.extend(self.tags.iter().map(|tag| format!("--tag {}", shown(tag))));
        words.extend(self.kind.iter().map(|kind| format!("--kind {kind}")));
        words.extend(self.names.iter().map(|name| format!("--name {name}")));
        f.write_str(&words.join(" "))
    }
}

/// The one guest a name means.
pub fn find<'a>(
    name: &GuestName,
    candidates: &'a [Candidate],
    among: &'static str,
) -> Result<&'a Candidate, SelectionError> {
    let fitting: Vec<&Candidate> = candidates.iter().filter(|guest| guest.is(name)).collect();
    match fitting.as_slice() {
        [one] => Ok(one),
        [] => {
            let there = match name {
                GuestName::Id(id) => candidates
                    .iter()
                    .find(|guest| guest.id.vmid == id.vmid)
                    .map(|other| format!("{} is {other}", id.vmid)),
                GuestName::Name(name) => {
                    let names = candidates.iter().filter_map(|guest| guest.name.as_deref());
                    did_you_mean(name, names).map(|near| format!("did you mean {near}?"))
                }
                GuestName::Number(_) => None,
            };
            let there = there.unwrap_or_else(|| what_there_is(candidates, among));
            Err(SelectionError::NoSuchGuest { name: name.clone(), among, there })
        }
        several => Err(SelectionError::Ambiguous {
            name: name.to_string(),
            guests: several.iter().map(|guest| guest.id.to_string()).collect(),
        }),
    }
}

fn what_there_is(candidates: &[Candidate], among: &str) -> String {
    if candidates.is_empty() {
        return format!("there is no guest at all {among}");
    }
    format!("there are {}", listed(candidates.iter()))
}

/// The first few, and how many more.
fn listed<T: fmt::Display>(items: impl ExactSizeIterator<Item = T>) -> String {
    let more = items.len().saturating_sub(LISTED_MAX);
    let mut text =
        items.take(LISTED_MAX).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    if more > 0 {
        write!(text, " and {more} more").expect("writing to a string cannot fail");
    }
    text
}

/// What a pass or a plan is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PassScope {
    /// Everything that is declared.
    #[default]
    Whole,
    /// These guests; nothing is read, planned, ended or forgotten of any other.
    Chosen(BTreeSet<VmId>),
}

impl PassScope {
    /// What a selection makes of the declared guests.
    pub fn of(selection: &Selection, desired: &Desired) -> Result<Self, SelectionError> {
        if selection.is_everything() {
            return Ok(Self::Whole);
        }
        let candidates: Vec<Candidate> = desired.guests.values().map(Candidate::declared).collect();
        selection.choose(&candidates, DECLARED).map(Self::Chosen)
    }

    /// Whether a guest is part of it.
    pub fn has(&self, vmid: VmId) -> bool {
        match self {
            Self::Whole => true,
            Self::Chosen(chosen) => chosen.contains(&vmid),
        }
    }

    /// The part of the declared guests it is about.
    pub fn part_of<'a>(&self, desired: &'a Desired) -> Cow<'a, Desired> {
        match self {
            Self::Whole => Cow::Borrowed(desired),
            Self::Chosen(chosen) => {
                let guest = |vmid: &VmId| Some((*vmid, desired.guests.get(vmid)?.clone()));
                Cow::Owned(Desired { guests: chosen.iter().filter_map(guest).collect() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
