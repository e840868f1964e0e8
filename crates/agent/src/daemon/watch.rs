//! Wakes the agent when desired files change.
//!
//! Events are a hint and nothing more: each pass reads the files whether or not one came, so a missed event costs one
//! interval. A directory that cannot be watched is said once and read at each interval all the same. Directories below it
//! are watched too, also such as are made later; what Git does in its own has no word to say about guests.

use std::path::Path;
use std::sync::Arc;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Hears of changes in one directory; silent if there is none.
pub(super) struct DirWatch {
    changed: Arc<Notify>,
    /// Ends the watching when it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl DirWatch {
    /// Begins to watch.
    pub(super) fn begin(directory: Option<&Path>) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = directory.and_then(|directory| match watch(directory, changed.clone()) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error,
                    "desired files are not watched; they are read at each interval");
                None
            }
        });
        Self { changed, _watcher: watcher }
    }

    /// Resolves after something changed. Dropping the future loses nothing: a change that nobody awaited is kept.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn watch(directory: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Our own reading is an event too, and must not wake us to read again. Trouble of the watcher may hide a
        // change.
        let quiet =
            |event: &notify::Event| matches!(event.kind, EventKind::Access(_)) || is_git(event);
        if event.map_or(true, |event| !quiet(&event)) {
            changed.notify_one();
        }
    })?;
    watcher.watch(directory, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Whether it happened inside of a `.git`: a fetch writes there many times before a file changes, if one does.
fn is_git(event: &notify::Event) -> bool {
    let within =
        |path: &std::path::PathBuf| path.components().any(|part| part.as_os_str() == ".git");
    !event.paths.is_empty() && event.paths.iter().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// How long an event that must come may take on a busy machine.
    const PATIENCE: Duration = Duration::from_mins(2);

    #[tokio::test]
    async fn a_written_file_wakes_and_a_read_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("web.toml");
        fs_err::write(&file, "a").unwrap();
        let watch = DirWatch::begin(Some(directory.path()));
        fs_err::read(&file).unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        assert!(quiet.is_err(), "reading is no change");
        fs_err::write(&file, "b").unwrap();
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn directories_below_are_watched_also_those_made_later() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("below");
        let git = directory.path().join(".git");
        fs_err::create_dir(&below).unwrap();
        fs_err::create_dir(&git).unwrap();
        let watch = DirWatch::begin(Some(directory.path()));
        let woken = async || tokio::time::timeout(PATIENCE, watch.changed()).await;
        fs_err::write(git.join("index"), "a").unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        assert!(quiet.is_err(), "what Git does is no change");
        fs_err::write(below.join("web.toml"), "a").unwrap();
        woken().await.unwrap();
        let later = below.join("later");
        fs_err::create_dir(&later).unwrap();
        woken().await.unwrap();
        // The watch on a new directory follows its making by a moment.
        let began = std::time::Instant::now();
        let mut content = 0;
        while tokio::time::timeout(Duration::from_millis(100), watch.changed()).await.is_err() {
            content += 1;
            assert!(began.elapsed() < PATIENCE, "no event from a directory that was made later");
            fs_err::write(later.join("db.toml"), content.to_string()).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_watched_is_silent() {
        for directory in [None, Some(Path::new("/nowhere/at/all"))] {
            let watch = DirWatch::begin(directory);
            let quiet = tokio::time::timeout(Duration::from_mins(1), watch.changed()).await;
            assert!(quiet.is_err());
        }
    }
}
