//! What is wrong with a desired file, as data: a code, a phrase, places in the text, next steps.
//!
//! The parsers and the checker make diagnostics; the command line draws them with carets and the
//! hub may show the same ones in a page. Nothing here prints, colours or knows a terminal.

mod mistake_list;

use std::fmt;

pub use mistake_list::{MISTAKES_TOLD_MAX, MistakeList};

/// One thing wrong with the desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of mistake, stable across releases.
    pub code: Code,
    /// A lower-case phrase that reads alone.
    pub message: String,
    /// The offending text; `None` when the mistake is not in a text (a file that is no text).
    pub at: Option<Span>,
    /// What stands under the carets; may be empty.
    pub label: String,
    /// Other places a person must see, such as the first declaration.
    pub related: Vec<(Span, String)>,
    /// What to do next, one sentence each.
    pub hints: Vec<String>,
    /// How many mistakes that are not told it stands for; 0 if it is one itself.
    pub untold: usize,
}

/// How much of the line with a mistake is told.
const LINE_TOLD_MAX: usize = 200;

impl Diagnostic {
    /// `web.toml:4:1: E0201: …`, the line itself with carets under what is meant, and hints. The sources must hold no secret.
    pub fn told(&self, sources: &Sources) -> String {
        let place = self.at.and_then(|span| {
            let (line, column) = sources.line_column(span)?;
            Some((sources.get(span.file)?, line, column))
        });
        let mut lines = vec![match place {
            Some((file, line, column)) => {
                format!("{}:{line}:{column}: {}: {}", file.path, self.code, self.message)
            }
            None => format!("{}: {}", self.code, self.message),
        }];
        if let Some((file, line, column)) = place
            && let Some(shown) = file.text.lines().nth(line.saturating_sub(1))
        {
            let shown: String = shown.chars().take(LINE_TOLD_MAX).collect();
            let length = self.at.map_or(1, |span| span.end.saturating_sub(span.start));
            let carets = carets(&shown, column, length, &self.label);
            lines.extend([format!("  | {shown}"), format!("  | {carets}")]);
        }
        lines.extend(self.hints.iter().map(|hint| format!("  hint: {hint}")));
        lines.join("\n")
    }

    /// A diagnostic without a place; [`Diagnostic::at`] gives it one.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at: None,
            label: String::new(),
            related: Vec::new(),
            hints: Vec::new(),
            untold: 0,
        }
    }

    /// How many mistakes it stands for.
    pub fn stands_for(&self) -> usize {
        self.untold.max(1)
    }

    /// Points at the offending text, with the words under the carets.
    #[must_use]
    pub fn at(mut self, span: Span, label: impl Into<String>) -> Self {
        self.at = Some(span);
        self.label = label.into();
        self
    }

    /// Adds another place to look at.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }

    /// Adds a next step.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hints.push(text.into());
        self
    }

    /// Adds next steps, if there are any.
    #[must_use]
    pub fn hints(mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hints.extend(texts.into_iter().map(Into::into));
        self
    }
}

/// `    ^^^^ label`, under a line. Tabs stay tabs, so that what follows them stands where the line has it.
fn carets(line: &str, column: usize, length: usize, label: &str) -> String {
    let before = column.saturating_sub(1);
    let indent = line.chars().take(before).map(|letter| if letter == '\t' { '\t' } else { ' ' });
    let left = line.chars().count().saturating_sub(before).max(1);
    let marks = "^".repeat(length.clamp(1, left));
    let drawn: String = indent.chain(marks.chars()).collect();
    if label.is_empty() { drawn } else { format!("{drawn} {label}") }
}

/// Puts diagnostics in the order of the files and of the text; those without a place come first, and how many are not told
/// comes last.
pub fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by_key(|diagnostic| {
        (diagnostic.untold > 0, diagnostic.at.map(|span| (span.file, span.start)))
    });
}

/// The kinds of mistake. The spelling of a code never changes and is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The text breaks the rules of its syntax.
    Syntax,
    /// The file is not UTF-8 text.
    Encoding,
    /// The file's extension names no syntax we read.
    Extension,
    /// The file passes a limit on size, depth or count.
    Limit,
    /// The syntax allows it, desired files do not: dates, tags, merge keys, several documents.
    Unsupported,
    /// No such key here.
    UnknownKey,
    /// A list where a number belongs, and the like.
    WrongType,
    /// The right type, but not a value this key takes.
    BadValue,
    /// A key that must be there is not, or stands where it cannot.
    Structure,
    /// The same key or guest twice.
    Duplicate,
    /// Two declarations that cannot both hold.
    Contradiction,
    /// The node's release does not know this key or value.
    Release,
    /// Proxmox lets only root@pam set this key; an API token never can.
    RootOnly,
}

