//! The making of a guest under a running agent, killed at every sync of the journal and at every request: a container from
//! a template, a machine from an image with cloud-init, a clone, a guest from its backup. Each is written to or grown after
//! it was made, and is started at the end.
//!
//! After each strike the agent is started again and makes passes until nothing is left to do. At some places somebody
//! else takes the number while no agent runs. What must hold then is in `made_verdict.rs`.

use std::time::{Duration, Instant};

use evenkeel_sim::{Event as Happening, RequestRecord};

use crate::campaign::{Outcome, Point};
use crate::hook::GrowingLog;
use crate::host::{Agent, Host};
use crate::killed::{ConfigSide, Unsynced, lose};
use crate::made_verdict;
use crate::signed::StatePlace;
use crate::toll::{is_alive, kill};
use crate::trace;

/// A run may make a few more requests than the one that was counted: it asks again while a task runs.
const MORE_REQUESTS: usize = 2;

/// A making nobody strikes is over within this time, also on a busy machine.
const MADE_WITHIN: Duration = Duration::from_mins(5);

/// What is declared before anything shall be made.
const NOTHING_NEW: &str = "guest.100 = { kind = \"lxc\" }\n";

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Making {
    Container,
    Machine,
    Clone,
    Restore,
}

impl Making {
    const ALL: [Self; 4] = [Self::Container, Self::Machine, Self::Clone, Self::Restore];

    /// As the table calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Container => "create of a container",
            Self::Machine => "create of a machine",
            Self::Clone => "clone",
            Self::Restore => "restore",
        }
    }

    /// The guest that is made.
    pub(crate) fn guest(self) -> &'static str {
        match self {
            Self::Container => "lxc/120",
            Self::Machine => "qemu/220",
            Self::Clone => "lxc/121",
            Self::Restore => "lxc/122",
        }
    }

    /// Its desired file; `backup` is an archive of lxc/102.
    fn desired(self, backup: &str) -> String {
        let (kind, vmid) = self.guest().split_once('/').unwrap();
        let source = match self {
            Self::Container => {
                "{ template = \"local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst\" }\n\
                 rootfs = { storage = \"local-lvm\", size = \"8GiB\" }"
                    .to_owned()
            }
            Self::Machine => "{ image = \"local:import/debian-12-genericcloud-amd64.qcow2\", \
                 into = \"scsi0\" }\nscsi0 = { storage = \"local-lvm\", size = \"20GiB\" }\n\
                 ide2 = { storage = \"local-lvm\", cloudinit = true }\nciuser = \"ops\""
                .to_owned(),
            Self::Clone => "{ clone = 102, full = true }".to_owned(),
            Self::Restore => format!(
                "{{ backup = \"{backup}\" }}\n\
                 rootfs = {{ storage = \"local-lvm\", size = \"40GiB\" }}"
            ),
        };
        let rest = "cores = 3\nmemory = \"768MiB\"\nonboot = true\nrun = \"running\"\n";
        format!("[guest.{vmid}]\nkind = \"{kind}\"\nsource = {source}\n{rest}")
    }

    /// Whether a request makes the guest.
    pub(crate) fn is_made_by(self, record: &RequestRecord) -> bool {
        let path = record.path.strip_prefix("/api2/json/nodes/pve1/").unwrap_or_default();
        let wanted = match self {
            Self::Container | Self::Restore => "lxc",
            Self::Machine => "qemu",
            Self::Clone => "lxc/102/clone",
        };
        record.method == "POST" && path == wanted
    }
}

/// Who is there while no agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nobody,
    /// Somebody makes a guest of their own under the number, if it is still free.
    Stranger,
}

/// Every point of this part.
pub(crate) fn points() -> Vec<Point> {
    Making::ALL.into_iter().flat_map(points_of).collect()
}

fn points_of(making: Making) -> Vec<Point> {
    let Measured { syncs, requests } = measure(making);
    let name = making.name();
    let all = requests.len();
    eprintln!("an undisturbed {name}: {syncs} syncs of the journal, {all} requests");
    let call = "fdatasync";
    let mut places = Vec::new();
    for nth in 1..=syncs {
        let power = [Unsynced::Kept, Unsynced::Lost, Unsynced::Torn];
        places.extend(power.map(|unsynced| StatePlace::BeforeCall { call, nth, unsynced }));
        places.push(StatePlace::AfterCall { call, nth });
    }
    for side in [ConfigSide::Before, ConfigSide::After] {
        places.extend((1..=all + MORE_REQUESTS).map(|nth| StatePlace::Request { nth, side }));
    }
    let mut points: Vec<Point> =
        places.into_iter().map(|place| point(making, place, Meanwhile::Nobody)).collect();
    // Up to the request that makes the guest the number is free for anybody.
    let sent = requests.iter().position(|line| line.starts_with("POST ")).unwrap_or(0) + 1;
    let taken = (1..=sent).map(|nth| StatePlace::Request { nth, side: ConfigSide::Before });
    points.extend(taken.map(|place| point(making, place, Meanwhile::Stranger)));
    points
}

