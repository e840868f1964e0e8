//! What an approval costs: the whole judgement against one raw strict verification, and against
//! `ssh-keygen -Y verify`, all in one run.
//!
//! `cargo run --release -p evenkeel-core --example bench_verify`; add `-- json` for one JSON row each.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench has a clock")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops if it cannot"
)]

#[expect(dead_code, reason = "the bench needs a few of the tests' keys and values")]
#[path = "../tests/sign/support.rs"]
mod support;

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_core::reason::ReasonCode;
use evenkeel_core::sign::{Envelope, Limits, Namespace, SpentNonces, authorise, signed_bytes};
use support::{Key, act, alice, clock, sealed_text, statement, trust};

/// Rounds of the two fast measurements, taken in turn so that both meet the same noise.
const ROUNDS: usize = 301;
/// Calls in one round.
const CALLS: u32 = 20;
/// Calls of ssh-keygen.
const PROCESSES: usize = 41;

fn main() {
    let payload = statement().to_bytes().unwrap();
    let envelope = sealed_text(&payload, &[&alice()]);
    let (act, trust, clock, spent) = (act(), trust(), clock(), SpentNonces::default());
    let judge = || {
        let approval = Envelope::parse(black_box(envelope.as_bytes())).unwrap();
        let decision = authorise(&approval, &act, &trust, &clock, &spent, Limits::default());
        assert_eq!(decision.reason(), ReasonCode::AllowedSigned);
    };

    let Key::Ed(secret) = alice() else { unreachable!() };
    let (key, bytes) = (secret.verifying_key(), signed_bytes(Namespace::Op, &payload));
    let signature = ed25519_dalek::Signer::sign(&secret, &bytes);
    let raw = || key.verify_strict(black_box(&bytes), &signature).unwrap();

    let (mut judged, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(time(&raw));
        judged.push(time(&judge));
    }
    let (judged, floor) = (median(judged), median(floor));
    let process = ssh_keygen(&payload);

    row("authorise an approval", judged, "verify_strict", floor, 1.5);
    row("ssh-keygen -Y verify", process, "authorise", judged, 50.0);
}

/// One call, averaged over a round.
fn time(call: &impl Fn()) -> Duration {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed() / CALLS
}

fn ssh_keygen(payload: &[u8]) -> Duration {
    let dir = tempfile::TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("allowed"), format!("alice {}\n", alice().public())).unwrap();
    std::fs::write(at("payload"), payload).unwrap();
    std::fs::write(at("sig"), alice().sign(Namespace::Op, payload)).unwrap();
    let call = || {
        let input = std::fs::File::open(at("payload")).unwrap();
        let start = Instant::now();
        let status = Command::new("ssh-keygen")
            .args([
                "-Y",
                "verify",
                "-f",
                "allowed",
                "-I",
                "alice",
                "-n",
                "evenkeel.op.v1",
                "-s",
                "sig",
            ])
            .current_dir(dir.path())
            .stdin(input)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        start.elapsed()
    };
    median((0..PROCESSES).map(|_| call()).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn row(name: &str, value: Duration, floor_name: &str, floor: Duration, bound: f64) {
    let ratio = value.as_secs_f64() / floor.as_secs_f64();
    let (value, floor) = (value.as_secs_f64() * 1e6, floor.as_secs_f64() * 1e6);
    if std::env::args().any(|word| word == "json") {
        println!(
            "{{\"name\":\"{name}\",\"value\":{value:.1},\"unit\":\"us\",\"floor\":{floor:.1},\"ratio\":{ratio:.2}}}"
        );
    } else {
        println!(
            "{name:<24} {value:>9.1} us  = {ratio:>6.2} x {floor_name} ({floor:.1} us), bound {bound}"
        );
    }
}
