//! `evenkeel sign PENDING|FILE`: show exactly what is signed, have it signed, check it, write it.
//!
//! The bytes that are shown are the bytes that are signed; the namespace follows from them. The signing
//! itself is `ssh-keygen`'s, here or elsewhere.

use std::fmt::Write as _;
use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_core::sign::{AnyStatement, ENVELOPE_BYTES_MAX, STATEMENT_LIFE_MAX_S};

use crate::cli::SignArgs;
use crate::command::{approvals, fleet};
use crate::error::{CommandFailure, Exit};
use crate::signing::keygen::{self, MadeSignature, quoted};
use crate::signing::known_hosts::KnownHosts;
use crate::signing::offer::{
    ItemAnswer, ItemSource, OfferOrigin, SigningOffer, StatementTerms, terms,
};
use crate::signing::{file, now};
use crate::terminal;

/// What the statement's file is called where there is none yet.
const STATEMENT: &str = "statement.json";

pub(crate) async fn run(arguments: &SignArgs) -> Result<Exit, CommandFailure> {
    for path in [&arguments.out, &arguments.prepare].into_iter().flatten() {
        file::must_be_free(path, arguments.writing.force)?;
    }
    let offer = offer(arguments).await?;
    let mut err = std::io::stderr();
    writeln!(err, "{}", offer.words()?)?;
    warn_of_time(&offer.statement)?;
    if let Some(path) = &arguments.prepare {
        return prepared(&offer, path, arguments);
    }
    let name = Utf8PathBuf::from(offer.statement.file_name());
    let out = arguments.out.as_ref().unwrap_or(&name);
    file::must_be_free(out, arguments.writing.force)?;
    let made = signatures(&offer, out, arguments)?;
    let armours: Vec<&str> = made.iter().map(|made| made.armour.as_str()).collect();
    file::write(out, offer.seal(&armours)?.as_bytes(), arguments.writing.force)?;
    for MadeSignature { by, .. } in &made {
        let kind = by.key.key_type();
        let print = by.key.fingerprint();
        writeln!(std::io::stdout(), "wrote {out}, signed by {kind} {print}")?;
    }
    if arguments.hub.is_some() {
        writeln!(std::io::stderr(), "next: evenkeel fleet submit {}", quoted(out.as_str()))?;
    }
    Ok(Exit::Ok)
}

/// What a word on the command line stands for: an item of a hub, one that waits on this host, or a file.
async fn offer(arguments: &SignArgs) -> Result<SigningOffer, CommandFailure> {
    let word = arguments.subject.as_str();
    let of_item = |bytes: &[u8], source, signed| {
        if !arguments.signature.is_empty() {
            return Err(CommandFailure::new(Exit::Usage, "a pending item is not what was signed")
                .hint("name the statement that --prepare wrote"));
        }
        let known = KnownHosts::read(&arguments.hosts)?;
        let answer = ItemAnswer::Approve { signed };
        SigningOffer::of_item(bytes, source, &known, StatementTerms { answer, ..terms(arguments) })
    };
    if let Some(hub) = &arguments.hub {
        let item = fleet::item_named(Some(hub.clone()).filter(|hub| !hub.is_empty()), word).await?;
        return of_item(&item, ItemSource::Hub, None);
    }
    let is_name = word.len() >= NAME_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_name && !arguments.subject.as_std_path().exists() {
        let items = approvals::items(&arguments.place).await.map_err(|failure| {
            let message = format!("{word} is no file here, and {}", failure.message);
            CommandFailure::new(failure.exit, message)
                .hint("fetch the item on its host: `evenkeel pending ID --out item.json`, and sign that file")
        })?;
        let item = approvals::named(&items, word)?;
        return of_item(item.envelope.as_bytes(), ItemSource::Host, item.signed.as_deref());
    }
    SigningOffer::of_file(file::read(&arguments.subject, ENVELOPE_BYTES_MAX)?, arguments)
}

