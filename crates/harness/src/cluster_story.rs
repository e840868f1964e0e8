//! The node's cluster file system in a run: most agents live on the node and read it, and its process does not live for ever.
//!
//! Its dice are its own, so that what else happens in a seed does not depend on it.

use std::sync::Arc;

use evenkeel_agent::daemon::cluster_watch::{NodeWatch, WakeLimits};
use evenkeel_core::desired::Desired;
use evenkeel_core::desired::selection::PassScope;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Event, InProcess};
use tokio::time::Instant;

use crate::rig::Rig;
use crate::sim_cluster_files::SimClusterFiles;
use evenkeel_testkit::dice::Dice;

/// Makes its dice differ from those of the run.
const OWN_DICE: u64 = 0x636c_7573_7465_7266;

/// The share of steps in which the agent looks at it.
const LOOK_PERCENT: u64 = 25;

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

    /// Whether the agent looks at it now. The daemon does so each second; here it does now and then, which costs less.
    pub(crate) fn is_looked_at(&mut self) -> bool {
        self.files.is_some() && self.dice.percent(LOOK_PERCENT)
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

/// What one life of the agent knows from its looks.
pub(crate) struct ClusterLook {
    watch: NodeWatch,
    limits: WakeLimits,
}

impl ClusterLook {
    /// Nothing yet; none where nothing can be read.
    pub(crate) fn of(rig: &Rig) -> Option<Self> {
        let files = Arc::new(rig.cluster_files.clone()?);
        let watch = NodeWatch::new(files, rig.node_name(), rig.owner.clone());
        Some(Self { watch, limits: WakeLimits::default() })
    }

    /// Looks, and says what a pass is due about.
    pub(crate) async fn look(&mut self, desired: &Desired) -> Option<PassScope> {
        let changed = self.watch.look().await;
        self.limits.scope(changed, desired, Instant::now())
    }
}
