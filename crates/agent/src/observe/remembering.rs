//! Reads a node for a pass of the running agent, and keeps what need not be read again.
//!
//! ```text
//!   marks of the cluster file system ─> lists of both kinds ─> what is declared and has another mark ─> SeenNode
//!           before anything is asked           run states       and what surrounds it, where it is needed
//!                                        meanwhile: what is remembered is compared
//! ```
//!
//! A pass reads guests that are declared, and a few that others of its questions are about. Where the node's cluster file
//! system can be read, a guest whose file was not written since is not asked for again. Everything is read anew at the
//! start, once an hour, after any error, and when a person asks. What is kept here only decides what is looked at: a lane
//! reads its guest afresh. It must never keep a reading under marks that were read after it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::actual::remembered::{ClusterMarks, RememberedReadings};
use evenkeel_core::actual::{Guest, GuestConfig, Snapshot};
use evenkeel_core::desired::Desired;
use evenkeel_core::model::id::{GuestId, NodeName, VmId};
use evenkeel_core::model::release::Release;
use evenkeel_core::plan::EarlyComparison;
use evenkeel_core::value::compare::Conventions;
use futures_util::future;
use tokio::time::Instant;

use super::{ListedGuests, Parts, WantedParts, guest, ha_states, listed, manage, read_parts};
use crate::cluster_files::{ClusterFiles, SilentFile, read_marks};
use crate::pve::Client;
use crate::pve::error::Error;

/// How long anything is kept. Whatever the marks failed to tell is known after that.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// How many guests are compared before whatever else there is to do gets its turn: a fraction of a millisecond.
const COMPARED_AT_ONCE: usize = 64;

/// What a pass reads.
pub(crate) struct PassReading<'r> {
    /// The way to the node.
    pub(crate) client: &'r Client,
    /// The node's cluster file system, if it can be read.
    pub(crate) files: Option<&'r dyn ClusterFiles>,
    /// Guests that are read if they are there.
    pub(crate) also: BTreeSet<VmId>,
    /// How many at a time.
    pub(crate) concurrency: usize,
}

/// The node, and what was compared while it was asked.
pub(crate) struct SeenNode<'d> {
    pub(crate) actual: Snapshot,
    pub(crate) compared: EarlyComparison<'d>,
}

/// What one pass keeps for the next.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory {
    readings: RememberedReadings<Arc<GuestConfig>>,
    site: Option<KnownSite>,
    ha: Option<KnownHa>,
    /// When the oldest of it was asked for.
    since: Option<Instant>,
    /// Guests that could not be read last time.
    unreadable: BTreeSet<VmId>,
    /// Why the marks could not be read last time: said when it changes.
    unread_marks: Option<SilentFile>,
    /// The marks of the last pass.
    marks: Option<ClusterMarks>,
}

/// What the node runs and does to values.
#[derive(Debug, Clone)]
pub(crate) struct KnownSite {
    pub(super) release: Release,
    pub(super) conventions: Conventions,
    /// The number of the datacenter's options before they were asked for.
    options: Option<u64>,
}

/// Which guests HA manages.
#[derive(Debug)]
struct KnownHa {
    marks: HaMarks,
    states: BTreeMap<VmId, String>,
}

/// The process that counts, and its numbers of what HA is told to do and does.
type HaMarks = (u64, [u64; 2]);

impl NodeMemory {
    /// What is known of the node by now.
    pub(crate) fn site(&self) -> Option<&KnownSite> {
        self.site.as_ref()
    }

    /// A guest is asked for again.
    pub(crate) fn forget(&mut self, vmid: VmId) {
        self.readings.forget(vmid);
    }

    /// Everything is asked for again.
    pub(crate) fn forget_all(&mut self) {
        let unreadable = std::mem::take(&mut self.unreadable);
        let unread_marks = self.unread_marks.take();
        *self = Self { unreadable, unread_marks, ..Self::default() };
    }

    /// Forgets what does not hold any more.
    fn follow(&mut self, marks: Option<&ClusterMarks>) {
        if self.since.is_some_and(|since| since.elapsed() >= KEPT_FOR) {
            self.forget_all();
        }
        let Some(marks) = marks else {
            self.readings.forget_all();
            self.ha = None;
            return;
        };
        self.readings.follow(marks);
        if self.ha.as_ref().is_some_and(|known| Some(known.marks) != ha_marks(marks)) {
            self.ha = None;
        }
        // A number that was not told then says nothing now.
        if self.site.as_ref().is_some_and(|site| site.options != marks.options) {
            self.site = None;
        }
    }

    fn note_marks(&mut self, read: Result<ClusterMarks, SilentFile>) -> Option<ClusterMarks> {
        let (marks, trouble) = match read {
            Ok(marks) => (Some(marks), None),
            Err(why) => (None, Some(why)),
        };
        if self.unread_marks != trouble {
            if let Some(why) = &trouble {
                tracing::warn!(
                    %why,
                    "the cluster file system cannot be read; every declared guest is asked for at each pass"
                );
            } else {
                tracing::info!("the cluster file system can be read again");
            }
            self.unread_marks = trouble;
        }
        marks
    }
}

fn ha_marks(marks: &ClusterMarks) -> Option<HaMarks> {
    match marks.ha {
        [Some(told), Some(done)] => Some((marks.started_s, [told, done])),
        [None, _] | [_, None] => None,
    }
}

