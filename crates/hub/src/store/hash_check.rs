//! Whether kept texts are still those of their hashes: what `hub check` asks besides the database's own rules.
//!
//! A thief who can write the database can rewrite a text under the hash of another. Hosts and `fleet` find that out by
//! themselves; this names what was rewritten. Documents are read one at a time, so that a large hub needs little memory.

use evenkeel_core::fleet::{DocumentFiles, Manifest};
use sqlx::{AnyConnection, Row as _};

use super::documents::files_of;
use super::error::StoreError;
use crate::secret_text::sha256_hex;

/// How many manifests are listed at a time.
const PAGE: i64 = 100;

/// How many faults of one kind are named.
const NAMED_MAX: usize = 20;

/// What is wrong with kept manifests and texts, a sentence each.
pub(super) async fn hash_faults(reader: &mut AnyConnection) -> Result<Vec<String>, StoreError> {
    let mut faults = Vec::new();
    let mut unnamed = 0_usize;
    let mut after = String::new();
    loop {
        let rows =
            sqlx::query("SELECT hash, bytes FROM manifests WHERE hash > $1 ORDER BY hash LIMIT $2")
                .bind(after.as_str())
                .bind(PAGE)
                .fetch_all(&mut *reader)
                .await?;
        for row in &rows {
            let (hash, bytes): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
            let fault = manifest_fault(reader, &hash, bytes).await?;
            match fault {
                Some(fault) if faults.len() < NAMED_MAX => faults.push(fault),
                Some(_) => unnamed += 1,
                None => {}
            }
            after = hash;
        }
        if rows.is_empty() {
            break;
        }
    }
    if unnamed > 0 {
        faults.push(format!("{unnamed} more documents whose texts or manifests were changed"));
    }
    Ok(faults)
}

async fn manifest_fault(
    reader: &mut AnyConnection,
    hash: &str,
    bytes: Vec<u8>,
) -> Result<Option<String>, StoreError> {
    if sha256_hex(&bytes) != hash {
        return Ok(Some(format!("the manifest {hash} was changed: it has another hash")));
    }
    let files = files_of(reader, hash).await?;
    let files = DocumentFiles::new(files.into_iter().map(|file| (file.name, file.text)));
    let fits = files.and_then(|files| files.fit(&Manifest::from_bytes(bytes)));
    Ok(fits.err().map(|error| format!("the texts of the manifest {hash} were changed: {error}")))
}
