//! What waits for a signature, with what would be lost; the command that signs it elsewhere; what was handed in and what
//! became of it.
//!
//! A page shows what a host said through this hub. It never calls anything verified, because it cannot know: only `sign` on
//! the operator's machine holds an item against the pinned key of its host. It never takes a private key.

use askama::Template;
use axum::http::Method;
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::sign::{Envelope, LastBackup, Loss, PendingItem};
use serde_json::Value;

use super::form::FormFields;
use super::shell::{PagePlace, Shell};
use super::words::{Moment, StateWord, guest_path, host_path, in_path, spoken};
use super::{page, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::approvals::{ENVELOPE_BODY_MAX, hand_in, pending_seen};
use crate::people::guests::told;
use crate::people::page::after;
use crate::people::wire::SealedBody;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{EnvelopeRow, HubTime, PendingRow, PersonRole};

/// Items of one page.
const ITEMS_PER_PAGE: usize = 50;
/// Envelopes shown on the page of all items.
const ENVELOPES_SHOWN: i64 = 20;
/// The beginning of a name that commands take: as the command line prints and demands it.
const NAME_SHORT: usize = 16;
/// A form grows by what has to be encoded: JSON quotes and line ends take three bytes each.
const ENVELOPE_FORM_MAX: usize = 3 * ENVELOPE_BODY_MAX;

pub(super) fn rows() -> Vec<RouteRow> {
    let see = Access::Person(PersonRole::Viewer, Scope::InHandler);
    vec![
        RouteRow::new(
            (Method::GET, "/console/approvals"),
            see,
            NO_BODY,
            "what waits for a signature, as a page",
            approvals,
        )
        .asks(&["after"])
        .page(),
        RouteRow::new(
            (Method::POST, "/console/envelopes"),
            Access::Person(PersonRole::Editor, Scope::InHandler),
            ENVELOPE_FORM_MAX,
            "hands in what was signed",
            submit,
        )
        .form(),
        RouteRow::new(
            (Method::GET, "/console/envelopes/{envelope}"),
            see,
            NO_BODY,
            "what became of an envelope, as a page",
            envelope,
        )
        .page(),
    ]
}

/// An item that waits.
pub(super) struct ItemCard {
    pub(super) host: String,
    pub(super) host_path: String,
    pub(super) id: String,
    pub(super) short: String,
    pub(super) guest: String,
    pub(super) guest_path: Option<String>,
    pub(super) name: String,
    pub(super) act: String,
    pub(super) params: Vec<(String, String)>,
    pub(super) losses: Vec<(String, String)>,
    pub(super) lost_sum: String,
    pub(super) last_backup: String,
    pub(super) backup_is_old: bool,
    pub(super) raised: Moment,
    pub(super) is_readable: bool,
}

impl ItemCard {
    pub(super) fn new(row: &PendingRow, now: HubTime) -> Self {
        let sealed: Option<SealedBody> = told(&row.item);
        let envelope = sealed.and_then(|sealed| sealed.sealed().envelope().ok());
        let item = envelope.as_ref().and_then(|of| PendingItem::parse(Envelope::payload(of)).ok());
        let mut card = Self {
            host_path: host_path(&row.host),
            host: row.host.clone(),
            short: row.id.chars().take(NAME_SHORT).collect(),
            id: row.id.clone(),
            guest: String::new(),
            guest_path: None,
            name: String::new(),
            act: "cannot be read".to_owned(),
            params: Vec::new(),
            losses: Vec::new(),
            lost_sum: String::new(),
            last_backup: String::new(),
            backup_is_old: false,
            raised: Moment::new(HubTime(0), now),
            is_readable: false,
        };
        if let Some(item) = item {
            card.fill(&item, now);
        }
        card
    }

    fn fill(&mut self, item: &PendingItem, now: HubTime) {
        let raised = HubTime(i64::try_from(item.raised_at.0).unwrap_or(i64::MAX / 1000) * 1000);
        let size = |size: Option<u64>| {
            size.map_or_else(|| "size unknown".to_owned(), |size| Bytes(size).shown())
        };
        let loss = |Loss { what, size_bytes }: &Loss| (what.clone(), size(*size_bytes));
        let known: u64 = item.losses.iter().filter_map(|loss| loss.size_bytes).sum();
        self.guest = item.guest.to_string();
        self.guest_path = guest_path(&self.host, &self.guest);
        self.name.clone_from(&item.guest_name);
        self.act = spoken(item.op.as_str());
        self.params =
            item.params.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        self.losses = item.losses.iter().map(loss).collect();
        let is_whole = item.losses.iter().all(|loss| loss.size_bytes.is_some());
        let at_least = if is_whole { "" } else { "at least " };
        self.lost_sum = format!("{at_least}{}", Bytes(known).shown());
        self.last_backup = match item.last_backup {
            LastBackup::At(at) => {
                let at = HubTime(i64::try_from(at.0).unwrap_or(i64::MAX / 1000) * 1000);
                let Moment { exact, ago } = Moment::new(at, now);
                format!("{exact}, {ago}")
            }
            LastBackup::Never => "none known".to_owned(),
            LastBackup::Unknown => "not known: a storage cannot be read".to_owned(),
        };
        self.backup_is_old = item.wants_final_backup();
        self.raised = Moment::new(raised, now);
        self.is_readable = true;
    }
}

/// Something that was handed in.
pub(super) struct EnvelopeLine {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) host: String,
    pub(super) host_path: String,
    pub(super) kind: String,
    pub(super) item: String,
    pub(super) state: StateWord,
    pub(super) is_waiting: bool,
    pub(super) by: String,
    pub(super) at: Moment,
    pub(super) detail: String,
    pub(super) op: String,
}

