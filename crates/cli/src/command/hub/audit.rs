//! `hub audit`: what people did, with what was archived, and whether the archive is whole.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use evenkeel_hub::people::wire::AuditBody;
use evenkeel_hub::store::{ArchiveCheck, AuditLine, HubStore};
use serde_json::json;

use super::SERVER;
use crate::cli::{HubAuditVerb, OutputFormat};
use crate::command::fleet::audit_text;
use crate::error::{CommandFailure, Exit};
use crate::format::fleet::FleetAuditFormat;
use crate::{format, terminal};

pub(super) async fn run(
    store: &HubStore,
    verb: &HubAuditVerb,
    archive: Option<&Path>,
) -> Result<Exit, CommandFailure> {
    match verb {
        HubAuditVerb::List { last, output } => list(store, *last, archive, output.output).await,
        HubAuditVerb::Verify { output } => {
            verify(&store.verify_audit(named(archive)?).await?, output.output)
        }
        HubAuditVerb::Begin => {
            let archive = named(archive)?;
            store.begin_archive(archive, SERVER).await?;
            writeln!(std::io::stdout(), "a new archive begins in {}", archive.display())?;
            Ok(Exit::Ok)
        }
    }
}

fn named(archive: Option<&Path>) -> Result<&Path, CommandFailure> {
    archive.ok_or_else(|| {
        CommandFailure::new(
            Exit::Usage,
            "a hub on PostgreSQL archives its audit only where you say so",
        )
        .hint("--audit-archive DIR names the directory")
    })
}

async fn list(
    store: &HubStore,
    last: usize,
    archive: Option<&Path>,
    output: OutputFormat,
) -> Result<Exit, CommandFailure> {
    let lines = store.newest_audit(archive, last).await?;
    let body = |AuditLine { serial, at, who, act, subject, detail }| AuditBody {
        serial: serial.unsigned_abs(),
        at: at.to_text(),
        who,
        act,
        subject,
        detail,
    };
    let entries: Vec<AuditBody> = lines.into_iter().map(body).collect();
    match output {
        OutputFormat::Json => format::print(&FleetAuditFormat { format_version: 1, entries })?,
        OutputFormat::Table => terminal::print(&audit_text(&entries))?,
    }
    Ok(Exit::Ok)
}

fn verify(check: &ArchiveCheck, output: OutputFormat) -> Result<Exit, CommandFailure> {
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            writeln!(out, "{}", json!({ "format_version": 1, "archive": check }))?;
        }
        OutputFormat::Table => out.write_all(text(check).as_bytes())?,
    }
    if check.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(CommandFailure::new(Exit::Failed, "the archive of the audit is not whole")
        .hint("put the files back from a copy; a hub archives nothing more until they are whole"))
}

fn text(check: &ArchiveCheck) -> String {
    let ArchiveCheck {
        directory,
        files,
        lines,
        first,
        last,
        moved_away,
        in_both,
        table_rows,
        faults,
    } = check;
    let mut text = String::new();
    let mut write = |line: std::fmt::Arguments<'_>| {
        text.write_fmt(line).expect("writing to a string cannot fail");
    };
    write(format_args!("archive    {}\n", directory.display()));
    write(format_args!("files      {files}\n"));
    if *lines == 0 {
        write(format_args!("lines      0\n"));
    } else {
        write(format_args!("lines      {lines}, rows {first} to {last}\n"));
    }
    if *moved_away > 0 {
        write(format_args!("moved away {moved_away} lines of older files\n"));
    }
    if *in_both > 0 {
        write(format_args!(
            "in both    {in_both} rows, which the hub takes out of its table next\n"
        ));
    }
    write(format_args!("table      {table_rows} rows after those\n"));
    for fault in faults {
        write(format_args!("fault: {fault}\n"));
    }
    text
}
