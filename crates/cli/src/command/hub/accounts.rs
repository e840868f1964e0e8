//! `hub account`: who may come in.

use std::io::Write as _;

use camino::Utf8Path;
use evenkeel_core::sign::PublicKey;
use evenkeel_hub::store::{
    Account, AccountActor, AccountKey, HubStore, HubTime, ListedAccount, NewAccount, PersonRole,
};
use serde_json::json;

use super::SERVER;
use crate::cli::{AccountRole, HubAccountVerb, OutputFormat};
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest public key file: a line with a long comment.
const KEY_BYTES_MAX: usize = 16 * 1024;
/// Accounts read at a time.
const PAGE: i64 = 200;

pub(super) async fn run(store: &HubStore, verb: &HubAccountVerb) -> Result<Exit, CommandFailure> {
    let server = AccountActor::Server;
    let line = match verb {
        HubAccountVerb::Add { name, role, key, scope } => {
            let account = Account::new(name, person_role(*role), scope)?;
            let key = read_key(key)?;
            let role = account.role.as_str();
            let fingerprint = key.fingerprint.clone();
            let made_by = SERVER.to_owned();
            store.add_account(NewAccount { account, key, made_by, first_code: None }).await?;
            format!("account {name} ({role}) of {scope} signs in with {fingerprint}")
        }
        HubAccountVerb::List { output } => return list(store, output.output).await,
        HubAccountVerb::Change { name, role, scope } => {
            let account = Account::new(name, person_role(*role), scope)?;
            let role = account.role.as_str();
            store.change_account(account, server).await?;
            format!("account {name} is {role} of {scope} from now on")
        }
        HubAccountVerb::Remove { name } => {
            store.remove_account(name, server).await?;
            format!("account {name} is removed; its tokens and sessions ended")
        }
        HubAccountVerb::AddKey { name, key } => {
            let key = read_key(key)?;
            let fingerprint = key.fingerprint.clone();
            store.add_account_key(name, key, server).await?;
            format!("account {name} signs in with {fingerprint} too")
        }
        HubAccountVerb::RemoveKey { name, fingerprint } => {
            store.remove_account_key(name, fingerprint, server).await?;
            format!("account {name} does not sign in with {fingerprint} any more; its tokens ended")
        }
        HubAccountVerb::Logout { name } => {
            let ended = store.end_logins(name, server).await?;
            format!("ended {ended} logins of {name}, with their sessions")
        }
    };
    writeln!(std::io::stdout(), "{line}")?;
    Ok(Exit::Ok)
}

fn person_role(role: AccountRole) -> PersonRole {
    match role {
        AccountRole::Viewer => PersonRole::Viewer,
        AccountRole::Editor => PersonRole::Editor,
        AccountRole::Admin => PersonRole::Admin,
    }
}

fn read_key(path: &Utf8Path) -> Result<AccountKey, CommandFailure> {
    let text = file::read_text(path, KEY_BYTES_MAX)?;
    let public = PublicKey::from_line(text.trim_end()).map_err(|refusal| {
        CommandFailure::new(
            Exit::Invalid,
            format!("{path} is no public key that can be used: {}", refusal.detail),
        )
        .hint("name the file that ends with .pub")
    })?;
    let fingerprint = public.fingerprint().to_string();
    Ok(AccountKey { fingerprint, key_line: public.to_string() })
}

/// When something was used last; empty for never.
fn used(at: HubTime) -> Option<String> {
    (at.0 > 0).then(|| at.to_text())
}

async fn list(store: &HubStore, output: OutputFormat) -> Result<Exit, CommandFailure> {
    let mut accounts: Vec<ListedAccount> = Vec::new();
    loop {
        let after = accounts.last().map(|last| last.account.name.clone()).unwrap_or_default();
        let page = store.accounts_after(&after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        accounts.extend(page);
    }
    let out = &mut std::io::stdout();
    match output {
        OutputFormat::Json => {
            let accounts: Vec<_> = accounts.iter().map(account_json).collect();
            writeln!(out, "{}", json!({ "format_version": 1, "accounts": accounts }))?;
        }
        OutputFormat::Table => {
            for ListedAccount { account, keys, last_used_at } in &accounts {
                let Account { name, role, scope } = account;
                let last = used(*last_used_at).unwrap_or_else(|| "never".to_owned());
                writeln!(out, "{name}  {} of {scope}  last used {last}", role.as_str())?;
                for key in keys {
                    let last = used(key.last_used_at).unwrap_or_else(|| "never".to_owned());
                    writeln!(out, "  {}  last used {last}", key.fingerprint)?;
                }
            }
        }
    }
    Ok(Exit::Ok)
}

fn account_json(listed: &ListedAccount) -> serde_json::Value {
    let ListedAccount { account: Account { name, role, scope }, keys, last_used_at } = listed;
    let key = |key: &evenkeel_hub::store::ListedKey| json!({ "fingerprint": key.fingerprint, "last_used_at": used(key.last_used_at) });
    let keys: Vec<_> = keys.iter().map(key).collect();
    json!({
        "name": name, "role": role.as_str(), "scope": scope, "keys": keys,
        "last_used_at": used(*last_used_at),
    })
}
