//! Accounts and what the server itself needs of them: the first admin's code and `hub account add`.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::limits::{ACCOUNTS_MAX, FIRST_ADMIN_CODE_LIFE_S, KEYS_PER_ACCOUNT_MAX};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, StoreError};
use crate::problem::{Problem, ProblemCode};
use crate::secret_text::{SecretHash, random_hex};

/// What an account may do; each may all that the one before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PersonRole {
    /// Sees.
    Viewer,
    /// Pushes documents and hands in envelopes.
    Editor,
    /// Manages hosts and accounts.
    Admin,
}

impl PersonRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Editor, Self::Admin];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }

    /// The role of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: PersonRole,
    /// For which hosts: a glob.
    pub scope: String,
}

/// The longest name of an account, and the longest scope.
const NAME_BYTES_MAX: usize = 64;

impl Account {
    /// An account whose name and scope have their form.
    pub fn new(name: &str, role: PersonRole, scope: &str) -> Result<Self, Problem> {
        let plain = |text: &str, more: &[u8]| {
            !text.is_empty()
                && text.len() <= NAME_BYTES_MAX
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        // `server` and `host NAME` are others in the audit.
        if !plain(name, b".-_@") || name == "server" {
            return Err(Problem::invalid(
                "an account's name is letters, digits, `.`, `-`, `_` and `@`, at most 64",
            ));
        }
        if !plain(scope, b".-_*") {
            return Err(Problem::invalid(
                "a scope is a host id in which `*` stands for any text, at most 64 bytes",
            ));
        }
        Ok(Self { name: name.to_owned(), role, scope: scope.to_owned() })
    }

    /// From `name, role, scope`.
    pub(in crate::store) fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let role: String = row.try_get(1)?;
        let role = PersonRole::named(&role)
            .ok_or_else(|| StoreError::Damaged(format!("the role `{role}`")))?;
        Ok(Self { name: row.try_get(0)?, role, scope: row.try_get(2)? })
    }
}

/// A key of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountKey {
    /// Its fingerprint.
    pub fingerprint: String,
    /// As OpenSSH writes it.
    pub key_line: String,
}

/// An account to be made, with its first key.
#[derive(Debug, Clone)]
pub struct NewAccount {
    /// The account.
    pub account: Account,
    /// Its key.
    pub key: AccountKey,
    /// Who makes it: an account, `server`, or empty for the first one.
    pub made_by: String,
    /// The code of the first admin, spent with the making; then no other account may exist.
    pub first_code: Option<SecretHash>,
}

/// Random bytes of a uid: no two accounts ever have the same, however often a name is used again.
const UID_BYTES: usize = 16;

impl HubStore {
    /// Whether anybody has an account.
    pub async fn has_accounts(&self) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM accounts")
            .fetch_one(&mut *self.reader().await?)
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    /// One account.
    pub async fn account(&self, name: &str) -> Result<Option<Account>, StoreError> {
        let row = sqlx::query("SELECT name, role, scope FROM accounts WHERE name = $1")
            .bind(name)
            .fetch_optional(&mut *self.reader().await?)
            .await?;
        row.as_ref().map(Account::read).transpose()
    }

    /// Makes an account with its first key.
    pub async fn add_account(&self, account: NewAccount) -> Result<(), StoreError> {
        self.write(MakeAccount { account, uid: random_hex(UID_BYTES) }).await
    }

    /// Keeps the code with which the first account is made; the one before ends.
    pub async fn set_first_admin_code(&self, hash: SecretHash) -> Result<(), StoreError> {
        self.write(NewFirstCode { hash }).await
    }
}

struct MakeAccount {
    account: NewAccount,
    uid: String,
}

impl StoreWrite for MakeAccount {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let NewAccount { account, key, made_by, first_code } = &self.account;
        if let Some(code) = first_code
            && (!spend_first_code(tx, code).await?
                || count(tx, "SELECT COUNT(*) FROM accounts").await? > 0)
        {
            return Err(Problem::unauthorised().into());
        }
        if count(tx, "SELECT COUNT(*) FROM accounts").await? >= ACCOUNTS_MAX {
            return Err(Problem::new(
                ProblemCode::TooMany,
                format!("there are {ACCOUNTS_MAX} accounts"),
            )
            .into());
        }
        let Account { name, role, scope } = account;
        let made = sqlx::query(
            "INSERT INTO accounts (name, role, scope, made_by, made_at, uid, last_used_at) VALUES ($1, $2, $3, $4, $5, $6, 0) \
             ON CONFLICT (name) DO NOTHING",
        )
        .bind(name.as_str())
        .bind(role.as_str())
        .bind(scope.as_str())
        .bind(made_by.as_str())
        .bind(tx.now.0)
        .bind(self.uid.as_str())
        .execute(&mut *tx.connection)
        .await?;
        if made.rows_affected() == 0 {
            return Err(Problem::new(
                ProblemCode::Conflict,
                format!("account {name} exists already"),
            )
            .into());
        }
        tx.add_key((name, &self.uid), key).await?;
        // Codes of a first admin are over with the first account, however it came to be.
        sqlx::query("DELETE FROM first_admin_codes").execute(&mut *tx.connection).await?;
        let detail = format!("{} of {scope}, key {}", role.as_str(), key.fingerprint);
        let who = if made_by.is_empty() { name } else { made_by };
        tx.audit(who, "account.add", name, &detail).await
    }
}

impl WriteTx<'_> {
    /// Gives an account a key that nobody has.
    pub(in crate::store) async fn add_key(
        &mut self,
        (name, uid): (&str, &str),
        key: &AccountKey,
    ) -> Result<(), StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM account_keys WHERE account_uid = $1")
            .bind(uid)
            .fetch_one(&mut *self.connection)
            .await?;
        if row.try_get::<i64, _>(0)? >= KEYS_PER_ACCOUNT_MAX {
            let detail = format!("account {name} has {KEYS_PER_ACCOUNT_MAX} keys");
            return Err(Problem::new(ProblemCode::TooMany, detail).into());
        }
        let added = sqlx::query(
            "INSERT INTO account_keys (fingerprint, account_uid, key_line, added_at, last_used_at) VALUES ($1, $2, $3, $4, 0) \
             ON CONFLICT (fingerprint) DO NOTHING",
        )
        .bind(key.fingerprint.as_str())
        .bind(uid)
        .bind(key.key_line.as_str())
        .bind(self.now.0)
        .execute(&mut *self.connection)
        .await?;
        if added.rows_affected() == 0 {
            return Err(Problem::new(
                ProblemCode::Conflict,
                "the key belongs to an account already",
            )
            .into());
        }
        Ok(())
    }
}

async fn count(tx: &mut WriteTx<'_>, query: &'static str) -> Result<i64, StoreError> {
    Ok(sqlx::query(query).fetch_one(&mut *tx.connection).await?.try_get(0)?)
}

/// Spends the first admin's code: whether it was good.
async fn spend_first_code(tx: &mut WriteTx<'_>, hash: &SecretHash) -> Result<bool, StoreError> {
    let spent = sqlx::query("DELETE FROM first_admin_codes WHERE hash = $1 AND expires_at > $2")
        .bind(hash.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
    Ok(spent.rows_affected() > 0)
}

struct NewFirstCode {
    hash: SecretHash,
}

impl StoreWrite for NewFirstCode {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM first_admin_codes").execute(&mut *tx.connection).await?;
        sqlx::query("INSERT INTO first_admin_codes (hash, expires_at) VALUES ($1, $2)")
            .bind(self.hash.as_str())
            .bind(tx.now.plus_s(FIRST_ADMIN_CODE_LIFE_S).0)
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}
