//! OpenSSH's file of a private key: one unencrypted Ed25519 key, read strictly and written.
//!
//! ```text
//! "openssh-key-v1\0" "none" "none" "" 1 public-key ┐
//!   check check "ssh-ed25519" point (seed point) comment 1 2 3 …  ┘ to a multiple of 8
//! ```
//!
//! Called by the host key alone. Buffers that held the secret are wiped, and no error repeats what was read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use evenkeel_core::sign::KeyType;
use evenkeel_core::sign::wire::{WireError, WireReader, put_string};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
const END: &str = "-----END OPENSSH PRIVATE KEY-----\n";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Cipher and key derivation of a key without passphrase.
const NONE: &[u8] = b"none";
/// What the private part is padded to when nothing encrypts it.
const BLOCK_BYTES: usize = 8;
/// The width `ssh-keygen` writes.
const WIDTH: usize = 70;
/// Room for a whole key, so that no buffer is moved and leaves a copy behind.
const ROOM_BYTES: usize = 1024;

/// The text of a key file. `check` is any number: it stands there twice, to tell a wrong passphrase.
pub(super) fn encode(secret: &SigningKey, check: u32, comment: &str) -> Zeroizing<String> {
    let point = secret.verifying_key();
    let mut private = Zeroizing::new(Vec::with_capacity(ROOM_BYTES));
    private.extend_from_slice(&check.to_be_bytes());
    private.extend_from_slice(&check.to_be_bytes());
    put_string(&mut private, KeyType::Ed25519.as_str().as_bytes());
    put_string(&mut private, point.as_bytes());
    put_string(&mut private, &*Zeroizing::new(secret.to_keypair_bytes()));
    put_string(&mut private, comment.as_bytes());
    for pad in 1_u8.. {
        if private.len().is_multiple_of(BLOCK_BYTES) {
            break;
        }
        private.push(pad);
    }
    let mut blob = Zeroizing::new(Vec::with_capacity(2 * ROOM_BYTES));
    blob.extend_from_slice(MAGIC);
    put_string(&mut blob, NONE);
    put_string(&mut blob, NONE);
    put_string(&mut blob, b"");
    blob.extend_from_slice(&1_u32.to_be_bytes());
    put_string(&mut blob, &super::blob(secret));
    put_string(&mut blob, &private);
    let base64 = Zeroizing::new(STANDARD.encode(&*blob));
    let mut text = Zeroizing::new(String::with_capacity(4 * ROOM_BYTES));
    text.push_str(BEGIN);
    for line in base64.as_bytes().chunks(WIDTH) {
        text.extend(line.iter().map(|letter| char::from(*letter)));
        text.push('\n');
    }
    text.push_str(END);
    text
}

/// The key in such a text, or the rule it breaks.
pub(super) fn decode(text: &str) -> Result<SigningKey, &'static str> {
    let body = text.strip_prefix(BEGIN).ok_or("it does not begin with its first line")?;
    let body = body.strip_suffix(END).ok_or("it does not end with its last line")?;
    let mut base64 = Zeroizing::new(String::with_capacity(body.len()));
    base64.extend(body.split('\n'));
    let blob = STANDARD.decode(&*base64).map_err(|_| "it does not hold canonical base64")?;
    let blob = Zeroizing::new(blob);
    let mut reader = WireReader::new(&blob);
    if reader.take(MAGIC.len()).map_err(short)? != MAGIC {
        return Err("it is of another format");
    }
    let cipher = reader.string().map_err(short)?;
    let derivation = reader.string().map_err(short)?;
    if cipher != NONE || derivation != NONE || !reader.string().map_err(short)?.is_empty() {
        return Err("it has a passphrase, which nobody is there to type");
    }
    if reader.u32().map_err(short)? != 1 {
        return Err("it holds more than one key");
    }
    let public = reader.string().map_err(short)?;
    let private = reader.string().map_err(short)?;
    reader.finish().map_err(short)?;
    let secret = private_part(private)?;
    if public != super::blob(&secret) {
        return Err("its public and private parts are of different keys");
    }
    Ok(secret)
}

fn private_part(private: &[u8]) -> Result<SigningKey, &'static str> {
    let mut reader = WireReader::new(private);
    if reader.u32().map_err(short)? != reader.u32().map_err(short)? {
        return Err("its check numbers differ");
    }
    if reader.string().map_err(short)? != KeyType::Ed25519.as_str().as_bytes() {
        return Err("it is of another type");
    }
    let point = reader.string().map_err(short)?;
    let pair: &[u8; 64] =
        reader.string().map_err(short)?.try_into().map_err(|_| "its secret has not 64 bytes")?;
    let secret = SigningKey::from_keypair_bytes(pair)
        .map_err(|_| "its secret does not belong to its point")?;
    if point != secret.verifying_key().as_bytes() {
        return Err("its secret does not belong to its point");
    }
    let _comment = reader.string().map_err(short)?;
    let mut pad = 0;
    while let Ok(byte) = reader.byte() {
        pad += 1;
        if byte != pad || usize::from(pad) >= BLOCK_BYTES {
            return Err("its padding is wrong");
        }
    }
    if !private.len().is_multiple_of(BLOCK_BYTES) {
        return Err("its padding is wrong");
    }
    Ok(secret)
}

fn short(error: WireError) -> &'static str {
    match error {
        WireError::Short => "it is cut short",
        WireError::Trailing => "bytes follow its last value",
        WireError::Number => "a number in it has no canonical form",
    }
}
