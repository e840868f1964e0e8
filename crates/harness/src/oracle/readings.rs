//! What the living agent was told by the node: guests, volumes, numbers, quorum, and when.
//!
//! A request may leave upon a reading of its guest only if nothing but other readings came in between. Kept by time and
//! not by number, because an answer can take long and others read meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use evenkeel_agent::pve::READ_AGAIN_AFTER;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::InProcess;
use serde_json::Value;

use super::RequestTicket;
use crate::call::RequestKind;
use crate::scene::loose;

/// Nothing that leaves was read longer ago: a look is some six readings, none of which takes more than forty seconds.
const KEPT_MS: u64 = 300_000;

/// What a making depends on is read in this time: five readings, of which some are asked again after a pause.
const MAKING_READS_MS_MAX: u64 = 240_000;

/// What the living agent was told.
#[derive(Debug, Default)]
pub(super) struct GuestReadings {
    /// Several of each guest: a pass reads beside the lanes.
    status: BTreeMap<GuestId, VecDeque<GuestReading>>,
    pending: BTreeMap<GuestId, VecDeque<GuestReading>>,
    /// Of anything else.
    others: VecDeque<OtherReading>,
    /// Of readings that failed in passing, and of the pauses after which they are asked again.
    failures: VecDeque<(u64, u64)>,
    /// The volumes that hung on nothing when volumes were last listed.
    listed_loose: BTreeMap<GuestId, BTreeSet<String>>,
    /// Numbers that are free as the node said last; true once a node with quorum has said so.
    pub(super) free: BTreeMap<u32, bool>,
    /// When a number was last said to be free.
    free_ms: BTreeMap<u32, u64>,
}

/// A reading of something else: when it was asked and answered.
#[derive(Debug, Clone, Copy)]
struct OtherReading {
    asked_ms: u64,
    answered_ms: u64,
    /// A storage was asked: who wants to ask one too waits for that.
    of_storage: bool,
}

/// One reading of a guest.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestReading {
    pub(super) asked_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) locked: bool,
    /// Of the configuration.
    pub(super) digest: String,
    /// The birth marks of the guest that had the number when it was asked, and when it was answered.
    pub(super) births: [u64; 2],
    /// The volumes that hung on it detached, by slot.
    pub(super) unused: BTreeMap<String, String>,
}

impl GuestReadings {
    /// A new life was told nothing yet; what is free and what hangs on nothing is so in every life.
    pub(super) fn forget(&mut self) {
        (self.status, self.pending, self.others, self.failures) = Default::default();
    }

    /// A reading came to nothing. If that passes, it is asked again after a pause, and nothing was done meanwhile.
    pub(super) fn failed(&mut self, ticket: &RequestTicket, now_ms: u64) {
        if let RequestKind::Write = ticket.call {
            return;
        }
        let pauses = READ_AGAIN_AFTER.iter().map(|pause| {
            let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            (now_ms, now_ms.saturating_add(pause_ms))
        });
        let of_storage = is_of_storage(&ticket.call);
        for gap in std::iter::once((ticket.sent_ms, now_ms)).chain(pauses) {
            let (asked_ms, answered_ms) = gap;
            keep(&mut self.others, OtherReading { asked_ms, answered_ms, of_storage }, now_ms);
            keep(&mut self.failures, gap, now_ms);
        }
    }

    /// The node answered. A reading of a configuration is given back.
    pub(super) fn take(
        &mut self,
        node: &InProcess,
        ticket: &RequestTicket,
        (status, body): (u16, &Value),
    ) -> Option<(GuestId, &GuestReading)> {
        let now_ms = node.with(|sim| sim.now_ms());
        if (595..=599).contains(&status) {
            self.failed(ticket, now_ms);
            return None;
        }
        let locked = body["data"]["lock"].is_string();
        let told = GuestReading {
            asked_ms: ticket.sent_ms,
            answered_ms: now_ms,
            locked,
            ..GuestReading::default()
        };
        let of_storage = is_of_storage(&ticket.call);
        let other = OtherReading { asked_ms: ticket.sent_ms, answered_ms: now_ms, of_storage };
        match ticket.call {
            RequestKind::Write => {}
            RequestKind::Status(guest) => keep(self.status.entry(guest).or_default(), told, now_ms),
            RequestKind::Pending(guest) => {
                let told = GuestReading {
                    digest: digest_in(body),
                    births: [ticket.birth, birth_of(node, guest)],
                    unused: unused_in(body),
                    ..told
                };
                let of_guest = self.pending.entry(guest).or_default();
                keep(of_guest, told, now_ms);
                return of_guest.back().map(|told| (guest, told));
            }
            RequestKind::Content => {
                keep(&mut self.others, other, now_ms);
                self.listed_loose = node.with(|sim| {
                    let guests = sim.world.guests.values().map(|guest| guest.id);
                    guests.map(|guest| (guest, loose(&sim.world, guest))).collect()
                });
            }
            RequestKind::NumberFree(vmid) => {
                keep(&mut self.others, other, now_ms);
                if status == 200 {
                    self.free.entry(vmid).or_insert(false);
                    self.free_ms.insert(vmid, now_ms);
                } else {
                    self.free.remove(&vmid);
                    self.free_ms.remove(&vmid);
                }
            }
            RequestKind::ClusterStatus => {
                keep(&mut self.others, other, now_ms);
                let lost = |entry: &Value| entry["type"] == "cluster" && entry["quorate"] != 1;
                let entries = body["data"].as_array();
                if status == 200 && entries.is_some_and(|entries| !entries.iter().any(lost)) {
                    self.free.values_mut().for_each(|proved| *proved = true);
                }
            }
            RequestKind::Storage | RequestKind::OtherRead => {
                keep(&mut self.others, other, now_ms);
            }
        }
        None
    }

