//! Invariant 8 as the oracle sees it: only what is declared is written, and what is only observed is let be.

use evenkeel_core::action_registry::ActionKind;

use super::{LANE_WORK_MS_MAX, OracleState};
use crate::call::WriteRequest;

impl OracleState {
    /// A guest that is only observed is not written to, and a key that is ignored is not written; what was planned
    /// before it came to be ignored is in its lane for a while.
    pub(super) fn is_let_be(&self, now_ms: u64, write: &WriteRequest) -> Option<String> {
        if self.is_undeclared_by_right(now_ms, write) {
            return None;
        }
        let (since_ms, modes) = &self.modes;
        if *since_ms < now_ms && modes.observed.contains(&write.guest) {
            return Some("(8) the guest is only observed".to_owned());
        }
        // What is ignored afterwards is still what a guest is made with.
        let ignored = self.ignores_cores.get(&write.guest).filter(|_| !write.kind.creates_guest());
        let ignored = ignored.is_some_and(|since_ms| since_ms + LANE_WORK_MS_MAX < now_ms);
        let deletes = write.params.get("delete");
        let deletes = deletes.is_some_and(|list| list.split(',').any(|key| key == "cores"));
        let writes = write.params.contains_key("cores") || deletes;
        (ignored && writes).then(|| "(8) `cores` is ignored".to_owned())
    }

    /// Invariant 8.
    pub(super) fn is_declared(&self, now_ms: u64, write: &WriteRequest) -> Option<String> {
        if self.is_undeclared_by_right(now_ms, write) {
            return None;
        }
        let Some(keys) = self.declared.get(&write.guest) else {
            return Some("(8) the guest was never declared".to_owned());
        };
        // A copied `onboot` goes off before the first start.
        let goes_off = write.params.get("onboot").is_some_and(|on| on == "0");
        if goes_off && self.never_ran(write.guest) {
            return None;
        }
        if write.kind == ActionKind::MoveVolume {
            let slot = write.params.get("volume").or_else(|| write.params.get("disk"));
            let foreign = slot.filter(|slot| !keys.contains(*slot))?;
            return Some(format!("(8) `{foreign}` was never declared"));
        }
        if write.kind != ActionKind::SetConfig {
            return None;
        }
        let listed = ["delete", "revert"].into_iter().filter_map(|name| write.params.get(name));
        let named = listed.flat_map(|list| list.split(',')).map(str::to_owned);
        let own = ["delete", "revert", "digest", "background_delay"];
        let set = write.params.keys().filter(|key| !own.contains(&key.as_str())).cloned();
        let foreign = set.chain(named).find(|key| !keys.contains(key))?;
        Some(format!("(8) `{foreign}` was never declared"))
    }
}
