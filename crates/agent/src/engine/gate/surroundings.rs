//! Reads what is kept under a guest's number beside its configuration. Core's `surroundings` judges.
//!
//! Called before a guest is made, before one is removed unsigned, when a destroy is put before a signer, and once more before
//! its DELETE leaves. Proxmox leaves out of some lists what the token may not see, without a word, so its rights are asked
//! before and after: a list that may have been filtered is not visible. It must never take such a list for an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::actual::surroundings::{
    BackupJobEntry, FirewallKind, FirewallLine, GuestSurroundings, HiddenCause, PartReading,
    job_naming,
};
use evenkeel_core::model::id::{GuestId, VmId};
use futures_util::future::{self, BoxFuture};

use crate::pve::Client;
use crate::pve::around::{BackupJobRow, FirewallList, GrantRow, HaRow, ReplicationRow};
use crate::pve::error::{Error, ErrorClass};
use crate::pve::list::{ListReading, UnreadRow};
use crate::pve::site::{Permissions, Resource};
use crate::pve::text::clean;

/// The lists that are the same for every number, with what the token may see of them.
#[derive(Debug)]
pub(in crate::engine) struct ClusterLists {
    before: Result<Permissions, Error>,
    after: Result<Permissions, Error>,
    access: Result<ListReading<GrantRow>, Error>,
    ha: Result<ListReading<HaRow>, Error>,
    replication: Result<ListReading<ReplicationRow>, Error>,
    backup_jobs: Result<ListReading<BackupJobRow>, Error>,
}

/// Reads them all at once, for a look that nothing is removed by: the rights may be those of a moment later.
pub(in crate::engine) async fn glance_at_lists(client: &Client) -> ClusterLists {
    let (access, ha, replication, backup_jobs, rights) = future::join5(
        client.access_list(),
        client.ha_resources(),
        client.replication_jobs(),
        client.backup_jobs(),
        client.permissions(),
    )
    .await;
    ClusterLists { before: rights.clone(), after: rights, access, ha, replication, backup_jobs }
}

/// Reads them all, and the rights before and after.
async fn read_lists(client: &Client) -> ClusterLists {
    let before = client.permissions().await;
    let (access, ha, replication, backup_jobs) = future::join4(
        client.access_list(),
        client.ha_resources(),
        client.replication_jobs(),
        client.backup_jobs(),
    )
    .await;
    let after = client.permissions().await;
    ClusterLists { before, after, access, ha, replication, backup_jobs }
}

/// Everything under the number of a guest that is there. In a box, because many answers are held at once, and few who could
/// ask for them do.
pub(in crate::engine) fn observe_surroundings(
    client: &Client,
    guest: GuestId,
) -> BoxFuture<'_, GuestSurroundings> {
    Box::pin(read_surroundings(client, guest))
}

async fn read_surroundings(client: &Client, guest: GuestId) -> GuestSurroundings {
    let first = glance_at_firewall(client, guest).await;
    let lists = read_lists(client).await;
    let guests = client.cluster_guests().await;
    let (aliases, ip_sets) = future::join(
        client.firewall_list(guest, FirewallList::Aliases),
        client.firewall_list(guest, FirewallList::IpSets),
    )
    .await;
    let rest = aliases.and_then(|aliases| Ok((aliases, ip_sets?)));
    let firewall = first.and_then(|mut lines| {
        let (aliases, ip_sets) = rest?;
        lines.extend(lines_of(FirewallKind::Alias, &aliases));
        lines.extend(lines_of(FirewallKind::IpSet, &ip_sets));
        Ok(lines)
    });
    let pool = lists.pool(guests, guest.vmid);
    lists.around(guest, &firewall, pool)
}

/// The same of a number that shall get a guest, with lists that the makings of a moment share. It looks at the rules and
/// options of the firewall alone, which is where a file that matters has something; a pool shows no member that is not there.
pub(in crate::engine) async fn observe_number(
    client: &Client,
    guest: GuestId,
    lists: impl Future<Output = Arc<ClusterLists>>,
) -> GuestSurroundings {
    let (firewall, lists) = future::join(glance_at_firewall(client, guest), lists).await;
    lists.around(guest, &firewall, PartReading::NotVisible(HiddenCause::Unreadable))
}

