//! The handlers, one file per area; this one names the calls and hands them out.
//!
//! A handler sees the world through a [`Context`] and returns a value or a failure. It may run
//! several times when it has to wait for a file lock, so it changes nothing before it has the lock.

mod access;
mod admin;
mod around;
mod backup;
mod clone;
mod cluster;
mod config;
mod create;
mod destroy;
mod disks;
mod grants;
mod guests;
mod ha;
mod node;
mod power;
mod restore;
mod snapshots;
mod storage;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use serde_json::{Value, json};

use crate::access::Identity;
use crate::config::Config;
use crate::engine::Holder;
use crate::job::TaskJob;
use crate::reply::{ReplyFailure, Success};
use crate::request::{Param, Params};
use crate::task::Tasks;
use crate::world::World;

pub(crate) use access::csrf_token;
pub(crate) use admin::admin;
pub(crate) use cluster::{ClusterView, broadcast};
pub(crate) use tasks::check_stop;

macro_rules! calls {
    ($($name:ident),+ $(,)?) => {
        /// Every handler there is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum EndpointCall { $($name),+ }

        impl std::str::FromStr for EndpointCall {
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
    SetAcl, AddUser, DeleteUser, AddToken, DeleteToken, AddRole, SetRole, DeleteRole,
    NextId, ClusterOptions, SetOptions, Resources, ClusterStatus, ClusterTasks, ClusterLog,
    Pools, Replication, BackupJobs, HaResources, HaResource, AddHaResource, DeleteHaResource, HaStatus, Nodes, NodeStatus,
    Tasks, TaskIndex, TaskStop, TaskStatus, TaskLog, Vzdump, BackupDefaults, ExtractConfig,
    StorageConfig, StorageOne, Storages, StorageStatus, Content, Volume, SetVolume, DeleteVolume,
    List, Create, GuestIndex, Destroy, Config, SetConfig, SetConfigAsync, Pending, Feature,
    Interfaces, Rrd, FirewallOptions, FirewallRules, FirewallAliases, FirewallSets, CloudInit, RegenerateCloudInit,
    Status, Start, Stop, Shutdown, Reboot, Reset, Suspend, Resume,
    Clone, Template, Resize, Move, Unlink, Migrate, MigratePreconditions,
    Snapshots, Snapshot, DeleteSnapshot, SnapshotConfig, DescribeSnapshot, Rollback,
}

impl EndpointCall {
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
                | Self::SetAcl
                | Self::AddUser
                | Self::DeleteUser
                | Self::AddToken
                | Self::DeleteToken
                | Self::AddRole
                | Self::SetRole
                | Self::DeleteRole
                | Self::AddHaResource
                | Self::DeleteHaResource
                | Self::Unlink
        )
    }
}

/// What a handler sees.
pub(crate) struct Context<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) locks: &'a BTreeMap<GuestId, Holder>,
    pub(crate) seen: &'a BTreeMap<u32, ClusterView>,
    pub(crate) who: &'a Identity,
    pub(crate) params: &'a Params,
    pub(crate) holes: &'a [(String, String)],
    pub(crate) kind: Option<GuestKind>,
    pub(crate) now_ms: u64,
    /// Storages of which the node's statistics have heard nothing for long.
    pub(crate) unseen_storages: &'a BTreeSet<String>,
}

type Answer = Result<Success, ReplyFailure>;

/// Config writes and power calls wait this long for the file lock.
const LOCK_WAIT_MS: u64 = 10_000;

