//! The host key: made at the first start, kept in the state directory, signs what waits for approval.
//!
//! ```text
//! no file ─► seed ─► temporary file, synced ─► linked as `host_key`, directory synced
//! a file  ─► owner, mode, form ─► the key, or a refusal that says which
//! ```
//!
//! The daemon calls [`HostKey::load_or_create`] before it raises a pending item; operators pin the public
//! part, so a host that loses its key is another host to them. It never overwrites a key, never takes a
//! file others could have read, and signs nothing but pending items and what a
//! hub is told. The secret is wiped when dropped
//! and is in no `Debug` and no message.

mod claim;
mod error;
mod openssh;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_core::model::reason::{ReasonCode, Refusal};
use evenkeel_core::sign::wire::put_string;
use evenkeel_core::sign::{
    Envelope, KeyType, Namespace, PendingItem, PublicKey, assemble, signed_bytes,
};
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use claim::KeyClaim;
pub use error::HostKeyError;

use crate::plain_file;

/// The private key, in the form `ssh-keygen` reads.
const PRIVATE: &str = "host_key";
/// Its public part, for operators to pin.
const PUBLIC: &str = "host_key.pub";
/// How a key that is still being written is named; the rest is random.
const UNFINISHED: &str = ".host_key-";
/// What stands behind the key in its public file.
const COMMENT: &str = "evenkeel-host-key";

/// The largest key file read: one of ours has some 400 bytes, a comment may be long.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;
/// The same as room, so that the text is never moved and leaves a copy behind.
const KEY_FILE_ROOM: usize = 16 * 1024;

/// The key of this host.
pub struct HostKey {
    secret: SigningKey,
    public: PublicKey,
    /// There while this process alone acts for the host.
    _claim: Option<KeyClaim>,
}

impl HostKey {
    /// The key in the state directory; made, with the directory, if there is none.
    pub fn load_or_create(state: &Path) -> Result<Self, HostKeyError> {
        prepare_directory(state)?;
        let path = state.join(PRIVATE);
        let key = match Self::load(&path) {
            Err(HostKeyError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                create(state)?;
                Self::load(&path)?
            }
            loaded => loaded?,
        };
        key.publish(state)?;
        Ok(key)
    }

    fn load(path: &Path) -> Result<Self, HostKeyError> {
        let mut options = fs::OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        // Asked of the open file, so that it cannot be exchanged in between.
        check(path, &file.metadata()?, Kind::File)?;
        let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_ROOM));
        file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)?;
        let malformed = |why| HostKeyError::Malformed { path: path.to_owned(), why };
        Self::from_secret(openssh::decode(&text).map_err(malformed)?)
    }

    fn from_secret(secret: SigningKey) -> Result<Self, HostKeyError> {
        let public = PublicKey::from_blob(&blob(&secret)).map_err(HostKeyError::Weak)?;
        Ok(Self { secret, public, _claim: None })
    }

    /// The same key, for as long as it lives claimed by this process: a second agent on this machine, started with a copy
    /// of the state directory, is refused. Both would take the same approval, and each would believe it spent it.
    pub(crate) fn claimed(self) -> Result<Self, HostKeyError> {
        let claim = KeyClaim::take(&self.public.fingerprint())?;
        Ok(Self { _claim: Some(claim), ..self })
    }

    /// Its public part: what operators pin and statements name by fingerprint.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// A pending item signed by this host, as an envelope.
    pub fn sign_pending(&self, item: &PendingItem) -> Result<String, Refusal> {
        if item.host.key != self.public.fingerprint() {
            let detail = "the item names the key of another host";
            return Err(Refusal::new(ReasonCode::HostMismatch, detail));
        }
        let bytes = item.to_bytes()?;
        let armour = self.sign(Namespace::Pending, &bytes)?;
        Envelope::seal(&bytes, &[&armour])
    }

    /// The armoured signature over bytes for a hub. Whatever a host says to a hub allows nothing on any host.
    pub fn sign_for_hub(&self, namespace: Namespace, bytes: &[u8]) -> Result<String, Refusal> {
        match namespace {
            Namespace::Enrol | Namespace::Report | Namespace::Head | Namespace::Verdict => {
                self.sign(namespace, bytes)
            }
            Namespace::Op
            | Namespace::Deny
            | Namespace::Rotate
            | Namespace::Recover
            | Namespace::Pending
            | Namespace::Desired
            | Namespace::DesiredV1
            | Namespace::Acknowledge
            | Namespace::Login => {
                let detail = format!("a host key signs nothing for {}", namespace.as_str());
                Err(Refusal::new(ReasonCode::RoleDenied, detail))
            }
        }
    }

    fn sign(&self, namespace: Namespace, bytes: &[u8]) -> Result<String, Refusal> {
        let made = self.secret.sign(&signed_bytes(namespace, bytes));
        let mut signature = Vec::new();
        put_string(&mut signature, KeyType::Ed25519.as_str().as_bytes());
        put_string(&mut signature, &made.to_bytes());
        assemble(&self.public, namespace, &signature)
    }

    /// Writes the public part if it is not there. One that is another key's would be pinned by mistake,
    /// so it is refused and not silently replaced.
    fn publish(&self, state: &Path) -> Result<(), HostKeyError> {
        let path = state.join(PUBLIC);
        match plain_file::read(&path, KEY_FILE_ROOM) {
            Ok(file) => match std::str::from_utf8(&file.bytes).map(PublicKey::from_line) {
                Ok(Ok(key)) if key == self.public => Ok(()),
                Ok(_) | Err(_) => Err(HostKeyError::OtherPublic { path }),
            },
            Err(error) if error.is_not_found() => {
                let line = format!("{} {COMMENT}\n", self.public);
                install(state, PUBLIC, line.as_bytes(), 0o644)
            }
            Err(error) => Err(std::io::Error::other(error).into()),
        }
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Makes a key. Whoever else makes one at the same time, one of the two is in place in the end.
fn create(state: &Path) -> Result<(), HostKeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut_slice()).map_err(HostKeyError::Randomness)?;
    let mut check = [0; 4];
    getrandom::fill(&mut check).map_err(HostKeyError::Randomness)?;
    let secret = SigningKey::from_bytes(&seed);
    let text = openssh::encode(&secret, u32::from_be_bytes(check), COMMENT);
    install(state, PRIVATE, text.as_bytes(), 0o600)
}

