//! Writing users, tokens, roles and the access list, as an administrator does who tries a role before it is given to an agent.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Answer, Context};
use crate::access::{Grant, ROLES};
use crate::format::split_list;
use crate::reply::ReplyFailure;

pub(super) fn add_user(cx: &mut Context<'_>) -> Answer {
    let user = cx.text("userid").unwrap_or_default().to_owned();
    if cx.world.access.users.contains_key(&user) {
        return died(format!("create user failed: user '{user}' already exists"));
    }
    // Without a password nobody logs in; tokens need none.
    cx.world.access.add_user(&user, "");
    Ok(Value::Null.into())
}

pub(super) fn delete_user(cx: &mut Context<'_>) -> Answer {
    let user = cx.hole("userid").to_owned();
    let access = &mut cx.world.access;
    if access.users.remove(&user).is_none() {
        return died(format!("delete user failed: no such user ('{user}')"));
    }
    let tokens = format!("{user}!");
    access.tokens.retain(|name, _| !name.starts_with(&tokens));
    access.acl.retain(|grant| grant.holder != user && !grant.holder.starts_with(&tokens));
    Ok(Value::Null.into())
}

pub(super) fn add_token(cx: &mut Context<'_>) -> Answer {
    let user = cx.hole("userid").to_owned();
    let id = cx.hole("tokenid").to_owned();
    if !cx.world.access.users.contains_key(&user) {
        return died(format!("no such user ('{user}')"));
    }
    let name = format!("{user}!{id}");
    if cx.world.access.tokens.contains_key(&name) {
        let errors = [("tokenid".to_owned(), "Token already exists.".to_owned())];
        return Err(ReplyFailure::Params(errors.into()));
    }
    let separated = cx.text("privsep") != Some("0");
    let random = &mut cx.world.random;
    let high = random.next();
    let low = random.next();
    let secret = format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    );
    cx.world.access.add_token(&name, &secret, separated);
    let info = json!({"privsep": if separated { "1" } else { "0" }});
    Ok(json!({"full-tokenid": name, "info": info, "value": secret}).into())
}

pub(super) fn delete_token(cx: &mut Context<'_>) -> Answer {
    let name = format!("{}!{}", cx.hole("userid"), cx.hole("tokenid"));
    let access = &mut cx.world.access;
    if access.tokens.remove(&name).is_none() {
        return died(format!("no such token '{name}'"));
    }
    access.acl.retain(|grant| grant.holder != name);
    Ok(Value::Null.into())
}

pub(super) fn add_role(cx: &mut Context<'_>) -> Answer {
    let role = cx.text("roleid").unwrap_or_default().to_owned();
    if ROLES.contains(&role.as_str()) || cx.world.access.roles.contains_key(&role) {
        return died(format!("create role failed: role '{role}' already exists"));
    }
    let privileges = privileges(cx)?;
    cx.world.access.roles.insert(role, privileges);
    Ok(Value::Null.into())
}

pub(super) fn set_role(cx: &mut Context<'_>) -> Answer {
    let role = cx.hole("roleid").to_owned();
    let privileges = privileges(cx)?;
    let adds = cx.flag("append");
    let Some(found) = cx.world.access.roles.get_mut(&role) else {
        return died(format!("update role failed: role '{role}' does not exist"));
    };
    if !adds {
        found.clear();
    }
    found.extend(privileges);
    Ok(Value::Null.into())
}

pub(super) fn delete_role(cx: &mut Context<'_>) -> Answer {
    let role = cx.hole("roleid").to_owned();
    let access = &mut cx.world.access;
    if access.roles.remove(&role).is_none() {
        return died(format!("delete role failed: role '{role}' does not exist"));
    }
    access.acl.retain(|grant| grant.role != role);
    Ok(Value::Null.into())
}

pub(super) fn set_acl(cx: &mut Context<'_>) -> Answer {
    let path = cx.text("path").unwrap_or_default().to_owned();
    let list = |name: &str| -> Vec<String> {
        split_list(cx.text(name).unwrap_or_default()).into_iter().map(str::to_owned).collect()
    };
    let roles = list("roles");
    let users = list("users");
    let tokens = list("tokens");
    let propagate = cx.text("propagate") != Some("0");
    let deletes = cx.flag("delete");
    let access = &mut cx.world.access;
    for holder in users.iter().chain(&tokens) {
        if !access.users.contains_key(holder) && !access.tokens.contains_key(holder) {
            return died(format!("update ACL failed: no such user or token ('{holder}')"));
        }
        for role in &roles {
            if !ROLES.contains(&role.as_str()) && !access.roles.contains_key(role) {
                return died(format!("update ACL failed: role '{role}' does not exist"));
            }
            let is_it = |grant: &Grant| {
                grant.path == path && grant.holder == *holder && grant.role == *role
            };
            access.acl.retain(|grant| !is_it(grant));
            if !deletes {
                let path = path.clone();
                let holder = holder.clone();
                let role = role.clone();
                access.acl.push(Grant { path, holder, role, propagate });
            }
        }
    }
    Ok(Value::Null.into())
}

/// The privileges that are named, all of which this release knows.
fn privileges(cx: &Context<'_>) -> Result<BTreeSet<String>, ReplyFailure> {
    let known = cx.world.access.role("Administrator", cx.world.release());
    let named = split_list(cx.text("privs").unwrap_or_default());
    let mut found = BTreeSet::new();
    for privilege in named {
        if !known.contains(privilege) {
            return Err(ReplyFailure::param("privs", "invalid format - invalid privilege"));
        }
        found.insert(privilege.to_owned());
    }
    Ok(found)
}

fn died(words: String) -> Answer {
    Err(ReplyFailure::Died(words))
}
