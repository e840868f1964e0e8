//! What came of a pass, as a person reads it: a line a step while it happens, a summary at the end.

use std::fmt::Write as _;

use evenkeel_agent::engine::{OpOutcome, OpReport, Progress, Report};

use super::counted;
use super::style::{ADD, ALARM, CHANGE, FAINT, GUEST, WAITS, styled};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// One step, with its newline.
pub(crate) fn progress(progress: &Progress) -> String {
    match progress {
        Progress::Started { guest, what, .. } => {
            format!("{} {}  {what}\n", styled(CHANGE, ">"), styled(GUEST, guest))
        }
        Progress::Task { guest, upid, .. } => {
            let told = format!("task {} {}", upid.task_type(), upid.as_str());
            format!("  {}  {}\n", styled(FAINT, guest), styled(FAINT, told))
        }
        Progress::Waiting { guest, why, .. } => {
            format!("{} {}  {why}\n", styled(WAITS, "…"), styled(GUEST, guest))
        }
        Progress::Log { guest, line, percent, .. } => log_line(&guest.to_string(), line, *percent),
        Progress::Ended(op) => ended(op),
    }
}

/// What a task says by now: without a newline, because the next one takes its place.
fn log_line(guest: &str, line: &str, percent: Option<u8>) -> String {
    let done = percent.map_or_else(String::new, |percent| format!("{percent:>3} %  "));
    let line: String =
        line.chars().map(|letter| if letter == '\n' { ' ' } else { letter }).collect();
    format!("  {guest}  {done}{line}")
}

fn ended(op: &OpReport) -> String {
    let what = format!("{} ({})", op.kind.as_str(), op.reasons.join(", "));
    let (mark, told) = match &op.end {
        OpOutcome::Succeeded { warning: None } => (styled(ADD, "+"), "done".to_owned()),
        OpOutcome::Succeeded { warning: Some(warning) } => {
            (styled(CHANGE, "+"), format!("done, but: {warning}"))
        }
        OpOutcome::Unneeded => (styled(ADD, "+"), "already so".to_owned()),
        OpOutcome::Stale { .. } | OpOutcome::Held { .. } | OpOutcome::Skipped => {
            (styled(WAITS, "-"), op.end.words())
        }
        OpOutcome::Failed { .. } | OpOutcome::Unknown { .. } => {
            (styled(ALARM, "x"), op.end.words())
        }
    };
    format!("{mark} {}  {what}: {told}\n", styled(GUEST, op.guest))
}

/// Everything that did not simply succeed, and one line that says it all.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    for op in &report.ops {
        match &op.end {
            OpOutcome::Succeeded { warning: None } | OpOutcome::Unneeded | OpOutcome::Skipped => {}
            OpOutcome::Succeeded { warning: Some(_) }
            | OpOutcome::Stale { .. }
            | OpOutcome::Held { .. }
            | OpOutcome::Failed { .. }
            | OpOutcome::Unknown { .. } => text.push_str(&ended(op)),
        }
        if let OpOutcome::Unknown { .. } = op.end {
            let how = format!(
                "look at the guest; if the agent cannot find the outcome: evenkeel journal resolve {} --as succeeded|failed",
                op.op
            );
            writeln!(text, "    {}", styled(FAINT, how)).expect(INFALLIBLE);
        }
    }
    writeln!(text, "{}", summary(report)).expect(INFALLIBLE);
    text
}

/// One line that says it all.
pub(crate) fn summary(report: &Report) -> String {
    let counts = [(report.failed, "failed"), (report.held, "held"), (report.skipped, "skipped")];
    let mut parts = vec![format!("{} done", counted(report.succeeded, "action"))];
    parts.extend(
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}")),
    );
    if !report.errors.is_empty() {
        parts.push(counted(report.errors.len(), "problem"));
    }
    let were = if report.in_sync == 1 { "was" } else { "were" };
    let guests = counted(report.in_sync, "guest");
    format!("Apply: {}; {guests} {were} as declared.", parts.join(", "))
}
