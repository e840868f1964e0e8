//! The one table of what can be asked: method, path, who may, how much may be sent, how long it may take, who answers.
//!
//! The router, the checks before each handler and the description of the interface are made from it. `.route(` occurs
//! nowhere else: a request that no row names is answered with 404, and a row without a rule cannot be written.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::access::Access;
use crate::body_budget::BodyBudget;
use crate::call::{self, Call};
use crate::caller_gate::HubGates;
use crate::metrics::HubMetrics;
use crate::openapi::{self, SchemaOf};
use crate::people::{self, PeopleState};
use crate::problem::{Problem, ProblemCode};
use crate::secret_text::SecretHash;
use crate::server::ConnectionMark;
use crate::store::HubStore;
use crate::wake::WakeTable;
use crate::{agent_api, console, health};

/// The largest body of a request that has none.
pub const NO_BODY: usize = 0;
/// The largest body of an agent's request.
pub const AGENT_BODY_BYTES_MAX: usize = 1024 * 1024;
/// For how long browsers are told to come by TLS alone: a year.
const TRANSPORT_SECURITY: &str = "max-age=31536000";
/// How long an ordinary request may take.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// What all handlers share. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    state: Arc<HubState>,
}

struct HubState {
    store: HubStore,
    public_url: String,
    wakes: WakeTable,
    gates: HubGates,
    bodies: BodyBudget,
    metrics: HubMetrics,
    people: PeopleState,
    metrics_token: OnceLock<SecretHash>,
    stopping: watch::Sender<bool>,
}

impl Hub {
    /// A hub over a store. `public_url` is what people and hosts dial, without a trailing slash.
    pub fn new(store: HubStore, public_url: &str) -> Self {
        let wakes = WakeTable::default();
        let state = HubState {
            store,
            public_url: public_url.trim_end_matches('/').to_owned(),
            wakes,
            gates: HubGates::default(),
            bodies: BodyBudget::default(),
            metrics: HubMetrics::default(),
            people: PeopleState::default(),
            metrics_token: OnceLock::new(),
            stopping: watch::channel(false).0,
        };
        Self { state: Arc::new(state) }
    }

    /// From now on `/metrics` is read with a token, of which this is the hash.
    pub fn demand_metrics_token(&self, token: SecretHash) {
        // The first holds: it is set before the hub serves.
        let _ = self.state.metrics_token.set(token);
    }

    /// The hash of the token that `/metrics` is read with.
    pub(crate) fn metrics_token(&self) -> Option<&SecretHash> {
        self.state.metrics_token.get()
    }

    /// Everything that is kept.
    pub fn store(&self) -> &HubStore {
        &self.state.store
    }

    /// What people and hosts dial.
    pub fn public_url(&self) -> &str {
        &self.state.public_url
    }

    /// Whether the hub is ending.
    pub fn is_stopping(&self) -> bool {
        *self.state.stopping.borrow()
    }

    /// Until the hub ends: whoever waits for long answers then.
    pub async fn stopped(&self) {
        let mut stopping = self.state.stopping.subscribe();
        // It cannot be closed while this hub is there to be asked.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    pub(crate) fn begin_stop(&self) {
        self.state.stopping.send_replace(true);
    }

    /// Who waits for news, and when it was last looked for.
    pub fn wakes(&self) -> &WakeTable {
        &self.state.wakes
    }

    pub(crate) fn gates(&self) -> &HubGates {
        &self.state.gates
    }

    pub(crate) fn bodies(&self) -> &BodyBudget {
        &self.state.bodies
    }

    pub(crate) fn people(&self) -> &PeopleState {
        &self.state.people
    }

    pub(crate) fn metrics(&self) -> &HubMetrics {
        &self.state.metrics
    }
}

/// What a handler answers.
pub type Answer = Result<Response, Problem>;
type Handler = Arc<dyn Fn(Hub, Call) -> BoxFuture<'static, Answer> + Send + Sync>;

/// To whom a row speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFace {
    /// Programs: JSON, and refusals as RFC 9457 says them.
    Program,
    /// A browser that looks: HTML, and refusals as pages.
    Page,
    /// A browser that sends a form: its token against forged requests may stand in the form itself.
    Form,
}

/// How long requests of a row are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPace {
    /// As long as the answer takes: each counts among those its caller has under way.
    Prompt,
    /// Until there is news: its handler counts them.
    Waits,
}

/// One row of the table.
#[derive(Clone)]
pub struct RouteRow {
    /// GET, POST, PUT or DELETE.
    pub method: Method,
    /// The path, as axum writes it: `/v1/hosts/{host}`.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// To whom it speaks.
    pub face: RowFace,
    /// How long its requests are under way.
    pub pace: RowPace,
    /// The largest body.
    pub body_max: usize,
    /// How long the handler may take.
    pub time_max: Duration,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// The names it reads behind the question mark.
    pub query: &'static [&'static str],
    /// What is sent.
    pub body: Option<SchemaOf>,
    /// What is answered; none for no body.
    pub answer: Option<SchemaOf>,
    handler: Handler,
}

impl RouteRow {
    /// A row for an ordinary request.
    pub fn new<H, F>(
        (method, path): (Method, &'static str),
        access: Access,
        body_max: usize,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Fn(Hub, Call) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |hub, call| Box::pin(handler(hub, call)));
        let time_max = REQUEST_TIME_MAX;
        let query = &[][..];
        let body = None;
        let answer = None;
        let face = RowFace::Program;
        let pace = RowPace::Prompt;
        Self {
            method,
            path,
            access,
            face,
            pace,
            body_max,
            time_max,
            summary,
            query,
            body,
            answer,
            handler,
        }
    }

