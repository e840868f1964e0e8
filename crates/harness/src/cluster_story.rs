//! The node's cluster file system in a run: most agents live on the node and read it, and its process does not live for ever.
//!
//! Its dice are its own, so that what else happens in a seed does not depend on it.

use evenkeel_core::id::GuestId;
use evenkeel_sim::{Event, InProcess};

use crate::dice::Dice;
use crate::rig::Rig;
use crate::sim_cluster_files::SimClusterFiles;

/// Makes its dice differ from those of the run.
const OWN_DICE: u64 = 0x636c_7573_7465_7266;

/// What becomes of the cluster file system.
pub(crate) struct ClusterStory {
    dice: Dice,
    files: Option<SimClusterFiles>,
}

impl ClusterStory {
    pub(crate) fn of(seed: u64, rig: &mut Rig) -> Self {
        let mut dice = Dice::new(seed ^ OWN_DICE);
        if dice.percent(70) {
            rig.cluster_files = Some(SimClusterFiles::new(rig.node.clone()));
        }
        Self { dice, files: rig.cluster_files.clone() }
    }

    /// The process starts again, takes over other files, or hangs.
    pub(crate) fn mischief(&mut self, node: &InProcess, guests: &[GuestId]) -> Option<String> {
        let files = self.files.as_ref()?;
        if !self.dice.percent(6) {
            return None;
        }
        let event = match self.dice.below(4) {
            0 => Event::ResyncClusterFs,
            1 | 2 => {
                // Somebody writes just before: the numbers that begin anew must not pass for the old ones.
                let guest = *self.dice.pick(guests);
                let set = [("cores".to_owned(), Some(self.dice.between(1, 4).to_string()))].into();
                node.with(|sim| sim.happen(Event::Edit { guest, set }));
                Event::RestartClusterFs
            }
            _ => {
                let unreadable = self.dice.percent(50);
                files.set_unreadable(unreadable);
                return Some(format!("/etc/pve is unreadable: {unreadable}"));
            }
        };
        let told = format!("{event:?}");
        node.with(|sim| sim.happen(event));
        Some(told)
    }
}
