//! What is meant of each row of the router's table, written by hand a second time: who may ask, and what it leaves in the audit.

use axum::http::Method;
use evenkeel_hub::access::{Access, Scope};
use evenkeel_hub::store::PersonRole;

/// Method, path, who, and whether a request that is answered leaves a line in the audit.
pub(super) const MEANT: &[(&str, &str, Meant, Leaves)] = &[
    ("GET", "/console", Meant::Anyone, Leaves::Nothing),
    ("GET", "/console/accounts", Meant::HubAdmin, Leaves::Nothing),
    ("GET", "/console/approvals", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/audit", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/audit/lines", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/envelopes/{envelope}", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/fleet", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/hosts/{host}", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/hosts/{host}/documents", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    (
        "GET",
        "/console/hosts/{host}/documents/{generation}",
        Meant::OfHost(PersonRole::Viewer),
        Leaves::Nothing,
    ),
    (
        "GET",
        "/console/hosts/{host}/documents/{generation}/restore",
        Meant::OfHost(PersonRole::Editor),
        Leaves::Nothing,
    ),
    (
        "GET",
        "/console/hosts/{host}/drafts/{draft}",
        Meant::OfHost(PersonRole::Editor),
        Leaves::Nothing,
    ),
    ("GET", "/console/hosts/{host}/edit", Meant::OfHost(PersonRole::Editor), Leaves::Nothing),
    (
        "GET",
        "/console/hosts/{host}/guests/{kind}/{vmid}",
        Meant::OfHost(PersonRole::Viewer),
        Leaves::Nothing,
    ),
    ("GET", "/console/hosts/{host}/row", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/console/static/{file}", Meant::Anyone, Leaves::Nothing),
    ("GET", "/first-admin", Meant::Anyone, Leaves::Nothing),
    ("POST", "/console/accounts", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/accounts/{name}/change", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/accounts/{name}/keys", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/accounts/{name}/keys/remove", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/accounts/{name}/logout", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/accounts/{name}/remove", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/console/enrol-tokens", Meant::Some(PersonRole::Admin), Leaves::AuditLine),
    ("POST", "/console/envelopes", Meant::Some(PersonRole::Editor), Leaves::AuditLine),
    (
        "POST",
        "/console/hosts/{host}/documents/{generation}/restore",
        Meant::OfHost(PersonRole::Editor),
        Leaves::AuditLine,
    ),
    (
        "POST",
        "/console/hosts/{host}/drafts/{draft}/drop",
        Meant::OfHost(PersonRole::Editor),
        Leaves::AuditLine,
    ),
    ("POST", "/console/hosts/{host}/edit", Meant::OfHost(PersonRole::Editor), Leaves::AuditLine),
    (
        "POST",
        "/console/hosts/{host}/edit/check",
        Meant::OfHost(PersonRole::Editor),
        Leaves::Nothing,
    ),
    ("POST", "/console/hosts/{host}/labels", Meant::OfHost(PersonRole::Admin), Leaves::AuditLine),
    ("POST", "/console/logout", Meant::Some(PersonRole::Viewer), Leaves::AuditLine),
    ("DELETE", "/v1/accounts/{name}", Meant::HubAdmin, Leaves::AuditLine),
    ("DELETE", "/v1/accounts/{name}/keys/{fingerprint}", Meant::HubAdmin, Leaves::AuditLine),
    ("DELETE", "/v1/accounts/{name}/logins", Meant::HubAdmin, Leaves::AuditLine),
    ("DELETE", "/v1/hosts/{host}", Meant::OfHost(PersonRole::Admin), Leaves::AuditLine),
    (
        "DELETE",
        "/v1/hosts/{host}/drafts/{draft}",
        Meant::OfHost(PersonRole::Editor),
        Leaves::AuditLine,
    ),
    ("DELETE", "/v1/login", Meant::Some(PersonRole::Viewer), Leaves::AuditLine),
    ("DELETE", "/v1/logins", Meant::Some(PersonRole::Viewer), Leaves::AuditLine),
    ("GET", "/healthz", Meant::Anyone, Leaves::Nothing),
    ("GET", "/metrics", Meant::Anyone, Leaves::Nothing),
    ("GET", "/readyz", Meant::Anyone, Leaves::Nothing),
    ("GET", "/v1/accounts", Meant::HubAdmin, Leaves::Nothing),
    ("GET", "/v1/accounts/{name}/logins", Meant::HubAdmin, Leaves::Nothing),
    ("GET", "/v1/agent/anchor", Meant::Host, Leaves::Nothing),
    ("GET", "/v1/agent/documents/{generation}", Meant::Host, Leaves::Nothing),
    ("GET", "/v1/agent/poll", Meant::Host, Leaves::Nothing),
    ("GET", "/v1/audit", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/envelopes/{envelope}", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/events", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/decisions", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/documents", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    (
        "GET",
        "/v1/hosts/{host}/documents/{generation}",
        Meant::OfHost(PersonRole::Viewer),
        Leaves::Nothing,
    ),
    ("GET", "/v1/hosts/{host}/drafts", Meant::OfHost(PersonRole::Editor), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/drafts/{draft}", Meant::OfHost(PersonRole::Editor), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/envelopes", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/guests", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    (
        "GET",
        "/v1/hosts/{host}/guests/{kind}/{vmid}",
        Meant::OfHost(PersonRole::Viewer),
        Leaves::Nothing,
    ),
    ("GET", "/v1/hosts/{host}/ops", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/hosts/{host}/pending", Meant::OfHost(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/login", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/logins", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("GET", "/v1/openapi.json", Meant::Anyone, Leaves::Nothing),
    ("GET", "/v1/pending", Meant::Some(PersonRole::Viewer), Leaves::Nothing),
    ("POST", "/v1/accounts", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/v1/accounts/{name}/keys", Meant::HubAdmin, Leaves::AuditLine),
    ("POST", "/v1/agent/enrol", Meant::Anyone, Leaves::Nothing),
    ("POST", "/v1/agent/reports", Meant::Host, Leaves::Nothing),
    ("POST", "/v1/console-codes", Meant::Token(PersonRole::Viewer), Leaves::AuditLine),
    ("POST", "/v1/enrol-tokens", Meant::Some(PersonRole::Admin), Leaves::AuditLine),
    ("POST", "/v1/envelopes", Meant::Some(PersonRole::Editor), Leaves::AuditLine),
    ("POST", "/v1/first-admin", Meant::Anyone, Leaves::Nothing),
    ("POST", "/v1/hosts/{host}/documents", Meant::OfHost(PersonRole::Editor), Leaves::AuditLine),
    // It keeps nothing.
    (
        "POST",
        "/v1/hosts/{host}/documents/check",
        Meant::OfHost(PersonRole::Editor),
        Leaves::Nothing,
    ),
    ("POST", "/v1/hosts/{host}/drafts", Meant::OfHost(PersonRole::Editor), Leaves::AuditLine),
    ("POST", "/v1/login", Meant::Anyone, Leaves::Nothing),
    ("POST", "/v1/login/challenge", Meant::Anyone, Leaves::Nothing),
    ("POST", "/v1/sessions", Meant::Anyone, Leaves::Nothing),
    ("PUT", "/v1/accounts/{name}", Meant::HubAdmin, Leaves::AuditLine),
    ("PUT", "/v1/hosts/{host}/labels", Meant::OfHost(PersonRole::Admin), Leaves::AuditLine),
];

/// Who is meant to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meant {
    Anyone,
    Host,
    /// A person about one host of their scope.
    OfHost(PersonRole),
    /// A person about what they themselves see.
    Some(PersonRole),
    /// The same with an API token, and with no session.
    Token(PersonRole),
    /// An admin whose scope is everything.
    HubAdmin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    Nothing,
    AuditLine,
}

impl Meant {
    pub(super) fn of(access: Access) -> Self {
        match access {
            Access::Anyone => Self::Anyone,
            Access::Host => Self::Host,
            Access::Person(role, Scope::HostInPath) => Self::OfHost(role),
            Access::Person(role, Scope::InHandler | Scope::Own) => Self::Some(role),
            Access::Person(role, Scope::OwnToken) => Self::Token(role),
            Access::Person(PersonRole::Admin, Scope::WholeHub) => Self::HubAdmin,
            Access::Person(role, Scope::WholeHub) => panic!("{role:?} for the whole hub"),
        }
    }

    pub(super) fn role(self) -> Option<PersonRole> {
        match self {
            Self::Anyone | Self::Host => None,
            Self::OfHost(role) | Self::Some(role) | Self::Token(role) => Some(role),
            Self::HubAdmin => Some(PersonRole::Admin),
        }
    }
}

pub(super) fn meant(method: &Method, path: &str) -> Option<(Meant, Leaves)> {
    let found = MEANT.iter().find(|line| (line.0, line.1) == (method.as_str(), path));
    found.map(|line| (line.2, line.3))
}
