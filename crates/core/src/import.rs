//! From a guest as it is to the desired file that declares it so.
//!
//! Called by `evenkeel import`. A plan right after finds nothing to do: what is written is what the guest
//! has after its next restart, in the spelling people use, and every value is read back before it is
//! trusted. Left out are secrets, what PVE makes by itself (MAC addresses, UUIDs), what no token may set,
//! and values that cannot be read; a comment says so where a reader would miss them.

use std::fmt::Write as _;

use crate::actual::{ConfigField, Guest, Power, ValueReading};
use crate::registry::{Absent, Declarable, ValueFormat};
use crate::value::compare::{Conventions, Difference, difference};
use crate::value::spell::{PartChoice, spelled};
use crate::value::{Value, read};

/// The desired file of one guest, in TOML.
pub fn desired_file(guest: &Guest, conventions: Conventions) -> String {
    let mut text = format!("[guest.{}]\nkind = \"{}\"\n", guest.id.vmid, guest.id.kind);
    match guest.power {
        Power::Running => text.push_str("run = \"running\"\n"),
        Power::Stopped if !guest.template => text.push_str("run = \"stopped\"\n"),
        Power::Stopped | Power::Paused | Power::Unknown => {}
    }
    let config = match &guest.config {
        Ok(config) => config,
        Err(error) => {
            let why = one_line(&error.to_string());
            writeln!(text, "# its configuration could not be read: {why}").expect(INFALLIBLE);
            return text;
        }
    };
    for field in &config.fields {
        match line(field, guest, conventions) {
            FileLine::Declare(value) => writeln!(text, "{} = {value}", field.key),
            FileLine::Comment(why) => writeln!(text, "# {} is left out: {why}", field.key),
            FileLine::Nothing => Ok(()),
        }
        .expect(INFALLIBLE);
    }
    for key in &config.unknown {
        writeln!(text, "# {} is left out: evenkeel does not know this key", one_line(key))
            .expect(INFALLIBLE);
    }
    text
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// What becomes of one key.
enum FileLine {
    Declare(String),
    Comment(&'static str),
    Nothing,
}

fn line(field: &ConfigField, guest: &Guest, conventions: Conventions) -> FileLine {
    let key = field.key.key();
    let Some(ValueReading { text, value }) = field.after_restart() else {
        return FileLine::Nothing;
    };
    match (key.declared, key.absent, &key.format) {
        (Declarable::RootOnly, _, _) => return FileLine::Comment("only root@pam can set it"),
        _ if key.secret => return FileLine::Comment("it may hold a secret"),
        (Declarable::No(_), _, _) => return FileLine::Nothing,
        (Declarable::Yes | Declarable::AtCreation, Absent::ServerFilled, ValueFormat::Boot) => {}
        (Declarable::Yes | Declarable::AtCreation, Absent::ServerFilled, _) => {
            return FileLine::Nothing;
        }
        (Declarable::Yes | Declarable::AtCreation, _, _) => {}
    }
    let differs = |want: Option<&Value>| {
        difference(key, guest.id.vmid, want, Some(value), conventions) != Difference::Same
    };
    if !differs(None) && key.absent != Absent::ServerFilled {
        // What absence says need not be said.
        return FileLine::Nothing;
    }
    // The file will be read by the strict reader: a value that would not come back the same is left alone.
    match read::declared(&key.format, text) {
        Ok(declared) if !differs(Some(&declared)) => {}
        Ok(_) | Err(_) => return FileLine::Comment("its value is not one that can be declared"),
    }
    spelled(&key.format, value, PartChoice::Compared)
        .map_or(FileLine::Comment("its value cannot be written as text"), FileLine::Declare)
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actual::{ConfigEntry, GuestConfig};
    use crate::id::{GuestId, GuestKind};

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
            config: Ok(GuestConfig::from_pending(kind, entries)),
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
        insta::assert_snapshot!(desired_file(&guest, Conventions::default()), @r#"
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

    #[test]
    fn no_secret_is_written() {
        let text = desired_file(
            &guest(GuestKind::Qemu, &[("cipassword", "**********", None), ("ciuser", "me", None)]),
            Conventions::default(),
        );
        assert!(!text.contains("**") && text.contains("ciuser = \"me\""), "{text}");
    }
}
