//! One request as a handler sees it: who asks, what the path and query say, and the whole body, within its limits.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::RequestPartsExt as _;
use axum::body::Body;
use axum::extract::{Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;

use crate::access::{self, Caller, Person};
use crate::body_budget::BodyRoom;
use crate::caller_gate::CallerPlace;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Hub, NO_BODY, RouteRow, RowFace, RowPace};
use crate::server::ConnectionMark;
use crate::store::LinkRow;

/// How long a body may take to arrive: a megabyte at 300 kbit/s.
const BODY_TIME_MAX: Duration = Duration::from_secs(27);
/// How long a body of whoever has shown nothing yet may take: it is a few kilobytes.
const STRANGERS_BODY_TIME_MAX: Duration = Duration::from_secs(5);
/// The most names in a query.
const QUERY_NAMES_MAX: usize = 32;

/// A request that may be answered.
pub struct Call {
    /// Who asks.
    pub caller: Caller,
    /// How it is asked.
    pub method: Method,
    /// What stands in the path's braces.
    pub path: BTreeMap<String, String>,
    /// What stands behind the question mark.
    pub query: BTreeMap<String, String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, whole.
    pub body: Bytes,
    /// Where it comes from: a client's address, or that of a proxy.
    pub address: Option<String>,
    /// Whether it was made on the hub's own machine.
    pub(crate) is_local: bool,
    /// Where the telling of changes stood before anything was read for the answer: a page is live from there.
    pub live_from: String,
    /// What the request takes of the hub, as long as it is under way.
    _places: CallPlaces,
}

/// What a request takes of the hub: a place among those of its caller, and room for its body.
#[derive(Default)]
struct CallPlaces {
    _request: Option<CallerPlace>,
    _body: Option<BodyRoom>,
}

impl Call {
    /// The host that asks. Only rows of hosts may call it.
    pub fn host(&self) -> &LinkRow {
        match &self.caller {
            Caller::Host(host) => host,
            Caller::Anyone | Caller::Person(_) => unreachable!("the row is for hosts"),
        }
    }

    /// The person who asks. Only rows of people may call it.
    pub fn person(&self) -> &Person {
        match &self.caller {
            Caller::Person(person) => person,
            Caller::Anyone | Caller::Host(_) => unreachable!("the row is for people"),
        }
    }

    /// A part of the path.
    pub fn part(&self, name: &str) -> Result<&str, Problem> {
        let part = self.path.get(name).map(String::as_str);
        part.ok_or_else(|| Problem::invalid(format!("the path has no {name}")))
    }

    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::invalid(format!("the body cannot be read: {error}")))
    }

    /// A number in the query; what stands there instead if it is missing.
    pub fn number(&self, name: &str, missing: i64) -> Result<i64, Problem> {
        let Some(text) = self.query.get(name) else { return Ok(missing) };
        let number: Option<i64> = text.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| Problem::invalid(format!("`{name}` is not a number")))
    }
}

/// Reads a request by its row: first who asks, then the rest.
pub(crate) async fn read(hub: &Hub, row: &RouteRow, request: Request) -> Result<Call, Problem> {
    let (mut parts, body) = request.into_parts();
    let live_from = match row.face {
        RowFace::Page => hub.store().changes().mark(),
        RowFace::Program | RowFace::Form => String::new(),
    };
    let path = parts.extract::<Path<BTreeMap<String, String>>>().await;
    let path =
        path.map(|Path(path)| path).map_err(|_| Problem::invalid("the path cannot be read"))?;
    let host_in_path = path.get("host").map(String::as_str);
    let caller =
        access::caller(hub, (row.access, row.face), (&parts.method, &parts.headers), host_in_path)
            .await?;
    let mark = parts.extensions.get::<ConnectionMark>();
    let request = enter(hub, row, &caller, mark)?;
    let query = read_query(&mut parts).await?;
    // No name has any, and PostgreSQL takes no text with a NUL: that would look like a database that is away.
    if path.values().chain(query.values()).any(|text| text.contains(char::is_control)) {
        return Err(Problem::invalid("the path or the query holds a control character"));
    }
    let (body, room) = read_body(hub, row, &caller, (&parts.headers, body)).await?;
    access::demand_form_token(hub, row.face, &caller, (&parts.headers, &body))?;
    let address =
        parts.extensions.get::<ConnectionMark>().map(|mark| mark.client_group(&parts.headers));
    let is_local =
        parts.extensions.get::<ConnectionMark>().is_some_and(|mark| mark.is_local(&parts.headers));
    let method = parts.method;
    let headers = parts.headers;
    let places = CallPlaces { _request: request, _body: room };
    Ok(Call {
        caller,
        method,
        path,
        query,
        headers,
        body,
        address,
        is_local,
        live_from,
        _places: places,
    })
}

