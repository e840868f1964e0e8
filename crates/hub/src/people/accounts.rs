//! Accounts: who may come in, with which keys, for which hosts. Admins of the whole hub manage them.

use axum::http::Method;
use evenkeel_core::sign::PublicKey;
use schemars::SchemaGenerator;

use super::SMALL_BODY_MAX;
use super::page::{PAGE_QUERY, after, limit, one_more, page};
use super::wire::{AccountBody, AccountKeyRequest, AccountRequest, PageBody};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::store::{Account, AccountKey, ListedAccount, NewAccount, PersonRole};

pub(super) fn rows() -> Vec<RouteRow> {
    // Whoever may make accounts may give any scope, so it takes one that is not bounded itself.
    let admin = Access::Person(PersonRole::Admin, Scope::WholeHub);
    vec![
        RouteRow::new((Method::GET, "/v1/accounts"), admin, NO_BODY, "all accounts", list)
            .asks(PAGE_QUERY)
            .answers(SchemaGenerator::subschema_for::<PageBody<AccountBody>>),
        RouteRow::new(
            (Method::POST, "/v1/accounts"),
            admin,
            SMALL_BODY_MAX,
            "makes an account",
            add,
        )
        .takes(SchemaGenerator::subschema_for::<AccountRequest>),
        RouteRow::new(
            (Method::DELETE, "/v1/accounts/{name}"),
            admin,
            NO_BODY,
            "removes an account; its tokens and sessions end",
            remove,
        ),
        RouteRow::new(
            (Method::POST, "/v1/accounts/{name}/keys"),
            admin,
            SMALL_BODY_MAX,
            "gives an account another key",
            add_key,
        )
        .takes(SchemaGenerator::subschema_for::<AccountKeyRequest>),
    ]
}

/// Refuses a name that no account can have.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    Account::new(name, PersonRole::Viewer, "*").map(drop)
}

/// A key people may come in with: the same kinds that may sign on a host, and none that is weak.
pub(crate) fn read_key(line: &str) -> Result<AccountKey, Problem> {
    let refuse = |refusal: evenkeel_core::reason::Refusal| {
        Problem::invalid(format!("the key is not taken: {}", refusal.detail))
            .hint("give a line of a .pub file, made by ssh-keygen -t ed25519")
    };
    let key = PublicKey::from_line(line.trim()).map_err(refuse)?;
    Ok(AccountKey { fingerprint: key.fingerprint().to_string(), key_line: key.to_string() })
}

async fn list(hub: Hub, call: Call) -> Answer {
    let limit = limit(&call)?;
    let rows = hub.store().accounts_after(after(&call), one_more(limit)).await?;
    let body = |ListedAccount { account, keys }: ListedAccount| AccountBody {
        name: account.name,
        role: account.role.as_str().to_owned(),
        scope: account.scope,
        keys,
    };
    json(&page(rows, limit, |row| row.account.name.clone(), body))
}

async fn add(hub: Hub, call: Call) -> Answer {
    add_account(&hub, call.person(), call.json()?).await?;
    no_content()
}

/// Makes an account, as somebody who may.
pub(crate) async fn add_account(
    hub: &Hub,
    person: &Person,
    request: AccountRequest,
) -> Result<(), Problem> {
    let AccountRequest { name, role, scope, key } = request;
    let role = PersonRole::named(&role)
        .ok_or_else(|| Problem::invalid("a role is viewer, editor or admin"))?;
    let key = read_key(&key)?;
    let account = Account::new(&name, role, &scope)?;
    let made_by = person.account.name.clone();
    hub.store().add_account(NewAccount { account, key, made_by, first_code: None }).await?;
    Ok(())
}

async fn remove(hub: Hub, call: Call) -> Answer {
    hub.store().remove_account(call.part("name")?, &call.person().account.name).await?;
    no_content()
}

async fn add_key(hub: Hub, call: Call) -> Answer {
    let AccountKeyRequest { key } = call.json()?;
    let key = read_key(&key)?;
    let who = &call.person().account.name;
    hub.store().add_account_key(call.part("name")?, key, who).await?;
    no_content()
}
