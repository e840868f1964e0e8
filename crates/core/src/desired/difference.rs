//! What differs between two sets of desired files, guest by guest.
//!
//! Called where a set is about to take the place of another: `fleet push`, `fleet diff`, and the hub when somebody pushed
//! in between. It compares declarations only: what a host would then do is for its plan to say. No secret is in it: two
//! values that differ only in a secret are told as a change from a mask to a mask.

use std::collections::BTreeMap;

use super::show::{GuestBlock, LineSubject, shown_value};
use super::{DeclaredGuest, Desired, FirstUse, GuestOrigins, Origins, Spec, WantedState};
use crate::desired::selection::Candidate;
use crate::model::id::GuestId;
use crate::registry::KeyRef;
use crate::value::Value;
use crate::words::diagnostic::Sources;

/// A checked set of desired files, with where each value stands in them.
#[derive(Debug, Clone, Copy)]
pub struct DeclaredSet<'a> {
    /// What is declared.
    pub desired: &'a Desired,
    /// Where each value comes from.
    pub origins: &'a Origins,
    /// The files.
    pub sources: &'a Sources,
}

/// One guest that is declared otherwise than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationDifference {
    /// Which.
    pub guest: GuestId,
    /// Its own name, if one is declared.
    pub name: String,
    /// What became of its declaration.
    pub change: DeclarationChange,
    /// What is said of it now and was not before, or the other way round; for a new guest everything that is said. Of a
    /// guest that is no longer declared there is nothing to tell: it stays as it is.
    pub keys: Vec<DeclaredChange>,
}

/// What became of the declaration of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclarationChange {
    /// It was not declared before.
    Added,
    /// It is no longer declared, which only ends its management: nothing happens to the guest.
    Released,
    /// It is declared otherwise.
    Changed,
}

impl DeclarationChange {
    /// The printed spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Released => "released",
            Self::Changed => "changed",
        }
    }
}

/// One word or key that is declared otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredChange {
    /// `cores`, `run`.
    pub key: String,
    /// What was said before; none if nothing was.
    pub before: Option<String>,
    /// What is said now; none if nothing is.
    pub after: Option<String>,
    /// What a list, a table or a text of several lines lost, each entry whole; empty for every other value.
    pub removed: Vec<String>,
    /// What it gained.
    pub added: Vec<String>,
    /// `web.toml:4`: where it stands now, or where it stood.
    pub origin: Option<String>,
}

impl DeclaredChange {
    fn new(
        key: String,
        before: Option<String>,
        after: Option<String>,
        origin: Option<String>,
    ) -> Self {
        let entries = |side: &Option<String>| side.as_deref().and_then(entries);
        let (removed, added) = match (entries(&before), entries(&after)) {
            (Some(before), Some(after)) => (without(&before, &after), without(&after, &before)),
            (Some(_) | None, Some(_) | None) => (Vec::new(), Vec::new()),
        };
        Self { key, before, after, removed, added, origin }
    }
}

/// The entries of a value as it is shown, if it has any: a change of one among many must be seen, however long the rest is.
fn entries(shown: &str) -> Option<Vec<String>> {
    let mut table: toml::Table = toml::from_str(&format!("value = {shown}")).ok()?;
    match table.remove("value")? {
        toml::Value::Array(items) => Some(items.iter().map(ToString::to_string).collect()),
        toml::Value::Table(parts) => {
            Some(parts.iter().map(|(name, value)| format!("{name} = {value}")).collect())
        }
        toml::Value::String(text) if text.contains('\n') => {
            Some(text.lines().map(|line| toml::Value::from(line).to_string()).collect())
        }
        toml::Value::String(_)
        | toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => None,
    }
}

/// The entries that are not among the others, as often as they are there more often.
fn without(entries: &[String], others: &[String]) -> Vec<String> {
    let mut others: Vec<&String> = others.iter().collect();
    let mut left = Vec::new();
    for entry in entries {
        match others.iter().position(|other| *other == entry) {
            Some(place) => drop(others.swap_remove(place)),
            None => left.push(entry.clone()),
        }
    }
    left
}

/// What stands for a key that must be absent.
const UNSET: &str = "(unset)";

/// The guests that are declared otherwise, by number.
pub fn difference(before: DeclaredSet<'_>, after: DeclaredSet<'_>) -> Vec<DeclarationDifference> {
    let mut numbers: Vec<_> = before.desired.guests.keys().collect();
    numbers.extend(after.desired.guests.keys());
    numbers.sort_unstable();
    numbers.dedup();
    let mut differences = Vec::new();
    for vmid in numbers {
        let was = before.desired.guests.get(vmid);
        let is = after.desired.guests.get(vmid);
        match (was, is) {
            (Some(was), Some(is)) if was.id == is.id => {
                let keys = changes(Some((was, before)), (is, after));
                if !keys.is_empty() {
                    differences.push(one(is, DeclarationChange::Changed, keys));
                }
            }
            // Another kind under the same number is another guest.
            (was, is) => {
                if let Some(was) = was {
                    differences.push(one(was, DeclarationChange::Released, Vec::new()));
                }
                if let Some(is) = is {
                    let keys = changes(None, (is, after));
                    differences.push(one(is, DeclarationChange::Added, keys));
                }
            }
        }
    }
    differences
}

