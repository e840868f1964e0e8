//! The transport over plain loopback: what is sent, what a failure means, what is repeated.

use std::time::Duration;

use crate::engine::Cleared;
use crate::pve::Client;
use crate::pve::error::{Error, ErrorClass, NotSent, Unknown};
use crate::pve::http::Timeouts;
use crate::pve::tls::TlsTrust;
use evenkeel_core::model::id::GuestId;
use evenkeel_core::operate::pve_call::{ConfigChange, Settings};

use super::server::{SECRET, Server, Step, answer, client, client_with, timeouts, version};

const UPID: &str = "UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:agent@pve!keel:";

fn guest() -> GuestId {
    "lxc/100".parse().unwrap()
}

async fn set_tags(client: &Client) -> Result<(), Error> {
    let set = Settings::new()
        .set(&"tags".parse().unwrap(), "a;b")
        .set(&"net0".parse().unwrap(), "name=eth0,bridge=vmbr0");
    let digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709".parse().unwrap();
    let change = ConfigChange { set, delete: Vec::new(), revert: Vec::new(), digest };
    client.writes(&Cleared::in_a_test()).set_config(guest(), change).await.map(|_| ())
}

fn unknown(error: Error) -> Unknown {
    match error {
        Error::Unknown { why, .. } => why,
        other @ (Error::NotSent { .. } | Error::Refused(_)) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_write_is_sent_with_token_length_and_strict_encoding() {
    let server = Server::plain(vec![vec![answer("200 OK", r#"{"data":null}"#)]]).await;
    set_tags(&server.client()).await.unwrap();
    let request = server.seen().requests[0].1.clone();
    assert!(request.starts_with("PUT /api2/json/nodes/pve1/lxc/100/config HTTP/1.1\r\n"));
    let head = request.to_lowercase();
    assert!(head.contains(&format!("\r\nauthorization: pveapitoken=agent@pve!keel={SECRET}\r\n")));
    assert!(head.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"));
    assert!(!head.contains("transfer-encoding"));
    let body = "tags=a%3Bb&net0=name%3Deth0%2Cbridge%3Dvmbr0&digest=da39a3ee5e6b4b0d3255bfef95601890afd80709";
    assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())));
    assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
}

#[tokio::test]
async fn a_post_without_parameters_still_has_a_length() {
    let done = answer("200 OK", &format!(r#"{{"data":"{UPID}"}}"#));
    let server = Server::plain(vec![vec![done]]).await;
    let upid = server.client().writes(&Cleared::in_a_test()).start(guest()).await.unwrap();
    assert_eq!(upid.as_str(), UPID);
    assert!(server.seen().requests[0].1.to_lowercase().contains("\r\ncontent-length: 0\r\n"));
}

#[tokio::test]
async fn an_error_text_that_stands_only_in_the_reason_phrase_is_read() {
    let text = "CT is locked (backup)";
    let refuse = answer(&format!("500 {text}"), r#"{"data":null}"#);
    let server = Server::plain(vec![vec![refuse]]).await;
    let error = set_tags(&server.client()).await.unwrap_err();
    assert_eq!(error.class(), Some(&ErrorClass::Locked { lock: "backup".into() }));
    assert!(error.to_string().contains(text), "{error}");
}

/// hyper drops such a phrase. Up to PVE 8.2 the text is then lost, but never the refusal.
#[tokio::test]
async fn a_reason_phrase_beyond_ascii_is_still_a_refusal() {
    for (body, class) in [
        (r#"{"data":null}"#, ErrorClass::Other),
        (r#"{"data":null,"message":"volume 'grün' does not exist\n"}"#, ErrorClass::NotFound),
    ] {
        let server =
            Server::plain(vec![vec![answer("500 volume 'grün' does not exist", body)]]).await;
        let error = set_tags(&server.client()).await.unwrap_err();
        assert_eq!(error.class(), Some(&class), "{error}");
    }
}

#[tokio::test]
async fn a_401_with_an_empty_body_is_an_authentication_error() {
    let refuse = Step::Answer(
        b"HTTP/1.1 401 Authentication failed!\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            .to_vec(),
    );
    let server = Server::plain(vec![vec![refuse]]).await;
    let error = server.client().version().await.unwrap_err();
    assert_eq!(error.class(), Some(&ErrorClass::Authentication));
    assert!(error.to_string().contains("Authentication failed!"), "{error}");
}

#[tokio::test]
async fn the_proxys_own_statuses_are_told_apart() {
    for (line, not_sent) in [
        ("595 Connection refused", true),
        ("596 Connection timed out", false),
        ("599 Too many redirections", false),
    ] {
        let server = Server::plain(vec![vec![answer(line, "")]]).await;
        match set_tags(&server.client()).await.unwrap_err() {
            Error::NotSent { why: NotSent::NodeNotReached { text }, .. } => {
                assert!(not_sent && text == "Connection refused");
            }
            Error::Unknown { why: Unknown::NodeLost { .. }, .. } => assert!(!not_sent, "{line}"),
            other @ (Error::NotSent { .. } | Error::Refused(_) | Error::Unknown { .. }) => {
                panic!("{line}: {other}")
            }
        }
    }
}

#[tokio::test]
async fn a_refused_connection_is_not_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = client(&url, &TlsTrust::Platform);
    for error in [client.version().await.unwrap_err(), set_tags(&client).await.unwrap_err()] {
        assert!(matches!(error, Error::NotSent { why: NotSent::Connect { .. }, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_write_whose_connection_ends_is_unknown_and_never_repeated() {
    for step in [Step::ReadAndClose, Step::Close] {
        let server = Server::plain(vec![vec![step]]).await;
        let why = unknown(set_tags(&server.client()).await.unwrap_err());
        assert!(matches!(why, Unknown::ConnectionLost { .. }), "{why}");
        assert_eq!(server.seen().connections, 1);
    }
}

#[tokio::test]
async fn a_read_whose_kept_connection_ends_is_repeated_once() {
    let script = vec![vec![version(), Step::ReadAndClose], vec![version()]];
    let server = Server::plain(script).await;
    let client = server.client();
    client.version().await.unwrap();
    client.version().await.unwrap();
    let numbers: Vec<usize> = server.seen().requests.iter().map(|request| request.0).collect();
    assert_eq!(numbers, [1, 1, 2]);
}

#[tokio::test]
async fn a_read_that_no_connection_carries_ends_after_three_times_a_kept_and_a_new_one() {
    let mut script = vec![vec![version(), Step::ReadAndClose]];
    script.resize_with(9, || vec![Step::ReadAndClose]);
    let server = Server::plain(script).await;
    let client = server.client();
    client.version().await.unwrap();
    let why = unknown(client.version().await.unwrap_err());
    assert!(matches!(why, Unknown::ConnectionLost { .. }), "{why}");
    assert_eq!(server.seen().requests.len(), 1 + 2 * 3);
    assert_eq!(server.seen().connections, 2 * 3);
}

#[tokio::test]
async fn reads_share_a_connection_and_a_write_never_does() {
    let done = || answer("200 OK", r#"{"data":null}"#);
    let script = vec![vec![version(), version(), version()], vec![done(), done()], vec![done()]];
    let server = Server::plain(script).await;
    let client = server.client();
    client.version().await.unwrap();
    client.version().await.unwrap();
    set_tags(&client).await.unwrap();
    set_tags(&client).await.unwrap();
    client.version().await.unwrap();
    let numbers: Vec<usize> = server.seen().requests.iter().map(|request| request.0).collect();
    assert_eq!(numbers, [1, 1, 2, 3, 1]);
}

#[tokio::test]
async fn an_answer_that_never_comes_is_unknown_after_the_timeout() {
    let server = Server::plain(vec![vec![Step::Hang], vec![Step::Hang]]).await;
    let timeouts = Timeouts { answer: Duration::from_millis(50), ..timeouts() };
    let client = client_with(&server.plain_url(), &TlsTrust::Platform, timeouts);
    for error in [set_tags(&client).await.unwrap_err(), client.version().await.unwrap_err()] {
        let Unknown::Timeout { after } = unknown(error) else { panic!("not a timeout") };
        assert!(after >= Duration::from_millis(50), "{after:?}");
    }
    // On a busy machine the server may not even have read them.
    assert!(server.seen().requests.len() <= 2, "a timeout is not repeated");
}

#[tokio::test]
async fn n05_an_answer_that_trickles_ends_with_the_exchange_timeout() {
    let server = Server::plain(vec![vec![Step::Trickle]]).await;
    let timeouts = Timeouts { exchange: Duration::from_millis(100), ..timeouts() };
    let client = client_with(&server.plain_url(), &TlsTrust::Platform, timeouts);
    let why = unknown(set_tags(&client).await.unwrap_err());
    assert!(matches!(why, Unknown::Timeout { .. }), "{why}");
}

/// Recognises the error that is due.
type Expected = fn(&Unknown) -> bool;

#[tokio::test]
async fn n06_answers_that_are_not_proxmoxs_are_typed_errors() {
    let raw = |bytes: &[u8]| Step::Answer(bytes.to_vec());
    let long_header = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-A: b\r\n".repeat(2000));
    let cases: Vec<(Step, Expected)> = vec![
        (answer("200 OK", "<html>hello</html>"), |why| matches!(why, Unknown::Unreadable { .. })),
        (answer("200 OK", "hello"), |why| matches!(why, Unknown::Unreadable { .. })),
        (answer("200 OK", ""), |why| matches!(why, Unknown::Unreadable { .. })),
        (answer("502 Bad Gateway", "<html></html>"), |why| {
            matches!(why, Unknown::Gateway { status: 502 })
        }),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"data\":"), |why| {
            matches!(why, Unknown::Truncated { status: 200 })
        }),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), |why| {
            matches!(why, Unknown::Truncated { status: 200 })
        }),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), |why| matches!(why, Unknown::NotHttp)),
        (raw(long_header.as_bytes()), |why| matches!(why, Unknown::NotHttp)),
    ];
    for (step, expected) in cases {
        // The connection ends after the step, which is what makes a short body short.
        let server = Server::plain(vec![vec![step.clone()]]).await;
        let why = unknown(set_tags(&server.client()).await.unwrap_err());
        assert!(expected(&why), "{step:?}: {why}");
        assert_eq!(server.seen().connections, 1);
    }
}

#[tokio::test]
async fn n05_an_answer_larger_than_its_limit_is_not_read_to_the_end() {
    let huge = format!(r#"{{"data":"{}"}}"#, "x".repeat(3 * 1024 * 1024));
    let server = Server::plain(vec![vec![answer("200 OK", &huge)]]).await;
    let why = unknown(set_tags(&server.client()).await.unwrap_err());
    assert_eq!(why, Unknown::TooLarge { status: 200, max_bytes: 2 * 1024 * 1024 });
}

#[tokio::test]
async fn a_request_larger_than_proxmox_takes_is_not_sent() {
    let server = Server::plain(Vec::new()).await;
    let set = Settings::new().set(&"description".parse().unwrap(), "x".repeat(600 * 1024));
    let digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709".parse().unwrap();
    let change = ConfigChange { set, delete: Vec::new(), revert: Vec::new(), digest };
    let error = server
        .client()
        .writes(&Cleared::in_a_test())
        .set_config(guest(), change)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotSent { why: NotSent::TooLarge { .. }, .. }), "{error}");
    assert_eq!(server.seen().connections, 0);
}

#[tokio::test]
async fn n01_n05_a_redirect_is_not_followed() {
    let elsewhere = Server::plain(Vec::new()).await;
    for status in ["301 Moved Permanently", "307 Temporary Redirect"] {
        let redirect = format!(
            "HTTP/1.1 {status}\r\nLocation: {}/api2/json/version\r\nContent-Length: 0\r\n\r\n",
            elsewhere.plain_url()
        );
        let server = Server::plain(vec![vec![Step::Answer(redirect.into_bytes())]]).await;
        let error = server.client().version().await.unwrap_err();
        assert_eq!(error.class(), Some(&ErrorClass::Redirected));
    }
    assert_eq!(elsewhere.seen().connections, 0);
}

#[tokio::test]
async fn the_nodes_clock_is_read_from_any_answer() {
    let server = Server::plain(vec![vec![answer("500 no quorum", "")]]).await;
    let client = server.client();
    assert_eq!(client.node_clock(), None);
    assert!(client.version().await.is_err());
    let clock = client.node_clock().unwrap();
    let now = clock.at(tokio::time::Instant::now());
    assert!(now >= "2026-11-15T20:00:00Z".parse().unwrap());
}

/// Set for the second process of the test below.
const CHILD: &str = "EVENKEEL_TEST_BEHIND_PROXY";

/// Environment variables belong to a whole process, so the test runs itself again inside one where
/// every proxy variable points to a listener that must stay silent.
#[tokio::test]
async fn n01_proxies_of_the_environment_are_ignored() {
    if std::env::var_os(CHILD).is_some() {
        let server = Server::plain(vec![vec![version()]]).await;
        server.client().version().await.unwrap();
        return;
    }
    let proxy = Server::plain(Vec::new()).await;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "pve::tests::transport::n01_proxies_of_the_environment_are_ignored"])
        .env(CHILD, "1");
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        child.env(name, proxy.plain_url());
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
    assert_eq!(proxy.seen().connections, 0);
}
