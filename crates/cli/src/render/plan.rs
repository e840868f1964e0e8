//! The plan as a person reads it: compact, grouped by guest, nothing left unsaid.
//!
//! ```text
//! lxc/101 web
//!   ~ cores        2 -> 4           live
//!   ~ net0.bridge  vmbr0 -> vmbr1   disruptive, live
//!   ! destroy      needs a signature: the guest and all its volumes are lost
//!
//! Plan: 2 actions to run, 1 held (1 pending_signature); 7 guests as declared.
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;
use evenkeel_core::actual::Snapshot;
use evenkeel_core::desired::{LineSubject, Origins, Run};
use evenkeel_core::gate::classify::ActionClass;
use evenkeel_core::gate::compensation::RemovalGround;
use evenkeel_core::gate::new_guest::NewGuest;
use evenkeel_core::model::id::{GuestKind, VmId};
use evenkeel_core::plan::{Action, Change, GuestPlan, How, Plan, Step, UnusedVolume};
use evenkeel_core::words::diagnostic::Sources;

use super::origin::told;
use super::style::{ADD, ALARM, CHANGE, DISRUPTIVE, FAINT, GUEST, REMOVE, WAITS, styled};
use super::{counted, tamed};

const INFALLIBLE: &str = "writing to a string cannot fail";

/// The whole plan, summary included.
pub(crate) fn render(plan: &Plan, actual: &Snapshot) -> String {
    format!("{}{}{}\n", guests(plan, actual), unused(plan), summary(plan))
}

/// The same, with the file and line behind each change.
pub(crate) fn render_with_places(
    plan: &Plan,
    actual: &Snapshot,
    origins: &Origins,
    sources: &Sources,
) -> String {
    let place = |guest: VmId, subject: LineSubject| {
        origins.guests.get(&guest)?.of(subject).map(|origin| told(origin, sources))
    };
    format!("{}{}{}\n", drawn(plan, actual, &place), unused(plan), summary(plan))
}

/// The detached volumes of declared guests, so that nobody forgets them: they are no drift, and nothing is done about
/// them.
fn unused(plan: &Plan) -> String {
    if plan.unused.is_empty() {
        return String::new();
    }
    let mut text =
        format!("{}\n", styled(FAINT, "Unused volumes, kept until you request their removal:"));
    let width = |unused: &UnusedVolume| format!("{} {}", unused.guest, unused.slot).len();
    let width = plan.unused.iter().map(width).max().unwrap_or(0);
    for UnusedVolume { guest, slot, volume, moved_from } in &plan.unused {
        let from = moved_from.as_ref().map(|slot| format!(", moved from {slot}"));
        let place = format!("{guest} {slot}");
        let line = format!("{place:width$}  {volume}{}", from.unwrap_or_default());
        writeln!(text, "  {}", styled(FAINT, tamed(&line, usize::MAX))).expect(INFALLIBLE);
    }
    text.push('\n');
    text
}

/// The guests of a plan, without the summary.
pub(crate) fn guests(plan: &Plan, actual: &Snapshot) -> String {
    drawn(plan, actual, &|_, _| None)
}

fn drawn(
    plan: &Plan,
    actual: &Snapshot,
    place: &dyn Fn(VmId, LineSubject) -> Option<String>,
) -> String {
    let mut text = String::new();
    for guest in &plan.guests {
        let name = name_of(guest, actual).map(|name| format!(" {}", tamed(name, NAME_MAX)));
        let name = name.unwrap_or_default();
        writeln!(text, "{}{}", styled(GUEST, guest.guest), styled(FAINT, name)).expect(INFALLIBLE);
        let rows = rows(guest);
        let width = |column: fn(&PlanRow) -> &String| {
            rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
        };
        let subjects = width(|row| &row.subject);
        let changes = width(|row| &row.change);
        for (at, row) in rows.iter().enumerate() {
            row.write(&mut text, subjects, changes.min(CHANGE_WIDTH_MAX));
            // Once for all parts of a key.
            let is_last = rows.get(at + 1).is_none_or(|next| next.declared != row.declared);
            let subject = row.declared.filter(|_| is_last);
            if let Some(place) = subject.and_then(|subject| place(guest.guest.vmid, subject)) {
                let told = tamed(&format!("declared at {place}"), usize::MAX);
                writeln!(text, "      {}", styled(FAINT, told)).expect(INFALLIBLE);
            }
        }
        for problem in &guest.problems {
            let told = tamed(&problem.to_string(), usize::MAX);
            writeln!(text, "  {} {told}", styled(ALARM, "x")).expect(INFALLIBLE);
            if let Some(hint) = problem.hint() {
                writeln!(text, "    {}", styled(FAINT, hint)).expect(INFALLIBLE);
            }
        }
        text.push('\n');
    }
    text
}

