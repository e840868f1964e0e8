//! `journal`, `journal verify` and `journal resolve` on journals written through the agent's own code.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use evenkeel_agent::journal::{Details, Journal, JournalLimits, RealDisk, Record, Stamp, verify};
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::OperationId;
use evenkeel_core::operate::operation::{OpEvent, OpPhase, OpRecord, StartedIntent, UnixSeconds};
use serde_json::{Map, Value};

use crate::support::{Desk, Run};

/// A state directory with a journal in it, closed or still held.
struct State {
    desk: Desk,
    limits: JournalLimits,
}

impl State {
    fn new() -> Self {
        Self { desk: Desk::new(), limits: JournalLimits::default() }
    }

    fn journal_dir(&self) -> PathBuf {
        self.desk.work.path().join("state/journal")
    }

    fn segment(&self, number: u32) -> PathBuf {
        self.journal_dir().join(format!("journal-{number:06}.jsonl"))
    }

    fn open(&self) -> Journal<RealDisk> {
        std::fs::create_dir_all(self.journal_dir().parent().unwrap()).unwrap();
        let disk = RealDisk::open(self.journal_dir()).unwrap();
        let now: jiff::Timestamp = "2026-11-15T20:00:00Z".parse().unwrap();
        Journal::open(disk, stamp(), self.limits, now).unwrap()
    }

    /// One operation succeeded, one failed, one in doubt, one under way; in this order.
    fn with_operations(self) -> Self {
        let mut journal = self.open();
        for record in [
            started(1, 101, "cores 2 -> 4"),
            event(1, OpEvent::Succeeded { identity: None, warning: None }),
            started(2, 102, "memory 512 -> 1024"),
            task(2, 102),
            event(
                2,
                OpEvent::Failed {
                    reason: "no\u{1b}[2J space\nTASK OK".to_owned(),
                    left_volume: None,
                    tried: None,
                    identity: None,
                },
            ),
            started(3, 101, "hostname a -> b"),
            event(3, OpEvent::Unknown { reason: "the answer was lost".to_owned() }),
            started(4, 103, "onboot 0 -> 1"),
            task(4, 103),
        ] {
            let now: jiff::Timestamp = "2026-11-15T20:00:01Z".parse().unwrap();
            journal.append(record, now).unwrap();
        }
        drop(journal);
        self
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let mut command = self.desk.command("journal");
        command.args(arguments).env("EVENKEEL_STATE", "state").env("SUDO_USER", "alice");
        self.desk.finish(command)
    }

    fn notes(&self) -> Vec<String> {
        let files = evenkeel_agent::journal::ReadOnlyDirectory::open(self.journal_dir()).unwrap();
        let mut notes = Vec::new();
        verify::read(&files, |line| {
            if line.kind == "note" {
                notes.push(line.text);
            }
        })
        .unwrap();
        notes
    }

    /// The states of the operations, as the verb tells them.
    fn states(&self) -> Vec<(String, String)> {
        let json = self.run(&["-o", "json"]).ends_with(0).json();
        assert_eq!(json["format_version"], 1);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let operations = json["operations"].as_array().unwrap();
        operations.iter().map(|op| (text(&op["op"]), text(&op["state"]))).collect()
    }
}

/// What became of an operation.
fn state_of(state: &State, number: u64) -> String {
    let name = op(number).to_string();
    state.states().into_iter().find(|(op, _)| *op == name).unwrap().1
}

fn stamp() -> Stamp {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap().trim().to_owned();
    Stamp { machine, new_epoch: "e1".to_owned() }
}

fn op(number: u64) -> OperationId {
    OperationId::from_parts(1_700_000_000_000 + number, u128::from(number))
}

fn event(number: u64, event: OpEvent) -> Record {
    Record::op(OpRecord { op: op(number), event })
}

fn started(number: u64, vmid: u32, reason: &str) -> Record {
    started_with(number, vmid, reason, OpPhase::Act)
}

fn started_with(number: u64, vmid: u32, reason: &str, first: OpPhase) -> Record {
    let intent = StartedIntent {
        first,
        ..StartedIntent::new(
            format!("lxc/{vmid}").parse().unwrap(),
            ActionKind::SetConfig,
            UnixSeconds(1_700_000_000),
        )
    };
    let details = Details::new(Map::new(), Map::new(), reason.to_owned(), Map::new());
    let event = OpEvent::Started(Box::new(intent));
    Record::op_started(OpRecord { op: op(number), event }, details)
}

fn task(number: u64, vmid: u32) -> Record {
    let upid = format!("UPID:pve1:0000C530:001A2B3C:6553F100:vzstart:{vmid}:evenkeel@pve!agent:");
    event(number, OpEvent::TaskRunning { upid: upid.parse().unwrap(), found: false })
}