/// Runs the handler of a call.
#[expect(clippy::too_many_lines, reason = "one row per call, total on purpose")]
pub(crate) fn dispatch(cx: &mut Context<'_>, call: EndpointCall) -> Answer {
    match call {
        EndpointCall::Index => Ok(node::index(cx)),
        EndpointCall::Version => Ok(node::version(cx)),
        EndpointCall::Nodes => Ok(node::nodes(cx)),
        EndpointCall::NodeStatus => Ok(node::status(cx)),
        EndpointCall::Permissions => access::permissions(cx),
        EndpointCall::Ticket => access::ticket(cx),
        EndpointCall::Acl => Ok(access::acl(cx)),
        EndpointCall::Users => Ok(access::users(cx)),
        EndpointCall::Tokens => access::tokens(cx),
        EndpointCall::Token => access::token(cx),
        EndpointCall::Roles => Ok(access::roles(cx)),
        EndpointCall::SetAcl => grants::set_acl(cx),
        EndpointCall::AddUser => grants::add_user(cx),
        EndpointCall::DeleteUser => grants::delete_user(cx),
        EndpointCall::AddToken => grants::add_token(cx),
        EndpointCall::DeleteToken => grants::delete_token(cx),
        EndpointCall::AddRole => grants::add_role(cx),
        EndpointCall::SetRole => grants::set_role(cx),
        EndpointCall::DeleteRole => grants::delete_role(cx),
        EndpointCall::NextId => cluster::next_id(cx),
        EndpointCall::ClusterOptions => Ok(cluster::options(cx)),
        EndpointCall::SetOptions => Ok(cluster::set_options(cx)),
        EndpointCall::Resources => Ok(cluster::resources(cx)),
        EndpointCall::ClusterStatus => Ok(cluster::status(cx)),
        EndpointCall::ClusterTasks => Ok(tasks::cluster(cx)),
        EndpointCall::ClusterLog => Ok(cluster::log(cx)),
        EndpointCall::HaResources => Ok(ha::list(cx)),
        EndpointCall::HaResource => ha::one(cx),
        EndpointCall::AddHaResource => ha::add(cx),
        EndpointCall::DeleteHaResource => ha::remove(cx),
        EndpointCall::HaStatus => Ok(json!([]).into()),
        EndpointCall::Migrate => ha::migrate(cx),
        EndpointCall::MigratePreconditions => ha::preconditions(cx),
        EndpointCall::Tasks => Ok(tasks::list(cx)),
        EndpointCall::TaskIndex => Ok(json!([{"name": "log"}, {"name": "status"}]).into()),
        EndpointCall::TaskStatus => tasks::status(cx),
        EndpointCall::TaskLog => tasks::log(cx),
        // The engine stops tasks itself, because that frees locks.
        EndpointCall::TicketProbe | EndpointCall::TaskStop => Ok(Value::Null.into()),
        EndpointCall::Vzdump => backup::vzdump(cx),
        EndpointCall::BackupDefaults => backup::defaults(cx),
        EndpointCall::ExtractConfig => backup::extract_config(cx),
        EndpointCall::StorageConfig => Ok(storage::configured(cx)),
        EndpointCall::StorageOne => storage::one(cx),
        EndpointCall::Storages => Ok(storage::list(cx)),
        EndpointCall::StorageStatus => storage::status(cx),
        EndpointCall::Content => storage::content(cx),
        EndpointCall::Volume => storage::volume(cx),
        EndpointCall::SetVolume => storage::set_volume(cx),
        EndpointCall::DeleteVolume => storage::delete_volume(cx),
        EndpointCall::List => Ok(guests::list(cx)),
        EndpointCall::GuestIndex => Ok(guests::index(cx)),
        EndpointCall::Config => guests::config(cx),
        EndpointCall::Pending => guests::pending(cx),
        EndpointCall::Feature => guests::feature(cx),
        EndpointCall::Interfaces => guests::interfaces(cx),
        EndpointCall::Rrd => guests::rrd(cx),
        EndpointCall::FirewallOptions => around::firewall_options(cx),
        EndpointCall::FirewallRules => around::firewall_rules(cx),
        EndpointCall::FirewallAliases => around::firewall_aliases(cx),
        EndpointCall::FirewallSets => around::firewall_sets(cx),
        EndpointCall::Pools => Ok(around::pools(cx)),
        EndpointCall::Replication => Ok(around::replication(cx)),
        EndpointCall::BackupJobs => Ok(around::backup_jobs(cx)),
        EndpointCall::CloudInit => guests::cloud_init(cx),
        EndpointCall::RegenerateCloudInit => guests::regenerate_cloud_init(cx),
        EndpointCall::Status => guests::status(cx),
        EndpointCall::SetConfig => config::set(cx),
        EndpointCall::SetConfigAsync => config::set_async(cx),
        EndpointCall::Unlink => config::unlink(cx),
        EndpointCall::Start => power::start(cx),
        EndpointCall::Stop => power::stop(cx),
        EndpointCall::Shutdown => power::shutdown(cx),
        EndpointCall::Reboot => power::reboot(cx),
        EndpointCall::Reset => power::reset(cx),
        EndpointCall::Suspend => power::suspend(cx),
        EndpointCall::Resume => power::resume(cx),
        EndpointCall::Create => create::create(cx),
        EndpointCall::Clone => clone::clone(cx),
        EndpointCall::Template => destroy::template(cx),
        EndpointCall::Destroy => destroy::destroy(cx),
        EndpointCall::Resize => disks::resize(cx),
        EndpointCall::Move => disks::relocate(cx),
        EndpointCall::Snapshots => snapshots::list(cx),
        EndpointCall::Snapshot => snapshots::create(cx),
        EndpointCall::DeleteSnapshot => snapshots::delete(cx),
        EndpointCall::SnapshotConfig => snapshots::config(cx),
        EndpointCall::DescribeSnapshot => snapshots::describe(cx),
        EndpointCall::Rollback => snapshots::rollback(cx),
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
    fn guest(&self) -> Result<GuestId, ReplyFailure> {
        self.guest_of(self.hole("vmid"))
    }

    /// A guest of the path's kind by its number.
    fn guest_of(&self, number: &str) -> Result<GuestId, ReplyFailure> {
        let vmid =
            number.parse::<VmId>().map_err(|e| ReplyFailure::param("vmid", e.to_string()))?;
        Ok(GuestId::new(self.kind.unwrap_or(GuestKind::Lxc), vmid))
    }

    /// The guest's file.
    fn file(&self, guest: GuestId) -> Result<&Config, ReplyFailure> {
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
    fn need(&self, path: &str, any: &[&str]) -> Result<(), ReplyFailure> {
        if self.may(path, any) {
            Ok(())
        } else {
            Err(ReplyFailure::Denied(format!("{path}, {}", any.join("|"))))
        }
    }

    /// `skiplock` is for sessions of root@pam only.
    fn check_skiplock(&self) -> Result<(), ReplyFailure> {
        if self.flag("skiplock") && !self.who.is_root() {
            return Err(ReplyFailure::param("skiplock", "Only root may use this option."));
        }
        Ok(())
    }

    /// Forks a task and answers with its UPID.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is the last expression of handlers that can fail"
    )]
    fn fork(&mut self, kind: &str, id: &str, job: TaskJob) -> Answer {
        Ok(json!(self.fork_text(kind, id, job)).into())
    }

    fn fork_text(&mut self, kind: &str, id: &str, job: TaskJob) -> String {
        let now = (self.now_ms, self.world.unix(self.now_ms));
        self.tasks.fork(&self.world.node, kind, id, self.who, job, now).to_string()
    }
}
