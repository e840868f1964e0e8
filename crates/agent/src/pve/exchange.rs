//! The seam: one HTTP exchange with Proxmox VE, as values.
//!
//! The typed client builds a [`HttpRequest`] and reads an [`ExchangeOutcome`]; between them stands an
//! [`Exchange`]: the real transport (`http`), or a simulator in the same process. A request never
//! holds the token: whoever carries it adds the token.

use std::fmt;
use std::pin::Pin;

use super::error::{NotSent, Unknown};
use super::form::{Form, Query, encode};

/// Carries one request and says what came of it.
pub trait Exchange: Send + Sync {
    /// Carries `request`. Must answer `NotSent` only if no byte of it can have reached the server,
    /// and `Unknown` whenever it may have and no whole answer came back.
    fn exchange(&self, request: HttpRequest) -> ExchangeFuture<'_>;
}

/// What [`Exchange::exchange`] returns; boxed so that a client is one type over any exchange.
pub type ExchangeFuture<'a> = Pin<Box<dyn Future<Output = ExchangeOutcome> + Send + 'a>>;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// Nothing reached the server; sending again is harmless.
    NotSent(NotSent),
    /// A whole answer came back.
    Answered(HttpAnswer),
    /// It may have been executed; only the world can tell.
    Unknown(Unknown),
}

/// An answer, as far as the client looks at it.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The reason phrase. Up to PVE 8.2 it is the only place that holds the error text.
    pub reason: String,
    /// The `Date` header as it was sent.
    pub date: Option<String>,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// Without the body, which may hold anything an operator put into a guest's config.
impl fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAnswer")
            .field("status", &self.status)
            .field("reason", &self.reason)
            .field("date", &self.date)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// The methods PVE's API knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or starts something.
    Post,
    /// Changes something.
    Put,
    /// Removes something.
    Delete,
}

impl Method {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// One call, ready to be carried.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    method: Method,
    path: ApiPath,
    parameters: Form,
    answer_max_bytes: usize,
}

/// The largest answer to a call about one thing: PVE itself takes no config above 512 KiB.
pub(crate) const ANSWER_MAX_BYTES: usize = 2 * 1024 * 1024;

/// The largest answer that lists things: 10,000 guests are about 6 MB, and a storage may hold
/// several volumes for each.
pub(crate) const LIST_ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// PVE's own limit on a request body from 8.4 on (64 KiB before). Sending more risks a reset in
/// the middle, which would be an unknown outcome.
pub(crate) const BODY_MAX_BYTES: usize = 512 * 1024;

/// PVE reads at most 8 KiB of headers; the target must leave room for the token and the rest.
pub(crate) const TARGET_MAX_BYTES: usize = 6 * 1024;

/// A digest as PVE spells one, of nothing.
const STALE_DIGEST: &str = "0000000000000000000000000000000000000000";

impl HttpRequest {
    /// A read.
    pub fn get(path: ApiPath, query: Query) -> Self {
        Self::new(Method::Get, path, query.into_form())
    }

    /// A read that answers with a list.
    pub fn list(path: ApiPath, query: Query) -> Self {
        let answer_max_bytes = LIST_ANSWER_MAX_BYTES;
        Self { answer_max_bytes, ..Self::get(path, query) }
    }

    /// A POST with a form body.
    pub fn post(path: ApiPath, form: Form) -> Self {
        Self::new(Method::Post, path, form)
    }

    /// A PUT with a form body.
    pub fn put(path: ApiPath, form: Form) -> Self {
        Self::new(Method::Put, path, form)
    }

    /// A DELETE; PVE takes its parameters in the query string only.
    pub fn delete(path: ApiPath, query: Query) -> Self {
        Self::new(Method::Delete, path, query.into_form())
    }

    fn new(method: Method, path: ApiPath, parameters: Form) -> Self {
        Self { method, path, parameters, answer_max_bytes: ANSWER_MAX_BYTES }
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// True if executing it twice is the same as once, and changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self.method, Method::Get)
    }

    /// Path and query as they stand in the request line, from `/api2/json` on.
    pub fn target(&self) -> String {
        let path = format!("/api2/json{}", self.path);
        match self.method {
            Method::Get | Method::Delete if !self.parameters.is_empty() => {
                format!("{path}?{}", self.parameters.encoded())
            }
            Method::Get | Method::Delete | Method::Post | Method::Put => path,
        }
    }

    /// The form body of a POST or PUT (possibly empty); a GET or DELETE has none.
    pub fn body(&self) -> Option<String> {
        match self.method {
            Method::Post | Method::Put => Some(self.parameters.encoded()),
            Method::Get | Method::Delete => None,
        }
    }

    /// An answer above this size is not read further.
    pub(crate) fn answer_max_bytes(&self) -> usize {
        self.answer_max_bytes
    }

    /// The call in words, for errors: method and path, no parameters.
    pub fn call(&self) -> String {
        format!("{} {}", self.method.as_str(), self.path)
    }

    /// The same write with a digest that no configuration has; none if it carries none. For `selftest`, which wants to
    /// see the node refuse it: a write that was cleared becomes one that is refused, and never another one.
    pub fn with_stale_digest(mut self) -> Option<Self> {
        self.parameters.replace("digest", STALE_DIGEST).then_some(self)
    }

    pub(super) fn parameters(&self) -> &Form {
        &self.parameters
    }
}

/// A path below `/api2/json`, each segment encoded.
///
/// Only this crate builds paths, and only from checked names: a segment `..` would be folded away
/// by every URL library and the call would land elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiPath(String);

impl ApiPath {
    pub(super) fn new<const N: usize>(segments: [&str; N]) -> Self {
        Self(String::new()).join(segments)
    }

    pub(super) fn join<const N: usize>(mut self, segments: [&str; N]) -> Self {
        debug_assert!(segments.iter().all(|segment| !matches!(*segment, "" | "." | "..")));
        for segment in segments {
            self.0.push('/');
            self.0.push_str(&encode(segment));
        }
        self
    }
}

impl fmt::Display for ApiPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_carries_its_parameters_in_the_query_and_a_put_in_the_body() {
        let path = ApiPath::new(["nodes", "pve1", "lxc", "100"]);
        let delete = HttpRequest::delete(path.clone(), Query::new().with_flag("purge", true));
        assert_eq!(delete.target(), "/api2/json/nodes/pve1/lxc/100?purge=1");
        assert_eq!(delete.body(), None);
        let put = HttpRequest::put(path, Form::new().with("tags", "a;b"));
        assert_eq!(put.target(), "/api2/json/nodes/pve1/lxc/100");
        assert_eq!(put.body().as_deref(), Some("tags=a%3Bb"));
    }

    #[test]
    fn a_task_id_is_encoded_in_a_path() {
        let path = ApiPath::new(["tasks", "UPID:a:1:a@pve!t:"]);
        assert_eq!(path.to_string(), "/tasks/UPID%3Aa%3A1%3Aa%40pve%21t%3A");
    }
}
