//! The audit as a person reads it: one entry a line, what was signed below it.

use std::fmt::Write as _;

use evenkeel_agent::audit::{AuditEntry, AuditEvent, Signature};

use super::style::{ADD, ALARM, FAINT, GUEST, WAITS, styled};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// All entries, oldest first. Every text in them is safe to show.
pub(crate) fn render(entries: &[AuditEntry]) -> String {
    let mut text = String::new();
    for entry in entries {
        one(&mut text, entry);
    }
    if entries.is_empty() {
        text.push_str("nothing was decided\n");
    }
    text
}

fn one(text: &mut String, entry: &AuditEntry) {
    let AuditEntry {
        seq,
        at,
        event,
        guest,
        kind,
        op,
        reason,
        class,
        why,
        statement_reason,
        signed_by,
        nonce,
        payload,
    } = entry;
    let style = match event {
        AuditEvent::Succeeded | AuditEvent::Thawed => ADD,
        AuditEvent::Failed | AuditEvent::Unknown | AuditEvent::TailCut | AuditEvent::Frozen => {
            ALARM
        }
        AuditEvent::Decision | AuditEvent::Pending | AuditEvent::Approval | AuditEvent::Trust => {
            WAITS
        }
        AuditEvent::Started | AuditEvent::Resolved | AuditEvent::Note => GUEST,
    };
    let moment = styled(FAINT, format!("{at:.0}"));
    let event = styled(style, format!("{:<9}", event.as_str()));
    write!(text, "{moment} {event}").expect(INFALLIBLE);
    let said = [guest.as_deref().unwrap_or_default(), kind, reason, class];
    for word in said.into_iter().filter(|word| !word.is_empty()) {
        write!(text, " {word}").expect(INFALLIBLE);
    }
    if !why.is_empty() {
        write!(text, "  {why}").expect(INFALLIBLE);
    }
    let name = if op.is_empty() { format!("#{seq}") } else { format!("{op} #{seq}") };
    writeln!(text, "  {}", styled(FAINT, name)).expect(INFALLIBLE);
    for Signature { name, key, touch } in signed_by {
        let name = if name.is_empty() { "" } else { &format!("{name} ") };
        let touch = if touch.is_empty() { "" } else { &format!(" ({touch})") };
        writeln!(text, "    signed by {name}{key}{touch}").expect(INFALLIBLE);
    }
    let below = [("says", statement_reason), ("nonce", nonce), ("payload", payload)];
    for (label, value) in below.into_iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(text, "    {label} {value}").expect(INFALLIBLE);
    }
}
