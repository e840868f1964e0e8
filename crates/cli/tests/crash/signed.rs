//! A signed act under a running agent, struck at every call that writes or syncs and at every request: a destroy with
//! both its preparations, of a container and of a machine; a rollback; a machine that becomes a template; a change of the
//! signers, planned and by recovery.
//!
//! After each the agent is started again, comes to rest, and the same envelope is delivered once more. What must hold
//! then is in `verdict.rs`.

use std::collections::BTreeMap;
use std::process::Command;

use evenkeel_sim::Event as Happening;

use crate::campaign::{Outcome, Point};
use crate::hook::{Aim, Hook};
use crate::host::{Agent, Ended, Host, Told};
use crate::killed::{ConfigSide, Unsynced, lose};
use crate::toll::Strike;
use crate::trace::{self, Event};
use crate::verdict;

/// The calls of the journal and of other files of the state directory.
const FILE_CALLS: [&str; 7] =
    ["pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "unlink", "fallocate"];

/// A run may make a few more requests than the one that was counted: it asks again while a task runs.
const MORE_REQUESTS: usize = 2;

/// What was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Declared absent: it runs and is protected.
    DestroyContainer,
    /// Requested by hand on a host for which nothing is declared: it runs and is protected.
    DestroyMachine,
    Rollback,
    Template,
    Rotation,
    Recovery,
}

impl Act {
    pub(crate) const ALL: [Self; 6] = [
        Self::DestroyContainer,
        Self::DestroyMachine,
        Self::Rollback,
        Self::Template,
        Self::Rotation,
        Self::Recovery,
    ];

    /// As the table calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DestroyContainer => "destroy of a container",
            Self::DestroyMachine => "destroy of a machine",
            Self::Rollback => "rollback",
            Self::Template => "template",
            Self::Rotation => "rotation",
            Self::Recovery => "recovery",
        }
    }

    /// The guest it is aimed at; for a change of the signers the one that waits meanwhile.
    pub(crate) fn guest(self) -> &'static str {
        match self {
            Self::DestroyContainer | Self::Rotation | Self::Recovery => "lxc/100",
            Self::DestroyMachine | Self::Template => "qemu/101",
            Self::Rollback => "lxc/102",
        }
    }

    /// Whether it changes who may sign, and no guest.
    pub(crate) fn is_of_signers(self) -> bool {
        matches!(self, Self::Rotation | Self::Recovery)
    }

    fn desired(self) -> &'static str {
        match self {
            Self::DestroyContainer | Self::Rotation | Self::Recovery => {
                "guest.100 = { kind = \"lxc\", state = \"absent\" }\n"
            }
            Self::DestroyMachine | Self::Rollback | Self::Template => "",
        }
    }
}

/// Where it is struck.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StatePlace {
    /// Killed in place of a call, and what a loss of power makes of the bytes that were not synced.
    BeforeCall { call: &'static str, nth: usize, unsynced: Unsynced },
    /// Killed when a call is over and nobody has heard of it.
    AfterCall { call: &'static str, nth: usize },
    /// The disk refuses the call.
    Refused { call: &'static str, nth: usize },
    /// Killed at a request to the node.
    Request { nth: usize, side: ConfigSide },
    /// Nothing happens.
    Nowhere,
}

impl StatePlace {
    pub(crate) fn hook(self) -> Hook {
        let aim = |call, nth| Aim { call, nth, segment_only: false };
        match self {
            Self::BeforeCall { call, nth, .. } => Hook::KillBefore(aim(call, nth)),
            Self::AfterCall { call, nth } => Hook::KillAfter(aim(call, nth)),
            Self::Refused { call, nth } => {
                Hook::Refuse { aim: aim(call, nth), for_ever: false, error: "EIO" }
            }
            Self::Request { .. } | Self::Nowhere => Hook::None,
        }
    }

    /// What the toll does to this process at that place, if it is a request.
    pub(crate) fn strike(self, process: u32) -> Option<Strike> {
        match self {
            Self::Request { nth, side } => Some(Strike { nth, side, process }),
            Self::BeforeCall { .. }
            | Self::AfterCall { .. }
            | Self::Refused { .. }
            | Self::Nowhere => None,
        }
    }

    /// The kind of place, for the table.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::BeforeCall { .. } | Self::AfterCall { .. } => "killed at a call",
            Self::Refused { .. } => "EIO",
            Self::Request { side: ConfigSide::Before, .. } => "killed before a request arrives",
            Self::Request { side: ConfigSide::After, .. } => "killed before an answer arrives",
            Self::Nowhere => "undisturbed",
        }
    }
}

/// Every point of this part.
pub(crate) fn points() -> Vec<Point> {
    Act::ALL.into_iter().flat_map(points_of).collect()
}

