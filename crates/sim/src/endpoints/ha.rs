//! HA resources and migration, as far as a client meets them that makes and ends guests.

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde_json::{Value, json};

use super::{Answer, Context};
use crate::job::{TaskJob, ha_sid};
use crate::reply::{ReplyFailure, Success};
use crate::world::{OTHER_NODE, is_disk_key};

fn row(sid: &str, state: &str) -> Value {
    json!({"sid": sid, "type": sid.split(':').next(), "state": state})
}

pub(super) fn list(cx: &Context<'_>) -> Success {
    let wanted = cx.text("type");
    let fits = |sid: &str| wanted.is_none_or(|wanted| sid.split(':').next() == Some(wanted));
    let all = cx.world.ha.iter().filter(|(sid, _)| fits(sid));
    all.map(|(sid, state)| row(sid, state)).collect::<Value>().into()
}

pub(super) fn one(cx: &Context<'_>) -> Answer {
    let sid = cx.hole("sid");
    match cx.world.ha.get(sid) {
        Some(state) => {
            let mut row = row(sid, state);
            // The digest of the resources' file, which has no other meaning here.
            row["digest"] = json!("da39a3ee5e6b4b0d3255bfef95601890afd80709");
            Ok(row.into())
        }
        None => Err(ReplyFailure::Died(format!("no such resource '{sid}'"))),
    }
}

pub(super) fn add(cx: &mut Context<'_>) -> Answer {
    let given = cx.text("sid").unwrap_or_default();
    let (kind, number) = given.split_once(':').unwrap_or(("", given));
    let number: u32 = number.parse().unwrap_or(0);
    let Some(guest) = cx.world.guests.get(&number).map(|found| found.id) else {
        return Err(ReplyFailure::Died(format!("resource '{given}' does not exist in cluster")));
    };
    let sid = ha_sid(guest);
    if !kind.is_empty() && sid != given {
        return Err(ReplyFailure::Died(format!("resource '{given}' does not exist in cluster")));
    }
    let state = cx.text("state").unwrap_or("started").to_owned();
    if cx.world.ha.contains_key(&sid) {
        return Err(ReplyFailure::Died(format!("resource ID '{sid}' already defined")));
    }
    cx.world.ha.insert(sid, state);
    Ok(Value::Null.into())
}

pub(super) fn remove(cx: &mut Context<'_>) -> Answer {
    let sid = cx.hole("sid").to_owned();
    match cx.world.ha.remove(&sid) {
        Some(_) => Ok(Value::Null.into()),
        None => Err(ReplyFailure::Died(format!("cannot delete service '{sid}', not HA managed!"))),
    }
}

/// What `status/current` says of HA.
pub(super) fn of_guest(cx: &Context<'_>, guest: GuestId) -> Value {
    if cx.world.ha.contains_key(&ha_sid(guest)) {
        json!({"managed": 1, "group": null, "state": null})
    } else {
        json!({"managed": 0})
    }
}

pub(super) fn migrate(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let target = cx.text("target").unwrap_or_default();
    if target == cx.world.node {
        return Err(ReplyFailure::param("target", "target is local node."));
    }
    if !cx.world.clustered || target != OTHER_NODE {
        return Err(ReplyFailure::Died(format!("no such cluster node '{target}'")));
    }
    cx.file(guest)?;
    let kind = match guest.kind {
        GuestKind::Lxc => "vzmigrate",
        GuestKind::Qemu => "qmigrate",
    };
    cx.fork(kind, &guest.vmid.to_string(), TaskJob::Leave { guest })
}

/// What would keep a guest from leaving.
pub(super) fn preconditions(cx: &Context<'_>) -> Answer {
    let guest = cx.guest()?;
    if guest.kind == GuestKind::Lxc
        && cx.world.release() < evenkeel_core::model::release::Release::V9_0
    {
        return Err(ReplyFailure::NoMethod(format!(
            "Method 'GET /nodes/{}/lxc/{}/migrate' not implemented",
            cx.world.node, guest.vmid
        )));
    }
    let config = cx.file(guest)?;
    let disks = config.active.iter().filter(|(key, value)| {
        is_disk_key(guest.kind, key) && !value.contains("media=cdrom") && value.contains(':')
    });
    let disks: Vec<Value> = disks
        .map(|(key, value)| {
            let volid = value.split(',').next().unwrap_or_default();
            json!({
                "volid": volid, "drivename": key, "cdrom": 0, "shared": 0, "replicate": 1, "is_vmstate": 0,
                "is_unused": u8::from(key.starts_with("unused")), "is_tpmstate": u8::from(key.starts_with("tpm")),
                "is_attached": u8::from(!key.starts_with("unused")),
                "size": cx.world.volume(volid).map_or(0, |volume| volume.size_bytes),
            })
        })
        .collect();
    let nodes: Vec<&str> = if cx.world.clustered { vec![OTHER_NODE] } else { Vec::new() };
    Ok(json!({
        "running": u8::from(cx.is_running(guest)), "allowed_nodes": nodes, "not_allowed_nodes": {},
        "local_disks": disks, "local_resources": [], "mapped-resources": [], "mapped-resource-info": {},
    })
    .into())
}
