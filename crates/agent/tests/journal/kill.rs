//! SIGKILL under load on the file system the tests run on: what was acknowledged is there, and nothing
//! that was not asked for. A killed process loses no page cache; lost power is `crash.rs`'s.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_agent::journal::{Journal, JournalLimits, ReadOnlyDirectory, RealDisk, group, verify};
use serde_json::Value;

use super::support::{by_extent, now, op, stamp, started, succeeded};

/// Where the load writes; it does nothing without it.
const DIRECTORY: &str = "EVENKEEL_KILLED_JOURNAL";
/// The first operation's number.
const FIRST: &str = "EVENKEEL_KILLED_FIRST";
const WRITERS: u64 = 16;
/// Rounds never share a number: so many are enough for one.
const NUMBERS_PER_ROUND: u64 = 1_000_000;

fn limits() -> JournalLimits {
    JournalLimits { segment_bytes: 60_000, archive_segments: 1_000_000, ..JournalLimits::default() }
}

fn open(path: &Path) -> Journal<RealDisk> {
    Journal::open(RealDisk::open(path).unwrap(), stamp(), limits(), now()).unwrap()
}

#[test]
#[ignore = "the load that the test below runs as a process of its own, and kills"]
fn load() {
    let Some(path) = std::env::var_os(DIRECTORY) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut journal = open(Path::new(&path));
    // What the killed one left open is closed, as recovery would.
    let left: Vec<_> = journal.state().ledger().in_flight().map(|op| op.id).collect();
    for op in left {
        let event = evenkeel_core::operate::operation::OpEvent::Failed {
            reason: "killed".to_owned(),
            left_volume: None,
            tried: None,
            identity: None,
        };
        let record = evenkeel_core::operate::operation::OpRecord { op, event };
        journal.append(evenkeel_agent::journal::Record::op(record), now()).unwrap();
    }
    let (handle, _writer) = group::spawn(journal, now).unwrap();
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let vmid = 100 + u32::try_from(writer).unwrap();
                for round in 0..NUMBERS_PER_ROUND / WRITERS {
                    let number = first + round * WRITERS + writer;
                    for (word, record) in
                        [("started", started(number, vmid, None)), ("succeeded", succeeded(number))]
                    {
                        runtime.block_on(handle.append(record)).unwrap();
                        let line = format!("ack {number} {word}\n");
                        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Runs the load, kills it after so many acknowledgements, and tells all of them.
fn run_and_kill(path: &Path, first: u64, after: usize) -> Vec<(u64, String)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::load", "--ignored", "--nocapture"])
        .env(DIRECTORY, path)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut acknowledged = Vec::new();
    for line in lines {
        // The last line may be cut by the kill; an unfinished one was not acknowledged.
        let words: Vec<&str> = line.split(' ').collect();
        if let ["ack", number, word @ ("started" | "succeeded")] = words[..] {
            acknowledged.push((number.parse().unwrap(), word.to_owned()));
        }
        if acknowledged.len() == after {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success(), "it is killed, it does not end");
    assert!(acknowledged.len() >= after, "{} of {after}", acknowledged.len());
    acknowledged
}

/// Every operation of the journal with its states in order, read by the text of the lines alone.
fn told(path: &Path) -> BTreeMap<String, Vec<String>> {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    verify::read(&ReadOnlyDirectory::open(path).unwrap(), |line| {
        let fields: Value = serde_json::from_str(&line.text).unwrap();
        if let (Some(op), Some(state)) = (fields["op"].as_str(), fields["state"].as_str()) {
            told.entry(op.to_owned()).or_default().push(state.to_owned());
        }
    })
    .unwrap();
    told
}

#[test]
fn j20_a_journal_killed_under_load_keeps_what_it_acknowledged_and_nothing_else() {
    let rounds = by_extent(3, 20, 1_000);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("journal");
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut count = 0;
    for round in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = 1 + usize::try_from(seed >> 33).unwrap() % 400;
        let first = round * NUMBERS_PER_ROUND;
        let acknowledged = run_and_kill(&path, first, after);
        count += acknowledged.len();
        let head = open(&path).head();
        assert_eq!(open(&path).head(), head, "starting twice equals starting once");
        let told = told(&path);
        for (number, word) in &acknowledged {
            let states = told.get(&op(*number).to_string());
            assert!(states.is_some_and(|states| states.contains(word)), "round {round}: {number}");
        }
        // Each writer has at most one record under way that nobody was told of.
        let this_round = |(op_text, _): &(&String, &Vec<String>)| {
            *op_text >= &op(first).to_string()
                && *op_text < &op(first + NUMBERS_PER_ROUND).to_string()
        };
        let written: usize = told.iter().filter(this_round).map(|(_, states)| states.len()).sum();
        assert!(written <= acknowledged.len() + usize::try_from(WRITERS).unwrap());
        for states in told.values() {
            let legal: &[&[&str]] =
                &[&["started"], &["started", "succeeded"], &["started", "failed"]];
            assert!(
                legal.contains(&states.iter().map(String::as_str).collect::<Vec<_>>().as_slice())
            );
        }
        // A round's history is as good as the next one's, and reading all of it again costs more each time.
        if round % 20 == 19 {
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
    println!("{rounds} kills, {count} acknowledged records, none lost");
}
