//! What is declared, as the agent knows it: the last good state, since when, and what is wrong with the newest.
//!
//! Read anew by every pass. Files that are gone, broken or contradictory never replace what was good (they would stop
//! the agent from keeping it), and never become an empty desired state. They are read beside the loop: a file system
//! that does not answer is one more way to be broken.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::desired::Desired;
use evenkeel_core::words::diagnostic::{Diagnostic, Sources};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::DesiredConfig;
use crate::plain_file::{FileReading, READ_DEADLINE, off_loop};
use crate::source::dir::{DirError, load_believed};
use crate::source::tree::PassedOver;

/// How many mistakes are told; whoever mends them sees the others with `evenkeel validate`.
const MISTAKES_TOLD_MAX: usize = 20;

/// Desired state in memory.
#[derive(Debug, Default)]
pub(super) struct DeclaredFiles {
    directory: Option<PathBuf>,
    good: Option<GoodFiles>,
    /// When the files were last read without a mistake.
    last_good: Option<Timestamp>,
    trouble: Option<SourceTrouble>,
    /// A reading that did not end in time. No second one is begun beside it.
    late: Option<FileReading<Result<Desired, UnusableFile>>>,
    /// The files that were passed over when it was last told.
    passed_over: Arc<Mutex<Vec<PassedOver>>>,
}

/// Files that cannot be used, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct UnusableFile(pub(super) String);

/// A desired state without mistakes.
#[derive(Debug)]
struct GoodFiles {
    desired: Arc<Desired>,
    since: Timestamp,
}

/// Something that cannot be used, so that what was there before still holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTrouble {
    /// Since when.
    pub since: Timestamp,
    /// What is wrong, with its places.
    pub why: String,
}

/// What reading brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilesNews {
    /// What was known.
    Nothing,
    /// Another good state, or the first.
    Good,
    /// It cannot be used, and that is new.
    Broken,
}

impl DeclaredFiles {
    /// Where it comes from; nothing is read yet.
    pub(super) fn from(config: &DesiredConfig) -> Self {
        Self { directory: config.dir.clone(), ..Self::default() }
    }

    /// It comes from elsewhere now. What was good holds until something good is read there.
    pub(super) fn now_from(&mut self, config: &DesiredConfig) {
        if self.directory != config.dir {
            self.late = None;
        }
        self.directory.clone_from(&config.dir);
        if self.directory.is_none() {
            (self.good, self.last_good, self.trouble) = (None, None, None);
        }
    }

    /// A hub's document holds from now on.
    pub(super) fn taken(&mut self, desired: Arc<Desired>, now: Timestamp) {
        self.good = Some(GoodFiles { desired, since: now });
        (self.last_good, self.trouble) = (Some(now), None);
    }

    /// What the hub gave once cannot be used.
    pub(super) fn unusable(&mut self, why: String, now: Timestamp) {
        self.trouble = Some(SourceTrouble { since: now, why });
    }

    /// Reads the files, and waits for them for a bounded time. Dropping it changes nothing.
    pub(super) async fn read(&mut self, now: Timestamp) -> FilesNews {
        let Some(directory) = self.directory.clone() else {
            return FilesNews::Nothing;
        };
        match self.read_in_time(directory).await {
            Ok(desired) => {
                self.last_good = Some(now);
                let mended = self.trouble.take().is_some();
                let same = self.good.as_ref().is_some_and(|good| *good.desired == desired);
                if !same {
                    self.good = Some(GoodFiles { desired: Arc::new(desired), since: now });
                }
                if same && !mended { FilesNews::Nothing } else { FilesNews::Good }
            }
            Err(UnusableFile(why))
                if self.trouble.as_ref().is_some_and(|trouble| trouble.why == why) =>
            {
                FilesNews::Nothing
            }
            Err(UnusableFile(why)) => {
                let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
                self.trouble = Some(SourceTrouble { since, why });
                FilesNews::Broken
            }
        }
    }

