//! The handlers, one file per area; this one names the calls and hands them out.
//!
//! A handler sees the world through a [`Context`] and returns a value or a failure. It may run
//! several times when it has to wait for a file lock, so it changes nothing before it has the lock.

mod access;
mod admin;
mod cluster;
mod config;
mod create;
mod disks;
mod guests;
mod node;
mod power;
mod snapshots;
mod storage;
mod tasks;

use std::collections::BTreeMap;

use evenkeel_core::id::{GuestId, GuestKind, VmId};
use serde_json::{Value, json};

use crate::access::Identity;
use crate::config::Config;
use crate::engine::Holder;
use crate::job::Job;
use crate::reply::{Failure, Success};
use crate::request::{Param, Params};
use crate::task::Tasks;
use crate::world::World;

pub(crate) use access::csrf_token;
pub(crate) use admin::admin;
pub(crate) use cluster::{Seen, broadcast};
pub(crate) use tasks::check_stop;

macro_rules! calls {
    ($($name:ident),+ $(,)?) => {
        /// Every handler there is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Call { $($name),+ }

        impl std::str::FromStr for Call {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $(stringify!($name) => Ok(Self::$name),)+
                    other => Err(format!("no handler is called {other}")),
                }
            }
        }
    };
}

calls! {
    Index, Version, Permissions, TicketProbe, Ticket, Acl, Users, Tokens, Token, Roles,
    NextId, ClusterOptions, SetOptions, Resources, ClusterStatus, ClusterTasks, ClusterLog,
    HaResources, HaStatus, Nodes, NodeStatus,
    Tasks, TaskIndex, TaskStop, TaskStatus, TaskLog, Vzdump,
    StorageConfig, StorageOne, Storages, StorageStatus, Content, Volume, SetVolume, DeleteVolume,
    List, Create, GuestIndex, Destroy, Config, SetConfig, SetConfigAsync, Pending, Feature,
    Interfaces, Rrd, FirewallOptions, CloudInit, RegenerateCloudInit,
    Status, Start, Stop, Shutdown, Reboot, Reset, Suspend, Resume,
    Clone, Template, Resize, Move, Unlink,
    Snapshots, Snapshot, DeleteSnapshot, SnapshotConfig, DescribeSnapshot, Rollback,
}

impl Call {
    /// Whether the handler itself writes below the cluster file system, which needs quorum.
    pub(crate) fn writes_config(self) -> bool {
        matches!(
            self,
            Self::SetConfig
                | Self::SetConfigAsync
                | Self::Create
                | Self::Clone
                | Self::DescribeSnapshot
                | Self::SetOptions
                | Self::Unlink
        )
    }
}

/// What a handler sees.
pub(crate) struct Context<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) locks: &'a BTreeMap<GuestId, Holder>,
    pub(crate) seen: &'a BTreeMap<u32, Seen>,
    pub(crate) who: &'a Identity,
    pub(crate) params: &'a Params,
    pub(crate) holes: &'a [(String, String)],
    pub(crate) kind: Option<GuestKind>,
    pub(crate) now_ms: u64,
}

type Answer = Result<Success, Failure>;

/// Config writes and power calls wait this long for the file lock.
const LOCK_WAIT_MS: u64 = 10_000;

