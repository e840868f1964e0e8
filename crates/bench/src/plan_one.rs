//! `plan-one`: a plan of one guest of 2,000 that are declared, over HTTP, from a simulator in another process.
//!
//! The floor is a bare client of the same settings that reads that guest: its status and its configuration, one after
//! the other. Time is measured on looking and planning; requests are counted on the whole verb, by the simulator's own
//! count in `choosing.rs` of the end-to-end tests.

use std::collections::BTreeSet;
use std::hint::black_box;

use evenkeel_agent::policy::Policy;
use evenkeel_agent::preview::preview;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::desired::selection::PassScope;

use crate::BenchRow;
use crate::measure::{by_turns, runtime};
use crate::server::Server;

/// How many guests there are beside the one.
const GUESTS: u32 = 2_000;

pub(crate) fn run() -> Vec<BenchRow> {
    let runtime = runtime();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut rows = Vec::new();
    for tls in [false, true] {
        let server = Server::start(GUESTS, tls);
        let files = directory.path().join(if tls { "tls" } else { "http" });
        let desired = server.imported(&files);
        let guest = desired.guests.values().nth(GUESTS as usize / 2).expect("one of many").id;
        let scope = PassScope::Chosen(BTreeSet::from([guest.vmid]));
        let client = server.client();
        let bare = server.bare();
        let state = StateDir::new(directory.path().join("state"));
        let path = |rest: &str| format!("/nodes/pve1/{guest}/{rest}");
        let (value, floor) = by_turns(
            301,
            || {
                let seen = runtime.block_on(preview(
                    &client,
                    &desired,
                    scope.clone(),
                    &state,
                    &Policy::default(),
                ));
                assert_eq!(seen.expect("the simulator answers").actual.guests.len(), 1);
            },
            || {
                for path in [path("status/current"), path("pending")] {
                    black_box(runtime.block_on(bare.get(&path)));
                }
            },
        );
        let name = format!("plan-one/1 of {GUESTS}, {}", if tls { "tls" } else { "http" });
        rows.push(BenchRow::new(name, "ms", value / 1e6, floor / 1e6));
    }
    rows
}
