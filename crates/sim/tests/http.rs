//! The HTTP front on real sockets: status lines, connection rules, TLS and the admin endpoint.

use std::sync::Arc;

use evenkeel_sim::{Event, Http, HttpOptions, Scenario, Simulator, TOKENS};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn start(tls: bool) -> Http {
    let sim = Simulator::new(Scenario { guests: 4, ..Scenario::default() }.build());
    Http::start(sim, HttpOptions { tls, ..HttpOptions::default() }).await.expect("it listens")
}

fn request(method: &str, path: &str, extra: &str, body: &str) -> String {
    let (name, secret, _) = TOKENS[0];
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: PVEAPIToken={name}={secret}\r\n{length}{extra}\r\n{body}"
    )
}

/// Sends on a fresh connection and reads until the server closes it.
async fn exchange(http: &Http, text: &str) -> String {
    let mut stream = TcpStream::connect(http.address).await.expect("it accepts");
    stream.write_all(text.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_reason_phrase_carries_the_message_and_errors_close_the_connection() {
    let http = start(false).await;
    let answer =
        exchange(&http, &request("GET", "/api2/json/nodes/pve1/lxc/999/config", "", "")).await;
    assert!(
        answer.starts_with(
            "HTTP/1.1 500 Configuration file 'nodes/pve1/lxc/999.conf' does not exist\r\n"
        ),
        "{answer}"
    );
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    // The scenario's clock begins at 1790000000.
    assert!(answer.contains("date: Mon, 21 Sep 2026 14:13:2"), "{answer}");
}

#[tokio::test]
async fn chunked_bodies_and_bodies_of_delete_are_refused() {
    let http = start(false).await;
    let chunked = request(
        "PUT",
        "/api2/json/nodes/pve1/lxc/100/config",
        "Transfer-Encoding: chunked\r\n",
        "",
    );
    let answer = exchange(&http, &format!("{chunked}7\r\ncores=1\r\n0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 501 chunked transfer encoding not supported"), "{answer}");
    let answer =
        exchange(&http, &request("DELETE", "/api2/json/nodes/pve1/lxc/998", "", "purge=1")).await;
    assert!(answer.starts_with("HTTP/1.1 501 Unexpected content for method 'DELETE'"), "{answer}");
}

#[tokio::test]
async fn the_hundredth_request_closes_the_connection() {
    let http = start(false).await;
    let one = request("GET", "/api2/json/version", "", "");
    let answer = exchange(&http, &one.repeat(101)).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 100);
    assert_eq!(answer.matches("Keep-Alive").count(), 99);
}

#[tokio::test]
async fn protected_calls_close_their_connection() {
    let http = start(false).await;
    let answer = exchange(&http, &request("GET", "/api2/json/nodes/pve1/lxc", "", "")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"),
        "{answer}"
    );
}

#[tokio::test]
async fn faults_and_the_request_log_are_reached_over_the_admin_endpoint() {
    let http = start(false).await;
    let fault = r#"{"effect":{"kind":"drop-before"},"times":1}"#;
    let close = "Connection: close\r\n";
    let answer = exchange(&http, &request("POST", "/sim/faults", close, fault)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(exchange(&http, &request("GET", "/api2/json/version", close, "")).await, "");
    let log = exchange(&http, &request("GET", "/sim/requests", close, "")).await;
    assert!(log.contains("/api2/json/version"), "{log}");
    let event = r#"{"kind":"lock","guest":"lxc/100","lock":"backup"}"#;
    exchange(&http, &request("POST", "/sim/events", close, event)).await;
    let config =
        exchange(&http, &request("GET", "/api2/json/nodes/pve1/lxc/100/config", close, "")).await;
    assert!(config.contains(r#""lock":"backup""#), "{config}");
}

#[test]
fn the_admin_endpoint_is_closed_to_other_machines() {
    let mut sim = Simulator::new(Scenario::default().build());
    let mut request = evenkeel_sim::SimRequest::new("GET", "/sim/requests");
    request.from_loopback = false;
    let evenkeel_sim::SimOutcome::Reply(reply) = sim.call(request) else { panic!("no answer") };
    assert_eq!(reply.status, 403);
}

#[test]
fn published_secrets_are_good_on_loopback_only() {
    let mut sim = Simulator::new(Scenario::default().build());
    sim.world.access.add_token("root@pam!own", "a-secret-of-my-own", false);
    let (name, secret, _) = TOKENS[0];
    let login = [("username", "root@pam"), ("password", "secret")];
    let requests = [
        (
            evenkeel_sim::SimRequest::new("GET", "/api2/json/version")
                .token(&format!("{name}={secret}")),
            401,
        ),
        (evenkeel_sim::SimRequest::new("POST", "/api2/json/access/ticket").form(&login), 401),
        (
            evenkeel_sim::SimRequest::new("GET", "/api2/json/version")
                .token("root@pam!own=a-secret-of-my-own"),
            200,
        ),
    ];
    for (mut request, status) in requests {
        let shown = request.target.clone();
        for (loopback, expected) in [(false, status), (true, 200)] {
            request.from_loopback = loopback;
            let evenkeel_sim::SimOutcome::Reply(reply) = sim.call(request.clone()) else {
                panic!("no answer")
            };
            assert_eq!(reply.status, expected, "{shown} from loopback: {loopback}");
        }
    }
}

#[tokio::test]
async fn tls_presents_the_certificate_and_a_renewed_one_after_the_event() {
    let http = start(true).await;
    let first = http.certificate();
    assert!(http.url().starts_with("https://127.0.0.1:"));
    assert!(handshake(&http, &first.pem).await, "the certificate is its own authority");
    http.node.with(|sim| sim.happen(Event::NewCertificate));
    let second = http.certificate();
    assert_ne!(first.fingerprint, second.fingerprint);
    assert!(!handshake(&http, &first.pem).await, "the old pin no longer fits");
    assert!(handshake(&http, &second.pem).await);
    let plain = exchange(
        &http,
        "GET /api2/json/version HTTP/1.1\r\nHost: node:8006\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(
        plain.starts_with("HTTP/1.1 301") && plain.contains("https://node:8006/api2/json/version"),
        "{plain}"
    );
}

async fn handshake(http: &Http, pem: &str) -> bool {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM"))
        .expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(http.address).await.expect("it accepts");
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok()
}
