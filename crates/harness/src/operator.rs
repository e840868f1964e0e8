//! Somebody with an SSH key: an operator, an attacker, or the host itself.
//!
//! Signs in memory what `ssh-keygen -Y sign` would sign, so that a run needs no process.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::wire::put_string;
use evenkeel_core::sign::{
    Envelope, KeyType, Namespace, Nonce, PendingItem, PublicKey, Role, Signer, SkPolicy, Statement,
    Validity, Window, assemble, signed_bytes,
};
use serde_json::json;

/// The width of a line of armour, as OpenSSH writes it.
const ARMOUR_WIDTH: usize = 70;

/// A key and its owner.
#[derive(Clone)]
pub struct Operator {
    name: &'static str,
    secret: SigningKey,
    /// The public half.
    pub key: PublicKey,
}

impl Operator {
    /// The owner of the key with this seed.
    pub fn new(name: &'static str, seed: u8) -> Self {
        let secret = SigningKey::from_bytes(&[seed; 32]);
        let mut blob = Vec::new();
        put_string(&mut blob, KeyType::Ed25519.as_str().as_bytes());
        put_string(&mut blob, secret.verifying_key().as_bytes());
        let key = PublicKey::from_blob(&blob).expect("a key made of a seed is a good one");
        Self { name, secret, key }
    }

    /// The owner as a trust store lists one.
    pub fn signer(&self, role: Role) -> Signer {
        Signer {
            name: self.name.parse().expect("a name in a test is a name"),
            role,
            key: self.key.clone(),
            validity: Validity::ALWAYS,
            sk: SkPolicy::Presence,
        }
    }

    /// These bytes, signed for this purpose, in an envelope.
    pub fn seal(&self, namespace: Namespace, payload: &[u8]) -> String {
        let armour = self.armour(namespace, payload);
        Envelope::seal(payload, &[&armour]).expect("a statement is not too long")
    }

    /// The same with some bytes of the signature's blob replaced by as many others.
    pub(crate) fn seal_bent(&self, payload: &[u8], from: &[u8], to: &[u8]) -> String {
        let armour = self.armour(Namespace::Op, payload);
        let lines: String = armour.lines().filter(|line| !line.starts_with('-')).collect();
        let mut blob = STANDARD.decode(lines).expect("our own armour is base64");
        let places = blob.windows(from.len()).enumerate();
        let places: Vec<usize> =
            places.filter(|(_, part)| *part == from).map(|(at, _)| at).collect();
        for at in places {
            blob[at..at + to.len()].copy_from_slice(to);
        }
        let text = STANDARD.encode(blob);
        let lines: Vec<&str> = (0..text.len())
            .step_by(ARMOUR_WIDTH)
            .map(|at| &text[at..text.len().min(at + ARMOUR_WIDTH)])
            .collect();
        let begin = "-----BEGIN SSH SIGNATURE-----";
        let end = "-----END SSH SIGNATURE-----";
        let armour = format!("{begin}\n{}\n{end}\n", lines.join("\n"));
        // Not by `Envelope::seal`, which refuses to write what no host takes.
        json!({ "payload": STANDARD.encode(payload), "signatures": [armour] }).to_string()
    }

    /// The signature alone, for an envelope of several.
    pub fn armour(&self, namespace: Namespace, payload: &[u8]) -> String {
        let made = self.secret.sign(&signed_bytes(namespace, payload));
        let mut signature = Vec::new();
        put_string(&mut signature, KeyType::Ed25519.as_str().as_bytes());
        put_string(&mut signature, &made.to_bytes());
        assemble(&self.key, namespace, &signature).expect("one signature is not too long")
    }

    /// An approval of an item, valid for an hour from now.
    pub fn approve(&self, item: &PendingItem, nonce: u128, now: UnixSeconds) -> String {
        self.sign(&statement(item, nonce, now))
    }

    /// An approval of whatever a statement says.
    pub fn sign(&self, statement: &Statement) -> String {
        let bytes = statement.to_bytes().expect("a statement reads back");
        self.seal(Namespace::Op, &bytes)
    }
}

/// The statement that approves an item, valid for an hour from now.
pub fn statement(item: &PendingItem, nonce: u128, now: UnixSeconds) -> Statement {
    let nonce = Nonce::from_random(nonce.to_be_bytes()).expect("a nonce in a test is not zero");
    let window = Window::new(now, now.plus(3_600)).expect("an hour is a window");
    let bytes = item.to_bytes().expect("an item that was raised reads back");
    item.statement(PendingItem::id(&bytes), nonce, window, "no longer needed")
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).finish_non_exhaustive()
    }
}
