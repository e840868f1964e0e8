//! The journal as the oracle reads it: lines on a disk, nothing of the agent's own memory.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_agent::journal::{ExactBytes, SimulatedDisk};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::fleet::JournalHead;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::sign::{Envelope, PendingItem};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::faults::LOGGED_SECRET;

/// The state of an operation whose last line went with a segment that nobody read in time.
pub(crate) const CLOSED_UNREAD: &str = "closed";

/// What synced lines have told so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct JournalHistory {
    pub(crate) ops: BTreeMap<String, HistoryOp>,
    /// The end of every synced line, by number: what must never be lost again.
    pub(crate) sums: BTreeMap<u64, String>,
    /// What waits for a signature, by its name.
    pub(crate) items: BTreeMap<String, RaisedItem>,
    /// The accepted rotations, in the order of their lines.
    pub(crate) rotations: Vec<AcceptedRotation>,
    /// Refusals that were written down, by what was refused.
    pub(crate) refusals: BTreeSet<String>,
    /// The floors of documents, in the order of their lines.
    pub(crate) floors: Vec<TakenFloor>,
    /// The epochs of the journal, in the order of their lines.
    pub(crate) epochs: Vec<KeptEpoch>,
    /// Destroys that lines called succeeded, in their order: name and number.
    pub(crate) destroyed: Vec<(String, u32)>,
    /// The latest moment any line has, in seconds: what a start takes for its mark of time.
    pub(crate) high_s: u64,
    /// Lines that went with a segment before anybody read them: what counts lines is not exact any more.
    pub(crate) has_gap: bool,
    /// Kind and field names of every line, folded.
    pub(crate) shape: u64,
    /// Whether a line has a secret that a task logged.
    pub(crate) leaks: bool,
    /// The bytes on the disk when it was last read, as a number of calls.
    read_at_call: Option<u64>,
    last: u64,
    /// The newest segment read so far; those before it are closed and read.
    newest: String,
    /// How much of it was read, in whole lines.
    read_bytes: usize,
}

/// An item that waits, as its line tells it.
#[derive(Debug, Clone)]
pub(crate) struct RaisedItem {
    pub(crate) item: PendingItem,
    /// Its envelope as an operator gets it.
    pub(crate) envelope: Vec<u8>,
    /// The number of its line: the same item may be raised again after it has ended.
    pub(crate) seq: u64,
}

/// An operation as its lines tell it.
#[derive(Debug, Clone)]
pub(crate) struct HistoryOp {
    pub(crate) guest: GuestId,
    pub(crate) kind: ActionKind,
    pub(crate) params: Map<String, Value>,
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) started: u64,
    /// Whether its request has left; of a signed operation with several, the one it promised last.
    pub(crate) sent: bool,
    /// The request it promised last: `stop`, `unprotect` or `act`.
    pub(crate) stage: String,
    /// Of signed operations, else empty: the nonce, and the hash of the statement.
    pub(crate) nonce: String,
    pub(crate) payload: String,
    /// Of the removal of what a making left, else empty: that making.
    pub(crate) making: String,
    /// When it began by the agent's clock and by the node's, in seconds.
    pub(crate) at_s: u64,
    pub(crate) node_s: u64,
    /// The mark of time before its line, in seconds.
    pub(crate) mark_s: u64,
    /// How many rotations were on disk when it began.
    pub(crate) rotations: usize,
    /// Of signed operations: whether the item it names still waited when it began.
    pub(crate) item_waited: bool,
}

/// A document that was taken, as its line tells it.
#[derive(Debug, Clone)]
pub(crate) struct TakenFloor {
    pub(crate) generation: u64,
    /// Empty directly after enrolment.
    pub(crate) manifest: String,
    /// The number of what is in effect since the enrolment before; else 0.
    pub(crate) inherited: u64,
    pub(crate) is_signed: bool,
    pub(crate) at_s: u64,
}

