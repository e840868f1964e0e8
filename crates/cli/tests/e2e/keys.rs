//! An operator's desk: real keys by `ssh-keygen`, a host with a real key that raises a pending item, and a
//! terminal to answer on.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use evenkeel_agent::host_key::HostKey;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Expected, HostBinding, Loss, Nonce, PendingItem, TrustVersion};

use crate::support::{Desk, Run};
use evenkeel_testkit::signing_keys::{DIGEST, IDENTITY, destroy_params};

/// The kinds of keys `ssh-keygen` makes without a device.
pub(crate) const KINDS: [&str; 2] = ["ed25519", "ecdsa"];

/// A host, and an operator who has its item as `item.json`.
pub(crate) struct Operator {
    pub(crate) desk: Desk,
    pub(crate) host: HostKey,
}

impl Operator {
    /// Pins the host, unless told otherwise.
    pub(crate) fn new() -> Self {
        let operator = Self::without_pin();
        operator.pin(&operator.host);
        operator
    }

    pub(crate) fn without_pin() -> Self {
        let desk = Desk::new();
        let host = HostKey::load_or_create(&desk.work.path().join("host")).unwrap();
        desk.write("item.json", &host.sign_pending(&item(&host)).unwrap());
        Self { desk, host }
    }

    /// Writes the one line of the file of pinned hosts.
    pub(crate) fn pin(&self, host: &HostKey) {
        let line = format!("pve1 {}\n", host.public());
        self.desk.write(".config/evenkeel/known_hosts", &line);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.desk.work.path().join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// A key pair `name` and `name.pub`.
    pub(crate) fn generate(&self, kind: &str, name: &str) {
        self.generate_with(&["-t", kind, "-N", ""], name);
    }

    pub(crate) fn generate_with(&self, options: &[&str], name: &str) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-C", name, "-f", name]).args(options);
        let made = command.current_dir(self.desk.work.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// `trust.toml` with alice's operational key and a recovery key.
    pub(crate) fn trust(&self, kind: &str) {
        self.generate(kind, "alice");
        self.generate("ed25519", "vault");
        self.enrol("alice", "operational").ends_with(0);
        self.enrol("vault", "recovery").ends_with(0);
    }

    /// Enrols a key under the name of its file.
    pub(crate) fn enrol(&self, name: &str, role: &str) -> Run {
        let key = format!("{name}.pub");
        self.run(&[
            "signers",
            "enrol",
            &key,
            "--name",
            name,
            "--role",
            role,
            "--trust",
            "trust.toml",
        ])
    }

    /// Runs the binary where `ssh-keygen` is found.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let mut command = self.desk.command(arguments[0]);
        command.env("PATH", path_with_evenkeel()).args(&arguments[1..]);
        self.desk.finish(command)
    }

    /// Signs the item by alice's key, without being asked.
    pub(crate) fn approve(&self, out: &str) -> Run {
        self.run(&[
            "sign",
            "item.json",
            "--key",
            "alice",
            "--out",
            out,
            "-y",
            "--reason",
            "test box",
        ])
    }

    /// Runs a shell script that may call evenkeel and OpenSSH.
    pub(crate) fn shell(&self, script: &str) -> Run {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]);
        self.in_shell(command)
    }

    /// The same with an ssh-agent of its own, which ends with it.
    pub(crate) fn shell_with_agent(&self, script: &str) -> Run {
        let mut command = Command::new("ssh-agent");
        command.args(["sh", "-e", "-c", script]);
        self.in_shell(command)
    }

    fn in_shell(&self, mut command: Command) -> Run {
        command.env_clear().env("PATH", path_with_evenkeel());
        command.env("HOME", self.desk.work.path()).current_dir(self.desk.work.path());
        self.desk.told(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs the binary on a terminal wide enough that no line is broken, and answers yes to its one question. Everything
    /// that was shown is in `stderr`.
    pub(crate) fn agrees(&self, arguments: &[&str]) -> Run {
        let words: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let mut terminal = Terminal::shell(
            &self.desk,
            &format!("stty cols 400; exec evenkeel {}", words.join(" ")),
        );
        writeln!(terminal.child.stdin.as_mut().unwrap(), "y").unwrap();
        let (code, stderr) = terminal.ends();
        self.desk.ran(code, stderr)
    }

    /// Runs the binary on a terminal.
    pub(crate) fn on_a_terminal(&self, command_line: &str) -> Terminal {
        Terminal::run(&self.desk, command_line)
    }
}

/// A pending item: destroy qemu/101.
pub(crate) fn item(host: &HostKey) -> PendingItem {
    PendingItem {
        op: ActionKind::Destroy,
        host: HostBinding { id: "pve1".parse().unwrap(), key: host.public().fingerprint() },
        guest: "qemu/101".parse().unwrap(),
        guest_name: "web".to_owned(),
        expected: Expected::Guest {
            identity: IDENTITY.parse().unwrap(),
            digest: DIGEST.parse().unwrap(),
        },
        params: destroy_params(),
        losses: vec![Loss {
            what: "local-lvm:vm-101-disk-0".to_owned(),
            size_bytes: Some(17_179_869_184),
        }],
        last_backup: evenkeel_core::sign::LastBackup::Never,
        serial: Nonce::from_random([5; 16]).unwrap(),
        raised_at: UnixSeconds(1_794_772_800),
        trust_version: TrustVersion(1),
    }
}

fn path_with_evenkeel() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_evenkeel"));
    format!("{}:/usr/bin:/bin", binary.parent().unwrap().display())
}

