//! Logins as people look after them: which there are, when each was used last, and ending all of somebody's at once.
//!
//! The last use is collected in memory, as signs of life of hosts are, and written every ten seconds: a hub that is killed
//! before that has lost ten seconds of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::account_admin::{AccountActor, take_accounts};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};

/// How much of a token's hash names it in a list.
const LOGIN_NAME_CHARS: usize = 12;

/// A token that is good, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLogin {
    /// The beginning of its hash: a name that opens nothing.
    pub name: String,
    /// The key that made it.
    pub key_fingerprint: String,
    /// When it was made.
    pub made_at: HubTime,
    /// When it ends.
    pub expires_at: HubTime,
    /// When it, or a session of it, was used last.
    pub last_used_at: HubTime,
    /// How many sessions it has open.
    pub sessions: i64,
}

/// Which tokens were used, and when, since that was written last.
#[derive(Default)]
pub(super) struct LoginUses {
    uses: Mutex<UsesByName>,
}

#[derive(Default)]
struct UsesByName {
    /// Sorted, so that two replicas lock rows in the same order.
    accounts: BTreeMap<String, HubTime>,
    tokens: BTreeMap<String, HubTime>,
}

impl HubStore {
    /// A token, or a session of it, was shown and is good.
    pub(super) fn used(&self, account: &str, token: String) {
        let now = HubTime::now();
        let mut uses = self.inner.login_uses.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.accounts.insert(account.to_owned(), now);
        uses.tokens.insert(token, now);
    }

    /// Writes which logins were used.
    pub async fn flush_login_uses(&self) -> Result<(), StoreError> {
        let uses = {
            let mut uses =
                self.inner.login_uses.uses.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *uses)
        };
        if uses.tokens.is_empty() {
            return Ok(());
        }
        self.write(KeepUses { uses }).await
    }

    /// When an account was used last: as it is written, or later if that is not written yet.
    pub(super) fn account_used(&self, name: &str, written: HubTime) -> HubTime {
        let uses = self.inner.login_uses.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.accounts.get(name).copied().map_or(written, |at| at.max(written))
    }

    fn token_used(&self, hash: &str, written: HubTime) -> HubTime {
        let uses = self.inner.login_uses.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.tokens.get(hash).copied().map_or(written, |at| at.max(written))
    }

    /// The tokens of an account that are good, the newest first.
    pub async fn logins_of(&self, account: &str) -> Result<Vec<ListedLogin>, StoreError> {
        let rows = sqlx::query(
            "SELECT t.hash, t.key_fingerprint, t.made_at, t.expires_at, t.last_used_at, \
             (SELECT COUNT(*) FROM sessions s WHERE s.token = t.hash) \
             FROM api_tokens t JOIN accounts a ON a.uid = t.account_uid \
             WHERE a.name = $1 AND t.expires_at > $2 ORDER BY t.made_at DESC, t.hash",
        )
        .bind(account)
        .bind(HubTime::now().0)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        rows.iter().map(|row| self.read_login(row)).collect()
    }

    /// Ends every token of an account, with its codes and sessions: how many there were.
    pub async fn end_logins(&self, name: &str, who: AccountActor) -> Result<u64, StoreError> {
        self.write(EndLogins { name: name.to_owned(), who }).await
    }

    /// The same of the account that asks.
    pub async fn end_own_logins(&self, name: &str, uid: &str) -> Result<u64, StoreError> {
        self.write(EndOwnLogins { name: name.to_owned(), uid: uid.to_owned() }).await
    }

    fn read_login(&self, row: &AnyRow) -> Result<ListedLogin, StoreError> {
        let hash: String = row.try_get(0)?;
        Ok(ListedLogin {
            name: hash.chars().take(LOGIN_NAME_CHARS).collect(),
            key_fingerprint: row.try_get(1)?,
            made_at: HubTime(row.try_get(2)?),
            expires_at: HubTime(row.try_get(3)?),
            last_used_at: self.token_used(&hash, HubTime(row.try_get(4)?)),
            sessions: row.try_get(5)?,
        })
    }
}

struct KeepUses {
    uses: UsesByName,
}

impl StoreWrite for KeepUses {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        // Accounts before tokens, as everywhere.
        let accounts =
            "UPDATE accounts SET last_used_at = $1 WHERE name = $2 AND last_used_at < $1";
        let tokens =
            "UPDATE api_tokens SET last_used_at = $1 WHERE hash = $2 AND last_used_at < $1";
        for (query, uses) in [(accounts, &self.uses.accounts), (tokens, &self.uses.tokens)] {
            for (name, at) in uses {
                let query = sqlx::query(query).bind(at.0).bind(name.as_str());
                query.execute(&mut *tx.connection).await?;
            }
        }
        Ok(())
    }
}

struct EndLogins {
    name: String,
    who: AccountActor,
}

impl StoreWrite for EndLogins {
    type Out = u64;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<u64, StoreError> {
        let taken = take_accounts(tx, &self.name, &self.who).await?;
        end_all(tx, (&self.name, &taken.uid), self.who.name()).await
    }
}

struct EndOwnLogins {
    name: String,
    uid: String,
}

impl StoreWrite for EndOwnLogins {
    type Out = u64;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<u64, StoreError> {
        end_all(tx, (&self.name, &self.uid), &self.name).await
    }
}

async fn end_all(
    tx: &mut WriteTx<'_>,
    (name, uid): (&str, &str),
    who: &str,
) -> Result<u64, StoreError> {
    let ended = sqlx::query("DELETE FROM api_tokens WHERE account_uid = $1")
        .bind(uid)
        .execute(&mut *tx.connection)
        .await?;
    let ended = ended.rows_affected();
    tx.audit(who, "logout.all", name, &format!("{ended} logins")).await?;
    Ok(ended)
}
