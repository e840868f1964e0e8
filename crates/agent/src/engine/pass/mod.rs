//! One pass: look at the node, plan, decide, hand the actions to their lanes, report.

pub(super) mod decisions;
pub(super) mod findings;
pub(super) mod node_look;
pub(super) mod reconcile;
pub(super) mod report;
pub(super) mod shared_readings;
