//! What was found beside guests, by looks that no pass waits for: in the sources that some shall be made from, and around
//! those of ours that may go unsigned.
//!
//! ```text
//!   pass: wish ──> looks, side by side ──a moment──> what is known by then goes into the plan; the rest is held
//!                    └── go on beside the lanes; what they find, the next pass knows
//! ```
//!
//! Such a look is about one guest, and may ask a storage that hangs. So a pass begins the looks, gives all of them together
//! a moment, and plans without what has not come by then. Everything here only decides what is planned: the lane looks
//! again. It must never hold up a guest that it is not about.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::desired::{Desired, GuestSource};
use evenkeel_core::gate::compensation::{RemovalGround, RemovalVerdict};
use evenkeel_core::gate::create_policy::CreatePolicy;
use evenkeel_core::gate::new_guest::SourceContent;
use evenkeel_core::model::id::{GuestId, GuestKind, OperationId, VmId};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::operation::{MadeGuest, Provenance};
use evenkeel_core::plan::{PlanContext, removal_candidate};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use crate::engine::gate::create_bounds::{
    KnownSource, WantedSource, source_content, storage_of_source, wanted_sources,
};
use crate::engine::gate::removals::RemovalReader;
use crate::pve::Client;

/// How long a pass of the agent's own waits for all looks together. Where everything answers they have ended by then.
pub(in crate::engine) const MOMENT: Duration = Duration::from_millis(500);

/// How long a person who wants to see a plan waits for them.
pub(crate) const PERSONS_PATIENCE: Duration = Duration::from_secs(10);

/// What looks have found.
#[derive(Default)]
pub(crate) struct Findings {
    sources: Vec<SourceFinding>,
    removals: BTreeMap<VmId, RemovalFinding>,
    looking: FuturesUnordered<BoxFuture<'static, LookEnd>>,
}

/// What is in one source, as far as it is known.
struct SourceFinding {
    kind: GuestKind,
    source: GuestSource,
    /// The guests that are to be made from it.
    guests: Vec<VmId>,
    found: Option<Result<Option<SourceContent>, Refusal>>,
    is_looked_at: bool,
}

/// Whether one guest may go unsigned, as far as it is known.
struct RemovalFinding {
    subject: RemovalSubject,
    verdict: Option<RemovalVerdict>,
    is_looked_at: bool,
}

/// What a verdict is about: the same guest, made by the same act, configured the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RemovalSubject {
    guest: GuestId,
    making: OperationId,
    digest: Option<String>,
}

/// What one look found.
enum LookEnd {
    Source(GuestKind, GuestSource, Result<Option<SourceContent>, Refusal>),
    Removal(RemovalSubject, Box<RemovalVerdict>),
}

/// What the looks of one pass are about.
pub(crate) struct LookWishes<'w> {
    pub(crate) client: &'w Client,
    pub(crate) policy: Option<&'w CreatePolicy>,
    pub(crate) scratch_vmids: &'w VmidRanges,
    pub(crate) desired: &'w Desired,
    pub(crate) actual: &'w Snapshot,
}

/// A guest of ours that may go unsigned, with what our journal knows of it.
type Candidate<'c> = (&'c Guest, RemovalGround, &'c MadeGuest);

impl Findings {
    /// Begins every look that a plan depends on and that is not under way, and forgets what none depends on any more.
    pub(crate) fn wish(
        &mut self,
        wishes: &LookWishes<'_>,
        known: &PlanContext,
        provenance: impl Fn(GuestId) -> Provenance,
    ) {
        self.wish_sources(wishes);
        self.wish_removals(wishes, known, provenance);
    }

    fn wish_sources(&mut self, wishes: &LookWishes<'_>) {
        let mut before = std::mem::take(&mut self.sources);
        for wanted in wanted_sources(wishes.policy, wishes.desired, wishes.actual) {
            let WantedSource { guest, kind, source, reading } = wanted;
            let same = |finding: &SourceFinding| (finding.kind, &finding.source) == (kind, source);
            if let Some(known) = self.sources.iter_mut().find(|finding| same(finding)) {
                known.guests.push(guest);
                continue;
            }
            let mut finding = match before.iter().position(same) {
                Some(at) => SourceFinding { guests: vec![guest], ..before.swap_remove(at) },
                None => SourceFinding {
                    kind,
                    source: source.clone(),
                    guests: vec![guest],
                    found: None,
                    is_looked_at: false,
                },
            };
            if let KnownSource::Read(content) = reading {
                finding.found = Some(Ok(content));
            } else if !std::mem::replace(&mut finding.is_looked_at, true) {
                let client = wishes.client.clone();
                let source = source.clone();
                let look = async move {
                    let found = source_content(&client, kind, &source).await;
                    LookEnd::Source(kind, source, found)
                };
                self.looking.push(look.boxed());
            }
            self.sources.push(finding);
        }
    }

