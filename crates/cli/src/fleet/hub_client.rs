//! Talking to a hub as a person: JSON over HTTPS, answers bounded, refusals told with their next step.
//!
//! Nothing is sent before TLS has proved the hub to be the one that is meant. What it answers is shown and compared, never
//! believed: what is signed is judged by core, from bytes this machine has.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_agent::pve::endpoint::Endpoint;
use evenkeel_agent::pve::tls::{CertFingerprint, TlsTrust, presented_certificate};
use evenkeel_hub::people::wire::DifferenceBody;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::known_hubs::KnownHubs;
use super::logins::HubLogins;
use crate::cli::HubChoice;
use crate::error::{CommandFailure, Exit};
use crate::render::{difference, tamed};

/// The largest answer that is read: the largest document, written as JSON, with room to spare.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A hub on the other side of the world answers within seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// How much of a hub's own words is shown.
const WORDS_MAX: usize = 2_000;

/// A connection to a hub.
pub(crate) struct HubClient {
    endpoint: Endpoint,
    http: reqwest::Client,
    token: Option<SecretString>,
}

/// A refusal, as the hub wrote it.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct ApiProblem {
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    hint: Option<String>,
    #[serde(default)]
    diagnostics: Vec<String>,
    /// What somebody else changed meanwhile.
    #[serde(default)]
    difference: Vec<DifferenceBody>,
}

impl HubClient {
    /// The hub somebody is logged in at.
    pub(crate) fn logged_in(arguments: &HubChoice) -> Result<Self, CommandFailure> {
        let wanted = arguments.hub.as_deref().map(endpoint).transpose()?;
        let logins = HubLogins::read()?;
        let login = logins.find(wanted.as_ref().map(Endpoint::origin))?;
        let known = KnownHubs::read()?;
        let hub = known.get(&login.origin).ok_or_else(|| {
            let message = format!("the hub {} is not in {}", login.origin, known.path());
            CommandFailure::new(Exit::Denied, message)
                .hint("log in again: evenkeel fleet login URL")
        })?;
        let client = Self::new(endpoint(&login.origin)?, &hub.proof.trust()?)?;
        Ok(Self { token: Some(login.token.clone()), ..client })
    }

    /// A hub nobody is logged in at yet.
    pub(crate) fn new(endpoint: Endpoint, trust: &TlsTrust) -> Result<Self, CommandFailure> {
        let cannot = |error: &dyn std::fmt::Display| {
            CommandFailure::new(
                Exit::Invalid,
                format!("these TLS settings cannot be used: {error}"),
            )
        };
        let http = trust
            .direct_client(endpoint.is_encrypted())
            .map_err(|error| cannot(&error))?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| cannot(&error))?;
        Ok(Self { endpoint, http, token: None })
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        self.endpoint.origin()
    }

    /// Reads something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, CommandFailure> {
        self.send(Method::GET, target, None::<&()>, None).await
    }

    /// Hands something in.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        target: &str,
        body: &impl Serialize,
        if_match: Option<&str>,
    ) -> Result<T, CommandFailure> {
        self.send(Method::POST, target, Some(body), if_match).await
    }

    /// Ends something. No body comes back.
    pub(crate) async fn delete(&self, target: &str) -> Result<(), CommandFailure> {
        let (status, bytes) = self.exchange(Method::DELETE, target, None, None).await?;
        if status.is_success() { Ok(()) } else { Err(refused(status, &bytes)) }
    }

    /// Ends everything of a kind, and learns how much that was.
    pub(crate) async fn end_all<T: DeserializeOwned>(
        &self,
        target: &str,
    ) -> Result<T, CommandFailure> {
        self.send(Method::DELETE, target, None::<&()>, None).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Option<&impl Serialize>,
        if_match: Option<&str>,
    ) -> Result<T, CommandFailure> {
        let body = body.map(|body| serde_json::to_vec(body).expect("our own types are JSON"));
        let (status, bytes) = self.exchange(method, target, body, if_match).await?;
        if !status.is_success() {
            return Err(refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("the hub's answer is not understood: {error}");
            CommandFailure::new(Exit::Failed, message)
                .hint("the hub and this command may be of different versions")
        })
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Option<Vec<u8>>,
        if_match: Option<&str>,
    ) -> Result<(StatusCode, Vec<u8>), CommandFailure> {
        let mut request = self.http.request(method, format!("{}{target}", self.origin()));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(tag) = if_match {
            request = request.header(reqwest::header::IF_MATCH, tag);
        }
        if let Some(body) = body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = request.send().await.map_err(|error| self.not_reached(&error))?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.not_reached(&error))? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                let message = format!("the hub answered more than {ANSWER_BYTES_MAX} bytes");
                return Err(CommandFailure::new(Exit::Failed, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((status, bytes))
    }

    fn not_reached(&self, error: &reqwest::Error) -> CommandFailure {
        if let Some(presented) = presented_certificate(error) {
            let message = format!(
                "the hub at {} shows the certificate {presented}, which is not the one that was pinned",
                self.origin()
            );
            let hint = KnownHubs::read().map(|known| known.forget(self.origin()));
            return CommandFailure::new(Exit::Denied, message).hint(hint.unwrap_or_default());
        }
        let mut message = format!("the hub {} cannot be reached", self.origin());
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            if inner.source().is_none() {
                message = format!("{message}: {}", tamed(&inner.to_string(), WORDS_MAX));
            }
            cause = inner.source();
        }
        CommandFailure::new(Exit::Transient, message)
            .hint("the hosts go on without it; `curl` its /healthz from here")
    }

    /// Whether it answers at all, and is believed.
    pub(crate) async fn answers(&self) -> bool {
        self.http.get(format!("{}/healthz", self.origin())).send().await.is_ok()
    }

    /// The certificate a hub shows, learnt from a handshake that nothing is sent through; none if a system's authority
    /// vouches for it, or there is no TLS.
    pub(crate) async fn certificate(
        endpoint: &Endpoint,
    ) -> Result<CertFingerprint, CommandFailure> {
        // No certificate has this fingerprint, so the handshake ends with the one that was shown.
        let none = CertFingerprint::of(b"no certificate is this text");
        let client = Self::new(endpoint.clone(), &TlsTrust::Pinned(vec![none]))?;
        match client.http.get(format!("{}/healthz", client.origin())).send().await {
            Ok(_) => {
                Err(CommandFailure::new(Exit::Failed, "the hub was believed without a reason"))
            }
            Err(error) => presented_certificate(&error).ok_or_else(|| client.not_reached(&error)),
        }
    }
}

