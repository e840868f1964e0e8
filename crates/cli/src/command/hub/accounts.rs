//! `hub account`: who may come in.

use std::io::Write as _;

use evenkeel_core::sign::PublicKey;
use evenkeel_hub::store::{Account, AccountKey, HubStore, NewAccount, PersonRole};

use super::SERVER;
use crate::cli::{AccountRole, HubAccountVerb};
use crate::error::{Exit, Failure};
use crate::signing::file;

/// The largest public key file: a line with a long comment.
const KEY_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn run(store: &HubStore, verb: &HubAccountVerb) -> Result<Exit, Failure> {
    let HubAccountVerb::Add { name, role, key, scope } = verb;
    let text = file::read_text(key, KEY_BYTES_MAX)?;
    let public = PublicKey::from_line(text.trim_end()).map_err(|refusal| {
        Failure::new(
            Exit::Invalid,
            format!("{key} is no public key that can be used: {}", refusal.detail),
        )
        .hint("name the file that ends with .pub")
    })?;
    let role = match role {
        AccountRole::Viewer => PersonRole::Viewer,
        AccountRole::Editor => PersonRole::Editor,
        AccountRole::Admin => PersonRole::Admin,
    };
    let account = Account::new(name, role, scope)?;
    let fingerprint = public.fingerprint().to_string();
    let key = AccountKey { fingerprint: fingerprint.clone(), key_line: public.to_string() };
    store
        .add_account(NewAccount { account, key, made_by: SERVER.to_owned(), first_code: None })
        .await?;
    writeln!(
        std::io::stdout(),
        "account {name} ({}) of {scope} signs in with {fingerprint}",
        role.as_str()
    )?;
    Ok(Exit::Ok)
}
