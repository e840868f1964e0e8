//! Golden diagnostics: each file under `cases/malformed` is one way a desired file can be wrong, and
//! everything the operator is told about it.
//!
//! A case is a sentence, one or more files, and what is told: code, place and message, then the
//! underlined text in quotes with its label, other places, and hints. A file given as `made` is built
//! from lines of `COUNT * "text"`, where `\xNN` is a byte. `EVENKEEL_BLESS=1` writes what was told into
//! the case, to be reviewed as a diff.
#![expect(clippy::disallowed_methods, reason = "a test reads its own cases")]
#![expect(clippy::unwrap_used, reason = "a case that cannot be read shall stop its test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use evenkeel_core::desired;
use evenkeel_core::diagnostic::{Diagnostic, Sources, Span};

/// How many ways to be wrong are shown at least.
const CASES_MIN: usize = 30;

#[test]
fn n12_every_malformed_file_is_told_as_written() {
    let mut cases = cases();
    cases.sort();
    let mut wrong = Vec::new();
    for path in &cases {
        let text = std::fs::read_to_string(path).unwrap();
        let (head, expected) = text.split_once("--- told\n").expect("a case says what is told");
        let told = told(head);
        assert!(!told.is_empty(), "{} is not malformed", path.display());
        if std::env::var_os("EVENKEEL_BLESS").is_some() {
            std::fs::write(path, format!("{head}--- told\n{told}")).unwrap();
        } else if told != expected {
            wrong.push(format!("{}\nexpected:\n{expected}\ntold:\n{told}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/malformed");
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Everything a case's files are refused for, as text.
fn told(head: &str) -> String {
    let mut sections = head.split("--- ");
    let sentence = sections.next().unwrap();
    assert!(
        sentence.trim_end().ends_with('.'),
        "a case begins with the sentence it stands for: {head}"
    );
    let mut sources = Sources::default();
    let mut diagnostics = Vec::new();
    for section in sections {
        let (title, body) = section.split_once('\n').unwrap();
        let bytes = match title.split_once(' ') {
            Some(("file", _)) => body.as_bytes().to_vec(),
            Some(("made", _)) => body.lines().flat_map(made).collect(),
            Some(_) | None => panic!("a section is a file, made or told: {title}"),
        };
        let path = title.split_once(' ').unwrap().1;
        diagnostics.extend(sources.add_bytes(path, bytes).err());
    }
    diagnostics.extend(desired::load(&sources).err().into_iter().flatten());
    diagnostics.iter().map(|diagnostic| block(diagnostic, &sources)).collect()
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

fn block(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let Diagnostic { code, message, at, label, related, hints } = diagnostic;
    let place = at.map(|span| format!(" {}", place_of(span, sources))).unwrap_or_default();
    let mut text = format!("{code}{place} {message}\n");
    if let Some(span) = at {
        writeln!(text, "    {} {label}", underlined(*span, sources)).unwrap();
    }
    for (span, label) in related {
        writeln!(text, "    {} {} {label}", place_of(*span, sources), underlined(*span, sources))
            .unwrap();
    }
    for hint in hints {
        writeln!(text, "    help: {hint}").unwrap();
    }
    text.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

fn place_of(span: Span, sources: &Sources) -> String {
    let (line, column) = sources.line_column(span).unwrap();
    format!("{}:{line}:{column}", sources.get(span.file).unwrap().path)
}

/// How much of a long stretch is shown.
const UNDERLINED_MAX: usize = 60;

fn underlined(span: Span, sources: &Sources) -> String {
    let text = &sources.get(span.file).unwrap().text[span.start..span.end];
    if text.chars().count() <= UNDERLINED_MAX {
        return format!("{text:?}");
    }
    let cut: String = text.chars().take(UNDERLINED_MAX).collect();
    format!("{cut:?}…")
}
