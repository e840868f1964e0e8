//! How much is kept, each with its reason. Over a quota the oldest ops and decisions go; heads, items, verdicts and
//! audit never do.

/// Hosts of one hub: ten times the scale it is measured at.
pub const HOSTS_MAX: i64 = 50_000;
/// Guests a host may report: Proxmox VE hosts have hundreds.
pub const GUESTS_PER_HOST_MAX: i64 = 4_096;
/// Bytes of one guest's state.
pub const GUEST_BYTES_MAX: usize = 64 * 1024;
/// Ops kept of a host; the oldest go.
pub const OPS_PER_HOST_MAX: i64 = 10_000;
/// Decisions kept of a host; the oldest go.
pub const DECISIONS_PER_HOST_MAX: i64 = 10_000;
/// How long ops and decisions are kept.
pub const HISTORY_KEPT_S: i64 = 90 * 24 * 3600;
/// Open items of a host: as many as the host itself lets wait.
pub const ITEMS_PER_HOST_MAX: i64 = 256;
/// Envelopes that wait for a host.
pub const ENVELOPES_WAITING_MAX: i64 = 32;
/// Judged and expired envelopes kept of a host: with at most 60 judged a minute this is proof of the last hours at worst,
/// of years as people use it.
pub const ENVELOPES_KEPT_MAX: i64 = 4_096;
/// Envelopes in one answer to a poll.
pub const ENVELOPES_PER_POLL: i64 = 8;
/// Documents kept of a host; the oldest go, never the wanted one nor the one in effect.
pub const DOCUMENTS_PER_HOST_MAX: i64 = 500;
/// Drafts of a host that wait for a signature; the oldest go.
pub const DRAFTS_PER_HOST_MAX: i64 = 32;
/// Enrolment tokens of a host that are kept, used or not; the oldest go.
pub const ENROL_TOKENS_PER_HOST_MAX: i64 = 16;
/// How long an enrolment token is good.
pub const ENROL_TOKEN_LIFE_S: i64 = 3600;
/// Accounts of one hub.
pub const ACCOUNTS_MAX: i64 = 1_000;
/// Keys of one account.
pub const KEYS_PER_ACCOUNT_MAX: i64 = 16;
/// API tokens of one account; the oldest go.
pub const TOKENS_PER_ACCOUNT_MAX: i64 = 64;
/// Sessions of one account; the oldest go.
pub const SESSIONS_PER_ACCOUNT_MAX: i64 = 64;
/// One-time codes of one account; the oldest go.
pub const CODES_PER_ACCOUNT_MAX: i64 = 8;
/// Login challenges that wait, of all accounts: each lives a minute, so this is the rate a flood is cut at.
pub const CHALLENGES_MAX: i64 = 10_000;
/// How long the first admin's code is good: the server prints another at its next start while there is no account.
pub const FIRST_ADMIN_CODE_LIFE_S: i64 = 24 * 3600;
/// The largest step of a generation that hosts take: a hub follows reports no further ahead than this.
pub const GENERATION_STEP_MAX: i64 = 1 << 20;
/// The largest number JSON readers everywhere take exactly; no generation, cursor or seq goes beyond.
pub const NUMBER_MAX: i64 = (1 << 53) - 1;
