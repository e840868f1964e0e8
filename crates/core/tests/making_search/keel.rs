//! How evenkeel sees the node and what it lets through: the real planner, gate, judges and memories, fed with the model.
//! One thing can be hidden from it, to see whether the search misses the rule that looks at it.

use std::collections::BTreeSet;

use evenkeel_core::actual::SnapshotVolumes;
use evenkeel_core::actual::identity::identity;
use evenkeel_core::actual::surroundings::GuestSurroundings;
use evenkeel_core::desired::bin::{BinMemory, effective, is_in_bin};
use evenkeel_core::desired::{DeclaredGuest, Desired, GuestSource, WantedState};
use evenkeel_core::gate::allocation::{allocates_on, attaches, loose_volumes};
use evenkeel_core::gate::approval::asked_params;
use evenkeel_core::gate::classify::{
    ActIntent, ActionClass, Target, classify_remembering, leaving_unsaved,
};
use evenkeel_core::gate::new_guest::{
    MakeReading, NewGuest, SourceReading, StorageReading, judge_making, storages_used,
};
use evenkeel_core::gate::{FreshGuest, GateVerdict, NodeSite, judge};
use evenkeel_core::model::id::VmId;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::operate::operation::{IdentityHash, Provenance, VolumeId};
use evenkeel_core::operate::pve_call::PveCall;
use evenkeel_core::operate::recover::NumberUse;
use evenkeel_core::plan::{Action, PlanContext, Step, plan};
use evenkeel_core::registry::KeyRef;
use evenkeel_core::value::read;

use crate::acts::{Act, Deed, Wish};
use crate::journal::{BinFacts, Journal, Making, NOW, vmid};
use crate::node::{Maker, Node};
use crate::pve::{self, Request};
use crate::sight::{Eyes, Hidden, Look, snapshots};

impl Eyes {
    /// Every state that an act leads to; none if it is not let through.
    pub(crate) fn run(self, node: &Node, look: &Look, act: &Act) -> Vec<(&'static str, Node)> {
        let let_through = match &act.wish {
            Wish::Declare(declared) => self.planned(node, look, declared),
            Wish::Ask { op, guest, params } => {
                let here = look.snapshot.guests.get(&vmid(*guest));
                let shown = self.shown_params(params);
                let asked = here.and_then(|here| {
                    let asked = asked_params(*op, here, &snapshots(node, *guest), shown).ok()?;
                    PveCall::asked(*op, &asked).ok()
                });
                let request = Request {
                    op: op.as_str(),
                    guest: *guest,
                    source: None,
                    params: params.clone(),
                };
                asked.map(|_| (request, node.journal.clone()))
            }
            Wish::Send(request) => self.lets_send(node, look, request),
            Wish::Somebody(deed, guest) => return somebody(node, *deed, *guest),
        };
        let Some((request, journal)) = let_through else { return Vec::new() };
        let sent = Node { journal, ..node.clone() };
        let mut endings = Vec::new();
        for ended in pve::after(&sent, &request) {
            let mut after = ended.node;
            let found = after.guests.get(&request.guest);
            let found = found.map(|there| self.guest(&after, request.guest, there));
            let found = found.and_then(|found| identity(&found).ok());
            remember_end(&mut after.journal, &request, ended.done, found);
            self.forget(&mut after);
            endings.push((ended.how, after));
        }
        endings
    }

