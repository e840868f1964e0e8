//! Coming in and going: a challenge signed by an SSH key becomes a token, a one-time code becomes a session.
//!
//! No password exists. A login is bound to this hub and to the address that was dialled, so that one that was tricked out
//! of somebody at another address is worth nothing here. All refusals say the same. A code is made by a token alone, for one
//! browser, and its session lives as long as the token: what is stolen from a browser ends, and makes nothing new.

use std::time::Instant;

use axum::http::{Method, header};
use axum::response::{IntoResponse as _, Response};
use evenkeel_core::fleet::LoginStatement;
use evenkeel_core::sign::PublicKey;
use schemars::SchemaGenerator;

use super::browser_mark::{BrowserWord, word_of_browser};
use super::challenge::{self, CHALLENGE_LIFE_S};
use super::session::{self, SESSION_COOKIE, csrf_token, origin_of};
use super::wire::{
    ChallengeAnswer, ChallengeRequest, CodeAnswer, CodeRequest, FirstAdminRequest, LoginAnswer,
    LoginRequest, SessionRequest, WhoAnswer,
};
use super::{SMALL_BODY_MAX, accounts};
use crate::access::{Access, CameWith, Person, Scope};
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::secret_text::{SecretKind, SecretText};
use crate::store::{Account, CodeOutcome, HubTime, NewAccount, PersonRole};

/// How long a token is good.
const TOKEN_LIFE_S: i64 = 12 * 3600;
/// How long the link to the console works.
const CONSOLE_CODE_LIFE_S: i64 = 60;

pub(super) fn rows() -> Vec<RouteRow> {
    let anyone = Access::Anyone;
    let own = Access::Person(PersonRole::Viewer, Scope::Own);
    vec![
        RouteRow::new(
            (Method::POST, "/v1/login/challenge"),
            anyone,
            SMALL_BODY_MAX,
            "a challenge to be signed",
            give_challenge,
        )
        .takes(SchemaGenerator::subschema_for::<ChallengeRequest>)
        .answers(SchemaGenerator::subschema_for::<ChallengeAnswer>),
        RouteRow::new(
            (Method::POST, "/v1/login"),
            anyone,
            SMALL_BODY_MAX,
            "a token for a signed challenge",
            login,
        )
        .takes(SchemaGenerator::subschema_for::<LoginRequest>)
        .answers(SchemaGenerator::subschema_for::<LoginAnswer>),
        RouteRow::new((Method::GET, "/v1/login"), own, NO_BODY, "who is logged in", who)
            .answers(SchemaGenerator::subschema_for::<WhoAnswer>),
        RouteRow::new(
            (Method::DELETE, "/v1/login"),
            own,
            NO_BODY,
            "ends the session it came with, or the token with its sessions",
            logout,
        ),
        RouteRow::new(
            (Method::POST, "/v1/first-admin"),
            anyone,
            SMALL_BODY_MAX,
            "makes the first account of a new hub, once",
            first_admin,
        )
        .takes(SchemaGenerator::subschema_for::<FirstAdminRequest>),
        RouteRow::new(
            (Method::POST, "/v1/console-codes"),
            Access::Person(PersonRole::Viewer, Scope::OwnToken),
            SMALL_BODY_MAX,
            "a one-time code for the console in one browser",
            console_code,
        )
        .takes(SchemaGenerator::subschema_for::<CodeRequest>)
        .answers(SchemaGenerator::subschema_for::<CodeAnswer>),
        RouteRow::new(
            (Method::POST, "/v1/sessions"),
            anyone,
            SMALL_BODY_MAX,
            "a session for a one-time code",
            open_session,
        )
        .takes(SchemaGenerator::subschema_for::<SessionRequest>)
        .answers(SchemaGenerator::subschema_for::<WhoAnswer>),
    ]
}

/// Takes one try of an account from an address.
fn take_try(hub: &Hub, call: &Call, account: &str) -> Result<(), Problem> {
    let people = hub.people();
    let now = Instant::now();
    let address = call.address.as_deref().unwrap_or("unknown");
    let waits = people.by_address.take(address, now);
    let waits = waits.and_then(|()| people.by_account.take(&format!("{account} {address}"), now));
    waits.map_err(|wait| {
        let seconds = wait.as_secs().max(1);
        Problem::new(ProblemCode::TooMany, "too many tries to log in")
            .hint(format!("try again in {seconds} s"))
    })
}

async fn give_challenge(hub: Hub, call: Call) -> Answer {
    let ChallengeRequest { account } = call.json()?;
    accounts::check_name(&account)?;
    take_try(&hub, &call, &account)?;
    json(&ChallengeAnswer {
        hub_id: hub.store().hub_id().to_owned(),
        nonce: challenge::draw(hub.store().challenge_key(), &account, HubTime::now()),
        expires_in_s: CHALLENGE_LIFE_S.unsigned_abs(),
    })
}

