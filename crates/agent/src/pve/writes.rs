//! The calls that change something: all of them, and only here.
//!
//! They hang on [`Writes`] and not on [`Client`], and only what the gate cleared gets hold of it. Each is
//! sent at most once, on a connection of its own; after an unknown outcome the caller looks at the
//! world, and so it does after dropping a call that was under way. Flags that decide over data are spelled out in every call, never left to PVE's defaults.

use evenkeel_core::desired::GuestSource;
use evenkeel_core::gate::new_guest::NewGuest;
use evenkeel_core::model::id::{GuestId, GuestKind, NodeName};
use evenkeel_core::model::secret::masked_param;
use evenkeel_core::operate::operation::StorageName;
use evenkeel_core::operate::pve_call::{ConfigChange, ConfigKey, Settings, SnapshotName};
use evenkeel_core::sign::ConfigDigest;
use secrecy::SecretString;

use super::Client;
use super::error::Error;
use super::exchange::HttpRequest;
use super::form::{Form, Query};
use super::task::Upid;
use super::wire::{MaybeTask, Task};
use crate::engine::Cleared;

/// How long PVE may hold a QEMU config write before it answers with a task instead. Most end at
/// once; a longer hold would occupy one of the node's three workers.
const QEMU_CONFIG_DELAY_S: u8 = 5;

/// How many minutes a backup may wait for another one of the node. PVE's own three hours would outlive most approvals.
const BACKUP_LOCK_WAIT_MIN: u8 = 10;

/// The mutating calls of one client.
#[derive(Debug, Clone, Copy)]
pub struct Writes<'a> {
    client: &'a Client,
}

impl Client {
    /// The mutating calls, for whoever the gate let through (invariant 2).
    pub(crate) fn writes(&self, _cleared: &Cleared) -> Writes<'_> {
        Writes { client: self }
    }
}

/// What a write came to, when it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// PVE answered without a task: done, but for a container's `template`, whose task it hides.
    Done,
    /// A task works on it.
    Task(Upid),
}

impl Taken {
    /// The task that works on it.
    pub fn task(&self) -> Option<&Upid> {
        match self {
            Self::Done => None,
            Self::Task(upid) => Some(upid),
        }
    }
}

impl From<MaybeTask> for Taken {
    fn from(answer: MaybeTask) -> Self {
        match answer.0 {
            Some(upid) => Self::Task(upid),
            None => Self::Done,
        }
    }
}

/// What a destroy takes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestroyFlags {
    /// Also backup jobs, replication jobs and HA entries.
    pub purge: bool,
    /// Also volumes of that number no config mentions.
    pub unreferenced_disks: bool,
}

/// How a guest is saved.
#[derive(Debug, Clone)]
pub struct BackupOrder {
    /// Where to.
    pub storage: StorageName,
    /// What its notes say, so that it is found again.
    pub note: String,
}

/// How a volume moves to another storage.
#[derive(Debug, Clone)]
pub struct VolumeMove {
    /// The config key that holds it.
    pub slot: ConfigKey,
    /// Where to.
    pub storage: StorageName,
    /// True destroys the old volume; false leaves it as `unusedN`.
    pub delete_source: bool,
    /// The config that was read.
    pub digest: ConfigDigest,
}

/// How a guest moves to another node.
#[derive(Debug, Clone)]
pub struct Migration {
    /// Where to.
    pub target: NodeName,
    /// While it runs: a virtual machine live, a container by restarting it.
    pub running: bool,
    /// Where its volumes go on the target.
    pub storage: Option<StorageName>,
}

