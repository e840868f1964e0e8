//! The audit as a person reads it: what was decided in columns, why and by whom below it.
//!
//! ```text
//! TIME                  EVENT      GUEST    ACT         REASON
//! 2026-11-15T20:00:00Z  started    lxc/101  set_config  allowed, benign
//!     cores 2 -> 4
//!     op_01ARZ3NDEKTSV4RRFFQ69G5FAV #12
//! ```

use std::fmt::Write as _;

use evenkeel_agent::audit::{AuditEntry, AuditEvent, Signature};

use super::style::{ADD, ALARM, FAINT, GUEST, WAITS, styled};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// The names of the columns.
const NAMES: [&str; 5] = ["TIME", "EVENT", "GUEST", "ACT", "REASON"];

/// All entries, oldest first. Every text in them is safe to show.
pub(crate) fn render(entries: &[AuditEntry]) -> String {
    if entries.is_empty() {
        return "no decisions\n".to_owned();
    }
    let cells: Vec<[String; 5]> = entries.iter().map(cells).collect();
    let width = |column: usize| {
        let all = cells.iter().map(|row| row[column].chars().count());
        all.chain([NAMES[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    let names = NAMES.map(str::to_owned);
    row(&mut text, &names, widths, [FAINT; 5]);
    for (entry, cells) in entries.iter().zip(&cells) {
        let plain = anstyle::Style::new();
        row(&mut text, cells, widths, [FAINT, style_of(entry.event), GUEST, plain, plain]);
        below(&mut text, entry);
    }
    text
}

fn row(text: &mut String, cells: &[String; 5], widths: [usize; 5], styles: [anstyle::Style; 5]) {
    let mut line = String::new();
    for ((cell, width), style) in cells.iter().zip(widths).zip(styles) {
        if cell.is_empty() {
            write!(line, "{:width$}  ", "").expect(INFALLIBLE);
        } else {
            let blanks = width.saturating_sub(cell.chars().count()) + 2;
            write!(line, "{}{:blanks$}", styled(style, cell), "").expect(INFALLIBLE);
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

fn cells(entry: &AuditEntry) -> [String; 5] {
    let said = [entry.reason.as_str(), entry.class.as_str()];
    let reason: Vec<&str> = said.into_iter().filter(|word| !word.is_empty()).collect();
    [
        format!("{:.0}", entry.at),
        entry.event.as_str().to_owned(),
        entry.guest.clone().unwrap_or_default(),
        entry.kind.clone(),
        reason.join(", "),
    ]
}

fn style_of(event: AuditEvent) -> anstyle::Style {
    match event {
        AuditEvent::Succeeded | AuditEvent::Thawed => ADD,
        AuditEvent::Failed | AuditEvent::Unknown | AuditEvent::TailCut | AuditEvent::Frozen => {
            ALARM
        }
        AuditEvent::Decision | AuditEvent::Pending | AuditEvent::Approval | AuditEvent::Trust => {
            WAITS
        }
        AuditEvent::Started | AuditEvent::Resolved | AuditEvent::Note => GUEST,
    }
}

fn below(text: &mut String, entry: &AuditEntry) {
    let AuditEntry {
        seq,
        at: _,
        event: _,
        guest: _,
        kind: _,
        op,
        reason: _,
        class: _,
        why,
        statement_reason,
        signed_by,
        nonce,
        payload,
    } = entry;
    if !why.is_empty() {
        writeln!(text, "    {why}").expect(INFALLIBLE);
    }
    for Signature { name, key, touch } in signed_by {
        let name = if name.is_empty() { "" } else { &format!("{name} ") };
        let touch = if touch.is_empty() { "" } else { &format!(" ({touch})") };
        writeln!(text, "    signed by {name}{key}{touch}").expect(INFALLIBLE);
    }
    let said = [("says", statement_reason), ("nonce", nonce), ("payload", payload)];
    for (label, value) in said.into_iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(text, "    {label} {value}").expect(INFALLIBLE);
    }
    let name = if op.is_empty() { format!("#{seq}") } else { format!("{op} #{seq}") };
    writeln!(text, "    {}", styled(FAINT, name)).expect(INFALLIBLE);
}
