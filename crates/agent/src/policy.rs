//! `[policy]` of agent.toml: the host's own limits, which no hub, desired file or signature can widen.
//!
//! Read once at start with the rest of root's file. A value outside its bounds is refused with its place,
//! because a limit that cannot hold protects nobody.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_core::desired::ReconcileMode;
use evenkeel_core::gate::create_policy::{CreatePolicy, PER_DAY_MAX, SourcePattern};
use evenkeel_core::model::quantity::Bytes;
use evenkeel_core::model::vmid_ranges::VmidRanges;
use evenkeel_core::operate::operation::StorageName;
use evenkeel_core::sign::{ApprovalRules, STATEMENT_LIFE_MAX_S, StatementLimits};
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

/// A hub that may restart more guests an hour than this is not bounded at all.
const DISRUPTIVE_BOUND: u64 = 10_000;

/// The host's limits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
    /// Whether a document of a hub is taken only with an author's signature.
    pub desired_signed: bool,
    /// Whether one is taken that an author signed in the old format (v1), which does not say what the author compared it
    /// with: for as long as authors have an older evenkeel.
    pub desired_without_base: bool,
    /// Whether signed acts wait until the hub has said how far the journal had come.
    pub anchor: AnchorPolicy,
    /// How many disruptive acts that a hub declares may begin in an hour.
    #[serde(deserialize_with = "within::<0, DISRUPTIVE_BOUND, _>")]
    pub disruptive_per_hour: u64,
    /// The numbers of guests that may be scratch: what we made there, and nobody touched since, we may destroy unsigned.
    pub scratch_vmids: VmidRanges,
    /// What a hub may have made; nothing without it.
    #[serde(deserialize_with = "create")]
    pub create: Option<CreatePolicy>,
    /// How many operational keys which acts take. The trust chain keeps what was in force: less is taken only after a
    /// rotation that says so.
    pub approve: ApprovalRules,
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
            desired_signed: true,
            desired_without_base: false,
            anchor: AnchorPolicy::Optional,
            disruptive_per_hour: 20,
            scratch_vmids: VmidRanges::default(),
            create: None,
            approve: ApprovalRules::default(),
        }
    }
}

/// What a host with a hub does at start while the hub cannot be asked for the anchor of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnchorPolicy {
    /// Signed acts run, and it is told that they ran without.
    #[default]
    Optional,
    /// Signed acts wait.
    Required,
}

/// `[policy.create]` as it is written. What is left out allows nothing, but for the number of guests a day.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CreateWire {
    vmids: VmidRanges,
    sources: Vec<SourcePattern>,
    storages: BTreeMap<StorageName, StorageQuota>,
    bridges: BTreeSet<String>,
    #[serde(deserialize_with = "within::<0, PER_DAY_MAX, _>")]
    per_day: u64,
    privileged: bool,
}

impl Default for CreateWire {
    fn default() -> Self {
        let CreatePolicy { vmids, sources, storages: _, bridges, per_day: _, privileged } =
            CreatePolicy::default();
        Self { vmids, sources, storages: BTreeMap::new(), bridges, per_day: 10, privileged }
    }
}

/// How much of a storage may be used: `"500GiB"`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct StorageQuota(Bytes);

impl TryFrom<String> for StorageQuota {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let quota = Bytes::from_person(text.trim());
        quota.map(Self).map_err(|error| format!("{error}; write a size such as \"500GiB\""))
    }
}

fn create<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CreatePolicy>, D::Error> {
    let CreateWire { vmids, sources, storages, bridges, per_day, privileged } =
        CreateWire::deserialize(deserializer)?;
    let storages = storages.into_iter().map(|(name, StorageQuota(bytes))| (name, bytes)).collect();
    Ok(Some(CreatePolicy { vmids, sources, storages, bridges, per_day, privileged }))
}

