//! What Proxmox VE keeps under a guest's number and not in its configuration: firewall file, access list, pool, HA entry,
//! replication jobs, backup jobs.
//!
//! A DELETE takes the first three whatever it is told, and the rest with `purge`. All of it can be there before the guest,
//! and belongs to other people. So a removal that nobody signed needs all of it read and nothing there; and a signed
//! destroy names it among its losses, or says that it is not visible (invariant 21). The agent reads; this judges, and must
//! never take what could not be read for nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::reason::{ReasonCode, Refusal};
use crate::sign::{Loss, PayloadHash};

/// Everything that is kept under one number, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSurroundings {
    /// The lines of its firewall file.
    pub firewall: PartReading<FirewallLine>,
    /// Who has which role on it: `PVEVMUser for ops@pve`.
    pub access: PartReading<String>,
    /// The pool it is in.
    pub pool: PartReading<String>,
    /// Its HA entry.
    pub ha: PartReading<String>,
    /// Its replication jobs: `120-0 to pve2`.
    pub replication: PartReading<String>,
    /// The backup jobs that name it.
    pub backup_jobs: PartReading<BackupJobEntry>,
}

/// One part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartReading<T> {
    /// All there is.
    Read(Vec<T>),
    /// The token may not see it, or it could not be read.
    NotVisible(HiddenCause),
}

/// Why a part is not visible. Its words are the same each time, because a signature binds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HiddenCause {
    /// The token lacks this right on this path.
    Lacks {
        /// Such as `Sys.Audit`.
        privilege: &'static str,
        /// Such as `/access`.
        path: String,
    },
    /// It could not be read at that moment.
    Unreadable,
}

impl std::fmt::Display for HiddenCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lacks { privilege, path } => write!(f, "the token lacks {privilege} on {path}"),
            Self::Unreadable => f.write_str("it could not be read"),
        }
    }
}

/// What a line of a firewall file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FirewallKind {
    /// A rule.
    Rule,
    /// An option.
    Option,
    /// A name for an address.
    Alias,
    /// A set of addresses.
    IpSet,
}

impl FirewallKind {
    fn words(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Option => "option",
            Self::Alias => "alias",
            Self::IpSet => "IP set",
        }
    }
}

/// One line of a firewall file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FirewallLine {
    /// What it is.
    pub kind: FirewallKind,
    /// What it says: `in ACCEPT proto=tcp dport=22`.
    pub text: String,
}

/// A backup job that names the guest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BackupJobEntry {
    /// The job.
    pub id: String,
    /// How.
    pub naming: JobNaming,
}

/// How a backup job names a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobNaming {
    /// In its list, with others.
    Listed,
    /// In its list, alone: when the guest leaves it, Proxmox deletes the job.
    ListedAlone,
    /// Among those that it leaves out.
    Excluded,
}

/// How a job's lists name a number, if they do.
pub fn job_naming(
    vmid: u32,
    listed: &BTreeSet<u32>,
    excluded: &BTreeSet<u32>,
) -> Option<JobNaming> {
    if listed.contains(&vmid) {
        return Some(if listed.len() == 1 { JobNaming::ListedAlone } else { JobNaming::Listed });
    }
    excluded.contains(&vmid).then_some(JobNaming::Excluded)
}

/// A hash of what was there before a making, kept by its `started`: it tells later whether what is found was there before.
/// A pool is no part of it, because no call shows the membership of a number without a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SurroundingsHash(PayloadHash);

/// So many entries of a part are told one by one; of more only the hash tells them apart.
const SHOWN_MAX: usize = 8;

/// So many characters of an entry are told.
const ENTRY_CHARS_MAX: usize = 120;

impl<T> PartReading<T> {
    fn entries(&self) -> &[T] {
        match self {
            Self::Read(entries) => entries,
            Self::NotVisible(_) => &[],
        }
    }
}

/// Which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Firewall,
    Access,
    Pool,
    Ha,
    Replication,
    BackupJobs,
}

