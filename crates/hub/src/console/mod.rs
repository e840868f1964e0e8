//! The console: pages for the person on call. What is out of line, why, who did what, and what waits for a signature.
//!
//! ```text
//!   table row ──> access ──> page: reads the store, fills a template ──> HTML
//!                       └──> form: does what the interface does, then sends the browser to a page
//! ```
//!
//! Pages are rendered here and can be read without script; script makes them live. Every text is escaped by the templates,
//! whoever wrote it: hosts and guests are strangers. Nothing here verifies anything or ever sees a private key: what a page
//! shows of an item is what a host said, and only `evenkeel approve` on the operator's own machine can hold it against a pin.

mod accounts;
mod approvals;
mod assets;
mod audit;
mod documents;
mod drafts;
mod edit;
mod enrol_tokens;
mod entry;
mod fleet;
mod form;
mod guest;
mod host;
mod labels;
mod line_diff;
mod overtaken;
mod restore;
mod shell;
mod timeline;
mod words;

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

pub(crate) use form::FormFields;

use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, RouteRow};

/// What a page may load and do: its own files, and nothing that is written into it.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The rows of the console.
pub(crate) fn rows() -> Vec<RouteRow> {
    [
        entry::rows(),
        assets::rows(),
        fleet::rows(),
        host::rows(),
        guest::rows(),
        documents::rows(),
        edit::rows(),
        restore::rows(),
        drafts::rows(),
        approvals::rows(),
        audit::rows(),
        labels::rows(),
        enrol_tokens::rows(),
        accounts::rows(),
    ]
    .concat()
}

/// A page.
fn page(template: &impl Template) -> Answer {
    page_with(StatusCode::OK, template)
}

/// A page that says that something did not go as meant.
fn page_with(status: StatusCode, template: &impl Template) -> Answer {
    let text = template
        .render()
        .map_err(|_| Problem::new(ProblemCode::Internal, "the page cannot be written"))?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    // With `no-referrer` browsers name no origin in what a form sends, and it would be refused as forged.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    Ok(response)
}

/// Sends the browser on after a form, so that loading again sends nothing twice.
fn see(path: &str) -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::from_str(path)
        .map_err(|_| Problem::new(ProblemCode::Internal, "the page has no address"))?;
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

/// A refusal as a page.
#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    version: &'static str,
    is_stranger: bool,
    title: &'static str,
    problem: &'a Problem,
}

/// A refusal as a page.
pub(crate) fn problem_page(problem: &Problem) -> Response {
    let title = match problem.code {
        ProblemCode::Unauthorised => "Not logged in",
        ProblemCode::Forbidden => "Not allowed",
        ProblemCode::NotFound => "Not found",
        ProblemCode::Conflict | ProblemCode::Resync => "It contradicts what is there",
        ProblemCode::Stale => "Someone else changed it first",
        ProblemCode::TooLarge | ProblemCode::TooMany => "Too much",
        ProblemCode::Invalid => "It cannot be taken so",
        ProblemCode::Unavailable => "Not now",
        ProblemCode::Internal => "A mistake of the hub",
    };
    let template = ProblemPage {
        version: assets::version(),
        is_stranger: problem.code == ProblemCode::Unauthorised,
        title,
        problem,
    };
    match page_with(problem.code.status(), &template) {
        Ok(response) => response,
        Err(problem) => axum::response::IntoResponse::into_response(problem),
    }
}
