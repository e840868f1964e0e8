//! Text from outside, made safe to show: one place that strips what could steer a terminal.
//!
//! Guest owners choose names, and PVE repeats them in error texts; every text that ends in an error
//! passes through here.

/// Longer texts add nothing a person reads.
const SHOWN_MAX_CHARS: usize = 2000;

/// `text` trimmed, bounded, and without control or direction-changing characters.
pub(crate) fn clean(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() || is_invisible(c) => '\u{FFFD}',
        c => c,
    };
    let mut shown: String = text.trim().chars().take(SHOWN_MAX_CHARS).map(safe).collect();
    if text.trim().chars().nth(SHOWN_MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Characters that change the order or presence of their neighbours on a screen.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_text_cannot_steer_the_terminal_it_is_shown_on() {
        assert_eq!(clean("  CT\u{1b}[2J is \u{202E}locked\r\n"), "CT\u{FFFD}[2J is \u{FFFD}locked");
        assert_eq!(clean(&"x".repeat(5000)).chars().count(), 2001);
        assert_eq!(clean("line one\nline two\n"), "line one\nline two");
    }
}
