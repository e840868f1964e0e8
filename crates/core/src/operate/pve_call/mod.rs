//! What a request that changes something says, before anybody sends it.
//!
//! A call is made from a planned step or from a signed item, on the guest as it was read a moment ago; the agent's client
//! turns it into HTTP. Nothing here decides whether it may be sent: that is the gate's word.

mod name;

use std::collections::BTreeMap;
use std::fmt;

pub use name::{ConfigKey, SnapshotName};

use crate::action_registry::ActionKind;
use crate::actual::Guest;
use crate::actual::identity::{identity, identity_after_restart};
use crate::gate::classify::never_written;
use crate::gate::destroy::Destroy;
use crate::gate::new_guest::NewGuest;
use crate::model::id::VmId;
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::secret::masked_param;
use crate::operate::operation::{IdentityHash, OpPhase, StorageName};
use crate::plan::{SetConfig, Step, TemplateHold};
use crate::registry::{self, KeyRef};
use crate::sign::ConfigDigest;

/// A call that changes a guest.
#[derive(Debug, Clone)]
pub enum PveCall {
    /// Write configuration keys.
    SetConfig(ConfigChange),
    /// Grow a volume to an absolute size.
    Resize {
        /// The slot it is in.
        slot: ConfigKey,
        /// The size.
        to_bytes: u64,
        /// The configuration that was read.
        digest: ConfigDigest,
    },
    /// Copy a volume to another storage; the old one stays as `unusedN`. There is no form that frees it.
    MoveVolume {
        /// The slot it is in.
        slot: ConfigKey,
        /// Where to.
        storage: StorageName,
        /// The configuration that was read.
        digest: ConfigDigest,
    },
    /// Start it.
    Start,
    /// Ask it to go down.
    Shutdown {
        /// How long it has.
        timeout_s: u32,
    },
    /// Cut its power.
    Stop,
    /// Put it back to a snapshot.
    Rollback {
        /// Which.
        snapshot: SnapshotName,
    },
    /// Remove a snapshot.
    DeleteSnapshot {
        /// Which.
        snapshot: SnapshotName,
    },
    /// Make it.
    Make(Box<NewGuest>),
    /// Take a snapshot.
    Snapshot {
        /// Its name.
        snapshot: SnapshotName,
        /// What is said of it; empty for nothing.
        description: String,
    },
    /// Save the guest.
    Backup {
        /// Where to.
        storage: StorageName,
    },
    /// Remove the guest, after its preparations.
    Destroy(Destroy),
    /// Turn it into a template.
    Template,
}

/// One change of a guest's configuration, bound to the configuration that was read.
#[derive(Debug, Clone)]
pub struct ConfigChange {
    /// Keys to set.
    pub set: Settings,
    /// Keys to remove.
    pub delete: Vec<ConfigKey>,
    /// Keys whose waiting change is dropped.
    pub revert: Vec<ConfigKey>,
    /// The configuration that was read.
    pub digest: ConfigDigest,
}

/// Configuration keys with their values, in the order in which they are sent.
#[derive(Clone, Default)]
pub struct Settings(Vec<(ConfigKey, String)>);

impl Settings {
    /// No settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    #[must_use]
    pub fn set(mut self, key: &ConfigKey, value: impl Into<String>) -> Self {
        self.0.push((key.clone(), value.into()));
        self
    }
}

impl IntoIterator for Settings {
    type Item = (ConfigKey, String);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(key, text)| (key, masked_param(key.as_str(), text)));
        f.debug_map().entries(shown).finish()
    }
}

impl PveCall {
    /// The call of a planned step. A destroy needs a signature, whatever was planned, but for the removal of a guest of
    /// ours, which the planner plans only upon proof.
    pub fn planned(step: &Step) -> Result<Self, Refusal> {
        Ok(match step {
            Step::SetConfig(write) => Self::SetConfig(ConfigChange::planned(write)?),
            Step::Resize { disk, to, digest, from: _ } => {
                Self::Resize { slot: (*disk).into(), to_bytes: to.0, digest: digest_of(digest)? }
            }
            Step::MoveVolume { disk, to, digest, volume: _, from: _ } => Self::MoveVolume {
                slot: (*disk).into(),
                storage: to.parse().map_err(|_| payload(format!("`{to}` is no storage")))?,
                digest: digest_of(digest)?,
            },
            Step::Start => Self::Start,
            Step::Shutdown { timeout_s } => Self::Shutdown { timeout_s: *timeout_s },
            Step::Stop => Self::Stop,
            Step::Make(new) => Self::Make(new.clone()),
            Step::Remove(removal) => Self::Destroy(removal.destroy.clone()),
            Step::Destroy(_) | Step::Template => {
                let why = crate::plan::Held::PendingSignature.to_string();
                return Err(Refusal::new(ReasonCode::PendingSignature, why));
            }
        })
    }

