//! A running agent in a process of its own, beside a simulated node.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Node, Run};

/// How long anything that must happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The agent; dropping it kills it, so that no failed test leaves one behind.
pub(crate) struct Agent {
    child: Child,
    log: std::path::PathBuf,
}

/// Writes the agent's configuration: the token of all rights, desired files in `desired`, state in `state`.
pub(crate) fn configure(node: &Node, more: &str) {
    let (id, secret, _) = evenkeel_sim::TOKENS[0];
    let token = node.desk.token_file(&format!("{id}={secret}"), 0o600);
    let work = node.desk.work.path().display();
    let text = format!(
        "{more}\n[pve]\nurl = \"{}\"\nnode = \"pve1\"\nfingerprint = \"{}\"\ntoken_file = \"{}\"\n\
         [state]\ndir = \"{work}/state\"\n",
        node.http.url(),
        node.http.certificate().fingerprint,
        token.display(),
    );
    node.desk.write("agent.toml", &text);
}

/// `interval` at its shortest, and the desired directory.
pub(crate) fn usual(node: &Node) -> String {
    format!("interval = 5\ndesired.dir = \"{}/desired\"", node.desk.work.path().display())
}

impl Agent {
    /// Starts the agent; it may not be ready yet.
    pub(crate) fn start(node: &Node) -> Self {
        Self::start_with(node, |command| command)
    }

    pub(crate) fn start_with(node: &Node, more: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let log = node.desk.work.path().join("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = node.desk.command("run");
        command.args(["-c", "agent.toml", "--log", "debug"]).stderr(file);
        let child = more(&mut command).spawn().unwrap();
        Self { child, log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything logged so far, by every agent of this test.
    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        for (_, secret, _) in evenkeel_sim::TOKENS {
            assert!(!text.contains(secret), "a token in the log: {text}");
        }
        assert!(!text.contains('\x1b'), "escape bytes in a log that is no terminal: {text:?}");
        text
    }

    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill").args([&signal, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the end, and its exit code; none if a signal ended it.
    pub(crate) fn end(mut self) -> Option<i32> {
        let log = self.log.clone();
        let what = || format!("the end; the log is:\n{}", std::fs::read_to_string(&log).unwrap());
        let status = wait_for(what, || self.child.try_wait().unwrap());
        status.code()
    }

    /// Asks it to end, as systemd does.
    pub(crate) fn terminate(self) {
        self.signal("TERM");
        assert_eq!(self.end(), Some(0), "a signal to end is no error");
    }

    /// Waits until the log says something.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        let what = || format!("`{text}` in the log:\n{}", self.log());
        wait_for(what, || self.log().contains(text).then_some(()));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After an ordinary end there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is there.
#[track_caller]
pub(crate) fn wait_for<T>(what: impl Fn() -> String, mut there: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `evenkeel status`, whatever it ends with.
pub(crate) fn status(node: &Node, arguments: &[&str]) -> Run {
    node.desk.run("status", &[&["-c", "agent.toml"], arguments].concat())
}

/// The status as JSON, once it is as wanted.
#[track_caller]
pub(crate) fn status_when(node: &Node, wanted: impl Fn(&Value) -> bool) -> Value {
    let ask = || {
        let run = status(node, &["-o", "json"]);
        serde_json::from_str::<Value>(&run.stdout).unwrap_or(Value::Null)
    };
    wait_for(|| format!("another status than {:#}", ask()), || Some(ask()).filter(&wanted))
}

/// The requests that change something, as they arrived.
pub(crate) fn writes(node: &Node) -> Vec<String> {
    let requests = node.requests();
    let writes = requests.iter().filter(|request| request.mutating);
    writes.map(|request| format!("{} {}", request.method, request.path)).collect()
}

/// A service manager that listens.
pub(crate) struct Manager {
    socket: UnixDatagram,
    pub(crate) path: std::path::PathBuf,
}

impl Manager {
    pub(crate) fn new(node: &Node) -> Self {
        let path = node.desk.work.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path }
    }

    /// The next message that holds this text.
    #[track_caller]
    pub(crate) fn hears(&self, text: &str) -> String {
        let mut heard = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "waited in vain for {text}, heard {heard:?}");
            let mut bytes = [0; 4096];
            let Ok(length) = self.socket.recv(&mut bytes) else {
                panic!("waited in vain for {text}, heard {heard:?}");
            };
            let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
            if message.contains(text) {
                return message;
            }
            heard.push(message);
        }
    }

    /// Whether nothing is heard for a second, sooner or later.
    pub(crate) fn falls_silent(&self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut bytes = [0; 4096];
        let silent = (0..100).any(|_| self.socket.recv(&mut bytes).is_err());
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }
}
