//! A hostile hub on a real socket: whatever it does, an exchange ends in time, and the credential stays ours.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// For a server that answers; a busy machine may be slow.
const PATIENCE: Duration = Duration::from_mins(2);
/// For one that does not.
const DEADLINE: Duration = Duration::from_millis(600);

fn credential() -> SecretString {
    SecretString::from(format!("evkc_{}", "ab".repeat(32)))
}

/// A server that reads a request, remembers what it saw, and then does something.
async fn server<F>(
    then: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> (u16, Arc<Mutex<Vec<u8>>>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let remembers = Arc::clone(&seen);
    tokio::spawn(async move {
        let then = Arc::new(then);
        while let Ok((mut stream, _)) = listener.accept().await {
            let then = Arc::clone(&then);
            let remembers = Arc::clone(&remembers);
            tokio::spawn(async move {
                let mut bytes = vec![0; 4_096];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                remembers.lock().unwrap().extend_from_slice(&bytes[..read]);
                then(stream).await;
            });
        }
    });
    (port, seen)
}

async fn says(mut stream: TcpStream, text: String) {
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn ask(url: &str) -> HubOutcome {
    ask_within(url, PATIENCE).await
}

async fn ask_within(url: &str, deadline: Duration) -> HubOutcome {
    let pin = format!("{}AB", "AB:".repeat(31)).parse().unwrap();
    let trust = TlsTrust::pinned(vec![pin]);
    let http = HubHttp::new(url.parse().unwrap(), &trust.unwrap(), Some(credential())).unwrap();
    let outcome = http.exchange(HubRequest {
        method: HubMethod::Get,
        target: "/v1/agent/poll?generation=0".to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        answer_max_bytes: 1_000,
        deadline,
    });
    outcome.await
}

#[tokio::test]
async fn an_answer_is_read_and_the_credential_goes_with_the_request() {
    let (port, seen) =
        server(|stream| says(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".into()))
            .await;
    let outcome = ask(&format!("http://127.0.0.1:{port}")).await;
    assert_eq!(outcome, HubOutcome::Answered { status: 200, body: b"{}".to_vec() });
    let seen = String::from_utf8(seen.lock().unwrap().clone()).unwrap();
    assert!(
        seen.contains("Bearer evkc_")
            && seen.starts_with("GET /v1/agent/poll?generation=0 HTTP/1.1")
    );
}

#[tokio::test]
async fn an_answer_that_never_comes_or_drips_ends_with_the_deadline() {
    let (silent, _) = server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let (dripping, _) = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    for port in [silent, dripping] {
        let outcome = ask_within(&format!("http://127.0.0.1:{port}"), DEADLINE).await;
        assert_eq!(outcome, HubOutcome::Failed(HubFailure::Timeout(DEADLINE)));
    }
}

#[tokio::test]
async fn an_answer_longer_than_allowed_is_given_up() {
    let (endless, _) = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"100\r\n").await.is_ok()
            && stream.write_all(&[b'x'; 256]).await.is_ok()
        {
            if stream.write_all(b"\r\n").await.is_err() {
                return;
            }
        }
    })
    .await;
    let outcome = ask(&format!("http://127.0.0.1:{endless}")).await;
    assert_eq!(outcome, HubOutcome::Failed(HubFailure::TooLarge(1_000)));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_nobody_follows_it() {
    let (other, seen) =
        server(|stream| says(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into())).await;
    let text = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{other}/v1\r\ncontent-length: 0\r\n\r\n"
    );
    let (port, _) = server(move |stream| says(stream, text.clone())).await;
    let outcome = ask(&format!("http://127.0.0.1:{port}")).await;
    assert_eq!(outcome, HubOutcome::Answered { status: 302, body: Vec::new() });
    assert!(seen.lock().unwrap().is_empty(), "the credential went nowhere else");
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_or_shows_another_certificate_never_sees_the_credential() {
    let (plain, plain_saw) =
        server(|stream| says(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into())).await;
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = listener.local_addr().unwrap().port();
    let other_saw = Arc::new(Mutex::new(Vec::new()));
    let remembers = Arc::clone(&other_saw);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut bytes = vec![0; 4_096];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                remembers.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        }
    });
    for (port, saw) in [(plain, plain_saw), (other, other_saw)] {
        let outcome = ask(&format!("https://127.0.0.1:{port}")).await;
        assert!(matches!(outcome, HubOutcome::Failed(HubFailure::Connect(_))), "{outcome:?}");
        assert!(!String::from_utf8_lossy(&saw.lock().unwrap()).contains("evkc_"));
    }
}
