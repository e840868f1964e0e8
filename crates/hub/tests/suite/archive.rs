//! The archive of the audit: no line is lost or told twice, whatever dies, and nothing that was bent goes unnoticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::TestBed;
use super::crash::{child, killed};
use evenkeel_hub::death_point;
use evenkeel_hub::store::{
    ArchiveCheck, ArchiveLimits, ArchiveRound, Database, DatabaseKind, HubStore, HubTime,
    StoreError, restore_file,
};
use evenkeel_testkit::postgres::TestPostgres;

const DATABASE: &str = "EVENKEEL_HUB_TEST_DATABASE";
const ARCHIVE: &str = "EVENKEEL_HUB_TEST_ARCHIVE";

/// Small, so that a few lines fill files.
const LIMITS: ArchiveLimits = ArchiveLimits {
    kept_s: 1_000,
    rows_max: 1_000,
    settled_s: 100,
    round_rows: 40,
    file_bytes: 100_000,
};

/// Lines of an age, in seconds, after those that are there.
fn lines(count: u32, age_s: i64) -> String {
    let at = HubTime::now().plus_s(-age_s).0;
    let detail = "because ".repeat(240);
    format!(
        "INSERT INTO audit (at, who, act, subject, detail) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         SELECT {at} + i, 'alice', 'document.push', 'pve' || i, '{detail}' FROM n"
    )
}

async fn run_sql(store: &HubStore, statement: &str) {
    let mut connection = store.database().connection().await.unwrap();
    let statement = sqlx::AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
}

async fn archive_all(store: &HubStore, directory: &Path) -> u64 {
    let mut moved = 0;
    loop {
        match store.archive_audit(directory, LIMITS).await.unwrap() {
            ArchiveRound::Moved(0) => return moved,
            ArchiveRound::Moved(lines) => moved += lines,
            other @ (ArchiveRound::Busy | ArchiveRound::Elsewhere) => panic!("{other:?}"),
        }
    }
}

/// What an archive is that has no fault.
async fn sound(store: &HubStore, directory: &Path) -> ArchiveCheck {
    let check = store.verify_audit(directory).await.unwrap();
    assert_eq!(check.faults, Vec::<String>::new());
    check
}

async fn faults(store: &HubStore, directory: &Path) -> Vec<String> {
    store.verify_audit(directory).await.unwrap().faults
}

/// Every line, in table or files, newest first.
async fn numbers(store: &HubStore, directory: &Path) -> Vec<i64> {
    let lines = store.newest_audit(Some(directory), 10_000).await.unwrap();
    lines.iter().map(|line| line.serial).collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")).collect();
    files.sort();
    files
}

pub(super) async fn z18_old_lines_of_the_audit_move_to_files_and_the_table_goes_on(bed: TestBed) {
    use std::os::unix::fs::PermissionsExt as _;
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    assert_eq!(archive_all(store, &directory).await, 0);
    assert!(!directory.exists(), "nothing was due");
    bed.sql(&lines(100, 5_000)).await;
    bed.sql(&lines(7, 500)).await;
    let before = store.newest_audit(None, 10_000).await.unwrap();
    assert_eq!(archive_all(store, &directory).await, 100);
    let check = sound(store, &directory).await;
    assert_eq!((check.files, check.lines, check.table_rows), (2, 100, 7));
    assert_eq!((check.first, check.last, check.in_both), (before[106].serial, before[7].serial, 0));
    assert_eq!(bed.number("SELECT COUNT(*) FROM audit").await, 7);
    assert_eq!(store.newest_audit(Some(&directory), 10_000).await.unwrap(), before);
    assert_eq!(store.newest_audit(Some(&directory), 9).await.unwrap(), before[..9]);
    assert_eq!(store.check().await.unwrap().audit_archived, 100);
    for file in files(&directory) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let _: serde_json::Value = serde_json::from_str(line).unwrap();
        }
    }
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // It goes on there, and oldest files may be moved away.
    bed.sql("UPDATE audit SET at = at - 5000000").await;
    assert_eq!(archive_all(store, &directory).await, 7);
    assert_eq!(sound(store, &directory).await.lines, 107);
    std::fs::remove_file(directory.join("audit-000001.jsonl")).unwrap();
    let check = sound(store, &directory).await;
    assert_eq!(check.lines + check.moved_away, 107);
    store.audit("alice", "a", "b", "c").await.unwrap();
    assert_eq!(sound(store, &directory).await.table_rows, 1);
}

