//! The long poll: answers when there is something for the host, or after a while that there is not.

use std::time::Duration;

use axum::http::{HeaderValue, header};
use evenkeel_core::fleet::{Generation, PollAnswer, WaitingEnvelope};

use super::{kept_name, kept_sealed};
use crate::access;
use crate::call::Call;
use crate::metrics::HubMetrics;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, RowFace, json, no_content};
use crate::store::{LinkRow, QueuedEnvelope};

/// The longest wait a host may ask for, in seconds.
const WAIT_MAX_S: i64 = 55;
/// The longest a poll may take: the wait, and reading the store at its end.
pub(super) const POLL_TIME_MAX: Duration = Duration::from_secs(75);

/// `GET /v1/agent/poll?generation=G&cursor=C&wait=S`.
pub(super) async fn poll(hub: Hub, call: Call) -> Answer {
    let generation = call.number("generation", 0)?;
    let cursor = call.number("cursor", 0)?;
    let wait_s = call.number("wait", WAIT_MAX_S)?.min(WAIT_MAX_S);
    let mut host = call.host().clone();
    hub.gates().poll_rate.count(&host.id)?;
    let place = hub.gates().polls.enter(&host.id);
    let _counted = HubMetrics::count(&hub.metrics().polls);
    let end = tokio::time::sleep(Duration::from_secs(u64::try_from(wait_s).unwrap_or(0)));
    tokio::pin!(end);
    let news = hub.wakes().wait_for(&host.id);
    hub.store().heard(&host.id);
    // The row that the credential was found in was read before we began to listen: once more, now that nothing can be missed.
    // Memory answers that as well as the database: a change is forgotten there before it wakes anybody.
    host = again(&hub, &call).await?;
    loop {
        if let Some(answer) = answer(&hub, &host, generation, cursor).await? {
            return json(&answer);
        }
        if wait_s == 0 {
            // A timer of no time takes until the next tick, a millisecond or two.
            return at_the_end(&host, generation);
        }
        tokio::select! {
            () = news.woken() => host = again(&hub, &call).await?,
            () = &mut end => return at_the_end(&host, generation),
            () = place.replaced() => return hung_up(),
            () = hub.stopped() => return no_content(),
        }
    }
}

/// A newer poll came: nobody is behind this connection any more.
fn hung_up() -> Answer {
    let mut response = no_content()?;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// Nothing came; a host that is ahead of its hub learns it here.
fn at_the_end(host: &LinkRow, generation: i64) -> Answer {
    if host.wanted == generation {
        return no_content();
    }
    json(&PollAnswer { generation: wanted(host), envelopes: Vec::new() })
}

/// The host's row as it is now; its credential may have ended meanwhile.
async fn again(hub: &Hub, call: &Call) -> Result<LinkRow, Problem> {
    match access::caller(
        hub,
        (access::Access::Host, RowFace::Program),
        (&call.method, &call.headers),
        None,
    )
    .await?
    {
        access::Caller::Host(host) => Ok(host),
        access::Caller::Anyone | access::Caller::Person(_) => Err(Problem::unauthorised()),
    }
}

async fn answer(
    hub: &Hub,
    host: &LinkRow,
    generation: i64,
    cursor: i64,
) -> Result<Option<PollAnswer>, Problem> {
    let envelopes = if host.cursor > cursor {
        hub.store().envelopes_after(&host.id, cursor).await?
    } else {
        Vec::new()
    };
    // A hub behind its host (a restored backup) says so at the end of the wait, not at once and again and again.
    if host.wanted <= generation && envelopes.is_empty() {
        return Ok(None);
    }
    let envelopes = envelopes.into_iter().map(polled).collect::<Result<_, _>>()?;
    Ok(Some(PollAnswer { generation: wanted(host), envelopes }))
}

/// The newest generation; 0 if there is none yet.
fn wanted(host: &LinkRow) -> Generation {
    Generation(host.wanted.unsigned_abs())
}

fn polled(queued: QueuedEnvelope) -> Result<WaitingEnvelope, Problem> {
    let QueuedEnvelope { cursor, id, body } = queued;
    let envelope = kept_sealed(&body)?;
    Ok(WaitingEnvelope { cursor: cursor.unsigned_abs(), id: kept_name(&id)?, envelope })
}