    /// The first thing a pass would do, as the lane's gate clears it, with what is written down before.
    fn planned(
        self,
        node: &Node,
        look: &Look,
        declared: &DeclaredGuest,
    ) -> Option<(Request, Journal)> {
        let number = declared.id.vmid;
        let desired = Desired { guests: [(number, declared.clone())].into() };
        let here = look.snapshot.guests.get(&number).filter(|here| here.id == declared.id);
        let planned = plan(&desired, &look.snapshot, &look.context);
        let planned = planned.runnable().next()?;
        let mut journal = node.journal.clone();
        let known = look.context.bins.get(&number);
        if let (WantedState::Bin(_), Some(here)) = (&declared.state, here) {
            let memory = match known {
                Some(known) if known.is_of(here) || is_in_bin(here) => known.rebound(here),
                Some(_) | None => BinMemory::of(here, NOW),
            };
            let memory = memory.map(BinFacts::of);
            journal.bins.extend(memory.map(|facts| (number.get(), facts)));
        }
        let declared = effective(declared, here, known);
        let found = node.guests.get(&number.get()).filter(|there| there.kind == declared.id.kind);
        let making = look.context.making.of(number);
        let seen = found.map(|there| (there, self.guest(node, number.get(), there)));
        let removal = seen.as_ref().and_then(|(there, seen)| self.removal(there, seen, &making));
        let found = seen.map(|(_, seen)| seen);
        let fresh = found.as_ref().map_or(FreshGuest::NotThere, FreshGuest::Here);
        let mut memories = look.context.memories.clone();
        memories.retain(|of, _| *of == number);
        let site = NodeSite::of(&look.snapshot);
        let removals = removal.map(|verdict| (number, verdict)).into_iter().collect();
        let known = PlanContext { memories, making, removals, ..PlanContext::default() };
        let judged = judge(planned, &declared, fresh, &site, &known);
        let GateVerdict::Clear(action) = judged else { return None };
        PveCall::planned(&action.step).ok()?;
        if let Step::Make(new) = &action.step {
            found.is_none().then_some(())?;
            judge_making(new, &self.reading(node, new)).ok()?;
        }
        if let Some(here) = &found {
            self.check_volumes(node, here, &action)?;
            write_down(&mut journal, here, &action.step);
        }
        Some((self.request(&action), journal))
    }

    fn request(self, action: &Action) -> Request {
        let clone_source = |new: &NewGuest| new.clone_source().map(VmId::get);
        let made = if let Step::Make(new) = &action.step { Some(new) } else { None };
        let source = made.and_then(|new| clone_source(new));
        let params = action.step.params().into_iter();
        let params = params.map(|(name, text)| (name, self.real(&text))).collect();
        Request { op: action.step.kind().as_str(), guest: action.guest.vmid.get(), source, params }
    }

    /// What the lane asks of storages before a write: that what is attached is the guest's, and that nothing hangs loose
    /// where something is allocated.
    fn check_volumes(
        self,
        node: &Node,
        here: &evenkeel_core::actual::Guest,
        action: &Action,
    ) -> Option<()> {
        let number = here.id.vmid.get();
        if let Step::SetConfig(_) = action.step {
            let mut comes = attaches(here, &action.step.params()).into_iter();
            let listed = |(storage, volume): (String, String)| {
                self.listed(node, &storage, number).any(|listed| listed.as_str() == volume)
            };
            comes.all(listed).then_some(())?;
        }
        let storages = allocates_on(action.step.kind(), here.id.kind, &action.step.params());
        let volumes: BTreeSet<VolumeId> =
            storages.iter().flat_map(|storage| self.listed(node, storage, number)).collect();
        loose_volumes(here, &volumes, &SnapshotVolumes::none()).next().is_none().then_some(())
    }

    fn listed(self, node: &Node, storage: &str, number: u32) -> impl Iterator<Item = VolumeId> {
        // A storage goes by names; with owners hidden every volume there is the guest's.
        let mut listed: Vec<String> = node.listed_of(storage, number).cloned().collect();
        if self.0 == Hidden::Owners {
            listed.extend(node.volumes.keys().map(|name| self.shown(name)));
        }
        listed.into_iter().map(|name| name.parse().expect("a volume's name"))
    }

    /// What the lane reads before it makes a guest.
    fn reading(self, node: &Node, new: &NewGuest) -> MakeReading {
        let number = new.guest.vmid.get();
        let source = self.source(node, new);
        let storages = storages_used(new, &source);
        let left = storages.iter().flat_map(|storage| self.listed(node, storage, number));
        let room = StorageReading { active: true, free: Some(Bytes(1 << 50)), promised: Bytes(0) };
        MakeReading {
            brought: std::collections::BTreeMap::new(),
            number: if node.guests.contains_key(&number) && self.sees_taken_numbers() {
                NumberUse::Taken
            } else {
                NumberUse::Free
            },
            tasks: Vec::new(),
            volumes: left.filter(|_| self.0 != Hidden::LeftVolumes).collect(),
            storages: storages.iter().map(|storage| (storage.clone(), room.clone())).collect(),
            source,
            around: GuestSurroundings::empty(),
        }
    }

