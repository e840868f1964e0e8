//! Rotations: how the signers of a host change, and how its mark of time is set right.
//!
//! ```text
//! trust v7 ── rotate  (an operational key, and each new key) ──► trust v8
//! trust v8 ── recover (a recovery key, and each new key) ──────► trust v9, from any state
//! ```
//!
//! A rotation names its host, its number (exactly one more), the head it follows and the whole new list
//! of signers. Because a statement names the trust version it was made under, every rotation voids what
//! is outstanding. A planned one cannot touch recovery keys. The agent makes the result durable and
//! replays the same envelopes through the same function with the time they were accepted at.

use serde::Serialize;

use super::clock::Reading;
use super::envelope::{Envelope, verify_one};
use super::hash::TrustHash;
use super::json::{self, Fields, Json, Malformed};
use super::key::PublicKey;
use super::sshsig::{Namespace, SshSig};
use super::statement::{
    HostBinding, STATEMENT_BYTES_MAX, Window, WrittenHost, payload, read_host, read_reason,
    read_window, to_json,
};
use super::trust::{Lookup, Role, Signer, SignerRecord, Trust, TrustVersion};
use crate::operation::UnixSeconds;
use crate::reason::{ReasonCode, Refusal};

/// By whose word the signers change. Of two that wait, the first in this order is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// A recovery key's: anything may change.
    Recovery,
    /// An operational key's: everything but the recovery keys.
    Planned,
}

impl Authority {
    /// Both, the stronger first.
    pub const ALL: [Self; 2] = [Self::Recovery, Self::Planned];

    /// What its signatures are for.
    pub fn namespace(self) -> Namespace {
        match self {
            Self::Recovery => Namespace::Recover,
            Self::Planned => Namespace::Rotate,
        }
    }

    /// The role that may sign it.
    pub fn role(self) -> Role {
        match self {
            Self::Recovery => Role::Recovery,
            Self::Planned => Role::Operational,
        }
    }

    /// The format its statement names.
    pub fn format(self) -> &'static str {
        match self {
            Self::Recovery => "evenkeel/recover/v1",
            Self::Planned => "evenkeel/rotate/v1",
        }
    }
}

/// What happens to the mark of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// Nothing.
    Keep,
    /// It is set, if it is still what the operator saw.
    Set {
        /// The mark the operator saw.
        from: UnixSeconds,
        /// The mark from now on.
        to: UnixSeconds,
    },
}

/// A change of signers, as it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// By whose word.
    pub authority: Authority,
    /// Where.
    pub host: HostBinding,
    /// The number of the new list.
    pub version: TrustVersion,
    /// The head it follows.
    pub previous: TrustHash,
    /// The whole new list.
    pub signers: Vec<Signer>,
    /// What happens to the mark of time.
    pub clock: ClockChange,
    /// When.
    pub window: Window,
    /// Why, in the operator's words.
    pub reason: String,
}

/// What a rotation leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The signers from now on.
    pub trust: Trust,
    /// The mark of time from now on, if it was set.
    pub mark: Option<UnixSeconds>,
    /// What was signed.
    pub rotation: Rotation,
}

/// Judges a rotation in full and gives the new trust store. `clock` is the reading at which it was
/// accepted; a doubtful clock does not stop it, or nobody could set it right.
pub fn rotate(
    envelope: &Envelope,
    authority: Authority,
    trust: &Trust,
    host: &HostBinding,
    clock: &Reading,
    life_max_s: u64,
) -> Result<Rotated, Refusal> {
    let possessed = verify(envelope, authority, trust, clock.now)?;
    let rotation = Rotation::parse(envelope.payload(), authority)?;
    if rotation.host != *host {
        let detail = format!("it is for the host {}", rotation.host);
        return Err(Refusal::new(ReasonCode::HostMismatch, detail));
    }
    rotation.follows(trust)?;
    rotation.window.judge(clock.now, life_max_s)?;
    rotation.judge_signers(trust, &possessed, clock.now)?;
    let mark = match rotation.clock {
        ClockChange::Keep => None,
        ClockChange::Set { from, to } if from == clock.mark => Some(to),
        ClockChange::Set { .. } => {
            let detail = "the mark of time is no longer what this clock change was made for";
            return Err(Refusal::new(ReasonCode::Stale, detail));
        }
    };
    let head = TrustHash::of(envelope.payload());
    let trust = trust.followed_by(rotation.version, head, rotation.signers.clone())?;
    Ok(Rotated { trust, mark, rotation })
}

