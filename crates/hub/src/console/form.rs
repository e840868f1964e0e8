//! What a browser sends with a form: names and texts, percent-encoded. Bounded by the row's body limit.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::problem::Problem;

/// The most fields of a form: two for each file of a document, and some.
const FIELDS_MAX: usize = 1_000;

/// The fields of a form, each once.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormFields {
    fields: BTreeMap<String, String>,
}

impl FormFields {
    /// Reads `a=1&b=two+words`. A name that stands twice is refused, so that nobody reads another one than was checked.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        let unreadable = || Problem::invalid("the form cannot be read");
        let body = std::str::from_utf8(body).map_err(|_| unreadable())?;
        let mut fields = BTreeMap::new();
        for pair in body.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name).ok_or_else(unreadable)?;
            let value = decoded(value).ok_or_else(unreadable)?;
            if fields.len() == FIELDS_MAX || fields.insert(name, value).is_some() {
                return Err(unreadable());
            }
        }
        Ok(Self { fields })
    }

    /// One field.
    pub(crate) fn one(&self, name: &str) -> Option<String> {
        self.fields.get(name).cloned()
    }

    /// One field, empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// One field that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<i64, Problem> {
        let number = self.text(name).parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| Problem::invalid(format!("`{name}` is not a number")))
    }
}

/// Browsers end lines with a carriage return in what they send; files do not.
fn decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(text.replace("\r\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_browsers_write_it() {
        let form = FormFields::read(b"a=1&text=two+words%0D%0A%2B%C3%A4&empty=&bare").unwrap();
        assert_eq!(form.text("a"), "1");
        assert_eq!(form.text("text"), "two words\n+\u{e4}");
        assert_eq!(
            (form.one("empty"), form.one("bare")),
            (Some(String::new()), Some(String::new()))
        );
        assert_eq!(form.one("missing"), None);
        assert_eq!(form.number("a").unwrap(), 1);
        assert!(form.number("text").is_err());
    }

    #[test]
    fn a_name_that_stands_twice_is_refused() {
        assert!(FormFields::read(b"csrf=a&csrf=b").is_err());
        assert!(FormFields::read(b"a=%FF").is_err());
        let many: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("f{number}=")).collect();
        assert!(FormFields::read(many.join("&").as_bytes()).is_err());
        assert!(FormFields::read(many[1..].join("&").as_bytes()).is_ok());
    }
}
