//! The trust store as a value: which keys sign what on this host, under which version.
//!
//! The agent makes one from `trust.toml`, moves it along the chain of rotations in its journal, and asks
//! it at the moment of execution. A key has one role and is looked up by its whole blob. A store without
//! a key of either needed role cannot be made, so nobody can be locked out by a rotation.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hash::TrustHash;
use super::key::{Fingerprint, PublicKey};
use super::wire::put_string;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;

/// How many signers one host may have; more people than that share a role by other means.
pub const SIGNERS_MAX: usize = 64;

/// How many retired keys are remembered, to answer `key_revoked` instead of `unknown_signer`.
const RETIRED_MAX: usize = 256;

/// The number of the trust store; every rotation adds one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustVersion(pub u64);

impl TrustVersion {
    /// The one that follows; none after the last number there is.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for TrustVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a key may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Destructive ops and planned rotations.
    Operational,
    /// Recovery rotations only.
    Recovery,
    /// Desired documents of a hub only.
    Author,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Operational, Self::Recovery, Self::Author];

    /// Those of which a host must always have a key. Who declares may be left to local files.
    pub const NEEDED: [Self; 2] = [Self::Operational, Self::Recovery];

    /// The spelling in files and statements.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operational => "operational",
            Self::Recovery => "recovery",
            Self::Author => "author",
        }
    }
}

/// What a security key must have asked of its holder; other keys have nothing to ask with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkPolicy {
    /// A touch.
    Presence,
    /// A touch, and a PIN or a finger.
    Verification,
}

impl SkPolicy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Presence, Self::Verification];

    /// The spelling in files and statements.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Presence => "presence",
            Self::Verification => "verification",
        }
    }
}

/// A word that is none of a closed list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it must be {0}")]
pub struct NotOneOf(&'static str);

impl FromStr for Role {
    type Err = NotOneOf;

    fn from_str(text: &str) -> Result<Self, NotOneOf> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or(NotOneOf("operational, recovery or author"))
    }
}

impl FromStr for SkPolicy {
    type Err = NotOneOf;

    fn from_str(text: &str) -> Result<Self, NotOneOf> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or(NotOneOf("presence or verification"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A signer's name in the trust file and in every record of what they signed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignerName(String);

/// A text that is no signer's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a signer's name is 1 to 64 letters, digits and the marks . _ @ + -")]
pub struct NotASignerName;

impl FromStr for SignerName {
    type Err = NotASignerName;

    fn from_str(text: &str) -> Result<Self, NotASignerName> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte);
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotASignerName)
        }
    }
}

impl fmt::Display for SignerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When a key may be used; the end is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: UnixSeconds,
    /// The first second after; [`super::LAST_SECOND`] stands for no end.
    pub until: UnixSeconds,
}

impl Validity {
    /// No limit.
    pub const ALWAYS: Self = Self { from: UnixSeconds(0), until: super::LAST_SECOND };

    /// Whether a key may be used now.
    pub fn holds(self, now: UnixSeconds) -> bool {
        self.from <= now && now < self.until
    }

    pub(super) fn judge(self, name: &SignerName, now: UnixSeconds) -> Result<(), Refusal> {
        if self.holds(now) {
            return Ok(());
        }
        let detail = format!("the key of {name} is not valid now");
        Err(Refusal::new(ReasonCode::KeyRevoked, detail))
    }
}

/// One key that may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Whose.
    pub name: SignerName,
    /// What it may sign.
    pub role: Role,
    /// The key.
    pub key: PublicKey,
    /// When.
    pub validity: Validity,
    /// What a security key must ask.
    pub sk: SkPolicy,
}

/// What the store says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<'t> {
    /// It signs.
    Trusted(&'t Signer),
    /// It did.
    Retired {
        /// The key.
        fingerprint: Fingerprint,
        /// The version that retired it.
        until: TrustVersion,
    },
    /// Never heard of it.
    Unknown {
        /// The key.
        fingerprint: Fingerprint,
    },
}

