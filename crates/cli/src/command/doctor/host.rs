//! What `doctor` finds on this machine: state directory, journal, freeze, signers, clock, desired files, secrets.
//!
//! Only reads, takes no lock, and makes nothing: it is run before there is anything, too.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use evenkeel_agent::ambient::{Ambient as _, Machine};
use evenkeel_agent::authority::read_trust_file;
use evenkeel_agent::config::AgentConfig;
use evenkeel_agent::daemon::status::operations;
use evenkeel_agent::freeze::frozen_by;
use evenkeel_agent::hub_link::memory;
use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::source::dir::{DirError, load_believed};
use evenkeel_agent::state_dir::{StateDir, this_machine};
use evenkeel_core::desired::{Desired, WantedState};
use evenkeel_core::fleet::stale_word;
use evenkeel_core::operate::operation::UnixSeconds;

use super::findings::Findings;
use crate::render::counted;
use crate::render::status::frozen;

/// Everything but the desired files.
pub(super) fn check(config: &AgentConfig, state: &StateDir, findings: &mut Findings) {
    state_directory(state, findings);
    journal(config, state, findings);
    if state.is_frozen() {
        let why = frozen_by(state)
            .map_or_else(|| "its reason cannot be read".to_owned(), |by| frozen(&by));
        findings.warn("freeze", &format!("this host is frozen {why}"), "`evenkeel thaw` ends it");
    } else {
        findings.ok("freeze", "this host is not frozen".to_owned());
    }
    signers(config, findings);
    if Machine.synchronised() {
        findings.ok("clock", "the kernel says that this machine's clock is kept right".to_owned());
    } else {
        let what = "the kernel does not say that this machine's clock is kept right";
        let next = "run chrony or systemd-timesyncd; until then signed acts may be held as `clock`";
        findings.warn("clock", what, next);
    }
}

fn state_directory(state: &StateDir, findings: &mut Findings) {
    let path = state.path().display();
    let found = match std::fs::metadata(state.path()) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            findings.ok("state", format!("{path} is not there yet; the first start makes it"));
            return;
        }
        Err(error) => {
            let next = "run as its owner, or name another with --state";
            findings.fail("state", &format!("{path} cannot be looked at: {error}"), next);
            return;
        }
    };
    let uid = found.uid();
    let mode = found.mode() & 0o7777;
    let us = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        let next = "name a directory with --state or `dir` under [state]";
        findings.fail("state", &format!("{path} is not a directory"), next);
    } else if mode & 0o077 != 0 {
        let what = format!("{path} has mode {mode:04o}: others can look into it");
        findings.fail("state", &what, &format!("chmod 700 {path}"));
    } else if us != 0 && uid != us {
        let what = format!("{path} belongs to user {uid}, and you are {us}");
        findings.warn("state", &what, "run doctor as the user the agent runs as, or as root");
    } else {
        findings.ok("state", format!("{path}, of user {uid}, mode {mode:04o}"));
    }
}

fn journal(config: &AgentConfig, state: &StateDir, findings: &mut Findings) {
    let files = match ReadOnlyDirectory::open(state.journal()) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            findings.ok("journal", "there is none yet; the first start makes it".to_owned());
            return;
        }
        Err(error) => {
            let next = "run as its owner, or name another state directory with --state";
            findings.fail("journal", &format!("it cannot be read: {error}"), next);
            return;
        }
    };
    let (head, folded) = match verify::newest(&files) {
        Ok(Some(newest)) => newest,
        Ok(None) => {
            findings.ok("journal", "it is empty; the first start begins it".to_owned());
            return;
        }
        Err(error) => {
            let next =
                "`evenkeel journal verify` shows the place; docs/formats/journal.md tells more";
            findings.fail("journal", &error.to_string(), next);
            return;
        }
    };
    findings.ok("journal", format!("record {}, the newest segment is whole", head.seq.0));
    match (verify::machine(&files), this_machine()) {
        (Ok(Some(theirs)), Ok(ours)) if theirs != ours => {
            let what = "it was written on another machine, and no agent starts with it here";
            let next = "give each machine a state directory of its own: never copy one";
            findings.fail("journal", what, next);
        }
        (_, Err(error)) => {
            let what = format!("this machine has no id: {error}");
            findings.fail("journal", &what, "systemd-machine-id-setup makes one");
        }
        (Ok(_) | Err(_), Ok(_)) => {}
    }
    if let Some(within) = config.desired.fresh_within_s {
        let now = UnixSeconds(u64::try_from(Machine.now().as_second()).unwrap_or_default());
        match stale_word(memory::author_word(&folded).as_ref(), within, now) {
            Some(why) => {
                let next = "ask the author; `evenkeel fleet push` of what is there signs it anew";
                findings.warn("hub", &why, next);
            }
            None => {
                findings.ok("hub", "an author signed a document for this host lately".to_owned());
            }
        }
    }
    let open = operations(&folded);
    let unknown = open.iter().filter(|operation| operation.unknown.is_some()).count();
    if unknown > 0 {
        let what = format!("{} of unknown outcome", counted(unknown, "operation"));
        findings.warn("journal", &what, "`evenkeel status` has the command that closes each");
    }
}

