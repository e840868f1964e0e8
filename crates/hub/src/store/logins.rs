//! How people come in and go: answered challenges, API tokens, and what comes of a token. Each is known by its hash alone.
//!
//! ```text
//!  key of an account ──signs──> token ──> code for one browser ──> session
//! ```
//!
//! What stands on the right ends with what stands on the left of it; the database itself sees to that. A session makes
//! nothing, so that what was stolen ends with the token at the latest. What may be used once is taken away by the transaction
//! that uses it, so that of two replicas asked at the same moment one gets it. Whether a signature holds is not judged here.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::accounts::{Account, AccountKey};
use super::limits::{CODES_PER_TOKEN_MAX, SESSIONS_PER_TOKEN_MAX, TOKENS_PER_ACCOUNT_MAX};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreError};
use crate::secret_text::SecretHash;

/// A token, or a session of one, that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLogin {
    /// Whose.
    pub account: Account,
    /// The account's uid: a later account of the same name has another.
    pub account_uid: String,
    /// When it ends: the token's own end, of a session too.
    pub expires_at: HubTime,
}

impl OpenLogin {
    /// The columns that [`Self::read`] reads, of a token `t` and its account `a`.
    const COLUMNS: &str = "a.name, a.role, a.scope, a.uid, t.expires_at";

    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let account = Account::read(row)?;
        Ok(Self { account, account_uid: row.try_get(3)?, expires_at: HubTime(row.try_get(4)?) })
    }
}

/// A challenge of this hub's that somebody answered by a good signature.
#[derive(Debug, Clone)]
pub struct AnsweredChallenge {
    /// Of its nonce.
    pub hash: SecretHash,
    /// Until when it could be answered: so long it is remembered that it was.
    pub expires_at: HubTime,
}

/// What came of a one-time code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeOutcome {
    /// A session.
    Opened(OpenLogin),
    /// It was made for another browser than the one that showed it. It is over.
    OtherBrowser,
    /// There is none such, or not any more.
    Unknown,
}

/// What a person comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoginTable {
    ApiTokens,
    Sessions,
}

