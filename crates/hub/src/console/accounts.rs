//! Accounts, for admins of the whole hub: who may come in, with which keys, for which hosts; made, given a key, removed.
//!
//! A page never asks for a private key: it takes the line of a `.pub` file, and its script keeps anything else from being sent.

use askama::Template;
use axum::http::Method;

use super::form::FormFields;
use super::shell::{PagePlace, Shell};
use super::words::in_path;
use super::{page, page_with, see};
use crate::access::{Access, Scope};
use crate::call::Call;
use crate::people::SMALL_BODY_MAX;
use crate::people::accounts::{add_account, change_account, read_key, used_at};
use crate::people::page::{after, one_more};
use crate::people::wire::{AccountChangeRequest, AccountRequest};
use crate::problem::{Problem, ProblemCode};
use crate::routes::{Answer, Hub, NO_BODY, RouteRow};
use crate::store::{HubTime, ListedAccount, ListedKey, PersonRole};

/// Accounts of one page.
const ACCOUNTS_PER_PAGE: usize = 100;
/// Where the page is.
const ACCOUNTS_PATH: &str = "/console/accounts";

/// Who manages accounts.
const ADMIN: Access = Access::Person(PersonRole::Admin, Scope::WholeHub);

pub(super) fn rows() -> Vec<RouteRow> {
    vec![
        RouteRow::new(
            (Method::GET, ACCOUNTS_PATH),
            ADMIN,
            NO_BODY,
            "all accounts, as a page",
            accounts,
        )
        .asks(&["after"])
        .page(),
        form_row(ACCOUNTS_PATH, "makes an account", add),
        form_row("/console/accounts/{name}/keys", "gives an account another key", add_key),
        form_row(
            "/console/accounts/{name}/keys/remove",
            "takes a key from an account; the tokens it made end",
            remove_key,
        ),
        form_row(
            "/console/accounts/{name}/change",
            "gives an account another role and scope, which hold at once",
            change,
        ),
        form_row(
            "/console/accounts/{name}/logout",
            "ends all tokens of an account, with their sessions",
            logout,
        ),
        form_row(
            "/console/accounts/{name}/remove",
            "removes an account; its tokens and sessions end",
            remove,
        ),
    ]
}

/// A form that an admin sends.
fn form_row<H, F>(path: &'static str, summary: &'static str, handler: H) -> RouteRow
where
    H: Fn(Hub, Call) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    RouteRow::new((Method::POST, path), ADMIN, SMALL_BODY_MAX, summary, handler).form()
}

/// An account in the list.
struct AccountLine {
    name: String,
    path: String,
    role: &'static str,
    scope: String,
    keys: Vec<KeyLine>,
    last_used: String,
    is_self: bool,
}

/// A key in the list.
struct KeyLine {
    fingerprint: String,
    last_used: String,
}

/// When something was used last, for people.
fn last_used(at: HubTime) -> String {
    used_at(at).map_or_else(|| "never used".to_owned(), |at| format!("last used {at}"))
}

/// What the form for a new account holds.
struct AccountForm {
    name: String,
    role: String,
    scope: String,
    key: String,
}

impl AccountForm {
    fn empty() -> Self {
        let role = PersonRole::Viewer.as_str().to_owned();
        Self { name: String::new(), role, scope: "*".to_owned(), key: String::new() }
    }
}

#[derive(Template)]
#[template(path = "accounts.html")]
struct AccountsPage {
    shell: Shell,
    accounts: Vec<AccountLine>,
    next: Option<String>,
    roles: [(&'static str, &'static str); 3],
    form: AccountForm,
    /// Why something was not taken.
    problem: Option<Problem>,
}

