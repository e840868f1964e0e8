//! From a guest as it is to the desired file that declares it so.
//!
//! Called by `evenkeel import`. A plan right after finds nothing to do: what is written is what the guest
//! has after its next restart, in the spelling people use, and every value is read back before it is
//! trusted. Left out are secrets, what PVE makes by itself (MAC addresses, UUIDs), what no token may set,
//! and values that cannot be read; a comment says so where a reader would miss them. What the guest was made from is at
//! most such a comment: nothing proves it, and a guest that is there needs none.

mod format;

pub use format::FileFormat;
use format::{FileLine, written};

use std::collections::BTreeSet;

use crate::actual::{ConfigField, Guest, GuestConfig, Power, ValueReading};
use crate::desired::syntax;
use crate::desired::tree::Tree;
use crate::model::id::VmId;
use crate::registry::{Absent, Declarable, Hazard, ValueFormat};
use crate::value::compare::{Conventions, Difference, difference};
use crate::value::spell::{PartChoice, SpelledValue, spelled};
use crate::value::{Value, read};
use crate::words::diagnostic::SourceFile;

/// The desired file of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredFile {
    /// Its text.
    pub text: String,
    /// What was left out and why, a sentence each; in a file that can have comments they say it too.
    pub left_out: Vec<String>,
}

/// The desired file of one guest, in a syntax.
pub fn desired_file(guest: &Guest, conventions: Conventions, format: FileFormat) -> DesiredFile {
    let text = |text: &str| SpelledValue::Text(text.to_owned());
    let mut lines = vec![FileLine::Declare("kind".to_owned(), text(guest.id.kind.as_str()))];
    match guest.power {
        Power::Running => lines.push(FileLine::Declare("run".to_owned(), text("running"))),
        Power::Stopped if !guest.template => {
            lines.push(FileLine::Declare("run".to_owned(), text("stopped")));
        }
        Power::Stopped | Power::Paused | Power::Unknown => {}
    }
    if guest.template {
        lines.push(FileLine::Declare("template".to_owned(), SpelledValue::Bool(true)));
    }
    match &guest.config {
        Ok(config) => {
            lines.extend(origin(config).map(FileLine::Comment));
            let fields = config.fields.iter();
            lines.extend(
                fields
                    .filter_map(|field| unused(field).or_else(|| line(field, guest, conventions))),
            );
            lines.extend(config.unknown.iter().map(|key| {
                let key = one_line(key);
                FileLine::Comment(format!("{key} is left out: evenkeel does not know this key"))
            }));
        }
        Err(error) => {
            let why = one_line(&error.to_string());
            lines.push(FileLine::Comment(format!("its configuration could not be read: {why}")));
        }
    }
    let left_out = lines.iter().filter_map(|line| match line {
        FileLine::Comment(why) => Some(why.clone()),
        FileLine::Declare(..) => None,
    });
    let left_out = left_out.collect();
    DesiredFile { text: written(guest.id, &lines, format), left_out }
}

/// What the names of its volumes tell of a guest's making: a linked clone stands on a volume of the template it was
/// copied from. Names can lie, and the template may be gone: it is told, never declared.
fn origin(config: &GuestConfig) -> Option<String> {
    let bases: BTreeSet<VmId> = config
        .fields
        .iter()
        .filter_map(|field| field.after_restart()?.value.as_property()?.volume()?.base_owner())
        .filter_map(|owner| owner.parse().ok())
        .collect();
    let [base] = Vec::from_iter(bases)[..] else { return None };
    Some(format!(
        "a linked clone of {base}, by its volumes: source = {{ clone = {base}, full = false }}"
    ))
}

/// The numbers of the guests a desired file speaks of, as far as it can be read at all, and whether it says anything
/// else.
pub fn spoken_of(file: &SourceFile) -> (Vec<VmId>, bool) {
    let Ok(top) = syntax::parse(file) else {
        return (Vec::new(), true);
    };
    let Tree::Table(entries) = &top.value else {
        return (Vec::new(), true);
    };
    let has_more = entries.iter().any(|entry| entry.key != "guest");
    let guests = top.entry("guest").map(|entry| &entry.value.value);
    let Some(Tree::Table(guests)) = guests else {
        return (Vec::new(), has_more || guests.is_some());
    };
    let numbers = guests.iter().filter_map(|entry| entry.key.parse().ok()).collect();
    (numbers, has_more)
}

