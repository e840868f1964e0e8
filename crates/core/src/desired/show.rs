//! A declared guest printed back: the block that says it whole, whatever it inherited.
//!
//! Called by `evenkeel show`. Read again, the block gives the same declaration, so it can stand in place of everything it
//! was made from; only secrets are masked, and then it cannot. It says nothing of where a value comes from: the caller
//! asks [`super::Origins`] by the subject of each line.

use super::{
    CloneSource, DeclaredField, DeclaredGuest, FirstUse, GuestSource, ReconcileMode, Run, Spec,
    StopMode, WantedState,
};
use crate::model::secret;
use crate::registry::KeyRef;
use crate::value::spell::{PartChoice, list, quoted, spelled};
use crate::value::{Property, Value};

/// What stands for `first`, which is shown nowhere.
const GIVEN: &str = "given";

/// A block of a desired file, in TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestBlock {
    /// `[guest.101]`.
    pub heading: String,
    /// What stands under it.
    pub lines: Vec<BlockLine>,
    /// A secret in it is masked, so that it does not say what was declared.
    pub is_masked: bool,
}

/// One assignment. Its text may have several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLine {
    /// `cores = 2`.
    pub text: String,
    /// What it is about.
    pub subjects: Vec<LineSubject>,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSubject {
    /// A word that is no configuration key.
    Word(&'static str),
    /// A key, set or unset.
    Key(KeyRef),
}

impl GuestBlock {
    /// The block of a guest.
    pub fn of(guest: &DeclaredGuest) -> Self {
        let heading = format!("[guest.{}]", guest.id.vmid);
        let mut block = Self { heading, lines: Vec::new(), is_masked: false };
        block.word("kind", &quoted(guest.id.kind.as_str()));
        if let WantedState::Absent { final_backup } = &guest.state {
            block.word("state", &quoted("absent"));
            if let Some(storage) = final_backup {
                block.word("final_backup", &quoted(storage.as_str()));
            }
        }
        if let WantedState::Bin(_) = &guest.state {
            block.word("state", &quoted("bin"));
        }
        if guest.mode == ReconcileMode::Observe {
            block.word("mode", &quoted("observe"));
        }
        if let WantedState::Present(spec) | WantedState::Bin(spec) = &guest.state {
            block.spec(spec);
        }
        block
    }

    /// The block as a file.
    pub fn toml(&self) -> String {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        format!("{}\n{}\n", self.heading, lines.join("\n"))
    }

    /// What stands under the heading, as JSON.
    pub fn json(&self) -> serde_json::Value {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        toml::from_str(&lines.join("\n")).expect("a block is valid TOML")
    }

    fn spec(&mut self, spec: &Spec) {
        let Spec { run, stop, source, first, scratch, template, ignore, fields } = spec;
        match run {
            Some(Run::Running) => self.word("run", &quoted("running")),
            Some(Run::Stopped) => self.word("run", &quoted("stopped")),
            None => {}
        }
        if *stop == StopMode::Force {
            self.word("stop", &quoted("force"));
        }
        if let Some(source) = source {
            self.word("source", &source_table(source));
        }
        if *first != FirstUse::default() {
            self.is_masked = true;
            self.word("first", &quoted(GIVEN));
        }
        for (word, on) in [("scratch", *scratch), ("template", *template)] {
            if on {
                self.word(word, "true");
            }
        }
        for DeclaredField { key, want } in fields {
            if let Some(value) = want {
                let text = format!("{key} = {}", self.value(*key, value));
                self.lines.push(BlockLine { text, subjects: vec![LineSubject::Key(*key)] });
            }
        }
        let unset: Vec<KeyRef> =
            fields.iter().filter(|field| field.want.is_none()).map(|field| field.key).collect();
        if !unset.is_empty() {
            let names: Vec<Box<str>> = unset.iter().map(|key| key.to_string().into()).collect();
            let text = format!("unset = {}", list(names.iter()));
            let subjects = unset.into_iter().map(LineSubject::Key).collect();
            self.lines.push(BlockLine { text, subjects });
        }
        let mut ignored: Vec<Box<str>> = ignore.run.then(|| "run".into()).into_iter().collect();
        ignored.extend(ignore.keys.iter().map(|ignored| match ignored.part {
            Some(part) => format!("{}.{part}", ignored.key).into(),
            None => Box::<str>::from(ignored.key.to_string()),
        }));
        if !ignored.is_empty() {
            self.word("ignore", &list(ignored.iter()));
        }
    }

    fn word(&mut self, word: &'static str, value: &str) {
        let text = format!("{word} = {value}");
        self.lines.push(BlockLine { text, subjects: vec![LineSubject::Word(word)] });
    }

    fn value(&mut self, key: KeyRef, value: &Value) -> String {
        if key.key().secret {
            self.is_masked = true;
            return quoted(&secret::shown(key.key(), value));
        }
        let clean = self.without_secret_parts(key, value);
        let spelled = spelled(&key.key().format, clean.as_ref().unwrap_or(value), PartChoice::All);
        if let Some(spelled) = spelled {
            return spelled.toml();
        }
        self.is_masked = true;
        quoted(secret::MASK)
    }

    fn without_secret_parts(&mut self, key: KeyRef, value: &Value) -> Option<Value> {
        let shape = key.key().format.shape()?;
        let property = value.as_property()?;
        let is_secret = |name: &str| shape.part(name).is_some_and(|part| part.secret);
        let secrets: Vec<&'static str> =
            property.parts().iter().map(|(name, _)| *name).filter(|name| is_secret(name)).collect();
        let mut clean: Property = property.clone();
        for part in &secrets {
            clean.set(part, Value::text(secret::MASK));
        }
        self.is_masked |= !secrets.is_empty();
        (!secrets.is_empty()).then_some(Value::Property(clean))
    }
}

/// The value of one key as a block shows it, with its secrets masked.
pub(super) fn shown_value(key: KeyRef, value: &Value) -> String {
    let mut block = GuestBlock { heading: String::new(), lines: Vec::new(), is_masked: false };
    block.value(key, value)
}

/// What a guest is made from, without what is meant anyway.
fn source_table(source: &GuestSource) -> String {
    let mut parts = Vec::new();
    match source {
        GuestSource::Empty => parts.push("empty = true".to_owned()),
        GuestSource::Template(volume) => {
            parts.push(format!("template = {}", quoted(volume.as_str())));
        }
        GuestSource::Image { volume, into } => {
            parts.push(format!("image = {}", quoted(volume.as_str())));
            parts.push(format!("into = {}", quoted(&into.to_string())));
        }
        GuestSource::Clone(CloneSource { guest, full, storage, snapshot }) => {
            parts.push(format!("clone = {guest}"));
            parts.extend((!full).then(|| "full = false".to_owned()));
            let storage =
                storage.as_ref().map(|name| format!("storage = {}", quoted(name.as_str())));
            parts.extend(storage);
            let name =
                snapshot.as_ref().map(|name| format!("snapshot = {}", quoted(name.as_str())));
            parts.extend(name);
        }
        GuestSource::Backup { volume, unique } => {
            parts.push(format!("backup = {}", quoted(volume.as_str())));
            parts.extend((!unique).then(|| "unique = false".to_owned()));
        }
    }
    format!("{{ {} }}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::load;
    use crate::words::diagnostic::Sources;

    fn block(text: &str) -> GuestBlock {
        let mut sources = Sources::default();
        sources.add("a.toml", text);
        let desired = load(&sources).unwrap_or_else(|errors| panic!("{errors:?} in {text}"));
        GuestBlock::of(desired.guests.values().next().unwrap())
    }

    #[test]
    fn what_a_guest_is_made_from_is_shown_without_what_is_meant_anyway() {
        for (kind, written, shown) in [
            ("qemu", "{}", "{ empty = true }"),
            ("qemu", "{ clone = 9000, full = true }", "{ clone = 9000 }"),
            (
                "lxc",
                "{ snapshot = \"gold\", storage = \"local-lvm\", clone = 9000 }",
                "{ clone = 9000, storage = \"local-lvm\", snapshot = \"gold\" }",
            ),
            ("qemu", "{ clone = 9000, full = false }", "{ clone = 9000, full = false }"),
            ("lxc", "{ backup = \"s1:backup/x\", unique = true }", "{ backup = \"s1:backup/x\" }"),
            (
                "lxc",
                "{ backup = \"s1:backup/x\", unique = false }",
                "{ backup = \"s1:backup/x\", unique = false }",
            ),
        ] {
            let toml =
                block(&format!("[guest.101]\nkind = \"{kind}\"\nsource = {written}\n")).toml();
            assert!(toml.ends_with(&format!("\nsource = {shown}\n")), "{toml}");
        }
    }

    #[test]
    fn x08_what_is_given_once_is_never_shown() {
        let shown = block(
            "[guest.120]\nkind = \"lxc\"\nscratch = true\ntemplate = true\n[guest.120.first]\n\
             ssh_keys = [\"ssh-ed25519 AAAAmarked marked\"]\npassword = { secret = \"marked\" }\n",
        );
        let toml = shown.toml();
        assert!(shown.is_masked && !toml.contains("marked"), "{toml}");
        assert_eq!(
            toml,
            "[guest.120]\nkind = \"lxc\"\nfirst = \"given\"\nscratch = true\ntemplate = true\n"
        );
        assert!(!block("[guest.120]\nkind = \"lxc\"\nfirst = {}\n").is_masked);
        let guest = format!("{:?}", FirstUse { ssh_keys: vec!["marked".into()], password: None });
        assert!(!guest.contains("marked"), "{guest}");
    }
}
