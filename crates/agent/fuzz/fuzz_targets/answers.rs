//! Any answer to any call: a value or an error for a person, never a panic.
//!
//! Input: two bytes of status, then the reason phrase up to a line feed, then the body.
//! Run with `cargo +nightly fuzz run answers` in `crates/agent`.
#![no_main]

#[path = "../../tests/pve/every_call.rs"]
mod every_call;

use evenkeel_agent::pve::exchange::{Answer, Outcome};
use libfuzzer_sys::fuzz_target;

use every_call::{Always, client, reads, writes};

fuzz_target!(|input: &[u8]| {
    let [high, low, rest @ ..] = input else { return };
    // Most inputs should get past the status: 200 is where the reading is.
    let status = match high % 4 {
        0 | 1 => 200,
        2 => 400 + u16::from(*low),
        _ => u16::from_be_bytes([*high, *low]),
    };
    let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let reason = String::from_utf8_lossy(&rest[..line]).into_owned();
    let body = rest[line..].trim_ascii_start().to_vec();
    let answer = Answer { status, date: Some(reason.clone()), reason, body };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for (_, call) in reads().into_iter().chain(writes()) {
        let exchange = Always::new(Outcome::Answered(answer.clone()));
        let result = runtime.block_on(call(client(exchange.clone())));
        assert_eq!(exchange.lines().len(), 1);
        if let Err(error) = result {
            assert!(!error.to_string().contains('\u{1b}'));
            assert!(!error.hint().is_empty());
        }
    }
});
