//! `/v1/events`: what changed, as server-sent events. Only a hint to look again: each names a row and says nothing of it.
//!
//! Every message has a mark (`id`). Whoever comes back names the last one they heard (`Last-Event-ID`, or `after` where no header can
//! be set) and is told what they missed. Where that is not known any more, at a hub that began anew or at another replica, or
//! whoever fell behind, hears `resync` and loads everything anew. A stream ends when the hub ends or the person may not come in
//! any more.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::access::{Access, Person, Scope, still_there};
use crate::call::Call;
use crate::caller_gate::CallerPlace;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{NumberedChange, PersonRole, StoreChange, Subscription};

/// How often something is sent, whatever happens: proxies end what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long changes are gathered before they are told, so that a burst is one message.
const GATHER: Duration = Duration::from_millis(100);
/// What browsers send when they come back.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/v1/events"),
            Access::Person(PersonRole::Viewer, Scope::InHandler),
            NO_BODY,
            "what changed, as server-sent events: resync, host, pending, document, audit",
            events,
        )
        .asks(&["after"])
        .waits(),
    ]
}

async fn events(hub: Hub, call: Call) -> Answer {
    let own_place = hub.gates().streams.enter(&call.person().account.name)?;
    let place = hub.people().streams.clone().try_acquire_owned().map_err(|_| {
        Problem::new(ProblemCode::TooMany, "too many people watch at this moment")
            .hint("ask for what you want to see from time to time")
    })?;
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let header = call.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let mark = header.or_else(|| call.query.get("after").map(String::as_str));
    let Subscription { receiver, missed, newest } =
        hub.store().changes().subscribe_after(mark.unwrap_or_default());
    let person = call.person().clone();
    let missed = missed.map(|missed| texts(&person, missed.into_iter().collect()));
    let watcher = EventStream {
        changes: receiver,
        person,
        keep_alive,
        hub,
        _places: (place, own_place),
        newest,
        begins: Some(missed.unwrap_or_else(resync)),
    };
    let messages = stream::unfold(watcher, |mut watcher| async move {
        let message = watcher.next().await?;
        Some((Ok::<Bytes, Infallible>(Bytes::from(message)), watcher))
    });
    let mut response = Response::new(Body::from_stream(messages));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// One open stream.
struct EventStream {
    hub: Hub,
    person: Person,
    changes: broadcast::Receiver<NumberedChange>,
    keep_alive: Interval,
    /// The newest change that was told, or was not theirs to hear.
    newest: u64,
    /// What it begins with, until it was told.
    begins: Option<String>,
    _places: (OwnedSemaphorePermit, CallerPlace),
}

impl EventStream {
    /// The next message; none at the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.begins.take() {
            return Some(text + &self.mark());
        }
        loop {
            let change = tokio::select! {
                // Dropping any of these loses nothing: a change that was not received stays in its channel.
                change = self.changes.recv() => change,
                _ = self.keep_alive.tick() => {
                    if !self.is_still_there().await {
                        return None;
                    }
                    return Some(format!(": still here\n{}", self.mark()));
                }
                () = self.hub.stopped() => return None,
            };
            match change {
                Ok(change) => {
                    // Whatever ends a login or changes a role is in the audit.
                    if change.change == StoreChange::Audit && !self.is_still_there().await {
                        return None;
                    }
                    if let Some(text) = self.gathered(change).await {
                        return Some(text);
                    }
                }
                Err(RecvError::Lagged(_)) => return Some(self.lost()),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// A change and those that follow at once, each once, as far as the person may see them.
    async fn gathered(&mut self, first: NumberedChange) -> Option<String> {
        tokio::time::sleep(GATHER).await;
        self.newest = first.number;
        let mut changes = BTreeSet::from([first.change]);
        loop {
            match self.changes.try_recv() {
                Ok(NumberedChange { number, change }) => {
                    self.newest = number;
                    changes.insert(change);
                }
                Err(TryRecvError::Lagged(_)) => return Some(self.lost()),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let text = texts(&self.person, changes);
        (!text.is_empty()).then(|| text + &self.mark())
    }

    /// Whether the person may still come in, with the role and scope of now.
    async fn is_still_there(&mut self) -> bool {
        match still_there(&self.hub, &self.person).await {
            Ok(Some(person)) => {
                self.person = person;
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// It fell behind: what is told next follows from here.
    fn lost(&mut self) -> String {
        let Subscription { receiver, newest, .. } = self.hub.store().changes().subscribe_after("");
        (self.changes, self.newest) = (receiver, newest);
        resync() + &self.mark()
    }

    /// How far it came. It stands behind everything it counts: who loses the connection in between hears all of that again.
    fn mark(&self) -> String {
        format!("id: {}\n\n", self.hub.store().changes().mark_of(self.newest))
    }
}

/// Changes as they are told to a person, each message once.
fn texts(person: &Person, changes: BTreeSet<StoreChange>) -> String {
    let texts = changes.into_iter().filter_map(|change| told(person, change));
    let texts: BTreeSet<String> = texts.flatten().collect();
    texts.into_iter().collect()
}

/// A change as it is told to a person; none if it is not theirs to hear.
fn told(person: &Person, change: StoreChange) -> Option<Vec<String>> {
    let (events, host): (&[&str], String) = match change {
        StoreChange::Host(host) | StoreChange::Report(host) => (&["host"], host),
        StoreChange::Pending(host) => (&["pending"], host),
        StoreChange::Document(host) => (&["document"], host),
        StoreChange::Elsewhere(host) => (&["host", "pending", "document"], host),
        // Whose line it is is not known here; whoever looks sees only their own.
        StoreChange::Audit => return Some(vec![message("audit", "")]),
    };
    person.sees(&host).then(|| events.iter().map(|event| message(event, &host)).collect())
}

fn resync() -> String {
    message("resync", "")
}

fn message(event: &str, name: &str) -> String {
    format!("event: {event}\ndata: {}\n\n", serde_json::json!({ "name": name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::CameWith;
    use crate::secret_text::SecretHash;
    use crate::store::Account;

    #[test]
    fn nobody_hears_of_a_host_outside_of_their_scope() {
        let account =
            Account { name: "eve".into(), role: PersonRole::Viewer, scope: "eu-*".into() };
        let came_with = CameWith::ApiToken(SecretHash::of("x"));
        let person = Person { account, account_uid: "1".into(), came_with };
        for change in [
            StoreChange::Host,
            StoreChange::Report,
            StoreChange::Pending,
            StoreChange::Document,
            StoreChange::Elsewhere,
        ] {
            assert!(told(&person, change("eu-1".to_owned())).is_some());
            assert_eq!(told(&person, change("us-1".to_owned())), None);
        }
    }

    #[test]
    fn a_name_cannot_end_a_message() {
        let text = message("host", "a\n\nevent: audit");
        assert_eq!(text.matches("\n\n").count(), 1, "{text:?}");
        assert_eq!(text.lines().count(), 3, "{text:?}");
    }
}
