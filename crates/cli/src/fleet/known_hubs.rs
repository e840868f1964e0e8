//! The person's own list of hubs: which id and which certificate each had at the first login, as ssh keeps `known_hosts`.
//!
//! One line a hub: its origin, its id, and what proves it: the fingerprint of its certificate, `ca=FILE`, or `-` where an
//! authority of this system vouches for it. A hub that is new is taken only by a person who says yes or brought its
//! fingerprint. One that changed is never taken.

use std::fmt::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_agent::pve::tls::{CertFingerprint, TlsTrust};
use evenkeel_core::fleet::HubId;

use super::place::config_dir;
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest file that is read: thousands of hubs.
const KNOWN_HUBS_BYTES_MAX: usize = 1024 * 1024;

/// What stands for a certificate that an authority of this system vouches for.
const BY_SYSTEM: &str = "-";

/// What stands before the file of another authority.
const BY_FILE: &str = "ca=";

/// What proves that a hub is the one that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HubProof {
    /// An authority of this system.
    System,
    /// An authority in a file.
    AuthorityFile(Utf8PathBuf),
    /// Its certificate itself.
    Certificate(CertFingerprint),
}

impl HubProof {
    /// The same for a handshake.
    pub(crate) fn trust(&self) -> Result<TlsTrust, CommandFailure> {
        match self {
            Self::System => Ok(TlsTrust::Platform),
            Self::Certificate(pinned) => Ok(TlsTrust::Pinned(vec![*pinned])),
            Self::AuthorityFile(path) => {
                TlsTrust::from_ca_file(path.as_std_path()).map_err(|error| {
                    CommandFailure::wrapping(Exit::Invalid, error)
                        .hint("name a PEM file with --ca-file that only you and root can write")
                })
            }
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == BY_SYSTEM {
            return Ok(Self::System);
        }
        if let Some(path) = text.strip_prefix(BY_FILE) {
            return Ok(Self::AuthorityFile(path.into()));
        }
        text.parse().map(Self::Certificate).map_err(|error| format!("{error}"))
    }
}

impl std::fmt::Display for HubProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System => f.write_str(BY_SYSTEM),
            Self::AuthorityFile(path) => write!(f, "{BY_FILE}{path}"),
            Self::Certificate(print) => print.fmt(f),
        }
    }
}

/// A hub as it was at the first login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownHub {
    pub(crate) origin: String,
    pub(crate) hub_id: HubId,
    pub(crate) proof: HubProof,
}

/// The file, read.
#[derive(Debug)]
pub(crate) struct KnownHubs {
    path: Utf8PathBuf,
    hubs: Vec<KnownHub>,
}

impl KnownHubs {
    /// Reads the file in the user's configuration, which need not be there.
    pub(crate) fn read() -> Result<Self, CommandFailure> {
        Self::read_from(config_dir()?.join("known_hubs"))
    }

    fn read_from(path: Utf8PathBuf) -> Result<Self, CommandFailure> {
        let text = if path.as_std_path().exists() {
            file::read_text(&path, KNOWN_HUBS_BYTES_MAX)?
        } else {
            String::new()
        };
        let hubs = parse(&text).map_err(|why| {
            CommandFailure::new(Exit::Invalid, format!("{path} is not a file of known hubs: {why}"))
                .hint("correct the file; evenkeel uses nothing of it")
        })?;
        Ok(Self { path, hubs })
    }

    /// What is known of a hub.
    pub(crate) fn get(&self, origin: &str) -> Option<&KnownHub> {
        self.hubs.iter().find(|hub| hub.origin == origin)
    }