/// One making, struck at one place.
pub(crate) fn point(making: Making, place: StatePlace, meanwhile: Meanwhile) -> Point {
    let taken = match meanwhile {
        Meanwhile::Nobody => "",
        Meanwhile::Stranger => ", number taken",
    };
    let row = format!("lifecycle {}: {}{taken}", making.name(), place.kind());
    Point { row, name: format!("{place:?}"), run: Box::new(move || run(making, place, meanwhile)) }
}

/// What a making that nobody strikes needs.
struct Measured {
    syncs: usize,
    requests: Vec<String>,
}

fn measure(making: Making) -> Measured {
    let mut scene = MakingScene::set(making);
    let struck = scene.strike(StatePlace::Nowhere);
    assert!(!struck.reached, "nobody struck it");
    assert_eq!(scene.host.violations(), Vec::<String>::new());
    let syncs = trace::most_by_one_thread(&struck.trace, "fdatasync");
    Measured { syncs, requests: struck.requests }
}

fn run(making: Making, place: StatePlace, meanwhile: Meanwhile) -> Outcome {
    let mut scene = MakingScene::set(making);
    let struck = scene.strike(place);
    let mut end = None;
    if struck.reached {
        if meanwhile == Meanwhile::Stranger {
            let guest = making.guest().parse().unwrap();
            scene.host.node.happen(&Happening::Create { guest });
        }
        end = made_verdict::judge(&mut scene, meanwhile).map(|end| (making.name(), end));
    }
    let restarts = scene.host.restarts;
    let violations = scene.host.violations();
    Outcome { strikes: u32::from(struck.reached), restarts, violations, end }
}

/// A host on which one guest is about to be declared.
pub(crate) struct MakingScene {
    pub(crate) making: Making,
    pub(crate) host: Host,
    /// The guests that were there, as the node has them.
    pub(crate) others: Vec<(String, serde_json::Value)>,
    agent: Option<Agent>,
    desired: String,
}

/// What came of a strike.
struct MakingStruck {
    /// Whether the run came to the place.
    reached: bool,
    requests: Vec<String>,
    trace: String,
}

impl MakingScene {
    fn set(making: Making) -> Self {
        let mut host = Host::new(NOTHING_NEW);
        let desired = making.desired(&backup_of_102(&mut host));
        let agent = host.start();
        host.wait_for("the end of a first pass", |host| host.status()?.agent?.last_pass);
        host.come_to_rest();
        host.node.forget_requests();
        let others = made_verdict::others(&host);
        Self { making, host, others, agent: Some(agent), desired }
    }

    /// Declares the guest, strikes, and waits for the end of the agent; one that lives is ended when the guest is made.
    fn strike(&mut self, place: StatePlace) -> MakingStruck {
        let mut agent = self.agent.take().expect("a scene is struck once");
        let hook = place.hook();
        self.host.trace(&mut agent, &hook);
        self.host.toll.set(place.strike(agent.pid));
        self.host.declare(&self.desired);
        let mut log = GrowingLog::new(&agent.trace);
        let begun = Instant::now();
        while is_alive(agent.pid) && !self.is_over() {
            if begun.elapsed() > MADE_WITHIN {
                self.host.oracle.violation("nobody struck it, and it is never made".to_owned());
                break;
            }
            if log.read() && hook.is_due(&log.text) {
                kill(agent.pid);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let reached = !is_alive(agent.pid);
        kill(agent.pid);
        let ended = self.host.bury(agent);
        let (requests, _) = self.host.toll.passed();
        self.host.toll.set(None);
        if let StatePlace::BeforeCall { unsynced, .. } = place
            && reached
        {
            lose(&self.host.journal(), &ended.events, unsynced);
        }
        MakingStruck { reached, requests, trace: ended.trace }
    }

    /// Whether the guest runs and the journal says so.
    fn is_over(&self) -> bool {
        made_verdict::is_running(&self.host, self.making) && self.host.is_at_rest()
    }
}

/// An archive of lxc/102, made as anybody makes one.
fn backup_of_102(host: &mut Host) -> String {
    let nodes = "/api2/json/nodes/pve1";
    let (status, upid) =
        host.node.ask("POST", &format!("{nodes}/vzdump"), "vmid=102&storage=store");
    assert_eq!(status, 200, "{upid}");
    let task = format!("{nodes}/tasks/{}/status", upid.as_str().unwrap());
    let exit = host.wait_for("the end of a backup", |host| {
        let (_, task) = host.node.ask("GET", &task, "");
        task["exitstatus"].as_str().map(ToOwned::to_owned)
    });
    assert_eq!(exit.as_deref(), Some("OK"));
    let path = format!("{nodes}/storage/store/content?content=backup");
    let (_, listed) = host.node.ask("GET", &path, "");
    listed[0]["volid"].as_str().unwrap().to_owned()
}
