//! How people come in and go: challenges, API tokens and sessions. Each is known by its hash alone.
//!
//! What may be used once is taken away by the transaction that uses it, so that of two replicas asked at the same moment
//! one gets it. Whether a signature holds is not judged here.

use sqlx::Row as _;

use super::accounts::{Account, AccountKey, CodePurpose};
use super::limits::{CHALLENGES_MAX, SESSIONS_PER_ACCOUNT_MAX, TOKENS_PER_ACCOUNT_MAX};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};
use crate::problem::{Problem, ProblemCode};
use crate::secret_text::SecretHash;

/// A token or session that was given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLogin {
    /// Whose.
    pub account: Account,
    /// When it ends.
    pub expires_at: HubTime,
}

/// What a person comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoginTable {
    ApiTokens,
    Sessions,
}

impl HubStore {
    /// Keeps a challenge for an account, which need not exist.
    pub async fn add_challenge(
        &self,
        hash: SecretHash,
        account: &str,
        life_s: i64,
    ) -> Result<(), StoreError> {
        self.write(NewChallenge { hash, account: account.to_owned(), life_s }).await
    }

    /// Spends a challenge: whether it was this account's, unused and in time. It is gone in any case.
    pub async fn spend_challenge(
        &self,
        hash: SecretHash,
        account: &str,
    ) -> Result<bool, StoreError> {
        self.write(SpendChallenge { hash, account: account.to_owned() }).await
    }

    /// The keys of an account; none if there is no such account.
    pub async fn account_keys(&self, account: &str) -> Result<Vec<AccountKey>, StoreError> {
        let rows = sqlx::query(
            "SELECT fingerprint, key_line FROM account_keys WHERE account = $1 ORDER BY added_at, fingerprint",
        )
        .bind(account)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        let key = |row: &sqlx::any::AnyRow| {
            Ok(AccountKey { fingerprint: row.try_get(0)?, key_line: row.try_get(1)? })
        };
        rows.iter().map(key).collect()
    }

    /// Gives out a token, if the key still is the account's.
    pub async fn open_token(
        &self,
        hash: SecretHash,
        account: &str,
        fingerprint: &str,
        life_s: i64,
    ) -> Result<Option<OpenedLogin>, StoreError> {
        let (account, fingerprint) = (account.to_owned(), fingerprint.to_owned());
        self.write(NewToken { hash, account, fingerprint, life_s }).await
    }

    /// Turns a one-time code into a session, once. Other sessions of the browser mean nothing to it.
    pub async fn open_session(
        &self,
        code: SecretHash,
        hash: SecretHash,
        life_s: i64,
    ) -> Result<Option<OpenedLogin>, StoreError> {
        self.write(NewSession { code, hash, life_s }).await
    }

    /// The account that an API token belongs to, while it is good.
    pub async fn account_by_token(&self, hash: &SecretHash) -> Result<Option<Account>, StoreError> {
        self.account_by(LoginTable::ApiTokens, hash).await
    }

    /// The account that a session belongs to, while it is good.
    pub async fn account_by_session(
        &self,
        hash: &SecretHash,
    ) -> Result<Option<Account>, StoreError> {
        self.account_by(LoginTable::Sessions, hash).await
    }

    async fn account_by(
        &self,
        table: LoginTable,
        hash: &SecretHash,
    ) -> Result<Option<Account>, StoreError> {
        let query = match table {
            LoginTable::ApiTokens => {
                "SELECT a.name, a.role, a.scope FROM api_tokens l JOIN accounts a ON a.name = l.account \
                 WHERE l.hash = $1 AND l.expires_at > $2"
            }
            LoginTable::Sessions => {
                "SELECT a.name, a.role, a.scope FROM sessions l JOIN accounts a ON a.name = l.account \
                 WHERE l.hash = $1 AND l.expires_at > $2"
            }
        };
        let query = sqlx::query(query).bind(hash.as_str()).bind(HubTime::now().0);
        let row = query.fetch_optional(&mut *self.reader().await?).await?;
        row.as_ref().map(Account::read).transpose()
    }

    /// Ends a token.
    pub async fn end_token(&self, hash: SecretHash, who: &str) -> Result<(), StoreError> {
        self.write(EndLogin { table: LoginTable::ApiTokens, hash, who: who.to_owned() }).await
    }

    /// Ends a session.
    pub async fn end_session(&self, hash: SecretHash, who: &str) -> Result<(), StoreError> {
        self.write(EndLogin { table: LoginTable::Sessions, hash, who: who.to_owned() }).await
    }
}

struct NewChallenge {
    hash: SecretHash,
    account: String,
    life_s: i64,
}

impl StoreWrite for NewChallenge {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM login_challenges WHERE expires_at <= $1")
            .bind(tx.now.0)
            .execute(&mut *tx.connection)
            .await?;
        let row = sqlx::query("SELECT COUNT(*) FROM login_challenges")
            .fetch_one(&mut *tx.connection)
            .await?;
        if row.try_get::<i64, _>(0)? >= CHALLENGES_MAX {
            let detail = "too many people try to log in at this moment";
            return Err(Problem::new(ProblemCode::TooMany, detail)
                .hint("try again in a minute")
                .into());
        }
        let insert = "INSERT INTO login_challenges (hash, account, made_at, expires_at) VALUES ($1, $2, $3, $4)";
        keep(tx, insert, (&self.hash, &self.account), tx.now.plus_s(self.life_s)).await
    }
}