impl<'t> Lookup<'t> {
    /// The signer, or why there is none.
    pub fn trusted(self) -> Result<&'t Signer, Refusal> {
        match self {
            Self::Trusted(signer) => Ok(signer),
            Self::Retired { fingerprint, until } => {
                let detail =
                    format!("the key {fingerprint} is retired since trust version {until}");
                Err(Refusal::new(ReasonCode::KeyRevoked, detail))
            }
            Self::Unknown { fingerprint } => {
                let detail = format!("no signer of this host has the key {fingerprint}");
                Err(Refusal::new(ReasonCode::UnknownSigner, detail))
            }
        }
    }
}

/// The signers of a host at one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TrustRecord", into = "TrustRecord")]
pub struct TrustedSigners {
    version: TrustVersion,
    head: TrustHash,
    /// By key blob.
    signers: BTreeMap<Vec<u8>, Signer>,
    retired: BTreeMap<[u8; 32], TrustVersion>,
}

impl TrustedSigners {
    /// The first store of a chain, as root installed it.
    pub fn genesis(version: TrustVersion, signers: Vec<Signer>) -> Result<Self, Refusal> {
        let signers = by_key(signers)?;
        let head = genesis_hash(version, &signers);
        Ok(Self { version, head, signers, retired: BTreeMap::new() })
    }

    /// Its number.
    pub fn version(&self) -> TrustVersion {
        self.version
    }

    /// What the next rotation must name as previous.
    pub fn head(&self) -> TrustHash {
        self.head
    }

    /// All signers, in the order of their keys.
    pub fn signers(&self) -> impl Iterator<Item = &Signer> {
        self.signers.values()
    }

    /// The signer with exactly this key.
    pub fn lookup(&self, key_blob: &[u8]) -> Lookup<'_> {
        if let Some(signer) = self.signers.get(key_blob) {
            return Lookup::Trusted(signer);
        }
        let fingerprint = Fingerprint(Sha256::digest(key_blob).into());
        match self.retired.get(&fingerprint.0) {
            Some(until) => Lookup::Retired { fingerprint, until: *until },
            None => Lookup::Unknown { fingerprint },
        }
    }

    /// The store after a rotation, which has been judged in full.
    pub(super) fn followed_by(
        &self,
        version: TrustVersion,
        head: TrustHash,
        signers: Vec<Signer>,
    ) -> Result<Self, Refusal> {
        let signers = by_key(signers)?;
        let mut retired = self.retired.clone();
        for (blob, signer) in &self.signers {
            if !signers.contains_key(blob) {
                retired.insert(signer.key.fingerprint().0, version);
            }
        }
        for signer in signers.values() {
            retired.remove(&signer.key.fingerprint().0);
        }
        while retired.len() > RETIRED_MAX {
            let oldest = retired.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key);
            retired.remove(&oldest.expect("a map that is too long is not empty"));
        }
        Ok(Self { version, head, signers, retired })
    }
}

/// The signers by key: no key twice, no name twice, some of each role.
pub(super) fn by_key(signers: Vec<Signer>) -> Result<BTreeMap<Vec<u8>, Signer>, Refusal> {
    let refuse = |why: String| Err(Refusal::new(ReasonCode::Payload, why));
    if signers.len() > SIGNERS_MAX {
        return refuse(format!("more than {SIGNERS_MAX} signers"));
    }
    let mut keyed: BTreeMap<Vec<u8>, Signer> = BTreeMap::new();
    for signer in signers {
        if let Some(other) = keyed.values().find(|other| other.name == signer.name) {
            return refuse(format!("the name {} stands twice", other.name));
        }
        let name = signer.name.clone();
        if let Some(other) = keyed.insert(signer.key.blob().to_vec(), signer) {
            return refuse(format!("{} and {name} have the same key", other.name));
        }
    }
    for role in Role::NEEDED {
        if !keyed.values().any(|signer| signer.role == role) {
            return refuse(format!("no {role} key would be left"));
        }
    }
    Ok(keyed)
}

