//! The journal as the oracle reads it: lines on a disk, nothing of the agent's own memory.

use std::collections::BTreeMap;

use evenkeel_agent::journal::{Files, SimulatedDisk};
use evenkeel_core::action_kind::ActionKind;
use evenkeel_core::id::GuestId;
use serde_json::{Map, Value};

/// The state of an operation whose last line went with a segment that nobody read in time.
pub(crate) const CLOSED_UNREAD: &str = "closed";

/// What synced lines have told so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) ops: BTreeMap<String, Op>,
    /// The end of every synced line, by number: what must never be lost again.
    pub(crate) sums: BTreeMap<u64, String>,
    last: u64,
    /// The newest segment read so far; those before it are closed and read.
    newest: String,
}

/// An operation as its lines tell it.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) guest: GuestId,
    pub(crate) kind: ActionKind,
    pub(crate) params: Map<String, Value>,
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) started: u64,
    /// Whether its request has left.
    pub(crate) sent: bool,
}

impl Op {
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state.as_str(), "succeeded" | "failed" | CLOSED_UNREAD)
    }
}

impl History {
    /// Reads what a crash now would leave that loses everything it can.
    pub(crate) fn read(&mut self, disk: &SimulatedDisk) -> Result<(), String> {
        let image = disk.after_crash(0, usize::MAX);
        let mut names = image.list().map_err(|error| error.to_string())?;
        let is_segment = |name: &str| {
            name.strip_prefix("journal-").is_some_and(|rest| rest.strip_suffix(".jsonl").is_some())
        };
        names.retain(|name| is_segment(name));
        names.retain(|name| *name >= self.newest);
        names.sort_unstable();
        for name in names {
            let bytes = image.read(&name).map_err(|error| error.to_string())?;
            for line in bytes.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty()) {
                // After a crash the tail may be torn, until the next start has cut it.
                if self.take(line).is_none() {
                    break;
                }
            }
            self.newest = name;
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8]) -> Option<()> {
        let text = str::from_utf8(line).ok()?;
        let seq: u64 = text.strip_prefix("{\"seq\":")?.split(',').next()?.parse().ok()?;
        if seq <= self.last {
            return Some(());
        }
        let line: Value = serde_json::from_str(text).ok()?;
        let sum = line["sum"].as_str()?.to_owned();
        let unread = seq > self.last + 1;
        self.last = seq;
        self.sums.insert(seq, sum);
        if line["type"] == "snapshot" && unread {
            // Segments were dropped meanwhile; what the snapshot does not hold is closed.
            for (_, op) in self.ops.iter_mut().filter(|(name, _)| !text.contains(name.as_str())) {
                if op.is_open() {
                    CLOSED_UNREAD.clone_into(&mut op.state);
                }
            }
        }
        if line["type"] == "op" {
            self.take_op(seq, &line);
        }
        Some(())
    }

    fn take_op(&mut self, seq: u64, line: &Value) {
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let (name, state, reason) = (text("op"), text("state"), text("reason"));
        if let (Ok(guest), Ok(kind)) = (text("guest").parse(), text("kind").parse()) {
            let params = line["params"].as_object().cloned().unwrap_or_default();
            let op = Op { guest, kind, params, state, reason, started: seq, sent: false };
            self.ops.insert(name, op);
        } else if let Some(op) = self.ops.get_mut(&name) {
            (op.state, op.reason) = (state, reason);
        }
    }

    /// The operations that are not closed.
    pub(crate) fn open(&self) -> impl Iterator<Item = (&String, &Op)> {
        self.ops.iter().filter(|(_, op)| op.is_open())
    }
}