struct SpendChallenge {
    hash: SecretHash,
    account: String,
}

impl StoreWrite for SpendChallenge {
    type Out = bool;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<bool, StoreError> {
        let row = sqlx::query(
            "DELETE FROM login_challenges WHERE hash = $1 RETURNING account, expires_at",
        )
        .bind(self.hash.as_str())
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(row) = row else { return Ok(false) };
        let (account, expires_at): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(account == self.account && expires_at > tx.now.0)
    }
}

struct NewToken {
    hash: SecretHash,
    account: String,
    fingerprint: String,
    life_s: i64,
}

impl StoreWrite for NewToken {
    type Out = Option<OpenedLogin>;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<Self::Out, StoreError> {
        let row = sqlx::query(
            "SELECT a.name, a.role, a.scope FROM accounts a JOIN account_keys k ON k.account = a.name \
             WHERE a.name = $1 AND k.fingerprint = $2",
        )
        .bind(self.account.as_str())
        .bind(self.fingerprint.as_str())
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let opened = open(tx, LoginTable::ApiTokens, Account::read(&row)?, &self.hash, self.life_s);
        let opened = opened.await?;
        let detail = format!("by key {}", self.fingerprint);
        tx.audit(&self.account, "login", &self.account, &detail).await?;
        Ok(Some(opened))
    }
}

struct NewSession {
    code: SecretHash,
    hash: SecretHash,
    life_s: i64,
}

impl StoreWrite for NewSession {
    type Out = Option<OpenedLogin>;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<Self::Out, StoreError> {
        let name = super::accounts::spend(tx, &self.code, CodePurpose::Console).await?;
        let Some(name) = name else { return Ok(None) };
        let row = sqlx::query("SELECT name, role, scope FROM accounts WHERE name = $1")
            .bind(name.as_str())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        // The token against forged requests is made from the session itself, so that nothing of it is kept.
        let opened = open(tx, LoginTable::Sessions, Account::read(&row)?, &self.hash, self.life_s);
        let opened = opened.await?;
        tx.audit(&name, "session.open", &name, "").await?;
        Ok(Some(opened))
    }
}

/// Keeps a login; the newest of an account stay, the one just made among them.
async fn open(
    tx: &mut WriteTx<'_>,
    table: LoginTable,
    account: Account,
    hash: &SecretHash,
    life_s: i64,
) -> Result<OpenedLogin, StoreError> {
    let (insert, drop_oldest, kept) = match table {
        LoginTable::ApiTokens => (
            "INSERT INTO api_tokens (hash, account, made_at, expires_at) VALUES ($1, $2, $3, $4)",
            "DELETE FROM api_tokens WHERE account = $1 AND hash <> $2 AND hash NOT IN \
             (SELECT hash FROM api_tokens WHERE account = $1 AND hash <> $2 ORDER BY made_at DESC, hash LIMIT $3)",
            TOKENS_PER_ACCOUNT_MAX,
        ),
        LoginTable::Sessions => (
            "INSERT INTO sessions (hash, account, made_at, expires_at) VALUES ($1, $2, $3, $4)",
            "DELETE FROM sessions WHERE account = $1 AND hash <> $2 AND hash NOT IN \
             (SELECT hash FROM sessions WHERE account = $1 AND hash <> $2 ORDER BY made_at DESC, hash LIMIT $3)",
            SESSIONS_PER_ACCOUNT_MAX,
        ),
    };
    let expires_at = tx.now.plus_s(life_s);
    keep(tx, insert, (hash, &account.name), expires_at).await?;
    sqlx::query(drop_oldest)
        .bind(account.name.as_str())
        .bind(hash.as_str())
        .bind(kept - 1)
        .execute(&mut *tx.connection)
        .await?;
    Ok(OpenedLogin { account, expires_at })
}

/// Inserts what an account comes in with, known by its hash, until it expires.
async fn keep(
    tx: &mut WriteTx<'_>,
    insert: &'static str,
    (hash, account): (&SecretHash, &str),
    expires_at: HubTime,
) -> Result<(), StoreError> {
    sqlx::query(insert)
        .bind(hash.as_str())
        .bind(account)
        .bind(tx.now.0)
        .bind(expires_at.0)
        .execute(&mut *tx.connection)
        .await?;
    Ok(())
}

struct EndLogin {
    table: LoginTable,
    hash: SecretHash,
    who: String,
}

impl StoreWrite for EndLogin {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let query = match self.table {
            LoginTable::ApiTokens => "DELETE FROM api_tokens WHERE hash = $1",
            LoginTable::Sessions => "DELETE FROM sessions WHERE hash = $1",
        };
        let ended =
            sqlx::query(query).bind(self.hash.as_str()).execute(&mut *tx.connection).await?;
        if ended.rows_affected() > 0 {
            tx.audit(&self.who, "logout", &self.who, "").await?;
        }
        Ok(())
    }
}
