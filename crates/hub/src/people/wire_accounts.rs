//! What goes over the wire about accounts and their logins. It holds no secret: neither a token nor a hash of one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountBody {
    /// Its name.
    pub name: String,
    /// `viewer`, `editor` or `admin`.
    pub role: String,
    /// For which hosts: `*`, `eu-*`.
    pub scope: String,
    /// Its keys.
    pub keys: Vec<AccountKeyBody>,
    /// When a login of it was used last; missing for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// A key of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountKeyBody {
    /// Its fingerprint.
    pub fingerprint: String,
    /// When somebody logged in with it last; missing for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// A token that is good, and what hangs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoginBody {
    /// A name that opens nothing: the beginning of the token's hash.
    pub login: String,
    /// The key that made it.
    pub key: String,
    /// When it was made.
    pub made_at: String,
    /// When it ends, with its sessions.
    pub expires_at: String,
    /// When it, or a session of it, was used last.
    pub last_used_at: String,
    /// Sessions of the console that are open.
    pub sessions: u64,
}

/// How many logins were ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedAnswer {
    /// Tokens; their codes and sessions ended with them.
    pub ended: u64,
}

/// `PUT /v1/accounts/{name}`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountChangeRequest {
    /// `viewer`, `editor` or `admin`.
    pub role: String,
    /// For which hosts.
    pub scope: String,
}

/// `POST /v1/accounts`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountRequest {
    /// Its name.
    pub name: String,
    /// `viewer`, `editor` or `admin`.
    pub role: String,
    /// For which hosts; all if missing.
    #[serde(default = "everything")]
    pub scope: String,
    /// A line of a `.pub` file.
    pub key: String,
}

fn everything() -> String {
    "*".to_owned()
}

/// `POST /v1/accounts/{name}/keys`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountKeyRequest {
    /// A line of a `.pub` file.
    pub key: String,
}
