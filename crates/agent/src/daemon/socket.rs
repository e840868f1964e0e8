//! The agent's unix socket: who may ask, how much, and how long.
//!
//! The loop carries out what is asked; this file only carries it there and the answer back, each client in a task of
//! its own that is dropped with the agent. The file is 0600 and the other side must be the same user or root, whatever
//! the file's mode. Nobody who asks slowly, too long or too often holds up anybody else.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use super::protocol::{
    REQUEST_BYTES_MAX, Refused, RefusedCode, SocketAnswer, SocketRequest, read_request, to_line,
};
use super::shared_status::SharedStatus;
use crate::engine::{LogViewers, Progress};

/// How many may ask at a time: a few terminals and a dashboard.
const CLIENTS_MAX: usize = 16;

/// How long a client may take to say what it wants, or to take in a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// Something for the loop to do.
pub(super) struct SocketCommand {
    pub(super) request: SocketRequest,
    pub(super) answer: oneshot::Sender<SocketAnswer>,
}

/// What a client's task needs.
#[derive(Clone)]
pub(super) struct SocketService {
    pub(super) shared_status: SharedStatus,
    pub(super) commands: mpsc::Sender<SocketCommand>,
    pub(super) progress: broadcast::Sender<Progress>,
    pub(super) log_viewers: LogViewers,
}

/// The socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {}", path.display())]
pub struct SocketError {
    /// Where.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// A socket somebody listens at; its file goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens. A file that is there is removed only if nobody answers at it.
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError { path: path.to_owned(), source };
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(failed(io::ErrorKind::AddrInUse.into())),
            // A plain file refuses too, and is not ours to remove.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            // Nothing there, or nothing we may touch: binding tells.
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let listener = Self { listener, path: path.to_owned() };
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).map_err(failed)?;
        Ok(listener)
    }

    /// Serves until dropped.
    pub(super) async fn serve(self, desk: SocketService) {
        let mut clients = JoinSet::new();
        loop {
            while clients.try_join_next().is_some() {}
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of file descriptors: the next one may find some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let welcome = if clients.len() < CLIENTS_MAX {
                Ok(())
            } else {
                let message = format!("{CLIENTS_MAX} others ask already");
                Err(Refused::new(RefusedCode::Busy, message, "try again in a moment"))
            };
            // One too many is told so; a second one too many waits in the kernel's queue.
            while clients.len() > CLIENTS_MAX {
                clients.join_next().await;
            }
            clients.spawn(client(stream, desk.clone(), welcome));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have been removed by hand; then there is nothing to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// One connection: one request, its answers.
async fn client(stream: UnixStream, desk: SocketService, welcome: Result<(), Refused>) {
    let allowed = welcome.and_then(|()| check_peer(&stream));
    let (read, mut write) = stream.into_split();
    let asked = match allowed {
        Ok(()) => request(read).await,
        Err(refused) => Err(refused),
    };
    let answered = match asked {
        Err(refused) => say(&mut write, &SocketAnswer::Refused(refused)).await,
        Ok(SocketRequest::Status { selection }) => {
            let answer = match desk.shared_status.status_of(&selection).await {
                Ok(status) => SocketAnswer::Status { status: Box::new(status) },
                Err(refused) => SocketAnswer::Refused(refused),
            };
            say(&mut write, &answer).await
        }
        // The journal tells it; nobody waits for the loop to hear what waits.
        Ok(SocketRequest::Pending {}) => {
            let answer = match desk.shared_status.pending().await {
                Ok(items) => SocketAnswer::Pending { items },
                Err(refused) => SocketAnswer::Refused(refused),
            };
            say(&mut write, &answer).await
        }
        Ok(request) => carry(request, &desk, &mut write).await,
    };
    if let Err(error) = answered {
        tracing::debug!(%error, "a client of the socket went away");
    }
}

pub(super) fn stopping(why: &str) -> Refused {
    let message = format!("the agent is going down: {why}");
    Refused::new(RefusedCode::Busy, message, "try again when it runs")
}

/// The kernel says who is on the other side.
fn check_peer(stream: &UnixStream) -> Result<(), Refused> {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if may_ask(peer.uid(), own) => Ok(()),
        Ok(_) | Err(_) => {
            let message = "only root and the user the agent runs as may ask it";
            Err(Refused::new(RefusedCode::Denied, message, "use sudo"))
        }
    }
}

fn may_ask(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == own_uid || peer_uid == 0
}

async fn request(read: impl tokio::io::AsyncRead + Unpin) -> Result<SocketRequest, Refused> {
    let malformed = |message: &str| {
        Refused::new(RefusedCode::Malformed, message, "one JSON object on one line, with `v`")
    };
    let mut line = Vec::new();
    let mut bounded = BufReader::new(read.take(REQUEST_BYTES_MAX as u64 + 1));
    let reading = bounded.read_until(b'\n', &mut line);
    match tokio::time::timeout(PATIENCE, reading).await {
        Err(_) => return Err(malformed("no request came in time")),
        Ok(Err(error)) => return Err(malformed(&format!("the request broke off: {error}"))),
        Ok(Ok(_)) => {}
    }
    if line.len() > REQUEST_BYTES_MAX {
        return Err(malformed("the request is too long"));
    }
    read_request(&line)
}

/// Hands a request to the loop and tells what happens until it is answered.
async fn carry(
    request: SocketRequest,
    desk: &SocketService,
    write: &mut (impl tokio::io::AsyncWrite + Unpin),
) -> io::Result<()> {
    let streams = match &request {
        SocketRequest::Apply { .. } | SocketRequest::Submit { .. } => true,
        SocketRequest::Request { op, .. } => op.runs_when_asked(),
        SocketRequest::Status { .. }
        | SocketRequest::Resolve { .. }
        | SocketRequest::Retry { .. }
        | SocketRequest::Reload {}
        | SocketRequest::Pending {}
        | SocketRequest::Withdraw { .. } => false,
    };
    // Logs are read only while somebody shows them, and told to nobody else.
    let shows_logs = matches!(&request, SocketRequest::Apply { logs: true, .. });
    let _view = shows_logs.then(|| desk.log_viewers.view());
    let mut progress = desk.progress.subscribe();
    let (answer, mut answered) = oneshot::channel();
    if desk.commands.send(SocketCommand { request, answer }).await.is_err() {
        return say(write, &SocketAnswer::Refused(stopping("nothing more is begun"))).await;
    }
    loop {
        tokio::select! {
            // What happened before the answer is told before it.
            biased;
            heard = progress.recv(), if streams => match heard {
                Ok(Progress::Log { .. }) if !shows_logs => {}
                Ok(progress) => say(write, &SocketAnswer::Progress { progress }).await?,
                // A slow reader misses some lines, never the report.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => {
                    return say(write, &SocketAnswer::Refused(stopping("nothing more is begun"))).await;
                }
            },
            answer = &mut answered => {
                let gone = |_| SocketAnswer::Refused(stopping("what was begun is in the journal"));
                return say(write, &answer.unwrap_or_else(gone)).await;
            }
        }
    }
}

