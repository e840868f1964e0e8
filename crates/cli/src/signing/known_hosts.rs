//! The operator's own list of host keys: looked up before a host is believed, as ssh does.
//!
//! A host that is new is taken only by a person at a terminal who says yes to its fingerprint. A host
//! with another key than the pinned one is never taken.

use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::model::id::HostId;
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::pin::{self, PINS_BYTES_MAX, Pinned, Pins};
use evenkeel_core::sign::{Envelope, HostBinding, Namespace, PublicKey};

use super::file;
use super::keygen::quoted;
use super::offer::item_and_key;
use super::refusal::refused;
use crate::cli;
use crate::error::{CommandFailure, Exit};
use crate::terminal;

/// The file, read.
pub(crate) struct KnownHosts {
    path: Utf8PathBuf,
    text: String,
    pins: Pins,
}

/// Whose word an item is that a hub hands over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ItemProof {
    /// The pinned key of its host signed it.
    Verified,
    /// A key signed it, and no key of that host is pinned here.
    Unpinned(HostId),
    /// It is not from its host; why not.
    Forged(String),
}

impl KnownHosts {
    /// Reads the named file, or the one in the user's configuration, which need not be there.
    pub(crate) fn read(arguments: &cli::KnownHostsArgs) -> Result<Self, CommandFailure> {
        let path = match &arguments.known_hosts {
            Some(path) => path.clone(),
            None => default_path()?,
        };
        let text = if path.as_std_path().exists() {
            file::read_text(&path, PINS_BYTES_MAX)?
        } else {
            String::new()
        };
        let pins = Pins::parse(&text).map_err(|error| {
            CommandFailure::new(
                Exit::Invalid,
                format!("{path} is not a file of pinned hosts: {error}"),
            )
            .hint("correct the file; evenkeel uses nothing of it")
        })?;
        Ok(Self { path, text, pins })
    }

    /// The key pinned for a host.
    pub(crate) fn key_of(&self, host: &HostId) -> Result<&PublicKey, CommandFailure> {
        self.pins.get(host).ok_or_else(|| {
            let message = format!("the key of the host {host} is not pinned in {}", self.path);
            let hint = format!(
                "on the host, read host_key.pub in evenkeel's state directory; here: \
                 echo '{host} ssh-ed25519 AAAA…' >> {}",
                quoted(self.path.as_str())
            );
            CommandFailure::new(Exit::Denied, message).hint(hint)
        })
    }

    /// Goes on if this is the host's pinned key.
    pub(crate) fn demand(&self, host: &HostId, key: &PublicKey) -> Result<(), CommandFailure> {
        match self.pins.compare(host, key) {
            Pinned::Same => Ok(()),
            Pinned::Different => Err(self.different(host, key)),
            Pinned::Unknown => Err(self.unknown(host, key)),
        }
    }

    /// Goes on if this is the host's pinned key, or a person at a terminal says that it is the host's.
    pub(crate) fn demand_or_ask(
        &self,
        host: &HostId,
        key: &PublicKey,
    ) -> Result<(), CommandFailure> {
        match self.pins.compare(host, key) {
            Pinned::Unknown if terminal::is_there() => self.ask(host, key),
            Pinned::Same | Pinned::Different | Pinned::Unknown => self.demand(host, key),
        }
    }

    /// A statement names its host by a fingerprint, which no host vouches for: it must not be another
    /// key than the pinned one. A host that is not pinned is said to be so.
    pub(crate) fn compare(&self, host: &HostBinding) -> Result<(), CommandFailure> {
        match self.pins.get(&host.id) {
            Some(pinned) if pinned.fingerprint() == host.key => Ok(()),
            Some(_) => {
                let detail = format!("{} is pinned with another key than {}", host.id, host.key);
                Err(refused(&Refusal::new(ReasonCode::HostMismatch, detail)))
            }
            None => {
                let note = "is not pinned here, so evenkeel did not compare its key";
                writeln!(std::io::stderr(), "note: the host {} {note}\n", host.id)?;
                Ok(())
            }
        }
    }

    /// Whose word an item is, for a list or a look: signing demands more.
    pub(crate) fn proof_of(&self, envelope: &Envelope) -> ItemProof {
        if envelope.claimed_namespace() != Some(Namespace::Pending) {
            return ItemProof::Forged("it is not an item that a host signed".to_owned());
        }
        match item_and_key(envelope) {
            Err(refusal) => ItemProof::Forged(refusal.to_string()),
            Ok((item, key)) => match self.pins.compare(&item.host.id, &key) {
                Pinned::Same => ItemProof::Verified,
                Pinned::Unknown => ItemProof::Unpinned(item.host.id),
                Pinned::Different => {
                    let host = &item.host.id;
                    ItemProof::Forged(format!(
                        "it was signed by another key than the pinned one of {host}"
                    ))
                }
            },
        }
    }

    fn ask(&self, host: &HostId, key: &PublicKey) -> Result<(), CommandFailure> {
        writeln!(
            std::io::stderr(),
            "The host {host} is not known here. Its key is\n  {} {}\nOn the host, \
             `ssh-keygen -l -f host_key.pub` in evenkeel's state directory must show the same.",
            key.key_type(),
            key.fingerprint()
        )?;
        if !terminal::agrees("Is this the host's key?")? {
            return Err(self.unknown(host, key));
        }
        let text = pin::add(&self.text, host, key)
            .map_err(|error| CommandFailure::new(Exit::Denied, error.to_string()))?;
        if let Some(parent) = self.path.parent().filter(|parent| !parent.as_str().is_empty()) {
            fs_err::create_dir_all(parent.as_std_path())?;
        }
        file::write(&self.path, text.as_bytes(), true)?;
        writeln!(std::io::stderr(), "Pinned {host} in {}.", self.path)?;
        Ok(())
    }

    fn unknown(&self, host: &HostId, key: &PublicKey) -> CommandFailure {
        let message =
            format!("the host {host} is not known here; it signed with {}", key.fingerprint());
        let path = &self.path;
        let parent = path.parent().filter(|parent| !parent.as_str().is_empty());
        let make = parent.map(|parent| format!("mkdir -p {} && ", quoted(parent.as_str())));
        let hint = format!(
            "compare with `ssh-keygen -l -f host_key.pub` in evenkeel's state directory on the host; if it is \
             the same: {}echo '{host} {key}' >> {}",
            make.unwrap_or_default(),
            quoted(path.as_str())
        );
        CommandFailure::new(Exit::Denied, message).hint(hint)
    }

    fn different(&self, host: &HostId, key: &PublicKey) -> CommandFailure {
        let message = format!(
            "the host {host} is pinned with another key than {}, which signed this: someone may be \
             impersonating it",
            key.fingerprint()
        );
        let hint = format!(
            "do not sign; if the host was really reinstalled, remove its line from {} by hand",
            self.path
        );
        CommandFailure::new(Exit::Denied, message).hint(hint)
    }
}

fn default_path() -> Result<Utf8PathBuf, CommandFailure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(Utf8PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| Utf8Path::new(&home).join(".config")));
    let config = config.ok_or_else(|| {
        CommandFailure::new(Exit::Invalid, "evenkeel cannot find your file of pinned hosts")
            .hint("name the file with --known-hosts")
    })?;
    Ok(config.join("evenkeel/known_hosts"))
}