/// Runs the handler of a call.
#[expect(clippy::too_many_lines, reason = "one row per call, total on purpose")]
pub(crate) fn dispatch(cx: &mut Context<'_>, call: Call) -> Answer {
    match call {
        Call::Index => Ok(node::index(cx)),
        Call::Version => Ok(node::version(cx)),
        Call::Nodes => Ok(node::nodes(cx)),
        Call::NodeStatus => Ok(node::status(cx)),
        Call::Permissions => access::permissions(cx),
        Call::Ticket => access::ticket(cx),
        Call::Acl => Ok(access::acl(cx)),
        Call::Users => Ok(access::users(cx)),
        Call::Tokens => Ok(access::tokens(cx)),
        Call::Token => access::token(cx),
        Call::Roles => Ok(access::roles(cx)),
        Call::NextId => cluster::next_id(cx),
        Call::ClusterOptions => Ok(cluster::options(cx)),
        Call::SetOptions => Ok(cluster::set_options(cx)),
        Call::Resources => Ok(cluster::resources(cx)),
        Call::ClusterStatus => Ok(cluster::status(cx)),
        Call::ClusterTasks => Ok(tasks::cluster(cx)),
        Call::ClusterLog => Ok(cluster::log(cx)),
        Call::HaResources | Call::HaStatus => Ok(json!([]).into()),
        Call::Tasks => Ok(tasks::list(cx)),
        Call::TaskIndex => Ok(json!([{"name": "log"}, {"name": "status"}]).into()),
        Call::TaskStatus => tasks::status(cx),
        Call::TaskLog => tasks::log(cx),
        // The engine stops tasks itself, because that frees locks.
        Call::TicketProbe | Call::TaskStop => Ok(Value::Null.into()),
        Call::Vzdump => storage::vzdump(cx),
        Call::StorageConfig => Ok(storage::configured(cx)),
        Call::StorageOne => storage::one(cx),
        Call::Storages => Ok(storage::list(cx)),
        Call::StorageStatus => storage::status(cx),
        Call::Content => storage::content(cx),
        Call::Volume => storage::volume(cx),
        Call::SetVolume => storage::set_volume(cx),
        Call::DeleteVolume => storage::delete_volume(cx),
        Call::List => Ok(guests::list(cx)),
        Call::GuestIndex => Ok(guests::index(cx)),
        Call::Config => guests::config(cx),
        Call::Pending => guests::pending(cx),
        Call::Feature => guests::feature(cx),
        Call::Interfaces => guests::interfaces(cx),
        Call::Rrd => guests::rrd(cx),
        Call::FirewallOptions => guests::firewall_options(cx),
        Call::CloudInit => guests::cloud_init(cx),
        Call::RegenerateCloudInit => guests::regenerate_cloud_init(cx),
        Call::Status => guests::status(cx),
        Call::SetConfig => config::set(cx),
        Call::SetConfigAsync => config::set_async(cx),
        Call::Unlink => config::unlink(cx),
        Call::Start => power::start(cx),
        Call::Stop => power::stop(cx),
        Call::Shutdown => power::shutdown(cx),
        Call::Reboot => power::reboot(cx),
        Call::Reset => power::reset(cx),
        Call::Suspend => power::suspend(cx),
        Call::Resume => power::resume(cx),
        Call::Create => create::create(cx),
        Call::Clone => create::clone(cx),
        Call::Template => create::template(cx),
        Call::Destroy => create::destroy(cx),
        Call::Resize => disks::resize(cx),
        Call::Move => disks::relocate(cx),
        Call::Snapshots => snapshots::list(cx),
        Call::Snapshot => snapshots::create(cx),
        Call::DeleteSnapshot => snapshots::delete(cx),
        Call::SnapshotConfig => snapshots::config(cx),
        Call::DescribeSnapshot => snapshots::describe(cx),
        Call::Rollback => snapshots::rollback(cx),
    }
}

impl Context<'_> {
    /// The text of a parameter.
    fn text(&self, name: &str) -> Option<&str> {
        match self.params.get(name) {
            Some(Param::Text(text)) => Some(text),
            Some(Param::Null | Param::List(_) | Param::Hash) | None => None,
        }
    }

    /// Whether a boolean parameter is set.
    fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("1")
    }

    /// A numeric parameter.
    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// What stands in a hole of the path.
    fn hole(&self, name: &str) -> &str {
        self.holes.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// The guest the path names.
    fn guest(&self) -> Result<GuestId, Failure> {
        self.guest_of(self.hole("vmid"))
    }

    /// A guest of the path's kind by its number.
    fn guest_of(&self, number: &str) -> Result<GuestId, Failure> {
        let vmid = number.parse::<VmId>().map_err(|e| Failure::param("vmid", e.to_string()))?;
        Ok(GuestId::new(self.kind.unwrap_or(GuestKind::Lxc), vmid))
    }

    /// The guest's file.
    fn file(&self, guest: GuestId) -> Result<&Config, Failure> {
        crate::write::load(self.world, guest)
    }

    fn is_running(&self, guest: GuestId) -> bool {
        self.world.guest(guest).is_some_and(|guest| guest.power.is_running())
    }

    /// Whether the caller holds any of the privileges.
    fn may(&self, path: &str, any: &[&str]) -> bool {
        self.world.access.may(self.who, path, any, self.world.release())
    }

    /// Refuses unless the caller holds any of the privileges.
    fn need(&self, path: &str, any: &[&str]) -> Result<(), Failure> {
        if self.may(path, any) {
            Ok(())
        } else {
            Err(Failure::Denied(format!("{path}, {}", any.join("|"))))
        }
    }

    /// `skiplock` is for sessions of root@pam only.
    fn check_skiplock(&self) -> Result<(), Failure> {
        if self.flag("skiplock") && !self.who.is_root() {
            return Err(Failure::param("skiplock", "Only root may use this option."));
        }
        Ok(())
    }

    /// Forks a task and answers with its UPID.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is the last expression of handlers that can fail"
    )]
    fn fork(&mut self, kind: &str, id: &str, job: Job) -> Answer {
        Ok(json!(self.fork_text(kind, id, job)).into())
    }

    fn fork_text(&mut self, kind: &str, id: &str, job: Job) -> String {
        let now = (self.now_ms, self.world.unix(self.now_ms));
        self.tasks.fork(&self.world.node, kind, id, self.who, job, now).to_string()
    }
}
