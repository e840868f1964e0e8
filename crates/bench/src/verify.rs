//! What an approval costs: the whole judgement from the envelope's bytes on.
//!
//! The floor is one raw strict Ed25519 verification over the same bytes. The second row sets
//! `ssh-keygen -Y verify`, which answers less, beside that judgement: how many times as long it takes.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::{
    Envelope, Namespace, SpentNonces, StatementLimits, authorise, signed_bytes,
};

use crate::BenchRow;
use crate::measure::by_turns;
use evenkeel_testkit::signing_keys::{Key, act, alice, clock, sealed_text, statement, trust};

/// Rounds of the two that take microseconds.
const ROUNDS: usize = 301;
/// Calls in one such round.
const CALLS: u32 = 20;
/// Rounds with a process each.
const PROCESSES: usize = 41;

pub(crate) fn run() -> Vec<BenchRow> {
    let payload = statement().to_bytes().expect("the statement of the tests can be written");
    let envelope = sealed_text(&payload, &[&alice()]);
    let act = act();
    let trust = trust();
    let clock = clock();
    let spent = SpentNonces::default();
    let judge = || {
        for _ in 0..CALLS {
            let approval = Envelope::parse(black_box(envelope.as_bytes()));
            let approval = approval.expect("the envelope reads");
            let decision =
                authorise(&approval, &act, &trust, &clock, &spent, StatementLimits::default());
            assert_eq!(decision.reason(), ReasonCode::AllowedSigned);
        }
    };

    let Key::Ed(secret) = alice() else { panic!("alice has an Ed25519 key") };
    let key = secret.verifying_key();
    let bytes = signed_bytes(Namespace::Op, &payload);
    let signature = ed25519_dalek::Signer::sign(&secret, &bytes);
    let raw = || {
        for _ in 0..CALLS {
            key.verify_strict(black_box(&bytes), &signature).expect("it was signed just above");
        }
    };
    let (judged, floor) = by_turns(ROUNDS, judge, raw);

    let directory = tempfile::TempDir::new().expect("a directory for ssh-keygen can be made");
    prepare(directory.path(), &payload);
    let (process, judged_beside) = by_turns(PROCESSES, || ssh_keygen(directory.path()), judge);

    let per_call = |nanoseconds: f64| nanoseconds / f64::from(CALLS) / 1000.0;
    let process_us = process / 1000.0;
    vec![
        BenchRow::new("verify/authorise an approval", "us", per_call(judged), per_call(floor)),
        BenchRow::new(
            "verify/ssh-keygen beside authorise",
            "us",
            process_us,
            per_call(judged_beside),
        ),
    ]
}

fn prepare(directory: &Path, payload: &[u8]) {
    let files = [
        ("allowed", format!("alice {}\n", alice().public()).into_bytes()),
        ("payload", payload.to_vec()),
        ("sig", alice().sign(Namespace::Op, payload).into_bytes()),
    ];
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).expect("a new file can be written");
    }
}

fn ssh_keygen(directory: &Path) {
    let payload = std::fs::File::open(directory.join("payload")).expect("it was written before");
    let status = Command::new("ssh-keygen")
        .args(["-Y", "verify", "-f", "allowed", "-I", "alice", "-n", Namespace::Op.as_str()])
        .args(["-s", "sig"])
        .current_dir(directory)
        .stdin(payload)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("ssh-keygen is installed").success(), "ssh-keygen takes the signature");
}
