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

mod chain;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::path::Path;

use evenkeel_core::operation::UnixSeconds;
use evenkeel_core::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::clock::Reading;
use evenkeel_core::sign::{
    self, Envelope, HostBinding, Limits, Namespace, Rotation, STATEMENT_LIFE_MAX_S, Trust,
    TrustHash, TrustVersion, rotate,
};
use jiff::Timestamp;

use crate::journal::{ExactBytes, Kept, Note, Record, State};
use chain::{Base, Chain, Link};
pub use error::AuthorityError;

/// How long a chain planned rotations may make. One a month for twenty years; a stolen key that rotates for
/// ever must not fill the journal. A recovery is always taken, and root can install a new first link.
pub const PLANNED_LINKS_MAX: usize = 256;

/// Who may sign on this host.
#[derive(Debug, Clone)]
pub struct Authority {
    host: HostBinding,
    standing: Option<Standing>,
    owed: Vec<Record>,
}

/// The signers, and what they rest on.
#[derive(Debug, Clone)]
struct Standing {
    /// The head of the trust file.
    base: TrustHash,
    /// How many rotations follow it.
    links: usize,
    trust: Trust,
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
}

impl Authority {
    /// The trust file and the rotations in the journal, verified from the first to the last. No file: no signers.
    pub fn load(
        trust_file: Option<&Path>,
        host: HostBinding,
        state: &State,
    ) -> Result<Self, AuthorityError> {
        match trust_file.map(file::read).transpose()?.flatten() {
            Some((path, first)) => Self::on(first, path, host, state),
            // A chain nobody stands on must be readable all the same, or it is damage.
            None => Chain::read(state).map(|_| Self::nobody(host)),
        }
    }

    /// The same on a first link that was read already; `path` is where, for people.
    pub fn on(
        first: Trust,
        path: String,
        host: HostBinding,
        state: &State,
    ) -> Result<Self, AuthorityError> {
        let chain = Chain::read(state)?;
        let owed = match chain.base() {
            Some(base) if base.head != first.head() => {
                let newest = chain.newest().unwrap_or(base.version);
                if first.version() <= newest {
                    let file = first.version();
                    return Err(AuthorityError::NotHigher { path, file, newest });
                }
                new_base(&path, &first, &chain, newest)?
            }
            Some(base) => chain.leftovers(base)?,
            None => Vec::new(),
        };
        let base = first.head();
        let (mut trust, mut links) = (first, 0);
        for (version, link) in chain.links_on(base) {
            trust = link.follow(*version, &trust, &host)?;
            links += 1;
        }
        Ok(Self { host, standing: Some(Standing { base, links, trust }), owed })
    }

    /// The signers a chain begins with, and no rotation yet.
    pub fn first(host: HostBinding, trust: Trust) -> Self {
        let standing = Standing { base: trust.head(), links: 0, trust };
        Self { host, standing: Some(standing), owed: Vec::new() }
    }

    /// Nobody may sign.
    pub fn nobody(host: HostBinding) -> Self {
        Self { host, standing: None, owed: Vec::new() }
    }

    /// The signers; none if there is no trust file, and then everything destructive waits.
    pub fn trust(&self) -> Option<&Trust> {
        self.standing.as_ref().map(|standing| &standing.trust)
    }

    /// The version a statement must name; none without signers.
    pub fn version(&self) -> Option<TrustVersion> {
        self.trust().map(Trust::version)
    }

    /// This host, as statements must name it.
    pub fn host(&self) -> &HostBinding {
        &self.host
    }

    /// What the start found and the journal does not know yet: root installed a new first link. To be made
    /// durable, in this order, before anything is judged; done twice it is the same.
    pub fn owed(&self) -> &[Record] {
        &self.owed
    }

    /// Judges a rotation or recovery, by what its signatures claim to be for. Nothing changes: the record must
    /// be on disk before the authority that follows is used. A doubtful clock stops neither, or nobody could
    /// set it right.
    pub fn accept(
        &self,
        envelope: &[u8],
        reading: &Reading,
        limits: Limits,
    ) -> Result<Accepted, Refusal> {
        let parsed = Envelope::parse(envelope)?;
        let by = authority_of(&parsed)?;
        let Some(Standing { base, links, trust }) = &self.standing else {
            let detail = "this host has no trust file, and so nobody's signature counts";
            return Err(Refusal::new(ReasonCode::UnknownSigner, detail));
        };
        let life = limits.statement_life_max_s.min(STATEMENT_LIFE_MAX_S);
        let rotated = rotate(&parsed, by, trust, &self.host, reading, life)?;
        if by == sign::Authority::Planned && *links >= PLANNED_LINKS_MAX {
            let detail = format!(
                "{links} rotations follow the trust file; install the present signers as a trust file of a \
                 higher version"
            );
            return Err(Refusal::new(ReasonCode::Budget, detail));
        }
        let (version, mark) = (rotated.trust.version(), rotated.mark);
        let link = Link {
            base: *base,
            envelope: ExactBytes(envelope.to_vec()),
            now: reading.now,
            mark: reading.mark,
        };
        let record = link.to_record(version);
        let record = match mark {
            None => record,
            Some(mark) => record.setting_mark(moment(mark)?),
        };
        let standing = Standing { base: *base, links: links + 1, trust: rotated.trust };
        let authority =
            Self { host: self.host.clone(), standing: Some(standing), owed: Vec::new() };
        Ok(Accepted { record, authority, mark, rotation: rotated.rotation })
    }
}

/// By whose word an envelope claims to change the signers.
fn authority_of(envelope: &Envelope) -> Result<sign::Authority, Refusal> {
    match envelope.claimed_namespace() {
        Some(Namespace::Recover) => Ok(sign::Authority::Recovery),
        Some(Namespace::Rotate) => Ok(sign::Authority::Planned),
        Some(Namespace::Op | Namespace::Pending) | None => {
            let detail = "its signatures were not made for a rotation or a recovery";
            Err(Refusal::new(ReasonCode::SigNamespace, detail))
        }
    }
}

/// Root put another first link in place of the whole chain: it is told, and what it replaces is forgotten.
fn new_base(
    path: &str,
    first: &Trust,
    chain: &Chain,
    newest: TrustVersion,
) -> Result<Vec<Record>, AuthorityError> {
    let base = Base { version: first.version(), head: first.head() };
    let text = format!(
        "{path} replaced the signers: version {} after {newest}; rotations before it are void",
        base.version
    );
    let mut owed = vec![Record::Kept(chain::base_record(base))];
    owed.push(Record::Note(Note { what: "trust_base".to_owned(), text }));
    owed.extend(chain.leftovers(base)?);
    Ok(owed)
}

fn moment(mark: UnixSeconds) -> Result<Timestamp, Refusal> {
    let second = i64::try_from(mark.0).ok();
    second.and_then(|second| Timestamp::from_second(second).ok()).ok_or_else(|| {
        Refusal::new(ReasonCode::Payload, "the mark of time would be after the year 9999")
    })
}
