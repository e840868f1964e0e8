//! What is answered: status, reason phrase and body, in the shape of the release.
//!
//! Handlers return a [`ReplyFailure`] or a value; this module turns either into the wire's form.

use evenkeel_core::model::release::Release;
use serde_json::{Map, Value, json};

use crate::schema::Errors;

/// One answer, ready for a front to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The reason phrase; before 8.4 the only place of an error's text.
    pub reason: String,
    /// The body.
    pub body: ReplyBody,
    /// Whether the server closes the connection after this answer.
    pub close: bool,
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyBody {
    /// Nothing, and no content type.
    Empty,
    /// `application/json;charset=UTF-8`.
    Json(Value),
    /// Text without a content type, as PVE sends it for failures below its API.
    Text(String),
    /// A file to save.
    Download(String),
}

impl Reply {
    pub(crate) fn plain(status: u16, message: &str) -> Self {
        let reason = first_line(message);
        Self { status, reason, body: ReplyBody::Text(message.to_owned()), close: true }
    }

    /// A Perl error outside the API: 500, the text as body with its newline.
    pub(crate) fn died_plain(message: &str) -> Self {
        Self { body: ReplyBody::Text(format!("{message}\n")), ..Self::plain(500, message) }
    }

    pub(crate) fn empty(status: u16, reason: &str) -> Self {
        Self { status, reason: reason.to_owned(), body: ReplyBody::Empty, close: true }
    }

    /// The JSON body, if it is one.
    pub fn json(&self) -> Option<&Value> {
        match &self.body {
            ReplyBody::Json(value) => Some(value),
            ReplyBody::Empty | ReplyBody::Text(_) | ReplyBody::Download(_) => None,
        }
    }
}

/// Why a handler did not give a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplyFailure {
    /// `die` in Perl: 500 with the text.
    Died(String),
    /// 500 that carries an `errors` object all the same.
    DiedWith(String, Errors),
    /// 400 `Parameter verification failed.`
    Params(Errors),
    /// 403; the text stands in brackets unless it is empty.
    Denied(String),
    /// 501 for a path or method that does not exist.
    NoMethod(String),
    /// 401 from the login call.
    Unauthorised(String),
    /// Not an answer yet: the guest's file lock is held by somebody else.
    Locked { guest: evenkeel_core::model::id::GuestId, timeout_ms: u64 },
    /// Not an answer yet: the call waits for a task it forked.
    Awaits { upid: String, for_ms: u64, failed: String },
}

impl ReplyFailure {
    pub(crate) fn param(name: &str, message: impl Into<String>) -> Self {
        Self::Params(Errors::from([(name.to_owned(), message.into())]))
    }

    /// The words of it, where a task fails with what a handler would have refused.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Params(errors) => errors.into_values().collect::<Vec<_>>().join(" "),
            Self::Died(text)
            | Self::DiedWith(text, _)
            | Self::Denied(text)
            | Self::NoMethod(text)
            | Self::Unauthorised(text)
            | Self::Awaits { failed: text, .. } => text,
            Self::Locked { .. } => "got timeout".to_owned(),
        }
    }

    pub(crate) fn died(message: impl Into<String>) -> Self {
        Self::Died(message.into())
    }
}

/// What a handler gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Success {
    Data(Value),
    /// Data with `total` beside it.
    Listed {
        data: Value,
        total: Option<usize>,
    },
    Download(String),
}

impl From<Value> for Success {
    fn from(data: Value) -> Self {
        Self::Data(data)
    }
}

/// Which of PVE's formatters the path chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Formatter {
    Json,
    Extjs,
    Html,
}

/// The wire form of a result. `Locked` and `Awaits` are the engine's and become a plain 500 here.
pub(crate) fn render(
    result: Result<Success, ReplyFailure>,
    formatter: Formatter,
    release: Release,
) -> Reply {
    let failure = match result {
        Ok(success) => return render_success(success, formatter),
        Err(failure) => failure,
    };
    let (status, message, errors) = match failure {
        ReplyFailure::Died(text) => (500, line(&text), None),
        ReplyFailure::DiedWith(text, errors) => (500, line(&text), Some(errors)),
        ReplyFailure::Params(errors) => {
            (400, "Parameter verification failed.\n".to_owned(), Some(errors))
        }
        ReplyFailure::Denied(text) if text.is_empty() => {
            (403, "Permission check failed\n".into(), None)
        }
        ReplyFailure::Denied(text) => (403, format!("Permission check failed ({text})\n"), None),
        ReplyFailure::NoMethod(text) => (501, text, None),
        ReplyFailure::Unauthorised(text) => (401, line(&text), None),
        ReplyFailure::Locked { .. } => (500, "got timeout\n".to_owned(), None),
        ReplyFailure::Awaits { .. } => (500, "task did not end\n".to_owned(), None),
    };
    let mut body = Map::from_iter([("data".to_owned(), Value::Null)]);
    if let Some(errors) = errors {
        body.insert("errors".to_owned(), json!(errors));
    }
    if release >= Release::V8_4 || formatter == Formatter::Extjs {
        body.insert("message".to_owned(), json!(message));
    }
    if formatter == Formatter::Extjs && status != 401 {
        body.insert("success".to_owned(), json!(0));
        // PVE hands the number over as it got it: text from exceptions, an integer from everything else.
        let shown =
            if matches!(status, 400 | 403) { json!(status.to_string()) } else { json!(status) };
        body.insert("status".to_owned(), shown);
        return Reply {
            status: 200,
            reason: "OK".into(),
            body: ReplyBody::Json(body.into()),
            close: false,
        };
    }
    Reply { status, reason: first_line(&message), body: ReplyBody::Json(body.into()), close: true }
}

fn render_success(success: Success, formatter: Formatter) -> Reply {
    let ok = |body| Reply { status: 200, reason: "OK".into(), body, close: false };
    let (data, total) = match success {
        Success::Data(data) => (data, None),
        Success::Listed { data, total } => (data, total),
        Success::Download(text) => return ok(ReplyBody::Download(text)),
    };
    if formatter == Formatter::Html {
        return ok(ReplyBody::Text(format!(
            "<!DOCTYPE html>\n<html><body><pre>{data}</pre></body></html>\n"
        )));
    }
    let mut body = Map::from_iter([("data".to_owned(), data)]);
    if let Some(total) = total {
        body.insert("total".to_owned(), json!(total));
    }
    if formatter == Formatter::Extjs {
        body.insert("success".to_owned(), json!(1));
    }
    ok(ReplyBody::Json(body.into()))
}

fn line(text: &str) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_is_in_the_body_only_from_8_4_on() {
        let died = || Err(ReplyFailure::died("no options specified"));
        let old = render(died(), Formatter::Json, Release::V7_4);
        assert_eq!(old.json(), Some(&json!({"data": null})));
        assert_eq!(old.reason, "no options specified");
        let new = render(died(), Formatter::Json, Release::V8_4);
        assert_eq!(new.json(), Some(&json!({"data": null, "message": "no options specified\n"})));
        assert!(new.close);
    }

    #[test]
    fn extjs_always_answers_200() {
        let denied = Err(ReplyFailure::Denied("/vms/100, VM.Audit".into()));
        let reply = render(denied, Formatter::Extjs, Release::V7_4);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json().map(|body| &body["status"]), Some(&json!("403")));
    }
}
