//! What Proxmox VE keeps under a guest's number and not in its file: firewall, replication jobs, backup jobs; access
//! lists, pools and HA entries stand where they always stood.
//!
//! Everything here is keyed by the number: it can be there before the guest, and some of it outlives the guest. Handlers and
//! tasks read and change it; it must never look at the guest's own file.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, VmId};
use serde::{Deserialize, Serialize};

use crate::access::Grant;
use crate::job::ha_sid;
use crate::world::World;

/// What is kept by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimSurroundings {
    /// Firewall files.
    pub firewalls: BTreeMap<u32, SimFirewall>,
    /// Replication jobs by id, such as `120-0`.
    pub replication: BTreeMap<String, SimReplication>,
    /// Backup jobs by id.
    pub backup_jobs: BTreeMap<String, SimBackupJob>,
    /// When somebody last gave a number something. No request shows it.
    #[serde(default)]
    pub given_ms: BTreeMap<u32, u64>,
}

/// One firewall file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimFirewall {
    /// Rules, first to last, each by field.
    pub rules: Vec<BTreeMap<String, String>>,
    /// Options that are set.
    pub options: BTreeMap<String, String>,
    /// Addresses by alias.
    pub aliases: BTreeMap<String, String>,
    /// Names of IP sets.
    pub ip_sets: BTreeSet<String>,
}

/// One replication job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimReplication {
    /// Whose volumes are copied.
    pub guest: u32,
    /// To which node.
    pub target: String,
}

/// One backup job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimBackupJob {
    /// Saves every guest but those excluded.
    pub all: bool,
    /// The guests it lists.
    pub vmids: BTreeSet<u32>,
    /// The guests it leaves out.
    pub exclude: BTreeSet<u32>,
}

/// One kind of what a number may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumberThing {
    /// A firewall file with a rule and an option.
    Firewall,
    /// A firewall file with an alias and nothing else.
    FirewallAlias,
    /// A role of another user on `/vms/ID`.
    Access,
    /// Membership of a pool.
    Pool,
    /// An HA entry.
    Ha,
    /// A replication job.
    Replication,
    /// A backup job that lists the number alone.
    BackupJob,
    /// A backup job that leaves the number out.
    BackupExclusion,
}

impl NumberThing {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Firewall,
        Self::FirewallAlias,
        Self::Access,
        Self::Pool,
        Self::Ha,
        Self::Replication,
        Self::BackupJob,
        Self::BackupExclusion,
    ];
}

/// The user that other people give rights to, and the pool they use.
const THEIR_USER: &str = "viewer@pve";
const THEIR_ROLE: &str = "PVEVMUser";
const THEIR_POOL: &str = "theirs";

