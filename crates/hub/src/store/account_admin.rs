//! Accounts as an admin manages them: listed, changed, removed, given keys and rid of them.
//!
//! Every act takes the rows it depends on before it looks at them: the account's, those of all admins of the whole hub, and the
//! acting admin's own. Two admins who remove each other come one after the other, and the second is no admin any more.

use std::collections::BTreeMap;

use sqlx::Row as _;

use super::accounts::{Account, AccountKey, PersonRole};
use super::text::plain;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};
use crate::problem::{Problem, ProblemCode};

/// The longest fingerprint that is looked for: twice what one has.
const FINGERPRINT_BYTES_MAX: usize = 128;

/// An account with its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAccount {
    /// The account.
    pub account: Account,
    /// Its keys.
    pub keys: Vec<ListedKey>,
    /// When a login of it was used last; 0 for never.
    pub last_used_at: HubTime,
}

/// A key of an account, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    /// Its fingerprint.
    pub fingerprint: String,
    /// When somebody logged in with it last; 0 for never.
    pub last_used_at: HubTime,
}

/// Who manages accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountActor {
    /// The command line on the hub's own machine.
    Server,
    /// An admin.
    Person {
        /// The account's name, for the audit.
        name: String,
        /// The account: a later one of the same name is another.
        uid: String,
    },
}

impl AccountActor {
    /// As the audit names it.
    pub(in crate::store) fn name(&self) -> &str {
        match self {
            Self::Server => "server",
            Self::Person { name, .. } => name,
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Server => "",
            Self::Person { uid, .. } => uid,
        }
    }
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
            "SELECT name, role, scope, uid, last_used_at FROM accounts WHERE name > $1 ORDER BY name LIMIT $2",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *reader)
        .await?;
        let keys = sqlx::query(
            "SELECT k.account_uid, k.fingerprint, k.last_used_at FROM account_keys k \
             JOIN accounts a ON a.uid = k.account_uid WHERE a.name > $1 ORDER BY k.added_at, k.fingerprint",
        )
        .bind(after)
        .fetch_all(&mut *reader)
        .await?;
        let mut by_account: BTreeMap<String, Vec<ListedKey>> = BTreeMap::new();
        for row in &keys {
            let fingerprint = row.try_get(1)?;
            let last_used_at = HubTime(row.try_get(2)?);
            let key = ListedKey { fingerprint, last_used_at };
            by_account.entry(row.try_get(0)?).or_default().push(key);
        }
        let listed = |row: &sqlx::any::AnyRow| {
            let uid: String = row.try_get(3)?;
            let account = Account::read(row)?;
            let last_used_at = self.account_used(&account.name, HubTime(row.try_get(4)?));
            let keys = by_account.remove(&uid).unwrap_or_default();
            Ok(ListedAccount { account, keys, last_used_at })
        };
        rows.iter().map(listed).collect()
    }

    /// Removes an account: its keys, tokens, codes and sessions end with it.
    pub async fn remove_account(&self, name: &str, who: AccountActor) -> Result<(), StoreError> {
        self.write(RemoveAccount { name: name.to_owned(), who }).await
    }

    /// Gives an account another role and scope. They hold for what was handed out before, too.
    pub async fn change_account(
        &self,
        account: Account,
        who: AccountActor,
    ) -> Result<(), StoreError> {
        self.write(ChangeAccount { account, who }).await
    }

    /// Gives an account another key.
    pub async fn add_account_key(
        &self,
        name: &str,
        key: AccountKey,
        who: AccountActor,
    ) -> Result<(), StoreError> {
        self.write(AddKey { name: name.to_owned(), key, who }).await
    }

    /// Takes a key from an account: the tokens that it made end with it.
    pub async fn remove_account_key(
        &self,
        name: &str,
        fingerprint: &str,
        who: AccountActor,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        // From a form or a path: PostgreSQL takes no NUL in a text.
        let fingerprint = plain(fingerprint, FINGERPRINT_BYTES_MAX);
        self.write(RemoveKey { name, fingerprint, who }).await
    }
}

/// An account whose row is ours until the commit.
pub(in crate::store) struct TakenAccount {
    pub(in crate::store) uid: String,
    role: PersonRole,
    scope: String,
    /// Whether it is the only admin of the whole hub.
    is_last_admin: bool,
}