    fn source(self, node: &Node, new: &NewGuest) -> SourceReading {
        match &new.source {
            GuestSource::Empty => SourceReading::None,
            GuestSource::Template(_) => {
                SourceReading::Volume { listed: true, owner: None, mark: None }
            }
            GuestSource::Backup { volume, .. } => {
                let listed = node.archives.get(volume.as_str());
                let owner = listed.map(|(of, _)| *of);
                SourceReading::Volume { listed: listed.is_some(), owner, mark: None }
            }
            GuestSource::Image { volume, .. } => {
                let listed = node.volumes.get(volume.as_str());
                let owner = listed.map(|volume| volume.owner).filter(|owner| *owner != 0);
                let owner = owner.filter(|_| self.0 != Hidden::ImageOwners);
                SourceReading::Volume { listed: listed.is_some(), owner, mark: None }
            }
            GuestSource::Clone(from) => {
                let number = from.guest.get();
                let there = node.guests.get(&number).filter(|there| there.kind == new.guest.kind);
                let seen = there.map(|there| Box::new(self.guest(node, number, there)));
                SourceReading::Guest(seen)
            }
        }
    }

    /// A request beside every plan: the classifier is asked about it, as it is shown.
    fn lets_send(self, node: &Node, look: &Look, request: &Request) -> Option<(Request, Journal)> {
        let there = node.guests.get(&request.guest);
        let seen = there.map(|there| self.guest(node, request.guest, there));
        let target = match &seen {
            Some(_) if !self.sees_taken_numbers() && is_making(request) => Target::Free,
            Some(seen) => Target::Seen(seen),
            None => Target::Free,
        };
        let params = self.shown_params(&request.params);
        let intent = ActIntent { op: request.op, kind: node.kind, params: &params, target };
        let memory = look.context.memories.get(&vmid(request.guest)).cloned().unwrap_or_default();
        let judged = classify_remembering(&intent, &Provenance::none(), &memory.backups);
        (judged.class != ActionClass::Destructive).then_some(())?;
        Some((request.clone(), node.journal.clone()))
    }
}

fn is_making(request: &Request) -> bool {
    matches!(request.op, "create" | "clone" | "restore")
}

/// What the lane writes down before it sends.
fn write_down(journal: &mut Journal, here: &evenkeel_core::actual::Guest, step: &Step) {
    if let Step::SetConfig(write) = step {
        let set = write.set.iter().map(|(key, text)| (*key, Some(text.as_str())));
        leave(journal, here, set.chain(write.delete.iter().map(|key| (*key, None))));
    }
    if let Step::MoveVolume { disk, volume, .. } = step {
        leave(journal, here, [(*disk, None)]);
        journal.moved.insert((here.id.vmid.get(), volume.clone()), disk.to_string());
    }
}

fn leave<'t>(
    journal: &mut Journal,
    here: &evenkeel_core::actual::Guest,
    slots: impl IntoIterator<Item = (KeyRef, Option<&'t str>)>,
) {
    let Ok(config) = &here.config else { return };
    let slots: Vec<_> = slots
        .into_iter()
        .map(|(key, text)| (key, text.map(|text| read::written(&key.key().format, text))))
        .collect();
    let left = leaving_unsaved(config, slots.iter().map(|(key, value)| (*key, value.as_ref())));
    journal.unsaved.extend(left.into_iter().map(|volume| (here.id.vmid.get(), volume)));
}

/// What the journal knows once a request has ended.
fn remember_end(journal: &mut Journal, request: &Request, done: bool, found: Option<IdentityHash>) {
    let number = request.guest;
    match request.op {
        _ if is_making(request) => {
            let failed = || Making::Failed(found.map(|found| found.0));
            let outcome = if done { Making::Done } else { failed() };
            journal.making.insert(number, outcome);
        }
        "start" if done && journal.making.get(&number) == Some(&Making::Done) => {
            journal.making.remove(&number);
        }
        "destroy" if done => {
            journal.making.remove(&number);
        }
        _ => {}
    }
}

/// What people do on the node.
fn somebody(node: &Node, deed: Deed, number: u32) -> Vec<(&'static str, Node)> {
    let mut next = node.clone();
    let Some(guest) = next.guests.get_mut(&number) else { return Vec::new() };
    match deed {
        Deed::Unlocks if guest.lock.is_some() => guest.lock = None,
        Deed::Starts
            if guest.lock.is_none() && !guest.running && guest.maker != Maker::Somebody =>
        {
            guest.running = true;
        }
        Deed::Uses if guest.lock.is_none() && !guest.running && guest.maker != Maker::Somebody => {
            guest.running = true;
            next.note_what_happens();
            next.guests.entry(number).and_modify(|guest| guest.running = false);
        }
        Deed::Unlocks | Deed::Starts | Deed::Uses => return Vec::new(),
    }
    next.note_what_happens();
    vec![("done", next)]
}
