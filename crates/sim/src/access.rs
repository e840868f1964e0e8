//! Users, tokens, roles and access lists: who a request is, and what it may do.
//!
//! Called by the engine before any handler runs, and by handlers for checks PVE makes itself.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::model::release::Release;
use serde::{Deserialize, Serialize};

/// Users, tokens and rights of one cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TokenAccess {
    /// Users by `name@realm`.
    pub users: BTreeMap<String, User>,
    /// Tokens by `name@realm!id`.
    pub tokens: BTreeMap<String, SimToken>,
    /// Grants, in no special order.
    pub acl: Vec<Grant>,
    /// Roles that somebody made, by name; those PVE ships are known without.
    #[serde(default)]
    pub roles: BTreeMap<String, BTreeSet<String>>,
    /// Tickets given out, with their user.
    pub tickets: BTreeMap<String, String>,
}

/// One user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct User {
    /// A disabled user's tokens and tickets fail like unknown ones.
    pub enabled: bool,
    /// The password for `/access/ticket`.
    pub password: String,
    /// Unix seconds; 0 is never.
    pub expires: u64,
}

/// One API token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SimToken {
    /// The secret after the last `=`.
    pub secret: String,
    /// With separation the token has only what both it and its user were granted.
    pub separated: bool,
    /// Unix seconds; 0 is never.
    pub expires: u64,
}

/// One line of the access list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// `/`, `/vms/100`, `/storage/local`.
    pub path: String,
    /// A user or a token.
    pub holder: String,
    /// The role's name.
    pub role: String,
    /// Whether it holds for everything below the path.
    pub propagate: bool,
}

/// Who a request turned out to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// `name@realm`.
    pub(crate) user: String,
    /// The id of the token, if one was used.
    pub(crate) token: Option<String>,
}

impl Identity {
    /// `name@realm` or `name@realm!id`, as it stands in a UPID.
    pub(crate) fn full(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.user),
            None => self.user.clone(),
        }
    }

    /// Root-only checks compare the whole name, so no token passes them.
    pub(crate) fn is_root(&self) -> bool {
        self.user == "root@pam" && self.token.is_none()
    }
}

/// Privileges, each with whether it propagates below the path.
pub(crate) type Privileges = BTreeMap<String, bool>;

impl TokenAccess {
    /// Adds or replaces a user.
    pub fn add_user(&mut self, user: &str, password: &str) {
        let record = User { enabled: true, password: password.to_owned(), expires: 0 };
        self.users.insert(user.to_owned(), record);
    }

    /// Adds or replaces a token, given as `user@realm!id`.
    pub fn add_token(&mut self, token: &str, secret: &str, separated: bool) {
        let record = SimToken { secret: secret.to_owned(), separated, expires: 0 };
        self.tokens.insert(token.to_owned(), record);
    }

    /// Grants a role on a path and everything below.
    pub fn grant(&mut self, path: &str, holder: &str, role: &str) {
        self.acl.push(Grant {
            path: path.to_owned(),
            holder: holder.to_owned(),
            role: role.to_owned(),
            propagate: true,
        });
    }

    /// Makes or replaces a role, as somebody with the right to do so would.
    pub fn set_role(&mut self, role: &str, privileges: &[&str]) {
        let privileges = privileges.iter().map(|name| (*name).to_owned()).collect();
        self.roles.insert(role.to_owned(), privileges);
    }

    /// Takes back every role that was granted on exactly this path.
    pub fn revoke(&mut self, path: &str, holder: &str) {
        self.acl.retain(|grant| grant.path != path || grant.holder != holder);
    }

    /// From now on the holder may do on this path, and below it, what it may do there now, without the one privilege:
    /// a role of its own replaces what it has from above. It means nothing for root@pam, who may do everything.
    pub fn withhold(&mut self, path: &str, holder: &str, privilege: &str, release: Release) {
        let mut held: BTreeSet<String> = self.held_by(holder, path, release).into_keys().collect();
        held.remove(privilege);
        let role = format!("{holder} on {path}");
        self.roles.insert(role.clone(), held);
        self.revoke(path, holder);
        self.grant(path, holder, &role);
    }

    /// The identity behind `user@realm!id=secret`.
    pub(crate) fn by_token(&self, text: &str, now_s: u64) -> Option<Identity> {
        let (name, secret) = text.split_once('=')?;
        let token = self.tokens.get(name)?;
        let (user, id) = name.split_once('!')?;
        let live = |expires: u64| expires == 0 || expires > now_s;
        let owner = self.users.get(user)?;
        let good = token.secret == secret && live(token.expires);
        (good && owner.enabled && live(owner.expires))
            .then(|| Identity { user: user.to_owned(), token: Some(id.to_owned()) })
    }

