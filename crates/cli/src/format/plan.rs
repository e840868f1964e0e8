//! `plan -o json`: what differs, with what is and what shall be, whole.

use std::collections::BTreeMap;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::Origins;
use evenkeel_core::plan::{
    Action, Change, GuestBusy, GuestPlan, KeyChange, Plan, PlanProblem, Step, UnusedVolume,
};
use evenkeel_core::words::diagnostic::Sources;
use schemars::JsonSchema;
use serde::Serialize;

use crate::render;
use crate::render::origin::all_placed;

/// The version of this format.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// A plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanFormat {
    /// 2.
    format_version: u32,
    /// The node that was read.
    node: String,
    /// Guests with something to say, by number.
    guests: Vec<GuestFormat>,
    /// How many declared guests are as declared.
    in_sync: usize,
    /// Volumes that hang on declared guests, detached. They are no drift: nothing is done about them.
    unused_volumes: Vec<UnusedFormat>,
    /// One line for people.
    summary: String,
}

/// A detached volume.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UnusedFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// Where it hangs, such as `unused0`.
    slot: String,
    /// Its name on its storage.
    volume: String,
    /// The slot that evenkeel moved it out of; null if it did not.
    moved_from: Option<String>,
}

/// What differs on one guest.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GuestFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// Its name on the node, if it could be read.
    name: Option<String>,
    /// What would be done, in order.
    actions: Vec<ActionFormat>,
    /// What is stored and waits for a restart of the guest.
    after_restart: Vec<ChangeFormat>,
    /// What cannot be done.
    problems: Vec<ProblemFormat>,
    /// The operation that is at work on the guest; nothing else was looked at.
    busy: Option<BusyFormat>,
    /// With `--verbose`: where what is declared of it stands, by key or word.
    #[serde(skip_serializing_if = "Option::is_none")]
    declared_at: Option<BTreeMap<String, PlaceFormat>>,
}

/// Where a declared value stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlaceFormat {
    /// The file.
    pub(crate) file: Option<String>,
    /// The line, from 1.
    pub(crate) line: Option<usize>,
    /// `guest`, `profile NAME` or `defaults KIND`.
    pub(crate) layer: String,
}

/// One thing to do.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionFormat {
    /// Such as `set_config`; docs/reference/actions.md has all of them.
    kind: String,
    /// Every parameter as Proxmox VE's call takes it, secrets masked.
    params: BTreeMap<String, String>,
    /// `benign`, `disruptive` or `destructive`.
    class: String,
    /// `live`, `after restart`, `disruptive` or `destructive`.
    effect: String,
    /// Why the class is not lower; empty for benign actions.
    why: String,
    /// What it changes.
    changes: Vec<ChangeFormat>,
    /// What holds it back; null if it would run now.
    held: Option<HeldFormat>,
}

/// One key that differs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangeFormat {
    /// The key, such as `net0`; `run`, `state` and `template` for what is no key, `mp0.size` and `mp0.storage` for a
    /// volume that grows or moves.
    key: String,
    /// What is in effect, as Proxmox VE stores it, secrets masked; null if the key is absent.
    before: Option<String>,
    /// What is declared, in the same form; null if the key shall be absent.
    after: Option<String>,
    /// What this change costs by itself: `benign`, `disruptive` or `destructive`.
    class: String,
    /// When it reaches the guest: `live` or `after restart`.
    when: String,
}

/// Why an action does not run now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeldFormat {
    /// The reason code, such as `pending_signature`.
    code: String,
    /// The same in words.
    message: String,
}

/// Something declared that cannot be done.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProblemFormat {
    /// What.
    message: String,
    /// What to do about it.
    hint: Option<String>,
}

/// An operation at work.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BusyFormat {
    /// Which.
    op: String,
    /// Since when.
    since: String,
    /// Why nobody knows how it ended; null while it is simply at work.
    unknown: Option<String>,
    /// What to do about a lock that nobody works under; null if there is none.
    left: Option<String>,
}

impl PlanFormat {
    /// The plan; with where everything is declared, if that was asked for.
    pub(crate) fn of(plan: &Plan, actual: &Snapshot, places: Option<(&Origins, &Sources)>) -> Self {
        let declared_at = |guest: &GuestPlan| {
            let (origins, sources) = places?;
            Some(all_placed(origins.guests.get(&guest.guest.vmid)?, sources))
        };
        let guest = |guest| GuestFormat {
            declared_at: declared_at(guest),
            ..GuestFormat::of(guest, actual)
        };
        Self {
            format_version: FORMAT_VERSION,
            node: actual.node.to_string(),
            guests: plan.guests.iter().map(guest).collect(),
            in_sync: plan.in_sync,
            unused_volumes: plan.unused.iter().map(UnusedFormat::of).collect(),
            summary: render::plan::summary(plan),
        }
    }
}

impl UnusedFormat {
    fn of(unused: &UnusedVolume) -> Self {
        let UnusedVolume { guest, slot, volume, moved_from } = unused;
        Self {
            guest: guest.to_string(),
            slot: slot.to_string(),
            volume: volume.clone(),
            moved_from: moved_from.clone(),
        }
    }
}

impl GuestFormat {
    fn of(planned: &GuestPlan, actual: &Snapshot) -> Self {
        let GuestPlan { guest, actions, waiting, problems, busy } = planned;
        Self {
            guest: guest.to_string(),
            name: render::plan::name_of(planned, actual).map(str::to_owned),
            actions: actions.iter().map(ActionFormat::of).collect(),
            after_restart: waiting.iter().map(ChangeFormat::of).collect(),
            problems: problems.iter().map(ProblemFormat::of).collect(),
            busy: busy.as_ref().map(BusyFormat::of),
            declared_at: None,
        }
    }
}

impl ActionFormat {
    fn of(action: &Action) -> Self {
        Self {
            kind: action.step.kind().to_string(),
            params: action.step.shown_params(),
            class: action.class.to_string(),
            effect: action.effect().to_owned(),
            why: action.why.clone(),
            changes: ChangeFormat::all_of(action),
            held: action.held.as_ref().map(|held| HeldFormat {
                code: held.reason().to_string(),
                message: held.to_string(),
            }),
        }
    }
}

impl ChangeFormat {
    fn of(change: &Change) -> Self {
        Self {
            key: change.key.to_string(),
            before: change.before(),
            after: change.after(),
            class: change.class.to_string(),
            when: change.when.to_string(),
        }
    }

    fn all_of(action: &Action) -> Vec<Self> {
        if let Step::SetConfig(_) = &action.step {
            return action.changes.iter().map(Self::of).collect();
        }
        let one = |KeyChange { key, before, after, subject: _ }| {
            let class = action.class.to_string();
            let when = "live".to_owned();
            Self { key, before, after, class, when }
        };
        action.key_changes().into_iter().map(one).collect()
    }
}

impl ProblemFormat {
    fn of(problem: &PlanProblem) -> Self {
        Self { message: problem.to_string(), hint: problem.hint() }
    }
}

impl BusyFormat {
    fn of(busy: &GuestBusy) -> Self {
        let GuestBusy { op, since, unknown, left } = busy;
        Self {
            op: op.to_string(),
            since: since.clone(),
            unknown: unknown.clone(),
            left: left.clone(),
        }
    }
}
