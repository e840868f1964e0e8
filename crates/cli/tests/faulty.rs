//! The catalogue of faulty files: each file under `faulty` is one thing people get wrong, and everything they are told.
//!
//! A case is a sentence, what is in the directory, and what the real binary says about it on stderr: `evenkeel validate .`,
//! or `evenkeel plan --config agent.toml` for a case with that file. `file` is text as it stands, `made` is built from
//! lines of `COUNT * "text"` where `\xNN` is a byte, `link` is a symbolic link to the text it holds. A case without
//! an expectation fails, and so does one whose words differ: `EVENKEEL_BLESS=1` writes them into the case, to be read as
//! a newcomer would, in the diff. Every mistake must say where it is and what to write instead.
#![expect(clippy::unwrap_used, reason = "a case that cannot be read shall stop its test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many ways to be wrong are shown at least.
const CASES_MIN: usize = 120;

/// As wide as a terminal is at least; only lines of the faulty file itself may be wider.
const WIDTH: usize = 80;

#[test]
fn n12_every_faulty_file_is_told_as_written() {
    let bless = std::env::var_os("EVENKEEL_BLESS").is_some();
    let cases = cases();
    let mut wrong = Vec::new();
    for path in &cases {
        let text = std::fs::read_to_string(path).unwrap();
        let (head, expected) = text.split_once("--- told\n").unwrap_or((&text, ""));
        let told = told(head);
        if bless {
            std::fs::write(path, format!("{head}--- told\n{told}")).unwrap();
        } else if told != expected || told.is_empty() {
            wrong.push(format!("{}\nexpected:\n{expected}\ntold:\n{told}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
}

#[test]
fn every_message_says_where_and_what_to_write_and_fits_a_terminal() {
    let mut wrong = Vec::new();
    for path in cases() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, told) = text.split_once("--- told\n").expect("a case says what is told");
        let mut miss = |what: &str| wrong.push(format!("{}: {what}", path.display()));
        for block in told.split("\n\n").filter(|block| block.starts_with("error[")) {
            let placed =
                block.contains("--> ") || head.contains("--- made ") || block.contains("E0103");
            if !placed {
                miss("no place");
            }
            if !HELPS.iter().any(|help| block.contains(help)) {
                miss("nothing to write instead");
            }
        }
        if !told.contains("error") && !told.contains("warning: ") {
            miss("no word of what is wrong");
        }
        // A line of the faulty file stands behind its number and may be as long as its author wants; a failure without
        // an excerpt is a sentence and its hint.
        let ours = |line: &&str| {
            let sentence = line.starts_with("error: ") || line.starts_with("  hint: ");
            !sentence && !line.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '|')
        };
        if let Some(long) = told.lines().filter(ours).find(|line| line.chars().count() > WIDTH) {
            miss(&format!("wider than {WIDTH}: {long}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What tells a person what to do: a next step, or a message that says what must be.
const HELPS: &[&str] =
    &["= help: ", " must ", ": write ", "first declared here", "first given here"];

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faulty");
    let mut cases: Vec<PathBuf> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

/// Everything that is said about a case's directory.
fn told(head: &str) -> String {
    let mut sections = head.split("--- ");
    let sentence = sections.next().unwrap();
    assert!(
        sentence.trim_end().ends_with('.'),
        "a case begins with the sentence it stands for: {head}"
    );
    let directory = tempfile::tempdir().unwrap();
    let mut configured = false;
    for section in sections {
        let (title, body) = section.split_once('\n').unwrap();
        let (kind, name) = title.split_once(' ').expect("a section is a file, made or a link");
        configured |= name == "agent.toml";
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match kind {
            "file" => std::fs::write(&path, body).unwrap(),
            "made" => {
                std::fs::write(&path, body.lines().flat_map(made).collect::<Vec<u8>>()).unwrap();
            }
            "link" => std::os::unix::fs::symlink(body.trim_end(), &path).unwrap(),
            _ => panic!("a section is a file, made or a link: {title}"),
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.env_clear().env("HOME", directory.path()).current_dir(directory.path());
    if configured {
        command.args(["plan", "--config", "agent.toml"]);
    } else {
        command.args(["validate", "."]);
    }
    let output = command.output().unwrap();
    let mut text = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(3) => {}
        Some(0) => text += std::str::from_utf8(&output.stdout).unwrap(),
        code => writeln!(text, "(exit {})", code.unwrap()).unwrap(),
    }
    text.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

/// `COUNT * "text"`, with `\n` and `\xNN`.
fn made(line: &str) -> Vec<u8> {
    let (count, text) = line.split_once(" * ").expect("COUNT * \"text\"");
    let text =
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).expect("text in quotes");
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(hex) = rest.strip_prefix("\\x") {
            bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
            rest = &hex[2..];
        } else if let Some(more) = rest.strip_prefix("\\n") {
            bytes.push(b'\n');
            rest = more;
        } else {
            bytes.extend(first.to_string().bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
    bytes.repeat(count.parse().unwrap())
}
