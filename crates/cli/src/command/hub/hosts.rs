//! `hub host` and `hub enrol-token`: who belongs to the fleet.

use std::collections::BTreeMap;
use std::io::Write as _;

use evenkeel_core::model::id::HostId;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::{HostRow, HubStore};
use serde_json::json;

use super::SERVER;
use crate::cli::{HubHostVerb, OutputFormat};
use crate::error::{CommandFailure, Exit};

/// Hosts read at a time.
const PAGE: i64 = 200;

pub(super) async fn enrol_token(
    store: &HubStore,
    host: &HostId,
    replace: bool,
    output: OutputFormat,
) -> Result<Exit, CommandFailure> {
    let token = SecretText::draw(SecretKind::EnrolToken);
    let expires = store.make_enrol_token(token.hash(), host.as_str(), replace, SERVER).await?;
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            let answer = json!({
                "format_version": 1, "host": host, "token": token.reveal(), "expires_at": expires.to_text(),
            });
            writeln!(out, "{answer}")?;
        }
        // The token alone, so that it can be piped to the host.
        OutputFormat::Table => writeln!(out, "{}", token.reveal())?,
    }
    Ok(Exit::Ok)
}

pub(super) async fn run(store: &HubStore, verb: &HubHostVerb) -> Result<Exit, CommandFailure> {
    match verb {
        HubHostVerb::List { output } => list(store, output.output).await,
        HubHostVerb::Remove { host } => {
            store.remove_host(host.as_str(), SERVER).await?;
            writeln!(std::io::stdout(), "{host} is forgotten; its credential ended")?;
            Ok(Exit::Ok)
        }
        HubHostVerb::Label { host, labels } => label(store, host, labels).await,
    }
}

async fn list(store: &HubStore, output: OutputFormat) -> Result<Exit, CommandFailure> {
    let mut hosts: Vec<HostRow> = Vec::new();
    loop {
        let after = hosts.last().map(|host| host.id.clone()).unwrap_or_default();
        let page = store.hosts_after(&after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        hosts.extend(page);
    }
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            let hosts: Vec<_> = hosts
                .iter()
                .map(|host| {
                    json!({
                        "host": host.id, "key": host.key_fingerprint, "labels": host.labels, "wanted": host.wanted,
                        "reported": host.reported, "enrolled_at": host.enrolled_at.to_text(),
                        "last_seen": host.last_seen.to_text(),
                    })
                })
                .collect();
            writeln!(out, "{}", json!({ "format_version": 1, "hosts": hosts }))?;
        }
        OutputFormat::Table => {
            let width = hosts.iter().map(|host| host.id.len()).max().unwrap_or(0).max(4);
            writeln!(
                out,
                "{:width$}  {:>10}  {:>10}  {:24}  labels",
                "host", "wanted", "in effect", "last seen"
            )?;
            for host in &hosts {
                let labels: Vec<String> =
                    host.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let id = &host.id;
                let wanted = host.wanted;
                let reported = host.reported;
                let seen = host.last_seen.to_text();
                writeln!(
                    out,
                    "{id:width$}  {wanted:>10}  {reported:>10}  {seen:24}  {}",
                    labels.join(" ")
                )?;
            }
        }
    }
    Ok(Exit::Ok)
}

async fn label(
    store: &HubStore,
    host: &HostId,
    changes: &[String],
) -> Result<Exit, CommandFailure> {
    let found = store.host(host.as_str()).await?;
    let found = found.ok_or_else(|| {
        CommandFailure::new(Exit::NotFound, format!("host {host} does not exist"))
    })?;
    let mut labels: BTreeMap<String, String> = found.labels;
    for change in changes {
        match (change.split_once('='), change.strip_suffix('-')) {
            (Some((name, value)), _) => labels.insert(name.to_owned(), value.to_owned()),
            (None, Some(name)) => labels.remove(name),
            (None, None) => {
                let message = format!("`{change}` is no label");
                return Err(CommandFailure::new(Exit::Usage, message)
                    .hint("such as site=berlin, or site- to take it away"));
            }
        };
    }
    store.set_labels(host.as_str(), labels.clone(), SERVER).await?;
    let shown: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    writeln!(std::io::stdout(), "{host}: {}", shown.join(" "))?;
    Ok(Exit::Ok)
}
