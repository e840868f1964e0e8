//! What a host says: kept whole or not at all, in one transaction.
//!
//! The caller has verified the host's signature over the exact body and the signatures inside of it; here is decided
//! whether it builds on what is kept, and what becomes of each part. Nothing a report says is believed about any other host.

use evenkeel_core::fleet::{
    EnvelopeVerdict, HostReport, ReportedDecision, SealedText, ToldOperation,
};
use sqlx::Row as _;

use super::hosts::no_such_host;
use super::kept_bytes::{KeptBytes, NAME_BYTES_MAX, entry_text, length, text_of};
use super::limits::{
    DECISIONS_PER_HOST_MAX, GENERATION_STEP_MAX, GUESTS_PER_HOST_MAX, ITEMS_PER_HOST_MAX,
    NUMBER_MAX, OPS_PER_HOST_MAX,
};
use super::text::plain;
use super::transact::{StoreWrite, WriteTx};
use super::{HubStore, StoreChange, StoreError};
use crate::problem::{Problem, ProblemCode};

/// A head that was verified.
#[derive(Debug, Clone)]
pub struct NewHead {
    /// Which journal.
    pub epoch: i64,
    /// Its newest record.
    pub seq: i64,
    /// That record's sum.
    pub sum: String,
    /// As the host signed it.
    pub sealed: String,
}

/// A report that was verified.
#[derive(Debug, Clone)]
pub struct NewReport {
    /// Whose.
    pub host: String,
    /// The key it is signed by.
    pub key_fingerprint: String,
    /// In which life of the agent.
    pub instance: String,
    /// Its number.
    pub seq: i64,
    /// The number it builds on; 0 for a whole one.
    pub base: i64,
    /// What it says.
    pub report: HostReport,
    /// The head in it, verified.
    pub head: Option<NewHead>,
}

/// Where a host's reports stand.
struct ReportMark {
    instance: String,
    seq: i64,
    serial: i64,
    newest: i64,
    /// Bytes of the host's ops and decisions, and of its guests, as they were counted so far.
    bytes: KeptBytes,
}

impl HubStore {
    /// Keeps a report. The same one again changes nothing.
    pub async fn report(&self, report: NewReport) -> Result<(), StoreError> {
        self.write(report).await
    }
}

impl StoreWrite for NewReport {
    type Out = ();

    async fn run(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let mut mark = self.mark(tx).await?;
        if mark.instance == self.instance && mark.seq == self.seq {
            return Ok(());
        }
        let follows = mark.instance == self.instance && self.base == mark.seq && self.base != 0;
        let begins = self.base == 0 && (mark.instance != self.instance || self.seq > mark.seq);
        if !follows && !begins {
            let detail =
                format!("the hub does not have report {} of this life of the agent", self.base);
            return Err(Problem::new(ProblemCode::Resync, detail)
                .hint("send a whole report")
                .into());
        }
        if begins {
            self.forget_the_last(tx).await?;
            mark.bytes.guests = 0;
        }
        let guests = self.guests(tx, &mut mark.bytes).await?;
        let items = self.items(tx).await?;
        let serial = self.history(tx, mark.serial, &mut mark.bytes).await?;
        self.verdicts(tx).await?;
        self.state(tx, begins, begins || guests || items).await?;
        self.anchor(tx).await?;
        self.advance(tx, &mark, serial, begins || self.is_news()).await?;
        if items || !self.report.verdicts.is_empty() {
            tx.changed(StoreChange::Pending(self.host.clone()));
        }
        Ok(())
    }
}