    /// The identity behind a ticket.
    pub(crate) fn by_ticket(&self, ticket: &str) -> Option<Identity> {
        let user = self.tickets.get(ticket)?;
        self.users.get(user).filter(|record| record.enabled)?;
        Some(Identity { user: user.clone(), token: None })
    }

    /// What somebody may do on a path.
    pub(crate) fn privileges(&self, who: &Identity, path: &str, release: Release) -> Privileges {
        let user = self.held_by(&who.user, path, release);
        let Some(id) = &who.token else { return user };
        let name = format!("{}!{id}", who.user);
        if self.tokens.get(&name).is_some_and(|token| !token.separated) {
            return user;
        }
        let own = self.held_by(&name, path, release);
        own.into_iter().filter(|(name, _)| user.contains_key(name)).collect()
    }

    fn held_by(&self, holder: &str, path: &str, release: Release) -> Privileges {
        if holder == "root@pam" {
            let all = self.role("Administrator", release);
            return all.into_iter().map(|name| (name, true)).collect();
        }
        let mut held = Privileges::new();
        for prefix in prefixes(path) {
            let here: Vec<&Grant> = self
                .acl
                .iter()
                .filter(|g| {
                    g.holder == holder && g.path == prefix && (g.propagate || prefix == path)
                })
                .collect();
            // A grant nearer to the object replaces those above it.
            if !here.is_empty() {
                held.clear();
                for grant in here {
                    let role = self.role(&grant.role, release);
                    held.extend(role.into_iter().map(|name| (name, grant.propagate)));
                }
            }
        }
        held
    }

    /// The privileges of a role; an unknown one has none.
    pub(crate) fn role(&self, name: &str, release: Release) -> BTreeSet<String> {
        match self.roles.get(name) {
            Some(made) => made.clone(),
            None => role(name, release).into_iter().map(str::to_owned).collect(),
        }
    }

    /// Whether any of the privileges is held. Asked for every guest of every list, so it looks
    /// roles up without building sets.
    pub(crate) fn may(&self, who: &Identity, path: &str, any: &[&str], release: Release) -> bool {
        let holds = |holder: &str| any.iter().any(|name| self.holds(holder, path, name, release));
        let Some(id) = &who.token else { return holds(&who.user) };
        let name = format!("{}!{id}", who.user);
        match self.tokens.get(&name) {
            Some(token) if !token.separated => holds(&who.user),
            Some(_) | None => any.iter().any(|privilege| {
                self.holds(&who.user, path, privilege, release)
                    && self.holds(&name, path, privilege, release)
            }),
        }
    }

    fn holds(&self, holder: &str, path: &str, privilege: &str, release: Release) -> bool {
        let has = |name: &str| match self.roles.get(name) {
            Some(made) => made.contains(privilege),
            None => role_parts(name, release).iter().any(|part| part.contains(&privilege)),
        };
        if holder == "root@pam" {
            return has("Administrator");
        }
        let covers = |grant: &&Grant| {
            let below = path
                .strip_prefix(grant.path.as_str())
                .is_some_and(|rest| grant.path == "/" || rest.is_empty() || rest.starts_with('/'));
            grant.holder == holder && below && (grant.propagate || grant.path == path)
        };
        // The longest path is the nearest grant, and it replaces those above it.
        let nearest = self.acl.iter().filter(covers).map(|grant| grant.path.len()).max();
        self.acl
            .iter()
            .filter(covers)
            .filter(|grant| Some(grant.path.len()) == nearest)
            .any(|grant| has(&grant.role))
    }
}

fn prefixes(path: &str) -> Vec<String> {
    let mut all = vec!["/".to_owned()];
    let mut so_far = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far.push('/');
        so_far.push_str(part);
        all.push(so_far.clone());
    }
    all
}

const AUDIT: [&str; 6] =
    ["Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit"];
const VM_USER: [&str; 6] = [
    "VM.Audit",
    "VM.Backup",
    "VM.Config.CDROM",
    "VM.Config.Cloudinit",
    "VM.Console",
    "VM.PowerMgmt",
];
const VM_ADMIN: [&str; 12] = [
    "VM.Allocate",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Migrate",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
    "VM.Audit",
];
const DATASTORE: [&str; 3] =
    ["Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate"];
const ADMIN: [&str; 11] = [
    "Group.Allocate",
    "Mapping.Modify",
    "Mapping.Use",
    "Pool.Allocate",
    "Realm.AllocateUser",
    "SDN.Allocate",
    "SDN.Use",
    "Sys.Console",
    "Sys.Syslog",
    "User.Modify",
    "Datastore.Audit",
];
const ROOT: [&str; 7] = [
    "Permissions.Modify",
    "Realm.Allocate",
    "Sys.AccessNetwork",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "Sys.Audit",
];

