//! Invariant 17, for the client: no secret in any Debug, message or hint.

use std::sync::Arc;

use evenkeel_core::model::id::{GuestId, GuestKind};
use evenkeel_core::registry::table;

use crate::engine::Cleared;
use crate::pve::Client;
use crate::pve::error::Unknown;
use crate::pve::exchange::{ExchangeOutcome, HttpAnswer};
use crate::pve::http::HttpExchange;
use crate::pve::tls::TlsTrust;
use evenkeel_core::operate::pve_call::{ConfigChange, Settings};

use super::every_call::{Always, client, writes};
use super::server::{SECRET, Server, Step, answer, timeouts, token};

#[tokio::test]
async fn n02_a_server_that_repeats_the_token_does_not_get_it_into_an_error() {
    for step in [
        answer(&format!("500 bad {SECRET}"), ""),
        answer("500 bad", &format!(r#"{{"data":null,"message":"bad {SECRET}\n"}}"#)),
        answer("400 bad", &format!(r#"{{"data":null,"errors":{{"{SECRET}":"{SECRET}"}}}}"#)),
        answer(&format!("595 {SECRET}"), SECRET),
        answer(&format!("596 {SECRET}"), SECRET),
        answer(&format!("401 {SECRET}"), SECRET),
        Step::Answer(format!("{SECRET}\r\n\r\n").into_bytes()),
        Step::ReadAndClose,
    ] {
        let server = Server::plain(vec![vec![step.clone()], vec![step]]).await;
        let error = server.client().version().await.unwrap_err();
        let shown = format!("{error} {error:?} {error:#?} {}", error.hint());
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[test]
fn n02_nothing_that_holds_the_token_prints_it() {
    let endpoint = "http://127.0.0.1:1".parse().unwrap();
    let exchange = HttpExchange::new(endpoint, &TlsTrust::Platform, token(), timeouts()).unwrap();
    assert_eq!(exchange.token_id(), "agent@pve!keel");
    let shown = format!("{exchange:?} {exchange:#?}");
    assert!(!shown.contains(SECRET), "{shown}");
    let client = Client::new(Arc::new(exchange), "pve1".parse().unwrap());
    assert!(!format!("{client:?} {:?}", client.writes(&Cleared::in_a_test())).contains(SECRET));
}

#[tokio::test]
async fn n02_no_write_shows_a_secret_parameter_even_if_proxmox_repeats_the_request() {
    for (name, call) in writes() {
        let lost = Always::new(ExchangeOutcome::Unknown(Unknown::NotHttp));
        let first = call(client(Arc::clone(&lost))).await.unwrap_err();
        let echo = lost.lines().join("\n").replace('"', "");
        for body in [echo.clone(), "got 'pass word'".to_owned()] {
            let json = serde_json::to_string(&body).unwrap();
            for status in [400, 500, 596] {
                let body = format!(r#"{{"message":{json},"errors":{{"x":{json}}}}}"#).into_bytes();
                let answer = HttpAnswer { status, reason: echo.clone(), date: None, body };
                let error =
                    call(client(Always::new(ExchangeOutcome::Answered(answer)))).await.unwrap_err();
                let shown = format!("{first:?} {error} {error:?}");
                let carries_secret = ["set_config lxc", "set_config qemu", "create lxc"];
                if carries_secret.contains(&name) {
                    assert!(!shown.contains("pass word"), "{name}: {shown}");
                    assert!(!shown.contains("pass%20word"), "{name}: {shown}");
                }
            }
        }
    }
}

#[tokio::test]
async fn x08_an_answer_that_repeats_a_secret_in_whole_or_in_part_is_told_without_it() {
    for kind in GuestKind::ALL {
        for row in table(kind).iter().filter(|row| row.secret) {
            let name = row.slots.map_or(row.name.to_owned(), |_| format!("{}0", row.name));
            let set = Settings::new()
                .set(&"description".parse().unwrap(), "marked-plain")
                .set(&name.parse().unwrap(), "A=marked-secret\0B=marked-other");
            let digest = "0123456789012345678901234567890123456789".parse().unwrap();
            let change = ConfigChange { set, delete: Vec::new(), revert: Vec::new(), digest };
            let said = "marked-plain: value 'marked-secret' of A=marked-secret, B%3Dmarked-other, marked-other";
            let json = serde_json::to_string(said).unwrap();
            for status in [400, 403, 500, 595, 596] {
                let body =
                    format!(r#"{{"message":{json},"errors":{{"{name}":{json}}}}}"#).into_bytes();
                let answer = HttpAnswer { status, reason: said.to_owned(), date: None, body };
                let client = client(Always::new(ExchangeOutcome::Answered(answer)));
                let guest = GuestId { kind, vmid: "100".parse().unwrap() };
                let cleared = Cleared::in_a_test();
                let error =
                    client.writes(&cleared).set_config(guest, change.clone()).await.unwrap_err();
                let shown = format!("{error} {error:?} {}", error.hint());
                assert!(
                    !shown.contains("marked-secret") && !shown.contains("marked-other"),
                    "{shown}"
                );
                assert!(shown.contains("marked-plain"), "{shown}");
            }
        }
    }
}