impl NewReport {
    /// The host's row, ours until the commit. It may have been given another key since the request was let in.
    async fn mark(&self, tx: &mut WriteTx<'_>) -> Result<ReportMark, StoreError> {
        let lock = tx.for_update();
        let query = format!(
            "SELECT instance, seq, serial, key_fingerprint, wanted, reported, history_bytes, guest_bytes FROM hosts WHERE id = $1{lock}"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(self.host.as_str())
            .fetch_optional(&mut *tx.connection)
            .await?;
        let row = row.ok_or_else(|| no_such_host(&self.host))?;
        if row.try_get::<String, _>(3)? != self.key_fingerprint {
            return Err(Problem::unauthorised().into());
        }
        let (wanted, reported): (i64, i64) = (row.try_get(4)?, row.try_get(5)?);
        Ok(ReportMark {
            instance: row.try_get(0)?,
            seq: row.try_get(1)?,
            serial: row.try_get(2)?,
            newest: wanted.max(reported),
            bytes: KeptBytes { history: row.try_get(6)?, guests: row.try_get(7)? },
        })
    }

    /// A whole report begins: what is not in it is not there any more.
    async fn forget_the_last(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        for delete in
            ["DELETE FROM guests WHERE host = $1", "DELETE FROM pending_items WHERE host = $1"]
        {
            sqlx::query(delete).bind(self.host.as_str()).execute(&mut *tx.connection).await?;
        }
        Ok(())
    }

    async fn guests(
        &self,
        tx: &mut WriteTx<'_>,
        bytes: &mut KeptBytes,
    ) -> Result<bool, StoreError> {
        for guest in &self.report.guests {
            let text = bytes.guest_text(tx, &self.host, guest).await?;
            sqlx::query(
                "INSERT INTO guests (host, guest, name, state, body, updated_at) VALUES ($1, $2, $3, $4, $5, $6) \
                 ON CONFLICT (host, guest) DO UPDATE SET name = excluded.name, state = excluded.state, \
                 body = excluded.body, updated_at = excluded.updated_at",
            )
            .bind(self.host.as_str())
            .bind(plain(&guest.guest, NAME_BYTES_MAX))
            .bind(plain(&guest.name, NAME_BYTES_MAX))
            .bind(plain(&guest.state, NAME_BYTES_MAX))
            .bind(text)
            .bind(tx.now.0)
            .execute(&mut *tx.connection)
            .await?;
        }
        for guest in &self.report.gone {
            sqlx::query("DELETE FROM guests WHERE host = $1 AND guest = $2")
                .bind(self.host.as_str())
                .bind(plain(guest, NAME_BYTES_MAX))
                .execute(&mut *tx.connection)
                .await?;
        }
        if !self.report.guests.is_empty() {
            // No host of flesh and blood comes here. Which ones stay does not depend on when they were told.
            sqlx::query(
                "DELETE FROM guests WHERE host = $1 AND guest NOT IN \
                 (SELECT guest FROM guests WHERE host = $1 ORDER BY guest LIMIT $2)",
            )
            .bind(self.host.as_str())
            .bind(GUESTS_PER_HOST_MAX)
            .execute(&mut *tx.connection)
            .await?;
        }
        Ok(!self.report.guests.is_empty() || !self.report.gone.is_empty())
    }

    async fn items(&self, tx: &mut WriteTx<'_>) -> Result<bool, StoreError> {
        for id in &self.report.pending_gone {
            sqlx::query("DELETE FROM pending_items WHERE host = $1 AND id = $2")
                .bind(self.host.as_str())
                .bind(id.to_string())
                .execute(&mut *tx.connection)
                .await?;
        }
        for item in &self.report.pending {
            sqlx::query(
                "INSERT INTO pending_items (host, id, item, received_at) SELECT $1, $2, $3, $4 \
                 WHERE (SELECT COUNT(*) FROM pending_items WHERE host = $1) < $5 ON CONFLICT (host, id) DO NOTHING",
            )
            .bind(self.host.as_str())
            .bind(item.id.to_string())
            .bind(sealed_text(&item.item))
            .bind(tx.now.0)
            .bind(ITEMS_PER_HOST_MAX)
            .execute(&mut *tx.connection)
            .await?;
        }
        Ok(!self.report.pending.is_empty() || !self.report.pending_gone.is_empty())
    }

    /// Ops and decisions, each with a serial of its host; the oldest go when there are too many.
    async fn history(
        &self,
        tx: &mut WriteTx<'_>,
        mut serial: i64,
        bytes: &mut KeptBytes,
    ) -> Result<i64, StoreError> {
        let before = serial;
        for op in &self.report.ops {
            serial += 1;
            bytes.history += self.op(tx, op, serial).await?;
        }
        for decision in &self.report.decisions {
            serial += 1;
            bytes.history += self.decision(tx, decision, serial).await?;
        }
        if serial == before {
            return Ok(serial);
        }
        for (delete, kept) in [
            ("DELETE FROM ops WHERE host = $1 AND serial <= $2", OPS_PER_HOST_MAX),
            ("DELETE FROM decisions WHERE host = $1 AND serial <= $2", DECISIONS_PER_HOST_MAX),
        ] {
            sqlx::query(delete)
                .bind(self.host.as_str())
                .bind(serial - kept)
                .execute(&mut *tx.connection)
                .await?;
        }
        bytes.bound_history(tx, &self.host).await?;
        Ok(serial)
    }

    async fn op(
        &self,
        tx: &mut WriteTx<'_>,
        op: &ToldOperation,
        serial: i64,
    ) -> Result<i64, StoreError> {
        let text = entry_text(op, || ToldOperation {
            changes: Vec::new(),
            reason: String::new(),
            outcome: String::new(),
            ..op.clone()
        });
        sqlx::query(
            "INSERT INTO ops (host, op, serial, guest, kind, state, body, received_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (host, op) DO UPDATE SET serial = excluded.serial, \
             state = excluded.state, body = excluded.body, received_at = excluded.received_at",
        )
        .bind(self.host.as_str())
        .bind(plain(&op.op, NAME_BYTES_MAX))
        .bind(serial)
        .bind(plain(&op.guest, NAME_BYTES_MAX))
        .bind(plain(&op.kind, NAME_BYTES_MAX))
        .bind(plain(&op.state, NAME_BYTES_MAX))
        .bind(text.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        Ok(length(&text))
    }

    async fn decision(
        &self,
        tx: &mut WriteTx<'_>,
        decision: &ReportedDecision,
        serial: i64,
    ) -> Result<i64, StoreError> {
        let text =
            entry_text(decision, || ReportedDecision { detail: String::new(), ..decision.clone() });
        sqlx::query(
            "INSERT INTO decisions (host, serial, id, guest, code, body, received_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (host, id) DO NOTHING",
        )
        .bind(self.host.as_str())
        .bind(serial)
        .bind(plain(&decision.id, NAME_BYTES_MAX))
        .bind(plain(&decision.guest, NAME_BYTES_MAX))
        .bind(plain(&decision.code, NAME_BYTES_MAX))
        .bind(text.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        Ok(length(&text))
    }

    /// The only way an envelope leaves the queue before its end. A verdict that comes after the end is kept too.
    async fn verdicts(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        for verdict in &self.report.verdicts {
            let short = || EnvelopeVerdict { detail: String::new(), ..verdict.clone() };
            sqlx::query(
                "UPDATE envelopes SET state = 'judged', body = '', verdict = $1, verdict_code = $2, verdict_at = $3 \
                 WHERE id = $4 AND host = $5 AND state <> 'judged'",
            )
            .bind(entry_text(verdict, short))
            .bind(plain(&verdict.code, NAME_BYTES_MAX))
            .bind(tx.now.0)
            .bind(verdict.envelope.as_str())
            .bind(self.host.as_str())
            .execute(&mut *tx.connection)
            .await?;
        }
        Ok(())
    }

    /// What a host said last of itself. What a delta does not say stays as it was.
    async fn state(
        &self,
        tx: &mut WriteTx<'_>,
        whole: bool,
        recount: bool,
    ) -> Result<(), StoreError> {
        let report = &self.report;
        let refused = report.refused.as_ref().map(|refused| {
            if refused.generation.0 == 0 { String::new() } else { text_of(refused) }
        });
        let counts = if recount { Some(self.counts(tx).await?) } else { None };
        let missing = || if whole { Some(String::new()) } else { None };
        sqlx::query(
            "INSERT INTO host_states (host, generation, refused, agent, pass, counts, last_head, host_time, reported_at) \
             VALUES ($1, COALESCE($2, ''), COALESCE($3, ''), COALESCE($4, ''), COALESCE($5, ''), COALESCE($6, ''), \
             COALESCE($7, ''), $8, $9) ON CONFLICT (host) DO UPDATE SET \
             generation = COALESCE($2, host_states.generation), refused = COALESCE($3, host_states.refused), \
             agent = COALESCE($4, host_states.agent), pass = COALESCE($5, host_states.pass), \
             counts = COALESCE($6, host_states.counts), last_head = COALESCE($7, host_states.last_head), \
             host_time = $8, reported_at = $9",
        )
        .bind(self.host.as_str())
        .bind(report.generation.as_ref().map(text_of).or_else(missing))
        .bind(refused.or_else(missing))
        .bind(report.agent.as_ref().map(text_of).or_else(missing))
        .bind(report.pass.as_ref().map(text_of).or_else(missing))
        .bind(counts)
        .bind(self.head.as_ref().map(|head| head.sealed.clone()))
        .bind(plain(&report.at, NAME_BYTES_MAX))
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }

    /// How many guests are in which state, and how many items wait: for lists of hosts, which must not count for each.
    async fn counts(&self, tx: &mut WriteTx<'_>) -> Result<String, StoreError> {
        let mut counts = std::collections::BTreeMap::new();
        let rows = sqlx::query("SELECT state, COUNT(*) FROM guests WHERE host = $1 GROUP BY state")
            .bind(self.host.as_str())
            .fetch_all(&mut *tx.connection)
            .await?;
        for row in rows {
            counts.insert(row.try_get::<String, _>(0)?, row.try_get::<i64, _>(1)?);
        }
        let row = sqlx::query("SELECT COUNT(*) FROM pending_items WHERE host = $1")
            .bind(self.host.as_str())
            .fetch_one(&mut *tx.connection)
            .await?;
        counts.insert("pending".to_owned(), row.try_get(0)?);
        Ok(text_of(&counts))
    }

    /// The anchor only rises: by epoch, then by number. A head of the same place with another sum does not replace it.
    async fn anchor(&self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        let Some(head) = &self.head else { return Ok(()) };
        sqlx::query(
            "INSERT INTO anchors (host, head, epoch, seq, sum, key_fingerprint, anchored_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (host) DO UPDATE SET head = excluded.head, \
             epoch = excluded.epoch, seq = excluded.seq, sum = excluded.sum, \
             key_fingerprint = excluded.key_fingerprint, anchored_at = excluded.anchored_at \
             WHERE anchors.key_fingerprint <> excluded.key_fingerprint OR anchors.epoch < excluded.epoch \
             OR (anchors.epoch = excluded.epoch AND anchors.seq < excluded.seq)",
        )
        .bind(self.host.as_str())
        .bind(head.sealed.as_str())
        .bind(head.epoch)
        .bind(head.seq)
        .bind(head.sum.as_str())
        .bind(self.key_fingerprint.as_str())
        .bind(tx.now.0)
        .execute(&mut *tx.connection)
        .await?;
        Ok(())
    }

    /// Whether it says more than that the host is there.
    fn is_news(&self) -> bool {
        let HostReport {
            generation,
            refused,
            agent,
            pass,
            guests,
            gone,
            ops,
            decisions,
            pending,
            pending_gone,
            verdicts,
            head: _,
            at: _,
        } = &self.report;
        generation.is_some()
            || refused.is_some()
            || agent.is_some()
            || pass.is_some()
            || !guests.is_empty()
            || !gone.is_empty()
            || !ops.is_empty()
            || !decisions.is_empty()
            || !pending.is_empty()
            || !pending_gone.is_empty()
            || !verdicts.is_empty()
    }

    /// The row is marked as changed where there is news, so that other replicas hear of it. A sign of life is none: they read
    /// those from time to time, and a quiet fleet leaves the index of changes alone.
    async fn advance(
        &self,
        tx: &mut WriteTx<'_>,
        mark: &ReportMark,
        serial: i64,
        is_news: bool,
    ) -> Result<(), StoreError> {
        let said = self.report.generation.as_ref().map_or(0, |state| state.number.0);
        let said = i64::try_from(said).unwrap_or(NUMBER_MAX).min(NUMBER_MAX);
        // A number no hub of ours can have given would leave no room for the next one.
        let reported =
            if said.saturating_sub(mark.newest) > GENERATION_STEP_MAX { 0 } else { said };
        let changed = if is_news { ", changed_at = $4, version = version + 1" } else { "" };
        let query = format!(
            "UPDATE hosts SET instance = $1, seq = $2, serial = $3, last_seen = $4, \
             reported = CASE WHEN reported < $5 THEN $5 ELSE reported END, history_bytes = $7, guest_bytes = $8{changed} \
             WHERE id = $6 RETURNING version",
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query))
            .bind(self.instance.as_str())
            .bind(self.seq)
            .bind(serial)
            .bind(tx.now.0)
            .bind(reported)
            .bind(self.host.as_str())
            .bind(mark.bytes.history)
            .bind(mark.bytes.guests)
            .fetch_one(&mut *tx.connection)
            .await?;
        // Without news the version is whoever's wrote the row last.
        if is_news {
            tx.wrote(&self.host, row.try_get(0)?);
        }
        tx.changed(StoreChange::Report(self.host.clone()));
        Ok(())
    }
}

/// A sealed value as one line of JSON; what is signed stands in base64 and stays as it is.
pub(crate) fn sealed_text(sealed: &SealedText) -> String {
    text_of(sealed)
}