/// Verifies all signatures: at least one by the authorising role, the others by keys nobody knows yet.
/// Gives those new keys. The authority is asked first, so that a stranger's envelope costs nothing.
fn verify(
    envelope: &Envelope,
    authority: Authority,
    trust: &Trust,
    now: UnixSeconds,
) -> Result<Vec<PublicKey>, Refusal> {
    let (namespace, role) = (authority.namespace(), authority.role());
    let is_known = |signature: &&SshSig| match trust.lookup(signature.key_blob()) {
        Lookup::Trusted(_) => true,
        Lookup::Retired { .. } | Lookup::Unknown { .. } => false,
    };
    let (known, strangers): (Vec<&SshSig>, Vec<&SshSig>) =
        envelope.signatures().iter().partition(is_known);
    let mut authorised = Err(Refusal::new(ReasonCode::Envelope, "nobody signed"));
    if let Some(first) = strangers.first() {
        authorised = trust.lookup(first.key_blob()).trusted().map(|_| ());
    }
    for signature in known {
        let by = verify_one(signature, namespace, envelope.payload(), trust, now)?.signer;
        if by.role != role {
            let (name, theirs) = (&by.name, by.role);
            let detail = format!("{name} is {theirs}; only a {role} key signs this");
            return Err(Refusal::new(ReasonCode::RoleDenied, detail));
        }
        authorised = Ok(());
    }
    authorised?;
    let mut possessed = Vec::new();
    for signature in strangers {
        let key = PublicKey::from_blob(signature.key_blob())?;
        signature.verify(&key, namespace, envelope.payload())?;
        possessed.push(key);
    }
    Ok(possessed)
}

