//! YAML 1.2 to tree, with the core schema and nothing a reader could take two ways.
//!
//! Called by [`super::parse`] alone. `yes` and `off` are text, anchors and aliases work within a
//! limit, and merge keys, tags, directives and several documents are refused with a reason: they
//! mean different things to different YAML readers, and an operator's file must mean one thing.

use std::collections::BTreeMap;
use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, StrInput, StructureStyle};

use super::{Growth, Keys};
use crate::desired::tree::{COPIED_TEXT_BYTES_MAX, DEPTH_MAX, Node, Tree, TreeEntry};
use crate::words::diagnostic::{Code, Diagnostic, Span};

pub(super) fn read(growth: &mut Growth) -> Option<Node> {
    let options = granit_parser::options! { disallow_directives: true };
    let events = Parser::new_from_str_with_options(growth.text, options);
    let mut reader = YamlReader { events, growth, anchors: BTreeMap::new(), copied_text_bytes: 0 };
    reader.document().unwrap_or(None)
}

/// Nothing more can be read; why has been told.
struct Stop;

struct YamlReader<'r, 'text> {
    events: Parser<'text, StrInput<'text>>,
    growth: &'r mut Growth<'text>,
    anchors: BTreeMap<usize, Anchored>,
    copied_text_bytes: usize,
}

/// A value an alias may repeat, and what a copy of it costs.
struct Anchored {
    node: Node,
    weight: Weight,
}

#[derive(Default, Clone, Copy)]
struct Weight {
    nodes: usize,
    /// Levels below the value itself.
    levels: usize,
    text_bytes: usize,
}

