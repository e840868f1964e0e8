//! Diagnostics with the source line and carets, as rustc draws them.
//!
//! `validate`, `plan` and `apply` call it on a desired state with mistakes. What it draws depends
//! on its arguments alone. It must never hand a file's control characters to the terminal: a file
//! from a stranger could otherwise move the cursor, hide an error or set the clipboard.

use std::borrow::Cow;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use evenkeel_core::words::diagnostic::{Diagnostic, SourceFile, Sources, Span};
use evenkeel_core::words::shown_text;

/// Draws the diagnostics in the given order, a blank line between them, a newline at the end. With colour:
/// the stream it is printed to drops that where it does not belong.
pub(crate) fn render(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    draw(diagnostics, sources, &Renderer::styled())
}

fn draw(diagnostics: &[Diagnostic], sources: &Sources, renderer: &Renderer) -> String {
    let renderer = renderer.clone().decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for diagnostic in diagnostics {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&renderer.render(&[group(diagnostic, sources)]));
        out.push('\n');
    }
    out
}

fn group(diagnostic: &Diagnostic, sources: &Sources) -> Group<'static> {
    let title = wrapped(&shown(&diagnostic.message), TITLE_INDENT);
    let title = Level::ERROR.primary_title(title).id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    for excerpt in excerpts(diagnostic, sources) {
        group = excerpt.draw(group);
    }
    let help = |hint: &String| Level::HELP.message(wrapped(&shown(hint), HELP_INDENT));
    group.elements(diagnostic.hints.iter().map(help))
}

/// What people's terminals have at least.
const WIDTH: usize = 80;

/// What stands before a message: `error[E0203]: `.
const TITLE_INDENT: usize = 14;

/// What stands before a next step: `  = help: `, and as many more columns as line numbers of three digits take.
const HELP_INDENT: usize = 12;

/// A text in lines of what a terminal has left of an indentation; what belongs together stays so.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = indent;
    for piece in pieces(text, WIDTH - indent) {
        let length = piece.chars().count();
        if out.is_empty() {
            column += length;
        } else if column + 1 + length > WIDTH {
            out.push('\n');
            column = indent + length;
        } else {
            out.push(' ');
            column += 1 + length;
        }
        out.push_str(&piece);
    }
    out
}

/// The words of a text, but `key = value` and what is between braces as one, if it fits in a line.
fn pieces(text: &str, line: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let joins = |last: &String| {
            let depth = last.matches('{').count().saturating_sub(last.matches('}').count());
            let assigns = word == "=" || last.ends_with(" =");
            (depth > 0 || assigns) && last.chars().count() + 1 + word.chars().count() <= line
        };
        match pieces.last_mut() {
            Some(last) if joins(last) => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// How much of a file is drawn at once. Drawing costs in proportion, and a line longer than this
/// was written by a machine: its place is told, not shown.
const EXCERPT_BYTES_MAX: usize = 16 * 1024;

/// Neighbouring lines of one file, with what a diagnostic points at.
struct Excerpt<'a> {
    file: &'a SourceFile,
    lines: Range<usize>,
    marks: Vec<CaretMark<'a>>,
}

struct CaretMark<'a> {
    kind: AnnotationKind,
    range: Range<usize>,
    label: &'a str,
}

/// The excerpts of a diagnostic, that of the mistake itself first.
fn excerpts<'a>(diagnostic: &'a Diagnostic, sources: &'a Sources) -> Vec<Excerpt<'a>> {
    let primary = diagnostic.at.map(|span| (AnnotationKind::Primary, span, &diagnostic.label));
    let related = diagnostic.related.iter();
    let related = related.map(|(span, text)| (AnnotationKind::Context, *span, text));
    let mut excerpts: Vec<Excerpt> = Vec::new();
    for (kind, span, label) in primary.into_iter().chain(related) {
        let Some(file) = sources.get(span.file) else { continue };
        let range = first_line_of(span, file);
        let lines = whole_lines(&range, file);
        let mark = CaretMark { kind, range, label };
        match excerpts.iter_mut().find(|excerpt| excerpt.is_near(file, &lines)) {
            Some(excerpt) => {
                excerpt.lines = joined(&excerpt.lines, &lines);
                excerpt.marks.push(mark);
            }
            None => excerpts.push(Excerpt { file, lines, marks: vec![mark] }),
        }
    }
    excerpts
}

