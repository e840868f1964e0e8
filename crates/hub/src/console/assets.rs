//! The console's own files: one style sheet, two scripts, one picture. They are part of the binary and never change while
//! it runs, so browsers keep them; a new version of the hub asks for them under another address.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;

use crate::access::Access;
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::secret_text::sha256_hex;

/// Name, kind and content.
const FILES: [(&str, &str, &str); 4] = [
    ("console.css", "text/css; charset=utf-8", include_str!("../../assets/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("../../assets/console.js")),
    // htmx 2.0.11, Zero-Clause BSD: see assets/htmx-LICENSE.
    ("htmx.js", "text/javascript; charset=utf-8", include_str!("../../assets/htmx-2.0.11.min.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: String = FILES.iter().map(|(_, _, text)| *text).collect();
    sha256_hex(all.as_bytes())[..12].to_owned()
});

/// What stands behind the addresses of the files: another one for other files.
pub(super) fn version() -> &'static str {
    &VERSION
}

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/console/static/{file}"),
            Access::Anyone,
            NO_BODY,
            "a file of the console",
            file,
        )
        .asks(&["v"])
        .page(),
    ]
}

async fn file(_: Hub, call: Call) -> Answer {
    let name = call.part("file")?;
    let found = FILES.iter().find(|(known, _, _)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| Problem::not_found("this file"))?;
    let mut response = Response::new(Body::from(*text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if call.query.get("v").map(String::as_str) == Some(version()) {
        let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(header::CACHE_CONTROL, keep);
    }
    Ok(response)
}
