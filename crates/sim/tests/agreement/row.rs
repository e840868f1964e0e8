//! One captured exchange, and the request it stands for.

use evenkeel_core::model::id::GuestId;
use serde_json::{Map, Value};

/// One line of a capture.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) params: Option<Map<String, Value>>,
    pub(crate) raw_body: Option<Vec<u8>>,
    pub(crate) encoding: Option<String>,
    pub(crate) auth: Option<String>,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) body: Value,
}

impl Row {
    pub(crate) fn data(&self) -> &Value {
        &self.body["data"]
    }

    /// The path without query and formatter.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    pub(crate) fn is(&self, suffix: &str) -> bool {
        self.bare_path().trim_end_matches('/').ends_with(suffix)
    }

    pub(crate) fn guest(&self) -> Option<GuestId> {
        let parts: Vec<&str> = self.bare_path().split('/').collect();
        parts.windows(2).find_map(|pair| format!("{}/{}", pair[0], pair[1]).parse().ok())
    }

    /// Keys a config write names.
    pub(crate) fn written(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for (key, value) in self.params.iter().flatten() {
            if matches!(key.as_str(), "delete" | "revert") {
                let names = value.as_str().unwrap_or_default();
                keys.extend(
                    names.split([',', ';', ' ']).filter(|n| !n.is_empty()).map(str::to_owned),
                );
            } else {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// Keys a config write gives a value.
    pub(crate) fn set_keys(&self) -> Vec<String> {
        let keys = self.params.iter().flatten().map(|(key, _)| key.clone());
        keys.filter(|key| !matches!(key.as_str(), "delete" | "revert" | "digest")).collect()
    }

    /// Whether a parameter or the path holds this text.
    pub(crate) fn names(&self, text: &str) -> bool {
        let mut values = self.params.iter().flatten().filter_map(|(_, value)| value.as_str());
        self.path.contains(text) || values.any(|value| value.contains(text))
    }

    /// Whether it shows a task whose process somebody killed.
    pub(crate) fn shows_killed(&self) -> bool {
        let exit = self.data()["exitstatus"].as_str().unwrap_or_default();
        self.path.contains("/tasks/UPID")
            && matches!(exit, "unexpected status" | "unable to read tail (got 0 bytes)")
    }

    pub(crate) fn upid(&self) -> Option<&str> {
        self.data().as_str().filter(|text| text.starts_with("UPID:"))
    }
}

/// Reads a file of exchanges; rows without a plain request are left out by the replay.
pub(crate) fn read(text: &str) -> Vec<Row> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|value| row(&value))
        .collect()
}

fn row(value: &Value) -> Row {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let optional = |name: &str| value[name].as_str().map(str::to_owned);
    let params = value["params"]
        .as_object()
        .cloned()
        .map(|params| params.into_iter().map(|(key, value)| (key, expanded(value))).collect());
    Row {
        label: text("label"),
        method: text("method"),
        path: text("path"),
        params,
        raw_body: optional("raw_body").map(|body| bytes(&stretch(&body))),
        encoding: optional("encoding"),
        auth: optional("auth"),
        status: value["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
        reason: text("reason"),
        body: value["body"].clone(),
    }
}

fn expanded(value: Value) -> Value {
    match &value {
        Value::String(text) => Value::String(stretch(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value
        }
    }
}

/// Long values were cut to `xxx...<8192 chars>`: they repeat their last character.
fn stretch(text: &str) -> String {
    let Some((head, rest)) = text.split_once("...<") else { return text.to_owned() };
    let Some(length) = rest.strip_suffix(" chars>").and_then(|n| n.parse::<usize>().ok()) else {
        return text.to_owned();
    };
    let last = head.chars().last().unwrap_or('x');
    let missing = length.saturating_sub(head.chars().count());
    format!("{head}{}", last.to_string().repeat(missing))
}

/// `b'...'` with `\xNN` escapes is how bytes were written down.
fn bytes(text: &str) -> Vec<u8> {
    let Some(inner) = text.strip_prefix("b'").and_then(|t| t.strip_suffix('\'')) else {
        return text.as_bytes().to_vec();
    };
    let mut out = Vec::new();
    let mut rest = inner;
    while let Some(at) = rest.find("\\x") {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        out.push(
            rest.get(at + 2..at + 4)
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .unwrap_or(b'?'),
        );
        rest = rest.get(at + 4..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
