//! Text of others on its way to a person: the one place that says which letters are shown as they are.
//!
//! Owners of guests, hubs, hosts and files choose texts that end on a terminal. A control character steers it, a mark that
//! turns the direction of writing makes another text of it, and what draws nothing hides. Each of these is written as an
//! escape, `\u{202e}`. Whatever prints asks here; nothing here cuts a text but [`one_line`].

/// Whether a letter acts on a terminal, turns or breaks what is drawn around it, or draws nothing.
pub fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text in one line, whole: every letter that steers is an escape.
pub fn escaped(text: &str) -> String {
    with_escapes(text, steers)
}

/// The same of a text of several lines, whose ends and tabs stay.
pub fn escaped_lines(text: &str) -> String {
    with_escapes(text, |letter| !matches!(letter, '\n' | '\t') && steers(letter))
}

/// The same on at most so many columns; what is cut says so. Never for what is about to be signed.
pub fn one_line(text: &str, columns_max: usize) -> String {
    let mut shown = String::new();
    let mut columns = 0;
    for letter in text.chars() {
        let escape = steers(letter).then(|| letter.escape_unicode().to_string());
        let wide = escape.as_ref().map_or(1, String::len);
        if columns + wide > columns_max {
            // The sign of the cut takes the place of the last letter, or of as much of it as stands there.
            while columns >= columns_max.max(1) {
                shown.pop();
                columns -= 1;
            }
            shown.push('…');
            return shown;
        }
        columns += wide;
        match escape {
            Some(escape) => shown.push_str(&escape),
            None => shown.push(letter),
        }
    }
    shown
}

/// A text as it is put before a person who signs it: whole, in one line, and no two texts look the same by it. Letters and
/// digits of every script stand as they are, of everything else only what ASCII draws; a backslash is doubled, so that an
/// escape is never mistaken for a text that spells one.
pub fn exact(text: &str) -> String {
    let is_plain = |letter: char| {
        letter == ' '
            || letter.is_ascii_graphic()
            || (!letter.is_ascii() && letter.is_alphanumeric() && !steers(letter))
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => shown.push_str("\\\\"),
            letter if is_plain(letter) => shown.push(letter),
            letter => shown.extend(letter.escape_unicode()),
        }
    }
    shown
}

fn with_escapes(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_escaped(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn z21_what_steers_a_terminal_or_turns_a_line_is_shown_as_an_escape() {
        let text = "a\u{1b}[2J\u{9b}b\r\n\t\u{202e}c\u{200b}\u{2066}é\u{feff}\u{7f}";
        let shown =
            "a\\u{1b}[2J\\u{9b}b\\u{d}\\u{a}\\u{9}\\u{202e}c\\u{200b}\\u{2066}é\\u{feff}\\u{7f}";
        assert_eq!(escaped(text), shown);
        assert_eq!(exact(text), shown);
        assert_eq!(escaped_lines("a\n\tb\r\u{1b}"), "a\n\tb\\u{d}\\u{1b}");
    }

    #[test]
    fn z05_what_is_signed_is_shown_whole_and_unlike_every_other_text() {
        let long = "x".repeat(100_000);
        assert_eq!(exact(&long), long);
        assert_eq!(exact("\\u{202e}"), "\\\\u{202e}");
        assert_ne!(exact("\\u{202e}"), exact("\u{202e}"));
        // A blank, a dash and a mark that only look like those of ASCII.
        assert_eq!(exact("a\u{a0}b\u{2010}e\u{301}"), "a\\u{a0}b\\u{2010}e\\u{301}");
    }

    #[test]
    fn a_line_that_is_cut_says_so_and_fits() {
        assert_eq!(one_line("abc", 3), "abc");
        assert_eq!(one_line("abcd", 3), "ab…");
        assert_eq!(one_line("a\u{1b}b", 20), "a\\u{1b}b");
        assert_eq!(one_line("ab\u{202e}c", 6), "ab…");
        assert_eq!(one_line("abcdefghi\u{202e}", 9), "abcdefgh…");
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left_and_no_cut_is_too_wide(text in "\\PC*|[\\x00-\\x{2fff}]*", max in 1_usize..40) {
            for shown in [escaped(&text), exact(&text), one_line(&text, max)] {
                prop_assert!(!shown.chars().any(steers), "{shown:?}");
            }
            prop_assert!(escaped_lines(&text).chars().all(|l| matches!(l, '\n' | '\t') || !steers(l)));
            prop_assert!(one_line(&text, max).chars().count() <= max);
        }
    }
}