/// Takes the rows that an act about an account depends on, in the order of names, so that no two acts wait for each other
/// crosswise; and refuses an admin who is none any more.
pub(in crate::store) async fn take_accounts(
    tx: &mut WriteTx<'_>,
    name: &str,
    who: &AccountActor,
) -> Result<TakenAccount, StoreError> {
    let query = format!(
        "SELECT name, role, scope, uid FROM accounts \
         WHERE name = $1 OR uid = $2 OR (role = 'admin' AND scope = '*') ORDER BY name{}",
        tx.for_update()
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(name)
        .bind(who.uid())
        .fetch_all(&mut *tx.connection)
        .await?;
    let mut taken = None;
    let mut admins = Vec::new();
    for row in &rows {
        let account = Account::read(row)?;
        let uid: String = row.try_get(3)?;
        if is_hub_admin(&account) {
            admins.push(uid.clone());
        }
        if account.name == name {
            taken = Some((account, uid));
        }
    }
    let may = match who {
        AccountActor::Server => true,
        AccountActor::Person { uid, .. } => admins.contains(uid),
    };
    if !may {
        return Err(Problem::unauthorised().into());
    }
    let (account, uid) = taken.ok_or_else(|| Problem::not_found(&format!("account {name}")))?;
    let is_last_admin = admins == [uid.as_str()];
    Ok(TakenAccount { uid, role: account.role, scope: account.scope, is_last_admin })
}

/// Whether an account may make accounts.
fn is_hub_admin(account: &Account) -> bool {
    account.role == PersonRole::Admin && account.scope == "*"
}

/// Without an admin of the whole hub nobody could ever make an account again but root on the server.
fn last_admin(name: &str) -> StoreError {
    let detail = format!("{name} is the last admin of the whole hub");
    Problem::new(ProblemCode::Conflict, detail).hint("make another admin first").into()
}

struct RemoveAccount {
    name: String,
    who: AccountActor,
}

impl StoreWrite for RemoveAccount {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let taken = take_accounts(tx, &self.name, &self.who).await?;
        if taken.is_last_admin {
            return Err(last_admin(&self.name));
        }
        // Everything of it goes along: each table says so itself.
        sqlx::query("DELETE FROM accounts WHERE uid = $1")
            .bind(taken.uid.as_str())
            .execute(&mut *tx.connection)
            .await?;
        tx.audit(self.who.name(), "account.remove", &self.name, "").await
    }
}

struct ChangeAccount {
    account: Account,
    who: AccountActor,
}

impl StoreWrite for ChangeAccount {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let Account { name, role, scope } = &self.account;
        let taken = take_accounts(tx, name, &self.who).await?;
        if taken.is_last_admin && !is_hub_admin(&self.account) {
            return Err(last_admin(name));
        }
        sqlx::query("UPDATE accounts SET role = $1, scope = $2 WHERE uid = $3")
            .bind(role.as_str())
            .bind(scope.as_str())
            .bind(taken.uid.as_str())
            .execute(&mut *tx.connection)
            .await?;
        let before = taken.role.as_str();
        let after = role.as_str();
        let detail = format!("{before} of {} -> {after} of {scope}", taken.scope);
        tx.audit(self.who.name(), "account.change", name, &detail).await
    }
}

struct AddKey {
    name: String,
    key: AccountKey,
    who: AccountActor,
}

impl StoreWrite for AddKey {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let taken = take_accounts(tx, &self.name, &self.who).await?;
        tx.add_key((&self.name, &taken.uid), &self.key).await?;
        let detail = format!("key {}", self.key.fingerprint);
        tx.audit(self.who.name(), "account.key", &self.name, &detail).await
    }
}

struct RemoveKey {
    name: String,
    fingerprint: String,
    who: AccountActor,
}

impl StoreWrite for RemoveKey {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let taken = take_accounts(tx, &self.name, &self.who).await?;
        let removed =
            sqlx::query("DELETE FROM account_keys WHERE fingerprint = $1 AND account_uid = $2")
                .bind(self.fingerprint.as_str())
                .bind(taken.uid.as_str())
                .execute(&mut *tx.connection)
                .await?;
        if removed.rows_affected() == 0 {
            let what = format!("key {} of account {}", self.fingerprint, self.name);
            return Err(Problem::not_found(&what).into());
        }
        let left = sqlx::query("SELECT COUNT(*) FROM account_keys WHERE account_uid = $1")
            .bind(taken.uid.as_str())
            .fetch_one(&mut *tx.connection)
            .await?;
        if left.try_get::<i64, _>(0)? == 0 {
            let detail = format!("it is the last key of account {}", self.name);
            return Err(Problem::new(ProblemCode::Conflict, detail)
                .hint("add another key first, or remove the account")
                .into());
        }
        let detail = format!("key {}", self.fingerprint);
        tx.audit(self.who.name(), "account.key.remove", &self.name, &detail).await
    }
}
