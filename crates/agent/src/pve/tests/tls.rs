//! TLS: the right server is spoken to; the wrong one sees no byte of HTTP, let alone the token.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Cleared;
use crate::pve::Client;
use crate::pve::error::{Error, NotSent};
use crate::pve::http::{HttpExchange, Timeouts};
use crate::pve::tls::{CertFingerprint, TlsTrust};
use crate::pve::token::Token;
use evenkeel_core::model::id::GuestId;
use evenkeel_sim::{Http, HttpOptions, Scenario, Simulator, TOKENS};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use secrecy::SecretString;
use tokio_rustls::TlsAcceptor;

use super::server::{Server, Step, client, client_with, timeouts, token, version};

/// A certificate with its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn fingerprint(&self) -> CertFingerprint {
        CertFingerprint::of(&self.certificate)
    }
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

/// Signed by itself, for another name, and long expired.
fn stale_identity() -> Identity {
    let mut params = CertificateParams::new(vec!["other.example".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    Identity { certificate, key: private(&key) }
}

/// An authority as PEM, and an identity it signed for `name`.
fn signed_identity(name: &str) -> (String, Identity) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    (pem, Identity { certificate, key: private(&key) })
}

/// Shows a certificate whether or not the key belongs to it.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

async fn serve(certificate: &CertificateDer<'static>, key: &PrivateKeyDer<'static>) -> Server {
    serve_steps(certificate, key, vec![vec![version()]]).await
}

async fn serve_steps(
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
    steps: Vec<Vec<Step>>,
) -> Server {
    let signing = ring::sign::any_supported_type(key).unwrap();
    let shows = Shows(Arc::new(CertifiedKey::new(vec![certificate.clone()], signing)));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shows));
    Server::start(steps, Some(TlsAcceptor::from(Arc::new(config)))).await
}

fn ca_file(pem: &str) -> TlsTrust {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    TlsTrust::from_ca_file(file.path()).unwrap()
}

async fn refused(server: &Server, trust: &TlsTrust) -> NotSent {
    let client = client(&format!("https://{}", server.address), trust);
    let read = client.version().await.unwrap_err();
    let write =
        client.writes(&Cleared::in_a_test()).start("lxc/100".parse().unwrap()).await.unwrap_err();
    let (Error::NotSent { why: first, .. }, Error::NotSent { why: second, .. }) = (read, write)
    else {
        panic!("a request was sent");
    };
    assert_eq!(first, second);
    // The client is done before the server has seen its alert.
    while server.seen().failed_handshakes < 2 {
        tokio::task::yield_now().await;
    }
    let seen = server.seen();
    assert_eq!((seen.connections, seen.bytes), (2, 0), "{seen:?}");
    first
}

#[tokio::test]
async fn one_of_several_pins_is_enough_whatever_the_name_and_dates() {
    let identity = stale_identity();
    let server = serve(&identity.certificate, &identity.key).await;
    let trust =
        TlsTrust::pinned(vec![CertFingerprint::of(b"old"), identity.fingerprint()]).unwrap();
    let client = client(&format!("https://{}", server.address), &trust);
    assert_eq!(client.version().await.unwrap().version, "8.4.21");
}

#[tokio::test]
async fn n01_a_wrong_pin_sends_nothing_and_shows_what_was_presented() {
    let identity = stale_identity();
    let server = serve(&identity.certificate, &identity.key).await;
    let trust = TlsTrust::pinned(vec![CertFingerprint::of(b"another")]).unwrap();
    let why = refused(&server, &trust).await;
    let shown = identity.fingerprint();
    assert!(matches!(&why, NotSent::WrongPin { presented, .. } if *presented == shown), "{why}");
}

#[tokio::test]
async fn n01_a_pinned_certificate_shown_without_its_key_is_refused() {
    let identity = stale_identity();
    let thief = stale_identity();
    let server = serve(&identity.certificate, &thief.key).await;
    let trust = TlsTrust::pinned(vec![identity.fingerprint()]).unwrap();
    let why = refused(&server, &trust).await;
    assert!(matches!(why, NotSent::Untrusted { .. } | NotSent::Tls { .. }), "{why}");
}

