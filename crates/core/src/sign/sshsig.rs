//! The SSHSIG profile: which key made a signature over these bytes for this purpose, and nothing else.
//!
//! ```text
//! armour ─► blob: "SSHSIG" 1 key namespace "" "sha512" signature ─► the bytes rebuilt ─► strict check
//! ```
//!
//! Whether the key may sign is another question, asked of the trust store. `ssh-keygen -Y verify`
//! answers differently from release to release, so every field is checked here and the signed bytes are
//! rebuilt, never copied from the blob. Work and memory are bounded on any input.

use sha2::{Digest, Sha256, Sha512};

use super::armour;
use super::key::{CurvePoint, KeyType, PublicKey, put_key};
use super::wire::{WireError, WireReader, put_string};
use crate::model::reason::{ReasonCode, Refusal};

/// What a signature is for. One per kind of statement, so that none can be read as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// An operator approves a destructive act.
    Op,
    /// An operator denies an item.
    Deny,
    /// An operator changes the signers as planned.
    Rotate,
    /// A recovery key changes the signers.
    Recover,
    /// A host tells what waits for approval.
    Pending,
    /// A host asks a hub to take it in.
    Enrol,
    /// A host vouches for a report.
    Report,
    /// A host vouches for how far its journal has come.
    Head,
    /// An author vouches for a desired document, over the one that was in effect.
    Desired,
    /// The same in the old format, which does not say over which.
    DesiredV1,
    /// An operator knows that a journal was put back.
    Acknowledge,
    /// A person logs in at a hub.
    Login,
    /// A host vouches for what became of an envelope.
    Verdict,
}

impl Namespace {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Op,
        Self::Deny,
        Self::Rotate,
        Self::Recover,
        Self::Pending,
        Self::Enrol,
        Self::Report,
        Self::Head,
        Self::Desired,
        Self::DesiredV1,
        Self::Acknowledge,
        Self::Login,
        Self::Verdict,
    ];

    /// The name `ssh-keygen -Y sign -n` takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Op => "evenkeel.op.v1",
            Self::Deny => "evenkeel.deny.v1",
            Self::Rotate => "evenkeel.rotate.v1",
            Self::Recover => "evenkeel.recover.v1",
            Self::Pending => "evenkeel.pending.v1",
            Self::Enrol => "evenkeel.enrol.v1",
            Self::Report => "evenkeel.report.v1",
            Self::Head => "evenkeel.head.v1",
            Self::Desired => "evenkeel.desired.v2",
            Self::DesiredV1 => "evenkeel.desired.v1",
            Self::Acknowledge => "evenkeel.acknowledge.v1",
            Self::Login => "evenkeel.login.v1",
            Self::Verdict => "evenkeel.verdict.v1",
        }
    }
}

const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
const HASH: &[u8] = b"sha512";

/// The bit of the flags that says somebody touched the security key.
const USER_PRESENT: u8 = 0x01;
/// The bit that says it asked for a PIN or a fingerprint.
const USER_VERIFIED: u8 = 0x04;

/// What a security key says of one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTouch {
    flags: u8,
    /// How often it was used; it should never go down.
    pub counter: u32,
}

impl KeyTouch {
    /// Whether somebody touched it.
    pub fn user_present(self) -> bool {
        self.flags & USER_PRESENT != 0
    }

    /// Whether it asked for a PIN or a fingerprint.
    pub fn user_verified(self) -> bool {
        self.flags & USER_VERIFIED != 0
    }
}

/// A signature whose form fits the profile. Nothing of it is believed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSig {
    key_blob: Vec<u8>,
    namespace: Vec<u8>,
    made: Made,
    touch: Option<KeyTouch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    Ed25519([u8; 64]),
    P256 { r: [u8; 32], s: [u8; 32] },
}

/// A signature that verified: who, not whether they may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSignature {
    /// The key that made it.
    pub key: PublicKey,
    /// For security keys, what the device said.
    pub touch: Option<KeyTouch>,
}

/// Verifies one armoured signature over a message.
pub fn verify(
    armour: &str,
    namespace: Namespace,
    message: &[u8],
) -> Result<VerifiedSignature, Refusal> {
    let signature = SshSig::from_armour(armour)?;
    let key = PublicKey::from_blob(signature.key_blob())?;
    let touch = signature.verify(&key, namespace, message)?;
    Ok(VerifiedSignature { key, touch })
}