fn one(
    guest: &DeclaredGuest,
    change: DeclarationChange,
    keys: Vec<DeclaredChange>,
) -> DeclarationDifference {
    let name = Candidate::declared(guest).name.unwrap_or_default();
    DeclarationDifference { guest: guest.id, name, change, keys }
}

/// What is said of a guest: by subject, so that both sides stand in the same order.
#[derive(Debug, Default)]
struct SaidOfGuest<'a> {
    words: BTreeMap<&'static str, String>,
    keys: BTreeMap<KeyRef, Option<&'a Value>>,
    first: Option<&'a FirstUse>,
}

impl<'a> SaidOfGuest<'a> {
    fn of(guest: &'a DeclaredGuest) -> Self {
        let mut said = Self::default();
        for line in GuestBlock::of(guest).lines {
            if let [LineSubject::Word(word)] = line.subjects.as_slice() {
                let value = line.text.split_once(" = ").map_or("", |(_, value)| value);
                said.words.insert(word, value.to_owned());
            }
        }
        if let WantedState::Present(spec) | WantedState::Bin(spec) = &guest.state {
            let Spec { first, fields, .. } = spec;
            said.first = Some(first);
            said.keys = fields.iter().map(|field| (field.key, field.want.as_ref())).collect();
        }
        said
    }
}

