//! `evenkeel signers list`: who may sign on this host now, or by a trust file and the rotations after it.
//!
//! This host's own answer is what its agent goes by: root's trust file and the chain of rotations in its journal,
//! verified. It takes no lock.

use std::fmt::Write as _;

use camino::Utf8Path;
use evenkeel_agent::authority::Authority;
use evenkeel_agent::config::AgentConfig;
use evenkeel_agent::daemon::client::ask;
use evenkeel_agent::daemon::protocol::{SocketAnswer, SocketRequest};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::selection::Selection;
use evenkeel_core::model::id::HostId;
use evenkeel_core::sign::{HostBinding, PublicKey, Signer, TrustedSigners, Validity, time};

use super::enrol::one_line;
use crate::cli::{ListArgs, OutputFormat, StatePlace};
use crate::command::without_agent::journal_state;
use crate::connect::{configuration_file, state_dir};
use crate::error::{CommandFailure, Exit};
use crate::format::signers::SignersFormat;
use crate::signing::trust;
use crate::{format, terminal};

pub(crate) async fn run(arguments: &ListArgs) -> Result<Exit, CommandFailure> {
    let (trust, origin) = match &arguments.trust {
        Some(path) => (Some(trust::load(path, &arguments.rotation)?), path.to_string()),
        None => of_host(&arguments.local.place).await?,
    };
    match (arguments.local.output.output, &trust) {
        (OutputFormat::Table, Some(trust)) => terminal::print(&table(trust))?,
        (OutputFormat::Table, None) => {
            let told = format!("nobody may sign on this host: there is no trust file {origin}\n");
            terminal::print(&told)?;
        }
        (OutputFormat::Json, trust) => {
            let signers = trust.as_ref().map(sorted).unwrap_or_default();
            format::print(&SignersFormat::of(trust.as_ref(), &signers))?;
        }
    }
    Ok(Exit::Ok)
}

/// The signers this host goes by now, and its trust file.
async fn of_host(place: &StatePlace) -> Result<(Option<TrustedSigners>, String), CommandFailure> {
    let config = configuration_file(place.config.as_deref())?;
    let state = state_dir(place.state.as_deref(), &config);
    let file = config.trust.path();
    let origin = file.display().to_string();
    let Some(host) = host(&config, &state).await? else {
        // No agent was ever started here: nothing but root's file says anything.
        let path = Utf8Path::new(&origin);
        let there = path.as_std_path().exists();
        let trust = there.then(|| trust::load(path, &[])).transpose()?;
        return Ok((trust, origin));
    };
    let journal = journal_state(&state)?.unwrap_or_default();
    let authority = Authority::load(Some(&file), host, &journal).map_err(|error| {
        let hint = error.hint();
        CommandFailure::wrapping(Exit::Invalid, error).hint(hint)
    })?;
    Ok((authority.trust().cloned(), origin))
}

/// This host as rotations name it; none if it has no key yet.
async fn host(
    config: &AgentConfig,
    state: &StateDir,
) -> Result<Option<HostBinding>, CommandFailure> {
    let path = state.path().join("host_key.pub");
    let Some(path) = Utf8Path::from_path(&path).filter(|path| path.as_std_path().exists()) else {
        return Ok(None);
    };
    let key = PublicKey::from_line(&one_line(path)?)
        .map_err(|refusal| CommandFailure::from(refusal).in_file(path))?;
    let named = config
        .host_id
        .clone()
        .or_else(|| config.pve.node.as_ref().and_then(|node| node.as_str().parse().ok()));
    let id = match named {
        Some(id) => id,
        None => of_agent(state).await.ok_or_else(|| {
            CommandFailure::new(Exit::Invalid, "nothing says under which name this host signs")
                .hint("set `host_id` in agent.toml, or start the agent")
        })?,
    };
    Ok(Some(HostBinding { id, key: key.fingerprint() }))
}

/// The name a running agent goes by.
async fn of_agent(state: &StateDir) -> Option<HostId> {
    let request = SocketRequest::Status { selection: Selection::default() };
    let Ok(SocketAnswer::Status { status }) = ask(&state.socket(), &request).await else {
        return None;
    };
    let agent = status.agent?;
    agent.host.or_else(|| agent.node.as_str().parse().ok())
}

/// By role, then by name: the order of a file or of key bytes tells a person nothing.
fn sorted(trust: &TrustedSigners) -> Vec<&Signer> {
    let mut signers: Vec<&Signer> = trust.signers().collect();
    signers.sort_by_key(|signer| (signer.role, signer.name.clone()));
    signers
}

fn table(trust: &TrustedSigners) -> String {
    let mut text = format!("version {}, head {}\n\n", trust.version(), trust.head());
    let signers = sorted(trust);
    let width = signers.iter().map(|signer| signer.name.to_string().len()).max().unwrap_or(0);
    for signer in signers {
        let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
        let kind = key.key_type();
        let print = key.fingerprint();
        let name = name.to_string();
        let _ = write!(text, "{:<12} {name:<width$}  {print}  {kind}", role.as_str());
        if *from != Validity::ALWAYS.from {
            let _ = write!(text, ", from {}", time::print(*from));
        }
        if *until != Validity::ALWAYS.until {
            let _ = write!(text, ", until {}", time::print(*until));
        }
        if kind.is_security_key() {
            let _ = write!(text, ", {}", sk.as_str());
        }
        text.push('\n');
    }
    text
}
