//! Invariant 20 as the oracle sees it: what was refused, or whose task failed, is not tried again before its pause is
//! over, as long as the guest and what is declared for it are the same and nobody asked.
//!
//! It knows requests, answers, tasks and the node's files; the agent's own idea of "the same" is not asked.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_core::operate::back_off::{FIRST_PAUSE_S, PAUSE_MAX_S};
use evenkeel_sim::{InProcess, SimGuest};

use crate::call::WriteRequest;

/// Clocks are read in whole seconds, on both sides.
const ROUNDING_MS: u64 = 2_000;

/// What the living agent tried.
#[derive(Debug, Default)]
pub(super) struct TriedRequests {
    by_guest: BTreeMap<GuestId, BTreeMap<String, TriedRequest>>,
    /// How many documents of a hub had been taken by then.
    documents: usize,
}

#[derive(Debug)]
struct TriedRequest {
    ticket: u64,
    sent_ms: u64,
    /// Where the node's log has it.
    record: usize,
    /// The guest's file and power when it was sent.
    guest: String,
    /// When the node said no, and whether a moment later it might say yes.
    refused: Option<(u64, bool)>,
    /// How often it failed before, in a row.
    failures: u32,
}

impl TriedRequests {
    /// A write leaves: whether it comes too early after the same one failed.
    pub(super) fn sent(
        &mut self,
        node: &InProcess,
        now_ms: u64,
        ticket: u64,
        write: &WriteRequest,
        told: &str,
    ) -> Option<String> {
        let record = node.with(|sim| sim.records().len());
        let guest = file_and_power(node, write.guest);
        // What the agent was told of the guest counts too: somebody may have changed it since it was read.
        let request = format!("{} {:?} {told}", write.kind, write.params);
        let of_guest = self.by_guest.entry(write.guest).or_default();
        // A guest that has become another meanwhile is tried at once, even if it looks as before a moment later.
        of_guest.retain(|_, before| before.guest == guest);
        let before = of_guest.get(&request);
        let failed = before.and_then(|before| Some((before, before.failed_ms(node)?)));
        let failures = failed.map_or(0, |(before, _)| before.failures + 1);
        let early = failed.and_then(|(_, (failed_ms, may_pass))| {
            let pause_s =
                FIRST_PAUSE_S.saturating_mul(1 << (failures - 1).min(16)).min(PAUSE_MAX_S);
            let waited_ms = now_ms.saturating_sub(failed_ms);
            let is_early = !may_pass && waited_ms + ROUNDING_MS < pause_s * 1_000;
            is_early.then(|| {
                format!(
                    "(20) it failed {failures} times, and {waited_ms} ms later it is tried again"
                )
            })
        });
        // The lane itself tries a taken lock file again; that is the same failure.
        let failures =
            if failed.is_some_and(|(_, (_, may_pass))| may_pass) { failures - 1 } else { failures };
        let tried =
            TriedRequest { ticket, sent_ms: now_ms, record, guest, refused: None, failures };
        of_guest.insert(request, tried);
        early
    }

    /// The node said no.
    pub(super) fn refused(
        &mut self,
        node: &InProcess,
        ticket: u64,
        now_ms: u64,
        status: u16,
        words: &str,
    ) {
        // Statuses of the proxy leave open what the node did.
        if !(400..595).contains(&status) {
            return;
        }
        for (guest, of_guest) in &mut self.by_guest {
            let tried = of_guest.values_mut().find(|tried| tried.ticket == ticket);
            // What was refused and done all the same did not fail.
            if let Some(tried) = tried.filter(|tried| tried.guest == file_and_power(node, *guest)) {
                tried.refused = Some((now_ms, may_pass(words)));
            }
        }
    }

    /// The agent is told of a guest. Whoever finds that somebody else has done what its own task failed to do has not
    /// failed; if that is undone again, nothing holds the next try.
    pub(super) fn was_read(&mut self, node: &InProcess, guest: GuestId) {
        if let Some(of_guest) = self.by_guest.get_mut(&guest) {
            let found = file_and_power(node, guest);
            of_guest.retain(|_, before| before.guest == found);
        }
    }

    /// Another thing is declared for a guest, or somebody asked for it to be tried.
    pub(super) fn forget(&mut self, guest: GuestId) {
        self.by_guest.remove(&guest);
    }

    /// So many documents of a hub were taken: each declares anew.
    pub(super) fn documents_taken(&mut self, documents: usize) {
        if std::mem::replace(&mut self.documents, documents) != documents {
            self.forget_all();
        }
    }

    /// Another life, another clock, or a person who wants everything to be tried.
    pub(super) fn forget_all(&mut self) {
        self.by_guest.clear();
    }
}

impl TriedRequest {
    /// When it failed at the earliest, and whether that could pass in a moment; none if it did not, or nobody knows.
    fn failed_ms(&self, node: &InProcess) -> Option<(u64, bool)> {
        if self.refused.is_some() {
            return self.refused;
        }
        node.with(|sim| {
            let upid = sim.records().get(self.record)?.upid.as_ref()?;
            let exit = sim.exit_of(upid)?;
            let done = exit == "OK" || exit.starts_with("WARNINGS");
            (!done).then(|| (self.sent_ms, may_pass(exit)))
        })
    }
}

/// What a guest is, as far as an attempt depends on it.
fn file_and_power(node: &InProcess, guest: GuestId) -> String {
    node.with(|sim| {
        let found = sim.world.guests.get(&guest.vmid.get());
        let shown =
            |guest: &SimGuest| format!("{} {:?} {:?}", guest.birth, guest.config, guest.power);
        found.map(shown).unwrap_or_default()
    })
}

/// Somebody was faster, or has the lock file, or the daemon lost its worker.
fn may_pass(words: &str) -> bool {
    ["lock", "timeout", "digest", "modified", "start worker failed"]
        .iter()
        .any(|word| words.contains(word))
}
