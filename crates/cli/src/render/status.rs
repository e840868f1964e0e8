//! How an agent stands, as a person reads it: first what nobody may overlook, then what is well, then what is not.
//!
//! ```text
//! FROZEN      nothing is changed until `evenkeel thaw`
//!             since 2026-11-15 12:20:00Z by uid 0: disk swap
//! agent       evenkeel 0.2.0, pid 812, since 2026-11-15 12:00:00Z
//! node        pve1
//! desired     /etc/evenkeel/desired: 12 guests, since 2026-11-15 12:00:00Z
//! last pass   2026-11-15 12:31:04Z, took 0.4 s: 1 planned, 1 done
//! next pass   2026-11-15 12:32:02Z
//! guests      11 as declared, 1 not
//! journal     record 4711, checked: the newest segment, when the agent started
//!
//! lxc/101
//!   ! held (locked)  cores 2 -> 4: waiting for vzdump of lxc/101, 34 %
//! ```

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::path::Path;

use evenkeel_agent::daemon::status::{
    AgentStatus, AuthorWordStatus, GuestStatus, HostStatus, HubStatus, JournalStatus,
    OperationStatus, PassStatus, PendingStatus, SilentStorage, SourceTrouble, WarningStatus,
};
use evenkeel_agent::engine::RaisedBy;
use evenkeel_agent::freeze::Frozen;
use evenkeel_core::desired::selection::Candidate;
use jiff::Timestamp;

use super::style::{ALARM, CHANGE, FAINT, GUEST, WAITS, styled};
use super::{PENDING_SHORT, counted, tamed};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How many guests are told one by one unless somebody asks for all of them: what a screen holds.
const GUESTS_SHOWN_MAX: usize = 12;

/// How many items that wait for a signature are told one by one; `evenkeel pending` lists all.
const ITEMS_SHOWN_MAX: usize = 8;

/// The whole status; `all` tells each guest however many there are.
pub(crate) fn render(status: &HostStatus, state: &Path, all: bool) -> String {
    let mut text = String::new();
    alarms(&mut text, status);
    match &status.agent {
        Some(agent) => head(&mut text, agent),
        None => row(&mut text, "agent", styled(ALARM, "none runs")),
    }
    row(&mut text, "journal", journal(&status.journal));
    if status.agent.is_none() {
        row(&mut text, "state", state.display());
    }
    if let Some(agent) = &status.agent {
        let each = all || status.chosen.is_some() || agent.guests.len() <= GUESTS_SHOWN_MAX;
        if each {
            agent.guests.iter().for_each(|guest| text.push_str(&guest_text(guest)));
        } else {
            summary(&mut text, &agent.guests);
        }
        if agent.last_pass.is_some() {
            as_declared(&mut text, status.chosen.as_deref().unwrap_or_default(), &agent.guests);
        }
    }
    pending(&mut text, &status.pending);
    warnings(&mut text, &status.warnings);
    operations(&mut text, &status.operations);
    text
}

/// What nobody may overlook, before everything else.
fn alarms(text: &mut String, status: &HostStatus) {
    if status.frozen {
        row(text, "FROZEN", styled(ALARM, "nothing is changed until `evenkeel thaw`"));
        let told = match &status.freeze {
            Some(freeze) => frozen(freeze),
            None => "its time and reason cannot be read".to_owned(),
        };
        row(text, "", styled(ALARM, told));
    }
    let Some(agent) = &status.agent else {
        return;
    };
    if agent.desired.hub.as_ref().is_some_and(|hub| hub.journal_rollback) {
        let told = "an old journal was restored; nothing destructive runs until `evenkeel journal acknowledge`";
        row(text, "ROLLBACK", styled(ALARM, told));
    }
    let troubles = [
        ("configuration", &agent.configuration_trouble),
        ("desired files", &agent.desired.trouble),
    ];
    for (what, trouble) in troubles {
        if let Some(SourceTrouble { since, .. }) = trouble {
            let told = format!("the {what} since {}; see below", moment(*since));
            row(text, "BROKEN", styled(ALARM, told));
        }
    }
}

/// Since when, by whom and why; the words are another's.
pub(crate) fn frozen(freeze: &Frozen) -> String {
    let Frozen { at, by, reason } = freeze;
    let since = at.parse().map_or_else(|_| at.clone(), moment);
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    tamed(&format!("since {since} by {by}{why}"), usize::MAX)
}

