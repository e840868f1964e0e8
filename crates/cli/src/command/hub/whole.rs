//! `hub backup` and `hub check`: the database as a whole.

use std::io::Write as _;

use camino::Utf8Path;
use evenkeel_hub::store::{DatabaseKind, HubStore};

use crate::cli::OutputFormat;
use crate::error::{Exit, Failure};

pub(super) async fn backup(store: &HubStore, file: &Utf8Path) -> Result<Exit, Failure> {
    if store.database().kind() == DatabaseKind::Postgres {
        let message = "a hub on PostgreSQL is backed up with PostgreSQL's own tools";
        return Err(
            Failure::new(Exit::Usage, message).hint("`pg_dump --format=custom --file=FILE URL`")
        );
    }
    if file.exists() {
        let message = format!("{file} exists, and a backup overwrites nothing");
        return Err(Failure::new(Exit::Failed, message).hint("name a new file"));
    }
    store.backup(file.as_std_path()).await?;
    writeln!(std::io::stdout(), "{file} holds everything the hub kept at this moment")?;
    Ok(Exit::Ok)
}

pub(super) async fn check(store: &HubStore, output: OutputFormat) -> Result<Exit, Failure> {
    let found = store.check().await?;
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            let answer = serde_json::json!({
                "format_version": 1, "hub_id": store.hub_id(), "schema": found.schema, "faults": found.faults,
                "tables": found.tables,
            });
            writeln!(out, "{answer}")?;
        }
        OutputFormat::Table => {
            writeln!(out, "hub {}, schema {}", store.hub_id(), found.schema)?;
            for table in &found.tables {
                writeln!(out, "{:>10} {}", table.rows, table.table)?;
            }
            for fault in &found.faults {
                writeln!(out, "fault: {fault}")?;
            }
        }
    }
    if found.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(Failure::new(Exit::Failed, "the database is not whole")
        .hint("restore a backup; hosts bring the rest back"))
}
