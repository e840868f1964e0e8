//! Random scripts with crashes and faults in between: the journal is what was acknowledged.

use evenkeel_agent::journal::{
    AppendError, DiskFault, Journal, JournalError, JournalLimits, Record, SimulatedDisk,
};
use proptest::prelude::*;

use super::support::{
    SMALL, by_extent, fold, history, note, now, open_with, started, succeeded, unknown,
};

fn open(disk: &SimulatedDisk) -> Result<Journal<SimulatedDisk>, JournalError> {
    open_with(disk, JournalLimits { archive_segments: 999, ..SMALL })
}

#[derive(Debug, Clone)]
enum Step {
    /// Records in one batch.
    Batch(Vec<u8>),
    /// Start again without losing power.
    Restart,
    /// Lose power; what survives, and how much is missing at the end.
    Crash { kept: u64, cut: usize },
    /// The call so many from now goes wrong.
    Fault { ahead: u64, fault: DiskFault },
}

fn step() -> impl Strategy<Value = Step> {
    let fault =
        prop_oneof![Just(DiskFault::Io), Just(DiskFault::NoSpace), Just(DiskFault::PowerLoss)];
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 1..5).prop_map(Step::Batch),
        1 => Just(Step::Restart),
        2 => (any::<u64>(), 0..900_usize).prop_map(|(kept, cut)| Step::Crash { kept, cut }),
        2 => (0..12_u64, fault).prop_map(|(ahead, fault)| Step::Fault { ahead, fault }),
    ]
}

/// The next record for a guest chosen by `byte`, legal after `records`.
fn next_record(records: &[Record], byte: u8, number: u64) -> Record {
    let vmid = 100 + u32::from(byte % 4);
    let state = fold(records);
    let open = state.ledger().in_flight().find(|op| op.intent.guest.vmid.get() == vmid);
    match open {
        None if byte % 16 == 15 => note(&format!("n{number}")),
        None if byte % 8 == 7 => started(number, vmid, Some(&format!("nonce-{number}"))),
        None => started(number, vmid, None),
        Some(op) => {
            let event = if byte % 32 < 16 && op.state.as_str() == "started" {
                unknown(0)
            } else {
                succeeded(0)
            };
            let Record::Op(mut entry) = event else { unreachable!() };
            entry.record.op = op.id;
            Record::Op(entry)
        }
    }
}

fn run_steps(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut disk = SimulatedDisk::default();
    let mut journal = open(&disk).ok();
    // What is known to be in the journal, and what was tried after that.
    let (mut certain, mut tried): (Vec<Record>, Vec<Record>) = (Vec::new(), Vec::new());
    let mut number = 0;
    for step in steps {
        match step {
            Step::Fault { ahead, fault } => disk.fail_at(disk.calls() + ahead, *fault),
            Step::Batch(bytes) => {
                let Some(live) = &mut journal else { continue };
                for byte in bytes {
                    number += 1;
                    let record = next_record(&[&certain[..], &tried].concat(), *byte, number);
                    match live.stage(record.clone(), now()) {
                        Ok(_) => tried.push(record),
                        Err(error) => prop_assert!(!matches!(error, AppendError::Refused(_))),
                    }
                }
                match live.commit() {
                    Ok(()) => certain.append(&mut tried),
                    Err(_) => journal = None,
                }
            }
            Step::Restart | Step::Crash { .. } => {
                drop(journal.take());
                if let Step::Crash { kept, cut } = step {
                    disk = disk.after_crash(*kept, *cut);
                }
                // A fault may strike during the start as well; then the power goes, and again.
                let mut live = open(&disk);
                if live.is_err() {
                    disk = disk.after_crash(0, 0);
                    live = open(&disk);
                }
                if let Err(error) = &live {
                    return Err(TestCaseError::fail(error.to_string()));
                }
                // The archive is kept whole here, so every record can be counted.
                let found = history(&disk).len();
                prop_assert!(found >= certain.len(), "acknowledged records are lost");
                prop_assert!(found <= certain.len() + tried.len(), "records are invented");
                certain.extend(tried.drain(..found - certain.len()));
                tried.clear();
                let state = live.as_ref().unwrap().state().compacted();
                prop_assert_eq!(state, fold(&certain).compacted());
                journal = live.ok();
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: by_extent(100, 1_000, 20_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_the_journal_is_what_was_acknowledged(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run_steps(&steps)?;
    }
}
