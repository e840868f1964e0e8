//! Root becomes the agent's user: for `selftest`, whose operations go into the agent's own journal.
//!
//! Called once the configuration and the token were read, which may be root's alone, and before there is a second thread:
//! the kernel changes the user of one thread, and those made later inherit it. There is no way back.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::{Exit, Failure};

/// If root runs us and the directory belongs to another user: become that user, with the groups it has. Tells which.
pub(crate) fn become_owner(directory: &Path) -> Result<Option<u32>, Failure> {
    let Ok(found) = std::fs::metadata(directory) else { return Ok(None) };
    let owner = found.uid();
    if !geteuid().is_root() || owner == geteuid().as_raw() {
        return Ok(None);
    }
    let cannot = |error: std::io::Error| {
        let message = format!("cannot become user {owner}, who owns {}", directory.display());
        let hint = format!("run it as that user: `runuser -u \"$(id -nu {owner})\" -- evenkeel …`");
        Failure::new(Exit::Failed, message).because(error).hint(hint)
    };
    if std::fs::read_dir("/proc/self/task").map_err(cannot)?.count() != 1 {
        return Err(cannot(std::io::Error::other("another thread would stay root")));
    }
    let first = ids(&["-g"], owner).first().copied().unwrap_or(found.gid());
    let groups: Vec<Gid> = ids(&["-G"], owner).into_iter().map(Gid::from_raw).collect();
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(first));
    let changed = set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user));
    changed.map_err(|error| cannot(error.into()))?;
    if geteuid() != user {
        return Err(cannot(std::io::Error::other("the kernel says otherwise")));
    }
    Ok(Some(owner))
}

/// What `id` says of a user; nothing if it knows none with that number.
fn ids(question: &[&str], user: u32) -> Vec<u32> {
    let asked = Command::new("id").args(question).arg(user.to_string()).output();
    let said = asked.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
