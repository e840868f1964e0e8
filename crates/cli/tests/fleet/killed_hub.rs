//! The hub that ships, on SQLite, killed at its calls while hosts and people ask over HTTP.
//!
//! Each point is a hub of its own under `strace`, killed at the nth call of a kind: a write or a sync of its file, or an
//! answer about to leave. Then it is started again. What was acknowledged must be there, nothing by half, and whoever got no
//! answer asks again and is done. A sample runs with the other tests; `scripts/hub-crash` runs every point.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::store::{Account, AccountKey, NewAccount, PersonRole};
use serde_json::Value;

use crate::desk::{Behind, EVENKEEL};
use crate::hub_acts::{ACTS, ActingHost, PUBLIC_URL};

/// Said by `scripts/hub-crash`: how many points are struck at a time, and that all of them are.
const WHOLE: &str = "EVENKEEL_HUB_CRASH_PARALLEL";
const HOSTS: u8 = 2;

/// The calls a hub is killed at, and every which of them in a sample.
const CALLS: [(&str, usize); 6] =
    [("pwrite64", 29), ("fsync", 4), ("ftruncate", 3), ("unlink", 3), ("sendto", 7), ("writev", 7)];

/// A database with a person who may do everything, and nothing else.
struct Template {
    state: tempfile::TempDir,
    hub_id: String,
    api_token: String,
}

impl Template {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let behind = Behind::open(state.path());
        let key = AccountKey { fingerprint: "print".to_owned(), key_line: "line".to_owned() };
        let account = Account::new("alice", PersonRole::Admin, "*").unwrap();
        let new = NewAccount { account, key, made_by: "server".to_owned(), first_code: None };
        behind.wait(behind.store.add_account(new)).unwrap();
        let token = SecretText::draw(SecretKind::ApiToken);
        let opened = behind.store.open_token(token.hash(), "alice", "print", 36_000);
        behind.wait(opened).unwrap().unwrap();
        let hub_id = behind.store.hub_id().to_owned();
        behind.wait(behind.store.close());
        Self { state, hub_id, api_token: token.reveal().to_owned() }
    }

    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs_err::read_dir(self.state.path()).unwrap() {
            let entry = entry.unwrap();
            fs_err::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }
}

/// A hub's process, and where it listens; nowhere if it died before it could say so.
struct StruckHub {
    child: Child,
    address: Option<String>,
}

impl StruckHub {
    fn start(state: &Path, inject: Option<(&str, usize)>) -> Self {
        let mut command = match inject {
            None => Command::new(EVENKEEL),
            Some((call, nth)) => {
                let mut command = Command::new("strace");
                command.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
                command.arg("-e").arg(format!("inject={call}:signal=KILL:when={nth}"));
                command.arg(EVENKEEL);
                command
            }
        };
        command.args(["hub", "--plain-http", "--listen", "127.0.0.1:0", "--log", "error"]);
        command.args(["-o", "json", "--public-url", PUBLIC_URL, "--state"]).arg(state);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut address = None;
        // With --public-url the ready line names that; where it listens is asked of the kernel.
        let mut line = String::new();
        if stdout.read_line(&mut line).unwrap_or(0) > 0 {
            address = listening(hub_pid(&child, inject.is_some()));
        }
        Self { child, address }
    }

