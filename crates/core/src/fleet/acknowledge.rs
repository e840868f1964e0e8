//! What an operator signs about a journal that was put back: that the lost part is known to be lost.
//!
//! It binds the host and its key, the head that was anchored and the head that was found. It begins a new epoch and a floor
//! in time: what was signed before is stale, because a nonce spent in the lost part must not live again. It is judged like
//! every other statement of an operational key, and only while the host says `journal_rollback`.

use serde::Serialize;

use super::anchor::JournalHead;
use super::host_statement::{parse, read_back};
use super::name::HubId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;
use crate::sign::json::JsonFields;
use crate::sign::statement::{WrittenHost, read_host, read_reason, read_window, to_json};
use crate::sign::{
    Envelope, HostBinding, Namespace, Nonce, PayloadHash, Role, SignerName, TrustVersion,
    TrustedSigners, Window,
};

/// The format the first field names.
pub const ACKNOWLEDGE_FORMAT: &str = "evenkeel/acknowledge/v1";

/// A rollback, known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgeStatement {
    /// Whose journal.
    pub host: HostBinding,
    /// Which hub's anchor.
    pub hub_id: HubId,
    /// How far the journal had come.
    pub anchored: JournalHead,
    /// How far it was found to be.
    pub found: JournalHead,
    /// Once.
    pub nonce: Nonce,
    /// When.
    pub window: Window,
    /// Under which signers.
    pub trust_version: TrustVersion,
    /// Why, in the operator's words.
    pub reason: String,
}

/// What an acknowledgement is about, as the host itself knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The host.
    pub host: HostBinding,
    /// Its hub.
    pub hub_id: HubId,
    /// The head that was anchored.
    pub anchored: JournalHead,
    /// The head that was found at start.
    pub found: JournalHead,
}

impl AcknowledgeStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Written<'a> {
            format: &'static str,
            host: WrittenHost,
            hub_id: &'a HubId,
            anchored: &'a JournalHead,
            found: &'a JournalHead,
            nonce: Nonce,
            not_before: u64,
            expires_at: u64,
            trust_version: u64,
            reason: &'a str,
        }
        let Self { host, hub_id, anchored, found, nonce, window, trust_version, reason } = self;
        let bytes = to_json(&Written {
            format: ACKNOWLEDGE_FORMAT,
            host: WrittenHost::of(host),
            hub_id,
            anchored,
            found,
            nonce: *nonce,
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
            trust_version: trust_version.0,
            reason,
        });
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let host = read_host(&mut fields)?;
            let hub_id = fields.parsed("hub_id")?;
            let mut anchored = fields.object("anchored")?;
            let mut found = fields.object("found")?;
            let heads = (JournalHead::read(&mut anchored)?, JournalHead::read(&mut found)?);
            anchored.finish()?;
            found.finish()?;
            let nonce = fields.parsed("nonce")?;
            let window = read_window(&mut fields)?;
            let trust_version = TrustVersion(fields.integer("trust_version")?);
            let reason = read_reason(&mut fields)?;
            fields.finish()?;
            let (anchored, found) = heads;
            Ok(Self { host, hub_id, anchored, found, nonce, window, trust_version, reason })
        };
        parse(bytes, ACKNOWLEDGE_FORMAT, read)
    }

    /// Verifies an envelope by the host's signers and judges it against what the host itself knows: who signed, and the
    /// statement. Whether its nonce was spent is asked of the journal.
    pub fn judge(
        envelope: &Envelope,
        about: &Acknowledged,
        trust: &TrustedSigners,
        now: UnixSeconds,
        life_max_s: u64,
    ) -> Result<(SignerName, PayloadHash, Self), Refusal> {
        let approvers = envelope.verify(Namespace::Acknowledge, trust, now)?;
        for approver in &approvers {
            match approver.signer.role {
                Role::Operational => {}
                role @ (Role::Recovery | Role::Author) => {
                    let name = &approver.signer.name;
                    let detail =
                        format!("{name} has the role {role}, which acknowledges no rollback");
                    return Err(Refusal::new(ReasonCode::RoleDenied, detail));
                }
            }
        }
        let Some(first) = approvers.first() else {
            return Err(Refusal::new(ReasonCode::Envelope, "nobody signed the acknowledgement"));
        };
        let statement = Self::parse(envelope.payload())?;
        let refuse = |reason, detail: &str| Err(Refusal::new(reason, detail));
        if statement.host != about.host {
            return refuse(ReasonCode::HostMismatch, "it is about the journal of another host");
        }
        if statement.trust_version != trust.version() {
            let detail = format!(
                "it was signed under trust version {}; this host is at {}",
                statement.trust_version,
                trust.version()
            );
            return Err(Refusal::new(ReasonCode::TrustVersion, detail));
        }
        // A rotation in the lost part is lost too: a key that was revoked in it must not speak here.
        if about.anchored.trust_version > trust.version() {
            let detail = format!(
                "the part of the journal that was lost knew the signers of version {}, and this host is back at {}: \
                 hand in the rotations since then again first",
                about.anchored.trust_version,
                trust.version()
            );
            return Err(Refusal::new(ReasonCode::TrustVersion, detail));
        }
        statement.window.judge(now, life_max_s)?;
        if statement.hub_id != about.hub_id {
            return refuse(ReasonCode::BindingMismatch, "it is about the anchor of another hub");
        }
        if statement.anchored != about.anchored || statement.found != about.found {
            return refuse(ReasonCode::BindingMismatch, "it is about other heads of the journal");
        }
        Ok((first.signer.name.clone(), envelope.payload_hash(), statement))
    }
}