async fn say(
    write: &mut (impl tokio::io::AsyncWrite + Unpin),
    answer: &SocketAnswer,
) -> io::Result<()> {
    let line = to_line(answer);
    tokio::time::timeout(PATIENCE, write.write_all(&line)).await??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use evenkeel_core::desired::selection::Selection;

    use super::*;

    #[test]
    fn n09_only_the_same_user_and_root_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000) && may_ask(0, 0));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }

    #[tokio::test]
    async fn n09_a_socket_file_is_private_replaced_if_nobody_listens_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        let stale = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(Listener::bind(&path).is_err(), "somebody listens");
        drop(stale);
        assert!(path.exists(), "a dead listener leaves its file");
        let listener = Listener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn n09_a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(Listener::bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn n05_a_request_is_bounded() {
        let endless = vec![b' '; REQUEST_BYTES_MAX + 10];
        let refused = request(&endless[..]).await.unwrap_err();
        assert_eq!(refused.message, "the request is too long");
        let asked = request(&b"{\"v\":1,\"request\":\"status\"}\nmore"[..]).await;
        assert_eq!(asked, Ok(SocketRequest::Status { selection: Selection::default() }));
    }

    #[tokio::test(start_paused = true)]
    async fn n05_a_client_that_says_nothing_is_sent_away() {
        let (_silent, read) = tokio::io::duplex(64);
        let refused = request(read).await.unwrap_err();
        assert_eq!(refused.message, "no request came in time");
    }
}
