//! A host's link on the wire, and the fleet of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_agent::pve::tls::TlsTrust;
use evenkeel_core::fleet::{HostReport, PassReport, PayloadHash, ReportStatement};
use evenkeel_core::sign::wire::put_string;
use evenkeel_core::sign::{
    HostBinding, KeyType, Namespace, PublicKey, armour, assemble, signed_bytes,
};
use evenkeel_harness::script::quiet_guest;
use evenkeel_hub::secret_text::{SecretKind, SecretText, random_hex};
use evenkeel_hub::store::{HubStore, NewHost};
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{Notify, broadcast};
use tokio_rustls::TlsConnector;

use crate::hub_process::HubProcess;

/// Guests of a host.
const GUESTS: u32 = 20;
/// How often a host reports.
const REPORT_EVERY: Duration = Duration::from_mins(1);
/// How long a poll waits, in seconds.
const WAIT_S: u64 = 55;
/// After a lost connection hosts come back spread over this.
const RECONNECT: Duration = Duration::from_secs(30);

/// What all hosts share.
pub(crate) struct Fleet {
    /// Hosts that wait in a poll or were answered since the last reset.
    pub(crate) polling: AtomicUsize,
    pub(crate) report_bytes: AtomicU64,
    /// Answers that were not what they should be.
    pub(crate) faults: AtomicU64,
    /// Documents that arrived.
    pub(crate) taken: broadcast::Sender<(String, i64)>,
    one_more: Notify,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            polling: AtomicUsize::default(),
            report_bytes: AtomicU64::default(),
            faults: AtomicU64::default(),
            taken: broadcast::channel(1024).0,
            one_more: Notify::new(),
        }
    }
}

impl Fleet {
    pub(crate) async fn until_all_poll(&self, size: usize) {
        while self.polling.load(Ordering::SeqCst) < size {
            let _ =
                tokio::time::timeout(Duration::from_millis(100), self.one_more.notified()).await;
        }
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("load-{number:05}")
}

/// One host.
pub(crate) struct SimulatedAgent {
    id: String,
    hub_id: String,
    instance: String,
    secret: SigningKey,
    credential: String,
    address: SocketAddr,
    tls: TlsConnector,
    fleet: Arc<Fleet>,
}

impl SimulatedAgent {
    /// Takes hosts in, many in one commit.
    pub(crate) async fn enrol(
        store: &HubStore,
        hub: &HubProcess,
        size: usize,
        fleet: &Arc<Fleet>,
    ) -> Vec<Self> {
        let trust = TlsTrust::pinned(vec![hub.fingerprint]).unwrap();
        let tls = TlsConnector::from(Arc::new(trust.client_config().unwrap()));
        let address = hub.address();
        let one = |number| {
            let tls = tls.clone();
            let fleet = fleet.clone();
            async move {
                let mut seed = [0; 32];
                getrandom::fill(&mut seed).unwrap();
                let secret = SigningKey::from_bytes(&seed);
                let token = SecretText::draw(SecretKind::EnrolToken);
                let credential = SecretText::draw(SecretKind::Credential);
                let key = public(&secret);
                store.make_enrol_token(token.hash(), &name(number), false, "load").await.unwrap();
                let host = NewHost {
                    token: token.hash(),
                    host: name(number),
                    key_line: key.to_string(),
                    key_fingerprint: key.fingerprint().to_string(),
                    credential: credential.hash(),
                };
                store.enrol(host).await.unwrap().unwrap();
                let credential = credential.reveal().to_owned();
                let id = name(number);
                let hub_id = store.hub_id().to_owned();
                let instance = random_hex(8);
                Self { id, hub_id, instance, secret, credential, address, tls, fleet }
            }
        };
        stream::iter(0..size).map(one).buffer_unordered(64).collect().await
    }

    /// Comes up somewhere within a time, then polls and reports for ever.
    pub(crate) async fn run(self, spread: Duration) {
        tokio::time::sleep(spread.mul_f64(fraction())).await;
        let mut seq = 0;
        let mut kept = 0;
        let reporting = async {
            loop {
                let report = if kept == 0 { whole() } else { quiet() };
                seq += 1;
                if self.report(seq, kept, &report).await.is_some() {
                    kept = seq;
                    tokio::time::sleep(REPORT_EVERY).await;
                } else {
                    tokio::time::sleep(RECONNECT.mul_f64(fraction())).await;
                }
            }
        };
        tokio::join!(reporting, self.poll_for_ever());
    }

