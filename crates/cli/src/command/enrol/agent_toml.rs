//! The hub in `agent.toml`: what would be written is known before the token is spent; it is shown, asked, written.
//!
//! Everything else in the file stays byte for byte. A directory of desired files gives way to a hub only if a person says so.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use camino::Utf8Path;
use evenkeel_agent::config::{
    AgentConfig, DEFAULT_PATH, HubEdit, HubEditError, hub_line, with_hub,
};
use evenkeel_agent::hub_link::config::HubConfig;

use crate::atomic_file::{AtomicFile, FileMode};
use crate::cli::EnrolHostArgs;
use crate::error::{CommandFailure, Exit};
use crate::terminal;

/// The file that configures this host's agent, as it was read.
pub(super) struct AgentToml {
    path: PathBuf,
    /// None if there is no such file.
    text: Option<String>,
    pub(super) config: AgentConfig,
}

/// What is to be done to it.
pub(super) enum HubWriting {
    /// It names this hub already.
    Unneeded,
    /// A person writes this line.
    ByHand { path: PathBuf, line: String },
    /// It is edited.
    Edit { path: PathBuf, before: String, edit: HubEdit, line: String },
}

impl AgentToml {
    /// The file that is named, or the usual one.
    pub(super) fn read(named: Option<&Utf8Path>) -> Result<Self, CommandFailure> {
        let path = named.map_or(Path::new(DEFAULT_PATH), Utf8Path::as_std_path).to_owned();
        if named.is_none() && !path.exists() {
            return Ok(Self { path, text: None, config: AgentConfig::default() });
        }
        let (config, text) = AgentConfig::with_text(&path)?;
        Ok(Self { path, text: Some(text), config })
    }

    /// What must be written for this hub. `--yes` alone replaces no directory: it is refused here, with nothing done yet.
    pub(super) fn plan(
        &self,
        hub: &HubConfig,
        arguments: &EnrolHostArgs,
    ) -> Result<HubWriting, CommandFailure> {
        if self.config.desired.hub.as_ref().is_some_and(|there| means_the_same(there, hub)) {
            return Ok(HubWriting::Unneeded);
        }
        let unwritable =
            |error: HubEditError| CommandFailure::new(Exit::Invalid, error.to_string());
        let path = self.path.clone();
        let line = hub_line(hub).map_err(unwritable)?;
        let edit = self.text.as_ref().map(|text| with_hub(text, hub).map(|edit| (text, edit)));
        let Some(Ok((before, edit))) = edit else {
            return Ok(HubWriting::ByHand { path, line });
        };
        if let (Some(dir), true, false) = (&edit.replaced_dir, arguments.yes, arguments.replace_dir)
        {
            let message = format!(
                "{} takes its desired files from {dir}, and --yes does not put a hub in their place",
                path.display()
            );
            return Err(CommandFailure::new(Exit::Usage, message)
                .hint("add --replace-dir; the files stay where they are. Nothing was enrolled"));
        }
        Ok(HubWriting::Edit { path, before: before.clone(), edit, line })
    }
}

/// A credential file that is not named is the usual one.
fn means_the_same(there: &HubConfig, hub: &HubConfig) -> bool {
    (&there.url, &there.ca_file, &there.fingerprint, there.credential_path())
        == (&hub.url, &hub.ca_file, &hub.fingerprint, hub.credential_path())
}

impl HubWriting {
    /// Shows it, asks, and writes it; without an answer it says what to write. Whether the file names the hub now.
    pub(super) fn carry_out(self, yes: bool) -> Result<bool, CommandFailure> {
        let (path, before, edit, line) = match self {
            Self::Unneeded => return Ok(true),
            Self::ByHand { path, line } => return by_hand(&path, &line, None),
            Self::Edit { path, before, edit, line } => (path, before, edit, line),
        };
        terminal::tell(&format!("{}:\n{}", path.display(), changed_lines(&before, &edit.text)))?;
        if let Some(dir) = &edit.replaced_dir {
            terminal::tell(&format!("The hub takes the place of {dir}; its files stay there.\n"))?;
        }
        let agreed = yes || (terminal::is_there() && terminal::agrees("Write this?")?);
        if !agreed {
            return by_hand(&path, &line, edit.replaced_dir.as_deref());
        }
        replace(&path, edit.text.as_bytes()).map_err(|error| {
            let message =
                format!("this host is enrolled, but {} cannot be written", path.display());
            let hint = format!("write {line} under [desired] in it, then start the agent");
            CommandFailure::new(Exit::Failed, message).because(error).hint(hint)
        })?;
        let next = "the agent reads it when it starts: systemctl start evenkeel";
        writeln!(std::io::stderr(), "wrote {}; {next}", path.display())?;
        Ok(true)
    }
}

fn by_hand(path: &Path, line: &str, dir: Option<&str>) -> Result<bool, CommandFailure> {
    let place = if dir.is_some() { "in place of `dir` under" } else { "under" };
    let path = path.display();
    writeln!(
        std::io::stderr(),
        "note: write {line} {place} [desired] in {path}, then start the agent: systemctl start evenkeel"
    )?;
    Ok(false)
}

/// What goes and what comes, line by line, between what both texts have in common.
fn changed_lines(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let old = &old[head..];
    let new = &new[head..];
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let mut shown = String::new();
    for (mark, lines) in [("-", &old[..old.len() - tail]), ("+", &new[..new.len() - tail])] {
        for line in lines {
            writeln!(shown, "  {mark} {line}").expect("writing to a string cannot fail");
        }
    }
    shown
}

/// Writes a file whole or not at all, with the owner and the mode that it had. A link stays a link.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let path = fs_err::canonicalize(path)?;
    let found = fs_err::metadata(&path)?;
    let owner = (Some(found.uid()), Some(found.gid()));
    let mode = found.permissions().mode() & 0o7777;
    AtomicFile { owner, ..AtomicFile::with_mode(FileMode::Exactly(mode)) }.write(&path, bytes)
}

#[cfg(test)]
mod tests {
    use super::changed_lines;

    #[test]
    fn only_what_differs_is_shown() {
        let before = "a\n[desired]\ndir = 1\nb\n";
        let after = "a\n[desired]\nhub = 2\nb\n";
        assert_eq!(changed_lines(before, after), "  - dir = 1\n  + hub = 2\n");
        assert_eq!(changed_lines("a\n", "a\n\nb\n"), "  + \n  + b\n");
        assert_eq!(changed_lines("a\na\n", "a\n"), "  - a\n");
    }
}
