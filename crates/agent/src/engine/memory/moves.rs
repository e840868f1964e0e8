//! What the journal remembers of moves: which volume was in which slot before.
//!
//! Proxmox VE keeps a moved volume's source as `unusedN` and does not tell where it was. While it hangs there its slot is
//! not moved again (core decides), or every change of mind would leave one copy more. The gate writes it down before
//! the move is sent; a pass strikes out what the guest no longer mentions. At rest nothing is written.

use std::collections::BTreeMap;

use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::Desired;
use evenkeel_core::model::id::VmId;
use evenkeel_core::plan::MovedVolumes;
use serde_json::json;

use crate::engine::EngineContext;
use crate::engine::error::Fatal;
use crate::journal::{JournalState, Kept, KeptSubject, Record};

/// The version of what is kept under a volume.
const SHAPE: u32 = 1;

/// How the keys of these records begin; those of backups begin with a number.
const MOVED: &str = "moved ";

/// What is remembered of every guest.
pub(in crate::engine) fn moved_in(state: &JournalState) -> BTreeMap<VmId, MovedVolumes> {
    let known = remembered(state).into_iter();
    known.map(|(vmid, moved)| (vmid, MovedVolumes::of(moved))).collect()
}

/// Writes down where a volume is that is about to be moved.
pub(in crate::engine) async fn remember(
    context: &EngineContext,
    vmid: VmId,
    volume: &str,
    slot: &str,
) -> Result<(), Fatal> {
    let known = context.journal.read(|state, _| remembered(state)).await.map_err(Fatal::Journal)?;
    if known.get(&vmid).and_then(|of| of.get(volume)).map(String::as_str) == Some(slot) {
        return Ok(());
    }
    let kept = Kept::put(KeptSubject::Volume, key(vmid, volume), SHAPE, json!({ "slot": slot }));
    context.append_if_room(Record::Kept(kept)).await
}

/// The keys of volumes that their guest does not mention any more, or of all if a declared guest is gone. What nobody
/// declares today, or our token does not see, may be declared and seen tomorrow, with its old volume still there.
pub(in crate::engine) fn no_longer_there(
    vmid: VmId,
    volumes: impl Iterator<Item = String>,
    desired: &Desired,
    actual: &Snapshot,
) -> Vec<String> {
    let is_declared = desired.guests.contains_key(&vmid);
    let mentioned = match actual.guests.get(&vmid).map(|guest| &guest.config) {
        Some(Ok(config)) => config.volumes(),
        None if is_declared && actual.proves_gone(vmid) => BTreeMap::new(),
        // It could not be read, or not be seen: nothing new is known of it.
        Some(Err(_)) | None => return Vec::new(),
    };
    let gone = volumes.filter(|volume| !mentioned.contains_key(volume));
    gone.map(|volume| key(vmid, &volume)).collect()
}

/// The slot of each volume, guest by guest.
pub(in crate::engine) fn remembered(
    state: &JournalState,
) -> BTreeMap<VmId, BTreeMap<String, String>> {
    let mut known: BTreeMap<VmId, BTreeMap<String, String>> = BTreeMap::new();
    for (key, kept) in state.kept(KeptSubject::Volume).filter(|(_, kept)| kept.v == SHAPE) {
        let Some((vmid, volume)) = key.strip_prefix(MOVED).and_then(|key| key.split_once(' '))
        else {
            continue;
        };
        if let (Ok(vmid), Some(slot)) = (vmid.parse(), kept.value["slot"].as_str()) {
            known.entry(vmid).or_default().insert(volume.to_owned(), slot.to_owned());
        }
    }
    known
}

fn key(vmid: VmId, volume: &str) -> String {
    format!("{MOVED}{vmid} {volume}")
}
