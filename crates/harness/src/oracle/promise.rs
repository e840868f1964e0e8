//! Whether a request is the one that its operation's lines promised, parameter by parameter.

use evenkeel_core::action_registry::ActionKind;
use serde_json::Value;

use crate::call::WriteRequest;
use crate::history::HistoryOp;

/// Whether a request is the one its operation promised last.
pub(super) fn is_promised(op: &HistoryOp, write: &WriteRequest) -> Result<(), String> {
    let other = |what: &str| Err(format!("(3) {what} was not what its `started` promised"));
    let signed = |name: &str| op.params.get(name).and_then(Value::as_str).unwrap_or_default();
    let sent = |name: &str| write.params.get(name).map(String::as_str).unwrap_or_default();
    if op.guest != write.guest {
        return other("the guest");
    }
    match op.stage.as_str() {
        "stop" if write.kind == ActionKind::Stop && signed("stop") == "1" => return Ok(()),
        "backup" if write.kind == ActionKind::Backup && !signed("final_backup").is_empty() => {
            let same = sent("storage") == signed("final_backup") && sent("protected") == "1";
            return if same { Ok(()) } else { other("the backup") };
        }
        "unprotect" if write.kind == ActionKind::SetConfig && signed("unprotect") == "1" => {
            let own = ["protection", "digest", "background_delay"];
            let only = write.params.keys().all(|key| own.contains(&key.as_str()));
            return if only && sent("protection") == "0" { Ok(()) } else { other("the write") };
        }
        "act" if write.kind == op.kind => {}
        _ => return other("the request"),
    }
    let same = |names: &[&str]| names.iter().all(|name| signed(name) == sent(name));
    // What the oracle has not learnt to compare was not promised.
    let is_same = if op.kind == ActionKind::SetConfig {
        let own = ["digest", "background_delay"];
        let both = op.params.keys().chain(write.params.keys());
        both.filter(|key| !own.contains(&key.as_str())).all(|key| signed(key) == sent(key))
    } else if op.kind == ActionKind::Rollback {
        same(&["snapname"]) && matches!(sent("start"), "" | "0")
    } else if op.kind == ActionKind::DeleteVolume {
        sent("delete") == signed("slot")
    } else {
        let compared = [
            (ActionKind::Destroy, &["purge", "destroy-unreferenced-disks"][..]),
            (ActionKind::DeleteSnapshot, &["snapname"]),
        ];
        compared.into_iter().any(|(kind, names)| op.kind == kind && same(names))
    };
    if is_same { Ok(()) } else { other("a parameter") }
}
