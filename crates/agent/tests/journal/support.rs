//! A script of records, a journal on a simulated disk, and what must hold after every start.

use evenkeel_agent::journal::{
    AppendError, Details, Journal, JournalError, JournalLimits, JournalState, Kept, KeptSubject,
    Note, Record, SimulatedDisk, Stamp, verify,
};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{
    IdentityHash, OpEvent, OpRecord, Repeat, Resolution, StartedIntent, UnixSeconds, Upid,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Small enough that a short script rotates several times and drops a segment.
pub(crate) const SMALL: JournalLimits = JournalLimits {
    segment_bytes: 1_500,
    archive_segments: 2,
    line_bytes: 64 << 10,
    reserve_bytes: 4_096,
};

/// How much of a large enumeration is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// While editing.
    Sample,
    /// What `./test` takes.
    Thorough,
    /// Everything there is: `scripts/crash-images`, with an optimised build.
    Whole,
}

pub(crate) fn extent() -> Extent {
    if std::env::var_os("EVENKEEL_CRASH_IMAGES").is_some() {
        Extent::Whole
    } else if std::env::var_os("EVENKEEL_THOROUGH").is_some() {
        Extent::Thorough
    } else {
        Extent::Sample
    }
}

/// One of three numbers.
pub(crate) fn by_extent<T>(sample: T, thorough: T, whole: T) -> T {
    match extent() {
        Extent::Sample => sample,
        Extent::Thorough => thorough,
        Extent::Whole => whole,
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-11-15T20:00:00Z".parse().unwrap()
}

pub(crate) fn stamp() -> Stamp {
    Stamp { machine: "4c4c4544".to_owned(), new_epoch: "e1".to_owned() }
}

pub(crate) fn open(disk: &SimulatedDisk) -> Result<Journal<SimulatedDisk>, JournalError> {
    open_with(disk, SMALL)
}

pub(crate) fn open_with(
    disk: &SimulatedDisk,
    limits: JournalLimits,
) -> Result<Journal<SimulatedDisk>, JournalError> {
    Journal::open(disk.clone(), stamp(), limits, now())
}

pub(crate) fn op(number: u64) -> OperationId {
    OperationId::from_parts(1_700_000_000_000 + number, u128::from(number))
}

pub(crate) fn identity(byte: u8) -> IdentityHash {
    IdentityHash([byte; 32])
}

pub(crate) fn intent(vmid: u32, kind: ActionKind, key: Option<&str>) -> StartedIntent {
    StartedIntent {
        repeat: match key {
            None => Repeat::Convergent,
            Some(key) => Repeat::AtMostOnce {
                key: key.parse().unwrap(),
                payload: evenkeel_core::sign::PayloadHash::of(key.as_bytes()),
                expires_at: UnixSeconds(4_000),
            },
        },
        identity: Some(identity(7)),
        ..StartedIntent::new(
            format!("lxc/{vmid}").parse().unwrap(),
            kind,
            UnixSeconds(1_700_000_000),
        )
    }
}

pub(crate) fn event(number: u64, event: OpEvent) -> Record {
    Record::op(OpRecord { op: op(number), event })
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { unreachable!() };
    fields
}

pub(crate) fn started(number: u64, vmid: u32, key: Option<&str>) -> Record {
    let kind = if key.is_some() { ActionKind::Destroy } else { ActionKind::SetConfig };
    let params = object(json!({ "cores": 4, "digest": "abc" }));
    let before = object(json!({ "cores": 2 }));
    let decision = object(json!({ "class": "benign" }));
    let details = Details::new(params, before, "cores 2 -> 4".to_owned(), decision);
    let event = OpEvent::Started(Box::new(intent(vmid, kind, key)));
    Record::op_started(OpRecord { op: op(number), event }, details)
}

pub(crate) fn upid(vmid: u32) -> Upid {
    let upid = format!("UPID:pve1:0000C530:001A2B3C:6553F100:vzstart:{vmid}:evenkeel@pve!agent:");
    upid.parse().unwrap()
}

pub(crate) fn task_running(number: u64, vmid: u32) -> Record {
    event(number, OpEvent::TaskRunning { upid: upid(vmid), found: false })
}

pub(crate) fn succeeded(number: u64) -> Record {
    event(number, OpEvent::Succeeded { identity: Some(identity(7)), warning: None })
}

pub(crate) fn failed(number: u64) -> Record {
    event(
        number,
        OpEvent::Failed {
            reason: "no \"space\"\nleft".to_owned(),
            left_volume: None,
            tried: None,
            identity: None,
        },
    )
}

pub(crate) fn unknown(number: u64) -> Record {
    event(number, OpEvent::Unknown { reason: "the answer was lost".to_owned() })
}

pub(crate) fn resolved(number: u64) -> Record {
    event(number, OpEvent::Resolved { outcome: Resolution::Failed })
}

pub(crate) fn note(text: &str) -> Record {
    Record::Note(Note { what: "test".to_owned(), text: text.to_owned() })
}

/// Batches of records, each synced once: every kind of record, several rotations.
pub(crate) fn script() -> Vec<Vec<Record>> {
    let pending =
        |key: &str| Record::Kept(Kept::put(KeptSubject::Pending, key, 1, json!({"n": key})));
    vec![
        vec![started(1, 101, None)],
        vec![started(2, 102, Some("nonce-2")), task_running(1, 101)],
        vec![pending("p1"), succeeded(1), started(3, 101, None)],
        vec![unknown(2)],
        vec![failed(3), pending("p2")],
        vec![resolved(2)],
        vec![Record::Kept(Kept::remove(KeptSubject::Pending, "p1")), note("a remark")],
        vec![started(4, 102, Some("nonce-4"))],
        vec![succeeded(4), started(5, 103, None)],
        vec![started(6, 104, None)],
        vec![succeeded(6), started(7, 104, None), task_running(7, 104)],
        vec![failed(5)],
    ]
}

/// Runs batches until one fails; says how many records were acknowledged.
pub(crate) fn run(disk: &SimulatedDisk, batches: &[Vec<Record>]) -> (usize, Option<AppendError>) {
    let mut acknowledged = 0;
    let mut journal = match open(disk) {
        Ok(journal) => journal,
        Err(JournalError::Disk(failure)) => return (0, Some(AppendError::Failed(failure))),
        Err(other) => panic!("{other}"),
    };
    for batch in batches {
        for record in batch {
            if let Err(error) = journal.stage(record.clone(), now()) {
                return (acknowledged, Some(error));
            }
        }
        if let Err(failure) = journal.commit() {
            return (acknowledged, Some(AppendError::Failed(failure)));
        }
        acknowledged += batch.len();
    }
    (acknowledged, None)
}

/// The fields of a record without those that depend on its place.
fn fields(text: &str) -> Map<String, Value> {
    let Value::Object(mut fields) = serde_json::from_str(text).unwrap() else { unreachable!() };
    for place in ["seq", "at", "durable", "prev", "sum"] {
        fields.remove(place);
    }
    fields
}

/// Everything that can be read back but snapshots and the journal's own notes.
pub(crate) fn history(disk: &SimulatedDisk) -> Vec<Map<String, Value>> {
    let mut found = Vec::new();
    verify::read(disk, |line| {
        if line.kind != "snapshot" && !line.text.contains("\"tail_cut\"") {
            found.push(fields(&line.text));
        }
    })
    .unwrap();
    found
}

/// What a list of records says.
pub(crate) fn fold(records: &[Record]) -> JournalState {
    let mut state = JournalState::default();
    for record in records {
        state.apply(record.clone()).unwrap();
    }
    state
}

/// What a list of records must look like when any number of them is read back.
pub(crate) struct Expected {
    fields: Vec<Map<String, Value>>,
    /// After none of them, after the first, and so on.
    states: Vec<JournalState>,
}

impl Expected {
    /// Learned from a disk without faults.
    pub(crate) fn of(records: &[Record]) -> Self {
        let disk = SimulatedDisk::default();
        let mut journal = open_with(&disk, JournalLimits::default()).unwrap();
        for record in records {
            journal.append(record.clone(), now()).unwrap();
        }
        let states = (0..=records.len()).map(|end| fold(&records[..end]).compacted()).collect();
        Self { fields: history(&disk), states }
    }

    /// Starts on `disk` and checks: at least the acknowledged records are there, in order, and
    /// nothing else; the state is their fold; a second start changes nothing. Says how many records
    /// there are.
    pub(crate) fn check_start(&self, disk: &SimulatedDisk, acknowledged: usize) -> usize {
        let journal = open(disk).unwrap();
        let found = history(disk);
        let end = match found.last() {
            None => 0,
            Some(last) => self.fields.iter().position(|record| record == last).unwrap() + 1,
        };
        assert!(end >= acknowledged, "{acknowledged} acknowledged, {end} found");
        assert_eq!(found, self.fields[end - found.len()..end], "in order and without gaps");
        assert_eq!(journal.state().compacted(), self.states[end]);
        let head = journal.head();
        drop(journal);
        assert_eq!(disk.uncertain(), 0, "after a start nothing is left unsynced");
        let calls = disk.calls();
        let again = open(disk).unwrap();
        assert!(disk.calls() <= calls + 3, "a second start repairs nothing");
        assert_eq!(again.head(), head, "starting twice equals starting once");
        assert_eq!(again.state().compacted(), self.states[end]);
        end
    }
}
