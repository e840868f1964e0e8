//! How much of a large enumeration a test run takes: a sample while editing, the whole for `./test`.

/// Whether the whole is asked for.
#[expect(clippy::disallowed_methods, reason = "only tests ask, and they run in an environment")]
pub(crate) fn whole() -> bool {
    std::env::var_os("EVENKEEL_THOROUGH").is_some()
}

/// Every case if the whole is asked for, else every `step`-th.
pub(crate) fn every(step: u32) -> u32 {
    if whole() { 1 } else { step }
}
