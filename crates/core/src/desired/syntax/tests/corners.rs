//! The corners of each syntax, one rule a test.

use super::{bare, mistake, read};
use crate::desired::tree::Tree;
use crate::words::diagnostic::{Code, Diagnostic, FileId, SourceFile};

const PATHS: [&str; 4] = ["a.toml", "a.yaml", "dir.json/a.yml", "a.json"];

/// How a text is read when it is the value of a key.
fn value(path: &str, text: &str) -> String {
    bare(&read(path, text).unwrap_or_else(|e| panic!("{text}: {e:#?}")).entry("x").unwrap().value)
}

fn two_places(path: &str, text: &str) -> Vec<(String, Option<usize>, usize)> {
    let place = |mistake: Diagnostic| {
        assert_eq!(mistake.code, Code::Duplicate, "{mistake:?}");
        let again = mistake.at.unwrap();
        let first = mistake.related.first().map(|(span, _)| span.start);
        (text[again.start..again.end].to_owned(), first, again.start)
    };
    read(path, text).unwrap_err().into_iter().map(place).collect()
}

#[test]
fn an_empty_file_is_an_empty_table() {
    for path in PATHS {
        for text in ["", " \n", "\u{feff}"] {
            assert_eq!(bare(&read(path, text).unwrap()), "{}", "{path} {text:?}");
        }
    }
    for (path, text) in [("a.toml", "# x"), ("a.yaml", "# x\n"), ("a.yaml", "---\n...\n")] {
        assert_eq!(bare(&read(path, text).unwrap()), "{}", "{path} {text:?}");
    }
}

#[test]
fn a_file_is_read_by_its_extension_alone() {
    for path in ["a", "a.txt", "toml", "a.toml/b", "a.toml.bak", ""] {
        let mistakes = read(path, "").unwrap_err();
        assert_eq!(mistakes[0].code, Code::Extension, "{path}");
        assert!(mistakes[0].hints[0].contains(".toml, .yaml (or .yml) or .json"));
    }
    for (path, text) in [("A.TOML", "x = 1"), ("a.Yml", "x: 1"), ("a.JSON", "{\"x\":1}")] {
        assert!(read(path, text).is_ok(), "{path}");
    }
}

#[test]
fn one_byte_order_mark_is_dropped_and_a_second_refused() {
    for (path, text) in [("a.toml", "x = 1"), ("a.yaml", "x: 1"), ("a.json", "{\"x\":1}")] {
        let marked = format!("\u{feff}{text}");
        assert_eq!(read(path, &marked).unwrap(), read(path, text).unwrap());
        let twice = SourceFile::new(FileId(0), path, format!("\u{feff}{marked}"));
        assert_eq!(super::parse(&twice).unwrap_err()[0].code, Code::Syntax);
    }
}

#[test]
fn the_top_must_be_a_table() {
    for (path, text) in [("a.yaml", "- 1"), ("a.yaml", "null"), ("a.json", "[1]"), ("a.json", "1")]
    {
        assert_eq!(mistake(path, text).0, Code::WrongType, "{text}");
    }
}

#[test]
fn numbers_outside_the_range_are_refused_where_they_stand() {
    for number in ["9223372036854775808", "-9223372036854775809", "1e400", "-1e400"] {
        for (path, text) in [
            ("a.toml", format!("x = {number}")),
            ("a.yaml", format!("x: {number}")),
            ("a.json", format!("{{\"x\": {number}}}")),
        ] {
            assert_eq!(mistake(path, &text), (Code::BadValue, number.to_owned()), "{path}");
        }
    }
    for (path, number) in [("a.toml", "x = nan"), ("a.toml", "x = -inf"), ("a.yaml", "x: -.inf")] {
        assert_eq!(mistake(path, number).0, Code::BadValue, "{number}");
    }
}

#[test]
fn minus_zero_is_zero() {
    for (path, text) in [("a.toml", "x = -0"), ("a.yaml", "x: -0"), ("a.json", "{\"x\": -0}")] {
        assert_eq!(value(path, text), "0", "{path}");
    }
}

