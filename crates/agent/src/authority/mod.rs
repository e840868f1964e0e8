//! The authority of a running agent: who may sign on this host now, and how that came to be.
//!
//! ```text
//!   trust.toml (root's) ──> first link ──┐
//!   journal: rotation 2, 3, … ───────────┴──> core: rotate, one after the other ──> Trust now
//!                                                       ▲
//!   a new envelope ──> accept ──> record to make durable┘ and the authority that follows
//! ```
//!
//! The daemon loads it before anything else is done; the gate asks it at the moment of execution. It verifies
//! the whole chain at every start and never believes its own earlier answer. It must never write: the caller
//! makes the record durable and only then uses the authority that follows.

mod approval_rules;
mod chain;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::path::Path;

use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::ClockDoubt;
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::sign::{
    self, ApprovalRules, ClockChange, Envelope, HostBinding, Lineage, Occasion, PLANNED_LINKS_MAX,
    Rotation, STATEMENT_LIFE_MAX_S, StatementLimits, TrustHash, TrustVersion, TrustedSigners,
};
use jiff::Timestamp;
use serde_json::json;

use crate::journal::{ExactBytes, JournalState, Kept, KeptSubject, Note, Record, moment};
use approval_rules::StandingRules;
pub(crate) use chain::trust_version_of;
use chain::{Chain, ChainLink, TrustBase};
pub use chain::{StartedTrust, started_trust};
pub use error::AuthorityError;

/// Under which key the journal keeps that an operational key's clock change was undone.
pub(crate) const CLOCK_KEY: &str = "host/clock";

/// Who may sign on this host.
#[derive(Debug, Clone)]
pub struct Authority {
    host: HostBinding,
    standing: Option<Standing>,
    owed: Vec<Record>,
    overstated: Option<Overstated>,
    rules: StandingRules,
}

/// The signers, and what they rest on.
#[derive(Debug, Clone)]
struct Standing {
    /// The head of the trust file.
    base: TrustHash,
    lineage: Lineage,
}

/// The mark of time was set ahead by an operational key, when that was still allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overstated {
    /// By the rotation to this version.
    version: TrustVersion,
    /// The mark before.
    from: UnixSeconds,
    /// The mark that was set.
    to: UnixSeconds,
}

/// A rotation that is judged and not yet in force.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// To be made durable first. It also sets the mark of time, if that was signed.
    pub record: Kept,
    /// In force when the record is on disk, and not before.
    pub authority: Authority,
    /// The mark of time from then on, if it was set.
    pub mark: Option<UnixSeconds>,
    /// What was signed.
    pub rotation: Rotation,
    /// The rules that the chain keeps from then on, if it changed them: to be made durable after the record.
    pub rules: Option<Record>,
}

/// The signers root's file names, read as an agent reads it when it starts; none if there is no file.
pub fn read_trust_file(path: &Path) -> Result<Option<TrustedSigners>, AuthorityError> {
    Ok(file::read(path)?.map(|(_, trust)| trust))
}

impl Authority {
    /// The trust file and the rotations in the journal, verified from the first to the last. No file: no signers.
    pub fn load(
        trust_file: Option<&Path>,
        host: HostBinding,
        state: &JournalState,
    ) -> Result<Self, AuthorityError> {
        match trust_file.map(file::read).transpose()?.flatten() {
            Some((path, first)) => Self::on(first, path, host, state),
            // A chain nobody stands on must be readable all the same, or it is damage.
            None => Chain::read(state).map(|_| Self::nobody(host)),
        }
    }

