//! `hub backup`, `hub restore` and `hub check`: the database as a whole.

use std::io::Write as _;
use std::path::Path;

use camino::Utf8Path;
use evenkeel_hub::store::{Database, DatabaseKind, HubStore, backup_file, restore_file};

use crate::cli::OutputFormat;
use crate::error::{CommandFailure, Exit};

pub(super) async fn backup(database: &Database, file: &Utf8Path) -> Result<Exit, CommandFailure> {
    if database.kind() == DatabaseKind::Postgres {
        let message = "a hub on PostgreSQL is backed up with PostgreSQL's own tools";
        return Err(CommandFailure::new(Exit::Usage, message)
            .hint("`pg_dump --format=custom --file=FILE URL`"));
    }
    if file.exists() {
        let message = format!("{file} exists, and a backup overwrites nothing");
        return Err(CommandFailure::new(Exit::Failed, message).hint("name a new file"));
    }
    backup_file(database, file.as_std_path()).await?;
    writeln!(std::io::stdout(), "{file} holds everything the hub kept at this moment")?;
    Ok(Exit::Ok)
}

pub(super) async fn restore(
    database: &Database,
    file: &Utf8Path,
    archive: Option<&Path>,
) -> Result<Exit, CommandFailure> {
    if database.kind() == DatabaseKind::Postgres {
        let message = "a hub on PostgreSQL is restored with PostgreSQL's own tools";
        return Err(CommandFailure::new(Exit::Usage, message)
            .hint("stop every replica, then `pg_restore --clean --dbname=URL FILE`"));
    }
    if !file.exists() {
        return Err(CommandFailure::new(Exit::NotFound, format!("there is no file {file}")));
    }
    let restored = restore_file(database, file.as_std_path(), archive).await?;
    let out = &mut std::io::stdout();
    writeln!(out, "hub {} of schema {} is in place", restored.hub_id, restored.schema)?;
    if let Some(replaced) = restored.replaced {
        writeln!(out, "what was there before is {}", replaced.display())?;
    }
    writeln!(
        out,
        "Every login and enrolment token ended. Accounts, keys and hosts are those of the backup: look for what was \n\
         removed since (`evenkeel hub account list`, `evenkeel hub host list`) and remove it again before you start the hub."
    )?;
    Ok(Exit::Ok)
}

pub(super) async fn check(store: &HubStore, output: OutputFormat) -> Result<Exit, CommandFailure> {
    let found = store.check().await?;
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            let answer = serde_json::json!({
                "format_version": 1, "hub_id": store.hub_id(), "schema": found.schema, "faults": found.faults,
                "tables": found.tables, "audit_archived": found.audit_archived,
            });
            writeln!(out, "{answer}")?;
        }
        OutputFormat::Table => {
            writeln!(out, "hub {}, schema {}", store.hub_id(), found.schema)?;
            for table in &found.tables {
                writeln!(out, "{:>10} {}", table.rows, table.table)?;
            }
            writeln!(out, "{:>10} audit, archived in files", found.audit_archived)?;
            for fault in &found.faults {
                writeln!(out, "fault: {fault}")?;
            }
        }
    }
    if found.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(CommandFailure::new(Exit::Failed, "the database is not whole")
        .hint("restore a backup; hosts bring the rest back"))
}
