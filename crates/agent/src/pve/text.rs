//! Text of the node, made safe to show: bounded, and by core's rule of what is shown as an escape.
//!
//! Guest owners choose names, and PVE repeats them in error texts; every text that ends in an error
//! passes through here.

use evenkeel_core::words::shown_text;

/// Longer texts add nothing a person reads.
const SHOWN_MAX_CHARS: usize = 2000;

/// `text` trimmed, bounded, and with escapes for what steers a terminal or turns a line.
pub(crate) fn clean(text: &str) -> String {
    let text = text.trim();
    let mut shown: String = text.chars().take(SHOWN_MAX_CHARS).collect();
    if text.chars().nth(SHOWN_MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown_text::escaped_lines(&shown)
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_text_cannot_steer_the_terminal_it_is_shown_on() {
        assert_eq!(clean("  CT\u{1b}[2J is \u{202E}locked\r\n"), "CT\\u{1b}[2J is \\u{202e}locked");
        assert_eq!(clean(&"x".repeat(5000)).chars().count(), 2001);
        assert_eq!(clean("line one\nline two\n"), "line one\nline two");
    }
}
