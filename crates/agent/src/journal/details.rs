//! What a `started` record tells beyond what the state machine needs.
//!
//! Recovery compares the world with the parameters; a person reads the rest. All of it is kept as the
//! text that stands on the line, because each is held while its operation is open and hardly ever
//! read: nobody else has to take a tree apart. Secrets are masked here, at construction; the process that sent them
//! remembers them beside the line until the operation is closed, so that it can tell whether the guest took them.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::redact;

/// Parameters of the request, the values they replace, why, and the gate's decision.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Details {
    #[serde(skip_serializing_if = "Object::is_empty")]
    pub(super) params: Object,
    #[serde(skip_serializing_if = "Object::is_empty")]
    pub(super) before: Object,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Object::is_empty")]
    pub(super) decision: Object,
    /// What is masked in the parameters. On no line and in no snapshot: the next start does not know it.
    #[serde(skip)]
    pub(super) hidden: Hidden,
}

impl Details {
    /// All of it, with secrets masked.
    pub fn new(
        params: Map<String, Value>,
        before: Map<String, Value>,
        reason: String,
        decision: Map<String, Value>,
    ) -> Self {
        let clean = redact::redacted(params.clone());
        Self {
            hidden: Hidden::between(params, &clean),
            params: Object::of(&clean),
            before: Object::of(&redact::redacted(before)),
            reason: redact::redacted_text(reason),
            decision: Object::of(&redact::redacted(decision)),
        }
    }

    /// Every parameter of the request, secrets masked.
    pub fn params(&self) -> Map<String, Value> {
        self.params.read()
    }

    /// Every parameter as it was sent, secrets included as long as this process knows them. Must not be shown.
    pub fn sent(&self) -> Map<String, Value> {
        let mut params = self.params();
        for (name, text) in &self.hidden.0 {
            params.insert(name.clone(), Value::from(text.expose_secret()));
        }
        params
    }

    /// The values that were there before, secrets masked.
    pub fn before(&self) -> Map<String, Value> {
        self.before.read()
    }

    /// Why it was done.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What the gate decided.
    pub fn decision(&self) -> Map<String, Value> {
        self.decision.read()
    }
}

/// Secrets of parameters, in memory only. Two records are the same if their lines are: it counts in no comparison.
#[derive(Clone, Default)]
pub(super) struct Hidden(BTreeMap<String, SecretString>);

impl Hidden {
    fn between(sent: Map<String, Value>, clean: &Map<String, Value>) -> Self {
        let masked = sent.into_iter().filter(|(name, value)| clean.get(name) != Some(value));
        let text = |(name, value): (String, Value)| match value {
            Value::String(text) => Some((name, SecretString::from(text))),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        };
        Self(masked.filter_map(text).collect())
    }
}

impl PartialEq for Hidden {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A JSON object as its text; an empty one is nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Option<Box<RawValue>>")]
pub(super) struct Object(Option<Box<RawValue>>);

impl Object {
    fn of(fields: &Map<String, Value>) -> Self {
        let written = || to_raw_value(fields).expect("a tree of JSON can be written");
        Self((!fields.is_empty()).then(written))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn read(&self) -> Map<String, Value> {
        let text = self.0.as_ref().map_or("{}", |text| text.get());
        serde_json::from_str(text).expect("it was an object when it was taken in")
    }
}

impl TryFrom<Option<Box<RawValue>>> for Object {
    type Error = &'static str;

    fn try_from(text: Option<Box<RawValue>>) -> Result<Self, Self::Error> {
        match text.as_ref().map(|text| text.get()) {
            None | Some("{}") => Ok(Self(None)),
            Some(object) if object.starts_with('{') => Ok(Self(text)),
            Some(_) => Err("it is not an object"),
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(|text| text.get()) == other.0.as_ref().map(|text| text.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_reads_the_same_whether_it_is_spelled_out_or_left_out() {
        let spelled = r#"{"params":{},"before":{},"reason":"","decision":null}"#;
        assert_eq!(serde_json::from_str::<Details>(spelled).unwrap(), Details::default());
        assert_eq!(serde_json::to_string(&Details::default()).unwrap(), "{}");
        assert!(Details::default().params().is_empty());
    }

    #[test]
    fn x08_a_secret_is_known_to_the_process_that_sent_it_and_to_no_line() {
        let Value::Object(params) = serde_json::json!({ "env": "A=marked", "cores": "2" }) else {
            unreachable!()
        };
        let details = Details::new(params.clone(), Map::new(), String::new(), Map::new());
        let line = serde_json::to_string(&details).unwrap();
        assert!(!line.contains("marked") && !format!("{details:?}").contains("marked"), "{line}");
        assert_eq!(details.sent(), params);
        let read: Details = serde_json::from_str(&line).unwrap();
        assert_eq!(read, details, "live and at replay the record is the same");
        assert_eq!(read.sent()["env"], evenkeel_core::model::secret::MASK);
        assert_eq!(read.sent()["cores"], "2");
    }

    #[test]
    fn only_objects_are_taken_in() {
        for other in ["[]", "7", "\"{}\"", "true"] {
            let text = format!(r#"{{"params":{other}}}"#);
            assert!(serde_json::from_str::<Details>(&text).is_err(), "{other}");
        }
    }
}
