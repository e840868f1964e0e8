//! The calls that change nothing.
//!
//! Each may be repeated at will. None of them concludes anything from an empty list: PVE filters
//! lists by privilege in silence, and only `vmid_is_free` proves that a number is free. Where a list
//! is given as a plain vector, its unread rows were reported and nobody takes their absence for evidence.

use std::collections::BTreeMap;

use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::operate::operation::{StorageName, VolumeId};

use super::Client;
use super::error::{Error, ErrorClass};
use super::exchange::{ApiPath, HttpRequest};
use super::form::Query;
use super::list::ListReading;
use super::scalar::TextMap;
use super::site::{
    ClusterEntry, ListedVolume, LooseNumber, LooseText, NodeEntry, NodeStatus, Permissions,
    Resource, StorageEntry, UserEntry, Version,
};
use super::storage_watch::StorageQuestion;
use super::task::Upid;
use super::wire::{
    GuestEntry, HasFeature, LogLine, LogLines, LogPage, NamedEntry, PendingEntry, RawConfig,
    SnapshotEntry, TaskEntry, TaskStatus,
};

/// Which side of a config to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigView {
    /// With waiting changes merged in, as if they were active.
    Merged,
    /// What is active now.
    Current,
}

/// What a guest's storage may be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFeature {
    /// Take snapshots.
    Snapshot,
    /// Make linked clones.
    Clone,
    /// Make full copies.
    Copy,
}

/// Which part of the task history to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskSource {
    /// Ended tasks.
    Archive,
    /// Running tasks and the newest ended ones.
    Active,
    /// Both.
    All,
}

/// Which tasks to list; the default is PVE's: the 50 newest ended ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Which part of the history.
    pub source: Option<TaskSource>,
    /// Only tasks about this guest.
    pub vmid: Option<VmId>,
    /// Only tasks of this type, such as `vzstart`.
    pub kind: Option<String>,
    /// Only tasks whose user contains this. Archived entries have lost their token part.
    pub user: Option<String>,
    /// Only tasks started at or after this, by the node's clock.
    pub since_unix_s: Option<u64>,
    /// Only tasks started at or before this, by the node's clock.
    pub until_unix_s: Option<u64>,
    /// How many to leave out.
    pub start: Option<u32>,
    /// How many at most.
    pub limit: Option<u32>,
}

/// Which volumes of a storage to list. There is no "all": an unfiltered list makes PVE ask every
/// volume of the storage for its size, and blocks one of its three workers meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentFilter {
    /// Of one type: `images`, `rootdir`, `backup`, `vztmpl`, `iso`.
    Type(&'static str),
    /// Owned by one guest.
    Guest(VmId),
    /// Backups of one guest.
    BackupsOf(VmId),
    /// Whatever it holds.
    All,
}

impl Client {
    /// The node's version.
    pub async fn version(&self) -> Result<Version, Error> {
        self.call(HttpRequest::get(ApiPath::new(["version"]), Query::new())).await
    }

    /// The nodes of the cluster, as far as the token may see them.
    pub async fn nodes(&self) -> Result<Vec<NodeEntry>, Error> {
        let request = HttpRequest::list(ApiPath::new(["nodes"]), Query::new());
        self.list(request).await.map(|listed| listed.rows)
    }

    /// The node itself.
    pub async fn node_status(&self) -> Result<NodeStatus, Error> {
        self.call(HttpRequest::get(self.node_path(["status"]), Query::new())).await
    }

    /// The node's guests of one kind, as far as the token may see them.
    pub async fn guests(&self, kind: GuestKind) -> Result<ListReading<GuestEntry>, Error> {
        self.list(HttpRequest::list(self.node_path([kind.as_str()]), Query::new())).await
    }

    /// The same with their names and tags.
    pub async fn guest_names(&self, kind: GuestKind) -> Result<Vec<NamedEntry>, Error> {
        let request = HttpRequest::list(self.node_path([kind.as_str()]), Query::new());
        self.list(request).await.map(|listed| listed.rows)
    }

    /// A guest's config.
    pub async fn config(&self, guest: GuestId, view: ConfigView) -> Result<RawConfig, Error> {
        let query = match view {
            ConfigView::Merged => Query::new(),
            ConfigView::Current => Query::new().with_flag("current", true),
        };
        self.call(HttpRequest::get(self.guest_path(guest, ["config"]), query)).await
    }

    /// A guest's config with what waits for a restart: the only complete view.
    pub async fn pending(&self, guest: GuestId) -> Result<Vec<PendingEntry>, Error> {
        self.call(HttpRequest::get(self.guest_path(guest, ["pending"]), Query::new())).await
    }

