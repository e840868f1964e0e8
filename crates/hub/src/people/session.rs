//! Sessions in a browser: one cookie, and a token against forged requests that is made from it.
//!
//! The cookie is drawn by the hub when a one-time code is spent, whatever a browser had before. A page of another site can
//! make a browser send it, but can read neither the cookie nor the token, and must say where it comes from.

use axum::http::{HeaderMap, HeaderValue, Method, header};

use crate::problem::{Problem, ProblemCode};
use crate::secret_text::{SecretKind, SecretText, sha256_hex};

/// The header that carries the token against forged requests.
pub(crate) const CSRF_HEADER: &str = "evenkeel-csrf";

/// The field of a form that carries it.
pub(crate) const CSRF_FIELD: &str = "csrf";

/// A cookie of the hub. Browsers take one whose name begins with `__Host-` only if it is `Secure`, for `/` and of this very host; on
/// loopback, where there may be no TLS, it has another name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HubCookie {
    secure_name: &'static str,
    plain_name: &'static str,
    kind: SecretKind,
    /// Whether a browser sends it along when a page of another site leads here.
    same_site: &'static str,
}

/// The cookie of a session.
pub(crate) const SESSION_COOKIE: HubCookie = HubCookie {
    secure_name: "__Host-evenkeel",
    plain_name: "evenkeel",
    kind: SecretKind::Session,
    same_site: "Strict",
};

/// Whether the hub is dialled without TLS on this machine itself.
fn is_plain_loopback(public_url: &str) -> bool {
    let Some(rest) = public_url.strip_prefix("http://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl HubCookie {
    /// A cookie that opens nothing by itself, and comes along when a link leads here from another site.
    pub(crate) const fn lax(
        secure_name: &'static str,
        plain_name: &'static str,
        kind: SecretKind,
    ) -> Self {
        Self { secure_name, plain_name, kind, same_site: "Lax" }
    }

    fn name(self, public_url: &str) -> &'static str {
        if is_plain_loopback(public_url) { self.plain_name } else { self.secure_name }
    }

    /// What sets it, for so many seconds.
    pub(crate) fn set(self, public_url: &str, value: &SecretText, life_s: i64) -> HeaderValue {
        self.header(public_url, value.reveal(), life_s)
    }

    /// What takes it away.
    pub(crate) fn clear(self, public_url: &str) -> HeaderValue {
        self.header(public_url, "", 0)
    }

    fn header(self, public_url: &str, value: &str, life_s: i64) -> HeaderValue {
        let secure = if is_plain_loopback(public_url) { "" } else { "; Secure" };
        let name = self.name(public_url);
        let same_site = self.same_site;
        let text = format!(
            "{name}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite={same_site}{secure}"
        );
        HeaderValue::from_str(&text).expect("a secret is letters and digits")
    }

    /// What a request came with; none if two are named, because one of them is not ours.
    pub(crate) fn read(self, public_url: &str, headers: &HeaderMap) -> Option<SecretText> {
        let wanted = self.name(public_url);
        let mut found = None;
        for header in headers.get_all(header::COOKIE) {
            for pair in header.to_str().ok()?.split(';') {
                let Some((name, value)) = pair.trim().split_once('=') else { continue };
                if name == wanted {
                    if found.is_some() {
                        return None;
                    }
                    found = Some(SecretText::read(self.kind, value)?);
                }
            }
        }
        found
    }
}

/// The session a request came with.
pub(crate) fn from_cookie(public_url: &str, headers: &HeaderMap) -> Option<SecretText> {
    SESSION_COOKIE.read(public_url, headers)
}

/// The token of a session: made from it, so that nothing has to be kept, and useless for finding it.
pub(crate) fn csrf_token(session: &SecretText) -> String {
    sha256_hex(format!("evenkeel csrf {}", session.reveal()).as_bytes())
}

/// Refuses a request that changes something and may not come from our own page.
pub(crate) fn demand_own_page(
    method: &Method,
    headers: &HeaderMap,
    session: &SecretText,
    public_url: &str,
) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    demand_same_origin(headers, public_url)?;
    let shown = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    demand_token(session, shown)
}

/// Refuses what does not show the token of its session.
pub(crate) fn demand_token(session: &SecretText, shown: &str) -> Result<(), Problem> {
    // Hashes are compared and not texts, so that the time it takes tells nothing of the token.
    let same = sha256_hex(shown.as_bytes()) == sha256_hex(csrf_token(session).as_bytes());
    if same { Ok(()) } else { Err(forged()) }
}