impl<'text> YamlReader<'_, 'text> {
    /// The one document of the file; a file without one is an empty table.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's enums are open")]
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut top = None;
        let mut documents = 0;
        loop {
            let (event, range) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        let message = "a second document in one file";
                        let hint = "put each document into a file of its own";
                        self.growth.refuse(Code::Unsupported, range, message, hint);
                        return Err(Stop);
                    }
                }
                Event::Scalar(_, ScalarStyle::Plain, ..) if range.is_empty() => {}
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..)
                | Event::Alias(_) => top = Some(self.node(&event, range, 0)?),
                // The others say where the document starts and ends.
                _ => {}
            }
        }
        let empty = Node { span: self.growth.span(0..0), value: Tree::Table(Vec::new()) };
        Ok(top.unwrap_or(Some(empty)))
    }

    fn next(&mut self) -> Result<(Event<'text>, Range<usize>), Stop> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                let range = span.byte_range().expect("text given whole has byte positions");
                if let Some(tag) = event.tag() {
                    let message =
                        format!("tags such as `{}` are not used in desired files", tag.original());
                    let at = span.tag_span().and_then(|span| span.byte_range());
                    let hint = "leave the tag out, and quote a value that is text";
                    self.growth.refuse(
                        Code::Unsupported,
                        at.unwrap_or(range.clone()),
                        message,
                        hint,
                    );
                }
                Ok((event, range))
            }
            Some(Err(error)) => Err(self.refuse(&error)),
            None => Err(self.unfinished()),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's enums are open")]
    fn refuse(&mut self, error: &ScanError) -> Stop {
        let offset = error.marker().byte_offset().unwrap_or(0);
        let at = self.growth.character_at(offset);
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.growth.too_deep(at),
            ErrorKind::DirectiveDisallowed => {
                let message = "directives are not used in desired files";
                self.growth.refuse(Code::Unsupported, at, message, "remove the line");
            }
            kind => match self.indenting_tab(offset) {
                Some(tab) => {
                    let hint = "YAML is indented with blanks alone: replace the tab";
                    self.growth.refuse(Code::Syntax, tab, "a tab indents this line", hint);
                }
                None => self.growth.stumble(at, &kind.to_string()),
            },
        }
        Stop
    }

    /// The first tab before anything else on the line of an offset.
    fn indenting_tab(&self, offset: usize) -> Option<Range<usize>> {
        let text = self.growth.text;
        let start = text[..text.floor_char_boundary(offset)].rfind('\n').map_or(0, |end| end + 1);
        let tab = start + text[start..].find(|c: char| c != ' ')?;
        text[tab..].starts_with('\t').then_some(tab..tab + 1)
    }

    fn unfinished(&mut self) -> Stop {
        let end = self.growth.text.len();
        self.growth.stumble(end..end, "the text ends too early");
        Stop
    }

    /// The value that starts with this event; `None` when it holds a mistake that has been told.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's enums are open")]
    fn node(
        &mut self,
        event: &Event,
        range: Range<usize>,
        depth: usize,
    ) -> Result<Option<Node>, Stop> {
        if !self.growth.admit(range.clone(), depth) {
            return Err(Stop);
        }
        let node = match event {
            Event::Alias(anchor) => return self.alias(*anchor, range, depth),
            Event::Scalar(text, style, ..) => self.scalar(text, *style, range),
            Event::SequenceStart(style, ..) => Some(self.list(*style, range, depth)?),
            Event::MappingStart(style, ..) => Some(self.table(*style, range, depth)?),
            _ => return Err(self.unfinished()),
        };
        if let (Some(anchor), Some(node)) = (event.anchor_id(), &node) {
            self.anchor(anchor, node)?;
        }
        Ok(node)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, range: Range<usize>) -> Option<Node> {
        let (value, range) = match style {
            ScalarStyle::Plain => (self.plain(text, range.clone())?, range),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                (Tree::Text(text.to_owned()), range)
            }
            ScalarStyle::Literal | ScalarStyle::Folded => {
                // The parser counts the blank lines after a block to it; carets need not.
                let written = self.growth.text[range.clone()].trim_end_matches(['\n', '\r']);
                (Tree::Text(text.to_owned()), range.start..range.start + written.len())
            }
        };
        Some(Node { span: self.growth.span(range), value })
    }

    /// A plain scalar by the core schema of YAML 1.2.
    fn plain(&mut self, text: &str, range: Range<usize>) -> Option<Tree> {
        match text {
            _ if range.is_empty() => return Some(Tree::Null),
            "null" | "Null" | "NULL" | "~" => return Some(Tree::Null),
            "true" | "True" | "TRUE" => return Some(Tree::Bool(true)),
            "false" | "False" | "FALSE" => return Some(Tree::Bool(false)),
            _ => {}
        }
        match YamlNumber::of(text) {
            YamlNumber::None => Some(Tree::Text(text.to_owned())),
            YamlNumber::Integer { digits, radix } => self.growth.integer(digits, radix, range),
            YamlNumber::Float => self.growth.float(text, range),
            YamlNumber::NotFinite => self.growth.float("inf", range),
            YamlNumber::LeadingZero => {
                let message = "a number with a leading zero";
                let hint =
                    "old YAML readers take it as octal: quote it if it is text, or drop the zero";
                self.growth.refuse(Code::BadValue, range, message, hint);
                None
            }
        }
    }

    fn list(
        &mut self,
        style: StructureStyle,
        start: Range<usize>,
        depth: usize,
    ) -> Result<Node, Stop> {
        let mut items = Vec::new();
        let mut last = start.end;
        let end = loop {
            let (event, range) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                break range;
            }
            last = last.max(range.end);
            if let Some(item) = self.node(&event, range, depth + 1)? {
                last = last.max(item.span.end);
                items.push(item);
            }
        };
        let span = self.collection_span(style, start, last, &end);
        Ok(Node { span, value: Tree::List(items) })
    }

    fn table(
        &mut self,
        style: StructureStyle,
        start: Range<usize>,
        depth: usize,
    ) -> Result<Node, Stop> {
        let mut keys = Keys::default();
        let mut last = start.end;
        let end = loop {
            let (event, key_range) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break key_range;
            }
            let key = self.key(&event, key_range.clone(), depth + 1)?;
            let key_span = self.growth.span(key_range);
            let new = key.filter(|key| keys.claim(key, key_span, self.growth));
            let (event, range) = self.next()?;
            last = last.max(range.end);
            // A refused key's value is still read, so that its own mistakes are told too.
            let value = self.node(&event, range, depth + 1)?;
            if let (Some(key), Some(value)) = (new, value) {
                last = last.max(value.span.end);
                keys.entries.push(TreeEntry { key, key_span, value });
            }
        };
        let span = self.collection_span(style, start, last, &end);
        Ok(Node { span, value: Tree::Table(keys.entries) })
    }

    /// Block collections have no closing mark: they end where their last child does.
    fn collection_span(
        &self,
        style: StructureStyle,
        start: Range<usize>,
        last: usize,
        end: &Range<usize>,
    ) -> Span {
        let end = match style {
            StructureStyle::Flow if !end.is_empty() => end.end,
            StructureStyle::Flow | StructureStyle::Block => last,
        };
        self.growth.span(start.start..end)
    }

    /// The text of a key. Keys are text in the other syntaxes, so `101:` and `true:` are too.
    fn key(
        &mut self,
        event: &Event,
        range: Range<usize>,
        depth: usize,
    ) -> Result<Option<String>, Stop> {
        if let Event::Scalar(text, style, ..) = event {
            if matches!(style, ScalarStyle::Plain) {
                if range.is_empty() {
                    self.growth.stumble(range, "a value without a key");
                    return Ok(None);
                }
                if text == "<<" {
                    let message = "merge keys are not used in desired files";
                    let hint = "YAML 1.2 has no `<<`: write the keys out, or alias whole values";
                    self.growth.refuse(Code::Unsupported, range, message, hint);
                    return Ok(None);
                }
            }
            if event.anchor_id().is_none() {
                return Ok(Some(text.clone().into_owned()));
            }
        } else {
            // Read past it, so that the rest of the table is checked too.
            self.node(event, range.clone(), depth)?;
        }
        self.growth.refuse(Code::Unsupported, range, "a key must be plain text", "");
        Ok(None)
    }

    fn anchor(&mut self, anchor: usize, node: &Node) -> Result<(), Stop> {
        let mut weight = Weight::default();
        weigh(node, 0, &mut weight);
        let range = node.span.start..node.span.end;
        self.copy_costs(weight, range)?;
        self.anchors.insert(anchor, Anchored { node: node.clone(), weight });
        Ok(())
    }

    fn alias(
        &mut self,
        anchor: usize,
        range: Range<usize>,
        depth: usize,
    ) -> Result<Option<Node>, Stop> {
        let Some(Anchored { weight, .. }) = self.anchors.get(&anchor) else {
            let message = "this alias stands for a value that contains it, or one that is refused";
            self.growth.refuse(Code::Unsupported, range, message, "write the value out");
            return Ok(None);
        };
        let weight = *weight;
        if depth + weight.levels > DEPTH_MAX {
            self.growth.too_deep(range);
            return Err(Stop);
        }
        self.copy_costs(weight, range.clone())?;
        let span = self.growth.span(range);
        let value = self.anchors[&anchor].node.value.clone();
        Ok(Some(Node { span, value }))
    }

    /// Counts a copy against the limits before it is made.
    fn copy_costs(&mut self, weight: Weight, range: Range<usize>) -> Result<(), Stop> {
        self.growth.nodes = self.growth.nodes.saturating_add(weight.nodes - 1);
        self.copied_text_bytes = self.copied_text_bytes.saturating_add(weight.text_bytes);
        if self.copied_text_bytes > COPIED_TEXT_BYTES_MAX {
            let message = format!("aliases repeat more than {COPIED_TEXT_BYTES_MAX} bytes of text");
            self.growth.mistake(
                Diagnostic::new(Code::Limit, message)
                    .at(self.growth.span(range), "")
                    .hint("split the guests over several files of the directory"),
            );
            return Err(Stop);
        }
        if self.growth.admit(range, 0) { Ok(()) } else { Err(Stop) }
    }
}