    /// Whether a guest runs, now.
    pub async fn guest_status(&self, guest: GuestId) -> Result<GuestEntry, Error> {
        self.call(HttpRequest::get(self.guest_path(guest, ["status", "current"]), Query::new()))
            .await
    }

    /// A guest's snapshots, with the pseudo entry `current`.
    pub async fn snapshots(&self, guest: GuestId) -> Result<Vec<SnapshotEntry>, Error> {
        self.call(HttpRequest::get(self.guest_path(guest, ["snapshot"]), Query::new())).await
    }

    /// The configuration that a snapshot of a guest holds.
    pub(crate) async fn snapshot_config(
        &self,
        guest: GuestId,
        snapshot: &str,
    ) -> Result<RawConfig, Error> {
        let path = self.guest_path(guest, ["snapshot", snapshot, "config"]);
        self.call(HttpRequest::get(path, Query::new())).await
    }

    /// Whether a guest's volumes can do something.
    pub async fn has_feature(
        &self,
        guest: GuestId,
        feature: StorageFeature,
    ) -> Result<bool, Error> {
        let word = match feature {
            StorageFeature::Snapshot => "snapshot",
            StorageFeature::Clone => "clone",
            StorageFeature::Copy => "copy",
        };
        let query = Query::new().with("feature", word);
        let request = HttpRequest::get(self.guest_path(guest, ["feature"]), query);
        self.call::<HasFeature>(request).await.map(|answer| answer.has_feature)
    }

    /// Tasks of the node, newest first.
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<ListReading<TaskEntry>, Error> {
        let TaskFilter { source, vmid, kind, user, since_unix_s, until_unix_s, start, limit } =
            filter;
        let source = source.map(|source| match source {
            TaskSource::Archive => "archive",
            TaskSource::Active => "active",
            TaskSource::All => "all",
        });
        let query = Query::new()
            .with_some("source", source)
            .with_some("vmid", vmid.map(|vmid| vmid.to_string()))
            .with_some("typefilter", kind.as_deref())
            .with_some("userfilter", user.as_deref())
            .with_some("since", since_unix_s.map(|time| time.to_string()))
            .with_some("until", until_unix_s.map(|time| time.to_string()))
            .with_some("start", start.map(|count| count.to_string()))
            .with_some("limit", limit.map(|count| count.to_string()));
        self.list(HttpRequest::list(self.node_path(["tasks"]), query)).await
    }

    /// Whether a task runs or how it ended.
    pub(crate) async fn task_status(&self, upid: &Upid) -> Result<TaskStatus, Error> {
        self.call(HttpRequest::get(task_path(upid, "status"), Query::new())).await
    }

    /// Lines of a task's log, from line `start` (0 is the first).
    pub async fn task_log(
        &self,
        upid: &Upid,
        start: u32,
        limit: u32,
    ) -> Result<Vec<LogLine>, Error> {
        let query = Query::new().with("start", start.to_string()).with("limit", limit.to_string());
        self.call::<LogLines>(HttpRequest::list(task_path(upid, "log"), query))
            .await
            .map(|log| log.0)
    }

    /// The same, with how many lines the log has.
    pub(crate) async fn task_log_page(
        &self,
        upid: &Upid,
        start: u32,
        limit: u32,
    ) -> Result<LogPage, Error> {
        let query = Query::new().with("start", start.to_string()).with("limit", limit.to_string());
        self.call_enveloped(HttpRequest::list(task_path(upid, "log"), query)).await
    }

    /// Guests of the whole cluster. The node is certain, the status is not.
    pub(crate) async fn cluster_guests(&self) -> Result<ListReading<Resource>, Error> {
        self.cluster_resources("vm").await
    }

    /// Nodes of the cluster, with what their kernels do.
    pub(crate) async fn cluster_nodes(&self) -> Result<ListReading<Resource>, Error> {
        self.cluster_resources("node").await
    }

    /// Storages of the cluster, as the statistics of each node saw them within five minutes.
    pub(super) async fn cluster_storages(&self) -> Result<ListReading<Resource>, Error> {
        self.cluster_resources("storage").await
    }

    async fn cluster_resources(&self, kind: &str) -> Result<ListReading<Resource>, Error> {
        let query = Query::new().with("type", kind);
        self.list(HttpRequest::list(ApiPath::new(["cluster", "resources"]), query)).await
    }

    /// The first free guest number. Nothing is reserved by asking.
    pub async fn next_vmid(&self) -> Result<VmId, Error> {
        let request = HttpRequest::get(ApiPath::new(["cluster", "nextid"]), Query::new());
        self.call::<LooseNumber>(request).await.map(|number| number.0)
    }