/// Reads the node, and keeps what the next pass need not ask for. What is declared and not listed is asked for.
pub(crate) async fn observe_pass<'d>(
    reading: &PassReading<'_>,
    desired: &'d Desired,
    memory: &mut NodeMemory,
) -> Result<SeenNode<'d>, Error> {
    // Before anything is asked: what is read from here on is kept under these marks.
    let marks = match reading.files {
        Some(files) => {
            let read = read_marks(files, memory.marks.as_ref()).await;
            memory.note_marks(read)
        }
        None => None,
    };
    memory.follow(marks.as_ref());
    let began = Instant::now();
    let seen = read(reading, desired, memory, marks.as_ref()).await;
    match &seen {
        Ok(_) => {
            memory.since.get_or_insert(began);
            memory.marks = marks;
        }
        Err(_) => memory.forget_all(),
    }
    seen
}

async fn read<'d>(
    reading: &PassReading<'_>,
    desired: &'d Desired,
    memory: &mut NodeMemory,
    marks: Option<&ClusterMarks>,
) -> Result<SeenNode<'d>, Error> {
    let PassReading { client, also, concurrency, .. } = reading;
    let declared = &desired.guests;
    // Alone: a wrong token is refused once.
    let release = match &memory.site {
        Some(site) => site.release,
        None => client.version().await?.release,
    };
    let (listed, compared) =
        future::join(listed(client), compare(desired, client.node(), memory)).await;
    let ListedGuests { entries, unread, nameless } = listed?;
    let is_wanted = |vmid: &VmId| declared.contains_key(vmid) || also.contains(vmid);
    let unread = unread.into_iter().map(|guest| (guest.id.vmid, guest));
    let mut unread: BTreeMap<VmId, Guest> = unread.filter(|(vmid, _)| is_wanted(vmid)).collect();
    let mut kept = Vec::new();
    let mut asked = Vec::new();
    for (kind, entry) in entries.into_iter().filter(|(_, entry)| is_wanted(&entry.vmid)) {
        let id = GuestId::new(kind, entry.vmid);
        match memory.readings.of(id, client.node()) {
            Some(config) => {
                kept.push((entry.vmid, guest(id, &entry, Ok(Arc::clone(config)), None)));
            }
            None => asked.push((kind, entry)),
        }
    }
    // Built at one go: putting in one after the other moves each several times.
    let mut kept: BTreeMap<VmId, Guest> = kept.into_iter().collect();
    let coming: BTreeSet<VmId> = asked.iter().map(|(_, entry)| entry.vmid).collect();
    let is_there = |vmid: &VmId| kept.contains_key(vmid) || unread.contains_key(vmid);
    let is_missing = |vmid: &&VmId| !is_there(vmid) && !coming.contains(*vmid);
    let missing: BTreeSet<VmId> = declared.keys().filter(is_missing).copied().collect();
    let wanted = WantedParts {
        everywhere: !missing.is_empty() || memory.ha.is_none(),
        coverage: !missing.is_empty(),
        conventions: memory.site.is_none(),
    };
    let mut parts = read_parts(client, asked.into_iter(), wanted, *concurrency).await;
    parts.nameless = nameless;
    parts.guests.append(&mut unread);
    let known = memory.site.as_ref().map(|site| site.conventions);
    let told = parts.conventions.as_ref().map(|told| told.conventions);
    let conventions = told.or(known).unwrap_or_default();
    if let Some(known) = &memory.ha {
        manage(&mut kept, &known.states);
        manage(&mut parts.guests, &known.states);
    }
    remember(&parts, memory, marks, release);
    parts.guests.append(&mut kept);
    let found = parts.located(client, &missing, *concurrency).await;
    Ok(SeenNode { actual: found.snapshot(client, release, conventions), compared })
}

/// Compares what is remembered, a few guests at a time: the node's answers take longer than that to come.
async fn compare<'d>(
    desired: &'d Desired,
    node: &NodeName,
    memory: &NodeMemory,
) -> EarlyComparison<'d> {
    let mut compared = EarlyComparison::of(desired);
    let Some(site) = &memory.site else { return compared };
    for (at, guest) in desired.guests.values().enumerate() {
        // Before the first as well, so that the requests leave.
        if at % COMPARED_AT_ONCE == 0 {
            tokio::task::yield_now().await;
        }
        if let Some(config) = memory.readings.of(guest.id, node) {
            compared.compare(guest.id, config, site.conventions);
        }
    }
    compared
}

/// Keeps what was read, under the marks that were read before.
fn remember(
    parts: &Parts,
    memory: &mut NodeMemory,
    marks: Option<&ClusterMarks>,
    release: Release,
) {
    if let Some(told) = parts.conventions.as_ref().filter(|told| told.is_whole) {
        let conventions = told.conventions;
        let options = marks.and_then(|marks| marks.options);
        memory.site = Some(KnownSite { release, conventions, options });
    }
    let everywhere = parts.everywhere.as_ref().and_then(|listed| listed.as_ref().ok());
    let everywhere = everywhere.filter(|listed| listed.unread.is_empty());
    if let (Some(everywhere), Some(marks)) = (everywhere, marks.and_then(ha_marks)) {
        memory.ha = Some(KnownHa { marks, states: ha_states(everywhere) });
    }
    let mut unreadable = BTreeSet::new();
    for (vmid, guest) in &parts.guests {
        match (&guest.config, marks) {
            (Ok(config), Some(marks)) => {
                memory.readings.remember(guest.id, marks, Arc::clone(config));
            }
            (Ok(_), None) => {}
            (Err(_), _) => {
                unreadable.insert(*vmid);
            }
        }
    }
    // One that stays unreadable must not make every pass read everything.
    if !unreadable.is_subset(&memory.unreadable) {
        memory.forget_all();
    }
    memory.unreadable = unreadable;
}
