//! `evenkeel fleet …`: many hosts through one hub. Each verb asks the hub as a person and prints what it answers.

mod approvals;
mod audit;
mod documents;
mod enrol_token;
mod hosts;
mod login;
mod logins;

pub(crate) use approvals::{hand_in, item_named};
pub(crate) use audit::audit_text;
use evenkeel_hub::people::wire::PageBody;
use serde::de::DeserializeOwned;

use crate::cli::FleetVerb;
use crate::error::{CommandFailure, Exit};
use crate::fleet::hub_client::{HubClient, encoded};

pub(crate) async fn run(verb: &FleetVerb) -> Result<Exit, CommandFailure> {
    match verb {
        FleetVerb::Login(arguments) => login::login(arguments).await,
        FleetVerb::Logout(arguments) => logins::logout(arguments).await,
        FleetVerb::Logins(arguments) => logins::list(arguments).await,
        FleetVerb::Console(arguments) => logins::console(arguments).await,
        FleetVerb::EnrolToken(arguments) => enrol_token::run(arguments).await,
        FleetVerb::Hosts(arguments) => hosts::list(arguments).await,
        FleetVerb::Status(arguments) => hosts::status(arguments).await,
        FleetVerb::Push(arguments) => documents::push(arguments).await,
        FleetVerb::Pull(arguments) => documents::pull(arguments).await,
        FleetVerb::Diff(arguments) => documents::diff(arguments).await,
        FleetVerb::History(arguments) => documents::history(arguments).await,
        FleetVerb::Rollback(arguments) => documents::rollback(arguments).await,
        FleetVerb::Sign(arguments) => documents::sign(arguments).await,
        FleetVerb::Pending(arguments) => approvals::pending(arguments).await,
        FleetVerb::Submit(arguments) => approvals::submit(arguments).await,
        FleetVerb::Audit(arguments) => audit::run(arguments).await,
    }
}

/// How many items are taken in all: more than a hub has hosts.
const ITEMS_MAX: usize = 100_000;

/// Every page of a list, up to so many items.
async fn all_pages<T: DeserializeOwned>(
    client: &HubClient,
    path: &str,
    most: usize,
) -> Result<Vec<T>, CommandFailure> {
    let mut items = Vec::new();
    let mut after = String::new();
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let limit = most.saturating_sub(items.len()).min(200);
        let after_part =
            if after.is_empty() { String::new() } else { format!("&after={}", encoded(&after)) };
        let page: PageBody<T> =
            client.get(&format!("{path}{mark}limit={limit}{after_part}")).await?;
        let is_stuck = page.items.is_empty() && page.next.as_deref() == Some(after.as_str());
        items.extend(page.items);
        match page.next {
            Some(next) if items.len() < most.min(ITEMS_MAX) && !is_stuck => after = next,
            Some(_) | None => {
                items.truncate(most);
                return Ok(items);
            }
        }
    }
}
