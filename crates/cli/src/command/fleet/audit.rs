//! `fleet audit`: what people did at the hub.

use std::fmt::Write as _;

use evenkeel_hub::people::wire::AuditBody;

use super::all_pages;
use crate::cli::{FleetAuditArgs, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::fleet::hub_client::HubClient;
use crate::format::fleet::FleetAuditFormat;
use crate::render::tamed;
use crate::{format, terminal};

pub(super) async fn run(arguments: &FleetAuditArgs) -> Result<Exit, CommandFailure> {
    let client = HubClient::logged_in(&arguments.fleet.hub)?;
    let entries: Vec<AuditBody> = all_pages(&client, "/v1/audit", arguments.last).await?;
    match arguments.fleet.output.output {
        OutputFormat::Json => format::print(&FleetAuditFormat { format_version: 1, entries })?,
        OutputFormat::Table => terminal::print(&audit_text(&entries))?,
    }
    Ok(Exit::Ok)
}

/// Lines of an audit for people.
pub(crate) fn audit_text(entries: &[AuditBody]) -> String {
    let mut text = String::new();
    for AuditBody { at, who, act, subject, detail, .. } in entries {
        let at = tamed(at, 24);
        let who = tamed(who, 64);
        let act = tamed(act, 40);
        let subject = tamed(subject, 253);
        let detail = tamed(detail, 500);
        writeln!(text, "{at:<24}  {who}  {act}  {subject}  {detail}")
            .expect("writing to a string cannot fail");
    }
    text
}
