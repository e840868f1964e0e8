//! What is compared: status, reason, errors, and the bodies that read something back.

use evenkeel_core::model::id::GuestId;
use evenkeel_sim::Reply;
use serde_json::{Map, Value};

use crate::replay::Replay;
use crate::row::Row;

/// Values the server makes up, and numbers it measures.
const MADE_UP: [&str; 5] = ["digest", "meta", "smbios1", "snaptime", "vmgenid"];

impl Replay {
    /// The first difference that matters, in words.
    pub(crate) fn difference(&mut self, at: usize, row: &Row, reply: &Reply) -> Option<String> {
        if reply.status != row.status {
            return Some(format!(
                "status {} {:?}, captured {} {:?} {}",
                reply.status, reply.reason, row.status, row.reason, row.body["errors"]
            ));
        }
        if !same_reason(&row.reason, &self.theirs(&reply.reason)) {
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
        let ours = self.with_their_names(&body["data"]);
        self.data_difference(at, row, &ours)
    }

    fn with_their_names(&self, ours: &Value) -> Value {
        if self.archives.is_empty() {
            return ours.clone();
        }
        serde_json::from_str(&self.theirs(&ours.to_string())).unwrap_or_else(|_| ours.clone())
    }

    fn data_difference(&mut self, at: usize, row: &Row, ours: &Value) -> Option<String> {
        let captured = row.data();
        if captured.is_null() {
            return (!ours.is_null()).then(|| format!("data {ours}, captured null"));
        }
        if row.is("/config") && row.method == "GET" {
            return self.config_difference(at, row, ours);
        }
        if row.is("/pending") && row.method == "GET" {
            return self.pending_difference(at, row, ours);
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
            // Numbers follow from a config the file may not show, so only their kind is compared.
            let missing = ["name", "maxmem", "cpus"].iter().find(|field| {
                captured.get(**field).is_some_and(|c| kind(c) != kind(&ours[**field]))
            });
            return missing.map(|field| format!("{field} is {}", ours[*field])).or_else(|| {
                field_difference(captured, ours, &["status", "lock", "qmpstatus", "vmid"])
            });
        }
        if row.is("/nextid") && row.path.contains("vmid=") || row.is("/extractconfig") {
            let plain = |value: &Value| made_up_away(value.as_str().unwrap_or_default());
            return (plain(captured) != plain(ours))
                .then(|| format!("data {ours}, captured {captured}"));
        }
        if row.is("/content") && row.path.contains("vmid=") {
            return content_difference(captured, ours);
        }
        if row.is("/tasks") && row.path.contains("source=active") {
            let fields = ["type", "id", "user", "status", "saved", "tokenid"];
            return field_difference(&captured[0], &ours[0], &fields);
        }
        if row.is("/version") || row.is("/feature") {
            return (captured != ours).then(|| format!("data {ours}, captured {captured}"));
        }
        (kind(captured) != kind(ours))
            .then(|| format!("data is a {}, captured a {}", kind(ours), kind(captured)))
    }

    /// What is in effect and what waits, of a guest whose making the rows show.
    fn pending_difference(&self, at: usize, row: &Row, ours: &Value) -> Option<String> {
        let guest = row.guest()?;
        let Explained::Whole = self.explained(at, row, guest) else { return None };
        let rows = |list: &Value| {
            let rows = list.as_array().into_iter().flatten();
            let shown = rows.filter_map(|row| {
                let key = row["key"].as_str().filter(|key| !MADE_UP.contains(key))?;
                let text = |name: &str| masked(&row[name].to_string());
                Some(format!("{key} {} {} {}", text("value"), text("pending"), text("delete")))
            });
            shown.collect::<std::collections::BTreeSet<_>>()
        };
        let captured = rows(row.data());
        let ours = rows(ours);
        let other = captured.symmetric_difference(&ours).next()?;
        Some(format!("pending: only one side has {other}"))
    }

    /// Keys written since the last look must read back alike; what nothing in the file explains is
    /// taken over from the capture afterwards.
    fn config_difference(&mut self, at: usize, row: &Row, ours: &Value) -> Option<String> {
        let (Some(captured), Some(ours)) = (row.data().as_object(), ours.as_object()) else {
            return Some("data is not an object".into());
        };
        let guest = row.guest()?;
        if row.path.contains("snapshot=") {
            return keys_difference(captured, ours, captured.keys());
        }
        let explained = self.explained(at, row, guest);
        self.report.digests_seen += 1;
        self.report.digests_equal += usize::from(captured.get("digest") == ours.get("digest"));
        let before = self.last_config.get(&guest).cloned().unwrap_or_default();
        match explained {
            Explained::Nothing => None,
            Explained::Whole => keys_difference(captured, ours, captured.keys().chain(ours.keys())),
            Explained::Keys { keys, set, refused } => {
                // What the write did not change, because it was refused or deleted what was not
                // there, agrees with whatever exchanges outside the file left.
                let idle = |key: &&String| {
                    same(before.get(*key), ours.get(*key)) && (refused || !set.contains(*key))
                };
                keys_difference(captured, ours, keys.iter().filter(|key| !idle(key)))
            }
        }
    }

    /// How much of a config read the rows before it explain. Rows may be missing anywhere, so only a write directly
    /// before is held to account, or the making of the guest when nothing but looking came after it.
    fn explained(&self, at: usize, row: &Row, guest: GuestId) -> Explained {
        let recent = &self.rows[at.saturating_sub(MAKING_DISTANCE)..at];
        if recent.iter().rev().take(CREATE_DISTANCE).any(|earlier| made(earlier) == Some(guest)) {
            return Explained::Whole;
        }
        let touching = |earlier: &&Row| {
            let about = earlier.guest() == Some(guest) || made(earlier) == Some(guest);
            about && earlier.method != "GET" && earlier.status == 200
        };
        if recent.iter().rev().find(touching).is_some_and(|last| made(last) == Some(guest)) {
            return Explained::Whole;
        }
        let Some(write) =
            recent.last().filter(|write| write.guest() == Some(guest) && write.is("/config"))
        else {
            return Explained::Nothing;
        };
        let other_pair =
            row.label.strip_suffix(" / readback").is_some_and(|label| label != write.label);
        if write.method == "GET" || other_pair {
            return Explained::Nothing;
        }
        Explained::Keys {
            keys: write.written(),
            set: write.set_keys(),
            refused: write.status >= 400,
        }
    }
}

/// The guest that a row makes: a create, a restore or a clone that was answered.
fn made(row: &Row) -> Option<GuestId> {
    let cloned = || {
        let newid = row.params.as_ref()?.get("newid")?.as_str()?;
        format!("{}/{newid}", row.guest()?.kind).parse().ok()
    };
    let clones = row.method == "POST" && row.is("/clone") && row.status == 200;
    crate::align::created(row).or_else(|| cloned().filter(|_| clones))
}

/// A create is followed by its task's status and log before the config is read.
const CREATE_DISTANCE: usize = 3;
/// Or by looks of many kinds, but hardly by more than these.
const MAKING_DISTANCE: usize = 14;

/// What the rows before a config read explain.
enum Explained {
    Nothing,
    Whole,
    Keys { keys: Vec<String>, set: Vec<String>, refused: bool },
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

/// What a list of volumes says beside names with times, sizes and moments.
fn content_difference(captured: &Value, ours: &Value) -> Option<String> {
    let rows = |list: &Value| {
        let mut rows: Vec<Vec<String>> = list
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| {
                let fields = ["content", "format", "notes", "protected", "subtype", "vmid"];
                let name = row["volid"].as_str().filter(|name| !name.contains("backup/"));
                let shown = fields.iter().map(|field| row[*field].to_string());
                shown.chain(name.map(str::to_owned)).collect()
            })
            .collect();
        rows.sort();
        rows
    };
    let captured = rows(captured);
    let ours = rows(ours);
    (captured != ours).then(|| format!("lists {ours:?}, captured {captured:?}"))
}

/// A file without the lines the server makes up.
fn made_up_away(text: &str) -> String {
    let made_up = |line: &&str| !MADE_UP.iter().any(|key| line.starts_with(&format!("{key}: ")));
    masked(&text.lines().filter(made_up).collect::<Vec<_>>().join("\n"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
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

/// A worker's directory carries its process id.
fn without_process(text: &str) -> String {
    let mut parts = text.split("vzdumptmp");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        out + "vzdumptmp" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// Addresses the server generated carry its prefix in upper case.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::new();
    let text = without_process(text);
    let mut rest = text.as_str();
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
