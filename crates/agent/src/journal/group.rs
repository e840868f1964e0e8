//! Group commit: many wait, one writes, one sync acknowledges them all.
//!
//! The agent holds a [`JournalHandle`] and awaits its appends; [`spawn`] owns the [`Journal`] on an
//! OS thread, because a sync blocks. Simulation serves the same requests inline with
//! [`Requests::serve`]. Nobody is answered before the sync; a waiter that goes away takes nothing
//! back, its record stays.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::disk::Disk;
use super::error::{AppendError, DiskFailure};
use super::line::Head;
use super::record::{Record, RecordLine};
use super::state::JournalState;
use super::{Journal, WallTime};

/// Requests that may wait for the writer; more make the callers wait. Four times the operations
/// that can be in flight at once on a large host.
const QUEUE_MAX: usize = 1_024;

/// A batch is closed at this size, so that the first in it does not wait for a long write.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A cheap way to the journal for everybody who writes to it.
#[derive(Debug, Clone)]
pub struct JournalHandle {
    requests: mpsc::Sender<WriterRequest>,
    failure: GroupFailure,
}

/// What ended the writer, for those whose request it never answered.
type GroupFailure = Arc<OnceLock<DiskFailure>>;

impl JournalHandle {
    /// Resolves when the record is on disk, or was refused. Dropping the future before it resolves
    /// leaves open whether the record was written.
    pub async fn append(&self, record: Record) -> Result<Head, AppendError> {
        let place = self.requests.reserve().await.map_err(|_| self.stopped())?;
        let (answer, answered) = oneshot::channel();
        let line = RecordLine::of(&record);
        place.send(WriterRequest::Append { record, line, answer });
        answered.await.map_err(|_| self.stopped())?
    }

    /// Asks a question about the state. Everything the answer rests on is on disk.
    pub async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&JournalState, Head) -> T + Send + 'static,
    ) -> Result<T, AppendError> {
        let (answer, answered) = oneshot::channel();
        let ask = Box::new(move |state: &JournalState, head: Head| {
            // The one who asked may have gone; then nobody misses the answer.
            let _ = answer.send(question(state, head));
        });
        self.requests.send(WriterRequest::Read(ask)).await.map_err(|_| self.stopped())?;
        answered.await.map_err(|_| self.stopped())
    }

    /// Why the writer is gone. Whoever hears of it first tells the operator, so all must know.
    fn stopped(&self) -> AppendError {
        self.failure.get().cloned().map_or(AppendError::Stopped, AppendError::Failed)
    }

    /// The mark of time, after a look at the clock.
    pub async fn clock_mark(&self) -> Result<Timestamp, AppendError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(WriterRequest::Mark(answer)).await.map_err(|_| self.stopped())?;
        answered.await.map_err(|_| self.stopped())
    }
}

type GroupQuestion = Box<dyn FnOnce(&JournalState, Head) + Send>;
type GroupAnswer = oneshot::Sender<Result<Head, AppendError>>;

#[expect(
    clippy::large_enum_variant,
    reason = "most are this one, and a box would be made and dropped for each"
)]
enum WriterRequest {
    Append { record: Record, line: RecordLine, answer: GroupAnswer },
    Read(GroupQuestion),
    Mark(oneshot::Sender<Timestamp>),
}

/// The other end of the handles.
#[derive(Debug)]
pub struct Requests {
    received: mpsc::Receiver<WriterRequest>,
    failure: GroupFailure,
}

/// A handle, and the requests made through it and its clones.
pub fn channel() -> (JournalHandle, Requests) {
    let (requests, received) = mpsc::channel(QUEUE_MAX);
    let failure = GroupFailure::default();
    (JournalHandle { requests, failure: Arc::clone(&failure) }, Requests { received, failure })
}

/// Starts the writer's thread. It ends when the last handle is dropped, or with the failure that
/// must end the process.
pub fn spawn<D: Disk + Send + 'static, W: Into<WallTime>>(
    journal: Journal<D>,
    now: impl FnMut() -> W + Send + 'static,
) -> io::Result<(JournalHandle, thread::JoinHandle<Result<(), DiskFailure>>)> {
    let (handle, requests) = channel();
    let writer = thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || requests.serve_blocking(journal, now))?;
    Ok((handle, writer))
}

impl Requests {
    /// Serves until the last handle is gone or the journal fails. It blocks its thread.
    pub(crate) fn serve_blocking<D: Disk, W: Into<WallTime>>(
        mut self,
        mut journal: Journal<D>,
        mut now: impl FnMut() -> W,
    ) -> Result<(), DiskFailure> {
        while let Some(first) = self.received.blocking_recv() {
            self.serve_batch(&mut journal, first, now().into())?;
        }
        Ok(())
    }

    /// The same on the caller's task, for a disk that does not block.
    pub async fn serve<D: Disk, W: Into<WallTime>>(
        mut self,
        mut journal: Journal<D>,
        mut now: impl FnMut() -> W,
    ) -> Result<(), DiskFailure> {
        while let Some(first) = self.received.recv().await {
            self.serve_batch(&mut journal, first, now().into())?;
        }
        Ok(())
    }

    /// Takes everything that waits, writes it, syncs once and answers.
    fn serve_batch<D: Disk>(
        &mut self,
        journal: &mut Journal<D>,
        first: WriterRequest,
        now: WallTime,
    ) -> Result<(), DiskFailure> {
        journal.notice(now);
        // Lines are dropped after the answers: nobody shall wait while memory is given back.
        let mut spent = Vec::new();
        let mut waiting: Vec<(GroupAnswer, Head)> = Vec::new();
        let mut questions = Vec::new();
        let mut marks = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                WriterRequest::Append { record, line, answer } => {
                    match journal.stage_line(record, &line, now) {
                        Ok(head) => waiting.push((answer, head)),
                        // A waiter that has gone misses no answer, here and below.
                        Err(error) => drop(answer.send(Err(error))),
                    }
                    spent.push(line);
                }
                WriterRequest::Read(question) => questions.push(question),
                WriterRequest::Mark(answer) => marks.push(answer),
            }
            let full = journal.staged_bytes() >= BATCH_BYTES_MAX;
            next = if full { None } else { self.received.try_recv().ok() };
        }
        let committed = journal.commit();
        if let Err(failure) = &committed {
            // Before anybody can notice that there is no answer. The first failure is the one that counts.
            let _ = self.failure.set(failure.clone());
        }
        for (answer, head) in waiting {
            let result = committed.clone().map(|()| head).map_err(AppendError::Failed);
            drop(answer.send(result));
        }
        committed?;
        for question in questions {
            question(journal.state(), journal.head());
        }
        for answer in marks {
            let _ = answer.send(journal.clock_mark());
        }
        Ok(())
    }
}
