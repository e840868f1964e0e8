//! A hub that is killed at any moment: what it acknowledged is there, and nothing is there by half.
//!
//! A child process opens the store and does what routes do, telling after each act that it is done; it is killed at each
//! point between two steps of a write, and on SQLite at each call that writes or syncs the file. A power cut is more than a kill:
//! that each commit is synced is asserted by counting.

use std::io::Write as _;
use std::process::Command;

use evenkeel_core::fleet::{GuestReport, HostReport, ToldOperation};

use super::document;
use evenkeel_hub::death_point;
use evenkeel_hub::secret_text::{SecretKind, SecretText, random_hex};
use evenkeel_hub::store::{
    Database, EnvelopeKind, HubStore, HubTime, NewEnvelope, NewHead, NewHost, NewReport,
};
use evenkeel_testkit::postgres::TestPostgres;

const DATABASE: &str = "EVENKEEL_HUB_TEST_DATABASE";
const SAYS: &str = "EVENKEEL_HUB_TEST_SAYS";
const HOSTS: [&str; 2] = ["pve1", "pve2"];
const ACTS: [&str; 5] = ["token", "enrol", "push", "report", "submit"];

/// What must be there together: each query answers 1 or, all of them, 0.
const PARTS: [(&str, &[&str]); 5] = [
    (
        "token",
        &[
            "SELECT COUNT(*) FROM enrol_tokens WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM audit WHERE act = 'enrol_token.make' AND subject = 'HOST'",
        ],
    ),
    (
        "enrol",
        &[
            "SELECT COUNT(*) FROM hosts WHERE id = 'HOST'",
            "SELECT COUNT(*) FROM enrol_tokens WHERE host = 'HOST' AND used_at > 0",
            "SELECT COUNT(*) FROM audit WHERE act = 'host.enrol' AND subject = 'HOST'",
        ],
    ),
    (
        "push",
        &[
            "SELECT COUNT(*) FROM documents WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM hosts WHERE id = 'HOST' AND wanted = 1",
            "SELECT COUNT(*) FROM files WHERE text = 'text of HOST'",
            "SELECT COUNT(*) FROM manifest_files f JOIN documents d ON d.manifest = f.manifest WHERE d.host = 'HOST'",
            "SELECT COUNT(*) FROM audit WHERE act = 'document.push' AND subject = 'HOST'",
        ],
    ),
    (
        "report",
        &[
            "SELECT COUNT(*) FROM guests WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM ops WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM anchors WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM host_states WHERE host = 'HOST'",
            "SELECT COUNT(*) FROM hosts WHERE id = 'HOST' AND seq = 1",
        ],
    ),
    (
        "submit",
        &[
            "SELECT COUNT(*) FROM envelopes WHERE host = 'HOST' AND cursor = 1",
            "SELECT COUNT(*) FROM hosts WHERE id = 'HOST' AND cursor = 1",
            "SELECT COUNT(*) FROM audit WHERE act = 'envelope.submit' AND subject = 'HOST'",
        ],
    ),
];

/// This test binary, to run one of its children.
pub(super) fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs it; whether it was killed. Any other end but success is a failure.
pub(super) fn killed(command: &mut Command) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    let ended = command.output().unwrap();
    // strace ends as what it traced did.
    let was_killed = ended.status.signal() == Some(9);
    assert!(was_killed || ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    was_killed
}

/// The process that writes and dies. Only other tests start it.
#[tokio::test]
#[ignore = "a child of other tests"]
async fn writing_child() {
    let (Ok(url), Ok(says)) = (std::env::var(DATABASE), std::env::var(SAYS)) else { return };
    let mut says = std::fs::OpenOptions::new().append(true).create(true).open(says).unwrap();
    let store = HubStore::open(Database::from_url(&url).unwrap()).await.unwrap();
    for host in HOSTS {
        for act in ACTS {
            perform(&store, host, act).await;
            // In one call: a line is there or not.
            says.write_all(format!("{host} {act}\n").as_bytes()).unwrap();
        }
    }
    store.close().await;
}

