//! Rows of lists that no client expects: a field that is missing, null, of another type or huge, or a whole row like that.
//!
//! A fault hands the answer of a list in here. Everything else of the answer stays as it is.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What takes the place of a field, or of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OddValue {
    /// The field is not there; a row is null.
    Missing,
    /// `null`.
    Null,
    /// A number below zero.
    Number,
    /// A word.
    Text,
    /// A list.
    List,
    /// An object.
    Object,
    /// A text of a hundred thousand characters.
    Huge,
}

impl OddValue {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Missing, Self::Null, Self::Number, Self::Text, Self::List, Self::Object, Self::Huge];

    fn value(self) -> Value {
        match self {
            Self::Missing | Self::Null => Value::Null,
            Self::Number => json!(-7),
            Self::Text => json!("odd"),
            Self::List => json!(["odd"]),
            Self::Object => json!({"odd": true}),
            Self::Huge => json!("x".repeat(100_000)),
        }
    }
}

/// Makes one row of an answer odd: the first that contains the text. An answer that is an object has its values for rows.
pub(crate) fn bend(body: &mut Value, row: Option<&str>, field: Option<&str>, becomes: OddValue) {
    let is_meant = |value: &Value| row.is_none_or(|part| value.to_string().contains(part));
    let found = match &mut body["data"] {
        Value::Array(rows) => rows.iter_mut().find(|value| is_meant(value)),
        Value::Object(rows) => rows.values_mut().find(|value| is_meant(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    let Some(found) = found else { return };
    match (field, found.as_object_mut(), becomes) {
        (None, _, _) => *found = becomes.value(),
        (Some(field), Some(fields), OddValue::Missing) => {
            fields.remove(field);
        }
        (Some(field), Some(fields), _) => {
            fields.insert(field.to_owned(), becomes.value());
        }
        (Some(_), None, _) => {}
    }
}
