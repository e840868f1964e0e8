//! `evenkeel approve PENDING|GUEST`: show an item whole, have it signed, hand it in, and tell what became of it.
//!
//! There is no file between, so that what is handed in is what was read. What is shown is made from bytes that the host
//! signed, and what is signed from the same; where it goes decides the host it names. The judging is the host's.

use std::io::Write as _;

use evenkeel_agent::daemon::protocol::PendingView;
use evenkeel_core::desired::selection::GuestName;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::{Envelope, PendingItem};

use crate::cli::ApproveArgs;
use crate::command::sign::warn_of_time;
use crate::command::{approvals, fleet};
use crate::error::{CommandFailure, Exit};
use crate::render::{PENDING_SHORT, tamed};
use crate::signing::keygen;
use crate::signing::known_hosts::KnownHosts;
use crate::signing::offer::{ItemAnswer, ItemSource, SigningOffer, StatementTerms};
use crate::terminal;

pub(crate) async fn run(arguments: &ApproveArgs) -> Result<Exit, CommandFailure> {
    let hub = arguments.hub.as_ref().map(|hub| Some(hub.clone()).filter(|hub| !hub.is_empty()));
    let known = KnownHosts::read(&arguments.hosts)?;
    let terms = |signed| {
        let answer = if arguments.deny { ItemAnswer::Deny } else { ItemAnswer::Approve { signed } };
        StatementTerms { reason: &arguments.reason, life_s: arguments.life_s, answer }
    };
    if arguments.deny && arguments.reason.trim().is_empty() {
        return Err(CommandFailure::new(Exit::Usage, "a denial says why").hint("add --reason TEXT"));
    }
    let offer = if let Some(hub) = &hub {
        let item = fleet::item_named(hub.clone(), &arguments.subject).await?;
        SigningOffer::of_item(&item, ItemSource::Hub, &known, terms(None))?
    } else {
        let items = approvals::items(&arguments.place).await?;
        let item = meant(&items, &arguments.subject)?;
        let signed = item.signed.as_deref();
        SigningOffer::of_item(item.envelope.as_bytes(), ItemSource::Host, &known, terms(signed))?
    };
    writeln!(std::io::stderr(), "{}", offer.words()?)?;
    warn_of_time(&offer.statement)?;
    let key = &arguments.key;
    let question = format!("Sign this with {key} and hand it in?");
    terminal::agreed(arguments.yes, &question, "signed")?;
    let made = keygen::sign(key, offer.statement.namespace(), &offer.payload)?;
    let sealed = offer.seal(&[&made.armour])?;
    let how = (arguments.wait, arguments.output.output);
    if let Some(hub) = hub {
        return fleet::hand_in(hub, &sealed, &known, how).await;
    }
    approvals::hand_in(&arguments.place, sealed, how.0, how.1).await
}

/// The shortest beginning of an item's name.
const NAME_MIN: usize = 4;

/// The item that a word names: a guest by its number, kind and number, or name, or else the beginning of an item's name. A
/// whole number is a guest's, unless it is as long as the names that lists show.
fn meant<'a>(items: &'a [PendingView], word: &str) -> Result<&'a PendingView, CommandFailure> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit()) && word.len() < PENDING_SHORT;
    let is_beginning =
        word.len() >= NAME_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit()) && !is_number;
    if is_beginning && items.iter().any(|item| item.id.to_string().starts_with(word)) {
        return approvals::named(items, word);
    }
    let guest: GuestName = word.parse().map_err(|error| {
        CommandFailure::new(Exit::Usage, format!("`{}`: {error}", tamed(word, 64)))
    })?;
    let about: Vec<&PendingView> = items.iter().filter(|item| is_about(item, &guest)).collect();
    match about.as_slice() {
        [item] => Ok(item),
        [] => Err(CommandFailure::new(
            Exit::NotFound,
            format!("nothing that waits is called {0} or is about a guest {0}", tamed(word, 64)),
        )
        .hint("`evenkeel pending` lists what waits")),
        several => {
            let names: Vec<String> = several.iter().map(|item| approvals::short(item.id)).collect();
            let message = format!("{} items are about {}", several.len(), tamed(word, 64));
            Err(CommandFailure::new(Exit::Usage, message)
                .hint(format!("name the one you mean: {}", names.join(", "))))
        }
    }
}

fn is_about(view: &PendingView, guest: &GuestName) -> bool {
    let Ok(envelope) = Envelope::parse(view.envelope.as_bytes()) else { return false };
    let Ok(item) = PendingItem::parse(envelope.payload()) else { return false };
    let id: GuestId = item.guest;
    match guest {
        GuestName::Id(named) => id == *named,
        GuestName::Number(vmid) => id.vmid == *vmid,
        GuestName::Name(name) => item.guest_name == name.as_str(),
    }
}
