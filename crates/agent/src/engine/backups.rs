//! What the journal remembers of backups: which volumes left their slot while no backup held them.
//!
//! A volume that hangs on nothing does not tell whether it was in backups, so attaching it where it is in none needs a
//! signature (core decides), unless this memory knows better. The gate writes it down before the write that detaches is
//! sent; a pass strikes out what it sees in a backed up slot, or sees no more. At rest nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::classify::{BackupMemory, leaving_unsaved, saved_volumes};
use evenkeel_core::desired::Desired;
use evenkeel_core::id::VmId;
use evenkeel_core::plan::SetConfig;
use evenkeel_core::selection::PassScope;
use evenkeel_core::value::{Value, read};
use serde_json::json;

use super::EngineContext;
use super::error::Fatal;
use crate::journal::{JournalState, Kept, Record, Subject};

/// The version of what is kept under a volume.
const SHAPE: u32 = 1;

/// What is remembered of every guest.
pub(super) async fn memories(
    context: &EngineContext,
) -> Result<BTreeMap<VmId, BackupMemory>, Fatal> {
    context.journal.read(|state, _| memories_in(state)).await.map_err(Fatal::Journal)
}

/// The same, by what a journal adds up to.
pub(crate) fn memories_in(state: &JournalState) -> BTreeMap<VmId, BackupMemory> {
    let known = remembered(state).into_iter();
    known.map(|(vmid, volumes)| (vmid, BackupMemory::of(volumes))).collect()
}

/// Writes down what a configuration write is about to detach, as far as no backup holds it. A journal that does not
/// take it remembers nothing, which is the strict answer.
pub(super) async fn remember(
    context: &EngineContext,
    guest: &Guest,
    write: &SetConfig,
) -> Result<(), Fatal> {
    let Ok(config) = &guest.config else {
        return Ok(());
    };
    let set: Vec<(_, Value)> = write
        .set
        .iter()
        .map(|(key, text)| (*key, read::written(&key.key().format, text)))
        .collect();
    let set = set.iter().map(|(key, value)| (*key, Some(value)));
    let leaving = leaving_unsaved(config, set.chain(write.delete.iter().map(|key| (*key, None))));
    if leaving.is_empty() {
        return Ok(());
    }
    let known = context.journal.read(|state, _| remembered(state)).await.map_err(Fatal::Journal)?;
    let vmid = guest.id.vmid;
    for volume in
        leaving.iter().filter(|volume| !known.get(&vmid).is_some_and(|of| of.contains(*volume)))
    {
        let kept = Kept::put(Subject::Volume, key(vmid, volume), SHAPE, json!({ "backup": false }));
        context.append_if_room(Record::Kept(kept)).await?;
    }
    Ok(())
}

/// Strikes out what is no longer known: a volume that is in backups now or that its guest does not mention, and
/// everything of a guest nobody declares, because nobody looks at it.
pub(super) async fn forget(
    context: &EngineContext,
    desired: &Desired,
    actual: &Snapshot,
    scope: &PassScope,
) -> Result<(), Fatal> {
    let known = context.journal.read(|state, _| remembered(state)).await.map_err(Fatal::Journal)?;
    for (vmid, volumes) in known.into_iter().filter(|(vmid, _)| scope.has(*vmid)) {
        let guest = actual.guests.get(&vmid).filter(|_| desired.guests.contains_key(&vmid));
        let over: BTreeSet<String> = match guest.map(|guest| &guest.config) {
            Some(Ok(config)) => {
                let (saved, mentioned) = (saved_volumes(config), config.volumes());
                let stays =
                    |volume: &String| mentioned.contains_key(volume) && !saved.contains(volume);
                volumes.into_iter().filter(|volume| !stays(volume)).collect()
            }
            // It is there and could not be read: nothing new is known of it.
            Some(Err(_)) => BTreeSet::new(),
            None => volumes,
        };
        for volume in over {
            let kept = Kept::remove(Subject::Volume, key(vmid, &volume));
            context.append_if_room(Record::Kept(kept)).await?;
        }
    }
    Ok(())
}

fn remembered(state: &JournalState) -> BTreeMap<VmId, BTreeSet<String>> {
    let mut known: BTreeMap<VmId, BTreeSet<String>> = BTreeMap::new();
    for (key, kept) in state.kept(Subject::Volume).filter(|(_, kept)| kept.v == SHAPE) {
        let Some((vmid, volume)) = key.split_once(' ') else {
            continue;
        };
        if let (Ok(vmid), Some(false)) = (vmid.parse(), kept.value["backup"].as_bool()) {
            known.entry(vmid).or_default().insert(volume.to_owned());
        }
    }
    known
}

fn key(vmid: VmId, volume: &str) -> String {
    format!("{vmid} {volume}")
}
