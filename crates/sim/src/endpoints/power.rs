//! Power calls: what is refused at once and what only the task finds out.

use evenkeel_core::model::id::{GuestId, GuestKind};

use super::{Answer, Context};
use crate::job::TaskJob;
use crate::reply::ReplyFailure;
use crate::world::SimPower;

/// Shutdown and reboot wait this long unless told otherwise.
const SHUTDOWN_S: u64 = 60;

fn task(kind: GuestKind, lxc: &'static str, qemu: &'static str) -> &'static str {
    match kind {
        GuestKind::Lxc => lxc,
        GuestKind::Qemu => qemu,
    }
}

fn not_running(cx: &Context<'_>, guest: GuestId, word: &str) -> Result<(), ReplyFailure> {
    if cx.is_running(guest) {
        Ok(())
    } else {
        Err(ReplyFailure::Died(format!("{word} {} not running", guest.vmid)))
    }
}

pub(super) fn start(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    if guest.kind == GuestKind::Lxc && cx.is_running(guest) {
        return Err(ReplyFailure::Died(format!("CT {} already running", guest.vmid)));
    }
    cx.fork(
        task(guest.kind, "vzstart", "qmstart"),
        &guest.vmid.to_string(),
        TaskJob::Start { guest },
    )
}

pub(super) fn stop(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    if guest.kind == GuestKind::Lxc {
        not_running(cx, guest, "CT")?;
    }
    let overruled = if cx.flag("overrule-shutdown") { overrule(cx, guest) } else { Vec::new() };
    let kind = task(guest.kind, "vzstop", "qmstop");
    let answer = cx.fork(kind, &guest.vmid.to_string(), TaskJob::Stop { guest });
    if let (false, Some(task)) = (overruled.is_empty(), cx.tasks.all.last_mut()) {
        let what = self::task(guest.kind, "vzshutdown", "qmshutdown");
        task.log.push(format!("overruled {what} tasks: {}", overruled.join(", ")));
    }
    answer
}

/// Marks running shutdown tasks of the guest to end now; the engine ends what is due.
fn overrule(cx: &mut Context<'_>, guest: GuestId) -> Vec<String> {
    let mut overruled = Vec::new();
    for task in &mut cx.tasks.all {
        let shutdown = matches!(task.job, TaskJob::Shutdown { guest: other, .. } if other == guest);
        if shutdown && task.is_running() {
            overruled.push(task.upid.to_string());
            crate::job::killed(cx.world, &task.job, &mut task.log);
            task.interrupt(cx.now_ms);
        }
    }
    overruled
}

pub(super) fn shutdown(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    let paused = cx
        .world
        .guest(guest)
        .is_some_and(|g| matches!(g.power, SimPower::Running { paused: true, .. }));
    match guest.kind {
        GuestKind::Lxc => not_running(cx, guest, "CT")?,
        GuestKind::Qemu if paused => {
            return Err(ReplyFailure::died("VM is paused - cannot shutdown"));
        }
        GuestKind::Qemu => {}
    }
    let timeout_s = cx.number("timeout").unwrap_or(SHUTDOWN_S);
    let force = cx.flag("forceStop");
    let kind = task(guest.kind, "vzshutdown", "qmshutdown");
    cx.fork(kind, &guest.vmid.to_string(), TaskJob::Shutdown { guest, timeout_s, force })
}

/// A machine that is gone has other words here than in config calls.
fn check_machine(cx: &Context<'_>, guest: GuestId) -> Result<(), ReplyFailure> {
    if guest.kind == GuestKind::Qemu && cx.world.guest(guest).is_none() {
        let node = &cx.world.node;
        return Err(ReplyFailure::Died(format!(
            "unable to find configuration file for VM {} on node '{node}'",
            guest.vmid
        )));
    }
    Ok(())
}

pub(super) fn reboot(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    check_machine(cx, guest)?;
    // Both kinds say `VM` here.
    not_running(cx, guest, "VM")?;
    let timeout_s = cx.number("timeout").unwrap_or(SHUTDOWN_S);
    let kind = task(guest.kind, "vzreboot", "qmreboot");
    cx.fork(kind, &guest.vmid.to_string(), TaskJob::Reboot { guest, timeout_s })
}

pub(super) fn reset(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    check_machine(cx, guest)?;
    not_running(cx, guest, "VM")?;
    cx.fork("qmreset", &guest.vmid.to_string(), TaskJob::Reset { guest })
}

pub(super) fn suspend(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    check_machine(cx, guest)?;
    not_running(cx, guest, task(guest.kind, "CT", "VM"))?;
    let id = guest.vmid.to_string();
    match guest.kind {
        GuestKind::Lxc => cx.fork("vzsuspend", &id, TaskJob::Pause { guest }),
        GuestKind::Qemu if cx.flag("todisk") => {
            cx.fork("qmsuspend", &id, TaskJob::Hibernate { guest })
        }
        GuestKind::Qemu => cx.fork("qmpause", &id, TaskJob::Pause { guest }),
    }
}

pub(super) fn resume(cx: &mut Context<'_>) -> Answer {
    let guest = cx.guest()?;
    cx.check_skiplock()?;
    check_machine(cx, guest)?;
    let id = guest.vmid.to_string();
    match guest.kind {
        GuestKind::Lxc if cx.is_running(guest) => {
            Err(ReplyFailure::Died(format!("CT {} already running", guest.vmid)))
        }
        GuestKind::Lxc => cx.fork("vzresume", &id, TaskJob::Thaw { guest }),
        GuestKind::Qemu => {
            not_running(cx, guest, "VM")?;
            cx.fork("qmresume", &id, TaskJob::Resume { guest })
        }
    }
}
