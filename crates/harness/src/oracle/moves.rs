//! Moves as the oracle sees them: their sources stay, and no slot is moved again over an old volume that hangs there.
//!
//! It knows requests, tasks and the node's files; what the agent remembers of its moves is not asked.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{InProcess, SimGuest, World};

use crate::call::WriteRequest;

/// The moves of a run.
#[derive(Debug, Default)]
pub(super) struct SentMoves(Vec<SentMove>);

#[derive(Debug)]
struct SentMove {
    guest: GuestId,
    /// Which guest had the number.
    birth: u64,
    slot: String,
    /// What was in the slot.
    source: String,
    /// Where the node's log has the request.
    record: usize,
    /// Somebody struck the source out of the guest's file, or signed for an act that takes it away: it is not missed. If
    /// it hangs there all the same, because that request never arrived, it is still what a move left.
    may_be_gone: bool,
}

impl SentMoves {
    /// A write leaves: what is wrong with it as a move, and what it ends of earlier ones.
    pub(super) fn sent(&mut self, node: &InProcess, write: &WriteRequest) -> Option<String> {
        match write.kind {
            ActionKind::MoveVolume => self.moves(node, write),
            ActionKind::DeleteVolume => {
                // Whoever signed it wanted the volume gone.
                let gone = write.params.get("delete").map_or("", String::as_str);
                let gone = node.with(|sim| held(sim.world.guest(write.guest)?, gone));
                for sent in self.of_number(write).filter(|sent| Some(&sent.source) == gone.as_ref())
                {
                    sent.may_be_gone = true;
                }
                None
            }
            // All volumes go, or get other names.
            ActionKind::Destroy | ActionKind::Rollback | ActionKind::Template => {
                self.of_number(write).for_each(|sent| sent.may_be_gone = true);
                None
            }
            ActionKind::SetConfig
            | ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Resize
            | ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Restore
            | ActionKind::Backup
            | ActionKind::Snapshot
            | ActionKind::DeleteSnapshot
            | ActionKind::Migrate
            | ActionKind::WipeStorage
            | ActionKind::Decommission => None,
        }
    }

    fn of_number(&mut self, write: &WriteRequest) -> impl Iterator<Item = &mut SentMove> {
        self.0.iter_mut().filter(|sent| sent.guest.vmid == write.guest.vmid)
    }

    fn moves(&mut self, node: &InProcess, write: &WriteRequest) -> Option<String> {
        let slot = write.params.get("volume").or_else(|| write.params.get("disk"))?.clone();
        let frees = write.params.get("delete").map(String::as_str) != Some("0");
        let guest = write.guest;
        let record = node.with(|sim| sim.records().len());
        let seen = node.with(|sim| {
            let found = sim.world.guest(guest)?;
            Some((found.birth, held(found, &slot)?, unused(found)))
        });
        let (birth, source, unused) = seen?;
        let done = |sent: &&SentMove| {
            node.with(|sim| {
                let upid = sim.records().get(sent.record).and_then(|record| record.upid.as_ref());
                upid.and_then(|upid| sim.exit_of(upid)).is_some_and(|exit| exit == "OK")
            })
        };
        let of_slot =
            |sent: &&SentMove| (sent.guest, sent.birth, &sent.slot) == (guest, birth, &slot);
        let mut before = self.0.iter().filter(of_slot).filter(done);
        let again = before.any(|sent| unused.contains(&sent.source));
        self.0.push(SentMove {
            guest,
            birth,
            slot: slot.clone(),
            source: source.clone(),
            record,
            may_be_gone: false,
        });
        if frees {
            Some(format!("(18) a volume was lost by a move: {source} would be freed"))
        } else if again {
            Some(format!("(18) {slot} is moved again while its old volume hangs on the guest"))
        } else {
            None
        }
    }

    /// Somebody is about to strike a slot out of a guest's file. If the source is still in it, because its move is under
    /// way or failed, nobody but them has lost it. A source that hangs detached by then must stay.
    pub(super) fn struck_out(&mut self, world: &World, guest: GuestId, slot: &str) {
        let Some(volume) = world.guest(guest).and_then(|found| held(found, slot)) else { return };
        for sent in self.0.iter_mut().filter(|sent| sent.guest == guest && sent.source == volume) {
            sent.may_be_gone = true;
        }
    }

    /// What moves have left on a guest: no second volume that somebody was given.
    pub(super) fn sources(&self, guest: GuestId) -> BTreeSet<&str> {
        let of_guest = self.0.iter().filter(|sent| sent.guest == guest);
        of_guest.map(|sent| sent.source.as_str()).collect()
    }

    /// Sources that are gone, or that nothing names any more.
    pub(super) fn lost(&self, world: &World) -> Vec<String> {
        let lost = self.0.iter().filter(|sent| !sent.may_be_gone).filter(|sent| {
            let found = world.guest(sent.guest).filter(|found| found.birth == sent.birth);
            found.is_some_and(|found| {
                let mut named = found.config.active.values().chain(found.config.pending.values());
                !named.any(|value| value.split(',').next() == Some(sent.source.as_str()))
            })
        });
        lost.map(|sent| {
            let SentMove { guest, slot, source, .. } = sent;
            format!("(18) a volume was lost by a move: {source} of {guest}, from {slot}")
        })
        .collect()
    }
}

/// The volume in a slot.
fn held(guest: &SimGuest, slot: &str) -> Option<String> {
    guest.config.active.get(slot)?.split(',').next().map(str::to_owned)
}

fn unused(guest: &SimGuest) -> BTreeSet<String> {
    let active = guest.config.active.iter();
    active.filter(|(key, _)| key.starts_with("unused")).map(|(_, value)| value.clone()).collect()
}
