//! `evenkeel signers list|enrol|rotate|recover`: who may sign on a host.
//!
//! A trust file is the first link, installed by root. Every later change is a signed rotation that the
//! host's agent judges; nothing here changes a host.

pub(super) mod enrol;
mod list;
mod rotate;
mod started_file;

use evenkeel_core::sign::RotationAuthority;

use crate::cli::SignersVerb;
use crate::error::{CommandFailure, Exit};

pub(crate) async fn run(arguments: &SignersVerb) -> Result<Exit, CommandFailure> {
    match arguments {
        SignersVerb::List(arguments) => list::run(arguments).await,
        SignersVerb::Enrol(arguments) => enrol::run(arguments),
        SignersVerb::Rotate(arguments) => rotate::run(arguments, RotationAuthority::Planned),
        SignersVerb::Recover(arguments) => rotate::run(arguments, RotationAuthority::Recovery),
    }
}
