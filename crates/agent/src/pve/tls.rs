//! Whom we speak to: a CA, pinned certificates, or the platform's roots.
//!
//! The transport takes its TLS settings from here. A handshake that fails here has sent no request,
//! so the token never leaves for a server that is not the one meant. There is no way to switch
//! checking off.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest, Sha256};

use crate::path_trust::{LoosePath, check_path};
use crate::plain_file::{self, FileError};

/// Which servers are the right one.
#[derive(Debug, Clone)]
pub enum TlsTrust {
    /// The certificate authorities the operating system trusts.
    Platform,
    /// The certificate authorities in a PEM text.
    Authorities(Vec<CertificateDer<'static>>),
    /// Exactly these certificates, whatever name or dates they carry. At least one.
    Pinned(Vec<CertFingerprint>),
}

/// Why a trust setting cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The CA file could not be read.
    #[error("the CA file cannot be used: {0}")]
    Unreadable(FileError),
    /// Somebody else could have written the CA file.
    #[error("the CA file is not believed: {0}")]
    Loose(LoosePath),
    /// The CA file holds no usable certificate.
    #[error("the CA file {} holds no usable certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// No fingerprint was given.
    #[error("the list of pinned fingerprints is empty")]
    NoFingerprint,
    /// The TLS library refused the settings.
    #[error("these TLS settings cannot be used: {0}")]
    Refused(String),
}

impl TrustError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Loose(loose) => return loose.hint(),
            Self::Unreadable(_) | Self::NoCertificate { .. } => {
                "on the node the CA is /etc/pve/pve-root-ca.pem; copy it and name it in ca_file"
            }
            Self::NoFingerprint | Self::Refused(_) => {
                "set `fingerprint`; on the node: openssl x509 -in /etc/pve/local/pve-ssl.pem \
                 -noout -fingerprint -sha256"
            }
        }
        .to_owned()
    }
}

/// The largest CA file that is read: a system's whole bundle has a quarter of it.
const CA_BYTES_MAX: usize = 1 << 20;

impl TlsTrust {
    /// Trusts the authorities in a PEM file that nobody but root and we could have written.
    pub fn from_ca_file(path: &Path) -> Result<Self, TrustError> {
        let file = plain_file::read(path, CA_BYTES_MAX).map_err(TrustError::Unreadable)?;
        check_path(path).map_err(TrustError::Loose)?;
        let pem = file.bytes;
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match authorities {
            Ok(authorities) if !authorities.is_empty() && roots(&authorities).is_ok() => {
                Ok(Self::Authorities(authorities))
            }
            Ok(_) | Err(_) => Err(TrustError::NoCertificate { path: path.to_owned() }),
        }
    }

    /// Trusts exactly these certificates.
    pub fn pinned(fingerprints: Vec<CertFingerprint>) -> Result<Self, TrustError> {
        if fingerprints.is_empty() {
            return Err(TrustError::NoFingerprint);
        }
        Ok(Self::Pinned(fingerprints))
    }

