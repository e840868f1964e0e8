//! `evenkeel schema`: the JSON Schema of desired files, generated from the key registry.

use std::io::Write as _;

use crate::error::{CommandFailure, Exit};

pub(crate) fn run() -> Result<Exit, CommandFailure> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &evenkeel_core::desired::schema())
        .map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(Exit::Ok)
}