impl Code {
    /// Every code, in printed order.
    pub const ALL: [Self; 13] = [
        Self::Syntax,
        Self::Encoding,
        Self::Extension,
        Self::Limit,
        Self::Unsupported,
        Self::UnknownKey,
        Self::WrongType,
        Self::BadValue,
        Self::Structure,
        Self::Duplicate,
        Self::Contradiction,
        Self::Release,
        Self::RootOnly,
    ];

    /// The printed spelling: E01xx the text, E02xx one value, E03xx several, E04xx the node.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "E0101",
            Self::Encoding => "E0102",
            Self::Extension => "E0103",
            Self::Limit => "E0104",
            Self::Unsupported => "E0105",
            Self::UnknownKey => "E0201",
            Self::WrongType => "E0202",
            Self::BadValue => "E0203",
            Self::Structure => "E0204",
            Self::Duplicate => "E0301",
            Self::Contradiction => "E0302",
            Self::Release => "E0401",
            Self::RootOnly => "E0402",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which file of a [`Sources`] a span lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A stretch of one file's text, in bytes, end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// A span of the file.
    pub fn new(file: FileId, start: usize, end: usize) -> Self {
        Self { file, start, end }
    }
}

/// The largest file we read: a guest takes about 1 KiB, so this is a thousand guests in one file,
/// and small enough that a wrong file given by mistake costs nothing.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// One desired file as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its number among the sources.
    pub id: FileId,
    /// The path as the operator would write it.
    pub path: String,
    /// The text, without a byte order mark.
    pub text: String,
}

impl SourceFile {
    /// A file from text. One leading byte order mark is dropped: Windows editors write it, it means
    /// nothing in UTF-8, and without it columns agree with what an editor shows.
    pub fn new(id: FileId, path: impl Into<String>, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Self { id, path: path.into(), text }
    }

    /// A file from bytes as read; refuses what is too large or not UTF-8.
    pub fn from_bytes(
        id: FileId,
        path: impl Into<String>,
        bytes: Vec<u8>,
    ) -> Result<Self, Diagnostic> {
        let path = path.into();
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Self::too_large(&path, bytes.len()));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(id, path, text)),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                Err(Diagnostic::new(
                    Code::Encoding,
                    format!("`{path}` is not UTF-8 text: byte {offset} starts no character"),
                )
                .hint("save the file as UTF-8"))
            }
        }
    }

    /// The refusal of a file over [`FILE_BYTES_MAX`].
    pub(crate) fn too_large(path: &str, length: usize) -> Diagnostic {
        Diagnostic::new(
            Code::Limit,
            format!("`{path}` is too large: {length} bytes, at most {FILE_BYTES_MAX} are read"),
        )
        .hint("split the guests over several files of the directory")
    }

    /// Line and column of a byte, both from 1; columns count characters. A byte inside a character
    /// or beyond the end counts as the nearest place before it.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }
}

/// The files of one desired state, in the order they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// The id the next file will have.
    pub fn next_id(&self) -> FileId {
        FileId(u32::try_from(self.files.len()).expect("fewer files than 2^32 fit in memory"))
    }

    /// Adds a file of text and gives back its id.
    pub fn add(&mut self, path: impl Into<String>, text: impl Into<String>) -> FileId {
        let id = self.next_id();
        self.files.push(SourceFile::new(id, path, text));
        id
    }

    /// Adds a file of bytes as read.
    pub fn add_bytes(
        &mut self,
        path: impl Into<String>,
        bytes: Vec<u8>,
    ) -> Result<FileId, Diagnostic> {
        let id = self.next_id();
        self.files.push(SourceFile::from_bytes(id, path, bytes)?);
        Ok(id)
    }

    /// The file with this id, if it is one of these.
    pub fn get(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(usize::try_from(id.0).ok()?)
    }

    /// All files, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, SourceFile> {
        self.files.iter()
    }

    /// Where a span starts, as line and column from 1; `None` when its file is not one of these.
    pub fn line_column(&self, span: Span) -> Option<(usize, usize)> {
        Some(self.get(span.file)?.line_column(span.start))
    }
}

