//! Whether a trust file is one that this host's agent was started with: then no key is written into it any more.
//!
//! The agent starts with the file it knows or with one of a higher version. A key that was added to the known one would
//! keep it from starting, so `signers enrol` refuses and prints the rotation that brings the key in.

use std::path::Path;

use camino::Utf8Path;
use evenkeel_agent::authority::{StartedTrust, started_trust};
use evenkeel_agent::config::AgentConfig;
use evenkeel_core::sign::{Role, Signer, TrustedSigners, trust_file};
use evenkeel_core::words::diagnostic::{FileId, SourceFile};

use super::super::without_agent::journal_state;
use crate::cli::EnrolArgs;
use crate::command::enrol::host_id;
use crate::connect::{configuration_file, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::signing::keygen::quoted;

/// Refuses where the agent of this host would not start with the file after one more signer.
pub(super) fn refuse(
    arguments: &EnrolArgs,
    text: &str,
    signer: &Signer,
) -> Result<(), CommandFailure> {
    let config = match configuration_file(arguments.place.config.as_deref()) {
        // Signers may be enrolled before the agent is configured.
        Err(failure) if failure.exit == Exit::NotFound => AgentConfig::default(),
        config => config?,
    };
    let state = state_dir(arguments.place.state.as_deref(), &config);
    let is_own = is_same(arguments.trust.as_std_path(), &config.trust.path());
    let journal = match journal_state(&state) {
        Ok(journal) => journal,
        // No agent ever started here, or the file is prepared for another host.
        Err(failure) if !is_own || failure.exit == Exit::NotFound => None,
        Err(failure) => return Err(failure),
    };
    let started = journal.as_ref().map(started_trust).transpose().map_err(|error| {
        let hint = error.hint();
        CommandFailure::wrapping(Exit::Invalid, error).hint(hint)
    })?;
    let Some(StartedTrust { version: _, head, newest }) = started.flatten() else { return Ok(()) };
    let source = SourceFile::new(FileId(0), arguments.trust.as_str(), text);
    let Ok(file) = trust_file::parse(&source) else { return Ok(()) };
    let version = file.version;
    let signers = file.signers;
    let is_the_one =
        TrustedSigners::genesis(version, signers).is_ok_and(|trust| trust.head() == head);
    if version > newest || !(is_own || is_the_one) {
        return Ok(());
    }
    let path = &arguments.trust;
    let message = format!(
        "{} was not enrolled: the agent of this host was started with {path}, and would not start with another of \
         version {version}",
        signer.name
    );
    let host = host_id(&config).map_or_else(|_| "HOST".to_owned(), |id| id.to_string());
    let rotation = rotation(&host, signer, &arguments.key, path);
    let since = if newest > version {
        "; add --rotation FILE for every rotation since, in order"
    } else {
        ""
    };
    Err(CommandFailure::new(Exit::Failed, message).hint(format!(
        "bring the key in by a rotation: {rotation}; then `evenkeel submit rotation.json` on the host{since}"
    )))
}

/// The command that brings the key in. Recovery keys change by a recovery only.
fn rotation(host: &str, signer: &Signer, key: &Utf8Path, trust: &Utf8Path) -> String {
    let (verb, flag, by) = match signer.role {
        Role::Operational => ("rotate", "--add", "OPERATIONAL_KEY"),
        Role::Author => ("rotate", "--add-author", "OPERATIONAL_KEY"),
        Role::Recovery => ("recover", "--add-recovery", "RECOVERY_KEY"),
    };
    let added = quoted(&format!("{}={key}", signer.name));
    let trust = quoted(trust.as_str());
    format!(
        "evenkeel signers {verb} --host {host} {flag} {added} --trust {trust} --key {by} --out rotation.json"
    )
}

/// Whether two paths lead to one file, whatever they are called.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}