fn weigh(node: &Node, level: usize, weight: &mut Weight) {
    weight.nodes += 1;
    weight.levels = weight.levels.max(level);
    match &node.value {
        Tree::Null | Tree::Bool(_) | Tree::Integer(_) | Tree::Float(_) => {}
        Tree::Text(text) => weight.text_bytes += text.len(),
        Tree::List(items) => items.iter().for_each(|item| weigh(item, level + 1, weight)),
        Tree::Table(entries) => {
            for entry in entries {
                weight.text_bytes += entry.key.len();
                weigh(&entry.value, level + 1, weight);
            }
        }
    }
}

/// What a plain scalar is when it looks like a number.
#[derive(Debug, PartialEq, Eq)]
enum YamlNumber<'text> {
    None,
    Integer { digits: &'text str, radix: u32 },
    Float,
    NotFinite,
    LeadingZero,
}

impl<'text> YamlNumber<'text> {
    fn of(text: &'text str) -> Self {
        for (prefix, radix) in [("0x", 16), ("0o", 8)] {
            if let Some(digits) = text.strip_prefix(prefix)
                && !digits.is_empty()
                && digits.chars().all(|digit| digit.is_digit(radix))
            {
                return Self::Integer { digits, radix };
            }
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let not_finite = matches!(unsigned, ".inf" | ".Inf" | ".INF")
            || matches!(text, ".nan" | ".NaN" | ".NAN");
        if not_finite {
            return Self::NotFinite;
        }
        if is_digits(unsigned) {
            return match unsigned.strip_prefix('0') {
                Some(rest) if !rest.is_empty() => Self::LeadingZero,
                Some(_) | None => Self::Integer { digits: text, radix: 10 },
            };
        }
        if is_float(unsigned) { Self::Float } else { Self::None }
    }
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?` of the core schema.
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| is_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && (fraction.is_empty() || is_digits(fraction)),
        None => is_digits(mantissa),
    };
    exponent_fits && mantissa_fits
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