#[test]
fn a_repeated_key_is_told_with_both_places() {
    for (path, text, again, first) in [
        ("a.yaml", "a: 1\n'a': 2\n", "'a'", 0),
        ("a.yaml", "x: {101: 1, \"101\": 2}", "\"101\"", 4),
        ("a.json", "{\"a\": 1, \"\\u0061\": 2}", "\"\\u0061\"", 1),
        ("a.toml", "a = 1\n\"a\" = 2\n", "\"a\"", 0),
        ("a.toml", "x = {b = 1, c = {a = 1}, a = 2, \"a\" = 3}", "\"a\"", 25),
        ("a.toml", "[g.1]\na = 1\n[g.2]\na = 1\n[g.1]\nb = 1\n", "1", 3),
        ("a.toml", "[g]\na.b = 1\nc.b = 1\na.b = 2\n", "b", 6),
        ("a.toml", "[[l]]\nk = 1\n[[l]]\nk = 2\nk = 3\n", "k", 18),
    ] {
        let places = two_places(path, text);
        assert_eq!(places.len(), 1, "{text}");
        assert_eq!((places[0].0.as_str(), places[0].1), (again, Some(first)), "{text}");
        assert!(places[0].2 > first);
    }
}

#[test]
fn every_repetition_in_a_toml_file_is_told_against_the_first() {
    let text = "\"\\u00000\" = 0\na = 1\na = 2\nb = 1\nb = 2\na = 3\n";
    let starts: Vec<_> =
        two_places("a.toml", text).into_iter().map(|(_, first, again)| (first, again)).collect();
    assert_eq!(starts, [(Some(14), 20), (Some(26), 32), (Some(14), 38)]);
}

#[test]
fn toml_tells_every_syntax_error_at_once() {
    let text = "a = \nb = 1\nc = 'x\nd = ]\n";
    assert!(read("a.toml", text).unwrap_err().len() >= 3);
}

#[test]
fn toml_has_dates_and_desired_files_do_not() {
    let text = "x = [1, 2020-01-01]";
    assert_eq!(mistake("a.toml", text), (Code::Unsupported, "2020-01-01".to_owned()));
}

#[test]
fn toml_numbers_keep_their_value_in_every_base() {
    for (text, read_as) in
        [("0xff", "255"), ("0o17", "15"), ("0b11", "3"), ("1_000", "1000"), ("+5", "5")]
    {
        assert_eq!(value("a.toml", &format!("x = {text}")), read_as);
    }
}

#[test]
fn a_toml_table_stands_at_its_header() {
    let text = "[guest.101]\ncores = 2\n";
    let top = read("a.toml", text).unwrap();
    let guest = &top.entry("guest").unwrap().value;
    let number = guest.entry("101").unwrap();
    assert_eq!((number.value.span.start, number.value.span.end), (0, "[guest.101]".len()));
    assert_eq!(&text[number.key_span.start..number.key_span.end], "101");
}

#[test]
fn the_top_table_stands_for_the_whole_file() {
    for (path, text) in [("a.toml", "\nx = 1\n"), ("a.yaml", "\nx: 1\n"), ("a.json", " {} ")] {
        let span = read(path, text).unwrap().span;
        assert_eq!((span.start, span.end), (0, text.len()), "{path}");
    }
}

#[test]
fn yaml_takes_plain_words_by_the_core_schema_of_1_2() {
    for (text, read_as) in [
        ("yes", "\"yes\""),
        ("off", "\"off\""),
        ("y", "\"y\""),
        ("true", "true"),
        ("FALSE", "false"),
        ("tRue", "\"tRue\""),
        ("", "null"),
        ("~", "null"),
        ("Null", "null"),
        ("'~'", "\"~\""),
        ("12", "12"),
        ("+12", "12"),
        ("'12'", "\"12\""),
        ("0x1F", "31"),
        ("0o17", "15"),
        ("0b1", "\"0b1\""),
        ("1_000", "\"1_000\""),
        ("12:30:45", "\"12:30:45\""),
        ("2020-01-01", "\"2020-01-01\""),
        ("1.", "1.0f"),
        (".5", "0.5f"),
        ("1e3", "1000.0f"),
        ("1.2.3", "\"1.2.3\""),
        ("e3", "\"e3\""),
        (".", "\".\""),
        ("-", "[\"null\"]"),
        ("0", "0"),
        ("0.5", "0.5f"),
    ] {
        assert_eq!(value("a.yaml", &format!("x:\n  {text}\n")), read_as, "{text}");
    }
    assert_eq!(mistake("a.yaml", "x: 0755"), (Code::BadValue, "0755".to_owned()));
}

#[test]
fn yaml_keys_are_text_whatever_they_look_like() {
    let top = read("a.yaml", "101: a\ntrue: b\n0x10: c\n~: d\n1.0: e\n").unwrap();
    let Tree::Table(entries) = &top.value else { panic!("a table") };
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["101", "true", "0x10", "~", "1.0"]);
}

