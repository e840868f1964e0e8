//! Saving a simulated node to a file and bringing it back.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::Simulator;
use crate::job::Timings;
use crate::task::Tasks;
use crate::world::World;

/// Why a state could not be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file could not be read or written.
    #[error("cannot access the state file {path}")]
    File {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a state of this simulator.
    #[error("the state file {path} is not a simulator state; delete it to begin anew")]
    Content {
        /// Which file.
        path: String,
        /// Where it went wrong.
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Saved {
    world: World,
    tasks: Tasks,
    timings: Timings,
    now_ms: u64,
}

impl Simulator {
    /// Writes world, tasks and clock to a file; a half-written one never replaces a whole one.
    pub fn save(&self, path: &Path) -> Result<(), StateFileError> {
        let shown = path.display().to_string();
        let saved = Saved {
            world: self.world.clone(),
            tasks: self.tasks.clone(),
            timings: self.timings.clone(),
            now_ms: self.now_ms,
        };
        let text = serde_json::to_vec(&saved)
            .map_err(|source| StateFileError::Content { path: shown.clone(), source })?;
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, text)
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(|source| StateFileError::File { path: shown, source })
    }

    /// Reads a state back. The clock goes on where it stopped; running tasks find their locks again.
    pub fn load(path: &Path) -> Result<Self, StateFileError> {
        let shown = path.display().to_string();
        let text = std::fs::read(path)
            .map_err(|source| StateFileError::File { path: shown.clone(), source })?;
        let saved: Saved = serde_json::from_slice(&text)
            .map_err(|source| StateFileError::Content { path: shown, source })?;
        let mut sim = Self::new(saved.world);
        (sim.tasks, sim.timings, sim.now_ms) = (saved.tasks, saved.timings, saved.now_ms);
        sim.take_locks_of_running_tasks();
        Ok(sim)
    }
}
