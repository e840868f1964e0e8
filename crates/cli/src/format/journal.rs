//! `journal`, `journal show` and `journal verify` with `-o json`.

use evenkeel_agent::journal::history::OpSummary;
use evenkeel_agent::journal::op_history::{OpHistory, OpStep};
use evenkeel_agent::journal::verify::VerifiedJournal;
use evenkeel_agent::journal::{Head, JournalError};
use evenkeel_core::operate::operation::Closer;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::render::tamed;

/// A message of a damaged file may quote anything of any length.
const PROBLEM_LENGTH_MAX: usize = 1_000;

/// Longer than any text the journal takes in.
const TEXT_LENGTH_MAX: usize = 2_048;

/// The operations of the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JournalFormat {
    /// 1.
    format_version: u32,
    /// The one with the newest record last.
    operations: Vec<SummaryFormat>,
}

/// One operation in short.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SummaryFormat {
    /// When its newest record was written.
    at: String,
    /// Its name.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// What it does.
    kind: String,
    /// `started`, `task_running`, `succeeded`, `failed` or `unknown`.
    state: String,
    /// Who closed it: `evidence` or `operator`; null while it is open.
    by: Option<String>,
    /// Why it was done, for people; `journal show` has parameters and values whole.
    reason: String,
    /// What was said of its outcome.
    outcome: String,
    /// The last task that was known of it.
    upid: Option<String>,
}

impl JournalFormat {
    pub(crate) fn of(operations: &[OpSummary]) -> Self {
        Self { format_version: 1, operations: operations.iter().map(SummaryFormat::of).collect() }
    }
}

impl SummaryFormat {
    pub(crate) fn of(operation: &OpSummary) -> Self {
        let OpSummary { op, guest, kind, at, state, reason, outcome, upid } = operation;
        let by = operation.closed_by().map(|by| match by {
            Closer::Evidence => "evidence",
            Closer::Operator => "operator",
        });
        Self {
            at: at.to_string(),
            op: op.to_string(),
            guest: guest.to_string(),
            kind: kind.to_string(),
            state: state.as_str().to_owned(),
            by: by.map(str::to_owned),
            reason: tamed(reason, TEXT_LENGTH_MAX),
            outcome: tamed(outcome, TEXT_LENGTH_MAX),
            upid: upid.as_ref().map(|upid| tamed(upid.as_str(), TEXT_LENGTH_MAX)),
        }
    }
}

/// Everything that is known of one operation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownFormat {
    /// 1.
    format_version: u32,
    /// Its name.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// What it does.
    kind: String,
    /// Why it was done.
    reason: String,
    /// Every parameter that was sent, secrets masked: the values after it.
    params: Map<String, Value>,
    /// The values that were there before, secrets masked.
    before: Map<String, Value>,
    /// What the gate decided: reason code, class, and for a signed act who signed, nonce and statement.
    decision: Map<String, Value>,
    /// Its records, oldest first.
    steps: Vec<StepFormat>,
    /// The logs of its tasks, as far as the node still has them and could be asked.
    task_logs: Vec<TaskLogFormat>,
}

/// One record.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StepFormat {
    /// The number of the record.
    seq: u64,
    /// When it was written.
    at: String,
    /// `started`, `request_started`, `task_running`, `succeeded`, `failed`, `unknown` or `resolved`.
    event: String,
    /// What else the record says.
    message: String,
    /// The task it names.
    upid: Option<String>,
}

/// The log of one task.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TaskLogFormat {
    /// Which.
    pub(crate) upid: String,
    /// Its lines; null if they could not be read.
    pub(crate) lines: Option<Vec<String>>,
    /// Why they could not be read.
    pub(crate) problem: Option<String>,
}

impl ShownFormat {
    pub(crate) fn of(history: &OpHistory, task_logs: &[TaskLogFormat]) -> Self {
        let OpHistory { op, guest, kind, reason, params, before, decision, steps } = history;
        Self {
            format_version: 1,
            op: op.to_string(),
            guest: guest.to_string(),
            kind: kind.to_string(),
            reason: reason.clone(),
            params: params.clone(),
            before: before.clone(),
            decision: decision.clone(),
            steps: steps.iter().map(StepFormat::of).collect(),
            task_logs: task_logs.to_vec(),
        }
    }
}

impl StepFormat {
    fn of(step: &OpStep) -> Self {
        Self {
            seq: step.seq.0,
            at: step.at.to_string(),
            event: step.event.to_owned(),
            message: step.told.clone(),
            upid: step.upid.as_ref().map(ToString::to_string),
        }
    }
}

/// Whether the journal is whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChainFormat {
    /// 2.
    format_version: u32,
    /// Whether every line was found good.
    whole: bool,
    /// How many records were checked; null if there is damage.
    records: Option<u64>,
    /// In how many segments.
    segments: Option<usize>,
    /// The newest record.
    head: Option<HeadFormat>,
    /// Bytes after it: a write under way, or what a crash tore.
    tail_bytes: Option<u64>,
    /// Where the damage is.
    at: Option<DamageFormat>,
    /// What it is.
    problem: Option<String>,
}

/// A record and its sum.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeadFormat {
    /// Its number.
    seq: u64,
    /// Its sum.
    sum: String,
}

/// A place in the journal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DamageFormat {
    /// The file.
    file: String,
    /// The line.
    line: Option<u64>,
    /// The byte.
    offset: Option<u64>,
    /// The record.
    seq: Option<u64>,
}

impl ChainFormat {
    pub(crate) fn whole(verified: &VerifiedJournal) -> Self {
        let VerifiedJournal { head, records, segments, tail_bytes } = verified;
        Self {
            format_version: 2,
            whole: true,
            records: Some(*records),
            segments: Some(*segments),
            head: head.as_ref().map(HeadFormat::of),
            tail_bytes: Some(*tail_bytes),
            at: None,
            problem: None,
        }
    }

    pub(crate) fn damaged(error: &JournalError) -> Self {
        let file = |file: &str| DamageFormat {
            file: file.to_owned(),
            line: None,
            offset: None,
            seq: None,
        };
        let place = match error {
            JournalError::Damaged { file: name, damage } => DamageFormat {
                line: Some(damage.line),
                offset: Some(damage.offset),
                seq: Some(damage.seq.0),
                ..file(name)
            },
            JournalError::Segments { file: name, .. }
            | JournalError::Newer { file: name, .. }
            | JournalError::OtherMachine { file: name, .. } => file(name),
            JournalError::Disk(failure) => file(&failure.file),
        };
        Self {
            format_version: 2,
            whole: false,
            records: None,
            segments: None,
            head: None,
            tail_bytes: None,
            at: Some(place),
            problem: Some(tamed(&error.to_string(), PROBLEM_LENGTH_MAX)),
        }
    }
}

impl HeadFormat {
    fn of(head: &Head) -> Self {
        Self { seq: head.seq.0, sum: head.sum.to_string() }
    }
}