    /// Goes on if the hub has the id it had at the first login, or none is known yet.
    pub(crate) fn demand(&self, origin: &str, hub_id: &HubId) -> Result<(), CommandFailure> {
        match self.get(origin) {
            Some(known) if known.hub_id != *hub_id => {
                let message = format!(
                    "the hub at {origin} says it is {hub_id}, and it was {} before: someone may be \
                     impersonating it",
                    known.hub_id
                );
                Err(CommandFailure::new(Exit::Denied, message).hint(self.forget(origin)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What to do about a hub that was really set up anew.
    pub(crate) fn forget(&self, origin: &str) -> String {
        format!(
            "do not log in; if the hub was really set up anew, remove the line of {origin} from {} by hand",
            self.path
        )
    }

    /// Adds a hub that was not known.
    pub(crate) fn add(&mut self, hub: KnownHub) -> Result<(), CommandFailure> {
        if self.get(&hub.origin).is_some() {
            return Ok(());
        }
        self.hubs.push(hub);
        if let Some(parent) = self.path.parent() {
            fs_err::create_dir_all(parent.as_std_path())?;
        }
        file::write(&self.path, print(&self.hubs).as_bytes(), true)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Utf8Path {
        &self.path
    }
}

fn parse(text: &str) -> Result<Vec<KnownHub>, String> {
    let mut hubs: Vec<KnownHub> = Vec::new();
    for (place, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = |why: &str| format!("line {}: {why}", place + 1);
        // A file's name may hold blanks, so that the last word is the rest of the line.
        let mut words = line.splitn(3, ' ');
        let (Some(origin), Some(hub_id), Some(proof)) = (words.next(), words.next(), words.next())
        else {
            return Err(refuse("a line is an origin, a hub's id and a fingerprint, ca=FILE or -"));
        };
        if hubs.iter().any(|hub| hub.origin == origin) {
            return Err(refuse("the hub stands twice"));
        }
        let hub_id = hub_id.parse().map_err(|error| refuse(&format!("{error}")))?;
        let proof = HubProof::parse(proof).map_err(|why| refuse(&why))?;
        hubs.push(KnownHub { origin: origin.to_owned(), hub_id, proof });
    }
    Ok(hubs)
}

fn print(hubs: &[KnownHub]) -> String {
    let mut text = String::new();
    for KnownHub { origin, hub_id, proof } in hubs {
        writeln!(text, "{origin} {hub_id} {proof}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(origin: &str, digit: &str, proof: HubProof) -> KnownHub {
        KnownHub { origin: origin.to_owned(), hub_id: digit.repeat(32).parse().unwrap(), proof }
    }

    fn pinned() -> HubProof {
        HubProof::Certificate(CertFingerprint::of(b"certificate"))
    }

    #[test]
    fn what_is_known_reads_back_and_a_hub_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("new/known_hubs")).unwrap();
        let mut known = KnownHubs::read_from(path.clone()).unwrap();
        let hubs = [
            hub("https://a:1", "a", pinned()),
            hub("https://b:2", "b", HubProof::System),
            hub("https://c:3", "c", HubProof::AuthorityFile("/etc/my ca.pem".into())),
        ];
        for hub in &hubs {
            known.add(hub.clone()).unwrap();
        }
        known.add(hub("https://a:1", "d", HubProof::System)).unwrap();
        let known = KnownHubs::read_from(path).unwrap();
        assert_eq!(known.hubs, hubs);
    }

    #[test]
    fn a_hub_with_another_id_than_at_the_first_login_is_refused() {
        let known =
            KnownHubs { path: "known_hubs".into(), hubs: vec![hub("https://a:1", "a", pinned())] };
        assert!(known.demand("https://a:1", &"a".repeat(32).parse().unwrap()).is_ok());
        assert!(known.demand("https://new:1", &"b".repeat(32).parse().unwrap()).is_ok());
        let failure = known.demand("https://a:1", &"b".repeat(32).parse().unwrap()).unwrap_err();
        assert_eq!(failure.exit, Exit::Denied);
    }

    #[test]
    fn a_file_with_a_line_that_cannot_be_read_is_refused_whole() {
        let id = "a".repeat(32);
        for text in [
            "https://a:1".to_owned(),
            format!("https://a:1 {id}"),
            format!("https://a:1 {id} AA:BB"),
            format!("https://a:1 {} -", &id[1..]),
            format!("https://a:1 {id} -\nhttps://a:1 {id} -"),
        ] {
            assert!(parse(&text).is_err(), "{text}");
        }
        assert_eq!(parse(&format!("# mine\n\nhttps://a:1 {id} -\n")).unwrap().len(), 1);
    }
}
