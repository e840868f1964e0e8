//! What differs between the files of two documents, line by line, as people review it.
//!
//! It compares texts and knows nothing of guests: two documents that cannot be read any more can still be compared. Its cost is
//! bounded in time, and what it hands out in lines and bytes, whatever was pushed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_core::fleet::WireFile;
use similar::{ChangeTag, TextDiff};

use crate::people::document_check::beside;
use crate::problem::Problem;

/// Lines that did not change and are shown around those that did.
const CONTEXT_LINES: usize = 3;
/// How long the files of a page may be compared. What is left then counts as replaced, which is true and coarse.
const COMPARE_TIME_MAX: Duration = Duration::from_millis(300);
/// Lines of both texts up to which a file is compared exactly, however late it is: that costs next to nothing.
const EXACT_LINES_MAX: usize = 400;
/// The most lines of a page with every file, and of one with a single file.
const LINES_SHOWN_MAX: usize = 400;
const LINES_OF_ONE_FILE_MAX: usize = 5_000;
/// The most bytes of text of a page with every file: with its marks it stays within what a page may weigh.
const BYTES_SHOWN_MAX: usize = 24 * 1024;
const BYTES_OF_ONE_FILE_MAX: usize = 1024 * 1024;
/// The longest piece of a line that is shown.
const LINE_CHARS_MAX: usize = 500;

/// What became of a file or a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextChange {
    Same,
    Added,
    Removed,
}

/// One line of a file, with its number before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiffLine {
    pub(super) change: TextChange,
    pub(super) before: Option<usize>,
    pub(super) after: Option<usize>,
    pub(super) text: String,
}

impl DiffLine {
    /// A class of the style sheet.
    pub(super) fn tone(&self) -> &'static str {
        match self.change {
            TextChange::Same => "same",
            TextChange::Added => "added",
            TextChange::Removed => "removed",
        }
    }

    /// What stands before the line, so that colour never says it alone.
    pub(super) fn sign(&self) -> &'static str {
        match self.change {
            TextChange::Same => "",
            TextChange::Added => "+",
            TextChange::Removed => "−",
        }
    }
}

/// Lines that changed, with those around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiffHunk {
    /// Where it stands: `lines 3–7, now 3–9`.
    pub(super) place: String,
    pub(super) lines: Vec<DiffLine>,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileDiff {
    pub(super) name: String,
    /// `Same` for a file that both have.
    pub(super) change: TextChange,
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) hunks: Vec<DiffHunk>,
    /// Lines that are not shown.
    pub(super) left_out: usize,
}

impl FileDiff {
    /// Whether only one of the documents has the file.
    pub(super) fn is_added(&self) -> bool {
        self.change == TextChange::Added
    }

    /// See [`FileDiff::is_added`].
    pub(super) fn is_removed(&self) -> bool {
        self.change == TextChange::Removed
    }
}

/// Every file that differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LineDiff {
    pub(super) files: Vec<FileDiff>,
    /// The page that shows one file whole, up to the name of the file; empty where there is none.
    pub(super) more: String,
}

impl LineDiff {
    /// The same with a page that shows more of a file.
    pub(super) fn with_more(mut self, more: String) -> Self {
        self.more = more;
        self
    }

    /// The address that shows more of a file.
    pub(super) fn more_of(&self, name: &str) -> String {
        format!("{}{}", self.more, super::words::in_path(name))
    }
}

/// Compares files; `only` one of them where somebody asks for it.
pub(super) async fn line_diff(
    before: Vec<WireFile>,
    after: Vec<WireFile>,
    only: Option<String>,
) -> Result<LineDiff, Problem> {
    beside(move || compare(&before, &after, only.as_deref())).await
}

/// What may still be shown and how long may still be compared.
struct ShownBudget {
    lines: usize,
    bytes: usize,
    deadline: Instant,
}

