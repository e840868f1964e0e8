//! What a hub may not have made: every act for a guest that a hub declares is put before root's limits.
//!
//! Asked over the whole plan, guest by guest, so that two guests do not both get the room of one; what a plan lets through
//! counts for what comes after it. The gate plans a single guest again with what was read in its lane, and so asks the same
//! judge. It never lets anything go that is held for another reason.

use std::collections::BTreeMap;

use super::{SetView, cost};
use crate::actual::Guest;
use crate::desired::{DeclaredGuest, WantedState};
use crate::gate::create_policy::{self, CreateContext, CreateJudge, CreateUsage};
use crate::gate::new_guest::{SourceContent, as_brought, brought_volumes};
use crate::model::quantity::Bytes;
use crate::model::reason::Refusal;
use crate::operate::operation::StorageName;
use crate::plan::diff::set_config;
use crate::plan::{Action, Change, GuestPlan, Held, How, Plan, PlanContext, Step};
use crate::registry::KeyRef;
use crate::value::{Property, Value, read};

/// What is taken of each storage.
type TakenSizes = BTreeMap<StorageName, Bytes>;

/// Holds what root does not let a hub have.
pub(super) fn hold(view: &SetView<'_>, plan: &mut Plan) {
    let SetView { desired, actual, context } = view;
    let mut usage = context.create.usage.clone();
    for planned in &mut plan.guests {
        let declared = desired.guests.get(&planned.guest.vmid);
        let Some(declared) = declared.filter(|declared| declared.by.is_hub()) else { continue };
        let here = actual.guests.get(&declared.id.vmid).filter(|here| here.id == declared.id);
        let source = context.sources.get(&declared.id.vmid);
        let act = HubAct { declared, here, source };
        act.hold(planned, context, &mut usage);
    }
}

/// What an act takes of each storage, if a host bounds such acts of a hub; none if it does not.
pub fn taken_for_hub(
    action: &Action,
    declared: &DeclaredGuest,
    here: Option<&Guest>,
    source: Option<&SourceContent>,
) -> Option<BTreeMap<StorageName, Bytes>> {
    let asked = HubAct { declared, here, source }.asked(action, &BTreeMap::new());
    declared.by.is_hub().then_some(asked).filter(|asked| !asked.is_empty()).map(|asked| {
        let mut usage = CreateUsage::default();
        for asked in &asked {
            usage.take(&asked.takes());
        }
        usage.bytes
    })
}

/// A guest that a hub declares.
#[derive(Clone, Copy)]
struct HubAct<'a> {
    declared: &'a DeclaredGuest,
    here: Option<&'a Guest>,
    source: Option<&'a SourceContent>,
}

/// What is put before the judge.
enum BoundedAct<'a> {
    /// A guest is made; what it takes.
    Making(TakenSizes),
    /// A card comes onto a bridge.
    Card(&'a Change, Value),
    /// A volume is allocated.
    Volume(&'a Change, Value),
    /// A volume grows or moves; where, and what that takes. None if nobody can tell.
    Room(KeyRef, Option<(StorageName, Bytes)>),
}

impl BoundedAct<'_> {
    fn takes(&self) -> TakenSizes {
        match self {
            Self::Making(sizes) => sizes.clone(),
            Self::Card(..) | Self::Room(_, None) => TakenSizes::new(),
            Self::Volume(_, value) => {
                let new = create_policy::new_volume(value);
                let new = new.and_then(|(storage, size)| Some((storage.parse().ok()?, size)));
                new.into_iter().collect()
            }
            Self::Room(_, Some((storage, more))) => [(storage.clone(), *more)].into(),
        }
    }
}