    /// Whether no guest of the cluster has this number, privileges aside. On a node without quorum
    /// the answer may be old; ask `cluster_status` as well.
    pub async fn vmid_is_free(&self, vmid: VmId) -> Result<bool, Error> {
        let query = Query::new().with("vmid", vmid.to_string());
        let request = HttpRequest::get(ApiPath::new(["cluster", "nextid"]), query);
        match self.call::<LooseNumber>(request).await {
            // An answer about another number proves nothing about this one.
            Ok(number) => Ok(number.0 == vmid),
            Err(error) if error.class() == Some(&ErrorClass::AlreadyExists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The cluster and its nodes; a host of its own has no cluster entry.
    pub async fn cluster_status(&self) -> Result<ListReading<ClusterEntry>, Error> {
        self.list(HttpRequest::list(ApiPath::new(["cluster", "status"]), Query::new())).await
    }

    /// The datacenter's options; nested values are JSON.
    pub async fn cluster_options(&self) -> Result<BTreeMap<String, String>, Error> {
        self.settings(ApiPath::new(["cluster", "options"]), Query::new()).await
    }

    /// The node's storages, as far as the token may see them and they can be read.
    pub async fn storages(&self) -> Result<Vec<StorageEntry>, Error> {
        self.storage_list().await.map(|listed| listed.rows)
    }

    /// The same with what cannot be read of them.
    pub(crate) async fn storage_list(&self) -> Result<ListReading<StorageEntry>, Error> {
        let request = HttpRequest::list(self.node_path(["storage"]), Query::new());
        self.list_of_storage(StorageQuestion::All, request).await
    }

    /// Volumes of a storage.
    pub async fn volumes(
        &self,
        storage: &StorageName,
        filter: &ContentFilter,
    ) -> Result<ListReading<ListedVolume>, Error> {
        let query = match filter {
            ContentFilter::Type(content) => Query::new().with("content", *content),
            ContentFilter::Guest(vmid) => Query::new().with("vmid", vmid.to_string()),
            ContentFilter::BackupsOf(vmid) => {
                Query::new().with("content", "backup").with("vmid", vmid.to_string())
            }
            ContentFilter::All => Query::new(),
        };
        let path = self.node_path(["storage", storage.as_str(), "content"]);
        let about = StorageQuestion::One(storage.clone());
        self.list_of_storage(about, HttpRequest::list(path, query)).await
    }

    /// What a backup to a storage does unless it is told otherwise; nested values are JSON.
    pub(crate) async fn backup_defaults(
        &self,
        storage: &StorageName,
    ) -> Result<BTreeMap<String, String>, Error> {
        let query = Query::new().with("storage", storage.as_str());
        self.settings(self.node_path(["vzdump", "defaults"]), query).await
    }

    /// How a storage is configured; only who may configure it may ask.
    pub(crate) async fn storage_config(
        &self,
        storage: &StorageName,
    ) -> Result<BTreeMap<String, String>, Error> {
        self.settings(ApiPath::new(["storage", storage.as_str()]), Query::new()).await
    }

    /// The configuration inside a backup, as text.
    pub(crate) async fn backup_config(&self, volume: &VolumeId) -> Result<String, Error> {
        let query = Query::new().with("volume", volume.as_str());
        let request = HttpRequest::list(self.node_path(["vzdump", "extractconfig"]), query);
        let storage = volume.as_str().split_once(':').and_then(|(storage, _)| storage.parse().ok());
        let told = match storage {
            Some(storage) => {
                self.told_by_storage::<LooseText>(StorageQuestion::One(storage), request).await
            }
            None => self.call(request).await,
        };
        told.map(|text| text.0)
    }

    async fn settings(
        &self,
        path: ApiPath,
        query: Query,
    ) -> Result<BTreeMap<String, String>, Error> {
        self.call::<TextMap>(HttpRequest::get(path, query)).await.map(|settings| settings.0)
    }

    /// Whether the token has this right on a path, by whatever grant. Proxmox itself works out what is inherited.
    pub async fn may(&self, path: &str, privilege: &str) -> Result<bool, Error> {
        Ok(self.held_on(path).await?.contains(privilege))
    }

    /// Every user the token may see, with its tokens. A token may not ask for its own entry alone.
    pub async fn users(&self) -> Result<Vec<UserEntry>, Error> {
        let query = Query::new().with("full", "1");
        let request = HttpRequest::list(ApiPath::new(["access", "users"]), query);
        self.list(request).await.map(|listed| listed.rows)
    }

    /// What the token may do, by path.
    pub async fn permissions(&self) -> Result<Permissions, Error> {
        self.call(HttpRequest::list(ApiPath::new(["access", "permissions"]), Query::new())).await
    }
}

/// A task is asked on its own node, whichever node this client is for.
fn task_path(upid: &Upid, what: &str) -> ApiPath {
    ApiPath::new(["nodes", upid.node().as_str(), "tasks", upid.as_str(), what])
}
