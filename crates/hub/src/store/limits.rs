//! How much is kept, each with its reason. Over a quota the oldest ops and decisions go; heads, items, verdicts and
//! audit never do: the oldest lines of the audit move to files.

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
/// How long lines of the audit stay in the table; then they go into the archive.
pub const AUDIT_KEPT_S: i64 = 90 * 24 * 3600;
/// Lines of the audit in the table; the oldest go into the archive. At 300 bytes a line these are 30 MB.
pub const AUDIT_ROWS_MAX: i64 = 100_000;
/// Lines of the audit that go into the archive at a time: it shares the writer with everybody.
pub const AUDIT_ROWS_PER_ROUND: i64 = 2_000;
/// A file of the archive that has reached this size gets no more lines, so that reading the newest is quick.
pub const AUDIT_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long a line of the audit stays in the table at least: far longer than any transaction, so that no line with a lower number
/// becomes visible later.
pub const AUDIT_SETTLED_S: i64 = 3600;
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
/// How long an envelope waits for its host at most, whatever its statement says: by then its window is over for every host that
/// keeps to what people use.
pub const ENVELOPE_WAIT_MAX_S: i64 = 7 * 24 * 3600;
/// Bytes of a host's ops and decisions; over it the older half goes.
pub const HISTORY_BYTES_PER_HOST_MAX: i64 = 16 * 1024 * 1024;
/// Bytes of a host's guests, which is far more than thousands of them have; over it a guest is kept by its name and state alone.
pub const GUESTS_BYTES_PER_HOST_MAX: i64 = 64 * 1024 * 1024;
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
/// API tokens of one account; the oldest go, with their sessions.
pub const TOKENS_PER_ACCOUNT_MAX: i64 = 64;
/// Sessions of one token; the oldest go.
pub const SESSIONS_PER_TOKEN_MAX: i64 = 16;
/// One-time codes of one token; the oldest go.
pub const CODES_PER_TOKEN_MAX: i64 = 8;
/// How long the first admin's code is good: the server prints another at its next start while there is no account.
pub const FIRST_ADMIN_CODE_LIFE_S: i64 = 24 * 3600;
/// The largest step of a generation that hosts take: a hub follows reports no further ahead than this.
pub const GENERATION_STEP_MAX: i64 = 1 << 20;
/// The largest number JSON readers everywhere take exactly; no generation, cursor or seq goes beyond.
pub const NUMBER_MAX: i64 = (1 << 53) - 1;