impl PartKind {
    fn words(self) -> &'static str {
        match self {
            Self::Firewall => "its firewall",
            Self::Access => "roles granted on it",
            Self::Pool => "its pool",
            Self::Ha => "its HA entry",
            Self::Replication => "its replication",
            Self::BackupJobs => "backup jobs that name it",
        }
    }

    /// Whether a DELETE takes it only with `purge`. Without, Proxmox refuses, or leaves the number in a job's list.
    fn needs_purge(self) -> bool {
        match self {
            Self::Firewall | Self::Access | Self::Pool => false,
            Self::Ha | Self::Replication | Self::BackupJobs => true,
        }
    }
}

/// One part in words, whatever it is made of.
struct ToldPart {
    kind: PartKind,
    reading: Result<Vec<String>, HiddenCause>,
}

fn render_part<T>(kind: PartKind, part: &PartReading<T>, text: impl Fn(&T) -> String) -> ToldPart {
    let reading = match part {
        PartReading::Read(entries) => Ok(entries.iter().map(text).collect()),
        PartReading::NotVisible(cause) => Err(cause.clone()),
    };
    ToldPart { kind, reading }
}

impl GuestSurroundings {
    /// A number that nobody has given anything.
    pub fn empty() -> Self {
        Self {
            firewall: PartReading::Read(Vec::new()),
            access: PartReading::Read(Vec::new()),
            pool: PartReading::Read(Vec::new()),
            ha: PartReading::Read(Vec::new()),
            replication: PartReading::Read(Vec::new()),
            backup_jobs: PartReading::Read(Vec::new()),
        }
    }

    fn parts(&self) -> [ToldPart; 6] {
        let own = |text: &String| text.clone();
        [
            render_part(PartKind::Firewall, &self.firewall, |line| {
                format!("{} {}", line.kind.words(), line.text)
            }),
            render_part(PartKind::Access, &self.access, own),
            render_part(PartKind::Pool, &self.pool, own),
            render_part(PartKind::Ha, &self.ha, own),
            render_part(PartKind::Replication, &self.replication, own),
            render_part(PartKind::BackupJobs, &self.backup_jobs, job_loss),
        ]
    }

    /// A hash of everything that can be there without a guest; none if a part of it could not be read. A making looks
    /// at rules and options alone.
    pub fn hash(&self) -> Option<SurroundingsHash> {
        let is_hidden = |part: ToldPart| part.kind != PartKind::Pool && part.reading.is_err();
        let hidden = self.parts().into_iter().any(is_hidden);
        let early = |line: &&FirewallLine| match line.kind {
            FirewallKind::Rule | FirewallKind::Option => true,
            FirewallKind::Alias | FirewallKind::IpSet => false,
        };
        let firewall: Vec<&FirewallLine> = self.firewall.entries().iter().filter(early).collect();
        let access = sorted(self.access.entries());
        let ha = sorted(self.ha.entries());
        let replication = sorted(self.replication.entries());
        let jobs = sorted(self.backup_jobs.entries());
        let whole = (firewall, access, ha, replication, jobs);
        let bytes = serde_json::to_vec(&whole).expect("lists of texts are JSON");
        (!hidden).then(|| SurroundingsHash(PayloadHash::of(&bytes)))
    }

    /// Whether a guest of ours may go unsigned as far as others have given its number nothing: everything was read, and
    /// nothing is there. `before` is what there was when its making began.
    pub fn allow_unsigned(&self, before: Option<SurroundingsHash>) -> Result<(), Refusal> {
        for part in self.parts() {
            match part.reading {
                Ok(entries) if entries.is_empty() => {}
                Ok(entries) => {
                    let since = match before {
                        Some(before) if self.hash() == Some(before) => {
                            " (there before its making began)"
                        }
                        Some(_) => " (not as when its making began)",
                        None => "",
                    };
                    let words = part.kind.words();
                    let why = format!("{words} would go with it{since}: {}", short(&entries));
                    return Err(Refusal::new(ReasonCode::PendingSignature, why));
                }
                Err(cause) => {
                    let words = part.kind.words();
                    let why = format!("{words} may go with it and is not visible: {cause}");
                    let reason = match cause {
                        HiddenCause::Lacks { .. } => ReasonCode::Rights,
                        HiddenCause::Unreadable => ReasonCode::IdentityUnproven,
                    };
                    return Err(Refusal::new(reason, why));
                }
            }
        }
        Ok(())
    }

