//! Statements: the exact bytes an operator signs to approve one act, made and read strictly.
//!
//! The command line makes them with [`Statement::to_bytes`] and shows what those bytes say; the host
//! verifies a signature over the bytes and then reads the same bytes with [`Statement::parse`]. Nothing
//! is ever written out again to be compared. Every field is bound, none is optional.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::hash::PendingId;
use super::json::{self, JsonFields, Malformed};
use super::key::Fingerprint;
use super::nonce::Nonce;
use super::params;
use super::trust::TrustVersion;
use crate::action_registry::ActionKind;
use crate::model::id::{GuestId, HostId};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::{IdentityHash, UnixSeconds};

/// The format the first field names.
pub const STATEMENT_FORMAT: &str = "evenkeel/statement/v1";

/// The largest statement read: a configuration of every key PVE knows fits many times.
pub const STATEMENT_BYTES_MAX: usize = 64 * 1024;

/// The longest reason an operator may give.
pub const REASON_BYTES_MAX: usize = 1024;

/// How long statements may live unless the host's policy says less.
pub const STATEMENT_LIFE_MAX_S: u64 = 24 * 60 * 60;

/// The last second a statement may name: the end of the year 9999.
pub const LAST_SECOND: UnixSeconds = UnixSeconds(253_402_300_799);

/// One act, approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// What is done.
    pub op: ActionKind,
    /// Where.
    pub host: HostBinding,
    /// To which guest.
    pub guest: GuestId,
    /// What the operator saw under that number.
    pub expected: Expected,
    /// With which parameters, all of them.
    pub params: BTreeMap<String, String>,
    /// The pending item it approves, and no other, also not one that says the same.
    pub item: PendingId,
    /// Once.
    pub nonce: Nonce,
    /// When.
    pub window: Window,
    /// Under which signers.
    pub trust_version: TrustVersion,
    /// Why, in the operator's words.
    pub reason: String,
}

/// A host, by its name and its own key: a second host of that name is another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBinding {
    /// The name in its configuration.
    pub id: HostId,
    /// The fingerprint of its host key.
    pub key: Fingerprint,
}

impl fmt::Display for HostBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id, self.key)
    }
}

/// What must be found under the guest's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Exactly this guest, configured exactly so.
    Guest {
        /// Which guest it is.
        identity: IdentityHash,
        /// PVE's digest of its configuration.
        digest: ConfigDigest,
    },
    /// No guest.
    Free,
}

/// What stands in both fields when the number must be free.
const FREE: &str = "free";

/// PVE's digest of a configuration: the SHA-1 of the file as 40 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDigest(String);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a configuration digest is 40 lower-case hexadecimal digits")]
pub struct NotADigest;

impl FromStr for ConfigDigest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 40 && text.bytes().all(lower_hex) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotADigest)
        }
    }
}

impl fmt::Display for ConfigDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// From when until when, in UTC seconds; the end is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    not_before: UnixSeconds,
    expires_at: UnixSeconds,
}

impl Window {
    /// A window that has a beginning before its end.
    pub fn new(not_before: UnixSeconds, expires_at: UnixSeconds) -> Result<Self, Refusal> {
        let refuse = |why: &str| Err(Refusal::new(ReasonCode::Payload, why));
        if expires_at > LAST_SECOND {
            return refuse("`expires_at` lies after the year 9999");
        }
        if not_before >= expires_at {
            return refuse("`expires_at` is not after `not_before`");
        }
        Ok(Self { not_before, expires_at })
    }

    /// The same, beginning not before a moment; unchanged if it has ended by then.
    #[must_use]
    pub fn not_before_at_least(self, moment: UnixSeconds) -> Self {
        let not_before = self.not_before.max(moment);
        if not_before < self.expires_at { Self { not_before, ..self } } else { self }
    }

    /// Its first second.
    pub fn not_before(self) -> UnixSeconds {
        self.not_before
    }

    /// The first second that is no longer part of it.
    pub fn expires_at(self) -> UnixSeconds {
        self.expires_at
    }

    /// How long it is.
    pub fn life_s(self) -> u64 {
        self.expires_at.0 - self.not_before.0
    }

    /// Whether now lies in it and it is no longer than allowed.
    pub fn judge(self, now: UnixSeconds, life_max_s: u64) -> Result<(), Refusal> {
        let life_s = self.life_s();
        if life_s > life_max_s {
            let detail = format!("valid for {life_s} s; this host allows {life_max_s} s");
            return Err(Refusal::new(ReasonCode::LifetimeExceeded, detail));
        }
        if now < self.not_before {
            let detail = format!("valid in {} s", self.not_before.0 - now.0);
            return Err(Refusal::new(ReasonCode::NotYetValid, detail));
        }
        if now >= self.expires_at {
            let detail = format!("expired {} s ago; sign again", now.0 - self.expires_at.0);
            return Err(Refusal::new(ReasonCode::Expired, detail));
        }
        Ok(())
    }
}

