//! What the signature tests share: keys that sign by hand, forged blobs, a statement, an act, a host.

use std::collections::BTreeMap;

use ed25519_dalek::Signer as _;
use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::gate::destroy::Destroy;
use evenkeel_core::model::id::GuestKind;
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::sign::{
    Act, ApprovalDecision, ApprovalDemand, Envelope, Expected, FoundGuest, HostBinding, Namespace,
    Nonce, PendingId, PublicKey, Role, Signer, SkPolicy, SpentNonces, Statement, StatementLimits,
    TrustVersion, TrustedSigners, Validity, Window, armour, authorise,
};
use sha2::{Digest, Sha256, Sha512};

/// The moment the tests play at.
pub const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// SSH's string: a length and bytes.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

pub fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A private key of each type, made from a seed.
#[derive(Clone)]
pub enum Key {
    Ed(ed25519_dalek::SigningKey),
    SkEd(ed25519_dalek::SigningKey, &'static str),
    P256(p256::ecdsa::SigningKey),
    SkP256(p256::ecdsa::SigningKey, &'static str),
}

pub fn ed(seed: u8) -> Key {
    Key::Ed(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]))
}

pub fn sk_ed(seed: u8) -> Key {
    Key::SkEd(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]), "ssh:")
}

pub fn ecdsa(seed: u8) -> Key {
    Key::P256(p256::ecdsa::SigningKey::from_slice(&[seed; 32]).unwrap())
}

pub fn sk_ecdsa(seed: u8) -> Key {
    Key::SkP256(p256::ecdsa::SigningKey::from_slice(&[seed; 32]).unwrap(), "ssh:")
}

/// One key of each allowed type.
pub fn one_of_each() -> [Key; 4] {
    [ed(1), sk_ed(2), ecdsa(3), sk_ecdsa(4)]
}

pub const TOUCHED: u8 = 0x01;
pub const VERIFIED: u8 = 0x05;

impl Key {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ed(_) => "ssh-ed25519",
            Self::SkEd(..) => "sk-ssh-ed25519@openssh.com",
            Self::P256(_) => "ecdsa-sha2-nistp256",
            Self::SkP256(..) => "sk-ecdsa-sha2-nistp256@openssh.com",
        }
    }

    pub fn blob(&self) -> Vec<u8> {
        let name = string(self.name().as_bytes());
        match self {
            Self::Ed(key) => concat(&[&name, &string(key.verifying_key().as_bytes())]),
            Self::SkEd(key, application) => {
                let point = string(key.verifying_key().as_bytes());
                concat(&[&name, &point, &string(application.as_bytes())])
            }
            Self::P256(key) => concat(&[&name, &string(b"nistp256"), &string(&sec1(key))]),
            Self::SkP256(key, application) => {
                let point = concat(&[&string(b"nistp256"), &string(&sec1(key))]);
                concat(&[&name, &point, &string(application.as_bytes())])
            }
        }
    }

    pub fn public(&self) -> PublicKey {
        PublicKey::from_blob(&self.blob()).unwrap()
    }

    /// SSH's signature string over bytes; flags and counter matter to security keys only.
    pub fn sign_bytes(&self, bytes: &[u8], flags: u8, counter: u32) -> Vec<u8> {
        let device = |application: &str| {
            let application = Sha256::digest(application);
            let message = Sha256::digest(bytes);
            concat(&[&application, &[flags], &counter.to_be_bytes(), &message])
        };
        let inner = match self {
            Self::Ed(key) => key.sign(bytes).to_vec(),
            Self::SkEd(key, application) => key.sign(&device(application)).to_vec(),
            Self::P256(key) => numbers(&key.sign(bytes)),
            Self::SkP256(key, application) => numbers(&key.sign(&device(application))),
        };
        let said = concat(&[&[flags], &counter.to_be_bytes()]);
        let said: &[u8] = match self {
            Self::SkEd(..) | Self::SkP256(..) => &said,
            Self::Ed(_) | Self::P256(_) => &[],
        };
        concat(&[&string(self.name().as_bytes()), &string(&inner), said])
    }

    /// A whole signature in the profile, armoured.
    pub fn sign(&self, namespace: Namespace, message: &[u8]) -> String {
        Forged::by(self, namespace.as_str(), message).armour()
    }

    pub fn signer(&self, name: &str, role: Role) -> Signer {
        let name = name.parse().unwrap();
        let key = self.public();
        Signer { name, role, key, validity: Validity::ALWAYS, sk: SkPolicy::Presence }
    }
}

fn sec1(key: &p256::ecdsa::SigningKey) -> Vec<u8> {
    key.verifying_key().to_sec1_point(false).as_bytes().to_vec()
}

pub fn numbers(signature: &p256::ecdsa::Signature) -> Vec<u8> {
    let (r, s) = signature.split_bytes();
    concat(&[&number(&r), &number(&s)])
}

/// SSH's number: no zeros in front but the one that keeps it positive.
pub fn number(digits: &[u8]) -> Vec<u8> {
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = &digits[zeros..];
    let sign: &[u8] = if digits.first().is_some_and(|first| *first >= 0x80) { &[0] } else { &[] };
    string(&concat(&[sign, digits]))
}

