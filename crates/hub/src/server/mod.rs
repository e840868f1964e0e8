//! Sockets, TLS and limits around the router. It knows nothing of what is asked.
//!
//! ```text
//!  accept ──> a place among strangers ──> TLS ──> HTTP/1.1 ──> router
//!                    └ given back when a request shows a known credential
//! ```
//!
//! A slow client holds a connection and nothing else: headers, bodies and reading our answers have limits in time. At a
//! stop signal nothing new is accepted, long polls are answered, and what was begun is finished within a deadline.

mod certificate;
mod limits;
mod serve;
mod stall_guard;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

pub use certificate::{CertificateError, CertificateFiles};
pub use limits::ServeLimits;

use crate::routes::Hub;
use crate::secret_text::{SecretKind, SecretText};
use crate::store::{Database, FLUSH_EVERY, HubStore, StoreError};
use crate::wake;

/// How often envelopes past their end are marked.
const EXPIRE_EVERY: Duration = Duration::from_mins(1);

/// How a hub is started.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the certificate and the SQLite file are.
    pub state: PathBuf,
    /// Another database than the file in the state directory.
    pub database: Option<String>,
    /// What people and hosts dial; made from the address if none.
    pub public_url: Option<String>,
    /// How it is encrypted.
    pub tls: TlsChoice,
    /// How much and how long connections may take.
    pub limits: ServeLimits,
}

/// How connections are encrypted.
#[derive(Debug, Clone)]
pub enum TlsChoice {
    /// By a certificate of our own, made at the first start.
    SelfSigned,
    /// By files that somebody else renews.
    Files(CertificateFiles),
    /// Not at all: behind a proxy, or on loopback.
    Plain,
}

/// Why a hub cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The state directory.
    #[error(transparent)]
    File(#[from] std::io::Error),
}

/// A hub that serves.
pub struct RunningHub {
    /// What handlers share.
    pub hub: Hub,
    /// Where it listens.
    pub address: SocketAddr,
    /// What people and hosts dial.
    pub url: String,
    /// The SHA-256 of its certificate, in pairs with colons; none without TLS.
    pub fingerprint: Option<String>,
    /// The link that makes the first account; none once there is one.
    pub admin_link: Option<String>,
    accepting: JoinHandle<()>,
    chores: Vec<JoinHandle<()>>,
}

/// The store that options name: a file in the state directory unless they say otherwise.
pub async fn open_store(
    state: &std::path::Path,
    database: Option<&str>,
) -> Result<HubStore, StoreError> {
    let database = match database {
        Some(url) => Database::from_url(url)?,
        None => Database::sqlite(&state.join("hub.sqlite")),
    };
    if let Some(file) = database.file() {
        prepare(file)?;
    }
    HubStore::open(database).await
}

/// The directory for its owner alone, and the file too: SQLite would make it as the umask says.
fn prepare(file: &std::path::Path) -> std::io::Result<()> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(
            |error| {
                std::io::Error::new(
                    error.kind(),
                    format!("cannot make {}: {error}", directory.display()),
                )
            },
        )?;
    }
    fs_err::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file)?;
    Ok(())
}

/// Starts a hub: when this answers, it serves.
pub async fn start(options: ServerOptions) -> Result<RunningHub, StartError> {
    let store = open_store(&options.state, options.database.as_deref()).await?;
    let acceptor = certificate::acceptor(&options.tls, &options.state)?;
    let listening = TcpListener::bind(options.listen).await;
    let listener =
        listening.map_err(|source| StartError::Listen { address: options.listen, source })?;
    let address = listener.local_addr()?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let url = options.public_url.unwrap_or_else(|| format!("{scheme}://{address}"));
    let url = url.trim_end_matches('/').to_owned();
    let admin_link = admin_link(&store, &url).await?;
    let hub = Hub::new(store, &url);
    let fingerprint = acceptor.as_ref().map(certificate::CertificateStore::fingerprint);
    let mut chores =
        vec![tokio::spawn(wake::keep_waking(hub.clone())), tokio::spawn(keep_tidy(hub.clone()))];
    if let Some(store) = &acceptor {
        chores.push(tokio::spawn(certificate::keep_reading(store.clone())));
    }
    let accepting = tokio::spawn(serve::accept(listener, acceptor, hub.clone(), options.limits));
    Ok(RunningHub { hub, address, url, fingerprint, admin_link, accepting, chores })
}

/// A link with a new code, while nobody has an account. The code is in the fragment, which no server or proxy sees.
async fn admin_link(store: &HubStore, url: &str) -> Result<Option<String>, StoreError> {
    if store.has_accounts().await? {
        return Ok(None);
    }
    let code = SecretText::draw(SecretKind::OneTimeCode);
    store.set_first_admin_code(code.hash()).await?;
    Ok(Some(format!("{url}/first-admin#{}", code.reveal())))
}

/// Signs of life, and what is past its end.
async fn keep_tidy(hub: Hub) {
    let mut flushes = tokio::time::interval(FLUSH_EVERY);
    let mut ends = tokio::time::interval(EXPIRE_EVERY);
    flushes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ends.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            _ = flushes.tick() => hub.store().flush_heartbeats().await,
            _ = ends.tick() => hub.store().tidy().await,
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a chore failed; it is tried again");
        }
    }
}

impl RunningHub {
    /// Ends it: nothing new is taken, what was begun is finished, everything is closed.
    pub async fn stop(self) {
        self.hub.begin_stop();
        if self.accepting.await.is_err() {
            tracing::error!("the hub's listener died before it was told to end");
        }
        self.chores.iter().for_each(JoinHandle::abort);
        self.hub.store().close().await;
    }
}

/// Whether a connection has shown a credential: until then it has a place among strangers, of which there are few.
#[derive(Clone)]
pub struct ConnectionMark {
    place: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    from: SocketAddr,
}

impl ConnectionMark {
    fn stranger(place: OwnedSemaphorePermit, from: SocketAddr) -> Self {
        Self { place: Arc::new(Mutex::new(Some(place))), from }
    }

    /// The address of the other side: a client's, or that of a proxy.
    pub(crate) fn address(&self) -> String {
        self.from.ip().to_canonical().to_string()
    }

    /// It is no stranger any more.
    pub(crate) fn known(&self) {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[cfg(test)]
mod tests;