async fn login(hub: Hub, call: Call) -> Answer {
    let LoginRequest { account, login } = call.json()?;
    accounts::check_name(&account)?;
    take_try(&hub, &call, &account)?;
    let envelope = login.sealed().envelope().map_err(|_| Problem::unauthorised())?;
    let keys = hub.store().account_keys(&account).await?;
    let keys: Vec<PublicKey> =
        keys.iter().filter_map(|key| PublicKey::from_line(&key.key_line).ok()).collect();
    let verified = LoginStatement::verify(&envelope, keys.iter());
    let (key, statement) = verified.map_err(|_| Problem::unauthorised())?;
    let ours = statement.hub_id.as_str() == hub.store().hub_id()
        && Some(statement.origin.clone()) == origin_of(hub.public_url());
    if !ours {
        // Only the person's own key can make this: somebody had them sign at another place.
        let detail = format!("signed for {} at {}", statement.hub_id, statement.origin);
        hub.store().audit(&account, "login.relayed", &account, &detail).await?;
        return Err(Problem::unauthorised());
    }
    let key_of_hub = hub.store().challenge_key();
    let challenge = challenge::answered(key_of_hub, &account, &statement.nonce, HubTime::now());
    let challenge = challenge.filter(|_| statement.account == account);
    let challenge = challenge.ok_or_else(Problem::unauthorised)?;
    let token = SecretText::draw(SecretKind::ApiToken);
    let fingerprint = key.fingerprint().to_string();
    let by = (account.as_str(), fingerprint.as_str());
    let opened = hub.store().answer_challenge(challenge, token.hash(), by, TOKEN_LIFE_S).await?;
    let opened = opened.ok_or_else(Problem::unauthorised)?;
    json(&LoginAnswer {
        token: token.reveal().to_owned(),
        expires_at: opened.expires_at.to_text(),
        role: opened.account.role.as_str().to_owned(),
        scope: opened.account.scope,
    })
}

async fn who(hub: Hub, call: Call) -> Answer {
    let person = call.person();
    let csrf = match person.came_with {
        CameWith::ApiToken(_) => None,
        CameWith::Session(_) => {
            session::from_cookie(hub.public_url(), &call.headers).map(|own| csrf_token(&own))
        }
    };
    json(&who_answer(&hub, &person.account, csrf))
}

fn who_answer(hub: &Hub, account: &Account, csrf: Option<String>) -> WhoAnswer {
    WhoAnswer {
        hub_id: hub.store().hub_id().to_owned(),
        account: account.name.clone(),
        role: account.role.as_str().to_owned(),
        scope: account.scope.clone(),
        csrf,
    }
}

async fn logout(hub: Hub, call: Call) -> Answer {
    ended(&hub, call.person(), no_content()?).await
}

/// Ends what a person came with, and has their browser forget it.
pub(crate) async fn ended(hub: &Hub, person: &Person, mut response: Response) -> Answer {
    let name = &person.account.name;
    match &person.came_with {
        CameWith::ApiToken(hash) => hub.store().end_token(hash.clone(), name).await?,
        CameWith::Session(hash) => hub.store().end_session(hash.clone(), name).await?,
    }
    let clear = SESSION_COOKIE.clear(hub.public_url());
    response.headers_mut().insert(header::SET_COOKIE, clear);
    Ok(response)
}

async fn first_admin(hub: Hub, call: Call) -> Answer {
    session::demand_same_origin(&call.headers, hub.public_url())?;
    let FirstAdminRequest { code, name, key } = call.json()?;
    take_try(&hub, &call, "first admin")?;
    let code =
        SecretText::read(SecretKind::OneTimeCode, &code).ok_or_else(Problem::unauthorised)?;
    let account = Account::new(&name, PersonRole::Admin, "*")?;
    let key = accounts::read_key(&key)?;
    let first_code = Some(code.hash());
    hub.store()
        .add_account(NewAccount { account, key, made_by: String::new(), first_code })
        .await?;
    no_content()
}

async fn console_code(hub: Hub, call: Call) -> Answer {
    let CodeRequest { browser } = call.json()?;
    let browser = BrowserWord::read(&browser)?;
    let CameWith::ApiToken(token) = &call.person().came_with else {
        return Err(Problem::forbidden());
    };
    let code = SecretText::draw(SecretKind::OneTimeCode);
    let life_s = CONSOLE_CODE_LIFE_S;
    let kept = hub.store().add_console_code(code.hash(), token.clone(), browser.as_str(), life_s);
    if !kept.await? {
        return Err(Problem::unauthorised());
    }
    json(&CodeAnswer { code: code.reveal().to_owned(), expires_in_s: life_s.unsigned_abs() })
}

async fn open_session(hub: Hub, call: Call) -> Answer {
    session::demand_same_origin(&call.headers, hub.public_url())?;
    let SessionRequest { code } = call.json()?;
    take_try(&hub, &call, "session")?;
    let code =
        SecretText::read(SecretKind::OneTimeCode, &code).ok_or_else(Problem::unauthorised)?;
    let browser = word_of_browser(hub.public_url(), &call.headers);
    let browser = browser.as_ref().map_or("", BrowserWord::as_str);
    // Always a new one: a cookie that somebody planted before means nothing afterwards.
    let fresh = SecretText::draw(SecretKind::Session);
    let opened = match hub.store().open_session(code.hash(), fresh.hash(), browser).await? {
        CodeOutcome::Opened(opened) => opened,
        CodeOutcome::Unknown => return Err(Problem::unauthorised()),
        CodeOutcome::OtherBrowser => {
            let detail = "this link was made for another browser, and is over now";
            return Err(Problem::new(ProblemCode::Forbidden, detail).hint(
                "have a link made for this browser, by the command below; if you did not ask for \
                       one, it was sent to log you in as somebody else",
            ));
        }
    };
    if let Some(old) = session::from_cookie(hub.public_url(), &call.headers) {
        hub.store().end_session(old.hash(), &opened.account.name).await?;
    }
    let mut response =
        json(&who_answer(&hub, &opened.account, Some(csrf_token(&fresh))))?.into_response();
    let life_s = (opened.expires_at.0 - HubTime::now().0) / 1000;
    let cookie = SESSION_COOKIE.set(hub.public_url(), &fresh, life_s.max(0));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}
