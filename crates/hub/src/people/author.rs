//! What the hub can know of an author's signature: that it holds, and that it is of this document, host and number.
//!
//! Whether the key is an author's on that host only the host knows. Refusing here spares people a round trip; it protects
//! nobody, and must not.

use evenkeel_core::fleet::{AUTHOR_WINDOW_MAX_S, DesiredStatement, Manifest};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::PublicKey;

use super::wire::SealedBody;
use crate::problem::{Problem, ProblemCode};
use crate::store::{HostRow, HubTime};

/// A signature that holds.
pub(super) struct AuthorSignature {
    /// The fingerprint of the key.
    pub(super) key: String,
    /// The number it was signed under: the next one, or above it where the author signed the next one before.
    pub(super) generation: i64,
    /// As it is kept.
    pub(super) sealed: String,
}

/// Judges an author's envelope as far as the hub can.
pub(super) fn judge(
    sealed: &SealedBody,
    manifest: &Manifest,
    host: &HostRow,
    hub_id: &str,
    next: i64,
) -> Result<AuthorSignature, Problem> {
    let sealed = sealed.sealed();
    let envelope = sealed.envelope().map_err(|refusal| refused(&refusal))?;
    let namespace = DesiredStatement::claimed_namespace(&envelope);
    let statement = DesiredStatement::parse(envelope.payload(), namespace);
    let statement = statement.map_err(|refusal| refused(&refusal))?;
    let mut keys = Vec::new();
    for signature in envelope.signatures() {
        let key =
            PublicKey::from_blob(signature.key_blob()).map_err(|refusal| refused(&refusal))?;
        signature
            .verify(&key, namespace, envelope.payload())
            .map_err(|refusal| refused(&refusal))?;
        keys.push(key.fingerprint().to_string());
    }
    let other = |what: &str| {
        Problem::invalid(format!("the author signed another {what}")).hint("sign it again")
    };
    if statement.hub_id.as_str() != hub_id {
        return Err(other("hub"));
    }
    if statement.host.id.as_str() != host.id {
        return Err(other("host"));
    }
    if statement.host.key.to_string() != host.key_fingerprint {
        return Err(other("key of the host"));
    }
    if statement.manifest != manifest.hash() {
        return Err(other("document"));
    }
    let generation = i64::try_from(statement.generation.0).unwrap_or(i64::MAX);
    if generation < next {
        let detail = format!("the author signed generation {generation}; the next one is {next}");
        return Err(Problem::new(ProblemCode::Stale, detail).hint("sign it again"));
    }
    let now = UnixSeconds((HubTime::now().0 / 1000).unsigned_abs());
    statement.window.judge(now, AUTHOR_WINDOW_MAX_S).map_err(|refusal| refused(&refusal))?;
    let text = String::from_utf8(sealed.to_bytes()).expect("JSON is text");
    Ok(AuthorSignature { key: keys.join(" "), generation, sealed: text })
}

fn refused(refusal: &Refusal) -> Problem {
    Problem::invalid(format!(
        "the author's signature is refused as {}: {}",
        refusal.reason, refusal.detail
    ))
}
