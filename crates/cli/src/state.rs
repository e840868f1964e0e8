//! Where the agent keeps its state, for the verbs that look at it or write to it.

use std::env;
use std::path::PathBuf;

use crate::cli::StateDir;
use crate::error::{Exit, Failure};

/// Root's state directory; the agent's unit makes it.
const OF_ROOT: &str = "/var/lib/evenkeel";

/// The journal's place in it.
const JOURNAL: &str = "journal";

/// The state directory: the flag or its environment variable, else the usual place of this user.
pub(crate) fn state_dir(arguments: &StateDir) -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(dir) = &arguments.dir {
        return Ok(dir.as_std_path().to_owned());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(OF_ROOT));
    }
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("evenkeel"))
        .ok_or_else(|| {
            Failure::new(Exit::Invalid, "nothing says where the state directory is")
                .hint("name it with --state DIR")
        })
}

/// The journal's directory.
pub(crate) fn journal_dir(arguments: &StateDir) -> Result<PathBuf, Failure> {
    state_dir(arguments).map(|state| state.join(JOURNAL))
}