    /// The same on a first link that was read already; `path` is where, for people.
    pub fn on(
        first: TrustedSigners,
        path: String,
        host: HostBinding,
        state: &JournalState,
    ) -> Result<Self, AuthorityError> {
        let chain = Chain::read(state)?;
        let base = TrustBase { version: first.version(), head: first.head() };
        let owed = match chain.base() {
            Some(known) if known.head != base.head => {
                let newest = chain.newest().unwrap_or(known.version);
                if base.version <= newest {
                    let file = base.version;
                    let first = known.version;
                    return Err(AuthorityError::NotHigher { path, file, first, newest });
                }
                new_base(&path, base, &chain, newest)?
            }
            Some(known) => {
                let kept = Record::Kept(chain::base_record(base));
                let unkept = if chain.keeps_base() { None } else { Some(kept) };
                unkept.into_iter().chain(chain.leftovers(known)?).collect()
            }
            None => vec![Record::Kept(chain::base_record(base))],
        };
        let mut lineage = Lineage::new(first);
        let mut overstated = None;
        let mut rules = StandingRules::read(state);
        for (version, link) in chain.links_on(base.head) {
            let rotation;
            (rotation, lineage) = link.follow(*version, &lineage, &host)?;
            overstated = still_overstated(overstated, *version, &rotation);
            rules.follow(*version, &rotation);
        }
        let standing = Some(Standing { base: base.head, lineage });
        Ok(Self { host, standing, owed, overstated, rules })
    }

    /// The signers a chain begins with, and no rotation yet.
    pub fn first(host: HostBinding, trust: TrustedSigners) -> Self {
        let standing = Standing { base: trust.head(), lineage: Lineage::new(trust) };
        let rules = StandingRules::default();
        Self { host, standing: Some(standing), owed: Vec::new(), overstated: None, rules }
    }

    /// Nobody may sign.
    pub fn nobody(host: HostBinding) -> Self {
        let rules = StandingRules::default();
        Self { host, standing: None, owed: Vec::new(), overstated: None, rules }
    }

    /// The same with what root's file says of how many must sign. It raises what the chain keeps and lowers nothing.
    #[must_use]
    pub fn with_rules(mut self, file: &ApprovalRules) -> Self {
        let version = self.version().unwrap_or(TrustVersion(0));
        self.owed.extend(self.rules.add_file(file, version));
        self
    }

    /// How many must sign which acts.
    pub fn rules(&self) -> ApprovalRules {
        self.rules.in_force()
    }

    /// The signers; none if there is no trust file, and then everything destructive waits.
    pub fn trust(&self) -> Option<&TrustedSigners> {
        self.standing.as_ref().map(|standing| standing.lineage.current())
    }

    /// The version a statement must name; none without signers.
    pub fn version(&self) -> Option<TrustVersion> {
        self.trust().map(TrustedSigners::version)
    }

    /// This host, as statements must name it.
    pub fn host(&self) -> &HostBinding {
        &self.host
    }

    /// What the start found and the journal does not know yet: which first link root installed. To be made
    /// durable, in this order, before anything is judged; done twice it is the same.
    pub fn owed(&self) -> &[Record] {
        &self.owed
    }

    /// Takes back a mark of time that an operational key set ahead of the host's clock, when that was still
    /// allowed: a stolen key could lock a recovery key out by it whose validity ends. The rotation itself stays,
    /// so what was signed before it stays void. None if there is no such mark. To be made durable at the start.
    pub(crate) fn undone_mark(&self, reading: &ClockReading) -> Option<Record> {
        let Overstated { version, from, to } = self.overstated?;
        let is_ahead =
            matches!(reading.doubt, Some(ClockDoubt::Behind { .. })) && reading.mark >= to;
        let mark = moment(from).filter(|_| is_ahead)?;
        let why = format!(
            "the rotation to version {version} was signed by an operational key and set the mark of time to {}; \
             it is back at {}, because only a recovery key sets it",
            sign::time::print(to),
            sign::time::print(from)
        );
        tracing::warn!("{why}");
        let value = json!({ "op": "clock", "reason": ReasonCode::RoleDenied, "why": why });
        let kept = Kept::put(KeptSubject::Decision, CLOCK_KEY, 1, value).from_the_reserve();
        Some(Record::Kept(kept.setting_mark(mark)))
    }

