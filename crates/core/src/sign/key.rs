//! Public keys: the four types evenkeel takes, read from their exact bytes, never a weak one.
//!
//! Enrolment, the trust store and the signature check use this type. A key *is* its whole blob: a
//! security key with another application, or a plain key at the same point, is another key. A value of
//! [`PublicKey`] cannot hold a key anybody could sign for; that is checked where it is made.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use super::wire::{self, WireError, WireReader};
use crate::model::reason::{ReasonCode, Refusal};

/// The key types of the profile. No RSA, no DSA, no other curve, no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyType {
    /// Ed25519.
    Ed25519,
    /// Ed25519 in a security key.
    SkEd25519,
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-256 in a security key.
    SkEcdsaP256,
}

impl KeyType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ed25519, Self::SkEd25519, Self::EcdsaP256, Self::SkEcdsaP256];

    /// SSH's name of the type. Key and signature carry the same one.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ed25519 => "ssh-ed25519",
            Self::SkEd25519 => "sk-ssh-ed25519@openssh.com",
            Self::EcdsaP256 => "ecdsa-sha2-nistp256",
            Self::SkEcdsaP256 => "sk-ecdsa-sha2-nistp256@openssh.com",
        }
    }

    /// Whether the private key lives in a security key.
    pub fn is_security_key(self) -> bool {
        match self {
            Self::SkEd25519 | Self::SkEcdsaP256 => true,
            Self::Ed25519 | Self::EcdsaP256 => false,
        }
    }

    /// The type of that name.
    pub(crate) fn named(name: &[u8]) -> Result<Self, Refusal> {
        let found = Self::ALL.into_iter().find(|known| known.as_str().as_bytes() == name);
        found.ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
            let detail = format!("`{}` is not a key type evenkeel takes", shown.escape_debug());
            Refusal::new(ReasonCode::KeyType, detail)
        })
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The largest key blob read: type, point and an application name, with room.
pub const KEY_BLOB_BYTES_MAX: usize = 512;

/// What an application name of a security key begins with; OpenSSH makes no others.
const APPLICATION_PREFIX: &[u8] = b"ssh:";

/// A public key that may be trusted to mean one holder.
#[derive(Clone)]
pub struct PublicKey {
    blob: Vec<u8>,
    key_type: KeyType,
    pub(super) point: CurvePoint,
    /// The hash of a security key's application, as it stands in what the device signs.
    pub(super) application: Option<[u8; 32]>,
}

/// The point that verifies, decoded once.
#[derive(Clone)]
pub(super) enum CurvePoint {
    Ed25519(Box<ed25519_dalek::VerifyingKey>),
    P256(Box<p256::ecdsa::VerifyingKey>),
}

impl PublicKey {
    /// A key from its wire form. Weak keys are refused.
    pub fn from_blob(blob: &[u8]) -> Result<Self, Refusal> {
        let key = Self::decode(blob)?;
        key.refuse_weak()?;
        Ok(key)
    }

    /// A key from a line of a `.pub` file: type, base64, and a comment that means nothing.
    pub fn from_line(line: &str) -> Result<Self, Refusal> {
        let refuse = |why: &str| Err(Refusal::new(ReasonCode::SigFormat, why));
        let line = line.trim_end_matches('\n');
        if line.contains(|letter: char| letter.is_control()) {
            return refuse("a key is one line of plain text");
        }
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(base64)) = (words.next(), words.next()) else {
            return refuse("a key is written as its type and its base64");
        };
        KeyType::named(name.as_bytes())?;
        let Ok(blob) = STANDARD.decode(base64) else {
            return refuse("the key is not canonical base64");
        };
        let key = Self::from_blob(&blob)?;
        if key.key_type.as_str() != name {
            return refuse("the key is of another type than the line says");
        }
        Ok(key)
    }

    /// Its wire form: what it is looked up by.
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Its type.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Its fingerprint, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(&self.blob).into())
    }

    /// Reads the form; says nothing of the strength. Only tests may keep a key from here.
    pub(super) fn decode(blob: &[u8]) -> Result<Self, Refusal> {
        let malformed =
            |error: WireError| Refusal::new(ReasonCode::SigFormat, format!("in the key {error}"));
        if blob.len() > KEY_BLOB_BYTES_MAX {
            return Err(Refusal::new(ReasonCode::SigFormat, "the key is longer than any"));
        }
        let mut reader = WireReader::new(blob);
        let key_type = KeyType::named(reader.string().map_err(malformed)?)?;
        let point = match key_type {
            KeyType::Ed25519 | KeyType::SkEd25519 => {
                ed25519_point(reader.string().map_err(malformed)?)?
            }
            KeyType::EcdsaP256 | KeyType::SkEcdsaP256 => {
                if reader.string().map_err(malformed)? != b"nistp256" {
                    return Err(Refusal::new(ReasonCode::KeyType, "the curve is not nistp256"));
                }
                p256_point(reader.string().map_err(malformed)?)?
            }
        };
        let application = if key_type.is_security_key() {
            Some(application(reader.string().map_err(malformed)?)?)
        } else {
            None
        };
        reader.finish().map_err(malformed)?;
        Ok(Self { blob: blob.to_vec(), key_type, point, application })
    }

    fn refuse_weak(&self) -> Result<(), Refusal> {
        let weak = |why: &str| Err(Refusal::new(ReasonCode::WeakKey, why));
        let published = match &self.point {
            CurvePoint::Ed25519(key) => {
                let point = key.to_edwards();
                // The second test costs a multiplication and is made at enrolment only: a holder's key
                // is always in the prime-order group, so one that is not was made to play tricks.
                if key.is_weak() || !point.is_torsion_free() {
                    return weak("the key is a point of small order, or has a part of small order");
                }
                if point.compress().as_bytes() != key.as_bytes() {
                    return weak("the key is not in the one encoding of its point");
                }
                PUBLISHED_ED25519.contains(key.as_bytes())
            }
            CurvePoint::P256(key) => {
                let point = key.to_sec1_point(false);
                PUBLISHED_P256_X.iter().any(|x| point.x().is_some_and(|mine| mine[..] == x[..]))
            }
        };
        if published {
            return weak("the private half of this key is printed in a standard");
        }
        Ok(())
    }
}

