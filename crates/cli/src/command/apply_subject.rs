//! What stands after `apply`: guests, or the file of a saved plan.
//!
//! Told apart by how it is written and what is here, never by guessing: `101` and `lxc/101` are guests; what ends in `.json`
//! or `.plan`, or leads through a directory, is a file; a bare word is a file if there is one, else the name of a guest.
//! Where it is both, nobody goes on.

use camino::Utf8Path;
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::{Candidate, GuestName};
use evenkeel_core::plan::SavedPlan;

use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// What shall be applied.
#[derive(Debug)]
pub(super) enum ApplySubject {
    /// These guests; all of them if none is named.
    Guests(Vec<GuestName>),
    /// Exactly this plan.
    Plan(SavedPlan),
}

/// Reads what was written; a plan is read from its file.
pub(super) fn read(subjects: &[String], desired: &Desired) -> Result<ApplySubject, CommandFailure> {
    if let [one] = subjects
        && is_plan(one, desired)?
    {
        return Ok(ApplySubject::Plan(read_plan(Utf8Path::new(one))?));
    }
    let mut guests = Vec::new();
    for subject in subjects {
        if is_plan(subject, desired)? {
            return Err(CommandFailure::new(
                Exit::Usage,
                format!("{subject} is a saved plan, and stands alone"),
            )
            .hint("one saved plan, or guests"));
        }
        let guest =
            subject.parse().map_err(|error| CommandFailure::wrapping(Exit::Usage, error))?;
        guests.push(guest);
    }
    Ok(ApplySubject::Guests(guests))
}

/// The endings people give to saved plans.
const PLAN_ENDINGS: [&str; 2] = ["json", "plan"];

fn is_plan(subject: &str, desired: &Desired) -> Result<bool, CommandFailure> {
    let path = Utf8Path::new(subject);
    if path.extension().is_some_and(|ending| PLAN_ENDINGS.contains(&ending)) {
        return Ok(true);
    }
    let guest = subject.parse::<GuestName>();
    // Whatever stands there: what is no plain file is refused by whoever reads it.
    let is_there = path.exists() && !path.is_dir();
    match (guest, is_there) {
        (Ok(GuestName::Name(name)), true) if !is_declared(&name, desired) => Ok(true),
        (Ok(guest), true) => {
            let other = match &guest {
                GuestName::Number(vmid) => format!("lxc/{vmid} or qemu/{vmid}"),
                GuestName::Id(id) => id.vmid.to_string(),
                GuestName::Name(_) => "its number".to_owned(),
            };
            let message = format!("{guest} may be a guest, and is a file here");
            Err(CommandFailure::new(Exit::Usage, message)
                .hint(format!("write ./{subject} for the saved plan, or {other} for the guest")))
        }
        (Ok(_), false) => Ok(false),
        (Err(_), is_there) => Ok(is_there || subject.contains('/')),
    }
}

fn is_declared(name: &str, desired: &Desired) -> bool {
    let guests = desired.guests.values().map(Candidate::declared);
    guests.filter_map(|guest| guest.name).any(|other| other.eq_ignore_ascii_case(name))
}

/// The largest saved plan that is read: ten thousand guests with a kilobyte of changes each, twice over.
const PLAN_BYTES_MAX: usize = 20 << 20;

fn read_plan(path: &Utf8Path) -> Result<SavedPlan, CommandFailure> {
    let bytes = file::read(path, PLAN_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        CommandFailure::new(Exit::Invalid, format!("{path} is not a saved plan: {error}"))
            .hint("`evenkeel plan --out FILE` writes one")
    })
}
