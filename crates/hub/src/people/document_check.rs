//! A document as the hub judges it: read by the same reader as on the host, and compared with the newest one.
//!
//! Reading thousands of guests takes a while, and a hostile document longer, so it is done beside the tasks that answer others,
//! few at a time and within a time.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::desired::{DeclaredBy, DeclaredSet, difference, without_secrets};
use evenkeel_core::fleet::{DocumentFiles, LoadedDocument, ReportedOrigin, WireFile, told_origins};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::words::diagnostic::{Diagnostic, Sources};
use tokio::sync::Semaphore;

use super::wire::{DifferenceBody, FileBody};
use crate::problem::{Problem, ProblemCode};
use crate::store::StoredDocument;

/// How many mistakes of a document are told; who has more corrects these first.
const MISTAKES_LISTED_MAX: usize = evenkeel_core::words::diagnostic::MISTAKES_TOLD_MAX + 1;

/// A document without mistakes, and what it changes.
pub(crate) struct CheckedDocument {
    pub(crate) files: DocumentFiles,
    pub(crate) guests: usize,
    pub(crate) difference: Vec<DifferenceBody>,
}

impl CheckedDocument {
    /// The files as they are kept.
    pub(crate) fn texts(&self) -> Vec<WireFile> {
        let text = |(name, text): (&str, &str)| WireFile { name: name.into(), text: text.into() };
        self.files.iter().map(text).collect()
    }
}

/// Reads files and compares them with a document.
pub(crate) async fn check(
    files: Vec<FileBody>,
    newest: Option<StoredDocument>,
) -> Result<CheckedDocument, Problem> {
    beside(move || {
        let files = DocumentFiles::new(files.into_iter().map(|file| (file.name, file.text)));
        let files = files.map_err(|error| Problem::invalid(error.to_string()))?;
        let loaded = files.load(DeclaredBy::Hub);
        let loaded = loaded.map_err(|mistakes| refused(&mistakes, &files.sources()))?;
        let before = newest.map(|document| loaded_again(&document)).transpose()?;
        let difference = compare(before.as_ref(), &loaded);
        Ok(CheckedDocument { files, guests: loaded.desired.guests.len(), difference })
    })
    .await?
}

/// What differs between two documents that were kept.
pub(crate) async fn between(
    before: Option<StoredDocument>,
    after: StoredDocument,
) -> Result<Vec<DifferenceBody>, Problem> {
    beside(move || {
        let before = before.map(|document| loaded_again(&document)).transpose()?;
        Ok(compare(before.as_ref(), &loaded_again(&after)?))
    })
    .await?
}

/// Where each key of a guest is declared in a document, by the reader that the host has; nothing if the document does not declare
/// the guest, or cannot be read any more.
pub(crate) async fn origins_of(
    document: StoredDocument,
    guest: GuestId,
) -> Result<BTreeMap<String, ReportedOrigin>, Problem> {
    beside(move || {
        let Ok(loaded) = loaded_again(&document) else { return BTreeMap::new() };
        let declared = loaded.desired.guests.get(&guest.vmid);
        if declared.is_none_or(|declared| declared.id != guest) {
            return BTreeMap::new();
        }
        let origins = loaded.origins.guests.get(&guest.vmid);
        origins.map(|origins| told_origins(origins, &loaded.sources)).unwrap_or_default()
    })
    .await
}

/// How many documents are read at once: one, so that the other core answers everybody else.
const READINGS_AT_ONCE: usize = 1;

/// How long a document waits for its turn to be read.
const READING_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long reading one may take: ten times what the largest honest one takes on a slow machine.
const READING_MAX: Duration = Duration::from_secs(30);

/// Readings of this process. What took too long keeps its place until it ends.
static READINGS: Semaphore = Semaphore::const_new(READINGS_AT_ONCE);

/// Does what takes a while beside the tasks that answer others.
pub(crate) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let place = tokio::time::timeout(READING_WAIT_MAX, READINGS.acquire()).await;
    let Ok(Ok(place)) = place else {
        let detail = "the hub is reading other documents";
        return Err(Problem::new(ProblemCode::TooMany, detail).hint("try again in a minute"));
    };
    let reading = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(place);
        done
    });
    let done = tokio::time::timeout(READING_MAX, reading).await.map_err(|_| {
        let detail = format!("reading the document takes longer than {} s", READING_MAX.as_secs());
        Problem::invalid(detail).hint("correct its mistakes, or split it")
    })?;
    done.map_err(|_| Problem::new(ProblemCode::Internal, "reading the document failed"))
}