/// A run on a terminal, told and answered step by step.
pub(crate) struct Terminal {
    child: Child,
    seen: String,
}

impl Terminal {
    pub(crate) fn run(desk: &Desk, command_line: &str) -> Self {
        Self::shell(desk, &format!("evenkeel {command_line}"))
    }

    fn shell(desk: &Desk, script: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", script, "/dev/null"]);
        command.env_clear().env("PATH", path_with_evenkeel()).env("SHELL", "/bin/sh");
        command.env("HOME", desk.work.path()).current_dir(desk.work.path());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { child, seen: String::new() }
    }

    /// Waits until something is shown. A run that ends before that fails the test.
    #[track_caller]
    pub(crate) fn shows(mut self, text: &str) -> Self {
        let stdout = self.child.stdout.as_mut().unwrap();
        let mut byte = [0; 1];
        while !self.seen.ends_with(text) {
            let read = stdout.read(&mut byte).unwrap();
            assert_eq!(read, 1, "it ended without {text:?}:\n{}", self.seen);
            self.seen.push(char::from(byte[0]));
        }
        self
    }

    pub(crate) fn types(mut self, line: &str) -> Self {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self
    }

    /// Presses Ctrl-C.
    pub(crate) fn interrupts(mut self) -> Self {
        self.child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
        self
    }

    /// Waits for the end: exit code and everything that was shown.
    pub(crate) fn ends(mut self) -> (i32, String) {
        // A question nobody expects meets the end of the input instead of a test that waits for ever.
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        (self.child.wait().unwrap().code().unwrap(), self.seen.replace('\r', ""))
    }
}

/// What differs from run to run, by its kind: fingerprints, hashes, keys, times.
pub(crate) fn steady(text: &str) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "+/:=-".contains(letter);
    let mut out = String::new();
    let mut word = String::new();
    for letter in text.chars().chain(['\n']) {
        if is_word(letter) {
            word.push(letter);
            continue;
        }
        out.push_str(&kind_of(&word));
        word.clear();
        out.push(letter);
    }
    out.pop();
    out
}

fn kind_of(word: &str) -> String {
    let hex = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // The identity and the digest of the item are repeated digits and stay.
    let repeated = word.bytes().all(|byte| Some(&byte) == word.as_bytes().first());
    if word.starts_with("SHA256:") {
        "SHA256:PRINT".to_owned()
    } else if word.starts_with("AAAA") {
        "BASE64".to_owned()
    } else if hex && !repeated && matches!(word.len(), 32 | 64) {
        format!("HEX-{}", word.len())
    } else if word.len() == 20 && word.ends_with('Z') && word != "2026-11-15T20:00:00Z" {
        "TIME".to_owned()
    } else {
        word.to_owned()
    }
}
