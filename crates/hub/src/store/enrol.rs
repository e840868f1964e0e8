//! How a host comes in: a token made by an admin, used once, by one key.
//!
//! Every refusal that could be an attack is kept in the audit, which is why refusals are answers here and not errors:
//! an error would take the line along.

use sqlx::Row as _;

use super::limits::{ENROL_TOKEN_LIFE_S, ENROL_TOKENS_PER_HOST_MAX, HOSTS_MAX};
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, HubTime, StoreChange, StoreError};
use crate::problem::{Problem, ProblemCode};
use crate::secret_text::SecretHash;

/// What a host hands in, verified by the caller: the statement is signed by this key and names this host and token.
#[derive(Debug, Clone)]
pub struct NewHost {
    /// The token's hash.
    pub token: SecretHash,
    /// The host's id.
    pub host: String,
    /// Its key, as OpenSSH writes it.
    pub key_line: String,
    /// The key's fingerprint.
    pub key_fingerprint: String,
    /// The hash of the credential it is answered with.
    pub credential: SecretHash,
}

impl HubStore {
    /// Makes a token for one host.
    pub async fn make_enrol_token(
        &self,
        hash: SecretHash,
        host: &str,
        replaces: bool,
        who: &str,
    ) -> Result<HubTime, StoreError> {
        self.write(MakeToken { hash, host: host.to_owned(), replaces, who: who.to_owned() }).await
    }

    /// Takes a host in. A refusal is the inner error.
    pub async fn enrol(&self, host: NewHost) -> Result<Result<(), Problem>, StoreError> {
        self.write(host).await
    }
}

struct MakeToken {
    hash: SecretHash,
    host: String,
    replaces: bool,
    who: String,
}

impl StoreWrite for MakeToken {
    type Out = HubTime;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<HubTime, StoreError> {
        if !self.replaces && host_key(tx, &self.host).await?.is_some() {
            let detail = format!("host {} is enrolled already", self.host);
            let hint = "for a new key or a new credential make the token with `--replace`";
            return Err(Problem::new(ProblemCode::Conflict, detail).hint(hint).into());
        }
        let expires = tx.now.plus_s(ENROL_TOKEN_LIFE_S);
        sqlx::query(
            "INSERT INTO enrol_tokens (hash, host, replaces, made_by, made_at, expires_at, used_at, used_key) \
             VALUES ($1, $2, $3, $4, $5, $6, 0, '')",
        )
        .bind(self.hash.as_str())
        .bind(self.host.as_str())
        .bind(i64::from(self.replaces))
        .bind(self.who.as_str())
        .bind(tx.now.0)
        .bind(expires.0)
        .execute(&mut *tx.connection)
        .await?;
        sqlx::query(
            "DELETE FROM enrol_tokens WHERE host = $1 AND hash NOT IN \
             (SELECT hash FROM enrol_tokens WHERE host = $1 ORDER BY made_at DESC, hash LIMIT $2)",
        )
        .bind(self.host.as_str())
        .bind(ENROL_TOKENS_PER_HOST_MAX)
        .execute(&mut *tx.connection)
        .await?;
        let detail = if self.replaces { "replaces the enrolled key" } else { "" };
        tx.audit(&self.who, "enrol_token.make", &self.host, detail).await?;
        Ok(expires)
    }
}

struct TokenRow {
    host: String,
    replaces: bool,
    expires_at: i64,
    used_at: i64,
    used_key: String,
}

impl StoreWrite for NewHost {
    type Out = Result<(), Problem>;

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<Self::Out, StoreError> {
        let Some(token) = self.token(tx).await? else { return Ok(Err(Problem::unauthorised())) };
        if token.expires_at <= tx.now.0 {
            return Ok(Err(Problem::unauthorised()));
        }
        if token.host != self.host {
            return self
                .refused(tx, "the token is for another host", Problem::unauthorised())
                .await;
        }
        if token.used_at != 0 {
            return self.answer_again(tx, &token).await;
        }
        if self.key_elsewhere(tx).await? {
            let problem = Problem::new(
                ProblemCode::Conflict,
                "the host key belongs to another host",
            )
            .hint("a copied machine needs a key of its own: remove its state directory's host_key");
            return self.refused(tx, "the host key belongs to another host", problem).await;
        }
        match (host_key(tx, &self.host).await?, token.replaces) {
            (Some(_), false) => {
                let problem = Problem::new(ProblemCode::Conflict, "the host is enrolled already")
                    .hint("make the token with `--replace`");
                return self.refused(tx, "the host is enrolled already", problem).await;
            }
            (Some(_), true) => self.replace(tx).await?,
            (None, _) => self.insert(tx).await?,
        }
        sqlx::query("UPDATE enrol_tokens SET used_at = $1, used_key = $2 WHERE hash = $3")
            .bind(tx.now.0)
            .bind(self.key_fingerprint.as_str())
            .bind(self.token.as_str())
            .execute(&mut *tx.connection)
            .await?;
        tx.audit(&format!("host {}", self.host), "host.enrol", &self.host, &self.key_fingerprint)
            .await?;
        tx.changed(StoreChange::Host(self.host.clone()));
        Ok(Ok(()))
    }
}

