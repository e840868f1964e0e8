//! Which refused approvals are written down; a flood of them must never fill the disk.

use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::PayloadHash;
use serde_json::json;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::journal::{Kept, KeptSubject, Record};

/// Refusals that are written down in an hour. A flood of forged approvals must not fill the disk; the log has all of
/// them.
pub(super) const REFUSALS_PER_HOUR: u32 = 60;

/// The same for what a hub brings: it can be flooded from further away.
pub(super) const HUB_REFUSALS_PER_HOUR: u32 = 20;

/// Refusals the journal keeps; the oldest make room.
const REFUSALS_KEPT: usize = 128;

/// Keys of decisions about approvals begin so.
const APPROVAL: &str = "approval ";

/// How many refusals were written down lately.
#[derive(Debug, Default)]
pub(in crate::engine) struct RefusalCount {
    hour: i64,
    written: u32,
}

impl RefusalCount {
    /// Whether one more may be written at this moment.
    pub(super) fn may_write(&mut self, at: jiff::Timestamp, limit: u32) -> bool {
        let hour = at.as_second() / 3_600;
        if self.hour != hour {
            *self = Self { hour, written: 0 };
        }
        self.written = self.written.saturating_add(1);
        self.written <= limit
    }

    /// How many were left out in the hour before, once that is over; the rest of a flood is one line.
    pub(super) fn left_out_before(&self, at: jiff::Timestamp, limit: u32) -> Option<u32> {
        let over = self.hour != at.as_second() / 3_600;
        self.written.checked_sub(limit).filter(|count| over && *count > 0)
    }
}

/// Writes down that an approval was refused, once for the same bytes and reason.
pub(in crate::engine) async fn note_refusal(
    context: &EngineContext,
    bytes: &[u8],
    refusal: &Refusal,
) -> Result<(), Fatal> {
    let key = format!("{APPROVAL}{}", PayloadHash::of(bytes));
    let at = context.ambient.now().to_string();
    let value =
        json!({ "op": "approval", "reason": refusal.reason, "why": refusal.detail, "at": at });
    let reason = refusal.reason;
    let asked = key.clone();
    let kept = context.journal.read(move |state, _| {
        let about = state.kept(KeptSubject::Decision).filter(|(key, _)| key.starts_with(APPROVAL));
        let known: Vec<(String, String, bool)> = about
            .map(|(key, kept)| {
                let at = kept.value["at"].as_str().unwrap_or_default().to_owned();
                let same = key == asked && kept.value["reason"] == json!(reason);
                (at, key.to_owned(), same)
            })
            .collect();
        known
    });
    let mut known = kept.await.map_err(Fatal::Journal)?;
    if known.iter().any(|(_, _, same)| *same) {
        return Ok(());
    }
    known.sort();
    let room = known.len().saturating_sub(REFUSALS_KEPT - 1);
    let over =
        known.into_iter().take(room).map(|(_, key, _)| Kept::remove(KeptSubject::Decision, key));
    for kept in over.chain([Kept::put(KeptSubject::Decision, key, 1, value)]) {
        context.append_if_room(Record::Kept(kept)).await?;
    }
    Ok(())
}