/// Refuses what a browser says another site asked for.
pub(crate) fn demand_same_origin(headers: &HeaderMap, public_url: &str) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
    {
        return Err(forged());
    }
    match text("origin") {
        Some(origin) if Some(origin.to_owned()) != origin_of(public_url) => Err(forged()),
        Some(_) | None => Ok(()),
    }
}

fn forged() -> Problem {
    Problem::new(ProblemCode::Forbidden, "the request does not come from the hub's own page")
        .hint("reload the page")
}

/// Scheme, host and port as a browser and the command line write them: small letters, and no port that goes without
/// saying.
pub(crate) fn origin_of(url: &str) -> Option<String> {
    let url: axum::http::Uri = url.parse().ok()?;
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let host = url.host()?.to_ascii_lowercase();
    let usual = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    Some(match url.port_u16() {
        Some(port) if port != usual => format!("{scheme}://{host}:{port}"),
        Some(_) | None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "https://hub.example:8600";

    fn session() -> SecretText {
        SecretText::draw(SecretKind::Session)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_cookie_is_for_no_script_and_no_other_site_and_secure_but_on_loopback() {
        let text =
            |url: &str| SESSION_COOKIE.set(url, &session(), 43_200).to_str().unwrap().to_owned();
        for url in [HUB, "http://hub.example", "http://127.0.0.1.evil.example", "http://10.0.0.1"] {
            let cookie = text(url);
            assert!(cookie.starts_with("__Host-evenkeel=evks_"), "{cookie}");
            assert!(
                cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"),
                "{cookie}"
            );
        }
        for url in ["http://127.0.0.1:8600", "http://[::1]:8600", "http://localhost"] {
            let cookie = text(url);
            assert!(cookie.starts_with("evenkeel=evks_"), "{cookie}");
            assert!(cookie.ends_with("HttpOnly; SameSite=Strict"), "{cookie}");
        }
    }

    #[test]
    fn a_session_is_read_from_the_one_cookie_of_its_name() {
        let one = session();
        let two = session();
        let cookie = |text: &str| from_cookie(HUB, &headers(&[("cookie", text)]));
        let ours = format!("__Host-evenkeel={}", one.reveal());
        assert!(cookie(&format!("a=b; {ours}; c=d")).is_some());
        assert!(cookie(&format!("{ours}; __Host-evenkeel={}", two.reveal())).is_none());
        assert!(cookie(&format!("evenkeel={}", one.reveal())).is_none(), "the name of loopback");
        assert!(cookie("__Host-evenkeel=evka_1").is_none());
        assert!(cookie("").is_none());
    }

    #[test]
    fn what_changes_something_needs_the_token_of_its_session() {
        let session = session();
        let token = csrf_token(&session);
        let ask = |method: Method, pairs: &[(&'static str, &str)]| {
            demand_own_page(&method, &headers(pairs), &session, HUB).is_ok()
        };
        assert!(ask(Method::GET, &[]));
        assert!(ask(Method::POST, &[("evenkeel-csrf", &token)]));
        assert!(ask(Method::POST, &[("evenkeel-csrf", &token), ("origin", HUB)]));
        let other = csrf_token(&SecretText::draw(SecretKind::Session));
        for pairs in [
            &[][..],
            &[("evenkeel-csrf", "")],
            &[("evenkeel-csrf", other.as_str())],
            &[("evenkeel-csrf", &token), ("origin", "https://evil.example")],
            &[("evenkeel-csrf", &token), ("origin", "null")],
            &[("evenkeel-csrf", &token), ("sec-fetch-site", "cross-site")],
            &[("evenkeel-csrf", &token), ("sec-fetch-site", "same-site")],
        ] {
            for method in [Method::POST, Method::PUT, Method::DELETE] {
                assert!(!ask(method, pairs), "{pairs:?}");
            }
        }
        assert!(!token.contains(&session.reveal()[5..]));
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for (url, origin) in [
            ("https://Hub.Example:443", "https://hub.example"),
            ("https://hub.example/", "https://hub.example"),
            ("http://127.0.0.1:8600", "http://127.0.0.1:8600"),
            ("https://[::1]:8600", "https://[::1]:8600"),
        ] {
            assert_eq!(origin_of(url).as_deref(), Some(origin), "{url}");
        }
        assert_eq!(origin_of("ftp://hub"), None);
        assert_eq!(origin_of("hub"), None);
    }
}
