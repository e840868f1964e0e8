//! What is done to a run through `strace`: calls refused, calls that kill, and the log that shows when to kill.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use crate::oracle::Oracle;
use crate::trace::{self, CALLS, Event};

/// How long strace holds a call that is over; the process is killed meanwhile. strace itself ends only after it.
const HOLD_MICROSECONDS: u32 = 10_000_000;

/// Which call is meant. strace counts for each thread, and the thread that opens the journal makes its calls first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    pub(crate) call: &'static str,
    pub(crate) nth: usize,
    /// Counts only calls on the segment, because the opening thread would be hit first. strace then logs nothing
    /// else, and so no request.
    pub(crate) segment_only: bool,
}

/// Something a process can run out of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Resource {
    Descriptors,
    Mebibytes,
}

/// What is done to a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hook {
    /// Nothing; it is only looked at.
    None,
    /// SIGKILL in place of the call.
    KillBefore(Aim),
    /// SIGKILL when the call is over and nobody has heard of it.
    KillAfter(Aim),
    /// SIGKILL as soon as the nth request that asks for a change has left.
    KillOnRequest { nth: usize },
    /// SIGKILL as soon as so many operations are in flight.
    KillInFlight { count: usize },
    /// The call fails, or it and all after it.
    Refuse { aim: Aim, for_ever: bool, error: &'static str },
    /// It may have no more than so much of something.
    Starve { resource: Resource, limit: u64 },
}

impl Hook {
    pub(crate) fn aim(&self) -> Option<Aim> {
        match self {
            Self::None
            | Self::KillOnRequest { .. }
            | Self::KillInFlight { .. }
            | Self::Starve { .. } => None,
            Self::KillBefore(aim) | Self::KillAfter(aim) | Self::Refuse { aim, .. } => Some(*aim),
        }
    }

    /// A `strace` that logs and does this, without what it traces.
    pub(crate) fn strace(&self, directory: &Path, log: &Path, segment: &Path) -> Command {
        let mut command = Command::new("strace");
        command.env_clear().env("HOME", directory).env("PATH", "/usr/bin:/bin");
        command.current_dir(directory);
        command.args(["-f", "-y", "-e", "signal=none", "-s", "1000000", "-o"]);
        command.arg(log).arg("-e").arg(format!("trace={CALLS}"));
        let strike = match self {
            Self::None
            | Self::KillOnRequest { .. }
            | Self::KillInFlight { .. }
            | Self::Starve { .. } => String::new(),
            Self::KillBefore(_) => "signal=KILL".to_owned(),
            Self::KillAfter(_) => format!("delay_exit={HOLD_MICROSECONDS}"),
            Self::Refuse { error, .. } => format!("error={error}"),
        };
        if let Some(Aim { call, nth, segment_only }) = self.aim() {
            let more = if matches!(self, Self::Refuse { for_ever: true, .. }) { "+" } else { "" };
            command.arg("-e").arg(format!("inject={call}:{strike}:when={nth}{more}"));
            if segment_only {
                command.arg("-P").arg(segment);
            }
        }
        command
    }

    /// What stands between `strace` and the program.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let Self::Starve { resource, limit } = self else { return Vec::new() };
        let limit = match resource {
            Resource::Descriptors => format!("--nofile={limit}"),
            Resource::Mebibytes => format!("--as={}", limit << 20),
        };
        vec!["prlimit".to_owned(), limit]
    }

    /// Whether the log shows what the hook waits for.
    pub(crate) fn is_due(&self, log: &str) -> bool {
        match self {
            Self::None | Self::KillBefore(_) | Self::Refuse { .. } | Self::Starve { .. } => false,
            Self::KillAfter(_) => log.contains("(DELAYED)"),
            Self::KillOnRequest { nth } => {
                let sent = |event: &&Event| matches!(event, Event::Sent { .. });
                trace::events(log).iter().filter(sent).count() >= *nth
            }
            Self::KillInFlight { count } => {
                let mut oracle = Oracle::default();
                oracle.saw(&trace::events(log), false);
                oracle.open_count() >= *count
            }
        }
    }
}

/// A log that is being written, read as far as its lines are whole.
pub(crate) struct GrowingLog<'a> {
    path: &'a Path,
    file: Option<File>,
    rest: Vec<u8>,
    pub(crate) text: String,
}

impl<'a> GrowingLog<'a> {
    pub(crate) fn new(path: &'a Path) -> Self {
        Self { path, file: None, rest: Vec::new(), text: String::new() }
    }

    /// Whether there is anything new.
    pub(crate) fn read(&mut self) -> bool {
        if self.file.is_none() {
            self.file = File::open(self.path).ok();
        }
        let Some(file) = &mut self.file else { return false };
        file.read_to_end(&mut self.rest).unwrap();
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return false };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        self.text.push_str(&String::from_utf8(whole).unwrap());
        true
    }
}

/// Whether strace can inject here, or what it says.
pub(crate) fn can_inject() -> Result<(), String> {
    let mut probe = Command::new("strace");
    probe.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync"]);
    probe.args(["-e", "inject=fsync:error=EIO", "true"]);
    match probe.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("strace: {error}")),
    }
}
