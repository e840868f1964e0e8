//! Makes text fit a terminal: long lines are broken between words and indented below their beginning.
//!
//! Only what a person looks at is fitted. Pipes, files and JSON get every line as it is.

/// How much further than its beginning the rest of a broken line stands.
const HANGING: usize = 4;

/// The narrowest terminal that is fitted: below it breaking costs more than it gives.
const WIDTH_MIN: usize = 40;

/// Breaks every line that is longer than so many columns. Words are kept whole, and so is a command between backticks
/// that fits on one line, because people copy it.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let mut fitted = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        if columns(line) <= width {
            fitted.push_str(line);
        } else {
            broken(&mut fitted, line, width);
        }
        fitted.push_str(end);
    }
    fitted
}

fn broken(fitted: &mut String, line: &str, width: usize) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let below = " ".repeat((indent + HANGING).min(width / 2));
    fitted.push_str(&line[..indent]);
    let mut at = indent;
    let mut is_first = true;
    for (blanks, word) in words(&line[indent..], width - below.len()) {
        let long = columns(word);
        if !is_first && at + blanks.len() + long > width {
            fitted.push('\n');
            fitted.push_str(&below);
            at = below.len();
        } else {
            fitted.push_str(blanks);
            at += blanks.len();
        }
        fitted.push_str(word);
        at += long;
        is_first = false;
    }
}

/// The words of a line, each with the blanks before it. What stands between backticks is one word if it can be.
fn words(line: &str, width: usize) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = line;
    while !rest.trim_start_matches(' ').is_empty() {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let (blanks, word) = rest.split_at(start);
        let mut end = word.find(' ').unwrap_or(word.len());
        if let Some(open) = word[..end].find('`')
            && let Some(length) = word[open + 1..].find('`')
        {
            let close = open + length + 2;
            let after = word[close..].find(' ').map_or(word.len(), |blank| close + blank);
            if columns(&word[..after]) <= width {
                end = end.max(after);
            }
        }
        found.push((blanks, &word[..end]));
        rest = &word[end..];
    }
    found
}

/// How many columns a text takes: a letter is one, a colour none.
pub(crate) fn columns(text: &str) -> usize {
    let mut letters = text.chars();
    let mut count = 0;
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_terminal_and_no_word_is_lost() {
        let text = "  ! cores  2 -> 4  held: the guest is locked, and a task that somebody else began has to end \
                    before anything is sent to it\nshort\n\n";
        for width in [40, 60, 80] {
            let fitted = fit(text, width);
            assert!(fitted.lines().all(|line| columns(line) <= width), "{fitted}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&fitted), words(text));
        }
        assert_eq!(fit(text, 200), text);
    }

    #[test]
    fn a_command_between_backticks_stays_in_one_piece() {
        let text = "hint: the list may not be whole, so look at the rights with `evenkeel doctor -c agent.toml` first";
        let fitted = fit(text, 60);
        assert!(fitted.contains("`evenkeel doctor -c agent.toml`"), "{fitted}");
        assert!(fitted.lines().all(|line| columns(line) <= 60), "{fitted}");
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(columns("\u{1b}[1mlxc/101\u{1b}[0m"), 7);
    }
}
