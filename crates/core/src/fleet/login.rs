//! What a person signs to log in at a hub. It is worth nothing on any host, and nothing at another hub or address.

use serde::Serialize;

use super::host_statement::{parse, read_back};
use super::name::HubId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::sign::json::{JsonFields, Malformed};
use crate::sign::statement::to_json;
use crate::sign::{Envelope, Namespace, Nonce, PublicKey};

const LOGIN_FORMAT: &str = "evenkeel/login/v1";

/// The longest origin and account.
const TEXT_BYTES_MAX: usize = 512;

/// A person logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginStatement {
    /// The hub, as the person's tool pinned it.
    pub hub_id: HubId,
    /// The origin that was dialled: scheme, host and port.
    pub origin: String,
    /// The account.
    pub account: String,
    /// The hub's challenge.
    pub nonce: Nonce,
}

impl LoginStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Written<'a> {
            format: &'static str,
            hub_id: &'a HubId,
            origin: &'a str,
            account: &'a str,
            nonce: Nonce,
        }
        let Self { hub_id, origin, account, nonce } = self;
        let bytes =
            to_json(&Written { format: LOGIN_FORMAT, hub_id, origin, account, nonce: *nonce });
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let hub_id = fields.parsed("hub_id")?;
            let origin = fields.text("origin")?;
            let account = fields.text("account")?;
            for (name, text) in [("origin", &origin), ("account", &account)] {
                if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.contains(char::is_control)
                {
                    return Err(Malformed::new(format!("`{name}` is no line of text")));
                }
            }
            let nonce = fields.parsed("nonce")?;
            fields.finish()?;
            Ok(Self { hub_id, origin, account, nonce })
        };
        parse(bytes, LOGIN_FORMAT, read)
    }

    /// The statement in an envelope that one of these keys, and nobody else, signed.
    pub fn verify<'k>(
        envelope: &Envelope,
        mut keys: impl Iterator<Item = &'k PublicKey>,
    ) -> Result<(&'k PublicKey, Self), Refusal> {
        let [signature] = envelope.signatures() else {
            return Err(Refusal::new(ReasonCode::Envelope, "a login has one signature"));
        };
        let Some(key) = keys.find(|key| key.blob() == signature.key_blob()) else {
            return Err(Refusal::new(ReasonCode::UnknownSigner, "no key of the account signed it"));
        };
        signature.verify(key, Namespace::Login, envelope.payload())?;
        Ok((key, Self::parse(envelope.payload())?))
    }
}
