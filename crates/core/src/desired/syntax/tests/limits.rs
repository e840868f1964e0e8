//! Texts made to break a reader. A limit that does not hold would end the run: no stack, no
//! memory, or no end.

use std::fmt::Write as _;

use super::{mistake, read};
use crate::desired::tree::{DEPTH_MAX, NODES_MAX, Node, Tree};
use crate::model::thorough;
use crate::words::diagnostic::{
    Code, Diagnostic, FILE_BYTES_MAX, FileId, MISTAKES_TOLD_MAX, SourceFile,
};

fn codes(path: &str, text: &str) -> Vec<Code> {
    read(path, text).expect_err("refused").iter().map(|mistake| mistake.code).collect()
}

#[test]
fn nesting_stops_at_the_same_depth_in_every_syntax() {
    let nest = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (path, before, after) in
        [("a.toml", "x = ", ""), ("a.yaml", "x: ", ""), ("a.json", "{\"x\": ", "}")]
    {
        let text = |levels| format!("{before}{}{after}", nest(levels));
        assert!(read(path, &text(DEPTH_MAX)).is_ok(), "{path}");
        assert_eq!(codes(path, &text(DEPTH_MAX + 1)), [Code::Limit], "{path}");
    }
}

#[test]
fn endless_nesting_is_refused_without_using_the_stack() {
    let deep = 100_000;
    for (path, text) in [
        ("a.toml", format!("x = {}", "[".repeat(deep))),
        ("a.toml", format!("x = {}", "{a=".repeat(deep))),
        ("a.toml", format!("{}a = 1", "a.".repeat(deep))),
        ("a.toml", format!("[{}a]", "a.".repeat(deep))),
        ("a.yaml", "[".repeat(deep)),
        ("a.yaml", "{a: ".repeat(deep)),
        ("a.yaml", "- ".repeat(deep)),
        ("a.yaml", "? ".repeat(deep)),
        ("a.yaml", "? - ".repeat(deep)),
        ("a.yaml", (0..1000).map(|level| " ".repeat(level) + "a:\n").collect()),
        ("a.json", "[".repeat(deep)),
        ("a.json", "{\"a\":".repeat(deep)),
    ] {
        assert!(codes(path, &text).contains(&Code::Limit), "{path} {}", &text[..20]);
    }
}

#[test]
fn more_values_than_the_limit_are_refused_once() {
    let list = |values: usize| format!("[{}]", vec!["1"; values].join(","));
    // The top table and the list count too.
    let most = NODES_MAX - 2;
    for (path, before, after) in
        [("a.toml", "x=", ""), ("a.yaml", "x: ", ""), ("a.json", "{\"x\":", "}")]
    {
        assert!(read(path, &format!("{before}{}{after}", list(most))).is_ok(), "{path}");
        let over = format!("{before}{}{after}", list(most + 1));
        assert_eq!(codes(path, &over), [Code::Limit], "{path}");
    }
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let text = " ".repeat(FILE_BYTES_MAX + 1);
    for path in ["a.toml", "a.yaml", "a.json"] {
        assert_eq!(codes(path, &text), [Code::Limit]);
    }
}

#[test]
fn an_alias_bomb_stops_at_the_limit() {
    for levels in [6, 30] {
        let mut bomb = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
        for level in 1..levels {
            let alias = format!("*a{}", level - 1);
            writeln!(bomb, "a{level}: &a{level} [{}]", vec![alias; 10].join(",")).unwrap();
        }
        assert_eq!(mistake("a.yaml", &bomb).0, Code::Limit);
    }
}

#[test]
fn aliases_repeat_no_more_text_than_a_file_can_hold() {
    // The anchor keeps one copy, so half the limit can be repeated once.
    let text = |aliases| {
        let long = "x".repeat(FILE_BYTES_MAX / 2 - 100);
        format!("a: &a {long}\nb: [{}]\n", vec!["*a"; aliases].join(","))
    };
    assert!(read("a.yaml", &text(1)).is_ok());
    assert_eq!(mistake("a.yaml", &text(2)), (Code::Limit, "*a".to_owned()));
}

#[test]
fn aliases_cannot_build_a_deeper_tree_than_brackets_can() {
    let text = |levels| {
        let mut text = String::from("a0: &a0 x\n");
        for level in 1..=levels {
            writeln!(text, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
        }
        text
    };
    assert!(read("a.yaml", &text(DEPTH_MAX - 1)).is_ok());
    let mistakes = read("a.yaml", &text(DEPTH_MAX)).unwrap_err();
    assert!(mistakes[0].message.starts_with("nested deeper"), "{mistakes:?}");
}

#[test]
fn a_wrong_file_tells_a_bounded_number_of_mistakes() {
    let bytes = if thorough::whole() { FILE_BYTES_MAX } else { FILE_BYTES_MAX / 32 };
    for text in ["a=1\n".repeat(bytes / 4), "]\n".repeat(bytes / 2)] {
        let mistakes = read("a.toml", &text).unwrap_err();
        assert_eq!(mistakes.len(), MISTAKES_TOLD_MAX + 1);
        let all: usize = mistakes.iter().map(Diagnostic::stands_for).sum();
        assert!(all > bytes / 5, "{all}");
    }
    let text = format!("{{{}}}", vec!["\"a\":1"; 50_000].join(","));
    let mistakes = read("a.json", &text).unwrap_err();
    assert_eq!(mistakes.len(), MISTAKES_TOLD_MAX + 1);
    assert_eq!(mistakes.last().unwrap().message, "49899 more mistakes are not told");
}

#[test]
fn a_large_file_of_any_one_character_ends() {
    for letter in "[]{}:,#&*!|>'\"%@ \n\t=a0.~<?-\\\r\u{0}\u{feff}\u{a0}é".chars() {
        let text = letter.to_string().repeat(if thorough::whole() { 200_000 } else { 10_000 });
        for path in ["a.toml", "a.yaml", "a.json"] {
            let _: Result<Node, _> = read(path, &text);
        }
    }
}

#[test]
fn a_thousand_guests_fit_into_one_file() {
    let mut text = String::new();
    for vmid in 100..1100 {
        writeln!(text, "[guest.{vmid}]\nkind = \"lxc\"\ncores = 2\nmemory = \"2GiB\"").unwrap();
        text += "net0 = { name = \"eth0\", bridge = \"vmbr0\", ip = \"dhcp\" }\n";
        text += "tags = [\"prod\", \"web\"]\n";
    }
    let top = super::parse(&SourceFile::new(FileId(0), "a.toml", text)).unwrap();
    let Tree::Table(guests) = &top.entry("guest").unwrap().value.value else { panic!("a table") };
    assert_eq!(guests.len(), 1000);
}
