//! Storages and their content.

use serde_json::{Value, json};

use super::{Answer, Context};
use crate::job::TaskJob;
use crate::reply::{ReplyFailure, Success};
use crate::storage::{Storage, Volume};

const SEE: [&str; 2] = ["Datastore.Audit", "Datastore.AllocateSpace"];

/// The unit in which files are measured.
const BLOCK_BYTES: u64 = 512;

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
    let mut row = json!({"storage": name, "type": storage.kind.as_str(), "content": words(storage), "path": storage.path});
    if let Some(keep) = storage.keep_last {
        row["prune-backups"] = json!(format!("keep-last={keep}"));
    }
    if let Some(limit) = storage.max_protected {
        row["max-protected-backups"] = json!(limit);
    }
    row
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
            // What is not protected does not say so.
            if volume.protected {
                row["protected"] = json!(1);
            }
            if let Some(archive) = &volume.archive {
                row["subtype"] = json!(archive.guest.kind.as_str());
            }
            // Only the first line is listed.
            if let Some(line) = volume.notes.as_ref().and_then(|notes| notes.lines().next()) {
                row["notes"] = json!(line);
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
    // Whose number has no guest any more is an image, whatever it was.
    let listed = |volume: &Volume| {
        let owned = volume.vmid.is_some_and(|vmid| cx.world.is_taken(vmid.get()));
        if volume.content == "rootdir" && !owned {
            "images".to_owned()
        } else {
            volume.content.clone()
        }
    };
    let volumes = storage.volumes.iter().filter(|(_, volume)| {
        cx.text("content").is_none_or(|content| listed(volume) == content)
            && cx
                .number("vmid")
                .is_none_or(|vmid| volume.vmid.is_some_and(|own| u64::from(own.get()) == vmid))
            && visible(cx, name, volume)
    });
    let shown = volumes.map(|(volume, data)| {
        let mut row = row(name, volume, data);
        row["content"] = json!(listed(data));
        if let (true, Some(fields)) = (storage.hides_sizes, row.as_object_mut()) {
            let size = fields.remove("size").unwrap_or_default();
            fields.insert("approximate-size".to_owned(), size);
        }
        row
    });
    Ok(shown.collect::<Value>().into())
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
    let mut row = json!({"format": volume.format, "size": volume.size_bytes, "used": volume.size_bytes, "path": format!("/sim/{volid}")});
    if volume.content == "backup" {
        // An archive is measured in blocks here, and its format is not known: only the list tells both.
        row["format"] = json!("raw");
        row["size"] = json!(volume.size_bytes.next_multiple_of(BLOCK_BYTES));
        if volume.protected {
            row["protected"] = json!(1);
        }
        if let Some(notes) = &volume.notes {
            row["notes"] = json!(notes);
        }
    }
    Ok(row.into())
}

pub(super) fn set_volume(cx: &mut Context<'_>) -> Answer {
    let volid = volid(cx);
    found(cx, &volid)?;
    let notes = cx.text("notes").map(str::to_owned);
    let protected = cx.text("protected").map(|p| p == "1");
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
