//! Judges what was seen from outside: the order of calls, the node's request log, the journal's files.
//!
//! It knows nothing of the engine. Rules: a request leaves only after its own `started` record is on disk, at most one
//! for each operation; the node carries out every change exactly once; in the end every operation is closed.

use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_sim::RequestRecord;
use serde_json::Value;

use crate::scene::SEGMENT;
use crate::trace::Event;

/// How many changes `desired.toml` asks for.
pub(crate) const CHANGES: usize = 34;

/// What all runs of a scene did so far.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// Records written and not synced yet.
    unsynced: Vec<Value>,
    ops: BTreeMap<String, Op>,
    /// The operation each guest is at.
    newest: BTreeMap<String, String>,
    /// Requests seen to leave, by method and path.
    sent: BTreeMap<(String, String), usize>,
    /// A run was not seen to send.
    blind: bool,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Op {
    kind: String,
    /// The kind of request it has promised last: its own kind, or a preparation's.
    promised: String,
    sent: bool,
    closed: bool,
}

impl Oracle {
    /// One run, from its start to its end or death. Of a blind one only the journal was seen.
    pub(crate) fn saw(&mut self, events: &[Event], blind: bool) {
        self.blind |= blind;
        for event in events {
            match event {
                Event::Wrote { path, bytes, .. } if path.ends_with(SEGMENT) => {
                    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                    self.unsynced
                        .extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
                }
                Event::Synced { path } if path.ends_with(SEGMENT) => {
                    for record in std::mem::take(&mut self.unsynced) {
                        self.durable(&record);
                    }
                }
                Event::Sent { method, target } => self.left(method, target),
                Event::Wrote { .. } | Event::Synced { .. } | Event::Refused { .. } => {}
            }
        }
        // What of it survives is written again by the next start, before anything rests on it.
        self.unsynced.clear();
    }

    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Takes what was seen to be wrong. If there is anything, the directory is kept and named.
    pub(crate) fn take_violations(&mut self, directory: &mut Option<TempDir>) -> Vec<String> {
        let mut violations = std::mem::take(&mut self.violations);
        if !violations.is_empty()
            && let Some(directory) = directory.take()
        {
            violations.push(format!("everything is kept in {}", directory.keep().display()));
        }
        violations
    }

    /// How many requests that ask for a change were seen to leave.
    pub(crate) fn sent_count(&self) -> usize {
        self.sent.values().sum()
    }

    /// The operations that are on disk and not closed.
    pub(crate) fn open_count(&self) -> usize {
        self.ops.values().filter(|op| !op.closed).count()
    }

    fn durable(&mut self, record: &Value) {
        let text = |key: &str| record[key].as_str().map(ToOwned::to_owned);
        let (Some("op"), Some(op), Some(state)) =
            (record["type"].as_str(), text("op"), record["state"].as_str())
        else {
            return;
        };
        match (state, text("guest"), text("kind")) {
            ("started", Some(guest), Some(kind)) => {
                let promised = promised(record, &kind);
                let known = Op { kind, promised, sent: false, closed: false };
                self.ops.entry(op.clone()).or_insert(known);
                self.newest.insert(guest, op);
            }
            ("started", None, None) => match self.ops.get_mut(&op) {
                Some(known) => {
                    let promised = promised(record, &known.kind);
                    // A start may write the same promise once more, after its request has left.
                    known.sent &= known.promised == promised;
                    known.promised = promised;
                }
                None => self.violation(format!("{op} goes on and was never started")),
            },
            ("succeeded" | "failed", _, _) => match self.ops.get_mut(&op) {
                Some(known) => known.closed = true,
                None => self.violation(format!("{op} is closed and was never started")),
            },
            _ => {}
        }
    }

    /// The rule of rules (invariant 5), and at most once (invariant 4).
    fn left(&mut self, method: &str, target: &str) {
        let path = target.split('?').next().unwrap_or(target);
        *self.sent.entry((method.to_owned(), path.to_owned())).or_default() += 1;
        let request = format!("{method} {target}");
        let Some((guest, kind)) = self.making(method, target).or_else(|| meaning(method, target))
        else {
            return self.violation(format!("{request} is none of ours"));
        };
        let newest = self.newest.get(&guest);
        let wrong = match newest.and_then(|op| Some((op, self.ops.get_mut(op)?))) {
            None => Some("before any `started` of its guest was on disk".to_owned()),
            Some((op, known)) if known.promised != kind => {
                Some(format!("under {op}, which promised a {}", known.promised))
            }
            Some((op, known)) if known.sent => Some(format!("as a second request of {op}")),
            Some((op, known)) if known.closed => Some(format!("although {op} is closed")),
            Some((_, known)) => {
                known.sent = true;
                None
            }
        };
        if let Some(wrong) = wrong {
            self.violation(format!("{request} left {wrong}"));
        }
    }

