//! How a host stands, as a hub is told: made from the same status that `evenkeel status` shows, and from what the last pass
//! read.
//!
//! Secrets are masked where these values are made. What counts as news is compared without times: a host at rest has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::desired::selection::{Candidate, PassScope};
use evenkeel_core::desired::{DeclaredGuest, Desired, Origins, ReconcileMode};
use evenkeel_core::fleet::{
    AgentState, AuthorWordReport, Generation, GenerationState, GuestReport, HeldReport, PassReport,
    RefusedGeneration,
};
use evenkeel_core::model::id::{GuestId, VmId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::words::diagnostic::Sources;

use crate::daemon::status::{AgentStatus, AuthorWordStatus, GuestStatus};
use crate::policy::Policy;
use crate::preview::Preview;

/// Everything a report can say of how a host stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPicture {
    /// The document in effect.
    pub generation: Option<GenerationState>,
    /// The one that was refused.
    pub refused: Option<RefusedGeneration>,
    /// The agent.
    pub agent: AgentState,
    /// The last pass.
    pub pass: Option<PassReport>,
    /// Every declared guest that a pass has looked at.
    pub guests: BTreeMap<String, Arc<GuestReport>>,
}

/// What a report says beyond the status.
#[derive(Debug, Clone, Default)]
pub struct ReportFacts {
    mode: String,
    policy: BTreeMap<String, String>,
    /// Guests as the last pass about them found them.
    guests: BTreeMap<VmId, Arc<GuestReport>>,
}

/// Where everything in a document stands.
#[derive(Debug, Clone)]
pub struct DocumentPlaces {
    /// Where each value comes from.
    pub origins: Origins,
    /// The files.
    pub sources: Sources,
}

impl ReportFacts {
    /// The host's own limits, as they hold.
    pub fn policy(&mut self, policy: &Policy) {
        let mode = match policy.mode {
            ReconcileMode::Enforce => "enforce",
            ReconcileMode::Observe => "observe",
        };
        (self.mode, self.policy) = (mode.to_owned(), policy.told());
    }

    /// What a pass found, beside what it did not look at.
    pub fn found(&mut self, scope: &PassScope, guests: BTreeMap<VmId, Arc<GuestReport>>) {
        self.guests.retain(|vmid, _| !scope.has(*vmid));
        self.guests.extend(guests);
    }
}

/// Every declared guest as a pass sees it.
pub fn found_by(
    preview: &Preview,
    desired: &Desired,
    places: Option<&DocumentPlaces>,
) -> BTreeMap<VmId, Arc<GuestReport>> {
    let plans: BTreeMap<GuestId, _> =
        preview.plan.guests.iter().map(|planned| (planned.guest, planned)).collect();
    let found = |declared: &DeclaredGuest| {
        let vmid = declared.id.vmid;
        let here = preview.actual.guests.get(&vmid).filter(|here| here.id == declared.id);
        let places =
            places.and_then(|known| Some((known.origins.guests.get(&vmid)?, &known.sources)));
        let plan = plans.get(&declared.id).copied();
        let mut picture = GuestReport::pictured(declared, places, here, plan);
        if here.is_some_and(|here| here.config.is_err()) {
            UNREADABLE.clone_into(&mut picture.state);
        }
        (vmid, Arc::new(picture))
    };
    let declared = desired.guests.values().filter(|guest| preview.scope.has(guest.id.vmid));
    declared.map(found).collect()
}

const UNREADABLE: &str = "unreadable";

impl HostPicture {
    /// What a status says, and the last pass found.
    pub fn of(
        agent: &AgentStatus,
        declared: &[Candidate],
        frozen: Option<String>,
        facts: &ReportFacts,
    ) -> Self {
        let hub = agent.desired.hub.as_ref();
        let troubles = [
            hub.and_then(|hub| hub.stale.clone()),
            agent.desired.trouble.as_ref().map(|trouble| trouble.why.clone()),
            agent.configuration_trouble.as_ref().map(|trouble| trouble.why.clone()),
            agent.node_trouble.as_ref().map(|trouble| trouble.why.clone()),
        ];
        let known = agent.last_pass.is_some();
        let differing: BTreeMap<GuestId, &GuestStatus> =
            agent.guests.iter().map(|guest| (guest.guest, guest)).collect();
        let guest = |candidate: &Candidate| {
            let found = facts.guests.get(&candidate.id.vmid);
            let found = found.filter(|found| found.guest == candidate.id.to_string());
            let report = guest_report(candidate, differing.get(&candidate.id).copied(), found);
            (candidate.id.to_string(), Arc::new(report.bounded()))
        };
        Self {
            generation: None,
            refused: None,
            agent: AgentState {
                version: agent.version.clone(),
                node: agent.node.to_string(),
                since: agent.since.to_string(),
                frozen,
                mode: facts.mode.clone(),
                policy: facts.policy.clone(),
                troubles: troubles.into_iter().flatten().collect(),
                author_word: hub.and_then(|hub| hub.author_word.as_ref()).map(word_report),
            },
            pass: agent.last_pass.as_ref().map(|pass| PassReport {
                at: pass.at.to_string(),
                planned: pass.planned as u64,
                succeeded: pass.succeeded as u64,
                failed: pass.failed as u64,
                held: pass.held as u64,
                in_sync: agent.in_sync as u64,
            }),
            guests: declared.iter().filter(|_| known).map(guest).collect(),
        }
    }
}

