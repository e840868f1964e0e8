//! A hub's process, a person's home with keys, and a host that only the test pretends to be.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_core::fleet::HostReport;
use evenkeel_core::sign::PublicKey;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::server::open_store;
use evenkeel_hub::store::{HubStore, NewHost, NewReport};
use serde_json::Value;

/// How long anything that must happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// What a run of the binary left.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A person's home.
pub(crate) struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let desk = Self { directory: tempfile::tempdir().unwrap() };
        for key in ["alice", "author", "host"] {
            let path = desk.path(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
                .arg(path)
                .status()
                .unwrap();
            assert!(made.success());
        }
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn key(&self, name: &str) -> PublicKey {
        PublicKey::from_line(self.read(&format!("{name}.pub")).trim()).unwrap()
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(EVENKEEL);
        command
            .args(line.split_whitespace())
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("USER", "alice")
            // A copy of the tree with planted bugs asks which one is wanted.
            .envs(std::env::var_os("EVENKEEL_PLANTED").map(|bug| ("EVENKEEL_PLANTED", bug)))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Told {
        let output = self.command(line).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let told = Told {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        for stream in [&told.out, &told.err] {
            assert!(!stream.contains("evka_"), "a token was printed: {stream}");
            assert!(!stream.contains('\u{1b}'), "an escape was printed: {stream}");
        }
        told
    }
}

/// A hub's process; ends with its value.
pub(crate) struct HubProcess {
    child: Child,
    pub(crate) url: String,
    pub(crate) fingerprint: String,
    /// For the first admin of a new database; else empty.
    pub(crate) admin_link: String,
}

impl HubProcess {
    pub(crate) fn start(desk: &Desk, state: &str, listen: &str) -> Self {
        Self::start_with(desk, state, listen, "")
    }

    pub(crate) fn start_with(desk: &Desk, state: &str, listen: &str, more: &str) -> Self {
        let line = format!("hub --listen {listen} --state {state} -o json --log error {more}");
        let mut child = desk.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let text = |name: &str| ready[name].as_str().unwrap().to_owned();
        Self {
            child,
            url: text("url"),
            fingerprint: ready["fingerprint"].as_str().unwrap_or_default().to_owned(),
            admin_link: ready["admin_link"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hub's database behind its back: what hosts would have sent.
pub(crate) struct Behind {
    runtime: tokio::runtime::Runtime,
    pub(crate) store: HubStore,
    seq: std::cell::Cell<i64>,
}

impl Behind {
    pub(crate) fn open(state: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let store = runtime.block_on(open_store(state, None)).unwrap();
        Self { runtime, store, seq: std::cell::Cell::new(0) }
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A host that enrolled.
    pub(crate) fn enrol(&self, host: &str, key: &PublicKey) {
        let token = SecretText::draw(SecretKind::EnrolToken);
        let made = self.store.make_enrol_token(token.hash(), host, false, "server");
        self.wait(made).unwrap();
        let new = NewHost {
            token: token.hash(),
            host: host.to_owned(),
            key_line: key.to_string(),
            key_fingerprint: key.fingerprint().to_string(),
            credential: SecretText::draw(SecretKind::Credential).hash(),
        };
        self.wait(self.store.enrol(new)).unwrap().unwrap();
    }

    /// What a host says.
    pub(crate) fn report(&self, host: &str, key: &PublicKey, report: HostReport) {
        let base = self.seq.get();
        self.seq.set(base + 1);
        let new = NewReport {
            host: host.to_owned(),
            key_fingerprint: key.fingerprint().to_string(),
            instance: "0123456789abcdef".to_owned(),
            seq: base + 1,
            base,
            report,
            head: None,
        };
        self.wait(self.store.report(new)).unwrap();
    }
}
