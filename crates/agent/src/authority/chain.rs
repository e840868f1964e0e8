//! The rotations as the journal keeps them: one value a version, with the exact bytes that were signed.
//!
//! `Authority` reads and writes them; the audit reads them. A link keeps the clock it was accepted at, because
//! a rotation is judged again at every start and must come out as it did the first time. Nothing here believes
//! a link: [`ChainLink::follow`] verifies it in full.

use std::collections::BTreeMap;

use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::sign::{
    Envelope, HostBinding, Lineage, Occasion, Rotation, STATEMENT_LIFE_MAX_S, TrustHash,
    TrustVersion,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AuthorityError, authority_of};
use crate::journal::{ExactBytes, JournalState, Kept, KeptSubject, Record};

/// The version of the shapes below.
const SHAPE: u32 = 1;

/// The key of the value that says which trust file the chain stands on.
const BASE: &str = "base";

/// One accepted rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChainLink {
    /// The head of the trust file the chain stands on.
    pub(super) base: TrustHash,
    /// What was handed in, to the byte.
    pub(crate) envelope: ExactBytes,
    /// The effective time it was accepted at.
    pub(super) now: UnixSeconds,
    /// The mark of time it was accepted at.
    pub(super) mark: UnixSeconds,
}

impl ChainLink {
    pub(super) fn to_record(&self, version: TrustVersion) -> Kept {
        Kept::put(KeptSubject::Trust, version.to_string(), SHAPE, to_value(self))
    }

    /// What was signed and the signers after this link, if it follows those before it.
    pub(super) fn follow(
        &self,
        version: TrustVersion,
        lineage: &Lineage,
        host: &HostBinding,
    ) -> Result<(Rotation, Lineage), AuthorityError> {
        let reading = ClockReading { now: self.now, mark: self.mark, doubt: None };
        let broken = |source| AuthorityError::BrokenLink { version, source };
        let envelope = Envelope::parse(&self.envelope.0).map_err(broken)?;
        let by = authority_of(&envelope).map_err(broken)?;
        // The longest life there is: root may have shortened it since, which voids no rotation.
        let replayed = lineage.follow(
            &envelope,
            by,
            host,
            &reading,
            (STATEMENT_LIFE_MAX_S, Occasion::AcceptedBefore),
        );
        let (rotated, next) = replayed.map_err(broken)?;
        if rotated.trust.version() == version {
            return Ok((rotated.rotation, next));
        }
        let made = rotated.trust.version();
        let key = version.to_string();
        let why = format!("it makes version {made}");
        Err(AuthorityError::Malformed { key, why })
    }
}

/// The trust file a chain stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrustBase {
    pub(super) version: TrustVersion,
    pub(super) head: TrustHash,
}

/// The value that says so, written at the first start and when root replaces a chain. It is short, and without it
/// nothing starts.
pub(super) fn base_record(base: TrustBase) -> Kept {
    Kept::put(KeptSubject::Trust, BASE, SHAPE, to_value(&base)).from_the_reserve()
}

/// Everything the journal keeps about signers.
#[derive(Debug, Default)]
pub(super) struct Chain {
    kept: Option<TrustBase>,
    links: BTreeMap<TrustVersion, ChainLink>,
}

/// The version of the signers by a journal alone; 0 if it knows of none.
pub(crate) fn trust_version_of(state: &JournalState) -> TrustVersion {
    let Ok(Chain { kept: Some(base), links }) = Chain::read(state) else {
        return TrustVersion(0);
    };
    let of_base = links.iter().filter(|(_, link)| link.base == base.head);
    of_base.map(|(version, _)| *version).max().unwrap_or(base.version)
}

/// The trust file that an agent was started with here, as its journal remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartedTrust {
    /// The version of the file.
    pub version: TrustVersion,
    /// Its head.
    pub head: TrustHash,
    /// The newest version since: a file replaces the signers only with a higher one.
    pub newest: TrustVersion,
}

/// The trust file that an agent was started with; none if no agent was started with one.
pub fn started_trust(state: &JournalState) -> Result<Option<StartedTrust>, AuthorityError> {
    let chain = Chain::read(state)?;
    Ok(chain.base().map(|TrustBase { version, head }| {
        let newest = chain.newest().unwrap_or(version);
        StartedTrust { version, head, newest }
    }))
}

impl Chain {
    pub(super) fn read(state: &JournalState) -> Result<Self, AuthorityError> {
        let mut chain = Self::default();
        for (key, kept) in state.kept(KeptSubject::Trust) {
            let malformed = |why: String| AuthorityError::Malformed { key: key.to_owned(), why };
            if kept.v != SHAPE {
                let why = format!("it has the shape {}; this version reads {SHAPE}", kept.v);
                return Err(malformed(why));
            }
            let value = kept.value.clone();
            if key == BASE {
                let base = serde_json::from_value(value).map_err(|e| malformed(e.to_string()))?;
                chain.kept = Some(base);
            } else {
                let version = key.parse().map(TrustVersion);
                let version = version.map_err(|_| malformed("it is no version".to_owned()))?;
                let link = serde_json::from_value(value).map_err(|e| malformed(e.to_string()))?;
                chain.links.insert(version, link);
            }
        }
        Ok(chain)
    }

    /// The trust file the chain stands on, as far as the journal knows one.
    pub(super) fn base(&self) -> Option<TrustBase> {
        self.kept.or_else(|| {
            let (version, link) = self.links.first_key_value()?;
            Some(TrustBase { version: TrustVersion(version.0.saturating_sub(1)), head: link.base })
        })
    }

    /// Whether the journal says so itself; before that was a rule, only its rotations did.
    pub(super) fn keeps_base(&self) -> bool {
        self.kept.is_some()
    }

    /// The newest version there was.
    pub(super) fn newest(&self) -> Option<TrustVersion> {
        let linked = self.links.last_key_value().map(|(version, _)| *version);
        linked.max(self.kept.map(|base| base.version))
    }

    /// The rotations that follow this trust file.
    pub(super) fn links_on(
        &self,
        base: TrustHash,
    ) -> impl Iterator<Item = (&TrustVersion, &ChainLink)> {
        self.links.iter().filter(move |(_, link)| link.base == base)
    }

    /// What takes the links of trust files before this one away: root's new file makes such, and they are older
    /// than it. Any other is no part of a chain.
    pub(super) fn leftovers(&self, base: TrustBase) -> Result<Vec<Record>, AuthorityError> {
        let mut leftovers = Vec::new();
        for (version, _) in self.links.iter().filter(|(_, link)| link.base != base.head) {
            let key = version.to_string();
            if *version >= base.version {
                let why = "it follows another trust file than the rotations around it".to_owned();
                return Err(AuthorityError::Malformed { key, why });
            }
            leftovers.push(Record::Kept(Kept::remove(KeptSubject::Trust, key)));
        }
        Ok(leftovers)
    }
}

fn to_value(shape: &impl Serialize) -> Value {
    serde_json::to_value(shape).expect("our own shapes are JSON")
}
