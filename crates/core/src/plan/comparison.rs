//! Whether a configuration is as declared: what can be told of a guest before anybody says whether it runs.
//!
//! ```text
//!   remembered configurations ─> EarlyComparison ─┐   while the node is asked who runs
//!   run states, locks, what was written ──────────┴─> plan
//! ```
//!
//! `diff` asks the same rules, field by field, so that both stages mean the same by it. What is found early belongs to one
//! pass and one declaration. It must never be kept for the next: a finding that should have been dropped would hide drift.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Plan, PlanContext, plan_compared, volumes};
use crate::actual::{ConfigField, Guest, GuestConfig, Snapshot};
use crate::desired::{DeclaredField, Desired, IgnoreList, Spec, WantedState};
use crate::model::id::{GuestId, VmId};
use crate::value::Value;
use crate::value::compare::{Conventions, Difference, difference};

/// What one pass compared while it waited.
#[derive(Debug)]
pub struct EarlyComparison<'d> {
    desired: &'d Desired,
    /// Of these a plan has nothing to say but whether they run.
    settled: BTreeMap<VmId, SettledConfig>,
}

/// A configuration of which nothing is to be said, and what that was judged by.
#[derive(Debug)]
struct SettledConfig {
    config: Arc<GuestConfig>,
    conventions: Conventions,
}

impl<'d> EarlyComparison<'d> {
    /// Nothing is compared yet.
    pub fn of(desired: &'d Desired) -> Self {
        Self { desired, settled: BTreeMap::new() }
    }

    /// What it is compared with.
    pub fn desired(&self) -> &'d Desired {
        self.desired
    }

    /// Compares the configuration of a guest with what is declared for it, if anything is.
    pub fn compare(&mut self, guest: GuestId, config: &Arc<GuestConfig>, conventions: Conventions) {
        let declared = self.desired.guests.get(&guest.vmid).filter(|found| found.id == guest);
        let Some(WantedState::Present(spec)) = declared.map(|found| &found.state) else { return };
        let fields = FieldComparison::new(guest.vmid, spec, conventions);
        if is_settled(fields, spec, config) {
            let config = Arc::clone(config);
            self.settled.insert(guest.vmid, SettledConfig { config, conventions });
        }
    }

    /// Compares what is left, and plans what brings actual to desired.
    pub fn plan(&self, actual: &Snapshot, context: &PlanContext) -> Plan {
        plan_compared(self, actual, context)
    }

    /// Whether this very configuration was found to be as declared, with no volume left over.
    pub(super) fn is_settled(&self, here: &Guest, conventions: Conventions) -> bool {
        let settled = self.settled.get(&here.id.vmid).zip(here.config.as_ref().ok());
        settled.is_some_and(|(settled, config)| {
            Arc::ptr_eq(&settled.config, config) && settled.conventions == conventions
        })
    }
}

/// Whether everything declared is in effect and stays so, and no detached volume is there to be told of.
fn is_settled(fields: FieldComparison<'_>, spec: &Spec, config: &GuestConfig) -> bool {
    declared_fields(spec, config).all(|(field, have)| fields.is_settled(field, have))
        && config.fields.iter().all(|field| volumes::detached(field).is_none())
}

/// Every declared field that is not ignored, with the stored one.
pub(super) fn declared_fields<'a>(
    spec: &'a Spec,
    config: &'a GuestConfig,
) -> impl Iterator<Item = (&'a DeclaredField, Option<&'a ConfigField>)> {
    let mut stored = config.fields.iter().peekable();
    spec.fields.iter().filter(|field| !spec.ignore.whole(field.key)).map(move |field| {
        // Both lists are sorted by key: walk them side by side.
        while stored.next_if(|other| other.key < field.key).is_some() {}
        (field, stored.next_if(|other| other.key == field.key))
    })
}

/// How declared and stored values of one guest are compared.
#[derive(Clone, Copy)]
pub(super) struct FieldComparison<'a> {
    vmid: VmId,
    conventions: Conventions,
    pub(super) ignore: &'a IgnoreList,
    /// It is declared a template.
    template: bool,
}

impl<'a> FieldComparison<'a> {
    pub(super) fn new(vmid: VmId, spec: &'a Spec, conventions: Conventions) -> Self {
        Self { vmid, conventions, ignore: &spec.ignore, template: spec.template }
    }

    /// Whether a field is as declared and stays so.
    pub(super) fn is_settled(&self, field: &DeclaredField, have: Option<&ConfigField>) -> bool {
        if is_plainly_settled(field, have) {
            return true;
        }
        if volumes::other_storage(field, have).is_some() {
            return false;
        }
        let field = &*self.on_base(field, have);
        let current = have.and_then(|have| have.current.as_ref());
        let stays = |have: &ConfigField| {
            let after = have.after_restart().map(|reading| &reading.value);
            have.waiting.is_none() || self.difference(field, after) == Difference::Same
        };
        self.difference(field, current.map(|reading| &reading.value)) == Difference::Same
            && have.is_none_or(stays)
    }

    /// A field as declared; that of a declared template whose volume is a base image by now, as that image.
    pub(super) fn on_base<'f>(
        &self,
        field: &'f DeclaredField,
        have: Option<&ConfigField>,
    ) -> Cow<'f, DeclaredField> {
        let base = self.template.then(|| volumes::as_base(field, have)).flatten();
        base.map_or(Cow::Borrowed(field), Cow::Owned)
    }

    /// A field as declared, but for what is ignored: that is as it is.
    pub(super) fn effective<'f>(
        &self,
        field: &'f DeclaredField,
        have: Option<&Value>,
    ) -> Cow<'f, DeclaredField> {
        let want = field.want.as_ref().zip(have);
        match want.and_then(|(want, have)| self.ignore.as_stored(field.key, want, have)) {
            Some(want) => Cow::Owned(DeclaredField { key: field.key, want: Some(want) }),
            None => Cow::Borrowed(field),
        }
    }

    pub(super) fn difference(&self, field: &DeclaredField, have: Option<&Value>) -> Difference {
        let own = match (&field.want, have) {
            (Some(want), Some(have)) => self.ignore.as_stored(field.key, want, have),
            // Absence lacks nothing that counts if all that is declared is ignored.
            (Some(want), None) => self.ignore.without(field.key, want),
            (None, _) => None,
        };
        let want = own.as_ref().or(field.want.as_ref());
        difference(field.key.key(), self.vmid, want, have, self.conventions)
    }
}

/// Whether a field is plainly what is declared, and stays so: most fields of most guests are. The rules for the others
/// would all say the same of it.
fn is_plainly_settled(field: &DeclaredField, have: Option<&ConfigField>) -> bool {
    let stays = have.filter(|have| have.waiting.is_none());
    let stored = stays.and_then(|have| have.current.as_ref()).map(|reading| &reading.value);
    stored.is_some() && stored == field.want.as_ref()
}
