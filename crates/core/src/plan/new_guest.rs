//! What a guest that we made is compared with until its first start, and whether a clone can become as declared.

use std::borrow::Cow;

use super::PlanProblem;
use crate::actual::{Guest, Snapshot};
use crate::desired::{DeclaredField, GuestSource, Spec};
use crate::model::id::GuestId;
use crate::operate::operation::MakingMemory;
use crate::registry;
use crate::value::Value;

/// What is declared, as far as it is planned now. A clone copies `onboot`: before anything else it is set as declared,
/// or off, because a reboot of the node could start a guest that is not as declared yet.
pub(super) fn until_first_start<'s>(
    spec: &'s Spec,
    here: &Guest,
    making: &MakingMemory,
) -> Cow<'s, Spec> {
    if !making.never_ran(here.id) {
        return Cow::Borrowed(spec);
    }
    let key = registry::find(here.id.kind, "onboot").expect("a key of both kinds");
    let declared = spec.fields.iter().find(|field| field.key == key);
    let wanted = declared.and_then(|field| field.want.clone()).unwrap_or(Value::Bool(false));
    let current = here.config.as_ref().ok().and_then(|config| config.field(key)?.current.as_ref());
    let is_on = current.is_some_and(|reading| reading.value == Value::Bool(true));
    if !is_on || wanted == Value::Bool(true) {
        return Cow::Borrowed(spec);
    }
    let fields = vec![DeclaredField { key, want: Some(wanted) }];
    Cow::Owned(Spec { fields, ..Spec::default() })
}

/// A volume that is declared smaller than the one it is copied from: the copy could never be as declared. Of a snapshot
/// the sizes are not known.
pub(super) fn smaller_than_source(
    guest: GuestId,
    spec: &Spec,
    actual: &Snapshot,
) -> Option<PlanProblem> {
    let Some(GuestSource::Clone(from)) = &spec.source else {
        return None;
    };
    let source = GuestId { kind: guest.kind, vmid: from.guest };
    let there = actual.guests.get(&from.guest).filter(|there| there.id == source)?;
    let config = there.config.as_ref().ok().filter(|_| from.snapshot.is_none())?;
    spec.fields.iter().find_map(|field| {
        let want = field.want.as_ref()?.as_property()?.size()?;
        let held = config.field(field.key)?.current.as_ref()?.value.as_property()?;
        let have = held.data_volume().and(held.size()).filter(|have| want < *have)?;
        Some(PlanProblem::SmallerThanSource { disk: field.key, want, have, source })
    })
}
