//! The cluster file system of a simulated node in the same process, which sometimes cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_agent::cluster_files::{ClusterFile, ClusterFiles, ReadFuture, SilentFile};
use evenkeel_sim::InProcess;

/// What `/etc/pve` of the node tells; clones share it.
#[derive(Debug, Clone)]
pub struct SimClusterFiles {
    node: InProcess,
    unreadable: Arc<AtomicBool>,
}

impl SimClusterFiles {
    /// Of this node.
    pub fn new(node: InProcess) -> Self {
        Self { node, unreadable: Arc::default() }
    }

    /// Whether nothing can be read from now on.
    pub fn set_unreadable(&self, unreadable: bool) {
        self.unreadable.store(unreadable, Ordering::Relaxed);
    }
}

impl ClusterFiles for SimClusterFiles {
    fn read(&self, file: ClusterFile) -> ReadFuture<'_> {
        Box::pin(async move {
            // A place where the agent can die, and where the world goes on.
            tokio::task::yield_now().await;
            if self.unreadable.load(Ordering::Relaxed) {
                return Err(SilentFile::Unreadable("somebody unmounted it".to_owned()));
            }
            let text = self.node.with(|sim| match file {
                ClusterFile::Version => sim.cluster_version(),
                ClusterFile::GuestList => sim.cluster_list(),
                ClusterFile::ActiveTasks => sim.active_task_lines(),
            });
            Ok(text.into_bytes())
        })
    }
}