async fn accounts_page(
    hub: &Hub,
    call: &Call,
    form: AccountForm,
    problem: Option<Problem>,
) -> Result<AccountsPage, Problem> {
    let after = after(call);
    let mut rows = hub.store().accounts_after(after, one_more(ACCOUNTS_PER_PAGE)).await?;
    let more = rows.len() > ACCOUNTS_PER_PAGE;
    rows.truncate(ACCOUNTS_PER_PAGE);
    let next = rows.last().filter(|_| more);
    let next = next.map(|last| format!("{ACCOUNTS_PATH}?after={}", in_path(&last.account.name)));
    let me = &call.person().account.name;
    let key = |ListedKey { fingerprint, last_used_at }: ListedKey| KeyLine {
        fingerprint,
        last_used: last_used(last_used_at),
    };
    let line = |ListedAccount { account, keys, last_used_at }: ListedAccount| AccountLine {
        path: format!("{ACCOUNTS_PATH}/{}", in_path(&account.name)),
        role: account.role.as_str(),
        is_self: account.name == *me,
        scope: account.scope,
        name: account.name,
        keys: keys.into_iter().map(key).collect(),
        last_used: last_used(last_used_at),
    };
    let address = format!("{ACCOUNTS_PATH}?after={}", in_path(after));
    let role = |role: PersonRole| match role {
        PersonRole::Viewer => (role.as_str(), "sees"),
        PersonRole::Editor => (role.as_str(), "pushes documents, hands in approvals"),
        PersonRole::Admin => (role.as_str(), "manages hosts and accounts"),
    };
    Ok(AccountsPage {
        shell: Shell::new(hub, call, PagePlace::Accounts, "Accounts", address).await?,
        accounts: rows.into_iter().map(line).collect(),
        next,
        roles: PersonRole::ALL.map(role),
        form,
        problem,
    })
}

async fn accounts(hub: Hub, call: Call) -> Answer {
    page(&accounts_page(&hub, &call, AccountForm::empty(), None).await?)
}

async fn add(hub: Hub, call: Call) -> Answer {
    let fields = FormFields::read(&call.body)?;
    let field = |name| fields.text(name).trim().to_owned();
    let name = field("name");
    let role = field("role");
    let scope = field("scope");
    let key = field("key");
    let form = AccountForm { name, role, scope, key };
    let AccountForm { name, role, scope, key } = &form;
    let request = AccountRequest {
        name: name.clone(),
        role: role.clone(),
        scope: scope.clone(),
        key: key.clone(),
    };
    match add_account(&hub, call.person(), request).await {
        Ok(()) => see(ACCOUNTS_PATH),
        Err(problem) => refused(&hub, &call, form, problem).await,
    }
}

async fn add_key(hub: Hub, call: Call) -> Answer {
    let fields = FormFields::read(&call.body)?;
    let given = match read_key(fields.text("key")) {
        Ok(key) => {
            let kept = hub.store().add_account_key(call.part("name")?, key, call.person().actor());
            kept.await.map_err(Problem::from)
        }
        Err(problem) => Err(problem),
    };
    done(&hub, &call, given).await
}

async fn remove_key(hub: Hub, call: Call) -> Answer {
    let fields = FormFields::read(&call.body)?;
    let name = call.part("name")?;
    let who = call.person().actor();
    let removed = hub.store().remove_account_key(name, fields.text("fingerprint"), who).await;
    done(&hub, &call, removed.map_err(Problem::from)).await
}

async fn change(hub: Hub, call: Call) -> Answer {
    let fields = FormFields::read(&call.body)?;
    let field = |name| fields.text(name).trim().to_owned();
    let request = AccountChangeRequest { role: field("role"), scope: field("scope") };
    let changed = change_account(&hub, &call, request).await;
    done(&hub, &call, changed).await
}

async fn logout(hub: Hub, call: Call) -> Answer {
    let ended = hub.store().end_logins(call.part("name")?, call.person().actor()).await;
    done(&hub, &call, ended.map(drop).map_err(Problem::from)).await
}

async fn remove(hub: Hub, call: Call) -> Answer {
    let removed = hub.store().remove_account(call.part("name")?, call.person().actor()).await;
    done(&hub, &call, removed.map_err(Problem::from)).await
}

/// The list as it is now, or the page again with why something was not taken.
async fn done(hub: &Hub, call: &Call, outcome: Result<(), Problem>) -> Answer {
    match outcome {
        Ok(()) => see(ACCOUNTS_PATH),
        Err(problem) => refused(hub, call, AccountForm::empty(), problem).await,
    }
}

/// The page again with why something was not taken; what was written is still in its form.
async fn refused(hub: &Hub, call: &Call, form: AccountForm, problem: Problem) -> Answer {
    match problem.code {
        ProblemCode::Invalid | ProblemCode::Conflict | ProblemCode::TooMany => {
            let status = problem.code.status();
            page_with(status, &accounts_page(hub, call, form, Some(problem)).await?)
        }
        ProblemCode::Unauthorised
        | ProblemCode::Forbidden
        | ProblemCode::NotFound
        | ProblemCode::Resync
        | ProblemCode::Stale
        | ProblemCode::TooLarge
        | ProblemCode::Unavailable
        | ProblemCode::Internal => Err(problem),
    }
}
