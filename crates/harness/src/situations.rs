//! Which situations a campaign must have been in: the table `situations.txt`, and what a campaign reached of it.
//!
//! A name comes from a `sometimes!` of agent or harness. A line of the table is a name; behind ` -- ` it may say why nobody
//! can get there here. A name that is counted and not in the table fails a campaign too, so that the table stays whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use evenkeel_agent::sometimes;
use evenkeel_core::operate::operation::{OpPhase, OpState, Operation};

/// The table.
const TABLE: &str = include_str!("../situations.txt");

/// Behind it stands why a campaign need not get there.
const EXCUSE: &str = " -- ";

/// So many seeds must have been in every situation of the table.
pub const SEEDS_THAT_REACH_ALL: u64 = 1_000;

/// How often each situation was reached by many runs.
#[derive(Debug, Default)]
pub struct ReachedSituations {
    counts: BTreeMap<String, u64>,
}

impl ReachedSituations {
    /// Adds what one run reached.
    pub fn add(&mut self, reached: BTreeMap<String, u64>) {
        for (name, count) in reached {
            *self.counts.entry(name).or_default() += count;
        }
    }

    /// The names of the table that nobody reached.
    pub fn never_reached(&self) -> Vec<&'static str> {
        wanted().into_iter().filter(|name| !self.counts.contains_key(*name)).collect()
    }

    /// Names that were reached and that the table does not know.
    pub fn not_in_table(&self) -> Vec<&str> {
        let known: BTreeSet<&str> = lines().map(name_of).collect();
        self.counts.keys().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }

    /// Every name and how often it was reached, the rarest first.
    pub fn render(&self) -> String {
        let mut rows: Vec<(u64, &str)> =
            self.counts.iter().map(|(name, count)| (*count, name.as_str())).collect();
        rows.extend(self.never_reached().into_iter().map(|name| (0, name)));
        rows.sort_unstable();
        rows.iter().fold(String::new(), |mut text, (count, name)| {
            let _ = writeln!(text, "{count:>10}  {name}");
            text
        })
    }
}

/// The names that must be reached.
fn wanted() -> BTreeSet<&'static str> {
    lines().filter(|line| !line.contains(EXCUSE)).collect()
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The name of a line, without its excuse.
fn name_of(line: &'static str) -> &'static str {
    line.split_once(EXCUSE).map_or(line, |(name, _)| name)
}

/// How a life of the agent ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LifeDeath {
    PowerLost,
    DiskFailed,
    KilledOrStopped,
}

/// Counts what the agent's death left in flight.
pub(crate) fn count_death(death: LifeDeath, operation: &Operation) {
    let request = match &operation.state {
        OpState::Started { request, .. }
        | OpState::TaskRunning { request, .. }
        | OpState::Unknown { request, .. } => *request,
        OpState::Succeeded { .. } | OpState::Failed { .. } => return,
    };
    let phase = match request {
        OpPhase::Stop => "the stop before a",
        OpPhase::Backup => "the backup before a",
        OpPhase::Unprotect => "the unprotecting before a",
        OpPhase::Act => "a",
    };
    let kind = operation.intent.kind;
    match death {
        LifeDeath::PowerLost => sometimes!("power lost during", format!("{phase} {kind}")),
        LifeDeath::DiskFailed => sometimes!("the disk failed during", format!("{phase} {kind}")),
        LifeDeath::KilledOrStopped => sometimes!("killed during", format!("{phase} {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Literal names in the sources, found as text.
    fn names_in(source: &str) -> Vec<String> {
        let after = source.split("sometimes!(").skip(1);
        let literals = after.filter_map(|rest| rest.trim_start().strip_prefix('"'));
        literals.filter_map(|rest| rest.split_once('"').map(|(name, _)| name.to_owned())).collect()
    }

    fn sources(directory: &std::path::Path, into: &mut String) {
        for entry in std::fs::read_dir(directory).expect("sources are there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.ends_with("situation.rs")
                && !path.ends_with("situations.rs")
            {
                into.push_str(&std::fs::read_to_string(&path).expect("a source is text"));
            }
        }
    }

    #[test]
    fn every_situation_of_the_sources_is_in_the_table() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        sources(&root.join("src"), &mut text);
        sources(&root.join("../agent/src"), &mut text);
        let names = names_in(&text);
        assert!(names.len() > 20, "{} names are too few to be all", names.len());
        let in_table = |name: &str| {
            let area = format!("{name}: ");
            lines().map(name_of).any(|line| line == name || line.starts_with(&area))
        };
        let missing: Vec<&String> = names.iter().filter(|name| !in_table(name)).collect();
        assert!(missing.is_empty(), "not in situations.txt: {missing:#?}");
    }

    #[test]
    fn the_table_names_at_least_120_situations_once_each() {
        let names: BTreeSet<&str> = lines().map(name_of).collect();
        assert_eq!(names.len(), lines().count(), "a name stands twice");
        assert!(wanted().len() >= 120, "{} must be reached", wanted().len());
    }
}