/// A span cut to its first line: a block of forty lines is found by where it starts.
fn first_line_of(span: Span, file: &SourceFile) -> Range<usize> {
    let start = file.text.floor_char_boundary(span.start);
    let end = file.text.floor_char_boundary(span.end).max(start);
    let line = file.text[start..end].lines().next().unwrap_or_default();
    start..start + line.len()
}

fn whole_lines(range: &Range<usize>, file: &SourceFile) -> Range<usize> {
    let text = &file.text;
    let start = text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[range.end..].find('\n').map_or(text.len(), |newline| range.end + newline);
    start..end
}

fn joined(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.min(other.start)..one.end.max(other.end)
}

impl Excerpt<'_> {
    fn is_near(&self, file: &SourceFile, lines: &Range<usize>) -> bool {
        self.file.id == file.id && joined(&self.lines, lines).len() <= EXCERPT_BYTES_MAX
    }

    fn draw(&self, group: Group<'static>) -> Group<'static> {
        let path = shown(&self.file.path);
        if self.lines.len() > EXCERPT_BYTES_MAX {
            return self.marks.iter().fold(group, |group, mark| {
                let (line, column) = self.file.line_column(mark.range.start);
                let place = Origin::path(path.clone()).line(line).char_column(column);
                let note = (!mark.label.is_empty()).then(|| Level::NOTE.message(shown(mark.label)));
                group.element(place).elements(note)
            });
        }
        let text = &self.file.text;
        let start = self.lines.start;
        let annotations = self.marks.iter().map(|mark| {
            // Shown text can be longer or shorter than the source, so places move with it.
            let from = source(&text[start..mark.range.start]).len();
            let to = from + source(&text[mark.range.clone()]).len();
            let label = (!mark.label.is_empty()).then(|| shown(mark.label));
            mark.kind.span(from..to).label(label)
        });
        group.element(
            Snippet::source(source(&text[self.lines.clone()]))
                .path(path)
                .line_start(self.file.line_column(start).0)
                .annotations(annotations),
        )
    }
}

/// Source text without characters a terminal acts on; lines and tabs stay.
fn source(text: &str) -> String {
    shown_text::escaped_lines(&text.replace('\r', ""))
}

/// One line without characters a terminal acts on.
fn shown(text: &str) -> Cow<'static, str> {
    shown_text::escaped(text).into()
}

#[cfg(test)]
mod tests {
    use evenkeel_core::desired::syntax;
    use evenkeel_core::words::diagnostic::{Code, FileId};

    use super::*;

    fn span(sources: &Sources, file: FileId, text: &str) -> Span {
        let start = sources.get(file).unwrap().text.find(text).unwrap();
        Span::new(file, start, start + text.len())
    }

    fn mistakes(path: &str, text: &str) -> String {
        let mut sources = Sources::default();
        let id = sources.add(path, text);
        let mistakes = syntax::parse(sources.get(id).unwrap()).unwrap_err();
        draw(&mistakes, &sources, &Renderer::plain())
    }