    /// The call of a signed item, for its guest as it is now. What has no executor is refused although it is signed.
    pub fn signed(
        op: ActionKind,
        params: &BTreeMap<String, String>,
        fresh: &Guest,
    ) -> Result<Self, Refusal> {
        let not_executable = |why: String| Refusal::new(ReasonCode::NotExecutable, why);
        if let Some(why) = op.not_signable() {
            return Err(not_executable(why));
        }
        let is_on = |name: &str| params.get(name).map(String::as_str) == Some("1");
        let snapshot = || named(params, "snapname");
        match op {
            ActionKind::SetConfig => Ok(Self::SetConfig(ConfigChange::signed(params, fresh)?)),
            ActionKind::Destroy => Ok(Self::Destroy(Destroy::signed(params, fresh)?)),
            // That it starts the guest is the snapshot's doing, which the gate compares with what was signed.
            ActionKind::Rollback => Ok(Self::Rollback { snapshot: snapshot()? }),
            ActionKind::DeleteSnapshot if is_on("force") => {
                Err(not_executable("a forced removal".to_owned()))
            }
            ActionKind::DeleteSnapshot => Ok(Self::DeleteSnapshot { snapshot: snapshot()? }),
            ActionKind::DeleteVolume => {
                Ok(Self::SetConfig(ConfigChange::delete_volume(params, fresh)?))
            }
            ActionKind::Template => {
                if let Some(hold) = TemplateHold::of(fresh) {
                    return Err(Refusal::new(ReasonCode::After, hold.to_string()));
                }
                if fresh.template {
                    let why = "the guest is a template already";
                    return Err(Refusal::new(ReasonCode::Stale, why));
                }
                Ok(Self::Template)
            }
            ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Resize
            | ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Restore
            | ActionKind::Snapshot
            | ActionKind::Backup
            | ActionKind::MoveVolume
            | ActionKind::Migrate
            | ActionKind::WipeStorage
            | ActionKind::Decommission => Err(not_executable(format!("{op} has no signed form"))),
        }
    }

    /// The call of what somebody asks for that needs no signature.
    pub fn asked(op: ActionKind, params: &BTreeMap<String, String>) -> Result<Self, Refusal> {
        let not_executable = |why: String| Err(Refusal::new(ReasonCode::NotExecutable, why));
        let is_on = |name: &str| params.get(name).map(String::as_str) == Some("1");
        match op {
            ActionKind::Snapshot if is_on("vmstate") => {
                not_executable("a snapshot with memory is not taken".to_owned())
            }
            ActionKind::Snapshot => Ok(Self::Snapshot {
                snapshot: named(params, "snapname")?,
                description: params.get("description").cloned().unwrap_or_default(),
            }),
            ActionKind::Backup => Ok(Self::Backup { storage: named(params, "storage")? }),
            ActionKind::SetConfig
            | ActionKind::Destroy
            | ActionKind::Rollback
            | ActionKind::DeleteSnapshot
            | ActionKind::DeleteVolume
            | ActionKind::Start
            | ActionKind::Shutdown
            | ActionKind::Stop
            | ActionKind::Resize
            | ActionKind::Create
            | ActionKind::Clone
            | ActionKind::Restore
            | ActionKind::MoveVolume
            | ActionKind::Migrate
            | ActionKind::Template
            | ActionKind::WipeStorage
            | ActionKind::Decommission => {
                not_executable(format!("{op} is not done just because somebody asks"))
            }
        }
    }

