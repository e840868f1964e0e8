//! Envelopes: exact bytes and the signatures over them, as they travel.
//!
//! `{"payload": base64 of the bytes, "signatures": [armour, …]}`, and nothing else: a hint who signed, or
//! a second copy of the statement, is refused. Every signature must hold; one that does not is not passed
//! over, so that nothing in an envelope is unexplained. Reading one believes nothing in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::hash::PayloadHash;
use super::json::{self, Json, Malformed};
use super::sshsig::{KeyTouch, Namespace, SshSig};
use super::statement::{STATEMENT_BYTES_MAX, to_json};
use super::trust::{Signer, SkPolicy, TrustedSigners};
use crate::model::reason::{ReasonCode, Refusal};
use crate::operate::operation::UnixSeconds;

/// The largest envelope read: the largest statement in base64, and eight signatures.
pub const ENVELOPE_BYTES_MAX: usize = 128 * 1024;

/// The most signatures one envelope may hold; each costs a verification.
pub const SIGNATURES_MAX: usize = 8;

/// Signed bytes with their signatures, read and not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    payload: Vec<u8>,
    signatures: Vec<SshSig>,
}

impl Envelope {
    /// Reads an envelope. One newline at its end is taken, because editors and shells put it there; it
    /// is outside of what is signed.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let (payload, armours) = read(bytes).map_err(|error| envelope(error.to_string()))?;
        let signatures: Vec<SshSig> =
            armours.iter().map(|armour| SshSig::from_armour(armour)).collect::<Result<_, _>>()?;
        for (place, signature) in signatures.iter().enumerate() {
            let same_key = |earlier: &SshSig| earlier.key_blob() == signature.key_blob();
            if signatures[..place].iter().any(same_key) {
                return Err(envelope("one key signed twice"));
            }
        }
        Ok(Self { payload, signatures })
    }

    /// An envelope as it is sent, from exact bytes and armoured signatures.
    pub fn seal(payload: &[u8], armours: &[&str]) -> Result<String, Refusal> {
        #[derive(Serialize)]
        struct WrittenEnvelope<'a> {
            payload: String,
            signatures: &'a [&'a str],
        }
        let mut bytes =
            to_json(&WrittenEnvelope { payload: STANDARD.encode(payload), signatures: armours });
        Self::parse(&bytes)?;
        bytes.push(b'\n');
        Ok(String::from_utf8(bytes).expect("JSON made from text is text"))
    }

    /// The text of an envelope with one more signature at its end.
    pub fn seal_again(bytes: &[u8], armour: &str) -> Result<String, Refusal> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let (payload, armours) = read(bytes).map_err(|error| envelope(error.to_string()))?;
        let mut armours: Vec<&str> = armours.iter().map(String::as_str).collect();
        armours.push(armour);
        Self::seal(&payload, &armours)
    }

    /// The text of an envelope with the signatures of two over the same bytes; none if the bytes are others. A key that
    /// signed the first is not added again, whatever its other signature looks like.
    pub fn join(kept: &[u8], coming: &[u8]) -> Result<Option<String>, Refusal> {
        let parts = |bytes: &[u8]| {
            read(bytes.strip_suffix(b"\n").unwrap_or(bytes))
                .map_err(|error| envelope(error.to_string()))
        };
        let (payload, mut armours) = parts(kept)?;
        let (other, more) = parts(coming)?;
        if payload != other {
            return Ok(None);
        }
        let key_of = |armour: &String| SshSig::from_armour(armour);
        let known: Vec<SshSig> = armours.iter().map(key_of).collect::<Result<_, _>>()?;
        for armour in more {
            let signature = SshSig::from_armour(&armour)?;
            if !known.iter().any(|known| known.key_blob() == signature.key_blob()) {
                armours.push(armour);
            }
        }
        let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
        Self::seal(&payload, &armours).map(Some)
    }

    /// The signed bytes, exactly.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The signatures, in order.
    pub fn signatures(&self) -> &[SshSig] {
        &self.signatures
    }

    /// The hash of the signed bytes.
    pub fn payload_hash(&self) -> PayloadHash {
        PayloadHash::of(&self.payload)
    }

    /// What all signatures claim to be for; none if they differ or it is nothing of ours.
    pub fn claimed_namespace(&self) -> Option<Namespace> {
        let first = self.signatures.first()?.claimed_namespace()?;
        let same = |signature: &SshSig| signature.claimed_namespace() == Some(first);
        self.signatures.iter().all(same).then_some(first)
    }

    /// Verifies every signature by the signers a host trusts, at this moment. Who signed, not what it
    /// allows: that is asked of `authorise` and `rotate`.
    pub fn verify<'t>(
        &self,
        namespace: Namespace,
        trust: &'t TrustedSigners,
        now: UnixSeconds,
    ) -> Result<Vec<Approver<'t>>, Refusal> {
        let one = |signature| verify_one(signature, namespace, &self.payload, trust, now);
        self.signatures.iter().map(one).collect()
    }
}

/// A trusted signer that signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver<'t> {
    /// Who.
    pub signer: &'t Signer,
    /// For security keys, what the device said.
    pub touch: Option<KeyTouch>,
}

/// Verifies one signature by a signer that is trusted now.
pub(super) fn verify_one<'t>(
    signature: &SshSig,
    namespace: Namespace,
    payload: &[u8],
    trust: &'t TrustedSigners,
    now: UnixSeconds,
) -> Result<Approver<'t>, Refusal> {
    let signer = trust.lookup(signature.key_blob()).trusted()?;
    let touch = signature.verify(&signer.key, namespace, payload)?;
    signer.validity.judge(&signer.name, now)?;
    match (signer.sk, touch) {
        // The touch itself is demanded of every security key, where the signature is verified.
        (SkPolicy::Presence, _) => Ok(Approver { signer, touch }),
        (SkPolicy::Verification, Some(said)) if said.user_verified() => {
            Ok(Approver { signer, touch })
        }
        (SkPolicy::Verification, Some(_) | None) => {
            let detail = format!("{} must give the security key's PIN or finger", signer.name);
            Err(Refusal::new(ReasonCode::SkPresence, detail))
        }
    }
}

fn read(bytes: &[u8]) -> Result<(Vec<u8>, Vec<String>), Malformed> {
    let mut fields = json::parse(bytes, ENVELOPE_BYTES_MAX)?;
    let base64 = fields.text("payload")?;
    let signatures = fields.list("signatures")?;
    fields.finish()?;
    let payload = STANDARD.decode(&base64);
    let payload = payload.map_err(|_| Malformed::new("`payload` is not canonical base64"))?;
    if payload.len() > STATEMENT_BYTES_MAX {
        return Err(Malformed::new(format!("the payload has over {STATEMENT_BYTES_MAX} bytes")));
    }
    if signatures.is_empty() || signatures.len() > SIGNATURES_MAX {
        let why = format!("an envelope has 1 to {SIGNATURES_MAX} signatures");
        return Err(Malformed::new(why));
    }
    let armour = |signature| match signature {
        Json::Text(armour) => Ok(armour),
        Json::Integer(_) | Json::List(_) | Json::Object(_) => {
            Err(Malformed::new("a signature is not text"))
        }
    };
    Ok((payload, signatures.into_iter().map(armour).collect::<Result<_, _>>()?))
}

fn envelope(why: impl Into<String>) -> Refusal {
    Refusal::new(ReasonCode::Envelope, why)
}
