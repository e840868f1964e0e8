//! Coming in by a link and going. The link's one-time code rides in the fragment, which no server sees: a small script
//! posts it and takes it out of the address. The first admin comes the same way.

use askama::Template;
use axum::http::{Method, header};

use super::{assets, page, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::browser_mark::marked;
use crate::people::login::ended;
use crate::people::{SMALL_BODY_MAX, session};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::PersonRole;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, "/console"),
            Access::Anyone,
            NO_BODY,
            "where a link to the console leads",
            enter,
        )
        .page(),
        RouteRow::new(
            (Method::GET, "/first-admin"),
            Access::Anyone,
            NO_BODY,
            "where the first admin's link leads",
            first_admin,
        )
        .page(),
        RouteRow::new(
            (Method::POST, "/console/logout"),
            Access::Person(PersonRole::Viewer, Scope::Own),
            SMALL_BODY_MAX,
            "ends the session",
            leave,
        )
        .form(),
    ]
}

#[derive(Template)]
#[template(path = "enter.html")]
struct EnterPage {
    version: &'static str,
    /// The word of this browser, for the command that makes the link.
    word: String,
    /// Who is logged in already. A link is taken all the same: it may be for another account.
    account: Option<String>,
}

#[derive(Template)]
#[template(path = "first_admin.html")]
struct FirstAdminPage {
    version: &'static str,
    url: String,
}

async fn enter(hub: Hub, call: Call) -> Answer {
    let account = match session::from_cookie(hub.public_url(), &call.headers) {
        Some(cookie) => hub.store().login_by_session(&cookie.hash()).await?,
        None => None,
    };
    let account = account.map(|login| login.account.name);
    let (word, mark) = marked(hub.public_url(), &call.headers);
    let enter = EnterPage { version: assets::version(), word: word.to_string(), account };
    let mut response = page(&enter)?;
    response.headers_mut().insert(header::SET_COOKIE, mark);
    Ok(response)
}

async fn first_admin(hub: Hub, _: Call) -> Answer {
    page(&FirstAdminPage { version: assets::version(), url: hub.public_url().to_owned() })
}

async fn leave(hub: Hub, call: Call) -> Answer {
    ended(&hub, call.person(), see("/console")?).await
}
