//! Snapshots: list, create, roll back, delete, describe.

use evenkeel_core::model::id::GuestKind;
use serde_json::{Value, json};

use super::{Answer, Context, LOCK_WAIT_MS, guests};
use crate::config::stored_description;
use crate::job::TaskJob;
use crate::reply::ReplyFailure;
use crate::write;

pub(super) fn list(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let config = cx.file(guest)?;
    let mut rows: Vec<Value> = Vec::new();
    for snapshot in &config.snapshots {
        let get = |key: &str| snapshot.section.get(key);
        let mut row = json!({
            "name": snapshot.name,
            "description": get("description").cloned().unwrap_or_default(),
            "snaptime": get("snaptime").and_then(|time| time.parse::<u64>().ok()).unwrap_or(0),
        });
        if guest.kind == GuestKind::Qemu {
            row["vmstate"] = json!(u8::from(get("vmstate").is_some()));
        }
        if let Some(parent) = get("parent") {
            row["parent"] = json!(parent);
        }
        rows.push(row);
    }
    let mut here = json!({
        "name": "current", "description": "You are here!", "digest": config.digest(guest.kind),
        "running": u8::from(cx.is_running(guest)),
    });
    if let Some(parent) = config.get("parent") {
        here["parent"] = json!(parent);
    }
    rows.push(here);
    Ok(Value::Array(rows).into())
}

pub(super) fn create(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let name = cx.text("snapname").unwrap_or_default().to_owned();
    let reserved = match guest.kind {
        GuestKind::Lxc => matches!(name.as_str(), "current" | "vzdump"),
        GuestKind::Qemu => matches!(name.as_str(), "current" | "pending"),
    };
    if reserved {
        return Err(ReplyFailure::Died(format!(
            "unable to use snapshot name '{name}' (reserved name)"
        )));
    }
    if guest.kind == GuestKind::Qemu {
        cx.file(guest)?;
    }
    let kind = match guest.kind {
        GuestKind::Lxc => "vzsnapshot",
        GuestKind::Qemu => "qmsnapshot",
    };
    let description = cx.text("description").unwrap_or_default().to_owned();
    let job = TaskJob::Snapshot { guest, name, description, state: cx.flag("vmstate") };
    cx.fork(kind, &guest.vmid.to_string(), job)
}

pub(super) fn rollback(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let kind = match guest.kind {
        GuestKind::Lxc => "vzrollback",
        GuestKind::Qemu => "qmrollback",
    };
    let job =
        TaskJob::Rollback { guest, name: cx.hole("snapname").to_owned(), start: cx.flag("start") };
    cx.fork(kind, &guest.vmid.to_string(), job)
}

pub(super) fn delete(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let kind = match guest.kind {
        GuestKind::Lxc => "vzdelsnapshot",
        GuestKind::Qemu => "qmdelsnapshot",
    };
    let job = TaskJob::DeleteSnapshot {
        guest,
        name: cx.hole("snapname").to_owned(),
        force: cx.flag("force"),
    };
    cx.fork(kind, &guest.vmid.to_string(), job)
}

pub(super) fn config(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let name = cx.hole("snapname");
    match cx.file(guest)?.snapshot(name) {
        Some(snapshot) => Ok(Value::Object(guests::section_json(
            guest.kind,
            &snapshot.section,
            cx.world.release(),
        ))
        .into()),
        None => Err(ReplyFailure::Died(format!("snapshot '{name}' does not exist"))),
    }
}

pub(super) fn describe(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.lock(guest, LOCK_WAIT_MS)?;
    write::check_lock(guest, cx.file(guest)?)?;
    let name = cx.hole("snapname").to_owned();
    let text = cx.text("description").map(str::to_owned);
    let snapshots = cx.world.guest_mut(guest).map(|record| &mut record.config.snapshots);
    let Some(snapshot) =
        snapshots.and_then(|all| all.iter_mut().find(|snapshot| snapshot.name == name))
    else {
        return Err(ReplyFailure::Died(format!("snapshot '{name}' does not exist")));
    };
    if let Some(text) = text {
        match stored_description(guest.kind, &text) {
            Some(text) => snapshot.section.insert("description".into(), text),
            None => snapshot.section.remove("description"),
        };
    }
    Ok(Value::Null.into())
}
