//! A real PostgreSQL for tests: Debian's, in a directory of its own, gone with the test. Missing PostgreSQL is a failure.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_mins(2);

/// A server that listens on a socket in its own directory.
pub struct TestPostgres {
    directory: tempfile::TempDir,
    server: Child,
}

impl TestPostgres {
    /// Makes a cluster and starts it, without syncs: a test's data is worth none.
    pub fn start() -> Self {
        let bin = binaries();
        let directory = tempfile::Builder::new().prefix("ekpg").tempdir_in("/tmp").unwrap();
        let data = directory.path().join("data");
        if is_root() {
            // PostgreSQL refuses to run as root.
            let owned =
                Command::new("chown").arg("postgres").arg(directory.path()).status().unwrap();
            assert!(
                owned.success(),
                "the user postgres is missing: install the package postgresql"
            );
        }
        let mut initdb = as_server_user(&bin.join("initdb"));
        initdb.args([
            "--no-sync",
            "--auth=trust",
            "--username=hub",
            "--encoding=UTF8",
            "--locale=C",
        ]);
        let made = initdb.arg("-D").arg(&data).current_dir("/").output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut postgres = as_server_user(&bin.join("postgres"));
        postgres.arg("-D").arg(&data).arg("-k").arg(directory.path()).args(["-h", "", "-F"]);
        postgres.args(["-c", "max_connections=400", "-c", "shared_buffers=64MB"]);
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let server = postgres
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let postgres = Self { directory, server };
        postgres.wait_until_it_answers(&bin);
        postgres
    }

    fn wait_until_it_answers(&self, bin: &Path) {
        let began = Instant::now();
        loop {
            let mut ready = Command::new(bin.join("pg_isready"));
            ready
                .arg("-q")
                .arg("-h")
                .arg(self.directory.path())
                .args(["-U", "hub", "-d", "postgres"]);
            if ready.status().unwrap().success() {
                return;
            }
            let log =
                std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < ANSWERS_WITHIN, "PostgreSQL does not answer: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes an empty database; its address.
    pub fn database(&self, name: &str) -> String {
        let created = Command::new(binaries().join("createdb"))
            .arg("-h")
            .arg(self.directory.path())
            .args(["-U", "hub", name])
            .output()
            .unwrap();
        assert!(created.status.success(), "createdb: {}", String::from_utf8_lossy(&created.stderr));
        format!("postgres://hub@localhost/{name}?host={}", self.directory.path().display())
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // `runuser` passes the signal on; QUIT ends the server at once, and nothing in it is worth a clean end.
        let pid = std::fs::read_to_string(self.directory.path().join("data/postmaster.pid"))
            .unwrap_or_default();
        if let Some(pid) = pid.lines().next() {
            let _ = Command::new("kill").args(["-QUIT", pid]).status();
        }
        let _ = self.server.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_server_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

/// Where Debian keeps the server's programs: the newest version there is.
fn binaries() -> PathBuf {
    let entries = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, path): &(u32, PathBuf)| path.join("initdb").exists())
        .collect();
    versions.sort();
    let newest = versions.pop();
    newest
        .expect("PostgreSQL is missing: install the package postgresql; this suite never skips it")
        .1
}
