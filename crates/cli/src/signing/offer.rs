//! What is put before a person to be signed: exact bytes, and the words made from them.
//!
//! ```text
//! pending item ─► host's signature ─► pinned? ─► a new statement ┐
//! statement file ────────────────────────────────────────────────┼─► bytes ─► words
//! envelope ─► its signatures hold ───────────────────────────────┘
//! ```

use std::fmt::Write as _;

use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{
    AnyStatement, DenialStatement, Envelope, Namespace, PendingId, PendingItem, PublicKey,
    Statement, render,
};

use super::known_hosts::KnownHosts;
use super::refusal::refused;
use super::{LIFE_DEFAULT_S, nonce, now, window};
use crate::cli::SignArgs;
use crate::error::{CommandFailure, Exit};

/// What is to be signed.
pub(crate) struct SigningOffer {
    /// The exact bytes.
    pub(crate) payload: Vec<u8>,
    /// What they say.
    pub(crate) statement: AnyStatement,
    /// Where they come from.
    pub(crate) origin: OfferOrigin,
}

/// Where bytes to be signed come from.
pub(crate) enum OfferOrigin {
    /// A host's pending item: the statement was made from it just now.
    Pending {
        /// What the host says, in words.
        told: String,
    },
    /// A host's pending item that has signatures already: the statement is the one they are over.
    Signed {
        /// What the host says, in words, and who signed.
        told: String,
        /// The envelope so far.
        sealed: Vec<u8>,
    },
    /// The file holds the statement itself.
    Statement,
    /// The file is an envelope with signatures that hold.
    Envelope {
        /// Its text.
        sealed: Vec<u8>,
    },
}

/// Who gave a pending item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemSource {
    /// Its host, or a file with what the host gave.
    Host,
    /// A hub, which may be in anybody's hands: its hosts were pinned before.
    Hub,
}

/// What is said of an item.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ItemAnswer<'a> {
    /// Yes, with the signatures that are there.
    Approve { signed: Option<&'a str> },
    /// No.
    Deny,
}

/// What a statement made from an item says beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatementTerms<'a> {
    pub(crate) reason: &'a str,
    pub(crate) life_s: u64,
    pub(crate) answer: ItemAnswer<'a>,
}

impl SigningOffer {
    /// Reads a file: a pending item, a statement, or an envelope that needs another signature.
    pub(crate) fn of_file(bytes: Vec<u8>, arguments: &SignArgs) -> Result<Self, CommandFailure> {
        let in_file = |failure: CommandFailure| failure.in_file(&arguments.subject);
        let known = KnownHosts::read(&arguments.hosts)?;
        if !looks_like_an_envelope(&bytes) {
            only_for_pending(arguments)?;
            let offer = Self::of(bytes, OfferOrigin::Statement).map_err(in_file)?;
            known.compare(offer.statement.host()).map_err(in_file)?;
            return Ok(offer);
        }
        let envelope = Envelope::parse(&bytes).map_err(|refusal| in_file(refused(&refusal)))?;
        if envelope.claimed_namespace() == Some(Namespace::Pending) {
            not_signed_elsewhere(arguments)?;
            let read = item_and_key(&envelope).map_err(|refusal| in_file(refused(&refusal)))?;
            return Self::made(&envelope, read, (ItemSource::Host, &known), terms(arguments));
        }
        only_for_pending(arguments)?;
        let offer = Self::of(envelope.payload().to_vec(), OfferOrigin::Envelope { sealed: bytes });
        let offer = offer.map_err(in_file)?;
        offer.signatures_hold(&envelope).map_err(in_file)?;
        known.compare(offer.statement.host()).map_err(in_file)?;
        Ok(offer)
    }

    /// Reads what was given for the name of an item: an item, and nothing else, whatever the bytes turn out to be.
    pub(crate) fn of_item(
        bytes: &[u8],
        source: ItemSource,
        known: &KnownHosts,
        terms: StatementTerms<'_>,
    ) -> Result<Self, CommandFailure> {
        let envelope = Envelope::parse(bytes)?;
        if envelope.claimed_namespace() != Some(Namespace::Pending) {
            return Err(no_item(&envelope, source));
        }
        Self::made(&envelope, item_and_key(&envelope)?, (source, known), terms)
    }

    /// A new statement for an item that its host signed.
    fn made(
        envelope: &Envelope,
        (item, key): (PendingItem, PublicKey),
        (source, known): (ItemSource, &KnownHosts),
        terms: StatementTerms<'_>,
    ) -> Result<Self, CommandFailure> {
        match source {
            ItemSource::Host => known.demand_or_ask(&item.host.id, &key)?,
            ItemSource::Hub => known.demand(&item.host.id, &key)?,
        }
        let told = render::pending(envelope.payload())?;
        let id = PendingItem::id(envelope.payload());
        let window = window(now(), terms.life_s)?;
        let bytes = match terms.answer {
            ItemAnswer::Deny => {
                let PendingItem { host, trust_version, .. } = item;
                let reason = terms.reason.to_owned();
                let window = window.not_before_at_least(item.raised_at);
                DenialStatement { host, item: id, window, trust_version, reason }.to_bytes()?
            }
            ItemAnswer::Approve { signed } => {
                let again = signed.map(|signed| Self::again(&item, id, signed, &told));
                if let Some(offer) = again.transpose()?.flatten() {
                    return Ok(offer);
                }
                item.statement(id, nonce()?, window, terms.reason).to_bytes()?
            }
        };
        Self::of(bytes, OfferOrigin::Pending { told })
    }

