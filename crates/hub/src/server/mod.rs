//! Sockets, TLS and limits around the router. It knows nothing of what is asked.
//!
//! ```text
//!  accept ──> a place among strangers, or among those who were here ──> TLS ──> HTTP/1.1 ──> router
//!                    └ given back when a request shows a known credential
//! ```
//!
//! A slow client holds a connection and nothing else: headers, bodies and reading our answers have limits in time. At a
//! stop signal nothing new is accepted, long polls are answered, and what was begun is finished within a deadline.

mod addresses;
mod certificate;
mod limits;
mod serve;
mod stall_guard;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use addresses::{AddressPlace, AddressPlaces};
pub use addresses::{AddressRange, TrustedProxies};
pub use certificate::{CertificateError, CertificateFiles};
pub use limits::ServeLimits;

use crate::caller_gate::{CallerGates, CallerPlace};
use crate::problem::Problem;
use crate::routes::Hub;
use crate::secret_text::{SecretHash, SecretKind, SecretText};
use crate::store::{
    ArchiveLimits, ArchiveRound, Database, FLUSH_EVERY, HubStore, StoreError, archive_directory,
};
use crate::wake;

/// How often envelopes past their end are marked.
const EXPIRE_EVERY: Duration = Duration::from_mins(1);

/// How often lines of the audit that are old are looked for.
const ARCHIVE_EVERY: Duration = Duration::from_hours(1);

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
    /// Proxies in front of it whose word counts for where a request comes from.
    pub proxies: TrustedProxies,
    /// Where old lines of the audit go; beside the file of SQLite, and on PostgreSQL nowhere, if it is not named.
    pub audit_archive: Option<PathBuf>,
    /// The hash of the token that `/metrics` is read with; without one it is read on this machine alone.
    pub metrics_token: Option<SecretHash>,
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

/// The database that options name: a file in the state directory unless they say otherwise.
pub fn database_of(
    state: &std::path::Path,
    database: Option<&str>,
) -> Result<Database, StoreError> {
    match database {
        Some(url) => Database::from_url(url),
        None => Ok(Database::sqlite(&state.join("hub.sqlite"))),
    }
}

/// The store that options name: a file in the state directory unless they say otherwise.
pub async fn open_store(
    state: &std::path::Path,
    database: Option<&str>,
) -> Result<HubStore, StoreError> {
    let database = database_of(state, database)?;
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
    let archive = archive_directory(store.database(), options.audit_archive.as_deref());
    if let Some(directory) = &archive {
        store.pass_archived_rows(directory).await?;
    }
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
    if let Some(token) = options.metrics_token {
        hub.demand_metrics_token(token);
    }
    let fingerprint = acceptor.as_ref().map(certificate::CertificateStore::fingerprint);
    let mut chores =
        vec![tokio::spawn(wake::keep_waking(hub.clone())), tokio::spawn(keep_tidy(hub.clone()))];
    if let Some(directory) = archive {
        chores.push(tokio::spawn(keep_archiving(hub.clone(), directory)));
    }
    if let Some(store) = &acceptor {
        chores.push(tokio::spawn(certificate::keep_reading(store.clone())));
    }
    let accepting = tokio::spawn(serve::accept(
        listener,
        acceptor,
        hub.clone(),
        (options.limits, options.proxies),
    ));
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
            _ = flushes.tick() => flush(hub.store()).await,
            _ = ends.tick() => hub.store().tidy().await,
        };
        if let Err(error) = done {
            tracing::warn!(%error, "a chore failed; it is tried again");
        }
    }
}

/// Moves old lines of the audit to their archive.
async fn keep_archiving(hub: Hub, directory: PathBuf) {
    let mut rounds = tokio::time::interval(ARCHIVE_EVERY);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        loop {
            match hub.store().archive_audit(&directory, ArchiveLimits::default()).await {
                Ok(ArchiveRound::Moved(0) | ArchiveRound::Busy) => break,
                Ok(ArchiveRound::Moved(lines)) => {
                    tracing::info!(lines, directory = %directory.display(), "old lines of the audit were archived");
                }
                Ok(ArchiveRound::Elsewhere) => {
                    tracing::warn!(directory = %directory.display(),
                        "the audit is not archived here: the lines archived before are in another directory");
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, "the audit was not archived; no line is lost, and it is tried again");
                    break;
                }
            }
        }
    }
}

async fn flush(store: &HubStore) -> Result<(), StoreError> {
    store.flush_heartbeats().await?;
    store.flush_login_uses().await
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

/// Whether a connection has shown a credential: until then it has a place among those that have not, of which there are few.
#[derive(Clone)]
pub struct ConnectionMark {
    state: Arc<Mutex<MarkState>>,
    addresses: AddressPlaces,
    from: SocketAddr,
}

/// Whose a connection is.
enum MarkState {
    Stranger {
        _place: AddressPlace,
    },
    Known {
        caller: String,
        _place: CallerPlace,
    },
    /// A host polls on it.
    Polling,
    /// Its caller has as many as it may have: it is ended with the answer that says so.
    OneTooMany,
}

impl ConnectionMark {
    fn stranger(place: AddressPlace, addresses: AddressPlaces, from: SocketAddr) -> Self {
        let state = Arc::new(Mutex::new(MarkState::Stranger { _place: place }));
        Self { state, addresses, from }
    }

    /// Where a request on it comes from, as limits count it: a proxy that root named says where it was asked from.
    pub(crate) fn client_group(&self, headers: &axum::http::HeaderMap) -> String {
        self.addresses.client_group(self.from.ip(), headers)
    }

    /// Whether it was made on this machine itself, and by no proxy that says otherwise.
    pub(crate) fn is_local(&self, headers: &axum::http::HeaderMap) -> bool {
        let forwarded = ["x-forwarded-for", "forwarded", "via", "x-real-ip"];
        self.from.ip().to_canonical().is_loopback()
            && forwarded.iter().all(|name| !headers.contains_key(*name))
    }

    /// It is this caller's from now on, unless the caller has too many.
    pub(crate) fn known(&self, connections: &CallerGates, caller: &str) -> Result<(), Problem> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let MarkState::Known { caller: known, .. } = &*state
            && known == caller
        {
            return Ok(());
        }
        match connections.enter(caller) {
            Ok(place) => {
                *state = MarkState::Known { caller: caller.to_owned(), _place: place };
                self.addresses.remember(self.from.ip());
                Ok(())
            }
            Err(problem) => {
                *state = MarkState::OneTooMany;
                Err(problem)
            }
        }
    }

    /// A host polls on it, which counts among nothing.
    pub(crate) fn polls(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, MarkState::Stranger { .. }) {
            *state = MarkState::Polling;
            self.addresses.remember(self.from.ip());
        }
    }

    /// Whether it is to be ended.
    pub(crate) fn is_one_too_many(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, MarkState::OneTooMany)
    }
}

#[cfg(test)]
mod tests;