/// The roles PVE ships, by name.
pub(crate) const ROLES: [&str; 10] = [
    "Administrator",
    "NoAccess",
    "PVEAdmin",
    "PVEAuditor",
    "PVEDatastoreAdmin",
    "PVEDatastoreUser",
    "PVEPoolAdmin",
    "PVEVMAdmin",
    "PVEVMUser",
    "EvenkeelReader",
];

/// The privileges of a role that PVE ships; an unknown role has none.
fn role(name: &str, release: Release) -> BTreeSet<&'static str> {
    let known = |name: &&str| release >= Release::V8_0 || !name.starts_with("Mapping.");
    role_parts(name, release).into_iter().flatten().copied().filter(known).collect()
}

const AGENT_BEFORE_9: [&str; 1] = ["VM.Monitor"];
const AGENT: [&str; 6] = [
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
    "VM.GuestAgent.Unrestricted",
    "VM.Replicate",
];

fn role_parts(name: &str, release: Release) -> Vec<&'static [&'static str]> {
    let (agent, agent_audit): (&[&str], &[&str]) = if release >= Release::V9_0 {
        (&AGENT, &["VM.GuestAgent.Audit"])
    } else {
        (&AGENT_BEFORE_9, &[])
    };
    match name {
        "Administrator" => vec![&AUDIT, &VM_USER, &VM_ADMIN, &DATASTORE, &ADMIN, &ROOT, agent],
        "PVEAdmin" => vec![&AUDIT, &VM_USER, &VM_ADMIN, &DATASTORE, &ADMIN, agent],
        "PVEAuditor" => vec![&AUDIT, agent_audit],
        "PVEVMAdmin" => vec![&VM_USER, &VM_ADMIN, agent],
        "PVEVMUser" => vec![&VM_USER],
        "PVEDatastoreAdmin" => vec![&DATASTORE, &["Datastore.Audit"]],
        "PVEDatastoreUser" => vec![&["Datastore.AllocateSpace", "Datastore.Audit"]],
        "PVEPoolAdmin" => vec![&["Pool.Allocate", "Pool.Audit"]],
        "EvenkeelReader" => vec![&["VM.Audit", "Datastore.Audit", "Sys.Audit", "Pool.Audit"]],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separated_token_has_only_what_it_and_its_user_share() {
        let mut access = TokenAccess::default();
        access.add_user("ops@pve", "x");
        access.grant("/", "ops@pve", "PVEAuditor");
        access.add_token("ops@pve!own", "s", true);
        access.add_token("ops@pve!all", "s", false);
        let who = |id: &str| access.by_token(&format!("ops@pve!{id}=s"), 0).unwrap();
        let may = |id| access.may(&who(id), "/vms/100", &["VM.Audit"], Release::V8_4);
        assert!(!may("own") && may("all"));
        let mut granted = access.clone();
        granted.grant("/vms", "ops@pve!own", "PVEVMAdmin");
        let own = granted.privileges(&who("own"), "/vms/100", Release::V8_4);
        assert_eq!(own.into_keys().collect::<Vec<_>>(), ["VM.Audit"]);
    }

    #[test]
    fn a_token_of_root_is_not_root() {
        let root = Identity { user: "root@pam".into(), token: Some("full".into()) };
        assert!(!root.is_root());
        assert!(access_of_root(&root));
    }

    #[test]
    fn what_is_withheld_on_a_path_is_missing_there_alone_and_can_be_given_back() {
        let mut access = TokenAccess::default();
        access.add_user("ops@pve", "x");
        access.grant("/", "ops@pve", "PVEAuditor");
        access.add_token("ops@pve!all", "s", false);
        let may = |access: &TokenAccess, path: &str, privilege: &str| {
            let who = access.by_token("ops@pve!all=s", 0).unwrap();
            access.may(&who, path, &[privilege], Release::V8_4)
        };
        access.withhold("/nodes/pve1", "ops@pve", "Sys.Audit", Release::V8_4);
        assert!(!may(&access, "/nodes/pve1", "Sys.Audit"));
        assert!(may(&access, "/nodes/pve1", "VM.Audit"));
        assert!(may(&access, "/", "Sys.Audit"));
        access.revoke("/nodes/pve1", "ops@pve");
        assert!(may(&access, "/nodes/pve1", "Sys.Audit"));
    }

    fn access_of_root(who: &Identity) -> bool {
        let mut access = TokenAccess::default();
        access.add_token("root@pam!full", "s", false);
        access.may(who, "/", &["Sys.Modify"], Release::V8_4)
    }
}