    /// Judges a rotation or recovery, by what its signatures claim to be for. Nothing changes: the record must
    /// be on disk before the authority that follows is used. A doubtful clock stops neither, or nobody could
    /// set it right.
    pub fn accept(
        &self,
        envelope: &[u8],
        reading: &ClockReading,
        limits: StatementLimits,
    ) -> Result<Accepted, Refusal> {
        let parsed = Envelope::parse(envelope)?;
        let by = authority_of(&parsed)?;
        let Some(Standing { base, lineage }) = &self.standing else {
            let detail = "this host has no trust file, and so nobody's signature counts";
            return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
        };
        let life = limits.statement_life_max_s.min(STATEMENT_LIFE_MAX_S);
        let occasion = Occasion::HandedIn { signers: self.rules().of_rotations() };
        let (rotated, next) = lineage.follow(&parsed, by, &self.host, reading, (life, occasion))?;
        if next.planned_links() > PLANNED_LINKS_MAX {
            let detail = format!(
                "{PLANNED_LINKS_MAX} planned rotations follow the trust file or the last recovery; install the \
                 present signers as a trust file of a higher version, or recover"
            );
            return Err(Refusal::new(ReasonCode::Budget, detail));
        }
        let version = rotated.trust.version();
        let mark = rotated.mark;
        let link = ChainLink {
            base: *base,
            envelope: ExactBytes(envelope.to_vec()),
            now: reading.now,
            mark: reading.mark,
        };
        let record = match by {
            // Whoever filled the disk must not keep a stolen key in force by it.
            sign::RotationAuthority::Recovery => link.to_record(version).from_the_reserve(),
            sign::RotationAuthority::Planned => link.to_record(version),
        };
        let record = match mark {
            None => record,
            Some(mark) => record.setting_mark(new_mark(mark)?),
        };
        let standing = Some(Standing { base: *base, lineage: next });
        let host = self.host.clone();
        let mut following = self.rules.clone();
        following.follow(version, &rotated.rotation);
        let changed = rotated.rotation.approve.is_some().then(|| following.to_record(version));
        let authority =
            Self { host, standing, owed: Vec::new(), overstated: None, rules: following };
        Ok(Accepted { record, authority, mark, rotation: rotated.rotation, rules: changed })
    }
}

/// Whether the mark of time is one that an operational key set ahead, after one more rotation.
fn still_overstated(
    before: Option<Overstated>,
    version: TrustVersion,
    rotation: &Rotation,
) -> Option<Overstated> {
    match (rotation.clock, rotation.authority) {
        (
            ClockChange::Keep,
            sign::RotationAuthority::Recovery | sign::RotationAuthority::Planned,
        ) => before,
        (ClockChange::Set { .. }, sign::RotationAuthority::Recovery) => None,
        (ClockChange::Set { from, to }, sign::RotationAuthority::Planned) => {
            let from = before.map_or(from, |before| before.from.min(from));
            (to > from).then_some(Overstated { version, from, to })
        }
    }
}

/// By whose word an envelope claims to change the signers.
fn authority_of(envelope: &Envelope) -> Result<sign::RotationAuthority, Refusal> {
    let claimed = envelope.claimed_namespace().and_then(sign::RotationAuthority::of);
    claimed.ok_or_else(|| {
        let detail = "its signatures were not made for a rotation or a recovery";
        Refusal::new(ReasonCode::SigNamespace, detail)
    })
}

/// Root put another first link in place of the whole chain: it is told, and what it replaces is forgotten.
fn new_base(
    path: &str,
    base: TrustBase,
    chain: &Chain,
    newest: TrustVersion,
) -> Result<Vec<Record>, AuthorityError> {
    let text = format!(
        "{path} replaced the signers: version {} after {newest}; rotations before it are void",
        base.version
    );
    let mut owed = vec![Record::Kept(chain::base_record(base))];
    owed.push(Record::Note(Note { what: "trust_base".to_owned(), text }));
    owed.extend(chain.leftovers(base)?);
    Ok(owed)
}

fn new_mark(mark: UnixSeconds) -> Result<Timestamp, Refusal> {
    let too_late = "the mark of time would be after the year 9999";
    moment(mark).ok_or_else(|| Refusal::new(ReasonCode::Payload, too_late))
}
