//! What is compared: status, reason, errors, and the bodies that read something back.

use evenkeel_sim::Reply;
use serde_json::{Map, Value};

use crate::replay::Replay;
use crate::row::Row;

/// Values the server makes up, and numbers it measures.
const MADE_UP: [&str; 4] = ["digest", "meta", "smbios1", "vmgenid"];

impl Replay {
    /// The first difference that matters, in words.
    pub(crate) fn difference(&mut self, row: &Row, reply: &Reply) -> Option<String> {
        if reply.status != row.status {
            return Some(format!(
                "status {} {:?}, captured {} {:?}",
                reply.status, reply.reason, row.status, row.reason
            ));
        }
        if !same_reason(&row.reason, &reply.reason) {
            return Some(format!("reason {:?}, captured {:?}", reply.reason, row.reason));
        }
        let empty = Value::Null;
        let body = reply.json().unwrap_or(&empty);
        if row.body.is_object() && body["errors"] != row.body["errors"] {
            return Some(format!("errors {}, captured {}", body["errors"], row.body["errors"]));
        }
        if row.status != 200 || row.body["data"].is_null() && row.body.get("data").is_none() {
            return None;
        }
        self.data_difference(row, &body["data"])
    }

    fn data_difference(&mut self, row: &Row, ours: &Value) -> Option<String> {
        let captured = row.data();
        if row.is("/config") && row.method == "GET" {
            return self.config_difference(row, ours);
        }
        if let Some(upid) = row.upid() {
            let tail = |text: &str| text.splitn(6, ':').nth(5).unwrap_or_default().to_owned();
            let own = ours.as_str().unwrap_or_default();
            return (tail(own) != tail(upid)).then(|| format!("task {own}, captured {upid}"));
        }
        if row.path.contains("/tasks/UPID") && row.is("/status") {
            return field_difference(
                captured,
                ours,
                &["status", "exitstatus", "type", "id", "user", "tokenid"],
            );
        }
        if row.is("/status/current") {
            return field_difference(
                captured,
                ours,
                &[
                    "status",
                    "name",
                    "maxmem",
                    "cpus",
                    "lock",
                    "qmpstatus",
                    "tags",
                    "template",
                    "vmid",
                ],
            );
        }
        if captured.is_null() || row.is("/version") || row.is("/feature") {
            return (captured != ours).then(|| format!("data {ours}, captured {captured}"));
        }
        let kind = |value: &Value| match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        (kind(captured) != kind(ours))
            .then(|| format!("data is a {}, captured a {}", kind(ours), kind(captured)))
    }

    /// Keys written since the last look must read back alike; what nothing in the file explains is
    /// taken over from the capture afterwards.
    fn config_difference(&mut self, row: &Row, ours: &Value) -> Option<String> {
        let (Some(captured), Some(ours)) = (row.data().as_object(), ours.as_object()) else {
            return Some("data is not an object".into());
        };
        let guest = row.guest()?;
        if row.path.contains("snapshot=") {
            return keys_difference(captured, ours, captured.keys());
        }
        let touched =
            self.touched.get(&guest).cloned().unwrap_or(Some(std::collections::BTreeSet::new()));
        self.report.digests_seen += 1;
        self.report.digests_equal += usize::from(captured.get("digest") == ours.get("digest"));
        match touched {
            None => keys_difference(captured, ours, captured.keys().chain(ours.keys())),
            Some(keys) if self.refused.contains(&guest) => {
                // A refused write that left nothing agrees with any older value of a row not in the file.
                let different: Vec<&String> =
                    keys.iter().filter(|key| !same(captured.get(*key), ours.get(*key))).collect();
                let before = self.sim_before(guest);
                let changed = different.into_iter().find(|key| before.get(*key) != ours.get(*key));
                changed.map(|key| {
                    format!("{key} reads {:?}, captured {:?}", ours.get(key), captured.get(key))
                })
            }
            Some(keys) => keys_difference(captured, ours, keys.iter()),
        }
    }

    /// The config as it was taken over at the last look.
    fn sim_before(&self, guest: evenkeel_core::id::GuestId) -> Map<String, Value> {
        self.last_config.get(&guest).cloned().unwrap_or_default()
    }
}

fn keys_difference<'a>(
    captured: &Map<String, Value>,
    ours: &Map<String, Value>,
    keys: impl Iterator<Item = &'a String>,
) -> Option<String> {
    let mut keys = keys.filter(|key| !MADE_UP.contains(&key.as_str()));
    let key = keys.find(|key| !same(captured.get(*key), ours.get(*key)))?;
    Some(format!("{key} reads {:?}, captured {:?}", ours.get(key), captured.get(key)))
}

fn field_difference(captured: &Value, ours: &Value, fields: &[&str]) -> Option<String> {
    let field = fields.iter().find(|field| !same(captured.get(**field), ours.get(**field)))?;
    Some(format!("{field} is {}, captured {}", ours[*field], captured[*field]))
}

/// Equal up to generated hardware addresses and cut texts.
fn same(captured: Option<&Value>, ours: Option<&Value>) -> bool {
    match (captured, ours) {
        (Some(Value::String(captured)), Some(Value::String(ours))) => {
            let cut = captured.split_once("...<").is_some_and(|(head, _)| ours.starts_with(head));
            cut || masked(captured) == masked(ours)
        }
        (captured, ours) => captured == ours,
    }
}

/// Addresses the server generated carry its prefix in upper case.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("BC:24:11:") {
        out.push_str(&rest[..at]);
        out.push_str("MAC");
        rest = rest.get(at + 17..).unwrap_or_default();
    }
    out + rest
}

/// The resolver's own words after a failed lookup depend on the host.
fn same_reason(captured: &str, ours: &str) -> bool {
    let stem = |text: &str| {
        text.split(": Name or service")
            .next()
            .unwrap_or_default()
            .split(": Temporary failure")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    stem(captured) == stem(ours)
}