/// The address of a hub.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, CommandFailure> {
    text.parse().map_err(|_| {
        CommandFailure::new(Exit::Usage, "that is no address of a hub").hint(
            "write it as https://hub.example:8600; plain http is for 127.0.0.1 only, and nothing may follow the port",
        )
    })
}

/// A refusal of the hub, with the exit code it ends with.
fn refused(status: StatusCode, bytes: &[u8]) -> CommandFailure {
    let problem: ApiProblem = serde_json::from_slice(bytes).unwrap_or_default();
    let exit = match (problem.code.as_str(), status.as_u16()) {
        ("invalid" | "too_large", _) => Exit::Invalid,
        (_, 401 | 403) => Exit::Denied,
        (_, 404) => Exit::NotFound,
        (_, 409 | 412 | 429 | 502..=504) => Exit::Transient,
        (_, _) => Exit::Failed,
    };
    let detail = if problem.detail.is_empty() {
        format!("the hub answered {}", status.as_u16())
    } else {
        tamed(&problem.detail, WORDS_MAX)
    };
    let failure = CommandFailure::new(exit, detail);
    let failure = match (problem.hint, status.as_u16()) {
        (Some(hint), _) => failure.hint(tamed(&hint, WORDS_MAX)),
        (None, 401) => failure.hint("log in again: evenkeel fleet login URL --key KEY"),
        (None, _) => failure,
    };
    if !problem.difference.is_empty() {
        let meanwhile = difference::render(&problem.difference);
        return failure.details(format!("Meanwhile somebody changed:\n{meanwhile}"));
    }
    if problem.diagnostics.is_empty() {
        return failure;
    }
    // Each keeps its lines; everything else a terminal would act upon is drawn.
    let draw = |text: &String| {
        text.lines().map(|line| tamed(line, WORDS_MAX)).collect::<Vec<_>>().join("\n")
    };
    failure.details(problem.diagnostics.iter().map(draw).collect::<Vec<_>>().join("\n"))
}

/// A text as one part of a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_with_the_code_of_its_kind() {
        for (status, code, exit) in [
            (401, "unauthorised", Exit::Denied),
            (403, "forbidden", Exit::Denied),
            (404, "not_found", Exit::NotFound),
            (412, "stale", Exit::Transient),
            (429, "too_many", Exit::Transient),
            (422, "invalid", Exit::Invalid),
            (413, "too_large", Exit::Invalid),
            (503, "unavailable", Exit::Transient),
            (500, "internal", Exit::Failed),
        ] {
            let body = format!("{{\"detail\":\"why\",\"code\":\"{code}\"}}");
            let failure = refused(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert_eq!((failure.exit, failure.message.as_str()), (exit, "why"), "{status}");
        }
        let nothing = refused(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(
            (nothing.exit, nothing.message.as_str()),
            (Exit::Transient, "the hub answered 502")
        );
    }

    #[test]
    fn what_a_hub_says_is_drawn_and_never_acted_upon() {
        let body =
            br#"{"detail":"a\u001b[2Jb","code":"invalid","diagnostics":["line\nnext\u0007"]}"#;
        let failure = refused(StatusCode::UNPROCESSABLE_ENTITY, body);
        assert!(!failure.message.contains('\u{1b}'), "{}", failure.message);
        let details = failure.details.unwrap();
        assert!(details.contains("line\nnext") && !details.contains('\u{7}'), "{details:?}");
    }

    #[test]
    fn a_part_of_a_path_stays_one_part() {
        assert_eq!(encoded("pve1"), "pve1");
        assert_eq!(encoded("a/b?c&d é"), "a%2Fb%3Fc%26d%20%C3%A9");
    }
}
