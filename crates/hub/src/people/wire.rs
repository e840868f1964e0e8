//! What people and the hub say to each other, as JSON. The command line reads the same types, and the description at
//! `/v1/openapi.json` is made from them.
//!
//! What comes in is strict: an unknown name is refused. What goes out may grow.

use std::collections::BTreeMap;

use evenkeel_core::fleet::{AgentState, GuestReport, PassReport, RefusedGeneration, SealedText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::wire_accounts::{
    AccountBody, AccountChangeRequest, AccountKeyBody, AccountKeyRequest, AccountRequest,
    EndedAnswer, LoginBody,
};
pub use super::wire_documents::{
    CheckAnswer, DifferenceBody, DocumentBody, DraftBody, FileBody, FilesRequest, GenerationBody,
    KeyDifferenceBody, PushAnswer, PushRequest,
};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageBody<T> {
    /// At most 200.
    pub items: Vec<T>,
    /// What to ask for next with `after`; missing at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Signed bytes and the signatures over them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SealedBody {
    /// The exact bytes, in base64.
    pub payload: String,
    /// Armoured SSH signatures.
    pub signatures: Vec<String>,
}

impl SealedBody {
    /// The same for core.
    pub fn sealed(&self) -> SealedText {
        let Self { payload, signatures } = self.clone();
        SealedText { payload, signatures }
    }
}

impl From<SealedText> for SealedBody {
    fn from(sealed: SealedText) -> Self {
        let SealedText { payload, signatures } = sealed;
        Self { payload, signatures }
    }
}

/// `POST /v1/login/challenge`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChallengeRequest {
    /// Who wants to log in.
    pub account: String,
}

/// The challenge: the same for an account that does not exist.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChallengeAnswer {
    /// Which hub this is.
    pub hub_id: String,
    /// To be signed, once.
    pub nonce: String,
    /// How long it is good for, by the hub's clock.
    pub expires_in_s: u64,
}

/// `POST /v1/login`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// Who logs in.
    pub account: String,
    /// The statement `evenkeel/login/v1`.
    pub login: SealedBody,
}

/// A token, shown once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct LoginAnswer {
    /// `evka_…`.
    pub token: String,
    /// When it ends, by the hub's clock.
    pub expires_at: String,
    /// What the account may do.
    pub role: String,
    /// For which hosts.
    pub scope: String,
}

/// Who a token or session belongs to.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct WhoAnswer {
    /// Which hub this is.
    pub hub_id: String,
    /// The account.
    pub account: String,
    /// What it may do.
    pub role: String,
    /// For which hosts.
    pub scope: String,
    /// For a session: what every request that changes something carries in `evenkeel-csrf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
}

/// `POST /v1/first-admin`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstAdminRequest {
    /// What the server printed, `evko_…`.
    pub code: String,
    /// The account's name.
    pub name: String,
    /// A line of a `.pub` file.
    pub key: String,
}

/// `POST /v1/sessions`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The one-time code of the link, `evko_…`.
    pub code: String,
}

/// `POST /v1/console-codes`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeRequest {
    /// The word of the browser that shall come in, as its page `/console` shows it.
    pub browser: String,
}

/// A one-time code, shown once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct CodeAnswer {
    /// `evko_…`.
    pub code: String,
    /// How long it is good for.
    pub expires_in_s: u64,
}

/// `POST /v1/enrol-tokens`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolTokenRequest {
    /// For which host.
    pub host: String,
    /// Whether a host of that id may be replaced.
    #[serde(default)]
    pub replace: bool,
}

/// An enrolment token, shown once.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct EnrolTokenAnswer {
    /// `evke_…`, good for one use within an hour.
    pub token: String,
    /// When it ends, by the hub's clock.
    pub expires_at: String,
}

/// How a host stands, in one word.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HostStanding {
    /// It was not heard of for minutes.
    Silent,
    /// It refused the newest document.
    Refused,
    /// It has not taken the newest document yet.
    Behind,
    /// A guest of it failed or cannot be read.
    Failing,
    /// A guest of it is not as declared.
    Drifted,
    /// Everything is as declared.
    InSync,
}