    /// The guest a request makes, and the kind of operation that promised it: its path does not name the guest.
    fn making(&self, method: &str, target: &str) -> Option<(String, &'static str)> {
        let (_, rest) = target.strip_prefix("/api2/json/nodes/")?.split_once('/')?;
        let kinds: &[&'static str] = match (method, rest) {
            ("POST", "lxc" | "qemu") => &["create", "restore"],
            ("POST", rest) if rest.ends_with("/clone") => &["clone"],
            (_, _) => return None,
        };
        let promises = self.newest.iter().filter_map(|(guest, op)| {
            let known = self.ops.get(op)?;
            let kind = kinds.iter().find(|kind| known.promised == **kind)?;
            Some((known.sent || known.closed, guest.clone(), *kind))
        });
        promises.min().map(|(_, guest, kind)| (guest, kind))
    }

    /// Every line is whole and in its chain, and every operation is closed.
    pub(crate) fn check_journal(&mut self, directory: &Path) {
        let Some(records) = self.verified_records(directory) else { return };
        let states = last_states(&records);
        for (op, state) in &states {
            if state != "succeeded" && state != "failed" {
                self.violation(format!("{op} ends as {state}"));
            }
        }
        let succeeded = states.values().filter(|state| *state == "succeeded").count();
        if succeeded != CHANGES {
            self.violation(format!("{succeeded} operations succeeded, not {CHANGES}"));
        }
    }

    /// The records of a journal in which every line is whole and in its chain; of any other there are none.
    pub(crate) fn verified_records(&mut self, directory: &Path) -> Option<Vec<Value>> {
        let files = match ReadOnlyDirectory::open(directory) {
            Ok(files) => files,
            Err(error) => {
                self.violation(format!("the journal cannot be read: {error}"));
                return None;
            }
        };
        if let Err(error) = verify::verify(&files) {
            self.violation(format!("the journal is damaged: {error}"));
            return None;
        }
        let text = std::fs::read_to_string(directory.join(SEGMENT)).unwrap();
        Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Nothing arrived that was not seen to leave, and every change was carried out exactly once.
    pub(crate) fn check_requests(&mut self, requests: &[RequestRecord], complete: bool) {
        self.check_arrived(requests);
        let mut executed: BTreeMap<(&str, &str, &[String]), usize> = BTreeMap::new();
        for request in requests.iter().filter(|request| request.mutating) {
            if request.executed_ms.is_some() {
                let change = (&*request.method, &*request.path, &*request.params);
                *executed.entry(change).or_default() += 1;
            }
        }
        for (change, count) in executed.iter().filter(|(_, count)| **count > 1) {
            self.violation(format!("{change:?} was carried out {count} times"));
        }
        if complete && executed.len() != CHANGES {
            self.violation(format!("{} changes were carried out, not {CHANGES}", executed.len()));
        }
    }

    /// Nothing arrived that was not seen to leave.
    pub(crate) fn check_arrived(&mut self, requests: &[RequestRecord]) {
        let mut arrived: BTreeMap<(String, String), usize> = BTreeMap::new();
        for request in requests.iter().filter(|request| request.mutating) {
            *arrived.entry((request.method.clone(), request.path.clone())).or_default() += 1;
        }
        for (request, count) in &arrived {
            if !self.blind && self.sent.get(request).copied().unwrap_or(0) < *count {
                self.violation(format!("{request:?} arrived and was not seen to leave"));
            }
        }
    }
}

/// The state each operation of a journal is in.
pub(crate) fn last_states(records: &[Value]) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for record in records {
        if let (Some(op), Some(state)) = (record["op"].as_str(), record["state"].as_str()) {
            states.insert(op.to_owned(), state.to_owned());
        }
    }
    states
}

/// The kind of request a `started` promises, for an operation of this kind.
fn promised(record: &Value, kind: &str) -> String {
    match record["request"].as_str() {
        Some("stop") => "stop",
        Some("unprotect") => "set_config",
        _ => kind,
    }
    .to_owned()
}

/// The guest a path names, and the kind of operation that sends it.
fn meaning(method: &str, target: &str) -> Option<(String, &'static str)> {
    let path = target.split('?').next()?;
    let (_, rest) = path.strip_prefix("/api2/json/nodes/")?.split_once('/')?;
    let mut parts = rest.splitn(3, '/');
    let guest = format!("{}/{}", parts.next()?, parts.next()?);
    let kind = match (method, parts.next()) {
        ("DELETE", None) => "destroy",
        (_, Some("config")) => "set_config",
        (_, Some("resize")) => "resize",
        (_, Some("move_volume" | "move_disk")) => "move_volume",
        (_, Some("template")) => "template",
        (_, Some("status/start")) => "start",
        (_, Some("status/shutdown")) => "shutdown",
        (_, Some("status/stop")) => "stop",
        (_, Some(act)) if act.starts_with("snapshot/") && act.ends_with("/rollback") => "rollback",
        (_, _) => return None,
    };
    Some((guest, kind))
}
