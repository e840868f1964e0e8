//! Logs of every type of task, and what is shown of each: `tests/cases/task_log.txt`.

use std::fmt::Write as _;

use super::*;
use crate::operate::recover::{FailReason, Warning};

const CASES: &str = include_str!("../../../tests/cases/task_log.txt");

#[derive(Debug, Default)]
struct LogCase<'a> {
    title: &'a str,
    exit: &'a str,
    log: Vec<&'a str>,
    told: Vec<&'a str>,
}

fn cases() -> Vec<LogCase<'static>> {
    let mut cases: Vec<LogCase<'_>> = Vec::new();
    for line in CASES.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(LogCase { title, ..LogCase::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        if let Some(exit) = line.strip_prefix("exit: ") {
            case.exit = exit;
        } else if let Some(line) = line.strip_prefix("| ") {
            case.log.push(line);
        } else {
            case.told.push(line.strip_prefix("> ").unwrap());
        }
    }
    cases
}

#[test]
fn y21_the_lines_that_say_why_are_shown_for_every_type_of_task() {
    let cases = cases();
    assert!(cases.len() > 20);
    let mut wrong = String::new();
    for case in cases {
        let ended_well = case.exit == "OK" || case.exit.starts_with("WARNINGS");
        let told =
            if ended_well { warning_lines(&case.log) } else { cause_lines(&case.log, case.exit) };
        if told != case.told {
            writeln!(wrong, "== {}\n> {}", case.title, told.join("\n> ")).unwrap();
        }
    }
    assert!(wrong.is_empty(), "told otherwise:\n{wrong}");
}

#[test]
fn y21_whatever_a_log_says_the_text_is_bounded_and_in_one_line() {
    let long = "ü\u{202E}\u{7}x".repeat(9_000);
    let log: Vec<String> = (0..9_000).map(|at| format!("{at} {long}")).take(40).collect();
    let lines = cause_lines(&log, "gone");
    assert_eq!(lines.len(), LINES_MAX);
    for line in &lines {
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
        assert!(!line.chars().any(|letter| letter.is_control() || turns_text(letter)), "{line}");
    }
    let text = failure_text("the task failed; its log says why", &long, &lines);
    assert!(text.len() <= 1_024, "a journal keeps it whole: {}", text.len());
}

#[test]
fn y21_what_is_quoted_is_not_referred_to() {
    let lines = ["no bridge".to_owned()];
    let failed = failure_text(&FailReason::TaskFailed.to_string(), "exit code 1", &lines);
    assert_eq!(failed, "the task failed: exit code 1; its log: no bridge");
    let warned = warning_text(Some(&Warning::TaskWarned.to_string()), None, &lines);
    assert_eq!(warned.as_deref(), Some("the task ended with warnings; its log: no bridge"));
}

#[test]
fn y21_without_a_log_the_exit_text_stands_alone() {
    let none: [&str; 0] = [];
    assert!(cause_lines(&none, "no").is_empty() && warning_lines(&none).is_empty());
    assert_eq!(failure_text("it failed", "no", &[]), "it failed: no");
    assert_eq!(warning_text(None, None, &[]), None);
    assert_eq!(warning_text(Some("odd"), None, &[]).as_deref(), Some("odd"));
}

#[test]
fn y22_a_volume_that_grew_without_its_file_system_is_said_in_plain_words() {
    let grown = GrownVolume { slot: "mp0".to_owned(), size: "2G".to_owned() };
    let lines = warning_lines(&["Failed to update the container's filesystem: exit code 32"]);
    assert_eq!(
        warning_text(None, Some(&grown), &lines).as_deref(),
        Some(
            "the volume of mp0 is 2 GiB, the file system inside is not; its log: Failed to update the \
             container's filesystem: exit code 32"
        )
    );
    let other = warning_lines(&["WARN: a lock was slow"]);
    assert_eq!(
        warning_text(None, Some(&grown), &other).as_deref(),
        Some("the task ended OK, but warns; its log: WARN: a lock was slow")
    );
}
