//! Denials: an operator's signed no to one pending item.
//!
//! A denial ends its item, whatever signatures are there already. It allows nothing, so one operational key is enough and it
//! may be delivered any number of times. It is no statement about the guest: what is asked for anew is a new item.

use serde::Serialize;

use super::authorise::{SignedBy, StatementLimits, judge_time};
use super::clock::ClockReading;
use super::envelope::Envelope;
use super::hash::PendingId;
use super::json;
use super::sshsig::Namespace;
use super::statement::{
    HostBinding, STATEMENT_BYTES_MAX, Window, WrittenHost, payload, read_host, read_reason,
    read_window, to_json,
};
use super::trust::{Role, TrustVersion, TrustedSigners};
use crate::model::reason::{ReasonCode, Refusal};

/// The format the first field names.
pub const DENIAL_FORMAT: &str = "evenkeel/deny/v1";

/// An item that shall not be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialStatement {
    /// Where.
    pub host: HostBinding,
    /// Which item.
    pub item: PendingId,
    /// When.
    pub window: Window,
    /// Under which signers.
    pub trust_version: TrustVersion,
    /// Why, in the operator's words; never empty.
    pub reason: String,
}

impl DenialStatement {
    /// The bytes to be signed, read back before they are given out.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct WrittenDenial<'a> {
            format: &'static str,
            host: WrittenHost,
            item: String,
            not_before: u64,
            expires_at: u64,
            trust_version: u64,
            reason: &'a str,
        }
        let Self { host, item, window, trust_version, reason } = self;
        let bytes = to_json(&WrittenDenial {
            format: DENIAL_FORMAT,
            host: WrittenHost::of(host),
            item: item.to_string(),
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
            trust_version: trust_version.0,
            reason,
        });
        if Self::parse(&bytes)? == *self {
            return Ok(bytes);
        }
        Err(Refusal::new(ReasonCode::Payload, "the denial does not read back as it was made"))
    }

    /// The denial in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = || {
            let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX)?;
            fields.exactly("format", DENIAL_FORMAT)?;
            let host = read_host(&mut fields)?;
            let item = fields.parsed("item")?;
            let window = read_window(&mut fields)?;
            let trust_version = TrustVersion(fields.integer("trust_version")?);
            let reason = read_reason(&mut fields)?;
            fields.finish()?;
            Ok(Self { host, item, window, trust_version, reason })
        };
        let denial = read().map_err(|error| payload(&error))?;
        if denial.reason.trim().is_empty() {
            return Err(Refusal::new(ReasonCode::Payload, "a denial says why"));
        }
        Ok(denial)
    }

    /// Verifies an envelope by the host's signers and reads what they deny. Whether that item waits is asked of the journal.
    pub fn judge(
        envelope: &Envelope,
        host: &HostBinding,
        trust: &TrustedSigners,
        clock: &ClockReading,
        limits: StatementLimits,
    ) -> Result<(Vec<SignedBy>, Self), Refusal> {
        let approvers = envelope.verify(Namespace::Deny, trust, clock.now)?;
        for approver in &approvers {
            match approver.signer.role {
                Role::Operational => {}
                role @ (Role::Recovery | Role::Author) => {
                    let name = &approver.signer.name;
                    let detail =
                        format!("{name} is {role}; only an operational key denies an item");
                    return Err(Refusal::new(ReasonCode::RoleDenied, detail));
                }
            }
        }
        let denial = Self::parse(envelope.payload())?;
        if denial.host != *host {
            let detail = format!("it was signed for the host {}", denial.host);
            return Err(Refusal::new(ReasonCode::HostMismatch, detail));
        }
        if denial.trust_version != trust.version() {
            let signed = denial.trust_version;
            let current = trust.version();
            let detail = format!("signed under trust version {signed}; this host is at {current}");
            return Err(Refusal::new(ReasonCode::TrustVersion, detail));
        }
        judge_time(denial.window, clock, limits)?;
        Ok((approvers.iter().map(SignedBy::of).collect(), denial))
    }
}