fn compare(before: Option<&LoadedDocument>, after: &LoadedDocument) -> Vec<DifferenceBody> {
    let (desired, origins, sources) = Default::default();
    let nothing = DeclaredSet { desired: &desired, origins: &origins, sources: &sources };
    let found = difference(before.map_or(nothing, declared_set), declared_set(after));
    found.into_iter().map(DifferenceBody::from).collect()
}

fn declared_set(document: &LoadedDocument) -> DeclaredSet<'_> {
    let LoadedDocument { desired, origins, sources } = document;
    DeclaredSet { desired, origins, sources }
}

/// A document that was read before. A newer version of the hub may read it otherwise.
fn loaded_again(document: &StoredDocument) -> Result<LoadedDocument, Problem> {
    let files = document.files.iter().map(|file| (file.name.clone(), file.text.clone()));
    let files = DocumentFiles::new(files);
    let loaded = files.ok().and_then(|files| files.load(DeclaredBy::Hub).ok());
    loaded.ok_or_else(|| {
        let generation = document.row.generation;
        let detail = format!(
            "generation {generation} cannot be read any more, so nothing can be compared with it"
        );
        Problem::new(ProblemCode::Conflict, detail)
    })
}

/// A document with mistakes: each with its place and its next step.
fn refused(mistakes: &[Diagnostic], sources: &Sources) -> Problem {
    let count: usize = mistakes.iter().map(Diagnostic::stands_for).sum();
    let noun = if count == 1 { "mistake" } else { "mistakes" };
    let mut problem =
        Problem::invalid(format!("the document has {count} {noun}; nothing of it was kept"));
    // A mistake shows the line it is in, which may hold a secret.
    let sources = without_secrets(sources);
    problem.diagnostics =
        mistakes.iter().take(MISTAKES_LISTED_MAX).map(|mistake| mistake.told(&sources)).collect();
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<FileBody> {
        vec![FileBody { name: "web.toml".to_owned(), text: text.to_owned() }]
    }

    #[tokio::test]
    async fn a_mistake_is_told_with_its_place_and_its_line() {
        let text = "[guest.101]\nkind = \"lxc\"\ncoress = 2\n";
        let problem = check(file(text), None).await.err().unwrap();
        let told = &problem.diagnostics[0];
        assert!(told.starts_with("web.toml:3:1: E0201: "), "{told}");
        assert!(told.contains("\n  | coress = 2\n  | ^^^^^^"), "{told}");
        assert!(told.contains("\n  hint: "), "{told}");
    }

    #[tokio::test]
    async fn x17_a_secret_beside_a_mistake_is_not_told() {
        let text = "[guest.101]\nkind = \"lxc\"\nenv = [\"TOKEN=marked\"]\ncoress = 2\n";
        let problem = check(file(text), None).await.err().unwrap();
        assert!(!format!("{problem:?}").contains("marked"), "{problem:?}");
    }

    /// A test's runtime has one thread: that is the hub which answers others.
    #[tokio::test]
    async fn z11_a_hostile_document_keeps_nobody_else_waiting_and_is_told_in_a_hundred_mistakes() {
        let unknown: Vec<String> = (0..58_000).map(|n| format!("u{n} = 1\n")).collect();
        let text = format!("[guest.101]\nkind = \"lxc\"\n{}", unknown.concat());
        let files = (1..=4).map(|n| FileBody { name: format!("{n}.toml"), text: text.clone() });
        let hostile = tokio::spawn(check(files.collect(), None));
        let mut longest = Duration::ZERO;
        while !hostile.is_finished() {
            let asked = std::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(5)).await;
            longest = longest.max(asked.elapsed());
        }
        assert!(longest < Duration::from_secs(1), "somebody else waited {longest:?}");
        let problem = hostile.await.unwrap().err().unwrap();
        assert!(problem.detail.contains("mistakes"), "{problem:?}");
        assert!(problem.diagnostics.len() <= MISTAKES_LISTED_MAX, "{}", problem.diagnostics.len());
    }

    #[tokio::test]
    async fn the_first_document_adds_everything() {
        let checked =
            check(file("[guest.101]\nkind = \"lxc\"\ncores = 2\n"), None).await.ok().unwrap();
        assert_eq!((checked.guests, checked.difference.len()), (1, 1));
        assert_eq!(checked.difference[0].change, "added");
    }
}