impl HubAct<'_> {
    fn hold(self, planned: &mut GuestPlan, context: &PlanContext, usage: &mut CreateUsage) {
        // Where the volumes of slots will be by then.
        let mut moved = BTreeMap::new();
        let mut judged = Vec::with_capacity(planned.actions.len());
        for mut action in std::mem::take(&mut planned.actions) {
            let runs = match &action.held {
                None => true,
                // What a hub may not have is put before nobody to be signed.
                Some(Held::PendingSignature) => false,
                Some(_) => {
                    judged.push(action);
                    continue;
                }
            };
            let mut after = usage.clone();
            let refused = self.refused(&action, &moved, context, &mut after);
            let Some(refusal) = refused.values().next().cloned() else {
                if let Step::MoveVolume { disk, to, .. } = &action.step {
                    moved.insert(*disk, to.clone());
                }
                if runs {
                    *usage = after;
                }
                judged.push(action);
                continue;
            };
            // What is refused must not hold up the rest of the write.
            let (others, changes): (Vec<Change>, Vec<Change>) = std::mem::take(&mut action.changes)
                .into_iter()
                .partition(|change| runs && !refused.contains_key(&Some(change.key)));
            if let (Step::SetConfig(write), false) = (&action.step, others.is_empty()) {
                judged.push(self.part(&action, others, &write.digest, context));
                let part = self.part(&action, changes, &write.digest, context);
                judged.push(Action { held: Some(Held::Until(refusal)), ..part });
                *usage = after;
            } else {
                judged.push(Action { changes, held: Some(Held::Until(refusal)), ..action });
            }
        }
        planned.actions = judged;
    }

    /// A write of some of the changes.
    fn part(
        self,
        whole: &Action,
        changes: Vec<Change>,
        digest: &str,
        context: &PlanContext,
    ) -> Action {
        let step = Step::SetConfig(set_config(&changes, digest));
        let mut part = Action { step, changes, ..whole.clone() };
        let judgement = cost(&part, self.here, context);
        (part.class, part.why) = (judgement.class, judgement.why);
        part
    }

    /// Why an action may not run, by the key that is refused. What may run is added to what is used.
    fn refused(
        self,
        action: &Action,
        moved: &BTreeMap<KeyRef, String>,
        context: &PlanContext,
        usage: &mut CreateUsage,
    ) -> BTreeMap<Option<KeyRef>, Refusal> {
        let mut refused = BTreeMap::new();
        for asked in self.asked(action, moved) {
            let key = match &asked {
                BoundedAct::Making(_) => None,
                BoundedAct::Card(change, _) | BoundedAct::Volume(change, _) => Some(change.key),
                BoundedAct::Room(disk, _) => Some(*disk),
            };
            match self.judge(&asked, &context.create, usage) {
                Ok(()) => {
                    usage.take(&asked.takes());
                    usage.made_in_last_day += u64::from(matches!(asked, BoundedAct::Making(_)));
                }
                Err(refusal) => {
                    refused.insert(key, refusal);
                }
            }
        }
        refused
    }

    fn judge(
        self,
        asked: &BoundedAct<'_>,
        create: &CreateContext,
        usage: &CreateUsage,
    ) -> Result<(), Refusal> {
        let by = self.declared.by;
        let id = self.declared.id;
        let judge = CreateJudge { by, policy: create.policy.as_ref(), usage };
        match asked {
            BoundedAct::Making(_) => {
                let brought = self.brought();
                judge.create(self.declared, as_brought(brought.as_ref()))
            }
            BoundedAct::Card(change, value) => judge.network(id, change.key, value),
            BoundedAct::Volume(change, value) => judge.volume(id, change.key, value),
            BoundedAct::Room(_, Some((storage, more))) => judge.allocate(id, storage, *more),
            BoundedAct::Room(disk, None) => {
                let why = format!("how much room {disk} of {id} takes, and where, is not known");
                Err(create_policy::refuse("storages", &why))
            }
        }
    }

    fn brought(self) -> Option<BTreeMap<KeyRef, create_policy::BroughtVolume>> {
        let WantedState::Present(spec) = &self.declared.state else { return None };
        brought_volumes(self.declared.id.kind, spec, self.source)
    }

    /// What an action brings about that a host bounds.
    fn asked<'c>(
        self,
        action: &'c Action,
        moved: &BTreeMap<KeyRef, String>,
    ) -> Vec<BoundedAct<'c>> {
        match &action.step {
            Step::Make(_) => vec![BoundedAct::Making(self.made())],
            Step::SetConfig(_) => action.changes.iter().filter_map(asked_by_change).collect(),
            Step::Resize { disk, from, to, .. } => {
                let (there, _) = self.volume(*disk);
                let storage = moved.get(disk).cloned().or(there).and_then(|name| name.parse().ok());
                let more = Bytes(to.0.saturating_sub(from.0));
                vec![BoundedAct::Room(*disk, storage.map(|storage| (storage, more)))]
            }
            Step::MoveVolume { disk, to, .. } => {
                let (_, size) = self.volume(*disk);
                vec![BoundedAct::Room(*disk, to.parse().ok().zip(size))]
            }
            Step::Start
            | Step::Shutdown { .. }
            | Step::Stop
            | Step::Destroy(_)
            | Step::Remove(_)
            | Step::Template => Vec::new(),
        }
    }

    /// What a new guest takes, as far as that can be told; what cannot is refused by the judge.
    fn made(self) -> TakenSizes {
        let WantedState::Present(spec) = &self.declared.state else { return TakenSizes::new() };
        let brought = self.brought();
        let sizes = create_policy::volumes(self.declared.id, spec, as_brought(brought.as_ref()));
        sizes.unwrap_or_default()
    }

    /// The storage and the size of the volume in a slot.
    fn volume(self, disk: KeyRef) -> (Option<String>, Option<Bytes>) {
        let config = self.here.and_then(|here| here.config.as_ref().ok());
        let reading = config.and_then(|config| config.field(disk)?.current.as_ref());
        let property = reading.and_then(|reading| reading.value.as_property());
        let storage = property.and_then(|property| property.volume()?.storage());
        (storage.map(str::to_owned), property.and_then(Property::size))
    }
}

/// What the write of one key brings about that a host bounds.
fn asked_by_change(change: &Change) -> Option<BoundedAct<'_>> {
    let How::Set(text) = &change.how else { return None };
    let value = read::written(&change.key.key().format, text);
    if change.key.key().name == "net" {
        // A card that stays on its bridge has nothing new.
        let bridge = |card: &Value| card.as_property().and_then(|card| card.get("bridge")).cloned();
        let stays = change.from.as_ref().is_some_and(|from| bridge(from) == bridge(&value));
        return (!stays).then_some(BoundedAct::Card(change, value));
    }
    create_policy::new_volume(&value).is_some().then_some(BoundedAct::Volume(change, value))
}
