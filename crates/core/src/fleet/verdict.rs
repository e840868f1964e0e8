//! What a host says of an envelope, signed by its own key: the hub that carries the word cannot write one.
//!
//! The agent makes it when the verdict is known, the hub keeps it as it came, and the tool of whoever handed the envelope in
//! verifies it by the pinned key. It names the bytes that were judged, because the name of an envelope is the hub's to give.

use serde::Serialize;

use super::host_statement::{ToldHub, names_its_key, parse, read_back, read_parties};
use super::name::{EnvelopeId, HubId};
use super::report::EnvelopeVerdict;
use super::sealed::{SealedText, payload_by_one_key};
use crate::model::id::HostId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::sign::json::JsonFields;
use crate::sign::statement::to_json;
use crate::sign::{HostBinding, Namespace, PayloadHash, PublicKey};

const VERDICT_FORMAT: &str = "evenkeel/verdict/v1";

/// What a person handed in, as the person knows it: nothing of it is the hub's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedIn {
    /// At which hub, as it was pinned at the first login.
    pub hub_id: HubId,
    /// For which host.
    pub host: HostId,
    /// The SHA-256 of the signed bytes.
    pub payload: PayloadHash,
}

/// A host vouches for what became of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictStatement {
    /// Through which hub the envelope came.
    pub hub_id: HubId,
    /// Who judged it.
    pub host: HostBinding,
    /// What the hub calls it.
    pub envelope: EnvelopeId,
    /// The SHA-256 of the bytes in it: what was judged.
    pub payload: PayloadHash,
    /// The reason code.
    pub code: String,
    /// The operation it began; empty if it began none.
    pub op: String,
    /// In words.
    pub detail: String,
}

impl VerdictStatement {
    /// The same verdict as a statement.
    pub fn of(
        hub_id: HubId,
        host: HostBinding,
        payload: PayloadHash,
        verdict: &EnvelopeVerdict,
    ) -> Self {
        let EnvelopeVerdict { envelope, code, op, detail, sealed: _ } = verdict.clone();
        Self { hub_id, host, envelope, payload, code, op: op.unwrap_or_default(), detail }
    }

    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Verdict<'a> {
            envelope: &'a str,
            payload: PayloadHash,
            code: &'a str,
            op: &'a str,
            detail: &'a str,
        }
        let Self { hub_id, host, envelope, payload, code, op, detail } = self;
        let verdict = Verdict { envelope: envelope.as_str(), payload: *payload, code, op, detail };
        let bytes = to_json(&ToldHub::new(VERDICT_FORMAT, hub_id, host, verdict));
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let (hub_id, host) = read_parties(&mut fields)?;
            let envelope = fields.parsed("envelope")?;
            let payload = fields.parsed("payload")?;
            let code = fields.text("code")?;
            let op = fields.text("op")?;
            let detail = fields.text("detail")?;
            fields.finish()?;
            Ok(Self { hub_id, host, envelope, payload, code, op, detail })
        };
        parse(bytes, VERDICT_FORMAT, read)
    }

    /// What a host really said of the bytes that a person handed in, found in what a hub tells. The name of the envelope is not
    /// compared: it is the hub's to give.
    pub fn about(
        told: &EnvelopeVerdict,
        key: &PublicKey,
        handed_in: &HandedIn,
    ) -> Result<Self, Refusal> {
        let unverified = |why: &str| Err(Refusal::new(ReasonCode::BindingMismatch, why));
        let Some(sealed) = &told.sealed else {
            return unverified("the hub shows no signature of the host");
        };
        let statement = Self::verify(sealed, key)?;
        let HandedIn { hub_id, host, payload } = handed_in;
        if statement.payload != *payload {
            return unverified("the host signed this about something else");
        }
        if statement.hub_id != *hub_id || statement.host.id != *host {
            return unverified("it was signed for another hub, or by another host");
        }
        Ok(statement)
    }

    /// The verdict in a seal by exactly this key, which must be the one it names.
    pub fn verify(sealed: &SealedText, key: &PublicKey) -> Result<Self, Refusal> {
        let envelope = sealed.envelope()?;
        let statement = Self::parse(payload_by_one_key(&envelope, key, Namespace::Verdict)?)?;
        names_its_key(&statement.host, key)?;
        Ok(statement)
    }
}
