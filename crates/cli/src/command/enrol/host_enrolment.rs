//! One host enrols with one hub: host key, exchange, credential, floor. Called by `enrol` and by `setup --hub`.
//!
//! ```text
//!   as the owner of the state directory: lock the journal, read or make the host key
//!   as whoever runs us:                  ask the hub, write the credential for the agent alone
//!   as the owner again:                  the floor of the new enrolment goes into the journal
//! ```
//!
//! The token is in no message. The lock says that no agent runs: it would not hear of its new floor.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use camino::Utf8Path;
use evenkeel_agent::ambient::Machine;
use evenkeel_agent::effective_clock::wall;
use evenkeel_agent::host_key::HostKey;
use evenkeel_agent::hub_link::config::{HubConfig, HubConfigError};
use evenkeel_agent::hub_link::enrol::enrol;
use evenkeel_agent::hub_link::http::HubHttp;
use evenkeel_agent::hub_link::memory;
use evenkeel_agent::journal::Record;
use evenkeel_agent::state_dir::{StateDir, StateError};
use evenkeel_core::fleet::{DocumentFloor, HubId};
use evenkeel_core::model::id::HostId;
use evenkeel_core::sign::{HostBinding, PublicKey};
use rustix::process::geteuid;
use secrecy::SecretString;

use crate::agent_user::{as_owner, of_package};
use crate::atomic_file::{AtomicFile, FileMode};
use crate::error::{CommandFailure, Exit};
use crate::signing::file;
use crate::terminal;

/// A token has some 70 bytes.
const TOKEN_BYTES_MAX: usize = 1_024;

/// Where the packaged agent keeps its state.
const PACKAGED_STATE: &str = "/var/lib/evenkeel";

/// What is needed to enrol.
pub(in crate::command) struct HostEnrolment<'a> {
    pub(in crate::command) id: HostId,
    pub(in crate::command) hub: &'a HubConfig,
    pub(in crate::command) state: &'a StateDir,
    /// Whether a host that is enrolled already begins anew.
    pub(in crate::command) replace: bool,
}

/// A host that belongs to a fleet now.
pub(in crate::command) struct EnrolledHost {
    pub(in crate::command) host: HostBinding,
    pub(in crate::command) key: PublicKey,
    pub(in crate::command) hub_id: HubId,
}

impl EnrolledHost {
    /// The line by which an operator pins the host.
    pub(in crate::command) fn pin_line(&self) -> String {
        format!("{} {}", self.host.id, self.key)
    }

    /// What a person reads about it.
    pub(in crate::command) fn words(&self) -> String {
        format!(
            "{} is enrolled with the hub {}\nhost key: {}\noperators pin this key before they sign anything for this \
             host: in ~/.config/evenkeel/known_hosts\n{}\n",
            self.host.id,
            self.hub_id,
            self.host.key,
            self.pin_line()
        )
    }
}

impl HostEnrolment<'_> {
    /// Enrols the host. `token` is asked for once nothing else is in the way.
    pub(in crate::command) async fn carry_out(
        self,
        token: impl FnOnce() -> Result<SecretString, CommandFailure>,
    ) -> Result<EnrolledHost, CommandFailure> {
        let Self { id, hub, state, replace } = self;
        let url = hub.address()?;
        let trust = hub.trust()?;
        make_for_package(state)?;
        let (mut journal, key) = as_owner(state.path(), || {
            let journal = state.lock_journal(&Machine).map_err(not_locked)?;
            if let (Some(floor), false) = (memory::floor(journal.state()), replace) {
                return Err(enrolled_already(&floor));
            }
            let key = HostKey::load_or_create(state.path()).map_err(|error| {
                let hint = error.hint();
                CommandFailure::wrapping(Exit::Failed, error).hint(hint)
            })?;
            Ok((journal, key))
        })?;
        let before = memory::floor(journal.state());
        let host = HostBinding { id, key: key.public().fingerprint() };
        let exchange = HubHttp::new(url.clone(), &trust, None).map_err(HubConfigError::from)?;
        let answer = enrol(&exchange, &url, &key, host.clone(), &token()?).await?;
        write_credential(&hub.credential_path(), &answer.credential, state)?;
        let hub_id = answer.hub_id;
        let floor = match before {
            None => DocumentFloor::enrolled(hub_id.clone()),
            Some(before) => before.enrolled_again(hub_id.clone()),
        };
        as_owner(state.path(), move || {
            Ok(journal.append(Record::Kept(memory::floor_record(&floor)), wall(&Machine))?)
        })?;
        Ok(EnrolledHost { host, key: key.public().clone(), hub_id })
    }
}

/// The token of a file, or of stdin.
pub(in crate::command) fn read_token(
    file: Option<&Utf8Path>,
) -> Result<SecretString, CommandFailure> {
    let text = match file {
        Some(path) => file::read_text(path, TOKEN_BYTES_MAX)?,
        None => {
            if terminal::is_there() {
                writeln!(std::io::stderr(), "paste the token of `evenkeel fleet enrol-token`:")?;
                let mut line = String::new();
                std::io::stdin().read_line(&mut line)?;
                line
            } else {
                let mut text = String::new();
                std::io::stdin().take(TOKEN_BYTES_MAX as u64).read_to_string(&mut text)?;
                text
            }
        }
    };
    Ok(SecretString::from(text.trim().to_owned()))
}

/// On a node with the package: the state directory is made for the agent's user, not for root.
fn make_for_package(state: &StateDir) -> Result<(), CommandFailure> {
    let is_new = state.path() == Path::new(PACKAGED_STATE) && !state.path().exists();
    if !is_new || !geteuid().is_root() {
        return Ok(());
    }
    let Some((user, group)) = of_package() else { return Ok(()) };
    state.create()?;
    Ok(fs_err::os::unix::fs::chown(state.path(), Some(user), Some(group))?)
}

fn not_locked(error: StateError) -> CommandFailure {
    match error {
        StateError::Busy(_) => CommandFailure::from(error).hint(
            "an agent runs here, and it reads its hub only when it starts: `systemctl stop evenkeel`, then this again",
        ),
        StateError::Directory { .. } | StateError::NoMachine(_) | StateError::Journal(_) => {
            error.into()
        }
    }
}

fn enrolled_already(floor: &DocumentFloor) -> CommandFailure {
    let message = format!("this host is enrolled already, with hub {}", floor.hub_id);
    CommandFailure::new(Exit::Failed, message).hint(
        "--replace enrols it again; the document in effect stays in effect, and the next one must be signed over it",
    )
}

/// Written beside, for the agent's user alone, synced, and only then under its name.
fn write_credential(path: &Path, credential: &str, state: &StateDir) -> Result<(), CommandFailure> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot write the credential to {}", path.display());
        let hint = "the token answers once more within its hour: name another --credential-file";
        CommandFailure::new(Exit::Failed, message).because(error).hint(hint)
    };
    let mut file = AtomicFile::with_mode(FileMode::Exactly(0o600));
    if geteuid().is_root() {
        let owner = std::fs::metadata(state.path()).map_err(cannot)?;
        file.owner = (Some(owner.uid()), Some(owner.gid()));
    }
    file.write(path, format!("{credential}\n").as_bytes()).map_err(cannot)
}