    /// The beginnings of an HTTP client that speaks to the server meant and to nobody else: no proxy of the environment, no
    /// redirect, no retry by itself. Plain HTTP is for loopback alone: there is nobody to trust then, and a machine without
    /// root certificates must still run against a simulator.
    pub fn direct_client(&self, is_encrypted: bool) -> Result<reqwest::ClientBuilder, TrustError> {
        let nobody = Self::Pinned(Vec::new());
        let trust = if is_encrypted { self } else { &nobody };
        Ok(reqwest::Client::builder()
            .tls_backend_preconfigured(trust.client_config()?)
            .https_only(is_encrypted)
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("evenkeel/", env!("CARGO_PKG_VERSION"))))
    }

    /// The TLS settings that enforce it.
    pub fn client_config(&self) -> Result<ClientConfig, TrustError> {
        let refused = |error: &dyn fmt::Display| TrustError::Refused(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Self::Platform => Arc::new(
                rustls_platform_verifier::Verifier::new(Arc::clone(&provider))
                    .map_err(|error| refused(&error))?,
            ),
            Self::Authorities(authorities) => {
                let roots = roots(authorities).map_err(|error| refused(&error))?;
                WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                    .build()
                    .map_err(|error| refused(&error))?
            }
            Self::Pinned(fingerprints) => Arc::new(PinVerifier {
                fingerprints: fingerprints.clone(),
                provider: Arc::clone(&provider),
            }),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn roots(authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}

/// The SHA-256 of a certificate, printed as PVE's interface prints it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CertFingerprint([u8; 32]);

/// A text that is not a SHA-256 fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 fingerprint: 32 hexadecimal pairs, with or without colons")]
pub struct FingerprintError(String);

impl CertFingerprint {
    /// The fingerprint of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl FromStr for CertFingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let refuse = || FingerprintError(text.chars().take(120).collect());
        let trimmed = text.trim();
        let pairs: Vec<&str> = if trimmed.contains(':') {
            trimmed.split(':').collect()
        } else {
            trimmed.as_bytes().chunks(2).filter_map(|pair| str::from_utf8(pair).ok()).collect()
        };
        let byte = |pair: &str| match pair.as_bytes() {
            [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                u8::from_str_radix(pair, 16).ok()
            }
            _ => None,
        };
        let bytes: Option<Vec<u8>> = pairs.into_iter().map(byte).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for CertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for CertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The server showed a certificate nobody pinned.
#[derive(Debug, thiserror::Error)]
#[error("the certificate {presented} is not pinned")]
pub(super) struct WrongPin {
    pub(super) presented: CertFingerprint,
}

/// The certificate of a server that was not believed because nobody pinned it, from the error of whoever dialled it.
pub fn presented_certificate(error: &(dyn std::error::Error + 'static)) -> Option<CertFingerprint> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(presented) = in_io_error(error) {
            return Some(presented);
        }
        cause = error.source();
    }
    None
}

/// TLS errors come wrapped inside I/O errors (inside I/O errors), whose `source` skips what they wrap.
fn in_io_error(error: &(dyn std::error::Error + 'static)) -> Option<CertFingerprint> {
    let mut wrapped = error;
    while let Some(inner) = wrapped.downcast_ref::<std::io::Error>()?.get_ref() {
        if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) =
            inner.downcast_ref::<rustls::Error>()
        {
            return other.0.downcast_ref::<WrongPin>().map(|wrong| wrong.presented);
        }
        wrapped = inner;
    }
    None
}

/// Takes a certificate by its hash alone; name and dates do not matter, the handshake's signature
/// does: without it, anyone could replay the public certificate.
#[derive(Debug)]
struct PinVerifier {
    fingerprints: Vec<CertFingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = CertFingerprint::of(end_entity);
        if self.fingerprints.contains(&presented) {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = OtherError(Arc::new(WrongPin { presented }));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(wrong)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_with_and_without_colons_in_any_case() {
        let printed = CertFingerprint::of(b"certificate").to_string();
        assert_eq!(printed.len(), 95);
        for text in [printed.clone(), printed.to_lowercase(), printed.replace(':', "")] {
            assert_eq!(text.parse::<CertFingerprint>(), Ok(CertFingerprint::of(b"certificate")));
        }
    }

    #[test]
    fn anything_but_thirty_two_pairs_is_no_fingerprint() {
        let printed = CertFingerprint::of(b"x").to_string();
        let sha1 = &printed[..59];
        let signed = format!("+1{}", &printed.replace(':', "")[2..]);
        let longer = format!("{printed}:00");
        for text in ["", ":", "AB", sha1, &longer, &signed, "é", &"g".repeat(64)] {
            assert!(text.parse::<CertFingerprint>().is_err(), "{text}");
        }
        assert!(matches!(TlsTrust::pinned(Vec::new()), Err(TrustError::NoFingerprint)));
    }

    #[test]
    fn a_ca_file_without_a_certificate_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(file.path(), text).unwrap();
            let error = TlsTrust::from_ca_file(file.path()).unwrap_err();
            assert!(matches!(error, TrustError::NoCertificate { .. }), "{text}");
        }
        let missing = TlsTrust::from_ca_file(Path::new("/nonexistent/ca.pem")).unwrap_err();
        assert!(matches!(missing, TrustError::Unreadable(_)));
    }
}