impl SshSig {
    /// Reads an armoured signature.
    pub fn from_armour(text: &str) -> Result<Self, Refusal> {
        Self::from_blob(&armour::decode(text)?)
    }

    /// Reads a signature without its armour.
    pub fn from_blob(blob: &[u8]) -> Result<Self, Refusal> {
        let mut reader = WireReader::new(blob);
        if reader.take(MAGIC.len()).map_err(malformed)? != MAGIC {
            return Err(refuse("it does not begin with SSHSIG"));
        }
        // The version is not under the signature, so every other one is a forgery or unknown to us.
        if reader.u32().map_err(malformed)? != VERSION {
            return Err(refuse("its version is not 1"));
        }
        let key_blob = reader.string().map_err(malformed)?;
        let namespace = reader.string().map_err(malformed)?;
        if !reader.string().map_err(malformed)?.is_empty() {
            return Err(refuse("its reserved field is not empty"));
        }
        if reader.string().map_err(malformed)? != HASH {
            return Err(Refusal::new(ReasonCode::SigHash, "the signature's hash is not sha512"));
        }
        let signature = reader.string().map_err(malformed)?;
        reader.finish().map_err(malformed)?;
        let key_type = KeyType::named(WireReader::new(key_blob).string().map_err(malformed)?)?;
        let (made, touch) = made(key_type, signature)?;
        Ok(Self { key_blob: key_blob.to_vec(), namespace: namespace.to_vec(), made, touch })
    }

    /// The key it claims to be made by.
    pub fn key_blob(&self) -> &[u8] {
        &self.key_blob
    }

    /// The namespace it claims, if it is one of ours. Only good for telling a person what to try.
    pub fn claimed_namespace(&self) -> Option<Namespace> {
        Namespace::ALL.into_iter().find(|known| known.as_str().as_bytes() == self.namespace)
    }

    /// Verifies it by a key over a message: the device's word if it is a security key.
    pub fn verify(
        &self,
        key: &PublicKey,
        namespace: Namespace,
        message: &[u8],
    ) -> Result<Option<KeyTouch>, Refusal> {
        if self.namespace != namespace.as_str().as_bytes() {
            let shown: String = String::from_utf8_lossy(&self.namespace).chars().take(64).collect();
            let shown = shown.escape_debug();
            let ours = namespace.as_str();
            let detail = format!("the signature is for `{shown}`, not for `{ours}`");
            return Err(Refusal::new(ReasonCode::SigNamespace, detail));
        }
        if self.key_blob != key.blob() {
            return Err(invalid());
        }
        // A key of another family cannot have this blob; the arms are here so that none is assumed.
        let signed = self.signed_by_the_key(key, &signed_bytes(namespace, message))?;
        match (&key.point, &self.made) {
            (CurvePoint::Ed25519(key), Made::Ed25519(made)) => {
                let signature = ed25519_dalek::Signature::from_bytes(made);
                key.verify_strict(&signed, &signature).map_err(|_| invalid())?;
            }
            (CurvePoint::P256(key), Made::P256 { r, s }) => {
                use p256::ecdsa::signature::Verifier as _;
                let signature =
                    p256::ecdsa::Signature::from_scalars(*r, *s).map_err(|_| invalid())?;
                key.verify(&signed, &signature).map_err(|_| invalid())?;
            }
            (CurvePoint::Ed25519(_), Made::P256 { .. })
            | (CurvePoint::P256(_), Made::Ed25519(_)) => {
                return Err(invalid());
            }
        }
        Ok(self.touch)
    }

    /// What the private key signed: the SSHSIG bytes, or what a security key makes of them.
    fn signed_by_the_key(&self, key: &PublicKey, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        match (key.application, self.touch) {
            (None, None) => Ok(bytes.to_vec()),
            (Some(application), Some(touch)) => {
                if !touch.user_present() {
                    let detail = "nobody touched the security key";
                    return Err(Refusal::new(ReasonCode::SkPresence, detail));
                }
                let mut signed = application.to_vec();
                signed.push(touch.flags);
                signed.extend_from_slice(&touch.counter.to_be_bytes());
                signed.extend_from_slice(&Sha256::digest(bytes));
                Ok(signed)
            }
            (None, Some(_)) | (Some(_), None) => Err(invalid()),
        }
    }
}

/// The bytes a plain key signs for a message: what `ssh-keygen -Y sign` signs.
pub fn signed_bytes(namespace: Namespace, message: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put_string(&mut bytes, namespace.as_str().as_bytes());
    put_string(&mut bytes, b"");
    put_string(&mut bytes, HASH);
    put_string(&mut bytes, &Sha512::digest(message));
    bytes
}

