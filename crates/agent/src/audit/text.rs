//! Texts that others chose, made safe to show: guest names, descriptions, task errors, a hub's words.

/// The longest text of one field that is shown; more would hide the next line from a reader.
const SHOWN_CHARACTERS_MAX: usize = 256;

/// The text on one line, without anything a terminal or a reader's eye could be fooled by: control characters,
/// line ends and marks that turn or hide text are spelled out, and it is cut where it gets long.
pub(super) fn shown(text: &str) -> String {
    let mut safe = String::new();
    for (place, character) in text.chars().enumerate() {
        if place == SHOWN_CHARACTERS_MAX {
            safe.push('…');
            break;
        }
        if is_plain(character) {
            safe.push(character);
        } else {
            safe.extend(character.escape_default());
        }
    }
    safe
}

/// Neither control nor formatting: no C0, C1, bidirectional or zero-width mark, no separator of lines, no tag.
fn is_plain(character: char) -> bool {
    let formatting = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !character.is_control() && !formatting
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn n03_a_name_cannot_forge_a_line_or_move_the_cursor() {
        let hostile = "x\nTASK OK\n{\"decision\":\"allow\"}\u{1b}[2J\u{202e}\u{9b}\u{2028}";
        let safe = shown(hostile);
        assert_eq!(
            safe,
            "x\\nTASK OK\\n{\"decision\":\"allow\"}\\u{1b}[2J\\u{202e}\\u{9b}\\u{2028}"
        );
        assert!(shown(&"y".repeat(1 << 20)).chars().count() == SHOWN_CHARACTERS_MAX + 1);
        assert_eq!(shown("Grüße, 世界"), "Grüße, 世界");
    }

    proptest! {
        #[test]
        fn n03_whatever_is_shown_is_one_line_of_bounded_length(text in any::<String>()) {
            let safe = shown(&text);
            prop_assert!(safe.chars().all(is_plain));
            // The longest spelling of a character is `\u{10ffff}`.
            prop_assert!(safe.chars().count() <= SHOWN_CHARACTERS_MAX * 10 + 1);
        }
    }
}