impl Policy {
    /// Every limit as a text, for people at a hub.
    pub fn told(&self) -> BTreeMap<String, String> {
        let Self {
            mode,
            statement_life_s,
            pending_items,
            pending_days,
            bin_days,
            destructive_per_day,
            desired_signed,
            desired_without_base,
            anchor,
            disruptive_per_hour,
            scratch_vmids,
            create,
            approve,
        } = self;
        let mode = match mode {
            ReconcileMode::Enforce => "enforce",
            ReconcileMode::Observe => "observe",
        };
        let anchor = match anchor {
            AnchorPolicy::Optional => "optional",
            AnchorPolicy::Required => "required",
        };
        let mut told = BTreeMap::from([
            ("mode", mode.to_owned()),
            ("statement_life_s", statement_life_s.to_string()),
            ("pending_items", pending_items.to_string()),
            ("pending_days", pending_days.to_string()),
            ("bin_days", bin_days.to_string()),
            ("destructive_per_day", destructive_per_day.to_string()),
            ("desired_signed", desired_signed.to_string()),
            ("desired_without_base", desired_without_base.to_string()),
            ("anchor", anchor.to_owned()),
            ("disruptive_per_hour", disruptive_per_hour.to_string()),
            ("scratch_vmids", scratch_vmids.to_string()),
        ]);
        if let Some(create) = create {
            let CreatePolicy { vmids, sources, storages, bridges, per_day, privileged } = create;
            let storages = storages.iter().map(|(name, quota)| format!("{name}={quota}"));
            told.extend([
                ("create.vmids", vmids.to_string()),
                ("create.sources", joined(sources.iter().map(ToString::to_string))),
                ("create.storages", joined(storages)),
                ("create.bridges", joined(bridges.iter().cloned())),
                ("create.per_day", per_day.to_string()),
                ("create.privileged", privileged.to_string()),
            ]);
        }
        if !approve.is_empty() {
            told.insert("approve", joined(approve.lines().into_iter()));
        }
        told.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
    }

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

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
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

    fn policy_of(text: &str) -> Policy {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_a_hub_may_have_made_is_nothing_unless_it_is_said() {
        assert_eq!(toml::from_str::<Policy>("").unwrap().create, None);
        let policy: Policy = toml::from_str(
            "scratch_vmids = \"9100-9199\"\n[create]\nvmids = \"1000-1999\"\n\
             sources = [\"local:vztmpl/*\", \"local:import/*\", \"clone:9000-9009\"]\n\
             storages = { local-lvm = \"500GiB\" }\nbridges = [\"vmbr1\"]\nper_day = 10\nprivileged = false\n",
        )
        .unwrap();
        assert_eq!(policy.scratch_vmids.to_string(), "9100-9199");
        let create = policy.create.unwrap();
        assert_eq!((create.vmids.to_string(), create.sources.len()), ("1000-1999".to_owned(), 3));
        let quotas: Vec<_> =
            create.storages.iter().map(|(name, quota)| (name.as_str(), *quota)).collect();
        assert_eq!(quotas, [("local-lvm", Bytes(500 << 30))]);
        assert_eq!((create.bridges.len(), create.per_day, create.privileged), (1, 10, false));
        let policy = Policy { create: Some(create), ..policy_of("destructive_per_day = 3") };
        let told = policy.told();
        assert_eq!((&*told["destructive_per_day"], &*told["desired_signed"]), ("3", "true"));
        assert_eq!(told["create.sources"], "local:vztmpl/*, local:import/*, clone:9000-9009");
        assert_eq!(told["create.storages"], "local-lvm=500G");
        let empty: Policy = toml::from_str("[create]\n").unwrap();
        assert_eq!(empty.create, Some(CreatePolicy { per_day: 10, ..CreatePolicy::default() }));
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
            ("anchor = \"always\"", "`optional` or `required`"),
            ("desired_signed = \"no\"", "invalid type"),
            ("desired_without_base = \"no\"", "invalid type"),
            ("disruptive_per_hour = 10001", "0 to 10000"),
            ("scratch_vmids = \"9199-9100\"", "smaller number"),
            ("scratch_vmids = \"all\"", "1000-1999"),
            ("create = { per_day = 1001 }", "0 to 1000"),
            ("create = { vmids = \"1-99\" }", "from 100 on"),
            ("create = { sources = [\"local:*\"] }", "local:vztmpl/*"),
            ("create = { storages = { tank = \"500GB\" } }", "GiB"),
            ("create = { storages = { tank = \"500\" } }", "500GiB"),
            ("create = { storages = [\"tank\"] }", "invalid type"),
            ("create = { bridge = [\"vmbr1\"] }", "unknown field"),
            ("create = { privileged = \"no\" }", "invalid type"),
        ];
        for (text, why) in refused {
            let told = toml::from_str::<Policy>(text).unwrap_err().to_string();
            assert!(told.contains(why) && told.contains("line 1"), "{text}: {told}");
        }
    }
}
