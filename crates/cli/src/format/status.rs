//! The shape of `status -o json`, for its schema: the value itself is the agent's own, carried over its socket.
//!
//! The end-to-end tests hold real answers against the schema, so that the two cannot part.

use schemars::JsonSchema;

/// How an agent stands.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
pub(super) struct StatusFormat {
    /// 1.
    format_version: u32,
    /// The agent that answered; null if none runs and only its journal was read.
    agent: Option<AgentFormat>,
    /// Whether an operator has frozen this host.
    frozen: bool,
    /// The journal.
    journal: JournalHeadFormat,
    /// Operations that are not closed.
    operations: Vec<OpenFormat>,
    /// What waits for a signature, oldest first.
    pending: Vec<WaitingFormat>,
    /// What acts that were done warned of, until the next act on the same slot or guest.
    warnings: Vec<WarningFormat>,
    /// The guests that were asked for, if not all.
    chosen: Option<Vec<ChosenFormat>>,
}

/// What only a running agent knows.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct AgentFormat {
    /// Its version.
    version: String,
    /// Its process.
    pid: u32,
    /// This host, as the fleet knows it.
    host: Option<String>,
    /// The node it keeps.
    node: String,
    /// When it started.
    since: String,
    /// Where desired state comes from and how it is.
    desired: DesiredFormat,
    /// What is wrong with the configuration file.
    configuration_trouble: Option<TroubleFormat>,
    /// What is wrong with the way to Proxmox VE.
    node_trouble: Option<TroubleFormat>,
    /// The last pass that read the node.
    last_pass: Option<PassFormat>,
    /// When the next one is due.
    next_pass: Option<String>,
    /// Declared guests that need nothing.
    in_sync: usize,
    /// The other declared guests, by number.
    guests: Vec<GuestStandingFormat>,
    /// Operations submitted and not ended.
    queue_depth: usize,
    /// Storages that do not answer; what needs one waits, and nothing else does.
    silent_storages: Vec<SilentStorageFormat>,
}

/// A storage that does not answer.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct SilentStorageFormat {
    /// Its name; `*` for the list of all storages.
    storage: String,
    /// Since when.
    since: Option<String>,
    /// When it may be asked again.
    next_try: Option<String>,
}

/// Desired state.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct DesiredFormat {
    /// Where it is read; null if nothing is declared.
    directory: Option<String>,
    /// How many guests are declared.
    guests: usize,
    /// Since when it holds.
    since: Option<String>,
    /// What is wrong with what is there now.
    trouble: Option<TroubleFormat>,
    /// The hub it comes from; left out if it comes from files.
    hub: Option<HubFormat>,
}

/// The hub as the agent knows it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct HubFormat {
    /// Where it is.
    url: String,
    /// The document in effect; 0 if none was taken yet.
    generation: u64,
    /// Who signed it; null if nobody did.
    signer: Option<String>,
    /// Whether that signer may still sign documents.
    signer_is_trusted: bool,
    /// When the hub last answered, in this life of the agent.
    heard: Option<String>,
    /// What is wrong with the way to it.
    trouble: Option<String>,
    /// Why its newest document was not taken.
    refused: Option<String>,
    /// Whether the journal was rolled back and nobody acknowledged it.
    journal_rollback: bool,
}

/// Something that is wrong.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct TroubleFormat {
    /// Since when.
    since: String,
    /// What.
    why: String,
}

/// One pass.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct PassFormat {
    /// Its number since the agent started.
    id: String,
    /// When it read the node.
    at: String,
    /// How long that took.
    took_ms: u64,
    /// Whether its actions have all ended.
    ended: bool,
    /// Actions in its plan.
    planned: usize,
    /// Actions done.
    succeeded: usize,
    /// Actions not done, or of unknown outcome.
    failed: usize,
    /// Actions that wait.
    held: usize,
    /// Actions not tried.
    skipped: usize,
    /// Guests of which something declared cannot be done.
    errors: usize,
}

/// A guest that is not as declared.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct GuestStandingFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// What differs, for people; `plan` has the values whole.
    drift: Vec<String>,
    /// What waits, and for what.
    held: Vec<HeldBackFormat>,
    /// What is stored and waits for a restart.
    after_restart: Vec<String>,
    /// What cannot be done, or was not.
    problems: Vec<String>,
}

/// Something that waits.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct HeldBackFormat {
    /// The reason code.
    code: String,
    /// The same in words.
    why: String,
}

/// The journal.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct JournalHeadFormat {
    /// The newest record.
    seq: Option<u64>,
    /// Its sum.
    sum: Option<String>,
    /// What was checked, and when.
    verified: Option<String>,
    /// What is wrong with it.
    damage: Option<String>,
}

/// An operation that is not closed.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct OpenFormat {
    /// Its name.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// What it does.
    kind: String,
    /// `started`, `task_running` or `unknown`.
    state: String,
    /// When its request was sent, by the node's clock.
    since: Option<String>,
    /// Its task.
    upid: Option<String>,
    /// Why it was begun.
    reason: String,
    /// Why its outcome is not known.
    unknown: Option<String>,
}

/// Something that waits for a signature.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct WaitingFormat {
    /// Its name.
    pending: String,
    /// What it does.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// `plan` or `request`.
    from: String,
    /// When it was put down.
    raised_at: Option<String>,
}

/// What an act that was done warned of.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct WarningFormat {
    /// Such as `lxc/101`.
    guest: String,
    /// The volume's slot; null if it is about the whole guest.
    slot: Option<String>,
    /// The operation.
    op: String,
    /// What is odd about it.
    warning: String,
}

/// A guest that was asked for.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is made from it")]
struct ChosenFormat {
    /// Such as `lxc/101`.
    id: String,
    /// Its declared name.
    name: Option<String>,
    /// Its declared tags.
    tags: Vec<String>,
}