/// The shortest beginning of an item's name that is not taken for a mistyped file.
const NAME_MIN: usize = 4;

/// The signatures to add: one made now, or those made elsewhere.
fn signatures(
    offer: &SigningOffer,
    out: &Utf8Path,
    arguments: &SignArgs,
) -> Result<Vec<MadeSignature>, CommandFailure> {
    let namespace = offer.statement.namespace();
    let Some(key) = &arguments.key else {
        let take = |path: &Utf8PathBuf| {
            keygen::take(path, namespace, &offer.payload).map_err(|failure| failure.in_file(path))
        };
        return arguments.signature.iter().map(take).collect();
    };
    let by_hand = by_hand(offer, key.as_str(), out.as_str(), arguments);
    writeln!(std::io::stderr(), "The same by hand:\n{by_hand}")?;
    let question = format!("Sign this with {key}?");
    if offer.statement.needs_a_person() {
        let next = "answer on a terminal, or sign by hand with the commands above";
        terminal::agreed_in_person(offer.statement.in_words(), &question, next)?;
    } else {
        terminal::agreed(arguments.writing.yes, &question, "signed")?;
    }
    Ok(vec![keygen::sign(key, namespace, &offer.payload)?])
}

fn prepared(
    offer: &SigningOffer,
    path: &Utf8Path,
    arguments: &SignArgs,
) -> Result<Exit, CommandFailure> {
    file::write(path, &offer.payload, arguments.writing.force)?;
    writeln!(std::io::stdout(), "wrote {path}, not signed yet")?;
    let sign = keygen::by_hand("KEY", offer.statement.namespace(), path.as_str());
    let subject = match &offer.origin {
        OfferOrigin::Envelope { .. } => &arguments.subject,
        OfferOrigin::Pending { .. } | OfferOrigin::Signed { .. } | OfferOrigin::Statement => path,
    };
    let finish = finish(subject.as_str(), path.as_str(), &offer.statement.file_name());
    writeln!(std::io::stderr(), "Sign it where the key is, then seal it:\n  {sign}\n  {finish}")?;
    Ok(Exit::Ok)
}

/// The same in commands that need nothing of evenkeel to sign.
fn by_hand(offer: &SigningOffer, key: &str, out: &str, arguments: &SignArgs) -> String {
    let subject = arguments.subject.as_str();
    let (prepare, statement, sealed) = match &offer.origin {
        OfferOrigin::Statement => (None, subject, subject),
        OfferOrigin::Pending { .. } | OfferOrigin::Signed { .. } => {
            (Some(subject), STATEMENT, STATEMENT)
        }
        OfferOrigin::Envelope { .. } => (Some(subject), STATEMENT, subject),
    };
    let mut lines = String::new();
    if let Some(subject) = prepare {
        let hub = arguments.hub.as_ref().map(|hub| match hub.as_str() {
            "" => " --hub".to_owned(),
            hub => format!(" --hub {}", quoted(hub)),
        });
        let subject = quoted(subject);
        let hub = hub.unwrap_or_default();
        let _ = writeln!(lines, "  evenkeel sign {subject}{hub} --prepare {STATEMENT}");
    }
    let sign = keygen::by_hand(key, offer.statement.namespace(), statement);
    lines + &format!("  {sign}\n  {}\n", finish(sealed, statement, out))
}

fn finish(subject: &str, statement: &str, out: &str) -> String {
    let signature = format!("{statement}.sig");
    let subject = quoted(subject);
    let signature = quoted(&signature);
    let out = quoted(out);
    format!("evenkeel sign {subject} --signature {signature} --out {out}")
}

/// A window that does not hold now may be meant: the host judges by its own clock.
pub(crate) fn warn_of_time(statement: &AnyStatement) -> Result<(), CommandFailure> {
    if let Err(refusal) = statement.window().judge(now(), STATEMENT_LIFE_MAX_S) {
        writeln!(std::io::stderr(), "warning: by the clock of this machine, {}\n", refusal.detail)?;
    }
    Ok(())
}
