//! `evenkeel doctor`: whether everything a plan depends on is there, and what to do where it is not.
//!
//! Only reads. Ends with 0 if nothing failed; a warning is for a person to judge.

use std::collections::BTreeSet;
use std::io::Write as _;

use evenkeel_agent::observe::{CONCURRENCY, observe};
use evenkeel_agent::pve::site::Permissions;
use evenkeel_agent::pve::tls::TlsTrust;
use evenkeel_agent::pve::{Client, TaskFilter, TaskSource};
use evenkeel_core::actual::{Coverage, Snapshot};
use evenkeel_core::desired::Desired;
use evenkeel_core::release::Release;
use evenkeel_core::rights::{self, Rights};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::{DoctorArgs, OutputFormat};
use crate::connect::{Connection, connect};
use crate::error::{Exit, Failure};
use crate::render::counted;
use crate::render::style::{ADD, ALARM, CHANGE, FAINT, styled};

/// A clock that is off by more makes task times hard to match; by PVE's own chrony it never is.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

pub(crate) async fn run(arguments: &DoctorArgs) -> Result<Exit, Failure> {
    let connection = connect(&arguments.connect).await?;
    let mut findings = Findings::default();
    let release = reachability(&connection, &mut findings).await?;
    let desired = desired(arguments, &connection, &mut findings)?;
    token_rights(&connection, &desired, release, &mut findings).await?;
    let declared: BTreeSet<_> = desired.guests.keys().copied().collect();
    guests(&observe(&connection.client, &declared, CONCURRENCY).await?, &desired, &mut findings);
    foreign_tasks(&connection, &mut findings).await;
    findings.tell(arguments.output.output)?;
    Ok(if findings.0.iter().any(|finding| finding.verdict == Verdict::Failed) {
        Exit::Failed
    } else {
        Exit::Ok
    })
}

async fn reachability(
    connection: &Connection,
    findings: &mut Findings,
) -> Result<Release, Failure> {
    let Connection { client, config, token_id, seal_key: _ } = connection;
    let version = client.version().await?;
    let origin = config.pve.endpoint()?;
    findings.ok(
        "server",
        format!("Proxmox VE {} at {}, token {token_id}", version.version, origin.origin()),
    );
    match (config.pve.trust()?, origin.is_encrypted()) {
        (_, false) => {
            findings.warn("tls", "the connection is not encrypted", "fine for a simulator only");
        }
        (TlsTrust::Pinned(pins), true) => findings
            .ok("tls", format!("certificate pinned ({})", counted(pins.len(), "fingerprint"))),
        (TlsTrust::Authorities(_), true) => {
            findings.ok("tls", "certificate signed by the named authority".to_owned());
        }
        (TlsTrust::Platform, true) => {
            findings.ok("tls", "certificate trusted by this system".to_owned());
        }
    }
    if version.release < Release::V7_4 {
        let what =
            format!("{} is older than any release evenkeel was checked with", version.release);
        findings.warn("release", &what, "upgrade to 7.4 or later");
    }
    clock(client, findings);
    Ok(version.release)
}

fn clock(client: &Client, findings: &mut Findings) {
    let Some(node) = client.node_clock() else {
        findings.warn(
            "clock",
            "the server sent no date",
            "check what stands between evenkeel and pveproxy",
        );
        return;
    };
    let ahead = node.ahead_of(Timestamp::now(), Instant::now());
    if ahead.abs() > CLOCK_TOLERANCE {
        let side = if ahead.is_negative() { "behind" } else { "ahead of" };
        let what = format!("the node's clock is {} {side} ours", plainly(ahead));
        findings.warn(
            "clock",
            &what,
            "run chrony on both; task times are matched by the node's clock",
        );
    } else {
        findings.ok("clock", "the node's clock agrees with ours".to_owned());
    }
}

