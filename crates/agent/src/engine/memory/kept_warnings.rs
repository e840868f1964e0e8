//! What the journal remembers of acts that were done and warned of something: for `status`, until the next act on the
//! same slot or guest.
//!
//! `settle` and `answer` call it once an act is done; core says what is kept and what ends it. Nothing is decided by it, and
//! at rest nothing is written: a record that finds no room on the disk is left out.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, OperationId, VmId};
use evenkeel_core::operate::operation::Operation;
use evenkeel_core::words::op_warning::{DoneAct, WarningSubject};
use serde_json::json;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::settle::evidence::written;
use crate::journal::{Details, JournalState, Kept, KeptSubject, Record};
use crate::sometimes;

/// The version of what is kept.
const SHAPE: u32 = 1;

/// How the keys of these records begin; those of backups begin with a number.
const WARNED: &str = "warned ";

/// How many are kept: more than a person works through. Each still stands in its own operation.
const KEPT_MAX: usize = 256;

/// A warning that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWarning {
    /// The guest.
    pub guest: GuestId,
    /// The volume's slot; none if it is about the whole guest.
    pub slot: Option<String>,
    /// The operation that was done.
    pub op: OperationId,
    /// What is odd about it.
    pub warning: String,
}

/// Writes down what an act that was done warns of, and strikes out what is over by it.
pub(in crate::engine) async fn note(
    context: &EngineContext,
    operation: &Operation,
    details: &Details,
    warning: Option<&str>,
) -> Result<(), Fatal> {
    let guest = operation.intent.guest;
    let done = DoneAct::new(operation.intent.kind, &written(details));
    if !done.concerns_warnings() {
        return Ok(());
    }
    let subject = done.subject().filter(|_| warning.is_some());
    let find = move |state: &JournalState| {
        let known =
            state.kept(KeptSubject::Volume).filter(|(key, _)| key.starts_with(WARNED)).count();
        let mut keys = keys_of(state, guest.vmid);
        keys.retain(|_, kept| done.ends(kept) && Some(&*kept) != subject.as_ref());
        (keys, subject.filter(|_| known < KEPT_MAX))
    };
    let found = context.journal.read(|state, _| find(state)).await;
    let (over, subject) = found.map_err(Fatal::Journal)?;
    for key in over.into_keys() {
        sometimes!("a kept warning is over");
        context.append_if_room(Record::Kept(Kept::remove(KeptSubject::Volume, key))).await?;
    }
    let (Some(subject), Some(warning)) = (subject, warning) else {
        return Ok(());
    };
    sometimes!("a warning of an act that was done is kept");
    let value = json!({
        "guest": guest.to_string(), "op": operation.id.to_string(), "warning": warning,
    });
    let kept = Kept::put(KeptSubject::Volume, key(guest.vmid, &subject), SHAPE, value);
    context.append_if_room(Record::Kept(kept)).await
}

/// Every warning that is kept, by guest and slot.
pub fn kept_warnings(state: &JournalState) -> Vec<KeptWarning> {
    let mut known: Vec<KeptWarning> = state
        .kept(KeptSubject::Volume)
        .filter(|(_, kept)| kept.v == SHAPE)
        .filter_map(|(key, kept)| {
            let (_, subject) = parts(key)?;
            let text = |name: &str| kept.value[name].as_str();
            let slot = match subject {
                WarningSubject::Guest => None,
                WarningSubject::Slot(slot) => Some(slot),
            };
            Some(KeptWarning {
                guest: text("guest")?.parse().ok()?,
                slot,
                op: text("op")?.parse().ok()?,
                warning: text("warning")?.to_owned(),
            })
        })
        .collect();
    known.sort_by(|a, b| (a.guest, &a.slot).cmp(&(b.guest, &b.slot)));
    known
}

/// The records with which a person says that the warnings about a guest were heard.
pub fn heard_warnings(state: &JournalState, vmid: VmId) -> Vec<Record> {
    let keys = keys_of(state, vmid).into_keys();
    keys.map(|key| Record::Kept(Kept::remove(KeptSubject::Volume, key))).collect()
}

fn keys_of(state: &JournalState, vmid: VmId) -> BTreeMap<String, WarningSubject> {
    let of_guest = state.kept(KeptSubject::Volume).filter_map(|(key, _)| {
        let (guest, subject) = parts(key)?;
        (guest == vmid).then(|| (key.to_owned(), subject))
    });
    of_guest.collect()
}

fn key(vmid: VmId, subject: &WarningSubject) -> String {
    format!("{WARNED}{vmid} {subject}")
}

fn parts(key: &str) -> Option<(VmId, WarningSubject)> {
    let (vmid, subject) = key.strip_prefix(WARNED)?.split_once(' ')?;
    Some((vmid.parse().ok()?, WarningSubject::read(subject)))
}