/// A detached volume, which nobody declares and somebody may have forgotten.
fn unused(field: &ConfigField) -> Option<FileLine> {
    let volume = field.after_restart()?.value.as_property()?.volume()?.volid()?;
    let is_unused = field.key.key().hazard == Hazard::UnusedVolume;
    is_unused
        .then(|| FileLine::Comment(format!("{} keeps {volume}, which no slot uses", field.key)))
}

/// What becomes of one key; none if it need not be said.
fn line(field: &ConfigField, guest: &Guest, conventions: Conventions) -> Option<FileLine> {
    let key = field.key.key();
    let ValueReading { text, value } = field.after_restart()?;
    let left_out = |why: &str| Some(FileLine::Comment(format!("{} is left out: {why}", field.key)));
    match (key.declared, key.absent, &key.format) {
        (Declarable::RootOnly, _, _) => return left_out("only root@pam can set it"),
        _ if key.secret => return left_out("it may hold a secret"),
        (Declarable::No(_), _, _) => return None,
        (Declarable::Yes | Declarable::AtCreation, Absent::ServerFilled, ValueFormat::Boot) => {}
        (Declarable::Yes | Declarable::AtCreation, Absent::ServerFilled, _) => return None,
        (Declarable::Yes | Declarable::AtCreation, _, _) => {}
    }
    let differs = |want: Option<&Value>| {
        difference(key, guest.id.vmid, want, Some(value), conventions) != Difference::Same
    };
    if !differs(None) && key.absent != Absent::ServerFilled {
        // What absence says need not be said.
        return None;
    }
    // The file will be read by the strict reader: a value that would not come back the same is left alone.
    match read::declared(&key.format, text) {
        Ok(declared) if !differs(Some(&declared)) => {}
        Ok(_) | Err(_) => return left_out("its value is not one that can be declared"),
    }
    match spelled(&key.format, value, PartChoice::Compared) {
        Some(value) => Some(FileLine::Declare(field.key.to_string(), value)),
        None => left_out("its value cannot be written as text"),
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::ConfigEntry;
    use crate::model::id::{GuestId, GuestKind};

    fn guest(kind: GuestKind, entries: &[(&str, &str, Option<&str>)]) -> Guest {
        let entries = entries.iter().map(|(key, value, pending)| ConfigEntry {
            key: (*key).into(),
            value: Some((*value).into()),
            pending: pending.map(Into::into),
            delete: 0,
        });
        Guest {
            id: GuestId::new(kind, 101.try_into().unwrap()),
            power: Power::Running,
            template: false,
            ha: None,
            lock: None,
            config: Ok(GuestConfig::from_pending(kind, entries).into()),
        }
    }

    #[test]
    fn a_container_is_written_as_a_person_would() {
        let guest = guest(
            GuestKind::Lxc,
            &[
                ("memory", "2048", None),
                ("description", "front \"end\"\nsecond\n", None),
                ("tags", "web;prod", None),
                ("net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth", None),
                ("rootfs", "local-lvm:vm-101-disk-0,size=8G", None),
                ("mp0", "local-lvm:vm-101-disk-1,mp=/srv,backup=1,size=1536M", None),
                ("nameserver", "1.1.1.1", Some("9.9.9.9 1.1.1.1")),
                ("onboot", "0", None),
                ("hookscript", "local:snippets/x.sh", None),
                ("env", "TOKEN=geheim", None),
                ("cores", "99999", None),
                ("zz9", "1", None),
            ],
        );
        insta::assert_snapshot!(desired_file(&guest, Conventions::default(), FileFormat::Toml).text, @r#"
        [guest.101]
        kind = "lxc"
        run = "running"
        # cores is left out: its value is not one that can be declared
        description = """
        front "end"
        second"""
        # env is left out: it may hold a secret
        # hookscript is left out: only root@pam can set it
        memory = "2GiB"
        mp0 = { storage = "local-lvm", size = "1536MiB", mp = "/srv", backup = true }
        nameserver = ["9.9.9.9", "1.1.1.1"]
        net0 = { name = "eth0", bridge = "vmbr0", ip = "dhcp" }
        rootfs = { storage = "local-lvm", size = "8GiB" }
        tags = ["prod", "web"]
        # zz9 is left out: evenkeel does not know this key
        "#);
    }

    /// Whatever the syntax, the file is read back to the same declaration.
    #[test]
    fn all_three_syntaxes_say_the_same() {
        let guest = guest(
            GuestKind::Lxc,
            &[
                ("memory", "2048", None),
                ("cpulimit", "1.5", None),
                ("description", "front \"end\": # no comment\nsecond, {x} [y] & *z\ttab", None),
                ("hostname", "no", None),
                ("tags", "on;off;y;1e3;prod", None),
                ("net0", "name=eth0,bridge=vmbr0,ip=10.0.0.2/24", None),
                ("rootfs", "local-lvm:vm-101-disk-0,size=8G", None),
                ("env", "TOKEN=geheim", None),
            ],
        );
        let loaded = [FileFormat::Toml, FileFormat::Yaml, FileFormat::Json].map(|format| {
            let file = desired_file(&guest, Conventions::default(), format);
            assert_eq!(file.left_out, ["env is left out: it may hold a secret"]);
            let mut sources = crate::words::diagnostic::Sources::default();
            sources.add(format!("a.{}", format.ending()), file.text.clone());
            crate::desired::load(&sources)
                .unwrap_or_else(|errors| panic!("{errors:?} in\n{}", file.text))
        });
        assert_eq!(loaded[0], loaded[1]);
        assert_eq!(loaded[0], loaded[2]);
    }

    #[test]
    fn a_guest_in_yaml_and_json_reads_as_a_person_would_write_it() {
        let guest = guest(
            GuestKind::Lxc,
            &[("memory", "2048", None), ("net0", "name=eth0,bridge=vmbr0", None)],
        );
        let told = |format| desired_file(&guest, Conventions::default(), format).text;
        assert_eq!(
            told(FileFormat::Yaml),
            "guest:\n  101:\n    kind: lxc\n    run: running\n    memory: \"2GiB\"\n    \
             net0: { name: eth0, bridge: vmbr0 }\n"
        );
        assert_eq!(
            told(FileFormat::Json),
            "{\n  \"guest\": {\n    \"101\": {\n      \"kind\": \"lxc\",\n      \"run\": \"running\",\n      \
             \"memory\": \"2GiB\",\n      \"net0\": { \"name\": \"eth0\", \"bridge\": \"vmbr0\" }\n    }\n  }\n}\n"
        );
    }

    #[test]
    fn a_template_is_declared_as_one_and_a_linked_clone_only_told() {
        for (volume, told) in [
            ("tank:base-9000-disk-0/vm-101-disk-0", true),
            ("local:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2", true),
            ("tank:vm-101-disk-0", false),
            ("tank:base-101-disk-0", false),
        ] {
            let text = format!("{volume},size=8G");
            let mut guest = guest(GuestKind::Qemu, &[("scsi0", &text, None)]);
            (guest.power, guest.template) = (Power::Stopped, volume.ends_with(":base-101-disk-0"));
            let file = desired_file(&guest, Conventions::default(), FileFormat::Toml);
            let comment = "# a linked clone of 9000, by its volumes: source = { clone = 9000, full = false }\n";
            assert_eq!(file.text.contains(comment), told, "{}", file.text);
            assert_eq!(file.left_out.len(), usize::from(told));
            assert_eq!(file.text.contains("\ntemplate = true\n"), guest.template, "{}", file.text);
            let mut sources = crate::words::diagnostic::Sources::default();
            sources.add("a.toml", file.text.clone());
            let declared = crate::desired::load(&sources).unwrap();
            let declared = declared.guests.values().next().unwrap();
            let crate::desired::WantedState::Present(spec) = &declared.state else { panic!() };
            assert_eq!((&spec.source, spec.template), (&None, guest.template));
        }
    }

    #[test]
    fn no_secret_is_written() {
        let text = desired_file(
            &guest(GuestKind::Qemu, &[("cipassword", "**********", None), ("ciuser", "me", None)]),
            Conventions::default(),
            FileFormat::Toml,
        )
        .text;
        assert!(!text.contains("**") && text.contains("ciuser = \"me\""), "{text}");
    }
}
