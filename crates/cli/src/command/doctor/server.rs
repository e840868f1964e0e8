//! What `doctor` asks the server: whether it is the right one, what the token may do, and who else uses it.
//!
//! Only reads.

use std::collections::BTreeSet;

use evenkeel_agent::journal::{ReadOnlyDirectory, verify};
use evenkeel_agent::observe::{CONCURRENCY, observe};
use evenkeel_agent::pve::site::Permissions;
use evenkeel_agent::pve::tls::TlsTrust;
use evenkeel_agent::pve::{Client, TaskFilter, TaskSource};
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::actual::{ListCoverage, Snapshot};
use evenkeel_core::desired::{Desired, ReconcileMode, WantedState};
use evenkeel_core::gate::rights::{self, Rights, TokenPurpose, TokenSeparation};
use evenkeel_core::model::release::Release;
use evenkeel_core::value::Value;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::findings::Findings;
use crate::connect::Connection;
use crate::error::CommandFailure;
use crate::render::counted;

/// A clock that is off by more makes task times hard to match; by PVE's own chrony it never is.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// How many of the node's latest tasks are looked at: what a busy node does in a day or two.
const TASKS_MAX: u32 = 500;

/// Everything that is asked of the server; an error if it does not answer.
pub(super) async fn check(
    connection: &Connection,
    desired: &Desired,
    state: &StateDir,
    findings: &mut Findings,
) -> Result<(), CommandFailure> {
    let release = reachability(connection, findings).await?;
    token_rights(connection, desired, release, findings).await?;
    tag_rights(connection, desired, findings).await;
    let declared: BTreeSet<_> = desired.guests.keys().copied().collect();
    guests(&observe(&connection.client, &declared, CONCURRENCY).await?, desired, findings);
    token_users(connection, state, findings).await;
    Ok(())
}

