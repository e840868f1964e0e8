//! `fleet push`, `pull`, `diff`, `history`, `rollback` and `sign`: documents of a host.

use std::fmt::Write as _;

use evenkeel_core::model::id::HostId;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_hub::people::wire::{DifferenceBody, DraftBody, GenerationBody};

use super::{ITEMS_MAX, all_pages};
use crate::cli::{
    AuthorArgs, FleetDiffArgs, FleetHostArgs, FleetPullArgs, FleetPushArgs, FleetRollbackArgs,
    FleetSignArgs, KnownHostsArgs, OutputFormat, VerdictArgs,
};
use crate::error::{CommandFailure, Exit};
use crate::fleet::document::ReadDocument;
use crate::fleet::document_proof::{DocumentProof, FetchedDocument};
use crate::fleet::host_at_hub::{HostAtHub, PushOrder, PushOutcome, PushVerdict, whole_note};
use crate::fleet::hub_client::{HubClient, encoded};
use crate::format::fleet::{FleetDiffFormat, FleetHistoryFormat, FleetPushFormat};
use crate::render::{counted, difference, tamed};
use crate::signing::{file, refusal};
use crate::{format, terminal};

const INFALLIBLE: &str = "writing to a string cannot fail";

pub(super) async fn push(arguments: &FleetPushArgs) -> Result<Exit, CommandFailure> {
    // Read before anybody is asked: a mistake in the files needs no hub.
    let document = ReadDocument::from_path(&arguments.path)?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let mut at_hub = find_to_sign(&client, &arguments.host, &arguments.author).await?;
    let order = PushOrder {
        document: &document,
        message: arguments.message.clone(),
        draft: None,
        author: &arguments.author,
    };
    let outcome = at_hub.push(order).await?;
    tell_outcome(&mut at_hub, outcome, &arguments.verdict, arguments.fleet.output.output).await
}

pub(super) async fn rollback(arguments: &FleetRollbackArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let mut at_hub = find_to_sign(&client, &arguments.host, &arguments.author).await?;
    let generation = arguments.generation;
    let fetched = at_hub.document(generation).await?.ok_or_else(no_document)?;
    tell_unverified(&arguments.host, &fetched)?;
    let message = arguments.message.clone();
    let order = PushOrder {
        document: &fetched.read,
        message: message.unwrap_or_else(|| format!("back to generation {generation}")),
        draft: None,
        author: &arguments.author,
    };
    let outcome = at_hub.push(order).await?;
    tell_outcome(&mut at_hub, outcome, &arguments.verdict, arguments.fleet.output.output).await
}

pub(super) async fn sign(arguments: &FleetSignArgs) -> Result<Exit, CommandFailure> {
    if arguments.author.key.is_none() {
        return Err(CommandFailure::new(Exit::Usage, "a draft is signed with --key KEY"));
    }
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let mut at_hub = find_to_sign(&client, &arguments.host, &arguments.author).await?;
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
    let outcome = at_hub.push(order).await?;
    tell_outcome(&mut at_hub, outcome, &arguments.verdict, arguments.fleet.output.output).await
}

/// How long a person at a terminal waits for the host's verdict.
const WAIT_AT_A_TERMINAL_S: u64 = 60;

/// Prints what came of a push, and ends with what the host says of it.
async fn tell_outcome(
    at_hub: &mut HostAtHub<'_>,
    outcome: PushOutcome,
    verdict: &VerdictArgs,
    output: OutputFormat,
) -> Result<Exit, CommandFailure> {
    let host = at_hub.host().clone();
    let (generation, pushed, difference): (u64, bool, Vec<DifferenceBody>) = match outcome {
        PushOutcome::Pushed(answer) => (answer.generation, true, answer.difference),
        PushOutcome::Same(generation) => (generation, false, Vec::new()),
    };
    if output == OutputFormat::Table {
        let says = if pushed { "" } else { " says this already" };
        terminal::print(&format!("generation {generation} of {host}{says}\n"))?;
    }
    let usual_s = if terminal::is_there() { WAIT_AT_A_TERMINAL_S } else { 0 };
    let wait_s = verdict.wait_s.unwrap_or(usual_s);
    let verdict = match (pushed, wait_s) {
        (true, 1..) => Some(at_hub.await_verdict(generation, wait_s).await?),
        (true, 0) | (false, _) => None,
    };
    if output == OutputFormat::Json {
        let in_effect = verdict.as_ref().map(|verdict| matches!(verdict, PushVerdict::InEffect));
        let refused = match &verdict {
            Some(PushVerdict::Refused(refused)) => Some(refused.as_ref().clone()),
            Some(PushVerdict::InEffect | PushVerdict::Silent) | None => None,
        };
        let host = host.to_string();
        let format_version = 1;
        format::print(&FleetPushFormat {
            format_version,
            host,
            generation,
            pushed,
            difference,
            in_effect,
            refused,
        })?;
    }
    tell_verdict(&host, generation, pushed, verdict)
}

