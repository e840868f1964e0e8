//! How fast the journal is, beside what the disk can do: appends a second, and replay.
//!
//! All figures of one row are taken by turns, because a shared disk changes from minute to minute.
#![expect(clippy::unwrap_used, reason = "a bench stops on errors")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use evenkeel_agent::journal::{
    Details, Files as _, Journal, JournalLimits, ReadOnlyDirectory, RealDisk, Record, Stamp, group,
};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{OpEvent, OpRecord, StartedIntent, UnixSeconds};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::BenchRow;
use crate::measure::median;

/// Runs of each row of appends; the median is printed. One takes a moment, and the disk has its whims.
const RUNS: usize = 15;
/// Runs of the replay.
const REPLAYS: usize = 5;
/// How long one run lasts, roughly.
const APPENDS_PER_WRITER: [(u64, u64); 4] = [(1, 1_500), (16, 600), (64, 400), (256, 200)];
/// Twice the records of this number are replayed: a start and an end for each operation.
const REPLAYED_OPERATIONS: u64 = 500_000;

pub(crate) fn run() -> Vec<BenchRow> {
    // Under `target`: a temporary directory may be in memory, where a sync costs nothing.
    let scratch = tempfile::Builder::new().tempdir_in("target").unwrap();
    let line_bytes = line_bytes(scratch.path());
    let mut rows = Vec::new();
    for (writers, each) in APPENDS_PER_WRITER {
        rows.extend(appends(scratch.path(), writers, each, line_bytes));
    }
    rows.push(replay(scratch.path()));
    rows
}

fn stamp() -> Stamp {
    Stamp { machine: "bench".to_owned(), new_epoch: "bench".to_owned() }
}

fn open(path: &Path, limits: JournalLimits) -> Journal<RealDisk> {
    Journal::open(RealDisk::open(path).unwrap(), stamp(), limits, Timestamp::now()).unwrap()
}

fn op(number: u64) -> OperationId {
    OperationId::from_parts(1_700_000_000_000 + number, u128::from(number))
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { unreachable!() };
    fields
}

fn started(number: u64, vmid: u64) -> Record {
    let intent = StartedIntent::new(
        format!("lxc/{vmid}").parse().unwrap(),
        ActionKind::SetConfig,
        UnixSeconds(1_700_000_000),
    );
    let details = Details::new(
        object(json!({ "cores": "4", "digest": "2f0c1f9f" })),
        object(json!({ "cores": "2" })),
        "cores 2 -> 4".to_owned(),
        Map::new(),
    );
    let event = OpEvent::Started(Box::new(intent));
    Record::op_started(OpRecord { op: op(number), event }, details)
}

fn succeeded(number: u64) -> Record {
    let event = OpEvent::Succeeded { identity: None, warning: None };
    Record::op(OpRecord { op: op(number), event })
}

/// The mean length of the two lines of an operation: what the bare loops write.
fn line_bytes(scratch: &Path) -> usize {
    let path = scratch.join("length");
    let mut journal = open(&path, JournalLimits::default());
    journal.append(started(1, 101), Timestamp::now()).unwrap();
    journal.append(succeeded(1), Timestamp::now()).unwrap();
    let bytes = ReadOnlyDirectory::open(&path).unwrap().read("journal-000001.jsonl").unwrap();
    let lines: Vec<_> = bytes.split_inclusive(|b| *b == b'\n').collect();
    usize::midpoint(lines[2].len(), lines[3].len())
}