fn compare(before: &[WireFile], after: &[WireFile], only: Option<&str>) -> LineDiff {
    let (lines, bytes) = match only {
        None => (LINES_SHOWN_MAX, BYTES_SHOWN_MAX),
        Some(_) => (LINES_OF_ONE_FILE_MAX, BYTES_OF_ONE_FILE_MAX),
    };
    let mut budget = ShownBudget { lines, bytes, deadline: Instant::now() + COMPARE_TIME_MAX };
    let names: BTreeSet<&str> = before.iter().chain(after).map(|file| &*file.name).collect();
    let mut files = Vec::new();
    for name in names.into_iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let old = text_in(before, name);
        let new = text_in(after, name);
        if old != new {
            files.push(file_diff(name, old, new, &mut budget));
        }
    }
    LineDiff { files, more: String::new() }
}

fn text_in<'f>(files: &'f [WireFile], name: &str) -> Option<&'f str> {
    files.iter().find(|file| file.name == name).map(|file| file.text.as_str())
}

/// Lines end as the reader of documents ends them, so that numbers are those of its messages.
fn lines_of(text: Option<&str>) -> Vec<&str> {
    text.unwrap_or_default().split_inclusive('\n').collect()
}

fn file_diff(
    name: &str,
    old: Option<&str>,
    new: Option<&str>,
    budget: &mut ShownBudget,
) -> FileDiff {
    let old_lines = lines_of(old);
    let new_lines = lines_of(new);
    let mut config = TextDiff::configure();
    if old_lines.len() + new_lines.len() > EXACT_LINES_MAX {
        config.deadline(budget.deadline);
    }
    let diff = config.diff_slices(&old_lines, &new_lines);
    let mut file = FileDiff {
        name: name.to_owned(),
        change: match (old, new) {
            (None, _) => TextChange::Added,
            (_, None) => TextChange::Removed,
            (Some(_), Some(_)) => TextChange::Same,
        },
        added: 0,
        removed: 0,
        hunks: Vec::new(),
        left_out: 0,
    };
    for group in diff.grouped_ops(CONTEXT_LINES) {
        let mut hunk = DiffHunk { place: String::new(), lines: Vec::new() };
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let kind = match change.tag() {
                ChangeTag::Equal => TextChange::Same,
                ChangeTag::Delete => TextChange::Removed,
                ChangeTag::Insert => TextChange::Added,
            };
            match kind {
                TextChange::Same => {}
                TextChange::Added => file.added += 1,
                TextChange::Removed => file.removed += 1,
            }
            if !budget.takes(change.value()) {
                file.left_out += 1;
                continue;
            }
            hunk.lines.push(DiffLine {
                change: kind,
                before: change.old_index().map(|index| index + 1),
                after: change.new_index().map(|index| index + 1),
                text: shown_line(change.value()),
            });
        }
        if !hunk.lines.is_empty() {
            hunk.place = place(&hunk.lines);
            file.hunks.push(hunk);
        }
    }
    file
}

impl ShownBudget {
    /// Whether a line may still be shown. Once one may not, none after it may.
    fn takes(&mut self, line: &str) -> bool {
        let bytes = line.len().min(4 * LINE_CHARS_MAX);
        if self.lines == 0 || self.bytes < bytes {
            self.lines = 0;
            return false;
        }
        self.lines -= 1;
        self.bytes -= bytes;
        true
    }
}

/// Where a hunk stands, by the numbers of its lines.
fn place(lines: &[DiffLine]) -> String {
    let span = |number: fn(&DiffLine) -> Option<usize>| {
        let mut numbers = lines.iter().filter_map(number);
        let first = numbers.next()?;
        let last = numbers.next_back().unwrap_or(first);
        Some(if first == last { format!("{first}") } else { format!("{first}–{last}") })
    };
    match (span(|line| line.before), span(|line| line.after)) {
        (Some(before), Some(after)) if before == after => format!("lines {after}"),
        (Some(before), Some(after)) => format!("lines {before}, now {after}"),
        (Some(before), None) => format!("lines {before}, now gone"),
        (None, Some(after)) => format!("lines {after}, new"),
        (None, None) => String::new(),
    }
}