fn points_of(act: Act) -> Vec<Point> {
    let Measured { calls, requests } = measure(act);
    eprintln!("an undisturbed {}: {calls:?}, {requests} requests", act.name());
    let mut places = Vec::new();
    for (call, count) in calls {
        for nth in 1..=count {
            places.push(StatePlace::BeforeCall { call, nth, unsynced: Unsynced::Kept });
            places.push(StatePlace::AfterCall { call, nth });
            places.push(StatePlace::Refused { call, nth });
            if call == "fdatasync" {
                let power = [Unsynced::Lost, Unsynced::Torn];
                places.extend(power.map(|unsynced| StatePlace::BeforeCall { call, nth, unsynced }));
            }
        }
    }
    if requests > 0 {
        for side in [ConfigSide::Before, ConfigSide::After] {
            places.extend(
                (1..=requests + MORE_REQUESTS).map(|nth| StatePlace::Request { nth, side }),
            );
        }
    }
    places.into_iter().map(|place| point(act, place)).collect()
}

/// One act, struck at one place.
pub(crate) fn point(act: Act, place: StatePlace) -> Point {
    let row = format!("signed {}: {}", act.name(), place.kind());
    Point { row, name: format!("{place:?}"), run: Box::new(move || run(act, place)) }
}

/// What an act that nobody strikes needs.
struct Measured {
    /// How often the busiest thread makes each call.
    calls: BTreeMap<&'static str, usize>,
    requests: usize,
}

fn measure(act: Act) -> Measured {
    let mut stage = Stage::set(act);
    let struck = stage.strike(StatePlace::Nowhere);
    assert_eq!(struck.told.code, Some(0), "{:?}", struck.told);
    let count = |call| trace::most_by_one_thread(&struck.ended.trace, call);
    let calls = FILE_CALLS.into_iter().map(|call| (call, count(call)));
    let calls = calls.filter(|(_, count)| *count > 0).collect();
    assert_eq!(stage.host.violations(), Vec::<String>::new());
    Measured { calls, requests: struck.requests.len() }
}

fn run(act: Act, place: StatePlace) -> Outcome {
    let mut stage = Stage::set(act);
    let struck = stage.strike(place);
    let end = verdict::judge(&mut stage, &struck);
    let Stage { mut host, .. } = stage;
    Outcome {
        strikes: u32::from(struck.reached),
        restarts: host.restarts,
        violations: host.violations(),
        end: end.map(|end| (act.name(), end)),
    }
}

/// A host that waits for an envelope which is signed.
pub(crate) struct Stage {
    pub(crate) act: Act,
    pub(crate) host: Host,
    agent: Option<Agent>,
}

/// What came of the delivery that was struck.
pub(crate) struct Struck {
    /// Whether the run came to the place.
    pub(crate) reached: bool,
    pub(crate) told: Told,
    pub(crate) ended: Ended,
    /// What it asked of the node.
    requests: Vec<String>,
}

/// The envelope of the act.
pub(crate) const ENVELOPE: &str = "act.json";

/// What alice signed before she was no signer any more.
pub(crate) const OUTSTANDING: &str = "outstanding.json";

impl Stage {
    pub(crate) fn set(act: Act) -> Self {
        let mut host = Host::new(act.desired());
        prepare_guest(&mut host, act);
        let agent = host.start();
        match act {
            Act::DestroyContainer => {
                sign(&mut host, "alice", ENVELOPE, 1);
            }
            Act::DestroyMachine => {
                request(&host, &["destroy", act.guest()]);
                sign(&mut host, "alice", ENVELOPE, 1);
            }
            Act::Rollback => {
                request(&host, &["rollback", act.guest(), "snapname=before"]);
                sign(&mut host, "alice", ENVELOPE, 1);
            }
            Act::Template => {
                request(&host, &["template", act.guest()]);
                sign(&mut host, "alice", ENVELOPE, 1);
            }
            Act::Rotation => change_signers(&mut host, "rotate", "alice"),
            Act::Recovery => change_signers(&mut host, "recover", "vault"),
        }
        host.node.forget_requests();
        Self { act, host, agent: Some(agent) }
    }

