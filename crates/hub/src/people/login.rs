//! Coming in and going: a challenge signed by an SSH key becomes a token, a one-time code becomes a session.
//!
//! No password exists. A login is bound to this hub and to the address that was dialled, so that one that was tricked out
//! of somebody at another address is worth nothing here. All refusals say the same.

use std::time::Instant;

use axum::http::{Method, header};
use axum::response::{IntoResponse as _, Response};
use evenkeel_core::fleet::LoginStatement;
use evenkeel_core::sign::PublicKey;
use schemars::SchemaGenerator;

use super::session::{self, csrf_token, origin_of};
use super::wire::{
    ChallengeAnswer, ChallengeRequest, CodeAnswer, FirstAdminRequest, LoginAnswer, LoginRequest,
    SessionRequest, WhoAnswer,
};
use super::{SMALL_BODY_MAX, accounts};
use crate::access::{Access, CameWith, Person, Scope};
use crate::call::Call;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::secret_text::{SecretHash, SecretKind, SecretText, random_hex};
use crate::store::{Account, CodePurpose, NewAccount, PersonRole};

/// How long a challenge may be answered, by the hub's clock.
const CHALLENGE_LIFE_S: i64 = 60;
/// How long a token is good.
const TOKEN_LIFE_S: i64 = 12 * 3600;
/// How long the link to the console works.
const CONSOLE_CODE_LIFE_S: i64 = 60;
/// Random bytes of a nonce, as statements have it.
const NONCE_BYTES: usize = 16;

pub(super) fn rows() -> Vec<RouteRow> {
    let anyone = Access::Anyone;
    let own = Access::Person(PersonRole::Viewer, Scope::Own);
    vec![
        RouteRow::new(
            (Method::POST, "/v1/login/challenge"),
            anyone,
            SMALL_BODY_MAX,
            "a challenge to be signed",
            challenge,
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
            "ends the token or session it came with",
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
            own,
            SMALL_BODY_MAX,
            "a one-time code for the console",
            console_code,
        )
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
    let (people, now) = (hub.people(), Instant::now());
    let address = call.address.as_deref().unwrap_or("unknown");
    let waits = people.by_address.take(address, now);
    let waits = waits.and_then(|()| people.by_account.take(&format!("{account} {address}"), now));
    waits.map_err(|wait| {
        let seconds = wait.as_secs().max(1);
        Problem::new(ProblemCode::TooMany, "too many tries to log in")
            .hint(format!("try again in {seconds} s"))
    })
}

async fn challenge(hub: Hub, call: Call) -> Answer {
    let ChallengeRequest { account } = call.json()?;
    accounts::check_name(&account)?;
    take_try(&hub, &call, &account)?;
    let nonce = random_hex(NONCE_BYTES);
    hub.store().add_challenge(SecretHash::of(&nonce), &account, CHALLENGE_LIFE_S).await?;
    json(&ChallengeAnswer {
        hub_id: hub.store().hub_id().to_owned(),
        nonce,
        expires_in_s: CHALLENGE_LIFE_S.unsigned_abs(),
    })
}

async fn login(hub: Hub, call: Call) -> Answer {
    let LoginRequest { account, login } = call.json()?;
    accounts::check_name(&account)?;
    take_try(&hub, &call, &account)?;
    let envelope = login.sealed().envelope().map_err(|_| Problem::unauthorised())?;
    // Read before it is verified, and only to find which challenge is over: it is, whatever else is wrong.
    let claimed = LoginStatement::parse(envelope.payload()).map_err(|_| Problem::unauthorised())?;
    let nonce = SecretHash::of(&claimed.nonce.to_string());
    let is_fresh = hub.store().spend_challenge(nonce, &account).await?;
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
    if !is_fresh || statement.account != account {
        return Err(Problem::unauthorised());
    }
    let token = SecretText::draw(SecretKind::ApiToken);
    let fingerprint = key.fingerprint().to_string();
    let opened = hub.store().open_token(token.hash(), &account, &fingerprint, TOKEN_LIFE_S).await?;
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
    let clear = session::clear_cookie(hub.public_url());
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
    let code = SecretText::draw(SecretKind::OneTimeCode);
    let name = &call.person().account.name;
    let life_s = CONSOLE_CODE_LIFE_S;
    hub.store().add_code(code.hash(), CodePurpose::Console, name, life_s).await?;
    hub.store().audit(name, "console.code", name, "").await?;
    json(&CodeAnswer { code: code.reveal().to_owned(), expires_in_s: life_s.unsigned_abs() })
}

async fn open_session(hub: Hub, call: Call) -> Answer {
    session::demand_same_origin(&call.headers, hub.public_url())?;
    let SessionRequest { code } = call.json()?;
    take_try(&hub, &call, "session")?;
    let code =
        SecretText::read(SecretKind::OneTimeCode, &code).ok_or_else(Problem::unauthorised)?;
    // Always a new one: a cookie that somebody planted before means nothing afterwards.
    let fresh = SecretText::draw(SecretKind::Session);
    let opened =
        hub.store().open_session(code.hash(), fresh.hash(), session::SESSION_LIFE_S).await?;
    let opened = opened.ok_or_else(Problem::unauthorised)?;
    if let Some(old) = session::from_cookie(hub.public_url(), &call.headers) {
        hub.store().end_session(old.hash(), &opened.account.name).await?;
    }
    let mut response =
        json(&who_answer(&hub, &opened.account, Some(csrf_token(&fresh))))?.into_response();
    let cookie = session::set_cookie(hub.public_url(), &fresh);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}
