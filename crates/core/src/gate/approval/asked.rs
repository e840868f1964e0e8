//! Whether what somebody asks for names the parameters an act has, in words for whoever asked.
//!
//! Called before anything is filled in. It allows nothing: what is asked for well is still classified and signed.

use std::collections::BTreeMap;

use crate::action_registry::{ActionKind, FilledFrom, ParamForm, ParamRow};
use crate::actual::{Guest, PRESENT, SnapshotPoint};
use crate::model::id::GuestKind;
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::pve_call::detached_volume;
use crate::registry;

/// How many snapshots or slots a message lists.
const LISTED_MAX: usize = 8;

/// Refuses a parameter the act does not have, a value that is none of its form, and a name that is missing.
pub(super) fn check(
    op: ActionKind,
    guest: &Guest,
    snapshots: &[SnapshotPoint],
    given: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(ReasonCode::Payload, why));
    let row = op.row();
    match row.filled_from {
        FilledFrom::Snapshot if !given.contains_key("snapname") => {
            return refuse(format!("{op} needs snapname=NAME: {}", snapshots_of(guest, snapshots)));
        }
        FilledFrom::DetachedVolume if !given.contains_key("slot") => {
            return refuse(format!("{op} needs slot=unusedN: {}", slots_of(guest)));
        }
        FilledFrom::Snapshot
        | FilledFrom::DetachedVolume
        | FilledFrom::Defaults
        | FilledFrom::GuestToDestroy => {}
    }
    for (name, value) in given {
        match op.param(guest.id.kind, name) {
            Some(param) if param.form.fits(value) => {}
            Some(param) => {
                let form = values(param.form);
                return refuse(format!("{name}={value} is not understood: {name} is {form}"));
            }
            None if row.takes_keys => {}
            None => {
                let known = names(row.params, guest.id.kind);
                return refuse(format!("{op} has no parameter {name}; it has {known}"));
            }
        }
    }
    Ok(())
}

/// What may stand behind the `=`.
fn values(form: ParamForm) -> &'static str {
    match form {
        ParamForm::Flag => "0 or 1",
        ParamForm::Count => "a whole number",
        ParamForm::VmId => "a guest's number, such as 101",
        ParamForm::Node => "the name of a node",
        ParamForm::Storage => "the name of a storage, such as local-lvm",
        ParamForm::StorageOrNothing => "the name of a storage, such as local, or nothing",
        ParamForm::LeftOut => "the volumes that the backup leaves out, as the guest says",
        ParamForm::Volume => "a volume, such as local-lvm:vm-101-disk-1",
        ParamForm::Slot => "a slot, such as unused0",
        ParamForm::Keys => "keys with commas between, such as net1,mp0",
        ParamForm::Snapshot => "the name of a snapshot",
        ParamForm::Text => "text",
    }
}

/// What somebody may give; the digest is read from the guest.
fn names(params: &[ParamRow], kind: GuestKind) -> String {
    let known: Vec<&str> = params
        .iter()
        .filter(|param| param.is_of(kind) && param.name != "digest")
        .map(|param| param.name)
        .collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

fn snapshots_of(guest: &Guest, snapshots: &[SnapshotPoint]) -> String {
    let names = snapshots.iter().map(|point| point.name.as_str()).filter(|name| *name != PRESENT);
    match listed(names) {
        Some(names) => format!("{} has the snapshots {names}", guest.id),
        None => format!("{} has no snapshot", guest.id),
    }
}

fn slots_of(guest: &Guest) -> String {
    let unused = (0..).map_while(|slot| {
        let name = format!("unused{slot}");
        registry::find(guest.id.kind, &name).map(|_| name)
    });
    let held = unused.filter_map(|slot| {
        detached_volume(guest, &slot).map(|volume| format!("{slot} ({volume})"))
    });
    let held: Vec<String> = held.collect();
    match listed(held.iter().map(String::as_str)) {
        Some(held) => format!("the detached volumes of {} are {held}", guest.id),
        None => format!(
            "{} has no detached volume; to detach one, change its desired file first",
            guest.id
        ),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.take(LISTED_MAX).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
