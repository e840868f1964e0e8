//! Hosts: who they are, what they should poll for, and how they come and go.

use std::collections::BTreeMap;

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};
use crate::problem::Problem;
use crate::secret_text::SecretHash;

/// A host as it stands in its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRow {
    /// Its id.
    pub id: String,
    /// Its key, as OpenSSH writes it.
    pub key_line: String,
    /// The fingerprint of its key.
    pub key_fingerprint: String,
    /// What people call it.
    pub labels: BTreeMap<String, String>,
    /// The generation it should have; 0 is none yet.
    pub wanted: i64,
    /// The serial of its newest envelope.
    pub cursor: i64,
    /// The highest generation it ever said is in effect.
    pub reported: i64,
    /// When it enrolled.
    pub enrolled_at: HubTime,
    /// When it was last heard.
    pub last_seen: HubTime,
    /// Rises with every change of the row.
    pub version: i64,
}

/// What the link needs of a host at each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRow {
    /// Its id.
    pub id: String,
    /// Its key, as OpenSSH writes it.
    pub key_line: String,
    /// The generation it should have.
    pub wanted: i64,
    /// The serial of its newest envelope.
    pub cursor: i64,
}

/// A row that changed lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedHost {
    /// The host.
    pub id: String,
    /// Its version.
    pub version: i64,
}

const HOST_COLUMNS: &str = "id, key_line, key_fingerprint, labels, wanted, cursor, reported, enrolled_at, last_seen, version";

impl HostRow {
    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let labels: String = row.try_get(3)?;
        Ok(Self {
            id: row.try_get(0)?,
            key_line: row.try_get(1)?,
            key_fingerprint: row.try_get(2)?,
            labels: serde_json::from_str(&labels)
                .map_err(|_| StoreError::Damaged("labels that are no JSON".to_owned()))?,
            wanted: row.try_get(4)?,
            cursor: row.try_get(5)?,
            reported: row.try_get(6)?,
            enrolled_at: HubTime(row.try_get(7)?),
            last_seen: HubTime(row.try_get(8)?),
            version: row.try_get(9)?,
        })
    }
}

impl HubStore {
    /// The host that holds a credential.
    pub async fn host_by_credential(
        &self,
        hash: &SecretHash,
    ) -> Result<Option<LinkRow>, StoreError> {
        if let Some(known) = self.links().known(hash) {
            return Ok(Some(known));
        }
        let mark = self.links().mark();
        let row = sqlx::query(
            "SELECT id, key_line, wanted, cursor, version FROM hosts WHERE credential_hash = $1",
        )
        .bind(hash.as_str())
        .fetch_optional(&mut *self.reader().await?)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let link = LinkRow {
            id: row.try_get(0)?,
            key_line: row.try_get(1)?,
            wanted: row.try_get(2)?,
            cursor: row.try_get(3)?,
        };
        self.links().keep(mark, hash, link.clone(), row.try_get(4)?);
        Ok(Some(link))
    }

