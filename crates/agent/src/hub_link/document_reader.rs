//! Reads the files of a document beside the agent's loop: a hub can hand over four megabytes that take a minute.
//!
//! The link waits for it, the loop does not. One document is read at a time, and only one that was admitted: number, base and
//! author are right. What takes longer than its time is refused; its thread ends when it has read, and until then no other is
//! read, so that no row of documents takes every core.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::desired::without_secrets;
use evenkeel_core::fleet::{DocumentFloor, LoadedDocument, OfferedDocument, read_admitted};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::words::diagnostic::Diagnostic;
use tokio::sync::Semaphore;

/// How long reading one document may take: ten times what the largest honest one takes on a slow node.
pub const READING_MAX: Duration = Duration::from_mins(1);

/// Mistakes that travel back to the hub; whoever mends them sees the others by `evenkeel validate`.
const DIAGNOSTICS_MAX: usize = 20;

/// A document as it was read: what it declares, or how many mistakes it has and the first of them, as the command line shows them.
pub type ReadFiles = Result<Box<LoadedDocument>, FileMistakes>;

/// The mistakes of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMistakes {
    /// How many there are.
    pub count: usize,
    /// The first, with their lines and without secrets.
    pub shown: Vec<String>,
}

/// Where documents are read.
#[derive(Debug, Clone)]
pub struct DocumentReader {
    /// One place, on a thread of its own; none where reading in place is wanted, as in simulated time.
    beside: Option<Arc<Semaphore>>,
}

impl DocumentReader {
    /// Reads on a thread beside everything else.
    pub fn beside() -> Self {
        Self { beside: Some(Arc::new(Semaphore::new(1))) }
    }

    /// Reads in place, where nobody else waits.
    pub fn in_place() -> Self {
        Self { beside: None }
    }

    /// Reads an admitted document within its time.
    pub(super) async fn read(
        &self,
        offered: &Arc<OfferedDocument>,
        floor: &DocumentFloor,
    ) -> Result<ReadFiles, Refusal> {
        let Some(place) = &self.beside else { return Ok(read(offered, floor)) };
        let Ok(place) = Arc::clone(place).try_acquire_owned() else {
            let detail = "an earlier document is still being read; this one waits for it";
            return Err(Refusal::new(ReasonCode::Budget, detail));
        };
        let offered = Arc::clone(offered);
        let floor = floor.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let files = read(&offered, &floor);
            drop(place);
            files
        });
        match tokio::time::timeout(READING_MAX, reading).await {
            Ok(Ok(files)) => Ok(files),
            Ok(Err(_)) => {
                Err(Refusal::new(ReasonCode::Payload, "reading its files came to no end"))
            }
            Err(_) => {
                let seconds = READING_MAX.as_secs();
                let detail = format!("reading its files took longer than {seconds} s");
                Err(Refusal::new(ReasonCode::Budget, detail))
            }
        }
    }
}

fn read(offered: &OfferedDocument, floor: &DocumentFloor) -> ReadFiles {
    match read_admitted(offered, floor) {
        Ok(loaded) => Ok(Box::new(loaded)),
        Err(mistakes) => {
            // A mistake shows the line it is in, which may hold a secret.
            let sources = without_secrets(&offered.files.sources());
            let count = mistakes.iter().map(Diagnostic::stands_for).sum();
            let shown = mistakes.iter().take(DIAGNOSTICS_MAX);
            let shown = shown.map(|mistake| mistake.told(&sources)).collect();
            Err(FileMistakes { count, shown })
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::fleet::{DocumentFiles, Generation};

    use super::*;

    fn offered(text: String) -> Arc<OfferedDocument> {
        let files = DocumentFiles::new([("web.toml".to_owned(), text)]).unwrap();
        Arc::new(OfferedDocument {
            hub_id: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            host: "pve1".parse().unwrap(),
            generation: Generation(1),
            manifest: files.manifest(),
            files,
            author: None,
        })
    }

    #[tokio::test]
    async fn z11_while_one_document_is_read_no_other_is_and_nobody_else_waits() {
        let unknown: Vec<String> = (0..40_000).map(|n| format!("unknown_{n} = 1\n")).collect();
        let text = format!("[guest.101]\nkind = \"lxc\"\n{}", unknown.concat());
        let long = offered(text);
        let short = offered("[guest.101]\nkind = \"lxc\"\n".to_owned());
        let floor = DocumentFloor::enrolled(long.hub_id.clone());
        let reader = DocumentReader::beside();
        let mut reading = tokio::spawn({
            let reader = reader.clone();
            let long = Arc::clone(&long);
            let floor = floor.clone();
            async move { reader.read(&long, &floor).await }
        });
        tokio::task::yield_now().await;
        // The thread of this test is the loop: it goes on while the document is read, for as long as that takes.
        assert!(!reading.is_finished());
        let refusal = reader.read(&short, &floor).await.unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::Budget, "{refusal}");
        let mistakes = (&mut reading).await.unwrap().unwrap().unwrap_err();
        assert_eq!((mistakes.count, mistakes.shown.len()), (40_000, DIAGNOSTICS_MAX));
        assert!(reader.read(&short, &floor).await.unwrap().is_ok(), "the place is free again");
    }
}
