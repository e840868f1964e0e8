//! Writing configs: the synchronous PUT of both kinds and the task of virtual machines.

use evenkeel_core::model::id::GuestKind;
use serde_json::Value;

use super::{Answer, Context, LOCK_WAIT_MS};
use crate::config::Config;
use crate::job::{TaskJob, describe};
use crate::reply::ReplyFailure;
use crate::write::{self, WriteChange, rights};

pub(super) fn set(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let change = read(cx, guest.kind)?;
    cx.lock(guest, LOCK_WAIT_MS)?;
    match guest.kind {
        GuestKind::Lxc => write::lxc::update(cx.world, guest, &change, cx.now_ms)?,
        GuestKind::Qemu => {
            let skip_lock = cx.flag("skiplock");
            write::qemu::update(cx.world, guest, &change, skip_lock, cx.now_ms)?;
            cx.world.note(cx.now_ms, &cx.who.full(), describe(guest, &change));
        }
    }
    Ok(Value::Null.into())
}

/// Contradictions and rights come before the guest is even looked for.
fn read(cx: &Context<'_>, kind: GuestKind) -> Result<WriteChange, ReplyFailure> {
    let guest = cx.guest()?;
    let release = cx.world.release();
    let change = WriteChange::read(kind, cx.params, release)?;
    let empty = Config::default();
    let config = cx.world.guest(guest).map_or(&empty, |guest| &guest.config);
    let unprivileged = config.is_set("unprivileged");
    rights::check(cx.world, cx.who, guest, &change, config, unprivileged)?;
    Ok(change)
}

pub(super) fn set_async(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let change = read(cx, guest.kind)?;
    let release = cx.world.release();
    let config = cx.file(guest)?;
    write::check_digest(guest, config, change.digest.as_deref(), release)?;
    if !cx.flag("skiplock") {
        write::check_lock(guest, config)?;
    }
    // Values a key check would refuse inside the worker are refused before the fork.
    if let Some((key, _)) = change.set.iter().find(|(_, value)| value.is_none()) {
        return Err(ReplyFailure::Died(format!(
            "unable to parse value of '{key}' - got undefined value"
        )));
    }
    let job =
        TaskJob::Configure { guest, change: Box::new(change), skip_lock: cx.flag("skiplock") };
    let upid = cx.fork_text("qmconfig", &guest.vmid.to_string(), job);
    match cx.number("background_delay") {
        None => Ok(Value::String(upid).into()),
        Some(seconds) => Err(ReplyFailure::Awaits {
            upid,
            for_ms: seconds * 1000,
            failed: format!("failed to update VM {}: ", guest.vmid),
        }),
    }
}

pub(super) fn unlink(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    let names = crate::format::split_list(cx.text("idlist").unwrap_or_default());
    let change = WriteChange {
        delete: names.into_iter().map(str::to_owned).collect(),
        force: cx.flag("force"),
        ..WriteChange::default()
    };
    cx.lock(guest, LOCK_WAIT_MS)?;
    write::qemu::update(cx.world, guest, &change, false, cx.now_ms)?;
    Ok(Value::Null.into())
}