async fn perform(store: &HubStore, host: &str, act: &str) {
    let token = SecretText::read(
        SecretKind::EnrolToken,
        &format!("evke_{}", &"0123456789abcdef".repeat(4)),
    )
    .unwrap();
    let token = if host == "pve1" { token } else { SecretText::draw(SecretKind::EnrolToken) };
    match act {
        "token" => {
            store.make_enrol_token(token.hash(), host, false, "alice").await.unwrap();
            TOKENS.lock().unwrap().push(token);
        }
        "enrol" => {
            let token = TOKENS.lock().unwrap().pop().unwrap().hash();
            let credential = SecretText::draw(SecretKind::Credential).hash();
            let (host, key) = (host.to_owned(), format!("key of {host}"));
            let host =
                NewHost { token, host, key_line: key.clone(), key_fingerprint: key, credential };
            store.enrol(host).await.unwrap().unwrap();
        }
        "push" => {
            store.push(document(host, 0, &format!("text of {host}"))).await.unwrap();
        }
        "report" => store.report(report(host)).await.unwrap(),
        "submit" => {
            let envelope = NewEnvelope {
                id: format!("env_{}", random_hex(16)),
                host: host.to_owned(),
                kind: EnvelopeKind::Rotation,
                item: String::new(),
                body: "{}".to_owned(),
                expires_at: HubTime::now().plus_s(3600),
                submitted_by: "alice".to_owned(),
            };
            store.submit(envelope).await.unwrap();
        }
        other => unreachable!("{other}"),
    }
}

static TOKENS: std::sync::Mutex<Vec<SecretText>> = std::sync::Mutex::new(Vec::new());

fn report(host: &str) -> NewReport {
    let guest = GuestReport { guest: "lxc/101".to_owned(), ..GuestReport::default() };
    let op = ToldOperation { op: "op_1".to_owned(), ..ToldOperation::default() };
    NewReport {
        host: host.to_owned(),
        key_fingerprint: format!("key of {host}"),
        instance: "00000000000000aa".to_owned(),
        seq: 1,
        base: 0,
        report: HostReport { guests: vec![guest], ops: vec![op], ..HostReport::default() },
        head: Some(NewHead { epoch: 1, seq: 1, sum: "aa".to_owned(), sealed: "{}".to_owned() }),
    }
}

/// What is in the database fits what was acknowledged; how many acts were.
async fn judge(url: &str, says: &str, when: &str) -> usize {
    let store = HubStore::open(Database::from_url(url).unwrap()).await.unwrap();
    assert_eq!(store.check().await.unwrap().faults, Vec::<String>::new(), "{when}");
    let mut connection = store.database().connection().await.unwrap();
    for host in HOSTS {
        for (act, queries) in PARTS {
            let mut found = Vec::new();
            for query in queries {
                use sqlx::Row as _;
                let query = sqlx::AssertSqlSafe(query.replace("HOST", host));
                let row = sqlx::query(query).fetch_one(&mut connection).await.unwrap();
                found.push(row.try_get::<i64, _>(0).unwrap());
            }
            assert!(
                found.iter().all(|part| *part == found[0] && *part <= 1),
                "{when}: {host} {act} is there by half: {found:?}"
            );
            let acknowledged = says.lines().any(|line| line == format!("{host} {act}"));
            assert!(
                !acknowledged || found[0] == 1,
                "{when}: {host} {act} was acknowledged and is lost"
            );
        }
    }
    store.close().await;
    says.lines().count()
}

/// Kills a child at one point; whether there was such a point.
async fn dies(url: &str, mut command: Command, when: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let says = directory.path().join("says");
    command.env(DATABASE, url).env(SAYS, &says);
    let was_killed = killed(&mut command);
    let said = std::fs::read_to_string(&says).unwrap_or_default();
    let acknowledged = judge(url, &said, when).await;
    assert!(was_killed || acknowledged == HOSTS.len() * ACTS.len(), "{when}");
    was_killed
}