#[test]
fn yaml_that_readers_take_differently_is_refused_where_it_stands() {
    for (text, code, at) in [
        ("a: 1\n---\nb: 2\n", Code::Unsupported, "---"),
        ("a: !!int 1\n", Code::Unsupported, "!!int"),
        ("a: !vault x\n", Code::Unsupported, "!vault"),
        ("a: !<x> [1]\n", Code::Unsupported, "!<x>"),
        ("!x a: 1\n", Code::Unsupported, "!x"),
        ("%YAML 1.1\n---\na: yes\n", Code::Unsupported, "%"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n  d: 1\n", Code::Unsupported, "<<"),
        ("? [a]\n: 1\n", Code::Unsupported, "["),
        ("&k a: 1\n", Code::Unsupported, "a"),
        ("a: &a b\n*a : 1\n", Code::Unsupported, "*a"),
        ("a: &a [*a]\n", Code::Unsupported, "*a"),
        (": 1\n", Code::Syntax, ""),
        ("a: *b\n", Code::Syntax, "*"),
        ("a: [1\n", Code::Syntax, "["),
        ("a:\n\tb: 1\n", Code::Syntax, "\t"),
    ] {
        let mistakes = read("a.yaml", text).unwrap_err();
        let span = mistakes[0].at.unwrap();
        assert_eq!((mistakes[0].code, &text[span.start..span.end]), (code, at), "{mistakes:?}");
    }
}

#[test]
fn a_yaml_alias_stands_where_it_is_used_and_its_children_where_they_are_defined() {
    let text = "lan: &lan {bridge: vmbr0}\nx: *lan\n";
    let top = read("a.yaml", text).unwrap();
    let node = &top.entry("x").unwrap().value;
    assert_eq!(&text[node.span.start..node.span.end], "*lan");
    let bridge = &node.entry("bridge").unwrap().value;
    assert_eq!(bridge.span.start, text.find("vmbr0").unwrap());
    assert_eq!(bare(node), bare(&top.entry("lan").unwrap().value));
}

#[test]
fn yaml_places_hold_for_every_style() {
    let text = "é: |\r\n  one\r\n  two\r\n\r\nf: >-\n  one\n  two\n\np: one\n  two\nq: 'it''s\n  on'\nl:\n  - {a: [1, 2], b: }\n  - x: y\n    z:\n";
    let top = read("a.yaml", text).unwrap();
    for (key, written) in [
        ("é", "one\r\n  two"),
        ("f", "one\n  two"),
        ("p", "one\n  two"),
        ("q", "'it''s\n  on'"),
        ("l", "- {a: [1, 2], b: }\n  - x: y\n    z"),
    ] {
        let entry = top.entry(key).unwrap();
        assert_eq!(&text[entry.key_span.start..entry.key_span.end], key);
        let span = entry.value.span;
        assert_eq!(&text[span.start..span.end], written);
    }
    let Tree::List(items) = &top.entry("l").unwrap().value.value else { panic!("a list") };
    assert_eq!(&text[items[0].span.start..items[0].span.end], "{a: [1, 2], b: }");
    assert_eq!(&text[items[1].span.start..items[1].span.end], "x: y\n    z");
    assert_eq!(value("a.yaml", "x: |\n  a\n  b\n"), "\"a\\nb\\n\"");
    assert_eq!(value("a.yaml", "x: >-\n  a\n  b\n"), "\"a b\"");
}

#[test]
fn json_knows_nothing_but_json() {
    for text in [
        "{} // x",
        "{/* x */}",
        "{\"a\": 1,}",
        "{\"a\": [1,]}",
        "{\"a\": [1 2]}",
        "{a: 1}",
        "{'a': 1}",
        "{\"a\": 0x1}",
        "{\"a\": +1}",
        "{\"a\": .5}",
        "{\"a\": 01}",
        "{\"a\": NaN}",
        "{\"a\": \"\\x41\"}",
        "{\"a\": \"\\ud800\"}",
        "{\"a\": \"\\udc00\\ud800\"}",
        "{\"a\": \"\n\"}",
        "{\"a\":\u{a0}1}",
        "{} {}",
        "{\"a\"",
        "{\"a\": 1}\u{0c}",
    ] {
        let mistakes = read("a.json", text).expect_err(text);
        assert!(mistakes.iter().all(|mistake| mistake.code == Code::Syntax), "{text}");
    }
}

#[test]
fn json_puts_surrogate_pairs_together() {
    assert_eq!(value("a.json", "{\"x\": \"\\ud83d\\ude00\\u00e9\"}"), "\"😀é\"");
}
