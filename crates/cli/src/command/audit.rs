//! `evenkeel audit`: who allowed or refused what, when, why and with which key, from the verified chain.

use std::io::Write as _;

use evenkeel_agent::ambient::{Ambient as _, Machine};
use evenkeel_agent::audit::{self, AuditEntry, Filter};
use evenkeel_agent::journal::verify::VerifiedJournal;
use evenkeel_agent::journal::{JournalError, ReadOnlyDirectory};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde_json::json;

use crate::cli::{Audit, OutputFormat};
use crate::command::named_guest::by_number;
use crate::error::{CommandFailure, Exit};
use crate::{format, render, terminal};

pub(crate) async fn run(arguments: &Audit) -> Result<Exit, CommandFailure> {
    let journal = arguments.local.place.state_dir()?.journal();
    let since = arguments.since.as_deref().map(since).transpose()?;
    let guest = match &arguments.guest {
        Some(guest) => Some(by_number(&arguments.local.place, guest).await?),
        None => None,
    };
    let filter = Filter { guest, since, refused: arguments.refused, signed: arguments.signed };
    let files = ReadOnlyDirectory::open(&journal).map_err(|error| {
        let (exit, hint) = if error.kind() == std::io::ErrorKind::NotFound {
            (
                Exit::NotFound,
                "no agent has worked with this state directory; name another with --state",
            )
        } else {
            (Exit::Failed, "run as the owner of the state directory")
        };
        CommandFailure::new(exit, "cannot read the journal").because(error).hint(hint)
    })?;
    let mut entries = Vec::new();
    let read = audit::read(&files, &filter, |entry| entries.push(entry));
    let surplus = arguments.last.map_or(0, |last| entries.len().saturating_sub(last));
    entries.drain(..surplus);
    match arguments.local.output.output {
        OutputFormat::Json => format::print(&as_json(&entries, read.as_ref()))?,
        OutputFormat::Table => {
            terminal::print(&render::audit::render(&entries))?;
        }
    }
    let verified = read.map_err(damaged)?;
    if verified.tail_bytes > 0 {
        let bytes = verified.tail_bytes;
        let mut err = std::io::stderr();
        writeln!(
            err,
            "note: {bytes} bytes after the newest record are not whole: a write under way, or a crash"
        )?;
    }
    Ok(Exit::Ok)
}

/// Where the chain breaks: file and byte are in the message.
fn damaged(error: JournalError) -> CommandFailure {
    CommandFailure::wrapping(Exit::Failed, error).hint(
        "the entries before it are good, what follows proves nothing; keep a copy of the journal",
    )
}

fn as_json(
    entries: &[AuditEntry],
    read: Result<&VerifiedJournal, &JournalError>,
) -> serde_json::Value {
    let damage = read.err().map(|error| match error {
        JournalError::Damaged { file, damage } => {
            json!({ "file": file, "offset": damage.offset, "message": damage.to_string() })
        }
        JournalError::Disk(_)
        | JournalError::Newer { .. }
        | JournalError::Segments { .. }
        | JournalError::OtherMachine { .. } => {
            json!({ "message": error.to_string() })
        }
    });
    let head = read.ok().and_then(|verified| verified.head);
    json!({
        "format_version": 1,
        "verified": damage.is_none(),
        "damage": damage,
        "head": head.map(|head| json!({ "seq": head.seq, "sum": head.sum.as_str() })),
        "entries": entries,
    })
}

/// A moment, a day, or so long ago.
fn since(text: &str) -> Result<Timestamp, CommandFailure> {
    let now = Machine.now();
    let ago = |span: Span| {
        let duration: SignedDuration =
            span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        now.checked_sub(duration.abs()).ok()
    };
    let day = || format!("{text}T00:00:00Z").parse().ok();
    let found = text.parse().ok().or_else(day).or_else(|| text.parse::<Span>().ok().and_then(ago));
    found.ok_or_else(|| {
        CommandFailure::new(Exit::Usage, format!("`{}` is no moment", text.escape_debug()))
            .hint("write 2026-11-15T20:00:00Z, 2026-11-15 (UTC), or 24h, 7d")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_a_day_or_so_long_ago() {
        let at = |text: &str| since(text).map_err(|failure| failure.message);
        assert_eq!(at("2026-11-15T20:00:00Z").unwrap(), "2026-11-15T20:00:00Z".parse().unwrap());
        assert_eq!(at("2026-11-15").unwrap(), "2026-11-15T00:00:00Z".parse().unwrap());
        // The clock goes on between the two readings.
        let minutes = |text| (Machine.now().duration_since(at(text).unwrap()).as_secs() + 30) / 60;
        assert_eq!((minutes("1d"), minutes("90m")), (24 * 60, 90));
        for text in ["", "yesterday", "2026-13-01", "-", "1x"] {
            assert!(at(text).is_err(), "{text}");
        }
    }
}
