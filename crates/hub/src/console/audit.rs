//! What people did and what hosts did and decided, in one timeline: to be filtered, printed, and taken away as JSON lines.

use std::collections::VecDeque;

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::host::AnchorLine;
use super::page;
use super::shell::{PagePlace, Shell};
use super::words::{Moment, guest_path, host_path, in_path, spoken};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::caller_gate::CallerPlace;
use crate::people::audit::is_seen;
use crate::people::guests::told;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{
    AuditLine, HubTime, PersonRole, TimelineCursor, TimelineFilter, TimelineRow, TimelineSource,
};

/// Lines of one page.
const LINES_PER_PAGE: usize = 100;
/// Lines of one file.
const LINES_PER_FILE: usize = 10_000;
/// Lines that an export holds at a time: of three sources, each line up to 16 KiB.
const LINES_PER_CHUNK: usize = 100;
/// How many lines are read to fill one page of somebody who sees few of them.
const LINES_READ_MAX: usize = 20_000;
/// Rolled back journals that are listed.
const ANCHORS_SHOWN: i64 = 50;
/// How much of a line's detail a page shows.
const DETAIL_CHARS_MAX: usize = 400;

const SOURCES: [TimelineSource; 3] =
    [TimelineSource::People, TimelineSource::Ops, TimelineSource::Decisions];

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::InHandler);
    vec![
        RouteRow::new(
            (Method::GET, "/console/audit"),
            see,
            NO_BODY,
            "who did what, as a page",
            audit,
        )
        .asks(&["host", "text", "source", "after"])
        .page(),
        RouteRow::new(
            (Method::GET, "/console/audit/lines"),
            see,
            NO_BODY,
            "who did what, as JSON lines",
            export,
        )
        .asks(&["host", "text", "source"])
        .page(),
    ]
}

/// What is asked for.
struct AuditAsk {
    filter: TimelineFilter,
    source: Option<TimelineSource>,
    cursor: TimelineCursor,
}

fn source_word(source: TimelineSource) -> &'static str {
    match source {
        TimelineSource::People => "people",
        TimelineSource::Ops => "acts",
        TimelineSource::Decisions => "decisions",
    }
}

impl AuditAsk {
    fn read(call: &Call) -> Result<Self, Problem> {
        let asked = |name: &str| call.query.get(name).map_or("", String::as_str);
        let source = match asked("source") {
            "" => None,
            word => Some(
                SOURCES
                    .into_iter()
                    .find(|source| source_word(*source) == word)
                    .ok_or_else(|| Problem::invalid("`source` is people, acts or decisions"))?,
            ),
        };
        let cursor = match asked("after") {
            "" => TimelineCursor::default(),
            text => serde_json::from_str(text)
                .map_err(|_| Problem::invalid("`after` is no place in the audit"))?,
        };
        let filter = TimelineFilter {
            host: asked("host").trim().to_owned(),
            text: asked("text").trim().to_lowercase(),
        };
        Ok(Self { filter, source, cursor })
    }

    /// Lines that a person sees, newest first, and whether there may be more behind its cursor.
    async fn lines(
        &mut self,
        hub: &Hub,
        person: &Person,
        limit: usize,
    ) -> Result<(Vec<TimelineRow>, bool), Problem> {
        let mut found = Vec::new();
        let mut read = 0;
        let batch = i64::try_from(limit).unwrap_or(500);
        loop {
            let mut sources = Vec::new();
            for source in SOURCES {
                if self.source.is_none_or(|only| only == source) {
                    let lines = hub.store().timeline(source, &self.cursor, &self.filter, batch);
                    sources.push(VecDeque::from(lines.await?));
                }
            }
            let rows: usize = sources.iter().map(VecDeque::len).sum();
            let is_last = i64::try_from(rows).unwrap_or(i64::MAX) < batch;
            let rows = newest_first(sources, limit);
            read += rows.len();
            for row in rows {
                self.cursor.pass(&row);
                if is_told(person, &row) {
                    found.push(row);
                }
                if found.len() == limit {
                    return Ok((found, true));
                }
            }
            if is_last {
                return Ok((found, false));
            }
            if read > LINES_READ_MAX {
                return Ok((found, true));
            }
        }
    }
}

/// The newest lines of several sources. Each source stays in its own order, by which its cursor goes, also where a clock was
/// set back: a line that was passed over would never be shown.
fn newest_first(mut sources: Vec<VecDeque<TimelineRow>>, limit: usize) -> Vec<TimelineRow> {
    let mut rows = Vec::new();
    while rows.len() < limit {
        let newest = sources.iter_mut().filter(|lines| !lines.is_empty());
        let Some(newest) = newest.max_by_key(|lines| lines.front().map(|row| row.at)) else {
            break;
        };
        rows.extend(newest.pop_front());
    }
    rows
}

