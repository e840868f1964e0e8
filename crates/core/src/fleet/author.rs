//! What an author signs: that one host is to have one document under one number, in place of the one in effect there.
//!
//! `fleet push --key` makes it, the host judges it once, when the document is taken. It is bound to the hub, the host and
//! its key, the number, the manifest's hash and the base: the document that the author compared with, so that the
//! difference the author saw is the difference the host applies. A document that was taken never expires.

use serde::Serialize;

use super::host_statement::{ToldHub, parse, read_back, read_parties};
use super::name::{Generation, HubId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;
use crate::sign::json::{Json, JsonFields, Malformed};
use crate::sign::statement::{read_window, to_json};
use crate::sign::{
    Envelope, HostBinding, ManifestHash, Namespace, Role, SignerName, TrustedSigners, Window,
};

/// The format the first field names.
pub const DESIRED_FORMAT: &str = "evenkeel/desired/v2";

/// The format before, which has no base.
pub const DESIRED_FORMAT_V1: &str = "evenkeel/desired/v1";

/// How long an author's signature may wait for its host: a host that was off over a week gets a new one.
pub const AUTHOR_WINDOW_MAX_S: u64 = 7 * 24 * 60 * 60;

/// The `base` of a host's first document.
const NO_BASE: &str = "none";

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
    /// What the author compared it with.
    pub base: SignedBase,
    /// When it may be taken.
    pub window: Window,
}

/// A document by its number and content: what another one is signed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DocumentBase {
    /// Its number.
    pub generation: Generation,
    /// The hash of its manifest.
    pub manifest: ManifestHash,
}

impl std::fmt::Display for DocumentBase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short: String = self.manifest.to_string().chars().take(12).collect();
        write!(f, "generation {} ({short}…)", self.generation)
    }
}

/// What an author compared a document with before signing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedBase {
    /// With nothing: it is to be the host's first document.
    First,
    /// With this document, which is to be the one in effect.
    Over(DocumentBase),
    /// The old format does not say.
    Unsaid,
}

impl SignedBase {
    /// The base of a document that comes after what is in effect.
    pub fn after(in_effect: Option<DocumentBase>) -> Self {
        in_effect.map_or(Self::First, Self::Over)
    }
}

impl DesiredStatement {
    /// What a signature over it is made for.
    pub fn namespace(&self) -> Namespace {
        match self.base {
            SignedBase::First | SignedBase::Over(_) => Namespace::Desired,
            SignedBase::Unsaid => Namespace::DesiredV1,
        }
    }

    /// The bytes to be signed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Document {
            generation: u64,
            manifest: ManifestHash,
            #[serde(skip_serializing_if = "Option::is_none")]
            base: Option<WrittenBase>,
            not_before: u64,
            expires_at: u64,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum WrittenBase {
            First(&'static str),
            Over(DocumentBase),
        }
        let Self { hub_id, host, generation, manifest, base, window } = self;
        let (format, base) = match base {
            SignedBase::First => (DESIRED_FORMAT, Some(WrittenBase::First(NO_BASE))),
            SignedBase::Over(base) => (DESIRED_FORMAT, Some(WrittenBase::Over(*base))),
            SignedBase::Unsaid => (DESIRED_FORMAT_V1, None),
        };
        let document = Document {
            generation: generation.0,
            manifest: *manifest,
            base,
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
        };
        let bytes = to_json(&ToldHub::new(format, hub_id, host, document));
        read_back(self, bytes, |bytes| Self::parse(bytes, self.namespace()))
    }

    /// The statement in exact bytes, which must have been verified for this purpose before: the format is the purpose's.
    pub fn parse(bytes: &[u8], namespace: Namespace) -> Result<Self, Refusal> {
        let is_v1 = namespace == Namespace::DesiredV1;
        let format = if is_v1 { DESIRED_FORMAT_V1 } else { DESIRED_FORMAT };
        let read = |mut fields: JsonFields| {
            let (hub_id, host) = read_parties(&mut fields)?;
            let generation = read_generation(&mut fields)?;
            let manifest = fields.parsed("manifest")?;
            let base = if is_v1 { SignedBase::Unsaid } else { read_base(&mut fields)? };
            let window = read_window(&mut fields)?;
            fields.finish()?;
            Ok(Self { hub_id, host, generation, manifest, base, window })
        };
        parse(bytes, format, read)
    }

    /// What the signatures of an envelope say they are made for: a document in the old format, or in today's.
    pub fn claimed_namespace(envelope: &Envelope) -> Namespace {
        match envelope.claimed_namespace() {
            Some(Namespace::DesiredV1) => Namespace::DesiredV1,
            Some(_) | None => Namespace::Desired,
        }
    }

    /// Verifies every signature of an envelope by the host's signers, that an author made each, and that it may be taken
    /// now. Who signed, and the statement; whether it is of this document is asked of `judge_document`.
    pub fn verify(
        envelope: &Envelope,
        trust: &TrustedSigners,
        now: UnixSeconds,
    ) -> Result<(SignerName, Self), Refusal> {
        let namespace = Self::claimed_namespace(envelope);
        let approvers = envelope.verify(namespace, trust, now)?;
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
        let statement = Self::parse(envelope.payload(), namespace)?;
        statement.window.judge(now, AUTHOR_WINDOW_MAX_S)?;
        Ok((first.signer.name.clone(), statement))
    }
}

fn read_generation(fields: &mut JsonFields) -> Result<Generation, Malformed> {
    match Generation(fields.integer("generation")?) {
        Generation::NONE => Err(Malformed::new("`generation` counts from 1")),
        generation => Ok(generation),
    }
}

fn read_base(fields: &mut JsonFields) -> Result<SignedBase, Malformed> {
    match fields.take("base")? {
        Json::Text(text) if text == NO_BASE => Ok(SignedBase::First),
        base @ (Json::Object(_) | Json::Text(_) | Json::Integer(_) | Json::List(_)) => {
            let mut base = JsonFields::of("`base`", base)?;
            let generation = read_generation(&mut base)?;
            let manifest = base.parsed("manifest")?;
            base.finish()?;
            Ok(SignedBase::Over(DocumentBase { generation, manifest }))
        }
    }
}