    /// The newest head of a host's journal that it ever reported, sealed.
    pub async fn anchor(&self, host: &str) -> Result<Option<String>, StoreError> {
        let row = sqlx::query("SELECT head FROM anchors WHERE host = $1")
            .bind(host)
            .fetch_optional(&mut *self.reader().await?)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// One host.
    pub async fn host(&self, id: &str) -> Result<Option<HostRow>, StoreError> {
        let query = format!("SELECT {HOST_COLUMNS} FROM hosts WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(id)
            .fetch_optional(&mut *self.reader().await?)
            .await?;
        row.as_ref().map(HostRow::read).transpose()
    }

    /// Hosts after an id, in the order of their ids.
    pub async fn hosts_after(&self, after: &str, limit: i64) -> Result<Vec<HostRow>, StoreError> {
        let query = format!("SELECT {HOST_COLUMNS} FROM hosts WHERE id > $1 ORDER BY id LIMIT $2");
        let rows = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(after)
            .bind(limit)
            .fetch_all(&mut *self.reader().await?)
            .await?;
        rows.iter().map(HostRow::read).collect()
    }

    /// How many hosts there are.
    pub async fn host_count(&self) -> Result<i64, StoreError> {
        let row =
            sqlx::query("SELECT COUNT(*) FROM hosts").fetch_one(&mut *self.reader().await?).await?;
        Ok(row.try_get(0)?)
    }

    /// Rows that changed within so many milliseconds, by the clock that wrote them.
    pub async fn hosts_changed_within(&self, ms: i64) -> Result<Vec<ChangedHost>, StoreError> {
        let (since, bound) = self.since(ms);
        let query = format!("SELECT id, version FROM hosts WHERE changed_at > {since}");
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(bound);
        let rows = query.fetch_all(&mut *self.reader().await?).await?;
        rows.iter()
            .map(|row| Ok(ChangedHost { id: row.try_get(0)?, version: row.try_get(1)? }))
            .collect()
    }

    /// Hosts that anybody removed within so many milliseconds, by the clock that wrote it. They leave no row that changed;
    /// the line in the audit is written with the removal, and stays.
    pub(crate) async fn hosts_removed_within(&self, ms: i64) -> Result<Vec<String>, StoreError> {
        let (since, bound) = self.since(ms);
        let query = format!("SELECT subject FROM audit WHERE at > {since} AND act = $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(bound).bind(HOST_REMOVED);
        let rows = query.fetch_all(&mut *self.reader().await?).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Sets the labels of a host.
    pub async fn set_labels(
        &self,
        host: &str,
        labels: BTreeMap<String, String>,
        who: &str,
    ) -> Result<(), StoreError> {
        self.write(SetLabels { host: host.to_owned(), labels, who: who.to_owned() }).await
    }

    /// Forgets a host: its credential ends at once. Its journal's head and the audit stay.
    pub async fn remove_host(&self, host: &str, who: &str) -> Result<(), StoreError> {
        self.write(RemoveHost { host: host.to_owned(), who: who.to_owned() }).await
    }
}

pub(super) fn no_such_host(host: &str) -> StoreError {
    Problem::not_found(&format!("host {host}")).into()
}

struct SetLabels {
    host: String,
    labels: BTreeMap<String, String>,
    who: String,
}

impl StoreWrite for SetLabels {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        if !tx.take_host(&self.host).await? {
            return Err(no_such_host(&self.host));
        }
        let text = serde_json::to_string(&self.labels).expect("texts are JSON");
        sqlx::query("UPDATE hosts SET labels = $1 WHERE id = $2")
            .bind(text.as_str())
            .bind(self.host.as_str())
            .execute(&mut *tx.connection)
            .await?;
        tx.audit(&self.who, "host.label", &self.host, &text).await
    }
}

/// What goes with a host. `anchors` is not here: a host that comes back with its key must still be held to its head.
const TABLES_OF_A_HOST: [&str; 8] = [
    "DELETE FROM host_states WHERE host = $1",
    "DELETE FROM guests WHERE host = $1",
    "DELETE FROM ops WHERE host = $1",
    "DELETE FROM decisions WHERE host = $1",
    "DELETE FROM pending_items WHERE host = $1",
    "DELETE FROM envelopes WHERE host = $1",
    "DELETE FROM enrol_tokens WHERE host = $1",
    "DELETE FROM hosts WHERE id = $1",
];

/// What the audit calls a removal.
const HOST_REMOVED: &str = "host.remove";

struct RemoveHost {
    host: String,
    who: String,
}

impl StoreWrite for RemoveHost {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        tx.lock_documents().await?;
        if !tx.take_host(&self.host).await? {
            return Err(no_such_host(&self.host));
        }
        for delete in [
            "DELETE FROM documents WHERE host = $1 RETURNING manifest",
            "DELETE FROM drafts WHERE host = $1 RETURNING manifest",
        ] {
            let gone = sqlx::query(delete).bind(self.host.as_str());
            let gone = gone.fetch_all(&mut *tx.connection).await?;
            tx.release_texts(&gone).await?;
        }
        for delete in TABLES_OF_A_HOST {
            sqlx::query(delete).bind(self.host.as_str()).execute(&mut *tx.connection).await?;
        }
        tx.audit(&self.who, HOST_REMOVED, &self.host, "").await
    }
}