impl World {
    /// Somebody gives a number this thing, or takes it away again.
    pub(crate) fn set_thing(&mut self, guest: GuestId, thing: NumberThing, present: bool) {
        let vmid = guest.vmid.get();
        let job = format!("theirs-{vmid}");
        let exclusion = format!("all-but-{vmid}");
        match thing {
            NumberThing::Firewall | NumberThing::FirewallAlias if !present => {
                self.around.firewalls.remove(&vmid);
            }
            NumberThing::Firewall => {
                let file = self.around.firewalls.entry(vmid).or_default();
                let rule =
                    [("type", "in"), ("action", "ACCEPT"), ("proto", "tcp"), ("dport", "22")];
                file.rules.push(rule.map(|(key, text)| (key.to_owned(), text.to_owned())).into());
                file.options.insert("enable".to_owned(), "1".to_owned());
            }
            NumberThing::FirewallAlias => {
                let file = self.around.firewalls.entry(vmid).or_default();
                file.aliases.insert("office".to_owned(), "192.0.2.0/24".to_owned());
            }
            NumberThing::Access => {
                let path = format!("/vms/{vmid}");
                let theirs = |grant: &Grant| grant.path == path && grant.holder == THEIR_USER;
                self.access.acl.retain(|grant| !theirs(grant));
                if present {
                    self.access.grant(&path, THEIR_USER, THEIR_ROLE);
                }
            }
            NumberThing::Pool if present => {
                self.pools.insert(THEIR_POOL.to_owned());
                self.pool_of.insert(vmid, THEIR_POOL.to_owned());
            }
            NumberThing::Pool => {
                self.pool_of.remove(&vmid);
            }
            NumberThing::Ha if present => {
                self.ha.insert(ha_sid(guest), "started".to_owned());
            }
            NumberThing::Ha => {
                self.ha.remove(&ha_sid(guest));
            }
            NumberThing::Replication if present => {
                let target = crate::world::OTHER_NODE.to_owned();
                let entry = SimReplication { guest: vmid, target };
                self.around.replication.insert(format!("{vmid}-0"), entry);
            }
            NumberThing::Replication => {
                self.around.replication.retain(|_, entry| entry.guest != vmid);
            }
            NumberThing::BackupJob if present => {
                let entry = SimBackupJob { vmids: [vmid].into(), ..SimBackupJob::default() };
                self.around.backup_jobs.insert(job, entry);
            }
            NumberThing::BackupJob => {
                self.around.backup_jobs.remove(&job);
            }
            NumberThing::BackupExclusion if present => {
                let entry =
                    SimBackupJob { all: true, exclude: [vmid].into(), ..SimBackupJob::default() };
                self.around.backup_jobs.insert(exclusion, entry);
            }
            NumberThing::BackupExclusion => {
                self.around.backup_jobs.remove(&exclusion);
            }
        }
    }

    /// Everything that a number has outside a guest's file, in words. No request shows it as a whole.
    pub fn around(&self, vmid: VmId) -> BTreeSet<String> {
        let number = vmid.get();
        let path = format!("/vms/{number}");
        let suffix = format!(":{number}");
        let grants = self.access.acl.iter().filter(|grant| grant.path == path);
        let access = grants.map(|grant| format!("{} for {}", grant.role, grant.holder));
        let firewall = self.around.firewalls.get(&number).map(|file| format!("firewall {file:?}"));
        let pool = self.pool_of.get(&number).map(|pool| format!("pool {pool}"));
        let ha = self.ha.keys().filter(|sid| sid.ends_with(&suffix)).map(|sid| format!("HA {sid}"));
        let copied = self.around.replication.iter().filter(|(_, entry)| entry.guest == number);
        let replication = copied.map(|(id, _)| format!("replication {id}"));
        let named = self
            .around
            .backup_jobs
            .iter()
            .filter(|(_, job)| job.vmids.contains(&number) || job.exclude.contains(&number));
        let jobs = named.map(|(id, _)| format!("backup job {id}"));
        let mut all: BTreeSet<String> = access.collect();
        all.extend(firewall.into_iter().chain(pool).chain(ha).chain(replication).chain(jobs));
        all
    }

    /// What a destroy takes with a guest whatever it is told, and with `purge` what else names the number.
    pub(crate) fn forget_number(&mut self, guest: GuestId, purge: bool) {
        let vmid = guest.vmid.get();
        self.around.firewalls.remove(&vmid);
        self.pool_of.remove(&vmid);
        self.access.acl.retain(|grant| grant.path != format!("/vms/{vmid}"));
        if !purge {
            return;
        }
        self.ha.remove(&ha_sid(guest));
        self.around.replication.retain(|_, entry| entry.guest != vmid);
        self.around.backup_jobs.retain(|_, job| {
            let named = job.vmids.remove(&vmid);
            job.exclude.remove(&vmid);
            // A job whose list becomes empty goes with the guest.
            !named || !job.vmids.is_empty()
        });
    }

    /// A copy's firewall file is its source's; what was there before is gone.
    pub(crate) fn copy_firewall(&mut self, source: VmId, target: VmId) {
        let copied = self.around.firewalls.get(&source.get()).cloned();
        match copied {
            Some(file) => self.around.firewalls.insert(target.get(), file),
            None => self.around.firewalls.remove(&target.get()),
        };
    }
}
