//! Documents of a host: its history, what a push would change, and the push itself.
//!
//! A push names the generation its author saw (`If-Match`); whoever is late is told what somebody else changed. Going back
//! is a push of old content. The hub keeps what it could read, signed or not; whether it is taken is the host's to say.

use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use schemars::SchemaGenerator;

use super::author;
use super::document_check::{between, check};
use super::drafts;
use super::hosts::find;
use super::page::{PAGE_QUERY, before, limit, one_more, page};
use super::wire::{
    CheckAnswer, DocumentBody, FileBody, FilesRequest, GenerationBody, PageBody, PushAnswer,
    PushRequest, SealedBody,
};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json};
use crate::store::{DocumentRow, HostRow, NewDocument, PersonRole, StoredDocument};

/// The largest body with a document: its text as JSON, in which a line end takes two bytes, and as much again for names
/// and the author's statement.
pub(crate) const DOCUMENT_BODY_MAX: usize = 8 * 1024 * 1024;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 1_000;

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::HostInPath);
    let edit = Access::Person(PersonRole::Editor, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/documents"),
            see,
            NO_BODY,
            "the generations of a host, newest first; the ETag is the newest",
            list,
        )
        .asks(PAGE_QUERY)
        .answers(SchemaGenerator::subschema_for::<PageBody<GenerationBody>>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/documents/{generation}"),
            see,
            NO_BODY,
            "one document, whole; the ETag is the newest generation",
            one,
        )
        .answers(SchemaGenerator::subschema_for::<DocumentBody>),
        RouteRow::new(
            (Method::POST, "/v1/hosts/{host}/documents"),
            edit,
            DOCUMENT_BODY_MAX,
            "a new generation; If-Match names the newest that was seen",
            push,
        )
        .takes(SchemaGenerator::subschema_for::<PushRequest>)
        .answers(SchemaGenerator::subschema_for::<PushAnswer>),
        RouteRow::new(
            (Method::POST, "/v1/hosts/{host}/documents/check"),
            edit,
            DOCUMENT_BODY_MAX,
            "what a push would change; nothing is kept",
            check_only,
        )
        .takes(SchemaGenerator::subschema_for::<FilesRequest>)
        .answers(SchemaGenerator::subschema_for::<CheckAnswer>),
    ]
}

async fn list(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let limit = limit(&call)?;
    let rows = hub.store().documents_before(&host.id, before(&call)?, one_more(limit)).await?;
    let body = page(rows, limit, |row| row.generation.to_string(), generation_body);
    Ok(tagged(json(&body)?, host.wanted))
}

async fn one(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let generation = match call.part("generation")? {
        "newest" => host.wanted,
        number => number.parse().map_err(|_| Problem::invalid("the generation is not a number"))?,
    };
    let document = stored(&hub, &host.id, generation).await?;
    let document =
        document.ok_or_else(|| Problem::not_found(&format!("generation {generation}")))?;
    Ok(tagged(json(&document_body(document)?)?, host.wanted))
}

/// The newest document; none for a host that has none yet.
pub(crate) async fn newest(hub: &Hub, host: &HostRow) -> Result<Option<StoredDocument>, Problem> {
    stored(hub, &host.id, host.wanted).await
}

/// One document; none for a generation that is not there.
pub(crate) async fn stored(
    hub: &Hub,
    host: &str,
    generation: i64,
) -> Result<Option<StoredDocument>, Problem> {
    if generation == 0 {
        return Ok(None);
    }
    Ok(hub.store().document(host, generation).await?)
}

async fn check_only(hub: Hub, call: Call) -> Answer {
    let FilesRequest { files, message } = call.json()?;
    check_message(&message)?;
    let host = find(&hub, call.part("host")?).await?;
    let checked = check(files, newest(&hub, &host).await?).await?;
    json(&CheckAnswer {
        manifest: checked.files.manifest().hash().to_string(),
        newest: host.wanted.unsigned_abs(),
        next_generation: next(&host).unsigned_abs(),
        guests: checked.guests as u64,
        difference: checked.difference,
    })
}

async fn push(hub: Hub, call: Call) -> Answer {
    let request: PushRequest = call.json()?;
    let host = find(&hub, call.part("host")?).await?;
    let seen = seen_generation(&call)?;
    let answer = push_document(&hub, call.person(), &host, (seen, request)).await?;
    let generation = i64::try_from(answer.generation).unwrap_or(i64::MAX);
    Ok(tagged(json(&answer)?, generation))
}