impl Statement {
    /// The statement in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::read(bytes).map_err(|error| payload(&error))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX)?;
        fields.exactly("format", STATEMENT_FORMAT)?;
        let op = fields.parsed("op")?;
        let host = read_host(&mut fields)?;
        let guest: GuestId = fields.parsed("guest")?;
        let expected = Expected::read(&mut fields)?;
        let params = fields.object("params")?.into_texts()?;
        params::check(op, guest.kind, &params)?;
        let item = fields.parsed("item")?;
        let nonce = fields.parsed("nonce")?;
        let window = read_window(&mut fields)?;
        let trust_version = TrustVersion(fields.integer("trust_version")?);
        let reason = read_reason(&mut fields)?;
        fields.finish()?;
        Ok(Self { op, host, guest, expected, params, item, nonce, window, trust_version, reason })
    }

    /// The bytes to be signed. They are read back before they are given out, so that nothing is signed
    /// that a host would refuse to read.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let Self { op, host, guest, expected, params, item, nonce, window, trust_version, reason } =
            self;
        let (identity, expect_digest) = expected.texts();
        let written = WrittenStatement {
            format: STATEMENT_FORMAT,
            op: *op,
            host: WrittenHost::of(host),
            guest: *guest,
            identity,
            expect_digest,
            params,
            item: item.to_string(),
            nonce: *nonce,
            not_before: window.not_before.0,
            expires_at: window.expires_at.0,
            trust_version: trust_version.0,
            reason,
        };
        let bytes = to_json(&written);
        if Self::parse(&bytes)? == *self {
            return Ok(bytes);
        }
        Err(Refusal::new(ReasonCode::Payload, "the statement does not read back as it was made"))
    }
}

impl Expected {
    pub(super) fn read(fields: &mut JsonFields) -> Result<Self, Malformed> {
        let identity = fields.text("identity")?;
        let digest = fields.text("expect_digest")?;
        match (identity.as_str(), digest.as_str()) {
            (FREE, FREE) => Ok(Self::Free),
            (identity, digest) => Ok(Self::Guest {
                identity: identity
                    .parse()
                    .map_err(|error| Malformed::new(format!("`identity`: {error}")))?,
                digest: digest
                    .parse()
                    .map_err(|error| Malformed::new(format!("`expect_digest`: {error}")))?,
            }),
        }
    }

    pub(super) fn texts(&self) -> (String, String) {
        match self {
            Self::Guest { identity, digest } => (identity.to_string(), digest.to_string()),
            Self::Free => (FREE.to_owned(), FREE.to_owned()),
        }
    }
}

/// The fields in the order they are written.
#[derive(Serialize)]
struct WrittenStatement<'a> {
    format: &'static str,
    op: ActionKind,
    host: WrittenHost,
    guest: GuestId,
    identity: String,
    expect_digest: String,
    params: &'a BTreeMap<String, String>,
    item: String,
    nonce: Nonce,
    not_before: u64,
    expires_at: u64,
    trust_version: u64,
    reason: &'a str,
}

#[derive(Serialize)]
pub(crate) struct WrittenHost {
    id: String,
    key: String,
}

impl WrittenHost {
    pub(crate) fn of(host: &HostBinding) -> Self {
        Self { id: host.id.to_string(), key: host.key.to_string() }
    }
}

pub(crate) fn to_json(written: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(written).expect("texts and numbers can always be written as JSON")
}

pub(crate) fn payload(error: &Malformed) -> Refusal {
    Refusal::new(ReasonCode::Payload, error.to_string())
}

pub(crate) fn read_host(fields: &mut JsonFields) -> Result<HostBinding, Malformed> {
    let mut host = fields.object("host")?;
    let binding = HostBinding { id: host.parsed("id")?, key: host.parsed("key")? };
    host.finish()?;
    Ok(binding)
}

pub(crate) fn read_window(fields: &mut JsonFields) -> Result<Window, Malformed> {
    let not_before = UnixSeconds(fields.integer("not_before")?);
    let expires_at = UnixSeconds(fields.integer("expires_at")?);
    Window::new(not_before, expires_at).map_err(|refusal| Malformed::new(refusal.detail))
}

pub(crate) fn read_reason(fields: &mut JsonFields) -> Result<String, Malformed> {
    let reason = fields.text("reason")?;
    if reason.len() > REASON_BYTES_MAX || reason.contains(char::is_control) {
        let why = format!("`reason` is one line of at most {REASON_BYTES_MAX} bytes");
        return Err(Malformed::new(why));
    }
    Ok(reason)
}