pub(super) async fn z18_lines_over_the_count_move_but_never_young_ones(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    bed.sql(&lines(60, 500)).await;
    bed.sql(&lines(30, 0)).await;
    let limits = ArchiveLimits { rows_max: 50, ..LIMITS };
    assert_eq!(store.archive_audit(&directory, limits).await.unwrap(), ArchiveRound::Moved(40));
    assert_eq!(store.archive_audit(&directory, limits).await.unwrap(), ArchiveRound::Moved(0));
    let limits = ArchiveLimits { rows_max: 0, ..LIMITS };
    assert_eq!(store.archive_audit(&directory, limits).await.unwrap(), ArchiveRound::Moved(20));
    assert_eq!(store.archive_audit(&directory, limits).await.unwrap(), ArchiveRound::Moved(0));
    assert_eq!(sound(store, &directory).await.table_rows, 30);
}

/// As a death between the sync of the files and the commit leaves it: the table is as before, the files are not.
async fn archived_and_rolled_back(bed: &TestBed, directory: &Path) {
    bed.sql(&lines(70, 5_000)).await;
    bed.sql("CREATE TABLE before_it AS SELECT * FROM audit").await;
    assert_eq!(archive_all(bed.store(), directory).await, 70);
    let always = match bed.store().database().kind() {
        DatabaseKind::Sqlite => "",
        DatabaseKind::Postgres => "OVERRIDING SYSTEM VALUE",
    };
    bed.sql(&format!("INSERT INTO audit {always} SELECT * FROM before_it")).await;
    bed.sql("UPDATE meta SET value = '' WHERE name = 'audit_archive'").await;
}

pub(super) async fn lines_that_are_in_both_are_known_and_only_deleted(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    archived_and_rolled_back(&bed, &directory).await;
    assert_eq!(sound(store, &directory).await.in_both, 70);
    assert_eq!(numbers(store, &directory).await.len(), 70, "told once");
    let written: Vec<_> =
        files(&directory).iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert_eq!(archive_all(store, &directory).await, 70);
    let after: Vec<_> = files(&directory).iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert_eq!(after, written, "nothing is written twice");
    assert_eq!(sound(store, &directory).await.lines, 70);
    assert_eq!(bed.number("SELECT COUNT(*) FROM audit").await, 0);
}

pub(super) async fn a_line_that_is_not_as_it_was_archived_is_never_deleted(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    archived_and_rolled_back(&bed, &directory).await;
    bed.sql("UPDATE audit SET who = 'mallory' WHERE subject = 'pve33'").await;
    let refused = store.archive_audit(&directory, LIMITS).await;
    assert!(matches!(refused, Err(StoreError::Archive(_))), "{refused:?}");
    assert_eq!(bed.number("SELECT COUNT(*) FROM audit").await, 70);
    let told = faults(store, &directory).await;
    assert!(told.len() == 1 && told[0].contains("row 33"), "{told:?}");
}

