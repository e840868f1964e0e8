//! `evenkeel journal acknowledge`: an operator says that a rollback of the journal is known.
//!
//! With `--prepare` it writes what is to be signed, from what the journal itself says; without, it hands in what was signed,
//! exactly as `submit` does. It decides nothing.

use std::io::Write as _;

use evenkeel_agent::authority::Authority;
use evenkeel_agent::hub_link::memory::{self, FoundRollback};
use evenkeel_agent::plain_file;
use evenkeel_core::fleet::AcknowledgeStatement;
use evenkeel_core::sign::{
    ENVELOPE_BYTES_MAX, Envelope, HostBinding, Namespace, PublicKey, render,
};

use crate::cli::{AcknowledgeArgs, LocalArgs, SubmitArgs};
use crate::command::approvals;
use crate::command::without_agent::journal_state;
use crate::connect::{configuration_file, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::signing::{LIFE_DEFAULT_S, file, nonce, now, window};

pub(crate) async fn run(arguments: AcknowledgeArgs) -> Result<Exit, CommandFailure> {
    if arguments.prepare {
        return prepare(&arguments);
    }
    let text = file::read_text(&arguments.file, ENVELOPE_BYTES_MAX)?;
    let envelope = Envelope::parse(text.as_bytes())?;
    if envelope.claimed_namespace() != Some(Namespace::Acknowledge) {
        let message = format!("{} acknowledges no rollback", arguments.file);
        return Err(CommandFailure::new(Exit::Invalid, message)
            .hint("approvals and rotations are handed in with `evenkeel submit`"));
    }
    let AcknowledgeArgs { file, local: LocalArgs { place, output }, prepare: _, reason: _ } =
        arguments;
    approvals::submit(&SubmitArgs { place, file, wait: 60, yes: false, output }).await
}

/// A public key has some 100 bytes.
const KEY_BYTES_MAX: usize = 16 * 1024;

/// Writes what is to be signed. The heads are the journal's own word; whoever signs compares them with the hub's.
fn prepare(arguments: &AcknowledgeArgs) -> Result<Exit, CommandFailure> {
    let invalid = |message: String| CommandFailure::new(Exit::Invalid, message);
    let config = configuration_file(arguments.local.place.config.as_deref())?;
    let state = state_dir(arguments.local.place.state.as_deref(), &config);
    let nothing = || {
        CommandFailure::new(Exit::NotFound, "no rollback of this journal waits for anybody")
            .hint("`evenkeel status` says when one was found")
    };
    let journal = journal_state(&state)?.ok_or_else(nothing)?;
    let (Some(FoundRollback { anchored, found }), Some(floor)) =
        (memory::epoch(&journal).rollback, memory::floor(&journal))
    else {
        return Err(nothing());
    };
    let public = plain_file::read(&state.path().join("host_key.pub"), KEY_BYTES_MAX)?;
    let line = String::from_utf8_lossy(&public.bytes).into_owned();
    let key = PublicKey::from_line(line.trim_end())?.fingerprint();
    let id = match (&config.host_id, &config.pve.node) {
        (Some(id), _) => id.clone(),
        (None, Some(node)) => {
            node.as_str().parse().map_err(|_| invalid("`host_id` is not set".to_owned()))?
        }
        (None, None) => return Err(invalid("`host_id` is not set".to_owned())),
    };
    let host = HostBinding { id, key };
    let authority =
        Authority::load(Some(&config.trust.path()), host.clone(), &journal).map_err(|error| {
            let hint = error.hint();
            CommandFailure::wrapping(Exit::Invalid, error).hint(hint)
        })?;
    let Some(trust_version) = authority.version() else {
        return Err(invalid("nobody is enrolled on this host, so nobody can sign it".to_owned()));
    };
    let statement = AcknowledgeStatement {
        host,
        hub_id: floor.hub_id,
        anchored,
        found,
        nonce: nonce()?,
        window: window(now(), LIFE_DEFAULT_S)?,
        trust_version,
        reason: arguments.reason.clone().unwrap_or_default(),
    };
    let bytes = statement.to_bytes()?;
    file::write(&arguments.file, &bytes, false)?;
    let mut err = std::io::stderr();
    writeln!(err, "{}", render::any_statement(&bytes)?)?;
    writeln!(
        err,
        "compare the anchored head with the hub's, then: evenkeel sign {} --key KEY --out FILE",
        arguments.file
    )?;
    writeln!(err, "and on this host: evenkeel journal acknowledge FILE")?;
    Ok(Exit::Ok)
}