impl Writes<'_> {
    /// Starts a guest.
    pub async fn start(self, guest: GuestId) -> Result<Upid, Error> {
        self.post_task(guest, ["status", "start"], Form::new()).await
    }

    /// Asks a guest to shut down; without `force_stop` it is left running if it does not.
    pub async fn shutdown(
        self,
        guest: GuestId,
        timeout_s: u32,
        force_stop: bool,
    ) -> Result<Upid, Error> {
        let form =
            Form::new().with("timeout", timeout_s.to_string()).with_flag("forceStop", force_stop);
        self.post_task(guest, ["status", "shutdown"], form).await
    }

    /// Stops a guest at once, as by pulling the plug.
    pub async fn stop(self, guest: GuestId) -> Result<Upid, Error> {
        self.post_task(guest, ["status", "stop"], Form::new()).await
    }

    /// Changes a guest's config. A container's write is done when answered; a virtual machine's may
    /// go on as a task. An error does not prove that nothing was changed.
    pub async fn set_config(self, guest: GuestId, change: ConfigChange) -> Result<Taken, Error> {
        let ConfigChange { set, delete, revert, digest } = change;
        let form = form_of(set)
            .with_some("delete", joined(&delete))
            .with_some("revert", joined(&revert))
            .with("digest", digest.to_string());
        let path = self.client.guest_path(guest, ["config"]);
        let request = match guest.kind {
            GuestKind::Lxc => HttpRequest::put(path, form),
            GuestKind::Qemu => HttpRequest::post(
                path,
                form.with("background_delay", QEMU_CONFIG_DELAY_S.to_string()),
            ),
        };
        self.client.call::<MaybeTask>(request).await.map(Taken::from)
    }

    /// Grows a volume to an absolute size, which is repeatable; a relative one would not be.
    pub async fn resize(
        self,
        guest: GuestId,
        slot: &ConfigKey,
        size_bytes: u64,
        digest: &ConfigDigest,
    ) -> Result<Taken, Error> {
        let form = Form::new()
            .with("disk", slot.as_str())
            .with("size", size_bytes.to_string())
            .with("digest", digest.to_string());
        let request = HttpRequest::put(self.client.guest_path(guest, ["resize"]), form);
        self.client.call::<MaybeTask>(request).await.map(Taken::from)
    }

    /// Makes a guest under a free number. Never over an existing one: `force` is not sent, so PVE refuses a number that
    /// is taken. The task of a clone carries the number of the source.
    pub async fn make(self, new: &NewGuest, password: Option<SecretString>) -> Result<Upid, Error> {
        let form = new.params().into_iter().fold(Form::new(), with_text);
        if let Some(source) = new.clone_source() {
            let source = GuestId { kind: new.guest.kind, vmid: source };
            return self.post_task(source, ["clone"], form).await;
        }
        let is_template = matches!(new.source, GuestSource::Template(_));
        let keys = Some(new.first.ssh_keys.join("\n"));
        let keys = keys.filter(|keys| is_template && !keys.is_empty());
        let form = form.with("vmid", new.guest.vmid.to_string()).with_some("ssh-public-keys", keys);
        let form = match password {
            Some(password) => form.with_secret("password", password),
            None => form,
        };
        let request = HttpRequest::post(self.client.node_path([new.guest.kind.as_str()]), form);
        self.client.call::<Task>(request).await.map(|task| task.0)
    }

    /// Turns a guest into a template. For a container PVE works on after it answered `Done`; its
    /// task has to be looked for.
    pub async fn template(self, guest: GuestId) -> Result<Taken, Error> {
        let request = HttpRequest::post(self.client.guest_path(guest, ["template"]), Form::new());
        self.client.call::<MaybeTask>(request).await.map(Taken::from)
    }

    /// Takes a snapshot of a guest's volumes, without memory.
    pub async fn snapshot(
        self,
        guest: GuestId,
        name: &SnapshotName,
        description: Option<&str>,
    ) -> Result<Upid, Error> {
        let form =
            Form::new().with("snapname", name.as_str()).with_some("description", description);
        self.post_task(guest, ["snapshot"], form).await
    }

    /// Saves a guest as it runs. Older backups stay, whatever the storage's retention says, and this one is protected: a
    /// later run of a job counts only the others, so it removes none of them on account of this one. Temporary files of a
    /// container are saved too; Proxmox leaves them out unless it is told. What `/etc/vzdump.conf` excludes no call can
    /// include.
    pub async fn backup(self, guest: GuestId, order: BackupOrder) -> Result<Upid, Error> {
        let BackupOrder { storage, note } = order;
        let form = Form::new()
            .with("vmid", guest.vmid.to_string())
            .with("storage", storage.as_str())
            .with("mode", "snapshot")
            .with("compress", "zstd")
            .with("lockwait", BACKUP_LOCK_WAIT_MIN.to_string())
            .with_flag("remove", false)
            .with_flag("protected", true)
            .with_flag("stdexcludes", false)
            .with("notes-template", note);
        let request = HttpRequest::post(self.client.node_path(["vzdump"]), form);
        self.client.call::<Task>(request).await.map(|task| task.0)
    }

    /// Destroys a snapshot. Not forced: PVE keeps its entry if the storage cannot remove it.
    pub async fn delete_snapshot(self, guest: GuestId, name: &SnapshotName) -> Result<Upid, Error> {
        let path = self.client.guest_path(guest, ["snapshot", name.as_str()]);
        let request = HttpRequest::delete(path, Query::new());
        self.client.call::<Task>(request).await.map(|task| task.0)
    }

    /// Puts a guest back to a snapshot, config included; everything since is lost.
    pub async fn rollback(self, guest: GuestId, name: &SnapshotName) -> Result<Upid, Error> {
        self.post_task(guest, ["snapshot", name.as_str(), "rollback"], Form::new()).await
    }

    /// Destroys a stopped guest with its volumes. Not forced: PVE refuses a running one.
    pub async fn destroy(self, guest: GuestId, flags: DestroyFlags) -> Result<Upid, Error> {
        let query = Query::new()
            .with_flag("purge", flags.purge)
            .with_flag("destroy-unreferenced-disks", flags.unreferenced_disks);
        let request = HttpRequest::delete(self.client.guest_path(guest, []), query);
        self.client.call::<Task>(request).await.map(|task| task.0)
    }

    /// Moves a volume to another storage of the same node.
    pub async fn move_volume(self, guest: GuestId, order: VolumeMove) -> Result<Upid, Error> {
        let VolumeMove { slot, storage, delete_source, digest } = order;
        let (action, slot_parameter) = match guest.kind {
            GuestKind::Lxc => ("move_volume", "volume"),
            GuestKind::Qemu => ("move_disk", "disk"),
        };
        let form = Form::new()
            .with(slot_parameter, slot.as_str())
            .with("storage", storage.as_str())
            .with_flag("delete", delete_source)
            .with("digest", digest.to_string());
        self.post_task(guest, [action], form).await
    }

    /// Moves a guest to another node.
    pub async fn migrate(self, guest: GuestId, migration: Migration) -> Result<Upid, Error> {
        let Migration { target, running, storage } = migration;
        let (running_parameter, storage_parameter) = match guest.kind {
            GuestKind::Lxc => ("restart", "target-storage"),
            GuestKind::Qemu => ("online", "targetstorage"),
        };
        let form = Form::new()
            .with("target", target.as_str())
            .with_flag(running_parameter, running)
            .with_some(storage_parameter, storage.as_ref().map(StorageName::as_str));
        let form = match guest.kind {
            GuestKind::Lxc => form,
            // A stopped machine takes its local disks along anyway; a running one only if told.
            GuestKind::Qemu => form.with_flag("with-local-disks", true),
        };
        self.post_task(guest, ["migrate"], form).await
    }

    async fn post_task<const N: usize>(
        self,
        guest: GuestId,
        rest: [&str; N],
        form: Form,
    ) -> Result<Upid, Error> {
        let request = HttpRequest::post(self.client.guest_path(guest, rest), form);
        self.client.call::<Task>(request).await.map(|task| task.0)
    }
}

/// What core calls a secret is never shown, also not when PVE repeats it in an error.
fn form_of(settings: Settings) -> Form {
    let texts = settings.into_iter().map(|(key, value)| (key.as_str().to_owned(), value));
    texts.fold(Form::new(), with_text)
}

fn with_text(form: Form, (name, value): (String, String)) -> Form {
    if masked_param(&name, &value) == value {
        form.with(&name, value)
    } else {
        form.with_secret(&name, value.into())
    }
}

fn joined(keys: &[ConfigKey]) -> Option<String> {
    let names: Vec<&str> = keys.iter().map(ConfigKey::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}