/// As long as a name in the DNS may be: whoever owns the guest chose it.
const NAME_MAX: usize = 253;

/// How far the effect is pushed to the right; a longer change stands out by itself.
const CHANGE_WIDTH_MAX: usize = 48;

/// One line under a guest.
struct PlanRow {
    mark: (&'static str, Style),
    subject: String,
    change: String,
    effect: (String, Style),
    /// What declares it.
    declared: Option<LineSubject>,
}

impl PlanRow {
    fn write(&self, text: &mut String, subjects: usize, changes: usize) {
        let (mark, style) = self.mark;
        let (effect, effect_style) = &self.effect;
        let line = format!("{:subjects$}  {:changes$}", self.subject, self.change);
        let line = tamed(&line, usize::MAX);
        let mark = styled(style, mark);
        if effect.is_empty() {
            write!(text, "  {mark} {}", line.trim_end())
        } else {
            write!(text, "  {mark} {line}  {}", styled(*effect_style, effect))
        }
        .expect(INFALLIBLE);
        text.push('\n');
    }
}

fn rows(guest: &GuestPlan) -> Vec<PlanRow> {
    let mut rows = Vec::new();
    if let Some(busy) = &guest.busy {
        let (subject, change) = match busy.unknown {
            None if busy.left.is_none() => ("busy", format!("{} since {}", busy.op, busy.since)),
            None => ("busy", busy.to_string()),
            Some(_) => ("unknown", busy.to_string()),
        };
        rows.push(PlanRow {
            mark: ("…", WAITS),
            subject: subject.into(),
            change,
            effect: (String::new(), FAINT),
            declared: None,
        });
    }
    for action in &guest.actions {
        rows.extend(action_rows(action));
    }
    for change in &guest.waiting {
        for (subject, shown) in differences(change) {
            let effect = ("waits for a restart".to_owned(), WAITS);
            let declared = Some(LineSubject::Key(change.key));
            rows.push(PlanRow { mark: ("…", WAITS), subject, change: shown, effect, declared });
        }
    }
    rows
}

fn action_rows(action: &Action) -> Vec<PlanRow> {
    let mut rows = step_rows(action);
    let declared = match &action.step {
        // Each change has its own.
        Step::SetConfig(_) => return rows,
        Step::Resize { disk, .. } | Step::MoveVolume { disk, .. } => LineSubject::Key(*disk),
        Step::Start | Step::Shutdown { .. } | Step::Stop => LineSubject::Word("run"),
        // The keys that go with it have their own.
        Step::Make(_) => return rows,
        Step::Destroy(_) | Step::Remove(_) => LineSubject::Word("state"),
        Step::Template => LineSubject::Word("template"),
    };
    for row in &mut rows {
        row.declared = Some(declared);
    }
    rows
}

fn step_rows(action: &Action) -> Vec<PlanRow> {
    match &action.step {
        Step::SetConfig(_) => {
            action.changes.iter().flat_map(|change| change_rows(action, change)).collect()
        }
        Step::Resize { disk, from, to, .. } => {
            vec![row(
                action,
                ("~", CHANGE),
                disk.to_string(),
                format!("{} -> {}", from.shown(), to.shown()),
                "grows, live".to_owned(),
            )]
        }
        Step::MoveVolume { disk, volume, from, to, .. } => {
            // What holds it is the longer word, and the plan that may run names the volume again.
            let effect = match action.held {
                None => format!("moves; {volume} stays, unused"),
                Some(_) => "moves".to_owned(),
            };
            vec![row(action, ("~", CHANGE), disk.to_string(), format!("{from} -> {to}"), effect)]
        }
        Step::Start => vec![row(action, (">", ADD), "start".into(), String::new(), String::new())],
        Step::Shutdown { timeout_s } => {
            let effect = format!("disruptive, within {timeout_s} s");
            vec![row(action, ("<", REMOVE), "shutdown".into(), String::new(), effect)]
        }
        Step::Stop => {
            vec![row(
                action,
                ("<", REMOVE),
                "stop".into(),
                String::new(),
                "disruptive, cuts the power".into(),
            )]
        }
        Step::Make(new) => make_rows(action, new),
        Step::Destroy(_) => vec![destructive_row(action, "destroy")],
        Step::Remove(removal) => {
            let ground = match removal.ground {
                RemovalGround::HalfMade => "left by a failed creation",
                RemovalGround::Scratch => "scratch",
            };
            let effect = format!("{}, made by {}", action.effect(), removal.making);
            vec![row(action, ("-", REMOVE), "remove".into(), ground.into(), effect)]
        }
        Step::Template => vec![destructive_row(action, "template")],
    }
}

/// An act that somebody has to sign, and why.
fn destructive_row(action: &Action, subject: &str) -> PlanRow {
    let effect = format!("destructive: {}", action.why);
    row(action, ("!", ALARM), subject.to_owned(), String::new(), effect)
}

/// What a guest is made from, every key that goes with the request, and that it starts afterwards.
fn make_rows(action: &Action, new: &NewGuest) -> Vec<PlanRow> {
    let from = action.reasons().concat();
    let from = from.split_once(", ").map_or("", |(_, from)| from).to_owned();
    let made = row(action, ("+", ADD), new.kind().to_string(), from, String::new());
    let mut rows = vec![PlanRow { declared: Some(LineSubject::Word("source")), ..made }];
    let plain = |subject: String, change: String, declared| PlanRow {
        mark: ("+", ADD),
        subject,
        change,
        effect: (String::new(), FAINT),
        declared: Some(declared),
    };
    for key in new.settings.keys() {
        let text = action.step.shown_params().remove(&key.to_string()).unwrap_or_default();
        rows.push(plain(key.to_string(), text, LineSubject::Key(*key)));
    }
    if new.run == Some(Run::Running) {
        let then = "once everything declared is in effect".to_owned();
        let start = plain("start".to_owned(), then, LineSubject::Word("run"));
        rows.push(PlanRow { mark: (">", ADD), ..start });
    }
    rows
}

fn change_rows(action: &Action, change: &Change) -> Vec<PlanRow> {
    let mark = match (&change.how, &change.from, &change.to) {
        (How::Set(_), None, _) => ("+", ADD),
        (How::Delete, _, None) => ("-", REMOVE),
        (How::Set(_) | How::Delete | How::Revert, _, _) => ("~", CHANGE),
    };
    let when = change.when;
    let effect = match change.class {
        ActionClass::Benign => when.to_string(),
        ActionClass::Disruptive => format!("disruptive, {when}"),
        ActionClass::Destructive => format!("destructive: {}", action.why),
    };
    differences(change)
        .into_iter()
        .map(|(subject, shown)| PlanRow {
            declared: Some(LineSubject::Key(change.key)),
            ..row(action, mark, subject, shown, effect.clone())
        })
        .collect()
}

/// What holds an action is said before what it would do.
fn row(
    action: &Action,
    mark: (&'static str, Style),
    subject: String,
    change: String,
    effect: String,
) -> PlanRow {
    let style = match action.class {
        ActionClass::Benign => FAINT,
        ActionClass::Disruptive => DISRUPTIVE,
        ActionClass::Destructive => ALARM,
    };
    let (effect, style) = match &action.held {
        None => (effect, style),
        Some(held) if effect.is_empty() => (format!("held: {held}"), WAITS),
        Some(held) => (
            format!("held: {held}; {effect}"),
            if action.class == ActionClass::Destructive { ALARM } else { WAITS },
        ),
    };
    PlanRow { mark, subject, change, effect: (effect, style), declared: None }
}

/// Each difference as its subject and the rest: `net0.bridge`, `vmbr0 -> vmbr1`.
fn differences(change: &Change) -> Vec<(String, String)> {
    let lines = change.lines().into_iter();
    lines
        .map(|line| match line.split_once(' ') {
            Some((subject, rest)) => (subject.to_owned(), rest.to_owned()),
            None => (line, String::new()),
        })
        .collect()
}

pub(crate) fn name_of<'a>(guest: &GuestPlan, actual: &'a Snapshot) -> Option<&'a str> {
    let here = actual.guests.get(&guest.guest.vmid)?;
    let key = match here.id.kind {
        GuestKind::Lxc => "hostname",
        GuestKind::Qemu => "name",
    };
    here.config.as_ref().ok()?.current(here.id.kind, key)?.as_text()
}