    /// The same row for a browser that looks.
    #[must_use]
    pub fn page(mut self) -> Self {
        self.face = RowFace::Page;
        self
    }

    /// The same row for a browser that sends a form.
    #[must_use]
    pub fn form(mut self) -> Self {
        self.face = RowFace::Form;
        self
    }

    /// The same row, whose requests wait for news.
    #[must_use]
    pub fn waits(mut self) -> Self {
        self.pace = RowPace::Waits;
        self
    }

    /// The same row with the names it reads behind the question mark.
    #[must_use]
    pub fn asks(mut self, query: &'static [&'static str]) -> Self {
        self.query = query;
        self
    }

    /// The same row with what is sent.
    #[must_use]
    pub fn takes(mut self, body: SchemaOf) -> Self {
        self.body = Some(body);
        self
    }

    /// The same row with what is answered.
    #[must_use]
    pub fn answers(mut self, answer: SchemaOf) -> Self {
        self.answer = Some(answer);
        self
    }

    /// The same row with more time.
    #[must_use]
    pub fn within(mut self, time_max: Duration) -> Self {
        self.time_max = time_max;
        self
    }
}

/// Every row there is.
pub fn table() -> Vec<RouteRow> {
    [health::rows(), agent_api::rows(), people::rows(), console::rows(), openapi::rows()].concat()
}

/// The router of the table.
pub fn router(hub: &Hub) -> Router {
    let mut paths: BTreeMap<&'static str, MethodRouter> = BTreeMap::new();
    for row in table() {
        let filter =
            MethodFilter::try_from(row.method.clone()).expect("the table has plain methods");
        let path = row.path;
        let hub = hub.clone();
        let row = Arc::new(row);
        let answer = move |request: Request| answered(hub.clone(), row.clone(), request);
        let known = paths.remove(path).unwrap_or_default();
        paths.insert(path, known.merge(on(filter, answer)));
    }
    let mut router = Router::new();
    for (path, methods) in paths {
        let hub = hub.clone();
        let no_such_method =
            move || async move { unknown(&hub, "this path does not take this method") };
        router = router.route(path, methods.fallback(no_such_method));
    }
    let hub = hub.clone();
    router.fallback(move || async move { unknown(&hub, "this path does not exist") })
}

/// What no row names.
fn unknown(hub: &Hub, detail: &str) -> Response {
    let problem = Problem::new(ProblemCode::NotFound, detail);
    with_headers(hub.public_url(), problem.into_response())
}

/// Runs one row: who asks, then the body, then the handler, each within its limits.
async fn answered(hub: Hub, row: Arc<RouteRow>, request: Request) -> Response {
    let began = hub.metrics().request_began();
    let mark = request.extensions().get::<ConnectionMark>().cloned();
    let answer = tokio::time::timeout(row.time_max, async {
        let call = call::read(&hub, &row, request).await?;
        (row.handler)(hub.clone(), call).await
    });
    let response = match answer.await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => refusal(&row, problem),
        Err(_) => {
            let detail = "the hub took too long to answer";
            refusal(&row, Problem::new(ProblemCode::Unavailable, detail))
        }
    };
    began.ended(row.path, response.status());
    let mut response = with_headers(hub.public_url(), response);
    if mark.is_some_and(|mark| mark.is_one_too_many()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A refusal as whoever asked can read it.
fn refusal(row: &RouteRow, problem: Problem) -> Response {
    match row.face {
        RowFace::Program => problem.into_response(),
        RowFace::Page | RowFace::Form => console::problem_page(&problem),
    }
}

/// What every answer carries: nothing is kept by caches or shown in frames.
fn with_headers(public_url: &str, mut response: Response) -> Response {
    let headers = response.headers_mut();
    // A browser that came by TLS once never tries without it again. What is dialled without it must not say so.
    if public_url.starts_with("https://") {
        let value = HeaderValue::from_static(TRANSPORT_SECURITY);
        headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(value);
    }
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Pages say more; whatever else a browser is tricked into showing does nothing.
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// An answer with a JSON body.
pub fn json(value: &impl serde::Serialize) -> Answer {
    let body = serde_json::to_vec(value)
        .map_err(|_| Problem::new(ProblemCode::Internal, "the answer cannot be written"))?;
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// An answer without a body.
pub fn no_content() -> Answer {
    Ok(axum::http::StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn count_in(directory: &Path, needle: &str) -> usize {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        entries
            .map(|entry| match entry.path() {
                path if path.is_dir() => count_in(&path, needle),
                path => std::fs::read_to_string(path).unwrap_or_default().matches(needle).count(),
            })
            .sum()
    }

    #[test]
    fn a_route_is_made_from_the_table_and_nowhere_else() {
        let call = concat!(".rou", "te(");
        assert_eq!(
            count_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), call),
            1 + 1,
            "here and in the words above"
        );
    }

    #[test]
    fn no_row_stands_twice_and_each_is_bounded() {
        let rows = table();
        for (place, row) in rows.iter().enumerate() {
            let same = |other: &RouteRow| (&other.method, other.path) == (&row.method, row.path);
            assert!(!rows[..place].iter().any(same), "{} {}", row.method, row.path);
            assert!(row.body_max <= 8 * 1024 * 1024 && row.time_max <= Duration::from_secs(75));
            assert!(row.method != Method::GET || row.body_max == NO_BODY, "{}", row.path);
        }
    }
}