/// Which hub, and what it gave.
fn hub(hub: &HubStatus) -> String {
    let HubStatus { url, generation, signer, .. } = hub;
    match (generation, signer) {
        (0, _) => format!("hub {url}"),
        (_, Some(signer)) => {
            tamed(&format!("hub {url}, generation {generation} signed by {signer}"), usize::MAX)
        }
        (_, None) => format!("hub {url}, generation {generation}, not signed"),
    }
}

/// What is to be said of the way to the hub, and of what it offers.
fn hub_rows(text: &mut String, hub: &HubStatus) {
    let heard = match hub.heard {
        Some(at) => format!("last heard {}", moment(at)),
        None => "not heard since the agent started".to_owned(),
    };
    row(
        text,
        "hub",
        match &hub.trouble {
            Some(why) => styled(WAITS, tamed(&format!("{heard}; {why}"), usize::MAX)),
            None => heard,
        },
    );
    if let Some(AuthorWordStatus { generation, signer, signed_at, taken_at }) = &hub.author_word {
        let signed_at = moment(*signed_at);
        let taken_at = moment(*taken_at);
        let word =
            format!("generation {generation} signed {signed_at} by {signer}, taken {taken_at}");
        row(text, "last word", tamed(&word, usize::MAX));
    }
    if let Some(why) = &hub.stale {
        row(text, "", styled(WAITS, tamed(why, usize::MAX)));
        row(text, "", "ask the author to sign it again with `evenkeel fleet push`".to_owned());
    }
    if hub.signer.is_some() && !hub.signer_is_trusted {
        row(
            text,
            "",
            styled(WAITS, "its signer may no longer sign documents; the document stays in effect"),
        );
    }
    if let Some(why) = &hub.refused {
        row(text, "", styled(WAITS, tamed(&format!("refused: {why}"), usize::MAX)));
    }
}

/// What many guests have in common: nobody reads two thousand blocks.
fn summary(text: &mut String, guests: &[GuestStatus]) {
    writeln!(text, "\n{} are not as declared:", counted(guests.len(), "guest")).expect(INFALLIBLE);
    let mut line = |mark: String, count: usize, told: &str| {
        if count > 0 {
            writeln!(text, "  {mark} {count:>5} {told}").expect(INFALLIBLE);
        }
    };
    let with =
        |has: &dyn Fn(&GuestStatus) -> bool| guests.iter().filter(|guest| has(guest)).count();
    line(styled(CHANGE, "~"), with(&|guest| !guest.drift.is_empty()), "differ");
    let codes: BTreeSet<_> =
        guests.iter().flat_map(|guest| &guest.held).map(|held| held.code).collect();
    for code in codes {
        let count = with(&|guest| guest.held.iter().any(|held| held.code == code));
        line(styled(WAITS, "!"), count, &styled(WAITS, format!("held ({code})")));
    }
    line(styled(WAITS, "…"), with(&|guest| !guest.after_restart.is_empty()), "wait for a restart");
    line(styled(ALARM, "x"), with(&|guest| !guest.problems.is_empty()), "have a problem");
    text.push_str("`evenkeel status --all` shows each guest, `evenkeel status GUEST` shows one\n");
}

/// Guests that were asked for and need nothing.
fn as_declared(text: &mut String, chosen: &[Candidate], others: &[GuestStatus]) {
    let mut first = true;
    for guest in chosen.iter().filter(|guest| !others.iter().any(|other| other.guest == guest.id)) {
        if std::mem::take(&mut first) {
            text.push('\n');
        }
        let name = guest.name.as_deref().map(|name| format!(" {}", tamed(name, NAME_MAX)));
        let name = styled(FAINT, name.unwrap_or_default());
        writeln!(text, "{}{name}  as declared", styled(GUEST, guest.id)).expect(INFALLIBLE);
    }
}

/// As long as a name in the DNS may be.
const NAME_MAX: usize = 253;

/// What waits for a signature, whoever asked for it.
fn pending(text: &mut String, items: &[PendingStatus]) {
    if items.is_empty() {
        return;
    }
    let wait = if items.len() == 1 { "waits" } else { "wait" };
    let items_wait = format!("{} {wait}", counted(items.len(), "item"));
    writeln!(text, "\n{items_wait} for a signature (`evenkeel pending`):").expect(INFALLIBLE);
    for item in items.iter().take(ITEMS_SHOWN_MAX) {
        let PendingStatus { pending, op, guest, from, raised_at } = item;
        let short: String = pending.to_string().chars().take(PENDING_SHORT).collect();
        let from = match from {
            RaisedBy::Plan => "declared",
            RaisedBy::Request => "requested",
        };
        let since = raised_at.map(|at| format!(", since {}", moment(at))).unwrap_or_default();
        let guest = styled(GUEST, guest);
        writeln!(text, "  {short}  {guest} {op}  {from}{since}").expect(INFALLIBLE);
    }
    if items.len() > ITEMS_SHOWN_MAX {
        writeln!(text, "  and {} more", items.len() - ITEMS_SHOWN_MAX).expect(INFALLIBLE);
    }
}

