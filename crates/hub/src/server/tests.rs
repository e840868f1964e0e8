//! The server seen from a socket: slow clients, strangers, TLS, and its end.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::secret_text::{SecretKind, SecretText};
use crate::store::NewHost;
use crate::suite::{PATIENCE, until};

async fn hub(directory: &tempfile::TempDir, tls: TlsChoice, limits: ServeLimits) -> RunningHub {
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: directory.path().to_owned(),
        database: None,
        public_url: None,
        tls,
        limits,
    };
    start(options).await.unwrap()
}

fn short() -> ServeLimits {
    ServeLimits { headers_time: Duration::from_millis(300), strangers: 4, ..ServeLimits::default() }
}

/// Everything the server says until it hangs up.
async fn rest_of(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A reset is an end too.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.unwrap();
    String::from_utf8(said).unwrap()
}

/// A host's credential, made behind the routes.
async fn credential(hub: &RunningHub) -> String {
    let (token, credential) =
        (SecretText::draw(SecretKind::EnrolToken), SecretText::draw(SecretKind::Credential));
    let store = hub.hub.store();
    store.make_enrol_token(token.hash(), "pve1", false, "alice").await.unwrap();
    let host = NewHost {
        token: token.hash(),
        host: "pve1".to_owned(),
        key_line: "key".to_owned(),
        key_fingerprint: "key".to_owned(),
        credential: credential.hash(),
    };
    store.enrol(host).await.unwrap().unwrap();
    credential.reveal().to_owned()
}

/// Asks once, says nothing more, and hears what the server says until it hangs up.
async fn asked_and_rested(hub: &RunningHub) -> String {
    let mut resting = TcpStream::connect(hub.address).await.unwrap();
    // It may have been hung up on already.
    let _ = resting.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n").await;
    rest_of(&mut resting).await
}

#[tokio::test]
async fn a_client_that_is_slow_with_its_headers_is_hung_up_on() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::Plain, short()).await;
    let mut silent = TcpStream::connect(hub.address).await.unwrap();
    let mut slow = TcpStream::connect(hub.address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\n").await.unwrap();
    rest_of(&mut silent).await;
    assert!(!rest_of(&mut slow).await.contains("200 OK"));
    // One that asks and then rests is hung up on as well. A busy machine may be too slow to ask in time: another try.
    let began = Instant::now();
    while !asked_and_rested(&hub).await.contains("200 OK") {
        assert!(began.elapsed() < PATIENCE, "whoever asks at once is never answered");
    }
    hub.stop().await;
}

#[tokio::test]
async fn strangers_can_only_keep_strangers_out() {
    let directory = tempfile::tempdir().unwrap();
    let limits = ServeLimits { headers_time: 2 * PATIENCE, ..short() };
    let hub = hub(&directory, TlsChoice::Plain, limits).await;
    let credential = credential(&hub).await;
    let ask = format!(
        "GET /v1/agent/anchor HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {credential}\r\n\r\n"
    );
    let mut known = TcpStream::connect(hub.address).await.unwrap();
    known.write_all(ask.as_bytes()).await.unwrap();
    let mut said = [0; 15];
    known.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 200 OK");
    // The host gave its place among strangers back, so there are four.
    let mut crowd = Vec::new();
    for _ in 0..8 {
        crowd.push(TcpStream::connect(hub.address).await.unwrap());
    }
    let mut ends: FuturesUnordered<_> = crowd.iter_mut().map(|stream| stream.read_u8()).collect();
    for _ in 0..4 {
        let turned_away = tokio::time::timeout(PATIENCE, ends.next()).await;
        assert!(turned_away.expect("too many are let in").expect("eight came").is_err());
    }
    let more = tokio::time::timeout(Duration::from_millis(100), ends.next()).await;
    assert!(more.is_err(), "four have a place");
    drop(ends);
    known.write_all(ask.as_bytes()).await.unwrap();
    let mut said = vec![0; 4096];
    let read = known.read(&mut said).await.unwrap();
    assert!(read > 0, "who is known is served while strangers crowd");
    drop(crowd);
    hub.stop().await;
}

#[tokio::test]
async fn a_stop_answers_who_waits_and_keeps_what_was_heard() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::Plain, ServeLimits::default()).await;
    let credential = credential(&hub).await;
    let mut waiting = TcpStream::connect(hub.address).await.unwrap();
    let ask = format!(
        "GET /v1/agent/poll?wait=55 HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {credential}\r\n\r\n"
    );
    waiting.write_all(ask.as_bytes()).await.unwrap();
    until("the host polls", || hub.hub.wakes().is_waited_for("pve1")).await;
    let address = hub.address;
    hub.stop().await;
    assert!(rest_of(&mut waiting).await.starts_with("HTTP/1.1 204"));
    assert!(TcpStream::connect(address).await.is_err(), "nothing new is taken");
    let store = open_store(directory.path(), None).await.unwrap();
    assert!(store.host("pve1").await.unwrap().unwrap().last_seen.0 > 0);
    store.close().await;
}

#[tokio::test]
async fn tls_is_spoken_with_the_certificate_whose_fingerprint_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::SelfSigned, ServeLimits::default()).await;
    assert!(hub.url.starts_with("https://"));
    // Pinned by what was told: reqwest takes the very certificate as its only root.
    let pem = std::fs::read(directory.path().join("hub-cert.pem")).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = reqwest::Certificate::from_pem(&pem).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let port = hub.address.port();
    let reply = client.get(format!("https://localhost:{port}/healthz")).send().await.unwrap();
    assert_eq!(reply.status().as_u16(), 200);
    let der = rustls::pki_types::CertificateDer::from(der_of(&pem));
    let told = crate::secret_text::sha256_hex(&der).to_uppercase();
    assert_eq!(hub.fingerprint.as_deref().unwrap().replace(':', ""), told);
    // Plain HTTP to a TLS port gets nowhere.
    let mut plain = TcpStream::connect(hub.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut said)).await;
    assert!(!said.starts_with(b"HTTP"));
    hub.stop().await;
}

fn der_of(pem: &[u8]) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}
