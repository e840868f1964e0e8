//! How a running agent stands, as `evenkeel status` shows it and programs read it.
//!
//! A plain value: written by the agent, carried over its socket, rendered by the command line. Fields are added, never
//! renamed or given another meaning, while `format_version` stays.

use std::collections::BTreeSet;

use evenkeel_core::action_registry::ActionKind;
use evenkeel_core::desired::selection::Candidate;
use evenkeel_core::fleet::AuthorWord;
use evenkeel_core::model::id::{GuestId, HostId, NodeName, OperationId, VmId};
use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::operate::operation::{Operation, Upid};
use evenkeel_core::sign::PendingId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use super::declared::SourceTrouble;
use crate::engine::{KeptWarning, RaisedBy, kept_warnings, waiting};
use crate::freeze::Frozen;
use crate::journal::{Head, JournalState, moment};
use crate::pve::storage_watch::{StorageQuestion, StorageWatch};

/// The version of this shape.
pub const FORMAT_VERSION: u32 = 1;

/// How an agent stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The version of this shape.
    pub format_version: u32,
    /// The agent that answered; none if no agent runs and only its journal was read.
    pub agent: Option<AgentStatus>,
    /// Whether an operator has frozen this host.
    pub frozen: bool,
    /// Since when, by whom and why; none if it is not frozen, or if that cannot be read.
    #[serde(default)]
    pub freeze: Option<Frozen>,
    /// The journal.
    pub journal: JournalStatus,
    /// Operations that are not closed, by guest.
    pub operations: Vec<OperationStatus>,
    /// What waits for a signature, oldest first.
    #[serde(default)]
    pub pending: Vec<PendingStatus>,
    /// What acts that were done warned of, until the next act on the same slot or guest.
    #[serde(default)]
    pub warnings: Vec<WarningStatus>,
    /// The guests that were asked for, if not all: everything above about guests is about these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Vec<Candidate>>,
}

impl HostStatus {
    /// The part of it that is about chosen guests.
    #[must_use]
    pub fn of_chosen(mut self, chosen: Vec<Candidate>) -> Self {
        let numbers: BTreeSet<VmId> = chosen.iter().map(|guest| guest.id.vmid).collect();
        if let Some(agent) = &mut self.agent {
            agent.guests.retain(|guest| numbers.contains(&guest.guest.vmid));
            // Before the first pass nothing is known of any guest.
            let known = if agent.last_pass.is_some() { chosen.len() } else { 0 };
            agent.in_sync = known.saturating_sub(agent.guests.len());
        }
        self.operations.retain(|operation| numbers.contains(&operation.guest.vmid));
        self.pending.retain(|item| numbers.contains(&item.guest.vmid));
        self.warnings.retain(|warning| numbers.contains(&warning.guest.vmid));
        self.chosen = Some(chosen);
        self
    }
}

/// Something that waits for a signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingStatus {
    /// Its name.
    pub pending: PendingId,
    /// What it does.
    pub op: ActionKind,
    /// To which guest.
    pub guest: GuestId,
    /// Who wants it: the desired files, or somebody who asked.
    pub from: RaisedBy,
    /// When it was put down.
    pub raised_at: Option<Timestamp>,
}

/// What an act that was done warned of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarningStatus {
    /// On which guest.
    pub guest: GuestId,
    /// The volume's slot; none if it is about the whole guest.
    pub slot: Option<String>,
    /// The operation.
    pub op: OperationId,
    /// What is odd about it.
    pub warning: String,
}

/// What only a running agent knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// This host, as the fleet knows it.
    pub host: Option<HostId>,
    /// The node it keeps.
    pub node: NodeName,
    /// When it started.
    pub since: Timestamp,
    /// Where desired state comes from and how it is.
    pub desired: DesiredStatus,
    /// What is wrong with the configuration file; the one read before holds.
    pub configuration_trouble: Option<SourceTrouble>,
    /// What is wrong with the way to Proxmox VE.
    pub node_trouble: Option<SourceTrouble>,
    /// The last pass that read the node.
    pub last_pass: Option<PassStatus>,
    /// When the next one is due.
    pub next_pass: Option<Timestamp>,
    /// Declared guests that need nothing.
    pub in_sync: usize,
    /// The other declared guests, by number.
    pub guests: Vec<GuestStatus>,
    /// Operations submitted and not ended.
    pub queue_depth: usize,
    /// Storages that do not answer; what needs one waits, and nothing else does.
    #[serde(default)]
    pub silent_storages: Vec<SilentStorage>,
}

/// A storage that does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentStorage {
    /// Its name; `*` for the list of all storages, which no name has.
    pub storage: String,
    /// Since when.
    pub since: Option<Timestamp>,
    /// When it may be asked again.
    pub next_try: Option<Timestamp>,
}

impl SilentStorage {
    /// Every storage that keeps silent now.
    pub(super) fn all(watch: &StorageWatch) -> Vec<Self> {
        let silent = watch.silent().into_iter().map(|(about, silence)| Self {
            storage: match about {
                StorageQuestion::One(storage) => storage.to_string(),
                StorageQuestion::All => "*".to_owned(),
            },
            since: moment(silence.since),
            next_try: moment(silence.next_try),
        });
        silent.collect()
    }
}

/// Desired state as the agent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DesiredStatus {
    /// Where it is read; none if nothing is declared.
    pub directory: Option<String>,
    /// How many guests are declared.
    pub guests: usize,
    /// Since when it holds.
    pub since: Option<Timestamp>,
    /// What is wrong with what is there now.
    pub trouble: Option<SourceTrouble>,
    /// The hub it comes from; none if it comes from files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubStatus>,
}

