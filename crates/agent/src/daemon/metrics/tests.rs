//! The page of metrics says what is exported, and everything countable begins at 0.

use std::fmt::Write as _;

use evenkeel_core::model::id::GuestId;

use super::*;
use crate::daemon::status::{DesiredStatus, HeldStatus};

fn guest(number: u32) -> GuestId {
    format!("lxc/{number}").parse().unwrap()
}

fn agent(guests: Vec<GuestStatus>) -> AgentStatus {
    AgentStatus {
        version: "0".to_owned(),
        pid: 1,
        host: None,
        node: "pve1".parse().unwrap(),
        since: Timestamp::UNIX_EPOCH,
        desired: DesiredStatus::default(),
        configuration_trouble: None,
        node_trouble: None,
        last_pass: None,
        next_pass: None,
        in_sync: 1,
        guests,
        silent_storages: Vec::new(),
        queue_depth: 0,
    }
}

fn standing(number: u32) -> GuestStatus {
    let guest = guest(number);
    let drift = vec![];
    let held = vec![];
    let after_restart = vec![];
    let problems = vec![];
    GuestStatus { guest, drift, held, after_restart, problems }
}

fn value(text: &str, series: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is missing in:\n{text}")).to_owned()
}

#[test]
fn every_series_of_a_closed_list_begins_at_zero() {
    let text = Metrics::new("0").render(&ScrapedState::default());
    for (family, label, words) in [
        ("evenkeel_held", "reason", ReasonCode::ALL.iter().map(|code| code.as_str()).collect()),
        ("evenkeel_pending", "op", ActionKind::ALL.map(ActionKind::as_str).to_vec()),
        ("evenkeel_reconcile_total", "result", vec!["succeeded", "incomplete", "failed"]),
        ("evenkeel_guests", "state", GuestCondition::ALL.map(GuestCondition::as_str).to_vec()),
        ("evenkeel_pve_requests_total", "code", vec!["200", "not_sent", "unknown"]),
    ] {
        for word in words {
            assert_eq!(value(&text, &format!("{family}{{{label}=\"{word}\"}}")), "0");
        }
    }
    for kind in ActionKind::ALL {
        for result in OpOutcome::WORDS {
            let series =
                format!("evenkeel_ops_total{{kind=\"{}\",result=\"{result}\"}}", kind.as_str());
            assert_eq!(value(&text, &series), "0");
        }
    }
}

#[test]
fn every_end_of_an_op_has_its_word_among_those_that_begin_at_zero() {
    let why = String::new;
    let ends = [
        OpOutcome::Succeeded { warning: None },
        OpOutcome::Unneeded,
        OpOutcome::Stale { why: why() },
        OpOutcome::Held { reason: ReasonCode::Locked, why: why() },
        OpOutcome::Failed { why: why() },
        OpOutcome::Unknown { why: why() },
        OpOutcome::Skipped,
    ];
    assert_eq!(ends.map(|end| end.as_str()), OpOutcome::WORDS);
}

#[test]
fn a_guest_is_in_one_state_and_what_waits_is_counted_by_reason_until_it_is_over() {
    let metrics = Metrics::new("0");
    let why = || "why".to_owned();
    let held = |code| vec![HeldStatus { code, why: why() }];
    let guests = vec![
        GuestStatus { drift: vec![why()], ..standing(101) },
        GuestStatus { held: held(ReasonCode::Locked), ..standing(102) },
        GuestStatus {
            problems: vec![why()],
            held: held(ReasonCode::Locked),
            drift: vec![why()],
            ..standing(103)
        },
        GuestStatus { after_restart: vec![why()], ..standing(104) },
    ];
    let declared = || (100..=104).map(guest);
    metrics.guests(declared(), &agent(guests), 2);
    let now =
        ScrapedState { journal_seq: 7, frozen: true, pending: [(ActionKind::Destroy, 2)].into() };
    let text = metrics.render(&now);
    for state in GuestCondition::ALL {
        let series = format!("evenkeel_guests{{state=\"{}\"}}", state.as_str());
        assert_eq!(value(&text, &series), "1", "{series}");
    }
    for (series, wanted) in [
        ("evenkeel_held{reason=\"locked\"}", "2"),
        ("evenkeel_pending{op=\"destroy\"}", "2"),
        ("evenkeel_guest_in_sync{guest=\"lxc/100\"}", "1"),
        ("evenkeel_guest_in_sync{guest=\"lxc/103\"}", "0"),
        ("evenkeel_frozen", "1"),
        ("evenkeel_unknown_ops", "2"),
        ("evenkeel_journal_seq", "7"),
    ] {
        assert_eq!(value(&text, series), wanted, "{series}");
    }
    metrics.guests(declared(), &agent(Vec::new()), 0);
    let text = metrics.render(&ScrapedState::default());
    for (series, wanted) in [
        ("evenkeel_held{reason=\"locked\"}", "0"),
        ("evenkeel_pending{op=\"destroy\"}", "0"),
        ("evenkeel_guests{state=\"in_sync\"}", "5"),
        ("evenkeel_guests{state=\"problem\"}", "0"),
        ("evenkeel_frozen", "0"),
    ] {
        assert_eq!(value(&text, series), wanted, "{series}");
    }
}

/// The page, made from what is exported.
fn page(text: &str) -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         With `[metrics] listen` in agent.toml a running agent answers `GET /metrics` in Prometheus' text format. This page\n\
         is written from what it exports (`EVENKEEL_BLESS=1`). What has a closed list of label values begins at 0 for each\n\
         of them. [packaging/prometheus-alerts.yml](../../packaging/prometheus-alerts.yml) has rules that use them,\n\
         [packaging/grafana-dashboard.json](../../packaging/grafana-dashboard.json) shows them.\n\n\
         | metric | type | labels | what it says |\n|---|---|---|---|\n",
    );
    let mut rows: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((family, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' '))
        else {
            continue;
        };
        let typed = format!("# TYPE {family} ");
        let kind = text.lines().find_map(|line| line.strip_prefix(&typed)).unwrap();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let name = format!("{family}{suffix}");
        let sample = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{")));
        let labels = sample.map(|sample| sample.split('}').next().unwrap()).unwrap_or_default();
        let labels: Vec<String> = labels
            .split(',')
            .filter_map(|label| Some(format!("`{}`", label.split_once('=')?.0)))
            .collect();
        let mut row = String::new();
        let help = help.trim_end_matches('.');
        write!(row, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
        rows.push(row);
    }
    rows.sort();
    page.push_str(&rows.join("\n"));
    page.push('\n');
    page
}

#[test]
fn the_page_of_metrics_is_what_is_exported() {
    let metrics = Metrics::new("0");
    metrics.guests([guest(101)].into_iter(), &agent(Vec::new()), 0);
    metrics.locked_since.lock().unwrap().insert(guest(101), Instant::now());
    let page = page(&metrics.render(&ScrapedState::default()));
    let path = format!("{}/../../docs/reference/metrics.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/reference/metrics.md is stale: EVENKEEL_BLESS=1 writes it anew");
}
