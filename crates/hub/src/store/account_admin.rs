//! Accounts as an admin manages them: listed, removed, given another key.

use std::collections::BTreeMap;

use sqlx::Row as _;

use super::accounts::{Account, AccountKey, PersonRole};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, StoreError};
use crate::problem::{Problem, ProblemCode};

/// An account with the fingerprints of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAccount {
    /// The account.
    pub account: Account,
    /// Its keys.
    pub keys: Vec<String>,
}

impl HubStore {
    /// Accounts after a name, in the order of their names.
    pub async fn accounts_after(
        &self,
        after: &str,
        limit: i64,
    ) -> Result<Vec<ListedAccount>, StoreError> {
        let mut reader = self.reader().await?;
        let rows = sqlx::query(
            "SELECT name, role, scope FROM accounts WHERE name > $1 ORDER BY name LIMIT $2",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *reader)
        .await?;
        let accounts = rows.iter().map(Account::read).collect::<Result<Vec<_>, _>>()?;
        let keys = sqlx::query(
            "SELECT account, fingerprint FROM account_keys WHERE account > $1 ORDER BY added_at, fingerprint",
        )
        .bind(after)
        .fetch_all(&mut *reader)
        .await?;
        let mut by_account: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in &keys {
            by_account.entry(row.try_get(0)?).or_default().push(row.try_get(1)?);
        }
        let listed = |account: Account| {
            let keys = by_account.remove(&account.name).unwrap_or_default();
            ListedAccount { account, keys }
        };
        Ok(accounts.into_iter().map(listed).collect())
    }

    /// Removes an account: its tokens, sessions and codes end with it.
    pub async fn remove_account(&self, name: &str, who: &str) -> Result<(), StoreError> {
        self.write(RemoveAccount { name: name.to_owned(), who: who.to_owned() }).await
    }

    /// Gives an account another key.
    pub async fn add_account_key(
        &self,
        name: &str,
        key: AccountKey,
        who: &str,
    ) -> Result<(), StoreError> {
        self.write(AddKey { name: name.to_owned(), key, who: who.to_owned() }).await
    }
}

struct RemoveAccount {
    name: String,
    who: String,
}

const TABLES_OF_AN_ACCOUNT: [&str; 6] = [
    "DELETE FROM api_tokens WHERE account = $1",
    "DELETE FROM sessions WHERE account = $1",
    "DELETE FROM one_time_codes WHERE account = $1",
    "DELETE FROM login_challenges WHERE account = $1",
    "DELETE FROM account_keys WHERE account = $1",
    "DELETE FROM accounts WHERE name = $1",
];

impl StoreWrite for RemoveAccount {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        must_exist(tx, &self.name).await?;
        // Without an admin of the whole hub nobody could ever make an account again but root on the server.
        let others = sqlx::query(
            "SELECT COUNT(*) FROM accounts WHERE role = $1 AND scope = '*' AND name <> $2",
        )
        .bind(PersonRole::Admin.as_str())
        .bind(self.name.as_str())
        .fetch_one(&mut *tx.connection)
        .await?;
        if others.try_get::<i64, _>(0)? == 0 {
            let detail = format!("{} is the last admin of the whole hub", self.name);
            return Err(Problem::new(ProblemCode::Conflict, detail)
                .hint("make another admin first")
                .into());
        }
        for delete in TABLES_OF_AN_ACCOUNT {
            sqlx::query(delete).bind(self.name.as_str()).execute(&mut *tx.connection).await?;
        }
        tx.audit(&self.who, "account.remove", &self.name, "").await
    }
}

struct AddKey {
    name: String,
    key: AccountKey,
    who: String,
}

impl StoreWrite for AddKey {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        must_exist(tx, &self.name).await?;
        tx.add_key(&self.name, &self.key).await?;
        let detail = format!("key {}", self.key.fingerprint);
        tx.audit(&self.who, "account.key", &self.name, &detail).await
    }
}

async fn must_exist(tx: &mut WriteTx<'_>, name: &str) -> Result<(), StoreError> {
    let query = format!("SELECT name FROM accounts WHERE name = $1{}", tx.for_update());
    let row = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(name)
        .fetch_optional(&mut *tx.connection)
        .await?;
    match row {
        Some(_) => Ok(()),
        None => Err(Problem::not_found(&format!("account {name}")).into()),
    }
}