/// Takes a document in, after the newest generation that whoever pushes has seen.
pub(crate) async fn push_document(
    hub: &Hub,
    person: &Person,
    host: &HostRow,
    (seen, request): (i64, PushRequest),
) -> Result<PushAnswer, Problem> {
    let PushRequest { files, message, author, draft } = request;
    check_message(&message)?;
    draft.as_deref().map(drafts::check_id).transpose()?;
    if seen != host.wanted {
        return Err(stale(hub, host, seen).await);
    }
    let checked = check(files, newest(hub, host).await?).await?;
    let manifest = checked.files.manifest();
    let hub_id = hub.store().hub_id();
    let next = next(host);
    let author = author.map(|sealed| author::judge(&sealed, &manifest, host, hub_id, next));
    let author = author.transpose()?;
    let pushed_by = person.account.name.clone();
    let pushed = hub.store().push(NewDocument {
        host: host.id.clone(),
        files: checked.texts(),
        manifest: manifest.as_bytes().to_vec(),
        generation: author.as_ref().map(|author| author.generation),
        author_key: author.as_ref().map(|author| author.key.clone()).unwrap_or_default(),
        author: author.map(|author| author.sealed),
        seen,
        message,
        pushed_by: pushed_by.clone(),
    });
    let pushed = match pushed.await.map_err(Problem::from) {
        Ok(pushed) => pushed,
        // Somebody pushed between our look and the transaction.
        Err(problem) if problem.code == ProblemCode::Stale => {
            let host = find(hub, &host.id).await?;
            return Err(stale(hub, &host, seen).await);
        }
        Err(problem) => return Err(problem),
    };
    if let Some(draft) = draft {
        hub.store().drop_draft(&host.id, &draft, &pushed_by).await?;
    }
    Ok(PushAnswer {
        generation: pushed.generation.unsigned_abs(),
        manifest: pushed.manifest,
        difference: checked.difference,
    })
}

/// The number the next document gets.
pub(crate) fn next(host: &HostRow) -> i64 {
    host.wanted.max(host.reported) + 1
}

/// What `If-Match` says: the newest generation that whoever pushes has seen.
fn seen_generation(call: &Call) -> Result<i64, Problem> {
    let tag = call.headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok());
    let number = tag.and_then(|tag| tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    number.filter(|number| *number >= 0).ok_or_else(|| {
        Problem::invalid("If-Match must name the newest generation you have seen, such as \"7\"")
            .hint("a host without a document has the generation 0")
    })
}

/// Somebody else pushed: told with what they changed.
async fn stale(hub: &Hub, host: &HostRow, seen: i64) -> Problem {
    let newest_number = host.wanted;
    let detail = format!("generation {newest_number} of {} is the newest, not {seen}", host.id);
    let problem = Problem::new(ProblemCode::Stale, detail)
        .hint("look at what was changed meanwhile, then push again");
    let (Ok(Some(newest)), Ok(before)) =
        (newest(hub, host).await, stored(hub, &host.id, seen).await)
    else {
        return problem;
    };
    match between(before, newest).await {
        Ok(difference) => Problem { difference: Some(serde_json::json!(difference)), ..problem },
        Err(_) => problem,
    }
}

pub(super) fn check_message(message: &str) -> Result<(), Problem> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    Err(Problem::invalid(format!("a message has at most {MESSAGE_BYTES_MAX} bytes")))
}

fn tagged(mut response: Response, generation: i64) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{generation}\"")).expect("a number is plain");
    response.headers_mut().insert(header::ETAG, tag);
    response
}

fn generation_body(row: DocumentRow) -> GenerationBody {
    let DocumentRow { generation, manifest, author_key, message, pushed_by, pushed_at } = row;
    GenerationBody {
        generation: generation.unsigned_abs(),
        manifest,
        message,
        pushed_by,
        pushed_at: pushed_at.to_text(),
        author: author_key,
    }
}

fn document_body(document: StoredDocument) -> Result<DocumentBody, Problem> {
    let damaged = || Problem::new(ProblemCode::Internal, "a kept statement is not JSON");
    let statement: Option<SealedBody> = match &document.author {
        Some(text) => Some(serde_json::from_str(text).map_err(|_| damaged())?),
        None => None,
    };
    let files = document.files.into_iter();
    let files = files.map(|file| FileBody { name: file.name, text: file.text }).collect();
    Ok(DocumentBody { generation: generation_body(document.row), files, statement })
}
