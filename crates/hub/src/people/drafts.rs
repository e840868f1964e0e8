//! Drafts: a document edited in the console, to be signed by `fleet sign` where the key is.

use axum::http::Method;
use evenkeel_core::fleet::WireFile;
use schemars::SchemaGenerator;

use super::document_check::check;
use super::documents::{DOCUMENT_BODY_MAX, check_message, newest};
use super::hosts::find;
use super::page::PAGE_MAX;
use super::wire::{DraftBody, FileBody, FilesRequest, PageBody};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::secret_text::random_hex;
use crate::store::{DraftRow, HostRow, NewDraft, PersonRole};

pub(super) fn rows() -> Vec<RouteRow> {
    let edit = Access::Person(PersonRole::Editor, Scope::HostInPath);
    vec![
        RouteRow::new((Method::GET, "/v1/hosts/{host}/drafts"), edit, NO_BODY, "drafts", list)
            .answers(SchemaGenerator::subschema_for::<PageBody<DraftBody>>),
        RouteRow::new(
            (Method::POST, "/v1/hosts/{host}/drafts"),
            edit,
            DOCUMENT_BODY_MAX,
            "keeps a document to be signed elsewhere",
            add,
        )
        .takes(SchemaGenerator::subschema_for::<FilesRequest>)
        .answers(SchemaGenerator::subschema_for::<DraftBody>),
        RouteRow::new(
            (Method::GET, "/v1/hosts/{host}/drafts/{draft}"),
            edit,
            NO_BODY,
            "one draft, whole",
            one,
        )
        .answers(SchemaGenerator::subschema_for::<DraftBody>),
        RouteRow::new(
            (Method::DELETE, "/v1/hosts/{host}/drafts/{draft}"),
            edit,
            NO_BODY,
            "drops a draft",
            remove,
        ),
    ]
}

async fn list(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let rows = hub.store().drafts(&host.id).await?;
    let items = rows.into_iter().take(PAGE_MAX).map(|row| draft_body(row, Vec::new())).collect();
    json(&PageBody { items, next: None })
}

async fn add(hub: Hub, call: Call) -> Answer {
    let request: FilesRequest = call.json()?;
    let host = find(&hub, call.part("host")?).await?;
    json(&add_draft(&hub, call.person(), &host, request).await?)
}

/// The longest name of a draft: four times what the hub draws.
const NAME_BYTES_MAX: usize = 64;

/// Refuses what no draft is called, before anything is done for it.
pub(super) fn check_id(id: &str) -> Result<(), Problem> {
    let is_name = id.len() <= NAME_BYTES_MAX
        && id.strip_prefix("drf_").is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
    if is_name { Ok(()) } else { Err(Problem::invalid("no draft is called so")) }
}

/// Keeps a document to be signed elsewhere.
pub(crate) async fn add_draft(
    hub: &Hub,
    person: &Person,
    host: &HostRow,
    FilesRequest { files, message }: FilesRequest,
) -> Result<DraftBody, Problem> {
    check_message(&message)?;
    let checked = check(files, newest(hub, host).await?).await?;
    let manifest = checked.files.manifest();
    let draft = NewDraft {
        id: format!("drf_{}", random_hex(8)),
        host: host.id.clone(),
        base: host.wanted,
        files: checked.texts(),
        manifest: manifest.as_bytes().to_vec(),
        message,
        made_by: person.account.name.clone(),
    };
    let made_at = hub.store().add_draft(draft.clone()).await?;
    let NewDraft { id, host, base, files, message, made_by, .. } = draft;
    let manifest = manifest.hash().to_string();
    let row = DraftRow { id, host, base, manifest, message, made_by, made_at };
    Ok(draft_body(row, files))
}

async fn one(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    let draft = call.part("draft")?;
    let found = hub.store().draft(&host.id, draft).await?;
    let (row, files) = found.ok_or_else(|| Problem::not_found(&format!("draft {draft}")))?;
    json(&draft_body(row, files))
}

async fn remove(hub: Hub, call: Call) -> Answer {
    let host = find(&hub, call.part("host")?).await?;
    hub.store().drop_draft(&host.id, call.part("draft")?, &call.person().account.name).await?;
    no_content()
}

pub(crate) fn draft_body(row: DraftRow, files: Vec<WireFile>) -> DraftBody {
    let DraftRow { id, host, base, manifest: _, message, made_by, made_at } = row;
    let file = |WireFile { name, text }| FileBody { name, text };
    DraftBody {
        id,
        host,
        base: base.unsigned_abs(),
        message,
        made_by,
        made_at: made_at.to_text(),
        files: files.into_iter().map(file).collect(),
    }
}