pub(super) async fn one_hub_archives_at_a_time_and_in_one_directory(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    bed.sql(&lines(100, 5_000)).await;
    if store.database().kind() == DatabaseKind::Postgres {
        let mut other = store.database().connection().await.unwrap();
        sqlx::raw_sql("BEGIN; SELECT * FROM meta WHERE name = 'audit_archive' FOR UPDATE")
            .execute(&mut other)
            .await
            .unwrap();
        let round = store.archive_audit(&directory, LIMITS).await.unwrap();
        assert_eq!(round, ArchiveRound::Busy);
        assert!(!directory.exists());
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    }
    assert_eq!(store.archive_audit(&directory, LIMITS).await.unwrap(), ArchiveRound::Moved(40));
    let lock = std::fs::File::open(directory.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(store.archive_audit(&directory, LIMITS).await.unwrap(), ArchiveRound::Busy);
    drop(lock);
    let elsewhere = bed.directory.path().join("elsewhere");
    let round = store.archive_audit(&elsewhere, LIMITS).await.unwrap();
    assert_eq!(round, ArchiveRound::Elsewhere);
    assert!(!elsewhere.exists());
    // Two replicas at once, again and again: each line is archived once.
    let other = bed.another().await;
    bed.sql(&lines(400, 5_000)).await;
    let both = [store.clone(), other.hub.store().clone()].map(|store| {
        let directory = directory.clone();
        tokio::spawn(async move {
            while store.archive_audit(&directory, LIMITS).await.unwrap() != ArchiveRound::Moved(0) {
                tokio::task::yield_now().await;
            }
        })
    });
    for one in both {
        one.await.unwrap();
    }
    let check = sound(store, &directory).await;
    assert_eq!((check.lines, check.table_rows), (500, 0));
    other.stop().await;
}

pub(super) async fn a_tail_that_is_not_whole_is_put_aside(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    bed.sql(&lines(10, 5_000)).await;
    assert_eq!(archive_all(store, &directory).await, 10);
    let file = files(&directory).remove(0);
    let whole = std::fs::read(&file).unwrap();
    for tail in [&b"{"[..], b"{\"serial\":11}\n", b"\n", &whole[whole.len() - 400..]] {
        std::fs::write(&file, [&whole, tail].concat()).unwrap();
        assert_eq!(sound(store, &directory).await.lines, 10);
        bed.sql(&lines(3, 5_000)).await;
        assert_eq!(archive_all(store, &directory).await, 3);
        let aside = directory.join(format!("cut-000001-{}", whole.len()));
        assert_eq!(std::fs::read(aside).unwrap(), tail);
        assert_eq!(sound(store, &directory).await.lines, 13);
        // Back to where it was.
        std::fs::write(&file, &whole).unwrap();
        let place = bed.number("SELECT 10").await;
        let sum: serde_json::Value = serde_json::from_slice(
            whole.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap(),
        )
        .unwrap();
        let sum = sum["sum"].as_str().unwrap();
        bed.sql(&format!(
            "UPDATE meta SET value = '{{\"file\":1,\"serial\":{place},\"sum\":\"{sum}\",\"lines\":10,\"next\":0}}' \
             WHERE name = 'audit_archive'"
        ))
        .await;
    }
}

pub(super) async fn bent_files_are_told_by_file_and_line(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    bed.sql(&lines(100, 5_000)).await;
    bed.sql(&lines(50, 5_000)).await;
    assert_eq!(archive_all(store, &directory).await, 150);
    bed.sql(&lines(1, 5_000)).await;
    let found = files(&directory);
    assert_eq!(found.len(), 2);
    let texts: Vec<_> = found.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let split = |text: &str| text.split_inclusive('\n').map(str::to_owned).collect::<Vec<_>>();
    let mut bent: Vec<(usize, String, String)> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let name = format!("audit-00000{}.jsonl", number + 1);
        let all = split(text);
        for at in [0, 1, 5, all.len() - 1] {
            let told = format!("{name}, line {}:", at + 1);
            let mut changed = all.clone();
            changed[at] = changed[at].replacen('e', "f", 1);
            bent.push((number, changed.concat(), told.clone()));
            let mut cut = all.clone();
            cut[at].truncate(40);
            bent.push((number, cut[..=at].concat(), told.clone()));
            let mut repeated = all.clone();
            repeated.insert(at + 1, all[at].clone());
            // A line more behind the last one is a tail that nobody archived.
            if !(number == 1 && at == all.len() - 1) {
                bent.push((number, repeated.concat(), format!("{name}, line {}:", at + 2)));
            }
            let mut missing = all.clone();
            missing.remove(at);
            let told = if at < all.len() - 1 { told } else { String::new() };
            bent.push((number, missing.concat(), told));
        }
        let mut swapped = all.clone();
        swapped.swap(7, 8);
        bent.push((number, swapped.concat(), format!("{name}, line 8:")));
    }
    bent.push((1, texts[0].clone(), "audit-000002.jsonl, line 1:".to_owned()));
    for (number, text, told) in bent {
        std::fs::write(&found[number], &text).unwrap();
        let faults = faults(store, &directory).await;
        assert!(faults.first().is_some_and(|fault| fault.contains(&told)), "{told}: {faults:?}");
        if number == 1 {
            let refused = store.archive_audit(&directory, LIMITS).await;
            assert!(matches!(refused, Err(StoreError::Archive(_))), "{told}: {refused:?}");
        }
        std::fs::write(&found[number], &texts[number]).unwrap();
    }
    assert_eq!(sound(store, &directory).await.table_rows, 1);
    // The table is part of it: what it lost, or got in between, is told.
    bed.sql("UPDATE audit SET at = 1").await;
    assert_eq!(archive_all(store, &directory).await, 1);
    bed.sql(&lines(5, 500)).await;
    bed.sql(&lines(1, 5_000)).await;
    bed.sql("UPDATE audit SET at = 1 WHERE subject = 'pve1' AND serial < 153").await;
    assert_eq!(archive_all(store, &directory).await, 1);
    assert_eq!(sound(store, &directory).await.table_rows, 5);
    bed.sql("DELETE FROM audit WHERE serial = (SELECT MIN(serial) FROM audit)").await;
    let told = faults(store, &directory).await;
    assert!(told.len() == 1 && told[0].contains("rows are missing between"), "{told:?}");
}

