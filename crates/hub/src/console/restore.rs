//! Going back: the content of an old generation as a new one, after a look at what that changes.

use askama::Template;
use axum::http::Method;

use super::documents::generation_in_path;
use super::edit::Signing;
use super::form::FormFields;
use super::host::{HostHead, fleet_host};
use super::line_diff::{LineDiff, line_diff};
use super::overtaken::{Overtaken, overtaken};
use super::shell::{PagePlace, Shell};
use super::{page, page_with, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::document_check::between;
use crate::people::documents::{newest, next, push_document, stored};
use crate::people::drafts::add_draft;
use crate::people::wire::{DifferenceBody, FileBody, FilesRequest, PushRequest};
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HubTime, PersonRole, StoredDocument};

pub(super) fn rows() -> Vec<RouteRow> {
    let edit = Access::Person(PersonRole::Editor, Scope::HostInPath);
    let path = "/console/hosts/{host}/documents/{generation}/restore";
    vec![
        RouteRow::new(
            (Method::GET, path),
            edit,
            NO_BODY,
            "what going back to a generation would change",
            ask,
        )
        .page(),
        RouteRow::new(
            (Method::POST, path),
            edit,
            SMALL_BODY_MAX,
            "goes back to a generation, or keeps that as a draft",
            restore,
        )
        .form(),
    ]
}

#[derive(Template)]
#[template(path = "restore.html")]
struct RestorePage {
    shell: Shell,
    head: HostHead,
    generation: i64,
    newest: i64,
    next: i64,
    message: String,
    pushed_by: String,
    signing: Signing,
    difference: Result<Vec<DifferenceBody>, String>,
    lines: LineDiff,
    /// What somebody else pushed since the page was asked for.
    overtaken: Option<Overtaken>,
    /// What was written as the reason.
    reason: String,
}

async fn old(hub: &Hub, host: &str, generation: i64) -> Result<StoredDocument, Problem> {
    let found = stored(hub, host, generation).await?;
    found.ok_or_else(|| Problem::not_found(&format!("generation {generation}")))
}

async fn ask(hub: Hub, call: Call) -> Answer {
    page(&restore_page(&hub, &call, String::new(), None).await?)
}

async fn restore_page(
    hub: &Hub,
    call: &Call,
    reason: String,
    overtaken: Option<Overtaken>,
) -> Result<RestorePage, Problem> {
    let host = fleet_host(hub, call.part("host")?).await?;
    let generation = generation_in_path(call)?;
    let document = old(hub, &host.row.id, generation).await?;
    let row = document.row.clone();
    let newest = newest(hub, &host.row).await?;
    let texts = newest.as_ref().map(|newest| newest.files.clone()).unwrap_or_default();
    let lines = line_diff(texts, document.files.clone(), None).await?;
    let difference = between(newest, document).await.map_err(|problem| problem.detail);
    let head = HostHead::new(&host, "documents", HubTime::now());
    let title = format!("Go back to generation {generation} of {}", host.row.id);
    let address = format!("{}/documents/{generation}/restore", head.path);
    let from = host.row.wanted;
    Ok(RestorePage {
        shell: Shell::new(hub, call, PagePlace::Fleet, &title, address).await?,
        lines: lines.with_more(format!("{}/documents/{generation}?from={from}&file=", head.path)),
        head,
        generation,
        newest: from,
        next: next(&host.row),
        message: row.message,
        pushed_by: row.pushed_by,
        signing: Signing::of(hub, &host.row.id).await?,
        difference,
        overtaken,
        reason,
    })
}

async fn restore(hub: Hub, call: Call) -> Answer {
    let form = FormFields::read(&call.body)?;
    let host = fleet_host(&hub, call.part("host")?).await?;
    let generation = generation_in_path(&call)?;
    let document = old(&hub, &host.row.id, generation).await?;
    let files = document.files.into_iter();
    let files = files.map(|file| FileBody { name: file.name, text: file.text }).collect();
    let message = match form.text("message").trim() {
        "" => format!("back to generation {generation}"),
        text => text.to_owned(),
    };
    let person = call.person();
    let path = super::words::host_path(&host.row.id);
    match form.text("as") {
        "draft" => {
            let request = FilesRequest { files, message };
            let draft = add_draft(&hub, person, &host.row, request).await?;
            see(&format!("{path}/drafts/{}", draft.id))
        }
        "push" => {
            let request = PushRequest { files, message, author: None, draft: None };
            let seen = form.number("seen")?;
            let pushed = match push_document(&hub, person, &host.row, (seen, request)).await {
                Ok(pushed) => pushed,
                Err(problem) if problem.code == ProblemCode::Stale => {
                    let overtaken = overtaken(&hub, &host.row.id, seen, &problem).await?;
                    let reason = form.text("message").to_owned();
                    let page = restore_page(&hub, &call, reason, Some(overtaken)).await?;
                    return page_with(problem.code.status(), &page);
                }
                Err(problem) => return Err(problem),
            };
            see(&format!("{path}/documents/{}", pushed.generation))
        }
        _ => Err(Problem::invalid("the form says neither push nor draft")),
    }
}
