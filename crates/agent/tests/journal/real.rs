//! On the file system the tests run on: several writers, the lock, who may read, real bytes.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::journal::{
    Journal, JournalLimits, ReadOnlyDirectory, RealDisk, Seq, group, verify,
};
use evenkeel_agent::state_dir::{StateDir, StateError};

use super::support::{SMALL, note, now, stamp, started, succeeded};

fn open(path: &Path, limits: JournalLimits) -> Journal<RealDisk> {
    Journal::open(RealDisk::open(path).unwrap(), stamp(), limits, now()).unwrap()
}

#[test]
fn several_writer_threads_lose_nothing_across_rotation_and_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let limits =
        JournalLimits { segment_bytes: 20_000, archive_segments: 999, ..JournalLimits::default() };
    let (handle, writer) = group::spawn(open(&path, limits), now).unwrap();
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for round in 0..25 {
                    let number = thread * 1_000 + round;
                    let vmid = 100 + u32::try_from(thread).unwrap();
                    runtime.block_on(handle.append(started(number, vmid, None))).unwrap();
                    runtime.block_on(handle.append(succeeded(number))).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    drop(handle);
    writer.join().unwrap().unwrap();
    let files = ReadOnlyDirectory::open(&path).unwrap();
    let mut ops = 0;
    let verified = verify::read(&files, |line| ops += u32::from(line.kind == "op")).unwrap();
    assert_eq!(ops, 8 * 25 * 2);
    assert!(verified.segments > 3);
    let journal = open(&path, limits);
    assert_eq!(Some(journal.head()), verified.head);
    assert_eq!(journal.state().ledger().in_flight().count(), 0);
}

#[test]
fn j19_only_one_process_has_the_journal_and_readers_need_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut first = open(&path, SMALL);
    first.append(note("mine"), now()).unwrap();
    let error = RealDisk::open(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let files = ReadOnlyDirectory::open(&path).unwrap();
    assert_eq!(verify::verify(&files).unwrap().head, Some(first.head()));
    drop(first);
    RealDisk::open(&path).unwrap();
}

#[test]
fn j18_a_directory_or_file_that_others_could_touch_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    drop(open(&path, SMALL));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let segment = path.join("journal-000001.jsonl");
    assert_eq!((mode(&path), mode(&segment)), (0o700, 0o600));
    let opened = || {
        let disk = RealDisk::open(&path).map_err(|error| error.to_string())?;
        Journal::open(disk, stamp(), SMALL, now()).map(drop).map_err(|error| format!("{error:?}"))
    };
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    opened().unwrap();
    set(&path, 0o755);
    assert!(opened().unwrap_err().contains("chmod"));
    set(&path, 0o700);
    set(&segment, 0o644);
    assert!(opened().unwrap_err().contains("chmod"));
    set(&segment, 0o600);
    std::fs::hard_link(&segment, directory.path().join("second")).unwrap();
    assert!(opened().unwrap_err().contains("hard link"));
    std::fs::remove_file(directory.path().join("second")).unwrap();
    opened().unwrap();
    std::fs::rename(&segment, directory.path().join("elsewhere")).unwrap();
    symlink(directory.path().join("elsewhere"), &segment).unwrap();
    opened().unwrap_err();
    let link = directory.path().join("link");
    symlink(&path, &link).unwrap();
    RealDisk::open(&link).unwrap_err();
}

#[test]
fn a_torn_tail_on_a_real_disk_is_cut_and_work_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = open(&path, SMALL);
    journal.append(note("whole"), now()).unwrap();
    journal.append(note("torn"), now()).unwrap();
    drop(journal);
    let segment = path.join("journal-000001.jsonl");
    let length = std::fs::metadata(&segment).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(length - 5).unwrap();
    let mut journal = open(&path, SMALL);
    assert_eq!(journal.head().seq, Seq(3), "snapshot, whole, the note of the cut");
    journal.append(note("goes on"), now()).unwrap();
    drop(journal);
    assert_eq!(open(&path, SMALL).head().seq, Seq(4));
    assert!(path.join("reserve").exists());
}

#[test]
fn root_reads_the_journal_of_the_agents_user_and_never_writes_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    drop(open(&path, SMALL));
    let segment = path.join("journal-000001.jsonl");
    // Only root can give a file away, and only root is spoken of here.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        return;
    }
    let refused = RealDisk::open(&path).unwrap_err().to_string();
    assert!(refused.ends_with("it belongs to another user"), "{refused}");
    // A file that is not the agent's is none of its lines.
    let read = |path: &Path| verify::verify(&ReadOnlyDirectory::open(path).unwrap());
    assert!(read(&path).is_err());
    std::os::unix::fs::chown(&segment, Some(12_345), None).unwrap();
    read(&path).unwrap();
}

#[test]
fn y15_root_leaves_nothing_in_another_users_empty_state_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    // Only root can give a directory away, and only root is spoken of here.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        return;
    }
    let refused = StateDir::new(&path).lock_journal(&Machine).unwrap_err();
    assert!(matches!(refused, StateError::Directory { .. }), "{refused}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "something was left behind");
}
