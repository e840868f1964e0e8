//! Accounts: who may come in, with which keys, for which hosts. Admins of the whole hub manage them.

use axum::http::Method;
use evenkeel_core::sign::PublicKey;
use schemars::SchemaGenerator;

use super::SMALL_BODY_MAX;
use super::page::{PAGE_QUERY, after, limit, one_more, page};
use super::wire::{
    AccountBody, AccountChangeRequest, AccountKeyBody, AccountKeyRequest, AccountRequest, PageBody,
};
use crate::access::{Access, Person, Scope};
use crate::call::Call;
use crate::problem::Problem;
use crate::routes::{Answer, Hub, NO_BODY, RouteRow, json, no_content};
use crate::store::{
    Account, AccountKey, HubTime, ListedAccount, ListedKey, NewAccount, PersonRole,
};

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
            (Method::PUT, "/v1/accounts/{name}"),
            admin,
            SMALL_BODY_MAX,
            "gives an account another role and scope, which hold at once",
            change,
        )
        .takes(SchemaGenerator::subschema_for::<AccountChangeRequest>),
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
        RouteRow::new(
            (Method::DELETE, "/v1/accounts/{name}/keys/{fingerprint}"),
            admin,
            NO_BODY,
            "takes a key from an account; the tokens it made end",
            remove_key,
        ),
    ]
}

/// Refuses a name that no account can have.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    Account::new(name, PersonRole::Viewer, "*").map(drop)
}

/// A key people may come in with: the same kinds that may sign on a host, and none that is weak.
pub(crate) fn read_key(line: &str) -> Result<AccountKey, Problem> {
    let refuse = |refusal: evenkeel_core::model::reason::Refusal| {
        Problem::invalid(format!("the key is not taken: {}", refusal.detail))
            .hint("give a line of a .pub file, made by ssh-keygen -t ed25519")
    };
    let key = PublicKey::from_line(line.trim()).map_err(refuse)?;
    Ok(AccountKey { fingerprint: key.fingerprint().to_string(), key_line: key.to_string() })
}

async fn list(hub: Hub, call: Call) -> Answer {
    let limit = limit(&call)?;
    let rows = hub.store().accounts_after(after(&call), one_more(limit)).await?;
    let key = |ListedKey { fingerprint, last_used_at }: ListedKey| AccountKeyBody {
        fingerprint,
        last_used_at: used_at(last_used_at),
    };
    let body = |ListedAccount { account, keys, last_used_at }: ListedAccount| AccountBody {
        name: account.name,
        role: account.role.as_str().to_owned(),
        scope: account.scope,
        keys: keys.into_iter().map(key).collect(),
        last_used_at: used_at(last_used_at),
    };
    json(&page(rows, limit, |row| row.account.name.clone(), body))
}

/// When something was used last; none for never.
pub(crate) fn used_at(at: HubTime) -> Option<String> {
    (at.0 > 0).then(|| at.to_text())
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
    let role = read_role(&role)?;
    let key = read_key(&key)?;
    let account = Account::new(&name, role, &scope)?;
    let made_by = person.account.name.clone();
    hub.store().add_account(NewAccount { account, key, made_by, first_code: None }).await?;
    Ok(())
}

fn read_role(text: &str) -> Result<PersonRole, Problem> {
    PersonRole::named(text).ok_or_else(|| Problem::invalid("a role is viewer, editor or admin"))
}

async fn change(hub: Hub, call: Call) -> Answer {
    change_account(&hub, &call, call.json()?).await?;
    no_content()
}

/// Gives the account in the path another role and scope.
pub(crate) async fn change_account(
    hub: &Hub,
    call: &Call,
    request: AccountChangeRequest,
) -> Result<(), Problem> {
    let AccountChangeRequest { role, scope } = request;
    let account = Account::new(call.part("name")?, read_role(&role)?, &scope)?;
    Ok(hub.store().change_account(account, call.person().actor()).await?)
}

async fn remove(hub: Hub, call: Call) -> Answer {
    hub.store().remove_account(call.part("name")?, call.person().actor()).await?;
    no_content()
}

async fn remove_key(hub: Hub, call: Call) -> Answer {
    let name = call.part("name")?;
    let fingerprint = call.part("fingerprint")?;
    hub.store().remove_account_key(name, fingerprint, call.person().actor()).await?;
    no_content()
}

async fn add_key(hub: Hub, call: Call) -> Answer {
    let AccountKeyRequest { key } = call.json()?;
    let key = read_key(&key)?;
    hub.store().add_account_key(call.part("name")?, key, call.person().actor()).await?;
    no_content()
}