impl HostStanding {
    /// Every word.
    pub const ALL: [Self; 6] =
        [Self::Silent, Self::Refused, Self::Behind, Self::Failing, Self::Drifted, Self::InSync];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Behind => "behind",
            Self::Failing => "failing",
            Self::Drifted => "drifted",
            Self::InSync => "in_sync",
        }
    }

    /// What it means, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Silent => "It was not heard of for minutes; what is shown may be old.",
            Self::Refused => "It refused the newest document and keeps to the one before.",
            Self::Behind => "It has not taken the newest document yet.",
            Self::Failing => "A guest failed or cannot be read.",
            Self::Drifted => "A guest is not as declared.",
            Self::InSync => "Everything is as declared.",
        }
    }

    /// Whether somebody who asks for what is stale means it.
    pub fn is_stale(self) -> bool {
        match self {
            Self::Silent | Self::Refused | Self::Behind => true,
            Self::Failing | Self::Drifted | Self::InSync => false,
        }
    }
}

/// A host in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostBody {
    /// Its id.
    pub host: String,
    /// How it stands.
    pub standing: HostStanding,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The newest generation; 0 for none yet.
    pub wanted: u64,
    /// The generation in effect, as the host reported it; 0 for none.
    pub in_effect: u64,
    /// Its guests, by state.
    pub counts: BTreeMap<String, u64>,
    /// How many items wait for a signature.
    pub pending: u64,
    /// When it was last heard of, by the hub's clock.
    pub last_seen: String,
    /// When it enrolled, by the hub's clock.
    pub enrolled_at: String,
    /// The fingerprint of its key, as the hub was told. Nobody may pin a key by it.
    pub key: String,
}

/// One host as it reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDetailBody {
    /// What the list shows of it.
    #[serde(flatten)]
    pub host: HostBody,
    /// The number the next document gets.
    pub next_generation: u64,
    /// Which hub this is.
    pub hub_id: String,
    /// The hash of the manifest in effect, as the host reported it; empty for none.
    #[serde(default)]
    pub in_effect_manifest: String,
    /// The generation it refused, with the reason.
    pub refused: RefusedGeneration,
    /// What its agent says of itself.
    pub agent: AgentState,
    /// Its last pass.
    pub pass: PassReport,
    /// When it reported last, by the hub's clock.
    pub reported_at: String,
    /// The same by the host's own.
    pub host_time: String,
}

/// A guest as its host reported it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuestBody {
    /// `lxc/101`.
    pub guest: String,
    /// Its own name.
    pub name: String,
    /// `as_declared`, `drifted`, `held`, `failed`, `busy` or `unreadable`.
    pub state: String,
    /// When that was reported, by the hub's clock.
    pub updated_at: String,
    /// As it was reported.
    pub report: GuestReport,
}

/// An op or a decision, as its host reported it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryBody<T> {
    /// Its number within the host.
    pub serial: u64,
    /// When it was reported, by the hub's clock.
    pub received_at: String,
    /// As it was reported.
    pub report: T,
}

/// An item that waits for a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingBody {
    /// Where.
    pub host: String,
    /// Its name: the hash of the bytes in it.
    pub id: String,
    /// The item as its host signed it.
    pub item: SealedBody,
    /// When it came, by the hub's clock.
    pub received_at: String,
}

/// `POST /v1/envelopes`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeRequest {
    /// An approval, a rotation, a recovery or an acknowledgement; it names its host.
    pub envelope: SealedBody,
}

/// An envelope on its way, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvelopeBody {
    /// `env_…`.
    pub id: String,
    /// For which host.
    pub host: String,
    /// `approval`, `rotation`, `acknowledgement`.
    pub kind: String,
    /// The item it names, if it is an approval.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub item: String,
    /// `waiting`, `judged` or `expired`.
    pub state: String,
    /// Who handed it in.
    pub submitted_by: String,
    /// When, by the hub's clock.
    pub submitted_at: String,
    /// The host's verdict, once there is one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub verdict: Value,
}

/// `PUT …/labels`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelsRequest {
    /// All of them; those that are missing go.
    pub labels: BTreeMap<String, String>,
}

/// Something a person did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditBody {
    /// Its number.
    pub serial: u64,
    /// When, by the hub's clock.
    pub at: String,
    /// Who.
    pub who: String,
    /// What.
    pub act: String,
    /// To what.
    pub subject: String,
    /// More about it.
    pub detail: String,
}
