//! `pending`, `request` and `submit` with `-o json`.

use std::collections::BTreeMap;

use evenkeel_agent::daemon::protocol::PendingView;
use evenkeel_agent::engine::{OpReport, RaisedBy};
use evenkeel_core::model::id::OperationId;
use evenkeel_core::sign::{OpResult, PendingId, PendingItem};
use schemars::JsonSchema;
use serde::Serialize;

use super::apply::OpFormat;
use super::at;

/// What waits for a signature.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PendingFormat {
    /// 2.
    format_version: u32,
    /// All of it, oldest first.
    items: Vec<ItemFormat>,
}

/// One item.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ItemFormat {
    /// Its name.
    pending: String,
    /// `plan` if the desired files want it, `request` if somebody asked for it.
    from: String,
    /// What it does.
    op: String,
    /// Such as `lxc/101`.
    guest: String,
    /// The guest's name.
    name: String,
    /// Every parameter.
    params: BTreeMap<String, String>,
    /// What would be lost.
    losses: Vec<LossFormat>,
    /// When the guest's newest backup was made; null if none is known.
    last_backup: Option<String>,
    /// When it was put down.
    raised_at: Option<String>,
    /// The version of the signers it was put down under.
    trust_version: u64,
    /// The item and the host's signature, exactly as it is signed.
    envelope: String,
    /// The item it was raised in the place of, because nobody could execute that any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<ReplacedFormat>,
}

/// An item that is over.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReplacedFormat {
    /// Its name.
    pending: String,
    /// Why nobody could execute it any more.
    why: String,
}

/// One thing that would be lost.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LossFormat {
    /// What.
    what: String,
    /// How large it is, if that is known.
    size_bytes: Option<u64>,
}

impl PendingFormat {
    pub(crate) fn of(items: &[(&PendingView, PendingItem)]) -> Self {
        let items = items.iter().map(|(view, item)| ItemFormat::of(view, item)).collect();
        Self { format_version: 2, items }
    }
}

impl ItemFormat {
    fn of(view: &PendingView, item: &PendingItem) -> Self {
        let from = match view.from {
            RaisedBy::Plan => "plan",
            RaisedBy::Request => "request",
        };
        let losses = item
            .losses
            .iter()
            .map(|loss| LossFormat { what: loss.what.clone(), size_bytes: loss.size_bytes });
        Self {
            pending: view.id.to_string(),
            from: from.to_owned(),
            op: item.op.to_string(),
            guest: item.guest.to_string(),
            name: item.guest_name.clone(),
            params: item.params.clone(),
            losses: losses.collect(),
            last_backup: item.last_backup.at().and_then(at),
            raised_at: at(item.raised_at),
            trust_version: item.trust_version.0,
            envelope: view.envelope.clone(),
            replaces: view.replaces.as_ref().map(|former| ReplacedFormat {
                pending: former.id.to_string(),
                why: former.why.clone(),
            }),
        }
    }
}

/// An item that was raised, or withdrawn.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RequestFormat {
    /// 1.
    format_version: u32,
    /// Its name.
    pending: String,
}

impl RequestFormat {
    pub(crate) fn of(id: PendingId) -> Self {
        Self { format_version: 1, pending: id.to_string() }
    }
}

/// What became of an approval, a rotation or a recovery.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SubmitFormat {
    /// 2.
    format_version: u32,
    /// That of the act (see `apply`), `replay` if it was executed before, or `done` for a change of signers.
    result: String,
    /// The same in words.
    message: String,
    /// The operation; the first one's for a replay.
    op: Option<String>,
    /// How the first one stands, for a replay.
    first: Option<String>,
    /// The act, if one was executed.
    act: Option<OpFormat>,
}

impl SubmitFormat {
    pub(crate) fn act(report: &OpReport) -> Self {
        Self {
            format_version: 2,
            result: report.end.as_str().to_owned(),
            message: report.end.words(),
            op: Some(report.op.to_string()),
            first: None,
            act: Some(OpFormat::of(report)),
        }
    }

    pub(crate) fn replay(op: OperationId, first: OpResult, message: &str) -> Self {
        Self {
            format_version: 2,
            result: "replay".to_owned(),
            message: message.to_owned(),
            op: Some(op.to_string()),
            first: Some(first.as_str().to_owned()),
            act: None,
        }
    }

    pub(crate) fn done(message: &str) -> Self {
        Self {
            format_version: 2,
            result: "done".to_owned(),
            message: message.to_owned(),
            op: None,
            first: None,
            act: None,
        }
    }
}
