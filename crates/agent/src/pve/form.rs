//! Parameters of a call, and the one encoding Proxmox VE reads back unharmed.
//!
//! PVE splits a form on `&` and on `;`, and cuts a value at its second `=`, so everything but
//! unreserved characters is percent-encoded. Secrets travel only in a [`Form`] (a request body):
//! a [`Query`] cannot hold one, because addresses end up in logs. Nothing here prints a value.

use std::fmt;

use evenkeel_core::model::secret::pieces;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

/// Everything but the unreserved characters of RFC 3986.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes one name, value or path segment.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, STRICT).to_string()
}

/// The parameters of a POST or PUT, in the order they were added.
#[derive(Clone, Default)]
pub struct Form {
    fields: Vec<(String, FormValue)>,
}

#[derive(Clone)]
enum FormValue {
    Plain(String),
    Secret(SecretString),
}

impl FormValue {
    fn expose(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.expose_secret(),
        }
    }
}

impl Form {
    /// A form without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push((name.to_owned(), FormValue::Plain(value.into())));
        self
    }

    /// Adds a parameter whose value must never be shown, also not when PVE quotes it in an error.
    #[must_use]
    pub(crate) fn with_secret(mut self, name: &str, value: SecretString) -> Self {
        self.fields.push((name.to_owned(), FormValue::Secret(value)));
        self
    }

    /// Adds a boolean as PVE's forms take it on every release: `0` or `1`.
    #[must_use]
    pub(crate) fn with_flag(self, name: &str, value: bool) -> Self {
        self.with(name, if value { "1" } else { "0" })
    }

    /// Adds a parameter if there is one.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The parameter names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// True if there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Gives a parameter another value; tells whether it was there.
    pub(super) fn replace(&mut self, name: &str, value: &str) -> bool {
        let found = self.fields.iter_mut().find(|(there, _)| there == name);
        found.map(|(_, old)| *old = FormValue::Plain(value.to_owned())).is_some()
    }

    /// `name=value&name=value`, strictly encoded.
    pub(crate) fn encoded(&self) -> String {
        let pairs: Vec<String> = self
            .fields
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value.expose())))
            .collect();
        pairs.join("&")
    }

    /// Removes from `text` every secret value of this form.
    pub(super) fn scrub(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for (_, value) in &self.fields {
            if let FormValue::Secret(secret) = value {
                for piece in pieces(secret.expose_secret()) {
                    clean = without(&clean, piece);
                }
            }
        }
        clean
    }
}

/// Names only: a value may be a password, and a reader of logs has no use for the others.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The parameters of a GET or DELETE; it has no way to hold a secret.
#[derive(Clone, Debug, Default)]
pub struct Query(Form);

impl Query {
    /// A query without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(self, name: &str, value: impl Into<String>) -> Self {
        Self(self.0.with(name, value))
    }

    /// Adds a boolean as `0` or `1`.
    #[must_use]
    pub(crate) fn with_flag(self, name: &str, value: bool) -> Self {
        Self(self.0.with_flag(name, value))
    }

    /// Adds a parameter if there is one.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<String>>) -> Self {
        Self(self.0.with_some(name, value))
    }

    pub(super) fn into_form(self) -> Form {
        self.0
    }
}

/// What stands where a secret stood.
const SCRUBBED: &str = "********";

/// `text` with every occurrence of `secret` replaced, as it is and percent-encoded.
pub(super) fn without(text: &str, secret: &str) -> String {
    if secret.is_empty() {
        return text.to_owned();
    }
    let clean = text.replace(secret, SCRUBBED);
    clean.replace(&encode(secret), SCRUBBED)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_semicolon_and_an_equals_sign_inside_a_value_are_encoded() {
        let form = Form::new().with("tags", "a;b").with("net0", "name=eth0,bridge=vmbr0");
        assert_eq!(form.encoded(), "tags=a%3Bb&net0=name%3Deth0%2Cbridge%3Dvmbr0");
    }

    #[test]
    fn a_secret_is_sent_but_neither_debugged_nor_left_in_a_text() {
        let form = Form::new().with_secret("cipassword", "hunter two".into());
        assert_eq!(form.encoded(), "cipassword=hunter%20two");
        assert!(!format!("{form:?}").contains("hunter"));
        let echoed = form.scrub("got 'hunter two' (hunter%20two)");
        assert_eq!(echoed, "got '********' (********)");
    }

    proptest! {
        /// PVE's own reading of a form: split on `&` and `;`, then on every `=`.
        #[test]
        fn every_value_survives_the_servers_splitting(name in "[a-z0-9_-]{1,8}", value in ".*") {
            let encoded = Form::new().with(&name, value.clone()).encoded();
            let fields: Vec<&str> = encoded.split(['&', ';']).collect();
            prop_assert_eq!(fields.len(), 1);
            let parts: Vec<&str> = fields[0].split('=').collect();
            prop_assert_eq!(parts.len(), 2);
            let decode = |text| percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
            prop_assert_eq!(decode(parts[0]), name);
            prop_assert_eq!(decode(parts[1]), value);
        }
    }
}