    /// Why a copy or a restore under this number would lose what is there before it: its source's firewall file replaces
    /// the one that is there.
    pub fn hinder_copy(&self) -> Option<Refusal> {
        let lines: Vec<String> =
            self.firewall.entries().iter().map(|line| line.text.clone()).collect();
        (!lines.is_empty()).then(|| {
            let why = format!(
                "the number has a firewall file that its source's would replace: {}; remove it, or choose another number",
                short(&lines)
            );
            Refusal::new(ReasonCode::After, why)
        })
    }

    /// Why Proxmox would refuse the DELETE of this guest, although it was signed.
    pub fn hinder_destroy(&self, purge: bool) -> Option<Refusal> {
        let jobs = self.replication.entries();
        (!purge && !jobs.is_empty()).then(|| {
            let why = format!(
                "Proxmox destroys no guest that is replicated ({}); remove the job first, or ask for destroy with purge=1",
                short(jobs)
            );
            Refusal::new(ReasonCode::After, why)
        })
    }

    /// What a destroy takes besides the guest and its volumes, or may take and nobody can see.
    pub fn losses(&self, purge: bool) -> Vec<Loss> {
        let mut lost = Vec::new();
        for part in self.parts() {
            if part.kind.needs_purge() && !purge {
                continue;
            }
            let words = part.kind.words();
            match part.reading {
                Ok(entries) if entries.is_empty() => {}
                Ok(entries) => lost.push(format!("{words}: {}", short(&entries))),
                Err(cause) => lost.push(format!("{words}: not visible, {cause}")),
            }
        }
        if purge && !self.replication.entries().is_empty() {
            lost.push("what was replicated stays on its target, named by no guest".to_owned());
        }
        lost.into_iter().map(|what| Loss { what, size_bytes: None }).collect()
    }

    /// Whether everything that a destroy would take now is among the losses that were signed for; what went meanwhile
    /// is lost to nobody. Otherwise what came.
    pub fn are_among(&self, signed: &[Loss], purge: bool) -> Result<(), Refusal> {
        let new = self.losses(purge).into_iter().find(|loss| !signed.contains(loss));
        new.map_or(Ok(()), |loss| {
            let why = format!(
                "what goes with the guest is not what was put before the signer: {}; look at the new item and sign that",
                loss.what
            );
            Err(Refusal::new(ReasonCode::Stale, why))
        })
    }
}

fn job_loss(job: &BackupJobEntry) -> String {
    let id = &job.id;
    match job.naming {
        JobNaming::Listed => format!("{id}, which lists it"),
        JobNaming::ListedAlone => format!("{id}, which lists it alone and is deleted with it"),
        JobNaming::Excluded => format!("{id}, which leaves it out"),
    }
}

fn sorted<T: Ord>(entries: &[T]) -> Vec<&T> {
    let mut all: Vec<&T> = entries.iter().collect();
    all.sort();
    all
}

/// The entries, bounded; more than are told are told by a hash, so that no two lists have the same words.
fn short(entries: &[String]) -> String {
    let shown: Vec<String> = entries.iter().take(SHOWN_MAX).map(|entry| cut(entry)).collect();
    let shown = shown.join("; ");
    let is_whole = entries.len() <= SHOWN_MAX
        && entries.iter().all(|entry| entry.chars().count() <= ENTRY_CHARS_MAX);
    if is_whole {
        return shown;
    }
    let hash = PayloadHash::of(entries.join("\n").as_bytes());
    format!("{shown} ({} in all, sha256 {hash})", entries.len())
}

fn cut(entry: &str) -> String {
    let mut text: String = entry.chars().take(ENTRY_CHARS_MAX).collect();
    if text.len() < entry.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