/// What the host made of it, in words, and the code to end with.
fn tell_verdict(
    host: &HostId,
    generation: u64,
    pushed: bool,
    verdict: Option<PushVerdict>,
) -> Result<Exit, CommandFailure> {
    match verdict {
        None if pushed => {
            terminal::tell(&format!(
                "`evenkeel fleet status {host}` tells when it is in effect\n"
            ))?;
            Ok(Exit::Ok)
        }
        None => Ok(Exit::Ok),
        Some(PushVerdict::InEffect) => {
            terminal::tell(&format!("{host} has it in effect, as the hub says\n"))?;
            Ok(Exit::Ok)
        }
        Some(PushVerdict::Silent) => {
            let message = format!("{host} has said nothing about generation {generation} yet");
            let hint = format!(
                "it is at the hub; `evenkeel fleet status {host}` tells when it is in effect"
            );
            Err(CommandFailure::new(Exit::Transient, message).hint(hint))
        }
        Some(PushVerdict::Refused(refused)) => {
            let code = tamed(&refused.code, 64);
            let why = tamed(&refused.why, 1000);
            let reason = ReasonCode::ALL.iter().find(|known| known.as_str() == refused.code);
            let exit = reason.map_or(Exit::Failed, |reason| refusal::exit(*reason));
            let message = format!("{host} refuses generation {generation} as {code}: {why}");
            let mut failure = CommandFailure::new(exit, message);
            if !refused.next.is_empty() {
                failure = failure.hint(tamed(&refused.next, 1000));
            }
            for mistake in &refused.diagnostics {
                terminal::tell(&format!("{}\n", tamed(mistake, 4000)))?;
            }
            Err(failure)
        }
    }
}

pub(super) async fn pull(arguments: &FleetPullArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.hub)?;
    let at_hub = find(&client, &arguments.host).await?;
    let generation = arguments.generation.unwrap_or(at_hub.detail.host.wanted);
    let fetched = at_hub.document(generation).await?.ok_or_else(no_document)?;
    tell_unverified(&arguments.host, &fetched)?;
    let paths: Vec<_> =
        fetched.read.files.iter().map(|(name, text)| (arguments.out.join(name), text)).collect();
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

pub(super) async fn diff(arguments: &FleetDiffArgs) -> Result<Exit, CommandFailure> {
    let local = arguments.path.as_deref().map(ReadDocument::from_path).transpose()?;
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = find(&client, &arguments.host).await?;
    let newest = at_hub.detail.host.wanted;
    let to = arguments.to.unwrap_or(newest);
    let from = match (arguments.from, &local) {
        (Some(from), _) => from,
        (None, Some(_)) => newest,
        (None, None) => to.saturating_sub(1),
    };
    let (before, from_verified) = match at_hub.document(from).await? {
        None => (None, true),
        Some(FetchedDocument { read, proof: DocumentProof::Verified, .. }) => (Some(read), true),
        Some(FetchedDocument { proof: DocumentProof::Unverified(why), .. }) => {
            terminal::tell(&whole_note(&arguments.host, &why))?;
            (None, false)
        }
    };
    let (to, after) = if let Some(local) = local {
        (None, local)
    } else {
        let fetched = at_hub.document(to).await?.ok_or_else(no_document)?;
        tell_unverified(&arguments.host, &fetched)?;
        (Some(to), fetched.read)
    };
    let found = after.difference_from(before.as_ref());
    match arguments.fleet.output.output {
        OutputFormat::Json => format::print(&FleetDiffFormat {
            format_version: 1,
            host: arguments.host.to_string(),
            from,
            from_verified,
            to,
            difference: found,
        })?,
        OutputFormat::Table => terminal::print(&difference::render(&found))?,
    }
    Ok(Exit::Ok)
}

pub(super) async fn history(arguments: &FleetHostArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let at_hub = find(&client, &arguments.host).await?;
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
                let at = tamed(&row.pushed_at, 24);
                let by = tamed(&row.pushed_by, 64);
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

/// A host whose documents are only looked at.
async fn find<'c>(client: &'c HubClient, host: &HostId) -> Result<HostAtHub<'c>, CommandFailure> {
    HostAtHub::find(client, host, &KnownHostsArgs::default(), None).await
}

/// A host for which a document may be signed.
async fn find_to_sign<'c>(
    client: &'c HubClient,
    host: &HostId,
    author: &AuthorArgs,
) -> Result<HostAtHub<'c>, CommandFailure> {
    HostAtHub::find(client, host, &author.hosts, author.key.as_deref()).await
}

/// Says that nobody known vouches for what was fetched.
fn tell_unverified(host: &HostId, fetched: &FetchedDocument) -> Result<(), CommandFailure> {
    if let DocumentProof::Unverified(why) = &fetched.proof {
        let number = fetched.base.generation;
        terminal::tell(&format!(
            "warning: generation {number} of {host} is not verified: {why}. It is the hub's word alone\n"
        ))?;
    }
    Ok(())
}

fn no_document() -> CommandFailure {
    CommandFailure::new(Exit::NotFound, "the host has no document yet")
        .hint("evenkeel fleet push HOST DIR --key KEY")
}