/// An epoch of the journal, as its line tells it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptEpoch {
    pub(crate) number: u64,
    pub(crate) since_s: u64,
    /// A rollback that waits to be known: the head that was anchored and the one that was found.
    pub(crate) rollback: Option<(JournalHead, JournalHead)>,
}

/// A rotation as its line tells it.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedRotation {
    pub(crate) version: String,
    pub(crate) payload: Vec<u8>,
    /// The time it was judged by: a clock in doubt stops no rotation, or nobody could set it right.
    pub(crate) judged_s: u64,
    /// The mark of time before its line.
    pub(crate) mark_s: u64,
}

impl HistoryOp {
    pub(crate) fn is_signed(&self) -> bool {
        !self.nonce.is_empty()
    }

    /// Whether it removes a guest of ours that nobody signed for.
    pub(crate) fn is_removal(&self) -> bool {
        !self.making.is_empty()
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state.as_str(), "succeeded" | "failed" | CLOSED_UNREAD)
    }
}

impl JournalHistory {
    /// Another disk takes the place of the last one.
    pub(crate) fn moves(&mut self) {
        self.read_at_call = None;
        self.read_bytes = 0;
    }

    /// Reads what a crash now would leave that loses everything it can.
    pub(crate) fn read(&mut self, disk: &SimulatedDisk) {
        if self.read_at_call == Some(disk.calls()) {
            return;
        }
        self.read_at_call = Some(disk.calls());
        let mut names = disk.durable_names();
        let is_segment = |name: &str| {
            name.strip_prefix("journal-").is_some_and(|rest| rest.strip_suffix(".jsonl").is_some())
        };
        names.retain(|name| is_segment(name));
        names.retain(|name| *name >= self.newest);
        names.sort_unstable();
        for name in names {
            if name != self.newest {
                (self.newest, self.read_bytes) = (name, 0);
            }
            let bytes = disk.read_durable(&self.newest, self.read_bytes);
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let (text, is_whole) =
                    line.strip_suffix(b"\n").map_or((line, false), |l| (l, true));
                let is_head = self.read_bytes == 0;
                let is_taken = is_head || text.is_empty() || self.take(text).is_some();
                // After a crash the tail may be torn, until the next start has cut it.
                if !is_taken || !is_whole {
                    break;
                }
                self.read_bytes += line.len();
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> Option<()> {
        let text = str::from_utf8(line).ok()?;
        let seq: u64 = text.strip_prefix("{\"seq\":")?.split(',').next()?.parse().ok()?;
        if seq <= self.last {
            return Some(());
        }
        let line: Value = serde_json::from_str(text).ok()?;
        let sum = line["sum"].as_str()?.to_owned();
        self.leaks |= text.contains(LOGGED_SECRET);
        let unread = seq > self.last + 1;
        self.has_gap |= unread;
        self.last = seq;
        let at_s = line["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let at_s = at_s.and_then(|at| u64::try_from(at.as_second()).ok()).unwrap_or(0);
        self.sums.insert(seq, sum);
        if line["type"] == "snapshot" && unread {
            // Segments were dropped meanwhile; what the snapshot does not hold is closed.
            for (_, op) in self.ops.iter_mut().filter(|(name, _)| !text.contains(name.as_str())) {
                if op.is_open() {
                    CLOSED_UNREAD.clone_into(&mut op.state);
                }
            }
            self.items.retain(|id, _| text.contains(id.as_str()));
        }
        for word in ["type", "state", "kind", "request"] {
            self.shape = fold(self.shape, line[word].as_str().unwrap_or_default());
        }
        let fields = |value: &Value| {
            value.as_object().map(Map::keys).into_iter().flatten().cloned().collect()
        };
        let names: [Vec<String>; 4] =
            [&line, &line["params"], &line["decision"], &line["value"]].map(fields);
        self.shape = names.iter().flatten().fold(self.shape, |shape, name| fold(shape, name));
        let key = line["key"].as_str().unwrap_or_default().to_owned();
        match line["type"].as_str() {
            Some("op") => self.take_op(seq, at_s, &line),
            Some("pending") => self.take_item(seq, key, &line["value"]),
            Some("trust") => {
                let envelope = envelope(&line["value"])?;
                let payload = envelope.0.payload().to_vec();
                let judged_s = line["value"]["now"].as_u64().unwrap_or(0);
                let mark_s = self.high_s;
                self.rotations.push(AcceptedRotation { version: key, payload, judged_s, mark_s });
            }
            Some("hub") => self.take_hub(&key, at_s, &line["value"]),
            Some("decision") => {
                self.refusals.extend(key.strip_prefix("approval ").map(str::to_owned));
            }
            _ => {}
        }
        self.high_s = self.high_s.max(at_s);
        Some(())
    }

    fn take_hub(&mut self, key: &str, at_s: u64, value: &Value) {
        let head = |name: &str| serde_json::from_value(value["rollback"][name].clone()).ok();
        match key {
            "floor" => self.floors.push(TakenFloor {
                generation: value["generation"].as_u64().unwrap_or(0),
                manifest: value["manifest"].as_str().unwrap_or_default().to_owned(),
                inherited: value["inherited"]["generation"].as_u64().unwrap_or(0),
                is_signed: value["signer"].is_string(),
                at_s,
            }),
            "epoch" => self.epochs.push(KeptEpoch {
                number: value["number"].as_u64().unwrap_or(0),
                since_s: value["since"].as_u64().unwrap_or(0),
                rollback: head("anchored").zip(head("found")),
            }),
            _ => {}
        }
    }

    fn take_item(&mut self, seq: u64, id: String, value: &Value) {
        self.items.remove(&id);
        if let Some((opened, envelope)) = envelope(value)
            && let Ok(item) = PendingItem::parse(opened.payload())
        {
            self.items.insert(id, RaisedItem { item, envelope, seq });
        }
    }

    fn take_op(&mut self, seq: u64, at_s: u64, line: &Value) {
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let name = text("op");
        let state = text("state");
        let reason = text("reason");
        let stage = text("request");
        if let (Ok(guest), Ok(kind)) = (text("guest").parse(), text("kind").parse()) {
            let params = line["params"].as_object().cloned().unwrap_or_default();
            let op = HistoryOp {
                guest,
                kind,
                params,
                state,
                reason,
                started: seq,
                sent: false,
                stage,
                nonce: text("key"),
                payload: text("payload"),
                making: text("making"),
                at_s,
                node_s: line["node_time"].as_u64().unwrap_or(0),
                mark_s: self.high_s,
                rotations: self.rotations.len(),
                item_waited: line["decision"]["pending"]
                    .as_str()
                    .is_some_and(|item| self.items.contains_key(item)),
            };
            self.ops.insert(name, op);
        } else if let Some(op) = self.ops.get_mut(&name) {
            if state == "succeeded" && op.kind == ActionKind::Destroy {
                self.destroyed.push((name, op.guest.vmid.get()));
            }
            (op.state, op.reason) = (state, reason);
            if !stage.is_empty() {
                (op.stage, op.sent) = (stage, false);
            }
        }
    }

    /// The operations that are not closed.
    pub(crate) fn open(&self) -> impl Iterator<Item = (&String, &HistoryOp)> {
        self.ops.iter().filter(|(_, op)| op.is_open())
    }
}

/// Folds a word into a hash (FNV-1a): two runs share it if they folded the same words.
pub(crate) fn fold(hash: u64, word: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    word.bytes().chain([0]).fold(hash, step)
}

/// The envelope a kept value holds, and its bytes.
fn envelope(value: &Value) -> Option<(Envelope, Vec<u8>)> {
    let bytes: ExactBytes = serde_json::from_value(value["envelope"].clone()).ok()?;
    Some((Envelope::parse(&bytes.0).ok()?, bytes.0))
}