/// What acts that were done warned of: the guests are as declared, so nothing else tells it.
fn warnings(text: &mut String, warnings: &[WarningStatus]) {
    if warnings.is_empty() {
        return;
    }
    let counted = counted(warnings.len(), "warning");
    writeln!(text, "\n{counted} of finished acts (`evenkeel retry GUEST` clears them):")
        .expect(INFALLIBLE);
    for WarningStatus { guest, slot, op, warning } in warnings {
        let slot = slot.as_deref().map(|slot| format!(" {slot}")).unwrap_or_default();
        let guest = styled(GUEST, guest);
        let told = styled(WAITS, tamed(warning, usize::MAX));
        writeln!(text, "  {guest}{slot}  {told}  {}", styled(FAINT, op)).expect(INFALLIBLE);
    }
}

fn row(text: &mut String, name: &str, value: impl Display) {
    writeln!(text, "{} {value}", styled(FAINT, format!("{name:<11}"))).expect(INFALLIBLE);
}

fn head(text: &mut String, agent: &AgentStatus) {
    let AgentStatus { version, pid, host, node, since, desired, .. } = agent;
    row(text, "agent", format!("evenkeel {version}, pid {pid}, since {}", moment(*since)));
    if let Some(host) = host {
        row(text, "host", host);
    }
    row(text, "node", node);
    troubled(text, agent.node_trouble.as_ref());
    silent(text, &agent.silent_storages);
    let declared = counted(desired.guests, "guest");
    row(
        text,
        "desired",
        match (desired.hub.as_ref().map(hub).or(desired.directory.clone()), desired.since) {
            (None, _) => "nothing is declared; the agent looks at no guest".to_owned(),
            (Some(directory), Some(since)) => {
                format!("{directory}: {declared}, since {}", moment(since))
            }
            (Some(directory), None) => format!("{directory}: no valid files read yet"),
        },
    );
    if let Some(hub) = &desired.hub {
        hub_rows(text, hub);
    }
    troubled(text, desired.trouble.as_ref());
    troubled(text, agent.configuration_trouble.as_ref());
    match &agent.last_pass {
        Some(last) => row(text, "last pass", pass(last)),
        None => row(text, "last pass", "none yet"),
    }
    if let Some(next) = agent.next_pass {
        row(text, "next pass", moment(next));
    }
    let mut guests = format!("{} as declared", agent.in_sync);
    if !agent.guests.is_empty() {
        write!(guests, ", {} not", agent.guests.len()).expect(INFALLIBLE);
    }
    row(text, "guests", guests);
}

/// The storages that do not answer, under the node.
fn silent(text: &mut String, storages: &[SilentStorage]) {
    for SilentStorage { storage, since, next_try } in storages {
        let name = match storage.as_str() {
            "*" => "the list of all storages".to_owned(),
            storage => format!("storage {storage}"),
        };
        let since = since.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
        let next = next_try.map(|at| format!(", next try {}", moment(at))).unwrap_or_default();
        let line = format!("{name} does not answer{since}{next}; actions that need it wait");
        writeln!(text, "{:11} {}", "", styled(ALARM, line)).expect(INFALLIBLE);
    }
}

/// What is wrong, line by line, under the row it belongs to.
fn troubled(text: &mut String, trouble: Option<&SourceTrouble>) {
    let Some(SourceTrouble { since, why }) = trouble else {
        return;
    };
    let lines = why.lines().map(str::to_owned);
    let holds = format!("since {}; the last valid version stays in use", moment(*since));
    for line in lines.chain([holds]) {
        writeln!(text, "{:11} {}", "", styled(ALARM, line)).expect(INFALLIBLE);
    }
}