fn signers(config: &AgentConfig, findings: &mut Findings) {
    let path = config.trust.path();
    let path = path.display();
    match read_trust_file(&config.trust.path()) {
        Ok(Some(trust)) => {
            let signers = trust.signers().count();
            let version = trust.version();
            let what = format!("{} in {path}, version {version}", counted(signers, "signer"));
            findings.ok("signers", what);
        }
        Ok(None) => {
            let what = format!("nobody may sign: there is no {path}");
            let next = "destructive acts wait for ever; `evenkeel signers enrol` makes the lines";
            findings.warn("signers", &what, next);
        }
        Err(error) => {
            findings.fail("signers", &error.to_string(), &error.hint());
        }
    }
}

/// What is declared, read as the agent reads it; nothing if that cannot be used, or if there is nothing yet.
pub(super) fn desired(
    flag: Option<&camino::Utf8Path>,
    config: &AgentConfig,
    findings: &mut Findings,
) -> Desired {
    let named = flag.map(|path| path.as_std_path().to_owned());
    let Some(path) = named.clone().or_else(|| config.desired.dir.clone()) else {
        let next =
            "`evenkeel import --out DIR` writes the guests there are; name DIR with --desired";
        findings.ok("desired", "nothing is declared yet".to_owned());
        findings.advise(next);
        return Desired::default();
    };
    match load_believed(&path).map(|loaded| loaded.desired) {
        Ok(Ok(desired)) => {
            findings.ok("desired", format!("{} declared", counted(desired.guests.len(), "guest")));
            return desired;
        }
        Ok(Err(errors)) => {
            let what = format!("{} in the desired files", counted(errors.len(), "error"));
            let next = format!("`evenkeel validate {}` shows them", path.display());
            findings.fail("desired", &what, &next);
        }
        // Nobody has written any yet: that is how everybody begins.
        Err(DirError::NotFound(_) | DirError::Empty(_, _)) if named.is_none() => {
            let path = path.display();
            let next =
                format!("`evenkeel import --out {path}` writes those of the guests there are");
            findings.warn("desired", &format!("there are no desired files in {path} yet"), &next);
        }
        Err(error) => findings.fail("desired", &error.to_string(), &error.hint()),
    }
    Desired::default()
}

/// The secrets that new guests are given. A guest that is there needs none any more, so a missing one is a warning.
pub(super) fn secrets(desired: &Desired, config: &AgentConfig, findings: &mut Findings) {
    let store = config.secrets.store();
    let mut ready = 0;
    for guest in desired.guests.values() {
        let WantedState::Present(spec) = &guest.state else { continue };
        let Some(name) = &spec.first.password else { continue };
        match store.first_password(guest.id.vmid, name) {
            Ok(_) => ready += 1,
            Err(error) => {
                let what = format!("{} could not be given its password: {error}", guest.id);
                findings.warn("secrets", &what, &error.hint());
            }
        }
    }
    if ready > 0 {
        findings.ok("secrets", format!("{} for new guests ready", counted(ready, "password")));
    }
}