/// The armoured signature from what a signer gave back: SSH's signature string (type, signature, and
/// for a security key flags and counter), as ssh-agent answers it.
pub fn assemble(
    key: &PublicKey,
    namespace: Namespace,
    signature: &[u8],
) -> Result<String, Refusal> {
    let mut blob = MAGIC.to_vec();
    blob.extend_from_slice(&VERSION.to_be_bytes());
    put_key(&mut blob, key);
    put_string(&mut blob, namespace.as_str().as_bytes());
    put_string(&mut blob, b"");
    put_string(&mut blob, HASH);
    put_string(&mut blob, signature);
    SshSig::from_blob(&blob)?;
    Ok(armour::encode(&blob))
}

fn made(key_type: KeyType, signature: &[u8]) -> Result<(Made, Option<KeyTouch>), Refusal> {
    let mut reader = WireReader::new(signature);
    if reader.string().map_err(malformed)? != key_type.as_str().as_bytes() {
        return Err(refuse("the signature is of another type than its key"));
    }
    let inner = reader.string().map_err(malformed)?;
    let made = match key_type {
        KeyType::Ed25519 | KeyType::SkEd25519 => match inner.try_into() {
            Ok(bytes) => Made::Ed25519(bytes),
            Err(_) => return Err(refuse("an Ed25519 signature has 64 bytes")),
        },
        KeyType::EcdsaP256 | KeyType::SkEcdsaP256 => {
            let mut numbers = WireReader::new(inner);
            let r = numbers.number().map_err(malformed)?;
            let s = numbers.number().map_err(malformed)?;
            numbers.finish().map_err(malformed)?;
            Made::P256 { r, s }
        }
    };
    let touch = if key_type.is_security_key() {
        let flags = reader.byte().map_err(malformed)?;
        Some(KeyTouch { flags, counter: reader.u32().map_err(malformed)? })
    } else {
        None
    };
    reader.finish().map_err(malformed)?;
    Ok((made, touch))
}

fn malformed(error: WireError) -> Refusal {
    refuse(&error.to_string())
}

fn refuse(why: &str) -> Refusal {
    Refusal::new(ReasonCode::SigFormat, format!("the signature is malformed: {why}"))
}

fn invalid() -> Refusal {
    Refusal::new(ReasonCode::SigInvalid, "the signature does not verify over these bytes")
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::Signer as _;

    use super::*;

    #[test]
    fn v06_a_weak_key_forced_into_the_store_still_verifies_nothing() {
        // The identity point: R = 1, S = 0 satisfies the plain equation over any message.
        let mut point = [0; 32];
        point[0] = 1;
        let mut blob = Vec::new();
        put_string(&mut blob, b"ssh-ed25519");
        put_string(&mut blob, &point);
        let key = PublicKey::decode(&blob).expect("the form is right");
        let mut made = [0; 64];
        made[0] = 1;
        let namespace = Namespace::Op.as_str().as_bytes().to_vec();
        let forged = SshSig { key_blob: blob, namespace, made: Made::Ed25519(made), touch: None };
        let refusal = forged.verify(&key, Namespace::Op, b"anything").unwrap_err();
        assert_eq!(refusal.reason, ReasonCode::SigInvalid);
    }

    #[test]
    fn a_signature_is_not_verified_by_another_key_than_it_names() {
        let seeds = [[1; 32], [2; 32]];
        let [named, other] = seeds.map(|seed| {
            let secret = ed25519_dalek::SigningKey::from_bytes(&seed);
            let mut blob = Vec::new();
            put_string(&mut blob, b"ssh-ed25519");
            put_string(&mut blob, secret.verifying_key().as_bytes());
            (PublicKey::from_blob(&blob).expect("an honest key"), secret)
        });
        // Made by the other key, over the right bytes, in a blob that names the first.
        let made = other.1.sign(&signed_bytes(Namespace::Op, b"m")).to_bytes();
        let namespace = Namespace::Op.as_str().as_bytes().to_vec();
        let key_blob = named.0.blob().to_vec();
        let forged = SshSig { key_blob, namespace, made: Made::Ed25519(made), touch: None };
        for key in [&named.0, &other.0] {
            let refusal = forged.verify(key, Namespace::Op, b"m").unwrap_err();
            assert_eq!(refusal.reason, ReasonCode::SigInvalid);
        }
    }
}