#[test]
fn operations_are_listed_newest_last_with_all_a_person_asks_for() {
    let state = State::new().with_operations();
    insta::assert_snapshot!("journal-list", state.run(&[]).ends_with(0).story());
    let states = state.states();
    let expected = ["succeeded", "failed", "unknown", "task_running"];
    assert_eq!(states.iter().map(|(_, state)| state.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(states[0].0, op(1).to_string());
    let json = state.run(&["-o", "json", "--last", "1"]).ends_with(0).json();
    let last = &json["operations"][0];
    assert_eq!((&last["guest"], &last["kind"]), (&"lxc/103".into(), &"set_config".into()));
    assert_eq!(last["reason"], "onboot 0 -> 1");
    assert!(last["upid"].as_str().unwrap().contains("vzstart:103"));
}

#[test]
fn the_list_can_be_narrowed_to_a_guest_an_operation_or_what_is_open() {
    let state = State::new().with_operations();
    let count = |arguments: &[&str]| {
        let all = [&["-o", "json"], arguments].concat();
        state.run(&all).ends_with(0).json()["operations"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--guest", "lxc/101"]), 2);
    assert_eq!(count(&["--guest", "qemu/101"]), 0);
    assert_eq!(count(&["--op", &op(2).to_string()]), 1);
    assert_eq!(count(&["--open"]), 2);
    assert_eq!(count(&["--open", "--guest", "lxc/101"]), 1);
    state.run(&["--op", &op(9).to_string()]).ends_with(5);
    state.run(&["--op", "op_1"]).ends_with(64);
}

#[test]
fn an_open_operation_is_listed_even_if_its_first_record_is_gone_with_its_segment() {
    let mut state = State::new();
    state.limits =
        JournalLimits { segment_bytes: 1, archive_segments: 1, ..JournalLimits::default() };
    let mut journal = state.open();
    let now: jiff::Timestamp = "2026-11-15T20:00:01Z".parse().unwrap();
    journal.append(started(1, 101, "cores 2 -> 4"), now).unwrap();
    for number in 2..40 {
        journal.append(started(number, 102, "x"), now).unwrap();
        let end = OpEvent::Succeeded { identity: None, warning: None };
        journal.append(event(number, end), now).unwrap();
    }
    drop(journal);
    assert!(!state.segment(1).exists(), "the test must drop the segment");
    let told = state.run(&["--op", &op(1).to_string(), "-o", "json"]).ends_with(0).json();
    assert_eq!(told["operations"][0]["state"], "started");
    assert_eq!(told["operations"][0]["reason"], "cores 2 -> 4");
}

#[test]
fn verify_checks_everything_and_names_the_place_of_damage() {
    let mut state = State::new();
    state.limits = JournalLimits { segment_bytes: 1, ..JournalLimits::default() };
    let state = state.with_operations();
    let whole = state.run(&["verify", "-o", "json"]).ends_with(0).json();
    assert_eq!((&whole["whole"], &whole["tail_bytes"]), (&true.into(), &0.into()));
    assert!(whole["segments"].as_u64().unwrap() > 2, "{whole}");
    assert!(state.run(&["verify"]).ends_with(0).stdout.starts_with("the journal is whole: "));
    // One bit in the second line of an archived segment, which no start would read.
    let segment = state.segment(1);
    let bytes = std::fs::read(&segment).unwrap();
    let offset = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[bytes[offset + 30] ^ 1], offset as u64 + 30).unwrap();
    let told = state.run(&["verify"]).ends_with(1).stderr;
    let place = format!("line 2, byte {offset}");
    assert!(told.contains("journal-000001.jsonl") && told.contains(&place), "{told}");
    let json = state.run(&["verify", "-o", "json"]).ends_with(1).json();
    assert_eq!((&json["whole"], &json["at"]["offset"]), (&false.into(), &offset.into()));
    assert_eq!(json["at"]["file"], "journal-000001.jsonl");
    state.run(&[]).ends_with(1);
}

#[test]
fn what_is_in_doubt_or_was_left_under_way_is_closed_by_hand_and_by_name() {
    let state = State::new().with_operations();
    let close = |number, outcome, reason| {
        let op = op(number).to_string();
        state.run(&["resolve", &op, "--as", outcome, "--reason", reason])
    };
    let told = close(3, "failed", "the hostname is still a").ends_with(0).stdout;
    assert_eq!(told, format!("{} is closed as failed\n", op(3)));
    close(4, "succeeded", "looked\nat it").ends_with(0);
    assert_eq!((state_of(&state, 3), state_of(&state, 4)), ("failed".into(), "succeeded".into()));
    assert!(state.run(&["--open"]).ends_with(0).stdout.is_empty());
    let notes = state.notes();
    assert_eq!(notes.len(), 2);
    let uid = rustix::process::getuid().as_raw();
    assert!(notes[0].contains(&op(3).to_string()), "{notes:?}");
    assert!(notes[0].contains(&format!("by uid {uid} (sudo by alice)")), "{notes:?}");
    assert!(notes[0].contains("the hostname is still a"), "{notes:?}");
    // What was said reaches neither state machine nor terminal as anything but text.
    assert!(!notes[1].contains("\\n"), "{notes:?}");
    state.run(&["verify"]).ends_with(0);
}

#[test]
fn only_an_open_operation_can_be_resolved_and_only_as_what_can_have_happened() {
    let state = State::new().with_operations();
    let before = std::fs::read(state.segment(1)).unwrap();
    let closed = state.run(&["resolve", &op(1).to_string(), "--as", "failed"]).ends_with(1);
    assert!(closed.stderr.contains("closed already, as succeeded"), "{}", closed.stderr);
    state.run(&["resolve", &op(9).to_string(), "--as", "failed"]).ends_with(5);
    state.run(&["resolve", &op(3).to_string(), "--as", "unknown"]).ends_with(64);
    state.run(&["resolve", &op(3).to_string()]).ends_with(64);
    assert_eq!(std::fs::read(state.segment(1)).unwrap(), before, "nothing was written");
    // A preparation was sent, the act never: nobody can say that the act happened.
    let mut journal = state.open();
    let now: jiff::Timestamp = "2026-11-15T20:00:02Z".parse().unwrap();
    journal.append(started_with(5, 105, "gone", OpPhase::Stop), now).unwrap();
    drop(journal);
    let told = state.run(&["resolve", &op(5).to_string(), "--as", "succeeded"]).ends_with(1);
    assert!(told.stderr.contains("the act itself was never sent"), "{}", told.stderr);
    assert!(state.notes().is_empty(), "a refused resolution leaves no note");
}

#[test]
fn a_running_agent_keeps_its_journal_and_can_be_looked_at() {
    let state = State::new().with_operations();
    let held = state.open();
    state.run(&[]).ends_with(0);
    state.run(&["verify"]).ends_with(0);
    let told = state.run(&["resolve", &op(3).to_string(), "--as", "failed"]).ends_with(7);
    assert!(told.stderr.contains("another evenkeel works"), "{}", told.stderr);
    drop(held);
    state.run(&["resolve", &op(3).to_string(), "--as", "failed"]).ends_with(0);
}

#[test]
fn j12_a_write_that_is_cut_short_is_an_error_and_the_next_start_is_clean() {
    let state = State::new().with_operations();
    // The process may not make files longer than this one is, rounded up to half a kilobyte: of the
    // three records some bytes are written, and then no more.
    let blocks = std::fs::metadata(state.segment(1)).unwrap().len().div_ceil(512);
    let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    let binary = env!("CARGO_BIN_EXE_evenkeel");
    let op = op(3).to_string();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited, "sh", binary, "journal", "resolve", &op, "--as", "failed"]);
    command.env_clear().env("EVENKEEL_STATE", "state").current_dir(state.desk.work.path());
    let told = state.desk.finish(command).ends_with(1);
    assert!(told.stderr.contains("cannot write journal-000001.jsonl"), "{}", told.stderr);
    assert_eq!(
        std::fs::metadata(state.segment(1)).unwrap().len(),
        blocks * 512,
        "it was cut short"
    );
    assert_eq!(state_of(&state, 3), "unknown", "what was not acknowledged did not happen");
    state.run(&["resolve", &op, "--as", "failed"]).ends_with(0);
    assert_eq!(state_of(&state, 3), "failed");
    let notes = state.notes();
    assert!(notes.iter().any(|note| note.contains("tail_cut")), "{notes:?}");
    state.run(&["verify"]).ends_with(0);
}

#[test]
fn j12_an_interrupted_write_is_tried_again() {
    let strace = || {
        let mut command = std::process::Command::new("strace");
        command.args(["-qq", "-o", "trace"]);
        command
    };
    let state = State::new().with_operations();
    if !strace().arg("true").current_dir(state.desk.work.path()).status().is_ok_and(|s| s.success())
    {
        eprintln!("strace is not there or may not trace: nothing was interrupted");
        return;
    }
    let mut command = strace();
    command.args(["-e", "inject=pwrite64:error=EINTR:when=1..3"]);
    command.args([env!("CARGO_BIN_EXE_evenkeel"), "journal", "resolve", &op(3).to_string()]);
    command.args(["--as", "failed"]).current_dir(state.desk.work.path());
    command.env("EVENKEEL_STATE", "state");
    state.desk.finish(command).ends_with(0);
    assert!(state.desk.read("trace").contains("EINTR"), "the test must interrupt something");
    assert_eq!(state_of(&state, 3), "failed");
    assert_eq!(state.notes().len(), 1);
}

#[test]
fn where_there_is_no_journal_none_is_made() {
    let state = State::new();
    for arguments in [&[][..], &["verify"], &["resolve", &op(3).to_string(), "--as", "failed"]] {
        let told = state.run(arguments).ends_with(5);
        assert!(told.stderr.contains("--state"), "{}", told.stderr);
    }
    assert!(!state.journal_dir().exists());
}