fn pass(pass: &PassStatus) -> String {
    let PassStatus {
        at, took_ms, ended, planned, succeeded, failed, held, skipped, errors, ..
    } = pass;
    let mut parts = vec![format!("{planned} planned")];
    let counts = [
        (*succeeded, "done"),
        (*failed, "failed"),
        (*held, "held"),
        (*skipped, "skipped"),
        (*errors, "cannot be done"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    parts.extend(some.map(|(count, word)| format!("{count} {word}")));
    let under_way = if *ended { "" } else { ", under way" };
    let seconds = took_ms / 1_000;
    let tenths = took_ms % 1_000 / 100;
    format!("{}, took {seconds}.{tenths} s: {}{under_way}", moment(*at), parts.join(", "))
}

fn journal(journal: &JournalStatus) -> String {
    let JournalStatus { seq, sum: _, verified, damage } = journal;
    match (seq, damage) {
        (_, Some(damage)) => styled(ALARM, damage),
        (None, None) => "none yet".to_owned(),
        (Some(seq), None) => {
            format!("record {seq}, checked: {}", verified.as_deref().unwrap_or("no"))
        }
    }
}

fn guest_text(status: &GuestStatus) -> String {
    let GuestStatus { guest, drift, held, after_restart, problems } = status;
    let mut text = format!("\n{}\n", styled(GUEST, guest));
    let mut line = |mark: String, told: String| {
        writeln!(text, "  {mark} {told}").expect(INFALLIBLE);
    };
    for change in drift {
        line(styled(CHANGE, "~"), change.clone());
    }
    for waits in held {
        let code = styled(WAITS, format!("held ({})", waits.code));
        line(styled(WAITS, "!"), format!("{code}  {}", waits.why));
    }
    for change in after_restart {
        line(styled(WAITS, "…"), format!("{change}  waits for a restart"));
    }
    for problem in problems {
        line(styled(ALARM, "x"), problem.clone());
    }
    text
}

fn operations(text: &mut String, operations: &[OperationStatus]) {
    if operations.is_empty() {
        return;
    }
    writeln!(text, "\n{} not closed:", counted(operations.len(), "operation")).expect(INFALLIBLE);
    for operation in operations {
        let OperationStatus { op, guest, kind, state, since, upid, reason, unknown } = operation;
        let since = since.map(|since| format!(" since {}", moment(since))).unwrap_or_default();
        let told = format!("{}{since}: {reason}", kind.as_str());
        writeln!(text, "  {} {op} {state}  {told}", styled(GUEST, guest)).expect(INFALLIBLE);
        if let Some(upid) = upid {
            writeln!(text, "    {}", styled(FAINT, upid)).expect(INFALLIBLE);
        }
        if let Some(why) = unknown {
            writeln!(text, "    {}", styled(ALARM, format!("outcome unknown: {why}")))
                .expect(INFALLIBLE);
        }
        if let Some(command) = operation.resolve_command() {
            writeln!(text, "    if the agent cannot find the outcome: {command}")
                .expect(INFALLIBLE);
        }
    }
}

/// To the second: nobody reads a status by fractions.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%F %TZ").to_string()
}

#[cfg(test)]
mod tests {
    use evenkeel_core::fleet::{AuthorWord, Generation, stale_word};
    use evenkeel_core::operate::operation::UnixSeconds;

    use super::*;

    #[test]
    fn z24_the_last_word_of_an_author_and_that_it_is_old_stand_beside_when_the_hub_was_heard() {
        let signed_at = UnixSeconds(1_795_000_000);
        let taken_at = UnixSeconds(1_795_000_060);
        let generation = Generation(7);
        let signer = "ada".to_owned();
        let word = AuthorWord { generation, signer, signed_at, taken_at };
        let stale = |now| stale_word(Some(&word), 7 * 86_400, UnixSeconds(now));
        let rows = |stale: Option<String>| {
            let status = HubStatus {
                url: "https://hub.example:8443/".to_owned(),
                generation: 7,
                signer: Some("ada".to_owned()),
                signer_is_trusted: true,
                heard: Some("2026-11-30T10:00:00Z".parse().unwrap()),
                trouble: None,
                refused: None,
                journal_rollback: false,
                author_word: AuthorWordStatus::of(&word),
                stale,
            };
            let mut text = String::new();
            hub_rows(&mut text, &status);
            text
        };
        let fresh = rows(stale(1_795_000_100));
        assert!(fresh.contains("last heard 2026-11-30"), "{fresh}");
        assert!(
            fresh.contains("generation 7 signed 2026-11-18") && fresh.contains("by ada, taken"),
            "{fresh}"
        );
        assert!(!fresh.contains("holding documents back"), "{fresh}");
        let old = rows(stale(1_795_000_000 + 8 * 86_400));
        assert!(
            old.contains("holding documents back") && old.contains("evenkeel fleet push"),
            "{old}"
        );
    }
}