/// A signature blob, field by field, to be bent.
#[derive(Clone)]
pub struct Forged {
    pub version: u32,
    pub key: Vec<u8>,
    pub namespace: Vec<u8>,
    pub reserved: Vec<u8>,
    pub hash: Vec<u8>,
    pub signature: Vec<u8>,
}

impl Forged {
    /// An honest signature.
    pub fn by(key: &Key, namespace: &str, message: &[u8]) -> Self {
        Self::with(key, namespace, b"", message, TOUCHED, 7)
    }

    /// A signature over this namespace and reserved field by SHA-512.
    pub fn with(
        key: &Key,
        namespace: &str,
        reserved: &[u8],
        message: &[u8],
        flags: u8,
        counter: u32,
    ) -> Self {
        let bytes = to_sign(namespace.as_bytes(), reserved, b"sha512", &Sha512::digest(message));
        Self {
            version: 1,
            key: key.blob(),
            namespace: namespace.as_bytes().to_vec(),
            reserved: reserved.to_vec(),
            hash: b"sha512".to_vec(),
            signature: key.sign_bytes(&bytes, flags, counter),
        }
    }

    pub fn blob(&self) -> Vec<u8> {
        concat(&[
            b"SSHSIG",
            &self.version.to_be_bytes(),
            &string(&self.key),
            &string(&self.namespace),
            &string(&self.reserved),
            &string(&self.hash),
            &string(&self.signature),
        ])
    }

    pub fn armour(&self) -> String {
        armour::encode(&self.blob())
    }
}

/// What is signed, built by hand and not by the code under test.
pub fn to_sign(namespace: &[u8], reserved: &[u8], hash: &[u8], digest: &[u8]) -> Vec<u8> {
    concat(&[b"SSHSIG", &string(namespace), &string(reserved), &string(hash), &string(digest)])
}

pub fn host() -> HostBinding {
    HostBinding { id: "pve1".parse().unwrap(), key: ed(200).public().fingerprint() }
}

pub const IDENTITY: &str = "1111111111111111111111111111111111111111111111111111111111111111";
pub const DIGEST: &str = "2222222222222222222222222222222222222222";

pub fn expected() -> Expected {
    Expected::Guest { identity: IDENTITY.parse().unwrap(), digest: DIGEST.parse().unwrap() }
}

pub fn found() -> FoundGuest {
    FoundGuest::Guest { identity: IDENTITY.parse().unwrap(), digest: DIGEST.parse().unwrap() }
}

pub fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub fn destroy_params() -> BTreeMap<String, String> {
    let kind = GuestKind::Qemu;
    Destroy { kind, stop: true, unprotect: false, purge: false, final_backup: None }.params()
}

/// The statement of the tests: destroy qemu/101.
pub fn statement() -> Statement {
    Statement {
        op: ActionKind::Destroy,
        host: host(),
        guest: "qemu/101".parse().unwrap(),
        expected: expected(),
        params: destroy_params(),
        item: item_id(),
        nonce: Nonce::from_random([9; 16]).unwrap(),
        window: Window::new(NOW.minus(60), NOW.plus(3600)).unwrap(),
        trust_version: TrustVersion(1),
        reason: "old test box".to_owned(),
    }
}

/// The act that statement approves.
pub fn act() -> Act {
    Act {
        op: ActionKind::Destroy,
        host: host(),
        guest: "qemu/101".parse().unwrap(),
        found: found(),
        params: destroy_params(),
        item: item_id(),
        demand: ApprovalDemand::one(),
    }
}

/// The name of the item it waits as.
pub fn item_id() -> PendingId {
    PendingId::of(b"an item")
}

/// The operational key of the tests.
pub fn alice() -> Key {
    ed(10)
}

/// The recovery key of the tests.
pub fn vault() -> Key {
    ed(20)
}

pub fn trust() -> TrustedSigners {
    let signers =
        vec![alice().signer("alice", Role::Operational), vault().signer("vault", Role::Recovery)];
    TrustedSigners::genesis(TrustVersion(1), signers).unwrap()
}

pub fn clock() -> ClockReading {
    ClockReading { now: NOW, mark: NOW, doubt: None }
}

/// The text of an approval of exact bytes.
pub fn sealed_text(payload: &[u8], keys: &[&Key]) -> String {
    let armours: Vec<String> = keys.iter().map(|key| key.sign(Namespace::Op, payload)).collect();
    let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
    Envelope::seal(payload, &armours).unwrap()
}

/// An envelope over exact bytes, signed for one purpose.
pub fn sealed(payload: &[u8], namespace: Namespace, keys: &[&Key]) -> Envelope {
    let armours: Vec<String> = keys.iter().map(|key| key.sign(namespace, payload)).collect();
    let armours: Vec<&str> = armours.iter().map(String::as_str).collect();
    Envelope::parse(Envelope::seal(payload, &armours).unwrap().as_bytes()).unwrap()
}

/// An approval by alice of a statement.
pub fn approved(statement: &Statement) -> Envelope {
    sealed(&statement.to_bytes().unwrap(), Namespace::Op, &[&alice()])
}

/// The decision over an approval of the tests' act, with nothing spent.
pub fn decide(approval: &Envelope, act: &Act) -> ApprovalDecision {
    authorise(
        approval,
        act,
        &trust(),
        &clock(),
        &SpentNonces::default(),
        StatementLimits::default(),
    )
}

pub fn reason(approval: &Envelope, act: &Act) -> ReasonCode {
    decide(approval, act).reason()
}
