//! What is put before a person to be signed: exact bytes, and the words made from them.
//!
//! ```text
//! pending item ─► host's signature ─► pinned? ─► a new statement ┐
//! statement file ────────────────────────────────────────────────┼─► bytes ─► words
//! envelope ─► its signatures hold ───────────────────────────────┘
//! ```

use evenkeel_core::reason::Refusal;
use evenkeel_core::sign::{AnyStatement, Envelope, Namespace, PendingItem, PublicKey, render};

use super::known_hosts::KnownHosts;
use super::refusal::refused;
use super::{LIFE_DEFAULT_S, nonce, now, window};
use crate::cli::SignArgs;
use crate::error::{Exit, Failure};

/// What is to be signed.
pub(crate) struct Offer {
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
    /// The file holds the statement itself.
    Statement,
    /// The file is an envelope with signatures that hold.
    Envelope {
        /// Its text.
        sealed: Vec<u8>,
    },
}

impl Offer {
    /// Reads what is to be signed.
    pub(crate) fn read(bytes: Vec<u8>, arguments: &SignArgs) -> Result<Self, Failure> {
        let in_file = |failure: Failure| failure.in_file(&arguments.subject);
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
            let (item, key) =
                item_and_key(&envelope).map_err(|refusal| in_file(refused(&refusal)))?;
            known.demand_or_ask(&item.host.id, &key)?;
            let told = render::pending(envelope.payload())?;
            let life_s = arguments.life_s.unwrap_or(LIFE_DEFAULT_S);
            let reason = arguments.reason.as_deref().unwrap_or_default();
            let id = PendingItem::id(envelope.payload());
            let statement = item.statement(id, nonce()?, window(now(), life_s)?, reason);
            return Self::of(statement.to_bytes()?, OfferOrigin::Pending { told });
        }
        only_for_pending(arguments)?;
        let offer = Self::of(envelope.payload().to_vec(), OfferOrigin::Envelope { sealed: bytes });
        let offer = offer.map_err(in_file)?;
        offer.signatures_hold(&envelope).map_err(in_file)?;
        known.compare(offer.statement.host()).map_err(in_file)?;
        Ok(offer)
    }

    fn of(payload: Vec<u8>, origin: OfferOrigin) -> Result<Self, Failure> {
        let statement = AnyStatement::parse(&payload)?;
        Ok(Self { payload, statement, origin })
    }

    /// Nothing is added to a signature that does not hold.
    fn signatures_hold(&self, envelope: &Envelope) -> Result<(), Failure> {
        for signature in envelope.signatures() {
            let key = PublicKey::from_blob(signature.key_blob())?;
            signature.verify(&key, self.statement.namespace(), &self.payload)?;
        }
        Ok(())
    }

    /// The envelope with these signatures, after those it has.
    pub(crate) fn seal(&self, armours: &[&str]) -> Result<String, Failure> {
        match &self.origin {
            OfferOrigin::Pending { .. } | OfferOrigin::Statement => {
                Ok(Envelope::seal(&self.payload, armours)?)
            }
            OfferOrigin::Envelope { sealed } => {
                let mut text = String::from_utf8_lossy(sealed).into_owned();
                for armour in armours {
                    text = Envelope::seal_again(text.as_bytes(), armour)?;
                }
                Ok(text)
            }
        }
    }

    /// What a person reads before signing.
    pub(crate) fn words(&self) -> Result<String, Failure> {
        let statement = render::any_statement(&self.payload)?;
        Ok(match &self.origin {
            OfferOrigin::Pending { told } => {
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
fn not_signed_elsewhere(arguments: &SignArgs) -> Result<(), Failure> {
    if arguments.signature.is_empty() {
        return Ok(());
    }
    let message = format!("{} is a pending item, and not what was signed", arguments.subject);
    Err(Failure::new(Exit::Usage, message).hint("name the statement that --prepare wrote"))
}

fn only_for_pending(arguments: &SignArgs) -> Result<(), Failure> {
    if arguments.reason.is_none() && arguments.life_s.is_none() {
        return Ok(());
    }
    let message = "a statement has its own reason and its own window";
    Err(Failure::new(Exit::Usage, message).hint("leave --reason and --life out"))
}