fn changes(
    before: Option<(&DeclaredGuest, DeclaredSet<'_>)>,
    after: (&DeclaredGuest, DeclaredSet<'_>),
) -> Vec<DeclaredChange> {
    let was = before.map(|(guest, _)| SaidOfGuest::of(guest)).unwrap_or_default();
    let is = SaidOfGuest::of(after.0);
    let place = |subject: LineSubject| {
        let now = place_of(after.0, after.1, subject);
        now.or_else(|| before.and_then(|(guest, set)| place_of(guest, set, subject)))
    };
    let mut changes = Vec::new();
    for word in union(was.words.keys().copied(), is.words.keys().copied()) {
        let then = was.words.get(word);
        let now = is.words.get(word);
        // What is given once is shown nowhere, so its texts are equal however it changed.
        let given_otherwise = word == "first" && was.first != is.first;
        if then != now || given_otherwise {
            let origin = place(LineSubject::Word(word));
            let before = then.cloned();
            let after = now.cloned();
            changes.push(DeclaredChange::new(word.to_owned(), before, after, origin));
        }
    }
    for key in union(was.keys.keys().copied(), is.keys.keys().copied()) {
        let then = was.keys.get(&key).copied();
        let now = is.keys.get(&key).copied();
        if then != now {
            let shown = |want: Option<Option<&Value>>| {
                want.map(|want| want.map_or_else(|| UNSET.to_owned(), |v| shown_value(key, v)))
            };
            let origin = place(LineSubject::Key(key));
            let before = shown(then);
            let after = shown(now);
            changes.push(DeclaredChange::new(key.to_string(), before, after, origin));
        }
    }
    changes
}

fn union<T: Ord>(left: impl Iterator<Item = T>, right: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = left.chain(right).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn place_of(guest: &DeclaredGuest, set: DeclaredSet<'_>, subject: LineSubject) -> Option<String> {
    let origins: &GuestOrigins = set.origins.guests.get(&guest.id.vmid)?;
    origins.of(subject)?.place(set.sources)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::desired::load_with_origins;
    use crate::model::secret::MASK;

    fn told(before: &str, after: &str) -> Vec<String> {
        let read = |text: &str| {
            let mut sources = Sources::default();
            sources.add("web.toml", text);
            let (desired, origins) =
                load_with_origins(&sources).unwrap_or_else(|errors| panic!("{errors:?}"));
            (desired, origins, sources)
        };
        let before = read(before);
        let after = read(after);
        let set = |(desired, origins, sources)| DeclaredSet { desired, origins, sources };
        let before = set((&before.0, &before.1, &before.2));
        let after = set((&after.0, &after.1, &after.2));
        let mut lines = Vec::new();
        for DeclarationDifference { guest, name, change, keys } in difference(before, after) {
            lines.push(format!("{} {guest} {name}", change.as_str()).trim_end().to_owned());
            for DeclaredChange { key, before, after, removed, added, origin } in keys {
                let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                let before = or_none(before);
                let after = or_none(after);
                lines.push(format!("  {key}: {before} -> {after} @{}", or_none(origin)));
                lines.extend(removed.iter().map(|entry| format!("    - {entry}")));
                lines.extend(added.iter().map(|entry| format!("    + {entry}")));
            }
        }
        lines
    }

    const WEB: &str = "[guest.101]\nkind = \"lxc\"\nhostname = \"web\"\ncores = 2\n";

    #[test]
    fn a_set_does_not_differ_from_itself() {
        assert!(told(WEB, WEB).is_empty());
        // Nor where only lines moved.
        assert!(told(WEB, &format!("# moved\n\n{WEB}")).is_empty());
    }

    #[test]
    fn a_changed_key_is_told_with_both_values_and_its_place() {
        let after =
            "[guest.101]\nkind = \"lxc\"\ncores = 4\nhostname = \"web\"\nrun = \"running\"\n";
        let expected = [
            "changed lxc/101 web",
            "  run: - -> \"running\" @web.toml:5",
            "  cores: 2 -> 4 @web.toml:3",
        ];
        assert_eq!(told(WEB, after), expected);
    }

    #[test]
    fn a_key_that_is_no_longer_said_is_not_a_key_that_must_be_absent() {
        let said = format!("{WEB}nameserver = \"10.0.0.1\"\n");
        let unset = format!("{WEB}unset = [\"nameserver\"]\n");
        let expected = ["changed lxc/101 web", "  nameserver: [\"10.0.0.1\"] -> - @web.toml:5"];
        assert_eq!(told(&said, WEB), expected);
        let expected =
            ["changed lxc/101 web", "  nameserver: [\"10.0.0.1\"] -> (unset) @web.toml:5"];
        assert_eq!(told(&said, &unset), expected);
    }

    #[test]
    fn z05_what_a_list_a_table_and_a_text_of_lines_gain_and_lose_is_told_entry_by_entry() {
        let guest = |tags: &str, net: &str, keys: &str| {
            format!(
                "[guest.200]\nkind = \"qemu\"\ntags = {tags}\nnet0 = {net}\ndescription = {keys}\n"
            )
        };
        let before = guest(
            "[\"a\", \"b\"]",
            "{ model = \"virtio\", bridge = \"vmbr0\", firewall = true }",
            "\"one\\ntwo\"",
        );
        let after = guest(
            "[\"b\", \"c\"]",
            "{ model = \"virtio\", bridge = \"vmbr9\" }",
            "\"one\\ntwo\\nthree\"",
        );
        let lines = told(&before, &after);
        let entries: Vec<&str> =
            lines.iter().map(String::as_str).filter(|line| line.starts_with("    ")).collect();
        let expected = [
            "    + \"three\"",
            "    - bridge = \"vmbr0\"",
            "    - firewall = true",
            "    + bridge = \"vmbr9\"",
            "    - \"a\"",
            "    + \"c\"",
        ];
        assert_eq!(entries, expected, "{lines:#?}");
    }

    #[test]
    fn a_guest_that_is_no_longer_declared_is_released_and_one_of_another_kind_is_another() {
        let machine = "[guest.101]\nkind = \"qemu\"\n";
        assert_eq!(told(WEB, "[guest.102]\nkind = \"lxc\"\n")[0], "released lxc/101 web");
        let expected =
            ["released lxc/101 web", "added qemu/101", "  kind: - -> \"qemu\" @web.toml:2"];
        assert_eq!(told(WEB, machine), expected);
    }

    #[test]
    fn a_wish_for_absence_is_told_as_a_change_of_state() {
        let absent = "[guest.101]\nkind = \"lxc\"\nstate = \"absent\"\n";
        let lines = told(WEB, absent);
        assert_eq!(lines[1], "  state: - -> \"absent\" @web.toml:3", "{lines:?}");
        assert!(lines.contains(&"  cores: 2 -> - @web.toml:4".to_owned()), "{lines:?}");
    }

    #[test]
    fn x17_a_secret_that_changes_is_told_and_never_shown() {
        let with = |secret: &str| {
            format!(
                "[guest.200]\nkind = \"lxc\"\nenv = [\"TOKEN={secret}\"]\n[guest.201]\nkind = \"lxc\"\n\
                 [guest.201.first]\npassword = {{ secret = \"{secret}\" }}\n"
            )
        };
        let lines = told(&with("marked-one"), &with("marked-two"));
        let text = lines.join("\n");
        assert!(text.contains(&format!("env: \"TOKEN={MASK}\" -> \"TOKEN={MASK}\"")), "{text}");
        assert!(text.contains("first: \"given\" -> \"given\""), "{text}");
        assert!(!text.contains("marked"), "{text}");
    }

    proptest! {
        /// What is told of one direction is told of the other, turned round.
        #[test]
        fn both_directions_tell_the_same(
            before in proptest::collection::btree_map(101_u32..104, 1_u32..4, 0..3),
            after in proptest::collection::btree_map(101_u32..104, 1_u32..4, 0..3),
        ) {
            let file = |guests: &BTreeMap<u32, u32>| {
                let one = |(vmid, cores)| format!("[guest.{vmid}]\nkind = \"lxc\"\ncores = {cores}\n");
                guests.iter().map(one).collect::<String>()
            };
            let changed = |lines: Vec<String>, word: &str| {
                lines.iter().filter(|line| line.starts_with(word)).count()
            };
            let there = || told(&file(&before), &file(&after));
            let back = || told(&file(&after), &file(&before));
            prop_assert_eq!(changed(there(), "added"), changed(back(), "released"));
            prop_assert_eq!(changed(there(), "changed"), changed(back(), "changed"));
            prop_assert_eq!(there().is_empty(), before == after);
        }
    }
}
