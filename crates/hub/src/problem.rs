//! What went wrong with a request, as RFC 9457 says it. The only way an error leaves the hub.
//!
//! Internal causes are logged, never sent: what a stranger reads is a code, a sentence and what to do next.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::store::StoreError;

/// The kinds of refusal: part of the interface, in `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemCode {
    /// No credential, or one nobody knows.
    Unauthorised,
    /// Known, but may not.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It contradicts what is there.
    Conflict,
    /// Somebody else was faster (`If-Match`).
    Stale,
    /// A report builds on one the hub does not have.
    Resync,
    /// Over a limit of size.
    TooLarge,
    /// Over a limit of number or rate.
    TooMany,
    /// It cannot be read or makes no sense.
    Invalid,
    /// Not now.
    Unavailable,
    /// A mistake of ours.
    Internal,
}

impl ProblemCode {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorised => "unauthorised",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Stale => "stale",
            Self::Resync => "resync",
            Self::TooLarge => "too_large",
            Self::TooMany => "too_many",
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The status it is sent with.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Unauthorised => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict | Self::Resync => StatusCode::CONFLICT,
            Self::Stale => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Unauthorised => "Not signed in",
            Self::Forbidden => "Not allowed",
            Self::NotFound => "Not found",
            Self::Conflict => "Conflict",
            Self::Stale => "Somebody else was faster",
            Self::Resync => "A whole report is needed",
            Self::TooLarge => "Too large",
            Self::TooMany => "Too many",
            Self::Invalid => "Invalid",
            Self::Unavailable => "Not now",
            Self::Internal => "A mistake of the hub",
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which kind.
    pub code: ProblemCode,
    /// What, in a sentence.
    pub detail: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Mistakes in a document, each with its place.
    pub diagnostics: Vec<String>,
    /// What somebody else changed meanwhile, guest by guest.
    pub difference: Option<serde_json::Value>,
}

impl Problem {
    /// A refusal with its sentence.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { code, detail, hint: None, diagnostics: Vec::new(), difference: None }
    }

    /// Adds the next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Nobody knows who asks. One sentence for every reason, so that nothing can be learnt from it.
    pub fn unauthorised() -> Self {
        Self::new(ProblemCode::Unauthorised, "the credential is missing or not known")
    }

    /// Whoever asks may not. The same sentence whether the subject exists or not.
    pub fn forbidden() -> Self {
        Self::new(ProblemCode::Forbidden, "not allowed, or no such thing in your scope")
    }

    /// What is asked for is not there.
    pub fn not_found(what: &str) -> Self {
        Self::new(ProblemCode::NotFound, format!("{what} does not exist"))
    }

    /// What was sent cannot be read.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::Invalid, detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(problem) => problem,
            StoreError::Busy => Self::new(ProblemCode::Unavailable, "the hub is busy")
                .hint("try again in a few seconds"),
            error @ (StoreError::Database(_)
            | StoreError::Url(_)
            | StoreError::Newer { .. }
            | StoreError::InUse(_)
            | StoreError::File(_)
            | StoreError::Damaged(_)
            | StoreError::Archive(_)) => {
                tracing::error!(%error, "the store failed");
                Self::new(ProblemCode::Unavailable, "the hub cannot reach its database")
                    .hint("nothing was kept; try again")
            }
        }
    }
}

/// The seconds after which a refused client may try again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct WrittenProblem<'a> {
            r#type: &'static str,
            title: &'static str,
            status: u16,
            detail: &'a str,
            code: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            diagnostics: &'a [String],
            #[serde(skip_serializing_if = "Option::is_none")]
            difference: Option<&'a serde_json::Value>,
        }
        let status = self.code.status();
        let written = WrittenProblem {
            r#type: "about:blank",
            title: self.code.title(),
            status: status.as_u16(),
            detail: &self.detail,
            code: self.code.as_str(),
            hint: self.hint.as_deref(),
            diagnostics: &self.diagnostics,
            difference: self.difference.as_ref(),
        };
        let body = serde_json::to_vec(&written).expect("texts and numbers are JSON");
        let mut response = (status, Body::from(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(self.code, ProblemCode::TooMany | ProblemCode::Unavailable) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.code == ProblemCode::Unauthorised {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
