//! The certificate of the HTTP front: self-signed, with a fingerprint clients can pin.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

/// A self-signed certificate and the server configuration that presents it.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate in PEM form, for clients that trust it as their authority.
    pub pem: String,
    /// SHA-256 as 32 upper-case pairs with colons.
    pub fingerprint: String,
    pub(crate) config: Arc<ServerConfig>,
}

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum SimCertificateError {
    /// The certificate itself.
    #[error("cannot make a self-signed certificate")]
    Made(#[from] rcgen::Error),
    /// Its use in TLS.
    #[error("cannot use the self-signed certificate for TLS")]
    Used(#[from] rustls::Error),
}

impl Certificate {
    /// Makes a new certificate for the node's name and the loopback addresses.
    pub fn make(node: &str) -> Result<Self, SimCertificateError> {
        let names = vec![node.to_owned(), "localhost".into(), "127.0.0.1".into(), "::1".into()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let der = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], key)?;
        let pairs: Vec<String> =
            Sha256::digest(&der).iter().map(|byte| format!("{byte:02X}")).collect();
        Ok(Self { pem: made.cert.pem(), fingerprint: pairs.join(":"), config: Arc::new(config) })
    }
}