/// In the two largest units that matter to a person.
fn plainly(span: SignedDuration) -> String {
    let seconds = span.as_secs().unsigned_abs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

fn desired(
    arguments: &DoctorArgs,
    connection: &Connection,
    findings: &mut Findings,
) -> Result<Desired, Failure> {
    let flag = arguments.desired.as_ref().map(|path| path.as_std_path().to_owned());
    let Some(path) = flag.or_else(|| connection.config.desired.dir.clone()) else {
        return Ok(Desired::default());
    };
    let loaded = evenkeel_agent::source::dir::load(&path)?;
    match loaded.desired {
        Ok(desired) => {
            findings.ok("desired", format!("{} declared", counted(desired.guests.len(), "guest")));
            Ok(desired)
        }
        Err(errors) => {
            let what = format!("{} in the desired files", counted(errors.len(), "error"));
            findings.fail("desired", &what, "run `evenkeel validate` to see them");
            Ok(Desired::default())
        }
    }
}

async fn token_rights(
    connection: &Connection,
    desired: &Desired,
    release: Release,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let held = connection.client.permissions().await?;
    let needed = rights::to_keep(desired, release);
    let missing = rights::missing(&needed, |path, privilege| holds(&held, path, privilege));
    if missing.is_empty() {
        findings.ok("rights", "the token has every right that is needed".to_owned());
        return Ok(());
    }
    let role = role(&needed, &connection.token_id);
    for (position, (path, privileges)) in missing.iter().enumerate() {
        let names: Vec<&str> = privileges.iter().copied().collect();
        let what = format!("the token lacks {} on {path}", names.join(", "));
        // One role mends them all, so it is said once, at the end.
        let next = (position + 1 == missing.len()).then(|| role.clone());
        findings.0.push(Finding { verdict: Verdict::Failed, subject: "rights", what, next });
    }
    Ok(())
}

/// A right must reach what is below its path.
fn holds(held: &Permissions, path: &str, privilege: &str) -> bool {
    held.0.get(path).and_then(|rights| rights.get(privilege)).is_some_and(|reaches| *reaches)
}

/// The commands that make the smallest role that would do.
fn role(needed: &Rights, token_id: &str) -> String {
    let all: BTreeSet<&str> = needed.values().flatten().copied().collect();
    let privileges: Vec<&str> = all.into_iter().collect();
    format!(
        "on the node: pveum role add Evenkeel --privs '{}'; pveum acl modify / --tokens '{token_id}' --roles Evenkeel",
        privileges.join(" ")
    )
}

fn guests(snapshot: &Snapshot, desired: &Desired, findings: &mut Findings) {
    match &snapshot.coverage {
        Coverage::Whole => findings.ok(
            "guests",
            format!(
                "{} on {}, all of them visible",
                counted(snapshot.guests.len(), "guest"),
                snapshot.node
            ),
        ),
        Coverage::Partial(why) => {
            findings.warn(
                "guests",
                &format!("the list of guests may not be whole: {why}"),
                "nothing will be created",
            );
        }
    }
    for guest in snapshot.guests.values() {
        if let Err(error) = &guest.config {
            findings.fail(
                "guests",
                &format!("{} cannot be read: {error}", guest.id),
                "if a right is missing, grant VM.Audit, and VM.Config.Options for containers with `env`; else try again",
            );
        }
    }
    for vmid in desired.guests.keys() {
        if let Some(there) = snapshot.elsewhere.get(vmid) {
            findings.warn(
                "guests",
                &format!("declared guest {vmid} is on node {}", there.node),
                "declare it on the agent of that node",
            );
        }
        if snapshot.hidden.contains(vmid) {
            findings.fail(
                "guests",
                &format!("declared guest {vmid} exists, but the token cannot see it"),
                "grant VM.Audit on /vms",
            );
        }
    }
}

/// This version of evenkeel changes nothing: whatever our token did, somebody else did with it.
async fn foreign_tasks(connection: &Connection, findings: &mut Findings) {
    let filter =
        TaskFilter { source: Some(TaskSource::All), limit: Some(500), ..TaskFilter::default() };
    match connection.client.tasks(&filter).await {
        Ok(tasks) => {
            let ours = tasks.iter().filter(|task| task.upid.user() == connection.token_id).count();
            if ours > 0 {
                let what = format!("{} started with our token", counted(ours, "task"));
                findings.warn(
                    "token",
                    &what,
                    "make a token of its own for evenkeel: it tells its own work by it",
                );
            } else {
                findings.ok("token", "nobody else uses our token".to_owned());
            }
        }
        Err(error) => findings.warn(
            "token",
            &format!("the node's tasks cannot be listed: {error}"),
            error.hint(),
        ),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

struct Finding {
    verdict: Verdict,
    subject: &'static str,
    what: String,
    next: Option<String>,
}

/// What was looked at, in order.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, subject: &'static str, what: String) {
        self.0.push(Finding { verdict: Verdict::Ok, subject, what, next: None });
    }

    fn warn(&mut self, subject: &'static str, what: &str, next: &str) {
        self.push(Verdict::Warning, subject, what, next);
    }

    fn fail(&mut self, subject: &'static str, what: &str, next: &str) {
        self.push(Verdict::Failed, subject, what, next);
    }

    fn push(&mut self, verdict: Verdict, subject: &'static str, what: &str, next: &str) {
        self.0.push(Finding {
            verdict,
            subject,
            what: what.to_owned(),
            next: Some(next.to_owned()),
        });
    }

    fn tell(&self, output: OutputFormat) -> Result<(), Failure> {
        match output {
            OutputFormat::Json => {
                let findings: Vec<_> = self.0.iter().map(Finding::as_json).collect();
                writeln!(
                    std::io::stdout(),
                    "{}",
                    json!({ "format_version": 1, "findings": findings })
                )?;
            }
            OutputFormat::Table => {
                let mut out = Vec::new();
                for finding in &self.0 {
                    finding.tell(&mut out)?;
                }
                crate::terminal::print(&String::from_utf8_lossy(&out))?;
            }
        }
        Ok(())
    }
}

impl Finding {
    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
        }
    }

    fn as_json(&self) -> serde_json::Value {
        json!({ "verdict": self.word(), "subject": self.subject, "what": self.what, "next": self.next })
    }

    fn tell(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let style = match self.verdict {
            Verdict::Ok => ADD,
            Verdict::Warning => CHANGE,
            Verdict::Failed => ALARM,
        };
        writeln!(
            out,
            "{} {:8} {}",
            styled(style, format!("{:7}", self.word())),
            self.subject,
            self.what
        )?;
        match &self.next {
            Some(next) => writeln!(out, "                 {}", styled(FAINT, next)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told_in_two_units() {
        let told = |seconds| plainly(SignedDuration::from_secs(seconds));
        assert_eq!(told(7), "7 s");
        assert_eq!(told(-67), "1 min 7 s");
        assert_eq!(told(3 * 3600 + 120), "3 h 2 min");
        assert_eq!(told(-(86_400 + 3600)), "1 d 1 h");
    }
}
