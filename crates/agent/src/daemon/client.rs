//! The other end of the socket, for the verbs that ask a running agent.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

use super::protocol::{ANSWER_BYTES_MAX, SocketAnswer, SocketRequest, to_line};

/// A conversation with a running agent: one request, its answers.
#[derive(Debug)]
pub struct Conversation {
    answers: BufReader<tokio::io::Take<OwnedReadHalf>>,
}

/// Why a running agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No agent listens.
    #[error("no agent runs with this state directory")]
    NobodyThere,
    /// The system said no.
    #[error("the running agent cannot be asked")]
    Io(#[source] io::Error),
    /// It hung up before it had answered.
    #[error("the running agent went away before it had answered")]
    WentAway,
    /// What it answered makes no sense here.
    #[error("the running agent's answer is not understood: {0}")]
    NotUnderstood(String),
}

impl Conversation {
    /// Asks the agent that listens at a socket.
    pub async fn ask(socket: &Path, request: &SocketRequest) -> Result<Self, AskError> {
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        let stream = UnixStream::connect(socket).await.map_err(|error| {
            if nobody.contains(&error.kind()) { AskError::NobodyThere } else { AskError::Io(error) }
        })?;
        let (read, mut write) = stream.into_split();
        write.write_all(&to_line(request)).await.map_err(AskError::Io)?;
        // The half that writes is kept open by the half that reads: nothing is cut off.
        write.forget();
        Ok(Self { answers: BufReader::new(read.take(ANSWER_BYTES_MAX as u64)) })
    }

    /// The next answer. After anything but progress nothing follows.
    pub async fn next(&mut self) -> Result<SocketAnswer, AskError> {
        let mut line = Vec::new();
        self.answers.read_until(b'\n', &mut line).await.map_err(AskError::Io)?;
        if line.is_empty() {
            return Err(AskError::WentAway);
        }
        // The bound is on each answer, not on all of them.
        self.answers.get_mut().set_limit(ANSWER_BYTES_MAX as u64);
        serde_json::from_slice(&line).map_err(|error| AskError::NotUnderstood(error.to_string()))
    }
}

/// Asks for something that has one answer.
pub async fn ask(socket: &Path, request: &SocketRequest) -> Result<SocketAnswer, AskError> {
    Conversation::ask(socket, request).await?.next().await
}