    #[test]
    fn a_mistake_is_drawn_with_its_line_its_words_and_the_next_step() {
        let mut sources = Sources::default();
        let web = sources.add("web.toml", "[guest.101]\nkind = \"lxc\"\n\tcoers = 2\n");
        let unknown = Diagnostic::new(Code::UnknownKey, "unknown key `coers`")
            .at(span(&sources, web, "coers"), "not a key of a container")
            .hint("did you mean `cores`?");
        insta::assert_snapshot!(draw(&[unknown], &sources, &Renderer::plain()), @r#"
        error[E0201]: unknown key `coers`
         --> web.toml:3:2
          |
        3 |     coers = 2
          |     ^^^^^ not a key of a container
          |
          = help: did you mean `cores`?
        "#);
    }

    #[test]
    fn long_texts_are_wrapped_and_what_belongs_together_stays_so() {
        let text = "write rootfs = { storage = \"x\", size = \"8GiB\" } for the root volume";
        let lines = "write\nrootfs = { storage = \"x\", size = \"8GiB\" } for\nthe root volume";
        assert_eq!(wrapped(text, WIDTH - 46), lines);
        let whole = "a".repeat(200);
        assert_eq!(wrapped(&whole, 20), whole, "a word is never cut");
        assert_eq!(wrapped("", 20), "");
    }

    #[test]
    fn places_in_two_files_are_both_drawn() {
        let mut sources = Sources::default();
        let a = sources.add("a.yaml", "guest:\n  101:\n    kind: lxc\n");
        let b = sources.add("b.toml", "# é\n[guest.101]\n");
        let twice = Diagnostic::new(Code::Duplicate, "lxc/101 is declared twice")
            .at(span(&sources, b, "101"), "declared again here")
            .related(span(&sources, a, "101"), "first declared here");
        let nowhere =
            Diagnostic::new(Code::Encoding, "`c.toml` is not UTF-8 text").hint("save it so");
        insta::assert_snapshot!(draw(&[twice, nowhere], &sources, &Renderer::plain()), @r#"
        error[E0301]: lxc/101 is declared twice
         --> b.toml:2:8
          |
        2 | [guest.101]
          |        ^^^ declared again here
          |
         ::: a.yaml:2:3
          |
        2 |   101:
          |   --- first declared here

        error[E0102]: `c.toml` is not UTF-8 text
         |
         = help: save it so
        "#);
    }

    #[test]
    fn a_parsers_mistakes_are_drawn_as_they_come() {
        insta::assert_snapshot!(mistakes("a.toml", "a = 1\nb = ]\n\n\n\n\na = 2020-01-01\na = 2\n"), @r#"
        error[E0101]: missing array opening, expected `[`
         --> a.toml:2:5
          |
        2 | b = ]
          |     ^
          |
          = help: a list begins with [ and ends with ]

        error[E0301]: the key `a` stands twice
         --> a.toml:7:1
          |
        1 | a = 1
          | - first declared here
        ...
        7 | a = 2020-01-01
          | ^ declared again here
          |
          = help: keep one of the two

        error[E0301]: the key `a` stands twice
         --> a.toml:8:1
          |
        1 | a = 1
          | - first declared here
        ...
        8 | a = 2
          | ^ declared again here
          |
          = help: keep one of the two
        "#);
        insta::assert_snapshot!(mistakes("a.yaml", "a: [1,\nb: 2\n"), @r#"
        error[E0101]: unclosed bracket '['
         --> a.yaml:1:4
          |
        1 | a: [1,
          |    ^
          |
          = help: close the bracket
        "#);
        insta::assert_snapshot!(mistakes("a.json", "{\"größe\": 1, \"größe\": 2}"), @r#"
        error[E0301]: the key `größe` stands twice
         --> a.json:1:14
          |
        1 | {"größe": 1, "größe": 2}
          |  -------     ^^^^^^^ declared again here
          |  |
          |  first declared here
          |
          = help: keep one of the two
        "#);
        insta::assert_snapshot!(mistakes("a.json", "{\"a\": 1"), @r#"
        error[E0101]: unterminated object
         --> a.json:1:1
          |
        1 | {"a": 1
          | ^^^^^^^
          |
          = help: close every quote, bracket and brace
        "#);
    }

    #[test]
    fn a_span_of_many_lines_is_drawn_by_its_first() {
        let mut sources = Sources::default();
        let id = sources.add("a.yaml", "a:\r\n  b: 1\r\n  c: 2\r\nd: 1\r\n");
        let block = Diagnostic::new(Code::WrongType, "`a` must be text")
            .at(Span::new(id, 6, 20), "this is a table");
        insta::assert_snapshot!(draw(&[block], &sources, &Renderer::plain()), @r#"
        error[E0202]: `a` must be text
         --> a.yaml:2:3
          |
        2 |   b: 1
          |   ^^^^ this is a table
        "#);
    }

    #[test]
    fn a_file_cannot_reach_the_terminal() {
        let evil = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{85}\u{2028}\r\u{8}\u{7f}\u{200b}";
        let mut sources = Sources::default();
        let id = sources.add(format!("{evil}.toml"), format!("{evil} = 1\n"));
        let mistake = Diagnostic::new(Code::UnknownKey, format!("unknown key `{evil}\n`"))
            .at(span(&sources, id, "= 1"), evil)
            .related(Span::new(id, 0, 3), evil)
            .hint(evil);
        let drawn = draw(&[mistake], &sources, &Renderer::plain());
        let acts = |letter: char| letter != '\n' && shown_text::steers(letter);
        assert!(!drawn.contains(acts), "{drawn:?}");
        assert!(drawn.contains("= 1"), "{drawn}");
    }

    #[test]
    fn colour_changes_no_word() {
        let mut sources = Sources::default();
        let id = sources.add("a.toml", "x = 1\n");
        let mistake = Diagnostic::new(Code::UnknownKey, "unknown key `x`")
            .at(span(&sources, id, "x"), "here")
            .hint("remove it");
        let styled = draw(std::slice::from_ref(&mistake), &sources, &Renderer::styled());
        assert!(styled.contains("\u{1b}["), "{styled:?}");
        let mut words = String::new();
        let mut rest = styled.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            words.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        words.push_str(rest);
        assert_eq!(words, draw(&[mistake], &sources, &Renderer::plain()));
    }

    #[test]
    fn a_mistake_on_a_line_too_long_to_draw_is_told_by_its_place() {
        let text = format!("{{\"a\": 1, \"b\": \"{}\", \"a\": 2}}", "x".repeat(20_000));
        insta::assert_snapshot!(mistakes("a.json", &text), @r#"
        error[E0301]: the key `a` stands twice
        --> a.json:1:20019
         = note: declared again here
        ::: a.json:1:2
         = note: first declared here
         = help: keep one of the two
        "#);
    }

    #[test]
    fn places_far_apart_are_drawn_without_what_lies_between() {
        let text = format!("a = 1\n{}a = 2\n", "# x\n".repeat(10_000));
        insta::assert_snapshot!(mistakes("a.toml", &text), @r#"
        error[E0301]: the key `a` stands twice
             --> a.toml:10002:1
              |
        10002 | a = 2
              | ^ declared again here
              |
             ::: a.toml:1:1
              |
            1 | a = 1
              | - first declared here
              |
              = help: keep one of the two
        "#);
    }

    #[test]
    fn a_span_of_another_file_set_is_left_out_not_followed() {
        let stray = Diagnostic::new(Code::Syntax, "x").at(Span::new(FileId(9), 5, 7), "y");
        let drawn = draw(&[stray], &Sources::default(), &Renderer::plain());
        assert_eq!(drawn.trim_end(), "error[E0101]: x");
    }

    #[test]
    fn a_span_beyond_the_text_is_drawn_at_its_end() {
        let mut sources = Sources::default();
        let id = sources.add("a.toml", "é");
        let end = Diagnostic::new(Code::Syntax, "x").at(Span::new(id, 1, 99), "y");
        assert!(draw(&[end], &sources, &Renderer::plain()).contains("a.toml:1:1"));
        let end = Diagnostic::new(Code::Syntax, "x").at(Span::new(id, 98, 99), "y");
        assert!(draw(&[end], &sources, &Renderer::plain()).contains("a.toml:1:2"));
    }
}
