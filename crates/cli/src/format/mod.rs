//! What `-o json` prints: one type for each answer, so that a format is a decision and not an accident.
//!
//! docs/reference/json.md says what holds for all of them; the JSON Schemas beside it are made from these types. Values
//! stand whole, secrets are masked as everywhere, moments are RFC 3339 in UTC. Fields are added while `format_version`
//! stays; none is renamed, removed or given another meaning.

pub(crate) mod apply;
pub(crate) mod approvals;
#[cfg(test)]
mod audit;
pub(crate) mod fleet;
pub(crate) mod journal;
pub(crate) mod plan;
pub(crate) mod signers;
#[cfg(test)]
mod status;
pub(crate) mod tools;
pub(crate) mod verify;

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_agent::journal::moment;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::words::shown_text;
use serde::Serialize;

use crate::error::CommandFailure;

/// Prints an answer on one line.
pub(crate) fn print(answer: &impl Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string(answer).map_err(std::io::Error::from)?;
    Ok(writeln!(std::io::stdout(), "{}", harmless(&text))?)
}

/// The same JSON, in which letters that would steer a terminal are spelled by JSON's own escapes.
pub(crate) fn harmless(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || !shown_text::steers(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(shown, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    shown
}

/// A moment as every format writes it; none for one that no calendar has.
pub(crate) fn at(at: UnixSeconds) -> Option<String> {
    moment(at).map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use schemars::{Schema, schema_for};

    use super::*;

    #[test]
    fn z21_json_keeps_its_meaning_and_steers_no_terminal() {
        let text = "a\u{1b}[2J\u{9b}\u{202e}\u{e0041}\n é";
        let json = harmless(&serde_json::to_string(text).unwrap());
        assert!(!json.chars().any(shown_text::steers), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    /// Every format, under the name of its page.
    fn schemas() -> Vec<(&'static str, Schema)> {
        vec![
            ("plan", schema_for!(plan::PlanFormat)),
            ("apply", schema_for!(apply::ApplyFormat)),
            ("status", schema_for!(status::StatusFormat)),
            ("pending", schema_for!(approvals::PendingFormat)),
            ("request", schema_for!(approvals::RequestFormat)),
            ("submit", schema_for!(approvals::SubmitFormat)),
            ("journal", schema_for!(journal::JournalFormat)),
            ("journal-show", schema_for!(journal::ShownFormat)),
            ("journal-verify", schema_for!(journal::ChainFormat)),
            ("signers-list", schema_for!(signers::SignersFormat)),
            ("audit", schema_for!(audit::AuditFormat)),
            ("fleet-login", schema_for!(fleet::FleetLoginFormat)),
            ("fleet-logins", schema_for!(fleet::FleetLoginsFormat)),
            ("fleet-console", schema_for!(fleet::FleetConsoleFormat)),
            ("fleet-enrol-token", schema_for!(fleet::FleetEnrolTokenFormat)),
            ("fleet-hosts", schema_for!(fleet::FleetHostsFormat)),
            ("fleet-status", schema_for!(fleet::FleetStatusFormat)),
            ("fleet-push", schema_for!(fleet::FleetPushFormat)),
            ("fleet-diff", schema_for!(fleet::FleetDiffFormat)),
            ("fleet-history", schema_for!(fleet::FleetHistoryFormat)),
            ("fleet-pending", schema_for!(fleet::FleetPendingFormat)),
            ("fleet-submit", schema_for!(fleet::FleetSubmitFormat)),
            ("fleet-audit", schema_for!(fleet::FleetAuditFormat)),
            ("validate", schema_for!(audit::ValidateFormat)),
            ("verify", schema_for!(verify::VerifyFormat)),
            ("doctor", schema_for!(tools::DoctorFormat)),
            ("selftest", schema_for!(tools::SelftestFormat)),
            ("freeze", schema_for!(tools::FreezeFormat)),
            ("thaw", schema_for!(tools::ThawFormat)),
            ("sim", schema_for!(tools::SimFormat)),
            ("explain", schema_for!(tools::ExplainFormat)),
            ("show", schema_for!(tools::ShowFormat)),
        ]
    }

    /// The schemas people read are those of the types. `EVENKEEL_BLESS=1` writes them anew.
    #[test]
    fn the_published_schemas_are_those_of_the_types() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/json");
        let page = include_str!("../../../../docs/reference/json.md");
        for (name, schema) in schemas() {
            let path = format!("{directory}/{name}.json");
            let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
            if std::env::var_os("EVENKEEL_BLESS").is_some() {
                fs_err::create_dir_all(directory).unwrap();
                fs_err::write(&path, &text).unwrap();
            }
            let there = fs_err::read_to_string(&path).unwrap_or_default();
            assert!(
                there == text,
                "{path} is not what the types say; set EVENKEEL_BLESS=1 to write it"
            );
            assert!(
                page.contains(&format!("json/{name}.json")),
                "docs/reference/json.md links {name}"
            );
        }
    }
}
