//! Agreement with real servers: captured exchanges are replayed and the answers compared.
//!
//! The checked-in fixtures are cut to what is compared. Further files in the form of a capture are
//! read from `EVENKEEL_CAPTURES` (paths separated by colons) and replayed the same way.

#![expect(
    clippy::print_stdout,
    reason = "the rate and the differences are what this test is read for"
)]

mod align;
mod compare;
mod prelude;
mod replay;
mod row;

use std::path::Path;

use replay::{Replay, Report};

/// Differences that are understood: a text to look for, and why the simulator answers otherwise.
const KNOWN: &str = include_str!("known.txt");
/// Less agreement than this fails.
const REQUIRED_PERCENT: f64 = 95.0;

fn replay_file(path: &Path) -> Report {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let report = Replay::new(row::read(&text), &path.display().to_string()).run();
    let percent = report.percent();
    println!(
        "agreement: {} of {} ({percent:.1} %), {} not replayable, {} digests equal of {}: {}",
        report.agreed,
        report.compared,
        report.skipped,
        report.digests_equal,
        report.digests_seen,
        path.display()
    );
    for difference in &report.differences {
        let known = known_reason(difference).unwrap_or("NOT LISTED");
        println!("  {difference}\n      because: {known}");
    }
    report
}

fn known_reason(difference: &str) -> Option<&'static str> {
    let rows = KNOWN.lines().filter_map(|line| line.split_once(" | "));
    rows.filter(|(text, _)| !text.starts_with('#'))
        .find(|(text, _)| difference.contains(text.trim()))
        .map(|(_, why)| why)
}

fn check(report: &Report, name: &str) {
    let unlisted: Vec<&String> =
        report.differences.iter().filter(|difference| known_reason(difference).is_none()).collect();
    assert!(unlisted.is_empty(), "{name}: unlisted differences: {unlisted:#?}");
    assert!(report.percent() >= REQUIRED_PERCENT, "{name}: {:.1} %", report.percent());
    assert!(report.compared > 100, "{name}: only {} exchanges were compared", report.compared);
}

fn fixture(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    check(&replay_file(&path), name);
}

#[test]
fn the_simulator_answers_as_8_4_did() {
    fixture("exchanges-8.4.jsonl");
}

#[test]
fn the_simulator_answers_as_9_2_did() {
    fixture("exchanges-9.2.jsonl");
}

#[test]
fn further_captures_agree_as_well() {
    let Some(paths) = std::env::var_os("EVENKEEL_CAPTURES") else { return };
    let paths = paths.into_string().expect("EVENKEEL_CAPTURES is UTF-8");
    let mut poor = Vec::new();
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        let report = replay_file(Path::new(path));
        if report.percent() < REQUIRED_PERCENT {
            poor.push(format!("{path}: {:.1} %", report.percent()));
        }
    }
    assert!(poor.is_empty(), "{poor:?}");
}

#[test]
fn a_wrong_answer_is_noticed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/exchanges-8.4.jsonl");
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    let wrong = text.replace("\"reason\":\"no options specified\"", "\"reason\":\"anything else\"");
    assert_ne!(text, wrong, "the fixture holds the sentence");
    let honest = Replay::new(row::read(&text), "8.4").run();
    let cheated = Replay::new(row::read(&wrong), "8.4").run();
    assert!(cheated.agreed < honest.agreed);
}
