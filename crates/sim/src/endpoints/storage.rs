//! Storages, their content, and backups.

use evenkeel_core::id::GuestId;
use serde_json::{Value, json};

use super::{Answer, Context};
use crate::job::TaskJob;
use crate::reply::{ReplyFailure, Success};
use crate::storage::{Storage, Volume};

const SEE: [&str; 2] = ["Datastore.Audit", "Datastore.AllocateSpace"];

fn words(storage: &Storage) -> String {
    storage.content.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

fn usage(storage: &Storage) -> Value {
    let used = storage.used_bytes().min(storage.total_bytes);
    json!({
        "type": storage.kind.as_str(), "content": words(storage), "active": 1, "enabled": 1, "shared": 0,
        "total": storage.total_bytes, "used": used, "avail": storage.total_bytes - used,
    })
}

pub(super) fn configured(cx: &Context<'_>) -> Success {
    let seen = cx.world.storages.iter().filter(|(name, storage)| {
        cx.may(&format!("/storage/{name}"), &SEE)
            && cx.text("type").is_none_or(|kind| storage.kind.as_str() == kind)
    });
    seen.map(|(name, storage)| describe(name, storage)).collect::<Value>().into()
}

fn describe(name: &str, storage: &Storage) -> Value {
    let mut told = json!({"storage": name, "type": storage.kind.as_str(), "content": words(storage), "path": storage.path});
    if let Some(max) = storage.max_protected {
        told["max-protected-backups"] = json!(max);
    }
    told
}

fn find<'a>(cx: &'a Context<'_>, name: &str) -> Result<&'a Storage, ReplyFailure> {
    cx.world.storages.get(name).ok_or_else(|| ReplyFailure::param("storage", "No such storage."))
}

pub(super) fn one(cx: &Context<'_>) -> Answer {
    let name = cx.hole("storage");
    match cx.world.storages.get(name) {
        Some(storage) => {
            cx.need(&format!("/storage/{name}"), &["Datastore.Allocate"])?;
            Ok(describe(name, storage).into())
        }
        None => Err(ReplyFailure::Died(format!("storage '{name}' does not exist"))),
    }
}

pub(super) fn list(cx: &Context<'_>) -> Success {
    let seen = cx.world.storages.iter().filter(|(name, storage)| {
        let wanted = crate::format::split_list(cx.text("content").unwrap_or_default());
        cx.may(&format!("/storage/{name}"), &SEE)
            && cx.text("storage").is_none_or(|wanted| wanted == name.as_str())
            && (wanted.is_empty()
                || wanted.iter().any(|content| storage.content.contains(*content)))
    });
    seen.map(|(name, storage)| {
        let mut row = usage(storage);
        row["storage"] = json!(name);
        row["used_fraction"] = json!(0.1);
        row
    })
    .collect::<Value>()
    .into()
}

pub(super) fn status(cx: &Context<'_>) -> Answer {
    Ok(usage(find(cx, cx.hole("storage"))?).into())
}

fn row(storage: &str, name: &str, volume: &Volume) -> Value {
    let shown = match &volume.parent {
        Some(parent) => format!("{storage}:{parent}/{name}"),
        None => format!("{storage}:{name}"),
    };
    let mut row = json!({
        "volid": shown, "content": volume.content, "format": volume.format, "size": volume.size_bytes, "ctime": volume.ctime,
    });
    if let Some(vmid) = volume.vmid {
        row["vmid"] = json!(vmid.get());
    }
    match volume.content.as_str() {
        "images" | "rootdir" => {
            row["parent"] = json!(volume.parent);
            row["used"] = json!(volume.size_bytes);
        }
        "backup" => {
            row["protected"] = json!(u8::from(volume.protected));
            if let Some(notes) = &volume.notes {
                row["notes"] = json!(notes);
            }
        }
        _ => {}
    }
    row
}

/// Whether the caller may see a volume: guest volumes by rights on the guest or the storage.
fn visible(cx: &Context<'_>, storage: &str, volume: &Volume) -> bool {
    let owner = volume.vmid.map(|vmid| format!("/vms/{vmid}"));
    match volume.content.as_str() {
        "images" | "rootdir" => {
            cx.may(&format!("/storage/{storage}"), &["Datastore.Allocate"])
                || owner.is_some_and(|path| cx.may(&path, &["VM.Config.Disk"]))
        }
        "backup" => {
            cx.may(&format!("/storage/{storage}"), &["Datastore.Allocate"])
                || owner.is_some_and(|path| cx.may(&path, &["VM.Backup"]))
        }
        _ => true,
    }
}

pub(super) fn content(cx: &Context<'_>) -> Answer {
    let name = cx.hole("storage");
    let storage = find(cx, name)?;
    let volumes = storage.volumes.iter().filter(|(_, volume)| {
        cx.text("content").is_none_or(|content| volume.content == content)
            && cx
                .number("vmid")
                .is_none_or(|vmid| volume.vmid.is_some_and(|own| u64::from(own.get()) == vmid))
            && visible(cx, name, volume)
    });
    Ok(volumes.map(|(volume, data)| row(name, volume, data)).collect::<Value>().into())
}

/// The volume a path names: with or without the storage in front.
fn volid(cx: &Context<'_>) -> String {
    let name = cx.hole("volume");
    if name.contains(':') { name.to_owned() } else { format!("{}:{name}", cx.hole("storage")) }
}

fn found<'a>(cx: &'a Context<'_>, volid: &str) -> Result<&'a Volume, ReplyFailure> {
    match cx.world.volume(volid) {
        Some(volume) if visible(cx, cx.hole("storage"), volume) => Ok(volume),
        Some(_) => Err(ReplyFailure::Denied(format!(
            "/storage/{}, Datastore.Allocate",
            cx.hole("storage")
        ))),
        None => Err(ReplyFailure::Died(format!("volume '{volid}' does not exist"))),
    }
}

pub(super) fn volume(cx: &Context<'_>) -> Answer {
    let volid = volid(cx);
    let volume = found(cx, &volid)?;
    Ok(json!({"format": volume.format, "size": volume.size_bytes, "used": volume.size_bytes, "path": format!("/sim/{volid}")}).into())
}

pub(super) fn set_volume(cx: &mut Context<'_>) -> Answer {
    let volid = volid(cx);
    found(cx, &volid)?;
    let (notes, protected) =
        (cx.text("notes").map(str::to_owned), cx.text("protected").map(|p| p == "1"));
    if let Some(volume) = cx.world.volume_mut(&volid) {
        volume.protected = protected.unwrap_or(volume.protected);
        volume.notes = notes.or(volume.notes.take());
    }
    Ok(Value::Null.into())
}

/// Nothing checks whether a guest uses the volume: PVE does not either.
pub(super) fn delete_volume(cx: &mut Context<'_>) -> Answer {
    let volume = volid(cx);
    let owner = found(cx, &volume)?.vmid;
    let storage = cx.hole("storage").to_owned();
    let backup = found(cx, &volume)?.content == "backup";
    if backup {
        cx.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    } else {
        cx.need(&format!("/storage/{storage}"), &["Datastore.Allocate"])?;
    }
    let id = owner.map_or_else(|| storage.clone(), |vmid| format!("{vmid}@{storage}"));
    let upid = cx.fork_text("imgdel", &id, TaskJob::DeleteVolume { volume });
    match cx.number("delay") {
        None => Ok(json!(upid).into()),
        Some(seconds) => {
            Err(ReplyFailure::Awaits { upid, for_ms: seconds * 1000, failed: String::new() })
        }
    }
}

pub(super) fn vzdump(cx: &mut Context<'_>) -> Answer {
    let storage = cx.text("storage").unwrap_or("local").to_owned();
    let Some(target) = cx.world.storages.get(&storage) else {
        return Err(ReplyFailure::Died(format!(
            "could not get storage information for '{storage}': storage '{storage}' does not exist"
        )));
    };
    if !target.content.contains("backup") {
        return Err(ReplyFailure::Died(format!("storage '{storage}' does not support backups")));
    }
    let list = cx.text("vmid").unwrap_or_default();
    let mut guests: Vec<GuestId> = Vec::new();
    if cx.flag("all") {
        guests.extend(cx.world.guests.values().map(|guest| guest.id));
    }
    for number in crate::format::split_list(list) {
        match number.parse::<u32>().ok().and_then(|number| cx.world.guests.get(&number)) {
            Some(guest) => guests.push(guest.id),
            // A guest that is not here lives on another node, where PVE would have forwarded to.
            None => return Ok(json!("OK").into()),
        }
    }
    if guests.is_empty() {
        return Err(ReplyFailure::param("vmid", "property is missing and it is not optional"));
    }
    for guest in &guests {
        cx.need(&format!("/vms/{}", guest.vmid), &["VM.Backup"])?;
    }
    cx.need(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let id = if let [guest] = guests.as_slice() { guest.vmid.to_string() } else { String::new() };
    let job = TaskJob::Backup {
        guests,
        storage,
        remove: cx.text("remove") != Some("0"),
        protected: cx.flag("protected"),
        notes: cx.text("notes-template").map(str::to_owned),
    };
    cx.fork("vzdump", &id, job)
}

/// What a backup does unless it is told otherwise.
pub(super) fn backup_defaults(cx: &Context<'_>) -> Answer {
    let name = cx.text("storage").unwrap_or("local").to_owned();
    let storage = find(cx, &name)?;
    if !cx.may(&format!("/storage/{name}"), &SEE) {
        return Err(ReplyFailure::Denied(format!("/storage/{name}, Datastore.Audit")));
    }
    let keep =
        storage.keep_last.map_or_else(|| "keep-all=1".to_owned(), |n| format!("keep-last={n}"));
    Ok(json!({"storage": name, "mode": "snapshot", "prune-backups": keep}).into())
}

/// The configuration in a backup; a machine's names the drives that were saved.
pub(super) fn extract_config(cx: &Context<'_>) -> Answer {
    let volid = cx.text("volume").unwrap_or_default();
    let Some(volume) = cx.world.volume(volid) else {
        return Err(ReplyFailure::Died(format!("volume '{volid}' does not exist")));
    };
    let Some(archive) = &volume.archive else {
        return Err(ReplyFailure::Died("unable to find configuration file".to_owned()));
    };
    let is_saved = |key: &str, value: &str| {
        let drive = ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"];
        let is_drive = drive.iter().any(|name| key.starts_with(name)) && key != "scsihw";
        archive.guest.kind == evenkeel_core::id::GuestKind::Qemu
            && is_drive
            && !value.contains("media=cdrom")
            && !value.contains("backup=0")
    };
    let keys = &archive.config.active;
    let mut lines: Vec<String> =
        keys.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let saved = keys.iter().filter(|(key, value)| is_saved(key, value));
    lines.extend(saved.map(|(key, _)| format!("#qmdump#map:{key}:drive-{key}:store:raw:")));
    Ok(json!(lines.join("\n")).into())
}
