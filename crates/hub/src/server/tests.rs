//! The server seen from a socket: slow clients, strangers, TLS, and its end.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::secret_text::{SecretHash, SecretKind, SecretText};
use crate::store::NewHost;
use evenkeel_testkit::patience::{PATIENCE, until};

async fn hub(directory: &tempfile::TempDir, tls: TlsChoice, limits: ServeLimits) -> RunningHub {
    // For reqwest; where another test installed it already it is there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: directory.path().to_owned(),
        database: None,
        public_url: None,
        tls,
        limits,
        proxies: TrustedProxies::default(),
        audit_archive: None,
        metrics_token: None,
    };
    start(options).await.unwrap()
}

fn short() -> ServeLimits {
    ServeLimits {
        headers_time: Duration::from_millis(300),
        strangers: 4,
        kept: 0,
        ..ServeLimits::default()
    }
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
    let token = SecretText::draw(SecretKind::EnrolToken);
    let credential = SecretText::draw(SecretKind::Credential);
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

/// A connection that has sent the headers of a large report and a little of it.
async fn begun_report(hub: &RunningHub, credential: &str) -> TcpStream {
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    let head = format!(
        "POST /v1/agent/reports HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {credential}\r\n\
         content-length: 1048576\r\n\r\n"
    );
    // It may have been hung up on already.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&[b' '; 1024]).await;
    stream
}

/// What the server says within a moment; nothing if it waits for more.
async fn said_at_once(stream: &mut TcpStream) -> String {
    let mut said = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(3), stream.read(&mut said)).await;
    let count = read.map_or(0, |read| read.unwrap_or(0));
    String::from_utf8_lossy(&said[..count]).into_owned()
}

#[tokio::test]
async fn z15_of_many_large_bodies_of_one_credential_two_are_read_and_the_others_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::Plain, ServeLimits::default()).await;
    let credential = credential(&hub).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(begun_report(&hub, &credential).await);
    }
    let said: Vec<String> =
        futures_util::future::join_all(streams.iter_mut().map(said_at_once)).await;
    let waiting = said.iter().filter(|said| said.is_empty()).count();
    assert_eq!(waiting, 2, "two are read: {said:?}");
    let refused = said.iter().filter(|said| said.starts_with("HTTP/1.1 429")).count();
    assert_eq!(refused, 38, "{said:?}");
    // What was refused is hung up on: nothing of its body is waited for.
    for (stream, _) in streams.iter_mut().zip(&said).filter(|(_, said)| !said.is_empty()) {
        rest_of(stream).await;
    }
    // The host itself is heard all the while.
    let client = reqwest::Client::new();
    let poll = client.get(format!("{}/v1/agent/poll?wait=0", hub.url)).bearer_auth(&credential);
    assert_eq!(poll.send().await.unwrap().status(), 204);
    drop(streams);
    // And everything is as before once they are gone.
    let began = Instant::now();
    loop {
        let asked = client.get(format!("{}/v1/agent/anchor", hub.url)).bearer_auth(&credential);
        if asked.send().await.unwrap().status() == 200 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "its places are never given back");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    hub.stop().await;
}

#[tokio::test]
async fn z15_of_the_connections_of_one_credential_twelve_stay() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::Plain, ServeLimits::default()).await;
    let credential = credential(&hub).await;
    let ask = format!(
        "GET /v1/agent/anchor HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {credential}\r\n\r\n"
    );
    let mut resting = Vec::new();
    for number in 0..20 {
        let mut stream = TcpStream::connect(hub.address).await.unwrap();
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = said_at_once(&mut stream).await;
        if number < 12 {
            assert!(said.starts_with("HTTP/1.1 200"), "{number}: {said}");
            resting.push(stream);
        } else {
            assert!(said.starts_with("HTTP/1.1 429"), "{number}: {said}");
            assert!(said.to_lowercase().contains("connection: close"), "{number}: {said}");
        }
    }
    // One goes, and another may come.
    drop(resting.pop());
    let began = Instant::now();
    loop {
        let mut stream = TcpStream::connect(hub.address).await.unwrap();
        stream.write_all(ask.as_bytes()).await.unwrap();
        if said_at_once(&mut stream).await.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "its place is never given back");
    }
    hub.stop().await;
}

#[tokio::test]
async fn metrics_are_read_on_this_machine_or_with_their_token() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory, TlsChoice::Plain, ServeLimits::default()).await;
    let client = reqwest::Client::new();
    let ask = |name: &'static str, value: &'static str| {
        let asked = client.get(format!("{}/metrics", hub.url)).header(name, value);
        async move { asked.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(ask("x-other", "1").await, 200);
    for proxy in ["x-forwarded-for", "forwarded", "via", "x-real-ip"] {
        assert_eq!(ask(proxy, "192.0.2.1").await, 401, "it came by a proxy on this machine");
    }
    hub.hub.demand_metrics_token(SecretHash::of("sixteen letters!"));
    assert_eq!(ask("x-other", "1").await, 401);
    assert_eq!(ask("authorization", "Bearer sixteen letters?").await, 401);
    assert_eq!(ask("authorization", "Bearer sixteen letters!").await, 200);
    hub.stop().await;
}

#[tokio::test]
async fn browsers_are_told_to_come_by_tls_alone_where_they_came_by_it() {
    for (tls, is_told) in [(TlsChoice::SelfSigned, true), (TlsChoice::Plain, false)] {
        let directory = tempfile::tempdir().unwrap();
        let hub = hub(&directory, tls, ServeLimits::default()).await;
        let client =
            reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
        for path in ["/console", "/healthz", "/nothing"] {
            let answer = client.get(format!("{}{path}", hub.url)).send().await.unwrap();
            let told = answer.headers().get("strict-transport-security");
            assert_eq!(told.is_some(), is_told, "{path}");
        }
        hub.stop().await;
    }
}
