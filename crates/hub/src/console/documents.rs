//! The documents of a host: who pushed what and why, and what differs between any two generations.

use askama::Template;
use axum::http::Method;

use super::host::{HostHead, fleet_host};
use super::line_diff::{LineDiff, line_diff};
use super::page;
use super::shell::{PagePlace, Shell};
use super::words::{Moment, host_path};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::document_check::between;
use crate::people::documents::stored;
use crate::people::fleet_index::FleetHost;
use crate::people::page::{before, one_more};
use crate::people::wire::DifferenceBody;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{DocumentRow, DraftRow, HubTime, PersonRole};

/// Generations of one page.
const GENERATIONS_PER_PAGE: usize = 50;

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/documents"),
            see,
            NO_BODY,
            "the generations of a host, as a page",
            history,
        )
        .asks(&["after"])
        .page(),
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/documents/{generation}"),
            see,
            NO_BODY,
            "one document and what it changed, as a page",
            document,
        )
        .asks(&["from", "file"])
        .page(),
    ]
}

/// A generation in the history.
pub(super) struct GenerationLine {
    pub(super) number: i64,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) by: String,
    pub(super) at: Moment,
    pub(super) author: String,
    pub(super) is_newest: bool,
    pub(super) is_in_effect: bool,
}

impl GenerationLine {
    pub(super) fn new(host: &FleetHost, row: DocumentRow, now: HubTime) -> Self {
        Self {
            path: format!("{}/documents/{}", host_path(&host.row.id), row.generation),
            is_newest: row.generation == host.row.wanted,
            is_in_effect: row.generation.unsigned_abs() == host.in_effect,
            number: row.generation,
            message: row.message,
            by: row.pushed_by,
            at: Moment::new(row.pushed_at, now),
            author: row.author_key,
        }
    }
}

/// A draft that waits to be signed.
pub(super) struct DraftLine {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) base: i64,
    pub(super) message: String,
    pub(super) by: String,
    pub(super) at: Moment,
}

impl DraftLine {
    pub(super) fn new(row: DraftRow, now: HubTime) -> Self {
        let DraftRow { id, host, base, manifest: _, message, made_by, made_at } = row;
        let path = format!("{}/drafts/{id}", host_path(&host));
        Self { id, path, base, message, by: made_by, at: Moment::new(made_at, now) }
    }
}

#[derive(Template)]
#[template(path = "documents.html")]
struct DocumentsPage {
    shell: Shell,
    head: HostHead,
    wanted: i64,
    generations: Vec<GenerationLine>,
    next: Option<String>,
    drafts: Vec<DraftLine>,
}

async fn history(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    let now = HubTime::now();
    let limit = one_more(GENERATIONS_PER_PAGE);
    let mut rows = hub.store().documents_before(&host.row.id, before(&call)?, limit).await?;
    let more = rows.len() > GENERATIONS_PER_PAGE;
    rows.truncate(GENERATIONS_PER_PAGE);
    let head = HostHead::new(&host, "documents", now);
    let next = rows.last().filter(|_| more);
    let next = next.map(|row| format!("{}/documents?after={}", head.path, row.generation));
    let title = format!("Documents of {}", host.row.id);
    let address = format!("{}/documents", head.path);
    let shell = Shell::new(&hub, &call, PagePlace::Fleet, &title, address).await?;
    // Drafts are for who may sign or drop them.
    let drafts = if shell.can_edit { hub.store().drafts(&host.row.id).await? } else { Vec::new() };
    page(&DocumentsPage {
        shell,
        head,
        wanted: host.row.wanted,
        generations: rows.into_iter().map(|row| GenerationLine::new(&host, row, now)).collect(),
        next,
        drafts: drafts.into_iter().map(|row| DraftLine::new(row, now)).collect(),
    })
}

/// A file as it is shown.
pub(super) struct ShownFile {
    pub(super) name: String,
    pub(super) text: String,
}

#[derive(Template)]
#[template(path = "document.html")]
struct DocumentPage {
    shell: Shell,
    head: HostHead,
    line: GenerationLine,
    files: Vec<ShownFile>,
    from: i64,
    others: Vec<i64>,
    difference: Result<Vec<DifferenceBody>, String>,
    lines: LineDiff,
    /// The one file that is asked for.
    only: Option<String>,
}

async fn document(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    let now = HubTime::now();
    let generation = generation_in_path(&call)?;
    let missing = || Problem::not_found(&format!("generation {generation}"));
    let document = stored(&hub, &host.row.id, generation).await?.ok_or_else(missing)?;
    let others = hub.store().documents_before(&host.row.id, i64::MAX, 100).await?;
    let others: Vec<i64> =
        others.iter().map(|row| row.generation).filter(|other| *other != generation).collect();
    let earlier = others.iter().copied().find(|other| *other < generation).unwrap_or_default();
    let from = call.number("from", earlier)?;
    let before = stored(&hub, &host.row.id, from).await?;
    let only = call.query.get("file").cloned();
    let texts = before.as_ref().map(|before| before.files.clone()).unwrap_or_default();
    let lines = line_diff(texts, document.files.clone(), only.clone()).await?;
    let files = document.files.iter();
    let files =
        files.map(|file| ShownFile { name: file.name.clone(), text: file.text.clone() }).collect();
    let line = GenerationLine::new(&host, document.row.clone(), now);
    let difference = between(before, document).await.map_err(|problem| problem.detail);
    let head = HostHead::new(&host, "documents", now);
    let title = format!("Generation {generation} of {}", host.row.id);
    let shell = Shell::new(&hub, &call, PagePlace::Fleet, &title, line.path.clone()).await?;
    let lines = lines.with_more(format!("{}?from={from}&file=", line.path));
    page(&DocumentPage { shell, head, line, files, from, others, difference, lines, only })
}

/// The generation that the path names.
pub(super) fn generation_in_path(call: &Call) -> Result<i64, Problem> {
    let number = call.part("generation")?.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Problem::invalid("the generation is not a number"))
}