/// Whether a line is a person's to see.
fn is_told(person: &Person, row: &TimelineRow) -> bool {
    match row.source {
        TimelineSource::People => {
            let TimelineRow { serial, at, who, act, subject, .. } = row.clone();
            let line = AuditLine { serial, at, who, act, subject, detail: String::new() };
            is_seen(person, &line)
        }
        TimelineSource::Ops | TimelineSource::Decisions => person.sees(&row.host),
    }
}

/// A line as it is shown.
struct ShownLine {
    at: Moment,
    source: &'static str,
    who: String,
    who_path: Option<String>,
    act: String,
    subject: String,
    subject_path: Option<String>,
    detail: String,
}

impl ShownLine {
    fn new(row: TimelineRow, now: HubTime) -> Self {
        let is_host = row.source != TimelineSource::People;
        let about_host = ["host.", "document.", "draft.", "envelope."]
            .iter()
            .any(|prefix| row.act.starts_with(prefix));
        let subject_path = match row.source {
            TimelineSource::People if about_host => Some(host_path(&row.subject)),
            TimelineSource::People => None,
            TimelineSource::Ops | TimelineSource::Decisions => guest_path(&row.host, &row.subject),
        };
        Self {
            at: Moment::new(row.at, now),
            source: source_word(row.source),
            who_path: is_host.then(|| host_path(&row.host)),
            act: if is_host { spoken(&row.act) } else { row.act.clone() },
            detail: detail(&row),
            who: row.who,
            subject: row.subject,
            subject_path,
        }
    }
}

