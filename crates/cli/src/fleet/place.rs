//! Where a person's fleet files are: pins in the configuration, tokens in the state directory.

use camino::{Utf8Path, Utf8PathBuf};

use crate::error::{CommandFailure, Exit};

/// `~/.config/evenkeel`.
pub(super) fn config_dir() -> Result<Utf8PathBuf, CommandFailure> {
    below("XDG_CONFIG_HOME", ".config")
}

/// `~/.local/state/evenkeel`.
pub(super) fn state_dir() -> Result<Utf8PathBuf, CommandFailure> {
    below("XDG_STATE_HOME", ".local/state")
}

fn below(variable: &str, usual: &str) -> Result<Utf8PathBuf, CommandFailure> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let directory = set(variable).map(Utf8PathBuf::from);
    let directory = directory.or_else(|| set("HOME").map(|home| Utf8Path::new(&home).join(usual)));
    let directory = directory.ok_or_else(|| {
        CommandFailure::new(Exit::Invalid, "nothing says where your own files are")
            .hint(format!("set HOME or {variable}"))
    })?;
    Ok(directory.join("evenkeel"))
}