/// A line as it is shown: what cannot be seen, or turns around what follows, is spelled out.
fn shown_line(line: &str) -> String {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, ""),
        None => (line, " (no line end)"),
    };
    let mut shown = String::new();
    for (number, letter) in text.chars().enumerate() {
        if number == LINE_CHARS_MAX {
            shown.push_str(" … (the line is longer)");
            return shown;
        }
        let is_hidden = letter.is_control() && letter != '\t'
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if is_hidden {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown + end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> WireFile {
        WireFile { name: name.to_owned(), text: text.to_owned() }
    }

    /// `-3 old`, `+3 new`, `3=4 same`.
    fn told(diff: &FileDiff) -> Vec<String> {
        let line = |line: &DiffLine| match (line.before, line.after) {
            (Some(before), Some(after)) => format!("{before}={after} {}", line.text),
            (Some(before), None) => format!("-{before} {}", line.text),
            (None, Some(after)) => format!("+{after} {}", line.text),
            (None, None) => unreachable!("a line stands somewhere"),
        };
        diff.hunks.iter().flat_map(|hunk| hunk.lines.iter().map(line)).collect()
    }

    #[test]
    fn lines_are_numbered_on_both_sides_and_shown_with_those_around_them() {
        let old: Vec<String> = (1..=20).map(|number| format!("line {number}\n")).collect();
        let old = old.concat();
        let new = old.replace("line 2\n", "line two\nand more\n").replace("line 19\n", "");
        let diff = compare(&[file("a.toml", &old)], &[file("a.toml", &new)], None);
        let [changed] = diff.files.as_slice() else { panic!("{diff:?}") };
        assert_eq!((changed.added, changed.removed, changed.left_out), (2, 2, 0));
        assert_eq!(
            told(changed),
            [
                "1=1 line 1",
                "-2 line 2",
                "+2 line two",
                "+3 and more",
                "3=4 line 3",
                "4=5 line 4",
                "5=6 line 5",
                "16=17 line 16",
                "17=18 line 17",
                "18=19 line 18",
                "-19 line 19",
                "20=20 line 20",
            ]
        );
        let places: Vec<&str> = changed.hunks.iter().map(|hunk| &*hunk.place).collect();
        assert_eq!(places, ["lines 1–5, now 1–6", "lines 16–20, now 17–20"]);
    }

    #[test]
    fn files_that_came_and_went_are_told_and_equal_ones_are_not() {
        let before = [file("a.toml", "a\n"), file("b.toml", "b\n")];
        let after = [file("b.toml", "b\n"), file("c.toml", "c")];
        let diff = compare(&before, &after, None);
        let names: Vec<_> = diff.files.iter().map(|file| (&*file.name, file.change)).collect();
        assert_eq!(names, [("a.toml", TextChange::Removed), ("c.toml", TextChange::Added)]);
        assert_eq!(told(&diff.files[1]), ["+1 c (no line end)"]);
        let one = compare(&before, &after, Some("a.toml"));
        assert_eq!(one.files.len(), 1);
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        let old = file("a.toml", "x = 1\n");
        let diff = compare(&[old], &[file("a.toml", "x = 1\r\n\u{202e}y\tz\n")], None);
        let told = told(&diff.files[0]);
        assert_eq!(told, ["-1 x = 1", "+1 x = 1\\u{d}", "+2 \\u{202e}y\tz"]);
    }

    #[test]
    fn huge_files_cost_a_bounded_time_and_page() {
        let text = |seed: usize| -> String {
            let line = |line: usize| format!("{}\n", (line * 7919 + seed) % 100_003);
            (0..120_000).map(line).collect::<Vec<_>>().concat()
        };
        let old = file("a.toml", &text(1));
        let new = file("a.toml", &text(50_000));
        // Without the deadline this would go on for minutes.
        let diff = compare(&[old], &[new], None);
        let shown: usize = diff.files[0].hunks.iter().map(|hunk| hunk.lines.len()).sum();
        assert_eq!(shown, LINES_SHOWN_MAX);
        assert!(diff.files[0].left_out > 1_000, "{}", diff.files[0].left_out);
        let long = compare(&[], &[file("a.toml", &"x".repeat(100_000))], None);
        assert!(told(&long.files[0])[0].len() < 600);
    }
}