/// One line that says it all.
pub(crate) fn summary(plan: &Plan) -> String {
    let run = plan.runnable().count();
    let mut held: BTreeMap<&'static str, usize> = BTreeMap::new();
    for action in plan.actions() {
        if let Some(reason) = &action.held {
            *held.entry(reason.reason().as_str()).or_default() += 1;
        }
    }
    let waiting: usize = plan.guests.iter().map(|guest| guest.waiting.len()).sum();
    let problems: usize = plan.guests.iter().map(|guest| guest.problems.len()).sum();
    let busy = plan.guests.iter().filter(|guest| guest.busy.is_some()).count();
    let mut parts = vec![if run == 0 {
        "nothing to run".to_owned()
    } else {
        format!("{} to run", counted(run, "action"))
    }];
    if !held.is_empty() {
        let total: usize = held.values().sum();
        let reasons: Vec<String> =
            held.iter().map(|(code, count)| format!("{count} {code}")).collect();
        parts.push(format!("{total} held ({})", reasons.join(", ")));
    }
    for (count, noun) in [(waiting, "waiting for a restart"), (busy, "busy")] {
        if count > 0 {
            parts.push(format!("{count} {noun}"));
        }
    }
    if problems > 0 {
        parts.push(counted(problems, "problem"));
    }
    format!("Plan: {}; {} as declared.", parts.join(", "), counted(plan.in_sync, "guest"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use evenkeel_core::actual::{ConfigEntry, Guest, GuestConfig, ListCoverage, Power};
    use evenkeel_core::model::release::Release;
    use evenkeel_core::plan::{PlanContext, plan};
    use evenkeel_core::value::compare::Conventions;

    use super::*;

    fn guest(
        id: &str,
        power: Power,
        lock: Option<&str>,
        stored: &[(&str, &str, Option<&str>)],
    ) -> Guest {
        let id: evenkeel_core::model::id::GuestId = id.parse().unwrap();
        let digest = ("digest", "da39a3ee", None);
        let entries = stored.iter().chain([&digest]).map(|(key, value, pending)| ConfigEntry {
            key: (*key).into(),
            value: (!value.is_empty()).then(|| (*value).into()),
            pending: pending.map(Into::into),
            delete: 0,
        });
        let config = Ok(GuestConfig::from_pending(id.kind, entries).into());
        Guest { id, power, template: false, ha: None, lock: lock.map(Into::into), config }
    }

    fn drawn(desired: &str, guests: Vec<Guest>) -> (String, String) {
        let mut sources = Sources::default();
        sources.add("desired.toml", desired);
        let desired = evenkeel_core::desired::load(&sources).unwrap();
        let snapshot = Snapshot {
            node: "pve1".parse().unwrap(),
            release: Release::V8_4,
            conventions: Conventions::default(),
            guests: guests.into_iter().map(|guest| (guest.id.vmid, guest)).collect(),
            elsewhere: BTreeMap::new(),
            hidden: BTreeSet::new(),
            coverage: ListCoverage::Whole,
        };
        let styled = render(&plan(&desired, &snapshot, &PlanContext::default()), &snapshot);
        (anstream::adapter::strip_str(&styled).to_string(), styled)
    }

    #[test]
    fn a_plan_says_everything_without_colour() {
        let desired = r#"
            [guest.101]
            kind = "lxc"
            run = "running"
            cores = 4
            tags = ["web"]
            net0 = { name = "eth0", bridge = "vmbr1", tag = 5 }
            rootfs = "local-lvm:16"
            mp0 = "local-lvm:4,mp=/data"
            unset = ["nameserver"]
            [guest.102]
            kind = "lxc"
            state = "absent"
            [guest.103]
            kind = "qemu"
            cores = 2
            [guest.104]
            kind = "qemu"
            memory = "4GiB"
            protection = false
            [guest.105]
            kind = "lxc"
            cores = 1
        "#;
        let net = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,type=veth";
        let guests = vec![
            guest(
                "lxc/101",
                Power::Stopped,
                None,
                &[
                    ("hostname", "web", None),
                    ("cores", "2", None),
                    ("net0", net, None),
                    ("nameserver", "9.9.9.9", None),
                    ("rootfs", "local-lvm:vm-101-disk-0,size=8G", None),
                    ("mp0", "local-lvm:vm-101-disk-1,mp=/data,size=8G", None),
                ],
            ),
            guest(
                "lxc/102",
                Power::Stopped,
                None,
                &[("rootfs", "local-lvm:vm-102-disk-0,size=8G", None)],
            ),
            guest("qemu/103", Power::Running, Some("backup"), &[("cores", "1", None)]),
            guest(
                "qemu/104",
                Power::Running,
                None,
                &[("memory", "2048", Some("4096")), ("protection", "1", None)],
            ),
            guest("lxc/105", Power::Running, None, &[("cores", "1", None)]),
        ];
        let (plain, styled) = drawn(desired, guests);
        assert_ne!(plain, styled, "a terminal gets colour");
        insta::assert_snapshot!(plain);
    }
}