fn ed25519_point(bytes: &[u8]) -> Result<CurvePoint, Refusal> {
    let key = bytes.try_into().ok().and_then(|bytes: &[u8; 32]| {
        ed25519_dalek::VerifyingKey::from_bytes(bytes).ok().map(Box::new)
    });
    key.map(CurvePoint::Ed25519)
        .ok_or_else(|| Refusal::new(ReasonCode::SigFormat, "the key is no point of its curve"))
}

fn p256_point(bytes: &[u8]) -> Result<CurvePoint, Refusal> {
    // Uncompressed only: OpenSSH writes no other form, and one point must not be two blobs.
    let uncompressed = bytes.len() == 65 && bytes[0] == 4;
    let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(bytes).ok().filter(|_| uncompressed);
    key.map(|key| CurvePoint::P256(Box::new(key)))
        .ok_or_else(|| Refusal::new(ReasonCode::SigFormat, "the key is no point of its curve"))
}

fn application(name: &[u8]) -> Result<[u8; 32], Refusal> {
    let plain = name.iter().all(u8::is_ascii_graphic);
    if name.starts_with(APPLICATION_PREFIX) && plain {
        return Ok(Sha256::digest(name).into());
    }
    Err(Refusal::new(ReasonCode::KeyType, "the security key was not made for SSH"))
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.blob == other.blob
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// As in a `.pub` file, without comment.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key_type, STANDARD.encode(&self.blob))
    }
}

/// The SHA-256 of a key blob, printed as `ssh-keygen -l` does: `SHA256:` and base64 without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", STANDARD_NO_PAD.encode(self.0))
    }
}

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key fingerprint is `SHA256:` and 43 characters of base64")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let base64 = text.strip_prefix("SHA256:").ok_or(NotAFingerprint)?;
        let bytes = STANDARD_NO_PAD.decode(base64).map_err(|_| NotAFingerprint)?;
        Ok(Self(bytes.try_into().map_err(|_| NotAFingerprint)?))
    }
}

/// Appends a key to a message, as its wire form.
pub(crate) fn put_key(out: &mut Vec<u8>, key: &PublicKey) {
    wire::put_string(out, key.blob());
}

/// Ed25519 keys whose secret stands in RFC 8032 §7.1, and that of the all-zero secret: people paste them.
const PUBLISHED_ED25519: [[u8; 32]; 5] = [
    hex32(b"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    hex32(b"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
    hex32(b"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"),
    hex32(b"278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e"),
    hex32(b"3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"),
];

/// The x coordinates of P-256 keys whose secret is known: the generator (secret 1), its double
/// (secret 2), and the key of RFC 6979 §A.2.5. A secret and its negative share one x.
const PUBLISHED_P256_X: [[u8; 32]; 3] = [
    hex32(b"6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
    hex32(b"7cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978"),
    hex32(b"60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"),
];

/// Hexadecimal digits of a table above; a wrong digit fails the build.
const fn hex32(digits: &[u8; 64]) -> [u8; 32] {
    const fn value(digit: u8) -> u8 {
        match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => panic!("not a lower-case hexadecimal digit"),
        }
    }
    let mut bytes = [0; 32];
    let mut place = 0;
    while place < 32 {
        bytes[place] = value(digits[2 * place]) << 4 | value(digits[2 * place + 1]);
        place += 1;
    }
    bytes
}
