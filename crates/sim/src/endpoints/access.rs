//! Log-in, permissions, users, tokens, access list.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Answer, Context};
use crate::access::{Identity, ROLES};
use crate::reply::{ReplyFailure, Success};

/// The paths `/access/permissions` always looks at, beside those of grants.
const TOP_PATHS: [&str; 8] =
    ["/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"];

pub(super) fn permissions(cx: &Context<'_>) -> Answer {
    let asked = match cx.text("userid") {
        Some(userid) if userid != cx.who.full() => {
            cx.need("/access", &["Sys.Audit"])?;
            match userid.split_once('!') {
                Some((user, token)) => Identity { user: user.into(), token: Some(token.into()) },
                None => Identity { user: userid.into(), token: None },
            }
        }
        Some(_) | None => cx.who.clone(),
    };
    let mut paths: Vec<&str> = match cx.text("path") {
        Some(path) => vec![path],
        None => TOP_PATHS
            .into_iter()
            .chain(cx.world.access.acl.iter().map(|g| g.path.as_str()))
            .collect(),
    };
    paths.sort_unstable();
    paths.dedup();
    let mut all = Map::new();
    for path in paths {
        let held = cx.world.access.privileges(&asked, path, cx.world.release());
        if !held.is_empty() || cx.text("path").is_some() {
            let held: Map<String, Value> = held
                .into_iter()
                .map(|(name, propagate)| (name, json!(u8::from(propagate))))
                .collect();
            all.insert(path.to_owned(), held.into());
        }
    }
    Ok(Value::Object(all).into())
}

/// The token a session must send with every write.
pub(crate) fn csrf_token(ticket: &str) -> String {
    let hash = Sha256::digest(ticket.as_bytes());
    let hex: String = hash.iter().take(16).fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02X}");
        text
    });
    format!("{}:{hex}", &hex[..8])
}

pub(super) fn ticket(cx: &mut Context<'_>) -> Answer {
    let denied = || Err(ReplyFailure::Unauthorised("authentication failure".into()));
    let mut user = cx.text("username").unwrap_or_default().to_owned();
    if let Some(realm) = cx.text("realm").filter(|_| !user.contains('@')) {
        user = format!("{user}@{realm}");
    }
    let password = cx.text("password").unwrap_or_default();
    let known = cx
        .world
        .access
        .users
        .get(&user)
        .is_some_and(|record| record.enabled && record.password == password);
    // A valid ticket may be sent as the password to get a fresh one.
    let renewed = cx.world.access.by_ticket(password).is_some_and(|who| who.user == user);
    if !known && !renewed {
        return denied();
    }
    let stamp = cx.world.unix(cx.now_ms);
    let ticket = format!(
        "PVE:{user}:{stamp:08X}::{:016x}{:016x}",
        cx.world.random.next(),
        cx.world.random.next()
    );
    cx.world.access.tickets.insert(ticket.clone(), user.clone());
    let who = Identity { user: user.clone(), token: None };
    let mut cap = Map::new();
    for (name, path, prefixes) in [
        ("vms", "/vms", &["VM.", "Permissions."][..]),
        ("storage", "/storage", &["Datastore.", "Permissions."]),
        ("nodes", "/nodes", &["Sys.", "Permissions."]),
        ("dc", "/", &["Sys.Audit", "Sys.Modify", "SDN."]),
        ("access", "/access", &["User.", "Group.", "Permissions."]),
        ("sdn", "/sdn", &["SDN.", "Permissions."]),
        ("mapping", "/mapping", &["Mapping.", "Permissions."]),
    ] {
        let held = cx.world.access.privileges(&who, path, cx.world.release());
        let held: Map<String, Value> = held
            .into_keys()
            .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
            .map(|name| (name, json!(1)))
            .collect();
        cap.insert(name.to_owned(), held.into());
    }
    let csrf = csrf_token(&ticket);
    Ok(json!({"username": user, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": cap}).into())
}

pub(super) fn acl(cx: &Context<'_>) -> Success {
    if !cx.may("/access", &["Sys.Audit", "Permissions.Modify"]) {
        return json!([]).into();
    }
    let grants = cx.world.access.acl.iter().map(|grant| {
        let kind = if grant.holder.contains('!') { "token" } else { "user" };
        json!({"path": grant.path, "ugid": grant.holder, "type": kind, "roleid": grant.role, "propagate": u8::from(grant.propagate)})
    });
    grants.collect::<Value>().into()
}

pub(super) fn users(cx: &Context<'_>) -> Success {
    let sees_all = cx.may("/access/groups", &["User.Modify", "Sys.Audit"]);
    let users = cx
        .world
        .access
        .users
        .iter()
        .filter(|(name, _)| sees_all || (**name == cx.who.user && cx.who.token.is_none()));
    let full = cx.text("full").is_some_and(|full| full == "1");
    users
        .map(|(name, user)| {
            let mut entry = json!({"userid": name, "enable": u8::from(user.enabled), "expire": user.expires, "realm-type": name.rsplit('@').next()});
            if full {
                entry["tokens"] = tokens_of(cx, name);
            }
            entry
        })
        .collect::<Value>()
        .into()
}

fn tokens_of(cx: &Context<'_>, user: &str) -> Value {
    let prefix = format!("{user}!");
    let own = cx.world.access.tokens.iter().filter_map(|(name, token)| {
        let id = name.strip_prefix(&prefix)?;
        Some(json!({"tokenid": id, "privsep": u8::from(token.separated), "expire": token.expires}))
    });
    own.collect()
}

/// A user may see its own tokens, but a token is not its user.
fn may_see_tokens(cx: &Context<'_>) -> Result<(), ReplyFailure> {
    if cx.who.token.is_none() && cx.who.user == cx.hole("userid") {
        return Ok(());
    }
    cx.need("/access/groups", &["User.Modify"])
}

pub(super) fn tokens(cx: &Context<'_>) -> Answer {
    may_see_tokens(cx)?;
    Ok(tokens_of(cx, cx.hole("userid")).into())
}

pub(super) fn token(cx: &Context<'_>) -> Answer {
    may_see_tokens(cx)?;
    let name = format!("{}!{}", cx.hole("userid"), cx.hole("tokenid"));
    match cx.world.access.tokens.get(&name) {
        Some(token) => {
            Ok(json!({"privsep": u8::from(token.separated), "expire": token.expires}).into())
        }
        None => Err(ReplyFailure::Died(format!(
            "no such token '{}' for user '{}'",
            cx.hole("tokenid"),
            cx.hole("userid")
        ))),
    }
}

pub(super) fn roles(cx: &Context<'_>) -> Success {
    let release = cx.world.release();
    let access = &cx.world.access;
    let shipped = ROLES.iter().map(|name| (*name, 1));
    let made = access.roles.keys().map(|name| (name.as_str(), 0));
    shipped
        .chain(made)
        .map(|(name, special)| {
            let privileges: Vec<String> = access.role(name, release).into_iter().collect();
            json!({"roleid": name, "special": special, "privs": privileges.join(",")})
        })
        .collect::<Value>()
        .into()
}