/// Every point in `./test`, some of them while editing.
fn step() -> usize {
    if std::env::var_os("EVENKEEL_THOROUGH").is_some() { 1 } else { 7 }
}

async fn made(url: &str) {
    HubStore::open(Database::from_url(url).unwrap()).await.unwrap().close().await;
}

#[tokio::test]
async fn a_hub_on_sqlite_killed_between_any_two_steps_loses_nothing_it_acknowledged() {
    let mut points = 0;
    for last in (1..).step_by(step()) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("hub.sqlite").display());
        let mut command = child("crash::writing_child");
        command.env(death_point::LAST, last.to_string());
        if !dies(&url, command, &format!("point {last}")).await {
            break;
        }
        points += 1;
    }
    assert!(points >= 40 / step(), "{points} points");
}

#[tokio::test]
async fn a_hub_on_postgresql_killed_between_any_two_steps_loses_nothing_it_acknowledged() {
    let postgres = TestPostgres::start();
    let mut points = 0;
    for last in (1..).step_by(step()) {
        let url = postgres.database(&format!("hub{last}"));
        made(&url).await;
        let mut command = child("crash::writing_child");
        command.env(death_point::LAST, last.to_string());
        if !dies(&url, command, &format!("point {last}")).await {
            break;
        }
        points += 1;
    }
    assert!(points >= 30 / step(), "{points} points");
}

fn strace(what: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]).args(what);
    let one = child("crash::writing_child");
    command.arg(one.get_program()).args(one.get_args());
    command
}

#[tokio::test]
async fn a_hub_on_sqlite_killed_at_any_write_or_sync_of_its_file_loses_nothing_it_acknowledged() {
    let probe = Command::new("strace")
        .args(["-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"])
        .output();
    if !probe.is_ok_and(|ended| ended.status.success()) {
        println!("skipped: strace cannot inject here");
        return;
    }
    // SQLite as it is built here syncs with `fsync`; a call that is never made would leave its half of this test out.
    for (call, skips, least) in [("pwrite64", 3, 40), ("fsync", 1, 8)] {
        let mut points = 0;
        for nth in (1..).step_by(step() * skips) {
            let directory = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", directory.path().join("hub.sqlite").display());
            made(&url).await;
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let command = strace(&["-e", &format!("trace={call}"), "-e", &inject]);
            if !dies(&url, command, &format!("{call} {nth}")).await {
                break;
            }
            points += 1;
        }
        println!("killed at {points} of {call}");
        assert!(points >= least / (step() * skips), "{points} points of {call}");
    }
}

/// What a kill cannot show: that a commit is on the disk, and not only in the system's memory, before it is acknowledged.
#[tokio::test]
async fn every_acknowledged_act_on_sqlite_was_synced() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("hub.sqlite").display());
    made(&url).await;
    let log = directory.path().join("trace");
    let says = directory.path().join("says");
    let one = child("crash::writing_child");
    let ended = Command::new("strace")
        .args(["-f", "-qq", "-y", "-e", "trace=pwrite64,fdatasync,fsync,write", "-o"])
        .arg(&log)
        .arg(one.get_program())
        .args(one.get_args())
        .env(DATABASE, &url)
        .env(SAYS, &says)
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let mut unsynced = 0;
    let mut acknowledged = 0;
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        if line.contains("hub.sqlite-wal>") && line.contains("pwrite64(") {
            unsynced += 1;
        } else if line.contains("hub.sqlite-wal>") && line.contains("sync(") {
            unsynced = 0;
        } else if line.contains("/says>") {
            acknowledged += 1;
            assert_eq!(unsynced, 0, "acknowledged before it was synced: {line}");
        }
    }
    assert_eq!(acknowledged, HOSTS.len() * ACTS.len());
}
