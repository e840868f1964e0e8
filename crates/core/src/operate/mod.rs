//! The state machines that the agent drives: lanes, operations, recovery, back-off, and the content of each request.

pub mod back_off;
pub mod lane;
pub mod operation;
pub mod pve_call;
pub mod recover;
