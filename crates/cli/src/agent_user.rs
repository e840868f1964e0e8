//! Root becomes the agent's user: for `selftest` and `enrol`, whose records go into the agent's own journal.
//!
//! `selftest` calls [`become_owner`] once the configuration and the token were read, which may be root's alone, and before
//! there is a second thread: the kernel changes the user of one thread, and those made later inherit it. There is no way
//! back. `enrol` stays root and does with [`as_owner`] only what goes into the state directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::{CommandFailure, Exit};

/// If root runs us and the directory belongs to another user: become that user, with the groups it has. Tells which.
pub(crate) fn become_owner(directory: &Path) -> Result<Option<u32>, CommandFailure> {
    let Ok(found) = std::fs::metadata(directory) else { return Ok(None) };
    let owner = found.uid();
    if !geteuid().is_root() || owner == geteuid().as_raw() {
        return Ok(None);
    }
    let cannot = |error: std::io::Error| {
        let message = format!("cannot become user {owner}, who owns {}", directory.display());
        let hint = format!("run it as that user: `runuser -u \"$(id -nu {owner})\" -- evenkeel …`");
        CommandFailure::new(Exit::Failed, message).because(error).hint(hint)
    };
    if std::fs::read_dir("/proc/self/task").map_err(cannot)?.count() != 1 {
        return Err(cannot(std::io::Error::other("another thread would stay root")));
    }
    switch_thread(owner, found.gid()).map_err(cannot)?;
    Ok(Some(owner))
}

/// Does some work as the owner of a directory, in a thread whose user alone changes. Where root does not run us, or the
/// directory is root's or not there yet, it is done as we are.
pub(crate) fn as_owner<T: Send>(
    directory: &Path,
    work: impl FnOnce() -> Result<T, CommandFailure> + Send,
) -> Result<T, CommandFailure> {
    let owned = std::fs::metadata(directory).ok();
    let owned = owned.filter(|found| geteuid().is_root() && found.uid() != geteuid().as_raw());
    let Some(found) = owned else { return work() };
    let owner = found.uid();
    let group = found.gid();
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            switch_thread(owner, group).map_err(|error| {
                let message =
                    format!("cannot work as user {owner}, who owns {}", directory.display());
                CommandFailure::new(Exit::Failed, message).because(error)
            })?;
            work()
        });
        worker.join()
    });
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The user and the group that the package made for the agent; none without the package.
pub(crate) fn of_package() -> Option<(u32, u32)> {
    let first = |question| words_of_id(question, "evenkeel").first().copied();
    Some((first("-u")?, first("-g")?))
}

/// The calling thread becomes a user for good, with the groups that user has.
fn switch_thread(owner: u32, group: u32) -> std::io::Result<()> {
    let name = owner.to_string();
    let first = words_of_id("-g", &name).first().copied().unwrap_or(group);
    let groups: Vec<Gid> = words_of_id("-G", &name).into_iter().map(Gid::from_raw).collect();
    let user = Uid::from_raw(owner);
    let group = Gid::from_raw(first);
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    if geteuid() == user {
        return Ok(());
    }
    Err(std::io::Error::other("the kernel says otherwise"))
}

/// What `id` says of a user, by name or number; nothing if it knows none.
fn words_of_id(question: &str, user: &str) -> Vec<u32> {
    let asked = Command::new("id").args([question, user]).stderr(Stdio::null()).output();
    let said = asked.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