    async fn read_in_time(&mut self, directory: PathBuf) -> Result<Desired, UnusableFile> {
        let (mut reading, patience) = if let Some(late) = self.late.take() {
            (late, Duration::ZERO)
        } else {
            let directory = directory.clone();
            let told = Arc::clone(&self.passed_over);
            (off_loop(move || desired_of(&directory, &told)), READ_DEADLINE)
        };
        match tokio::time::timeout(patience, &mut reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(UnusableFile(format!("{} could not be read", directory.display()))),
            Err(_) => {
                self.late = Some(reading);
                Err(not_in_time(&directory))
            }
        }
    }

    /// What holds; none if nothing good was ever read.
    pub(super) fn desired(&self) -> Option<Arc<Desired>> {
        self.good.as_ref().map(|good| Arc::clone(&good.desired))
    }

    /// Since when that holds.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.good.as_ref().map(|good| good.since)
    }

    /// When the files were last read without a mistake.
    pub(super) fn last_good(&self) -> Option<Timestamp> {
        self.last_good
    }

    /// What is wrong with what is there now.
    pub(super) fn trouble(&self) -> Option<&SourceTrouble> {
        self.trouble.as_ref()
    }

    /// Where the files are; none if nothing shall ever be declared.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

/// A file system that hangs.
pub(super) fn not_in_time(path: &Path) -> UnusableFile {
    let path = path.display();
    UnusableFile(format!(
        "{path} was not read within {READ_DEADLINE:?}: its file system does not answer"
    ))
}

fn desired_of(
    directory: &Path,
    passed_over: &Mutex<Vec<PassedOver>>,
) -> Result<Desired, UnusableFile> {
    let loaded = load_believed(directory).map_err(|error| UnusableFile(told(&error)))?;
    let mut before = passed_over.lock().unwrap_or_else(PoisonError::into_inner);
    for file in loaded.passed_over.iter().filter(|file| !before.contains(file)) {
        tracing::warn!(hint = PassedOver::HINT, "{file}");
    }
    *before = loaded.passed_over;
    drop(before);
    loaded.desired.map_err(|mistakes| UnusableFile(places(&mistakes, &loaded.sources)))
}

