//! Logins: which there are, when each was used last, and ending them, one's own or, as an admin, anybody's.

use axum::http::{Method, header};
use axum::response::IntoResponse as _;
use schemars::SchemaGenerator;

use super::session::SESSION_COOKIE;
use super::wire::{EndedAnswer, LoginBody, PageBody};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json};
use crate::store::{ListedLogin, PersonRole};

pub(super) fn rows() -> Vec<RouteRow> {
    let own = Access::Person(PersonRole::Viewer, Scope::Own);
    let admin = Access::Person(PersonRole::Admin, Scope::WholeHub);
    let listed = SchemaGenerator::subschema_for::<PageBody<LoginBody>>;
    let ended = SchemaGenerator::subschema_for::<EndedAnswer>;
    let mine = "/v1/logins";
    let theirs = "/v1/accounts/{name}/logins";
    vec![
        RouteRow::new((Method::GET, mine), own, NO_BODY, "one's own tokens", list_own)
            .answers(listed),
        RouteRow::new(
            (Method::DELETE, mine),
            own,
            NO_BODY,
            "ends all of one's own tokens, with their sessions",
            end_own,
        )
        .answers(ended),
        RouteRow::new((Method::GET, theirs), admin, NO_BODY, "the tokens of an account", list)
            .answers(listed),
        RouteRow::new(
            (Method::DELETE, theirs),
            admin,
            NO_BODY,
            "ends all tokens of an account, with their sessions",
            end,
        )
        .answers(ended),
    ]
}

async fn list_own(hub: Hub, call: Call) -> Answer {
    listed(&hub, &call.person().account.name).await
}

async fn list(hub: Hub, call: Call) -> Answer {
    let name = call.part("name")?;
    if hub.store().account(name).await?.is_none() {
        return Err(Problem::not_found(&format!("account {name}")));
    }
    listed(&hub, name).await
}

/// All on one page: an account has no more than fit.
async fn listed(hub: &Hub, name: &str) -> Answer {
    let logins = hub.store().logins_of(name).await?;
    json(&PageBody { items: logins.into_iter().map(body).collect(), next: None })
}

fn body(login: ListedLogin) -> LoginBody {
    LoginBody {
        login: login.name,
        key: login.key_fingerprint,
        made_at: login.made_at.to_text(),
        expires_at: login.expires_at.to_text(),
        last_used_at: login.last_used_at.to_text(),
        sessions: login.sessions.unsigned_abs(),
    }
}

async fn end_own(hub: Hub, call: Call) -> Answer {
    let Person { account, account_uid, .. } = call.person();
    let ended = hub.store().end_own_logins(&account.name, account_uid).await?;
    let mut response = json(&EndedAnswer { ended })?.into_response();
    let clear = SESSION_COOKIE.clear(hub.public_url());
    response.headers_mut().insert(header::SET_COOKIE, clear);
    Ok(response)
}

async fn end(hub: Hub, call: Call) -> Answer {
    let ended = hub.store().end_logins(call.part("name")?, call.person().actor()).await?;
    json(&EndedAnswer { ended })
}