/// What stands behind the question mark, each name once.
async fn read_query(parts: &mut Parts) -> Result<BTreeMap<String, String>, Problem> {
    let query = parts.extract::<Query<Vec<(String, String)>>>().await;
    let Query(pairs) = query.map_err(|_| Problem::invalid("the query cannot be read"))?;
    if pairs.len() > QUERY_NAMES_MAX {
        return Err(Problem::invalid("the query has too many names"));
    }
    let count = pairs.len();
    let query: BTreeMap<String, String> = pairs.into_iter().collect();
    if query.len() != count {
        return Err(Problem::invalid("the query repeats a name"));
    }
    Ok(query)
}

/// The body, whole, in its time and within its limit, with the room it takes.
async fn read_body(
    hub: &Hub,
    row: &RouteRow,
    caller: &Caller,
    (headers, body): (&HeaderMap, Body),
) -> Result<(Bytes, Option<BodyRoom>), Problem> {
    let time_max = match caller {
        Caller::Host(_) | Caller::Person(_) => BODY_TIME_MAX,
        Caller::Anyone => STRANGERS_BODY_TIME_MAX,
    };
    let collected = tokio::time::timeout(time_max, async {
        let room = match room_for(row, headers) {
            NO_BODY => None,
            bytes => Some(hub.bodies().take(caller, bytes).await),
        };
        Limited::new(body, row.body_max).collect().await.map(|body| (body, room))
    });
    match collected.await {
        Ok(Ok((body, room))) => Ok((body.to_bytes(), room)),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let detail = format!("the body is larger than {} bytes", row.body_max);
            Err(Problem::new(ProblemCode::TooLarge, detail))
        }
        Ok(Err(_)) => Err(Problem::invalid("the body did not arrive whole")),
        Err(_) => Err(Problem::new(ProblemCode::Unavailable, "the body took too long to arrive")),
    }
}

/// Lets a caller in, before anything it sent is read. Its connection is known from now on, unless it is one too many of it.
fn enter(
    hub: &Hub,
    row: &RouteRow,
    caller: &Caller,
    mark: Option<&ConnectionMark>,
) -> Result<Option<CallerPlace>, Problem> {
    let gates = hub.gates();
    let (name, connections, requests) = match caller {
        Caller::Anyone => return Ok(None),
        Caller::Host(host) => (&host.id, &gates.host_connections, &gates.host_requests),
        Caller::Person(person) => {
            (&person.account.name, &gates.person_connections, &gates.person_requests)
        }
    };
    match (row.pace, caller, mark) {
        // There is one poll of a host at a time, and its connection with it.
        (RowPace::Waits, Caller::Host(_), Some(mark)) => mark.polls(),
        (RowPace::Waits | RowPace::Prompt, _, Some(mark)) => mark.known(connections, name)?,
        (RowPace::Waits | RowPace::Prompt, _, None) => {}
    }
    match row.pace {
        RowPace::Prompt => Ok(Some(requests.enter(name)?)),
        RowPace::Waits => Ok(None),
    }
}

/// How much room a body needs: what its sender says, and at most what the row takes.
fn room_for(row: &RouteRow, headers: &HeaderMap) -> usize {
    let announced = headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    announced.unwrap_or(row.body_max).min(row.body_max)
}
