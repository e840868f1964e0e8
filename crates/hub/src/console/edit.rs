//! Editing a document: checked as one types by the reader the host uses, then pushed, or kept as a draft to be signed where
//! the key is.
//!
//! Whoever is late is shown what somebody else pushed, keeps their own text, and decides again. Nothing is merged for them.

use askama::Template;
use axum::http::Method;
use evenkeel_core::fleet::{AgentState, WireFile};

use super::form::FormFields;
use super::host::{HostHead, fleet_host};
use super::overtaken::{Overtaken, overtaken};
use super::shell::{PagePlace, Shell};
use super::words::counted;
use super::{page, page_with, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::document_check::check;
use crate::people::documents::{DOCUMENT_BODY_MAX, newest, next, push_document};
use crate::people::drafts::add_draft;
use crate::people::fleet_index::FleetHost;
use crate::people::guests::told;
use crate::people::hosts::find;
use crate::people::wire::{DifferenceBody, FileBody, FilesRequest, PushRequest};
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HubTime, PersonRole};

/// Files one form can hold.
const FILES_MAX: usize = 200;

pub(super) fn rows() -> Vec<RouteRow> {
    let edit = Access::Person(PersonRole::Editor, Scope::HostInPath);
    vec![
        RouteRow::new(
            (Method::GET, "/console/hosts/{host}/edit"),
            edit,
            NO_BODY,
            "the newest document, to be edited",
            editor,
        )
        .asks(&["draft"])
        .page(),
        RouteRow::new(
            (Method::POST, "/console/hosts/{host}/edit"),
            edit,
            DOCUMENT_BODY_MAX,
            "pushes what was edited, or keeps it as a draft",
            send,
        )
        .form(),
        RouteRow::new(
            (Method::POST, "/console/hosts/{host}/edit/check"),
            edit,
            DOCUMENT_BODY_MAX,
            "what is wrong with what is being typed, or what it would change",
            check_only,
        )
        .form(),
    ]
}

/// A file in the form.
struct EditedFile {
    number: usize,
    name: String,
    text: String,
    rows: usize,
}

/// What is said of the text in the form.
#[derive(Template)]
#[template(path = "check.html")]
pub(super) struct CheckView {
    /// What is wrong.
    problem: Option<Problem>,
    /// What a push would change, guest by guest.
    difference: Vec<DifferenceBody>,
    guests: String,
    next_generation: i64,
    is_checked: bool,
}

impl CheckView {
    fn nothing(next_generation: i64) -> Self {
        let problem = None;
        let difference = Vec::new();
        let guests = String::new();
        Self { problem, difference, guests, next_generation, is_checked: false }
    }
}

#[derive(Template)]
#[template(path = "edit.html")]
struct EditPage {
    shell: Shell,
    head: HostHead,
    files: Vec<EditedFile>,
    message: String,
    seen: i64,
    base: String,
    draft: String,
    signing: Signing,
    view: CheckView,
    /// What somebody else pushed meanwhile.
    overtaken: Option<Overtaken>,
}

/// What a host says of documents that nobody signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signing {
    /// It takes none.
    Demanded,
    /// Its root takes them.
    NotDemanded,
    /// It did not say.
    Unknown,
}

impl Signing {
    /// What the host's policy says, as it told it; it decides for itself whatever is thought here.
    pub(super) async fn of(hub: &Hub, host: &str) -> Result<Self, Problem> {
        let state = hub.store().host_state(host).await?;
        let agent: AgentState = told(&state.agent);
        Ok(match agent.policy.get("desired_signed").map(String::as_str) {
            Some("true" | "yes") => Self::Demanded,
            Some("false" | "no") => Self::NotDemanded,
            Some(_) | None => Self::Unknown,
        })
    }

    /// Whether a push without a signature is offered.
    pub(super) fn may_push(self) -> bool {
        match self {
            Self::Demanded => false,
            Self::NotDemanded | Self::Unknown => true,
        }
    }

    /// Whether the page says that a host usually takes signed documents only.
    pub(super) fn is_unknown(self) -> bool {
        self == Self::Unknown
    }
}

async fn editor(hub: Hub, call: Call) -> Answer {
    let host = fleet_host(&hub, call.part("host")?).await?;
    let (files, message, base, draft) = if let Some(id) = call.query.get("draft") {
        let found = hub.store().draft(&host.row.id, id).await?;
        let missing = || Problem::not_found(&format!("draft {id}"));
        let (row, files) = found.ok_or_else(missing)?;
        (files, row.message, format!("draft {}", row.id), row.id)
    } else {
        let document = newest(&hub, &host.row).await?;
        let base = match host.row.wanted {
            0 => "no document yet".to_owned(),
            number => format!("generation {number}"),
        };
        let files = document.map(|document| document.files).unwrap_or_default();
        (files, String::new(), base, String::new())
    };
    let files = files.into_iter().map(|WireFile { name, text }| FileBody { name, text }).collect();
    let view = CheckView::nothing(next(&host.row));
    let form = EditForm { files, message, seen: host.row.wanted, base, draft };
    page(&edit_page(&hub, &call, &host, form, view, None).await?)
}