#[tokio::test]
async fn n01_a_ca_file_makes_its_servers_trusted_and_no_others() {
    let (pem, identity) = signed_identity("127.0.0.1");
    let server = serve(&identity.certificate, &identity.key).await;
    let right = client(&format!("https://{}", server.address), &ca_file(&pem));
    right.version().await.unwrap();

    let (other_pem, _) = signed_identity("127.0.0.1");
    let server = serve(&identity.certificate, &identity.key).await;
    let why = refused(&server, &ca_file(&other_pem)).await;
    assert!(matches!(why, NotSent::Untrusted { .. }), "{why}");
}

#[tokio::test]
async fn n01_a_certificate_of_the_right_ca_for_another_name_is_refused() {
    let (pem, identity) = signed_identity("other.example");
    let server = serve(&identity.certificate, &identity.key).await;
    let why = refused(&server, &ca_file(&pem)).await;
    assert!(matches!(why, NotSent::Untrusted { .. }), "{why}");
}

#[tokio::test]
async fn the_platforms_roots_do_not_trust_an_unknown_authority() {
    let (_, identity) = signed_identity("127.0.0.1");
    let server = serve(&identity.certificate, &identity.key).await;
    let url = format!("https://{}", server.address);
    let built = HttpExchange::new(url.parse().unwrap(), &TlsTrust::Platform, token(), timeouts());
    // A machine without any root certificate refuses earlier, which is as good.
    if built.is_ok() {
        let why = refused(&server, &TlsTrust::Platform).await;
        assert!(matches!(why, NotSent::Untrusted { .. }), "{why}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_in_the_handshake_was_sent_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let trust = TlsTrust::pinned(vec![CertFingerprint::of(b"x")]).unwrap();
    let client = client(&url, &trust);
    let hang_up = async {
        let (stream, _) = listener.accept().await.unwrap();
        drop(stream);
    };
    let (error, ()) = tokio::join!(
        client.writes(&Cleared::in_a_test()).start("lxc/100".parse().unwrap()),
        hang_up
    );
    assert!(matches!(error, Err(Error::NotSent { .. })), "{error:?}");
}

#[tokio::test]
async fn a_server_that_never_answers_the_handshake_was_sent_nothing() {
    // The kernel completes the connection; nobody accepts it.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let trust = TlsTrust::pinned(vec![CertFingerprint::of(b"x")]).unwrap();
    let connect = Duration::from_millis(50);
    let client = client_with(&url, &trust, Timeouts { connect, ..timeouts() });
    for error in [
        client.version().await.unwrap_err(),
        client.writes(&Cleared::in_a_test()).start("lxc/100".parse().unwrap()).await.unwrap_err(),
    ] {
        let Error::NotSent { why, .. } = error else { panic!("{error}") };
        let waited = |why: &NotSent| matches!(why, NotSent::ConnectTimeout { after, .. } if *after == connect);
        assert!(waited(&why), "{why}");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_ends_costs_no_handshake_from_the_beginning() {
    let world = Scenario { guests: 2, ..Scenario::default() }.build();
    let http = Http::start(Simulator::new(world), HttpOptions::default()).await.unwrap();
    let (name, secret, _) = TOKENS[0];
    let token = Token::from_text(&SecretString::from(format!("{name}={secret}"))).unwrap();
    let pin = http.certificate().fingerprint.parse().unwrap();
    let trust = TlsTrust::pinned(vec![pin]).unwrap();
    let endpoint = http.url().parse().unwrap();
    let exchange = HttpExchange::new(endpoint, &trust, token, timeouts()).unwrap();
    let client = Client::new(Arc::new(exchange), "pve1".parse().unwrap());
    let guest: GuestId = "lxc/100".parse().unwrap();
    for _ in 0..12 {
        // A call of the root daemon, after which Proxmox VE ends the connection.
        client.guest_status(guest).await.unwrap();
    }
    let [whole, resumed] = http.handshakes();
    assert_eq!(whole, 1, "and {resumed} went on from an earlier one");
    assert!(resumed >= 11, "the server ended every connection: {resumed}");
}