/// The hub as the agent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Where it is.
    pub url: String,
    /// The document in effect; 0 if none was taken yet.
    pub generation: u64,
    /// Who signed it; none if nobody did.
    pub signer: Option<String>,
    /// Whether that signer may still sign documents. The document holds all the same.
    pub signer_is_trusted: bool,
    /// When the hub last answered, in this life of the agent.
    pub heard: Option<Timestamp>,
    /// What is wrong with the way to it.
    pub trouble: Option<String>,
    /// Why its newest document was not taken.
    pub refused: Option<String>,
    /// Whether the journal was rolled back and nobody acknowledged it: everything destructive is off.
    pub journal_rollback: bool,
    /// The last document that an author signed and this host took; none before the first.
    #[serde(default)]
    pub author_word: Option<AuthorWordStatus>,
    /// That it is older than root's `fresh_within`; none if it is not, or if root set no such time. Nothing is held by it.
    #[serde(default)]
    pub stale: Option<String>,
}

/// The last document that an author signed and this host took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorWordStatus {
    /// Its number.
    pub generation: u64,
    /// Who signed it.
    pub signer: String,
    /// When it was signed, as it says itself.
    pub signed_at: Timestamp,
    /// When this host took it.
    pub taken_at: Timestamp,
}

impl AuthorWordStatus {
    /// It as moments that people read; none if they lie beyond any calendar.
    pub fn of(word: &AuthorWord) -> Option<Self> {
        let AuthorWord { generation, signer, signed_at, taken_at } = word;
        Some(Self {
            generation: generation.0,
            signer: signer.clone(),
            signed_at: moment(*signed_at)?,
            taken_at: moment(*taken_at)?,
        })
    }
}

/// One pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassStatus {
    /// Its number since the agent started.
    pub id: String,
    /// When it read the node.
    pub at: Timestamp,
    /// How long that took.
    pub took_ms: u64,
    /// Whether its actions have all ended.
    pub ended: bool,
    /// Actions in its plan.
    pub planned: usize,
    /// Actions done.
    pub succeeded: usize,
    /// Actions not done, or of unknown outcome.
    pub failed: usize,
    /// Actions that wait.
    pub held: usize,
    /// Actions not tried.
    pub skipped: usize,
    /// Guests of which something declared cannot be done.
    pub errors: usize,
}

/// A guest that is not as declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Which.
    pub guest: GuestId,
    /// What differs: `cores 2 -> 4`.
    pub drift: Vec<String>,
    /// What waits, and for what.
    pub held: Vec<HeldStatus>,
    /// What is stored and waits for a restart of the guest.
    pub after_restart: Vec<String>,
    /// What cannot be done, or was not.
    pub problems: Vec<String>,
}

/// Something that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// Why, as a code.
    pub code: ReasonCode,
    /// Why, in words.
    pub why: String,
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// The newest record; none if there is no journal.
    pub seq: Option<u64>,
    /// Its sum.
    pub sum: Option<String>,
    /// What was checked, and when; none if it could not be.
    pub verified: Option<String>,
    /// What is wrong with it.
    pub damage: Option<String>,
}

/// An operation that is not closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Which.
    pub op: OperationId,
    /// On which guest.
    pub guest: GuestId,
    /// What it does.
    pub kind: ActionKind,
    /// `started`, `task_running` or `unknown`.
    pub state: String,
    /// When its request was sent, by the node's clock.
    pub since: Option<Timestamp>,
    /// Its task.
    pub upid: Option<Upid>,
    /// Why it was begun.
    pub reason: String,
    /// Why its outcome is not known.
    pub unknown: Option<String>,
}

impl OperationStatus {
    fn of(operation: &Operation, reason: &str) -> Self {
        let (sent_at, doubt) = operation.sent_and_doubt();
        Self {
            op: operation.id,
            guest: operation.intent.guest,
            kind: operation.intent.kind,
            state: operation.state.as_str().to_owned(),
            since: moment(sent_at),
            upid: operation.task.clone(),
            reason: reason.to_owned(),
            unknown: doubt.map(str::to_owned),
        }
    }

    /// What an operator types to close it; only an unknown outcome can be closed by hand.
    pub fn resolve_command(&self) -> Option<String> {
        let unknown = self.unknown.is_some();
        unknown.then(|| format!("evenkeel journal resolve {} --as succeeded|failed", self.op))
    }
}

impl JournalStatus {
    /// A journal with this newest record.
    pub fn at(head: Option<&Head>, verified: impl Into<String>) -> Self {
        Self {
            seq: head.map(|head| head.seq.0),
            sum: head.map(|head| head.sum.to_string()),
            verified: Some(verified.into()),
            damage: None,
        }
    }
}

/// What waits for a signature by a journal, oldest first.
pub fn pending(state: &JournalState) -> Vec<PendingStatus> {
    let mut items: Vec<_> = waiting(state).into_iter().collect();
    items.sort_by_key(|(id, (item, _))| (item.raised_at, *id));
    items
        .into_iter()
        .map(|(pending, (item, kept))| PendingStatus {
            pending,
            op: item.op,
            guest: item.guest,
            from: kept.from,
            raised_at: moment(item.raised_at),
        })
        .collect()
}

/// What acts that were done warned of, by a journal.
pub fn warnings(state: &JournalState) -> Vec<WarningStatus> {
    let told =
        |KeptWarning { guest, slot, op, warning }| WarningStatus { guest, slot, op, warning };
    kept_warnings(state).into_iter().map(told).collect()
}

/// The operations of a journal that are not closed.
pub fn operations(state: &JournalState) -> Vec<OperationStatus> {
    let told = |operation: &Operation| {
        let reason = state.details(operation.id).map(|details| details.reason().to_owned());
        OperationStatus::of(operation, &reason.unwrap_or_default())
    };
    state.ledger().in_flight().map(told).collect()
}
