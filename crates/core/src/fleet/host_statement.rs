//! What a host signs with its own key for the hub: an enrolment, a report, the head of its journal.
//!
//! The agent makes them; the hub verifies the bytes and then reads the same bytes. Each has a namespace of its own. They
//! allow nothing on any host: a stolen one tells what a host said, once.

use serde::Serialize;

use super::anchor::JournalHead;
use super::name::{HubId, InstanceId};
use super::sealed::payload_by_one_key;
use crate::model::reason::{ReasonCode, Refusal};
use crate::sign::json::{self, JsonFields, Malformed};
use crate::sign::statement::{WrittenHost, payload, read_host, to_json};
use crate::sign::{Envelope, HostBinding, Namespace, PayloadHash, PublicKey, STATEMENT_BYTES_MAX};

const ENROL_FORMAT: &str = "evenkeel/enrol/v1";
const REPORT_FORMAT: &str = "evenkeel/report/v1";
const HEAD_FORMAT: &str = "evenkeel/head/v1";

/// The longest address of a hub that is bound.
const URL_BYTES_MAX: usize = 512;

/// A host asks to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolStatement {
    /// The SHA-256 of the token's text.
    pub token: PayloadHash,
    /// Who asks.
    pub host: HostBinding,
    /// The hub's address as the host dialled it, without a slash at its end.
    pub hub_url: String,
}

impl EnrolStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Written<'a> {
            format: &'static str,
            token: PayloadHash,
            host: WrittenHost,
            hub_url: &'a str,
        }
        let Self { token, host, hub_url } = self;
        let host = WrittenHost::of(host);
        let bytes = to_json(&Written { format: ENROL_FORMAT, token: *token, host, hub_url });
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let token = fields.parsed("token")?;
            let host = read_host(&mut fields)?;
            let hub_url = fields.text("hub_url")?;
            let plain = |byte: u8| byte.is_ascii_graphic();
            if hub_url.len() > URL_BYTES_MAX
                || !hub_url.bytes().all(plain)
                || hub_url.ends_with('/')
            {
                return Err(Malformed::new("`hub_url` is no address without a slash at its end"));
            }
            fields.finish()?;
            Ok(Self { token, host, hub_url })
        };
        parse(bytes, ENROL_FORMAT, read)
    }

    /// The statement in an envelope by exactly this key, which must be the one it names.
    pub fn verify(envelope: &Envelope, key: &PublicKey) -> Result<Self, Refusal> {
        let bytes = payload_by_one_key(envelope, key, Namespace::Enrol)?;
        let statement = Self::parse(bytes)?;
        names_its_key(&statement.host, key)?;
        Ok(statement)
    }
}

/// A host vouches for a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportStatement {
    /// To whom.
    pub hub_id: HubId,
    /// Who.
    pub host: HostBinding,
    /// In which life of the agent.
    pub instance: InstanceId,
    /// The number of the report in that life, from 1.
    pub seq: u64,
    /// The number of the report that it builds on; 0 for a whole one.
    pub base: u64,
    /// The SHA-256 of the body.
    pub sha256: PayloadHash,
}

impl ReportStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Report<'a> {
            instance: &'a InstanceId,
            seq: u64,
            base: u64,
            sha256: PayloadHash,
        }
        let Self { hub_id, host, instance, seq, base, sha256 } = self;
        let report = Report { instance, seq: *seq, base: *base, sha256: *sha256 };
        let written = ToldHub::new(REPORT_FORMAT, hub_id, host, report);
        // Compact: a quiet host sends one of these a minute.
        let bytes = serde_json::to_vec(&written).expect("texts and numbers can always be written");
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let (hub_id, host) = read_parties(&mut fields)?;
            let instance = fields.parsed("instance")?;
            let seq = fields.integer("seq")?;
            let base = fields.integer("base")?;
            let sha256 = fields.parsed("sha256")?;
            fields.finish()?;
            if seq == 0 || base >= seq {
                return Err(Malformed::new("`seq` counts from 1, and `base` is before it"));
            }
            Ok(Self { hub_id, host, instance, seq, base, sha256 })
        };
        parse(bytes, REPORT_FORMAT, read)
    }
}

/// A host vouches for how far its journal has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadStatement {
    /// To whom.
    pub hub_id: HubId,
    /// Whose journal.
    pub host: HostBinding,
    /// How far.
    pub head: JournalHead,
}

impl HeadStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let Self { hub_id, host, head } = self;
        let bytes = to_json(&ToldHub::new(HEAD_FORMAT, hub_id, host, head));
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let (hub_id, host) = read_parties(&mut fields)?;
            let head = JournalHead::read(&mut fields)?;
            fields.finish()?;
            Ok(Self { hub_id, host, head })
        };
        parse(bytes, HEAD_FORMAT, read)
    }

    /// The head in an envelope by exactly this key, which must be the one it names.
    pub fn verify(envelope: &Envelope, key: &PublicKey) -> Result<Self, Refusal> {
        let statement = Self::parse(payload_by_one_key(envelope, key, Namespace::Head)?)?;
        names_its_key(&statement.host, key)?;
        Ok(statement)
    }
}

pub(super) fn names_its_key(host: &HostBinding, key: &PublicKey) -> Result<(), Refusal> {
    if host.key == key.fingerprint() {
        return Ok(());
    }
    let detail = "it names another host key than it is signed by";
    Err(Refusal::new(ReasonCode::HostMismatch, detail))
}

/// A statement to a hub as it is written: its format, the hub, the host, and then what is said.
#[derive(Serialize)]
pub(super) struct ToldHub<'a, T> {
    format: &'static str,
    hub_id: &'a HubId,
    host: WrittenHost,
    #[serde(flatten)]
    said: T,
}

impl<'a, T> ToldHub<'a, T> {
    pub(super) fn new(
        format: &'static str,
        hub_id: &'a HubId,
        host: &HostBinding,
        said: T,
    ) -> Self {
        Self { format, hub_id, host: WrittenHost::of(host), said }
    }
}

/// The hub and the host of such a statement.
pub(super) fn read_parties(fields: &mut JsonFields) -> Result<(HubId, HostBinding), Malformed> {
    Ok((fields.parsed("hub_id")?, read_host(fields)?))
}

/// Reads a statement of one format, the others by their own readers.
pub(super) fn parse<T>(
    bytes: &[u8],
    format: &str,
    read: impl FnOnce(JsonFields) -> Result<T, Malformed>,
) -> Result<T, Refusal> {
    let fields = json::parse(bytes, STATEMENT_BYTES_MAX).and_then(|mut fields| {
        fields.exactly("format", format)?;
        Ok(fields)
    });
    fields.and_then(read).map_err(|error| payload(&error))
}

/// Gives the bytes out to be signed, if they are read as they were meant.
pub(super) fn read_back<T: PartialEq>(
    meant: &T,
    bytes: Vec<u8>,
    parse: impl FnOnce(&[u8]) -> Result<T, Refusal>,
) -> Result<Vec<u8>, Refusal> {
    if parse(&bytes)? == *meant {
        return Ok(bytes);
    }
    Err(Refusal::new(ReasonCode::Payload, "the statement does not read back as it was made"))
}
