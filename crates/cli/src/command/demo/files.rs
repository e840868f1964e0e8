//! A temporary directory, this executable in child processes, and the file and the words they leave: what both stories are
//! told with.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use tempfile::TempDir;

use super::narration;
use crate::error::{CommandFailure, Exit};

/// How long anything in the story may take before it is said to have gone wrong; the slowest takes seconds.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// How often is looked whether something has happened.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(150);

/// How much of a log a failed story tells.
const LOG_LINES_TOLD: usize = 20;

/// A directory of its own, gone with its value, and the executable that works in it.
pub(super) struct DemoFiles {
    executable: PathBuf,
    directory: TempDir,
}

/// A process that ends with its value.
pub(super) struct ChildProcess(pub(super) Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ChildProcess {
    /// Ends it as `kill -9` does, and tells which process it was.
    pub(super) fn kill(mut self) -> Result<u32, CommandFailure> {
        let pid = self.0.id();
        let killed = self.0.kill().and_then(|()| self.0.wait());
        killed.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
        Ok(pid)
    }
}

/// What a command came to.
pub(super) struct CommandRun {
    line: String,
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl DemoFiles {
    pub(super) fn new() -> Result<Self, CommandFailure> {
        let directory = tempfile::Builder::new().prefix("evenkeel-demo-").tempdir();
        let directory = directory.map_err(|error| {
            CommandFailure::new(Exit::Failed, "cannot make a temporary directory").because(error)
        })?;
        let executable = std::env::current_exe().map_err(|error| {
            CommandFailure::new(Exit::Failed, "cannot find this executable, to start it again")
                .because(error)
        })?;
        Ok(Self { executable, directory })
    }

    /// Where a file of the directory is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program in the directory, with nothing of the reader's own configuration.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.directory.path()).stdin(Stdio::null());
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.directory.path());
        command.env("EVENKEEL_CONFIG", "agent.toml").env("EVENKEEL_STATE", "state");
        command
    }

    /// This executable, in the same way.
    pub(super) fn executable(&self) -> Command {
        self.command(&self.executable)
    }

    /// Runs this executable to its end, behind the scenes.
    pub(super) async fn runs(&self, arguments: &[&str]) -> Result<CommandRun, CommandFailure> {
        let mut command = self.executable();
        command.args(arguments);
        let line = format!("evenkeel {}", arguments.join(" "));
        finish(command, line).await.map_err(|error| unstartable("evenkeel", error))
    }

    /// A key of somebody's; false without an `ssh-keygen`.
    pub(super) async fn make_key(&self, name: &str) -> Result<bool, CommandFailure> {
        let mut command = self.command("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name]);
        match finish(command, format!("ssh-keygen -f {name}")).await {
            Ok(ran) => ran.succeeds().map(|_| true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(unstartable("ssh-keygen", error)),
        }
    }

    /// Makes somebody a signer in `trust.toml`.
    pub(super) async fn enrol_signer(&self, name: &str, role: &str) -> Result<(), CommandFailure> {
        let key = format!("{name}.pub");
        let enrol = ["signers", "enrol", &key, "--name", name, "--role", role];
        self.runs(&[&enrol[..], &["--trust", "trust.toml"]].concat()).await?.succeeds().map(drop)
    }

    /// Where a child process writes what it says.
    pub(super) fn log(&self, name: &str) -> Result<Stdio, CommandFailure> {
        let log = fs_err::OpenOptions::new().create(true).append(true).open(self.path(name))?;
        Ok(log.into_parts().0.into())
    }

    /// The last lines of a log.
    pub(super) fn last_lines(&self, name: &str) -> String {
        let log = self.read(name).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(LOG_LINES_TOLD)..).unwrap_or_default();
        last.join("\n")
    }

    /// A file of the directory.
    pub(super) fn read(&self, name: &str) -> Result<String, CommandFailure> {
        fs_err::read_to_string(self.path(name))
            .map_err(|error| CommandFailure::wrapping(Exit::Failed, error))
    }

    /// Writes a file of the directory that only its owner reads.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CommandFailure> {
        use std::io::Write as _;
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written =
            options.open(self.path(name)).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| CommandFailure::wrapping(Exit::Failed, error))
    }
}

impl CommandRun {
    /// What a process left.
    pub(super) fn of(line: String, output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stdout = text(&output.stdout);
        let stderr = text(&output.stderr);
        Self { line, code: output.status.code(), stdout, stderr }
    }

    /// Shows what was typed, and all that came of it.
    pub(super) async fn shown(
        arguments: &[&str],
        run: impl Future<Output = Result<Self, CommandFailure>>,
    ) -> Result<Self, CommandFailure> {
        narration::command(&typed(arguments))?;
        let ran = run.await?;
        narration::output(&ran.stdout)?;
        narration::output(&ran.stderr)?;
        Ok(ran)
    }

    /// Goes on only if the command did its work.
    pub(super) fn succeeds(self) -> Result<Self, CommandFailure> {
        if self.code == Some(0) {
            return Ok(self);
        }
        let Self { line, code, stdout, stderr } = self;
        let told = format!("{stdout}{stderr}");
        let message = format!(
            "the demo did not go as told: `{line}` ended with {}: {}",
            code.map_or("a signal".to_owned(), |code| code.to_string()),
            told.trim_end()
        );
        Err(CommandFailure::new(Exit::Failed, message))
    }

    /// Whether it ended with an error.
    pub(super) fn has_failed(&self) -> bool {
        self.code != Some(0)
    }

    /// The JSON it printed.
    pub(super) fn json(&self) -> Result<serde_json::Value, CommandFailure> {
        serde_json::from_str(&self.stdout)
            .map_err(|error| CommandFailure::new(Exit::Failed, format!("`{}`: {error}", self.line)))
    }
}

/// Waits until something is so.
pub(super) async fn until(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool, CommandFailure>,
) -> Result<(), CommandFailure> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > PATIENCE {
            return demand(false, what);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Something the story says. If it is not so, the story ends here.
pub(super) fn demand(is_so: bool, what: &str) -> Result<(), CommandFailure> {
    if is_so {
        return Ok(());
    }
    let message = format!("the demo did not go as told: it is not so that {what}");
    Err(CommandFailure::new(Exit::Failed, message))
}

/// Runs a program to its end without holding up the simulator, which lives in this thread.
pub(super) async fn finish(mut command: Command, line: String) -> std::io::Result<CommandRun> {
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    Ok(CommandRun::of(line, &ended.map_err(std::io::Error::other)??))
}

pub(super) fn unstartable(program: &str, error: std::io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, format!("cannot start {program}")).because(error)
}

/// A command as a person types it.
pub(super) fn typed(arguments: &[&str]) -> String {
    let words = arguments.iter().map(|word| crate::signing::keygen::quoted(word));
    format!("evenkeel {}", words.collect::<Vec<_>>().join(" "))
}
