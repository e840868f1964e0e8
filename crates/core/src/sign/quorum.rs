//! How many operational keys an act takes: root's rules, which of them an act falls under, and who counts.
//!
//! ```text
//! agent.toml: [[policy.approve]] ─┐
//!                                 ├─ both ─► rules in force ─► demand of one act ─► judged with its signatures
//! trust chain: what was in force ─┘
//! ```
//!
//! Root's file alone raises what an act takes. Less is taken only after a rotation that says so, signed by as many as the
//! strictest rule asks. Everything here is a pure function; the agent keeps the rules and the signatures that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::envelope::{Approver, SIGNATURES_MAX};
use super::trust::SignerName;
use crate::action_registry::ActionKind;
use crate::model::id::{GuestId, GuestKind};
use crate::model::reason::{ReasonCode, Refusal};
use crate::model::vmid_ranges::VmidRanges;

/// The most rules one host may have: more than anybody keeps apart.
pub const APPROVAL_RULES_MAX: usize = 64;

/// How many different operational keys must sign: from one to as many as an envelope holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SignerCount(u8);

impl SignerCount {
    /// What every act takes.
    pub const ONE: Self = Self(1);

    /// The number.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

impl TryFrom<u64> for SignerCount {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        match u8::try_from(number) {
            Ok(small) if (1..=SIGNATURES_MAX).contains(&usize::from(small)) => Ok(Self(small)),
            Ok(_) | Err(_) => Err(format!("`signers` is a number from 1 to {SIGNATURES_MAX}")),
        }
    }
}

impl From<SignerCount> for u64 {
    fn from(count: SignerCount) -> u64 {
        u64::from(count.0)
    }
}

impl fmt::Display for SignerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which acts a rule is about; what is left out fits every act.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleScope {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<ActionKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<GuestKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vmids: Option<VmidRanges>,
}

/// What a rule asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RuleDemand {
    signers: SignerCount,
    requester_counts: bool,
}

impl RuleDemand {
    /// What both ask.
    fn and(self, other: Self) -> Self {
        Self {
            signers: self.signers.max(other.signers),
            requester_counts: self.requester_counts && other.requester_counts,
        }
    }
}

/// One rule as it is written, in agent.toml and in a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<ActionKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<GuestKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vmids: Option<VmidRanges>,
    signers: SignerCount,
    #[serde(default = "yes")]
    requester_counts: bool,
}

fn yes() -> bool {
    true
}

/// Root's rules about how many must sign.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<WrittenRule>", into = "Vec<WrittenRule>")]
pub struct ApprovalRules(BTreeMap<RuleScope, RuleDemand>);

impl TryFrom<Vec<WrittenRule>> for ApprovalRules {
    type Error = String;

    fn try_from(written: Vec<WrittenRule>) -> Result<Self, String> {
        if written.len() > APPROVAL_RULES_MAX {
            return Err(format!("more than {APPROVAL_RULES_MAX} rules"));
        }
        let mut rules = BTreeMap::new();
        for WrittenRule { op, kind, tag, vmids, signers, requester_counts } in written {
            if let Some(why) = op.and_then(ActionKind::not_signable) {
                return Err(format!("no signature has it done: {why}"));
            }
            if vmids.as_ref().is_some_and(VmidRanges::is_empty) {
                return Err("`vmids` names no guest".to_owned());
            }
            let scope = RuleScope { op, kind, tag, vmids };
            if rules.insert(scope, RuleDemand { signers, requester_counts }).is_some() {
                return Err("two rules are about the same acts".to_owned());
            }
        }
        Ok(Self(rules))
    }
}

impl From<ApprovalRules> for Vec<WrittenRule> {
    fn from(rules: ApprovalRules) -> Self {
        let written = |(scope, demand)| {
            let RuleScope { op, kind, tag, vmids } = scope;
            let RuleDemand { signers, requester_counts } = demand;
            WrittenRule { op, kind, tag, vmids, signers, requester_counts }
        };
        rules.0.into_iter().map(written).collect()
    }
}

