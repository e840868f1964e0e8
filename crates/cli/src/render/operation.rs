//! One operation as a person reads it: what, why, who allowed it, what it changed, and step by step how it went.
//!
//! ```text
//! op_01ARZ3NDEKTSV4RRFFQ69G5FAV  set_config of lxc/101
//! why       cores 2 -> 4
//! decision  allowed, benign
//! changed   cores  2 -> 4
//!
//! 2026-11-15 20:00:00.120Z  started
//! 2026-11-15 20:00:00.480Z  succeeded
//! ```

use std::fmt::{Display, Write as _};

use evenkeel_agent::journal::op_history::{OpHistory, OpStep};
use serde_json::{Map, Value};

use super::style::{ALARM, FAINT, GUEST, styled};
use super::tamed;
use crate::format::journal::TaskLogFormat;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// Longer than any text the journal takes in.
const TEXT_LENGTH_MAX: usize = 2_048;

/// The whole operation, with the logs of its tasks.
pub(crate) fn render(history: &OpHistory, logs: &[TaskLogFormat]) -> String {
    let OpHistory { op, guest, kind, reason, params, before, decision, steps } = history;
    let mut text = format!("{}  {kind} of {}\n", styled(GUEST, op), styled(GUEST, guest));
    row(&mut text, "why", tamed(reason, TEXT_LENGTH_MAX));
    decided(&mut text, decision);
    for (key, after) in params {
        let after = plain(after);
        match before.get(key) {
            Some(was) => row(&mut text, "changed", format!("{key}  {} -> {after}", plain(was))),
            None => row(&mut text, "param", format!("{key} = {after}")),
        }
    }
    for (key, was) in before.iter().filter(|(key, _)| !params.contains_key(*key)) {
        row(&mut text, "before", format!("{key} = {}", plain(was)));
    }
    text.push('\n');
    for step in steps {
        step_lines(&mut text, step);
    }
    for log in logs {
        writeln!(text, "\n{}", styled(FAINT, &log.upid)).expect(INFALLIBLE);
        for line in log.lines.iter().flatten() {
            writeln!(text, "  {line}").expect(INFALLIBLE);
        }
        if let Some(why) = &log.problem {
            let told = format!("its log cannot be read: {}", tamed(why, TEXT_LENGTH_MAX));
            writeln!(text, "  {}", styled(ALARM, told)).expect(INFALLIBLE);
        }
    }
    text
}

fn row(text: &mut String, name: &str, value: impl Display) {
    writeln!(text, "{} {value}", styled(FAINT, format!("{name:<9}"))).expect(INFALLIBLE);
}

fn decided(text: &mut String, decision: &Map<String, Value>) {
    let said: Vec<String> = ["reason", "class", "why"]
        .iter()
        .filter_map(|name| decision.get(*name))
        .map(plain)
        .filter(|said| !said.is_empty())
        .collect();
    if !said.is_empty() {
        row(text, "decision", said.join(", "));
    }
    for signature in decision.get("signed_by").and_then(Value::as_array).into_iter().flatten() {
        let part = |name: &str| signature.get(name).map(plain).unwrap_or_default();
        row(text, "signed by", format!("{} {}", part("name"), part("key")).trim());
    }
    for (name, shown) in [("statement_reason", "says"), ("nonce", "nonce"), ("payload", "payload")]
    {
        if let Some(said) = decision.get(name).map(plain).filter(|said| !said.is_empty()) {
            row(text, shown, said);
        }
    }
}

fn step_lines(text: &mut String, step: &OpStep) {
    let OpStep { seq, at, event, told, upid } = step;
    let at = styled(FAINT, at.strftime("%F %T%.3fZ"));
    let told = tamed(told, TEXT_LENGTH_MAX);
    let line = format!("{at}  {event}  {told}");
    let record = styled(FAINT, format!("#{seq}"));
    writeln!(text, "{}  {record}", line.trim_end()).expect(INFALLIBLE);
    if let Some(upid) = upid {
        writeln!(text, "    {}", tamed(upid.as_str(), TEXT_LENGTH_MAX)).expect(INFALLIBLE);
    }
}

/// A value without the quotes of JSON, drawn and never acted upon.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    tamed(&text, TEXT_LENGTH_MAX)
}