pub(super) async fn an_archive_that_is_lost_is_told_and_another_can_begin(bed: TestBed) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    bed.sql(&lines(30, 5_000)).await;
    assert_eq!(archive_all(store, &directory).await, 30);
    assert!(store.begin_archive(&directory, "server").await.is_err(), "there is one");
    std::fs::rename(&directory, bed.directory.path().join("aside")).unwrap();
    bed.sql(&lines(5, 5_000)).await;
    assert_eq!(store.archive_audit(&directory, LIMITS).await.unwrap(), ArchiveRound::Elsewhere);
    let told = faults(store, &directory).await;
    assert!(
        told.len() == 1 && told[0].contains("row 30 was archived and is not there"),
        "{told:?}"
    );
    store.begin_archive(&directory, "server").await.unwrap();
    assert_eq!(sound(store, &directory).await.table_rows, 6);
    assert_eq!(archive_all(store, &directory).await, 5);
    let check = sound(store, &directory).await;
    assert_eq!((check.first, check.lines, check.table_rows), (31, 5, 1));
}

#[tokio::test]
async fn z20_a_backup_that_is_older_than_the_archive_goes_on_above_it_and_nothing_is_lost_or_told_twice()
 {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hub.sqlite");
    let archive = directory.path().join("audit");
    let database = Database::sqlite(&file);
    let store = HubStore::open(database.clone()).await.unwrap();
    run_sql(&store, &lines(20, 5_000)).await;
    let copy = directory.path().join("copy");
    store.backup(&copy).await.unwrap();
    run_sql(&store, &lines(10, 5_000)).await;
    assert_eq!(archive_all(&store, &archive).await, 30);
    store.close().await;
    drop(store);
    restore_file(&database, &copy, Some(&archive)).await.unwrap();
    let store = HubStore::open(database).await.unwrap();
    let check = sound(&store, &archive).await;
    assert_eq!((check.lines, check.in_both), (30, 20));
    let all: Vec<i64> = (1..=31).rev().collect();
    assert_eq!(numbers(&store, &archive).await, all, "the line about it is no archived line's");
    assert_eq!(archive_all(&store, &archive).await, 20);
    let check = sound(&store, &archive).await;
    assert_eq!((check.lines, check.in_both, check.table_rows), (30, 0, 1));
    store.close().await;
}