fn told(error: &DirError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// One line a mistake: `web.toml:7:25: message (hint)`.
pub(crate) fn places(mistakes: &[Diagnostic], sources: &Sources) -> String {
    let line = |mistake: &Diagnostic| {
        let place = mistake.at.and_then(|span| {
            let (line, column) = sources.line_column(span)?;
            Some(format!("{}:{line}:{column}: ", sources.get(span.file)?.path))
        });
        let hints: Vec<String> = mistake.hints.iter().map(|hint| format!(" ({hint})")).collect();
        format!("{}{}{}", place.unwrap_or_default(), mistake.message, hints.concat())
    };
    let mut lines: Vec<String> = mistakes.iter().take(MISTAKES_TOLD_MAX).map(line).collect();
    let more: usize = mistakes.iter().skip(MISTAKES_TOLD_MAX).map(Diagnostic::stands_for).sum();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[guest.101]\nkind = \"lxc\"\ncores = 2\n";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn directory(text: &str) -> (tempfile::TempDir, DesiredConfig) {
        let directory = tempfile::tempdir().unwrap();
        fs_err::write(directory.path().join("web.toml"), text).unwrap();
        let config =
            DesiredConfig { dir: Some(directory.path().to_owned()), ..DesiredConfig::default() };
        (directory, config)
    }

    #[tokio::test]
    async fn what_was_good_holds_while_the_files_are_broken_and_says_since_when() {
        let (directory, config) = directory(GOOD);
        let file = directory.path().join("web.toml");
        let mut declared = DeclaredFiles::from(&config);
        assert_eq!(declared.read(at(1)).await, FilesNews::Good);
        assert_eq!(declared.read(at(2)).await, FilesNews::Nothing);
        let good = declared.desired().unwrap();

        fs_err::write(&file, "[guest.101]\nkind = \"lxc\"\ncoers = 2\n").unwrap();
        assert_eq!(declared.read(at(3)).await, FilesNews::Broken);
        assert_eq!(declared.read(at(4)).await, FilesNews::Nothing, "it is said once");
        fs_err::remove_file(&file).unwrap();
        assert_eq!(declared.read(at(5)).await, FilesNews::Broken, "another trouble is news");
        assert_eq!(declared.trouble().unwrap().since, at(3));
        assert_eq!(declared.desired().unwrap(), good);
        assert_eq!(declared.since(), Some(at(1)));
        assert_eq!(declared.last_good(), Some(at(2)), "the age of what holds grows");

        fs_err::write(&file, GOOD).unwrap();
        assert_eq!(declared.read(at(6)).await, FilesNews::Good, "that it is mended is news");
        assert_eq!((declared.trouble(), declared.since()), (None, Some(at(1))));
    }

    #[tokio::test]
    async fn a_line_that_moves_is_no_other_wish() {
        let (directory, config) = directory(GOOD);
        let mut declared = DeclaredFiles::from(&config);
        assert_eq!(declared.read(at(1)).await, FilesNews::Good);
        let shared = "# a comment\n\n[profile.two]\nkind = \"lxc\"\ncores = 2\n";
        let moved = format!("{shared}[guest.101]\nuse = [\"two\"]\n");
        fs_err::write(directory.path().join("web.toml"), moved).unwrap();
        assert_eq!(declared.read(at(2)).await, FilesNews::Nothing, "wherever it stands");
        assert_eq!(declared.since(), Some(at(1)));
    }

    #[tokio::test]
    async fn a_mistake_is_told_with_its_place() {
        let (_directory, config) = directory("[guest.101]\nkind = \"lxc\"\ncoers = 2\n");
        let mut declared = DeclaredFiles::from(&config);
        assert_eq!(declared.read(at(1)).await, FilesNews::Broken);
        let why = &declared.trouble().unwrap().why;
        assert!(why.contains("web.toml:3:1: ") && why.contains("cores"), "{why}");
        assert!(declared.desired().is_none(), "broken files are no empty desired state");
    }

    #[tokio::test]
    async fn without_a_source_nothing_is_declared_and_nothing_is_wrong() {
        let mut declared = DeclaredFiles::from(&DesiredConfig::default());
        assert_eq!(declared.read(at(1)).await, FilesNews::Nothing);
        assert!(declared.desired().is_none() && declared.trouble().is_none());
    }

    #[tokio::test]
    async fn another_source_takes_over_only_with_something_good() {
        let (_first, config) = directory(GOOD);
        let (_second, broken) = directory("broken");
        let mut declared = DeclaredFiles::from(&config);
        declared.read(at(1)).await;
        let good = declared.desired();
        declared.now_from(&broken);
        assert_eq!(declared.read(at(2)).await, FilesNews::Broken);
        assert_eq!(declared.desired(), good);
        declared.now_from(&DesiredConfig::default());
        assert_eq!(declared.desired(), None, "no source at all is a decision, not a failure");
    }

    #[tokio::test]
    async fn x09_files_that_do_not_come_are_waited_for_once_and_then_only_looked_for() {
        let (_directory, config) = directory(GOOD);
        let mut declared = DeclaredFiles::from(&config);
        declared.read(at(1)).await;
        let (answer, late) = tokio::sync::oneshot::channel();
        declared.late = Some(late);
        assert_eq!(declared.read(at(2)).await, FilesNews::Broken, "it does not wait");
        assert!(declared.trouble().unwrap().why.contains("does not answer"));
        assert!(declared.desired().is_some(), "what was good holds");
        answer.send(Ok(Desired::default())).unwrap();
        assert_eq!(declared.read(at(3)).await, FilesNews::Good, "and takes what came late");
        assert_eq!(declared.read(at(4)).await, FilesNews::Good, "the next reading is a new one");
        assert_eq!(declared.desired().unwrap().guests.len(), 1);
    }
}
