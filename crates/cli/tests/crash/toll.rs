//! A gate on the way to the simulated node: every request passes one by one, is counted, and may be the one at which
//! the agent is killed, before the node has it or when the node has answered and nobody has heard.
//!
//! It changes nothing of what it passes on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::killed::ConfigSide;

/// A killed process is gone within this time.
const DEATH_MAX: Duration = Duration::from_mins(2);

/// At which request the agent is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strike {
    pub(crate) nth: usize,
    pub(crate) side: ConfigSide,
    pub(crate) process: u32,
}

/// The gate. It ends with the process of the test.
pub(crate) struct Toll {
    pub(crate) url: String,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Method and path of what came since the gate was set.
    passed: Vec<String>,
    strike: Option<Strike>,
    struck: bool,
}

impl Toll {
    /// Passes everything on to this address.
    pub(crate) fn before(node: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let counted = Arc::new(Mutex::new(Counted::default()));
        let node = node.to_owned();
        let shared = Arc::clone(&counted);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let node = node.clone();
                let counted = Arc::clone(&shared);
                // A broken connection is for both ends to notice.
                std::thread::spawn(move || pass_all(client, &node, &counted).ok());
            }
        });
        Self { url, counted }
    }

    /// Counts from here on, and kills at the given request.
    pub(crate) fn set(&self, strike: Option<Strike>) {
        *self.counted.lock().unwrap() = Counted { strike, ..Counted::default() };
    }

    /// What came since then, and whether somebody was killed for it.
    pub(crate) fn passed(&self) -> (Vec<String>, bool) {
        let counted = self.counted.lock().unwrap();
        (counted.passed.clone(), counted.struck)
    }
}

/// Passes the requests of one connection.
fn pass_all(client: TcpStream, node: &str, counted: &Mutex<Counted>) -> std::io::Result<()> {
    let server = TcpStream::connect(node)?;
    let mut to_client = client.try_clone()?;
    let mut to_server = server.try_clone()?;
    let mut from_client = BufReader::new(client);
    let mut from_server = BufReader::new(server);
    while let Some(request) = message(&mut from_client)? {
        let strike = count(counted, &request);
        if let Some(Strike { side: ConfigSide::Before, process, .. }) = strike {
            kill(process);
            break;
        }
        to_server.write_all(&request)?;
        let Some(answer) = message(&mut from_server)? else { break };
        if let Some(Strike { process, .. }) = strike {
            kill(process);
            break;
        }
        to_client.write_all(&answer)?;
    }
    Ok(())
}

/// Counts a request, and whether it is the one.
fn count(counted: &Mutex<Counted>, request: &[u8]) -> Option<Strike> {
    let mut counted = counted.lock().unwrap();
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    counted.passed.push(String::from_utf8_lossy(line).replace(" HTTP/1.1", ""));
    let strike = counted.strike.filter(|strike| strike.nth == counted.passed.len());
    counted.struck |= strike.is_some();
    strike
}

/// One message of HTTP/1.1 as it came, head and body; none at the end.
fn message(from: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut length = 0;
    loop {
        let begins = bytes.len();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes[begins..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let head = bytes.len();
    bytes.resize(head + length, 0);
    from.read_exact(&mut bytes[head..])?;
    Ok(Some(bytes))
}

/// Kills a process, and returns when it does nothing any more.
pub(crate) fn kill(process: u32) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-9", &process.to_string()]).output();
    let deadline = Instant::now() + DEATH_MAX;
    while is_alive(process) {
        assert!(Instant::now() < deadline, "process {process} does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is there and not a mere entry that waits for its parent.
pub(crate) fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
