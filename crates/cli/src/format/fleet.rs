//! `fleet … -o json`. What is listed stands as the hub's interface has it (docs/reference/openapi.json).

use evenkeel_core::fleet::{RefusedGeneration, ReportedDecision, ToldOperation};
use evenkeel_hub::people::wire::{
    AuditBody, DifferenceBody, EnvelopeBody, GenerationBody, GuestBody, HistoryBody, HostBody,
    HostDetailBody, LoginBody, PendingBody,
};
use schemars::JsonSchema;
use serde::Serialize;

/// A login.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetLoginFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The hub.
    pub(crate) hub: String,
    /// Its id.
    pub(crate) hub_id: String,
    /// The account.
    pub(crate) account: String,
    /// `viewer`, `editor` or `admin`.
    pub(crate) role: String,
    /// For which hosts.
    pub(crate) scope: String,
    /// When the token ends, by the hub's clock.
    pub(crate) expires_at: String,
}

/// A link to the console.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetConsoleFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// It works once.
    pub(crate) link: String,
    /// How long.
    pub(crate) expires_in_s: u64,
}

/// What an account has open at a hub.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetLoginsFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The newest first.
    pub(crate) logins: Vec<LoginBody>,
}

/// Tokens for hosts to enrol with.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FleetEnrolTokenFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The hub.
    pub(crate) hub: String,
    /// In the order they were asked for.
    pub(crate) tokens: Vec<MadeEnrolToken>,
    /// What to run on each host; it asks for the token.
    pub(crate) command: String,
}

/// A token, told once.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MadeEnrolToken {
    /// For this host.
    pub(crate) host: String,
    /// `evke_…`, good for one use.
    pub(crate) token: String,
    /// When it ends, by the hub's clock.
    pub(crate) expires_at: String,
}

/// Who is there.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetHostsFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// By id.
    pub(crate) hosts: Vec<HostBody>,
}

/// One host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetStatusFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// As it reported.
    pub(crate) host: HostDetailBody,
    /// Its guests.
    pub(crate) guests: Vec<GuestBody>,
    /// What was done last, newest first.
    pub(crate) ops: Vec<HistoryBody<ToldOperation>>,
    /// What was decided last, newest first.
    pub(crate) decisions: Vec<HistoryBody<ReportedDecision>>,
}

/// What was pushed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetPushFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The host.
    pub(crate) host: String,
    /// The generation; the newest one if nothing was pushed.
    pub(crate) generation: u64,
    /// Whether it is new.
    pub(crate) pushed: bool,
    /// Guest by guest, what differs from the generation before.
    pub(crate) difference: Vec<DifferenceBody>,
    /// Whether the host has it in effect, as the hub says; null if nobody waited for that.
    pub(crate) in_effect: Option<bool>,
    /// Why the host refused it, as the hub says.
    pub(crate) refused: Option<RefusedGeneration>,
}

/// What differs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetDiffFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The host.
    pub(crate) host: String,
    /// From this generation; 0 for none.
    pub(crate) from: u64,
    /// Whether that is verified; if not, `difference` is everything.
    pub(crate) from_verified: bool,
    /// To this one; null for files.
    pub(crate) to: Option<u64>,
    /// Guest by guest.
    pub(crate) difference: Vec<DifferenceBody>,
}

/// The generations of a host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetHistoryFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// The host.
    pub(crate) host: String,
    /// The one in effect, as the host reported it; 0 for none.
    pub(crate) in_effect: u64,
    /// Newest first.
    pub(crate) generations: Vec<GenerationBody>,
}

/// What waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetPendingFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// By host.
    pub(crate) items: Vec<PendingBody>,
}

/// What was handed in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetSubmitFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// With the verdict as the hub tells it, once there is one.
    pub(crate) envelope: EnvelopeBody,
    /// Whether the host signed this verdict about what was handed in.
    pub(crate) verified: bool,
}

/// What people did.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FleetAuditFormat {
    /// 1.
    pub(crate) format_version: u32,
    /// Newest first.
    pub(crate) entries: Vec<AuditBody>,
}