impl<'a> IntoIterator for &'a Sources {
    type Item = &'a SourceFile;
    type IntoIter = std::slice::Iter<'a, SourceFile>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Longer words are no slip of the finger, and comparing them would cost their square.
const DID_YOU_MEAN_CHARS_MAX: usize = 40;

#[cfg(test)]
thread_local! {
    /// How many candidates were compared on this thread: the work, without a clock.
    pub(crate) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The candidate a person most likely meant by a word that is none of them: at most a third of
/// its characters wrong, the nearest first, of equals the first given.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(DID_YOU_MEAN_CHARS_MAX + 1).collect();
    if word.len() > DID_YOU_MEAN_CHARS_MAX {
        return None;
    }
    let allowed = (word.len() / 3).max(1);
    let near = candidates.filter_map(|candidate| {
        #[cfg(test)]
        COMPARED.set(COMPARED.get() + 1);
        let letters: Vec<char> = candidate.chars().collect();
        let same_but_case = candidate
            .chars()
            .flat_map(char::to_lowercase)
            .eq(word.iter().flat_map(|letter| letter.to_lowercase()));
        let distance = if same_but_case { 0 } else { edit_distance(&word, &letters) };
        // A word that shares no character with the candidate is another word, however short.
        (distance <= allowed && distance < letters.len().max(word.len()))
            .then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, from_char) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to_char) in to.iter().enumerate() {
            let replaced = last[column] + usize::from(from_char != to_char);
            let mut best = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            let swapped =
                row > 0 && column > 0 && *from_char == to[column - 1] && from[row - 1] == *to_char;
            if swapped {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_code_has_its_own_spelling_and_all_lists_them_in_order() {
        let spellings: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert!(spellings.is_sorted_by(|a, b| a < b), "{spellings:?}");
    }

    #[test]
    fn line_and_column_count_from_one_and_in_characters() {
        let file = SourceFile::new(FileId(0), "a.toml", "äö = 1\r\nb = 2");
        assert_eq!(file.line_column(0), (1, 1));
        assert_eq!(file.line_column("äö ".len()), (1, 4));
        assert_eq!(file.line_column(1), (1, 1), "inside a character");
        assert_eq!(file.line_column(file.text.find('b').unwrap()), (2, 1));
        assert_eq!(file.line_column(usize::MAX), (2, 6));
    }

    #[test]
    fn bytes_become_a_file_or_say_which_byte_is_wrong() {
        let file = SourceFile::from_bytes(FileId(0), "a.toml", b"\xef\xbb\xbfa = 1".to_vec());
        assert_eq!(file.unwrap().text, "a = 1");
        let error = SourceFile::from_bytes(FileId(0), "a.toml", b"ab\xff".to_vec()).unwrap_err();
        assert_eq!(error.code, Code::Encoding);
        assert!(error.message.contains("byte 2"), "{}", error.message);
        let most = vec![b' '; FILE_BYTES_MAX];
        assert!(SourceFile::from_bytes(FileId(0), "a.toml", most.clone()).is_ok());
        let error = SourceFile::from_bytes(FileId(0), "a.toml", [most, vec![b' ']].concat());
        assert_eq!(error.unwrap_err().code, Code::Limit);
    }

    #[test]
    fn a_refused_file_takes_no_id() {
        let mut sources = Sources::default();
        assert!(sources.add_bytes("a.toml", vec![0xff]).is_err());
        let id = sources.add("b.toml", "x");
        assert_eq!(sources.get(id).unwrap().path, "b.toml");
        assert_eq!(sources.line_column(Span::new(id, 1, 1)), Some((1, 2)));
        assert_eq!(sources.line_column(Span::new(FileId(7), 0, 0)), None);
    }

    #[test]
    fn diagnostics_sort_by_file_then_place() {
        let one = |file, start| {
            Diagnostic::new(Code::Syntax, "x").at(Span::new(FileId(file), start, start), "")
        };
        let nowhere = Diagnostic::new(Code::Encoding, "x");
        let mut all = vec![one(1, 0), one(0, 9), nowhere.clone(), one(0, 3)];
        sort(&mut all);
        assert_eq!(all, [nowhere, one(0, 3), one(0, 9), one(1, 0)]);
    }

    #[test]
    fn a_slip_of_the_finger_finds_its_key() {
        let keys = ["cores", "memory", "hostname", "net0", "net1", "tags"];
        for (word, meant) in [
            ("coers", Some("cores")),
            ("core", Some("cores")),
            ("MEMORY", Some("memory")),
            ("hostnmae", Some("hostname")),
            ("net2", Some("net0")),
            ("tag", Some("tags")),
            ("tang", None),
            ("rootfs", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(did_you_mean(word, keys.iter().copied()), meant, "{word}");
        }
        assert_eq!(did_you_mean("x", ["y"].into_iter()), None);
        assert_eq!(did_you_mean(&"c".repeat(1 << 20), keys.iter().copied()), None);
    }

    proptest! {
        #[test]
        fn the_edit_distance_is_symmetric_and_zero_only_for_equals(a in "[ab]{0,6}", b in "[ab]{0,6}") {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            prop_assert_eq!(edit_distance(&x, &y), edit_distance(&y, &x));
            prop_assert_eq!(edit_distance(&x, &y) == 0, a == b);
            prop_assert!(edit_distance(&x, &y) <= x.len().max(y.len()));
        }
    }
}
