//! Any answer to any reading call: a value or an error for a person, never a panic. (The mutating calls read a task's
//! name or nothing, and nobody outside the agent can make them.)
//!
//! Input: two bytes of status, then the reason phrase up to a line feed, then the body.
//! Run with `cargo +nightly fuzz run answers` in `crates/agent`.
#![no_main]

use std::sync::Arc;

use evenkeel_agent::pve::exchange::{HttpAnswer, Exchange, ExchangeFuture, ExchangeOutcome, HttpRequest};
use evenkeel_agent::pve::{Client, ConfigView, TaskFilter};
use evenkeel_core::model::id::{GuestId, GuestKind};
use libfuzzer_sys::fuzz_target;

struct Always(HttpAnswer);

impl Exchange for Always {
    fn exchange(&self, _: HttpRequest) -> ExchangeFuture<'_> {
        Box::pin(std::future::ready(ExchangeOutcome::Answered(self.0.clone())))
    }
}

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
    let answer = HttpAnswer { status, date: Some(reason.clone()), reason, body };
    let client = Client::new(Arc::new(Always(answer)), "pve1".parse().expect("a node name"));
    let guest: GuestId = "lxc/100".parse().expect("a guest");
    let filter = TaskFilter::default();
    // A read that fails in passing is asked again after a pause, which is not waited for here.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let told = [
            client.version().await.map(drop),
            client.guests(GuestKind::Qemu).await.map(drop),
            client.guest_names(GuestKind::Qemu).await.map(drop),
            client.config(guest, ConfigView::Merged).await.map(drop),
            client.pending(guest).await.map(drop),
            client.guest_status(guest).await.map(drop),
            client.snapshots(guest).await.map(drop),
            client.tasks(&filter).await.map(drop),
            client.cluster_guests().await.map(drop),
            client.cluster_status().await.map(drop),
            client.cluster_options().await.map(drop),
            client.storages().await.map(drop),
            client.permissions().await.map(drop),
        ];
        for error in told.into_iter().filter_map(Result::err) {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
        }
    });
});
