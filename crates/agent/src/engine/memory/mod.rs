//! Facts about guests that the journal keeps from pass to pass: backups, the bin, moves, warnings of past acts.

pub(super) mod backups;
pub(super) mod bins;
pub(super) mod kept_warnings;
pub(super) mod moves;
