//! `fleet push`, `pull`, `diff`, `history`, `rollback` and `sign`: documents of a host.

use std::fmt::Write as _;

use evenkeel_core::id::HostId;
use evenkeel_hub::people::wire::{DifferenceBody, DraftBody, GenerationBody};

use super::{ITEMS_MAX, all_pages};
use crate::cli::{
    FleetDiffArgs, FleetHostArgs, FleetPullArgs, FleetPushArgs, FleetRollbackArgs, FleetSignArgs,
    OutputFormat,
};
use crate::error::{Exit, Failure};
use crate::fleet::document::{HostAtHub, PushOrder, PushOutcome, ReadDocument};
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format::fleet::{FleetDiffFormat, FleetHistoryFormat, FleetPushFormat};
use crate::render::{counted, difference, tamed};
use crate::signing::file;
use crate::{format, terminal};

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(super) async fn push(arguments: &FleetPushArgs) -> Result<Exit, Failure> {
    // Read before anybody is asked: a mistake in the files needs no hub.
    let document = ReadDocument::from_path(&arguments.path)?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let order = PushOrder {
        document: &document,
        message: arguments.message.clone(),
        draft: None,
        author: &arguments.author,
    };
    told(&arguments.host, at_hub.push(order).await?, arguments.fleet.output.output)
}

pub(super) async fn rollback(arguments: &FleetRollbackArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let generation = arguments.generation;
    let (_, document) = at_hub.document(generation).await?.ok_or_else(no_document)?;
    let message = arguments.message.clone();
    let order = PushOrder {
        document: &document,
        message: message.unwrap_or_else(|| format!("back to generation {generation}")),
        draft: None,
        author: &arguments.author,
    };
    told(&arguments.host, at_hub.push(order).await?, arguments.fleet.output.output)
}

pub(super) async fn sign(arguments: &FleetSignArgs) -> Result<Exit, Failure> {
    if arguments.author.key.is_none() {
        return Err(Failure::new(Exit::Usage, "a draft is signed with --key KEY"));
    }
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let path = at_hub.below(&format!("drafts/{}", encoded(&arguments.draft)));
    let draft: DraftBody = client.get(&path).await?;
    if draft.base != at_hub.detail.host.wanted {
        terminal::tell(&format!(
            "warning: the draft was made from generation {}, and {} is the newest: what is shown below would undo \
             what was changed meanwhile\n",
            draft.base, at_hub.detail.host.wanted
        ))?;
    }
    let document = ReadDocument::from_bodies(draft.files)?;
    let order = PushOrder {
        document: &document,
        message: draft.message,
        draft: Some(draft.id),
        author: &arguments.author,
    };
    told(&arguments.host, at_hub.push(order).await?, arguments.fleet.output.output)
}

fn told(host: &HostId, outcome: PushOutcome, output: OutputFormat) -> Result<Exit, Failure> {
    let (generation, pushed, difference): (u64, bool, Vec<DifferenceBody>) = match outcome {
        PushOutcome::Pushed(answer) => (answer.generation, true, answer.difference),
        PushOutcome::Same(generation) => (generation, false, Vec::new()),
    };
    match output {
        OutputFormat::Json => format::print(&FleetPushFormat {
            format_version: 1,
            host: host.to_string(),
            generation,
            pushed,
            difference,
        })?,
        OutputFormat::Table if pushed => {
            terminal::print(&format!("generation {generation} of {host}\n"))?;
            terminal::tell(&format!(
                "`evenkeel fleet status {host}` tells when it is in effect\n"
            ))?;
        }
        OutputFormat::Table => {
            terminal::print(&format!("generation {generation} of {host} says this already\n"))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn pull(arguments: &FleetPullArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let generation = arguments.generation.unwrap_or(at_hub.detail.host.wanted);
    let (_, document) = at_hub.document(generation).await?.ok_or_else(no_document)?;
    let paths: Vec<_> =
        document.files.iter().map(|(name, text)| (arguments.out.join(name), text)).collect();
    // Names were checked to lead nowhere else. All or nothing, as far as that can be told before.
    for (path, _) in &paths {
        let parent = path.parent().unwrap_or(&arguments.out);
        fs_err::create_dir_all(parent.as_std_path())?;
        file::must_be_free(path, arguments.force)?;
    }
    for (path, text) in &paths {
        file::write(path, text.as_bytes(), arguments.force)?;
    }
    let count = counted(paths.len(), "file");
    terminal::print(&format!("wrote {count} of generation {generation} to {}\n", arguments.out))?;
    Ok(Exit::Ok)
}

pub(super) async fn diff(arguments: &FleetDiffArgs) -> Result<Exit, Failure> {
    let local = arguments.path.as_deref().map(ReadDocument::from_path).transpose()?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let newest = at_hub.detail.host.wanted;
    let to = arguments.to.unwrap_or(newest);
    let from = match (arguments.from, &local) {
        (Some(from), _) => from,
        (None, Some(_)) => newest,
        (None, None) => to.saturating_sub(1),
    };
    let before = at_hub.document(from).await?.map(|(_, read)| read);
    let (to, after) = if let Some(local) = local {
        (None, local)
    } else {
        let (_, read) = at_hub.document(to).await?.ok_or_else(no_document)?;
        (Some(to), read)
    };
    let found = after.difference_from(before.as_ref());
    match arguments.fleet.output.output {
        OutputFormat::Json => format::print(&FleetDiffFormat {
            format_version: 1,
            host: arguments.host.to_string(),
            from,
            to,
            difference: found,
        })?,
        OutputFormat::Table => terminal::print(&difference::render(&found))?,
    }
    Ok(Exit::Ok)
}

pub(super) async fn history(arguments: &FleetHostArgs) -> Result<Exit, Failure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = HostAtHub::find(&client, &arguments.host).await?;
    let generations: Vec<GenerationBody> =
        all_pages(&client, &at_hub.below("documents"), ITEMS_MAX).await?;
    let in_effect = at_hub.detail.host.in_effect;
    match arguments.fleet.output.output {
        OutputFormat::Json => {
            let host = arguments.host.to_string();
            format::print(&FleetHistoryFormat { format_version: 1, host, in_effect, generations })?;
        }
        OutputFormat::Table if generations.is_empty() => {
            terminal::print("nothing was pushed yet\n")?;
        }
        OutputFormat::Table => {
            let mut text = "GENERATION  PUSHED                    BY\n".to_owned();
            for row in &generations {
                let mark = if row.generation == in_effect { "  (in effect)" } else { "" };
                let signed = if row.author.is_empty() {
                    "not signed".to_owned()
                } else {
                    format!("signed by {}", tamed(&row.author, 120))
                };
                let (at, by) = (tamed(&row.pushed_at, 24), tamed(&row.pushed_by, 64));
                writeln!(text, "{:>10}  {at:<24}  {by}{mark}", row.generation).expect(INFALLIBLE);
                writeln!(text, "            {signed}").expect(INFALLIBLE);
                if !row.message.is_empty() {
                    writeln!(text, "            {}", tamed(&row.message, 1000)).expect(INFALLIBLE);
                }
            }
            terminal::print(&text)?;
        }
    }
    Ok(Exit::Ok)
}

fn no_document() -> Failure {
    Failure::new(Exit::NotFound, "the host has no document yet")
        .hint("evenkeel fleet push HOST DIR --key KEY")
}