/// Puts a whole, synced file in place under a name that is free. If the name is taken meanwhile, what is
/// there stays. A hard link and not a rename: it never replaces, on every file system.
fn install(state: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<(), HostKeyError> {
    let mut tail = [0; 8];
    getrandom::fill(&mut tail).map_err(HostKeyError::Randomness)?;
    let unfinished = state.join(format!("{UNFINISHED}{:016x}", u64::from_be_bytes(tail)));
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| fs::hard_link(&unfinished, state.join(name)));
    // The temporary name goes away whether or not the link was made; a crash before that leaves it to
    // the next start.
    let removed = fs::remove_file(&unfinished);
    for done in [linked, removed] {
        match done.as_ref().map_err(std::io::Error::kind) {
            // Another start was first, or took our temporary file for one that a crash left. It sees
            // to what is missing itself.
            Err(std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotFound) => {}
            Ok(()) | Err(_) => done?,
        }
    }
    fs::File::open(state)?.sync_all()?;
    Ok(())
}

/// Makes the directory private if it is new, demands it if it is not, and takes away what a crash left.
fn prepare_directory(state: &Path) -> Result<(), HostKeyError> {
    match std::fs::DirBuilder::new().mode(0o700).create(state) {
        Ok(()) => fs::File::open(parent(state))?.sync_all()?,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(HostKeyError::Directory { path: state.to_owned(), source }),
    }
    if let Some(mode) = tighten(state)? {
        let directory = state.display();
        tracing::warn!(%directory, "the state directory had mode {mode:04o}; it is for its owner alone and has 0700 now");
    }
    check(state, &fs::symlink_metadata(state)?, Kind::Directory)?;
    if !state.join(PRIVATE).exists() {
        // Nothing is taken away while a key may be in the making.
        return Ok(());
    }
    for entry in fs::read_dir(state)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Takes from others what they may see of a directory of ours that holds no key yet: `mkdir` makes them so, and nothing
/// in it is a secret. One that others may write to, or that holds a key, is refused by who checks it next.
///
/// The mode it had is given back if it was changed.
pub fn tighten(state: &Path) -> Result<Option<u32>, std::io::Error> {
    let found = fs::symlink_metadata(state)?;
    let mode = found.mode() & 0o7777;
    let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    let empty_of_keys = matches!(state.join(PRIVATE).symlink_metadata(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    let loose = mode & 0o077 != 0 && mode & 0o022 == 0;
    if !(ours && empty_of_keys && loose) {
        return Ok(None);
    }
    fs::set_permissions(state, std::fs::Permissions::from_mode(0o700))?;
    Ok(Some(mode))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

/// What a path must be.
#[derive(Debug, Clone, Copy)]
enum Kind {
    File,
    Directory,
}

fn check(path: &Path, found: &std::fs::Metadata, kind: Kind) -> Result<(), HostKeyError> {
    let path = path.to_owned();
    let (right, wanted) = match kind {
        Kind::File => (found.is_file(), "a plain file"),
        Kind::Directory => (found.is_dir(), "a directory of its own"),
    };
    if !right {
        return Err(HostKeyError::Kind { path, wanted });
    }
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(HostKeyError::Owner { path, owner: found.uid(), us });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(HostKeyError::Exposed { path, mode });
    }
    Ok(())
}

/// The public key in SSH's wire form.
fn blob(secret: &SigningKey) -> Vec<u8> {
    let mut blob = Vec::new();
    put_string(&mut blob, KeyType::Ed25519.as_str().as_bytes());
    put_string(&mut blob, secret.verifying_key().as_bytes());
    blob
}

#[cfg(test)]
mod tests;