impl ApprovalRules {
    /// The rules in a text as agent.toml has them; what else is in it is not looked at.
    pub fn of_agent_file(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct AgentFile {
            policy: PolicySection,
        }
        #[derive(Deserialize)]
        struct PolicySection {
            #[serde(default)]
            approve: ApprovalRules,
        }
        let file: AgentFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        Ok(file.policy.approve)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These and others: of two about the same acts, what both ask.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        let mut rules = self.0.clone();
        for (scope, demand) in &others.0 {
            let known = rules.entry(scope.clone()).or_insert(*demand);
            *known = known.and(*demand);
        }
        Self(rules)
    }

    /// What an act on a guest takes: the strictest of all rules that fit. `tags` are those it was raised with and those it
    /// has now. `requester` asked for it; nobody did where a plan wants it.
    pub fn demand<'a>(
        &self,
        op: ActionKind,
        guest: GuestId,
        tags: impl IntoIterator<Item = &'a str>,
        requester: Option<&SignerName>,
    ) -> ApprovalDemand {
        let tags: BTreeSet<&str> = tags.into_iter().collect();
        let fits = |scope: &RuleScope| {
            let RuleScope { op: of, kind, tag, vmids } = scope;
            of.is_none_or(|of| of == op)
                && kind.is_none_or(|kind| kind == guest.kind)
                && tag.as_deref().is_none_or(|tag| tags.contains(tag))
                && vmids.as_ref().is_none_or(|vmids| vmids.has(guest.vmid))
        };
        let every = RuleDemand { signers: SignerCount::ONE, requester_counts: true };
        let fitting = self.0.iter().filter(|(scope, _)| fits(scope));
        let RuleDemand { signers, requester_counts } =
            fitting.fold(every, |demand, (_, more)| demand.and(*more));
        let excluded = requester.filter(|_| !requester_counts).cloned();
        ApprovalDemand { signers, requester_counts, excluded }
    }

    /// What a planned rotation takes: as much as the strictest rule, or one key could enrol another for itself.
    pub fn of_rotations(&self) -> SignerCount {
        self.0.values().map(|demand| demand.signers).max().unwrap_or(SignerCount::ONE)
    }

    /// A line a rule, for people.
    pub fn lines(&self) -> Vec<String> {
        let line = |(scope, demand): (&RuleScope, &RuleDemand)| {
            let RuleScope { op, kind, tag, vmids } = scope;
            let mut words = vec![op.map_or("every act", ActionKind::as_str).to_owned()];
            words.extend(kind.map(|kind| format!("on {kind} guests")));
            words.extend(tag.as_ref().map(|tag| format!("tagged {tag}")));
            words.extend(vmids.as_ref().map(|vmids| format!("numbered {vmids}")));
            let signers = demand.signers;
            let keys = if signers == SignerCount::ONE { "signer" } else { "signers" };
            words.push(format!("takes {signers} {keys}"));
            if !demand.requester_counts {
                words.push("beside who asked".to_owned());
            }
            words.join(" ")
        };
        self.0.iter().map(line).collect()
    }
}

/// What one act takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDemand {
    /// How many different operational keys.
    pub signers: SignerCount,
    /// Whether the key of who asked for it counts.
    pub requester_counts: bool,
    /// Whose key does not count.
    pub excluded: Option<SignerName>,
}

impl ApprovalDemand {
    /// One key, anybody's.
    pub fn one() -> Self {
        Self { signers: SignerCount::ONE, requester_counts: true, excluded: None }
    }

    /// Whether these signers are enough; each stands here because its signature was verified.
    pub fn judge(&self, approvers: &[Approver<'_>]) -> Result<(), Refusal> {
        let Self { signers, requester_counts: _, excluded } = self;
        let counts = |approver: &&Approver<'_>| Some(&approver.signer.name) != excluded.as_ref();
        // By key: whoever signs twice is one signer.
        let counted: BTreeMap<&[u8], &SignerName> = approvers
            .iter()
            .filter(counts)
            .map(|approver| (approver.signer.key.blob(), &approver.signer.name))
            .collect();
        if counted.len() >= signers.get() {
            return Ok(());
        }
        let names: Vec<String> = counted.values().map(ToString::to_string).collect();
        let by = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        let asked =
            excluded.as_ref().map(|name| format!("; {name} asked for it and does not count"));
        let asked = asked.unwrap_or_default();
        let detail = format!("{} of {signers} signatures{by}{asked}", counted.len());
        Err(Refusal::new(ReasonCode::PendingSignature, detail))
    }
}