async fn reachability(
    connection: &Connection,
    findings: &mut Findings,
) -> Result<Release, CommandFailure> {
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

async fn token_rights(
    connection: &Connection,
    desired: &Desired,
    release: Release,
    findings: &mut Findings,
) -> Result<(), CommandFailure> {
    let held = connection.client.permissions().await?;
    let needed = rights::to_keep(desired, release);
    let holds = |path: &str, privilege: &str| holds(&held, path, privilege);
    let missing = rights::missing(&needed, holds);
    if missing.is_empty() {
        findings.ok("rights", "the token has every right that is needed".to_owned());
        let further = TokenPurpose::ALL.into_iter().filter_map(|purpose| {
            let lacks = rights::missing(&purpose.rights(release), holds);
            let words = purpose.words();
            (!lacks.is_empty()).then(|| format!("for {words} it would need {}", listed(&lacks)))
        });
        let further: Vec<String> = further.collect();
        if !further.is_empty() {
            findings.advise(&further.join("\n"));
        }
        return Ok(());
    }
    let purposes = declared_purposes(desired);
    let commands =
        rights::grant_commands(&needed, &connection.token_id, separation(connection).await);
    let next = format!("on the node:\n{}", commands.join("\n"));
    for (position, (path, privileges)) in missing.iter().enumerate() {
        let names: Vec<&str> = privileges.iter().copied().collect();
        let takes = |purpose: &&TokenPurpose| {
            let rights = purpose.rights(release);
            rights.get(path).is_some_and(|takes| !takes.is_disjoint(privileges))
        };
        let users: Vec<&str> =
            purposes.iter().filter(takes).map(|purpose| purpose.words()).collect();
        let users =
            if users.is_empty() { String::new() } else { format!(", for {}", users.join(", ")) };
        let what = format!("the token lacks {} on {path}{users}", names.join(", "));
        // One role mends them all, so it is said once, at the end.
        if position + 1 == missing.len() {
            findings.fail("rights", &what, &next);
        } else {
            findings.fail_with_the_next("rights", what);
        }
    }
    Ok(())
}

/// Whether the datacenter keeps declared tags for its administrators.
async fn tag_rights(connection: &Connection, desired: &Desired, findings: &mut Findings) {
    let enforced = desired.guests.values().filter(|guest| guest.mode == ReconcileMode::Enforce);
    let specs = enforced.filter_map(|guest| match &guest.state {
        WantedState::Present(spec) => Some(spec),
        WantedState::Bin(_) | WantedState::Absent { .. } => None,
    });
    let tags = specs.flat_map(|spec| &spec.fields).filter(|field| field.key.key().name == "tags");
    let declared = tags.filter_map(|field| match &field.want {
        Some(Value::Set(tags)) => Some(tags.iter()),
        Some(_) | None => None,
    });
    let declared: BTreeSet<&str> = declared.flatten().map(AsRef::as_ref).collect();
    if declared.is_empty() {
        return;
    }
    let (Ok(options), Ok(held)) =
        (connection.client.cluster_options().await, connection.client.permissions().await)
    else {
        return;
    };
    let guarded = rights::guarded_tags(&options, declared);
    if guarded.is_empty() || holds(&held, "/", "Sys.Modify") {
        return;
    }
    let names: Vec<&str> = guarded.into_iter().collect();
    let what = format!("the datacenter keeps tags for its administrators: {}", names.join(", "));
    let next = "grant Sys.Modify on /, take them out of registered-tags, or do not declare them";
    findings.warn("tags", &what, next);
}

/// What the declared guests that are changed may come to need.
fn declared_purposes(desired: &Desired) -> BTreeSet<TokenPurpose> {
    let enforced = desired.guests.values().filter(|guest| guest.mode == ReconcileMode::Enforce);
    let purposes = enforced.flat_map(|guest| match &guest.state {
        WantedState::Present(spec) => TokenPurpose::of(guest.id.kind, spec),
        WantedState::Absent { final_backup: None } => vec![TokenPurpose::Destroy],
        WantedState::Absent { final_backup: Some(_) } => {
            vec![TokenPurpose::Destroy, TokenPurpose::BackUp]
        }
        WantedState::Bin(_) => Vec::new(),
    });
    purposes.collect()
}

/// `VM.Clone on /vms, SDN.Use on /sdn/zones`.
fn listed(rights: &Rights) -> String {
    let on = |(path, privileges): (&&str, &BTreeSet<&str>)| {
        let names: Vec<&str> = privileges.iter().copied().collect();
        format!("{} on {path}", names.join(" and "))
    };
    rights.iter().map(on).collect::<Vec<_>>().join(", ")
}

/// Whether the token has rights of its own. Only who may look at users is told.
async fn separation(connection: &Connection) -> TokenSeparation {
    let Some((user, id)) = connection.token_id.split_once('!') else {
        return TokenSeparation::Unknown;
    };
    let users = connection.client.users().await.unwrap_or_default();
    let ours = users.iter().filter(|entry| entry.userid == user).flat_map(|entry| &entry.tokens);
    match ours.filter(|token| token.tokenid == id).map(|token| token.privsep).next() {
        Some(Some(0)) => TokenSeparation::AsUser,
        Some(Some(_) | None) => TokenSeparation::Separated,
        None => TokenSeparation::Unknown,
    }
}

/// A right must reach what is below its path.
fn holds(held: &Permissions, path: &str, privilege: &str) -> bool {
    held.0.get(path).and_then(|rights| rights.get(privilege)).is_some_and(|reaches| *reaches)
}

fn guests(snapshot: &Snapshot, desired: &Desired, findings: &mut Findings) {
    match &snapshot.coverage {
        ListCoverage::Whole => findings.ok(
            "guests",
            format!(
                "{} on {}, all of them visible",
                counted(snapshot.guests.len(), "guest"),
                snapshot.node
            ),
        ),
        ListCoverage::Partial(why) => {
            findings.warn(
                "guests",
                &format!("the list of guests may not be whole: {why}"),
                "nothing will be created",
            );
        }
    }
    for guest in snapshot.guests.values() {
        if let Err(error) = &guest.config {
            findings.fail("guests", &format!("{} cannot be read: {error}", guest.id), error.next);
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

/// Who else works with our token: tasks that our journal does not know.
async fn token_users(connection: &Connection, state: &StateDir, findings: &mut Findings) {
    let source = Some(TaskSource::All);
    let filter = TaskFilter { source, limit: Some(TASKS_MAX), ..TaskFilter::default() };
    let tasks = match connection.client.tasks(&filter).await {
        Ok(tasks) => tasks.rows,
        Err(error) => {
            let what = format!("the node's tasks cannot be listed: {error}");
            findings.warn("token", &what, error.hint());
            return;
        }
    };
    let ours = tasks.iter().filter(|task| task.upid.user() == connection.token_id);
    let ours: BTreeSet<&str> = ours.map(|task| task.upid.as_str()).collect();
    let count = counted(ours.len(), "task");
    if ours.is_empty() {
        findings.ok("token", "no task was started with our token".to_owned());
        return;
    }
    let Some(known) = tasks_in_journal(state) else {
        let what =
            format!("{count} started with our token: without a journal nobody can tell by whom");
        let next = format!(
            "name the agent's state directory with --state; {} has no journal that can be read",
            state.path().display()
        );
        findings.warn("token", &what, &next);
        return;
    };
    match ours.iter().filter(|upid| !known.contains(**upid)).count() {
        0 => findings.ok("token", format!("{count} started with our token, all by this agent")),
        strange => {
            let what =
                format!("{count} started with our token, {strange} of them not by this agent");
            let next = "evenkeel tells its own work by its token: make one for it alone, and\n\
                        find out who uses this one (the node's task list has the user)";
            findings.warn("token", &what, next);
        }
    }
}

/// Every task the journal names, archive included; none if it cannot be read.
fn tasks_in_journal(state: &StateDir) -> Option<BTreeSet<String>> {
    let files = ReadOnlyDirectory::open(state.journal()).ok()?;
    let mut known = BTreeSet::new();
    let read = verify::read(&files, |line| {
        let rests = line.text.split("\"UPID:").skip(1);
        known.extend(rests.filter_map(|rest| Some(format!("UPID:{}", rest.split('"').next()?))));
    });
    read.ok()?.head.map(|_| known)
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
