//! Every typed call once, with plain arguments: for properties that must hold for all of them.

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use crate::engine::Cleared;
use crate::pve::around::FirewallList;
use crate::pve::error::Error;
use crate::pve::exchange::{Exchange, ExchangeFuture, ExchangeOutcome, HttpRequest};
use crate::pve::task::Upid;
use crate::pve::writes::{DestroyFlags, Migration, VolumeMove};
use crate::pve::{Client, ConfigView, ContentFilter, StorageFeature, TaskFilter, TaskSource};
use evenkeel_core::desired::{CloneSource, FirstUse, GuestSource};
use evenkeel_core::gate::new_guest::NewGuest;
use evenkeel_core::model::id::{GuestId, GuestKind, VmId};
use evenkeel_core::operate::operation::{StorageName, VolumeId};
use evenkeel_core::operate::pve_call::{ConfigChange, ConfigKey, Settings, SnapshotName};
use evenkeel_core::registry;
use evenkeel_core::sign::ConfigDigest;

/// An exchange that gives the same outcome to every request, and keeps the requests.
pub(crate) struct Always {
    outcome: ExchangeOutcome,
    requests: Mutex<Vec<HttpRequest>>,
}

impl Always {
    pub(crate) fn new(outcome: ExchangeOutcome) -> Arc<Self> {
        Arc::new(Self { outcome, requests: Mutex::default() })
    }

    /// `METHOD target body` of each request, without the common prefix.
    pub(crate) fn lines(&self) -> Vec<String> {
        let requests = self.requests.lock().expect("no test panics while holding it");
        requests
            .iter()
            .map(|request| {
                let target = request.target().replace("/api2/json", "");
                let body = request.body().unwrap_or_default();
                format!("{} {target} {body}", request.method().as_str()).trim_end().to_owned()
            })
            .collect()
    }
}

impl Exchange for Always {
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_> {
        self.requests.lock().expect("no test panics while holding it").push(request);
        Box::pin(std::future::ready(self.outcome.clone()))
    }
}

/// A call's result, printed.
pub(crate) type Shown = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