impl NewHost {
    async fn token(&self, tx: &mut WriteTx<'_>) -> Result<Option<TokenRow>, StoreError> {
        let lock = tx.for_update();
        let query = format!(
            "SELECT host, replaces, expires_at, used_at, used_key FROM enrol_tokens WHERE hash = $1{lock}"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(self.token.as_str())
            .fetch_optional(&mut *tx.connection)
            .await?;
        row.map(|row| {
            Ok(TokenRow {
                host: row.try_get(0)?,
                replaces: row.try_get::<i64, _>(1)? != 0,
                expires_at: row.try_get(2)?,
                used_at: row.try_get(3)?,
                used_key: row.try_get(4)?,
            })
        })
        .transpose()
    }

    /// The answer was lost on its way: the same key gets a new credential, and the one before ends.
    async fn answer_again(
        &self,
        tx: &mut WriteTx<'_>,
        token: &TokenRow,
    ) -> Result<Result<(), Problem>, StoreError> {
        let known = host_key(tx, &self.host).await?;
        if token.used_key != self.key_fingerprint || known.as_deref() != Some(&self.key_fingerprint)
        {
            return self
                .refused(tx, "a used token came again with another key", Problem::unauthorised())
                .await;
        }
        // Other replicas hear of it by the row's version: the credential before must end there too.
        tx.take_host(&self.host).await?;
        sqlx::query("UPDATE hosts SET credential_hash = $1 WHERE id = $2")
            .bind(self.credential.as_str())
            .bind(self.host.as_str())
            .execute(&mut *tx.connection)
            .await?;
        tx.audit(
            &format!("host {}", self.host),
            "host.enrol_again",
            &self.host,
            &self.key_fingerprint,
        )
        .await?;
        Ok(Ok(()))
    }

    async fn refused(
        &self,
        tx: &mut WriteTx<'_>,
        why: &str,
        problem: Problem,
    ) -> Result<Result<(), Problem>, StoreError> {
        let detail = format!("{why}; key {}", self.key_fingerprint);
        tx.audit(&format!("host {}", self.host), "host.enrol_refused", &self.host, &detail).await?;
        Ok(Err(problem))
    }

    async fn key_elsewhere(&self, tx: &mut WriteTx<'_>) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM hosts WHERE key_fingerprint = $1 AND id <> $2")
            .bind(self.key_fingerprint.as_str())
            .bind(self.host.as_str())
            .fetch_one(&mut *tx.connection)
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    async fn insert(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM hosts").fetch_one(&mut *tx.connection).await?;
        if row.try_get::<i64, _>(0)? >= HOSTS_MAX {
            let detail = format!("the hub has {HOSTS_MAX} hosts, which is its limit");
            return Err(Problem::new(ProblemCode::TooMany, detail).into());
        }
        sqlx::query(
            "INSERT INTO hosts (id, key_line, key_fingerprint, credential_hash, labels, wanted, cursor, serial, \
             instance, seq, reported, enrolled_at, last_seen, changed_at, version) \
             VALUES ($1, $2, $3, $4, '{}', 0, 0, 0, '', 0, 0, $5, $5, $5, 1)",
        )
        .bind(self.host.as_str())
        .bind(self.key_line.as_str())
        .bind(self.key_fingerprint.as_str())
        .bind(self.credential.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        self.drop_other_anchor(tx).await
    }

    /// A known host comes anew: the old credential ends, and what waited for the old key can fit no more.
    async fn replace(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        tx.take_host(&self.host).await?;
        let same_key = host_key(tx, &self.host).await?.as_deref() == Some(&self.key_fingerprint);
        sqlx::query(
            "UPDATE hosts SET key_line = $1, key_fingerprint = $2, credential_hash = $3, instance = '', seq = 0, \
             reported = 0, enrolled_at = $4 WHERE id = $5",
        )
        .bind(self.key_line.as_str())
        .bind(self.key_fingerprint.as_str())
        .bind(self.credential.as_str())
        .bind(tx.now.0)
        .bind(self.host.as_str())
        .execute(&mut *tx.connection)
        .await?;
        if !same_key {
            sqlx::query(
                "UPDATE envelopes SET state = 'expired' WHERE host = $1 AND state = 'waiting'",
            )
            .bind(self.host.as_str())
            .execute(&mut *tx.connection)
            .await?;
            sqlx::query("DELETE FROM pending_items WHERE host = $1")
                .bind(self.host.as_str())
                .execute(&mut *tx.connection)
                .await?;
        }
        self.drop_other_anchor(tx).await
    }

    /// The head of another key's journal says nothing of this one's.
    async fn drop_other_anchor(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM anchors WHERE host = $1 AND key_fingerprint <> $2")
            .bind(self.host.as_str())
            .bind(self.key_fingerprint.as_str())
            .execute(&mut *tx.connection)
            .await?;
        Ok(())
    }
}

async fn host_key(tx: &mut WriteTx<'_>, host: &str) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT key_fingerprint FROM hosts WHERE id = $1")
        .bind(host)
        .fetch_optional(&mut *tx.connection)
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}