impl HubStore {
    /// The keys of an account; none if there is no such account.
    pub async fn account_keys(&self, account: &str) -> Result<Vec<AccountKey>, StoreError> {
        let rows = sqlx::query(
            "SELECT k.fingerprint, k.key_line FROM account_keys k JOIN accounts a ON a.uid = k.account_uid \
             WHERE a.name = $1 ORDER BY k.added_at, k.fingerprint",
        )
        .bind(account)
        .fetch_all(&mut *self.reader().await?)
        .await?;
        let key = |row: &AnyRow| {
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
    ) -> Result<Option<OpenLogin>, StoreError> {
        let account = account.to_owned();
        let fingerprint = fingerprint.to_owned();
        self.write(NewToken { hash, account, fingerprint, life_s, challenge: None }).await
    }

    /// Gives out a token for a challenge that was answered by the key, if the key still is the account's and the challenge was
    /// not answered before.
    pub async fn answer_challenge(
        &self,
        challenge: AnsweredChallenge,
        hash: SecretHash,
        (account, fingerprint): (&str, &str),
        life_s: i64,
    ) -> Result<Option<OpenLogin>, StoreError> {
        let account = account.to_owned();
        let fingerprint = fingerprint.to_owned();
        let challenge = Some(challenge);
        self.write(NewToken { hash, account, fingerprint, life_s, challenge }).await
    }

    /// Keeps a one-time code of a token for the browser with this word. False if the token is over.
    pub async fn add_console_code(
        &self,
        code: SecretHash,
        token: SecretHash,
        browser: &str,
        life_s: i64,
    ) -> Result<bool, StoreError> {
        self.write(NewConsoleCode { code, token, browser: browser.to_owned(), life_s }).await
    }

    /// Turns a one-time code into a session of its token, once, in the browser it was made for. Other sessions of the browser
    /// mean nothing to it.
    pub async fn open_session(
        &self,
        code: SecretHash,
        hash: SecretHash,
        browser: &str,
    ) -> Result<CodeOutcome, StoreError> {
        self.write(NewSession { code, hash, browser: browser.to_owned() }).await
    }

    /// What an API token opens, while it is good.
    pub async fn login_by_token(&self, hash: &SecretHash) -> Result<Option<OpenLogin>, StoreError> {
        self.login_by(LoginTable::ApiTokens, hash).await
    }

    /// What a session opens, while it is good.
    pub async fn login_by_session(
        &self,
        hash: &SecretHash,
    ) -> Result<Option<OpenLogin>, StoreError> {
        self.login_by(LoginTable::Sessions, hash).await
    }

    async fn login_by(
        &self,
        table: LoginTable,
        hash: &SecretHash,
    ) -> Result<Option<OpenLogin>, StoreError> {
        let from = match table {
            LoginTable::ApiTokens => {
                "api_tokens t JOIN accounts a ON a.uid = t.account_uid WHERE t.hash = $1"
            }
            LoginTable::Sessions => {
                "sessions s JOIN api_tokens t ON t.hash = s.token JOIN accounts a ON a.uid = t.account_uid \
                 WHERE s.hash = $1"
            }
        };
        let columns = OpenLogin::COLUMNS;
        let query = format!("SELECT {columns}, t.hash FROM {from} AND t.expires_at > $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(query));
        let query = query.bind(hash.as_str()).bind(HubTime::now().0);
        let Some(row) = query.fetch_optional(&mut *self.reader().await?).await? else {
            return Ok(None);
        };
        let login = OpenLogin::read(&row)?;
        self.used(&login.account.name, row.try_get(5)?);
        Ok(Some(login))
    }

    /// Ends a token, with its codes and sessions.
    pub async fn end_token(&self, hash: SecretHash, who: &str) -> Result<(), StoreError> {
        self.write(EndLogin { table: LoginTable::ApiTokens, hash, who: who.to_owned() }).await
    }

    /// Ends a session.
    pub async fn end_session(&self, hash: SecretHash, who: &str) -> Result<(), StoreError> {
        self.write(EndLogin { table: LoginTable::Sessions, hash, who: who.to_owned() }).await
    }
}

struct NewToken {
    hash: SecretHash,
    account: String,
    fingerprint: String,
    life_s: i64,
    challenge: Option<AnsweredChallenge>,
}

impl StoreWrite for NewToken {
    type Out = Option<OpenLogin>;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<Self::Out, StoreError> {
        // Account and key stay until the commit: a removal waits, and then takes this token along.
        let query = format!(
            "SELECT a.name, a.role, a.scope, a.uid FROM accounts a JOIN account_keys k ON k.account_uid = a.uid \
             WHERE a.name = $1 AND k.fingerprint = $2{}",
            tx.for_a_login()
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(self.account.as_str())
            .bind(self.fingerprint.as_str())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        if let Some(challenge) = &self.challenge
            && !spend_challenge(tx, challenge).await?
        {
            return Ok(None);
        }
        let login = OpenLogin {
            account: Account::read(&row)?,
            account_uid: row.try_get(3)?,
            expires_at: tx.now.plus_s(self.life_s),
        };
        sqlx::query(
            "INSERT INTO api_tokens (hash, account_uid, key_fingerprint, made_at, expires_at, last_used_at) \
             VALUES ($1, $2, $3, $4, $5, $4)",
        )
        .bind(self.hash.as_str())
        .bind(login.account_uid.as_str())
        .bind(self.fingerprint.as_str())
        .bind(tx.now.0)
        .bind(login.expires_at.0)
        .execute(&mut *tx.connection)
        .await?;
        for (query, used) in [
            ("UPDATE accounts SET last_used_at = $1 WHERE uid = $2", login.account_uid.as_str()),
            ("UPDATE account_keys SET last_used_at = $1 WHERE fingerprint = $2", &self.fingerprint),
        ] {
            let query = sqlx::query(query).bind(tx.now.0).bind(used);
            query.execute(&mut *tx.connection).await?;
        }
        let drop_oldest = "DELETE FROM api_tokens WHERE account_uid = $1 AND hash <> $2 AND hash NOT IN \
             (SELECT hash FROM api_tokens WHERE account_uid = $1 AND hash <> $2 ORDER BY made_at DESC, hash LIMIT $3)";
        keep_newest(tx, drop_oldest, &login.account_uid, &self.hash, TOKENS_PER_ACCOUNT_MAX)
            .await?;
        let detail = format!("by key {}", self.fingerprint);
        tx.audit(&self.account, "login", &self.account, &detail).await?;
        Ok(Some(login))
    }
}

/// Writes down that a challenge is answered: false if it was before.
async fn spend_challenge(
    tx: &mut WriteTx<'_>,
    challenge: &AnsweredChallenge,
) -> Result<bool, StoreError> {
    let spent = sqlx::query(
        "INSERT INTO spent_challenges (hash, expires_at) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING",
    )
    .bind(challenge.hash.as_str())
    .bind(challenge.expires_at.0)
    .execute(&mut *tx.connection)
    .await?;
    Ok(spent.rows_affected() > 0)
}

/// The token of this hash, good and ours until the commit; none if it is over.
async fn take_token(tx: &mut WriteTx<'_>, hash: &str) -> Result<Option<OpenLogin>, StoreError> {
    let columns = OpenLogin::COLUMNS;
    let query = format!(
        "SELECT {columns} FROM api_tokens t JOIN accounts a ON a.uid = t.account_uid \
         WHERE t.hash = $1 AND t.expires_at > $2{}",
        tx.for_key_share()
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(hash).bind(tx.now.0);
    let row = query.fetch_optional(&mut *tx.connection).await?;
    row.as_ref().map(OpenLogin::read).transpose()
}

/// Drops all but the newest, the one just made among them. It has no older number only if clocks stood still, so it is named.
async fn keep_newest(
    tx: &mut WriteTx<'_>,
    drop_oldest: &'static str,
    owner: &str,
    made: &SecretHash,
    kept: i64,
) -> Result<(), StoreError> {
    sqlx::query(drop_oldest)
        .bind(owner)
        .bind(made.as_str())
        .bind(kept - 1)
        .execute(&mut *tx.connection)
        .await?;
    Ok(())
}

struct NewConsoleCode {
    code: SecretHash,
    token: SecretHash,
    browser: String,
    life_s: i64,
}

impl StoreWrite for NewConsoleCode {
    type Out = bool;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<bool, StoreError> {
        let Some(login) = take_token(tx, self.token.as_str()).await? else { return Ok(false) };
        sqlx::query(
            "INSERT INTO console_codes (hash, token, browser, made_at, expires_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(self.code.as_str())
        .bind(self.token.as_str())
        .bind(self.browser.as_str())
        .bind(tx.now.0)
        .bind(tx.now.plus_s(self.life_s).0)
        .execute(&mut *tx.connection)
        .await?;
        let drop_oldest = "DELETE FROM console_codes WHERE token = $1 AND hash <> $2 AND hash NOT IN \
             (SELECT hash FROM console_codes WHERE token = $1 AND hash <> $2 ORDER BY made_at DESC, hash LIMIT $3)";
        keep_newest(tx, drop_oldest, self.token.as_str(), &self.code, CODES_PER_TOKEN_MAX).await?;
        let name = login.account.name;
        tx.audit(&name, "console.code", &name, "").await?;
        Ok(true)
    }
}

struct NewSession {
    code: SecretHash,
    hash: SecretHash,
    browser: String,
}

impl StoreWrite for NewSession {
    type Out = CodeOutcome;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<CodeOutcome, StoreError> {
        let row = sqlx::query("SELECT token FROM console_codes WHERE hash = $1")
            .bind(self.code.as_str())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let Some(row) = row else { return Ok(CodeOutcome::Unknown) };
        let token: String = row.try_get(0)?;
        // The token before its code, as a logout locks them: neither waits for the other crosswise.
        let Some(login) = take_token(tx, &token).await? else { return Ok(CodeOutcome::Unknown) };
        let spent = sqlx::query(
            "DELETE FROM console_codes WHERE hash = $1 AND expires_at > $2 RETURNING browser",
        )
        .bind(self.code.as_str())
        .bind(tx.now.0)
        .fetch_optional(&mut *tx.connection)
        .await?;
        let Some(spent) = spent else { return Ok(CodeOutcome::Unknown) };
        let name = login.account.name.as_str();
        if spent.try_get::<String, _>(0)? != self.browser {
            let detail = "the link was opened in another browser than it was made for";
            tx.audit(name, "session.refused", name, detail).await?;
            return Ok(CodeOutcome::OtherBrowser);
        }
        sqlx::query("INSERT INTO sessions (hash, token, made_at) VALUES ($1, $2, $3)")
            .bind(self.hash.as_str())
            .bind(token.as_str())
            .bind(tx.now.0)
            .execute(&mut *tx.connection)
            .await?;
        let drop_oldest = "DELETE FROM sessions WHERE token = $1 AND hash <> $2 AND hash NOT IN \
             (SELECT hash FROM sessions WHERE token = $1 AND hash <> $2 ORDER BY made_at DESC, hash LIMIT $3)";
        keep_newest(tx, drop_oldest, &token, &self.hash, SESSIONS_PER_TOKEN_MAX).await?;
        tx.audit(name, "session.open", name, "").await?;
        Ok(CodeOutcome::Opened(login))
    }
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
