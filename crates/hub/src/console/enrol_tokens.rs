//! A token with which a host enrols, for admins: made by a form of the fleet's page, and shown once.
//!
//! The answer is the page itself: a token that was put into an address would stay in the browser's history.

use askama::Template;
use axum::http::Method;

use super::form::FormFields;
use super::page;
use super::shell::{PagePlace, Shell};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::hosts::make_enrol_token;
use crate::people::wire::EnrolTokenAnswer;
use crate::routes::{Answer, Hub, RouteRow};
use crate::store::PersonRole;

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::POST, "/console/enrol-tokens"),
            Access::Person(PersonRole::Admin, Scope::InHandler),
            SMALL_BODY_MAX,
            "makes a token for one host to enrol with",
            make,
        )
        .form(),
    ]
}

#[derive(Template)]
#[template(path = "enrol_token.html")]
struct EnrolTokenPage {
    shell: Shell,
    host: String,
    token: String,
    expires_at: String,
    hub_url: String,
}

async fn make(hub: Hub, call: Call) -> Answer {
    let form = FormFields::read(&call.body)?;
    let host = form.text("host").trim().to_owned();
    let replace = form.one("replace").is_some();
    let made = make_enrol_token(&hub, call.person(), &host, replace).await?;
    let EnrolTokenAnswer { token, expires_at } = made;
    let title = format!("Token for {host}");
    let shell =
        Shell::new(&hub, &call, PagePlace::Fleet, &title, "/console/fleet".to_owned()).await?;
    let hub_url = hub.public_url().to_owned();
    page(&EnrolTokenPage { shell, host, token, expires_at, hub_url })
}