/// What the form holds.
struct EditForm {
    files: Vec<FileBody>,
    message: String,
    seen: i64,
    base: String,
    draft: String,
}

impl EditForm {
    fn read(call: &Call) -> Result<Self, Problem> {
        let form = FormFields::read(&call.body)?;
        let mut files = Vec::new();
        for number in 0..FILES_MAX {
            let Some(name) = form.one(&format!("name-{number}")) else { break };
            let text = form.text(&format!("text-{number}"));
            // A file goes by having its name emptied; the empty one at the end was not used.
            if !name.trim().is_empty() {
                files.push(FileBody { name: name.trim().to_owned(), text: text.to_owned() });
            }
        }
        Ok(Self {
            files,
            message: form.text("message").trim().to_owned(),
            seen: form.number("seen")?,
            base: form.text("base").to_owned(),
            draft: form.text("draft").to_owned(),
        })
    }
}

async fn edit_page(
    hub: &Hub,
    call: &Call,
    host: &FleetHost,
    form: EditForm,
    view: CheckView,
    overtaken: Option<Overtaken>,
) -> Result<EditPage, Problem> {
    let head = HostHead::new(host, "edit", HubTime::now());
    let title = format!("Edit the document of {}", host.row.id);
    let address = format!("{}/edit", head.path);
    let mut files = form.files;
    let is_first = files.is_empty();
    files.push(FileBody {
        name: if is_first { "guests.toml".to_owned() } else { String::new() },
        text: String::new(),
    });
    let edited = |(number, FileBody { name, text }): (usize, FileBody)| EditedFile {
        number,
        rows: (text.lines().count() + 2).clamp(6, 40),
        name,
        text,
    };
    Ok(EditPage {
        shell: Shell::new(hub, call, PagePlace::Fleet, &title, address).await?,
        head,
        files: files.into_iter().enumerate().map(edited).collect(),
        message: form.message,
        seen: form.seen,
        base: form.base,
        draft: form.draft,
        signing: Signing::of(hub, &host.row.id).await?,
        view,
        overtaken,
    })
}

async fn check_only(hub: Hub, call: Call) -> Answer {
    let form = EditForm::read(&call)?;
    let host = find(&hub, call.part("host")?).await?;
    let next_generation = next(&host);
    let view = match check(form.files, newest(&hub, &host).await?).await {
        Ok(checked) => CheckView {
            problem: None,
            difference: checked.difference,
            guests: counted(checked.guests as u64, "guest"),
            next_generation,
            is_checked: true,
        },
        Err(problem) => CheckView {
            problem: Some(problem),
            is_checked: true,
            ..CheckView::nothing(next_generation)
        },
    };
    page(&view)
}

async fn send(hub: Hub, call: Call) -> Answer {
    let form = EditForm::read(&call)?;
    let kept_as = FormFields::read(&call.body)?.text("as").to_owned();
    let host = fleet_host(&hub, call.part("host")?).await?;
    let files = form.files.clone();
    let message = form.message.clone();
    let path = super::words::host_path(&host.row.id);
    let person = call.person();
    let sent = match kept_as.as_str() {
        "draft" => {
            let draft = add_draft(&hub, person, &host.row, FilesRequest { files, message }).await;
            draft.map(|draft| format!("{path}/drafts/{}", draft.id))
        }
        "push" => {
            let draft = Some(form.draft.clone()).filter(|draft| !draft.is_empty());
            let request = PushRequest { files, message, author: None, draft };
            let pushed = push_document(&hub, person, &host.row, (form.seen, request)).await;
            pushed.map(|pushed| format!("{path}/documents/{}", pushed.generation))
        }
        _ => Err(Problem::invalid("the form says neither push nor draft")),
    };
    let problem = match sent {
        Ok(path) => return see(&path),
        Err(problem) => problem,
    };
    let status = problem.code.status();
    if problem.code == ProblemCode::Stale {
        let overtaken = overtaken(&hub, &host.row.id, form.seen, &problem).await?;
        // What they send next follows what they are shown now.
        let form = EditForm { seen: overtaken.newest, ..form };
        let view = CheckView::nothing(overtaken.newest + 1);
        let page = edit_page(&hub, &call, &host, form, view, Some(overtaken)).await?;
        return page_with(status, &page);
    }
    if problem.code == ProblemCode::Invalid {
        let nothing = CheckView::nothing(next(&host.row));
        let view = CheckView { problem: Some(problem), is_checked: true, ..nothing };
        return page_with(status, &edit_page(&hub, &call, &host, form, view, None).await?);
    }
    Err(problem)
}