    /// Tells it to end, if it still runs; whether it was killed before that or by it.
    fn end(mut self, traced: bool) -> bool {
        let ended = self.child.try_wait().unwrap();
        if ended.is_none()
            && let Some(pid) = hub_pid(&self.child, traced)
        {
            // It may be dying.
            let mut tell = Command::new("kill");
            let _ = tell.arg("-TERM").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
        let status = self.child.wait().unwrap();
        // strace ends as what it traced did.
        let was_killed = status.signal() == Some(9);
        assert!(was_killed || status.success(), "{status}");
        was_killed
    }
}

/// The hub's own process: under strace it is its child.
fn hub_pid(child: &Child, traced: bool) -> Option<u32> {
    if !traced {
        return Some(child.id());
    }
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    fs_err::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Where a process listens on loopback, by the kernel's tables.
fn listening(pid: Option<u32>) -> Option<String> {
    let pid = pid?;
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    // The fields: number, local address, remote address, state (0A listens), …, inode.
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(3) == Some(&"0A") && sockets.iter().any(|it| it == fields[9]);
        let (_, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        listens.then(|| format!("127.0.0.1:{port}"))
    })
}

/// What was acknowledged: host and act.
type Acknowledged = Vec<(String, &'static str)>;

/// Everything in order, from the first that was not acknowledged, until an answer is missing.
fn act(hosts: &mut [ActingHost], address: &str, acknowledged: &mut Acknowledged) -> Option<()> {
    for host in hosts {
        for act in ACTS {
            let name = (host.id.clone(), act);
            if !acknowledged.contains(&name) {
                host.perform(address, act)?;
                acknowledged.push(name);
            }
        }
    }
    Some(())
}

fn judge(hosts: &[ActingHost], address: &str, acknowledged: &Acknowledged, when: &str) {
    for host in hosts {
        for (act, parts) in host.seen(address) {
            let is_whole = parts.iter().all(|part| *part == parts[0] && *part <= 1);
            assert!(is_whole, "{when}: {} {act} is there by half: {parts:?}", host.id);
            let is_lost = parts[0] == 0 && acknowledged.contains(&(host.id.clone(), act));
            assert!(!is_lost, "{when}: {} {act} was acknowledged and is lost", host.id);
        }
    }
}

fn check(state: &Path, when: &str) {
    let checked =
        Command::new(EVENKEEL).args(["hub", "check", "-o", "json", "--state"]).arg(state).output();
    let checked: Value = serde_json::from_slice(&checked.unwrap().stdout).unwrap();
    assert_eq!(checked["faults"], serde_json::json!([]), "{when}");
}

/// Strikes at one point; whether there was such a point.
fn strike(template: &Template, call: &str, nth: usize) -> bool {
    let when = format!("killed at {call} {nth}");
    let state = template.copy();
    let mut hosts: Vec<ActingHost> = (1..=HOSTS)
        .map(|number| ActingHost::new(number, &template.hub_id, &template.api_token))
        .collect();
    let mut acknowledged = Acknowledged::new();
    let hub = StruckHub::start(state.path(), Some((call, nth)));
    let done = hub.address.clone().and_then(|address| act(&mut hosts, &address, &mut acknowledged));
    let was_killed = hub.end(true);
    assert!(was_killed || done.is_some(), "{when}: an answer is missing, and nobody was killed");
    let again = StruckHub::start(state.path(), None);
    let address =
        again.address.clone().unwrap_or_else(|| panic!("{when}: it does not start again"));
    judge(&hosts, &address, &acknowledged, &when);
    check(state.path(), &when);
    act(&mut hosts, &address, &mut acknowledged).expect("the hub lives");
    judge(&hosts, &address, &acknowledged, &format!("{when}, and asked again"));
    assert!(!again.end(false), "{when}: it ends when told");
    was_killed
}

fn can_inject() -> bool {
    let probe = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"])
        .output();
    probe.is_ok_and(|ended| ended.status.success())
}

#[test]
fn a_hub_killed_at_any_call_while_it_is_asked_loses_nothing_it_acknowledged() {
    if !can_inject() {
        println!("skipped: strace cannot inject here");
        return;
    }
    let parallel: Option<usize> = std::env::var(WHOLE).ok().and_then(|text| text.parse().ok());
    let template = Template::new();
    let struck: Mutex<BTreeMap<&str, usize>> = Mutex::default();
    // Each worker takes the next point of a call until one of them finds that there are no more.
    for (call, step) in CALLS {
        let step = if parallel.is_some() { 1 } else { step };
        let next = Mutex::new(1);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let work = || {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                let nth = {
                    let mut next = next.lock().unwrap();
                    let nth = *next;
                    *next += step;
                    nth
                };
                if strike(&template, call, nth) {
                    *struck.lock().unwrap().entry(call).or_default() += 1;
                } else {
                    is_over.store(true, std::sync::atomic::Ordering::SeqCst);
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..parallel.unwrap_or(2)).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                if let Err(why) = worker.join() {
                    std::panic::resume_unwind(why);
                }
            }
        });
    }
    let struck = struck.into_inner().unwrap();
    println!("killed at {struck:?}, {} in all", struck.values().sum::<usize>());
    let least = if parallel.is_some() { 60 } else { 6 };
    assert!(struck.values().sum::<usize>() >= least, "{struck:?}");
    assert!(struck.contains_key("pwrite64") && struck.contains_key("fsync"), "{struck:?}");
    assert!(struck.contains_key("sendto") || struck.contains_key("writev"), "{struck:?}");
}
