//! How a host stands, as a hub is told: made from the same status that `evenkeel status` shows.
//!
//! It says nothing that the status does not; secrets are masked there. What counts as news is compared without times: a
//! host at rest has none.

use std::collections::BTreeMap;

use evenkeel_core::fleet::{
    AgentState, GenerationState, GuestDifference, GuestReport, HeldReport, PassReport,
    RefusedGeneration,
};
use evenkeel_core::reason::ReasonCode;
use evenkeel_core::selection::Candidate;

use crate::daemon::status::{AgentStatus, GuestStatus};

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
    pub guests: BTreeMap<String, GuestReport>,
}

impl HostPicture {
    /// What a status says.
    pub fn of(agent: &AgentStatus, declared: &[Candidate], frozen: Option<String>) -> Self {
        let troubles = [
            agent.desired.trouble.as_ref().map(|trouble| trouble.why.clone()),
            agent.configuration_trouble.as_ref().map(|trouble| trouble.why.clone()),
            agent.node_trouble.as_ref().map(|trouble| trouble.why.clone()),
        ];
        let known = agent.last_pass.is_some();
        let differing: BTreeMap<String, &GuestStatus> =
            agent.guests.iter().map(|guest| (guest.guest.to_string(), guest)).collect();
        let guest = |candidate: &Candidate| {
            let id = candidate.id.to_string();
            let name = candidate.name.clone().unwrap_or_default();
            let report = match differing.get(&id) {
                Some(status) => guest_report(status, name),
                None => GuestReport {
                    guest: id.clone(),
                    name,
                    state: "as_declared".to_owned(),
                    ..GuestReport::default()
                },
            };
            (id, report)
        };
        Self {
            generation: None,
            refused: None,
            agent: AgentState {
                version: agent.version.clone(),
                node: agent.node.to_string(),
                since: agent.since.to_string(),
                frozen,
                mode: String::new(),
                policy: BTreeMap::new(),
                troubles: troubles.into_iter().flatten().collect(),
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

/// The last pass, but for when it was.
pub(super) fn without_time(pass: Option<&PassReport>) -> Option<PassReport> {
    pass.map(|pass| PassReport { at: String::new(), ..pass.clone() })
}

fn guest_report(status: &GuestStatus, name: String) -> GuestReport {
    let GuestStatus { guest, drift, held, after_restart, problems } = status;
    let busy = held.iter().any(|held| held.code == ReasonCode::Busy);
    let state = match () {
        () if !problems.is_empty() => "failed",
        () if busy => "busy",
        () if !drift.is_empty() => "drifted",
        () if !held.is_empty() => "held",
        () => "as_declared",
    };
    GuestReport {
        guest: guest.to_string(),
        name,
        state: state.to_owned(),
        differences: drift.iter().map(|line| difference(line)).collect(),
        held: held
            .iter()
            .map(|held| HeldReport { code: held.code.to_string(), why: held.why.clone() })
            .collect(),
        problems: problems.clone(),
        after_restart: after_restart.clone(),
        config: BTreeMap::new(),
    }
}

/// `cores 2 -> 4` taken apart; a line of another form stays whole under its first word.
fn difference(line: &str) -> GuestDifference {
    let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
    let value = |text: &str| Some(text.to_owned()).filter(|text| text != "unset");
    match rest.split_once(" -> ") {
        Some((actual, declared)) => GuestDifference {
            key: key.to_owned(),
            declared: value(declared),
            actual: value(actual),
            origin: String::new(),
        },
        None => GuestDifference {
            key: key.to_owned(),
            declared: Some(rest.to_owned()),
            ..GuestDifference::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_drift_is_taken_apart() {
        let parts = |line| {
            let GuestDifference { key, declared, actual, .. } = difference(line);
            (key, actual, declared)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(parts("cores 2 -> 4"), ("cores".into(), text("2"), text("4")));
        assert_eq!(parts("net0.tag unset -> 5"), ("net0.tag".into(), None, text("5")));
        assert_eq!(parts("start"), ("start".into(), None, text("")));
    }
}
