//! Task lists, states and logs.

use serde_json::{Value, json};

use super::{Answer, Context};
use crate::access::Identity;
use crate::reply::{ReplyFailure, Success};
use crate::task::{SimTask, SimUpid, Tasks};
use crate::world::World;

/// The default length of lists and logs.
const PAGE: u64 = 50;
/// How many tasks each node publishes to the cluster.
const CLUSTER_TASKS: usize = 25;

/// The owner of a task, token or not, needs no privilege.
fn owns(who: &Identity, upid: &SimUpid) -> bool {
    upid.user == who.full() || (who.token.is_none() && upid.owner().0 == who.user)
}

/// Whether somebody without the right to see all finds the task in the node's list: a token its own, a user also those
/// of their tokens, but these only when they have ended, because a running one is listed under the token's whole name.
fn lists(who: &Identity, task: &SimTask) -> bool {
    let own = task.upid.user == who.full();
    own || (!task.is_running() && owns(who, &task.upid))
}

fn entry(task: &SimTask) -> Value {
    let (user, token) = task.upid.owner();
    let mut entry = json!({
        "upid": task.upid.to_string(), "node": task.upid.node, "pid": task.upid.pid,
        "pstart": task.upid.pstart, "starttime": task.upid.start_s, "type": task.upid.kind,
        "id": task.upid.id, "user": user,
    });
    if let Some(exit) = &task.exit {
        entry["status"] = json!(exit);
        entry["endtime"] = json!(task.end_s);
    } else {
        // A running task is shown with its token inside the user name.
        entry["status"] = json!("RUNNING");
        entry["user"] = json!(task.upid.user);
        entry["saved"] = json!("0");
        return entry;
    }
    if let Some(token) = token {
        entry["tokenid"] = json!(token);
    }
    entry
}

fn category(status: &str) -> &'static str {
    match status {
        "OK" => "ok",
        "" | "unexpected status" => "unknown",
        warnings if warnings.starts_with("WARNINGS:") => "warning",
        _ => "error",
    }
}

pub(super) fn list(cx: &Context<'_>) -> Success {
    let sees_all = cx.may(&format!("/nodes/{}", cx.world.node), &["Sys.Audit"]);
    let source = cx.text("source").unwrap_or("archive");
    let fits = |task: &&SimTask| {
        let running = task.is_running();
        let exit = task.exit.as_deref().unwrap_or_default();
        let text = |name: &str, test: &dyn Fn(&str) -> bool| cx.text(name).is_none_or(test);
        let in_source = match source {
            "archive" => !running,
            "active" => running,
            _ => true,
        };
        in_source
            && task.is_visible()
            && cx.tasks.is_listed(task)
            && (sees_all || lists(cx.who, task))
            && text("vmid", &|vmid| task.upid.id == vmid)
            && text("typefilter", &|kind| task.upid.kind == kind)
            && text("userfilter", &|user| {
                task.upid.owner().0.to_lowercase().contains(&user.to_lowercase())
            })
            && cx.number("since").is_none_or(|since| task.upid.start_s >= since)
            && cx.number("until").is_none_or(|until| task.upid.start_s <= until)
            && (!cx.flag("errors") || running || exit != "OK")
            && text("statusfilter", &|wanted| {
                running || crate::format::split_list(wanted).contains(&category(exit))
            })
    };
    let mut fitting: Vec<&SimTask> = cx.tasks.all.iter().rev().filter(fits).collect();
    // The index is written as tasks end and read backwards; the times in it play no part.
    fitting.sort_by_key(|task| std::cmp::Reverse(task.ended.unwrap_or(u64::MAX)));
    let start = usize::try_from(cx.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = usize::try_from(cx.number("limit").unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let total = (!fitting.is_empty()).then_some(fitting.len());
    let data = fitting.into_iter().skip(start).take(limit).map(entry).collect();
    Success::Listed { data, total }
}

/// Without the right to see all, a token sees nothing here: PVE compares its user without the token.
pub(super) fn cluster(cx: &Context<'_>) -> Success {
    let sees_all = cx.may("/", &["Sys.Audit"]);
    let shown = cx.tasks.all.iter().rev().filter(|task| {
        task.is_visible() && (sees_all || (cx.who.token.is_none() && owns(cx.who, &task.upid)))
    });
    shown
        .take(CLUSTER_TASKS)
        .map(|task| {
            let mut entry = entry(task);
            entry["saved"] = json!(if task.is_running() { "0" } else { "1" });
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("pid");
                entry.remove("pstart");
                if task.is_running() {
                    entry.remove("status");
                }
            }
            entry
        })
        .collect::<Value>()
        .into()
}

/// The task a UPID names, if the caller may see it.
fn find<'a>(
    world: &World,
    tasks: &'a Tasks,
    who: &Identity,
    text: &str,
    privilege: &str,
) -> Result<Result<&'a SimTask, ReplyFailure>, ReplyFailure> {
    let Some(upid) = SimUpid::parse(text) else {
        return Err(ReplyFailure::param("upid", "unable to parse worker upid"));
    };
    let path = format!("/nodes/{}", world.node);
    if !owns(who, &upid) && !world.access.may(who, &path, &[privilege], world.release()) {
        return Err(ReplyFailure::Denied(format!("{path}, {privilege}")));
    }
    Ok(tasks.find(text).ok_or_else(|| ReplyFailure::param("upid", "no such task")))
}

pub(super) fn status(cx: &Context<'_>) -> Answer {
    let task = find(cx.world, cx.tasks, cx.who, cx.hole("upid"), "Sys.Audit")??;
    let (user, token) = task.upid.owner();
    let mut entry = json!({
        "upid": task.upid.to_string(), "node": task.upid.node, "pid": task.upid.pid,
        "pstart": task.upid.pstart, "starttime": task.upid.start_s, "type": task.upid.kind,
        "id": task.upid.id, "user": user, "status": "running",
    });
    if let Some(token) = token {
        entry["tokenid"] = json!(token);
    }
    if let Some(exit) = &task.exit {
        entry["status"] = json!("stopped");
        entry["exitstatus"] = json!(exit);
    }
    Ok(entry.into())
}

pub(super) fn log(cx: &Context<'_>) -> Answer {
    let Ok(task) = find(cx.world, cx.tasks, cx.who, cx.hole("upid"), "Sys.Audit")? else {
        // A lost log is answered with one line, and as an object instead of a list.
        let line = json!({"n": 1, "t": "unable to open file - No such file or directory"});
        return Ok(Success::Listed { data: line, total: Some(1) });
    };
    if cx.flag("download") {
        return Ok(Success::Download(task.log.join("\n")));
    }
    if task.log.is_empty() {
        return Ok(Success::Listed { data: json!([{"n": 1, "t": "no content"}]), total: Some(1) });
    }
    let start = usize::try_from(cx.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = match cx.number("limit").unwrap_or(PAGE) {
        0 => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let lines = task.log.iter().enumerate().skip(start).take(limit);
    let data = lines.map(|(at, line)| json!({"n": at + 1, "t": line})).collect();
    Ok(Success::Listed { data, total: Some(task.log.len()) })
}

/// Whether the caller may stop the task.
pub(crate) fn check_stop(
    world: &World,
    tasks: &Tasks,
    who: &Identity,
    upid: &str,
) -> Result<(), ReplyFailure> {
    find(world, tasks, who, upid, "Sys.Modify")?.map(|_| ())
}
