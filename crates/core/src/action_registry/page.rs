//! Writes `docs/reference/actions.md`. Everything in it comes from the rows.

use std::fmt::Write as _;

use super::{
    ActionCost, ActionKind, ActionRow, ExecutionRight, LaneUse, LossRule, Proof, WorstEffect,
};
use crate::actual::Power;
use crate::model::id::GuestKind;
use crate::operate::operation::OpPhase;

const INFALLIBLE: &str = "a string takes whatever is written";

/// The page, in Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Actions\n\nGenerated from the registry of actions. An action that is not here cannot be declared, asked for or \
         signed. Whatever an action is, what it costs is judged with its parameters and on the guest as it is: \
         what destroys data runs only with a signature.\n\n\
         | action | does | runs | costs | is proved by |\n|---|---|---|---|---|\n",
    );
    for kind in ActionKind::ALL {
        let row = kind.row();
        let runs = runs(row.execution);
        let costs = costs(&row.cost);
        let proof = proof(row.proof);
        writeln!(page, "| `{kind}` | {} | {runs} | {costs} | {proof} |", row.summary)
            .expect(INFALLIBLE);
    }
    for kind in ActionKind::ALL {
        section(&mut page, kind, kind.row());
    }
    page
}

fn section(page: &mut String, kind: ActionKind, row: &ActionRow) {
    if row.execution == ExecutionRight::Never {
        return;
    }
    write!(page, "\n## `{kind}`\n\n- Call: `{}`", row.call).expect(INFALLIBLE);
    for guest in GuestKind::ALL {
        let types = kind.task_types(guest);
        if !types.is_empty() {
            write!(page, "; {guest} tasks {}", listed(types)).expect(INFALLIBLE);
        }
    }
    page.push_str(".\n");
    for (name, texts) in [
        ("Rights", row.rights.iter().map(|(path, right)| format!("{right} on {path}")).collect()),
        ("Prepared by", row.prepared_by.iter().map(|request| phase(*request)).collect::<Vec<_>>()),
    ] {
        if !texts.is_empty() {
            writeln!(page, "- {name}: {}.", texts.join(", ")).expect(INFALLIBLE);
        }
    }
    if let Some(lost) = loss(row.loss) {
        writeln!(page, "- Lost with it: {lost}.").expect(INFALLIBLE);
    }
    if row.lanes == LaneUse::GuestAndSource {
        page.push_str("- Holds the lane of its source, too.\n");
    }
    if row.params.is_empty() {
        return;
    }
    page.push_str("\n| parameter | value | at worst | in a statement | if not said |\n|---|---|---|---|---|\n");
    for param in row.params {
        let worst = match param.worst {
            WorstEffect::Harmless => "",
            WorstEffect::Interrupts => "interrupts",
            WorstEffect::DestroysIfOn(why) => why,
        };
        let spelled = if param.spelled_out { "spelled out" } else { "" };
        let only = param.only.map_or_else(String::new, |guest| format!(" ({guest})"));
        let default = param.default.unwrap_or_default();
        writeln!(
            page,
            "| `{}`{only} | {} | {worst} | {spelled} | {default} |",
            param.name,
            param.form.as_str()
        )
        .expect(INFALLIBLE);
    }
    if row.takes_keys {
        page.push_str("\nEvery [configuration key](keys.md) is a parameter, too.\n");
    }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn runs(execution: ExecutionRight) -> &'static str {
    match execution {
        ExecutionRight::Planned => "when declared",
        ExecutionRight::PlannedOrSigned => "when declared, or signed",
        ExecutionRight::Signed => "signed, when declared or asked for",
        ExecutionRight::SignedRequest => "signed, when asked for",
        ExecutionRight::Asked => "at once, when asked for",
        ExecutionRight::NotYet(_) => "not yet",
        ExecutionRight::Never => "never",
    }
}

fn costs(cost: &ActionCost) -> String {
    match cost {
        ActionCost::Always(class, "") => class.to_string(),
        ActionCost::Always(class, why) => format!("{class}: {why}"),
        ActionCost::ByChanges => "what its changes cost".to_owned(),
        ActionCost::ByGrowth => "benign, as long as the volume grows".to_owned(),
        ActionCost::ByMove => {
            "benign, as long as the guest's own volume is copied and the old one stays".to_owned()
        }
        ActionCost::ByFreeNumber => "benign, as long as no guest has the number".to_owned(),
        ActionCost::ByOrigin => {
            "destructive, unless the journal proves that the guest is ours and nothing of value"
                .to_owned()
        }
    }
}

fn proof(proof: Proof) -> &'static str {
    match proof {
        Proof::Configuration => "the configuration",
        Proof::VolumeSize => "the volume's size",
        Proof::VolumeOnStorage => "that the slot's volume is on the storage",
        Proof::IsTemplate => "that the guest is a template and its volumes are base images",
        Proof::PowerState(Power::Running) => "that the guest runs",
        Proof::PowerState(Power::Stopped | Power::Paused | Power::Unknown) => {
            "that the guest is down"
        }
        Proof::NumberFree => "that its number is free, by a node with quorum",
        Proof::SnapshotParent => "its own task, and the snapshot the guest stands on",
        Proof::SnapshotListed => "that the snapshot is listed",
        Proof::ArchiveListed => {
            "that the storage lists the backup, by the operation's mark in its notes"
        }
        Proof::SnapshotGone => "that the snapshot is no longer listed",
        Proof::VolumeGone => "that no slot holds the volume and its storage lists it no more",
        Proof::GuestMade => "its own task, and a guest without a lock under its number",
        Proof::NotRead => "",
    }
}

fn phase(request: OpPhase) -> String {
    match request {
        OpPhase::Stop => "`stop`".to_owned(),
        OpPhase::Backup => "a backup".to_owned(),
        OpPhase::Unprotect => "taking the protection off".to_owned(),
        OpPhase::Act => "itself".to_owned(),
    }
}

fn loss(rule: LossRule) -> Option<&'static str> {
    match rule {
        LossRule::AsParameters => None,
        LossRule::WholeGuest => Some("all its volumes and snapshots"),
        LossRule::SinceSnapshot => Some("everything written since the snapshot"),
        LossRule::OneSnapshot => Some("the snapshot"),
        LossRule::OneVolume => Some("the volume"),
        LossRule::Running => Some("that the guest starts, and that its volumes can be written"),
    }
}
