//! Who asks, and whether they may. Decided from the table's row before a byte of the body is read.
//!
//! Nobody can learn from a refusal whether a host, an account or a secret exists: all of them say the same.

use axum::http::{HeaderMap, Method, header};

use crate::console::FormFields;
use crate::people::session;
use crate::problem::Problem;
use crate::routes::{Hub, RowFace};
use crate::secret_text::{SecretHash, SecretKind, SecretText};
use crate::store::{Account, AccountActor, LinkRow, OpenLogin, PersonRole};

/// Who may ask for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Whoever can reach the hub.
    Anyone,
    /// A host, by its credential.
    Host,
    /// A person with at least this role, within their scope.
    Person(PersonRole, Scope),
}

/// Which hosts a person's request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The host that `{host}` in the path names: it must be in the person's scope.
    HostInPath,
    /// Hosts that the handler chooses: it must ask [`Person::sees`] for each.
    InHandler,
    /// The hub itself, such as accounts: the person's scope must be `*`.
    WholeHub,
    /// The person's own things.
    Own,
    /// The person's own things, with an API token alone: what a browser holds opens nothing more.
    OwnToken,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Nobody in particular.
    Anyone,
    /// A host.
    Host(LinkRow),
    /// A person.
    Person(Person),
}

/// A person who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The account.
    pub account: Account,
    /// Its uid: a later account of the same name is another.
    pub account_uid: String,
    /// The secret they came with, to be ended by a logout.
    pub came_with: CameWith,
}

/// What a person showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameWith {
    /// An API token, by its hash.
    ApiToken(SecretHash),
    /// The cookie of a session, by its hash.
    Session(SecretHash),
}

impl Person {
    fn new(login: OpenLogin, came_with: CameWith) -> Self {
        Self { account: login.account, account_uid: login.account_uid, came_with }
    }

    /// The person as one who manages accounts.
    pub fn actor(&self) -> AccountActor {
        AccountActor::Person { name: self.account.name.clone(), uid: self.account_uid.clone() }
    }

    /// Whether a host is in the person's scope.
    pub fn sees(&self, host: &str) -> bool {
        glob_matches(&self.account.scope, host)
    }
}

/// Whether a name fits a glob in which `*` stands for any text. Linear in time whatever the pattern.
pub fn glob_matches(glob: &str, name: &str) -> bool {
    let Some((first, rest)) = glob.split_once('*') else { return glob == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = rest.split('*').collect();
    let (last, middle) = parts.split_last().expect("splitting gives at least one part");
    for part in middle {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

/// Finds out who asks and refuses who may not.
pub(crate) async fn caller(
    hub: &Hub,
    (access, face): (Access, RowFace),
    (method, headers): (&Method, &HeaderMap),
    host_in_path: Option<&str>,
) -> Result<Caller, Problem> {
    match access {
        Access::Anyone => Ok(Caller::Anyone),
        Access::Host => {
            let credential =
                bearer(headers, SecretKind::Credential).ok_or_else(Problem::unauthorised)?;
            let host = hub.store().host_by_credential(&credential.hash()).await?;
            host.map(Caller::Host).ok_or_else(Problem::unauthorised)
        }
        Access::Person(role, scope) => {
            let person = person(hub, face, method, headers).await?;
            if person.account.role < role {
                return Err(Problem::forbidden());
            }
            match (scope, host_in_path) {
                (Scope::HostInPath, Some(host)) if person.sees(host) => {}
                // As if it did not exist, which for this person is so.
                (Scope::HostInPath, host) => {
                    let host = format!("host {}", host.unwrap_or_default());
                    return Err(Problem::not_found(&host));
                }
                (Scope::WholeHub, _) if person.account.scope == "*" => {}
                (Scope::WholeHub, _) => return Err(Problem::forbidden()),
                (Scope::OwnToken, _) if matches!(person.came_with, CameWith::Session(_)) => {
                    return Err(Problem::forbidden());
                }
                (Scope::InHandler | Scope::Own | Scope::OwnToken, _) => {}
            }
            Ok(Caller::Person(person))
        }
    }
}

/// A person comes with a token, or with a session and then, to change anything, from the hub's own page. A token that is
/// shown counts alone: no other site can make a browser send one. Whoever sends a form may show the session's token in it,
/// where [`demand_form_token`] looks as soon as it is read.
async fn person(
    hub: &Hub,
    face: RowFace,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Person, Problem> {
    if headers.contains_key(header::AUTHORIZATION) {
        let token = bearer(headers, SecretKind::ApiToken).ok_or_else(Problem::unauthorised)?;
        let login = hub.store().login_by_token(&token.hash()).await?;
        let login = login.ok_or_else(Problem::unauthorised)?;
        return Ok(Person::new(login, CameWith::ApiToken(token.hash())));
    }
    let public_url = hub.public_url();
    let cookie = session::from_cookie(public_url, headers).ok_or_else(Problem::unauthorised)?;
    let login = hub.store().login_by_session(&cookie.hash()).await?;
    let login = login.ok_or_else(Problem::unauthorised)?;
    match face {
        RowFace::Form if !headers.contains_key(session::CSRF_HEADER) => {
            session::demand_same_origin(headers, public_url)?;
        }
        RowFace::Program | RowFace::Page | RowFace::Form => {
            session::demand_own_page(method, headers, &cookie, public_url)?;
        }
    }
    Ok(Person::new(login, CameWith::Session(cookie.hash())))
}

/// Refuses a form of a session that shows its token neither in a header, which was looked at before, nor in itself.
pub(crate) fn demand_form_token(
    hub: &Hub,
    face: RowFace,
    caller: &Caller,
    (headers, body): (&HeaderMap, &[u8]),
) -> Result<(), Problem> {
    let Caller::Person(Person { came_with: CameWith::Session(_), .. }) = caller else {
        return Ok(());
    };
    if face != RowFace::Form || headers.contains_key(session::CSRF_HEADER) {
        return Ok(());
    }
    let cookie =
        session::from_cookie(hub.public_url(), headers).ok_or_else(Problem::unauthorised)?;
    let shown = FormFields::read(body).ok().and_then(|form| form.one(session::CSRF_FIELD));
    session::demand_token(&cookie, &shown.unwrap_or_default())
}

/// The same person a while later, with the role and scope of today; none if they may not come in any more.
pub(crate) async fn still_there(hub: &Hub, person: &Person) -> Result<Option<Person>, Problem> {
    let login = match &person.came_with {
        CameWith::ApiToken(hash) => hub.store().login_by_token(hash).await?,
        CameWith::Session(hash) => hub.store().login_by_session(hash).await?,
    };
    Ok(login.map(|login| Person::new(login, person.came_with.clone())))
}

/// The secret of `Authorization: Bearer …`, if it is one of its kind.
fn bearer(headers: &HeaderMap, kind: SecretKind) -> Option<SecretText> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    SecretText::read(kind, value.strip_prefix("Bearer ")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_whole_names_only() {
        for (glob, name, fits) in [
            ("*", "pve1", true),
            ("eu-*", "eu-1", true),
            ("eu-*", "us-1", false),
            ("eu-*", "xeu-1", false),
            ("*-db", "eu-db", true),
            ("*-db", "eu-db2", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("a*ba*a", "aba", false),
            ("pve1", "pve1", true),
            ("pve1", "pve10", false),
            ("", "pve1", false),
        ] {
            assert_eq!(glob_matches(glob, name), fits, "{glob} {name}");
        }
    }
}
