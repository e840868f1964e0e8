//! What is kept under guest numbers and not in a guest's configuration, as Proxmox VE sends it: firewall, access list, HA
//! entries, replication and backup jobs.
//!
//! Only reads. Proxmox filters some of these lists without a word by what the token may see; who asks must know its rights.
//! The rules of reading are those of `wire`.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::id::{GuestId, VmId};
use serde::Deserialize;

use super::Client;
use super::error::Error;
use super::exchange::{ApiPath, HttpRequest};
use super::form::Query;
use super::list::ListReading;
use super::scalar::{self, TextMap};
use super::site::Permissions;

/// A part of a guest's firewall file that is a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirewallList {
    Rules,
    Aliases,
    IpSets,
}

/// One line of `GET /access/acl`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct GrantRow {
    /// `/vms/120`.
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) path: String,
    /// The user, group or token.
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) ugid: String,
    /// `user`, `group` or `token`.
    #[serde(rename = "type", deserialize_with = "scalar::text")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) roleid: String,
}

/// One line of `GET /cluster/ha/resources`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct HaRow {
    /// `ct:120` or `vm:120`.
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) sid: String,
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub(crate) state: Option<String>,
}

/// One line of `GET /cluster/replication`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ReplicationRow {
    /// `120-0`.
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) id: String,
    #[serde(deserialize_with = "scalar::parsed")]
    pub(crate) guest: VmId,
    #[serde(default, deserialize_with = "scalar::opt_text")]
    pub(crate) target: Option<String>,
}

/// One line of `GET /cluster/backup`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct BackupJobRow {
    #[serde(deserialize_with = "scalar::text")]
    pub(crate) id: String,
    /// The guests it lists.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    vmid: Option<String>,
    /// The guests it leaves out.
    #[serde(default, deserialize_with = "scalar::opt_text")]
    exclude: Option<String>,
}

impl BackupJobRow {
    pub(crate) fn listed(&self) -> BTreeSet<u32> {
        numbers(self.vmid.as_deref())
    }

    pub(crate) fn excluded(&self) -> BTreeSet<u32> {
        numbers(self.exclude.as_deref())
    }
}

/// A list of numbers in any of PVE's spellings.
fn numbers(list: Option<&str>) -> BTreeSet<u32> {
    let parts = list.unwrap_or_default().split([',', ';', ' ', '\t', '\n']);
    parts.filter_map(|part| part.trim().parse().ok()).collect()
}

impl Client {
    /// The lines of one list of a guest's firewall file; the guest need not be there.
    pub(crate) async fn firewall_list(
        &self,
        guest: GuestId,
        list: FirewallList,
    ) -> Result<Vec<BTreeMap<String, String>>, Error> {
        let name = match list {
            FirewallList::Rules => "rules",
            FirewallList::Aliases => "aliases",
            FirewallList::IpSets => "ipset",
        };
        let request = HttpRequest::list(self.guest_path(guest, ["firewall", name]), Query::new());
        let rows: Vec<TextMap> = self.call(request).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    /// The options of a guest's firewall file that are set.
    pub(crate) async fn firewall_options(
        &self,
        guest: GuestId,
    ) -> Result<BTreeMap<String, String>, Error> {
        let path = self.guest_path(guest, ["firewall", "options"]);
        let read = self.call::<TextMap>(HttpRequest::get(path, Query::new()));
        read.await.map(|options| options.0)
    }

    /// Who has which role where, as far as the token may see it.
    pub(crate) async fn access_list(&self) -> Result<ListReading<GrantRow>, Error> {
        self.list(HttpRequest::list(ApiPath::new(["access", "acl"]), Query::new())).await
    }

    /// What HA manages.
    pub(crate) async fn ha_resources(&self) -> Result<ListReading<HaRow>, Error> {
        self.list(HttpRequest::list(ApiPath::new(["cluster", "ha", "resources"]), Query::new()))
            .await
    }

    /// Replication jobs of the guests that the token may see.
    pub(crate) async fn replication_jobs(&self) -> Result<ListReading<ReplicationRow>, Error> {
        self.list(HttpRequest::list(ApiPath::new(["cluster", "replication"]), Query::new())).await
    }

    /// All backup jobs.
    pub(crate) async fn backup_jobs(&self) -> Result<ListReading<BackupJobRow>, Error> {
        self.list(HttpRequest::list(ApiPath::new(["cluster", "backup"]), Query::new())).await
    }

    /// What the token may do on one path, by whatever grant.
    pub(crate) async fn held_on(&self, path: &str) -> Result<BTreeSet<String>, Error> {
        let query = Query::new().with("path", path);
        let request = HttpRequest::list(ApiPath::new(["access", "permissions"]), query);
        let mut held: Permissions = self.call(request).await?;
        Ok(held.0.remove(path).unwrap_or_default().into_keys().collect())
    }
}
