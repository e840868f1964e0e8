//! `[desired] hub` of agent.toml: where the hub is, whom to trust there, and where our credential is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::config::OneOrMany;
use crate::pve::tls::{CertFingerprint, FingerprintError, TlsTrust, TrustError};
use crate::secret_file::{self, SecretFileError};

/// Where the credential is if nobody says.
pub const DEFAULT_CREDENTIAL: &str = "/etc/evenkeel/hub-credential";

/// How a credential begins; 64 hexadecimal digits follow.
const CREDENTIAL_PREFIX: &str = "evkc_";

/// The hub as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HubConfig {
    /// `https://hub.example:8443`.
    pub url: Option<String>,
    /// A PEM file with the certificate authority.
    pub ca_file: Option<PathBuf>,
    /// SHA-256 of the hub's certificate: one, or several while it is renewed.
    pub fingerprint: OneOrMany,
    /// A file of mode 0600 with the credential that `evenkeel enrol` wrote.
    pub credential_file: Option<PathBuf>,
}

/// Why a hub cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HubConfigError {
    /// Nothing says where it is.
    #[error("`hub` under [desired] has no `url`")]
    NoUrl,
    /// The address cannot be used.
    #[error(transparent)]
    Url(#[from] HubUrlError),
    /// Both a pin and an authority are given.
    #[error(
        "`fingerprint` and `ca_file` of the hub are both set, and only one can decide whom to trust"
    )]
    TwoTrusts,
    /// A fingerprint cannot be read.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// The trust settings cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The credential cannot be used.
    #[error("the hub's credential: {0}")]
    Credential(#[from] SecretFileError),
}

impl HubConfigError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoUrl | Self::Url(_) => {
                "write hub = { url = \"https://hub.example:8443\" } under [desired]".to_owned()
            }
            Self::TwoTrusts => "keep one of them".to_owned(),
            Self::Fingerprint(_) | Self::Trust(_) => {
                "`evenkeel hub` prints the fingerprint of its certificate when it starts".to_owned()
            }
            Self::Credential(_) => "enrol this host first: evenkeel enrol URL".to_owned(),
        }
    }
}

impl HubConfig {
    /// Where the hub listens.
    pub fn address(&self) -> Result<HubUrl, HubConfigError> {
        Ok(self.url.as_deref().ok_or(HubConfigError::NoUrl)?.parse()?)
    }

    /// Whom to trust: the pinned certificates, the named authority, or the system's.
    pub fn trust(&self) -> Result<TlsTrust, HubConfigError> {
        match (self.fingerprint.0.as_slice(), &self.ca_file) {
            ([], None) => Ok(TlsTrust::Platform),
            ([], Some(path)) => Ok(TlsTrust::from_ca_file(path)?),
            (_, Some(_)) => Err(HubConfigError::TwoTrusts),
            (pins, None) => {
                let pins: Result<Vec<CertFingerprint>, _> =
                    pins.iter().map(|pin| pin.parse()).collect();
                Ok(TlsTrust::pinned(pins?)?)
            }
        }
    }

    /// The file of the credential that is meant; it need not be there.
    pub fn credential_path(&self) -> PathBuf {
        self.credential_file.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CREDENTIAL))
    }

    /// The credential from its file.
    pub fn credential(&self) -> Result<SecretString, HubConfigError> {
        read_credential(&self.credential_path()).map_err(HubConfigError::Credential)
    }
}

fn read_credential(path: &Path) -> Result<SecretString, SecretFileError> {
    let text = secret_file::read(path)?;
    let line = text.expose_secret().trim_end();
    if is_credential(line) {
        return Ok(SecretString::from(line.to_owned()));
    }
    let why = "it holds no credential of a hub";
    Err(SecretFileError::Unfit { path: path.to_owned(), why })
}

/// Whether a text can be a credential.
pub fn is_credential(text: &str) -> bool {
    text.strip_prefix(CREDENTIAL_PREFIX).is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The address of a hub: scheme, host and port, and nothing that could lead a credential elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct HubUrl {
    origin: String,
    encrypted: bool,
}

/// Why a text is no address of a hub. It is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HubUrlError {
    /// Not a URL.
    #[error("the hub's address is not a URL")]
    NotAUrl,
    /// Neither https nor http.
    #[error("the hub's address must start with https://")]
    Scheme,
    /// Plain HTTP to another machine.
    #[error(
        "plain http is allowed for loopback addresses only; a credential must not travel unencrypted"
    )]
    PlainHttp,
    /// User or password inside the URL, or something behind the port.
    #[error("the hub's address must be scheme, host and port alone")]
    More,
}

impl HubUrl {
    /// Scheme, host and port, without a slash at the end.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it is reached by TLS.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl FromStr for HubUrl {
    type Err = HubUrlError;

    fn from_str(text: &str) -> Result<Self, HubUrlError> {
        let url = Url::parse(text).map_err(|_| HubUrlError::NotAUrl)?;
        let encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(HubUrlError::Scheme),
        };
        let more = !url.username().is_empty()
            || url.password().is_some()
            || !url.path().trim_end_matches('/').is_empty()
            || url.query().is_some()
            || url.fragment().is_some();
        if more {
            return Err(HubUrlError::More);
        }
        // A name such as `localhost` is resolved by the system and could lead anywhere.
        let host = url.host_str().map(|host| host.trim_matches(['[', ']']));
        let address = host.and_then(|host| host.parse::<std::net::IpAddr>().ok());
        if !encrypted && !address.is_some_and(|address| address.is_loopback()) {
            return Err(HubUrlError::PlainHttp);
        }
        Ok(Self { origin: url.origin().ascii_serialization(), encrypted })
    }
}

impl fmt::Debug for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_origin_and_nothing_that_leads_elsewhere() {
        for (text, origin) in [
            ("https://hub.example:8443/", "https://hub.example:8443"),
            ("https://hub.example", "https://hub.example"),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://[::1]:9000", "http://[::1]:9000"),
        ] {
            assert_eq!(text.parse::<HubUrl>().unwrap().origin(), origin, "{text}");
        }
        for (text, error) in [
            ("hub", HubUrlError::NotAUrl),
            ("ftp://hub", HubUrlError::Scheme),
            ("http://hub.example", HubUrlError::PlainHttp),
            ("http://localhost:1", HubUrlError::PlainHttp),
            ("http://10.0.0.1", HubUrlError::PlainHttp),
            ("https://a:b@hub", HubUrlError::More),
            ("https://hub/x", HubUrlError::More),
            ("https://hub/?a", HubUrlError::More),
        ] {
            assert_eq!(text.parse::<HubUrl>().unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_credential_is_a_prefix_and_64_digits() {
        let good = format!("evkc_{}", "0a".repeat(32));
        assert!(is_credential(&good));
        for bad in [
            "",
            "evkc_",
            &good[..good.len() - 1],
            &good.to_uppercase(),
            &good.replace("evkc", "evka"),
        ] {
            assert!(!is_credential(bad), "{bad}");
        }
    }
}
