//! Texts from outside as they are kept: bounded, and without the characters that PostgreSQL refuses or a terminal obeys.

/// At most so many bytes, control characters taken out. Only for what people read: signed bytes are never touched.
pub(in crate::store) fn plain(text: &str, bytes_max: usize) -> String {
    let mut kept = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control() || *letter == '\n') {
        if kept.len() + letter.len_utf8() > bytes_max {
            break;
        }
        kept.push(letter);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_text_is_short_and_harmless() {
        assert_eq!(plain("a\0b\x1b[2Jc\nd", 100), "ab[2Jc\nd");
        assert_eq!(plain("ääää", 5), "ää");
    }
}
