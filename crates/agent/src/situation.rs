//! Named situations that a campaign must have been in, counted where they happen.
//!
//! `sometimes!("the task list turned over under an item")` stands where something rare happens. The harness prints how often
//! each was reached, and a long campaign that never reached one fails: its weather is too kind to prove anything there.
//! Without the feature `situations`, which only the harness asks for, nothing of it is compiled. It must never change what
//! the agent does.

use std::collections::BTreeMap;

/// Counts that this place was reached: `sometimes!("name")`, or `sometimes!("area", case)` for one name a case.
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {
        $crate::situation::count(|| ::std::string::String::from($name))
    };
    ($area:literal, $case:expr) => {
        $crate::situation::count(|| ::std::format!("{}: {}", $area, $case))
    };
}

/// Counts one name; `sometimes!` calls it.
#[cfg(feature = "situations")]
pub fn count(name: impl FnOnce() -> String) {
    counts::add(name());
}

/// Counts nothing, and does not even make the name.
#[cfg(not(feature = "situations"))]
#[inline(always)]
pub fn count(_name: impl FnOnce() -> String) {}

/// How often each situation was reached on this thread, which begins to count anew.
pub fn take_counts() -> BTreeMap<String, u64> {
    #[cfg(feature = "situations")]
    return counts::take();
    #[cfg(not(feature = "situations"))]
    BTreeMap::new()
}

#[cfg(feature = "situations")]
mod counts {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        // Of one thread, because a run of the harness is: counts of runs side by side stay apart.
        static COUNTS: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(super) fn add(name: String) {
        COUNTS.with_borrow_mut(|counts| *counts.entry(name).or_default() += 1);
    }

    pub(super) fn take() -> BTreeMap<String, u64> {
        COUNTS.take()
    }
}
