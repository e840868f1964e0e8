//! The search: every state that sequences of unsigned requests can reach, each state looked at once.
#![expect(
    clippy::disallowed_types,
    reason = "states are looked up by the hundred thousand, and the time is told"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use evenkeel_core::actual::Guest;
use evenkeel_core::gate::classify::{BackupMemory, leaving_unsaved, saved_volumes};
use evenkeel_core::registry;
use evenkeel_core::value::read;

use crate::eyes::Eyes;
use crate::model::{Disk, FOREIGN, Model, Slots, VOLUMES, Volume, all_volumes, name};
use crate::pve;
use crate::request::{self, Request};
use crate::sequences::sequences;

/// How a volume was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    Deleted,
    Unreferenced,
    Shrunk,
    OutOfBackups,
    /// Two disks write to it.
    Shared,
    /// Another guest has it, or this one has another's.
    OthersGot,
    Misread,
    Overwritten,
}

/// A sequence that loses something.
pub(crate) struct Finding {
    pub(crate) loss: Loss,
    pub(crate) volume: Volume,
    pub(crate) steps: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {}: {}",
            self.loss,
            VOLUMES[usize::from(self.volume)].0,
            self.steps.join("; ")
        )
    }
}

/// What a search came to.
#[derive(Default)]
pub(crate) struct Searched {
    pub(crate) states: usize,
    /// Judgements the classifier was asked for.
    pub(crate) judged: u64,
    /// Sequences of requests that run unsigned, one shorter than what was looked at: of the last requests only those
    /// that lose something were asked about.
    pub(crate) sequences: u128,
    pub(crate) took: Duration,
    pub(crate) findings: Vec<Finding>,
}

/// A request with its parameters as evenkeel is shown them.
struct Tried {
    request: Request,
    params: BTreeMap<String, String>,
}

/// A state with the way to it.
struct Reached {
    model: Model,
    from: Option<(usize, usize)>,
    leads_to: Vec<usize>,
}

/// Looks at every sequence of up to `depth` requests; tells the first loss of each kind.
pub(crate) fn search(start: &Model, depth: usize, eyes: Eyes) -> Searched {
    let began = Instant::now();
    let mut judge = Judge::new(start, eyes);
    let mut searched = Searched::default();
    let mut reached = vec![Reached { model: start.clone(), from: None, leads_to: Vec::new() }];
    let mut known: HashMap<Model, usize> = HashMap::from([(start.clone(), 0)]);
    let mut layer = vec![0];
    for left in (0..depth).rev() {
        let mut next_layer = Vec::new();
        for at in layer {
            let reader = judge.look(&reached[at].model);
            for which in 0..judge.requests.len() {
                let Some((next, lost)) = judge.step(&reader, &reached[at].model, which, left == 0)
                else {
                    continue;
                };
                let to = *known.entry(next.clone()).or_insert(reached.len());
                reached[at].leads_to.push(to);
                if to < reached.len() {
                    continue;
                }
                reached.push(Reached {
                    model: next,
                    from: Some((at, which)),
                    leads_to: Vec::new(),
                });
                match lost {
                    // What is lost stays lost: nothing is looked for beyond it.
                    Some((loss, volume)) => {
                        if searched.findings.iter().all(|found| found.loss != loss) {
                            let steps = way(&reached, to, &judge.requests, start);
                            searched.findings.push(Finding { loss, volume, steps });
                        }
                    }
                    None => next_layer.push(to),
                }
            }
        }
        layer = next_layer;
    }
    searched.judged = judge.judged;
    searched.states = reached.len();
    searched.sequences = sequences(|at| &reached[at].leads_to, reached.len(), depth - 1);
    searched.took = began.elapsed();
    searched
}

/// Asks the classifier, once for each request and each guest as it is seen.
struct Judge {
    start: Model,
    eyes: Eyes,
    requests: Vec<Tried>,
    verdicts: HashMap<Model, Vec<Option<bool>>>,
    judged: u64,
}

/// A state as evenkeel sees it.
struct EvidenceReader {
    seen: Model,
    guest: Guest,
    memory: BackupMemory,
}

impl Judge {
    fn new(start: &Model, eyes: Eyes) -> Self {
        let requests = request::all(start.scene).into_iter();
        let requests = requests
            .map(|request| Tried { params: request.params(start.kind, eyes), request })
            .collect();
        Self { start: start.clone(), eyes, requests, verdicts: HashMap::new(), judged: 0 }
    }

    fn look(&self, model: &Model) -> EvidenceReader {
        let guest = self.eyes.guest(model, &Request::Start);
        EvidenceReader { seen: model.seen(), guest, memory: self.eyes.memory(model) }
    }

