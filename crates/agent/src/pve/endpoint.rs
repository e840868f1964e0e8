//! Where Proxmox VE listens, checked once: scheme, host, and nothing that could redirect a token.

use std::fmt;
use std::str::FromStr;

use evenkeel_core::model::id::NodeName;
use reqwest::Url;

/// The address of a node's API. Plain HTTP is possible only on loopback, for a simulator.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    origin: String,
    encrypted: bool,
    /// The root, parsed once: the host's name is not looked at again for every request.
    root: Url,
}

/// Why a text is not an endpoint. The text is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL.
    #[error("the Proxmox VE address is not a URL")]
    NotAUrl,
    /// Neither https nor http.
    #[error("the Proxmox VE address must start with https://")]
    Scheme,
    /// Plain HTTP to another machine.
    #[error(
        "plain http is allowed for loopback addresses only; a token must not travel unencrypted"
    )]
    PlainHttp,
    /// User or password inside the URL.
    #[error("the Proxmox VE address must not hold a user or password")]
    Credentials,
    /// A path, query or fragment that is not the API's root.
    #[error("the Proxmox VE address must end after the port (or with /api2/json)")]
    Path,
}

impl EndpointError {
    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Self::NotAUrl | Self::Scheme | Self::Path | Self::Credentials => {
                "write it as https://pve1.example:8006"
            }
            Self::PlainHttp => "use https, or http://127.0.0.1:PORT for a simulator",
        }
    }
}

impl Endpoint {
    /// Scheme, host and port, without a trailing slash.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The address of `target`, a path with or without a query.
    pub(super) fn url(&self, target: &str) -> Url {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let mut url = self.root.clone();
        url.set_path(path);
        url.set_query(query);
        url
    }

    /// Whether it names the machine we run on, if that is the node of this name: by loopback, or by the node's own name.
    pub fn is_this_machine(&self, node: &NodeName) -> bool {
        let host = self.root.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<std::net::IpAddr>() {
            return address.is_loopback();
        }
        let first = host.split('.').next().unwrap_or_default();
        host == "localhost" || first.eq_ignore_ascii_case(node.as_str())
    }

    /// True unless it is a simulator on loopback without TLS.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let url = Url::parse(text.trim()).map_err(|_| EndpointError::NotAUrl)?;
        let encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EndpointError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::Credentials);
        }
        let root = matches!(url.path().trim_end_matches('/'), "" | "/api2/json");
        if !root || url.query().is_some() || url.fragment().is_some() {
            return Err(EndpointError::Path);
        }
        // A name such as `localhost` is resolved by the system and could lead anywhere.
        let loopback = url
            .host_str()
            .map(|host| host.trim_start_matches('[').trim_end_matches(']'))
            .and_then(|host| host.parse::<std::net::IpAddr>().ok())
            .is_some_and(|address| address.is_loopback());
        if !encrypted && !loopback {
            return Err(EndpointError::PlainHttp);
        }
        let origin = url.origin().ascii_serialization();
        let root = Url::parse(&origin).map_err(|_| EndpointError::NotAUrl)?;
        Ok(Self { origin, encrypted, root })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_its_origin_however_it_was_written() {
        for (text, origin) in [
            ("https://pve1:8006", "https://pve1:8006"),
            ("https://pve1:8006/", "https://pve1:8006"),
            ("https://pve1:8006/api2/json/", "https://pve1:8006"),
            ("https://[::1]:8006/api2/json", "https://[::1]:8006"),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://127.1.2.3:9000", "http://127.1.2.3:9000"),
            ("http://[::1]:9000", "http://[::1]:9000"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().origin(), origin, "{text}");
        }
    }

    #[test]
    fn plain_http_beyond_loopback_is_refused() {
        for text in [
            "http://pve1:8006",
            "http://localhost:8006",
            "http://10.0.0.1:8006",
            "http://0.0.0.0:1",
            "http://127.0.0.1.evil.example:1",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::PlainHttp), "{text}");
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        for (text, error) in [
            ("", EndpointError::NotAUrl),
            ("pve1", EndpointError::NotAUrl),
            ("ftp://pve1", EndpointError::Scheme),
            ("https://root:pw@pve1:8006", EndpointError::Credentials),
            ("https://pve1:8006/other", EndpointError::Path),
            ("https://pve1:8006/?a=b", EndpointError::Path),
            ("https://pve1:8006/#x", EndpointError::Path),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_call_is_the_origin_and_its_target() {
        let endpoint: Endpoint = "https://pve1.example:8006/api2/json".parse().unwrap();
        for target in ["/api2/json/version", "/api2/json/a%2Fb?x=a%26b%3Dc&y=%C3%A9%20"] {
            let whole = format!("{}{target}", endpoint.origin());
            assert_eq!(endpoint.url(target), Url::parse(&whole).unwrap());
            assert_eq!(endpoint.url(target).as_str(), whole);
        }
    }
}
