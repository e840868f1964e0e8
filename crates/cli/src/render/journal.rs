//! Operations as a person reads them, one a line, the newest last.
//!
//! ```text
//! 2026-11-15 20:00:00Z  op_01ARZ3NDEKTSV4RRFFQ69G5FAV  lxc/101  set_config  succeeded     cores 2 -> 4
//! ```

use std::fmt::Write as _;

use anstyle::Style;
use evenkeel_agent::journal::history::OpSummary;
use evenkeel_core::operate::operation::{OpState, Operation, Upid};

use super::style::{ADD, ALARM, FAINT, GUEST, WAITS, styled};
use super::{counted, tamed};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// What is read at a glance; the whole text is in the JSON and in the journal itself.
const REASON_WIDTH_MAX: usize = 100;

/// Longer than any text the journal takes in.
const TEXT_LENGTH_MAX: usize = 2_048;

/// The names of the columns, and a line an operation; what does not fit a terminal of so many columns stands below.
pub(crate) fn table(operations: &[OpSummary], columns: Option<usize>) -> String {
    if columns.is_some_and(|columns| columns < WIDE) {
        return blocks(operations);
    }
    let rows: Vec<[String; 5]> = operations.iter().map(cells).collect();
    let names = ["TIME", "OP", "GUEST", "KIND", "STATE"];
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([names[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for (name, width) in names.iter().zip(widths) {
        text.push_str(&styled(FAINT, format!("{name:width$}  ")));
    }
    text.push_str(&styled(FAINT, "REASON"));
    text.push('\n');
    for (operation, cells) in operations.iter().zip(&rows) {
        let styles = [FAINT, Style::new(), GUEST, Style::new(), style_of(&operation.state)];
        for ((cell, width), style) in cells.iter().zip(widths).zip(styles) {
            text.push_str(&styled(style, format!("{cell:width$}  ")));
        }
        text.push_str(&tamed(said(operation), REASON_WIDTH_MAX));
        if let Some(upid) = &operation.upid {
            let upid = tamed(upid.as_str(), TEXT_LENGTH_MAX);
            text.push_str(&styled(FAINT, format!("  {upid}")));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// What was sent and has not ended, as the journal tells it: a heading, and two lines an operation.
pub(crate) fn in_flight(operations: &[Operation]) -> String {
    let mut text =
        format!("In flight, by the journal: {}\n", counted(operations.len(), "operation"));
    for operation in operations {
        let guest = operation.intent.guest;
        let kind = operation.intent.kind;
        let named = format!("{}  {kind}  {}", styled(GUEST, guest), operation.state.as_str());
        let task = operation.task.as_ref().map_or("no task is known yet", Upid::as_str);
        let told = format!("{}  {}", operation.id, tamed(task, TEXT_LENGTH_MAX));
        text.extend([format!("  {named}\n"), format!("    {}\n", styled(FAINT, told))]);
    }
    text
}

/// The narrowest terminal on which the table reads well.
const WIDE: usize = 140;

/// An operation in two or three lines.
fn blocks(operations: &[OpSummary]) -> String {
    let mut text = String::new();
    for operation in operations {
        let [at, op, guest, kind, state] = cells(operation);
        let state = styled(style_of(&operation.state), state);
        let at = styled(FAINT, at);
        let guest = styled(GUEST, guest);
        writeln!(text, "{at}  {guest}  {kind}  {state}").expect(INFALLIBLE);
        let said = tamed(said(operation), REASON_WIDTH_MAX);
        writeln!(text, "    {op}  {said}").expect(INFALLIBLE);
        if let Some(upid) = &operation.upid {
            let upid = styled(FAINT, tamed(upid.as_str(), TEXT_LENGTH_MAX));
            writeln!(text, "    {upid}").expect(INFALLIBLE);
        }
    }
    text
}

fn cells(operation: &OpSummary) -> [String; 5] {
    let OpSummary { op, guest, kind, at, state, reason: _, outcome: _, upid: _ } = operation;
    [
        at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        op.to_string(),
        guest.to_string(),
        kind.as_str().to_owned(),
        state.as_str().to_owned(),
    ]
}

/// What came of it, or else why it was done.
fn said(operation: &OpSummary) -> &str {
    if operation.outcome.is_empty() { &operation.reason } else { &operation.outcome }
}

fn style_of(state: &OpState) -> Style {
    match state {
        OpState::Started { .. } | OpState::TaskRunning { .. } => WAITS,
        OpState::Succeeded { .. } => ADD,
        OpState::Failed { .. } | OpState::Unknown { .. } => ALARM,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::action_registry::ActionKind;
    use evenkeel_core::model::id::OperationId;
    use evenkeel_core::operate::operation::Closer;

    use super::*;
    use crate::format::journal::SummaryFormat;

    fn failed(outcome: &str) -> OpSummary {
        OpSummary {
            op: OperationId::from_parts(1_700_000_000_000, 7),
            guest: "lxc/101".parse().unwrap(),
            kind: ActionKind::SetConfig,
            at: "2026-11-15T20:00:00.125Z".parse().unwrap(),
            state: OpState::Failed {
                by: Closer::Evidence,
                reason: outcome.to_owned(),
                left_volume: None,
            },
            reason: "cores 2 -> 4".to_owned(),
            outcome: outcome.to_owned(),
            upid: None,
        }
    }

    #[test]
    fn n03_a_hostile_text_stays_on_its_line_and_steers_no_terminal() {
        let evil = "x\nTASK OK\n{\"state\":\"succeeded\"}\u{1b}[2J\u{9b}31m\u{202e}\r";
        let long = format!("{evil}{}", "y".repeat(1 << 20));
        for text in [evil, &long] {
            let operations = [failed(text)];
            let table = anstream::adapter::strip_str(&table(&operations, None)).to_string();
            assert_eq!(table.lines().count(), 2, "{table}");
            assert!(table.chars().all(|c| c == '\n' || diagnostic_safe(c)), "{table:?}");
            assert!(table.len() < 2_000);
            let json = serde_json::to_value(SummaryFormat::of(&operations[0])).unwrap();
            assert_eq!(json["state"], "failed");
            let told = json["outcome"].as_str().unwrap();
            assert!(told.chars().all(diagnostic_safe) && told.chars().count() <= TEXT_LENGTH_MAX);
        }
    }

    fn diagnostic_safe(letter: char) -> bool {
        !evenkeel_core::words::shown_text::steers(letter)
    }

    #[test]
    fn a_short_reason_is_shown_whole_and_a_missing_outcome_by_the_reason() {
        let told = table(
            &[failed("no space left"), OpSummary { outcome: String::new(), ..failed("") }],
            None,
        );
        assert!(told.contains("no space left") && told.contains("cores 2 -> 4"), "{told}");
    }
}