    /// Delivers the envelope, strikes, and waits for the end of the agent; one that lives is ended by force.
    fn strike(&mut self, place: StatePlace) -> Struck {
        let mut agent = self.agent.take().expect("a stage is struck once");
        let hook = place.hook();
        self.host.trace(&mut agent, &hook);
        self.host.toll.set(place.strike(agent.pid));
        let told = self.host.deliver(&agent, ENVELOPE, &hook);
        let answered = matches!(told.code, Some(0));
        if answered {
            // It was not struck, or nobody had to wait for it.
            crate::toll::kill(agent.pid);
        }
        let ended = self.host.bury(agent);
        let (requests, killed_at_request) = self.host.toll.passed();
        self.host.toll.set(None);
        let refused = ended.events.iter().any(|event| matches!(event, Event::Refused { .. }));
        let reached = match place {
            StatePlace::Refused { .. } => refused,
            StatePlace::Request { .. } => killed_at_request,
            StatePlace::BeforeCall { .. } | StatePlace::AfterCall { .. } => !answered,
            StatePlace::Nowhere => false,
        };
        if let StatePlace::BeforeCall { unsynced, .. } = place
            && reached
        {
            lose(&self.host.journal(), &ended.events, unsynced);
        }
        if refused {
            expect_told(&mut self.host, &ended);
        }
        Struck { reached, told, ended, requests }
    }
}

/// A disk that refuses ends the agent, which says what, where, why and what next.
fn expect_told(host: &mut Host, ended: &Ended) {
    let Ended { code, said, .. } = ended;
    if *code != Some(1) {
        host.oracle.violation(format!("refused by the disk, it ends with {code:?}: {said}"));
    }
    for word in ["error: ", "/state", "Input/output error", "hint: "] {
        if !said.contains(word) {
            host.oracle.violation(format!("it does not say {word:?}: {said}"));
        }
    }
}

/// The guest runs and is protected, and the node has a task to show: an empty list proves nothing about anybody.
fn prepare_guest(host: &mut Host, act: Act) {
    let nodes = "/api2/json/nodes/pve1";
    let path = format!("{nodes}/lxc/102/snapshot");
    let (status, upid) = host.node.ask("POST", &path, "snapname=before");
    assert_eq!(status, 200, "{upid}");
    let task = format!("{nodes}/tasks/{}/status", upid.as_str().unwrap());
    let exit = host.wait_for("the end of a snapshot", |host| {
        let (_, task) = host.node.ask("GET", &task, "");
        task["exitstatus"].as_str().map(ToOwned::to_owned)
    });
    assert_eq!(exit.as_deref(), Some("OK"));
    let guest = act.guest().parse().unwrap();
    match act {
        Act::DestroyContainer | Act::DestroyMachine => {
            host.node.happen(&Happening::Power { guest, running: true });
            let set = BTreeMap::from([("protection".to_owned(), Some("1".to_owned()))]);
            host.node.happen(&Happening::Edit { guest, set });
        }
        Act::Rollback | Act::Template | Act::Rotation | Act::Recovery => {
            host.node.happen(&Happening::Power { guest, running: false });
        }
    }
}

fn request(host: &Host, arguments: &[&str]) {
    let told = host.verb(&[&["request"], arguments, &["-c", "agent.toml"]].concat());
    assert_eq!(told.code, Some(6), "{told:?}");
}

/// Waits for the item that is raised under this version of the signers, and has it signed.
pub(crate) fn sign(host: &mut Host, key: &str, out: &str, trust_version: u64) {
    let item = host.wait_for("an item to sign", |host| {
        let told = host.verb(&["pending", "-c", "agent.toml", "-o", "json"]);
        let told: serde_json::Value = serde_json::from_str(&told.stdout).ok()?;
        let items = told["items"].as_array()?;
        items.iter().find(|item| item["trust_version"] == trust_version).cloned()
    });
    let item = item.unwrap_or_default();
    std::fs::write(host.path("item.json"), item["envelope"].as_str().unwrap_or_default()).unwrap();
    let arguments = ["sign", "item.json", "--key", key, "--out", out, "-y", "--reason", "test"];
    host.done(&arguments);
}

/// Bob in alice's place, as a script has it signed: by commands that name what is signed. What she signed before is
/// outstanding.
fn change_signers(host: &mut Host, verb: &str, key: &str) {
    sign(host, "alice", OUTSTANDING, 1);
    let place = ["signers", verb, "--host", "pve1", "--trust", "trust.toml"];
    let change = ["--add", "bob=bob.pub", "--remove", "alice", "--prepare", "change.json"];
    host.done(&[&place[..], &change[..], &["--reason", "bob takes over"]].concat());
    let namespace = format!("evenkeel.{verb}.v1");
    for by in [key, "bob"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-Y", "sign", "-n", &namespace, "-f", by, "change.json"]);
        assert!(command.current_dir(host.path("")).status().unwrap().success());
        std::fs::rename(host.path("change.json.sig"), host.path(&format!("{by}.sig"))).unwrap();
    }
    let by_old = format!("{key}.sig");
    let seal = ["sign", "change.json", "--signature", &by_old, "--signature", "bob.sig"];
    host.done(&[&seal[..], &["--out", ENVELOPE]].concat());
}