impl Rotation {
    /// The rotation in exact bytes, which must have been verified before.
    pub fn parse(bytes: &[u8], authority: Authority) -> Result<Self, Refusal> {
        let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX).map_err(|e| payload(&e))?;
        Self::read(&mut fields, authority).map_err(|error| payload(&error)).and_then(
            |(rotation, records)| {
                fields.finish().map_err(|error| payload(&error))?;
                let signers = records.into_iter().map(Signer::try_from);
                Ok(Self { signers: signers.collect::<Result<_, _>>()?, ..rotation })
            },
        )
    }

    fn read(
        fields: &mut Fields,
        authority: Authority,
    ) -> Result<(Self, Vec<SignerRecord>), Malformed> {
        fields.exactly("format", authority.format())?;
        let rotation = Self {
            authority,
            host: read_host(fields)?,
            version: TrustVersion(fields.integer("version")?),
            previous: fields.parsed("previous")?,
            signers: Vec::new(),
            clock: read_clock(fields)?,
            window: read_window(fields)?,
            reason: read_reason(fields)?,
        };
        let records = fields.list("signers")?.into_iter().map(read_signer);
        Ok((rotation, records.collect::<Result<_, _>>()?))
    }

    /// The bytes to be signed, read back before they are given out.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        let Self { authority, host, version, previous, signers, clock, window, reason } = self;
        let written = Written {
            format: authority.format(),
            host: WrittenHost::of(host),
            version: version.0,
            previous: *previous,
            signers: signers.iter().map(SignerRecord::from).collect(),
            clock: match clock {
                ClockChange::Keep => WrittenClock::Keep("keep"),
                ClockChange::Set { from, to } => WrittenClock::Set { from: from.0, to: to.0 },
            },
            not_before: window.not_before().0,
            expires_at: window.expires_at().0,
            reason,
        };
        let bytes = to_json(&written);
        if Self::parse(&bytes, *authority)? == *self {
            return Ok(bytes);
        }
        Err(Refusal::new(ReasonCode::Payload, "the rotation does not read back as it was made"))
    }

    /// Exactly one more, after exactly this head.
    fn follows(&self, trust: &Trust) -> Result<(), Refusal> {
        let refuse = |detail: String| Err(Refusal::new(ReasonCode::TrustVersion, detail));
        let (version, current) = (self.version, trust.version());
        if Some(version) != current.next() {
            return refuse(format!("it makes version {version}; this host is at {current}"));
        }
        if self.previous != trust.head() {
            return refuse("it follows another list of signers than this host has".to_owned());
        }
        Ok(())
    }

    fn judge_signers(
        &self,
        trust: &Trust,
        possessed: &[PublicKey],
        now: UnixSeconds,
    ) -> Result<(), Refusal> {
        for signer in &self.signers {
            match trust.lookup(signer.key.blob()) {
                Lookup::Trusted(before) if before.role != signer.role => {
                    let detail = format!("the key of {} had another role", signer.name);
                    return Err(Refusal::new(ReasonCode::RoleDenied, detail));
                }
                Lookup::Trusted(_) => {}
                Lookup::Retired { .. } | Lookup::Unknown { .. } => {
                    if !possessed.contains(&signer.key) {
                        let detail = format!("the new key of {} did not sign", signer.name);
                        return Err(Refusal::new(ReasonCode::Envelope, detail));
                    }
                }
            }
        }
        let listed = |key: &PublicKey| self.signers.iter().any(|signer| signer.key == *key);
        if let Some(stranger) = possessed.iter().find(|key| !listed(key)) {
            let detail = format!("{} signed and is no signer", stranger.fingerprint());
            return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
        }
        for role in Role::ALL {
            let usable = |signer: &&Signer| signer.role == role && signer.validity.holds(now);
            if self.signers.iter().filter(usable).count() == 0 {
                let detail = format!("no {role} key would be valid");
                return Err(Refusal::new(ReasonCode::Payload, detail));
            }
        }
        match self.authority {
            Authority::Recovery => Ok(()),
            Authority::Planned => self.leaves_recovery_alone(trust),
        }
    }

    fn leaves_recovery_alone(&self, trust: &Trust) -> Result<(), Refusal> {
        let recovery = |signer: &&Signer| signer.role == Role::Recovery;
        let before: Vec<&Signer> = trust.signers().filter(recovery).collect();
        let after: Vec<&Signer> = self.signers.iter().filter(recovery).collect();
        let same = before.len() == after.len() && before.iter().all(|key| after.contains(key));
        if same {
            return Ok(());
        }
        let detail = "only a recovery key changes recovery keys";
        Err(Refusal::new(ReasonCode::RoleDenied, detail))
    }
}

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    host: WrittenHost,
    version: u64,
    previous: TrustHash,
    signers: Vec<SignerRecord>,
    clock: WrittenClock,
    not_before: u64,
    expires_at: u64,
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenClock {
    Keep(&'static str),
    Set { from: u64, to: u64 },
}

fn read_clock(fields: &mut Fields) -> Result<ClockChange, Malformed> {
    match fields.take("clock")? {
        Json::Text(text) if text == "keep" => Ok(ClockChange::Keep),
        Json::Text(_) | Json::Integer(_) | Json::List(_) => {
            Err(Malformed::new("`clock` is `keep` or an object of `from` and `to`"))
        }
        Json::Object(object) => {
            let mut change = Fields::of("clock", Json::Object(object))?;
            let from = UnixSeconds(change.integer("from")?);
            let to = UnixSeconds(change.integer("to")?);
            change.finish()?;
            Ok(ClockChange::Set { from, to })
        }
    }
}

fn read_signer(value: Json) -> Result<SignerRecord, Malformed> {
    let mut fields = Fields::of("a signer", value)?;
    let record = SignerRecord {
        name: fields.text("name")?,
        role: fields.parsed("role")?,
        key: fields.text("key")?,
        valid_from: fields.integer("valid_from")?,
        valid_until: fields.integer("valid_until")?,
        sk: fields.parsed("sk")?,
    };
    fields.finish()?;
    Ok(record)
}
