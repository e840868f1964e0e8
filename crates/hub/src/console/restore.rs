//! Going back: the content of an old generation as a new one, after a look at what that changes.

use askama::Template;
use axum::http::Method;

use super::documents::generation_in_path;
use super::edit::Signing;
use super::form::FormFields;
use super::host::{HostHead, fleet_host};
use super::shell::{PagePlace, Shell};
use super::{page, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::document_check::between;
use crate::people::documents::{newest, next, push_document, stored};
use crate::people::drafts::add_draft;
use crate::people::wire::{DifferenceBody, FileBody, FilesRequest, PushRequest};
use crate::problem::Problem;
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
}

async fn old(hub: &Hub, host: &str, generation: i64) -> Result<StoredDocument, Problem> {
    let found = stored(hub, host, generation).await?;
    found.ok_or_else(|| Problem::not_found(&format!("generation {generation}")))
}

async fn ask(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    let generation = generation_in_path(&call)?;
    let document = old(&hub, &host.row.id, generation).await?;
    let row = document.row.clone();
    let newest = newest(&hub, &host.row).await?;
    let difference = between(newest, document).await.map_err(|problem| problem.detail);
    let head = HostHead::new(&host, "documents", HubTime::now());
    let title = format!("Go back to generation {generation} of {}", host.row.id);
    let address = format!("{}/documents/{generation}/restore", head.path);
    page(&RestorePage {
        shell: Shell::new(&hub, &call, PagePlace::Fleet, &title, address).await?,
        head,
        generation,
        newest: host.row.wanted,
        next: next(&host.row),
        message: row.message,
        pushed_by: row.pushed_by,
        signing: Signing::of(&hub, &host.row.id).await?,
        difference,
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
    let (person, path) = (call.person(), super::words::host_path(&host.row.id));
    match form.text("as") {
        "draft" => {
            let request = FilesRequest { files, message };
            let draft = add_draft(&hub, person, &host.row, request).await?;
            see(&format!("{path}/drafts/{}", draft.id))
        }
        "push" => {
            let request = PushRequest { files, message, author: None, draft: None };
            let seen = form.number("seen")?;
            let pushed = push_document(&hub, person, &host.row, (seen, request)).await?;
            see(&format!("{path}/documents/{}", pushed.generation))
        }
        _ => Err(Problem::invalid("the form says neither push nor draft")),
    }
}