pub(super) async fn new_lines_are_numbered_above_an_archive_that_is_newer_than_the_database(
    bed: TestBed,
) {
    let store = bed.store();
    let directory = bed.directory.path().join("archive");
    archived_and_rolled_back(&bed, &directory).await;
    // As a dump that was put back: its numbers go on where they were.
    bed.sql("DELETE FROM audit WHERE serial > 50").await;
    bed.sql(match store.database().kind() {
        DatabaseKind::Sqlite => "UPDATE sqlite_sequence SET seq = 50 WHERE name = 'audit'",
        DatabaseKind::Postgres => "SELECT setval('audit_serial_seq', 50)",
    })
    .await;
    store.pass_archived_rows(&directory).await.unwrap();
    store.audit("alice", "a", "b", "c").await.unwrap();
    assert_eq!(bed.number("SELECT MAX(serial) FROM audit").await, 71);
    assert_eq!(archive_all(store, &directory).await, 50);
    let check = sound(store, &directory).await;
    assert_eq!((check.lines, check.table_rows), (70, 1));
}

/// The process that archives and dies. Only other tests start it.
#[tokio::test]
#[ignore = "a child of other tests"]
async fn archiving_child() {
    let (Ok(url), Ok(archive)) = (std::env::var(DATABASE), std::env::var(ARCHIVE)) else { return };
    let store = HubStore::open(Database::from_url(&url).unwrap()).await.unwrap();
    archive_all(&store, Path::new(&archive)).await;
    store.close().await;
}

/// Kills a child at one point, and judges what it left; whether there was such a point.
async fn dies(url: &str, archive: &Path, last: usize) -> bool {
    let store = HubStore::open(Database::from_url(url).unwrap()).await.unwrap();
    run_sql(&store, &lines(100, 5_000)).await;
    run_sql(&store, &lines(3, 0)).await;
    let by_number = |lines: Vec<evenkeel_hub::store::AuditLine>| -> BTreeMap<_, _> {
        lines.into_iter().map(|line| (line.serial, line)).collect()
    };
    let before = by_number(store.newest_audit(None, 10_000).await.unwrap());
    store.close().await;
    drop(store);
    let mut command = child("archive::archiving_child");
    command.env(DATABASE, url).env(ARCHIVE, archive).env(death_point::LAST, last.to_string());
    let was_killed = killed(&mut command);
    let store = HubStore::open(Database::from_url(url).unwrap()).await.unwrap();
    for when in ["after the death", "after the next rounds"] {
        sound(&store, archive).await;
        let lines = store.newest_audit(Some(archive), 10_000).await.unwrap();
        assert_eq!(lines.len(), before.len(), "point {last}, {when}: a line is lost or told twice");
        assert_eq!(by_number(lines), before, "point {last}, {when}");
        archive_all(&store, archive).await;
    }
    let check = sound(&store, archive).await;
    assert_eq!((check.lines, check.table_rows, check.in_both), (100, 3, 0), "point {last}");
    store.close().await;
    was_killed
}

fn step() -> usize {
    if std::env::var_os("EVENKEEL_THOROUGH").is_some() { 1 } else { 4 }
}

#[tokio::test]
async fn a_hub_on_sqlite_killed_while_it_archives_loses_no_line_of_the_audit() {
    let mut points = 0;
    for last in (1..).step_by(step()) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("hub.sqlite").display());
        if !dies(&url, &directory.path().join("audit"), last).await {
            break;
        }
        points += 1;
    }
    assert!(points >= 30 / step(), "{points} points");
}

#[tokio::test]
async fn a_hub_on_postgresql_killed_while_it_archives_loses_no_line_of_the_audit() {
    let postgres = TestPostgres::start();
    let mut points = 0;
    for last in (1..).step_by(step()) {
        let directory = tempfile::tempdir().unwrap();
        let url = postgres.database(&format!("hub{last}"));
        if !dies(&url, &directory.path().join("audit"), last).await {
            break;
        }
        points += 1;
    }
    assert!(points >= 30 / step(), "{points} points");
}