    /// Whether this life ever read the guest.
    pub(super) fn knows(&self, guest: GuestId) -> bool {
        self.status.contains_key(&guest)
    }

    /// The readings of a guest that a request can have left upon, status and configuration: from the answer until the
    /// request left there was no moment in which the agent did not wait for something else that it had to read. Several,
    /// where others read the guest in the same moment.
    pub(super) fn directly_before(
        &self,
        now_ms: u64,
        guest: GuestId,
    ) -> Vec<(&GuestReading, &GuestReading)> {
        let (Some(status), Some(pending)) = (self.status.get(&guest), self.pending.get(&guest))
        else {
            return Vec::new();
        };
        let last = pending.iter().filter(|pending| self.leads_to(pending.answered_ms, now_ms));
        let both = last.flat_map(|pending| {
            let of_it = status
                .iter()
                .filter(|told| leads(&self.failures, told.answered_ms, pending.asked_ms));
            of_it.map(move |status| (status, pending))
        });
        both.collect()
    }

    /// Whether a node with quorum said that a number is free, just before.
    pub(super) fn proved_free(&self, now_ms: u64, vmid: u32) -> bool {
        let is_new = |said_ms: &u64| said_ms + MAKING_READS_MS_MAX >= now_ms;
        self.free.get(&vmid) == Some(&true) && self.free_ms.get(&vmid).is_some_and(is_new)
    }

    /// Whether other readings, each asked when the one before was answered, fill the time. Storages are asked one question at a
    /// time: who has to wait for one that somebody else asked before waits for a reading too.
    fn leads_to(&self, from_ms: u64, now_ms: u64) -> bool {
        let mut reached = BTreeSet::from([from_ms]);
        for OtherReading { asked_ms, answered_ms, of_storage } in &self.others {
            let is_waited_for =
                *of_storage && reached.range(asked_ms..=answered_ms).next().is_some();
            if reached.contains(asked_ms) || is_waited_for {
                reached.insert(*answered_ms);
            }
        }
        reached.contains(&now_ms)
    }

    /// A volume of this guest on this storage that hung on nothing when volumes were last listed.
    pub(super) fn hangs_loose(&self, guest: GuestId, storage: &str) -> Option<&String> {
        let mut of_guest = self.listed_loose.get(&guest).into_iter().flatten();
        of_guest.find(|volume| volume.starts_with(&format!("{storage}:")))
    }
}

/// Whether these fill the time between, each beginning when another ended.
fn leads(readings: &VecDeque<(u64, u64)>, from_ms: u64, to_ms: u64) -> bool {
    let mut reached = BTreeSet::from([from_ms]);
    for (asked_ms, answered_ms) in readings {
        if reached.contains(asked_ms) {
            reached.insert(*answered_ms);
        }
    }
    reached.contains(&to_ms)
}

/// A reading that is kept for a while.
trait Dated {
    fn answered_ms(&self) -> u64;
}

impl Dated for GuestReading {
    fn answered_ms(&self) -> u64 {
        self.answered_ms
    }
}

impl Dated for OtherReading {
    fn answered_ms(&self) -> u64 {
        self.answered_ms
    }
}

impl Dated for (u64, u64) {
    fn answered_ms(&self) -> u64 {
        self.1
    }
}

fn keep<T: Dated>(readings: &mut VecDeque<T>, told: T, now_ms: u64) {
    while readings.front().is_some_and(|oldest| oldest.answered_ms() + KEPT_MS < now_ms) {
        readings.pop_front();
    }
    readings.push_back(told);
}

fn is_of_storage(call: &RequestKind) -> bool {
    match call {
        RequestKind::Content | RequestKind::Storage => true,
        RequestKind::Status(_)
        | RequestKind::Pending(_)
        | RequestKind::NumberFree(_)
        | RequestKind::ClusterStatus
        | RequestKind::OtherRead
        | RequestKind::Write => false,
    }
}

/// The digest in an answer to `pending`.
fn digest_in(body: &Value) -> String {
    let rows = body["data"].as_array().into_iter().flatten();
    let digest = rows.filter(|row| row["key"] == "digest").find_map(|row| row["value"].as_str());
    digest.unwrap_or_default().to_owned()
}

/// The volumes that hang on a guest detached, in an answer to `pending`.
fn unused_in(body: &Value) -> BTreeMap<String, String> {
    let rows = body["data"].as_array().into_iter().flatten();
    let unused = rows.filter_map(|row| Some((row["key"].as_str()?, row["value"].as_str()?)));
    let unused = unused.filter(|(key, _)| key.starts_with("unused"));
    unused.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The birth mark of whoever has the number now; 0 is nobody's.
pub(super) fn birth_of(node: &InProcess, guest: GuestId) -> u64 {
    node.with(|sim| sim.world.birth(guest.vmid)).unwrap_or(0)
}
