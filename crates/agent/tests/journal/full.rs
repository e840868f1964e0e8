//! A disk that is really full. `scripts/full-disk` makes one and runs this on it.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use evenkeel_agent::freeze::{self, FreezeOutcome, Frozen};
use evenkeel_agent::journal::{
    AppendError, Journal, JournalLimits, Kept, KeptSubject, ReadOnlyDirectory, RealDisk, Record,
    verify,
};
use evenkeel_agent::state_dir::StateDir;

use super::support::{note, now, stamp, started, succeeded, task_running};

/// The root of a small file system that may be filled.
const ROOT: &str = "EVENKEEL_FULL_DISK";

/// As many as the largest number of guests anybody keeps on one host, and twice that.
const IN_FLIGHT: u64 = 1_000;

/// Takes every byte there is.
fn fill(root: &Path) -> PathBuf {
    let path = root.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    for block in [1 << 20, 4_096, 1] {
        let bytes = vec![0; block];
        loop {
            match file.write(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
        // Space that is only promised is not taken: the file system must have written it.
        if let Err(error) = file.sync_all() {
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }
    path
}

fn vmid(number: u64) -> u32 {
    100 + u32::try_from(number).unwrap()
}

fn open(path: &Path) -> Journal<RealDisk> {
    let disk = RealDisk::open(path).unwrap();
    Journal::open(disk, stamp(), JournalLimits::default(), now()).unwrap()
}

#[test]
#[ignore = "fills a file system; run it with scripts/full-disk"]
fn j13_j15_on_a_full_disk_what_is_in_flight_is_closed_and_nothing_is_begun() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else { return };
    let path = root.join("journal");
    let mut journal = open(&path);
    for number in 0..IN_FLIGHT {
        journal.stage(started(number, vmid(number), None), now()).unwrap();
    }
    journal.commit().unwrap();
    let filler = fill(&root);
    println!("the disk is full; {IN_FLIGHT} operations are in flight");
    for number in 0..IN_FLIGHT {
        journal.append(task_running(number, vmid(number)), now()).unwrap();
        journal.append(succeeded(number), now()).unwrap();
    }
    assert_eq!(journal.state().ledger().in_flight().count(), 0);
    assert!(!path.join("reserve").exists(), "it was closed from the reserve");
    println!("all of them are closed, each with two records and two syncs");
    let refused = journal.append(started(5_000, 5_000, None), now()).unwrap_err();
    assert!(matches!(refused, AppendError::Full { .. }) && !refused.is_fatal());
    assert!(refused.to_string().contains(&path.display().to_string()), "it names the directory");
    println!("a new one is refused: {refused}");
    // What takes power away from somebody is heard all the same: a recovery of the signers, and a freeze.
    let envelope = "A".repeat(64 << 10);
    let recovery =
        Kept::put(KeptSubject::Trust, "258", 1, serde_json::json!({ "envelope": envelope }));
    let refused = journal.append(Record::Kept(recovery.clone()), now()).unwrap_err();
    assert!(matches!(refused, AppendError::Full { .. }), "a planned rotation begins something");
    journal.append(Record::Kept(recovery.from_the_reserve()), now()).unwrap();
    println!("a recovery is taken");
    let state = StateDir::new(root.clone());
    fill(&root);
    let frozen = Frozen { at: now().to_string(), by: "root".to_owned(), reason: "x".repeat(1_024) };
    assert_eq!(freeze::freeze(&state, &frozen).unwrap(), FreezeOutcome::Done);
    assert!(state.is_frozen());
    println!("a freeze is taken; why: {:?}", freeze::frozen_by(&state).map(|_| "kept"));
    std::fs::remove_file(state.freeze_file()).unwrap();
    drop(journal);
    let mut journal = open(&path);
    assert!(matches!(
        journal.append(started(5_000, 5_000, None), now()).unwrap_err(),
        AppendError::Full { .. }
    ));
    // What closes things goes on until the last byte; then the process must end, and says why.
    let fatal = loop {
        fill(&root);
        match journal.append(note(&"x".repeat(4_000)), now()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(fatal.is_fatal());
    let cause = std::error::Error::source(&fatal).map(ToString::to_string).unwrap_or_default();
    println!("with the reserve gone too: {fatal}: {cause}");
    drop(journal);
    let verified = verify::verify(&ReadOnlyDirectory::open(&path).unwrap()).unwrap();
    println!(
        "the journal is whole: {} records, {} torn bytes",
        verified.records, verified.tail_bytes
    );
    std::fs::remove_file(filler).unwrap();
    let mut journal = open(&path);
    assert_eq!(journal.state().ledger().in_flight().count(), 0);
    journal.append(started(5_000, 5_000, None), now()).unwrap();
    assert!(path.join("reserve").exists(), "it is taken again");
    println!("with space again, work goes on");
}