    /// The first request it takes.
    pub fn first_request(&self) -> OpPhase {
        match self {
            Self::Destroy(Destroy { stop: true, .. }) => OpPhase::Stop,
            Self::Destroy(Destroy { final_backup: Some(_), .. }) => OpPhase::Backup,
            Self::Destroy(Destroy { unprotect: true, .. }) => OpPhase::Unprotect,
            Self::Destroy(_)
            | Self::Snapshot { .. }
            | Self::Backup { .. }
            | Self::SetConfig(_)
            | Self::Resize { .. }
            | Self::MoveVolume { .. }
            | Self::Start
            | Self::Shutdown { .. }
            | Self::Stop
            | Self::Make(_)
            | Self::Rollback { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Template => OpPhase::Act,
        }
    }

    /// Whether it makes a guest; then its number was proved free.
    pub fn makes(&self) -> bool {
        matches!(self, Self::Make(_))
    }

    /// The guest that is copied.
    pub fn clone_source(&self) -> Option<VmId> {
        match self {
            Self::Make(new) => new.clone_source(),
            Self::SetConfig(_)
            | Self::Resize { .. }
            | Self::Start
            | Self::Shutdown { .. }
            | Self::Stop
            | Self::Rollback { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Snapshot { .. }
            | Self::Backup { .. }
            | Self::MoveVolume { .. }
            | Self::Template
            | Self::Destroy(_) => None,
        }
    }

    /// Whether it takes the protection off on the way.
    pub fn unprotects(&self) -> bool {
        matches!(self, Self::Destroy(Destroy { unprotect: true, .. }))
    }

    /// Whether a guest that runs is stopped on the way and must run again if the act comes to nothing.
    pub fn restarts(&self) -> bool {
        matches!(self, Self::Destroy(destroy) if destroy.restarts())
    }

    /// The identity a power action gives a guest by applying what waits, where that is another one.
    pub fn identity_after(&self, fresh: &Guest) -> Option<IdentityHash> {
        match self {
            Self::Start | Self::Shutdown { .. } | Self::Stop => {
                let after = identity_after_restart(fresh).ok();
                after.filter(|after| identity(fresh).as_ref() != Ok(after))
            }
            Self::SetConfig(_)
            | Self::Resize { .. }
            | Self::Make(_)
            | Self::MoveVolume { .. }
            | Self::Rollback { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Snapshot { .. }
            | Self::Backup { .. }
            | Self::Destroy(_)
            | Self::Template => None,
        }
    }
}

impl ConfigChange {
    fn planned(write: &SetConfig) -> Result<Self, Refusal> {
        let keys = |keys: &[KeyRef]| keys.iter().copied().map(ConfigKey::from).collect();
        let set = write.set.iter().map(|(key, text)| ((*key).into(), text.clone())).collect();
        Ok(Self {
            set: Settings(set),
            delete: keys(&write.delete),
            revert: keys(&write.revert),
            digest: digest_of(&write.digest)?,
        })
    }

    /// Exactly the parameters that were signed.
    fn signed(params: &BTreeMap<String, String>, fresh: &Guest) -> Result<Self, Refusal> {
        if let Some(why) = never_written(fresh, params) {
            return Err(Refusal::new(ReasonCode::NotExecutable, why));
        }
        let mut change = Self::nothing(fresh)?;
        let key = |text: &str| {
            let not_a_key = |_| payload(format!("`{text}` is no configuration key"));
            text.parse::<ConfigKey>().map_err(not_a_key)
        };
        for (name, text) in params {
            match name.as_str() {
                "digest" => {}
                "delete" => change.delete = text.split(',').map(key).collect::<Result<_, _>>()?,
                "revert" => change.revert = text.split(',').map(key).collect::<Result<_, _>>()?,
                _ => change.set = change.set.set(&key(name)?, text.clone()),
            }
        }
        Ok(change)
    }

    /// `delete=unusedN`, and only while that slot holds the volume that was signed away.
    fn delete_volume(params: &BTreeMap<String, String>, fresh: &Guest) -> Result<Self, Refusal> {
        let held = params.get("slot").and_then(|slot| detached_volume(fresh, slot));
        if held.is_none() || held.as_ref() != params.get("volume") {
            let why = "the slot does not hold the volume that was signed away, detached";
            return Err(Refusal::new(ReasonCode::Stale, why));
        }
        Ok(Self { delete: vec![named(params, "slot")?], ..Self::nothing(fresh)? })
    }

    /// The write that sets a guest's protection and nothing else.
    pub fn protection(fresh: &Guest, is_on: bool) -> Result<Self, Refusal> {
        let key: ConfigKey = "protection".parse().map_err(|error| payload(format!("{error}")))?;
        let set = Settings::new().set(&key, if is_on { "1" } else { "0" });
        Ok(Self { set, ..Self::nothing(fresh)? })
    }

    fn nothing(fresh: &Guest) -> Result<Self, Refusal> {
        let config = fresh.config.as_ref().map_err(|error| payload(error.to_string()))?;
        let digest = digest_of(&config.digest)?;
        Ok(Self { set: Settings::new(), delete: Vec::new(), revert: Vec::new(), digest })
    }
}

/// The volume that hangs on a guest in this slot, detached.
pub fn detached_volume(guest: &Guest, slot: &str) -> Option<String> {
    let key = registry::find(guest.id.kind, slot).filter(|_| slot.starts_with("unused"))?;
    let reading = guest.config.as_ref().ok()?.field(key)?.current.as_ref()?;
    reading.value.as_property()?.volume()?.volid()
}

fn named<T: std::str::FromStr>(
    params: &BTreeMap<String, String>,
    name: &str,
) -> Result<T, Refusal> {
    let text = params.get(name).map_or("", String::as_str);
    text.parse().map_err(|_| payload(format!("`{text}` is no {name}")))
}

fn digest_of(text: &str) -> Result<ConfigDigest, Refusal> {
    text.parse().map_err(|_| payload("Proxmox gave no digest of its configuration".to_owned()))
}

fn payload(why: String) -> Refusal {
    Refusal::new(ReasonCode::Payload, why)
}
