//! Backups: the order for one, and what an archive says of the guest in it.

use std::fmt::Write as _;

use evenkeel_core::model::id::GuestKind;
use serde_json::json;

use super::{Answer, Context};
use crate::config::Config;
use crate::inside_files::standard_excludes;
use crate::job::{BackupRun, TaskJob};
use crate::reply::ReplyFailure;
use crate::world::is_disk_key;

/// A backup waits so many minutes for another unless told otherwise.
const LOCK_WAIT_MINUTES: u64 = 180;

/// Whether the storage and the guests are there is the task's affair.
pub(super) fn vzdump(cx: &mut Context<'_>) -> Answer {
    let storage = cx.text("storage").unwrap_or("local").to_owned();
    check_notes(cx)?;
    cx.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    // Whoever may slow the node down may also speed it up.
    if ["bwlimit", "ionice", "performance"].iter().any(|name| cx.params.contains_key(*name)) {
        cx.need("/", &["Sys.Modify"])?;
    }
    let list = cx.text("vmid").unwrap_or_default();
    let mut vmids: Vec<u32> = Vec::new();
    if cx.flag("all") {
        vmids.extend(cx.world.guests.keys());
    }
    vmids
        .extend(crate::format::split_list(list).iter().filter_map(|text| text.parse::<u32>().ok()));
    if vmids.is_empty() {
        return Err(ReplyFailure::param("vmid", "property is missing and it is not optional"));
    }
    // The right to save a guest is looked at by the task, not by the call.
    let may_save = |vmid: &u32| cx.may(&format!("/vms/{vmid}"), &["VM.Backup"]);
    let there = vmids.iter().copied().filter(|vmid| cx.world.guests.contains_key(vmid));
    let denied: Vec<u32> = there.filter(|vmid| !may_save(vmid)).collect();
    if cx.flag("all") {
        vmids.retain(|vmid| !denied.contains(vmid));
    }
    // Guests of another node are saved there, and the answer is no task of this one.
    vmids.retain(|vmid| !cx.world.elsewhere.contains_key(vmid));
    if vmids.is_empty() {
        return Ok(json!("OK").into());
    }
    let id = if let [vmid] = vmids.as_slice() { vmid.to_string() } else { String::new() };
    let order = BackupRun {
        vmids,
        storage,
        remove: cx.text("remove") != Some("0"),
        protected: cx.flag("protected"),
        suffix: match cx.text("compress") {
            Some("zstd") => ".zst",
            Some("gzip") => ".gz",
            Some("lzo" | "1") => ".lzo",
            Some(_) | None => "",
        }
        .to_owned(),
        notes: cx.text("notes-template").map(str::to_owned),
        patience_ms: cx.number("lockwait").unwrap_or(LOCK_WAIT_MINUTES) * 60_000,
        excludes: standard_excludes(cx.text("stdexcludes") != Some("0")),
        denied: denied.first().copied().filter(|_| !cx.flag("all")),
        saving: Vec::new(),
        failed: false,
    };
    cx.fork("vzdump", &id, TaskJob::Backup { order: Box::new(order) })
}

/// Only four variables are known in notes.
fn check_notes(cx: &Context<'_>) -> Result<(), ReplyFailure> {
    let template = cx.text("notes-template").unwrap_or_default();
    let mut unknown = Vec::new();
    let mut at = 0;
    while let Some(begin) = template[at..].find("{{").map(|found| at + found + 2) {
        let Some(length) = template[begin..].find("}}") else { break };
        let name = &template[begin..begin + length];
        at = begin + length + 2;
        if !matches!(name, "cluster" | "guestname" | "node" | "vmid") {
            // PVE counts back from the end of the whole variable, so it is two too far.
            unknown.push(format!("variable '{name}' at char {}", begin + 2));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let text = format!("found unknown: {}\n", unknown.join(", "));
    Err(ReplyFailure::param("notes-template", text))
}

/// What a backup does unless it is told otherwise: whoever may save to a storage may ask for its retention.
pub(super) fn defaults(cx: &Context<'_>) -> Answer {
    let name = cx.text("storage").unwrap_or("local");
    let Some(storage) = cx.world.storages.get(name) else {
        return Err(ReplyFailure::Died(format!("storage '{name}' does not exist")));
    };
    let path = format!("/storage/{name}");
    if !cx.may(&path, &["Datastore.Audit", "Datastore.AllocateSpace"]) {
        return Err(ReplyFailure::Denied(format!("{path}, Datastore.Audit")));
    }
    if !storage.content.contains("backup") {
        let why = format!("can't use storage '{name}' for backups - wrong content type");
        return Err(ReplyFailure::Died(why));
    }
    let keep = storage.keep_last.map(|keep| format!("keep-last={keep}"));
    let keep = keep.unwrap_or_else(|| "keep-all=1".to_owned());
    let mut told = json!({
        "storage": name, "mode": "snapshot", "stdexcludes": 1, "prune-backups": keep,
    });
    // PVE has a list of them and tells it as one text.
    if !cx.world.backup_excludes.is_empty() {
        told["exclude-path"] = json!(cx.world.backup_excludes.join(","));
    }
    Ok(told.into())
}

/// The guest's file as it was saved; of a machine also which drives the archive holds.
pub(super) fn extract_config(cx: &Context<'_>) -> Answer {
    let volid = cx.text("volume").unwrap_or_default();
    let Some((storage, name)) = volid.split_once(':') else {
        return Err(ReplyFailure::Died(format!("unable to parse volume ID '{volid}'")));
    };
    if !cx.world.storages.contains_key(storage) {
        return Err(ReplyFailure::Died(format!("storage '{storage}' does not exist")));
    }
    let Some(volume) = cx.world.volume(volid) else {
        return Err(ReplyFailure::Died(format!("volume '{volid}' does not exist")));
    };
    if !cx.may(&format!("/storage/{storage}"), &["Datastore.Allocate"]) {
        cx.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        if let Some(owner) = volume.vmid {
            cx.need(&format!("/vms/{owner}"), &["VM.Backup"])?;
        }
    }
    let Some(archive) = &volume.archive else {
        return Err(ReplyFailure::Died(format!(
            "unable to extract config from '{name}' - ERROR: archive contains no configuration file"
        )));
    };
    let mut text = archive.config.render(archive.guest.kind);
    if archive.guest.kind == GuestKind::Qemu {
        text.push_str(&drive_map(&archive.config));
    }
    Ok(json!(text).into())
}

fn drive_map(config: &Config) -> String {
    let drives = config.active.iter().filter(|(key, value)| {
        is_disk_key(GuestKind::Qemu, key)
            && !key.starts_with("unused")
            && !value.contains("media=cdrom")
            && !value.contains("backup=0")
    });
    let mut map = String::new();
    for (key, value) in drives {
        let volid = value.split(',').next().unwrap_or_default();
        let storage = volid.split(':').next().unwrap_or_default();
        let format = volid.rsplit_once('.').map_or("raw", |(_, format)| format);
        let _infallible = writeln!(map, "#qmdump#map:{key}:drive-{key}:{storage}:{format}:");
    }
    map
}