async fn glance_at_firewall(client: &Client, guest: GuestId) -> Result<Vec<FirewallLine>, Error> {
    let (rules, options) = future::join(
        client.firewall_list(guest, FirewallList::Rules),
        client.firewall_options(guest),
    )
    .await;
    let rules = rules?;
    let options = options?;
    let mut lines = lines_of(FirewallKind::Rule, &rules);
    let options = options.iter().filter(|(name, _)| !is_bookkeeping(name));
    let line = |(name, text): (&String, &String)| FirewallLine {
        kind: FirewallKind::Option,
        text: clean(&format!("{name}={text}")),
    };
    lines.extend(options.map(line));
    Ok(lines)
}

/// What Proxmox counts and hashes, which is nobody's wish.
fn is_bookkeeping(name: &str) -> bool {
    matches!(name, "pos" | "digest" | "ipversion")
}

fn lines_of(kind: FirewallKind, rows: &[BTreeMap<String, String>]) -> Vec<FirewallLine> {
    let line = |row: &BTreeMap<String, String>| {
        let first = ["type", "action", "name"];
        let words = first.iter().filter_map(|name| row.get(*name)).cloned();
        let rest = row.iter().filter(|(name, text)| {
            !first.contains(&name.as_str()) && !is_bookkeeping(name) && !text.is_empty()
        });
        let rest = rest.map(|(name, text)| format!("{name}={text}"));
        let text = words.chain(rest).collect::<Vec<_>>().join(" ");
        FirewallLine { kind, text: clean(&text) }
    };
    rows.iter().map(line).collect()
}

fn lacks<T>(privilege: &'static str, path: impl Into<String>) -> PartReading<T> {
    PartReading::NotVisible(HiddenCause::Lacks { privilege, path: path.into() })
}