/// What is told beside who, what and to what.
fn detail(row: &TimelineRow) -> String {
    let text = match row.source {
        TimelineSource::People => row.detail.clone(),
        TimelineSource::Ops => {
            let told: Value = told(&row.detail);
            let signer = told["signer"].as_str().map(|name| format!("signed by {name}"));
            let parts = [
                text_of(&told, "state"),
                signer,
                text_of(&told, "reason"),
                text_of(&told, "outcome"),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
        TimelineSource::Decisions => {
            let told: Value = told(&row.detail);
            let signer = told["signer"].as_str().map(|name| format!("signed by {name}"));
            let parts = [text_of(&told, "op"), text_of(&told, "detail"), signer];
            parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
    };
    let cut: String = text.chars().take(DETAIL_CHARS_MAX).collect();
    if cut.len() == text.len() { text } else { format!("{cut}…") }
}

fn text_of(told: &Value, name: &str) -> Option<String> {
    told[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A choice of the filter.
struct SourceChoice {
    value: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    shell: Shell,
    host: String,
    text: String,
    sources: Vec<SourceChoice>,
    lines: Vec<ShownLine>,
    next: Option<String>,
    first: Option<String>,
    export: String,
    anchors: Vec<AnchorLine>,
    printed_at: String,
}

async fn audit(hub: Hub, call: Call) -> Answer {
    let mut ask = AuditAsk::read(&call)?;
    let now = HubTime::now();
    let person = call.person();
    let chosen = ask.source;
    let host = ask.filter.host.clone();
    let (lines, more) = ask.lines(&hub, person, LINES_PER_PAGE).await?;
    let next = more.then_some(ask.cursor);
    let anchors = if host.is_empty() {
        hub.store().anchors_rolled_back(ANCHORS_SHOWN).await?
    } else {
        hub.store().anchor_row(&host).await?.into_iter().collect()
    };
    let anchors = anchors.into_iter().filter(|row| person.sees(&row.host));
    let next = next.map(|cursor| {
        let place = serde_json::to_string(&cursor).expect("numbers and texts are JSON");
        filtered_path("/console/audit", &call, &place)
    });
    let is_later = call.query.contains_key("after");
    let address = filtered_path("/console/audit", &call, "");
    let source = |source: TimelineSource| SourceChoice {
        value: source_word(source),
        chosen: chosen == Some(source),
    };
    page(&AuditPage {
        shell: Shell::new(&hub, &call, PagePlace::Audit, "Audit", address.clone()).await?,
        host,
        text: call.query.get("text").cloned().unwrap_or_default(),
        sources: SOURCES.into_iter().map(source).collect(),
        lines: lines.into_iter().map(|row| ShownLine::new(row, now)).collect(),
        next,
        first: is_later.then_some(address),
        export: filtered_path("/console/audit/lines", &call, ""),
        anchors: anchors.map(|row| AnchorLine::new(row, now)).collect(),
        printed_at: Moment::new(now, now).exact,
    })
}

fn filtered_path(path: &str, call: &Call, after: &str) -> String {
    let asked = |name| call.query.get(name).map_or("", String::as_str);
    let pairs = [
        ("host", asked("host")),
        ("text", asked("text")),
        ("source", asked("source")),
        ("after", after),
    ];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", in_path(value))).collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// One line of the file.
#[derive(Serialize)]
struct ExportedLine<'a> {
    at: String,
    source: &'static str,
    serial: i64,
    who: &'a str,
    act: &'a str,
    subject: &'a str,
    detail: Value,
}

/// An export as it goes on. It holds a few lines at a time, whatever it comes to, and a place among its caller's exports.
struct AuditExport {
    hub: Hub,
    call: Call,
    ask: AuditAsk,
    written: usize,
    is_over: bool,
    _places: (OwnedSemaphorePermit, CallerPlace),
}

impl AuditExport {
    /// The next lines; none at the end. An export that fails half way breaks off, so that no browser takes it for whole.
    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        if self.is_over {
            return None;
        }
        let person = self.call.person();
        let (lines, more) = match self.ask.lines(&self.hub, person, LINES_PER_CHUNK).await {
            Ok(read) => read,
            Err(problem) => return Some(Err(problem)),
        };
        let mut text = String::new();
        for row in &lines {
            text.push_str(&exported(row));
        }
        self.written += lines.len();
        self.is_over = !more || self.written >= LINES_PER_FILE;
        if self.is_over && more {
            // A file that was cut must not look whole.
            text.push_str(
                "{\"cut\":\"older lines are left out; filter, or ask the interface for pages\"}\n",
            );
        }
        Some(Ok(Bytes::from(text)))
    }
}

fn exported(row: &TimelineRow) -> String {
    let line = ExportedLine {
        at: row.at.to_text(),
        source: source_word(row.source),
        serial: row.serial,
        who: &row.who,
        act: &row.act,
        subject: &row.subject,
        detail: match row.source {
            TimelineSource::People => Value::String(row.detail.clone()),
            TimelineSource::Ops | TimelineSource::Decisions => told(&row.detail),
        },
    };
    let text = serde_json::to_string(&line).expect("texts and values are JSON");
    format!("{text}\n")
}

async fn export(hub: Hub, call: Call) -> Answer {
    let own_place = hub.gates().exports.enter(&call.person().account.name)?;
    let place = hub.people().exports.clone().try_acquire_owned().map_err(|_| {
        Problem::new(ProblemCode::TooMany, "too many exports are being written at this moment")
            .hint("try again in a minute")
    })?;
    let ask = AuditAsk::read(&call)?;
    let export =
        AuditExport { hub, call, ask, written: 0, is_over: false, _places: (place, own_place) };
    let chunks = stream::unfold(export, |mut export| async move {
        let chunk = export.next().await?;
        // After a mistake there is nothing more to say.
        export.is_over |= chunk.is_err();
        Some((chunk.map_err(|problem| std::io::Error::other(problem.detail)), export))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    let name = HeaderValue::from_static("attachment; filename=\"evenkeel-audit.jsonl\"");
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(source: TimelineSource, serial: i64, at: i64) -> TimelineRow {
        let [host, who, act, subject, detail] = Default::default();
        TimelineRow { source, at: HubTime(at), host, serial, who, act, subject, detail }
    }

    #[test]
    fn a_clock_that_was_set_back_hides_no_line() {
        let people = [row(TimelineSource::People, 10, 5), row(TimelineSource::People, 9, 8)];
        let ops = [row(TimelineSource::Ops, 3, 7), row(TimelineSource::Ops, 2, 1)];
        let merged = newest_first(vec![people.into(), ops.into()], 10);
        let order: Vec<i64> = merged.iter().map(|row| row.serial).collect();
        assert_eq!(order, [3, 10, 9, 2], "10 before 9, whatever the clock said");
        let mut cursor = TimelineCursor::default();
        merged.iter().take(2).for_each(|row| cursor.pass(row));
        let mut after_ten = TimelineCursor::default();
        after_ten.pass(&row(TimelineSource::People, 10, 5));
        after_ten.pass(&row(TimelineSource::Ops, 3, 7));
        assert_eq!(cursor, after_ten);
    }
}