    /// The statement that has signatures already, if it is not over: one that says exactly what the item says.
    fn again(
        item: &PendingItem,
        id: PendingId,
        signed: &str,
        told: &str,
    ) -> Result<Option<Self>, CommandFailure> {
        let envelope = Envelope::parse(signed.as_bytes())?;
        let statement = Statement::parse(envelope.payload())?;
        if now() >= statement.window.expires_at() {
            return Ok(None);
        }
        if !item.is_approved_by(id, &statement) {
            let message = "the item has signatures over another statement";
            return Err(CommandFailure::new(Exit::Denied, message).hint("do not sign"));
        }
        let mut told = told.to_owned();
        for signature in envelope.signatures() {
            let key = PublicKey::from_blob(signature.key_blob())?;
            let _ =
                writeln!(told, "  {:<12} {} {}", "signed by", key.key_type(), key.fingerprint());
        }
        let sealed = signed.as_bytes().to_vec();
        let offer = Self::of(envelope.payload().to_vec(), OfferOrigin::Signed { told, sealed })?;
        offer.signatures_hold(&envelope)?;
        Ok(Some(offer))
    }

    fn of(payload: Vec<u8>, origin: OfferOrigin) -> Result<Self, CommandFailure> {
        let statement = AnyStatement::parse(&payload)?;
        Ok(Self { payload, statement, origin })
    }

    /// Nothing is added to a signature that does not hold.
    fn signatures_hold(&self, envelope: &Envelope) -> Result<(), CommandFailure> {
        for signature in envelope.signatures() {
            let key = PublicKey::from_blob(signature.key_blob())?;
            signature.verify(&key, self.statement.namespace(), &self.payload)?;
        }
        Ok(())
    }

    /// The envelope with these signatures, after those it has.
    pub(crate) fn seal(&self, armours: &[&str]) -> Result<String, CommandFailure> {
        match &self.origin {
            OfferOrigin::Pending { .. } | OfferOrigin::Statement => {
                Ok(Envelope::seal(&self.payload, armours)?)
            }
            OfferOrigin::Envelope { sealed } | OfferOrigin::Signed { told: _, sealed } => {
                let mut text = String::from_utf8_lossy(sealed).into_owned();
                for armour in armours {
                    text = Envelope::seal_again(text.as_bytes(), armour)?;
                }
                Ok(text)
            }
        }
    }

    /// What a person reads before signing.
    pub(crate) fn words(&self) -> Result<String, CommandFailure> {
        let statement = render::any_statement(&self.payload)?;
        Ok(match &self.origin {
            OfferOrigin::Pending { told } | OfferOrigin::Signed { told, sealed: _ } => {
                format!(
                    "The host {} says:\n\n{told}\nYou sign:\n\n{statement}",
                    self.statement.host().id
                )
            }
            OfferOrigin::Statement | OfferOrigin::Envelope { .. } => {
                format!("You sign:\n\n{statement}")
            }
        })
    }
}

/// The reason and the life that a command line gives.
pub(crate) fn terms(arguments: &SignArgs) -> StatementTerms<'_> {
    StatementTerms {
        answer: ItemAnswer::Approve { signed: None },
        reason: arguments.reason.as_deref().unwrap_or_default(),
        life_s: arguments.life_s.unwrap_or(LIFE_DEFAULT_S),
    }
}

/// What was given for the name of an item is something else.
fn no_item(envelope: &Envelope, source: ItemSource) -> CommandFailure {
    let what = AnyStatement::parse(envelope.payload());
    let what = what.map_or("data that no host signed as an item", |what| what.in_words());
    let (giver, hint) = match source {
        ItemSource::Host => ("this host", "list the items: `evenkeel pending`"),
        ItemSource::Hub => (
            "the hub",
            "do not sign it: the hub may be compromised; run `evenkeel pending` on the host itself",
        ),
    };
    let message =
        format!("{giver} gave {what} for the name of a pending item: refused, nothing is signed");
    CommandFailure::new(Exit::Denied, message).hint(hint)
}

/// A statement has neither of an envelope's fields, so the two are never mistaken for each other. What it
/// is in truth is decided by core's strict readers.
fn looks_like_an_envelope(bytes: &[u8]) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_slice(bytes);
    value.is_ok_and(|value| value.get("payload").is_some() || value.get("signatures").is_some())
}

/// The item and the key that signed it; whether it is the host's is for the pins to say.
pub(crate) fn item_and_key(envelope: &Envelope) -> Result<(PendingItem, PublicKey), Refusal> {
    let first = envelope.signatures().first().expect("an envelope has a signature");
    let key = PublicKey::from_blob(first.key_blob())?;
    Ok((PendingItem::verify(envelope, &key)?, key))
}

/// Each statement made from an item has a nonce of its own, which no signature made before is over.
fn not_signed_elsewhere(arguments: &SignArgs) -> Result<(), CommandFailure> {
    if arguments.signature.is_empty() {
        return Ok(());
    }
    let message = format!("{} is a pending item, not the signed statement", arguments.subject);
    Err(CommandFailure::new(Exit::Usage, message).hint("name the statement that --prepare wrote"))
}

fn only_for_pending(arguments: &SignArgs) -> Result<(), CommandFailure> {
    if arguments.reason.is_none() && arguments.life_s.is_none() {
        return Ok(());
    }
    let message = "a statement has its own reason and its own window";
    Err(CommandFailure::new(Exit::Usage, message).hint("leave --reason and --life out"))
}