    async fn poll_for_ever(&self) {
        let mut generation = 0;
        loop {
            if let Some(mut connection) = self.connect().await {
                self.fleet.polling.fetch_add(1, Ordering::SeqCst);
                self.fleet.one_more.notify_one();
                while let Some((status, body)) = self
                    .get(
                        &mut connection,
                        &format!("/v1/agent/poll?generation={generation}&cursor=0&wait={WAIT_S}"),
                    )
                    .await
                {
                    match status {
                        204 => {}
                        200 => {
                            let wanted = body["generation"].as_i64().unwrap();
                            let path = format!("/v1/agent/documents/{wanted}");
                            let Some((200, _)) = self.get(&mut connection, &path).await else {
                                break;
                            };
                            generation = wanted;
                            let _ = self.fleet.taken.send((self.id.clone(), wanted));
                        }
                        _ => {
                            self.fleet.faults.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(RECONNECT).await;
                        }
                    }
                }
            }
            tokio::time::sleep(RECONNECT.mul_f64(fraction())).await;
        }
    }

    async fn connect(&self) -> Option<http1::SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let stream =
            self.tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?;
        let (sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }

    async fn get(
        &self,
        connection: &mut http1::SendRequest<Full<Bytes>>,
        path: &str,
    ) -> Option<(u16, Value)> {
        let request = Request::get(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.credential))
            .body(Full::default())
            .unwrap();
        answered(connection, request).await
    }

    async fn report(&self, seq: u64, base: u64, report: &HostReport) -> Option<()> {
        let body = report.to_bytes();
        let key = public(&self.secret);
        let statement = ReportStatement {
            hub_id: self.hub_id.parse().unwrap(),
            host: HostBinding { id: self.id.parse().unwrap(), key: key.fingerprint() },
            instance: self.instance.parse().unwrap(),
            seq,
            base,
            sha256: PayloadHash::of(&body),
        }
        .to_bytes()
        .unwrap();
        let mut signature = Vec::new();
        put_string(&mut signature, KeyType::Ed25519.as_str().as_bytes());
        let made = self.secret.sign(&signed_bytes(Namespace::Report, &statement));
        put_string(&mut signature, &made.to_bytes());
        let blob = armour::decode(&assemble(&key, Namespace::Report, &signature).unwrap()).unwrap();
        let request = Request::post("/v1/agent/reports")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.credential))
            .header("evenkeel-statement", STANDARD.encode(&statement))
            .header("evenkeel-signature", STANDARD.encode(&blob))
            .body(Full::from(Bytes::from(body.clone())))
            .unwrap();
        // A connection of its own each minute: the hub closes those that rest.
        let mut connection = self.connect().await?;
        let (status, _) = answered(&mut connection, request).await?;
        if status != 200 {
            self.fleet.faults.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.fleet.report_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        Some(())
    }
}

async fn answered(
    connection: &mut http1::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Option<(u16, Value)> {
    let response = connection.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn public(secret: &SigningKey) -> PublicKey {
    let mut blob = Vec::new();
    put_string(&mut blob, KeyType::Ed25519.as_str().as_bytes());
    put_string(&mut blob, secret.verifying_key().as_bytes());
    PublicKey::from_blob(&blob).unwrap()
}

/// The first report: every guest.
fn whole() -> HostReport {
    let guests = (100..100 + GUESTS).map(quiet_guest).collect();
    HostReport { guests, ..quiet() }
}

/// A pass that changed nothing.
fn quiet() -> HostReport {
    let pass =
        PassReport { at: "2026-11-17T10:00:00Z".to_owned(), in_sync: 20, ..PassReport::default() };
    HostReport { pass: Some(pass), at: "2026-11-17T10:00:00Z".to_owned(), ..HostReport::default() }
}

fn fraction() -> f64 {
    let mut byte = [0; 2];
    getrandom::fill(&mut byte).unwrap();
    f64::from(u16::from_le_bytes(byte)) / f64::from(u16::MAX)
}
