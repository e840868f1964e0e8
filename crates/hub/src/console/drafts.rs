//! A draft: what was edited here and waits to be signed by `fleet sign` where the author's key is.

use askama::Template;
use axum::http::Method;

use super::documents::{DraftLine, ShownFile};
use super::host::{HostHead, fleet_host};
use super::line_diff::{LineDiff, line_diff};
use super::shell::{PagePlace, Shell};
use super::{page, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::document_check::check;
use crate::people::documents::newest;
use crate::people::wire::{DifferenceBody, FileBody};
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HubTime, PersonRole};

pub(super) fn rows() -> Vec<RouteRow> {
    let edit = Access::Person(PersonRole::Editor, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/drafts/{draft}"),
            edit,
            NO_BODY,
            "one draft, as a page",
            draft,
        )
        .page(),
        RouteRow::new(
            (Method::POST, "/console/hosts/{host}/drafts/{draft}/drop"),
            edit,
            SMALL_BODY_MAX,
            "drops a draft",
            remove,
        )
        .form(),
    ]
}

#[derive(Template)]
#[template(path = "draft.html")]
struct DraftPage {
    shell: Shell,
    head: HostHead,
    line: DraftLine,
    files: Vec<ShownFile>,
    newest: i64,
    difference: Result<Vec<DifferenceBody>, String>,
    lines: LineDiff,
}

async fn draft(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    let id = call.part("draft")?;
    let found = hub.store().draft(&host.row.id, id).await?;
    let (row, files) = found.ok_or_else(|| Problem::not_found(&format!("draft {id}")))?;
    let body = |file: &evenkeel_core::fleet::WireFile| FileBody {
        name: file.name.clone(),
        text: file.text.clone(),
    };
    let before = newest(&hub, &host.row).await?;
    let texts = before.as_ref().map(|before| before.files.clone()).unwrap_or_default();
    let lines = line_diff(texts, files.clone(), None).await?;
    let checked = check(files.iter().map(body).collect(), before).await;
    let difference = checked.map(|checked| checked.difference).map_err(|problem| problem.detail);
    let now = HubTime::now();
    let line = DraftLine::new(row, now);
    let head = HostHead::new(&host, "documents", now);
    let title = format!("Draft {} of {}", line.id, host.row.id);
    let files = files.into_iter();
    let files = files.map(|file| ShownFile { name: file.name, text: file.text }).collect();
    page(&DraftPage {
        shell: Shell::new(&hub, &call, PagePlace::Fleet, &title, line.path.clone()).await?,
        head,
        line,
        files,
        newest: host.row.wanted,
        difference,
        lines,
    })
}

async fn remove(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    hub.store().drop_draft(&host.row.id, call.part("draft")?, &call.person().account.name).await?;
    see(&format!("{}/documents", super::words::host_path(&host.row.id)))
}