fn appends(scratch: &Path, writers: u64, each: u64, line_bytes: usize) -> [BenchRow; 3] {
    let total = (writers * each) as f64;
    let rate = |seconds: f64| total / seconds;
    let per_record_count = (writers * each).min(1_500);
    let mut ours = Vec::new();
    let mut alone = Vec::new();
    let mut bare = Vec::new();
    let mut chained = Vec::new();
    for run in 0..RUNS {
        let path = scratch.join(format!("appends-{writers}-{run}"));
        ours.push(rate(journal(&path, writers, each)));
        let path = path.with_extension("alone");
        alone.push(per_record_count as f64 / per_record(&path, per_record_count, line_bytes));
        let group = |name: &str, chain| {
            rate(bare_group(&path.with_extension(name), writers, each, line_bytes, chain))
        };
        bare.push(group("bare", Chain::None));
        chained.push(group("chained", Chain::Sums));
    }
    let ours = median(ours);
    let alone = median(alone);
    [
        BenchRow::new(
            format!("journal, {writers} writers, beside a sync each"),
            "appends/s",
            ours,
            alone,
        ),
        BenchRow::new(
            format!("journal, {writers} writers, beside a bare group"),
            "appends/s",
            ours,
            median(bare),
        ),
        BenchRow::new(
            format!("journal, {writers} writers, beside a bare group with sums"),
            "appends/s",
            ours,
            median(chained),
        ),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap()
}

/// Seconds for the journal: writers append an operation's two records in turns, each waiting.
fn journal(path: &Path, writers: u64, each: u64) -> f64 {
    let (handle, writer) =
        group::spawn(open(path, JournalLimits::default()), Timestamp::now).unwrap();
    let records = (0..writers).map(|number| {
        let ops = (0..each / 2).map(move |round| number * 1_000_000 + round);
        ops.flat_map(move |op| [started(op, 100 + number), succeeded(op)]).collect::<Vec<_>>()
    });
    let records: Vec<_> = records.collect();
    let begin = Instant::now();
    runtime().block_on(async {
        let tasks: Vec<_> = records
            .into_iter()
            .map(|records| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    for record in records {
                        handle.append(record).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    drop(handle);
    writer.join().unwrap().unwrap();
    seconds
}

/// Seconds for one write and one sync a record.
fn per_record(path: &Path, count: u64, line_bytes: usize) -> f64 {
    let mut file = std::fs::File::create(path).unwrap();
    let line = vec![b'x'; line_bytes];
    let begin = Instant::now();
    for _ in 0..count {
        file.write_all(&line).unwrap();
        file.sync_data().unwrap();
    }
    begin.elapsed().as_secs_f64()
}

/// Whether the lines of a bare group are chained as the journal's are.
#[derive(Clone, Copy)]
enum Chain {
    None,
    /// Each line has the sum of its bytes, and names that of the line before.
    Sums,
}

impl Chain {
    fn seal(self, line: &mut [u8], prev: &mut [u8; 32]) {
        match self {
            Self::None => {}
            Self::Sums => {
                line[..32].copy_from_slice(prev);
                *prev = Sha256::digest(&line[..]).into();
            }
        }
    }
}

/// Seconds for the least a group commit can do: bytes through a channel, one write, one sync.
fn bare_group(path: &Path, writers: u64, each: u64, line_bytes: usize, chain: Chain) -> f64 {
    let (sender, mut receiver) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(1_024);
    let mut file = std::fs::File::create(path).unwrap();
    let writer = std::thread::spawn(move || {
        let mut prev = [0; 32];
        while let Some((mut bytes, first)) = receiver.blocking_recv() {
            chain.seal(&mut bytes, &mut prev);
            let mut waiting = vec![first];
            while let Ok((mut more, answer)) = receiver.try_recv() {
                chain.seal(&mut more, &mut prev);
                bytes.extend_from_slice(&more);
                waiting.push(answer);
            }
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
            for answer in waiting {
                answer.send(()).unwrap();
            }
        }
    });
    let lines: Vec<Vec<_>> =
        (0..writers).map(|_| (0..each).map(|_| vec![b'x'; line_bytes]).collect()).collect();
    let begin = Instant::now();
    runtime().block_on(async {
        let tasks: Vec<_> = lines
            .into_iter()
            .map(|lines| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    for line in lines {
                        let (answer, answered) = oneshot::channel();
                        sender.send((line, answer)).await.unwrap();
                        answered.await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    drop(sender);
    writer.join().unwrap();
    seconds
}

/// The fields of the bare loop: what any reader of this file would have to take in.
#[derive(serde::Deserialize)]
#[expect(dead_code, reason = "read by nobody, parsed to be measured")]
struct BareLine {
    seq: Option<u64>,
    at: Option<String>,
    durable: Option<u64>,
    r#type: Option<String>,
    op: Option<String>,
    state: Option<String>,
    guest: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    request: Option<String>,
    node_time: Option<u64>,
    unprotects: Option<bool>,
    id_was_free: Option<bool>,
    reason: Option<String>,
    params: Option<Box<RawValue>>,
    before: Option<Box<RawValue>>,
    prev: Option<String>,
    sum: Option<String>,
}

fn replay(scratch: &Path) -> BenchRow {
    let path = scratch.join("replay");
    let limits = JournalLimits { segment_bytes: u64::MAX / 4, ..JournalLimits::default() };
    let mut journal = open(&path, limits);
    let now = Timestamp::now();
    for number in 0..REPLAYED_OPERATIONS {
        journal.stage(started(number, 100 + number % 1_000), now).unwrap();
        journal.stage(succeeded(number), now).unwrap();
        if number % 500 == 499 {
            journal.commit().unwrap();
        }
    }
    drop(journal);
    let mut ours = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..REPLAYS {
        let begin = Instant::now();
        drop(open(&path, limits));
        ours.push(begin.elapsed().as_secs_f64());
        bare.push(bare_replay(&path));
    }
    BenchRow::new("journal, replay of 1,000,000 records", "s", median(ours), median(bare))
}

/// Seconds for the least a replay can do: parse every line into its fields, and hash it.
fn bare_replay(path: &Path) -> f64 {
    let begin = Instant::now();
    let bytes = std::fs::read(path.join("journal-000001.jsonl")).unwrap();
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        std::hint::black_box(Sha256::digest(line));
        std::hint::black_box(serde_json::from_slice::<BareLine>(line).unwrap());
    }
    begin.elapsed().as_secs_f64()
}
