//! The real way to a hub: HTTP/1.1 over TLS, with the credential, bounded in size and time.
//!
//! No proxy of the environment, no redirect (a hub that sends us elsewhere is answered by nobody), no retry by itself.
//! Plain HTTP is for loopback alone. Nothing here prints the credential or a body.

use std::error::Error as StdError;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use super::config::HubUrl;
use super::exchange::{HubExchange, HubFailure, HubFuture, HubMethod, HubOutcome, HubRequest};
use crate::pve::tls::{TlsTrust, TrustError};

/// A hub answers a connection and a handshake within moments; a new certificate may be slow to check.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a kept connection may idle: shorter than proxies usually allow.
const POOL_IDLE: Duration = Duration::from_secs(20);

/// Carries requests to one hub over HTTP.
pub struct HubHttp {
    url: HubUrl,
    credential: Option<SecretString>,
    client: reqwest::Client,
}

impl HubHttp {
    /// A way to `url` that trusts `trust`; without a credential for enrolment alone.
    pub fn new(
        url: HubUrl,
        trust: &TlsTrust,
        credential: Option<SecretString>,
    ) -> Result<Self, TrustError> {
        let client = trust
            .direct_client(url.is_encrypted())?
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(2)
            .build()
            .map_err(|error| TrustError::Refused(error.to_string()))?;
        Ok(Self { url, credential, client })
    }

    async fn carry(&self, request: HubRequest) -> HubOutcome {
        let HubRequest { method, target, headers, body, answer_max_bytes, deadline } = request;
        let whole = async {
            let method = match method {
                HubMethod::Get => reqwest::Method::GET,
                HubMethod::Post => reqwest::Method::POST,
            };
            let posts = method == reqwest::Method::POST;
            let mut sending = self.client.request(method, format!("{}{target}", self.url.origin()));
            if let Some(credential) = &self.credential {
                let bearer = format!("Bearer {}", credential.expose_secret());
                let Ok(mut bearer) = HeaderValue::from_str(&bearer) else {
                    return Err(HubFailure::Connect("the credential is no header".to_owned()));
                };
                bearer.set_sensitive(true);
                sending = sending.header(AUTHORIZATION, bearer);
            }
            for (name, value) in headers {
                sending = sending.header(name, value);
            }
            if posts {
                sending = sending.header(CONTENT_TYPE, "application/json").body(body);
            }
            let response = sending.send().await.map_err(|error| failed(&error))?;
            answer(response, answer_max_bytes).await
        };
        // One clock for connection, waiting and every byte of the answer.
        match tokio::time::timeout(deadline, whole).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => HubOutcome::Failed(failure),
            Err(_) => HubOutcome::Failed(HubFailure::Timeout(deadline)),
        }
    }
}

impl HubExchange for HubHttp {
    fn exchange(&self, request: HubRequest) -> HubFuture<'_> {
        Box::pin(self.carry(request))
    }
}

impl std::fmt::Debug for HubHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubHttp").field("url", &self.url).finish_non_exhaustive()
    }
}

async fn answer(mut response: reqwest::Response, max: usize) -> Result<HubOutcome, HubFailure> {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        if body.len() + chunk.len() > max {
            return Err(HubFailure::TooLarge(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(HubOutcome::Answered { status, body })
}

fn failed(error: &reqwest::Error) -> HubFailure {
    // The last cause says what happened; the outer ones repeat the address.
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let told = causes.last().map_or_else(|| "the request failed".to_owned(), ToString::to_string);
    let told: String = told.chars().filter(|letter| !letter.is_control()).take(200).collect();
    if error.is_connect() { HubFailure::Connect(told) } else { HubFailure::Lost(told) }
}

#[cfg(test)]
mod tests;
