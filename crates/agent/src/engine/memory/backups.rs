//! What the journal remembers of backups: which volumes left their slot while no backup held them.
//!
//! A volume that hangs on nothing does not tell whether it was in backups, so attaching it where it is in none needs a
//! signature (core decides), unless this memory knows better. The gate writes it down before the write that detaches is
//! sent; a pass strikes out what it sees in a backed up slot, or sees no more. At rest nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::actual::{Guest, Snapshot};
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::gate::classify::{BackupMemory, leaving_unsaved, saved_volumes};
use evenkeel_core::model::id::VmId;
use evenkeel_core::plan::VolumeMemory;
use evenkeel_core::registry::KeyRef;
use evenkeel_core::value::{Value, read};
use serde_json::json;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::engine::memory::moves;
use crate::journal::{JournalState, Kept, KeptSubject, Record};

/// The version of what is kept under a volume.
const SHAPE: u32 = 1;

/// What is remembered of every guest's volumes.
pub(in crate::engine) async fn memories(
    context: &EngineContext,
) -> Result<BTreeMap<VmId, VolumeMemory>, Fatal> {
    context.journal.read(|state, _| memories_in(state)).await.map_err(Fatal::Journal)
}

/// The same, by what a journal adds up to.
pub(crate) fn memories_in(state: &JournalState) -> BTreeMap<VmId, VolumeMemory> {
    let mut memories: BTreeMap<VmId, VolumeMemory> = BTreeMap::new();
    for (vmid, volumes) in remembered(state) {
        memories.entry(vmid).or_default().backups = BackupMemory::of(volumes);
    }
    for (vmid, moved) in moves::moved_in(state) {
        memories.entry(vmid).or_default().moved = moved;
    }
    memories
}

/// Writes down what an act is about to take out of these slots, as far as no backup holds it. A journal that does not
/// take it remembers nothing, which is the strict answer.
pub(in crate::engine) async fn remember(
    context: &EngineContext,
    guest: &Guest,
    slots: &BTreeMap<KeyRef, Option<&str>>,
) -> Result<(), Fatal> {
    let Ok(config) = &guest.config else {
        return Ok(());
    };
    let to: Vec<(_, Option<Value>)> = slots
        .iter()
        .map(|(key, text)| (*key, text.map(|text| read::written(&key.key().format, text))))
        .collect();
    let leaving = leaving_unsaved(config, to.iter().map(|(key, value)| (*key, value.as_ref())));
    if leaving.is_empty() {
        return Ok(());
    }
    let known = context.journal.read(|state, _| remembered(state)).await.map_err(Fatal::Journal)?;
    let vmid = guest.id.vmid;
    for volume in
        leaving.iter().filter(|volume| !known.get(&vmid).is_some_and(|of| of.contains(*volume)))
    {
        let kept =
            Kept::put(KeptSubject::Volume, key(vmid, volume), SHAPE, json!({ "backup": false }));
        context.append_if_room(Record::Kept(kept)).await?;
    }
    Ok(())
}

/// Strikes out what need not be remembered any more, of backups and of moves.
pub(in crate::engine) async fn forget(
    context: &EngineContext,
    desired: &Desired,
    actual: &Snapshot,
    scope: &PassScope,
) -> Result<(), Fatal> {
    let known = context.journal.read(|state, _| (remembered(state), moves::remembered(state)));
    let (unsaved, moved) = known.await.map_err(Fatal::Journal)?;
    let mut over = Vec::new();
    for (vmid, volumes) in unsaved.into_iter().filter(|(vmid, _)| scope.has(*vmid)) {
        let volumes = no_longer_unsaved(vmid, volumes, desired, actual);
        over.extend(volumes.iter().map(|volume| key(vmid, volume)));
    }
    for (vmid, volumes) in moved.into_iter().filter(|(vmid, _)| scope.has(*vmid)) {
        over.extend(moves::no_longer_there(vmid, volumes.into_keys(), desired, actual));
    }
    for key in over {
        let kept = Kept::remove(KeptSubject::Volume, key);
        context.append_if_room(Record::Kept(kept)).await?;
    }
    Ok(())
}

/// Volumes that are in backups now or that their guest does not mention, and everything of a guest nobody declares,
/// because nobody looks at it.
fn no_longer_unsaved(
    vmid: VmId,
    volumes: BTreeSet<String>,
    desired: &Desired,
    actual: &Snapshot,
) -> BTreeSet<String> {
    let guest = actual.guests.get(&vmid).filter(|_| desired.guests.contains_key(&vmid));
    match guest.map(|guest| &guest.config) {
        Some(Ok(config)) => {
            let saved = saved_volumes(config);
            let mentioned = config.volumes();
            let stays = |volume: &String| mentioned.contains_key(volume) && !saved.contains(volume);
            volumes.into_iter().filter(|volume| !stays(volume)).collect()
        }
        // It is there and could not be read: nothing new is known of it.
        Some(Err(_)) => BTreeSet::new(),
        None => volumes,
    }
}

fn remembered(state: &JournalState) -> BTreeMap<VmId, BTreeSet<String>> {
    let mut known: BTreeMap<VmId, BTreeSet<String>> = BTreeMap::new();
    for (key, kept) in state.kept(KeptSubject::Volume).filter(|(_, kept)| kept.v == SHAPE) {
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
