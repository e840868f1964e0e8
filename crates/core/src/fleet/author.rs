//! What an author signs: that one host shall have one document under one number.
//!
//! `fleet push --key` makes it, the host judges it once, when the document is taken. It is bound to the hub, the host and
//! its key, the number and the manifest's hash; a document that was taken never expires.

use serde::Serialize;

use super::host_statement::{ToldHub, parse, read_back, read_parties};
use super::name::{Generation, HubId};
use crate::operation::UnixSeconds;
use crate::reason::{ReasonCode, Refusal};
use crate::sign::json::{JsonFields, Malformed};
use crate::sign::statement::{read_window, to_json};
use crate::sign::{
    Envelope, HostBinding, ManifestHash, Namespace, Role, SignerName, TrustedSigners, Window,
};

/// The format the first field names.
pub const DESIRED_FORMAT: &str = "evenkeel/desired/v1";

/// How long an author's signature may wait for its host: a host that was off over a week gets a new one.
pub const AUTHOR_WINDOW_MAX_S: u64 = 7 * 24 * 60 * 60;

/// One document for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredStatement {
    /// Through which hub.
    pub hub_id: HubId,
    /// For whom.
    pub host: HostBinding,
    /// Under which number.
    pub generation: Generation,
    /// What: the hash of the manifest's exact bytes.
    pub manifest: ManifestHash,
    /// When it may be taken.
    pub window: Window,
}

impl DesiredStatement {
    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Document {
            generation: u64,
            manifest: ManifestHash,
            not_before: u64,
            expires_at: u64,
        }
        let Self { hub_id, host, generation, manifest, window } = self;
        let document = Document {
            generation: generation.0,
            manifest: *manifest,
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
        };
        let bytes = to_json(&ToldHub::new(DESIRED_FORMAT, hub_id, host, document));
        read_back(self, bytes, Self::parse)
    }

    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let read = |mut fields: JsonFields| {
            let (hub_id, host) = read_parties(&mut fields)?;
            let generation = Generation(fields.integer("generation")?);
            if generation == Generation::NONE {
                return Err(Malformed::new("`generation` counts from 1"));
            }
            let manifest = fields.parsed("manifest")?;
            let window = read_window(&mut fields)?;
            fields.finish()?;
            Ok(Self { hub_id, host, generation, manifest, window })
        };
        parse(bytes, DESIRED_FORMAT, read)
    }

    /// Verifies every signature of an envelope by the host's signers, that an author made each, and that it may be taken
    /// now. Who signed, and the statement; whether it is of this document is asked of `judge_document`.
    pub fn verify(
        envelope: &Envelope,
        trust: &TrustedSigners,
        now: UnixSeconds,
    ) -> Result<(SignerName, Self), Refusal> {
        let approvers = envelope.verify(Namespace::Desired, trust, now)?;
        for approver in &approvers {
            let name = &approver.signer.name;
            match approver.signer.role {
                Role::Author => {}
                role @ (Role::Operational | Role::Recovery) => {
                    let detail = format!("{name} has the role {role}, which signs no document");
                    return Err(Refusal::new(ReasonCode::RoleDenied, detail));
                }
            }
        }
        let Some(first) = approvers.first() else {
            return Err(Refusal::new(ReasonCode::Envelope, "nobody signed the document"));
        };
        let statement = Self::parse(envelope.payload())?;
        statement.window.judge(now, AUTHOR_WINDOW_MAX_S)?;
        Ok((first.signer.name.clone(), statement))
    }
}
