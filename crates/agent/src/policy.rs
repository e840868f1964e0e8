//! `[policy]` of agent.toml: the host's own limits, which no hub, desired file or signature can widen.
//!
//! Read once at start with the rest of root's file. A value outside its bounds is refused with its place,
//! because a limit that cannot hold protects nobody.

use evenkeel_core::desired::ReconcileMode;
use evenkeel_core::sign::{STATEMENT_LIFE_MAX_S, StatementLimits};
use serde::{Deserialize, Deserializer};

const DAY_S: u64 = 24 * 60 * 60;

/// A statement that lives shorter than this expires on its way from the operator to the host.
const STATEMENT_LIFE_MIN_S: u64 = 60;

/// Items are up to 64 KiB and stand in every snapshot of the journal; a thousand of them are what start-up can
/// bear, and more than anybody will read.
const PENDING_ITEMS_BOUND: u64 = 1_000;

/// An item nobody signed for a year describes another world.
const PENDING_DAYS_BOUND: u64 = 365;

/// A host with more destroyed guests a day than this has an operator who should raise the limit knowingly, in
/// the source.
const DESTRUCTIVE_BOUND: u64 = 1_000;

/// The host's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether this host changes guests at all, or only shows what differs. The stricter of host and guest holds.
    pub mode: ReconcileMode,
    /// The longest life of a statement, in seconds. It bounds how long a stolen approval is worth something.
    #[serde(deserialize_with = "within::<STATEMENT_LIFE_MIN_S, STATEMENT_LIFE_MAX_S, _>")]
    pub statement_life_s: u64,
    /// How many items may wait for a signature. A hub that floods this host fills this and no disk.
    #[serde(deserialize_with = "within::<1, PENDING_ITEMS_BOUND, _>")]
    pub pending_items: u64,
    /// After how many days an item that nobody signed is dropped.
    #[serde(deserialize_with = "within::<1, PENDING_DAYS_BOUND, _>")]
    pub pending_days: u64,
    /// After how many days in the bin a guest's destroy is put before somebody who may sign it.
    #[serde(deserialize_with = "within::<1, PENDING_DAYS_BOUND, _>")]
    pub bin_days: u64,
    /// How many signed operations may start in 24 hours: what a stolen key can do before somebody looks.
    #[serde(deserialize_with = "within::<0, DESTRUCTIVE_BOUND, _>")]
    pub destructive_per_day: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: ReconcileMode::Enforce,
            statement_life_s: STATEMENT_LIFE_MAX_S,
            pending_items: 256,
            pending_days: 30,
            bin_days: 30,
            destructive_per_day: 10,
        }
    }
}

impl Policy {
    /// What the judgement over an approval asks.
    pub fn limits(&self) -> StatementLimits {
        StatementLimits { statement_life_max_s: self.statement_life_s }
    }

    /// How long a guest stays in the bin before its destroy is put before somebody, in seconds.
    pub(crate) fn bin_life_s(&self) -> u64 {
        self.bin_days * DAY_S
    }

    /// How long an item waits, in seconds.
    pub(crate) fn pending_life_s(&self) -> u64 {
        self.pending_days * DAY_S
    }
}

fn within<'de, const MIN: u64, const MAX: u64, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if (MIN..=MAX).contains(&number) {
        Ok(number)
    } else {
        Err(serde::de::Error::custom(format_args!("it must be a number from {MIN} to {MAX}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_the_contract_s_limit() {
        let policy: Policy = toml::from_str("destructive_per_day = 0").unwrap();
        assert_eq!(policy, Policy { destructive_per_day: 0, ..Policy::default() });
        assert_eq!(policy.limits().statement_life_max_s, 86_400);
        assert_eq!(policy.pending_life_s(), 30 * 86_400);
        assert_eq!(policy.pending_items, 256);
    }

    #[test]
    fn g27_a_limit_outside_of_its_bounds_or_misspelt_is_refused_with_its_place() {
        let refused = [
            ("statement_life_s = 86401", "60 to 86400"),
            ("statement_life_s = 59", "60 to 86400"),
            ("pending_items = 0", "1 to 1000"),
            ("pending_items = 1001", "1 to 1000"),
            ("pending_days = 0", "1 to 365"),
            ("pending_days = 366", "1 to 365"),
            ("bin_days = 0", "1 to 365"),
            ("destructive_per_day = 1001", "0 to 1000"),
            ("destructive_per_day = -1", "invalid"),
            ("destructive_per_week = 1", "unknown field"),
            ("destructive_per_day = \"10\"", "invalid type"),
            ("mode = \"watch\"", "`enforce` or `observe`"),
        ];
        for (text, why) in refused {
            let told = toml::from_str::<Policy>(text).unwrap_err().to_string();
            assert!(told.contains(why) && told.contains("line 1"), "{text}: {told}");
        }
    }
}