    /// One request that Proxmox VE takes and evenkeel sends unsigned, if it changes anything, with what it loses. Of
    /// the last requests of a sequence only those that would lose something are asked about.
    fn step(
        &mut self,
        reader: &EvidenceReader,
        model: &Model,
        which: usize,
        last: bool,
    ) -> Option<(Model, Option<(Loss, Volume)>)> {
        let Tried { request, params } = &self.requests[which];
        let mut next = pve::after(model, request)?;
        if next == *model {
            return None;
        }
        let lost = losses(&self.start, &next).first().copied();
        if last && lost.is_none() {
            return None;
        }
        let size = self.requests.len();
        let verdicts = self.verdicts.entry(reader.seen.clone()).or_insert_with(|| vec![None; size]);
        let allowed = *verdicts[which].get_or_insert_with(|| {
            self.judged += 1;
            self.eyes.allow(model, &reader.guest, &reader.memory, request, params)
        });
        allowed.then_some(())?;
        remember(model, &reader.guest, request, &mut next);
        Some((next, lost))
    }
}

/// What evenkeel's journal remembers after a request, by the functions the agent uses.
fn remember(model: &Model, guest: &Guest, request: &Request, next: &mut Model) {
    let volume = |volid: &String| all_volumes().find(|volume| name(model.kind, *volume) == volid);
    if let Request::Write(_) = request {
        let config = guest.config.as_ref().expect("the model can be read");
        let params = request.params(model.kind, Eyes::OPEN);
        let find = |name: &str| registry::find(model.kind, name);
        let set: Vec<_> = params
            .iter()
            .filter_map(|(name, text)| {
                let key = find(name)?;
                Some((key, read::written(&key.key().format, text)))
            })
            .collect();
        let set = set.iter().map(|(key, value)| (*key, Some(value)));
        let delete = params.get("delete").map_or("", String::as_str).split(',');
        let delete = delete.filter_map(|name| Some((find(name)?, None)));
        for left in leaving_unsaved(config, set.chain(delete)).iter().filter_map(volume) {
            next.memory[usize::from(left)] = true;
        }
    }
    if let Request::Move { slot, .. } = request {
        let config = guest.config.as_ref().expect("the model can be read");
        let key = registry::find(model.kind, slot.name());
        let left = leaving_unsaved(config, key.map(|key| (key, None)));
        for left in left.iter().filter_map(volume) {
            next.memory[usize::from(left)] = true;
        }
    }
    if !next.memory.contains(&true) {
        return;
    }
    let guest = Eyes::OPEN.guest(next, request);
    let config = guest.config.expect("the model can be read");
    let saved = saved_volumes(&config);
    let mentioned = config.volumes();
    for (volume, known) in all_volumes().zip(&mut next.memory).filter(|(_, known)| **known) {
        let name = name(model.kind, volume);
        *known = mentioned.contains_key(name) && !saved.contains(name);
    }
}

/// Every volume that held data and is not as safe as it was.
fn losses(start: &Model, model: &Model) -> Vec<(Loss, Volume)> {
    let mut lost = Vec::new();
    for (volume, life) in all_volumes().zip(&model.lives) {
        let places = |disks: Slots<Disk>| {
            disks.iter().filter(|(_, disk)| disk.volume() == Some(volume)).count()
        };
        let now = places(model.now);
        let waiting = places(model.waiting);
        if volume == FOREIGN {
            if now + waiting > 0 {
                lost.push((Loss::OthersGot, volume));
            }
            continue;
        }
        let unused = model.unused.contains(&Some(volume));
        let mut in_effect = model.now.iter().filter(|(_, disk)| disk.volume() == Some(volume));
        let saved = in_effect.any(|(slot, disk)| model.saves(slot, disk));
        let was_there = start.life(volume).exists || life.holds_data;
        let so = [
            (Loss::Deleted, !life.exists),
            (Loss::OthersGot, life.given_away),
            (Loss::Unreferenced, life.exists && now + waiting == 0 && !unused),
            (Loss::Shrunk, life.exists && life.gib < start.life(volume).gib),
            (Loss::Shared, now > 1),
            (Loss::OutOfBackups, life.was_saved && now > 0 && !saved),
            (Loss::Misread, life.misread),
            (Loss::Overwritten, life.overwritten),
        ];
        if was_there {
            lost.extend(so.into_iter().filter(|(_, so)| *so).map(|(loss, _)| (loss, volume)));
        }
    }
    lost
}

/// The requests that lead to a state.
fn way(reached: &[Reached], mut at: usize, requests: &[Tried], start: &Model) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some((before, which)) = reached[at].from {
        let request = &requests[which].request;
        let params = request.params(start.kind, Eyes::OPEN);
        let params: Vec<String> =
            params.iter().map(|(name, text)| format!("{name}={text}")).collect();
        steps.push(format!("{} {}", request.op(), params.join(" ")).trim_end().to_owned());
        at = before;
    }
    let power = if start.running { "running" } else { "stopped" };
    steps.push(format!("{:?} {power}", start.scene));
    steps.reverse();
    steps
}
