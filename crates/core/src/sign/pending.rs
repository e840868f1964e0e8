//! Pending items: what a host says of an act that waits for a signature, signed by the host itself.
//!
//! The hub shows them and cannot misdescribe them: the operator's tool verifies the host's signature by
//! the pinned key, shows what the bytes say, and makes the statement from them. An item is named by the
//! hash of its bytes; a new digest makes new bytes, so an old approval is stale by itself.

use std::collections::BTreeMap;

use serde::Serialize;

use super::envelope::Envelope;
use super::hash::PendingId;
use super::json::{self, Json, JsonFields, Malformed};
use super::key::PublicKey;
use super::nonce::Nonce;
use super::params;
use super::sshsig::Namespace;
use super::statement::{
    Expected, HostBinding, STATEMENT_BYTES_MAX, Statement, Window, WrittenHost, payload, read_host,
    to_json,
};
use super::trust::TrustVersion;
use crate::action_registry::ActionKind;
use crate::gate::approval::saves_first;
use crate::model::id::GuestId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;

const PENDING_FORMAT: &str = "evenkeel/pending/v1";

/// An act that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingItem {
    /// What would be done.
    pub op: ActionKind,
    /// Where.
    pub host: HostBinding,
    /// To which guest.
    pub guest: GuestId,
    /// The guest's own name, for a person; it binds nothing.
    pub guest_name: String,
    /// What was found under that number.
    pub expected: Expected,
    /// With which parameters, all of them.
    pub params: BTreeMap<String, String>,
    /// What would be lost.
    pub losses: Vec<Loss>,
    /// When a backup was last made.
    pub last_backup: LastBackup,
    /// Drawn by the host each time it raises an item: no two have the same name, even if they say the same about guests
    /// that look the same. A clock could not tell them apart.
    pub serial: Nonce,
    /// When the item was raised, by the host's effective clock.
    pub raised_at: UnixSeconds,
    /// The version of the host's trust store.
    pub trust_version: TrustVersion,
}

/// When a guest was last saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastBackup {
    /// Then, by the newest backup that a storage lists.
    At(UnixSeconds),
    /// No storage lists a backup.
    Never,
    /// Not every storage could be read.
    Unknown,
}

impl LastBackup {
    /// The moment, if one is known.
    pub fn at(self) -> Option<UnixSeconds> {
        match self {
            Self::At(at) => Some(at),
            Self::Never | Self::Unknown => None,
        }
    }
}

/// A backup older than this is no reason to go without a final one: backups are made every night.
const FRESH_BACKUP_S: u64 = 24 * 60 * 60;

/// One thing that would be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What: a volume, a snapshot.
    pub what: String,
    /// How large; none if it is not known.
    pub size_bytes: Option<u64>,
}

impl PendingItem {
    /// Whether whoever signs should rather have the guest saved first. What cannot be read recommends nothing.
    pub fn wants_final_backup(&self) -> bool {
        let stale = match self.last_backup {
            LastBackup::At(at) => at.plus(FRESH_BACKUP_S) < self.raised_at,
            LastBackup::Never => true,
            LastBackup::Unknown => false,
        };
        self.op == ActionKind::Destroy && stale && !saves_first(&self.params)
    }

