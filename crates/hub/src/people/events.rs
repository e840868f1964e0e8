//! `/v1/events`: what changed, as server-sent events. Only a hint to look again: each names a row and says nothing of it.
//!
//! A stream begins with `resync`, also after a reconnect, and whenever it fell behind: whoever reads it then loads
//! everything anew. It ends when the hub ends or the person may not come in any more.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::access::{Access, Person, Scope, still_there};
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{PersonRole, StoreChange};

/// How often something is sent, whatever happens: proxies end what is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long changes are gathered before they are told, so that a burst is one message.
const GATHER: Duration = Duration::from_millis(100);

pub(super) fn rows() -> Vec<RouteRow> {
    vec![RouteRow::new(
        (Method::GET, "/v1/events"),
        Access::Person(PersonRole::Viewer, Scope::InHandler),
        NO_BODY,
        "what changed, as server-sent events: resync, host, pending, document, audit",
        events,
    )]
}

async fn events(hub: Hub, call: Call) -> Answer {
    let place = hub.people().streams.clone().try_acquire_owned().map_err(|_| {
        Problem::new(ProblemCode::TooMany, "too many people watch at this moment")
            .hint("ask for what you want to see from time to time")
    })?;
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = Watcher {
        changes: hub.store().changes().subscribe(),
        person: call.person().clone(),
        keep_alive,
        hub,
        _place: place,
        is_new: true,
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
struct Watcher {
    hub: Hub,
    person: Person,
    changes: broadcast::Receiver<StoreChange>,
    keep_alive: Interval,
    is_new: bool,
    _place: OwnedSemaphorePermit,
}

impl Watcher {
    /// The next message; none at the end.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_new) {
            return Some(message("resync", ""));
        }
        loop {
            let change = tokio::select! {
                // Dropping any of these loses nothing: a change that was not received stays in its channel.
                change = self.changes.recv() => change,
                _ = self.keep_alive.tick() => {
                    self.person = still_there(&self.hub, &self.person).await.ok()??;
                    return Some(": still here\n\n".to_owned());
                }
                () = self.hub.stopped() => return None,
            };
            match change {
                Ok(change) => {
                    if let Some(text) = self.gathered(change).await {
                        return Some(text);
                    }
                }
                Err(RecvError::Lagged(_)) => return Some(message("resync", "")),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// A change and those that follow at once, each once, as far as the person may see them.
    async fn gathered(&mut self, first: StoreChange) -> Option<String> {
        tokio::time::sleep(GATHER).await;
        let mut changes = BTreeSet::from([first]);
        loop {
            match self.changes.try_recv() {
                Ok(change) => {
                    changes.insert(change);
                }
                Err(broadcast::error::TryRecvError::Lagged(_)) => {
                    return Some(message("resync", ""));
                }
                Err(
                    broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed,
                ) => break,
            }
        }
        let texts = changes.into_iter().filter_map(|change| told(&self.person, change));
        let text: String = texts.collect();
        (!text.is_empty()).then_some(text)
    }
}

/// A change as it is told to a person; none if it is not theirs to hear.
fn told(person: &Person, change: StoreChange) -> Option<String> {
    let (event, host) = match change {
        StoreChange::Host(host) | StoreChange::Report(host) => ("host", host),
        StoreChange::Pending(host) => ("pending", host),
        StoreChange::Document(host) => ("document", host),
        // Whose line it is is not known here; whoever looks sees only their own.
        StoreChange::Audit => return Some(message("audit", "")),
    };
    person.sees(&host).then(|| message(event, &host))
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
        let person = Person { account, came_with: CameWith::ApiToken(SecretHash::of("x")) };
        for change in [StoreChange::Host, StoreChange::Pending, StoreChange::Document] {
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
