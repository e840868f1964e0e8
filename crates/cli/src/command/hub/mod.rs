//! `evenkeel hub`: the server of a fleet, and what its own machine may do to its database.
//!
//! The sub-verbs open the same database as the server, beside it: whoever can read that file, or reach that PostgreSQL,
//! needs no other right.

mod accounts;
mod audit;
mod hosts;
mod serve;
mod whole;

use std::path::PathBuf;

use camino::Utf8Path;
use evenkeel_hub::server::{database_of, open_store};
use evenkeel_hub::store::{Database, HubStore, StoreError, archive_directory};

use crate::cli::{HubAccountVerb, HubArgs, HubPlace, HubVerb};
use crate::error::{CommandFailure, Exit};

/// Who did it, in the audit.
const SERVER: &str = "server";

pub(crate) async fn run(arguments: &HubArgs) -> Result<Exit, CommandFailure> {
    let Some(verb) = &arguments.verb else { return serve::run(arguments).await };
    match verb {
        // These two are about a file, whatever its schema: no store is opened on it.
        HubVerb::Backup { file } => {
            must_exist(&arguments.place)?;
            return whole::backup(&database(&arguments.place)?, file).await;
        }
        HubVerb::Restore { file } => {
            let database = database(&arguments.place)?;
            let archive = archive(&arguments.place, &database);
            return whole::restore(&database, file, archive.as_deref()).await;
        }
        HubVerb::Check { .. } | HubVerb::Host(_) | HubVerb::Audit(_) => {
            must_exist(&arguments.place)?;
        }
        HubVerb::Account(
            HubAccountVerb::List { .. }
            | HubAccountVerb::Change { .. }
            | HubAccountVerb::Remove { .. }
            | HubAccountVerb::AddKey { .. }
            | HubAccountVerb::RemoveKey { .. }
            | HubAccountVerb::Logout { .. },
        ) => must_exist(&arguments.place)?,
        // Before the first start there may be a first account and a first token.
        HubVerb::Account(HubAccountVerb::Add { .. }) | HubVerb::EnrolToken { .. } => {}
    }
    let store = store(&arguments.place).await?;
    let done = match verb {
        HubVerb::Account(verb) => accounts::run(&store, verb).await,
        HubVerb::EnrolToken { host, replace, output } => {
            hosts::enrol_token(&store, host, *replace, output.output).await
        }
        HubVerb::Host(verb) => hosts::run(&store, verb).await,
        HubVerb::Audit(verb) => {
            let archive = archive(&arguments.place, store.database());
            audit::run(&store, verb, archive.as_deref()).await
        }
        HubVerb::Backup { .. } | HubVerb::Restore { .. } => unreachable!("they are done above"),
        HubVerb::Check { output } => whole::check(&store, output.output).await,
    };
    store.close().await;
    done
}

async fn store(place: &HubPlace) -> Result<HubStore, CommandFailure> {
    Ok(open_store(place.state.as_std_path(), place.database.as_deref()).await?)
}

fn database(place: &HubPlace) -> Result<Database, CommandFailure> {
    Ok(database_of(place.state.as_std_path(), place.database.as_deref())?)
}

fn archive(place: &HubPlace, database: &Database) -> Option<PathBuf> {
    archive_directory(database, place.audit_archive.as_deref().map(Utf8Path::as_std_path))
}

/// Looking at a hub must not make one.
fn must_exist(place: &HubPlace) -> Result<(), CommandFailure> {
    let file = place.state.join("hub.sqlite");
    if place.database.is_some() || file.exists() {
        return Ok(());
    }
    let message = format!("there is no hub in {}: {file} does not exist", place.state);
    Err(CommandFailure::new(Exit::NotFound, message)
        .hint("name its directory with --state, or its database with --database"))
}

impl From<StoreError> for CommandFailure {
    fn from(error: StoreError) -> Self {
        use evenkeel_hub::problem::ProblemCode;
        match error {
            StoreError::Refused(problem) => {
                let exit = match problem.code {
                    ProblemCode::NotFound => Exit::NotFound,
                    ProblemCode::Invalid | ProblemCode::TooLarge => Exit::Invalid,
                    ProblemCode::Unauthorised | ProblemCode::Forbidden => Exit::Denied,
                    ProblemCode::Stale | ProblemCode::Resync | ProblemCode::Unavailable => {
                        Exit::Transient
                    }
                    ProblemCode::Conflict | ProblemCode::TooMany | ProblemCode::Internal => {
                        Exit::Failed
                    }
                };
                let failure = Self::new(exit, problem.detail);
                match problem.hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            StoreError::Busy => {
                Self::new(Exit::Transient, "the database is busy").hint("try again")
            }
            StoreError::Url(why) => Self::new(Exit::Usage, why),
            StoreError::InUse(why) => {
                Self::new(Exit::Denied, why).hint("stop the hub first: systemctl stop evenkeel-hub")
            }
            StoreError::Newer { .. } => Self::wrapping(Exit::Invalid, error)
                .hint("start the newer evenkeel, or restore the backup that was made before it"),
            StoreError::Database(_)
            | StoreError::File(_)
            | StoreError::Damaged(_)
            | StoreError::Archive(_) => Self::wrapping(Exit::Failed, error),
        }
    }
}

impl From<evenkeel_hub::problem::Problem> for CommandFailure {
    fn from(problem: evenkeel_hub::problem::Problem) -> Self {
        StoreError::Refused(problem).into()
    }
}
