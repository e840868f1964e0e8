//! Pinned host keys: an operator's own list of which host has which key, as ssh keeps `known_hosts`.
//!
//! One line a host: its id, a blank, its public key. The command line looks a host up before it believes
//! a pending item, and adds a line when a person at a terminal says yes. Pure text in, text out; a file
//! with a line that cannot be read is refused whole, so that no pin is lost silently.

use std::collections::BTreeMap;

use super::key::PublicKey;
use crate::model::id::HostId;

/// The largest pin file read: thousands of hosts.
pub const PINS_BYTES_MAX: usize = 1024 * 1024;

/// The pins of one operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<HostId, PublicKey>);

/// What the pins say of a host's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// It is the one that was pinned.
    Same,
    /// Another one was pinned: stop.
    Different,
    /// The host is new: ask a person.
    Unknown,
}

/// Why a pin file or a new pin is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// It is too large.
    #[error("a file of pinned hosts has at most {PINS_BYTES_MAX} bytes")]
    TooLarge,
    /// A line cannot be read.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// The host has another key already.
    #[error(
        "the host {0} is pinned with another key; if its key was really changed, remove that line \
         by hand"
    )]
    Different(HostId),
}

impl Pins {
    /// Reads a pin file. Empty lines and lines that begin with `#` mean nothing.
    pub fn parse(text: &str) -> Result<Self, PinError> {
        if text.len() > PINS_BYTES_MAX {
            return Err(PinError::TooLarge);
        }
        let mut pins = BTreeMap::new();
        for (place, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refuse = |why: String| PinError::Line { line: place + 1, why };
            let Some((host, key)) = line.split_once(' ') else {
                return Err(refuse("a line is a host id, a blank and a public key".to_owned()));
            };
            let host: HostId = host.parse().map_err(|error| refuse(format!("{error}")))?;
            let key = PublicKey::from_line(key).map_err(|refusal| refuse(refusal.detail))?;
            if pins.contains_key(&host) {
                return Err(refuse(format!("the host {host} stands twice")));
            }
            pins.insert(host, key);
        }
        Ok(Self(pins))
    }

    /// What is pinned for a host.
    pub fn get(&self, host: &HostId) -> Option<&PublicKey> {
        self.0.get(host)
    }

    /// Whether a host has the key that was pinned.
    pub fn compare(&self, host: &HostId, key: &PublicKey) -> Pinned {
        match self.0.get(host) {
            None => Pinned::Unknown,
            Some(pinned) if pinned == key => Pinned::Same,
            Some(_) => Pinned::Different,
        }
    }
}

/// The text with one more pin at its end. A host that is pinned is never pinned anew by this.
pub fn add(text: &str, host: &HostId, key: &PublicKey) -> Result<String, PinError> {
    match Pins::parse(text)?.compare(host, key) {
        Pinned::Same => Ok(text.to_owned()),
        Pinned::Different => Err(PinError::Different(host.clone())),
        Pinned::Unknown => {
            let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            Ok(format!("{text}{newline}{host} {key}\n"))
        }
    }
}