    fn wish_removals(
        &mut self,
        wishes: &LookWishes<'_>,
        known: &PlanContext,
        provenance: impl Fn(GuestId) -> Provenance,
    ) {
        let mut before = std::mem::take(&mut self.removals);
        for (here, ground, made) in candidates(wishes, known) {
            let digest = here.config.as_ref().ok().map(|config| config.digest.clone());
            let subject = RemovalSubject { guest: here.id, making: made.making, digest };
            let old = before.remove(&here.id.vmid).filter(|finding| finding.subject == subject);
            let mut finding = old.unwrap_or(RemovalFinding {
                subject: subject.clone(),
                verdict: None,
                is_looked_at: false,
            });
            if !std::mem::replace(&mut finding.is_looked_at, true) {
                let client = wishes.client.clone();
                let scratch_vmids = wishes.scratch_vmids.clone();
                let (here, made, provenance) = (here.clone(), made.clone(), provenance(here.id));
                let look = async move {
                    let reader = RemovalReader { client: &client, scratch_vmids: &scratch_vmids };
                    let verdict = reader.judge(ground, &made, &provenance, &here, None).await;
                    LookEnd::Removal(subject, Box::new(verdict))
                };
                self.looking.push(look.boxed());
            }
            self.removals.insert(here.id.vmid, finding);
        }
    }

    /// Waits until every look has ended, but no longer than this.
    pub(crate) async fn wait(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        while !self.looking.is_empty() {
            // Only what has ended is taken out.
            if tokio::time::timeout_at(deadline, self.hear()).await.is_err() {
                return;
            }
        }
    }

    /// Takes in what the next look found; never if none is under way. Dropping it loses nothing.
    pub(in crate::engine) async fn hear(&mut self) {
        let Some(end) = self.looking.next().await else {
            return std::future::pending().await;
        };
        match end {
            LookEnd::Source(kind, source, found) => {
                let same = |finding: &&mut SourceFinding| {
                    (finding.kind, &finding.source) == (kind, &source)
                };
                if let Some(finding) = self.sources.iter_mut().find(same) {
                    (finding.found, finding.is_looked_at) = (Some(found), false);
                }
            }
            LookEnd::Removal(subject, verdict) => {
                let known = self.removals.get_mut(&subject.guest.vmid);
                if let Some(finding) = known.filter(|finding| finding.subject == subject) {
                    (finding.verdict, finding.is_looked_at) = (Some(*verdict), false);
                }
            }
        }
    }

    /// Puts what is known into what a plan is made by; guests of which something is not known yet wait.
    pub(crate) fn tell(&self, known: &mut PlanContext) {
        for finding in &self.sources {
            for guest in &finding.guests {
                match &finding.found {
                    Some(Ok(Some(content))) => {
                        known.sources.insert(*guest, content.clone());
                    }
                    Some(Ok(None)) => {}
                    Some(Err(silence)) => {
                        known.unlooked.insert(*guest, silence.clone());
                    }
                    None => {
                        known.unlooked.insert(*guest, not_yet(&finding.source));
                    }
                }
            }
        }
        for (vmid, finding) in &self.removals {
            if let Some(verdict) = &finding.verdict {
                known.removals.insert(*vmid, verdict.clone());
            } else {
                let why = "whether it may go without a signature is not known yet";
                known.unlooked.insert(*vmid, Refusal::new(ReasonCode::Storage, why));
            }
        }
    }
}

fn candidates<'c>(wishes: &'c LookWishes<'_>, known: &'c PlanContext) -> Vec<Candidate<'c>> {
    // On most hosts evenkeel made nothing, and there is nobody to ask about.
    if known.making.made_none() {
        return Vec::new();
    }
    let declared = wishes.desired.guests.iter().filter(|(vmid, _)| !known.busy.contains_key(vmid));
    let candidate = |(vmid, declared): (&VmId, &'c evenkeel_core::desired::DeclaredGuest)| {
        let here = wishes.actual.guests.get(vmid)?;
        let (ground, made) = removal_candidate(&declared.state, here, known)?;
        Some((here, ground, made))
    };
    declared.filter_map(candidate).collect()
}

fn not_yet(source: &GuestSource) -> Refusal {
    let why = match storage_of_source(source) {
        Some(storage) => {
            format!("what it is made from is not known yet: the storage {storage} has not answered")
        }
        None => "what it is made from is not known yet".to_owned(),
    };
    Refusal::new(ReasonCode::Storage, why)
}