fn word_report(word: &AuthorWordStatus) -> AuthorWordReport {
    let AuthorWordStatus { generation, signer, signed_at, taken_at } = word;
    AuthorWordReport {
        generation: Generation(*generation),
        signer: signer.clone(),
        signed_at: signed_at.to_string(),
        taken_at: taken_at.to_string(),
    }
}

/// The last pass, but for when it was.
pub(super) fn without_time(pass: Option<&PassReport>) -> Option<PassReport> {
    pass.map(|pass| PassReport { at: String::new(), ..pass.clone() })
}

/// A guest as the last pass found it, and as its actions ended.
fn guest_report(
    candidate: &Candidate,
    status: Option<&GuestStatus>,
    found: Option<&Arc<GuestReport>>,
) -> GuestReport {
    let mut report = found.map(|found| GuestReport::clone(found)).unwrap_or_default();
    report.guest = candidate.id.to_string();
    report.kind = candidate.id.kind.to_string();
    report.name = candidate.name.clone().unwrap_or_default();
    let Some(GuestStatus { guest: _, drift, held, after_restart, problems }) = status else {
        "as_declared".clone_into(&mut report.state);
        return report.as_declared();
    };
    let busy = held.iter().any(|held| held.code == ReasonCode::Busy);
    let state = match () {
        () if report.state == UNREADABLE => UNREADABLE,
        () if !problems.is_empty() => "failed",
        () if busy => "busy",
        () if !drift.is_empty() => "drifted",
        () if !held.is_empty() => "held",
        () => "as_declared",
    };
    state.clone_into(&mut report.state);
    if drift.is_empty() && held.is_empty() {
        report = report.as_declared();
    }
    report.held = held
        .iter()
        .map(|held| HeldReport {
            code: held.code.to_string(),
            why: held.why.clone(),
            next: held.code.next_step().to_owned(),
        })
        .collect();
    report.problems.clone_from(problems);
    report.after_restart.clone_from(after_restart);
    report
}

#[cfg(test)]
mod tests {
    use evenkeel_core::fleet::GuestDifference;

    use super::*;
    use crate::daemon::status::HeldStatus;

    fn found() -> Arc<GuestReport> {
        let cores = GuestDifference {
            key: "cores".into(),
            declared: Some("4".into()),
            actual: Some("2".into()),
            origin: None,
        };
        Arc::new(GuestReport {
            guest: "lxc/101".into(),
            differences: vec![cores],
            actual: [("cores".to_owned(), "2".to_owned())].into(),
            ..GuestReport::default()
        })
    }

    fn status(drift: &[&str], held: Option<ReasonCode>, problems: &[&str]) -> GuestStatus {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let held = held.map(|code| HeldStatus { code, why: "it waits".to_owned() });
        GuestStatus {
            guest: "lxc/101".parse().unwrap(),
            drift: text(drift),
            held: held.into_iter().collect(),
            after_restart: Vec::new(),
            problems: text(problems),
        }
    }

    #[test]
    fn a_guest_is_told_as_its_actions_ended_with_what_to_do_next() {
        let candidate = Candidate {
            id: "lxc/101".parse().unwrap(),
            name: Some("web".to_owned()),
            ..Candidate::declared(&guest_of("[guest.101]\nkind = \"lxc\"\n"))
        };
        let told = |status: Option<&GuestStatus>| guest_report(&candidate, status, Some(&found()));
        let drifted = told(Some(&status(&["cores 2 -> 4"], None, &[])));
        assert_eq!((drifted.state.as_str(), drifted.differences.len()), ("drifted", 1));
        assert_eq!((drifted.kind.as_str(), drifted.name.as_str()), ("lxc", "web"));
        let done = told(None);
        assert_eq!((done.state.as_str(), done.differences.len()), ("as_declared", 0));
        assert_eq!(done.actual["cores"], "4", "what was written was read back");
        let held = told(Some(&status(&[], Some(ReasonCode::PendingSignature), &[])));
        assert_eq!((held.state.as_str(), held.differences.len()), ("held", 1));
        assert_eq!(held.held[0].code, "pending_signature");
        assert!(held.held[0].next.contains("evenkeel approve"), "{held:?}");
        let failed = told(Some(&status(&["cores 2 -> 4"], None, &["no"])));
        assert_eq!(failed.state, "failed");
    }

    #[test]
    fn z24_a_hub_is_told_the_last_word_of_an_author_as_this_host_knows_it() {
        let at: jiff::Timestamp = "2026-11-18T10:00:00Z".parse().unwrap();
        let word =
            AuthorWordStatus { generation: 7, signer: "ada".into(), signed_at: at, taken_at: at };
        let report = word_report(&word);
        assert_eq!((report.generation, report.signer.as_str()), (Generation(7), "ada"));
        assert_eq!([report.signed_at, report.taken_at], ["2026-11-18T10:00:00Z"; 2]);
    }

    fn guest_of(text: &str) -> DeclaredGuest {
        let mut sources = Sources::default();
        sources.add("a.toml", text);
        let desired = evenkeel_core::desired::load(&sources).unwrap();
        desired.guests.into_values().next().unwrap()
    }
}