/// A part that Proxmox refuses to whoever lacks this right: of its list the rows that are about the guest. A row that could
/// not be read and may be about it hides the part, and nothing else (invariant 22).
fn part<R, T>(
    list: &Result<ListReading<R>, Error>,
    entry: impl Fn(&R) -> Option<T>,
    may_be_about: impl Fn(&UnreadRow) -> bool,
    (privilege, path): (&'static str, &str),
) -> PartReading<T> {
    match list {
        Ok(list) if list.unread.iter().any(may_be_about) => {
            PartReading::NotVisible(HiddenCause::Unreadable)
        }
        Ok(list) => PartReading::Read(list.rows.iter().filter_map(entry).collect()),
        Err(error) => hidden_by(error, privilege, path),
    }
}

fn hidden_by<T>(error: &Error, privilege: &'static str, path: &str) -> PartReading<T> {
    if error.class() == Some(&ErrorClass::Permission) {
        return lacks(privilege, path);
    }
    PartReading::NotVisible(HiddenCause::Unreadable)
}

impl ClusterLists {
    fn around(
        &self,
        guest: GuestId,
        firewall: &Result<Vec<FirewallLine>, Error>,
        pool: PartReading<String>,
    ) -> GuestSurroundings {
        let vmid = guest.vmid;
        let path = format!("/vms/{vmid}");
        let replication = match firewall {
            // Jobs of a guest that the token may not see are left out; the firewall is refused by the same right.
            Err(error) if error.class() == Some(&ErrorClass::Permission) => {
                lacks("VM.Audit", &path)
            }
            Ok(_) | Err(_) => self.replication(vmid),
        };
        GuestSurroundings {
            access: self.access(&path),
            ha: self.ha(vmid),
            backup_jobs: self.backup_jobs(vmid),
            firewall: match firewall {
                Ok(lines) => PartReading::Read(lines.clone()),
                Err(error) => hidden_by(error, "VM.Audit", &path),
            },
            replication,
            pool,
        }
    }

    /// Whether the token had one of these rights on this path while the lists were read, for everything below it too;
    /// none if nobody can tell.
    fn held(&self, path: &str, any: &[&str]) -> Option<bool> {
        let before = self.before.as_ref().ok()?;
        let after = self.after.as_ref().ok()?;
        let has = |held: &Permissions| {
            let rights = held.0.get(path);
            rights.is_some_and(|rights| any.iter().any(|name| rights.get(*name) == Some(&true)))
        };
        Some(has(before) && has(after))
    }

    fn access(&self, path: &str) -> PartReading<String> {
        match self.held("/access", &["Sys.Audit", "Permissions.Modify"]) {
            None => return PartReading::NotVisible(HiddenCause::Unreadable),
            Some(false) => return lacks("Sys.Audit", "/access"),
            Some(true) => {}
        }
        let entry = |row: &GrantRow| {
            let text = format!("{} for {} {}", row.roleid, row.kind, row.ugid);
            (row.path == path).then(|| clean(&text))
        };
        let may_be_about = |row: &UnreadRow| row.text("path").is_none_or(|of| of == path);
        part(&self.access, entry, may_be_about, ("Sys.Audit", "/access"))
    }

    fn ha(&self, vmid: VmId) -> PartReading<String> {
        let is_of =
            |sid: &str| sid.split_once(':').is_none_or(|(_, number)| number.parse() == Ok(vmid));
        let entry = |row: &HaRow| {
            let text = format!("{} {}", row.sid, row.state.as_deref().unwrap_or_default());
            is_of(&row.sid).then(|| clean(&text))
        };
        let may_be_about = |row: &UnreadRow| row.text("sid").is_none_or(is_of);
        part(&self.ha, entry, may_be_about, ("Sys.Audit", "/"))
    }

    fn replication(&self, vmid: VmId) -> PartReading<String> {
        let entry = |row: &ReplicationRow| {
            let text = format!("{} to {}", row.id, row.target.as_deref().unwrap_or("?"));
            (row.guest == vmid).then(|| clean(&text))
        };
        let may_be_about =
            |row: &UnreadRow| row.parsed("guest").is_none_or(|guest: VmId| guest == vmid);
        part(&self.replication, entry, may_be_about, ("VM.Audit", &format!("/vms/{vmid}")))
    }

    fn backup_jobs(&self, vmid: VmId) -> PartReading<BackupJobEntry> {
        let entry = |row: &BackupJobRow| {
            let naming = job_naming(vmid.get(), &row.listed(), &row.excluded())?;
            Some(BackupJobEntry { id: clean(&row.id), naming })
        };
        part(&self.backup_jobs, entry, |_| true, ("Sys.Audit", "/"))
    }

    /// The pool of a guest. A pool that the token may not see is left out of the guest's line, so the right must reach
    /// every pool: granted on `/pool`, and on every path below that somebody granted anything on.
    fn pool(
        &self,
        guests: Result<ListReading<Resource>, Error>,
        vmid: VmId,
    ) -> PartReading<String> {
        let Ok(guests) = guests else {
            return PartReading::NotVisible(HiddenCause::Unreadable);
        };
        let Some(row) = guests.rows.into_iter().find(|row| row.vmid == Some(vmid)) else {
            return PartReading::NotVisible(HiddenCause::Unreadable);
        };
        if let Some(pool) = row.pool {
            return PartReading::Read(vec![clean(&pool)]);
        }
        if let PartReading::NotVisible(cause) = self.access("/pool") {
            return PartReading::NotVisible(cause);
        }
        // A row that cannot be read may be about any pool.
        let rows = match &self.access {
            Ok(list) if list.unread.is_empty() => &list.rows,
            Ok(_) | Err(_) => return PartReading::NotVisible(HiddenCause::Unreadable),
        };
        let below = rows.iter().map(|row| row.path.as_str());
        let below = below.filter(|path| path.starts_with("/pool/"));
        let hidden = std::iter::once("/pool")
            .chain(below)
            .find(|path| self.held(path, &["Pool.Audit"]) != Some(true));
        hidden.map_or(PartReading::Read(Vec::new()), |path| lacks("Pool.Audit", path))
    }
}