/// The content, not the text of the file: a comment changes nothing.
fn genesis_hash(version: TrustVersion, signers: &BTreeMap<Vec<u8>, Signer>) -> TrustHash {
    let mut bytes = Vec::new();
    put_string(&mut bytes, b"evenkeel/trust/v1");
    bytes.extend_from_slice(&version.0.to_be_bytes());
    for (blob, signer) in signers {
        let Signer { name, role, key: _, validity: Validity { from, until }, sk } = signer;
        put_string(&mut bytes, blob);
        put_string(&mut bytes, name.0.as_bytes());
        put_string(&mut bytes, role.as_str().as_bytes());
        put_string(&mut bytes, sk.as_str().as_bytes());
        bytes.extend_from_slice(&from.0.to_be_bytes());
        bytes.extend_from_slice(&until.0.to_be_bytes());
    }
    TrustHash::of(&bytes)
}

/// A signer as statements and the journal's snapshots write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignerRecord {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) key: String,
    pub(super) valid_from: u64,
    pub(super) valid_until: u64,
    pub(super) sk: SkPolicy,
}

impl From<&Signer> for SignerRecord {
    fn from(signer: &Signer) -> Self {
        let Signer { name, role, key, validity: Validity { from, until }, sk } = signer;
        Self {
            name: name.to_string(),
            role: *role,
            key: key.to_string(),
            valid_from: from.0,
            valid_until: until.0,
            sk: *sk,
        }
    }
}

impl TryFrom<SignerRecord> for Signer {
    type Error = Refusal;

    fn try_from(record: SignerRecord) -> Result<Self, Refusal> {
        let SignerRecord { name, role, key, valid_from, valid_until, sk } = record;
        let refuse = |why: String| Refusal::new(ReasonCode::Payload, why);
        let name: SignerName = name.parse().map_err(|error| refuse(format!("{error}")))?;
        let key_in_line = PublicKey::from_line(&key)?;
        if key_in_line.to_string() != key {
            return Err(refuse(format!("the key of {name} must stand without comment")));
        }
        if valid_from >= valid_until || valid_until > super::LAST_SECOND.0 {
            return Err(refuse(format!("the key of {name} would never be valid")));
        }
        if sk == SkPolicy::Verification && !key_in_line.key_type().is_security_key() {
            return Err(refuse(format!(
                "the key of {name} is no security key and asks for no PIN"
            )));
        }
        let validity = Validity { from: UnixSeconds(valid_from), until: UnixSeconds(valid_until) };
        Ok(Self { name, role, key: key_in_line, validity, sk })
    }
}

/// The store as the journal's snapshot holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustRecord {
    version: TrustVersion,
    head: TrustHash,
    signers: Vec<SignerRecord>,
    retired: Vec<(String, TrustVersion)>,
}

impl From<TrustedSigners> for TrustRecord {
    fn from(trust: TrustedSigners) -> Self {
        let TrustedSigners { version, head, signers, retired } = trust;
        let signers = signers.values().map(SignerRecord::from).collect();
        let retired = retired.into_iter().map(|(key, at)| (Fingerprint(key).to_string(), at));
        Self { version, head, signers, retired: retired.collect() }
    }
}

impl TryFrom<TrustRecord> for TrustedSigners {
    type Error = Refusal;

    fn try_from(record: TrustRecord) -> Result<Self, Refusal> {
        let TrustRecord { version, head, signers, retired } = record;
        let signers = signers.into_iter().map(Signer::try_from).collect::<Result<_, _>>()?;
        let fingerprint = |(text, at): (String, TrustVersion)| match text.parse::<Fingerprint>() {
            Ok(fingerprint) => Ok((fingerprint.0, at)),
            Err(error) => Err(Refusal::new(ReasonCode::Payload, error.to_string())),
        };
        let retired = retired.into_iter().map(fingerprint).collect::<Result<_, _>>()?;
        Ok(Self { version, head, signers: by_key(signers)?, retired })
    }
}
