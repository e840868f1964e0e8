//! The hub's certificate: made at the first start and kept, or files that somebody else renews, read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

use super::TlsChoice;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Our own certificate in the state directory.
const OWN_CERTIFICATE: &str = "hub-cert.pem";
/// Its key.
const OWN_KEY: &str = "hub-key.pem";

/// A certificate with its chain, and its key, as PEM.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The chain, the hub's own first.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// It cannot be made.
    #[error("cannot make a certificate: {0}")]
    Made(#[from] rcgen::Error),
    /// It holds none.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Chain and key do not fit.
    #[error("the certificate and its key cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
}

/// The certificate in use.
#[derive(Clone)]
pub(super) struct CertificateStore {
    files: CertificateFiles,
    loaded: Arc<RwLock<LoadedCertificate>>,
}

struct LoadedCertificate {
    acceptor: TlsAcceptor,
    fingerprint: String,
    changed: [Option<SystemTime>; 2],
}

/// What connections are accepted with; none if they are plain.
pub(super) fn acceptor(
    choice: &TlsChoice,
    state: &Path,
) -> Result<Option<CertificateStore>, CertificateError> {
    let files = match choice {
        TlsChoice::Plain => return Ok(None),
        TlsChoice::Files(files) => files.clone(),
        TlsChoice::SelfSigned => own(state)?,
    };
    let loaded = Arc::new(RwLock::new(load(&files)?));
    Ok(Some(CertificateStore { files, loaded }))
}

impl CertificateStore {
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).acceptor.clone()
    }

    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` writes it.
    pub(super) fn fingerprint(&self) -> String {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).fingerprint.clone()
    }
}

/// Reads the files again when they change.
pub(super) async fn keep_reading(store: CertificateStore) {
    let mut refused = [None; 2];
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        store.look(&mut refused);
    }
}

impl CertificateStore {
    /// One look. Files that do not fit together yet leave the old certificate in use.
    fn look(&self, refused: &mut [Option<SystemTime>; 2]) {
        let now = changed(&self.files);
        let known = self.loaded.read().unwrap_or_else(PoisonError::into_inner).changed;
        if now == known || now == *refused {
            return;
        }
        match load(&self.files) {
            Ok(loaded) => {
                tracing::info!(fingerprint = %loaded.fingerprint, "the certificate was read again");
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
            }
            Err(error) => {
                tracing::error!(%error, "the new certificate is not used; the old one stays");
                *refused = now;
            }
        }
    }
}

fn changed(files: &CertificateFiles) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key]
        .map(|path| std::fs::metadata(path).and_then(|it| it.modified()).ok())
}

fn load(files: &CertificateFiles) -> Result<LoadedCertificate, CertificateError> {
    // Asked before reading: what changes in between is seen at the next look.
    let changed = changed(files);
    let unreadable =
        |path: &Path, why: String| CertificateError::Unreadable { path: path.to_owned(), why };
    let chain = fs::read(&files.certificate)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(&files.certificate, error.to_string()))?;
    let Some(first) = chain.first() else {
        return Err(unreadable(&files.certificate, "there is no certificate in it".to_owned()));
    };
    let fingerprint = colons(&Sha256::digest(first));
    let key = zeroize::Zeroizing::new(fs::read(&files.key)?);
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| unreadable(&files.key, "there is no private key in it".to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(LoadedCertificate { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint, changed })
}

fn colons(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

/// Our own certificate; made if there is none. The key is written first: a certificate without its key would be kept for ever.
fn own(state: &Path) -> Result<CertificateFiles, CertificateError> {
    let files =
        CertificateFiles { certificate: state.join(OWN_CERTIFICATE), key: state.join(OWN_KEY) };
    if files.certificate.exists() {
        return Ok(files);
    }
    fs::create_dir_all(state)?;
    let made = rcgen::generate_simple_self_signed(vec![
        "localhost".to_owned(),
        "evenkeel-hub".to_owned(),
    ])?;
    write(&files.key, made.signing_key.serialize_pem().as_bytes(), 0o600)?;
    write(&files.certificate, made.cert.pem().as_bytes(), 0o644)?;
    fs::File::open(state)?.sync_all()?;
    Ok(files)
}

/// Writes a file whole: beside, synced, renamed.
fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    use std::io::Write as _;
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_pair(files: &CertificateFiles, at: u64) {
        let made = rcgen::generate_simple_self_signed(vec!["hub.example".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        touch(files, at);
    }

    /// Files written in the same moment would have the same time.
    fn touch(files: &CertificateFiles, at: u64) {
        for path in [&files.certificate, &files.key] {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
        }
    }

    #[test]
    fn renewed_files_are_taken_and_broken_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let files = CertificateFiles { certificate: path("cert.pem"), key: path("key.pem") };
        write_pair(&files, 1_000);
        let store = acceptor(&TlsChoice::Files(files.clone()), directory.path()).unwrap().unwrap();
        let first = store.fingerprint();
        let mut refused = [None; 2];
        store.look(&mut refused);
        assert_eq!(store.fingerprint(), first);
        std::fs::write(&files.key, "nonsense").unwrap();
        touch(&files, 2_000);
        store.look(&mut refused);
        assert_eq!(store.fingerprint(), first, "the old one stays in use");
        write_pair(&files, 3_000);
        store.look(&mut refused);
        assert_ne!(store.fingerprint(), first);
    }

    #[test]
    fn our_own_certificate_is_made_once_and_its_key_is_ours_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let store = || acceptor(&TlsChoice::SelfSigned, directory.path()).unwrap().unwrap();
        let first = store().fingerprint();
        assert_eq!(store().fingerprint(), first);
        let mode = std::fs::metadata(directory.path().join(OWN_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Killed between key and certificate: both are made anew.
        std::fs::remove_file(directory.path().join(OWN_CERTIFICATE)).unwrap();
        assert_ne!(store().fingerprint(), first);
    }
}