/// One call with its arguments filled in.
pub(crate) type Call = (&'static str, fn(Client) -> Shown);

macro_rules! calls {
    ($($name:literal => |$client:ident| $call:expr),* $(,)?) => {
        vec![$((
            $name,
            (|$client: Client| -> Shown {
                Box::pin(async move { $call.await.map(|value| format!("{value:?}")) })
            }) as fn(Client) -> Shown
        )),*]
    };
}

pub(crate) fn reads() -> Vec<Call> {
    calls! {
        "version" => |c| c.version(),
        "nodes" => |c| c.nodes(),
        "node_status" => |c| c.node_status(),
        "guests lxc" => |c| c.guests(GuestKind::Lxc),
        "guests qemu" => |c| c.guests(GuestKind::Qemu),
        "guest_names" => |c| c.guest_names(GuestKind::Qemu),
        "config" => |c| c.config(lxc(), ConfigView::Merged),
        "config current" => |c| c.config(qemu(), ConfigView::Current),
        "pending" => |c| c.pending(lxc()),
        "guest_status" => |c| c.guest_status(qemu()),
        "snapshots" => |c| c.snapshots(lxc()),
        "has_feature" => |c| c.has_feature(lxc(), StorageFeature::Snapshot),
        "tasks" => |c| c.tasks(&filter()),
        "task_status" => |c| c.task_status(&upid()),
        "task_log" => |c| c.task_log(&upid(), 0, 50),
        "cluster_guests" => |c| c.cluster_guests(),
        "next_vmid" => |c| c.next_vmid(),
        "vmid_is_free" => |c| c.vmid_is_free(vmid(100)),
        "cluster_status" => |c| c.cluster_status(),
        "cluster_options" => |c| c.cluster_options(),
        "storages" => |c| c.storages(),
        "volumes of a type" => |c| c.volumes(&storage(), &ContentFilter::Type("images")),
        "volumes of a guest" => |c| c.volumes(&storage(), &ContentFilter::Guest(vmid(100))),
        "backups" => |c| c.volumes(&storage(), &ContentFilter::BackupsOf(vmid(100))),
        "permissions" => |c| c.permissions(),
        "held_on" => |c| c.held_on("/vms/100"),
        "access_list" => |c| c.access_list(),
        "ha_resources" => |c| c.ha_resources(),
        "replication_jobs" => |c| c.replication_jobs(),
        "backup_jobs" => |c| c.backup_jobs(),
        "firewall rules" => |c| c.firewall_list(lxc(), FirewallList::Rules),
        "firewall aliases" => |c| c.firewall_list(qemu(), FirewallList::Aliases),
        "firewall sets" => |c| c.firewall_list(lxc(), FirewallList::IpSets),
        "firewall options" => |c| c.firewall_options(qemu()),
    }
}

pub(crate) fn writes() -> Vec<Call> {
    calls! {
        "start" => |c| c.writes(&Cleared::in_a_test()).start(lxc()),
        "shutdown" => |c| c.writes(&Cleared::in_a_test()).shutdown(qemu(), 60, false),
        "stop" => |c| c.writes(&Cleared::in_a_test()).stop(lxc()),
        "set_config lxc" => |c| c.writes(&Cleared::in_a_test()).set_config(lxc(), change()),
        "set_config qemu" => |c| c.writes(&Cleared::in_a_test()).set_config(qemu(), change()),
        "resize" => |c| c.writes(&Cleared::in_a_test()).resize(lxc(), &key("rootfs"), 1 << 30, &digest()),
        "create lxc" => |c| {
            let source = GuestSource::Template(volume("local:vztmpl/debian.tar.zst"));
            make(c, new(GuestKind::Lxc, source), Some("pass word".into()))
        },
        "create qemu" => |c| make(c, new(GuestKind::Qemu, GuestSource::Empty), None),
        "restore lxc" => |c| make(c, new(GuestKind::Lxc, backup()), None),
        "restore qemu" => |c| make(c, new(GuestKind::Qemu, backup()), None),
        "clone lxc" => |c| make(c, new(GuestKind::Lxc, copy()), None),
        "clone qemu" => |c| make(c, new(GuestKind::Qemu, copy()), None),
        "template" => |c| c.writes(&Cleared::in_a_test()).template(lxc()),
        "snapshot" => |c| c.writes(&Cleared::in_a_test()).snapshot(lxc(), &snapshot(), Some("before the update")),
        "delete_snapshot" => |c| c.writes(&Cleared::in_a_test()).delete_snapshot(lxc(), &snapshot()),
        "rollback" => |c| c.writes(&Cleared::in_a_test()).rollback(qemu(), &snapshot()),
        "destroy" => |c| c.writes(&Cleared::in_a_test()).destroy(lxc(), DestroyFlags {
            purge: true,
            unreferenced_disks: false,
        }),
        "move_volume lxc" => |c| c.writes(&Cleared::in_a_test()).move_volume(lxc(), volume_move("mp0", false)),
        "move_volume qemu" => |c| c.writes(&Cleared::in_a_test()).move_volume(qemu(), volume_move("scsi0", true)),
        "migrate lxc" => |c| c.writes(&Cleared::in_a_test()).migrate(lxc(), migration()),
        "migrate qemu" => |c| c.writes(&Cleared::in_a_test()).migrate(qemu(), migration()),
    }
}

pub(crate) fn client(exchange: Arc<Always>) -> Client {
    Client::new(exchange, "pve1".parse().expect("a node name"))
}

pub(crate) fn upid() -> Upid {
    "UPID:pve2:00001234:0123ABCD:65000000:vzstart:100:agent@pve!keel:".parse().expect("a UPID")
}

fn lxc() -> GuestId {
    GuestId::new(GuestKind::Lxc, vmid(100))
}

fn qemu() -> GuestId {
    GuestId::new(GuestKind::Qemu, vmid(200))
}

fn vmid(number: u32) -> VmId {
    VmId::try_from(number).expect("a guest number")
}

fn key(text: &str) -> ConfigKey {
    text.parse().expect("a config key")
}

fn digest() -> ConfigDigest {
    "da39a3ee5e6b4b0d3255bfef95601890afd80709".parse().expect("a digest")
}

fn storage() -> StorageName {
    "local-lvm".parse().expect("a storage name")
}

fn snapshot() -> SnapshotName {
    "before".parse().expect("a snapshot name")
}

fn filter() -> TaskFilter {
    TaskFilter {
        source: Some(TaskSource::All),
        vmid: Some(vmid(100)),
        kind: Some("vzstart".into()),
        user: Some("agent@pve".into()),
        since_unix_s: Some(1),
        until_unix_s: Some(2),
        start: Some(0),
        limit: Some(100),
    }
}

fn change() -> ConfigChange {
    let set = Settings::new().set(&key("tags"), "a;b").set(&key("cipassword"), "pass word");
    let delete = vec![key("nameserver"), key("tty")];
    let revert = vec![key("cmode")];
    ConfigChange { set, delete, revert, digest: digest() }
}

fn new(kind: GuestKind, source: GuestSource) -> NewGuest {
    let name = match kind {
        GuestKind::Lxc => "hostname",
        GuestKind::Qemu => "name",
    };
    let key = registry::find(kind, name).expect("a key");
    NewGuest {
        guest: GuestId { kind, vmid: vmid(101) },
        source,
        settings: [(key, "web".to_owned())].into(),
        storage: Some(storage()),
        first: FirstUse { ssh_keys: vec!["ssh-ed25519 AAAA ops".into()], password: None },
        run: None,
    }
}

async fn make(
    client: Client,
    new: NewGuest,
    password: Option<secrecy::SecretString>,
) -> Result<Upid, Error> {
    client.writes(&Cleared::in_a_test()).make(&new, password).await
}

fn volume(text: &str) -> VolumeId {
    text.parse().expect("a volume")
}

fn backup() -> GuestSource {
    GuestSource::Backup { volume: volume("local:backup/x.tar.zst"), unique: true }
}

fn copy() -> GuestSource {
    GuestSource::Clone(CloneSource {
        guest: vmid(102),
        full: true,
        storage: Some(storage()),
        snapshot: Some(snapshot()),
    })
}

fn migration() -> Migration {
    Migration {
        target: "pve2".parse().expect("a node name"),
        running: true,
        storage: Some(storage()),
    }
}

fn volume_move(slot: &str, delete_source: bool) -> VolumeMove {
    VolumeMove { slot: key(slot), storage: storage(), delete_source, digest: digest() }
}