    /// The bytes the host key signs, and by whose hash the item is known.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let (identity, expect_digest) = self.expected.texts();
        let losses = self.losses.iter().map(|Loss { what, size_bytes }| WrittenLoss {
            what,
            size_bytes: size_bytes.map_or(OrNot::Not("unknown"), OrNot::Number),
        });
        let written = WrittenItem {
            format: PENDING_FORMAT,
            op: self.op,
            host: WrittenHost::of(&self.host),
            guest: self.guest,
            guest_name: &self.guest_name,
            identity,
            expect_digest,
            params: &self.params,
            losses: losses.collect(),
            last_backup: match self.last_backup {
                LastBackup::At(at) => OrNot::Number(at.0),
                LastBackup::Never => OrNot::Not("none"),
                LastBackup::Unknown => OrNot::Not("unknown"),
            },
            serial: self.serial,
            raised_at: self.raised_at.0,
            trust_version: self.trust_version.0,
        };
        let bytes = to_json(&written);
        if Self::parse(&bytes)? == *self {
            return Ok(bytes);
        }
        Err(Refusal::new(ReasonCode::Payload, "the item does not read back as it was made"))
    }

    /// The name of an item with these bytes.
    pub fn id(bytes: &[u8]) -> PendingId {
        PendingId::of(bytes)
    }

    /// The item in exact bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::read(bytes).map_err(|error| payload(&error))
    }

    /// The item in an envelope signed by the one host key the operator has pinned.
    pub fn verify(envelope: &Envelope, pinned: &PublicKey) -> Result<Self, Refusal> {
        let [signature] = envelope.signatures() else {
            return Err(Refusal::new(ReasonCode::Envelope, "an item is signed by its host alone"));
        };
        if signature.key_blob() != pinned.blob() {
            let detail = "the item is not signed by the pinned key of its host";
            return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
        }
        signature.verify(pinned, Namespace::Pending, envelope.payload())?;
        let item = Self::parse(envelope.payload())?;
        if item.host.key != pinned.fingerprint() {
            let detail = "the item names another host key than it is signed by";
            return Err(Refusal::new(ReasonCode::HostMismatch, detail));
        }
        Ok(item)
    }

    /// The statement that approves it; `item` is the name of the exact bytes that it was read from. It is valid from when
    /// the item was raised at the earliest, by the host's own clock.
    pub fn statement(
        &self,
        item: PendingId,
        nonce: Nonce,
        window: Window,
        reason: &str,
    ) -> Statement {
        Statement {
            op: self.op,
            host: self.host.clone(),
            guest: self.guest,
            expected: self.expected.clone(),
            params: self.params.clone(),
            item,
            nonce,
            window: window.not_before_at_least(self.raised_at),
            trust_version: self.trust_version,
            reason: reason.to_owned(),
        }
    }

    /// Whether a statement approves exactly this item: what signatures that are there already are over, before another key
    /// signs the same. Its nonce, its window and its reason are those of whoever signed first.
    pub fn is_approved_by(&self, item: PendingId, statement: &Statement) -> bool {
        let Statement { nonce, window, reason, .. } = statement;
        self.statement(item, *nonce, *window, reason) == *statement
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX)?;
        fields.exactly("format", PENDING_FORMAT)?;
        let op = fields.parsed("op")?;
        let host = read_host(&mut fields)?;
        let guest: GuestId = fields.parsed("guest")?;
        let guest_name = fields.text("guest_name")?;
        let expected = Expected::read(&mut fields)?;
        let params = fields.object("params")?.into_texts()?;
        params::check(op, guest.kind, &params)?;
        let losses = fields.list("losses")?.into_iter().map(read_loss);
        let losses = losses.collect::<Result<_, _>>()?;
        let last_backup = match fields.take("last_backup")? {
            Json::Integer(at) => LastBackup::At(UnixSeconds(at)),
            Json::Text(text) if text == "none" => LastBackup::Never,
            Json::Text(text) if text == "unknown" => LastBackup::Unknown,
            Json::Text(_) | Json::List(_) | Json::Object(_) => {
                let why = "`last_backup` is a whole number, `none` or `unknown`";
                return Err(Malformed::new(why.to_owned()));
            }
        };
        let serial = fields.parsed("serial")?;
        let raised_at = UnixSeconds(fields.integer("raised_at")?);
        let trust_version = TrustVersion(fields.integer("trust_version")?);
        fields.finish()?;
        Ok(Self {
            op,
            host,
            guest,
            guest_name,
            expected,
            params,
            losses,
            last_backup,
            serial,
            raised_at,
            trust_version,
        })
    }
}

fn read_loss(value: Json) -> Result<Loss, Malformed> {
    let mut fields = JsonFields::of("a loss", value)?;
    let what = fields.text("what")?;
    let size_bytes = number_or(&mut fields, "size_bytes", "unknown")?;
    fields.finish()?;
    Ok(Loss { what, size_bytes })
}

/// A number, or the one word that stands for having none.
fn number_or(fields: &mut JsonFields, name: &str, word: &str) -> Result<Option<u64>, Malformed> {
    match fields.take(name)? {
        Json::Integer(number) => Ok(Some(number)),
        Json::Text(text) if text == word => Ok(None),
        Json::Text(_) | Json::List(_) | Json::Object(_) => {
            Err(Malformed::new(format!("`{name}` is a whole number or `{word}`")))
        }
    }
}

#[derive(Serialize)]
struct WrittenItem<'a> {
    format: &'static str,
    op: ActionKind,
    host: WrittenHost,
    guest: GuestId,
    guest_name: &'a str,
    identity: String,
    expect_digest: String,
    params: &'a BTreeMap<String, String>,
    losses: Vec<WrittenLoss<'a>>,
    last_backup: OrNot,
    serial: Nonce,
    raised_at: u64,
    trust_version: u64,
}

#[derive(Serialize)]
struct WrittenLoss<'a> {
    what: &'a str,
    size_bytes: OrNot,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OrNot {
    Number(u64),
    Not(&'static str),
}