impl EnvelopeLine {
    pub(super) fn new(row: EnvelopeRow, now: HubTime) -> Self {
        let verdict: Value = told(&row.verdict);
        let text = |name: &str| verdict[name].as_str().unwrap_or_default().to_owned();
        Self {
            path: format!("/console/envelopes/{}", in_path(&row.id)),
            host_path: host_path(&row.host),
            kind: spoken(&row.kind),
            item: row.item.chars().take(NAME_SHORT).collect(),
            state: StateWord::of_envelope(&row.state, &text("code")),
            is_waiting: row.state == "waiting",
            by: row.submitted_by,
            at: Moment::new(row.submitted_at, now),
            detail: text("detail"),
            op: text("op"),
            id: row.id,
            host: row.host,
        }
    }
}

#[derive(Template)]
#[template(path = "approvals.html")]
struct ApprovalsPage {
    shell: Shell,
    items: Vec<ItemCard>,
    next: Option<String>,
    envelopes: Vec<EnvelopeLine>,
}

async fn approvals(hub: Hub, call: Call) -> Answer {
    let now = HubTime::now();
    let person = call.person();
    let mut rows = pending_seen(&hub, person, after(&call), ITEMS_PER_PAGE).await?;
    let more = rows.len() > ITEMS_PER_PAGE;
    rows.truncate(ITEMS_PER_PAGE);
    let next = rows.last().filter(|_| more);
    let next = next.map(|row| {
        format!("/console/approvals?after={}", in_path(&format!("{}/{}", row.host, row.id)))
    });
    let envelopes = hub.store().newest_envelopes(ENVELOPES_SHOWN * 5).await?;
    let envelopes = envelopes.into_iter().filter(|row| person.sees(&row.host));
    let shown = usize::try_from(ENVELOPES_SHOWN).unwrap_or(20);
    let address = match call.query.get("after") {
        Some(after) => format!("/console/approvals?after={}", in_path(after)),
        None => "/console/approvals".to_owned(),
    };
    page(&ApprovalsPage {
        shell: Shell::new(&hub, &call, PagePlace::Approvals, "Approvals", address).await?,
        items: rows.iter().map(|row| ItemCard::new(row, now)).collect(),
        next,
        envelopes: envelopes.take(shown).map(|row| EnvelopeLine::new(row, now)).collect(),
    })
}

async fn submit(hub: Hub, call: Call) -> Answer {
    let form = FormFields::read(&call.body)?;
    let sealed: SealedBody =
        serde_json::from_str(form.text("envelope").trim()).map_err(|error| {
            Problem::invalid(format!("this is no envelope: {error}"))
                .hint("paste the file that `evenkeel sign` wrote, whole; never a key")
        })?;
    let taken = hand_in(&hub, call.person(), &sealed).await?;
    see(&format!("/console/envelopes/{}", in_path(&taken.id)))
}

#[derive(Template)]
#[template(path = "envelope.html")]
struct EnvelopePage {
    shell: Shell,
    envelope: EnvelopeLine,
}

async fn envelope(hub: Hub, call: Call) -> Answer {
    let id = call.part("envelope")?;
    let row = hub.store().envelope(id).await?;
    let row = row.filter(|row| call.person().sees(&row.host));
    let row = row.ok_or_else(|| Problem::not_found(&format!("envelope {id}")))?;
    let envelope = EnvelopeLine::new(row, HubTime::now());
    let address = envelope.path.clone();
    let shell = Shell::new(&hub, &call, PagePlace::Approvals, "Submitted file", address).await?;
    page(&EnvelopePage { shell, envelope })
}
