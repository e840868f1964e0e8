//! Enrolment: a host shows a one-time token and its own key, and gets the hub's name and a credential.
//!
//! Called by `evenkeel enrol` while no agent runs. The token and the credential are in no message. The address that was
//! dialled is signed, so that a hub in the middle cannot hand the enrolment on.

use std::time::Duration;

use evenkeel_core::fleet::{EnrolAnswer, EnrolRequest, EnrolStatement, HubProblem, SealedText};
use evenkeel_core::model::reason::Refusal;
use evenkeel_core::sign::{Envelope, HostBinding, Namespace, PayloadHash};
use secrecy::{ExposeSecret as _, SecretString};

use super::config::{HubUrl, is_credential};
use super::exchange::{HubExchange, HubFailure, HubMethod, HubOutcome, HubRequest};
use crate::host_key::HostKey;

const DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_MAX: usize = 64 << 10;

/// How a token begins; 64 hexadecimal digits follow.
const TOKEN_PREFIX: &str = "evke_";

/// Why a host was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The token is none.
    #[error(
        "that is no enrolment token: it begins with {TOKEN_PREFIX} and has 64 hexadecimal digits"
    )]
    Token,
    /// The hub could not be asked.
    #[error("the hub could not be asked: {0}")]
    Failed(HubFailure),
    /// The hub says no.
    #[error("the hub refused the enrolment ({status}): {detail}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// In its words.
        detail: String,
    },
    /// The hub's answer makes no sense.
    #[error("the hub's answer makes no sense")]
    Answer,
    /// The statement could not be made.
    #[error("the enrolment could not be signed: {0}")]
    Statement(#[from] Refusal),
}

/// Enrols a host.
pub async fn enrol(
    exchange: &dyn HubExchange,
    url: &HubUrl,
    key: &HostKey,
    host: HostBinding,
    token: &SecretString,
) -> Result<EnrolAnswer, EnrolError> {
    let token = token.expose_secret().trim();
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = token.strip_prefix(TOKEN_PREFIX);
    if !digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_hex)) {
        return Err(EnrolError::Token);
    }
    let statement = EnrolStatement {
        token: PayloadHash::of(token.as_bytes()),
        host,
        hub_url: url.origin().to_owned(),
    };
    let bytes = statement.to_bytes()?;
    let armour = key.sign_for_hub(Namespace::Enrol, &bytes)?;
    let request = EnrolRequest {
        token: token.to_owned(),
        host_key: key.public().to_string(),
        enrolment: SealedText::of(&Envelope::seal(&bytes, &[&armour])?)?,
    };
    let body = serde_json::to_vec(&request).map_err(|_| EnrolError::Answer)?;
    let outcome = exchange.exchange(HubRequest {
        method: HubMethod::Post,
        target: "/v1/agent/enrol".to_owned(),
        headers: Vec::new(),
        body,
        answer_max_bytes: ANSWER_MAX,
        deadline: DEADLINE,
    });
    match outcome.await {
        HubOutcome::Failed(failure) => Err(EnrolError::Failed(failure)),
        HubOutcome::Answered { status: 200 | 201, body } => {
            let answer: EnrolAnswer =
                serde_json::from_slice(&body).map_err(|_| EnrolError::Answer)?;
            if is_credential(&answer.credential) { Ok(answer) } else { Err(EnrolError::Answer) }
        }
        HubOutcome::Answered { status, body } => {
            let problem: HubProblem = serde_json::from_slice(&body).unwrap_or_default();
            let shown = |text: &str| text.chars().filter(|c| !c.is_control()).take(200).collect();
            // A hub that repeats what it was shown must not reach a log.
            let detail: String = shown(&problem.detail.replace(token, "…"));
            Err(EnrolError::Refused { status, detail })
        }
    }
}
