//! `evenkeel hub`: the server of a fleet, and what its own machine may do to its database.
//!
//! The sub-verbs open the same database as the server, beside it: whoever can read that file, or reach that PostgreSQL,
//! needs no other right.

mod accounts;
mod hosts;
mod serve;
mod whole;

use evenkeel_hub::server::open_store;
use evenkeel_hub::store::{HubStore, StoreError};

use crate::cli::{HubArgs, HubPlace, HubVerb};
use crate::error::{Exit, Failure};

/// Who did it, in the audit.
const SERVER: &str = "server";

pub(crate) async fn run(arguments: &HubArgs) -> Result<Exit, Failure> {
    let Some(verb) = &arguments.verb else { return serve::run(arguments).await };
    if let HubVerb::Backup { .. } | HubVerb::Check { .. } | HubVerb::Host(_) = verb {
        must_exist(&arguments.place)?;
    }
    let store = store(&arguments.place).await?;
    let done = match verb {
        HubVerb::Account(verb) => accounts::run(&store, verb).await,
        HubVerb::EnrolToken { host, replace, output } => {
            hosts::enrol_token(&store, host, *replace, output.output).await
        }
        HubVerb::Host(verb) => hosts::run(&store, verb).await,
        HubVerb::Backup { file } => whole::backup(&store, file).await,
        HubVerb::Check { output } => whole::check(&store, output.output).await,
    };
    store.close().await;
    done
}

async fn store(place: &HubPlace) -> Result<HubStore, Failure> {
    Ok(open_store(place.state.as_std_path(), place.database.as_deref()).await?)
}

/// Looking at a hub must not make one.
fn must_exist(place: &HubPlace) -> Result<(), Failure> {
    let file = place.state.join("hub.sqlite");
    if place.database.is_some() || file.exists() {
        return Ok(());
    }
    let message = format!("there is no hub in {}: {file} does not exist", place.state);
    Err(Failure::new(Exit::NotFound, message)
        .hint("name its directory with --state, or its database with --database"))
}

impl From<StoreError> for Failure {
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
            StoreError::Newer { .. } => Self::wrapping(Exit::Invalid, error)
                .hint("start the newer evenkeel, or restore the backup that was made before it"),
            StoreError::Database(_) | StoreError::File(_) | StoreError::Damaged(_) => {
                Self::wrapping(Exit::Failed, error)
            }
        }
    }
}

impl From<evenkeel_hub::problem::Problem> for Failure {
    fn from(problem: evenkeel_hub::problem::Problem) -> Self {
        StoreError::Refused(problem).into()
    }
}
